"""Vector ALU instructions with a 32-bit or 16-bit result: one table line per instruction.

A line gives the result's type, the sources' types and a function of the sources and an output array (None: allocate).
Functions write the output last and only elementwise, so that a result register may also be a source.
Source of the semantics: AMD CDNA4 ISA, "Vector ALU instructions".
"""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.machine import convert, floats
from mxfp4lab.gfx950.machine.tables import U32, lut3

_31, _15, _24 = np.uint32(31), np.uint16(15), np.uint32(0xFFFFFF)
_16 = np.uint32(16)


def _signed24(x):
    return (x << np.int32(8)) >> np.int32(8)


def _high32(a, b, out):
    return _take(out, (a.astype(np.uint64) * b) >> np.uint64(32))


def _high32_signed(a, b, out):
    return _take(out, (a.astype(np.int64) * b) >> np.int64(32))


def _take(out, value, kind=np.uint32):
    if out is None:
        return value.astype(kind)
    np.copyto(out, value, casting="unsafe")
    return out


def _bfe_u32(x, offset, width, out):
    mask = (np.uint32(1) << (width & _31)) - np.uint32(1)
    return np.bitwise_and(x >> (offset & _31), mask, out)


def _bfe_i32(x, offset, width, out):
    offset, width = offset.astype(np.int64) & 31, width.astype(np.int64) & 31
    field = (x.astype(np.int64) >> offset) & ((np.int64(1) << width) - 1)
    sign = np.where(width > 0, np.int64(1) << np.maximum(width - 1, 0), 0)
    return _take(out, (field ^ sign) - sign, np.int32)


def _perm(high, low, selector, out):
    """Each selector byte picks a byte of {high, low}: 0-7 a byte, 8-11 a sign fill, 12 zero, above 0xff."""
    pick = np.ravel(selector)
    if pick.size and selector.shape[-1:] in ((), (1,)) and (pick.size == 1 or pick.min() == pick.max()):
        return _perm_same(high, low, int(pick[0]), out)
    data = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    result = np.uint32(0)
    for i in range(4):
        pick = selector >> np.uint32(8 * i) & np.uint32(255)
        byte = (data >> (np.uint64(8) * (pick & np.uint32(7)).astype(np.uint64))).astype(np.uint32) & np.uint32(255)
        if np.count_nonzero(pick > 7):
            sign = data >> (np.uint64(16) * (pick & np.uint32(3)).astype(np.uint64) + np.uint64(15))
            fill = (sign.astype(np.uint32) & np.uint32(1)) * np.uint32(255)
            byte = np.where(pick < 8, byte, np.where(pick < 12, fill, np.where(pick == 12, U32(0), U32(255))))
        result = result | byte << np.uint32(8 * i)
    return _take(out, result)


def _perm_same(high, low, selector, out):
    """One selector for all lanes: bytes are copied, not shifted."""
    low, high = np.broadcast_arrays(low, high)
    sources = [np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, 4) for x in (low, high)]
    result = np.empty((*low.shape, 4), np.uint8)
    for i in range(4):
        pick = selector >> 8 * i & 255
        if pick < 8:
            result[..., i] = sources[pick >> 2][..., pick & 3]
        elif pick < 12:
            word = 2 * (pick - 8) + 1
            result[..., i] = (sources[word >> 2][..., word & 3] >> 7) * np.uint8(255)
        else:
            result[..., i] = 0 if pick == 12 else 255
    return _take(out, result.view(np.uint32)[..., 0])


def _bit_reverse(x, out):
    x = (x >> U32(1)) & U32(0x55555555) | (x & U32(0x55555555)) << U32(1)
    x = (x >> U32(2)) & U32(0x33333333) | (x & U32(0x33333333)) << U32(2)
    x = (x >> U32(4)) & U32(0x0F0F0F0F) | (x & U32(0x0F0F0F0F)) << U32(4)
    x = (x >> U32(8)) & U32(0x00FF00FF) | (x & U32(0x00FF00FF)) << U32(8)
    return np.bitwise_or(x >> _16, x << _16, out)


def _first_high(x, out):
    exponent = np.frexp(x.astype(np.float64))[1]
    return _take(out, np.where(x == 0, np.int32(-1), 32 - exponent), np.int32)


