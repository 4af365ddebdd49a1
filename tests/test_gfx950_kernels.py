"""Real Triton kernels, compiled offline for gfx950 and executed, against torch."""

from __future__ import annotations

import linecache

import gfx950_kernels as kernels
import numpy as np
import pytest
import torch
from gfx950_kernels import build, fused

from mxfp4lab.formats import dequantize_mxfp4, quantize_mxfp4
from mxfp4lab.gfx950 import OutOfBounds, run


def problem(m: int, n: int, k: int, seed: int = 0):
    """A bf16, B packed, B scales, A packed, A scales, C bf16."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(m, k, generator=generator).bfloat16()
    b = torch.randn(n, k, generator=generator).bfloat16()
    (a_q, a_s), (b_q, b_s) = quantize_mxfp4(a), quantize_mxfp4(b)
    c = dequantize_mxfp4(a_q, a_s).double() @ dequantize_mxfp4(b_q, b_s).double().T
    return a, b_q, b_s, a_q, a_s, c.float().bfloat16()


@pytest.mark.parametrize(
    "tile",
    [
        {},
        {"block_m": 32, "block_n": 128, "nonkdim": 32},
        {"block_m": 4, "num_warps": 2},
        {"num_stages": 1},
        {"block_m": 64, "block_n": 128, "num_warps": 8},
    ],
)
def test_fused_gemm_is_bit_exact(tile):
    m, n, k = 24, 352, 1024
    a, b_q, b_s, _, _, c = problem(m, n, k)
    out = torch.zeros_like(c)
    compiled = fused(**tile)
    grid = (-(-n // tile.get("block_n", 64)), -(-m // tile.get("block_m", 16)), 1)
    result = run(compiled, grid, a, b_q, b_s, out, m, n, k)
    assert torch.equal(out.view(torch.int16), c.view(torch.int16))
    assert result.by_class["mfma"] and result.by_class["convert"] and result.lane_instructions > 1e5


def test_spilled_registers_live_in_scratch():
    m, n, k = 32, 128, 512
    a, b_q, b_s, _, _, c = problem(m, n, k)
    out = torch.zeros_like(c)
    compiled = fused(block_m=32, block_n=128, eu=8)
    result = run(compiled, (1, 1, 1), a, b_q, b_s, out, m, n, k)
    assert compiled.descriptor.scratch_bytes and result.by_class["scratch"] and compiled.descriptor.spilled_vgprs
    assert torch.equal(out.view(torch.int16), c.view(torch.int16))


def test_split_k_and_reduce():
    m, n, k = 16, 192, 1792
    a, b_q, b_s, _, _, c = problem(m, n, k)
    partial = torch.full((7, m, n), float("nan"))
    run(fused(split=7, out="*fp32"), (3, 1, 7), a, b_q, b_s, partial, m, n, k)
    out = torch.zeros_like(c)
    reduce = build(
        kernels.reduce_splits,
        {"p_ptr": "*fp32", "c_ptr": "*bf16", "SIZE": "i32"},
        {"SPLIT": 7, "BLOCK": 512},
        num_warps=4,
    )
    run(reduce, (m * n // 512,), partial, out, m * n)
    assert torch.equal(out.view(torch.int16), c.view(torch.int16))


def test_one_workgroup_alone_touches_its_tile_alone():
    m, n, k = 16, 256, 512
    a, b_q, b_s, _, _, c = problem(m, n, k)
    out = torch.zeros_like(c)
    result = run(fused(), (4, 1, 1), a, b_q, b_s, out, m, n, k, workgroups=[2])
    assert torch.equal(out[:, 128:192], c[:, 128:192]) and not out[:, :128].any() and not out[:, 192:].any()
    assert result.workgroups == 1


def test_a_buffer_too_small_is_reported_with_its_source_line():
    m, n, k = 16, 64, 512
    a, b_q, b_s, _, _, c = problem(m, n, k)
    out = torch.zeros_like(c)
    with pytest.raises(OutOfBounds) as caught:
        run(fused(), (1, 1, 1), a, b_q[:-1].contiguous(), b_s, out, m, n, k, names=("a", "b", "s", "c", "M", "N", "K"))
    error = caught.value
    assert error.buffer == "b" and error.byte_offset == 63 * 256 and error.kind == "load"
    file, line = error.instruction.source
    assert file.endswith("gfx950_kernels.py") and "b_ptr" in linecache.getline(kernels.__file__, line)


@pytest.mark.parametrize("case", ["randn", "ties", "scales"])
def test_quantize_kernel(case):
    x = torch.randn(40, 512, generator=torch.Generator().manual_seed(3))
    if case == "ties":
        x = torch.randint(-28, 29, (40, 512), generator=torch.Generator().manual_seed(3)).float() / 4
    if case == "scales":
        x = x * torch.exp2(torch.arange(-60, 60, 3).float())[:, None]
    x = x.bfloat16()
    q, s = torch.zeros(40, 256, dtype=torch.uint8), torch.zeros(40, 16, dtype=torch.uint8)
    compiled = build(
        kernels.quantize,
        {"x_ptr": "*bf16", "q_ptr": "*u8", "s_ptr": "*u8", "M": "i32", "K": "i32"},
        {"BLOCK_M": 16, "BLOCK_K": 256},
        divisible=("K",),
        num_warps=4,
    )
    run(compiled, (3, 2), x, q, s, 40, 512)
    expected_q, expected_s = quantize_mxfp4(x)
    assert torch.equal(q, expected_q) and torch.equal(s, expected_s)


@pytest.mark.parametrize(
    ("name", "truth", "ulp"),
    [
        ("fma", lambda x, y: x * y + x, 0.5),
        ("div", lambda x, y: x / y, 0.5),
        ("fdiv_rn", lambda x, y: x / y, 0.5),
        ("exp2", lambda x, y: torch.exp2(x), 1),
        ("log2", lambda x, y: torch.log2(x), 1),
        ("log", lambda x, y: torch.log(x), 2),
        ("sqrt", lambda x, y: torch.sqrt(x), 0.5),
        ("rsqrt", lambda x, y: torch.rsqrt(x), 1),
        ("sin", lambda x, y: torch.sin(x), 2),
        ("floor", lambda x, y: torch.floor(x) + torch.ceil(y), 0.5),
        ("minmax", lambda x, y: torch.maximum(torch.minimum(x, y), x * 0.5), 0),
    ],
)
def test_elementwise(name, truth, ulp):
    generator = torch.Generator().manual_seed(7)
    x, y = (
        torch.randn(1000, generator=generator) * torch.exp2(torch.randint(-9, 9, (1000,), generator=generator).float())
        for _ in range(2)
    )
    if name in ("log", "log2", "sqrt", "rsqrt"):
        x = x.abs()
    if name == "exp2":
        x = x.clamp(-100, 100)
    out = torch.zeros(1000)
    compiled = build(
        kernels.elementwise,
        {"x_ptr": "*fp32", "y_ptr": "*fp32", "o_ptr": "*fp32", "SIZE": "i32"},
        {"OP": name, "BLOCK": 512},
        num_warps=4,
    )
    run(compiled, (2,), x, y, out, 1000)
    expected = truth(x.double(), y.double())
    step = torch.from_numpy(np.spacing(expected.abs().float().numpy())).double()
    assert float(((out.double() - expected).abs() / step).max()) <= ulp


def wrapped(values) -> np.ndarray:
    """Python integers as int32."""
    return np.array([(int(v) + 2**31) % 2**32 - 2**31 for v in values], np.int32)


def test_integers():
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-(2**31), 2**31, 600).astype(np.int32) for _ in range(2))
    y[::3] = rng.integers(-9, 9, 200)
    out = np.zeros((600, 8), np.int32)
    compiled = build(
        kernels.integers,
        {"x_ptr": "*i32", "y_ptr": "*i32", "o_ptr": "*i32", "SIZE": "i32"},
        {"BLOCK": 256},
        num_warps=4,
    )
    run(compiled, (3,), x, y, out, 600)
    a, b = [int(v) for v in x], [int(v) for v in y]
    unsigned = 2**32
    divisors = [v or 1 for v in b]
    quotient = [abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(a, divisors, strict=True)]
    pairs = list(zip(a, b, strict=True))
    expected = [
        quotient,
        [p - q * t for p, q, t in zip(a, divisors, quotient, strict=True)],
        [p * q >> 32 for p, q in pairs],
        [p * q for p, q in pairs],
        [(p >> (q & 31)) ^ (p << (q & 15)) for p, q in pairs],
        [(p % unsigned) // (q % unsigned | 1) for p, q in pairs],
        [min(p, q) + max(p, 7) for p, q in pairs],
        [(p % unsigned) * (q % unsigned) >> 32 for p, q in pairs],
    ]
    for column, values in enumerate(expected):
        np.testing.assert_array_equal(out[:, column], wrapped(values))


def test_row_statistics():
    x = torch.randn(16, 256, generator=torch.Generator().manual_seed(1))
    out = torch.zeros(16, 4)
    run(
        build(kernels.row_statistics, {"x_ptr": "*fp32", "o_ptr": "*fp32"}, {"COLS": 256, "ROWS": 16}, num_warps=4),
        (1,),
        x,
        out,
    )
    top, where = x.max(1)
    assert torch.equal(out[:, 0], top) and torch.equal(out[:, 1], where.float())
    torch.testing.assert_close(out[:, 2], torch.exp(x - top[:, None]).sum(1))
    torch.testing.assert_close(out[:, 3], x.sum(1), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("nonkdim", [16, 32])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_plain_dot(dtype, nonkdim):
    generator = torch.Generator().manual_seed(2)
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
    a, b = (torch.randint(-8, 9, shape, generator=generator).to(kind) for shape in ((64, 128), (128, 64)))
    c = torch.zeros(64, 64)
    compiled = build(
        kernels.dot_plain,
        {"a_ptr": f"*{dtype}", "b_ptr": f"*{dtype}", "c_ptr": "*fp32", "K": "i32"},
        {"M": 64, "N": 64, "BLOCK_K": 64},
        divisible=("K",),
        num_warps=4,
        matrix_instr_nonkdim=nonkdim,
    )
    run(compiled, (1,), a, b, c, 128)
    assert torch.equal(c, a.float() @ b.float())  # small integers: exact in any order


def test_the_last_workgroup_to_arrive_adds_up():
    parts = 9
    x = torch.randn(parts, 256, generator=torch.Generator().manual_seed(5))
    partial, count, out = torch.zeros(parts, 256), torch.zeros(1, dtype=torch.int32), torch.zeros(256)
    signature = {"x_ptr": "*fp32", "p_ptr": "*fp32", "count_ptr": "*i32", "out_ptr": "*fp32", "PARTS": "i32"}
    run(build(kernels.last_arriver, signature, {"BLOCK": 256}, num_warps=4), (parts,), x, partial, count, out, parts)
    expected = torch.zeros(256)
    for row in x:
        expected = expected + row * 2
    assert torch.equal(out, expected) and count.item() == parts


def test_workgroups_spin_for_their_turn():
    lock, out = torch.zeros(1, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    run(
        build(kernels.spin_chain, {"lock_ptr": "*i32", "out_ptr": "*i32"}, {"BLOCK": 256}, num_warps=2), (6,), lock, out
    )
    expected = 0
    for workgroup in reversed(range(6)):
        expected = expected * 2 + workgroup
    assert (out == expected).all() and lock.item() == 6
