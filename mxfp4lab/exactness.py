"""Old place of two names; imports go to `formats` and `task`."""

from mxfp4lab.formats import FP32_BITS
from mxfp4lab.task import input_sum_bits

__all__ = ["FP32_BITS", "input_sum_bits"]
