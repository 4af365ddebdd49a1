"""Vector instructions: one row an opcode (`row` says how to read it).

Functions of one word get an array for the result, or None, as their last argument: they may write it, last and
elementwise (a result register may also be a source), and return it; or they return another array. Where the signature
has a %name, a function of the modifier gives the function.
Source of the semantics: AMD CDNA4 ISA, "Vector ALU instructions".
"""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.isa import numbers
from mxfp4lab.gfx950.isa.numbers import F32, U32
from mxfp4lab.gfx950.isa.row import Row, make_row
from mxfp4lab.hardware import WAVE_LANES

_31, _63, _24, _16 = U32(31), np.uint64(63), U32(0xFFFFFF), U32(16)
I32, I64, U64 = np.int32, np.int64, np.uint64
LANE = np.arange(WAVE_LANES)


def _signed24(x):
    return (x << I32(8)) >> I32(8)


def _high(wide):
    """The upper word of a product."""
    kind = U32 if wide is U64 else I32
    return lambda a, b, o=None: ((a.astype(wide) * b) >> wide(32)).astype(kind)


def _perm(high, low, selector, o):
    """Each selector byte picks a byte of {high, low}: 0-7 a byte, 8-11 a sign fill, 12 zero, above 0xff."""
    pick = np.ravel(selector)
    if pick.size == 1 or (selector.shape[-1:] == (1,) and pick.size and pick.min() == pick.max()):
        return _perm_same(high, low, int(pick[0]))
    data = low.astype(U64) | high.astype(U64) << U64(32)
    result = U32(0)
    for i in range(4):
        pick = selector >> U32(8 * i) & U32(255)
        byte = (data >> (U64(8) * (pick & U32(7)).astype(U64))).astype(U32) & U32(255)
        if np.count_nonzero(pick > 7):
            sign = data >> (U64(16) * (pick & U32(3)).astype(U64) + U64(15))
            fill = (sign.astype(U32) & U32(1)) * U32(255)
            byte = np.where(pick < 8, byte, np.where(pick < 12, fill, np.where(pick == 12, U32(0), U32(255))))
        result = result | byte << U32(8 * i)
    return result


def _perm_same(high, low, selector):
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
    return result.view(U32)[..., 0]


def _lanes_below(high):
    below = (U64(1) << np.arange(64, dtype=U64)) - U64(1)
    mask = ((below >> U64(32)) if high else (below & U64(0xFFFFFFFF))).astype(U32)
    return lambda a, b, o: np.add(np.bitwise_count(a & mask).astype(U32), b, o)


def _alignbit(high, low, shift, o):
    return ((low.astype(U64) | high.astype(U64) << U64(32)) >> (shift & _31).astype(U64)).astype(U32)


def _min(a, b, o=None):
    return np.minimum(a, b, out=o)


def _max(a, b, o=None):
    return np.maximum(a, b, out=o)


def _median(a, b, c, o):
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c), out=o)


def _three(function):
    return lambda a, b, c, o: function(function(a, b), c, o)


def _swapped(function):
    return lambda a, b, o: function(b, a, o)


def _byte(n):
    return lambda x, o: ((x >> U32(8 * n)) & U32(255)).astype(F32)


def _dot2_bf16(a, b, c, o):
    (x, y), (p, q) = numbers.unpack_bf16(a), numbers.unpack_bf16(b)
    return np.add(numbers.fma(y, q, x * p), c, o)


def _carry(sign, swapped=False):
    """Sum or difference of words, and the carry or borrow."""

    def add(a, b, carry=False):
        a, b = (b, a) if swapped else (a, b)
        total = a.astype(I64) + sign * (b.astype(I64) + carry)
        return total.astype(U32), (total < 0) | (total > 0xFFFFFFFF)

    return add


def _mad64(wide):
    def mad(a, b, c):
        product = a.astype(wide) * b.astype(wide)
        total = product + c
        return total, (((product ^ total) & (c ^ total)) < 0 if wide is I64 else total < product)

    return mad


def _shift_add64(a, amount, c):
    (low, high), (c_low, c_high) = a, c
    if amount.any():
        amount = (amount & U32(7)).astype(U32)
        high = high << amount | (low >> U32(1)) >> (_31 - amount)
        low = low << amount
    total = low + c_low
    return total, high + c_high + (total < low)


