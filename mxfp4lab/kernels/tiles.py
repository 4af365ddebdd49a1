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
    return xcd * (programs // XCDS) + tl.minimum(xcd, programs % XCDS) + pid // XCDS


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
def within(row, rows, column, columns, MASK_ROWS: tl.constexpr, MASK_COLUMNS: tl.constexpr):
    """Which elements of a tile exist, asked only along the axes that are masked (one at least)."""
    if MASK_ROWS and MASK_COLUMNS:
        return (row[:, None] < rows) & (column[None, :] < columns)
    elif MASK_ROWS:
        return row[:, None] < rows
    else:
        return column[None, :] < columns


@triton.jit
def load_tile(
    ptr, row, rows, column, columns, MASK_ROWS: tl.constexpr, MASK_COLUMNS: tl.constexpr, CACHE: tl.constexpr
):
    """Rows ``row`` and columns ``column`` of a ``[rows, columns]``, zeros outside of it where a mask is asked for."""
    pointers = ptr + row[:, None] * columns + column[None, :]
    if MASK_ROWS or MASK_COLUMNS:
        mask = within(row, rows, column, columns, MASK_ROWS, MASK_COLUMNS)
        return tl.load(pointers, mask=mask, other=0, cache_modifier=CACHE)
    else:
        return tl.load(pointers, cache_modifier=CACHE)


@triton.jit
def store_tile(ptr, value, row, rows, column, columns, MASK_ROWS: tl.constexpr, MASK_COLUMNS: tl.constexpr):
    """The counterpart of ``load_tile``: what lies outside is not stored where a mask is asked for."""
    pointers = ptr + row[:, None] * columns + column[None, :]
    if MASK_ROWS or MASK_COLUMNS:
        tl.store(pointers, value, mask=within(row, rows, column, columns, MASK_ROWS, MASK_COLUMNS))
    else:
        tl.store(pointers, value)


@triton.jit
def unshuffle_weight_tile(tile, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """``[BLOCK_N // 16, BLOCK_K // 2 * 16]`` as stored in the (16, 16) shuffle to ``[BLOCK_N, BLOCK_K // 2]``."""
    tile = tl.reshape(tile, (BLOCK_N // 16, BLOCK_K // 64, 2, 16, 16))
    return tl.reshape(tl.permute(tile, (0, 3, 1, 2, 4)), (BLOCK_N, BLOCK_K // 2))


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
def load_scales_in_place(ptr, row, column, K, MASK_K: tl.constexpr, CACHE: tl.constexpr):
    """Shuffled scales, each byte fetched from where the shuffle put it. ``row`` must exist."""
    pointers = ptr + shuffled_scale_offset(row[:, None], column[None, :], (K // 32 + 7) // 8 * 8)
    if MASK_K:
        return tl.load(pointers, mask=column[None, :] < K // 32, other=0, cache_modifier=CACHE)
    else:
        return tl.load(pointers, cache_modifier=CACHE)


@triton.jit
def load_scales_by_tile(
    ptr,
    tile_n,
    N,
    tile_k,
    K,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    MASK_N: tl.constexpr,
    MASK_K: tl.constexpr,
    CACHE: tl.constexpr,
):
    """Shuffled scales ``[BLOCK_N, BLOCK_K // 32]`` as whole 256-byte pieces (32 rows, 8 columns), ordered in registers.

    A piece may hold padded columns, whose content is anybody's: they are masked, not trusted.
    """
    group = tile_n * (BLOCK_N // 32) + tl.arange(0, BLOCK_N // 32)
    if MASK_N:
        group = group % (N // 32)
    within_tile = tl.arange(0, BLOCK_K)
    byte = tile_k * BLOCK_K + within_tile
    pointers = ptr + group[:, None] * (32 * ((K // 32 + 7) // 8 * 8)) + byte[None, :]
    if MASK_K:
        column = (
            tile_k * (BLOCK_K // 32) + (within_tile // 256) * 8 + ((within_tile // 2) % 2) * 4 + (within_tile // 64) % 4
        )
        tile = tl.load(pointers, mask=column[None, :] < K // 32, other=0, cache_modifier=CACHE)
    else:
        tile = tl.load(pointers, cache_modifier=CACHE)
    tile = tl.reshape(tile, (BLOCK_N // 32, BLOCK_K // 256, 4, 16, 2, 2))
    return tl.reshape(tl.permute(tile, (0, 5, 3, 1, 4, 2)), (BLOCK_N, BLOCK_K // 32))
