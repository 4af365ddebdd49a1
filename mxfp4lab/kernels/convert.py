"""bf16 to MXFP4 inside a kernel: one scale byte per 32 elements along K, two e2m1 per byte.

Four ways that give the same bits on every finite bf16 value, but for one in ``sw_aiter``:

``sw_aiter``  floating-point log2, floor and exp2 for the scale, selects for the element: the arithmetic of aiter's op;
              gfx950's exp2 flushes 2^-127 to zero, and with it the elements of a block whose scale byte is 254
``sw_bits``   the exponent by integer arithmetic, the element by one integer rounding
``hw_f32``    the exponent by integer arithmetic, v_cvt_scalef32_pk_fp4_f32: two f32 registers to one byte
``hw_bf16``   v_cvt_scalef32_pk_fp4_bf16: one register that holds two bf16 to one byte, nothing is unpacked

Scale (EVEN mode, OCP MX v1.0 section 6.3 with the exponent rounded at mantissa 1.75):
``e = clamp(floor(log2(round(amax))) - 2, -127, 127)``, byte ``e + 127``. When rounding carries past the largest
exponent the log2 is infinite and the clamp gives byte 254: the integer form has to say so explicitly.
"""

import triton
import triton.language as tl

# Added to the bits of an f32, this carries a mantissa of 1.75 and more into the exponent.
EXPONENT_CARRY = tl.constexpr(0x200000)
# Added to the bits of a bf16, this carries a mantissa of 1.75 and more into the exponent.
EXPONENT_CARRY_BF16 = tl.constexpr(0x20)

# One v_cvt_scalef32_pk_fp4_f32 writes one byte of its destination and keeps the others. Two such writes to one register
# back to back, or a read right behind one, need an independent instruction between (gfx950 forwarding hazard, which
# the assembler does not fill inside inline assembly): two destinations are written alternately. The wait states at the
# end also cover an MFMA that reads the result, which needs two after a vector instruction.
# Outputs are whole 32-bit words: the AMD backend has no register class for four bytes.
CVT_WORDS_F32 = tl.constexpr("""
v_cvt_scalef32_pk_fp4_f32 $0, $2, $4, $18
v_cvt_scalef32_pk_fp4_f32 $1, $3, $5, $19
v_cvt_scalef32_pk_fp4_f32 $0, $6, $8, $18 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_f32 $1, $7, $9, $19 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_f32 $0, $10, $12, $18 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_f32 $1, $11, $13, $19 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_f32 $0, $14, $16, $18 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_fp4_f32 $1, $15, $17, $19 op_sel:[0,0,1,1]
s_nop 1
""")
CVT_WORDS_F32_CONSTRAINTS = tl.constexpr("=&v,=&v" + ",v" * 18)

# One v_cvt_scalef32_pk_fp4_bf16 turns a register of two bf16 into one byte of its destination and keeps the others. Two
# destinations are written alternately: two writes to one register back to back need an independent instruction between
# (gfx950 forwarding hazard, which the assembler does not fill inside inline assembly). The wait states at the end are
# for an MFMA that reads the result.
CVT_WORDS_BF16 = tl.constexpr("""
v_cvt_scalef32_pk_fp4_bf16 $0, $2, $10
v_cvt_scalef32_pk_fp4_bf16 $1, $3, $11
v_cvt_scalef32_pk_fp4_bf16 $0, $4, $10 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 $1, $5, $11 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 $0, $6, $10 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 $1, $7, $11 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 $0, $8, $10 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_fp4_bf16 $1, $9, $11 op_sel:[0,0,1,1]
s_nop 1
""")
CVT_WORDS_BF16_CONSTRAINTS = tl.constexpr("=&v,=&v" + ",v" * 10)


@triton.jit
def scale_byte_from_f32(amax_bits):
    """Bits of the f32 amax (int32, sign clear) to the e8m0 byte (int32), by integer arithmetic."""
    exponent = (amax_bits + EXPONENT_CARRY) >> 23
    return tl.where(exponent == 255, 254, tl.maximum(exponent, 2) - 2)


