"""Scale shuffling and conversion."""

import reference

from .._compute import quantize

mxfp4_to_f32 = reference.dequantize_mxfp4


def e8m0_shuffle(scale):
    """Padded and shuffled scales, in the dtype that came in."""
    import torch

    return reference.shuffle_scales(scale.view(torch.uint8), pad_value=0).view(scale.dtype)


def dynamic_mxfp4_quant(x, scaling_mode="even", shuffle=False, **_):
    """As the Triton operator, with the scale shuffled on demand."""
    return quantize(x, shuffle=shuffle)
