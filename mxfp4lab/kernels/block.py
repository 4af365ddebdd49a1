"""One scale block per lane: 32 bf16 in 16 registers to four words of e2m1 and one scale, in few instructions.

gfx950 machine code for kernels whose layout gives every lane whole blocks (Gluon). Operands of each piece:

``$0 .. $3``  out: e2m1, eight elements a word, low nibble first
``$4``        out: the scale byte
``$5``        out: scratch (the scale as the convert wants it: the byte in the exponent field of an f32)
``$6 .. $21`` in: the block, two bf16 a register, even k low
``$22``       in, packed maxima only: 0xE0, two exponents down less the carry of rounding

Both pieces compute ``byte = max(((amax + 0x20) >> 7) - 2, 0)`` on the bits of the bf16 amax, and 254 where the sum
carries into exponent 255 (see ``convert``). A convert writes one byte of its destination and keeps the others; four
destinations in turn keep two writes of one register apart. The two wait states at the end are what an MFMA needs
between a vector instruction that writes its operand and itself: the compiler counts them for its own instructions only.
"""

import triton.language as tl

# The high halves as f32 magnitudes (the low half only breaks ties); the low halves by an unsigned and a signed maximum,
# of which one or the other is the largest magnitude, depending on signs: by turns, each the largest of what it has so
# far and of two more registers. 28 instructions for amax.
MAX3 = (
    "".join(
        f"{name} {far}, {far if at > 7 else form.format(6)}, {form.format(at)}, {form.format(min(at + 1, 21))}\n"
        for at in range(7, 22, 2)
        for name, far, form in (("v_max3_f32", "$0", "|${}|"), ("v_max3_u16", "$1", "${}"), ("v_max3_i16", "$2", "${}"))
    )
    + """v_lshrrev_b32 $0, 16, $0
v_and_b32 $1, 0x7fff, $1
v_and_b32 $2, 0x7fff, $2
v_max3_u32 $0, $0, $1, $2
v_add_u32 $0, 32, $0
v_max_u32 $0, 0x100, $0
v_lshrrev_b32 $0, 7, $0
v_add_u32 $1, 1, $0
v_lshrrev_b32 $1, 8, $1
v_add3_u32 $4, $0, $1, -2
"""
)
# One byte of each of the four words after another.
CONVERT = "".join(
    f"v_cvt_scalef32_pk_fp4_bf16 ${word}, ${6 + 4 * word + byte}, $5{half}\n"
    for byte, half in enumerate(("", " op_sel:[0,0,1,0]", " op_sel:[0,0,0,1]", " op_sel:[0,0,1,1]"))
    for word in range(4)
)
BLOCK_BY_MAX3 = tl.constexpr(f"{MAX3}v_lshlrev_b32 $5, 23, $4\n{CONVERT}s_nop 1\n")

# amax in 18 instructions: bf16 bits order like f16 bits up to f16's infinity (2^121 as bf16), so packed f16 maxima and
# minima of three do. A magnitude beyond that is a NaN to them, and the maximum keeps NaN: then exact maxima decide (one
# branch that real data never takes). Below it nothing carries past exponent 254, which saves the last correction.
BLOCK_BY_PACKED_MAX = tl.constexpr(
    "".join(
        f"{name} {far}, {far if at > 7 else '$6'}, ${at}, ${at + 1}\n"
        for at in range(7, 20, 2)
        for name, far in (("v_pk_maximum3_f16", "$0"), ("v_pk_minimum3_f16", "$1"))
    )
    + f"""v_pk_minimum3_f16 $1, $1, $21, $21
v_pk_maximum3_f16 $0, $0, $21, $1 neg_lo:[0,0,1] neg_hi:[0,0,1]
v_lshrrev_b32 $1, 16, $0
v_max_u16 $0, $0, $1
v_cmp_lt_u32 vcc, 0x7c00, $0
v_sub_u32 $4, $0, $22 clamp
s_cbranch_vccz .Lscale_known_${{:uid}}
{MAX3}v_lshlrev_b32 $4, 7, $4
.Lscale_known_${{:uid}}:
v_lshlrev_b32 $5, 16, $4
{CONVERT}v_lshrrev_b32 $4, 7, $4
s_nop 1
"""
)
BLOCK_CONSTRAINTS = tl.constexpr("=&v,=&v,=&v,=&v,=&v,=&v" + ",v" * 16)
BLOCK_CONSTRAINTS_PACKED = tl.constexpr("=&v,=&v,=&v,=&v,=&v,=&v" + ",v" * 16 + ",s,~{vcc}")
