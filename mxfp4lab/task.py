"""The task: its inputs, its reference result, its acceptance test, and stricter measures of the same.

`C[M, N] (bf16) = quantize_mxfp4(A[M, K] bf16) @ dequantize(B[N, K] MXFP4).T`, as the public task `amd-mxfp4-mm`
(gpu-mode/reference-kernels, problems/amd_202602/mxfp4-mm) states it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mxfp4lab import display
from mxfp4lab.formats import BLOCK, FP32_BITS, dequantize_mxfp4, quantize_mxfp4, sum_bits
from mxfp4lab.layouts import e8m0_shuffle, e8m0_unshuffle, shuffle_weight, unshuffle_weight
from mxfp4lab.shapes import Shape, parse_shape

INPUT_NAMES = ("a", "b", "b_q", "b_shuffle", "b_scale_sh")
RTOL = 1e-2
ATOL = 1e-2
IDENTICAL_WHERE_INEXACT = 0.999
"""Share of identical bf16 to ask for where fp32 sums round, so that their order shows; 1.0 where they are exact."""


def generate_input(
    shape: Shape | Sequence[int] | str, seed: int, device: str | torch.device = "cpu", *, task_dtypes: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The task's input tuple, in the order of `INPUT_NAMES`.

    One generator on `device`, seeded with `seed`, draws A and then B as bf16 normals. torch's CPU and GPU
    generators give different numbers for one seed, so an input is identified by seed and generator device.

    Args:
        shape: anything `parse_shape` accepts.
        seed: 0 <= seed < 2^63.
        device: where the generator runs and the tensors lie.
        task_dtypes: view B_q and B_shuffle as `float4_e2m1fn_x2` and the scales as `float8_e8m0fnu`, as the task
            hands them over. The bytes are the same; False leaves uint8, which every torch operation accepts.

    Returns:
        a [M, K] bf16, b [N, K] bf16, b_q [N, K // 2] uint8, b_shuffle [N, K // 2] uint8,
        b_scale_sh [ceil256(N), ceil8(K / 32)] uint8 with padding 0.
    """
    shape = parse_shape(shape)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"seed={seed!r} must be an integer 0 <= seed < 2^63")
    try:
        generator = torch.Generator(device=device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device={device!r}: torch has no generator for it here; cpu always works") from None
    generator.manual_seed(seed)
    a = torch.randn((shape.m, shape.k), dtype=torch.bfloat16, device=device, generator=generator)
    b = torch.randn((shape.n, shape.k), dtype=torch.bfloat16, device=device, generator=generator)
    return input_from(a, b, task_dtypes=task_dtypes)


def input_from(
    a: torch.Tensor, b: torch.Tensor, *, task_dtypes: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The task's tuple for given A [M, K] and B [N, K] bf16: B quantized, shuffled, its scales shuffled."""
    for name, tensor in (("a", a), ("b", b)):
        _require_tensor(name, tensor)
        if tensor.dim() != 2 or tensor.dtype != torch.bfloat16:
            raise ValueError(f"{name} is {tensor.dtype} with shape {tuple(tensor.shape)}; it must be 2-d bfloat16")
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"a has K={a.shape[1]} and b has K={b.shape[1]}; they must be equal")
    parse_shape((a.shape[0], b.shape[0], a.shape[1]))
    b_q, b_scale = quantize_mxfp4(b)
    b_shuffle, b_scale_sh = shuffle_weight(b_q), e8m0_shuffle(b_scale)
    if task_dtypes:
        b_q, b_shuffle = b_q.view(torch.float4_e2m1fn_x2), b_shuffle.view(torch.float4_e2m1fn_x2)
        b_scale_sh = b_scale_sh.view(torch.float8_e8m0fnu)
    return a, b, b_q, b_shuffle, b_scale_sh


def input_dict(
    shape: Shape | Sequence[int] | str, seed: int, device: str | torch.device = "cpu"
) -> dict[str, torch.Tensor]:
    """`generate_input` keyed by `INPUT_NAMES`: the form in which a plan binds its input buffers."""
    return dict(zip(INPUT_NAMES, generate_input(shape, seed, device), strict=True))


def _require_tensor(name: str, value: object) -> None:
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name} is a {type(value).__name__}; it must be a torch tensor")


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.element_size() != 1:
        raise ValueError(f"packed operands and scales are one byte an element, not {tensor.dtype}")
    return tensor if tensor.dtype == torch.uint8 else tensor.view(torch.uint8)


