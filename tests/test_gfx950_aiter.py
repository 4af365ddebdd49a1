"""aiter's own Triton kernels, out of the installed wheel: bits that nobody here wrote, and the fault they have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mxfp4lab.aiter.install import AiterError, find_aiter, load_file
from mxfp4lab.formats import dequantize_mxfp4, quantize_mxfp4
from mxfp4lab.gfx950 import OutOfBounds, compile_kernel, run, unwrap
from mxfp4lab.paths import data_path
from mxfp4lab.shapes import parse_shape
from mxfp4lab.task import generate_input, reference_output

pytestmark = pytest.mark.aiter
KERNELS = "ops/triton/_triton_kernels/"
GEMM = KERNELS + "gemm_afp4wfp4.py"


@pytest.fixture(scope="module")
def aiter():
    try:
        return find_aiter()
    except AiterError as error:
        pytest.skip(f"amd-aiter is not installed: {error}")


def compiled_kernel(install, file, name, pointers, constants, options, ones=()):
    """A kernel of the wheel; every other argument is an i32, strides that are 1 are folded."""
    kernel = unwrap(getattr(load_file(install, file), name))
    signature = {}
    for argument in kernel.arg_names:
        if argument in pointers:
            signature[argument] = pointers[argument]
        elif argument not in constants and argument not in ones:
            signature[argument] = "i32"
    return compile_kernel(kernel, signature, {**constants, **dict.fromkeys(ones, 1)}, options)


def call(compiled, grid, values, **options):
    return run(compiled, grid, *(values[name] for name, _ in compiled.signature), **options)


@pytest.mark.parametrize("group", ["bf16_all_sorted", "randn_bf16", "ties", "extremes"])
def test_the_quantize_kernel_gives_the_golden_bits_of_its_release(aiter, group):
    golden = np.load(data_path("golden/golden_mxfp4_quant_op.npz"), allow_pickle=False)
    x = golden[f"{group}.x_bits"].view(np.float32)
    rows = len(x)
    compiled = compiled_kernel(
        aiter,
        KERNELS + "quant.py",
        "_dynamic_mxfp4_quant_kernel",
        {"x_ptr": "*fp32", "x_fp4_ptr": "*u8", "bs_ptr": "*u8"},
        {
            "BLOCK_SIZE_M": 32,
            "BLOCK_SIZE_N": 32,
            "NUM_ITER": 1,
            "NUM_STAGES": 1,
            "MXFP4_QUANT_BLOCK_SIZE": 32,
            "EVEN_M_N": False,
            "SCALING_MODE": 0,
        },
        {"num_warps": 4},
        ("stride_x_n_in", "stride_x_fp4_n_in", "stride_bs_n_in"),
    )
    packed, scale = np.zeros((rows, 16), np.uint8), np.zeros((rows, 1), np.uint8)
    values = {
        "x_ptr": x.copy(),
        "x_fp4_ptr": packed,
        "bs_ptr": scale,
        "stride_x_m_in": 32,
        "stride_x_fp4_m_in": 16,
        "stride_bs_m_in": 1,
        "M": rows,
        "N": 32,
    }
    call(compiled, (-(-rows // 32), 1), values)
    keep = golden[f"{group}.portable"]
    assert keep.sum() >= 7
    np.testing.assert_array_equal(packed[keep], golden[f"{group}.packed_pre975"][keep])
    np.testing.assert_array_equal(scale[keep, 0], golden[f"{group}.scale"][keep])


def gemm_problem(text):
    shape = parse_shape(text)
    data = generate_input(shape, 7)
    a, b, b_q, b_shuffle, b_scale_sh = data
    a_q, a_scale = quantize_mxfp4(a)
    return shape, a_q, a_scale, b_q, quantize_mxfp4(b)[1], b_shuffle, b_scale_sh, reference_output(data)


def gemm(aiter, name, shape, tile, out, split=1, warps=4, nonkdim=16):
    m, n, k = tile
    constants = {
        "BLOCK_SIZE_M": m,
        "BLOCK_SIZE_N": n,
        "BLOCK_SIZE_K": k,
        "GROUP_SIZE_M": 1,
        "NUM_KSPLIT": split,
        "SPLITK_BLOCK_SIZE": shape.k // split,
        "EVEN_K": True,
        "cache_modifier": ".cg",
    }
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "a_scales_ptr", "b_scales_ptr"), "*u8") | {"c_ptr": out}
    ones = ("stride_ak", "stride_bk", "stride_cn", "stride_ask", "stride_bsk")
    options = {"num_warps": warps, "num_stages": 2, "waves_per_eu": 2, "matrix_instr_nonkdim": nonkdim}
    return compiled_kernel(aiter, GEMM, name, pointers, constants, options, ones)


@pytest.mark.parametrize(("tile", "split"), [((16, 64, 256), 1), ((32, 128, 256), 2)])
def test_fp4_gemm_row_major(aiter, tile, split):
    shape, a_q, a_scale, b_q, b_scale, _, _, reference = gemm_problem("32x256x1024")
    compiled = gemm(aiter, "_gemm_afp4_wfp4_kernel", shape, tile, "*fp32", split)
    c = torch.zeros(split, shape.m, shape.n)
    half = shape.k // 2
    values = {
        "a_ptr": a_q,
        "b_ptr": b_q,
        "c_ptr": c,
        "a_scales_ptr": a_scale,
        "b_scales_ptr": b_scale,
        "M": shape.m,
        "N": shape.n,
        "K": half,
        "stride_am": half,
        "stride_bn": half,
        "stride_ck": shape.m * shape.n,
        "stride_cm": shape.n,
        "stride_asm": shape.k // 32,
        "stride_bsn": shape.k // 32,
    }
    grid = (-(-shape.m // tile[0]) * -(-shape.n // tile[1]) * split,)
    result = call(compiled, grid, values, races=True)
    assert not result.findings
    assert torch.equal(c.sum(0).bfloat16(), reference)


def preshuffled(aiter, text, tile, **options):
    shape, a_q, a_scale, _, _, b_shuffle, b_scale_sh, reference = gemm_problem(text)
    compiled = gemm(aiter, "_gemm_afp4_wfp4_kernel_preshuffled_weight_scales", shape, tile, "*bf16", **options)
    c = torch.zeros(shape.m, shape.n, dtype=torch.bfloat16)
    half = shape.k // 2
    values = {
        "a_ptr": a_q,
        "b_ptr": b_shuffle,
        "c_ptr": c,
        "a_scales_ptr": a_scale,
        "b_scales_ptr": b_scale_sh,
        "M": shape.m,
        "N": shape.n,
        "K": half,
        "stride_am": half,
        "stride_bn": half * 16,
        "stride_ck": 0,
        "stride_cm": shape.n,
        "stride_asm": shape.k // 32,
        "stride_bsn": b_scale_sh.shape[1] * 32,
    }
    grid = (-(-shape.m // tile[0]) * -(-shape.n // tile[1]),)
    return compiled, grid, values, c, reference


@pytest.mark.parametrize(("tile", "options"), [((16, 128, 256), {}), ((16, 64, 512), {"warps": 2})])
def test_fp4_gemm_preshuffled(aiter, tile, options):
    compiled, grid, values, c, reference = preshuffled(aiter, "16x256x1024", tile, **options)
    result = call(compiled, grid, values, races=True)
    assert not result.findings and torch.equal(c, reference)


@pytest.mark.parametrize("text", ["16x2112x7168", "256x2880x512"])
def test_its_preshuffle_kernel_reads_past_b(aiter, text):
    # It wraps row groups of 16 by % N where % (N // 16) is meant: N / 16 groups exist, the last tile asks for more.
    compiled, grid, values, c, reference = preshuffled(aiter, text, (16, 128, 256))
    with pytest.raises(OutOfBounds) as caught:
        call(compiled, grid, values)
    error = caught.value
    rows, half = values["N"], values["K"]
    assert error.buffer == "b_ptr" and error.kind == "load" and error.buffer_bytes == rows * half
    assert rows * half <= error.byte_offset < (rows + 128) * half
    assert "past its end" in str(error) and "gemm_afp4wfp4.py" in str(error)
    if text != "256x2880x512":
        return
    # Masked columns only: going on after the finding, C is right.
    result = call(compiled, grid, values, on_out_of_bounds="record")
    assert result.findings and {f.buffer for f in result.findings} <= {"b_ptr", "b_scales_ptr"}
    assert torch.equal(c, reference)


def test_fused_quantize_and_gemm_with_bf16_atomics(aiter):
    generator = torch.Generator().manual_seed(1)
    a = torch.randint(-6, 7, (16, 512), generator=generator).bfloat16()  # no ties: either rounding gives the same
    a[:, ::32] = 6
    b_q, b_scale = quantize_mxfp4(torch.randn(128, 512, generator=generator).bfloat16())
    constants = {
        "BLOCK_SIZE_M": 16,
        "BLOCK_SIZE_N": 128,
        "BLOCK_SIZE_K": 256,
        "GROUP_SIZE_M": 1,
        "NUM_KSPLIT": 1,
        "SPLITK_BLOCK_SIZE": 512,
        "EVEN_K": True,
        "cache_modifier": ".cg",
        "GRID_MN": 1,
    }
    compiled = compiled_kernel(
        aiter,
        KERNELS + "gemm_afp4wfp4_pre_quant_atomic.py",
        "_gemm_afp4_wfp4_pre_quant_kernel",
        {"a_ptr": "*bf16", "b_ptr": "*u8", "c_ptr": "*bf16", "b_scales_ptr": "*u8"},
        constants,
        {"num_warps": 4, "num_stages": 2, "matrix_instr_nonkdim": 16},
        ("stride_ak", "stride_bk", "stride_cn", "stride_bsk"),
    )
    c = torch.zeros(16, 128, dtype=torch.bfloat16)
    values = {
        "a_ptr": a,
        "b_ptr": b_q,
        "c_ptr": c,
        "b_scales_ptr": b_scale,
        "M": 16,
        "N": 128,
        "K": 256,
        "stride_am": 512,
        "stride_bn": 256,
        "stride_ck": 0,
        "stride_cm": 128,
        "stride_bsn": 16,
    }
    result = call(compiled, (1,), values, races=True)
    assert not result.findings
    a_values = dequantize_mxfp4(*quantize_mxfp4(a, rounding="half_away"))
    expected = (a_values.double() @ dequantize_mxfp4(b_q, b_scale).double().T).float().bfloat16()
    assert torch.equal(c, expected)
