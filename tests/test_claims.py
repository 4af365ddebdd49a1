"""An installed aiter's quantize op as machine code: named by what it answers, never by its name."""

import pytest
import torch

from mxfp4lab.aiter.install import AiterError, find_aiter
from mxfp4lab.aiter.quantizer import compile_quantizer, emulated_quantizer, gpu_quantizer, probe_aiter
from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.proof import bf16_sweep, compare, golden_sweep
from mxfp4lab.quantizers import aiter_answerer, torch_answerer


@pytest.fixture(scope="module")
def wheel():
    try:
        return find_aiter()
    except AiterError as error:
        pytest.skip(str(error))


@pytest.mark.aiter
def test_the_wheels_op_is_named_by_asking_it(wheel):
    verdict = probe_aiter(wheel, "emulator")
    assert (verdict.rounding, verdict.scales_ok, verdict.usable) == ("half_away", True, False)
    assert "before PR 975" in verdict.rounding_name
    golden, recorded = golden_sweep()
    found = compare(golden, {"aiter": aiter_answerer(wheel), **recorded})
    assert found.between("aiter", "golden before 975").identical


@pytest.mark.aiter
def test_the_wheels_op_shifts_tiny_elements_too_far_and_flushes_the_top_of_the_range(wheel):
    answerers = {"old": torch_answerer("half_away"), "aiter": aiter_answerer(wheel, torch.bfloat16)}
    found = compare(bf16_sweep([0]), answerers).between("old", "aiter")
    assert found.elsewhere > 0
    assert found.elsewhere_scaled[1] < 2.0**-32  # 32-bit shifts count modulo 32
    assert (found.scale_bytes, found.on_ties, found.at_the_top) == (0, 0, 0)
    found = compare(bf16_sweep([127]), answerers).between("old", "aiter")
    assert found.at_the_top > 0  # its exp2(-127) is 0, as on a GPU: zero nibbles
    assert found.scale_bytes == 0


@pytest.mark.aiter
def test_requests_that_cannot_be_met_are_one_line(wheel):
    with pytest.raises(AiterError, match=r"dtype=torch\.float16 must be float32 or bfloat16"):
        compile_quantizer(wheel, torch.float16)
    with pytest.raises(ValueError, match="backend='cpu' must be one of"):
        probe_aiter(wheel, "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(AiterError, match="has no GPU that torch can use"):
            gpu_quantizer(wheel)


# A tree as an aiter since PR 975 is laid out, with this project's own arithmetic in it
TREE_KERNEL = """
import triton
import triton.language as tl
from mxfp4lab.kernels.convert import quantize_sw_aiter


@triton.jit
def _mxfp4_quant_op(x, BLOCK_SIZE_N, BLOCK_SIZE_M, MXFP4_QUANT_BLOCK_SIZE):
    return quantize_sw_aiter(x, BLOCK_SIZE_M, BLOCK_SIZE_N)


@triton.jit
def _dynamic_mxfp4_quant_kernel(x_ptr, x_fp4_ptr, bs_ptr, stride_x_m_in, stride_x_n_in, stride_x_fp4_m_in,
                                stride_x_fp4_n_in, stride_bs_m_in, stride_bs_n_in, M, N, BLOCK_SIZE_M: tl.constexpr,
                                BLOCK_SIZE_N: tl.constexpr, NUM_ITER: tl.constexpr, NUM_STAGES: tl.constexpr,
                                MXFP4_QUANT_BLOCK_SIZE: tl.constexpr, EVEN_M_N: tl.constexpr,
                                SCALING_MODE: tl.constexpr):
    m = tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
    n = tl.program_id(1) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)[None, :]
    x = tl.load(x_ptr + m * stride_x_m_in + n * stride_x_n_in, mask=(m < M) & (n < N), other=0.0)
    packed, scale = _mxfp4_quant_op(x.to(tl.float32), BLOCK_SIZE_N, BLOCK_SIZE_M, MXFP4_QUANT_BLOCK_SIZE)
    p = tl.program_id(1) * (BLOCK_SIZE_N // 2) + tl.arange(0, BLOCK_SIZE_N // 2)[None, :]
    tl.store(x_fp4_ptr + m * stride_x_fp4_m_in + p * stride_x_fp4_n_in, packed, mask=(m < M) & (p < N // 2))
    s = tl.program_id(1) * (BLOCK_SIZE_N // 32) + tl.arange(0, BLOCK_SIZE_N // 32)[None, :]
    tl.store(bs_ptr + m * stride_bs_m_in + s * stride_bs_n_in, scale, mask=(m < M) & (s < (N + 31) // 32))
"""


def plant(root, text):
    path = root / "aiter/ops/triton/_triton_kernels/quant/quant.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (root / "aiter/__init__.py").write_text("raise RuntimeError('must not run')\n")
    return find_aiter(root)


def test_a_tree_whose_op_rounds_to_even_may_stand_for_the_reference(tmp_path):
    install = plant(tmp_path, TREE_KERNEL)
    verdict = probe_aiter(install, "emulator")
    assert (verdict.rounding, verdict.usable) == ("even", True)
    assert verdict.reason == "may stand for the task's reference"
    x = torch.randn(5, 96, generator=torch.Generator().manual_seed(2)).bfloat16()
    for got, want in zip(emulated_quantizer(install, torch.bfloat16)(x), quantize_mxfp4(x), strict=True):
        assert got.equal(want)


def test_a_kernel_with_other_parameters_is_named(tmp_path):
    install = plant(tmp_path, TREE_KERNEL.replace("SCALING_MODE: tl", "SCALING_MODE: tl.constexpr, SEED: tl"))
    with pytest.raises(AiterError, match=r"has new parameters \['SEED'\] and lacks \[\]"):
        compile_quantizer(install)
