"""Which instructions of aiter's GEMM read the padding of shuffled scales.

The kernels walk K in steps of 256, eight scale columns at a time. Where K / 32 is no multiple of 8 (K = 1664: 52
columns padded to 56) the last step multiplies what lies behind a row of A and B by the padded scales of both:
Notebook 01 shows what that does to C. Padded rows are read too, and never reach C: a row of A only
enters its own row of C, and rows past M are not stored.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from mxfp4lab.aiter.gemm import run_prebuilt_gemm
from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.gfx950 import Access
from mxfp4lab.layouts import e8m0_position, e8m0_shuffle
from mxfp4lab.shapes import Shape
from mxfp4lab.task import generate_input


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


def padding_reads(shape: Shape, kernel: str = "32x128", seed: int = 0) -> list[PaddingRead]:
    """Every instruction of a prebuilt GEMM that reads padded scales of A or B, in program order.

    Raises:
        AiterError: no aiter, no such kernel, or a shape that it cannot do.
    """
    touched: dict[tuple[int, str], set[int]] = defaultdict(set)

    def note(access: Access) -> None:
        if access.space != "global" or access.buffer is None or not access.buffer.name.endswith("_scale_sh"):
            return
        offsets = access.offsets if access.mask is None else access.offsets[access.mask]
        place = touched[access.instruction.index, access.buffer.name]
        for byte in range(access.nbytes):
            place.update((np.unique(offsets) + byte).tolist())

    a, _, _, b_shuffle, b_scale_sh = generate_input(shape, seed)
    a_q, a_scale = quantize_mxfp4(a)
    done = run_prebuilt_gemm(a_q, e8m0_shuffle(a_scale), b_shuffle, b_scale_sh, kernel=kernel, hooks=(note,))
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
