"""`gemm_a4w4` and its table of configs."""

import torch

from .._compute import gemm_into


def gemm_a4w4(A, B, A_scale, B_scale, bias=None, dtype=torch.bfloat16, alpha=1.0, beta=0.0, bpreshuffle=True, **_):
    """C [M, N] = A @ B.T of MXFP4 operands with shuffled scales."""
    m, n = A.shape[0], B.shape[0]
    out = torch.empty((m + 31) // 32 * 32, n, dtype=dtype, device=A.device)
    return gemm_into(out, A, B, A_scale, B_scale, bpreshuffle, alpha=alpha, beta=beta)[:m]


def get_GEMM_config(M, N, K):
    """No tuned config is known here; aiter then leaves the choice to its own heuristic."""
    return None
