"""Sums the fp32 partial results ``[SPLIT_K, M, N]`` of a split K into bf16 ``[M, N]``, in the order of the splits.

Three forms of the same sum: ``loop`` adds one partial tile after another; ``block`` loads all of them at once (SPLIT_K
rounded up to a power of two, missing ones zero) and lets tl.sum add; ``flat`` forgets rows and columns.
"""

import triton
import triton.language as tl

from .tiles import as_offset


@triton.jit
def reduce_tiles(
    partial_ptr,
    c_ptr,
    M,
    N,
    SPLIT_K: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_FORM: tl.constexpr,
    OFFSET_BITS: tl.constexpr,
):
    """One program: a BLOCK_M x BLOCK_N tile of C, its SPLIT_K fp32 partial results added in order."""
    row = as_offset(tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), OFFSET_BITS)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offset = row[:, None] * N + column[None, :]
    mask = (row[:, None] < M) & (column[None, :] < N)
    if BLOCK_FORM:
        split = tl.arange(0, BLOCK_S)
        pointers = partial_ptr + as_offset(split, OFFSET_BITS)[:, None, None] * (M * N) + offset[None, :, :]
        partial = tl.load(pointers, mask=(split[:, None, None] < SPLIT_K) & mask[None, :, :], other=0.0)
        acc = tl.sum(partial, axis=0)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for split in tl.static_range(SPLIT_K):
            acc += tl.load(partial_ptr + as_offset(M * N, OFFSET_BITS) * split + offset, mask=mask, other=0.0)
    tl.store(c_ptr + offset, acc.to(tl.bfloat16), mask=mask)


@triton.jit
def reduce_flat(partial_ptr, c_ptr, elements, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr, OFFSET_BITS: tl.constexpr):
    """One program: BLOCK consecutive elements of C, their SPLIT_K fp32 partial results added in order."""
    offset = as_offset(tl.program_id(0), OFFSET_BITS) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < elements
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in tl.static_range(SPLIT_K):
        acc += tl.load(partial_ptr + as_offset(elements, OFFSET_BITS) * split + offset, mask=mask, other=0.0)
    tl.store(c_ptr + offset, acc.to(tl.bfloat16), mask=mask)
