"""C = A @ B.T with MXFP4 operands: one body, thin entry points.

A arrives as bf16 and is quantized tile by tile (``gemm_fused``), or already as MXFP4 (``gemm_prequant``). The
``*_constexpr`` entry points take M, N and K as compile-time constants. With SPLIT_K > 1 every program sums one slice
of K and writes fp32 partial results ``[SPLIT_K, M, N]``; slices are whole K tiles, each belongs to exactly one slice.
"""

import triton
import triton.language as tl

from .convert import quantize_tile
from .tiles import (
    as_offset,
    load_scales_by_tile,
    load_scales_in_place,
    load_tile,
    spread_over_xcds,
    tile_of_program,
    unshuffle_weight_tile,
)


@triton.jit
def gemm_body(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    SPLIT_INNER: tl.constexpr,
    GROUP_M: tl.constexpr,
    XCDS: tl.constexpr,
    A_FUSED: tl.constexpr,
    B_SHUFFLED: tl.constexpr,
    SCALES_BY_TILE: tl.constexpr,
    CONVERT: tl.constexpr,
    MASK_M: tl.constexpr,
    MASK_N: tl.constexpr,
    WRAP_N: tl.constexpr,
    MASK_K: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    CONVERT_FIRST: tl.constexpr,
    ASSUME: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
    CACHE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """One program: a BLOCK_M x BLOCK_N tile of C.

    With SPLIT_K > 1 it is the fp32 sum over one of SPLIT_K slices of K, at its place in ``[SPLIT_K, M, N]``.
    """
    if ASSUME:
        tl.assume(M > 0)
        tl.assume(N > 0)
        tl.assume(K > 0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_k = tl.cdiv(K, BLOCK_K)
    pid = tl.program_id(0)
    if XCDS > 1:
        pid = spread_over_xcds(pid, tiles_m * tiles_n * SPLIT_K, XCDS)
    if SPLIT_K == 1:
        split = 0
        first_tile = 0
        last_tile = tiles_k
    else:
        if SPLIT_INNER:
            split = pid % SPLIT_K
            pid = pid // SPLIT_K
        else:
            split = pid // (tiles_m * tiles_n)
            pid = pid % (tiles_m * tiles_n)
        tiles_per_split = tl.cdiv(tiles_k, SPLIT_K)
        first_tile = split * tiles_per_split
        last_tile = tl.minimum(first_tile + tiles_per_split, tiles_k)
    pid_m, pid_n = tile_of_program(pid, tiles_m, tiles_n, GROUP_M)
    if ASSUME:
        tl.assume(pid_m >= 0)
        tl.assume(pid_n >= 0)
        tl.assume(split >= 0)

    row = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # Rows of B past N give columns of C that are not stored. With WRAP_N they are wrapped onto rows that exist.
    if WRAP_N:
        b_row = column % N
    else:
        b_row = column
    if WRAP_N:
        b_group = (pid_n * (BLOCK_N // 16) + tl.arange(0, BLOCK_N // 16)) % (N // 16)
    else:
        b_group = pid_n * (BLOCK_N // 16) + tl.arange(0, BLOCK_N // 16)
    if MASK_N and not WRAP_N:
        scale_row = tl.minimum(column, N - 1)
    else:
        scale_row = b_row
    wide_row = as_offset(row, OFFSET_BITS)
    padded_columns = (K // 32 + 7) // 8 * 8

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tile_k in tl.range(first_tile, last_tile, num_stages=NUM_STAGES):
        if A_FUSED:
            if CONVERT == "hw_bf16":
                # Two bf16 at a time: the convert takes them packed.
                pair = tile_k * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
                a_raw = load_tile(
                    a_ptr.to(tl.pointer_type(tl.int32)), wide_row, M, pair, K // 2, K // 2, MASK_M, MASK_K, ""
                )
            else:
                k = tile_k * BLOCK_K + tl.arange(0, BLOCK_K)
                a_raw = load_tile(a_ptr, wide_row, M, k, K, K, MASK_M, MASK_K, "")
            if CONVERT_FIRST:
                a_q, a_scale = quantize_tile(a_raw, CONVERT, BLOCK_M, BLOCK_K)
        else:
            a_byte = tile_k * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
            a_q = load_tile(a_ptr, wide_row, M, a_byte, K // 2, K // 2, MASK_M, MASK_K, "")
            a_column = tile_k * (BLOCK_K // 32) + tl.arange(0, BLOCK_K // 32)
            a_scale = load_tile(a_scale_ptr, wide_row, M, a_column, K // 32, K // 32, MASK_M, MASK_K, "")

        if B_SHUFFLED:
            # 16 rows of B over BLOCK_K are one contiguous piece: 16 times as long as one row would be.
            b_piece = tile_k * (BLOCK_K * 8) + tl.arange(0, BLOCK_K * 8)
            b_tile = load_tile(
                b_ptr,
                as_offset(b_group, OFFSET_BITS),
                N // 16,
                b_piece,
                K * 8,
                K * 8,
                MASK_N and not WRAP_N,
                MASK_K,
                CACHE,
            )
            b_q = unshuffle_weight_tile(b_tile, BLOCK_N, BLOCK_K)
        else:
            b_byte = tile_k * (BLOCK_K // 2) + tl.arange(0, BLOCK_K // 2)
            b_q = load_tile(
                b_ptr, as_offset(b_row, OFFSET_BITS), N, b_byte, K // 2, K // 2, MASK_N and not WRAP_N, MASK_K, CACHE
            )
        if SCALES_BY_TILE:
            b_scale = load_scales_by_tile(
                b_scale_ptr,
                pid_n * BLOCK_N,
                N,
                tile_k * (BLOCK_K // 32),
                K // 32,
                padded_columns,
                BLOCK_N,
                BLOCK_K,
                WRAP_N,
                MASK_N and not WRAP_N,
                MASK_K,
                OFFSET_BITS,
                CACHE,
            )
        else:
            b_column = tile_k * (BLOCK_K // 32) + tl.arange(0, BLOCK_K // 32)
            b_scale = load_scales_in_place(
                b_scale_ptr, as_offset(scale_row, OFFSET_BITS), b_column, K // 32, padded_columns, MASK_K, CACHE
            )

        if A_FUSED and not CONVERT_FIRST:
            a_q, a_scale = quantize_tile(a_raw, CONVERT, BLOCK_M, BLOCK_K)
        if ACCUMULATE == "in_place":
            acc = tl.dot_scaled(a_q, a_scale, "e2m1", tl.trans(b_q), b_scale, "e2m1", acc)
        else:
            acc += tl.dot_scaled(a_q, a_scale, "e2m1", tl.trans(b_q), b_scale, "e2m1")

    if SPLIT_K == 1:
        pointers = out_ptr + wide_row[:, None] * N + column[None, :]
        result = acc.to(tl.bfloat16)
    else:
        pointers = out_ptr + (as_offset(split, OFFSET_BITS) * M + wide_row[:, None]) * N + column[None, :]
        result = acc
    if MASK_M and MASK_N:
        tl.store(pointers, result, mask=(row[:, None] < M) & (column[None, :] < N))
    elif MASK_M:
        tl.store(pointers, result, mask=row[:, None] < M)
    elif MASK_N:
        tl.store(pointers, result, mask=column[None, :] < N)
    else:
        tl.store(pointers, result)


@triton.jit
def gemm_fused(
    a_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    SPLIT_INNER: tl.constexpr,
    GROUP_M: tl.constexpr,
    XCDS: tl.constexpr,
    B_SHUFFLED: tl.constexpr,
    SCALES_BY_TILE: tl.constexpr,
    CONVERT: tl.constexpr,
    MASK_M: tl.constexpr,
    MASK_N: tl.constexpr,
    WRAP_N: tl.constexpr,
    MASK_K: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    CONVERT_FIRST: tl.constexpr,
    ASSUME: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
    CACHE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """A ``[M, K]`` bf16, quantized in the program; M, N, K at run time."""
    gemm_body(
        a_ptr,
        None,
        b_ptr,
        b_scale_ptr,
        out_ptr,
        M,
        N,
        K,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        SPLIT_K,
        SPLIT_INNER,
        GROUP_M,
        XCDS,
        True,
        B_SHUFFLED,
        SCALES_BY_TILE,
        CONVERT,
        MASK_M,
        MASK_N,
        WRAP_N,
        MASK_K,
        ACCUMULATE,
        CONVERT_FIRST,
        ASSUME,
        OFFSET_BITS,
        CACHE,
        NUM_STAGES,
    )


@triton.jit
def gemm_fused_constexpr(
    a_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    SPLIT_INNER: tl.constexpr,
    GROUP_M: tl.constexpr,
    XCDS: tl.constexpr,
    B_SHUFFLED: tl.constexpr,
    SCALES_BY_TILE: tl.constexpr,
    CONVERT: tl.constexpr,
    MASK_M: tl.constexpr,
    MASK_N: tl.constexpr,
    WRAP_N: tl.constexpr,
    MASK_K: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    CONVERT_FIRST: tl.constexpr,
    ASSUME: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
    CACHE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """A ``[M, K]`` bf16, quantized in the program; M, N, K compile-time constants."""
    gemm_body(
        a_ptr,
        None,
        b_ptr,
        b_scale_ptr,
        out_ptr,
        M,
        N,
        K,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        SPLIT_K,
        SPLIT_INNER,
        GROUP_M,
        XCDS,
        True,
        B_SHUFFLED,
        SCALES_BY_TILE,
        CONVERT,
        MASK_M,
        MASK_N,
        WRAP_N,
        MASK_K,
        ACCUMULATE,
        CONVERT_FIRST,
        ASSUME,
        OFFSET_BITS,
        CACHE,
        NUM_STAGES,
    )


@triton.jit
def gemm_prequant(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    SPLIT_INNER: tl.constexpr,
    GROUP_M: tl.constexpr,
    XCDS: tl.constexpr,
    B_SHUFFLED: tl.constexpr,
    SCALES_BY_TILE: tl.constexpr,
    MASK_M: tl.constexpr,
    MASK_N: tl.constexpr,
    WRAP_N: tl.constexpr,
    MASK_K: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    ASSUME: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
    CACHE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """A ``[M, K // 2]`` e2m1 with scales ``[M, K // 32]``; M, N, K at run time."""
    gemm_body(
        a_ptr,
        a_scale_ptr,
        b_ptr,
        b_scale_ptr,
        out_ptr,
        M,
        N,
        K,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        SPLIT_K,
        SPLIT_INNER,
        GROUP_M,
        XCDS,
        False,
        B_SHUFFLED,
        SCALES_BY_TILE,
        "none",
        MASK_M,
        MASK_N,
        WRAP_N,
        MASK_K,
        ACCUMULATE,
        False,
        ASSUME,
        OFFSET_BITS,
        CACHE,
        NUM_STAGES,
    )


@triton.jit
def gemm_prequant_constexpr(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    SPLIT_INNER: tl.constexpr,
    GROUP_M: tl.constexpr,
    XCDS: tl.constexpr,
    B_SHUFFLED: tl.constexpr,
    SCALES_BY_TILE: tl.constexpr,
    MASK_M: tl.constexpr,
    MASK_N: tl.constexpr,
    WRAP_N: tl.constexpr,
    MASK_K: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    ASSUME: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
    CACHE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """A ``[M, K // 2]`` e2m1 with scales ``[M, K // 32]``; M, N, K compile-time constants."""
    gemm_body(
        a_ptr,
        a_scale_ptr,
        b_ptr,
        b_scale_ptr,
        out_ptr,
        M,
        N,
        K,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        SPLIT_K,
        SPLIT_INNER,
        GROUP_M,
        XCDS,
        False,
        B_SHUFFLED,
        SCALES_BY_TILE,
        "none",
        MASK_M,
        MASK_N,
        WRAP_N,
        MASK_K,
        ACCUMULATE,
        False,
        ASSUME,
        OFFSET_BITS,
        CACHE,
        NUM_STAGES,
    )
