"""Claims from the field compute the verdicts that the evidence gives, and converts answer as machine code."""

import pytest
import torch

from mxfp4lab import claims
from mxfp4lab.answerers import aiter_answerer, kernel_answerer, torch_answerer
from mxfp4lab.oracle.install import AiterError, find_aiter
from mxfp4lab.oracle.quantizer import compile_quantizer, gpu_quantizer, probe_aiter
from mxfp4lab.proof import bf16_sweep, binade_sweep, compare, golden_sweep


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
