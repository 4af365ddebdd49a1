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
def load_tile(
    ptr, row, rows, column, columns, MASK_ROWS: tl.constexpr, MASK_COLUMNS: tl.constexpr, CACHE: tl.constexpr
):
    """Rows ``row`` and columns ``column`` of a ``[rows, columns]``, zeros outside of it where a mask is asked for."""
    mask = ((row[:, None] < rows) | (not MASK_ROWS)) & ((column[None, :] < columns) | (not MASK_COLUMNS))
    return tl.load(ptr + row[:, None] * columns + column[None, :], mask=mask, other=0, cache_modifier=CACHE)


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
def load_b_rowmajor(
    b_ptr, b_scale_ptr, tile_n, N, tile_k, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MASK_N: tl.constexpr,
    MASK_K: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """B ``[BLOCK_N, BLOCK_K // 2]`` and its scales ``[BLOCK_N, BLOCK_K // 32]``, each fetched from its place."""
    row = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if MASK_N:
        row = row % N
    byte = tile_k * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
    b_q = load_tile(b_ptr, row, N, byte, K // 2, False, MASK_K, CACHE)
    block = tile_k * (BLOCK_K // 32) + tl.arange(0, BLOCK_K // 32)
    offset = shuffled_scale_offset(row[:, None], block[None, :], (K // 32 + 7) // 8 * 8)
    mask = (block[None, :] < K // 32) | (not MASK_K)
    return b_q, tl.load(b_scale_ptr + offset, mask=mask, other=0, cache_modifier=CACHE)


@triton.jit
def load_b_preshuffled(
    b_ptr, b_scale_ptr, tile_n, N, tile_k, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MASK_N: tl.constexpr,
    MASK_K: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """As `load_b_rowmajor`, from the (16, 16) tile shuffle and by whole pieces of scales, ordered in registers."""
    # 16 rows of B over BLOCK_K are one contiguous piece: 16 times as long as one row would be.
    group = tile_n * (BLOCK_N // 16) + tl.arange(0, BLOCK_N // 16)
    if MASK_N:
        group = group % (N // 16)
    piece = tile_k * (BLOCK_K * 8) + tl.arange(0, BLOCK_K * 8)
    b_q = load_tile(b_ptr, group, N // 16, piece, K * 8, False, MASK_K, CACHE)
    b_q = tl.reshape(b_q, (BLOCK_N // 16, BLOCK_K // 64, 2, 16, 16))
    b_q = tl.reshape(tl.permute(b_q, (0, 3, 1, 2, 4)), (BLOCK_N, BLOCK_K // 2))
    # A piece of scales is 32 rows by 8 columns, 256 bytes. Padded columns, whose content is anybody's, are masked.
    group = tile_n * (BLOCK_N // 32) + tl.arange(0, BLOCK_N // 32)
    if MASK_N:
        group = group % (N // 32)
    at = tl.arange(0, BLOCK_K)
    byte = tile_k * BLOCK_K + at
    column = tile_k * (BLOCK_K // 32) + (at // 256) * 8 + ((at // 2) % 2) * 4 + (at // 64) % 4
    pointers = b_scale_ptr + group[:, None] * (32 * ((K // 32 + 7) // 8 * 8)) + byte[None, :]
    mask = (column[None, :] < K // 32) | (not MASK_K)
    b_scale = tl.load(pointers, mask=mask, other=0, cache_modifier=CACHE)
    b_scale = tl.reshape(b_scale, (BLOCK_N // 32, BLOCK_K // 256, 4, 16, 2, 2))
    return b_q, tl.reshape(tl.permute(b_scale, (0, 5, 3, 1, 4, 2)), (BLOCK_N, BLOCK_K // 32))