def _first_low(x, out):
    lowest = x & (~x + U32(1))
    return _take(out, np.where(x == 0, np.int32(-1), np.frexp(lowest.astype(np.float64))[1] - 1), np.int32)


def _first_high_signed(x, out):
    return _first_high((x ^ (x >> np.int32(31))).view(np.uint32) | U32(0), out)


def _mbcnt(high):
    below = (np.uint64(1) << np.arange(64, dtype=np.uint64)) - np.uint64(1)
    mask = ((below >> np.uint64(32)) if high else (below & np.uint64(0xFFFFFFFF))).astype(np.uint32)
    return lambda a, b, out: np.add(np.bitwise_count(a & mask).astype(np.uint32), b, out)


def _alignbit(high, low, shift, out):
    both = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    return _take(out, both >> (shift & _31).astype(np.uint64))


def _alignbyte(high, low, shift, out):
    return _alignbit(high, low, (shift & np.uint32(3)) << np.uint32(3), out)


def _sad(a, b, c, out):
    return np.add(np.maximum(a, b) - np.minimum(a, b), c, out)


def _med3(a, b, c, out):
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c), out=out)


def _min(a, b, out):
    return np.minimum(a, b, out=out)


def _max(a, b, out):
    return np.maximum(a, b, out=out)


def _nan_min(a, b, c, out):
    return np.minimum(np.minimum(a, b), c, out=out)


def _nan_max(a, b, c, out):
    return np.maximum(np.maximum(a, b), c, out=out)


def _cvt_pk_bf16(a, b, out):
    return convert.pack_bf16(np.asarray(a), np.asarray(b), out)


def _cvt_pk_f16(to_half):
    def pack(a, b, out):
        low, high = to_half(np.asarray(a)).view(np.uint16), to_half(np.asarray(b)).view(np.uint16)
        return np.bitwise_or(low.astype(np.uint32), high.astype(np.uint32) << _16, out)

    return pack


def _cvt_pk_int(low_limit, high_limit):
    def pack(a, b, out):
        a, b = (np.clip(x.astype(np.int64), low_limit, high_limit).astype(np.uint32) & U32(0xFFFF) for x in (a, b))
        return np.bitwise_or(a, b << _16, out)

    return pack


def _ubyte(n):
    return lambda x, out: _take(out, (x >> np.uint32(8 * n)) & np.uint32(255), np.float32)


def _dot2_bf16(a, b, c, out):
    total = convert.from_bf16_bits(a & U32(0xFFFF)) * convert.from_bf16_bits(b & U32(0xFFFF))
    total = floats.fma(convert.from_bf16_bits(a >> _16), convert.from_bf16_bits(b >> _16), total)
    return np.add(total, c, out)


