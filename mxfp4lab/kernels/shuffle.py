"""Scales from row-major to the e8m0 shuffle: what aiter's `e8m0_shuffle` does, as one kernel."""

import triton
import triton.language as tl

from .tiles import shuffled_scale_offset


@triton.jit
def shuffle_scales(
    scale_ptr,
    shuffled_ptr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED_ROWS: tl.constexpr,
    PADDED_COLUMNS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """e8m0 ``[ROWS, COLUMNS]`` to ``[PADDED_ROWS, PADDED_COLUMNS]`` shuffled; the padding becomes byte 0.

    One program: BLOCK_M rows by BLOCK_C columns; program 0 counts rows, program 1 columns.
    """
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (row[:, None] < ROWS) & (column[None, :] < COLUMNS)
    scale = tl.load(scale_ptr + row[:, None] * COLUMNS + column[None, :], mask=inside, other=0)
    offset = shuffled_scale_offset(row[:, None], column[None, :], PADDED_COLUMNS)
    mask = (row[:, None] < PADDED_ROWS) & (column[None, :] < PADDED_COLUMNS)
    tl.store(shuffled_ptr + offset, scale, mask=mask)
