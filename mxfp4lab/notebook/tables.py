"""The tables of notebooks 01 and 02: each function gives (headers, rows, caption) for `Findings.table`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from mxfp4lab.formats import SCALE_MODES, decode_e8m0, quantize_mxfp4
from mxfp4lab.task import OutputCheck
from mxfp4lab.tours.lanes import MFMA_FORMS, bytes_per_mfma, scale_uses
from mxfp4lab.tours.padding import PaddingResult
from mxfp4lab.tours.proof import Comparison, Difference
from mxfp4lab.tours.shuffle_tour import Agreement, TrapResult, small_m_trap
from mxfp4lab.tours.steps import ElementStep, ScaleStep

Table = tuple[Sequence[str], list[list[Any]], str]

# Float bits at the ends of the range, and what they are
ENDS = (
    ("zero", 0x00000000),
    ("smallest subnormal", 0x00000001),
    ("2^-127", 0x00400000),
    ("smallest normal", 0x00800000),
    ("one", 0x3F800000),
    ("last below the carry", 0x7F5F0000),
    ("first of byte 254", 0x7F600000),
    ("largest bf16", 0x7F7F0000),
)
SCALE_MODE_MAXIMA = (1.0, 1.5, 1.7421875, 1.75, 3.484375, 3.5, 6.0, 7.0)


def agreements(found: Iterable[Agreement]) -> Table:
    """How often two forms of one shuffle differ."""
    headers = ("layout", "shapes", "positions", "view / formula", "inverse / formula", "round trip")
    rows = [
        [a.layout, a.shapes, a.positions, a.view_against_formula, a.inverse_against_formula, a.round_trip]
        for a in found
    ]
    return headers, rows, "The last three columns count positions on which two forms differ."


def mfma_forms() -> Table:
    """What each form of the scaled MFMA makes of one 32 x 8 tile of scales."""
    headers = ("MFMA", "MFMAs per tile", "bytes of a dword one MFMA needs", "scales already in their lane", "of")
    rows = []
    for form in MFMA_FORMS:
        uses, drawn = scale_uses(form), bytes_per_mfma(form)
        rows.append([form, len(drawn), max(map(len, drawn.values())), sum(u.in_place for u in uses), len(uses)])
    return headers, rows, "One byte: a single op_sel serves all lanes. In their lane: no exchange between lanes."


def traps(results: Iterable[TrapResult]) -> Table:
    """C computed with scales read in some way."""
    headers = ("scales read with", "wrong scales", "of", "outputs refused", "of", "max |C - ref|")
    rows = [[t.what, t.wrong_scales, t.scales, t.refused, t.outputs, t.max_abs_err] for t in results]
    return headers, rows, ""


def paddings(results: Iterable[PaddingResult]) -> Table:
    """C under what stands in the padding."""
    headers = ("kernel", "shape", "padding", "bytes of it", "C identical (%)", "refused", "of")
    rows = [
        [r.kernel, str(r.shape), r.padding, r.padded_bytes, 100 * r.identical, r.refused, r.outputs] for r in results
    ]
    return headers, rows, ""


def small_m(operands: Iterable[tuple[int, int]]) -> Table:
    """Where the scales of a few rows lie."""
    headers = ("A", "bytes of scales", "last one lies at byte", "scales past the first M * K/32 bytes")
    rows = []
    for m, k in operands:
        used, end, past = small_m_trap(m, k)
        rows.append([f"{m}x{k}", used, end - 1, past])
    return headers, rows, ""


def scale_step(step: ScaleStep) -> Table:
    """The way to a block's scale byte."""
    headers = ("amax", "bits", "rounded bits", "e", "scale byte")
    row = [f"{step.amax:.4f}", f"{step.bits:#010x}", f"{step.rounded_bits:#010x}", step.exponent, step.byte]
    return headers, [row], ""


def element_steps(steps: Sequence[ElementStep], count: int = 8) -> Table:
    """The way to the nibbles of a block's first elements."""
    headers = ("k", "x", "|x| / 2^e", "between", "", "nibble", "before PR 975", "stands for")
    rows = [
        [e.k, f"{e.x:g}", f"{e.scaled:.6g}", f"{e.below:g} .. {e.above:g}", "tie" if e.tie else "", e.nibble,
         e.old_nibble, e.value]
        for e in steps[:count]
    ]  # fmt: skip
    return headers, rows, f"The first {min(count, len(steps))} of {len(steps)}."


def scale_modes(maxima: Sequence[float] = SCALE_MODE_MAXIMA) -> Table:
    """Scale byte of a block by its maximum and the mode."""
    blocks = torch.tensor(maxima)[:, None] * torch.eye(1, 32)
    columns = [quantize_mxfp4(blocks, scale_mode=mode)[1][:, 0].tolist() for mode in SCALE_MODES]
    rows = [[f"{a:g}", *(column[i] for column in columns)] for i, a in enumerate(maxima)]
    return ("amax", *SCALE_MODES), rows, "Scale byte by mode; the task uses even."


def range_ends() -> Table:
    """What blocks of one value become at the ends of the exponent range."""
    headers = ("every element is", "bits", "value", "scale byte", "nibble", "the scale means")
    rows = []
    for name, bits in ENDS:
        x = torch.tensor([bits], dtype=torch.int32).view(torch.float32)
        packed, scale = quantize_mxfp4(x.expand(32).contiguous())
        meaning = f"{float(decode_e8m0(scale)):.6g}"
        rows.append([name, f"{bits:#010x}", f"{float(x):.6g}", int(scale[0]), int(packed[0]) & 15, meaning])
    return headers, rows, "Byte 0 means 2^-127, not zero. Byte 253 does not occur: the carry at 1.75 * 2^127 gives 254."


def answers(comparisons: Iterable[Comparison]) -> Table:
    """Which answerers gave the same bytes everywhere."""
    rows = [
        [c.sweep, c.differences[0].elements if c.differences else 0, number, ", ".join(group)]
        for c in comparisons
        for number, group in enumerate(c.groups(), 1)
    ]
    return ("sweep", "values", "answer", "given by"), rows, "Everyone in one line gave the same bytes everywhere."


def differences(comparisons: Iterable[Comparison]) -> Table:
    """Where every other answer parts from the first one (the matrix shows the remaining pairs)."""
    headers = ("sweep", "answers of", "packed bytes", "scale bytes", "nibbles that differ", "for example")
    found: list[Difference] = []
    for c in comparisons:
        leaders = [group[0] for group in c.groups()]
        found += [c.between(leaders[0], other) for other in leaders[1:]]
    rows = [[d.sweep, f"{d.left} / {d.right}", d.packed_bytes, d.scale_bytes, d.where, d.example] for d in found]
    return headers, rows, "" if rows else "Nothing differs anywhere."


def checks(results: Mapping[str, OutputCheck]) -> Table:
    """C under several treatments of A, as the task judges it."""
    headers = ("A", "refused", "max |C - ref|", "accepted")
    return headers, [[n, r.mismatches, r.max_abs_err, "yes" if r.passed else "no"] for n, r in results.items()], ""
