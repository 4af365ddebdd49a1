"""An installed aiter: find it, load its kernels by file, ask what rounding its op has, never trust it unasked.

`install` and `prebuilt` need only the standard library; the rest imports torch, and triton when something is compiled.
"""
