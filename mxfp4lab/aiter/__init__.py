"""An installed aiter: find it, load its kernels by file, ask what rounding its op has, never trust it unasked.

`install` needs only the standard library and imports nothing of aiter; `quantizer` runs its quantize kernel, `gemm` its
prebuilt GEMM.
"""