def _shift64(function, kind=U64):
    return lambda amount, x: function(x, amount.astype(kind) & kind(63))


def _readfirst(x, on):
    return x[:, 0] if on is None else x[np.arange(len(x)), on.argmax(axis=1)]


def _writelane(value, lane, old):
    new, rows = old.copy(), np.arange(len(old))
    new[rows, np.broadcast_to(lane & U32(63), len(old))] = value
    return new


def _swap_rows(size):
    """The second register's lower rows of `size` lanes change places with the first one's upper rows."""

    def swap(first, second):
        new = first.copy(), second.copy()
        d, s = (x.reshape(len(x), -1, 2, size) for x in new)
        d[:, :, 1], s[:, :, 0] = s[:, :, 0].copy(), d[:, :, 1].copy()
        return new

    return swap


def _from_lanes(x, lane, on):
    """x of other lanes, 0 where that lane is off; `lane` is [64] or [w, 64]."""
    lane = np.broadcast_to(lane, x.shape)
    value = np.take_along_axis(x, lane, axis=1)
    return value if on is None else np.where(np.take_along_axis(on, lane, axis=1), value, U32(0))


def _bpermute(offset):
    def gather(address, x, on, o):
        return _from_lanes(x, ((address + U32(offset)) >> U32(2) & U32(63)).astype(np.intp), on)

    return gather


def _swizzle(offset):
    """Within 4 lanes a permutation, or within 32 a rotation or and-or-xor of the lane number, by the offset's form."""
    if offset >= 0xE000:
        raise ValueError(f"offset:{offset:#x}, the FFT pattern")
    within = LANE % 32
    if offset >= 0xC000:
        keep, steps = offset & 31, (offset >> 5 & 31) * (-1 if offset >> 10 & 1 else 1)
        lane = LANE - within + (within & keep | (within + steps) & ~keep & 31)
    elif offset & 0x8000:
        lane = LANE // 4 * 4 + (offset >> 2 * (LANE % 4) & 3)
    else:
        lane = LANE - within + ((within & offset & 31 | offset >> 5 & 31) ^ (offset >> 10 & 31))
    return lambda x, on, o: _from_lanes(x, lane, on)


def _bit(select, place):
    return select[place] if select is not None and place < len(select) else 0


def _pack_scaled(fmt, pair_of=None):
    """Two numbers to a scaled format's bytes: a byte (fp4) or a half of the register, chosen by op_sel's end."""

    def selected(select):
        if fmt is numbers.E2M1:
            if _bit(select, 0) or _bit(select, 1):
                raise ValueError(f"op_sel:{list(select)}")
            shift, width = U32(8 * (_bit(select, 2) + 2 * _bit(select, 3))), U32(0xFF)
        else:
            shift, width = U32(16 * (select[-1] if select is not None else 0)), U32(0xFFFF)
        keep = ~(width << shift)

        def write(a, b, scale, ovfl, old, o=None):
            if fmt is numbers.E2M1:
                new = numbers.pack_fp4(a, b, scale)
            else:
                inverse = numbers.inverse_power(scale).astype(np.float64)
                low, high = (numbers.fp8_codes(x, inverse, fmt, ovfl) for x in (a, b))
                new = low | high << U32(8)
            return old & keep | new << shift

        return write if pair_of is None else lambda pair, *rest: write(*pair_of(pair), *rest)

    return selected


def _pack_fp8(fmt):
    def selected(select):
        write = _pack_scaled(fmt)(select)
        return lambda a, b, ovfl, old, o: write(a, b, F32(1), ovfl, old)

    return selected


def _unpack_scaled(fmt, pack=None):
    """A byte of two e2m1, or a half of two fp8, to two numbers; op_sel's beginning chooses it."""

    def selected(select):
        fp4 = fmt is numbers.E2M1
        bits, mask = (4, U32(15)) if fp4 else (8, U32(255))
        shift = U32(8 * (_bit(select, 0) + 2 * _bit(select, 1)) if fp4 else 16 * _bit(select, 0))

        def read(word, scale, o=None):
            part = word >> shift
            pair = (numbers.unpack_scaled(code & mask, fmt, scale) for code in (part, part >> U32(bits)))
            return tuple(x.view(U32) for x in pair) if pack is None else pack(*pair)

        return read

    return selected


