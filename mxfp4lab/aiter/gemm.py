"""aiter's prebuilt GEMM, executed: the task's own oracle on a machine without its GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from mxfp4lab.aiter.install import find_aiter
from mxfp4lab.aiter.prebuilt import prebuilt_kernels
from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.gfx950 import Access, Compiled, RunResult, load_code_object, load_launch, run
from mxfp4lab.layouts import e8m0_shuffle
from mxfp4lab.plan.data import CodeObjectLaunch
from mxfp4lab.plan.prebuilt import build_gemm_stage
from mxfp4lab.shapes import Shape


@dataclass(frozen=True)
class GemmRun:
    """One execution of a prebuilt GEMM.

    Attributes:
        c: [M, N] bf16.
        output: [ceil32(M), N] bf16: rows past M hold what was there before.
        launch: what was launched.
        kernel: the decoded code object.
        result: counts of the run.
    """

    c: torch.Tensor
    output: torch.Tensor
    launch: CodeObjectLaunch
    kernel: Compiled
    result: RunResult


def run_prebuilt_gemm(
    a_q: torch.Tensor,
    a_scale_sh: torch.Tensor,
    b_shuffle: torch.Tensor,
    b_scale_sh: torch.Tensor,
    *,
    kernel: str | None = None,
    log2_k_split: int | None = None,
    before: float = 0.0,
    hooks: Sequence[Callable[[Access], None]] = (),
    on_out_of_bounds: str = "raise",
) -> GemmRun:
    """Emulate aiter's GEMM on quantized operands.

    Args:
        a_q: [M, K // 2] uint8; b_shuffle: [N, K // 2] uint8 in the (16, 16) shuffle.
        a_scale_sh, b_scale_sh: shuffled e8m0, rows padded to 256, columns to 8.
        kernel: a code object by name ("32x128"); without it the one for the shape.
        log2_k_split: with `kernel`: log2 of the shares of K.
        before: what the output buffer holds before the launch (a split adds to it).
        hooks: called with every memory access.
        on_out_of_bounds: "raise", or "record" in `result.findings` and go on.

    Raises:
        AiterError: no aiter, no such kernel, or a shape that it cannot do.
        EmulationError: the machine code did something wrong.
    """
    shape = Shape(a_q.shape[0], b_shuffle.shape[0], 2 * a_q.shape[1])
    plan = build_gemm_stage(shape, kernel, log2_k_split)
    (launch,) = plan.launches
    output = torch.full(plan.buffer("c").shape, before, dtype=torch.bfloat16)
    tensors = {"a_q": a_q.contiguous(), "a_scale_sh": a_scale_sh.contiguous(), "b_shuffle": b_shuffle.contiguous(),
               "b_scale_sh": b_scale_sh.contiguous(), "c": output}  # fmt: skip
    for name, tensor in tensors.items():
        expected = plan.buffer(name).nbytes
        if tensor.numel() * tensor.element_size() != expected:
            raise ValueError(f"{name}: {tuple(tensor.shape)} {tensor.dtype}; allowed: {expected} bytes for {shape}")
    compiled = load_launch(launch)
    values = [value for _, _, value in launch.args]
    result = run(
        compiled, launch.grid, *(tensors[v.buffer] if hasattr(v, "buffer") else v for v in values),
        layout=[(offset, size) for offset, size, _ in launch.args], block=launch.block,
        names=[v.buffer if hasattr(v, "buffer") else "" for v in values], hooks=hooks,
        on_out_of_bounds=on_out_of_bounds,
    )  # fmt: skip
    return GemmRun(output[: shape.m], output, launch, compiled, result)


def aiter_output(data: Sequence[torch.Tensor], *, rounding: str = "even", kernel: str | None = None) -> torch.Tensor:
    """The task's reference for its inputs, with aiter's own machine code as the GEMM.

    A is quantized by `formats.quantize_mxfp4` (proven equal to aiter's op for either rounding), shuffled with padding
    0, and multiplied by the emulated code object that `choose_gemm` takes.

    Args:
        data: (a, b, b_q, b_shuffle, b_scale_sh) as the task gives them.
        rounding: "even" (the task's aiter) or "half_away" (aiter before pull request 975).
        kernel: another code object by name.

    Returns:
        C [M, N] bf16.
    """
    a, _, _, b_shuffle, b_scale_sh = data
    a_q, a_scale = quantize_mxfp4(a.cpu(), rounding=rounding)
    b_bytes, scale_bytes = (tensor.cpu().contiguous().view(torch.uint8) for tensor in (b_shuffle, b_scale_sh))
    return run_prebuilt_gemm(a_q, e8m0_shuffle(a_scale), b_bytes, scale_bytes, kernel=kernel).c.to(a.device)


def require_prebuilt_gemm() -> str:
    """Make sure that `aiter_output` can work here; returns how to call it, in a line.

    Raises:
        AiterError: no aiter is installed, or it came without code objects.
        CompileError: they cannot be read (the decoder's package is missing).
    """
    install = find_aiter()
    load_code_object(prebuilt_kernels(install)[0].path)
    return f"aiter {install.version}'s prebuilt GEMM, emulated; A quantized with ties to even"
