"""MXFP4 GEMM of aiter's Triton operators."""

import torch

from ....._compute import gemm_plain


def gemm_afp4wfp4(x, w, x_scales, w_scales, dtype=torch.bfloat16, y=None, config=None, **_):
    """C = x @ w.T, row-major operands and scales."""
    c = gemm_plain(x, w, x_scales, w_scales, dtype)
    return c if y is None else y.copy_(c)
