"""One scale block per lane: 32 bf16 in 16 registers to four words of e2m1 and one scale, in few instructions.

gfx950 machine code for kernels whose layout gives every lane whole blocks (Gluon). Operands of each piece:

``$0 .. $3``  out: e2m1, eight elements a word, low nibble first
``$4``        out: the scale byte
``$5``        out: scratch (the scale as the convert wants it: the byte in the exponent field of an f32)
``$6 .. $21`` in: the block, two bf16 a register, even k low

Both pieces compute ``byte = max(((amax + 0x20) >> 7) - 2, 0)`` on the bits of the bf16 amax, and 254 where the sum
carries into exponent 255 (see ``convert``). A convert writes one byte of its destination and keeps the others; four
destinations in turn keep two writes of one register apart. The two wait states at the end are what an MFMA needs
between a vector instruction that writes its operand and itself: the compiler counts them for its own instructions only.
"""

import triton.language as tl

# A block's amax in 28 instructions: the high halves as f32 magnitudes, three at a time (the low half only breaks ties);
# the low halves by an unsigned and a signed maximum, of which one or the other is the largest magnitude, depending on
# signs.
BLOCK_BY_MAX3 = tl.constexpr("""
v_max3_f32 $0, |$6|, |$7|, |$8|
v_max3_u16 $1, $6, $7, $8
v_max3_i16 $2, $6, $7, $8
v_max3_f32 $0, $0, |$9|, |$10|
v_max3_u16 $1, $1, $9, $10
v_max3_i16 $2, $2, $9, $10
v_max3_f32 $0, $0, |$11|, |$12|
v_max3_u16 $1, $1, $11, $12
v_max3_i16 $2, $2, $11, $12
v_max3_f32 $0, $0, |$13|, |$14|
v_max3_u16 $1, $1, $13, $14
v_max3_i16 $2, $2, $13, $14
v_max3_f32 $0, $0, |$15|, |$16|
v_max3_u16 $1, $1, $15, $16
v_max3_i16 $2, $2, $15, $16
v_max3_f32 $0, $0, |$17|, |$18|
v_max3_u16 $1, $1, $17, $18
v_max3_i16 $2, $2, $17, $18
v_max3_f32 $0, $0, |$19|, |$20|
v_max3_u16 $1, $1, $19, $20
v_max3_i16 $2, $2, $19, $20
v_max3_f32 $0, $0, |$21|, |$21|
v_max3_u16 $1, $1, $21, $21
v_max3_i16 $2, $2, $21, $21
v_lshrrev_b32 $0, 16, $0
v_and_b32 $1, 0x7fff, $1
v_and_b32 $2, 0x7fff, $2
v_max3_u32 $0, $0, $1, $2
v_add_u32 $0, 32, $0
v_max_u32 $0, 0x100, $0
v_lshrrev_b32 $0, 7, $0
v_add_u32 $1, 1, $0
v_lshrrev_b32 $1, 8, $1
v_add3_u32 $4, $0, $1, -2
v_lshlrev_b32 $5, 23, $4
v_cvt_scalef32_pk_fp4_bf16 $0, $6, $5
v_cvt_scalef32_pk_fp4_bf16 $1, $10, $5
v_cvt_scalef32_pk_fp4_bf16 $2, $14, $5
v_cvt_scalef32_pk_fp4_bf16 $3, $18, $5
v_cvt_scalef32_pk_fp4_bf16 $0, $7, $5 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 $1, $11, $5 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 $2, $15, $5 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 $3, $19, $5 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 $0, $8, $5 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 $1, $12, $5 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 $2, $16, $5 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 $3, $20, $5 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 $0, $9, $5 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_fp4_bf16 $1, $13, $5 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_fp4_bf16 $2, $17, $5 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_fp4_bf16 $3, $21, $5 op_sel:[0,0,1,1]
s_nop 1
""")

