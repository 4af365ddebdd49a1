"""Quantization inside a kernel."""

from .quant import _mxfp4_quant_op

__all__ = ["_mxfp4_quant_op"]
