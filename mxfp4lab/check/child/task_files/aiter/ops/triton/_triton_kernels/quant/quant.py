"""`_mxfp4_quant_op`, which Triton kernels call to quantize a tile: the task's bits, by integer arithmetic."""

import triton
import triton.language as tl


@triton.jit
def _mxfp4_quant_op(x, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, MXFP4_QUANT_BLOCK_SIZE: tl.constexpr):
    """f32 [BLOCK_SIZE_M, BLOCK_SIZE_N] -> packed e2m1 [.., BLOCK_SIZE_N // 2] and e8m0 [.., BLOCK_SIZE_N // 32]."""
    groups: tl.constexpr = BLOCK_SIZE_N // MXFP4_QUANT_BLOCK_SIZE
    blocks = tl.reshape(x, (BLOCK_SIZE_M, groups, MXFP4_QUANT_BLOCK_SIZE))
    amax = tl.max(tl.abs(blocks), axis=2, keep_dims=True)
    exponent = (amax.to(tl.int32, bitcast=True) + 0x200000) >> 23
    byte = tl.where(exponent == 255, 254, tl.maximum(exponent, 2) - 2)
    # 2^-e has the exponent field 254 - byte; byte 254 needs a subnormal.
    inverse = tl.where(byte == 254, 0x00400000, (254 - byte) << 23).to(tl.float32, bitcast=True)
    # Times 2^-126 the subnormals of e2m1 fall on those of f32: one integer rounding does it.
    bits = (blocks * inverse * 1.1754943508222875e-38).to(tl.int32, bitcast=True)
    size = tl.minimum(((bits & 0x7FFFFFFF) + 0x1FFFFF + ((bits >> 22) & 1)) >> 22, 7)
    code = (((bits >> 28) & 8) | size).to(tl.uint8)
    low, high = tl.split(tl.reshape(code, (BLOCK_SIZE_M, groups, MXFP4_QUANT_BLOCK_SIZE // 2, 2)))
    packed = tl.reshape(low | (high << 4), (BLOCK_SIZE_M, BLOCK_SIZE_N // 2))
    return packed, tl.reshape(byte, (BLOCK_SIZE_M, groups)).to(tl.uint8)