# A block's amax in 18 instructions: bf16 bits order like f16 bits up to f16's infinity (2^121 as bf16), so packed f16
# maxima and minima of three do. A magnitude beyond that is a NaN to them, and the maximum keeps NaN: then exact maxima
# decide (one branch that real data never takes). Below it nothing carries past exponent 254, which saves the last
# correction.
BLOCK_BY_PACKED_MAX = tl.constexpr("""
v_pk_maximum3_f16 $0, $6, $7, $8
v_pk_minimum3_f16 $1, $6, $7, $8
v_pk_maximum3_f16 $0, $0, $9, $10
v_pk_minimum3_f16 $1, $1, $9, $10
v_pk_maximum3_f16 $0, $0, $11, $12
v_pk_minimum3_f16 $1, $1, $11, $12
v_pk_maximum3_f16 $0, $0, $13, $14
v_pk_minimum3_f16 $1, $1, $13, $14
v_pk_maximum3_f16 $0, $0, $15, $16
v_pk_minimum3_f16 $1, $1, $15, $16
v_pk_maximum3_f16 $0, $0, $17, $18
v_pk_minimum3_f16 $1, $1, $17, $18
v_pk_maximum3_f16 $0, $0, $19, $20
v_pk_minimum3_f16 $1, $1, $19, $20
v_pk_minimum3_f16 $1, $1, $21, $21
v_pk_maximum3_f16 $0, $0, $21, $1 neg_lo:[0,0,1] neg_hi:[0,0,1]
v_lshrrev_b32 $1, 16, $0
v_max_u16 $0, $0, $1
v_cmp_lt_u32 vcc, 0x7c00, $0
v_sub_u32 $4, $0, $22 clamp
s_cbranch_vccz .Lscale_known_${:uid}
v_max3_f32 $0, |$6|, |$7|, |$8|
v_max3_u16 $1, $6, $7, $8
v_max3_i16 $2, $6, $7, $8
v_max3_f32 $0, $0, |$9|, |$10|
v_max3_u16 $1, $1, $9, $10
v_max3_i16 $2, $2, $9, $10
v_max3_f32 $0, $0, |$11|, |$12|
v_max3_u16 $1, $1, $11, $12
v_max3_i16 $2, $2, $11, $12
v_max3_f32 $0, $0, |$13|, |$14|
v_max3_u16 $1, $1, $13, $14
v_max3_i16 $2, $2, $13, $14
v_max3_f32 $0, $0, |$15|, |$16|
v_max3_u16 $1, $1, $15, $16
v_max3_i16 $2, $2, $15, $16
v_max3_f32 $0, $0, |$17|, |$18|
v_max3_u16 $1, $1, $17, $18
v_max3_i16 $2, $2, $17, $18
v_max3_f32 $0, $0, |$19|, |$20|
v_max3_u16 $1, $1, $19, $20
v_max3_i16 $2, $2, $19, $20
v_max3_f32 $0, $0, |$21|, |$21|
v_max3_u16 $1, $1, $21, $21
v_max3_i16 $2, $2, $21, $21
v_lshrrev_b32 $0, 16, $0
v_and_b32 $1, 0x7fff, $1
v_and_b32 $2, 0x7fff, $2
v_max3_u32 $0, $0, $1, $2
v_add_u32 $0, 32, $0
v_max_u32 $0, 0x100, $0
v_lshrrev_b32 $0, 7, $0
v_add_u32 $1, 1, $0
v_lshrrev_b32 $1, 8, $1
v_add3_u32 $4, $0, $1, -2
v_lshlrev_b32 $4, 7, $4
.Lscale_known_${:uid}:
v_lshlrev_b32 $5, 16, $4
v_cvt_scalef32_pk_fp4_bf16 $0, $6, $5
v_cvt_scalef32_pk_fp4_bf16 $1, $10, $5
v_cvt_scalef32_pk_fp4_bf16 $2, $14, $5
v_cvt_scalef32_pk_fp4_bf16 $3, $18, $5
v_cvt_scalef32_pk_fp4_bf16 $0, $7, $5 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 $1, $11, $5 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 $2, $15, $5 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 $3, $19, $5 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 $0, $8, $5 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 $1, $12, $5 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 $2, $16, $5 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 $3, $20, $5 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp4_bf16 $0, $9, $5 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_fp4_bf16 $1, $13, $5 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_fp4_bf16 $2, $17, $5 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_fp4_bf16 $3, $21, $5 op_sel:[0,0,1,1]
v_lshrrev_b32 $4, 7, $4
s_nop 1
""")

# Out: four words of eight e2m1, low nibble first; the scale byte; scratch, the scale in the exponent field of an f32.
# In: the block, two bf16 a register, even k low.
BLOCK_CONSTRAINTS = tl.constexpr("=&v,=&v,=&v,=&v,=&v,=&v" + ",v" * 16)
# Out: four words of eight e2m1, low nibble first; the scale byte; scratch, the scale in the exponent field of an f32.
# In: the block, two bf16 a register, even k low; 0xE0 (two exponents down, less the carry of rounding).
BLOCK_CONSTRAINTS_PACKED = tl.constexpr("=&v,=&v,=&v,=&v,=&v,=&v" + ",v" * 16 + ",s,~{vcc}")
