"""Arithmetic and conversions of the vector unit on numpy arrays: float32, bf16, f16, fp8, fp4, integers.

Correctly rounded (nearest even, denormals kept): add, subtract, multiply, fma, min, max, division, conversions. The
hardware's reciprocal, square roots, exp2 and log2 are allowed 1 ulp (log2 2 near 1), sin and cos about 1e-6: all are
computed in double and rounded once here, so they may differ from silicon by that much. These flush denormals, what
they read as what they give (AMD CDNA4 ISA, "1ULP accuracy, denormals are flushed"). exp2 of an integer and log2 of a
power of two are exact. The payload of a NaN is not modelled beyond its being quiet.

A function with an argument `out` may write its result there and return it, or return another array.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

U32, F32 = np.uint32, np.float32
TINY = np.ldexp(1.0, -126)  # the least normal float32


def bits_of(x: np.ndarray) -> np.ndarray:
    """float32 -> uint32."""
    return np.ascontiguousarray(x, F32).view(U32).reshape(np.shape(x))


def flush(x: np.ndarray) -> np.ndarray:
    """Denormals of float32 become zero of the same sign."""
    bits = bits_of(x)
    return np.where(bits & U32(0x7F800000) == 0, bits & U32(0x80000000), bits).view(F32)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """round(a * b + c) in float32 with one rounding.

    The product of two float32 is exact in float64. The sum is rounded to odd (TwoSum gives the error; Boldo and
    Melquiond, "Emulation of FMA and correctly rounded sums", 2008), after which rounding to float32 is exact.
    """
    p = np.multiply(a, b, dtype=np.float64)
    c = np.asarray(c, np.float64)
    s = p + c
    bb = s - p
    error = (p - (s - bb)) + (c - bb)
    if np.count_nonzero(error):
        bits = np.ascontiguousarray(s).view(np.int64)
        odd_wanted = (error != 0) & (bits & 1 == 0) & np.isfinite(s)
        # One step towards the error's sign: away from zero where the signs agree.
        step = np.where((error > 0) == (s > 0), 1, -1)
        s = np.where(odd_wanted, bits + step, bits).view(np.float64).reshape(s.shape)
    if out is None:
        return s.astype(F32)
    np.copyto(out, s, casting="unsafe")
    return out


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float64 fma, correctly rounded where numpy's long double is wider than its double."""
    return (a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)).astype(np.float64)