def matmul_dequantized(
    a_q: torch.Tensor, a_scale: torch.Tensor, b_q: torch.Tensor, b_scale: torch.Tensor
) -> torch.Tensor:
    """`dequantize(A) @ dequantize(B).T` summed in float64, rounded once to fp32 and then to bf16.

    float64 holds the sum of up to 2^20 products of MXFP4 values exactly unless their exponents spread over more
    than 30 binades, so this is what an ideal fp32 accumulator would give. Where the sum fits 24 bits (the task's
    inputs: `sum_bits`) every fp32 order of summation gives the same bits.

    Args:
        a_q: [M, K // 2] uint8, a_scale: [M, >= K / 32] uint8; b_q: [N, K // 2] uint8, b_scale: [N, >= K / 32] uint8.

    Returns:
        [M, N] bf16.
    """
    a = dequantize_mxfp4(_bytes(a_q), _bytes(a_scale), torch.float64)
    b = dequantize_mxfp4(_bytes(b_q), _bytes(b_scale), torch.float64)
    return (a @ b.T).to(torch.float32).to(torch.bfloat16)


def reference_gemm(
    a: torch.Tensor, b_q: torch.Tensor, b_scale_sh: torch.Tensor, *, shuffled: bool = False, rounding: str = "even"
) -> torch.Tensor:
    """The result that a submission must give: A quantized as aiter does it, times B as it was handed over.

    Args:
        a: [M, K] bf16.
        b_q: [N, K // 2] packed FP4 (uint8 or float4), row-major, or in the (16, 16) shuffle with `shuffled=True`.
        b_scale_sh: [ceil256(N), ceil8(K / 32)] shuffled e8m0 (uint8 or float8_e8m0fnu).
        rounding: of A; "half_away" gives what aiter gave before PR 975.

    Returns:
        c [M, N] bf16; the summation is described at `matmul_dequantized`.

    Raises:
        ValueError: if shapes do not fit together.
    """
    for name, tensor in (("a", a), ("b_q", b_q), ("b_scale_sh", b_scale_sh)):
        _require_tensor(name, tensor)
    if a.dim() != 2 or b_q.dim() != 2 or a.shape[1] != 2 * b_q.shape[1]:
        raise ValueError(f"a has shape {tuple(a.shape)} and b_q {tuple(b_q.shape)}; need [M, K] and [N, K // 2]")
    b_bytes = unshuffle_weight(_bytes(b_q)) if shuffled else _bytes(b_q)
    b_scale = e8m0_unshuffle(_bytes(b_scale_sh), b_bytes.shape[0], -(-a.shape[1] // BLOCK))
    a_q, a_scale = quantize_mxfp4(a, rounding=rounding)
    return matmul_dequantized(a_q, a_scale, b_bytes, b_scale)


def reference_output(data: Sequence[torch.Tensor]) -> torch.Tensor:
    """`reference_gemm` of the task's input tuple: c [M, N] bf16."""
    a, _, b_q, _, b_scale_sh = data
    return reference_gemm(a, b_q, b_scale_sh)


def input_sum_bits(data: Sequence[torch.Tensor]) -> float:
    """`formats.sum_bits` of the task's input tuple: 14.6 to 18.2 on its ten shapes, so their sums are exact in fp32."""
    a, _, b_q, _, b_scale_sh = data
    b_scale = e8m0_unshuffle(b_scale_sh, b_q.shape[0], -(-a.shape[1] // BLOCK))
    return sum_bits(*quantize_mxfp4(a), b_q, b_scale)


def needed_identical(data: Sequence[torch.Tensor]) -> float:
    """Share of identical bf16 to ask of an emulated or measured C: 1.0 where fp32 sums are exact on these inputs, else
    `IDENTICAL_WHERE_INEXACT`, since their order shows."""
    return 1.0 if input_sum_bits(data) <= FP32_BITS else IDENTICAL_WHERE_INEXACT


@dataclass(frozen=True)
class OutputCheck(display.Shown):
    """What `check_output` found.

    Attributes:
        passed: accepted by the task, and bf16 as well.
        task_accepts: the task's own verdict, which does not look at the dtype.
        bf16_identical_fraction: share of elements whose bf16 bits equal the reference's (NaN equals NaN;
            0.0 where the shapes differ). -0.0 and 0.0 are different bits, and equal values to the task.
        max_abs_err: largest |C - ref| in fp32 where both are finite (NaN where nothing can be compared).
        mismatches: elements that the task's tolerance refuses.
        first_mismatch: (row, col) of the first of them, or None.
        message: one line for a log.
    """

    passed: bool
    task_accepts: bool
    bf16_identical_fraction: float
    max_abs_err: float
    mismatches: int
    first_mismatch: tuple[int, ...] | None
    message: str

    title = "C against the reference"

    def lines(self) -> list[tuple[str, Any]]:
        return [
            ("verdict", display.badge("passes", "good") if self.passed else display.badge("does not pass", "bad")),
            ("bf16 identical", f"{self.bf16_identical_fraction:.4%}"),
            ("max |C - ref|", f"{self.max_abs_err:g}"),
            ("outside the task's tolerance", str(self.mismatches)),
            ("in words", self.message),
        ]


def task_mismatches(c: torch.Tensor, ref: torch.Tensor, rtol: float = RTOL, atol: float = ATOL) -> torch.Tensor:
    """The task's acceptance, element by element: True where it refuses (bool of the tensors' one shape).

    `|C - ref| > atol + rtol * |ref|`, evaluated in the tensors' own dtype (bf16: the difference and the tolerance
    are both rounded to 8 bits), or NaN, +inf, -inf in different places.
    """
    refused = torch.abs(c - ref) > atol + rtol * torch.abs(ref)
    for pattern in (torch.isnan, torch.isposinf, torch.isneginf):
        refused |= pattern(c) ^ pattern(ref)
    return refused


def check_output(c: torch.Tensor, ref: torch.Tensor, rtol: float = RTOL, atol: float = ATOL) -> OutputCheck:
    """Judge a result as the task does, and more strictly.

    Args:
        c: the result; the task demands [M, N], this check also bf16.
        ref: [M, N] bf16 from `reference_gemm`, on the same device.
        rtol, atol: the task's 1e-2 each.

    Returns:
        An `OutputCheck`; a wrong shape or dtype is a verdict, not an exception.
    """
    _require_tensor("ref", ref)
    no_result = ""
    if not isinstance(c, torch.Tensor):
        no_result = f"not a tensor but {type(c).__name__}"
    elif c.is_meta or c.layout != torch.strided or c.is_complex() or c.dtype == torch.bool:
        no_result = f"a {c.dtype} tensor ({c.layout}) on {c.device} where a dense {ref.dtype} tensor is expected"
    elif c.shape != ref.shape:
        no_result = f"shape {tuple(c.shape)} where {tuple(ref.shape)} is expected"
    if no_result:
        return OutputCheck(False, False, 0.0, math.nan, ref.numel(), None, no_result)
    refused = task_mismatches(c, ref, rtol, atol)
    mismatches = int(refused.sum())
    as_bf16 = c.to(torch.bfloat16)
    same = (as_bf16.view(torch.int16) == ref.view(torch.int16)) | (as_bf16.isnan() & ref.isnan())
    finite = c.isfinite() & ref.isfinite()
    error = (c.float() - ref.float()).abs()[finite]
    max_abs_err = float(error.max()) if error.numel() else math.nan
    identical = float(same.sum(dtype=torch.int64)) / max(1, ref.numel())
    first = tuple(int(i) for i in refused.nonzero()[0]) if mismatches else None
    parts = []
    if mismatches:
        parts.append(
            f"{mismatches} of {ref.numel()} elements outside |C - ref| <= {atol:g} + {rtol:g}*|ref|; first at {first}: "
            f"{c[first].item():g} where {ref[first].item():g} is expected"
        )
    if c.dtype != ref.dtype:
        parts.append(f"dtype {c.dtype} where {ref.dtype} is expected (the task itself does not check the dtype)")
    if not parts:
        parts.append(f"bf16 identical {100 * identical:.4g} %, max |C - ref| {max_abs_err:g}")
    passed = mismatches == 0 and c.dtype == ref.dtype
    return OutputCheck(passed, mismatches == 0, identical, max_abs_err, mismatches, first, "; ".join(parts))
