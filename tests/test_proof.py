"""Sweeps cover what they say, comparisons find what is planted, steps follow the quantizer."""

import numpy as np
import pytest
import torch

from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.proof import REACHABLE_EXPONENTS, bf16_anchor, bf16_sweep, binade_sweep, compare, golden_sweep, prove
from mxfp4lab.quantizers import kernel_answerer, ml_dtypes_answerer, torch_answerer, torchao_answerer


def test_reachable_exponents_are_those_that_bf16_maxima_give():
    magnitudes = torch.arange(0x7F80, dtype=torch.int16).view(torch.bfloat16)
    blocks = torch.zeros((magnitudes.numel(), 32), dtype=torch.bfloat16)
    blocks[:, 0] = magnitudes
    exponents = quantize_mxfp4(blocks)[1][:, 0].int() - 127
    assert sorted(set(exponents.tolist())) == list(REACHABLE_EXPONENTS)
    for exponent in (-127, -3, 0, 125, 127):
        assert bf16_anchor(exponent) == int((exponents == exponent).nonzero()[-1])
    with pytest.raises(ValueError, match="exponent=126 is the shared exponent of no bf16 block"):
        bf16_anchor(126)


def test_the_bf16_sweep_holds_every_value_under_its_exponent():
    sweep = bf16_sweep([-127, 0, 127])
    assert (quantize_mxfp4(sweep.x)[1][:, 0].unique().int() - 127).tolist() == [-127, 0, 127]
    bits = sweep.x.view(torch.int16).numpy().view(np.uint16)
    rows = quantize_mxfp4(sweep.x)[1][:, 0].numpy() == 254
    assert np.unique(bits[rows]).size == 2 * 0x7F80
    anchor = bf16_anchor(0)
    rows = quantize_mxfp4(sweep.x)[1][:, 0].numpy() == 127
    assert np.unique(bits[rows]).size == 2 * (anchor + 1)
    assert sweep.elements == 2 * (0x7F80 + anchor + 1 + bf16_anchor(-127) + 1)


@pytest.mark.parametrize(("exponent", "binade"), [(0, -1), (-118, 1), (120, 2)])
def test_the_binade_sweep_stays_under_one_scale(exponent, binade):
    sweep = binade_sweep(exponent, binade, step=4097)
    assert quantize_mxfp4(sweep.x)[1].unique().tolist() == [exponent + 127]
    values = sweep.x[:, 1:].flatten()[: sweep.elements].double().abs() / 2.0 ** (exponent + binade)
    assert (values.min(), values.max() < 2) == (1.0, True)
    count = len(range(0, 1 << 23, 4097)) if binade < 2 else len([m for m in range(0, 1 << 23, 4097) if m <= 0x5FFFFF])
    assert sweep.elements == 2 * count


def test_a_full_binade_has_every_mantissa():
    sweep = binade_sweep(0, 0)
    assert sweep.elements == 2 << 23
    bits = sweep.x[:, 1:].contiguous().view(torch.int32) & 0x7FFFFF
    assert torch.bincount(bits.flatten(), minlength=1 << 23).min() >= 2


@pytest.mark.parametrize("bad", [(0, 3), (126, 0), (-127, -1), (-128, 2)])
def test_impossible_binades_are_refused(bad):
    with pytest.raises(ValueError, match="exponent="):
        binade_sweep(*bad)


def test_independent_library_agrees_on_every_bf16_under_a_spread_of_exponents():
    sweep = bf16_sweep([-127, -126, -60, -1, 0, 1, 60, 124, 125, 127])
    found = compare(sweep, {"ours": torch_answerer(), "ml_dtypes": ml_dtypes_answerer()}, chunk_rows=4096)
    assert found.between("ml_dtypes", "ours").identical
    assert found.values == sweep.x.numel()
    assert found.between("ours", "ml_dtypes").where == "nowhere"


def test_torchao_agrees_on_golden_rows_and_parts_at_the_ends_of_the_range():
    pytest.importorskip("torchao")
    answerers = {"ours": torch_answerer(), "torchao": torchao_answerer()}
    golden, _ = golden_sweep()
    assert compare(golden, answerers).between("ours", "torchao").identical
    assert compare(bf16_sweep([-100, 0, 100, 125]), answerers).between("ours", "torchao").identical
    top = compare(bf16_sweep([127]), answerers).between("ours", "torchao")
    assert top.scale_bytes == bf16_sweep([127]).x.shape[0]  # 253 by plain exponent arithmetic, 254 by aiter's carry


def test_the_two_roundings_part_on_ties_only():
    found = compare(bf16_sweep([0, 1]), {"new": torch_answerer(), "old": torch_answerer("half_away")})
    difference = found.between("new", "old")
    assert difference.packed_bytes > 0
    assert difference.on_ties > 0
    assert (difference.at_the_top, difference.elsewhere) == (0, 0)
    assert difference.where == f"{difference.on_ties} on ties"
    assert found.groups() == [("new",), ("old",)]
    assert "nibble" in difference.example
    with pytest.raises(ValueError, match="were not compared"):
        found.between("new", "other")


