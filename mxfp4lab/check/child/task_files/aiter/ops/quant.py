"""Quantizers by kind."""

import enum

from .._compute import quantize


class QuantType(enum.IntEnum):
    """How many elements share a scale."""

    No = 0
    per_Tensor = 1
    per_Token = 2
    per_1x32 = 3
    per_1x128 = 4
    per_128x128 = 5


def get_triton_quant(kind):
    """The function that quantizes 1x32 blocks to MXFP4.

    Raises:
        ValueError: for another kind: the task needs no other.
    """
    if kind != QuantType.per_1x32:
        raise ValueError(f"get_triton_quant({kind!r}): this stand-in for aiter offers QuantType.per_1x32 only")

    def quantize_1x32(x, scale=None, quant_dtype=None, shuffle=False, **_):
        from .. import dtypes

        packed, scales = quantize(x, shuffle=shuffle)
        return packed.view(dtypes.fp4x2), scales.view(dtypes.fp8_e8m0)

    return quantize_1x32


get_hip_quant = get_torch_quant = get_triton_quant
