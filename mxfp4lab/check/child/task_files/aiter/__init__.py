"""A stand-in for AMD's aiter where there is no MI355X: the few calls that submissions make, computed by torch.

The GEMM is AMD's own machine code, emulated, where amd-aiter is installed; all else, and the GEMM elsewhere, gives the
results of the task's reference. Every call that computes is noted in the report.
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
    from ._compute import gemm_into

    return gemm_into(out, A, B, A_scale, B_scale, bpreshuffle, kernelName, log2_k_split, alpha, beta)


def __getattr__(name):
    raise AttributeError(
        f"this stand-in for aiter has no {name}: the emulator backend offers gemm_a4w4 and its helpers only"
    )
