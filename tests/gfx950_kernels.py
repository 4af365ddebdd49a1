"""Small Triton kernels of the MXFP4 family, compiled offline for gfx950: real machine code for the emulator's tests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from mxfp4lab.gfx950 import KernelDescriptor, Program, parse_amdgcn

TARGET = GPUTarget("hip", "gfx950", 64)


@dataclass(frozen=True)
class Built:
    """What the emulator needs of a compiled kernel."""

    name: str
    program: Program
    descriptor: KernelDescriptor
    asm: str


def build(
    fn, signature: dict[str, str], constants: dict | None = None, *, divisible: tuple[str, ...] = (), **options
) -> Built:
    """Compile a jit function for gfx950.

    Args:
        fn: the `triton.jit` function.
        signature: runtime argument -> type ("*bf16", "i32").
        constants: constexpr values.
        divisible: arguments that are multiples of 16 (pointers always are).
        options: num_warps, num_stages, waves_per_eu, matrix_instr_nonkdim.
    """
    constants = constants or {}
    names = list(fn.arg_names)
    types = {name: signature.get(name, "constexpr") for name in names}
    attrs = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name, kind in signature.items()
        if kind.startswith("*") or name in divisible
    }
    source = ASTSource(fn=fn, signature=types, constexprs=constants, attrs=attrs)
    compiled = triton.compile(source, target=TARGET, options=options)
    program, descriptor = parse_amdgcn(compiled.asm["amdgcn"], lds_bytes=compiled.metadata.shared)
    return Built(descriptor.name, program, descriptor, compiled.asm["amdgcn"])


@triton.jit
def _amax(a, b):
    return tl.maximum(a, b)


@triton.jit
def quantize_hw(x, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """[BLOCK_M, BLOCK_K] f32 -> ([BLOCK_M, BLOCK_K // 2] uint8, [BLOCK_M, BLOCK_K // 32] uint8) by the hw convert."""
    blocks = x.reshape(BLOCK_M, BLOCK_K // 32, 32)
    amax = tl.max(tl.abs(blocks), axis=2)
    bits = (amax.to(tl.int32, bitcast=True) + 0x200000) >> 23
    byte = tl.maximum(bits - 2, 0)
    byte = tl.minimum(byte, 254)
    scale = (byte << 23).to(tl.float32, bitcast=True)
    scale = tl.where(byte == 0, 5.877471754111438e-39, scale)
    pairs = x.reshape(BLOCK_M, BLOCK_K // 32, 16, 2)
    even, odd = tl.split(pairs)
    wide = tl.broadcast_to(scale[:, :, None], (BLOCK_M, BLOCK_K // 32, 16))
    packed = tl.inline_asm_elementwise(
        "v_cvt_scalef32_pk_fp4_f32 $0, $1, $2, $3\n\ts_nop 1", "=&v,v,v,v", [even, odd, wide],
        dtype=tl.int32, is_pure=True, pack=1,
    )  # fmt: skip
    packed = (packed & 0xFF).to(tl.uint8)
    return packed.reshape(BLOCK_M, BLOCK_K // 2), byte.to(tl.uint8)


@triton.jit
def gemm_fused(a_ptr, b_ptr, s_ptr, c_ptr, M, N, K, SPLIT: tl.constexpr,
               BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """C[split, M, N] partials: A bf16 quantized in registers, B [N, K // 2] and scales [N, K // 32] row-major."""
    pid_n = tl.program_id(0)
    pid_m = tl.program_id(1)
    pid_s = tl.program_id(2)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k_first = pid_s * (K // SPLIT)
    ks = tl.arange(0, BLOCK_K)
    kb = tl.arange(0, BLOCK_K // 2)
    kg = tl.arange(0, BLOCK_K // 32)
    row_ok = rows < M
    col_ok = cols < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k0 in range(k_first, k_first + K // SPLIT, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * K + (k0 + ks)[None, :], mask=row_ok[:, None], other=0.0).to(tl.float32)
        b = tl.load(b_ptr + cols[:, None] * (K // 2) + (k0 // 2 + kb)[None, :], mask=col_ok[:, None], other=0)
        s = tl.load(s_ptr + cols[:, None] * (K // 32) + (k0 // 32 + kg)[None, :], mask=col_ok[:, None], other=0)
        a_q, a_s = quantize_hw(a, BLOCK_M, BLOCK_K)
        acc = tl.dot_scaled(a_q, a_s, "e2m1", b.T, s, "e2m1", acc)
    mask = row_ok[:, None] & col_ok[None, :]
    place = c_ptr + pid_s * M * N + rows[:, None] * N + cols[None, :]
    tl.store(place, acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def quantize(x_ptr, q_ptr, s_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """x [M, K] bf16 -> q [M, K // 2], s [M, K // 32]."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    mask = (rows[:, None] < M) & (ks[None, :] < K)
    x = tl.load(x_ptr + rows[:, None] * K + ks[None, :], mask=mask, other=0.0).to(tl.float32)
    q, s = quantize_hw(x, BLOCK_M, BLOCK_K)
    kb = tl.program_id(1) * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
    kg = tl.program_id(1) * (BLOCK_K // 32) + tl.arange(0, BLOCK_K // 32)
    tl.store(q_ptr + rows[:, None] * (K // 2) + kb[None, :], q, mask=(rows[:, None] < M) & (kb[None, :] < K // 2))
    tl.store(s_ptr + rows[:, None] * (K // 32) + kg[None, :], s, mask=(rows[:, None] < M) & (kg[None, :] < K // 32))


@triton.jit
def reduce_splits(p_ptr, c_ptr, SIZE, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    """c[SIZE] bf16 = sum over SPLIT of p[SPLIT, SIZE] f32."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for split in tl.static_range(SPLIT):
        total += tl.load(p_ptr + split * SIZE + at, mask=at < SIZE, other=0.0)
    tl.store(c_ptr + at, total.to(tl.bfloat16), mask=at < SIZE)


@triton.jit
def last_arriver(x_ptr, p_ptr, count_ptr, out_ptr, PARTS, BLOCK: tl.constexpr):
    """out[BLOCK] = sum over workgroups of x; the last to arrive adds up all partial results."""
    pid = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(p_ptr + pid * BLOCK + at, tl.load(x_ptr + pid * BLOCK + at) * 2.0)
    tl.debug_barrier()
    arrived = tl.atomic_add(count_ptr, 1, sem="acq_rel")
    if arrived == PARTS - 1:
        total = tl.zeros((BLOCK,), tl.float32)
        for part in range(PARTS):
            total += tl.load(p_ptr + part * BLOCK + at, volatile=True)
        tl.store(out_ptr + at, total)


@triton.jit
def spin_chain(lock_ptr, out_ptr, BLOCK: tl.constexpr):
    """Workgroups add to out one after the other in reverse order; each spins until its turn comes."""
    pid = tl.program_id(0)
    turn = tl.num_programs(0) - 1 - pid
    while tl.atomic_cas(lock_ptr, turn, turn, sem="acquire") != turn:
        pass
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(out_ptr + at, volatile=True) * 2 + pid)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, turn + 1, sem="release")


@triton.jit
def elementwise(x_ptr, y_ptr, o_ptr, SIZE, OP: tl.constexpr, BLOCK: tl.constexpr):
    """o[i] = OP(x[i], y[i]) over f32, one row of outputs."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < SIZE, other=1.0)
    y = tl.load(y_ptr + at, mask=at < SIZE, other=1.0)
    if OP == "fma":
        o = tl.fma(x, y, x)
    elif OP == "div":
        o = x / y
    elif OP == "exp2":
        o = tl.exp2(x)
    elif OP == "exp":
        o = tl.exp(x)
    elif OP == "log2":
        o = tl.log2(x)
    elif OP == "log":
        o = tl.log(x)
    elif OP == "sqrt":
        o = tl.sqrt(x)
    elif OP == "rsqrt":
        o = tl.rsqrt(x)
    elif OP == "sin":
        o = tl.sin(x)
    elif OP == "floor":
        o = tl.floor(x) + tl.ceil(y)
    elif OP == "minmax":
        o = tl.maximum(tl.minimum(x, y), x * 0.5)
    elif OP == "fdiv_rn":
        o = tl.div_rn(x, y)
    else:
        tl.static_assert(False, "unknown OP")
    tl.store(o_ptr + at, o, mask=at < SIZE)


@triton.jit
def integers(x_ptr, y_ptr, o_ptr, SIZE, BLOCK: tl.constexpr):
    """Eight int32 results per element: o[i, j]."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < SIZE, other=1)
    y = tl.load(y_ptr + at, mask=at < SIZE, other=1)
    z = x.to(tl.int64) * y.to(tl.int64)
    base = o_ptr + at * 8
    ok = at < SIZE
    tl.store(base, x // tl.where(y == 0, 1, y), mask=ok)
    tl.store(base + 1, x % tl.where(y == 0, 1, y), mask=ok)
    tl.store(base + 2, (z >> 32).to(tl.int32), mask=ok)
    tl.store(base + 3, z.to(tl.int32), mask=ok)
    tl.store(base + 4, (x >> (y & 31)) ^ (x << (y & 15)), mask=ok)
    tl.store(
        base + 5,
        (x.to(tl.uint32, bitcast=True) // (y.to(tl.uint32, bitcast=True) | 1)).to(tl.int32, bitcast=True),
        mask=ok,
    )
    tl.store(base + 6, tl.minimum(x, y) + tl.maximum(x, 7), mask=ok)
    tl.store(
        base + 7,
        tl.umulhi(x.to(tl.uint32, bitcast=True), y.to(tl.uint32, bitcast=True)).to(tl.int32, bitcast=True),
        mask=ok,
    )


@triton.jit
def row_statistics(x_ptr, o_ptr, COLS: tl.constexpr, ROWS: tl.constexpr):
    """Per row of x [ROWS, COLS] f32: max, argmax, sum of exp(x - max), running sum's last value."""
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLS)
    x = tl.load(x_ptr + r[:, None] * COLS + c[None, :])
    top = tl.max(x, axis=1)
    where = tl.argmax(x, axis=1)
    total = tl.sum(tl.exp(x - top[:, None]), axis=1)
    running = tl.cumsum(x, axis=1)
    last = tl.sum(tl.where(c[None, :] == COLS - 1, running, 0.0), axis=1)
    tl.store(o_ptr + r * 4, top)
    tl.store(o_ptr + r * 4 + 1, where.to(tl.float32))
    tl.store(o_ptr + r * 4 + 2, total)
    tl.store(o_ptr + r * 4 + 3, last)


@triton.jit
def dot_plain(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    """c[M, N] f32 = a[M, K] @ b[K, N] in the pointers' type."""
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((M, N), tl.float32)
    for k0 in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + m[:, None] * K + (k0 + k)[None, :])
        b = tl.load(b_ptr + (k0 + k)[:, None] * N + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


@cache
def fused(
    block_m=16, block_n=64, block_k=256, num_warps=4, num_stages=2, nonkdim=16, split=1, out="*bf16", eu=0
) -> Built:
    """`gemm_fused` with the given tile."""
    return build(
        gemm_fused, {"a_ptr": "*bf16", "b_ptr": "*u8", "s_ptr": "*u8", "c_ptr": out, **dict.fromkeys("MNK", "i32")},
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "SPLIT": split}, divisible=("K",),
        num_warps=num_warps, num_stages=num_stages, matrix_instr_nonkdim=nonkdim, waves_per_eu=eu,
    )  # fmt: skip