_TESTS = {
    "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ne": np.not_equal, "ge": np.greater_equal,
}  # fmt: skip
_FLOAT_TESTS = {
    "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lg": lambda a, b: (a < b) | (a > b), "o": lambda a, b: (a == a) & (b == b), "u": lambda a, b: (a != a) | (b != b),
    "nge": lambda a, b: ~(a >= b), "nlg": lambda a, b: ~((a < b) | (a > b)), "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b), "neq": np.not_equal, "nlt": lambda a, b: ~(a < b),
}  # fmt: skip
_move = ("u32 <- b32", lambda a, o: np.bitwise_or(a, U32(0), o))

# mnemonic: (signature, function[, clamp saturates])
_WORDS = {
    # integers
    "v_add_u32": ("u32 <- u32 u32", np.add, True),
    "v_sub_u32": ("u32 <- u32 u32", np.subtract, True),
    "v_subrev_u32": ("u32 <- u32 u32", _swapped(np.subtract), True),
    "v_add_i32": ("i32 <- i32 i32", np.add, True),
    "v_sub_i32": ("i32 <- i32 i32", np.subtract, True),
    "v_mul_lo_u32": ("u32 <- u32 u32", np.multiply),
    "v_mul_hi_u32": ("u32 <- u32 u32", _high(U64)),
    "v_mul_hi_i32": ("i32 <- i32 i32", _high(I64)),
    "v_mul_u32_u24": ("u32 <- u32 u32", lambda a, b, o: np.multiply(a & _24, b & _24, o)),
    "v_mul_i32_i24": ("i32 <- i32 i32", lambda a, b, o: np.multiply(_signed24(a), _signed24(b), o)),
    "v_mad_u32_u24": ("u32 <- u32 u32 u32", lambda a, b, c, o: np.add((a & _24) * (b & _24), c, o)),
    "v_mad_i32_i24": ("i32 <- i32 i32 i32", lambda a, b, c, o: np.add(_signed24(a) * _signed24(b), c, o)),
    "v_add3_u32": ("u32 <- u32 u32 u32", lambda a, b, c, o: np.add(a + b, c, o)),
    "v_xad_u32": ("u32 <- u32 u32 u32", lambda a, b, c, o: np.add(a ^ b, c, o)),
    "v_lshl_add_u32": ("u32 <- u32 u32 u32", lambda a, b, c, o: np.add(a << (b & _31), c, o)),
    "v_add_lshl_u32": ("u32 <- u32 u32 u32", lambda a, b, c, o: np.left_shift(a + b, c & _31, o)),
    "v_lshl_or_b32": ("u32 <- u32 u32 u32", lambda a, b, c, o: np.bitwise_or(a << (b & _31), c, o)),
    "v_and_or_b32": ("u32 <- u32 u32 u32", lambda a, b, c, o: np.bitwise_or(a & b, c, o)),
    "v_or3_b32": ("u32 <- u32 u32 u32", lambda a, b, c, o: np.bitwise_or(a | b, c, o)),
    "v_min_u32": ("u32 <- u32 u32", _min),
    "v_max_u32": ("u32 <- u32 u32", _max),
    "v_min_i32": ("i32 <- i32 i32", _min),
    "v_max_i32": ("i32 <- i32 i32", _max),
    "v_min3_u32": ("u32 <- u32 u32 u32", _three(_min)),
    "v_max3_u32": ("u32 <- u32 u32 u32", _three(_max)),
    "v_med3_u32": ("u32 <- u32 u32 u32", _median),
    "v_min3_i32": ("i32 <- i32 i32 i32", _three(_min)),
    "v_max3_i32": ("i32 <- i32 i32 i32", _three(_max)),
    "v_med3_i32": ("i32 <- i32 i32 i32", _median),
    # bits
    "v_mov_b32": _move,
    "v_accvgpr_read_b32": _move,
    "v_accvgpr_write_b32": _move,
    "v_accvgpr_mov_b32": _move,
    "v_not_b32": ("u32 <- u32", np.invert),
    "v_and_b32": ("u32 <- u32 u32", np.bitwise_and),
    "v_or_b32": ("u32 <- u32 u32", np.bitwise_or),
    "v_xor_b32": ("u32 <- u32 u32", np.bitwise_xor),
    "v_xnor_b32": ("u32 <- u32 u32", lambda a, b, o: np.invert(a ^ b, o)),
    "v_lshlrev_b32": ("u32 <- u32 u32", lambda s, x, o: np.left_shift(x, s & _31, o)),
    "v_lshrrev_b32": ("u32 <- u32 u32", lambda s, x, o: np.right_shift(x, s & _31, o)),
    "v_ashrrev_i32": ("i32 <- i32 i32", lambda s, x, o: np.right_shift(x, s & I32(31), o)),
    "v_bfe_u32": ("u32 <- u32 u32 u32",
                  lambda x, p, n, o: np.bitwise_and(x >> (p & _31), (U32(1) << (n & _31)) - U32(1), o)),
    "v_bfe_i32": ("i32 <- i32 i32 i32",
                  lambda x, p, n, o: numbers.signed_field(x, p & I32(31), n & I32(31))),
    "v_bfi_b32": ("u32 <- u32 u32 u32", lambda a, b, c, o: np.bitwise_or(a & b, ~a & c, o)),
    "v_bfrev_b32": ("u32 <- u32", numbers.bit_reverse),
    "v_bitop3_b32": ("u32 <- u32 u32 u32 %bitop3", numbers.lut3),
    "v_perm_b32": ("u32 <- u32 u32 u32", _perm),
    "v_alignbit_b32": ("u32 <- u32 u32 u32", _alignbit),
    "v_ffbh_u32": ("i32 <- u32", numbers.highest_one),
    "v_ffbh_i32": ("i32 <- i32", lambda x, o: numbers.highest_one((x ^ (x >> I32(31))).view(U32))),
    "v_ffbl_b32": ("i32 <- u32", numbers.lowest_one),
    "v_bcnt_u32_b32": ("u32 <- u32 u32", lambda a, b, o: np.add(np.bitwise_count(a).astype(U32), b, o)),
    "v_mbcnt_lo_u32_b32": ("u32 <- u32 u32", _lanes_below(False)),
    "v_mbcnt_hi_u32_b32": ("u32 <- u32 u32", _lanes_below(True)),
    "v_cndmask_b32": ("u32 <- b32 b32 mask", lambda a, b, mask, o: np.where(mask, b, a)),
    # float32
    "v_add_f32": ("f32 <- f32 f32", np.add),
    "v_sub_f32": ("f32 <- f32 f32", np.subtract),
    "v_subrev_f32": ("f32 <- f32 f32", _swapped(np.subtract)),
    "v_mul_f32": ("f32 <- f32 f32", np.multiply),
    "v_fma_f32": ("f32 <- f32 f32 f32", numbers.fma),
    "v_fmaak_f32": ("f32 <- f32 f32 f32", numbers.fma),
    "v_fmamk_f32": ("f32 <- f32 f32 f32", numbers.fma),
    "v_fmac_f32": ("+f32 <- f32 f32", numbers.fma),
    "v_max_f32": ("f32 <- f32 f32", numbers.maximum),
    "v_min_f32": ("f32 <- f32 f32", numbers.minimum),
    "v_max3_f32": ("f32 <- f32 f32 f32", _three(lambda a, b, o=None: numbers.maximum(a, b))),
    "v_min3_f32": ("f32 <- f32 f32 f32", _three(lambda a, b, o=None: numbers.minimum(a, b))),
    "v_med3_f32": ("f32 <- f32 f32 f32", numbers.med3),
    "v_maximum3_f32": ("f32 <- f32 f32 f32", _three(_max)),
    "v_minimum3_f32": ("f32 <- f32 f32 f32", _three(_min)),
    "v_floor_f32": ("f32 <- f32", np.floor),
    "v_ceil_f32": ("f32 <- f32", np.ceil),
    "v_trunc_f32": ("f32 <- f32", np.trunc),
    "v_rndne_f32": ("f32 <- f32", np.rint),
    "v_fract_f32": ("f32 <- f32", lambda x, o: _min(x - np.floor(x), F32(0.99999994), o)),
    "v_exp_f32": ("f32 <- f32", numbers.flushing(numbers.exp2)),
    "v_log_f32": ("f32 <- f32", numbers.flushing(numbers.log2)),
    "v_rcp_f32": ("f32 <- f32", numbers.flushing(lambda x: 1.0 / x)),
    "v_rcp_iflag_f32": ("f32 <- f32", numbers.flushing(lambda x: 1.0 / x)),
    "v_rsq_f32": ("f32 <- f32", numbers.flushing(lambda x: 1.0 / np.sqrt(x))),
    "v_sqrt_f32": ("f32 <- f32", numbers.flushing(np.sqrt)),
    "v_sin_f32": ("f32 <- f32", numbers.turns(np.sin)),
    "v_cos_f32": ("f32 <- f32", numbers.turns(np.cos)),
    "v_ldexp_f32": ("f32 <- f32 i32", numbers.ldexp),
    "v_div_scale_f32": ("f32 mask <- f32 f32 f32", numbers.div_scale),
    "v_div_fmas_f32": ("f32 <- f32 f32 f32 vcc", numbers.div_fmas),
    "v_div_fixup_f32": ("f32 <- f32 f32 f32", numbers.div_fixup),
    "v_dot2_f32_bf16": ("f32 <- u32 u32 f32", _dot2_bf16),
    "v_cmp_class_f32": ("mask <- f32 u32", numbers.is_class),
    # conversions
    "v_cvt_f32_i32": ("f32 <- i32", lambda a, o: a.astype(F32)),
    "v_cvt_f32_u32": ("f32 <- u32", lambda a, o: a.astype(F32)),
    "v_cvt_i32_f32": ("i32 <- f32", numbers.f32_to_i32),
    "v_cvt_u32_f32": ("u32 <- f32", numbers.f32_to_u32),
    "v_cvt_f32_ubyte0": ("f32 <- u32", _byte(0)),
    "v_cvt_f32_ubyte1": ("f32 <- u32", _byte(1)),
    "v_cvt_f32_ubyte2": ("f32 <- u32", _byte(2)),
    "v_cvt_f32_ubyte3": ("f32 <- u32", _byte(3)),
    "v_cvt_f32_bf16": ("f32 <- u32", lambda a, o: numbers.from_bf16_bits(a)),
    "v_cvt_f32_f16": ("f32 <- f16", lambda a, o: a.astype(F32)),
    "v_cvt_f16_f32": ("f16 <- f32", lambda a, o: a.astype(np.float16)),
    "v_cvt_pk_bf16_f32": ("u32 <- f32 f32", numbers.pack_bf16),
    "v_cvt_pk_f16_f32": ("u32 <- f32 f32", numbers.pack_f16),
    "v_cvt_pkrtz_f16_f32": ("u32 <- f32 f32", numbers.pack_f16_towards_zero),
    "v_cvt_pk_fp8_f32": ("+u32 <- f32 f32 %op_sel ovfl", _pack_fp8(numbers.E4M3)),
    "v_cvt_pk_bf8_f32": ("+u32 <- f32 f32 %op_sel ovfl", _pack_fp8(numbers.E5M2)),
    # 16 bits: the high half of the result register becomes zero, or is kept where op_sel chooses a half
    "v_add_u16": ("u16 <- u16 u16", np.add, True),
    "v_sub_u16": ("u16 <- u16 u16", np.subtract, True),
    "v_add_i16": ("i16 <- i16 i16", np.add, True),
    "v_sub_i16": ("i16 <- i16 i16", np.subtract, True),
    "v_mul_lo_u16": ("u16 <- u16 u16", np.multiply),
    "v_min_u16": ("u16 <- u16 u16", _min),
    "v_max_u16": ("u16 <- u16 u16", _max),
    "v_min_i16": ("i16 <- i16 i16", _min),
    "v_max_i16": ("i16 <- i16 i16", _max),
    "v_min3_u16": ("u16 <- u16 u16 u16", _three(_min)),
    "v_max3_u16": ("u16 <- u16 u16 u16", _three(_max)),
    "v_min3_i16": ("i16 <- i16 i16 i16", _three(_min)),
    "v_max3_i16": ("i16 <- i16 i16 i16", _three(_max)),
    "v_lshlrev_b16": ("u16 <- u16 u16", lambda s, x, o: x << (s & np.uint16(15))),
    "v_lshrrev_b16": ("u16 <- u16 u16", lambda s, x, o: x >> (s & np.uint16(15))),
    "v_ashrrev_i16": ("i16 <- i16 i16", lambda s, x, o: x >> (s & np.int16(15))),
    "v_bitop3_b16": ("u16 <- u16 u16 u16 %bitop3", numbers.lut3),
    "v_add_f16": ("f16 <- f16 f16", np.add),
    "v_sub_f16": ("f16 <- f16 f16", np.subtract),
    "v_mul_f16": ("f16 <- f16 f16", np.multiply),
    "v_max_f16": ("f16 <- f16 f16", np.fmax),
    "v_min_f16": ("f16 <- f16 f16", np.fmin),
    "v_cvt_f16_u16": ("f16 <- u16", lambda a, o: a.astype(np.float16)),
    "v_cvt_f16_i16": ("f16 <- i16", lambda a, o: a.astype(np.float16)),
    # lanes
    "v_readfirstlane_b32": ("s32 <- u32 exec", _readfirst),
    "v_readlane_b32": ("s32 <- u32 s32", lambda x, lane: x[np.arange(len(x)), lane & U32(63)]),
    "v_writelane_b32": ("+u32! <- s32 s32", lambda value, lane, old, o: _writelane(value, lane, old)),
    "v_permlane16_swap_b32": ("+u32 +u32", _swap_rows(16)),
    "v_permlane32_swap_b32": ("+u32 +u32", _swap_rows(32)),
    "v_swap_b32": ("+u32 +u32", lambda a, b: (b.copy(), a.copy())),
    "ds_bpermute_b32": ("u32 <- u32 u32 exec %offset", _bpermute),
    "ds_swizzle_b32": ("u32 <- u32 exec %offset", _swizzle),
}  # fmt: skip
_PAIRS = {
    "v_add_co_u32": ("u32 mask <- u32 u32", _carry(1)),
    "v_addc_co_u32": ("u32 mask <- u32 u32 mask", _carry(1)),
    "v_sub_co_u32": ("u32 mask <- u32 u32", _carry(-1)),
    "v_subb_co_u32": ("u32 mask <- u32 u32 mask", _carry(-1)),
    "v_subrev_co_u32": ("u32 mask <- u32 u32", _carry(-1, True)),
    "v_subbrev_co_u32": ("u32 mask <- u32 u32 mask", _carry(-1, True)),
    "v_mad_u64_u32": ("u64 mask <- u32 u32 u64", _mad64(U64)),
    "v_mad_i64_i32": ("i64 mask <- i32 i32 i64", _mad64(I64)),
    "v_lshl_add_u64": ("w64 <- w64 u32 w64", _shift_add64),
    "v_lshlrev_b64": ("u64 <- u32 u64", _shift64(np.left_shift)),
    "v_lshrrev_b64": ("u64 <- u32 u64", _shift64(np.right_shift)),
    "v_ashrrev_i64": ("i64 <- u32 i64", _shift64(np.right_shift, I64)),
    "v_mov_b64": ("u64 <- u64", lambda a: a),
    "v_add_f64": ("f64 <- f64 f64", np.add),
    "v_mul_f64": ("f64 <- f64 f64", np.multiply),
    "v_fma_f64": ("f64 <- f64 f64 f64", numbers.fma64),
    "v_max_f64": ("f64 <- f64 f64", np.fmax),
    "v_min_f64": ("f64 <- f64 f64", np.fmin),
    "v_cvt_f64_f32": ("f64 <- f32", lambda x: x.astype(np.float64)),
    "v_cvt_f64_i32": ("f64 <- i32", lambda x: x.astype(np.float64)),
    "v_cvt_f64_u32": ("f64 <- u32", lambda x: x.astype(np.float64)),
    "v_cvt_f32_f64": ("f32 <- f64", lambda x, o: x.astype(F32)),
    "v_cvt_i32_f64": ("i32 <- f64", numbers.f32_to_i32),
    "v_cvt_u32_f64": ("u32 <- f64", numbers.f32_to_u32),
    "v_pk_mov_b32": ("2f32 <- 2f32 2f32", lambda a, b, o: np.stack((a[0], b[0]))),
    "v_pk_add_f32": ("2f32 <- 2f32 2f32", np.add),
    "v_pk_mul_f32": ("2f32 <- 2f32 2f32", np.multiply),
    "v_pk_fma_f32": ("2f32 <- 2f32 2f32 2f32", numbers.fma),
    "v_fma_mix_f32": ("f32 <- mix mix mix", numbers.fma),
    "v_pk_add_u16": ("2u16 <- 2u16 2u16", np.add, True),
    "v_pk_add_i16": ("2i16 <- 2i16 2i16", np.add, True),
    "v_pk_sub_u16": ("2u16 <- 2u16 2u16", np.subtract, True),
    "v_pk_sub_i16": ("2i16 <- 2i16 2i16", np.subtract, True),
    "v_pk_mul_lo_u16": ("2u16 <- 2u16 2u16", np.multiply),
    "v_pk_lshlrev_b16": ("2u16 <- 2u16 2u16", lambda s, x, o: x << (s & np.uint16(15))),
    "v_pk_lshrrev_b16": ("2u16 <- 2u16 2u16", lambda s, x, o: x >> (s & np.uint16(15))),
    "v_pk_ashrrev_i16": ("2i16 <- 2i16 2i16", lambda s, x, o: x >> (s & np.int16(15))),
    "v_pk_max_u16": ("2u16 <- 2u16 2u16", _max),
    "v_pk_max_i16": ("2i16 <- 2i16 2i16", _max),
    "v_pk_min_u16": ("2u16 <- 2u16 2u16", _min),
    "v_pk_min_i16": ("2i16 <- 2i16 2i16", _min),
    "v_pk_add_f16": ("2f16 <- 2f16 2f16", np.add),
    "v_pk_mul_f16": ("2f16 <- 2f16 2f16", np.multiply),
    "v_pk_max_f16": ("2f16 <- 2f16 2f16", np.fmax),
    "v_pk_min_f16": ("2f16 <- 2f16 2f16", np.fmin),
    "v_pk_maximum3_f16": ("2f16 <- 2f16 2f16 2f16", _three(lambda a, b, o=None: numbers.nan_maximum(a, b))),
    "v_pk_minimum3_f16": ("2f16 <- 2f16 2f16 2f16", _three(lambda a, b, o=None: numbers.nan_minimum(a, b))),
}  # fmt: skip
_FORMATS = {"fp4": numbers.E2M1, "fp8": numbers.E4M3, "bf8": numbers.E5M2}
_HALVES = {
    "bf16": (numbers.unpack_bf16, numbers.pack_bf16),
    "f16": (numbers.unpack_f16, numbers.pack_f16),
}
_SCALED = {}
for _name, _values in _FORMATS.items():
    _SCALED |= {
        f"v_cvt_scalef32_pk_{_name}_f32": ("+u32 <- f32 f32 f32 %op_sel ovfl", _pack_scaled(_values)),
        f"v_cvt_scalef32_pk_f32_{_name}": ("w64 <- u32 f32 %op_sel", _unpack_scaled(_values)),
    }
    for _kind, (_unpack, _pack) in _HALVES.items():
        _SCALED |= {
            f"v_cvt_scalef32_pk_{_name}_{_kind}": ("+u32 <- u32 f32 %op_sel ovfl", _pack_scaled(_values, _unpack)),
            f"v_cvt_scalef32_pk_{_kind}_{_name}": ("u32 <- u32 f32 %op_sel", _unpack_scaled(_values, _pack)),
        }
_COMPARES = {}
for _kinds, _tests in ((("f16", "f32", "f64"), _FLOAT_TESTS), (("i16", "u16", "i32", "u32", "i64", "u64"), _TESTS)):
    for _kind in _kinds:
        for _name, _test in _tests.items():
            _COMPARES[f"v_cmp_{_name}_{_kind}"] = f"mask <- {_kind} {_kind}", _test
            _COMPARES[f"v_cmpx_{_name}_{_kind}"] = (
                f"mask exec <- {_kind} {_kind}", lambda a, b, test=_test: (lanes := test(a, b), lanes))  # fmt: skip

ROWS: dict[str, Row] = {name: make_row(*entry) for name, entry in {**_WORDS, **_PAIRS, **_SCALED, **_COMPARES}.items()}
ROWS |= {name: ROWS[f"{name}_b32"] for name in ("v_accvgpr_read", "v_accvgpr_write")}
