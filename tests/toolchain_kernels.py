"""Small kernels for the tests of the toolchain and of the hazard check."""

import triton
import triton.language as tl


@triton.jit
def scaled_dot(a, b, scale, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    byte = tl.arange(0, BK // 2)
    group = tl.arange(0, BK // 32)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, k, BK):
        a_tile = tl.load(a + m[:, None] * (k // 2) + byte[None, :] + k0 // 2)
        b_tile = tl.load(b + n[:, None] * (k // 2) + byte[None, :] + k0 // 2)
        a_scale = tl.load(scale + m[:, None] * (k // 32) + group[None, :] + k0 // 32)
        b_scale = tl.load(scale + n[:, None] * (k // 32) + group[None, :] + k0 // 32)
        acc = tl.dot_scaled(a_tile, a_scale, "e2m1", b_tile.T, b_scale, "e2m1", acc)
    tl.store(c + m[:, None] * 2112 + n[None, :], acc.to(tl.bfloat16))


@triton.jit
def double(x):
    return x * 2


@triton.jit
def copy_doubled(x, y, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + index, double(tl.load(x + index, mask=index < n)), mask=index < n)


@triton.jit
def every_kind(
    a,
    b: tl.const,
    n,
    m: tl.int32,
    f,
    flag,
    nothing,
    h: "fp32",  # noqa: F821 Triton reads these strings
    w: "i64",  # noqa: F821
    q: "*bf16",  # noqa: F722
    BLOCK: tl.constexpr = 64,
):
    index = tl.arange(0, BLOCK)
    tl.store(a + index, index * (n + m))


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["k", "a"])
def half_specialized(a, b, n, k, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(a + index * n, tl.load(b + index * k))


@triton.jit
def accumulate_dot(a, b, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, 4096, BK):
        acc += tl.dot(
            tl.load(a + m[:, None] * 4096 + k[None, :] + k0), tl.load(b + n[None, :] * 4096 + k[:, None] + k0)
        )
    tl.store(c + m[:, None] * BN + n[None, :], acc)


@triton.jit
def to_fp8_xor(x, y, BLOCK: tl.constexpr):
    """Scheduled by the compiler: conversions into upper bytes, their result read by the next operation."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x + index).to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    tl.store(y + index, bits ^ 0x5A)


@triton.jit
def row_sums(x, y, BLOCK: tl.constexpr):
    """Scheduled by the compiler: a reduction over lanes by DPP, and a comparison that selects."""
    row = tl.program_id(0)
    value = tl.load(x + row * BLOCK + tl.arange(0, BLOCK))
    total = tl.sum(tl.exp2(value), axis=0)
    tl.store(y + row, tl.where(total > 1.0, 1.0 / total, total))


@triton.jit
def convert_pair(x, y, BLOCK: tl.constexpr, ASM: tl.constexpr):
    """$0 = ASM of one fp32: the place to plant hazards in inline assembly."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    packed = tl.inline_asm_elementwise(ASM, "=&v,v", [tl.load(x + index)], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y + index, packed)


@triton.jit
def wrong_name(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), not_defined(3))  # noqa: F821


@triton.jit
def wrong_shapes(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, 2 * BLOCK)))


@triton.jit
def add_to_many(inputs, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    x, (y, n) = inputs
    tl.store(y + index, tl.load(x + index) + n)
