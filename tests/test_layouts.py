"""The two shuffles: view/permute, closed form and inverse are one map."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mxfp4lab.layouts import (
    e8m0_offset,
    e8m0_position,
    e8m0_shuffle,
    e8m0_unshuffle,
    padded_scale_shape,
    shuffle_weight,
    unshuffle_weight,
    weight_offset,
    weight_position,
)

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)


def numbered(rows: int, cols: int) -> torch.Tensor:
    """Bytes that tell most positions apart."""
    return (torch.arange(rows * cols) * 167 % 251).to(torch.uint8).view(rows, cols)


def grid(rows: int, cols: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.meshgrid(torch.arange(rows), torch.arange(cols), indexing="ij")


@pytest.mark.parametrize("m", [256, 512])
@pytest.mark.parametrize("n", range(8, 65, 8))
def test_every_padded_shape_up_to_512_by_64(m, n):
    """The permutation of positions itself, not of bytes that could coincide."""
    offsets = e8m0_offset(*grid(m, n), n)
    assert offsets.flatten().sort().values.equal(torch.arange(m * n))
    rows, cols = e8m0_position(torch.arange(m * n), n)
    assert e8m0_offset(rows, cols, n).equal(torch.arange(m * n))
    for digit in (offsets % 256, offsets // 256 % 256):
        source = torch.zeros(m * n, dtype=torch.uint8)
        source[:] = (torch.arange(m * n) % 256).to(torch.uint8)
        assert e8m0_unshuffle(source.view(m, n)).equal((offsets % 256).to(torch.uint8))
        assert e8m0_shuffle(digit.to(torch.uint8)).flatten()[offsets].equal(digit.to(torch.uint8))


def test_case_12_stride_counts_padded_columns():
    expected = {(0, 0): 0, (16, 0): 1, (0, 4): 2, (16, 4): 3, (1, 0): 4, (0, 1): 64, (0, 8): 256, (31, 15): 511}
    assert {rc: e8m0_offset(*rc, 16) for rc in expected} == expected
    assert padded_scale_shape(64, 1664 // 32) == (256, 56)
    assert e8m0_offset(32, 0, 56) == 32 * 56
    scale = numbered(64, 52)
    assert e8m0_shuffle(scale).flatten()[32 * 56] == scale[32, 0]
    with pytest.raises(ValueError, match="padded_cols=52 must be a positive multiple of 8"):
        e8m0_offset(32, 0, 52)


@PROPERTY
@given(st.integers(1, 600), st.integers(1, 70), st.integers(0, 255))
def test_shuffle_round_trip_and_padding(rows, cols, pad):
    scale = numbered(rows, cols)
    shuffled = e8m0_shuffle(scale, pad)
    m, n = padded_scale_shape(rows, cols)
    assert shuffled.shape == (m, n)
    assert m % 256 == n % 8 == 0
    assert m - rows < 256
    assert n - cols < 8
    assert shuffled.is_contiguous()
    assert e8m0_unshuffle(shuffled, rows, cols).equal(scale)
    assert shuffled.flatten()[e8m0_offset(*grid(rows, cols), n)].equal(scale)
    whole = e8m0_unshuffle(shuffled)
    whole[:rows, :cols] = pad
    assert (whole == pad).all()


@PROPERTY
@given(st.integers(1, 8), st.integers(1, 6))
def test_weight_shuffle_round_trip_and_closed_form(row_tiles, col_tiles):
    n, k_bytes = 16 * row_tiles, 32 * col_tiles
    b_q = numbered(n, k_bytes)
    shuffled = shuffle_weight(b_q)
    assert shuffled.is_contiguous()
    assert unshuffle_weight(shuffled).equal(b_q)
    offsets = weight_offset(*grid(n, k_bytes), k_bytes)
    assert offsets.flatten().sort().values.equal(torch.arange(n * k_bytes))
    assert shuffled.flatten()[offsets].equal(b_q)
    rows, cols = weight_position(torch.arange(n * k_bytes), k_bytes)
    assert weight_offset(rows, cols, k_bytes).equal(torch.arange(n * k_bytes))


def test_weight_tile_is_sixteen_rows_of_sixteen_bytes():
    b_q = numbered(32, 64)
    flat = shuffle_weight(b_q).flatten()
    assert flat[:16].equal(b_q[0, :16])
    assert flat[16:32].equal(b_q[1, :16])
    assert flat[256:272].equal(b_q[0, 16:32])
    assert flat[16 * 64 : 16 * 64 + 16].equal(b_q[16, :16])


@PROPERTY
@given(st.integers(0, 10**6), st.integers(0, 10**4), st.integers(1, 100))
def test_closed_forms_take_integers_arrays_and_tensors(row, col, eighths):
    padded = 8 * eighths
    col %= padded
    plain = e8m0_offset(row, col, padded)
    assert type(plain) is int
    assert e8m0_position(plain, padded) == (row, col)
    assert e8m0_offset(np.array([row]), np.array([col]), padded).tolist() == [plain]
    assert e8m0_offset(torch.tensor([row]), torch.tensor([col]), padded).tolist() == [plain]
    k_bytes = 32 * eighths
    byte_col = col % k_bytes
    flat = weight_offset(row, byte_col, k_bytes)
    assert weight_position(flat, k_bytes) == (row, byte_col)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: e8m0_shuffle(torch.zeros(4, 4)), "must be 2-d uint8"),
        (lambda: e8m0_shuffle(torch.zeros(4, dtype=torch.uint8)), "must be 2-d uint8"),
        (lambda: e8m0_shuffle(torch.zeros((0, 4), dtype=torch.uint8)), "rows=0 must be at least 1"),
        (lambda: e8m0_shuffle(torch.zeros((4, 4), dtype=torch.uint8), 256), "pad_value=256 must be a byte"),
        (lambda: e8m0_unshuffle(torch.zeros((16, 8), dtype=torch.uint8)), "must be multiples of (32, 8)"),
        (lambda: e8m0_unshuffle(torch.zeros((32, 8), dtype=torch.uint8), 33), "rows=33"),
        (lambda: shuffle_weight(torch.zeros((8, 32), dtype=torch.uint8)), "b_q has 8 rows"),
        (lambda: shuffle_weight(torch.zeros((16, 48), dtype=torch.uint8)), "k_bytes (K / 2)=48"),
        (lambda: unshuffle_weight(torch.zeros((24, 32), dtype=torch.uint8)), "b_shuffle has 24 rows"),
        (lambda: weight_offset(0, 0, 16), "k_bytes (K / 2)=16"),
    ],
)
def test_bad_input_is_refused_by_name(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value)
