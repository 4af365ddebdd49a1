"""Offline compilation: kernels to gfx950 (or sm_90) machine code, with what can be read from it.

Nothing here needs a GPU or a driver. Triton is imported at the first compilation, not before.
"""
