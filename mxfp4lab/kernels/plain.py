"""C for any shape that the task allows, in a page of plain Triton: right on every GPU, and nobody claims fast."""

import triton
import triton.language as tl

from .convert import e2m1_by_bits, scale_byte_from_f32
from .tiles import shuffled_scale_offset


@triton.jit
def gemm_any_shape(
    a_ptr, b_ptr, b_scale_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """One program: a BLOCK_M x BLOCK_N tile of C. A is bf16, B row-major e2m1, B's scales are in the e8m0 shuffle."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + row[:, None] * K + k[None, :], mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        blocks = tl.reshape(a.to(tl.float32), (BLOCK_M, BLOCK_K // 32, 32))
        amax = tl.max(tl.abs(blocks), axis=2, keep_dims=True)
        byte = scale_byte_from_f32(amax.to(tl.int32, bitcast=True))
        # 2^-e has the exponent field 254 - byte; byte 254 needs the subnormal 2^-127.
        inverse_bits = tl.where(byte == 254, 0x00400000, (254 - byte) << 23)
        codes = e2m1_by_bits(blocks * inverse_bits.to(tl.float32, bitcast=True))
        low, high = tl.split(tl.reshape(codes, (BLOCK_M, BLOCK_K // 2, 2)))
        a_scale = tl.reshape(byte, (BLOCK_M, BLOCK_K // 32)).to(tl.uint8)

        pair = first // 2 + tl.arange(0, BLOCK_K // 2)
        b_mask = (column[:, None] < N) & (pair[None, :] < K // 2)
        b_q = tl.load(b_ptr + column[:, None] * (K // 2) + pair[None, :], mask=b_mask, other=0)
        block = first // 32 + tl.arange(0, BLOCK_K // 32)
        # Columns past N are not stored: any scale that exists will do for them.
        offset = shuffled_scale_offset(tl.minimum(column, N - 1)[:, None], block[None, :], (K // 32 + 7) // 8 * 8)
        b_scale = tl.load(b_scale_ptr + offset, mask=block[None, :] < K // 32, other=0)
        acc = tl.dot_scaled(low | (high << 4), a_scale, "e2m1", tl.trans(b_q), b_scale, "e2m1", acc)
    c_mask = (row[:, None] < M) & (column[None, :] < N)
    tl.store(c_ptr + row[:, None] * N + column[None, :], acc.to(tl.bfloat16), mask=c_mask)