# mnemonic: (result type, source types, function(sources..., out))
OPS: dict[str, tuple[str, str, object]] = {
    # integer arithmetic
    "v_add_u32": ("u32", "u32 u32", np.add),
    "v_sub_u32": ("u32", "u32 u32", np.subtract),
    "v_subrev_u32": ("u32", "u32 u32", lambda a, b, o: np.subtract(b, a, o)),
    "v_add_i32": ("i32", "i32 i32", np.add),
    "v_sub_i32": ("i32", "i32 i32", np.subtract),
    "v_mul_lo_u32": ("u32", "u32 u32", np.multiply),
    "v_mul_hi_u32": ("u32", "u32 u32", _high32),
    "v_mul_hi_i32": ("i32", "i32 i32", _high32_signed),
    "v_mul_u32_u24": ("u32", "u32 u32", lambda a, b, o: np.multiply(a & _24, b & _24, o)),
    "v_mul_i32_i24": ("i32", "i32 i32", lambda a, b, o: np.multiply(_signed24(a), _signed24(b), o)),
    "v_mul_hi_u32_u24": ("u32", "u32 u32", lambda a, b, o: _high32(a & _24, b & _24, o)),
    "v_mul_hi_i32_i24": ("i32", "i32 i32", lambda a, b, o: _high32_signed(_signed24(a), _signed24(b), o)),
    "v_mad_u32_u24": ("u32", "u32 u32 u32", lambda a, b, c, o: np.add((a & _24) * (b & _24), c, o)),
    "v_mad_i32_i24": ("i32", "i32 i32 i32", lambda a, b, c, o: np.add(_signed24(a) * _signed24(b), c, o)),
    "v_add3_u32": ("u32", "u32 u32 u32", lambda a, b, c, o: np.add(a + b, c, o)),
    "v_xad_u32": ("u32", "u32 u32 u32", lambda a, b, c, o: np.add(a ^ b, c, o)),
    "v_lshl_add_u32": ("u32", "u32 u32 u32", lambda a, b, c, o: np.add(a << (b & _31), c, o)),
    "v_add_lshl_u32": ("u32", "u32 u32 u32", lambda a, b, c, o: np.left_shift(a + b, c & _31, o)),
    "v_lshl_or_b32": ("u32", "u32 u32 u32", lambda a, b, c, o: np.bitwise_or(a << (b & _31), c, o)),
    "v_and_or_b32": ("u32", "u32 u32 u32", lambda a, b, c, o: np.bitwise_or(a & b, c, o)),
    "v_or3_b32": ("u32", "u32 u32 u32", lambda a, b, c, o: np.bitwise_or(a | b, c, o)),
    "v_sad_u32": ("u32", "u32 u32 u32", _sad),
    "v_min_u32": ("u32", "u32 u32", _min),
    "v_max_u32": ("u32", "u32 u32", _max),
    "v_min_i32": ("i32", "i32 i32", _min),
    "v_max_i32": ("i32", "i32 i32", _max),
    "v_min3_u32": ("u32", "u32 u32 u32", _nan_min),
    "v_max3_u32": ("u32", "u32 u32 u32", _nan_max),
    "v_med3_u32": ("u32", "u32 u32 u32", _med3),
    "v_min3_i32": ("i32", "i32 i32 i32", _nan_min),
    "v_max3_i32": ("i32", "i32 i32 i32", _nan_max),
    "v_med3_i32": ("i32", "i32 i32 i32", _med3),
    # bits
    "v_mov_b32": ("u32", "b32", lambda a, o: np.bitwise_or(a, U32(0), o)),
    "v_accvgpr_read_b32": ("u32", "u32", lambda a, o: np.bitwise_or(a, U32(0), o)),
    "v_accvgpr_write_b32": ("u32", "u32", lambda a, o: np.bitwise_or(a, U32(0), o)),
    "v_accvgpr_mov_b32": ("u32", "u32", lambda a, o: np.bitwise_or(a, U32(0), o)),
    "v_not_b32": ("u32", "u32", np.invert),
    "v_and_b32": ("u32", "u32 u32", np.bitwise_and),
    "v_or_b32": ("u32", "u32 u32", np.bitwise_or),
    "v_xor_b32": ("u32", "u32 u32", np.bitwise_xor),
    "v_xnor_b32": ("u32", "u32 u32", lambda a, b, o: np.invert(a ^ b, o)),
    "v_lshlrev_b32": ("u32", "u32 u32", lambda s, x, o: np.left_shift(x, s & _31, o)),
    "v_lshrrev_b32": ("u32", "u32 u32", lambda s, x, o: np.right_shift(x, s & _31, o)),
    "v_ashrrev_i32": ("i32", "i32 i32", lambda s, x, o: np.right_shift(x, s & np.int32(31), o)),
    "v_bfe_u32": ("u32", "u32 u32 u32", _bfe_u32),
    "v_bfe_i32": ("i32", "i32 i32 i32", _bfe_i32),
    "v_bfi_b32": ("u32", "u32 u32 u32", lambda a, b, c, o: np.bitwise_or(a & b, ~a & c, o)),
    "v_bfm_b32": ("u32", "u32 u32", lambda a, b, o: np.left_shift((U32(1) << (a & _31)) - U32(1), b & _31, o)),
    "v_bfrev_b32": ("u32", "u32", _bit_reverse),
    "v_perm_b32": ("u32", "u32 u32 u32", _perm),
    "v_alignbit_b32": ("u32", "u32 u32 u32", _alignbit),
    "v_alignbyte_b32": ("u32", "u32 u32 u32", _alignbyte),
    "v_ffbh_u32": ("i32", "u32", _first_high),
    "v_ffbh_i32": ("i32", "i32", _first_high_signed),
    "v_ffbl_b32": ("i32", "u32", _first_low),
    "v_bcnt_u32_b32": ("u32", "u32 u32", lambda a, b, o: np.add(np.bitwise_count(a).astype(np.uint32), b, o)),
    "v_mbcnt_lo_u32_b32": ("u32", "u32 u32", _mbcnt(False)),
    "v_mbcnt_hi_u32_b32": ("u32", "u32 u32", _mbcnt(True)),
    # float
    "v_add_f32": ("f32", "f32 f32", np.add),
    "v_sub_f32": ("f32", "f32 f32", np.subtract),
    "v_subrev_f32": ("f32", "f32 f32", lambda a, b, o: np.subtract(b, a, o)),
    "v_mul_f32": ("f32", "f32 f32", np.multiply),
    "v_fma_f32": ("f32", "f32 f32 f32", floats.fma),
    "v_fmaak_f32": ("f32", "f32 f32 f32", floats.fma),
    "v_fmamk_f32": ("f32", "f32 f32 f32", floats.fma),
    "v_max_f32": ("f32", "f32 f32", floats.maximum),
    "v_min_f32": ("f32", "f32 f32", floats.minimum),
    "v_max3_f32": ("f32", "f32 f32 f32", lambda a, b, c, o: floats.maximum(floats.maximum(a, b), c, o)),
    "v_min3_f32": ("f32", "f32 f32 f32", lambda a, b, c, o: floats.minimum(floats.minimum(a, b), c, o)),
    "v_med3_f32": ("f32", "f32 f32 f32", floats.med3),
    "v_minimum3_f32": ("f32", "f32 f32 f32", _nan_min),
    "v_maximum3_f32": ("f32", "f32 f32 f32", _nan_max),
    "v_floor_f32": ("f32", "f32", np.floor),
    "v_ceil_f32": ("f32", "f32", np.ceil),
    "v_trunc_f32": ("f32", "f32", np.trunc),
    "v_rndne_f32": ("f32", "f32", np.rint),
    "v_fract_f32": ("f32", "f32", floats.fract),
    "v_exp_f32": ("f32", "f32", floats.exp2),
    "v_log_f32": ("f32", "f32", floats.log2),
    "v_rcp_f32": ("f32", "f32", floats.rcp),
    "v_rcp_iflag_f32": ("f32", "f32", floats.rcp),
    "v_rsq_f32": ("f32", "f32", floats.rsq),
    "v_sqrt_f32": ("f32", "f32", np.sqrt),
    "v_sin_f32": ("f32", "f32", floats.sin),
    "v_cos_f32": ("f32", "f32", floats.cos),
    "v_ldexp_f32": ("f32", "f32 i32", floats.ldexp),
    "v_frexp_exp_i32_f32": ("i32", "f32", floats.frexp_exp),
    "v_frexp_mant_f32": ("f32", "f32", floats.frexp_mant),
    "v_div_fixup_f32": ("f32", "f32 f32 f32", lambda a, b, c, o: _take(o, floats.div_fixup(a, b, c), np.float32)),
    "v_dot2_f32_bf16": ("f32", "u32 u32 f32", _dot2_bf16),
    # conversions
    "v_cvt_f32_i32": ("f32", "i32", lambda a, o: _take(o, a, np.float32)),
    "v_cvt_f32_u32": ("f32", "u32", lambda a, o: _take(o, a, np.float32)),
    "v_cvt_i32_f32": ("i32", "f32", convert.f32_to_i32),
    "v_cvt_u32_f32": ("u32", "f32", convert.f32_to_u32),
    "v_cvt_f32_ubyte0": ("f32", "u32", _ubyte(0)),
    "v_cvt_f32_ubyte1": ("f32", "u32", _ubyte(1)),
    "v_cvt_f32_ubyte2": ("f32", "u32", _ubyte(2)),
    "v_cvt_f32_ubyte3": ("f32", "u32", _ubyte(3)),
    "v_cvt_f32_bf16": ("f32", "u32", lambda a, o: _take(o, convert.from_bf16_bits(a), np.float32)),
    "v_cvt_f32_f16": ("f32", "f16", lambda a, o: _take(o, a, np.float32)),
    "v_cvt_f16_f32": ("f16", "f32", lambda a, o: convert.f32_to_f16(a)),
    "v_cvt_pk_bf16_f32": ("u32", "f32 f32", _cvt_pk_bf16),
    "v_cvt_pk_f16_f32": ("u32", "f32 f32", _cvt_pk_f16(convert.f32_to_f16)),
    "v_cvt_pkrtz_f16_f32": ("u32", "f32 f32", _cvt_pk_f16(convert.f32_to_f16_towards_zero)),
    "v_cvt_pk_u16_u32": ("u32", "u32 u32", _cvt_pk_int(0, 0xFFFF)),
    "v_cvt_pk_i16_i32": ("u32", "i32 i32", _cvt_pk_int(-0x8000, 0x7FFF)),
    # 16 bits: the high half of the result register becomes zero, or is kept where op_sel chooses a half
    "v_add_u16": ("u16", "u16 u16", np.add),
    "v_sub_u16": ("u16", "u16 u16", np.subtract),
    "v_subrev_u16": ("u16", "u16 u16", lambda a, b, o: np.subtract(b, a, o)),
    "v_add_i16": ("i16", "i16 i16", np.add),
    "v_sub_i16": ("i16", "i16 i16", np.subtract),
    "v_mul_lo_u16": ("u16", "u16 u16", np.multiply),
    "v_mad_u16": ("u16", "u16 u16 u16", lambda a, b, c, o: np.add(a * b, c, o)),
    "v_min_u16": ("u16", "u16 u16", _min),
    "v_max_u16": ("u16", "u16 u16", _max),
    "v_min_i16": ("i16", "i16 i16", _min),
    "v_max_i16": ("i16", "i16 i16", _max),
    "v_min3_u16": ("u16", "u16 u16 u16", _nan_min),
    "v_max3_u16": ("u16", "u16 u16 u16", _nan_max),
    "v_min3_i16": ("i16", "i16 i16 i16", _nan_min),
    "v_max3_i16": ("i16", "i16 i16 i16", _nan_max),
    "v_lshlrev_b16": ("u16", "u16 u16", lambda s, x, o: np.left_shift(x, s & _15, o)),
    "v_lshrrev_b16": ("u16", "u16 u16", lambda s, x, o: np.right_shift(x, s & _15, o)),
    "v_ashrrev_i16": ("i16", "i16 i16", lambda s, x, o: np.right_shift(x, s & np.int16(15), o)),
    "v_add_f16": ("f16", "f16 f16", np.add),
    "v_sub_f16": ("f16", "f16 f16", np.subtract),
    "v_subrev_f16": ("f16", "f16 f16", lambda a, b, o: np.subtract(b, a, o)),
    "v_mul_f16": ("f16", "f16 f16", np.multiply),
    "v_max_f16": ("f16", "f16 f16", lambda a, b, o: np.fmax(a, b)),
    "v_min_f16": ("f16", "f16 f16", lambda a, b, o: np.fmin(a, b)),
    "v_cvt_f16_u16": ("f16", "u16", lambda a, o: a.astype(np.float16)),
    "v_cvt_f16_i16": ("f16", "i16", lambda a, o: a.astype(np.float16)),
}
OPS["v_cvt_flr_i32_f32"] = ("i32", "f32", lambda a, o: convert.f32_to_i32(np.floor(a), o))
OPS["v_cvt_rpi_i32_f32"] = ("i32", "f32", lambda a, o: convert.f32_to_i32(np.floor(a + np.float32(0.5)), o))
OPS["v_accvgpr_read"], OPS["v_accvgpr_write"] = OPS["v_accvgpr_read_b32"], OPS["v_accvgpr_write_b32"]

# With clamp, an integer sum or difference saturates: mnemonic -> (low, high).
SATURATE: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("v_add_u32", "v_sub_u32", "v_subrev_u32"), (0, 0xFFFFFFFF)),
    **dict.fromkeys(("v_add_i32", "v_sub_i32"), (-0x80000000, 0x7FFFFFFF)),
    **dict.fromkeys(("v_add_u16", "v_sub_u16", "v_subrev_u16"), (0, 0xFFFF)),
    **dict.fromkeys(("v_add_i16", "v_sub_i16"), (-0x8000, 0x7FFF)),
}


def bitop3(table: int):
    """Function of three words and an output: bit i of the result is table[a_i * 4 + b_i * 2 + c_i]."""
    return lut3(table)