@triton.jit
def scale_byte_from_bf16(amax_bits):
    """Bits of the bf16 amax (int32, sign clear) to the e8m0 byte (int32), by integer arithmetic."""
    exponent = (amax_bits + EXPONENT_CARRY_BF16) >> 7
    return tl.where(exponent == 255, 254, tl.maximum(exponent, 2) - 2)


@triton.jit
def scale_exponent_log2(amax):
    """f32 amax to the exponent e (f32, -127 .. 127) by log2 and floor, as aiter's op does it."""
    rounded = (amax.to(tl.int32, bitcast=True) + EXPONENT_CARRY) & 0x7F800000
    exponent = tl.floor(tl.log2(rounded.to(tl.float32, bitcast=True))) - 2
    return tl.clamp(exponent, min=-127, max=127)


@triton.jit
def e2m1_by_select(y):
    """Scaled f32 to e2m1 codes (uint8): below 1 by adding a magic number, above by rounding the bits; 6 and up is 7."""
    bits = y.to(tl.int32, bitcast=True)
    sign = (bits >> 28) & 8
    magnitude = (bits & 0x7FFFFFFF).to(tl.float32, bitcast=True)
    # 2^22 + |y|: the last bit of the sum weighs 0.5, so the addition rounds to nearest even.
    small = (magnitude + 4194304.0).to(tl.int32, bitcast=True) - 0x4A800000
    # One mantissa bit stays; 126 is the f32 exponent of e2m1's subnormals.
    large_bits = (bits & 0x7FFFFFFF) + 0x1FFFFF + ((bits >> 22) & 1)
    large = (large_bits >> 22) - (126 << 1)
    code = tl.where(magnitude >= 6.0, 7, tl.where(magnitude < 1.0, small, large))
    return (sign | code).to(tl.uint8)


@triton.jit
def e2m1_by_bits(y):
    """Scaled f32 to e2m1 codes (uint8): times 2^-126, e2m1's subnormals fall on f32's, and one rounding does it."""
    bits = (y * 1.1754943508222875e-38).to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    code = tl.minimum((magnitude + 0x1FFFFF + ((bits >> 22) & 1)) >> 22, 7)
    return (((bits >> 28) & 8) | code).to(tl.uint8)


