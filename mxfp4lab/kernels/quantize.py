"""A quantized once, by a kernel of its own: bf16 ``[M, K]`` to e2m1 ``[M, K // 2]`` and e8m0 scales."""

import triton
import triton.language as tl

from .convert import quantize_tile
from .tiles import as_offset, load_tile, shuffled_scale_offset


@triton.jit
def quantize_body(
    a_ptr,
    a_q_ptr,
    a_scale_ptr,
    M,
    K,
    scale_rows,
    SHUFFLE: tl.constexpr,
    CONVERT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    MASK_M: tl.constexpr,
    MASK_K: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
):
    """One program: BLOCK_M rows x BLOCK_K columns of A to MXFP4; program 0 counts rows, program 1 columns.

    With SHUFFLE the scales go to their place in the e8m0 shuffle, and the padding (rows M .. scale_rows - 1, columns
    up to a multiple of 8) that this grid reaches is written too, with byte 0: a padded column must contribute nothing.
    """
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    wide_row = as_offset(row, OFFSET_BITS)
    if CONVERT == "hw_bf16":
        pair = tl.program_id(1) * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
        tile = load_tile(a_ptr.to(tl.pointer_type(tl.int32)), wide_row, M, pair, K // 2, K // 2, MASK_M, MASK_K, "")
    else:
        k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
        tile = load_tile(a_ptr, wide_row, M, k, K, K, MASK_M, MASK_K, "")
    packed, scale = quantize_tile(tile, CONVERT, BLOCK_M, BLOCK_K)

    byte = tl.program_id(1) * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
    packed_mask = (row[:, None] < M) & (byte[None, :] < K // 2)
    tl.store(a_q_ptr + wide_row[:, None] * (K // 2) + byte[None, :], packed, mask=packed_mask)
    column = tl.program_id(1) * (BLOCK_K // 32) + tl.arange(0, BLOCK_K // 32)
    if SHUFFLE:
        padded_columns = (K // 32 + 7) // 8 * 8
        offset = shuffled_scale_offset(wide_row[:, None], column[None, :], padded_columns)
        tl.store(a_scale_ptr + offset, scale, mask=(row[:, None] < scale_rows) & (column[None, :] < padded_columns))
    else:
        scale_mask = (row[:, None] < M) & (column[None, :] < K // 32)
        tl.store(a_scale_ptr + wide_row[:, None] * (K // 32) + column[None, :], scale, mask=scale_mask)


@triton.jit
def quantize_rows(
    a_ptr,
    a_q_ptr,
    a_scale_ptr,
    M,
    K,
    CONVERT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    MASK_M: tl.constexpr,
    MASK_K: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
):
    """Scales ``[M, K // 32]`` row-major."""
    quantize_body(a_ptr, a_q_ptr, a_scale_ptr, M, K, 0, False, CONVERT, BLOCK_M, BLOCK_K, MASK_M, MASK_K, OFFSET_BITS)


@triton.jit
def quantize_rows_constexpr(
    a_ptr,
    a_q_ptr,
    a_scale_ptr,
    M: tl.constexpr,
    K: tl.constexpr,
    CONVERT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    MASK_M: tl.constexpr,
    MASK_K: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
):
    """As ``quantize_rows``, M and K compile-time constants."""
    quantize_body(a_ptr, a_q_ptr, a_scale_ptr, M, K, 0, False, CONVERT, BLOCK_M, BLOCK_K, MASK_M, MASK_K, OFFSET_BITS)


@triton.jit
def quantize_rows_shuffled(
    a_ptr,
    a_q_ptr,
    a_scale_ptr,
    M,
    K,
    scale_rows,
    CONVERT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    MASK_M: tl.constexpr,
    MASK_K: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
):
    """Scales at their place in the e8m0 shuffle of ``[scale_rows, columns padded to 8]``."""
    quantize_body(
        a_ptr, a_q_ptr, a_scale_ptr, M, K, scale_rows, True, CONVERT, BLOCK_M, BLOCK_K, MASK_M, MASK_K, OFFSET_BITS
    )
