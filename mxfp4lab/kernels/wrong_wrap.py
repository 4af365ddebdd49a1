"""A mistake on purpose: what happens when B's row groups are wrapped by rows. Never part of a plan.

The tile shuffle stores B as ``N // 16`` groups of 16 rows. Kernels in circulation wrap the group number with ``% N``
where ``% (N // 16)`` is meant, which changes nothing until a tile passes the last group: then it reads behind B.
"""

import triton
import triton.language as tl


@triton.jit
def sum_of_tile_bytes(b_ptr, out_ptr, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BY_GROUPS: tl.constexpr):
    """Loads a GEMM's tiles of shuffled B and adds their bytes, so that nothing is optimized away."""
    group = tl.program_id(0) * (BLOCK_N // 16) + tl.arange(0, BLOCK_N // 16)
    if BY_GROUPS:
        group = group % (N // 16)
    else:
        group = group % N
    total = tl.zeros((BLOCK_N // 16,), dtype=tl.int32)
    for tile_k in range(0, tl.cdiv(K, BLOCK_K)):
        piece = tile_k * (BLOCK_K * 8) + tl.arange(0, BLOCK_K * 8)
        total += tl.sum(tl.load(b_ptr + group[:, None] * (K * 8) + piece[None, :]).to(tl.int32), axis=1)
    tl.store(out_ptr + tl.program_id(0) * (BLOCK_N // 16) + tl.arange(0, BLOCK_N // 16), total)
