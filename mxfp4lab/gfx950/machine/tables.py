"""Small shared pieces of the instruction tables: constants, three-input logic, 64-bit stores."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mxfp4lab.gfx950.machine.state import Group

U32 = np.uint32


@lru_cache(maxsize=256)
def lut3(table: int):
    """A function(a, b, c, out) whose bit i is `table >> (4 a_i + 2 b_i + c_i) & 1`.

    Evaluated as two-input logic selected by c, each a short expression: f = (f0(a, b) & ~c) | (f1(a, b) & c).
    """
    low = sum(((table >> (2 * n)) & 1) << n for n in range(4))  # c = 0
    high = sum(((table >> (2 * n + 1)) & 1) << n for n in range(4))  # c = 1
    f0, f1 = _LUT2[low], _LUT2[high]

    def function(a, b, c, out=None):
        x, y = f0(a, b), f1(a, b)
        if low == high:
            return np.bitwise_or(x, x, out)
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


def _zero(a, b):
    return (a ^ a) & b


# Index n = bit (2 a + b) set; e.g. 0b1000 is a & b.
_LUT2 = (
    _zero,
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
    lambda a, b: ~_zero(a, b),
)


def store32(g: Group, n: int, value: np.ndarray) -> None:
    """Write a uint32 plane to vector register plane n where lanes are on."""
    if g.full:
        np.copyto(g.U[n], value)
    else:
        np.copyto(g.U[n], value, where=g.mask)


def store64(g: Group, n: int, value: np.ndarray) -> None:
    """Write a 64-bit plane to register planes n, n + 1."""
    halves = np.ascontiguousarray(value).view(np.uint32).reshape(*value.shape, 2)
    store32(g, n, halves[..., 0])
    store32(g, n + 1, halves[..., 1])
