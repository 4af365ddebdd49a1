"""Bit-exactness of conversions to MXFP4: what is swept, who answers, and where any two of them differ.

A sweep is a set of blocks of 32 in which one anchor fixes the scale and the other elements are the values under test.
Every answerer (`quantizers`) gets the same blocks, and every pair of answers is compared byte by byte.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from mxfp4lab import display
from mxfp4lab.formats import BLOCK, E8M0_BIAS, unpack_fp4
from mxfp4lab.paths import data_path
from mxfp4lab.quantizers import Answer, Answerer, everybody

Watcher = Callable[[str, int, int], None]  # sweep, rows done, rows

GOLDEN_SETS = ("bf16_all_sorted", "extremes", "randn_bf16", "ties")
MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
# Block exponents that the EVEN rule gives for bf16 blocks: 126 is skipped, because the carry at 1.75 * 2^127 makes an
# infinity, which clamps to 127.
REACHABLE_EXPONENTS = tuple(e for e in range(-127, 128) if e != 126)
SOME_EXPONENTS = (-127, -126, -1, 0, 125, 127)
BINADES = ((-118, 0), (0, 1), (120, -1))  # (block exponent, binade of the values relative to it): low, middle, high


@dataclass(frozen=True)
class Sweep:
    """Blocks to convert: x [rows, 32] float32 or bfloat16; `elements` counts values without anchors and filling."""

    name: str
    x: torch.Tensor
    elements: int


def _blocks(values: np.ndarray, anchor: int) -> np.ndarray:
    """Bits of values, 31 a row behind the anchor; the last row is filled up with the anchor."""
    rows = -(-values.size // (BLOCK - 1))
    grid = np.full((rows, BLOCK), anchor, dtype=values.dtype)
    filled = np.full(rows * (BLOCK - 1), anchor, dtype=values.dtype)
    filled[: values.size] = values
    grid[:, 1:] = filled.reshape(rows, BLOCK - 1)
    return grid


def bf16_anchor(exponent: int) -> int:
    """Bits of the largest bf16 whose block exponent is `exponent`; ValueError if no bf16 block has that exponent."""
    if exponent not in REACHABLE_EXPONENTS:
        raise ValueError(f"exponent={exponent} is the shared exponent of no bf16 block; reachable: -127..125 and 127")
    return 0x7F7F if exponent == 127 else ((exponent + 2 + E8M0_BIAS) << 7) | 0x5F


def bf16_sweep(exponents: Sequence[int] = REACHABLE_EXPONENTS) -> Sweep:
    """Every finite bf16 value, both signs, under every block exponent that a block holding it can have."""
    parts, elements = [], 0
    for exponent in exponents:
        anchor = bf16_anchor(exponent)
        magnitude = np.arange(anchor + 1, dtype=np.uint16)
        values = np.concatenate((magnitude, magnitude | np.uint16(0x8000)))
        elements += values.size
        parts.append(_blocks(values, anchor))
    bits = torch.from_numpy(np.concatenate(parts).view(np.int16))
    return Sweep("every bf16, every block exponent", bits.view(torch.bfloat16), elements)


def binade_sweep(exponent: int, binade: int, step: int = 1) -> Sweep:
    """All 2^23 float32 mantissas of one binade, both signs, under one block exponent.

    Args:
        exponent: shared exponent e of the blocks, -127..125.
        binade: the values are 2^(e + binade) .. 2^(e + binade + 1); 2 is the highest a block can hold.
        step: take every step-th mantissa; an odd step visits all low-order bit patterns.

    Raises:
        ValueError: if the values or the anchor are no normal float32.
    """
    value_field = exponent + binade + E8M0_BIAS
    if not -127 <= exponent <= 125 or not 0 < value_field < 255 or binade > 2:
        raise ValueError(f"exponent={exponent}, binade={binade}: need -127 <= e <= 125, binade <= 2, normal values")
    mantissa = np.arange(0, 1 << 23, step, dtype=np.uint32)
    anchor = ((exponent + 2 + E8M0_BIAS) << 23) | 0x5FFFFF  # just below 1.75 * 2^(e + 2)
    if binade == 2:  # values above the anchor would raise the block's own exponent
        mantissa = mantissa[mantissa <= 0x5FFFFF]
    values = mantissa | np.uint32(value_field << 23)
    values = np.concatenate((values, values | np.uint32(0x80000000)))
    x = torch.from_numpy(_blocks(values, anchor).view(np.float32))
    return Sweep(f"float32 binade 2^{exponent + binade}, block exponent {exponent}", x, values.size)


def golden_sweep(portable_only: bool = True) -> tuple[Sweep, dict[str, Answer]]:
    """The golden rows, and what aiter's op answered to them on a GPU, before and since PR 975.

    Args:
        portable_only: leave out the rows on which platforms differ; rows with NaN or infinity are always left out.
    """
    archive = np.load(data_path("golden/golden_mxfp4_quant_op.npz"), allow_pickle=False)
    keep = {}
    for name in GOLDEN_SETS:
        finite = np.isfinite(archive[f"{name}.x_bits"].view(np.float32)).all(axis=1)
        keep[name] = finite & archive[f"{name}.portable"] if portable_only else finite

    def joined(key: str) -> np.ndarray:
        return np.concatenate([archive[f"{name}.{key}"][keep[name]] for name in GOLDEN_SETS])

    x = torch.from_numpy(joined("x_bits").view(np.float32))
    answers = {f"golden {when} 975": (joined(f"packed_{key}975"), joined("scale"))
               for when, key in (("since", "post"), ("before", "pre"))}  # fmt: skip
    return Sweep("golden rows, portable" if portable_only else "golden rows, all finite", x, x.numel()), answers


@dataclass
class Difference:
    """Where two answers part, in bytes and in nibbles.

    A nibble that differs is counted `on_ties` (one step apart, |x| / 2^e exactly between two e2m1 values), or
    `at_the_top` (in a block of scale byte 254, whose multiplier 2^-127 is a denormal that exp2 flushes), or
    `elsewhere`, with the smallest and largest |x| / 2^e there (NaN where there are none).
    """

    packed_bytes: int = 0
    scale_bytes: int = 0
    on_ties: int = 0
    at_the_top: int = 0
    elsewhere: int = 0
    elsewhere_scaled: tuple[float, float] = (math.nan, math.nan)
    example: str = ""

    @property
    def identical(self) -> bool:
        return self.packed_bytes == 0 and self.scale_bytes == 0

    @property
    def where(self) -> str:
        """In words: nowhere, or how many nibbles on ties, at the top of the range, and elsewhere."""
        places = ((self.on_ties, "on ties"), (self.at_the_top, "in blocks of scale byte 254"))
        words = [f"{count} {place}" for count, place in places if count]
        if self.elsewhere:
            words.append("{} where |x| / 2^e is {:.3g} .. {:.3g}".format(self.elsewhere, *self.elsewhere_scaled))
        if self.scale_bytes:
            words.append(f"{self.scale_bytes} scale bytes")
        return ", ".join(words) or "nowhere"

    def add(self, x: torch.Tensor, left: Answer, right: Answer) -> None:
        """Count what differs on these blocks."""
        packed, scale = left[0] != right[0], left[1] != right[1]
        rows = torch.from_numpy(packed.any(axis=1) | scale)
        if not bool(rows.any()):
            return
        self.packed_bytes += int(packed.sum())
        self.scale_bytes += int(scale.sum())
        values = x[rows].double()
        scale_left, scale_right = (torch.from_numpy(side[1])[rows] for side in (left, right))
        one, other = (unpack_fp4(torch.from_numpy(side[0])[rows]).to(torch.int8) for side in (left, right))
        magnitude = values.abs() * torch.exp2(E8M0_BIAS - scale_left.double())[:, None]
        differ = one != other
        tie = differ & torch.isin(magnitude, torch.tensor(MIDPOINTS).double()) & ((one - other).abs() == 1)
        top = differ & ~tie & (scale_left == 254)[:, None] & (magnitude >= 0.25)
        rest = magnitude[differ & ~tie & ~top]
        self.on_ties += int(tie.sum())
        self.at_the_top += int(top.sum())
        self.elsewhere += rest.numel()
        if rest.numel():
            both = [v for v in (*self.elsewhere_scaled, float(rest.min()), float(rest.max())) if not math.isnan(v)]
            self.elsewhere_scaled = (min(both), max(both))
        if not self.example and bool(differ.any()):
            r, c = (int(i) for i in differ.nonzero()[0])
            value, scaled = f"{float(values[r, c]):.9g}", f"{float(magnitude[r, c]):.6g}"
            self.example = f"x = {value} (x / scale = {scaled}): nibble {int(one[r, c])} / {int(other[r, c])}"
        elif not self.example:
            amax, bytes_ = f"{float(values[0].abs().max()):.9g}", f"{int(scale_left[0])} / {int(scale_right[0])}"
            self.example = f"block maximum {amax}: scale byte {bytes_}"


@dataclass
class Comparison(display.Shown):
    """All pairs of a set of answerers over one sweep, and the seconds that each of them took."""

    sweep: str
    values: int
    seconds: dict[str, float]
    pairs: dict[tuple[str, str], Difference] = field(default_factory=dict)

    @property
    def bytes_off(self) -> dict[tuple[str, str], int]:
        """(left, right) to differing bytes, scales included: what `plots.difference_matrix` draws."""
        return {pair: found.packed_bytes + found.scale_bytes for pair, found in self.pairs.items()}

    def between(self, left: str, right: str) -> Difference:
        """The difference of two answerers, in either order; ValueError if the pair was not compared."""
        found = self.pairs.get((left, right)) or self.pairs.get((right, left))
        if found is None:
            raise ValueError(f"left={left!r}, right={right!r} were not compared on {self.sweep}")
        return found

    def groups(self) -> list[tuple[str, ...]]:
        """Answerers that gave the same bytes everywhere, in order of appearance."""
        found: list[list[str]] = []
        for name in self.seconds:
            for group in found:
                if self.between(group[0], name).identical:
                    group.append(name)
                    break
            else:
                found.append([name])
        return [tuple(group) for group in found]

    @property
    def title(self) -> str:  # type: ignore[override]
        return f"{self.sweep}: {self.values:,} values"

    def lines(self) -> list[Any]:
        groups = self.groups()
        found = [(other, self.between(groups[0][0], other[0])) for other in groups[1:]]
        rows = [[", ".join(names), d.packed_bytes, d.scale_bytes, d.where, d.example] for names, d in found]
        headers = ("another answer", "packed bytes", "scale bytes", "nibbles that differ", "for example")
        grid = display.Grid(headers, rows, f"Each against {groups[0][0]}.")
        return [("the same bytes everywhere", ", ".join(groups[0])), *([grid] if rows else [])]


def compare(
    sweep: Sweep, answerers: dict[str, Answerer | Answer], chunk_rows: int = 1 << 16, on_chunk: Watcher | None = None
) -> Comparison:
    """Put one sweep to every answerer and compare every pair.

    Args:
        sweep: from `bf16_sweep`, `binade_sweep` or `golden_sweep`.
        answerers: name -> function, or a fixed answer to the whole sweep (golden vectors).
        chunk_rows: blocks handled at once; bounds memory.
        on_chunk: told (sweep, rows done, rows) after every chunk.

    Raises:
        ValueError: if an answer has the wrong shape.
    """
    names, rows = list(answerers), sweep.x.shape[0]
    result = Comparison(sweep.name, sweep.x.numel(), dict.fromkeys(names, 0.0))
    result.pairs = {(a, b): Difference() for i, a in enumerate(names) for b in names[i + 1 :]}
    for start in range(0, rows, chunk_rows):
        part = slice(start, min(start + chunk_rows, rows))
        x, answers = sweep.x[part], {}
        for name, answerer in answerers.items():
            started = time.perf_counter()
            packed, scale = answerer(x) if callable(answerer) else (answerer[0][part], answerer[1][part])
            result.seconds[name] += time.perf_counter() - started
            if packed.shape != (x.shape[0], BLOCK // 2) or scale.shape != (x.shape[0],):
                raise ValueError(f"answerer {name!r} gave shapes {packed.shape}, {scale.shape} for {tuple(x.shape)}")
            answers[name] = packed, scale
        for (a, b), difference in result.pairs.items():
            difference.add(x, answers[a], answers[b])
        if on_chunk:
            on_chunk(sweep.name, part.stop, rows)
    return result


@dataclass
class Proof(display.Shown):
    """The sweeps together: every bf16, three float32 binades, the golden rows; and who could not answer, and why."""

    bf16: Comparison
    f32: list[Comparison]
    golden: Comparison
    missing: dict[str, str]
    title = "What the sweeps prove"

    def statements(self) -> dict[str, bool]:
        """What is claimed, and whether it holds on every value put to it."""
        same = {name: self.bf16.between("torch", name) for name in ("sw_bits", "hw_f32", "hw_bf16")}
        wide = [sweep.between("torch", "hw_f32") for sweep in (*self.f32, self.golden)]
        aiter = [sweep.between("torch", "sw_aiter") for sweep in (self.bf16, *self.f32, self.golden)]
        only_top = all(d.on_ties == d.elsewhere == d.scale_bytes == 0 for d in aiter)
        return {
            "torch = sw_bits = hw_f32 = hw_bf16 on every bf16": all(d.identical for d in same.values()),
            "torch = hw_f32 on the float32 binades and the golden rows": all(d.identical for d in wide),
            "torch = sw_aiter but for nibbles of blocks of scale byte 254": only_top,
            "torch = aiter's op since PR 975, on golden rows": self.golden.between(
                "torch", "golden since 975"
            ).identical,
        }

    def lines(self) -> list[Any]:
        said = [(what, display.badge("holds", "good") if holds else display.badge("does not hold", "bad"))
                for what, holds in self.statements().items()]  # fmt: skip
        return [*said, *((f"{name} took no part", why) for name, why in self.missing.items())]


def prove(install: Any = None, quick: bool = False, on_chunk: Watcher | None = None) -> Proof:
    """Every sweep put to everybody who can answer here.

    Args:
        install: an aiter, from `aiter.find_aiter`, or None.
        quick: six block exponents and every 4097th float32 mantissa.
        on_chunk: told (sweep, rows done, rows) now and then.
    """
    on_bf16, on_f32, missing = everybody(install)
    bf16 = compare(bf16_sweep(SOME_EXPONENTS if quick else REACHABLE_EXPONENTS), on_bf16, on_chunk=on_chunk)
    step = 4097 if quick else 1
    f32 = [compare(binade_sweep(exponent, binade, step), on_f32, on_chunk=on_chunk) for exponent, binade in BINADES]
    golden, recorded = golden_sweep()
    return Proof(bf16, f32, compare(golden, on_f32 | recorded), missing)
