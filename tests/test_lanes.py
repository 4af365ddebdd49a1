"""Lanes of the scaled MFMA and the facts of the shuffle tour."""

import pytest

from mxfp4lab.shapes import Shape
from mxfp4lab.tours.lanes import MFMA_FORMS, bytes_per_mfma, mfma_form, scale_uses, weight_load_offset
from mxfp4lab.tours.shuffle_tour import (
    look_back,
    look_up,
    padding_of,
    scale_agreement,
    small_m_trap,
    stride_trap,
    weight_agreement,
)


@pytest.mark.parametrize("form", MFMA_FORMS)
def test_every_byte_of_a_tile_is_consumed_once_and_every_lane_of_every_mfma_gets_one(form):
    uses = scale_uses(form)
    assert [use.offset for use in uses] == list(range(256))
    assert {(use.row, use.block) for use in uses} == {(r, b) for r in range(32) for b in range(8)}
    assert len({(use.row_tile, use.k_step, use.lane) for use in uses}) == 4 * 64
    assert len(bytes_per_mfma(form)) == 4


def test_the_scale_shuffle_is_the_register_layout_of_the_16x16x128_mfma():
    assert all(use.in_place for use in scale_uses("16x16x128"))
    assert bytes_per_mfma("16x16x128") == {(0, 0): (0,), (0, 1): (2,), (1, 0): (1,), (1, 1): (3,)}
    assert sum(use.in_place for use in scale_uses("32x32x64")) == 64
    assert all(len(drawn) == 2 for drawn in bytes_per_mfma("32x32x64").values())


def test_one_wave_loads_a_kilobyte_of_shuffled_weights_in_lane_order():
    assert [weight_load_offset(lane, 832) for lane in range(64)] == [16 * lane for lane in range(64)]
    assert weight_load_offset(0, 832, row_tile=2, k_step=3) == 2 * 16 * 832 + 3 * 1024


def test_an_unknown_form_is_named():
    with pytest.raises(ValueError, match="form='64x64x32' must be one of 16x16x128, 32x32x64"):
        mfma_form("64x64x32")


def test_the_forms_of_both_shuffles_agree_everywhere():
    scales, weights = scale_agreement(512, 16), weight_agreement(64, 96)
    assert (scales.shapes, scales.positions) == (4, (256 + 512) * (8 + 16))
    for found in (scales, weights):
        assert (found.view_against_formula, found.inverse_against_formula, found.round_trip) == (0, 0, 0)


def test_padding_is_counted():
    tiny = padding_of("A", 4, 512)
    assert (tiny.used, tiny.padded) == (64, 4096)
    assert padding_of("B", 7168, 2048).share == 0


def test_look_up_and_back():
    scale, weight = look_up(37, 5, 56, 832)
    assert (scale.offset, scale.detail) == (1878, "tile 7, lane 21, byte 2")
    assert weight.offset == 26709
    back, _ = look_back(1878, 56, 832)
    assert (back.row, back.col) == (37, 5)
    _, back = look_back(26709, 56, 832)
    assert (back.row, back.col) == (37, 5)


def test_traps():
    right, wrong = stride_trap(Shape(16, 64, 1664))
    assert right.harmless
    assert right.wrong_scales == 0
    assert not wrong.harmless
    assert wrong.wrong_scales > 0
    assert small_m_trap(4, 512) == (64, 463, 56)
    assert small_m_trap(32, 512)[2] == 0
