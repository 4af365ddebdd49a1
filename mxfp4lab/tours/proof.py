"""Bit-exactness of conversions: what is swept, who answers, and where any two of them differ.

A sweep is a set of blocks of 32 in which one anchor fixes the scale and the other elements are the values under test.
An answerer (`answerers`) turns blocks into packed bytes and scale bytes. Every pair of answers is compared byte by
byte, and differences keep their place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from mxfp4lab.formats import BLOCK, E8M0_BIAS
from mxfp4lab.paths import data_path

Answer = tuple[np.ndarray, np.ndarray]  # packed [rows, 16] uint8, scale [rows] uint8
Answerer = Callable[[torch.Tensor], Answer]

GOLDEN_FILE = "golden/golden_mxfp4_quant_op.npz"
GOLDEN_SETS = ("bf16_all_sorted", "extremes", "randn_bf16", "ties")
# Block exponents that the EVEN rule gives for bf16 blocks: 126 is skipped, because the carry at 1.75 * 2^127 makes an
# infinity, which clamps to 127.
REACHABLE_EXPONENTS = tuple(e for e in range(-127, 128) if e != 126)


@dataclass(frozen=True)
class Sweep:
    """Blocks to convert.

    Attributes:
        name: shown in tables.
        x: [rows, 32] float32 or bfloat16; column 0 is the anchor.
        elements: values under test, without anchors and filling.
    """

    name: str
    x: torch.Tensor
    elements: int


def _floats(bits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(bits, dtype=np.uint32).view(np.float32))


def _bf16(bits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(bits, dtype=np.uint16).view(np.int16)).view(torch.bfloat16)


def _blocks(values: np.ndarray, anchor: int) -> np.ndarray:
    """Bits of values, 31 a row behind the anchor; the last row is filled up with the anchor."""
    rows = -(-values.size // (BLOCK - 1))
    grid = np.full((rows, BLOCK), anchor, dtype=values.dtype)
    filled = np.full(rows * (BLOCK - 1), anchor, dtype=values.dtype)
    filled[: values.size] = values
    grid[:, 1:] = filled.reshape(rows, BLOCK - 1)
    return grid


def bf16_anchor(exponent: int) -> int:
    """Bits of the largest bf16 whose block exponent is `exponent`.

    Raises:
        ValueError: if no bf16 block has that exponent.
    """
    if exponent not in REACHABLE_EXPONENTS:
        raise ValueError(f"exponent={exponent} is the shared exponent of no bf16 block; reachable: -127..125 and 127")
    return 0x7F7F if exponent == 127 else ((exponent + 2 + E8M0_BIAS) << 7) | 0x5F


def bf16_sweep(exponents: Sequence[int] = REACHABLE_EXPONENTS) -> Sweep:
    """Every finite bf16 value, both signs, under every block exponent that a block holding it can have.

    Args:
        exponents: which block exponents.
    """
    parts, elements = [], 0
    for exponent in exponents:
        anchor = bf16_anchor(exponent)
        magnitude = np.arange(anchor + 1, dtype=np.uint16)
        values = np.concatenate((magnitude, magnitude | 0x8000)).astype(np.uint16)
        elements += values.size
        parts.append(_blocks(values, anchor))
    return Sweep("every bf16, every block exponent", _bf16(np.concatenate(parts)), elements)


def binade_sweep(exponent: int, binade: int, step: int = 1) -> Sweep:
    """All 2^23 float32 mantissas of one binade, both signs, under one block exponent.

    Args:
        exponent: shared exponent e of the blocks, -127..125.
        binade: the values are 2^(e + binade) .. 2^(e + binade + 1); 2 is the highest a block can hold.
        step: take every step-th mantissa; an odd step visits all low-order bit patterns.

    Raises:
        ValueError: if the values or the anchor are no normal float32.
    """
    field_ = exponent + binade + E8M0_BIAS
    if not -127 <= exponent <= 125 or not 0 < field_ < 255 or binade > 2:
        raise ValueError(f"exponent={exponent}, binade={binade}: need -127 <= e <= 125, binade <= 2, normal values")
    mantissa = np.arange(0, 1 << 23, step, dtype=np.uint32)
    anchor = ((exponent + 2 + E8M0_BIAS) << 23) | 0x5FFFFF  # just below 1.75 * 2^(e + 2)
    if binade == 2:  # values above the anchor would raise the block's own exponent
        mantissa = mantissa[mantissa <= 0x5FFFFF]
    values = mantissa | np.uint32(field_ << 23)
    values = np.concatenate((values, values | np.uint32(0x80000000)))
    name = f"float32 binade 2^{exponent + binade}, block exponent {exponent}"
    return Sweep(name, _floats(_blocks(values, anchor)), values.size)


def golden_sweep(portable_only: bool = True) -> tuple[Sweep, dict[str, Answer]]:
    """The golden rows, and what aiter's op answered to them before and since PR 975.

    Args:
        portable_only: leave out the rows on which platforms differ; rows with NaN or infinity are always left out.
    """
    archive = np.load(data_path(GOLDEN_FILE), allow_pickle=False)
    keep = {}
    for s in GOLDEN_SETS:
        finite = np.isfinite(archive[f"{s}.x_bits"].view(np.float32)).all(axis=1)
        keep[s] = finite & archive[f"{s}.portable"] if portable_only else finite

    def joined(key: str) -> np.ndarray:
        return np.concatenate([archive[f"{s}.{key}"][keep[s]] for s in GOLDEN_SETS])

    x = _floats(joined("x_bits"))
    scale = joined("scale")
    answers = {
        "golden, since PR 975": (joined("packed_post975"), scale),
        "golden, before PR 975": (joined("packed_pre975"), scale),
    }
    return Sweep("golden rows, portable" if portable_only else "golden rows, all finite", x, x.numel()), answers


# ---- comparison -----------------------------------------------------------------------------------------------------


@dataclass
class Difference:
    """Two answerers over one sweep.

    Attributes:
        left, right, sweep: names.
        elements: values compared (every nibble of every block).
        packed_bytes: how many packed bytes differ.
        scale_bytes: how many scale bytes differ.
        on_ties: differing nibbles, one step apart, whose value lies exactly between two e2m1 values.
        at_the_top: other differing nibbles of at least a quarter of the scale in blocks of scale byte 254, whose
            multiplier 2^-127 is subnormal and is flushed to zero on some devices.
        elsewhere: all other differing nibbles.
        elsewhere_scaled: smallest and largest |x| / 2^e among those (NaN where there are none).
        amax: smallest and largest magnitude of the blocks in which anything differs; NaN where nothing does.
        example: one differing element in words, or "".
    """

    left: str
    right: str
    sweep: str
    elements: int = 0
    packed_bytes: int = 0
    scale_bytes: int = 0
    on_ties: int = 0
    at_the_top: int = 0
    elsewhere: int = 0
    elsewhere_scaled: tuple[float, float] = (math.nan, math.nan)
    amax: tuple[float, float] = (math.nan, math.nan)
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
            low, high = self.elsewhere_scaled
            words.append(f"{self.elsewhere} where |x| / 2^e is {low:.3g} .. {high:.3g}")
        if self.scale_bytes:
            words.append(f"{self.scale_bytes} scale bytes")
        return ", ".join(words) or "nowhere"


@dataclass
class Comparison:
    """All pairs of a set of answerers over one sweep, and what each of them cost."""

    sweep: str
    differences: list[Difference] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

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

    def between(self, left: str, right: str) -> Difference:
        """The difference of two answerers, in either order.

        Raises:
            ValueError: if the pair was not compared.
        """
        for difference in self.differences:
            if {difference.left, difference.right} == {left, right}:
                return difference
        raise ValueError(f"left={left!r}, right={right!r} were not compared on {self.sweep}")


def what_holds(bf16: Comparison, f32: Sequence[Comparison], golden: Comparison) -> list[tuple[str, int, bool]]:
    """(statement, values it was put to, whether it holds): what the sweeps together prove.

    Args:
        bf16: of every finite bf16 value, with all four converts.
        f32: of float32 binades.
        golden: of the golden rows, with the recorded answers.
    """
    ours = [bf16.between("torch", name) for name in ("sw_aiter", "sw_bits", "hw_f32", "hw_bf16")]
    wide = [sweep.between("torch", name) for sweep in (bf16, *f32, golden) for name in ("sw_aiter", "hw_f32")]
    values = sum(d.elements for d in wide) // 2  # of each of the two
    since = golden.between("torch", "golden, since PR 975")
    return [
        ("all four converts = torch, on every bf16", ours[0].elements, all(d.identical for d in ours)),
        ("sw_aiter = hw_f32 = torch, on every sweep", values, all(d.identical for d in wide)),
        ("torch = aiter's op since PR 975, on golden rows", since.elements, since.identical),
    ]


def compare(
    sweep: Sweep,
    answerers: dict[str, Answerer | Answer],
    chunk_rows: int = 1 << 16,
    on_chunk: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """Put one sweep to every answerer and compare every pair.

    Args:
        sweep: from `bf16_sweep`, `binade_sweep` or `golden_sweep`.
        answerers: name -> function, or a fixed answer to the whole sweep (golden vectors).
        chunk_rows: blocks handled at once; bounds memory.
        on_chunk: told (sweep, rows done, rows) after every chunk.

    Returns:
        The comparison.

    Raises:
        ValueError: if an answer has the wrong shape.
    """
    names = list(answerers)
    result = Comparison(sweep.name, seconds=dict.fromkeys(names, 0.0))
    pairs = {(a, b): Difference(a, b, sweep.name) for i, a in enumerate(names) for b in names[i + 1 :]}
    rows = sweep.x.shape[0]
    for part in _parts(rows, chunk_rows):
        x = sweep.x[part]
        answers = {}
        for name, answerer in answerers.items():
            started = time.perf_counter()
            answers[name] = answerer(x) if callable(answerer) else tuple(a[part] for a in answerer)
            result.seconds[name] += time.perf_counter() - started
            packed, scale = answers[name]
            if packed.shape != (x.shape[0], BLOCK // 2) or scale.shape != (x.shape[0],):
                raise ValueError(f"answerer {name!r} gave shapes {packed.shape}, {scale.shape} for {tuple(x.shape)}")
        for (a, b), difference in pairs.items():
            _accumulate(difference, x, answers[a], answers[b])
        if on_chunk:
            on_chunk(sweep.name, min(part.stop, rows), rows)
    result.differences = list(pairs.values())
    return result


def _parts(rows: int, step: int) -> Iterator[slice]:
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _accumulate(difference: Difference, x: torch.Tensor, left: Answer, right: Answer) -> None:
    difference.elements += x.numel()
    packed = left[0] != right[0]
    scale = left[1] != right[1]
    if not packed.any() and not scale.any():
        return
    difference.packed_bytes += int(packed.sum())
    difference.scale_bytes += int(scale.sum())
    rows = packed.any(axis=1) | scale
    values = x[torch.from_numpy(rows)].double()
    difference.amax = _widened(difference.amax, values.abs().amax(dim=1))
    exponent = torch.from_numpy(left[1][rows].astype(np.float64)) - E8M0_BIAS
    magnitude = values.abs() * torch.exp2(-exponent)[:, None]
    codes_left, codes_right = (torch.from_numpy(_nibbles(a[0][rows]).astype(np.int8)) for a in (left, right))
    differ = codes_left != codes_right
    midpoints = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=torch.float64)
    tie = torch.isin(magnitude, midpoints) & ((codes_left - codes_right).abs() == 1)
    top = torch.from_numpy(left[1][rows] == 254)[:, None] & (magnitude >= 0.25)
    other = differ & ~tie & ~top
    difference.on_ties += int((differ & tie).sum())
    difference.at_the_top += int((differ & ~tie & top).sum())
    difference.elsewhere += int(other.sum())
    difference.elsewhere_scaled = _widened(difference.elsewhere_scaled, magnitude[other])
    if not difference.example:
        if bool(differ.any()):
            r, c = (int(i) for i in differ.nonzero()[0])
            codes = int(codes_left[r, c]), int(codes_right[r, c])
            x_text, scaled = f"{float(values[r, c]):.9g}", f"{float(magnitude[r, c]):.6g}"
            difference.example = f"x = {x_text} (x / scale = {scaled}): nibble {codes[0]} / {codes[1]}"
        else:
            r = int(np.flatnonzero(scale)[0])
            difference.example = f"block maximum {float(x[r].abs().max()):.9g}: scale byte {left[1][r]} / {right[1][r]}"


def _widened(bounds: tuple[float, float], values: torch.Tensor) -> tuple[float, float]:
    """The interval that also holds `values`; (NaN, NaN) is the empty one."""
    if not values.numel():
        return bounds
    low, high = float(values.min()), float(values.max())
    return (low, high) if math.isnan(bounds[0]) else (min(bounds[0], low), max(bounds[1], high))


def _nibbles(packed: np.ndarray) -> np.ndarray:
    return np.stack((packed & 15, packed >> 4), axis=-1).reshape(packed.shape[0], -1)
