"""What stands in the padding of shuffled scales, and whether it reaches C: executed, not argued."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from mxfp4lab.aiter.install import AiterError
from mxfp4lab.formats import BLOCK, quantize_mxfp4
from mxfp4lab.layouts import e8m0_shuffle, e8m0_unshuffle, unshuffle_weight
from mxfp4lab.shapes import Shape
from mxfp4lab.task import INPUT_NAMES, check_output, generate_input, matmul_dequantized, reference_output

PADDINGS = ("0", "127", "random", "255 (NaN)")


@dataclass(frozen=True)
class PaddingResult:
    """A GEMM with some bytes in the padding of its scales.

    Attributes:
        kernel: whose, and how it was run.
        shape: the GEMM.
        padding: what the padding held.
        padded_bytes: how many bytes of A's and B's shuffled scales are padding.
        identical: share of C's bf16 equal to the reference.
        refused: outputs that the task refuses.
        outputs: of C.
        c: C itself, [M, N] bf16.
    """

    kernel: str
    shape: Shape
    padding: str
    padded_bytes: int
    identical: float
    refused: int
    outputs: int
    c: torch.Tensor = field(repr=False, compare=False)


def with_padding(scale: torch.Tensor, padding: str, seed: int = 0) -> torch.Tensor:
    """Shuffle scales [rows, K / 32] with the given bytes in the padding.

    Raises:
        ValueError: on a padding that is not in `PADDINGS`.
    """
    if padding not in PADDINGS:
        raise ValueError(f"padding={padding!r} must be one of {', '.join(PADDINGS)}")
    shuffled = e8m0_shuffle(scale, {"127": 127, "255 (NaN)": 255}.get(padding, 0))
    if padding == "random":
        noise = torch.randint(100, 150, shuffled.shape, generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
        is_padding = e8m0_shuffle(torch.zeros_like(scale), 1).bool()
        shuffled = torch.where(is_padding, noise, shuffled)
    return shuffled


def _inputs(shape: Shape, padding: str, seed: int) -> tuple[dict[str, torch.Tensor], torch.Tensor, int]:
    """Inputs of every plan, A's quantized form among them; C's reference; bytes of padding."""
    data = generate_input(shape, seed)
    a_q, a_scale = quantize_mxfp4(data[0])
    b_scale = e8m0_unshuffle(data[4], shape.n, shape.k // BLOCK)
    inputs = dict(zip(INPUT_NAMES, data, strict=True))
    inputs |= {
        "a_q": a_q,
        "a_scale_sh": with_padding(a_scale, padding, 1),
        "b_scale_sh": with_padding(b_scale, padding, 2),
    }
    padded = sum(inputs[n].numel() for n in ("a_scale_sh", "b_scale_sh")) - a_scale.numel() - b_scale.numel()
    return inputs, reference_output(data), padded


def pad_prebuilt(
    shape: Shape, padding: str, kernel: str = "32x128", install: Any = None, seed: int = 0
) -> PaddingResult:
    """aiter's prebuilt GEMM on the emulator, the scales of A and B padded with the given bytes.

    Raises:
        AiterError: without an aiter that has the kernel, or without the decoder of code objects.
    """
    inputs, reference, padded = _inputs(shape, padding, seed)
    name, done = _run_prebuilt(shape, inputs, kernel, install)
    return _judged(name, shape, padding, padded, done.c[: shape.m], reference)


@dataclass(frozen=True)
class ShortBuffer:
    """A GEMM whose A scales lie in a buffer of `given` bytes: what was read past its end, and what C is worth."""

    shape: Shape
    given: int
    reads_past_the_end: int
    first: str
    refused: int
    outputs: int


def short_scale_buffer(
    shape: Shape, given: int, kernel: str = "32x128", install: Any = None, seed: int = 0
) -> ShortBuffer:
    """aiter's prebuilt GEMM on the emulator, with only the first `given` bytes of A's shuffled scales allocated.

    Raises:
        AiterError: without an aiter that has the kernel, or without the decoder of code objects.
    """
    inputs, reference, _ = _inputs(shape, "0", seed)
    inputs["a_scale_sh"] = inputs["a_scale_sh"].flatten()[:given].clone()
    _, done = _run_prebuilt(shape, inputs, kernel, install)
    check = check_output(done.c[: shape.m], reference)
    first = str(done.findings[0]) if done.findings else ""
    return ShortBuffer(shape, given, len(done.findings), first, check.mismatches, reference.numel())


def _run_prebuilt(shape: Shape, inputs: dict[str, torch.Tensor], kernel: str, install: Any) -> tuple[str, Any]:
    from mxfp4lab.config import GemmConfig
    from mxfp4lab.emulate import emulate_plan
    from mxfp4lab.gfx950 import CompileError, compile_plan
    from mxfp4lab.plan import Buffer, Plan
    from mxfp4lab.plan.aiter_gemm import choose_gemm, gemm_launch, output_rows

    choice = choose_gemm(shape, kernel, install=install)
    names = ("a_q", "b_shuffle", "a_scale_sh", "b_scale_sh")
    buffers = tuple(Buffer(name, tuple(inputs[name].shape), "u8", "input") for name in names)
    c = Buffer("c", (output_rows(shape.m), shape.n), "bf16", "output")
    plan = Plan("prebuilt GEMM alone", GemmConfig(), shape, "gfx950", (*buffers, c), (gemm_launch(choice, shape),))
    try:
        compiled = compile_plan(plan)
    except CompileError as error:  # the decoder of code objects is an optional package
        raise AiterError(f"{choice.kernel.short_name} cannot be read here: {error}") from None
    done = emulate_plan(compiled, {name: inputs[name] for name in names}, on_out_of_bounds="record")
    return f"aiter's {choice.kernel.short_name}, emulated", done


def pad_model(shape: Shape, padding: str, step: int = 256, columns: int = 128, seed: int = 0) -> PaddingResult:
    """The same by arithmetic: a kernel that takes K in whole steps multiplies whatever follows each row by the padding.

    Past the end of a row of A lie the bytes of the next row; past a 16-row group of shuffled B those of the next group,
    up to the end of the workgroup's tile, where its buffer descriptor ends and loads give zero. Scale byte 0 means
    2^-127 and makes all of it vanish.

    Args:
        shape: the GEMM; N a multiple of `columns`.
        padding: one of `PADDINGS`.
        step: elements of K that the kernel takes at once.
        columns: of C per workgroup.
        seed: of the inputs.
    """
    inputs, reference, padded = _inputs(shape, padding, seed)
    k_bytes, whole = shape.k // 2, -(-shape.k // step) * step // 2
    a = _running_on(inputs["a_q"], 1, k_bytes, whole)
    tiles = inputs["b_shuffle"].split(columns)
    b = [unshuffle_weight(_running_on(t, 16, k_bytes, whole).reshape(-1, whole)) for t in tiles]
    a_scale, b_scale = (e8m0_unshuffle(inputs[n]) for n in ("a_scale_sh", "b_scale_sh"))
    c = matmul_dequantized(a, a_scale[: shape.m], torch.cat(b), b_scale[: shape.n])
    return _judged(f"whole steps of {step}, by arithmetic", shape, padding, padded, c, reference)


def _running_on(matrix: torch.Tensor, rows: int, k_bytes: int, whole: int) -> torch.Tensor:
    """Groups of `rows` rows, each read on to `rows * whole` bytes into what follows in memory."""
    flat = torch.nn.functional.pad(matrix.flatten(), (0, rows * (whole - k_bytes)))
    return flat.unfold(0, rows * whole, rows * k_bytes)


def pad_plan(variant: str, shape: Shape, padding: str, seed: int = 0) -> PaddingResult:
    """One of this project's variants on the emulator, B's scales padded with the given bytes."""
    from mxfp4lab.emulate import emulate_plan
    from mxfp4lab.plan import build_plan, default_config

    inputs, reference, padded = _inputs(shape, padding, seed)
    plan = build_plan(variant, default_config(variant, shape), shape)
    needed = {buffer.name for buffer in plan.buffers if buffer.role == "input"}
    done = emulate_plan(plan, {name: inputs[name] for name in needed})
    return _judged(f"{variant}, emulated", shape, padding, padded, done.c, reference)


def _judged(
    kernel: str, shape: Shape, padding: str, padded: int, c: torch.Tensor, reference: torch.Tensor
) -> PaddingResult:
    check = check_output(c, reference)
    return PaddingResult(
        kernel, shape, padding, padded, check.bf16_identical_fraction, check.mismatches, reference.numel(), c
    )
