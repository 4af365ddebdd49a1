"""Conversions between number formats: bf16, f16, integers, and the scaled e2m1 conversions of gfx950."""

from __future__ import annotations

import numpy as np

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
# byte -> (low nibble's value, high nibble's value)
E2M1_PAIRS = np.stack([_E2M1[np.arange(256) & 15], _E2M1[np.arange(256) >> 4]], axis=1)


def to_bf16_bits(x: np.ndarray) -> np.ndarray:
    """float32 -> bf16 bits as uint32, nearest even; NaN stays NaN (quiet)."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF)
    rounded += bits >> np.uint32(16) & np.uint32(1)
    rounded >>= np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    if np.count_nonzero(nan):
        rounded = np.where(nan, bits >> np.uint32(16) | np.uint32(0x40), rounded)
    return rounded


def from_bf16_bits(bits: np.ndarray) -> np.ndarray:
    """bf16 bits in the low half of uint32 -> float32."""
    return (np.ascontiguousarray(bits, np.uint32) << np.uint32(16)).view(np.float32)


def pack_bf16(low: np.ndarray, high: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Two float32 -> two bf16 in a dword."""
    return np.bitwise_or(to_bf16_bits(low), to_bf16_bits(high) << np.uint32(16), out)


def _copy(out: np.ndarray, result: np.ndarray) -> np.ndarray:
    np.copyto(out, result)
    return out


def f32_to_u32(x: np.ndarray, out=None) -> np.ndarray:
    """Truncate towards zero, saturate; NaN gives 0."""
    result = np.nan_to_num(np.clip(np.trunc(x.astype(np.float64)), 0, 0xFFFFFFFF), nan=0).astype(np.uint32)
    return result if out is None else _copy(out, result)


def f32_to_i32(x: np.ndarray, out=None) -> np.ndarray:
    """Truncate towards zero, saturate; NaN gives 0."""
    wide = np.clip(np.trunc(x.astype(np.float64)), -0x80000000, 0x7FFFFFFF)
    result = np.nan_to_num(wide, nan=0).astype(np.int32)
    return result if out is None else _copy(out, result)


def f32_to_f16(x: np.ndarray) -> np.ndarray:
    """float32 -> float16, nearest even."""
    with np.errstate(all="ignore"):
        return x.astype(np.float16)


def f32_to_f16_towards_zero(x: np.ndarray) -> np.ndarray:
    """float32 -> float16, towards zero (v_cvt_pkrtz_f16_f32)."""
    with np.errstate(all="ignore"):
        near = x.astype(np.float16)
    beyond = np.abs(near.astype(np.float32)) > np.abs(x)
    return np.where(beyond, near.view(np.uint16) - np.uint16(1), near.view(np.uint16)).view(np.float16)


def scale_of(scale: np.ndarray) -> np.ndarray:
    """2^-(E - 127) for the exponent field E of a float32 scale: what a scaled conversion multiplies by."""
    field = np.ascontiguousarray(scale, np.float32).view(np.uint32) >> np.uint32(23) & np.uint32(255)
    return np.ldexp(np.float32(1), 127 - field.astype(np.int32)).astype(np.float32)


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
    np.fmin(y, np.float32(8), out=y)
    code = y + y
    np.rint(code, out=code)
    step = np.rint(y)
    step += np.float32(2)
    np.minimum(code, step, out=code)
    y *= np.float32(0.5)
    np.rint(y, out=y)
    y += np.float32(4)
    np.minimum(code, y, out=code)
    np.minimum(code, np.float32(7), out=code)
    codes = code.astype(np.uint32)
    sign = np.ascontiguousarray(x).view(np.uint32) >> np.uint32(28)
    sign &= np.uint32(8)
    codes |= sign
    return codes


def pack_fp4(low: np.ndarray, high: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Two float32 and a float32 scale -> one byte (uint32), low nibble first: v_cvt_scalef32_pk_fp4_f32.

    Only the scale's exponent counts; the sources are divided by it.
    """
    inverse = scale_of(scale)
    shape = np.broadcast_shapes(low.shape, high.shape, inverse.shape)
    both = np.empty((2, *shape), np.float32)
    both[0], both[1] = low, high
    codes = e2m1_codes(both, inverse)
    codes[1] <<= np.uint32(4)
    codes[0] |= codes[1]
    return codes[0]


def unpack_fp4(byte: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One byte of two e2m1 and a float32 scale -> two float32, multiplied by the scale's power of two."""
    field = np.ascontiguousarray(scale, np.float32).view(np.uint32) >> np.uint32(23) & np.uint32(255)
    power = np.ldexp(np.float64(1), field.astype(np.int32) - 127)
    pairs = E2M1_PAIRS[byte].astype(np.float64)
    return (pairs[..., 0] * power).astype(np.float32), (pairs[..., 1] * power).astype(np.float32)