def maximum(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """IEEE maxNum with +0 above -0: a NaN gives the other source."""
    result = np.fmax(a, b)
    zeros = result == 0
    if np.count_nonzero(zeros):  # a zero result is -0 only where no source is +0
        plus = ((a == 0) & ~np.signbit(a)) | ((b == 0) & ~np.signbit(b))
        result = np.where(zeros, np.where(plus, F32(0.0), F32(-0.0)), result)
    return result


def minimum(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """IEEE minNum with -0 below +0: a NaN gives the other source."""
    result = np.fmin(a, b)
    zeros = result == 0
    if np.count_nonzero(zeros):
        minus = ((a == 0) & np.signbit(a)) | ((b == 0) & np.signbit(b))
        result = np.where(zeros, np.where(minus, F32(-0.0), F32(0.0)), result)
    return result


def med3(a: np.ndarray, b: np.ndarray, c: np.ndarray, out=None) -> np.ndarray:
    """Median of three; with a NaN among them the least of the others (as the hardware's min3)."""
    result = maximum(minimum(a, b), minimum(maximum(a, b), c))
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(nan, minimum(minimum(a, b), c), result) if np.count_nonzero(nan) else result


def nan_maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IEEE 754-2019 maximum: NaN if either is, and +0 above -0 (numpy may return either zero)."""
    return np.where((a == b) & ~np.signbit(a), a, np.maximum(b, a))


def nan_minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IEEE 754-2019 minimum: NaN if either is, and -0 below +0."""
    return np.where((a == b) & np.signbit(a), a, np.minimum(b, a))


def flushing(function):
    """A function of float64 as an instruction that flushes denormals: float32 in, one rounding, float32 out."""

    def transcendental(x: np.ndarray, out=None) -> np.ndarray:
        return flush(function(flush(x).astype(np.float64)).astype(F32))

    return transcendental


def exp2(x: np.ndarray) -> np.ndarray:
    """2^x in float64; exact for integers."""
    finite = np.clip(np.nan_to_num(x, nan=0.0), -2000, 2000)
    whole = np.floor(finite)
    return np.where(np.isnan(x), x, np.ldexp(np.exp2(finite - whole), whole.astype(np.int32)))


def log2(x: np.ndarray) -> np.ndarray:
    """log2(x) in float64; exact for powers of two, -inf for 0, NaN below 0."""
    mantissa, exponent = np.frexp(x)  # x = mantissa * 2^exponent, mantissa in [0.5, 1)
    result = np.where(x == 0, -np.inf, exponent - 1 + np.log2(2 * mantissa))
    return np.where(np.isinf(x), np.where(x > 0, np.inf, np.nan), result)


def turns(function):
    """sin or cos of 2 pi x: the argument counts revolutions and is reduced exactly first."""
    return lambda x, out=None: function(2 * np.pi * ((wide := x.astype(np.float64)) - np.floor(wide))).astype(F32)


def ldexp(x: np.ndarray, n: np.ndarray, out=None) -> np.ndarray:
    """x * 2^n with one rounding."""
    return np.ldexp(np.asarray(x, np.float64), np.clip(n, -1000, 1000)).astype(F32)


def exponent(x: np.ndarray) -> np.ndarray:
    """Biased exponent field of float32, int32."""
    return (bits_of(x) >> U32(23) & U32(255)).astype(np.int32)


def div_scale(s0: np.ndarray, s1: np.ndarray, s2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pre-scaling of a division s2 / s1: (s0, which is one of them, scaled; whether the fmas step must rescale).

    Source: CDNA4 ISA, V_DIV_SCALE_F32; "denormal" of a quotient or an inverse means below 2^-126. Where both are,
    the text scales a denominator up that would overflow: it goes down here, as the quotient's rescaling asks.
    """
    s0, s1, s2 = (np.asarray(x, F32) for x in np.broadcast_arrays(s0, s1, s2))
    up, down = ldexp(s0, 64), ldexp(s0, -64)
    e1, e2 = exponent(s1), exponent(s2)
    inverse, quotient = 1.0 / s1.astype(np.float64), s2.astype(np.float64) / s1.astype(np.float64)
    huge = np.abs(inverse) < TINY
    tiny = (np.abs(quotient) < TINY) & (quotient != 0)
    denominator, numerator = s0 == s1, s0 == s2
    cases = [  # the first that holds decides: (condition, value, rescale)
        ((s2 == 0) | (s1 == 0), np.full_like(s0, np.nan), False),
        (e2 - e1 >= 96, np.where(denominator, up, s0), True),
        (np.abs(s1) < TINY, up, False),
        (huge & tiny, np.where(denominator, down, s0), True),
        (huge, down, False),
        (tiny, np.where(numerator, up, s0), True),
        (e2 <= 23, up, False),
    ]
    conditions = [case[0] for case in cases]
    value = np.select(conditions, [case[1] for case in cases], s0)
    return value.astype(F32), np.select(conditions, [np.full(s0.shape, case[2]) for case in cases], False)


def div_fmas(a: np.ndarray, b: np.ndarray, c: np.ndarray, rescale: np.ndarray, out=None) -> np.ndarray:
    """fma; where a division was scaled, times 2^64 or 2^-64 by the size of the addend, with one rounding."""
    factor = np.where(rescale, np.where(exponent(c) > 127, 2.0**64, 2.0**-64), 1.0)
    return fma(a * factor, b, c * factor)


def div_fixup(s0: np.ndarray, s1: np.ndarray, s2: np.ndarray, out=None) -> np.ndarray:
    """Final step of a division: s0 is the quotient so far, s1 the denominator, s2 the numerator.

    Source: CDNA4 ISA, V_DIV_FIXUP_F32; a quotient that overflowed on the way, to NaN at worst, is infinite.
    """
    s0, s1, s2 = (np.asarray(x, F32) for x in np.broadcast_arrays(s0, s1, s2))
    nan, inf, zero = F32(np.nan), F32(np.inf), F32(0)
    size = np.select(
        [np.isnan(s2) | np.isnan(s1), (s1 == 0) & (s2 == 0), np.isinf(s1) & np.isinf(s2), (s1 == 0) | np.isinf(s2),
         np.isinf(s1) | (s2 == 0), exponent(s2) - exponent(s1) < -150, np.isnan(s0)],
        [nan, nan, nan, inf, zero, zero, inf],
        np.abs(s0),
    )  # fmt: skip
    return np.where(np.signbit(s1) ^ np.signbit(s2), -size, size).astype(F32)


def is_class(x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """v_cmp_class_f32: whether x is of one of the classes whose bit is set in `wanted`.

    Bits: 0 signaling NaN, 1 quiet NaN, 2 -inf, 3 -normal, 4 -denormal, 5 -0, 6 +0, 7 +denormal, 8 +normal, 9 +inf.
    """
    bits = bits_of(x)
    size, negative = bits & U32(0x7FFFFFFF), bits >> U32(31) == 1
    kind = np.select(
        [size >= 0x7FC00000, size > 0x7F800000, size == 0x7F800000, size >= 0x00800000, size > 0],
        [1, 0, np.where(negative, 2, 9), np.where(negative, 3, 8), np.where(negative, 4, 7)],
        np.where(negative, 5, 6),
    ).astype(U32)
    return (wanted >> kind & U32(1)).astype(bool)


def to_int(low: int, high: int):
    """float -> integer of one word: towards zero, saturating; NaN gives 0."""
    kind = np.int32 if low else U32
    return lambda x, out=None: np.nan_to_num(np.clip(np.trunc(x.astype(np.float64)), low, high), nan=0).astype(kind)


f32_to_i32, f32_to_u32 = to_int(-0x80000000, 0x7FFFFFFF), to_int(0, 0xFFFFFFFF)


def to_bf16_bits(x: np.ndarray) -> np.ndarray:
    """float32 -> bf16 bits as uint32, nearest even; NaN stays NaN (quiet)."""
    bits = bits_of(x)
    rounded = bits + U32(0x7FFF)
    rounded += bits >> U32(16) & U32(1)
    rounded >>= U32(16)
    nan = (bits & U32(0x7FFFFFFF)) > U32(0x7F800000)
    return np.where(nan, bits >> U32(16) | U32(0x40), rounded) if np.count_nonzero(nan) else rounded


def from_bf16_bits(bits: np.ndarray) -> np.ndarray:
    """bf16 bits in the low half of uint32 -> float32."""
    return (np.ascontiguousarray(bits, U32) << U32(16)).view(F32).reshape(np.shape(bits))


def pack_bf16(low: np.ndarray, high: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Two float32 -> two bf16 in a dword."""
    return np.bitwise_or(to_bf16_bits(low), to_bf16_bits(high) << U32(16), out)


def unpack_bf16(word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two bf16 of a dword -> two float32."""
    return from_bf16_bits(word), (word & U32(0xFFFF0000)).view(F32)


def pack_f16(low: np.ndarray, high: np.ndarray, out=None) -> np.ndarray:
    """Two float32 -> two f16 in a dword, nearest even."""
    low, high = (np.asarray(x).astype(np.float16).view(np.uint16).astype(U32) for x in (low, high))
    return low | high << U32(16)


def pack_f16_towards_zero(low: np.ndarray, high: np.ndarray, out=None) -> np.ndarray:
    """Two float32 -> two f16 in a dword, towards zero."""
    halves = []
    for x in (np.asarray(low), np.asarray(high)):
        near = x.astype(np.float16)
        beyond = np.abs(near.astype(F32)) > np.abs(x)
        halves.append((near.view(np.uint16) - beyond.astype(np.uint16)).astype(U32))
    return halves[0] | halves[1] << U32(16)


def unpack_f16(word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two f16 of a dword -> two float32."""
    halves = np.ascontiguousarray(word).view(np.float16).reshape(*np.shape(word), 2).astype(F32)
    return halves[..., 0], halves[..., 1]


def bit_reverse(x: np.ndarray, out=None) -> np.ndarray:
    """The 32 bits of a word in reverse order."""
    for mask, shift in ((0x55555555, 1), (0x33333333, 2), (0x0F0F0F0F, 4), (0x00FF00FF, 8)):
        x = (x >> U32(shift)) & U32(mask) | (x & U32(mask)) << U32(shift)
    return x >> U32(16) | x << U32(16)


def ones(x: np.ndarray) -> np.ndarray:
    """How many bits are set, int32."""
    return np.bitwise_count(x).astype(np.int32)


def lowest_one(x: np.ndarray, out=None) -> np.ndarray:
    """Position of the lowest bit that is set, int32; -1 where there is none."""
    lowest = x & (~x + x.dtype.type(1))
    return np.where(x == 0, np.int32(-1), ones(lowest - x.dtype.type(1)))


def highest_one(x: np.ndarray, out=None) -> np.ndarray:
    """Zeros above the highest bit that is set, int32; -1 where there is none."""
    bits = 8 * x.dtype.itemsize
    for step in (1, 2, 4, 8, 16, 32)[: 5 if bits == 32 else 6]:
        x = x | x >> x.dtype.type(step)
    return np.where(x == 0, np.int32(-1), bits - ones(x))


def signed_field(x: np.ndarray, offset: np.ndarray, width: np.ndarray) -> np.ndarray:
    """`width` (0 to 32) bits of an int32 from `offset`, sign-extended."""
    width = width.astype(np.int64)
    field = (x.astype(np.int64) >> offset) & ((np.int64(1) << width) - 1)
    sign = np.where(width > 0, np.int64(1) << np.maximum(width - 1, 0), 0)
    return ((field ^ sign) - sign).astype(np.int32)


# Small formats: the value of every code. e2m1, e4m3 (OCP: no infinity, 0x7f NaN) and e5m2.
_BYTE = np.arange(256)


def _small_floats(exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    bias, size = (1 << exponent_bits - 1) - 1, 1 << exponent_bits + mantissa_bits
    code = np.arange(size)
    field, mantissa = code >> mantissa_bits, code & (1 << mantissa_bits) - 1
    value = np.ldexp(np.where(field, mantissa + (1 << mantissa_bits), mantissa).astype(np.float64),
                     np.maximum(field, 1) - bias - mantissa_bits)  # fmt: skip
    return np.concatenate((value, -value)).astype(F32)


E2M1, E4M3, E5M2 = _small_floats(2, 1), _small_floats(4, 3), _small_floats(5, 2)
E4M3[0x7F::0x80] = np.nan
E5M2[0x7C], E5M2[0xFC], E5M2[0x7D:0x80], E5M2[0xFD:] = np.inf, -np.inf, np.nan, np.nan
E2M1_PAIRS = np.stack([E2M1[_BYTE & 15], E2M1[_BYTE >> 4]], axis=1)  # byte -> (low nibble's value, high nibble's)


def e2m1_codes(x: np.ndarray, inverse_scale: np.ndarray) -> np.ndarray:
    """float32 -> e2m1 codes 0..15 of x * inverse_scale, nearest even, saturating at 6; a NaN gives 7 or 15.

    On each binade e2m1 is a linear function of the code, and the code is the least of the three linear ones, each
    rounded to nearest even: 2y, y + 2, y/2 + 4.

    Args:
        x: float32.
        inverse_scale: float32 powers of two, broadcastable.

    Returns:
        uint32 codes.
    """
    y = np.abs(x)
    y *= inverse_scale
    np.fmin(y, F32(8), out=y)
    code = y + y
    np.rint(code, out=code)
    step = np.rint(y)
    step += F32(2)
    np.minimum(code, step, out=code)
    y *= F32(0.5)
    np.rint(y, out=y)
    y += F32(4)
    np.minimum(code, y, out=code)
    np.minimum(code, F32(7), out=code)
    codes = code.astype(U32)
    sign = np.ascontiguousarray(x).view(U32) >> U32(28)
    sign &= U32(8)
    codes |= sign
    return codes


def fp8_codes(x: np.ndarray, inverse_scale: np.ndarray, table: np.ndarray, saturate: np.ndarray) -> np.ndarray:
    """float32 -> codes of E4M3 or E5M2 of x * inverse_scale, nearest even.

    Beyond the largest value: that value where `saturate` (the mode bit FP16_OVFL), else NaN for e4m3, infinity for
    e5m2. Returns uint32 codes.
    """
    positive = table[:128].astype(np.float64)
    last = int(np.isfinite(positive).sum()) - 1
    mantissa, least = (3, -6) if table is E4M3 else (2, -14)
    y = np.abs(x.astype(np.float64)) * inverse_scale
    step = np.ldexp(1.0, np.maximum(np.frexp(np.nan_to_num(y, posinf=1.0))[1] - 1, least) - mantissa)
    rounded = np.rint(y / step) * step
    code = np.searchsorted(positive[: last + 1], np.minimum(rounded, positive[last]))
    code = np.where((rounded > positive[last]) & ~saturate, last + 1, code)
    return (np.where(np.isnan(y), 127, code) | np.signbit(x).astype(int) << 7).astype(U32)


def inverse_power(scale: np.ndarray) -> np.ndarray:
    """2^-(E - 127) for the exponent field E of a float32 scale: what a scaled conversion multiplies by."""
    return np.ldexp(F32(1), 127 - exponent(scale)).astype(F32)


def pack_fp4(low: np.ndarray, high: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Two float32 divided by a power of two -> one byte (uint32), low nibble first."""
    inverse = inverse_power(scale)
    both = np.empty((2, *np.broadcast_shapes(low.shape, high.shape, inverse.shape)), F32)
    both[0], both[1] = low, high
    codes = e2m1_codes(both, inverse)
    codes[1] <<= U32(4)
    codes[0] |= codes[1]
    return codes[0]


def unpack_scaled(codes: np.ndarray, table: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Codes of a small format -> float32, multiplied by the scale's power of two."""
    return (table[codes].astype(np.float64) * np.ldexp(1.0, exponent(scale) - 127)).astype(F32)


def bf16_pair_add(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Sum of two words of two bf16 each, every half rounded to nearest even (the atomic's addition)."""
    (a, b), (c, d) = unpack_bf16(old), unpack_bf16(new)
    return pack_bf16(a + c, b + d)


def f16_pair_add(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Sum of two words of two float16 each."""
    return (np.ascontiguousarray(old).view(np.float16) + np.ascontiguousarray(new).view(np.float16)).view(U32)


@lru_cache(maxsize=256)
def lut3(table: int):
    """A function(a, b, c, out) whose bit i is `table >> (4 a_i + 2 b_i + c_i) & 1`.

    Evaluated as two-input logic selected by c, each a short expression: f = (f0(a, b) & ~c) | (f1(a, b) & c).
    """
    if not 0 <= table < 256:
        raise ValueError(f"bitop3:{table}, allowed: 0 to 255")
    low = sum(((table >> (2 * n)) & 1) << n for n in range(4))  # c = 0
    high = sum(((table >> (2 * n + 1)) & 1) << n for n in range(4))  # c = 1
    f0, f1 = _LUT2[low], _LUT2[high]

    def function(a, b, c, out=None):
        x, y = f0(a, b), f1(a, b)
        if low == high:
            return x
        if low == high ^ 15:  # y is ~x
            return np.bitwise_xor(x, c, out)
        if low == 0:
            return np.bitwise_and(y, c, out)
        if high == 0:
            return np.bitwise_and(x, ~c, out)
        if high == 15:
            return np.bitwise_or(x, c, out)
        if low == 15:
            return np.bitwise_or(y, ~c, out)
        return np.bitwise_xor(x, (x ^ y) & c, out)

    return function


# Index n = bit (2 a + b) set; e.g. 0b1000 is a & b.
_LUT2 = (
    lambda a, b: (a ^ a) & b,
    lambda a, b: ~(a | b),
    lambda a, b: ~a & b,
    lambda a, b: ~a | (b & ~b),
    lambda a, b: a & ~b,
    lambda a, b: ~b | (a & ~a),
    lambda a, b: a ^ b,
    lambda a, b: ~(a & b),
    lambda a, b: a & b,
    lambda a, b: ~(a ^ b),
    lambda a, b: b | (a & ~a),
    lambda a, b: ~a | b,
    lambda a, b: a | (b & ~b),
    lambda a, b: a | ~b,
    lambda a, b: a | b,
    lambda a, b: ~((a ^ a) & b),
)
