"""What aiter's GEMM does with the padding of shuffled scales: which instruction reads it, and when it reaches C.

The kernels walk K in steps of 256, eight scale columns at a time. Where K / 32 is no multiple of 8 (K = 1664: 52
columns padded to 56) the last step multiplies what lies behind a row of A and B by the padded scales of both. Padding
0 decodes to 2^-127 twice, far below any sum; 127 (1.0) or what memory happens to hold ruins C. That is what users
reported (aiter issues 4176 and 2900, Primus-Turbo issue 383). Padded rows are read too, and never reach C: a row of A
only enters its own row of C, and rows past M are not stored.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch

from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.gfx950.memory import Access
from mxfp4lab.layouts import e8m0_position, e8m0_shuffle, e8m0_unshuffle
from mxfp4lab.oracle.gemm import GemmRun, run_prebuilt_gemm
from mxfp4lab.problem import OutputCheck, check_output, generate_input, reference_output
from mxfp4lab.shapes import Shape

RANDOM = "random"


@dataclass(frozen=True)
class PaddingRead:
    """An instruction that reads padded scales.

    Attributes:
        instruction: its position in the program.
        text: as the assembler writes it.
        buffer: "a_scale_sh" or "b_scale_sh".
        columns: bytes read from padded columns (k >= K).
        rows: bytes read from padded rows (row >= M or N) of true columns.
    """

    instruction: int
    text: str
    buffer: str
    columns: int
    rows: int


@dataclass(frozen=True)
class PaddingTrial:
    """C with one padding, beside C with padding 0.

    Attributes:
        a_pad, b_pad: the padding's bytes ("random" for what memory happens to hold).
        check: against the reference.
        nan_fraction: share of C that is NaN.
    """

    shape: Shape
    a_pad: int | str
    b_pad: int | str
    check: OutputCheck
    nan_fraction: float


def padding_reads(shape: Shape, kernel: str = "32x128", seed: int = 0) -> list[PaddingRead]:
    """Every instruction of a prebuilt GEMM that reads padded scales of A or B, in program order."""
    touched: dict[tuple[int, str], set[int]] = defaultdict(set)

    def note(access: Access) -> None:
        if access.space != "global" or access.buffer is None or not access.buffer.name.endswith("_scale_sh"):
            return
        offsets = access.offsets if access.mask is None else access.offsets[access.mask]
        place = touched[access.instruction.index, access.buffer.name]
        for byte in range(access.nbytes):
            place.update((np.unique(offsets) + byte).tolist())

    done = _run(shape, kernel, 0, 0, seed, hooks=(note,))
    columns, padded = shape.k // 32, -(-(shape.k // 32) // 8) * 8
    found = []
    for (index, buffer), offsets in sorted(touched.items()):
        rows = shape.m if buffer == "a_scale_sh" else shape.n
        places = [e8m0_position(offset, padded) for offset in offsets]
        in_columns = sum(column >= columns for _, column in places)
        in_rows = sum(row >= rows and column < columns for row, column in places)
        if in_columns or in_rows:
            found.append(PaddingRead(index, done.kernel.program[index].text, buffer, in_columns, in_rows))
    return found


def padding_trial(
    shape: Shape, a_pad: int | str, b_pad: int | str, *, rows_only: bool = False, kernel: str = "32x128", seed: int = 0
) -> PaddingTrial:
    """Run a prebuilt GEMM with the padding of A's and B's scales set to a byte.

    Args:
        shape: the GEMM.
        a_pad, b_pad: a byte, or "random" (bytes 0 to 254, seeded).
        rows_only: set only padded rows; padded columns stay 0.
        kernel, seed: which code object, which inputs.
    """
    done = _run(shape, kernel, a_pad, b_pad, seed, rows_only=rows_only)
    check = check_output(done.c, reference_output(generate_input(shape, seed)))
    return PaddingTrial(shape, a_pad, b_pad, check, done.c.isnan().float().mean().item())


def _run(
    shape: Shape,
    kernel: str,
    a_pad: int | str,
    b_pad: int | str,
    seed: int,
    *,
    rows_only: bool = False,
    hooks: tuple = (),
) -> GemmRun:
    a, _, _, b_shuffle, b_scale_sh = generate_input(shape, seed)
    a_q, a_scale = quantize_mxfp4(a)
    b_scale = e8m0_unshuffle(b_scale_sh)[: shape.n, : shape.k // 32].contiguous()
    scales = [padded_scales(scale, pad, rows_only) for scale, pad in ((a_scale, a_pad), (b_scale, b_pad))]
    return run_prebuilt_gemm(a_q, scales[0], b_shuffle, scales[1], kernel=kernel, hooks=hooks)


def padded_scales(scale: torch.Tensor, pad: int | str, rows_only: bool = False) -> torch.Tensor:
    """Shuffle [rows, K // 32] e8m0 with a chosen padding: a byte, or "random" for seeded bytes 0 to 254."""
    rows, columns = scale.shape
    whole = torch.zeros(-(-rows // 256) * 256, -(-columns // 8) * 8, dtype=torch.uint8)
    if pad == RANDOM:
        whole = torch.randint(0, 255, whole.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    else:
        whole[...] = pad
    if rows_only:
        whole[:, columns:] = 0
    whole[:rows, :columns] = scale
    return e8m0_shuffle(whole)
