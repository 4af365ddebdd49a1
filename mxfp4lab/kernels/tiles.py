"""Which tile a program works on, and how a tile of A, of B and of their scales is loaded.

Layouts: A ``[M, K]`` bf16 or ``[M, K // 2]`` e2m1; B ``[N, K // 2]`` e2m1 row-major, or the same bytes in the
(16, 16) tile shuffle; B's scales always in the e8m0 shuffle, rows padded to 256 and columns to 8. Nothing here reads
outside a buffer: rows past the end are masked or wrapped onto rows that exist, K past the end is masked.
"""

import triton
import triton.language as tl


@triton.jit
def spread_over_xcds(pid, programs, XCDS: tl.constexpr):
    """Renumber programs so that those of one XCD (hardware deals programs round robin) are neighbours.

    Program ``pid`` runs on XCD ``pid % XCDS``. The first ``programs % XCDS`` XCDs get one program more than the others.
    """
    xcd = pid % XCDS
    rounds = programs // XCDS
    longer = programs % XCDS
    return xcd * rounds + tl.minimum(xcd, longer) + pid // XCDS


@triton.jit
def tile_of_program(pid, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Tile (row, column) of a program.

    Row by row if GROUP_M is 1; else columns of GROUP_M row tiles after one another, so that they share B in L2.
    """
    if GROUP_M == 1:
        return pid // tiles_n, pid % tiles_n
    else:
        per_group = GROUP_M * tiles_n
        first = (pid // per_group) * GROUP_M
        rows = tl.minimum(tiles_m - first, GROUP_M)
        return first + (pid % per_group) % rows, (pid % per_group) // rows


@triton.jit
def as_offset(x, OFFSET_BITS: tl.constexpr):
    """An index in the width that addresses need; int32 lets the compiler use buffer instructions."""
    if OFFSET_BITS == 64:
        return x.to(tl.int64)
    else:
        return x


@triton.jit
def load_tile(
    ptr, row, rows, column, columns, stride, MASK_ROWS: tl.constexpr, MASK_COLUMNS: tl.constexpr, CACHE: tl.constexpr
):
    """Rows ``row`` and columns ``column`` of a row-major matrix, zeros outside of it where a mask is asked for."""
    pointers = ptr + row[:, None] * stride + column[None, :]
    if MASK_ROWS and MASK_COLUMNS:
        return tl.load(
            pointers, mask=(row[:, None] < rows) & (column[None, :] < columns), other=0, cache_modifier=CACHE
        )
    elif MASK_ROWS:
        return tl.load(pointers, mask=row[:, None] < rows, other=0, cache_modifier=CACHE)
    elif MASK_COLUMNS:
        return tl.load(pointers, mask=column[None, :] < columns, other=0, cache_modifier=CACHE)
    else:
        return tl.load(pointers, cache_modifier=CACHE)


@triton.jit
def unshuffle_weight_tile(tile, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """``[BLOCK_N // 16, BLOCK_K // 2 * 16]`` as stored in the (16, 16) shuffle to ``[BLOCK_N, BLOCK_K // 2]``."""
    tile = tl.reshape(tile, (BLOCK_N // 16, BLOCK_K // 64, 2, 16, 16))
    return tl.reshape(tl.permute(tile, (0, 3, 1, 2, 4)), (BLOCK_N, BLOCK_K // 2))


@triton.jit
def unshuffle_scale_tile(tile, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """``[BLOCK_N // 32, BLOCK_K]`` as stored in the e8m0 shuffle to ``[BLOCK_N, BLOCK_K // 32]``."""
    tile = tl.reshape(tile, (BLOCK_N // 32, BLOCK_K // 256, 4, 16, 2, 2))
    return tl.reshape(tl.permute(tile, (0, 5, 3, 1, 4, 2)), (BLOCK_N, BLOCK_K // 32))


@triton.jit
def shuffled_scale_offset(row, column, padded_columns):
    """Flat offset of scale (row, column) in the e8m0 shuffle; ``padded_columns`` is a multiple of 8."""
    return (
        (row // 32) * 32 * padded_columns
        + (column // 8) * 256
        + (column % 4) * 64
        + (row % 16) * 4
        + ((column // 4) % 2) * 2
        + (row // 16) % 2
    )


@triton.jit
def load_scales_in_place(ptr, row, column, columns, padded_columns, MASK_COLUMNS: tl.constexpr, CACHE: tl.constexpr):
    """Shuffled scales, each byte fetched from where the shuffle put it. ``row`` must exist (wrapped or clamped)."""
    pointers = ptr + shuffled_scale_offset(row[:, None], column[None, :], padded_columns)
    if MASK_COLUMNS:
        return tl.load(pointers, mask=column[None, :] < columns, other=0, cache_modifier=CACHE)
    else:
        return tl.load(pointers, cache_modifier=CACHE)


@triton.jit
def load_scales_by_tile(
    ptr,
    first_row,
    rows,
    first_column,
    columns,
    padded_columns,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WRAP_ROWS: tl.constexpr,
    MASK_ROWS: tl.constexpr,
    MASK_COLUMNS: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
    CACHE: tl.constexpr,
):
    """Shuffled scales of a tile as whole 256-byte pieces (32 rows, 8 columns), put in order in registers.

    A piece may hold padded columns, whose content is anybody's: they are masked, not trusted.
    """
    group = first_row // 32 + tl.arange(0, BLOCK_N // 32)
    if WRAP_ROWS:
        group = group % (rows // 32)
    within = tl.arange(0, BLOCK_K)
    byte = first_column * 32 + within
    pointers = ptr + as_offset(group, OFFSET_BITS)[:, None] * (32 * padded_columns) + byte[None, :]
    if MASK_COLUMNS:
        column = first_column + (within // 256) * 8 + ((within // 2) % 2) * 4 + (within // 64) % 4
        mask = column[None, :] < columns
        if MASK_ROWS:
            mask = mask & (group[:, None] < rows // 32)
        tile = tl.load(pointers, mask=mask, other=0, cache_modifier=CACHE)
    elif MASK_ROWS:
        tile = tl.load(pointers, mask=group[:, None] < rows // 32, other=0, cache_modifier=CACHE)
    else:
        tile = tl.load(pointers, cache_modifier=CACHE)
    return unshuffle_scale_tile(tile, BLOCK_N, BLOCK_K)
