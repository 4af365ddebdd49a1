"""Claims from the field compute the verdicts that the evidence gives, and converts answer as machine code."""

import pytest
import torch

from mxfp4lab.aiter.install import AiterError, find_aiter
from mxfp4lab.aiter.quantizer import compile_quantizer, emulated_quantizer, gpu_quantizer, probe_aiter
from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.tours import claims
from mxfp4lab.tours.answerers import aiter_answerer, kernel_answerer, torch_answerer
from mxfp4lab.tours.proof import bf16_sweep, binade_sweep, compare, golden_sweep


@pytest.fixture(scope="module")
def wheel():
    try:
        return find_aiter()
    except AiterError as error:
        pytest.skip(str(error))


def test_an_inverted_scale_operand_explains_the_claim_about_the_hardware_convert():
    shares = claims.scale_operand_shares()
    assert shares["2^e, which it divides by"] == 0.0
    assert shares["2^-e, as the software multiplies by"] == pytest.approx(0.976, abs=0.002)
    claim = claims.hardware_convert_claim()
    assert not claim.holds
    assert "97.5 %" in claim.because or "97.6 %" in claim.because


def test_the_interpreter_parts_from_the_machine_code():
    told, true = claims.interpreter_answers(), claims.compiled_answers()
    assert true == {"not": [0, 1, 1, 0], "bf16": [0.5, 2.0, 1.0078125, 0.25]}
    assert told != true
    claim = claims.interpreter_claim()
    assert not claim.holds
    assert "interpreter" in claim.because


def test_a_failing_interpreter_is_one_line(monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(RuntimeError, match="the interpreter failed: no message"):
        claims.interpreter_answers()


@pytest.mark.parametrize("convert", ["sw_aiter", "sw_bits", "hw_f32", "hw_bf16"])
def test_every_convert_as_machine_code_agrees_on_bf16(convert):
    sweep = bf16_sweep([-127, 0, 125, 127])
    found = compare(sweep, {"torch": torch_answerer(), convert: kernel_answerer(convert)})
    assert found.between("torch", convert).identical


def test_float32_is_exact_in_hardware_and_one_hair_off_in_sw_bits():
    golden, recorded = golden_sweep()
    answers = {name: kernel_answerer(name) for name in ("sw_aiter", "hw_f32", "sw_bits")}
    found = compare(golden, answers | recorded)
    for name in ("sw_aiter", "hw_f32"):
        assert found.between(name, "golden, since PR 975").identical
    hair = found.between("sw_bits", "golden, since PR 975")
    assert hair.scale_bytes == hair.on_ties == 0
    assert hair.elsewhere > 0
    assert hair.elsewhere_scaled[1] < 1.0  # it drops mantissa bits of magnitudes below 1, which bf16 does not have
    one = compare(binade_sweep(0, 1, 4097), {"torch": torch_answerer(), "hw_f32": answers["hw_f32"]})
    assert one.differences[0].identical


def test_hw_bf16_refuses_float32():
    with pytest.raises(ValueError, match="hw_bf16 reads bf16 only"):
        kernel_answerer("hw_bf16")(torch.zeros(1, 32))


@pytest.mark.aiter
def test_the_wheels_op_is_named_by_asking_it(wheel):
    verdict = probe_aiter(wheel, "emulator")
    assert (verdict.rounding, verdict.scales_ok, verdict.usable) == ("half_away", True, False)
    assert "before PR 975" in verdict.rounding_name
    golden, recorded = golden_sweep()
    found = compare(golden, {"aiter": aiter_answerer(wheel), **recorded})
    assert found.between("aiter", "golden, before PR 975").identical


@pytest.mark.aiter
def test_the_wheels_op_shifts_tiny_elements_too_far_and_is_right_at_the_top_of_the_range(wheel):
    answerers = {"old": torch_answerer("half_away"), "aiter": aiter_answerer(wheel, torch.bfloat16)}
    for exponent in (0, 127):
        found = compare(bf16_sweep([exponent]), answerers).differences[0]
        assert found.elsewhere > 0
        assert found.elsewhere_scaled[1] < 2.0**-32  # 32-bit shifts count modulo 32
        assert (found.scale_bytes, found.on_ties, found.at_the_top) == (0, 0, 0)


@pytest.mark.aiter
def test_the_wheels_op_on_nvidia_clamps_negative_exponents(wheel):
    claim = claims.nvidia_claim(wheel)
    assert not claim.holds
    assert "cvt.rzi.u" in claim.because


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
from mxfp4lab.kernels.convert import quantize_tile


@triton.jit
def _mxfp4_quant_op(x, BLOCK_SIZE_N, BLOCK_SIZE_M, MXFP4_QUANT_BLOCK_SIZE):
    return quantize_tile(x, "sw_aiter", BLOCK_SIZE_M, BLOCK_SIZE_N)


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