@triton.jit
def max_of_packed(x, y):
    """Two unsigned 16-bit maxima in one instruction; x and y are int32."""
    return tl.inline_asm_elementwise("v_pk_max_u16 $0, $1, $2", "=v,v,v", [x, y], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def bytes_of_words(word):
    """``[..., W]`` int32 to ``[..., W, 2, 2]`` uint8, low byte first."""
    even = tl.join(word, word >> 16)
    return tl.join(even, even >> 8).to(tl.uint8)


@triton.jit
def packed_by_two(codes, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """Codes in the order of k, uint8, to ``[BLOCK_M, BLOCK_K // 2]``, low nibble first."""
    low, high = tl.split(tl.reshape(codes, (BLOCK_M, BLOCK_K // 2, 2)))
    return low | (high << 4)


@triton.jit
def quantize_sw_aiter(x, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """``[BLOCK_M, BLOCK_K]`` bf16 or f32 to MXFP4, by aiter's arithmetic."""
    blocks = tl.reshape(x.to(tl.float32), (BLOCK_M, BLOCK_K // 32, 32))
    exponent = scale_exponent_log2(tl.max(tl.abs(blocks), axis=2, keep_dims=True))
    packed = packed_by_two(e2m1_by_select(blocks * tl.exp2(-exponent)), BLOCK_M, BLOCK_K)
    return packed, tl.reshape(exponent.to(tl.int32) + 127, (BLOCK_M, BLOCK_K // 32)).to(tl.uint8)


@triton.jit
def quantize_sw_bits(x, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """``[BLOCK_M, BLOCK_K]`` bf16 or f32 to MXFP4, by integer arithmetic."""
    blocks = tl.reshape(x.to(tl.float32), (BLOCK_M, BLOCK_K // 32, 32))
    amax = tl.max(tl.abs(blocks), axis=2, keep_dims=True)
    byte = scale_byte_from_f32(amax.to(tl.int32, bitcast=True))
    # 2^-e has the exponent field 254 - byte; byte 254 needs the subnormal 2^-127.
    inverse_bits = tl.where(byte == 254, 0x00400000, (254 - byte) << 23)
    packed = packed_by_two(e2m1_by_bits(blocks * inverse_bits.to(tl.float32, bitcast=True)), BLOCK_M, BLOCK_K)
    return packed, tl.reshape(byte, (BLOCK_M, BLOCK_K // 32)).to(tl.uint8)


@triton.jit
def quantize_hw_f32(x, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """``[BLOCK_M, BLOCK_K]`` bf16 or f32 to MXFP4, gfx950's convert from f32."""
    blocks = tl.reshape(x.to(tl.float32), (BLOCK_M, BLOCK_K // 32, 32))
    amax = tl.max(tl.abs(blocks), axis=2, keep_dims=True)
    byte = scale_byte_from_f32(amax.to(tl.int32, bitcast=True))
    even, odd = tl.split(tl.reshape(blocks, (BLOCK_M, BLOCK_K // 32, 4, 2, 2, 2)))
    even02, even13 = tl.split(even)
    odd02, odd13 = tl.split(odd)
    even0, even2 = tl.split(even02)
    even1, even3 = tl.split(even13)
    odd0, odd2 = tl.split(odd02)
    odd1, odd3 = tl.split(odd13)
    word = tl.inline_asm_elementwise(
        CVT_WORDS_F32,
        CVT_WORDS_F32_CONSTRAINTS,
        # The instruction reads the exponent field of its scale operand and nothing else of it.
        [even0, odd0, even1, odd1, even2, odd2, even3, odd3, tl.broadcast_to(byte << 23, even0.shape)],
        dtype=tl.int32,
        is_pure=True,
        pack=2,
    )
    packed = tl.reshape(bytes_of_words(word), (BLOCK_M, BLOCK_K // 2))
    return packed, tl.reshape(byte, (BLOCK_M, BLOCK_K // 32)).to(tl.uint8)


@triton.jit
def quantize_hw_bf16(pairs, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """``[BLOCK_M, BLOCK_K // 2]`` int32, two bf16 each, even k in the low half, to MXFP4: nothing is unpacked."""
    blocks = tl.reshape(pairs, (BLOCK_M, BLOCK_K // 32, 16))
    # Without its sign a bf16 orders like an unsigned integer.
    both = tl.reduce(blocks & 0x7FFF7FFF, 2, max_of_packed)
    amax = tl.maximum(both & 0xFFFF, (both >> 16) & 0xFFFF)
    byte = scale_byte_from_bf16(amax)
    # The instruction reads the exponent field of its scale operand and nothing else of it.
    scale = tl.broadcast_to(tl.reshape(byte << 23, (BLOCK_M, BLOCK_K // 32, 1)), (BLOCK_M, BLOCK_K // 32, 4))
    p02, p13 = tl.split(tl.reshape(pairs, (BLOCK_M, BLOCK_K // 32, 4, 2, 2)))
    p0, p2 = tl.split(p02)
    p1, p3 = tl.split(p13)
    word = tl.inline_asm_elementwise(
        CVT_WORDS_BF16, CVT_WORDS_BF16_CONSTRAINTS, [p0, p1, p2, p3, scale], dtype=tl.int32, is_pure=True, pack=2
    )
    return tl.reshape(bytes_of_words(word), (BLOCK_M, BLOCK_K // 2)), byte.to(tl.uint8)


QUANTIZERS = {
    "sw_aiter": quantize_sw_aiter,
    "sw_bits": quantize_sw_bits,
    "hw_f32": quantize_hw_f32,
    "hw_bf16": quantize_hw_bf16,
}
"""By the name that configs know: what a kernel is given as its QUANTIZE."""
