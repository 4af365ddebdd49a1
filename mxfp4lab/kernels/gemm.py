"""C = A @ B.T with MXFP4 operands, in plain Triton: what every target compiles.

A arrives as bf16 and is quantized tile by tile, or already as MXFP4. M, N and K are run-time arguments, or compile-time
constants where the launch says so. With SPLIT_K > 1 every program sums one slice of K and writes fp32 partial results
``[SPLIT_K, M, N]``; slices are whole K tiles, each belongs to exactly one slice.
"""

import triton
import triton.language as tl

from .convert import load_unquantized, quantize_tile
from .tiles import (
    load_scales_by_tile,
    load_scales_in_place,
    load_tile,
    spread_over_xcds,
    store_tile,
    tile_of_program,
    unshuffle_weight_tile,
)


@triton.jit
def gemm_tiles(
    a_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    a_scale_ptr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    XCDS: tl.constexpr,
    B_SHUFFLED: tl.constexpr,
    CONVERT: tl.constexpr,
    MASK_M: tl.constexpr,
    MASK_N: tl.constexpr,
    MASK_K: tl.constexpr,
    CACHE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """One program: a BLOCK_M x BLOCK_N tile of C, or with SPLIT_K > 1 its fp32 sum over one slice of K.

    ``a_ptr`` is bf16 ``[M, K]`` where ``a_scale_ptr`` is None, else e2m1 ``[M, K // 2]`` with scales ``[M, K // 32]``.
    B is in the (16, 16) tile shuffle with B_SHUFFLED, else row-major; its scales are in the e8m0 shuffle.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_k = tl.cdiv(K, BLOCK_K)
    pid = tl.program_id(0)
    if XCDS > 1:
        pid = spread_over_xcds(pid, tiles_m * tiles_n * SPLIT_K, XCDS)
    if SPLIT_K == 1:
        first_tile = 0
        last_tile = tiles_k
    else:
        split = pid // (tiles_m * tiles_n)
        pid = pid % (tiles_m * tiles_n)
        tiles_per_split = tl.cdiv(tiles_k, SPLIT_K)
        first_tile = split * tiles_per_split
        last_tile = tl.minimum(first_tile + tiles_per_split, tiles_k)
        out_ptr += split * M * N
    pid_m, pid_n = tile_of_program(pid, tiles_m, tiles_n, GROUP_M)

    row = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # Rows of B past N give columns of C that are not stored: they are wrapped onto rows that exist.
    if B_SHUFFLED:
        b_row = pid_n * (BLOCK_N // 16) + tl.arange(0, BLOCK_N // 16)
        if MASK_N:
            b_row = b_row % (N // 16)
    else:
        b_row = column
        if MASK_N:
            b_row = column % N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tile_k in tl.range(first_tile, last_tile, num_stages=NUM_STAGES):
        byte = tile_k * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
        block = tile_k * (BLOCK_K // 32) + tl.arange(0, BLOCK_K // 32)
        if a_scale_ptr is None:
            a = load_unquantized(a_ptr, row, M, tile_k, K, BLOCK_K, CONVERT, MASK_M, MASK_K)
        else:
            a_q = load_tile(a_ptr, row, M, byte, K // 2, MASK_M, MASK_K, "")
            a_scale = load_tile(a_scale_ptr, row, M, block, K // 32, MASK_M, MASK_K, "")
        if B_SHUFFLED:
            # 16 rows of B over BLOCK_K are one contiguous piece: 16 times as long as one row would be.
            piece = tile_k * (BLOCK_K * 8) + tl.arange(0, BLOCK_K * 8)
            b_q = load_tile(b_ptr, b_row, N // 16, piece, K * 8, False, MASK_K, CACHE)
            b_q = unshuffle_weight_tile(b_q, BLOCK_N, BLOCK_K)
            b_scale = load_scales_by_tile(b_scale_ptr, pid_n, N, tile_k, K, BLOCK_N, BLOCK_K, MASK_N, MASK_K, CACHE)
        else:
            b_q = load_tile(b_ptr, b_row, N, byte, K // 2, False, MASK_K, CACHE)
            b_scale = load_scales_in_place(b_scale_ptr, b_row, block, K, MASK_K, CACHE)
        if a_scale_ptr is None:
            a_q, a_scale = quantize_tile(a, CONVERT, BLOCK_M, BLOCK_K)
        acc = tl.dot_scaled(a_q, a_scale, "e2m1", tl.trans(b_q), b_scale, "e2m1", acc)

    store_tile(out_ptr, acc.to(out_ptr.dtype.element_ty), row, M, column, N, MASK_M, MASK_N)
