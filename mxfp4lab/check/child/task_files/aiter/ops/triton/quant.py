"""`dynamic_mxfp4_quant` of aiter's Triton operators."""

from ..._compute import quantize


def dynamic_mxfp4_quant(x, scaling_mode="even", **_):
    """(packed uint8 [R, K // 2], scale uint8 [R, K // 32]).

    Raises:
        ValueError: for a scaling mode other than the task's.
    """
    if scaling_mode != "even":
        raise ValueError(f"scaling_mode={scaling_mode!r}: this stand-in for aiter offers 'even' only")
    return quantize(x)


def __getattr__(name):
    if name != "_mxfp4_quant_op":  # the one part that needs Triton
        raise AttributeError(name)
    from ._triton_kernels.quant.quant import _mxfp4_quant_op

    return _mxfp4_quant_op
