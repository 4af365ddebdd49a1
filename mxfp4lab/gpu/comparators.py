"""What ours is compared with, timed in the same interleaved run: none of them is a plan of ours.

What is not there on a machine (aiter, a GPU that it refuses) is a reason, not an error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mxfp4lab.layouts import e8m0_unshuffle
from mxfp4lab.shapes import Shape


@dataclass(frozen=True)
class Comparator:
    """A way to compute (something like) C that is not ours.

    Attributes:
        about: what it does and what it does not do, one line.
        same_task: whether it quantizes A and reads MXFP4 B, so that its C should equal the reference's.
        call: without arguments; computes C from the inputs it was made for.
    """

    name: str
    about: str
    same_task: bool
    call: Callable[[], Any]


def available_comparators(shape: Shape, inputs: Mapping[str, Any]) -> tuple[list[Comparator], dict[str, str]]:
    """Every comparator that runs on these inputs here, each called once to find out.

    Args:
        shape: of the GEMM.
        inputs: the task's tensors by name, on the GPU.

    Returns:
        comparators, and name -> one-line reason for those that do not run.
    """
    import torch

    found, missing = [], {}
    for make in (_mm_bf16, _two_step_torch, _aiter_fused, _aiter_reference):
        try:
            comparator = make(shape, inputs)
            comparator.call()
            if inputs["a"].is_cuda:
                torch.cuda.synchronize()
            found.append(comparator)
        except Exception as error:  # whatever a foreign library raises where it is not at home
            reason = " ".join(str(error).split())[:200] or "no message"
            missing[make.__name__.removeprefix("_")] = f"{type(error).__name__}: {reason}"
    return found, missing


def _mm_bf16(shape: Shape, inputs: Mapping[str, Any]) -> Comparator:
    import torch

    a, b_t = inputs["a"], inputs["b"].T
    library = "hipBLASLt or rocBLAS" if torch.version.hip else "cuBLAS"
    about = f"torch.mm of bf16 A and bf16 B ({library}): no quantization, four times the bytes of B"
    return Comparator("mm_bf16", about, False, lambda: torch.mm(a, b_t))


def _two_step_torch(shape: Shape, inputs: Mapping[str, Any]) -> Comparator:
    import torch

    from mxfp4lab.formats import dequantize_mxfp4, quantize_mxfp4

    a, b_q = inputs["a"], inputs["b_q"]
    scale = e8m0_unshuffle(inputs["b_scale_sh"], shape.n, shape.k // 32)

    def call() -> Any:
        a_value = dequantize_mxfp4(*quantize_mxfp4(a)).to(torch.bfloat16)
        return torch.mm(a_value, dequantize_mxfp4(b_q, scale).to(torch.bfloat16).T)

    about = "quantize A, dequantize both, torch.mm: the reference in plain torch"
    return Comparator("two_step_torch", about, True, call)


def _aiter_fused(shape: Shape, inputs: Mapping[str, Any]) -> Comparator:
    function = _first_of(
        "aiter.ops.triton.gemm.basic.gemm_a16wfp4:gemm_a16wfp4", "aiter.ops.triton.gemm_a16wfp4:gemm_a16wfp4",
        "aiter.ops.triton.gemm_afp4wfp4_pre_quant_atomic:gemm_afp4wfp4_pre_quant")  # fmt: skip
    # Its own scale layout is prepared outside the timed call, as its users do.
    scale = e8m0_unshuffle(inputs["b_scale_sh"], shape.n, shape.k // 32).contiguous()
    a, b_q = inputs["a"], inputs["b_q"]
    about = f"aiter's Triton kernel {function.__name__}, its shipped config"
    return Comparator("aiter_fused", about, True, lambda: function(a, b_q, scale))


def _aiter_reference(shape: Shape, inputs: Mapping[str, Any]) -> Comparator:
    import torch

    quantize = _first_of("aiter.ops.triton.quant:dynamic_mxfp4_quant")
    shuffle = _first_of("aiter.utility.fp4_utils:e8m0_shuffle")
    gemm = _first_of("aiter.ops.gemm_op_a4w4:gemm_a4w4", "aiter:gemm_a4w4")
    # The task hands over typed views of the same bytes; older torch has no such types, and aiter then takes bytes.
    fp4, e8m0 = getattr(torch, "float4_e2m1fn_x2", torch.uint8), getattr(torch, "float8_e8m0fnu", torch.uint8)
    a, b, scale = inputs["a"], inputs["b_shuffle"].view(fp4), inputs["b_scale_sh"].view(e8m0)

    def call() -> Any:
        a_q, a_scale = quantize(a)
        return gemm(a_q.view(fp4), b, shuffle(a_scale).view(e8m0), scale, bpreshuffle=True)[: shape.m]

    return Comparator("aiter_reference", "the task's reference: aiter quantize, e8m0_shuffle, gemm_a4w4", True, call)


def _first_of(*places: str) -> Any:
    """The first of ``module:name`` that can be imported."""
    reasons = []
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            reasons.append(str(error))
    raise ImportError("; ".join(dict.fromkeys(reasons)))