def test_golden_rows_stand_as_answers():
    sweep, answers = golden_sweep()
    found = compare(sweep, {"ours": torch_answerer(), "ours, old": torch_answerer("half_away"), **answers})
    assert found.between("ours", "golden since 975").identical
    assert found.between("ours, old", "golden before 975").identical
    assert not found.between("ours", "golden before 975").identical
    assert found.groups() == [("ours", "golden since 975"), ("ours, old", "golden before 975")]
    everything, answers = golden_sweep(portable_only=False)
    top = compare(everything, {"ours": torch_answerer(), **answers}).between("ours", "golden since 975")
    assert top.scale_bytes == 0
    assert (top.on_ties, top.elsewhere) == (0, 0)
    assert top.at_the_top > 0  # the op's 2^-127 was flushed to zero where these were recorded


def planted(x):
    packed, scale = torch_answerer()(x)
    packed, scale = packed.copy(), scale.copy()
    packed[-1, 3] ^= 0x20
    scale[0] += 1
    return packed, scale


def test_a_planted_difference_is_found_with_its_place():
    x = torch.ones(40, 32)
    x[-1] = 3.0
    sweep = binade_sweep(0, 0, step=1 << 18)
    found = compare(type(sweep)("planted", x, x.numel()), {"right": torch_answerer(), "wrong": planted}, chunk_rows=64)
    difference = found.between("right", "wrong")
    assert (difference.packed_bytes, difference.scale_bytes) == (1, 1)
    assert difference.where == "1 where |x| / 2^e is 6 .. 6, 1 scale bytes"
    assert difference.example == "x = 3 (x / scale = 6): nibble 7 / 5"


def test_an_answer_of_the_wrong_shape_is_refused():
    sweep = binade_sweep(0, 0, step=1 << 18)
    with pytest.raises(ValueError, match="answerer 'bad' gave shapes"):
        compare(sweep, {"good": torch_answerer(), "bad": lambda x: (x[:1, :16].byte().numpy(), x[:1, 0].numpy())})


def test_a_quick_proof_holds_and_says_so_in_text_and_html():
    proven = prove(quick=True)
    assert all(proven.statements().values()) and len(proven.statements()) == 4
    assert str(proven).count("holds") == 4 == proven._repr_html_().count("holds")
    assert "hw_bf16" in str(proven.bf16) and "44 on ties" in proven.bf16._repr_html_()
    proven.bf16.between("torch", "hw_f32").packed_bytes = 1
    assert "does not hold" in str(proven)


@pytest.mark.parametrize("convert", ["sw_bits", "hw_f32", "hw_bf16"])
def test_every_convert_as_machine_code_agrees_on_bf16(convert):
    sweep = bf16_sweep([-127, 0, 125, 127])
    found = compare(sweep, {"torch": torch_answerer(), convert: kernel_answerer(convert)})
    assert found.between("torch", convert).identical


def test_aiters_arithmetic_as_machine_code_parts_at_the_top_of_the_range_as_the_op_did_on_a_gpu():
    found = compare(bf16_sweep([-127, 0, 125]), {"torch": torch_answerer(), "sw_aiter": kernel_answerer("sw_aiter")})
    assert found.between("torch", "sw_aiter").identical
    top = compare(bf16_sweep([127]), {"torch": torch_answerer(), "sw_aiter": kernel_answerer("sw_aiter")})
    parted = top.between("torch", "sw_aiter")
    assert (parted.scale_bytes, parted.on_ties, parted.elsewhere) == (0, 0, 0) and parted.at_the_top > 0
    extreme, recorded = golden_sweep(portable_only=False)
    same = compare(extreme, {"sw_aiter": kernel_answerer("sw_aiter"), **recorded})
    assert same.between("sw_aiter", "golden since 975").identical


def test_float32_is_exact_in_hardware_and_one_hair_off_in_sw_bits():
    golden, recorded = golden_sweep()
    answers = {name: kernel_answerer(name) for name in ("sw_aiter", "hw_f32", "sw_bits")}
    found = compare(golden, answers | recorded)
    for name in ("sw_aiter", "hw_f32"):
        assert found.between(name, "golden since 975").identical
    hair = found.between("sw_bits", "golden since 975")
    assert hair.scale_bytes == hair.on_ties == 0
    assert hair.elsewhere > 0
    assert hair.elsewhere_scaled[1] < 1.0  # it drops mantissa bits of magnitudes below 1, which bf16 does not have


def test_hw_bf16_refuses_float32():
    with pytest.raises(ValueError, match="hw_bf16 reads bf16 only"):
        kernel_answerer("hw_bf16")(torch.zeros(1, 32))
