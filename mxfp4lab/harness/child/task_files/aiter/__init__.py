"""A stand-in for AMD's aiter where there is no MI355X: the few calls that submissions make, computed by torch.

Results are those of the task's reference, not of AMD's machine code; every call that computes is noted in the report.
"""

from . import dtypes
from .ops.gemm_op_a4w4 import gemm_a4w4, get_GEMM_config
from .ops.quant import QuantType, get_triton_quant
from .ops.shuffle import shuffle_weight

__all__ = ["QuantType", "dtypes", "gemm_a4w4", "gemm_a4w4_asm", "get_GEMM_config", "get_triton_quant", "shuffle_weight"]


def gemm_a4w4_asm(
    A, B, A_scale, B_scale, out, kernelName="", bias=None, alpha=1.0, beta=0.0, bpreshuffle=True, log2_k_split=None
):
    """AMD's direct GEMM call: fills `out`, whose rows are padded to 32, and returns it."""
    from ._compute import gemm

    out.copy_(gemm(A, B, A_scale, B_scale, bpreshuffle, out.dtype, rows=out.shape[0]))
    return out


def __getattr__(name):
    raise AttributeError(
        f"this stand-in for aiter has no {name}: the emulator backend offers gemm_a4w4 and its helpers only"
    )
