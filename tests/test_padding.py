"""Padding of shuffled scales on the emulator: what reaches C, in AMD's kernel and in ours."""

import pytest
import torch

from mxfp4lab.aiter.install import AiterError, find_aiter
from mxfp4lab.aiter.prebuilt import prebuilt_kernels
from mxfp4lab.layouts import e8m0_unshuffle
from mxfp4lab.shapes import Shape
from mxfp4lab.tours.padding import PADDINGS, pad_model, pad_plan, pad_prebuilt, short_scale_buffer, with_padding

TAIL = Shape(20, 256, 1664)  # 52 scale columns, padded to 56


@pytest.fixture(scope="module")
def prebuilt():
    pytest.importorskip("tinygrad", reason="the decoder of code objects is the [codeobject] extra")
    try:
        install = find_aiter()
        prebuilt_kernels(install)
    except AiterError as error:
        pytest.skip(str(error))
    return install


@pytest.mark.parametrize("padding", PADDINGS)
def test_padding_goes_where_no_scale_is(padding):
    scale = torch.randint(100, 130, (20, 52), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    shuffled = with_padding(scale, padding)
    assert e8m0_unshuffle(shuffled, 20, 52).equal(scale)
    rest = e8m0_unshuffle(shuffled)[20:].unique().tolist()
    assert rest == {"0": [0], "127": [127], "255 (NaN)": [255]}.get(padding, rest)
    if padding == "random":
        assert len(rest) > 20
    with pytest.raises(ValueError, match="padding='1' must be one of 0, 127"):
        with_padding(scale, "1")


def test_a_kernel_that_takes_whole_steps_needs_zero_in_padded_columns():
    assert pad_model(TAIL, "0").identical == 1.0
    assert pad_model(TAIL, "127").refused > 4000
    assert pad_model(TAIL, "255 (NaN)").identical == 0.0
    assert all(pad_model(Shape(20, 256, 512), padding).identical == 1.0 for padding in PADDINGS)


@pytest.mark.parametrize("variant", ["fused_rowmajor", "fused_preshuffled"])
@pytest.mark.parametrize("padding", ["127", "255 (NaN)"])
def test_our_kernels_do_not_let_padding_through(variant, padding):
    result = pad_plan(variant, Shape(20, 128, 1664), padding)
    assert result.identical == 1.0
    assert result.padded_bytes > 0


@pytest.mark.aiter
@pytest.mark.parametrize("padding", PADDINGS)
def test_the_prebuilt_gemm_does_what_the_arithmetic_says(prebuilt, padding):
    emulated, modelled = pad_prebuilt(TAIL, padding, install=prebuilt), pad_model(TAIL, padding)
    same = (emulated.c == modelled.c) | (emulated.c.isnan() & modelled.c.isnan())
    assert same.all()
    assert emulated.refused == modelled.refused == {"0": 0, "127": 4237, "random": 4108, "255 (NaN)": 5120}[padding]


@pytest.mark.aiter
def test_fewer_than_32_rows_still_need_the_bytes_of_32(prebuilt):
    shape = Shape(4, 256, 512)
    bare = short_scale_buffer(shape, 4 * 16, install=prebuilt)
    assert bare.reads_past_the_end > 0
    assert bare.refused > 1000
    assert "a_scale_sh" in bare.first
    whole = short_scale_buffer(shape, 32 * 16, install=prebuilt)
    assert (whole.reads_past_the_end, whole.refused) == (0, 0)
