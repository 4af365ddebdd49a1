"""Facts about the shuffles that notebook 01 shows: agreement of the three forms, padding, and the known traps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import torch

from mxfp4lab.formats import BLOCK, quantize_mxfp4
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
from mxfp4lab.shapes import Shape
from mxfp4lab.task import check_output, generate_input, matmul_dequantized, reference_output


@dataclass(frozen=True)
class Agreement:
    """How many positions of how many shapes were checked, and how many of them differed between two forms."""

    layout: str
    shapes: int
    positions: int
    view_against_formula: int
    inverse_against_formula: int
    round_trip: int


def _numbers(rows: int, cols: int) -> torch.Tensor:
    return torch.arange(rows * cols).view(rows, cols)


def _through(function, numbers: torch.Tensor) -> torch.Tensor:
    """Apply a byte permutation to numbers too large for a byte, one byte plane at a time."""
    planes = [function(((numbers >> shift) & 255).to(torch.uint8)).long() << shift for shift in (0, 8, 16)]
    return planes[0] + planes[1] + planes[2]


def scale_agreement(max_rows: int = 512, max_cols: int = 64) -> Agreement:
    """The e8m0 shuffle in its three forms, over every padded shape up to (max_rows, max_cols)."""
    sizes = product(range(256, max_rows + 1, 256), range(8, max_cols + 1, 8))
    return _agreement("e8m0 scales", sizes, e8m0_shuffle, e8m0_unshuffle, e8m0_offset, e8m0_position)


def weight_agreement(max_rows: int = 256, max_bytes: int = 256) -> Agreement:
    """The (16, 16) weight shuffle in its three forms, over every shape up to (max_rows, max_bytes)."""
    sizes = product(range(16, max_rows + 1, 16), range(32, max_bytes + 1, 32))
    return _agreement("(16, 16) weights", sizes, shuffle_weight, unshuffle_weight, weight_offset, weight_position)


def _agreement(name: str, sizes: Iterable[tuple[int, int]], shuffle, unshuffle, offset, position) -> Agreement:
    """A permutation as view and permute, against its closed form, the closed form's inverse and its own inverse."""
    shapes = positions = by_formula = by_inverse = trips = 0
    for rows, cols in sizes:
        row, col = torch.meshgrid(torch.arange(rows), torch.arange(cols), indexing="ij")
        numbers = _numbers(rows, cols)
        shuffled = _through(shuffle, numbers)
        by_formula += int((shuffled.flatten()[offset(row, col, cols)] != numbers).sum())
        at_row, at_col = position(torch.arange(rows * cols), cols)
        by_inverse += int((numbers[at_row, at_col] != shuffled.flatten()).sum())
        trips += int((_through(unshuffle, shuffled) != numbers).sum())
        shapes, positions = shapes + 1, positions + rows * cols
    return Agreement(name, shapes, positions, by_formula, by_inverse, trips)


@dataclass(frozen=True)
class Padding:
    """The shuffled scales of one operand: bytes that hold a scale, and all bytes."""

    operand: str
    rows: int
    cols: int
    used: int
    padded: int

    @property
    def share(self) -> float:
        return 1 - self.used / self.padded


def padding_of(operand: str, rows: int, k: int) -> Padding:
    """Count the padding of the scales of a [rows, K] operand."""
    cols = -(-k // BLOCK)
    m, n = padded_scale_shape(rows, cols)
    return Padding(operand, rows, cols, rows * cols, m * n)


@dataclass(frozen=True)
class Lookup:
    """One scale or weight byte, from both sides."""

    layout: str
    row: int
    col: int
    offset: int
    detail: str


def look_up(row: int, col: int, scale_cols: int, k_bytes: int) -> tuple[Lookup, Lookup]:
    """Where (row, col) lies in both layouts; `col` counts scale columns in the one and bytes in the other."""
    offset = e8m0_offset(row, col, scale_cols)
    tile, lane, byte = offset // 256, offset % 256 // 4, offset % 4
    scale = Lookup("e8m0 scales", row, col, offset, f"tile {tile}, lane {lane}, byte {byte}")
    flat = weight_offset(row, col, k_bytes)
    piece = f"row group {row // 16}, 16-byte piece {col // 16}, byte {col % 16}"
    weight = Lookup("(16, 16) weights", row, col, flat, piece)
    return scale, weight


def look_back(offset: int, scale_cols: int, k_bytes: int) -> tuple[Lookup, Lookup]:
    """Who sits at a byte offset of either layout."""
    return look_up(*e8m0_position(offset, scale_cols), scale_cols, k_bytes)[0], look_up(
        *weight_position(offset, k_bytes), scale_cols, k_bytes
    )[1]


# ---- traps ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrapResult:
    """A GEMM computed with a mistake, judged as the task judges it."""

    what: str
    wrong_scales: int
    scales: int
    refused: int
    outputs: int
    max_abs_err: float

    @property
    def harmless(self) -> bool:
        return self.refused == 0


def _reads(data, scale_as_read: torch.Tensor, what: str) -> TrapResult:
    """C where B's scales are what a kernel with the mistake would read."""
    a, _, b_q, _, b_scale_sh = data
    truth = e8m0_unshuffle(b_scale_sh, b_q.shape[0], a.shape[1] // BLOCK)
    c = matmul_dequantized(*quantize_mxfp4(a), b_q, scale_as_read)
    check = check_output(c, reference_output(data))
    return TrapResult(what, int((scale_as_read != truth).sum()), truth.numel(), check.mismatches, c.numel(),
                      check.max_abs_err)  # fmt: skip


def stride_trap(shape: Shape, seed: int = 0) -> tuple[TrapResult, TrapResult]:
    """B's scales read with the row-group stride 32 * padded columns, and with 32 * K/32 as one might write."""
    data = generate_input(shape, seed)
    n, cols = shape.n, shape.k // BLOCK
    flat, padded = data[4].flatten(), data[4].shape[1]
    row, col = torch.meshgrid(torch.arange(n), torch.arange(cols), indexing="ij")
    right = flat[e8m0_offset(row, col, padded)]
    within = e8m0_offset(row % 32, col, padded)
    wrong = flat[(row // 32) * (32 * cols) + within]
    return (
        _reads(data, right, f"stride 32 * {padded} (padded columns)"),
        _reads(data, wrong, f"stride 32 * {cols} (K / 32)"),
    )


def small_m_trap(m: int, k: int) -> tuple[int, int, int]:
    """Why M < 32 still needs padding: the first `m * K/32` bytes do not hold the scales of `m` rows.

    Returns:
        (bytes of scales, furthest offset + 1 that they occupy, how many of them lie past the first m * K/32 bytes).
    """
    cols = k // BLOCK
    _, padded = padded_scale_shape(m, cols)
    row, col = torch.meshgrid(torch.arange(m), torch.arange(cols), indexing="ij")
    offset = e8m0_offset(row, col, padded)
    return m * cols, int(offset.max()) + 1, int((offset >= m * cols).sum())
