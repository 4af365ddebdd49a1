"""Fused quantization and GEMM of aiter's Triton operators."""

import reference
import torch

from ....._compute import gemm_plain, quantize


def gemm_a16wfp4(x, w, w_scales, atomic_add=False, dtype=torch.bfloat16, y=None, config=None, **_):
    """C = quantize(x) @ w.T with row-major w and scales."""
    x_q, x_scale = quantize(x)
    c = gemm_plain(x_q, w, x_scale, w_scales, dtype)
    return c if y is None else y.copy_(c)


def gemm_a16wfp4_preshuffle(x, w, w_scales, prequant=True, dtype=torch.bfloat16, y=None, config=None, **_):
    """C = quantize(x) @ w.T with w as [N // 16, 16 K // 2] tiles and shuffled scales as [N // 32, K]."""
    x_q, x_scale = quantize(x)
    n, k_bytes = w.shape[0] * 16, w.shape[1] // 16
    w_q = reference.unshuffle_weights(w.contiguous().view(torch.uint8).view(n, k_bytes))
    scales = w_scales.contiguous().view(torch.uint8).view(n, k_bytes // 16)
    r = scales.view(n // 32, k_bytes // 128, 4, 16, 2, 2).permute(0, 5, 3, 1, 4, 2).contiguous().view(n, k_bytes // 16)
    c = gemm_plain(x_q, w_q, x_scale, r, dtype)
    return c if y is None else y.copy_(c)
