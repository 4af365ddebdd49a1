"""Floating-point arithmetic as the vector unit does it, on numpy arrays.

Exact (correctly rounded, round to nearest even, denormals kept): add, subtract, multiply, fma, min, max, conversions,
square root, reciprocal, division steps. The hardware's reciprocal, square root and reciprocal square root are allowed
1 ulp, exp2 and log2 1 ulp (2 near 1 for log2), sin and cos about 1e-6 absolute: here all are computed in double and
rounded once, so they may differ from silicon by that much. exp2 of an integer and log2 of a power of two are exact.
The payload of a NaN is not modelled beyond its being quiet.
"""

from __future__ import annotations

import numpy as np


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
    return s.astype(np.float32) if out is None else _into(out, s)


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray, out=None) -> np.ndarray:
    """float64 fma, correctly rounded where numpy's long double is wider than its double."""
    result = (a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)).astype(np.float64)
    return _into(out, result)


def maximum(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """IEEE maxNum with +0 above -0: a NaN gives the other source."""
    result = np.fmax(a, b)
    zeros = result == 0
    if np.count_nonzero(zeros):
        # A zero result is -0 only where no source is +0.
        plus = ((a == 0) & ~np.signbit(a)) | ((b == 0) & ~np.signbit(b))
        result = np.where(zeros, np.where(plus, np.float32(0.0), np.float32(-0.0)), result)
    return _into(out, result)


def minimum(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """IEEE minNum with -0 below +0: a NaN gives the other source."""
    result = np.fmin(a, b)
    zeros = result == 0
    if np.count_nonzero(zeros):
        minus = ((a == 0) & np.signbit(a)) | ((b == 0) & np.signbit(b))
        result = np.where(zeros, np.where(minus, np.float32(-0.0), np.float32(0.0)), result)
    return _into(out, result)


def _into(out: np.ndarray | None, result: np.ndarray) -> np.ndarray:
    if out is None:
        return result
    np.copyto(out, result, casting="unsafe")
    return out


def med3(a: np.ndarray, b: np.ndarray, c: np.ndarray, out=None) -> np.ndarray:
    """Median of three; with a NaN among them the least of the others (as the hardware's min3)."""
    result = maximum(minimum(a, b), minimum(maximum(a, b), c))
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    if np.count_nonzero(nan):
        result = np.where(nan, minimum(minimum(a, b), c), result)
    return _into(out, result)


def _through_double(function):
    def rounded(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        result = function(np.asarray(x, np.float64))
        return result.astype(np.float32) if out is None else _into(out, result)

    rounded.__doc__ = function.__doc__
    return rounded


@_through_double
def exp2(x):
    """2^x; exact for integers."""
    finite = np.clip(np.nan_to_num(x, nan=0.0), -2000, 2000)
    whole = np.floor(finite)
    result = np.ldexp(np.exp2(finite - whole), whole.astype(np.int32))
    return np.where(np.isnan(x), x, result)


@_through_double
def log2(x):
    """log2(x); exact for powers of two, -inf for 0, NaN below 0."""
    mantissa, exponent = np.frexp(x)  # x = mantissa * 2^exponent, mantissa in [0.5, 1)
    result = exponent - 1 + np.log2(2 * mantissa)
    result = np.where(x == 0, -np.inf, result)
    return np.where(np.isinf(x), np.where(x > 0, np.inf, np.nan), result)


@_through_double
def rcp(x):
    """1 / x."""
    return 1.0 / x


@_through_double
def rsq(x):
    """1 / sqrt(x)."""
    return 1.0 / np.sqrt(x)


@_through_double
def sin(x):
    """sin(2 pi x): the argument counts revolutions; it is reduced exactly before the function is taken."""
    return np.sin(2 * np.pi * (x - np.floor(x)))


@_through_double
def cos(x):
    """cos(2 pi x): the argument counts revolutions."""
    return np.cos(2 * np.pi * (x - np.floor(x)))


def fract(x: np.ndarray, out=None) -> np.ndarray:
    """x - floor(x), below 1."""
    return np.minimum(x - np.floor(x), np.float32(0.99999994), out=out)


def ldexp(x: np.ndarray, n: np.ndarray, out=None) -> np.ndarray:
    """x * 2^n with one rounding."""
    result = np.ldexp(np.asarray(x, np.float64), np.clip(n, -1000, 1000))
    return result.astype(np.float32) if out is None else _into(out, result)


def frexp_exp(x: np.ndarray, out=None) -> np.ndarray:
    """Exponent e of x = m * 2^e with m in [0.5, 1); 0 for zero, infinity and NaN."""
    exponent = np.where(np.isfinite(x), np.frexp(np.where(np.isfinite(x), x, 0))[1], 0).astype(np.int32)
    return _into(out, exponent)


def frexp_mant(x: np.ndarray, out=None) -> np.ndarray:
    """Mantissa m of x = m * 2^e with m in [0.5, 1)."""
    result = np.where(np.isfinite(x), np.frexp(np.where(np.isfinite(x), x, 0))[0], x).astype(np.float32)
    return _into(out, result)


def exponent(x: np.ndarray) -> np.ndarray:
    """Biased exponent field of float32, int32."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> np.uint32(23) & np.uint32(255)).astype(np.int32)


def _is_denormal32(x: np.ndarray) -> np.ndarray:
    size = np.abs(x)
    return (size > 0) & (size < np.float32(2.0**-126))


def div_scale(s0: np.ndarray, s1: np.ndarray, s2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pre-scaling of a division s2 / s1: returns (s0 scaled, whether the fmas step must rescale).

    Source: CDNA4 ISA, V_DIV_SCALE_F32.
    """
    s0, s1, s2 = (np.asarray(x, np.float32) for x in np.broadcast_arrays(s0, s1, s2))
    up, down = ldexp(s0, np.int32(64)), ldexp(s0, np.int32(-64))
    e1, e2 = exponent(s1), exponent(s2)
    with np.errstate(all="ignore"):
        inverse = 1.0 / s1.astype(np.float64)
        quotient = s2 / s1
    inverse_tiny = (np.abs(inverse) > 0) & (np.abs(inverse) < 2.0**-126)
    quotient_tiny = _is_denormal32(quotient)
    is_denominator, is_numerator = s0 == s1, s0 == s2
    cases = [  # the first that holds decides: (condition, value, rescale)
        ((s2 == 0) | (s1 == 0), np.full_like(s0, np.nan), False),
        (e2 - e1 >= 96, np.where(is_denominator, up, s0), True),
        (_is_denormal32(s1), up, False),
        (inverse_tiny & quotient_tiny, np.where(is_denominator, up, s0), True),
        (inverse_tiny, down, False),
        (quotient_tiny, np.where(is_numerator, up, s0), True),
        (e2 <= 23, up, False),
    ]
    conditions = [case[0] for case in cases]
    value = np.select(conditions, [case[1] for case in cases], s0)
    rescale = np.select(conditions, [np.full(s0.shape, case[2]) for case in cases], False)
    return value.astype(np.float32), rescale


def div_fixup(s0: np.ndarray, s1: np.ndarray, s2: np.ndarray) -> np.ndarray:
    """Final step of a division: s0 is the quotient so far, s1 the denominator, s2 the numerator.

    Source: CDNA4 ISA, V_DIV_FIXUP_F32.
    """
    s0, s1, s2 = (np.asarray(x, np.float32) for x in np.broadcast_arrays(s0, s1, s2))
    negative = np.signbit(s1) ^ np.signbit(s2)
    nan, inf = np.float32(np.nan), np.float32(np.inf)
    size = np.select(
        [np.isnan(s2) | np.isnan(s1), (s1 == 0) & (s2 == 0), np.isinf(s1) & np.isinf(s2), (s1 == 0) | np.isinf(s2),
         np.isinf(s1) | (s2 == 0), exponent(s2) - exponent(s1) < -150],
        [nan, nan, nan, inf, np.float32(0), np.float32(0)],
        np.abs(s0),
    )  # fmt: skip
    return np.where(negative, -size, size).astype(np.float32)


def classify(x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """v_cmp_class_f32: whether x is of one of the classes whose bit is set in `wanted`.

    Bits: 0 signaling NaN, 1 quiet NaN, 2 -inf, 3 -normal, 4 -denormal, 5 -0, 6 +0, 7 +denormal, 8 +normal, 9 +inf.
    """
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    size = bits & np.uint32(0x7FFFFFFF)
    negative = bits >> np.uint32(31) == 1
    kind = np.select(
        [size > 0x7FC00000 - 1, size > 0x7F800000, size == 0x7F800000, size >= 0x00800000, size > 0],
        [1, 0, np.where(negative, 2, 9), np.where(negative, 3, 8), np.where(negative, 4, 7)],
        np.where(negative, 5, 6),
    ).astype(np.uint32)
    return (wanted >> kind & np.uint32(1)).astype(bool)


def flush(x: np.ndarray) -> np.ndarray:
    """Denormals of float32 become zero of the same sign (float mode with denormals off)."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    tiny = bits & np.uint32(0x7F800000) == 0
    return np.where(tiny, bits & np.uint32(0x80000000), bits).view(np.float32)
