"""Sums the fp32 partial results ``[SPLIT_K, M, N]`` of a split K into bf16 ``[M, N]``, in the order of the splits."""

import triton
import triton.language as tl


@triton.jit
def reduce_tiles(partial_ptr, c_ptr, M, N, SPLIT_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """One program: a BLOCK_M x BLOCK_N tile of C, its SPLIT_K fp32 partial results added in order."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offset = row[:, None] * N + column[None, :]
    mask = (row[:, None] < M) & (column[None, :] < N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for split in tl.static_range(SPLIT_K):
        acc += tl.load(partial_ptr + M * N * split + offset, mask=mask, other=0.0)
    tl.store(c_ptr + offset, acc.to(tl.bfloat16), mask=mask)
