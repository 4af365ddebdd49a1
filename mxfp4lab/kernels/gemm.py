"""C = A @ B.T with MXFP4 operands, in plain Triton: what every target compiles.

A arrives as bf16 and is quantized tile by tile, or already as MXFP4. M, N and K are run-time arguments, or compile-time
constants where the launch says so. With SPLIT_K > 1 every program sums one slice of K and writes fp32 partial results
``[SPLIT_K, M, N]``; slices are whole K tiles, each belongs to exactly one slice.
"""

import triton
import triton.language as tl

from .tiles import load_tile, spread_over_xcds, tile_of_program


@triton.jit
def gemm_tiles(
    a_ptr, b_ptr, b_scale_ptr, out_ptr, M, N, K, a_scale_ptr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr, GROUP_M: tl.constexpr,
    XCDS: tl.constexpr, A_PACK: tl.constexpr, QUANTIZE: tl.constexpr, LOAD_B: tl.constexpr, MASK_M: tl.constexpr,
    MASK_N: tl.constexpr, MASK_K: tl.constexpr, CACHE: tl.constexpr, NUM_STAGES: tl.constexpr,
):  # fmt: skip
    """One program: a BLOCK_M x BLOCK_N tile of C, or with SPLIT_K > 1 its fp32 sum over one slice of K.

    ``a_ptr`` is bf16 ``[M, K]``, which QUANTIZE (of `convert.QUANTIZERS`) takes one by one, or with A_PACK 2 two by
    two; where QUANTIZE is None, e2m1 ``[M, K // 2]`` (A_PACK 2) with scales ``[M, K // 32]``.
    LOAD_B is `tiles.load_b_rowmajor` or `load_b_preshuffled`; B's scales are in the e8m0 shuffle.
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
    if QUANTIZE is not None and A_PACK == 2:
        a_ptr = a_ptr.to(tl.pointer_type(tl.int32))
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tile_k in tl.range(first_tile, last_tile, num_stages=NUM_STAGES):
        k = tile_k * (BLOCK_K // A_PACK) + tl.arange(0, BLOCK_K // A_PACK)
        a = load_tile(a_ptr, row, M, k, K // A_PACK, MASK_M, MASK_K, "")
        if QUANTIZE is None:
            block = tile_k * (BLOCK_K // 32) + tl.arange(0, BLOCK_K // 32)
            a_scale = load_tile(a_scale_ptr, row, M, block, K // 32, MASK_M, MASK_K, "")
        # Rows of B past N are wrapped onto rows that exist: the columns of C that they give are not stored.
        b_q, b_scale = LOAD_B(b_ptr, b_scale_ptr, pid_n, N, tile_k, K, BLOCK_N, BLOCK_K, MASK_N, MASK_K, CACHE)
        if QUANTIZE is not None:
            a, a_scale = QUANTIZE(a, BLOCK_M, BLOCK_K)
        acc = tl.dot_scaled(a, a_scale, "e2m1", tl.trans(b_q), b_scale, "e2m1", acc)

    mask = ((row[:, None] < M) | (not MASK_M)) & ((column[None, :] < N) | (not MASK_N))
    tl.store(out_ptr + row[:, None] * N + column[None, :], acc.to(out_ptr.dtype.element_ty), mask=mask)
