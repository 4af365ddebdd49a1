"""A quantized once, by a kernel of its own: bf16 ``[M, K]`` to e2m1 ``[M, K // 2]`` and e8m0 scales."""

import triton
import triton.language as tl

from .tiles import load_tile, shuffled_scale_offset


@triton.jit
def quantize_rows(
    a_ptr, a_q_ptr, a_scale_ptr, M, K, scale_rows, A_PACK: tl.constexpr, QUANTIZE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, MASK_M: tl.constexpr, MASK_K: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M rows x BLOCK_K columns of A to MXFP4; program 0 counts rows, program 1 columns.

    QUANTIZE (of `convert.QUANTIZERS`) takes bf16 one by one, or with A_PACK 2 two by two.
    Scales are row-major ``[M, K // 32]`` where ``scale_rows`` is None. Else they go to their places in the e8m0 shuffle
    of ``[scale_rows, columns padded to 8]``, and the padding that this grid reaches is written too, with byte 0: a
    padded column must contribute nothing.
    """
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.program_id(1) * (BLOCK_K // A_PACK) + tl.arange(0, BLOCK_K // A_PACK)
    if A_PACK == 2:
        a_ptr = a_ptr.to(tl.pointer_type(tl.int32))
    a = load_tile(a_ptr, row, M, k, K // A_PACK, MASK_M, MASK_K, "")
    packed, scale = QUANTIZE(a, BLOCK_M, BLOCK_K)

    byte = tl.program_id(1) * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
    packed_mask = (row[:, None] < M) & (byte[None, :] < K // 2)
    tl.store(a_q_ptr + row[:, None] * (K // 2) + byte[None, :], packed, mask=packed_mask)
    column = tl.program_id(1) * (BLOCK_K // 32) + tl.arange(0, BLOCK_K // 32)
    if scale_rows is None:
        scale_mask = (row[:, None] < M) & (column[None, :] < K // 32)
        tl.store(a_scale_ptr + row[:, None] * (K // 32) + column[None, :], scale, mask=scale_mask)
    else:
        padded_columns = (K // 32 + 7) // 8 * 8
        offset = shuffled_scale_offset(row[:, None], column[None, :], padded_columns)
        tl.store(a_scale_ptr + offset, scale, mask=(row[:, None] < scale_rows) & (column[None, :] < padded_columns))


@triton.jit
def shuffle_scales(
    scale_ptr, shuffled_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PADDED_ROWS: tl.constexpr,
    PADDED_COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """e8m0 ``[ROWS, COLUMNS]`` to ``[PADDED_ROWS, PADDED_COLUMNS]`` shuffled, as aiter's `e8m0_shuffle`; padding is 0.

    One program: BLOCK_M rows by BLOCK_C columns; program 0 counts rows, program 1 columns.
    """
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (row[:, None] < ROWS) & (column[None, :] < COLUMNS)
    scale = tl.load(scale_ptr + row[:, None] * COLUMNS + column[None, :], mask=inside, other=0)
    offset = shuffled_scale_offset(row[:, None], column[None, :], PADDED_COLUMNS)
    mask = (row[:, None] < PADDED_ROWS) & (column[None, :] < PADDED_COLUMNS)
    tl.store(shuffled_ptr + offset, scale, mask=mask)
