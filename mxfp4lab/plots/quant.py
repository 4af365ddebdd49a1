"""Pictures of the conversion to MXFP4. Each function draws into an Axes and returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from mxfp4lab.exactness import FP32_BITS
from mxfp4lab.formats import E2M1_VALUES, SCALE_MODES, block_exponent, decode_e2m1, encode_e2m1
from mxfp4lab.plots.style import HUES
from mxfp4lab.tours.steps import ElementStep

BLUE, ORANGE, GREEN, GREY = HUES["blue"], HUES["vermilion"], HUES["green"], "0.45"
MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


def staircase(ax: Axes) -> Axes:
    """What e2m1 makes of a scaled magnitude, and the seven midpoints on which the two roundings part."""
    x = torch.linspace(0, 7.2, 7201)
    ax.plot(x, decode_e2m1(encode_e2m1(x)), color=BLUE, linewidth=2, label="e2m1, nearest")
    ax.plot(x, x, color=GREY, linewidth=0.8, linestyle=":", label="exact")
    for rounding, marker, colour, label in (
        ("even", "o", BLUE, "tie, to even (since PR 975)"),
        ("half_away", "^", ORANGE, "tie, away from zero (before)"),
    ):
        values = decode_e2m1(encode_e2m1(torch.tensor(MIDPOINTS), rounding))
        ax.plot(MIDPOINTS, values, marker, color=colour, markersize=7 if marker == "o" else 9, label=label,
                fillstyle="full" if marker == "o" else "none", markeredgewidth=1.6)  # fmt: skip
    ax.set(xlabel="|x| / 2^e", ylabel="e2m1 value", xticks=range(8), yticks=E2M1_VALUES)
    ax.legend(frameon=False, fontsize=8)
    return ax


def block_picture(ax: Axes, steps: Sequence[ElementStep]) -> Axes:
    """One block: each scaled magnitude against the e2m1 grid, ties marked with both outcomes."""
    for value in (0, 0.5, 1, 1.5, 2, 3, 4, 6):
        ax.axhline(value, color="0.85", linewidth=0.8, zorder=0)
    for step in steps:
        new, old = (E2M1_VALUES[nibble & 7] for nibble in (step.nibble, step.old_nibble))
        ax.plot([step.k, step.k], [step.scaled, new], color=GREY, linewidth=1, zorder=1)
        ax.plot(step.k, new, "s", color=BLUE, markersize=5, zorder=2)
        ax.plot(step.k, step.scaled, "_", color="black", markersize=9, markeredgewidth=1.8, zorder=3)
        if old != new:
            ax.plot(step.k, old, "^", color=ORANGE, markersize=8, fillstyle="none", markeredgewidth=1.6, zorder=3)
            ax.annotate(f"k = {step.k}: tie", (step.k, old), textcoords="offset points", xytext=(8, 5), fontsize=8)
    handles = [
        ax.plot([], [], "_", color="black", markersize=9, markeredgewidth=1.8)[0],
        ax.plot([], [], "s", color=BLUE, markersize=5)[0],
        ax.plot([], [], "^", color=ORANGE, markersize=8, fillstyle="none", markeredgewidth=1.6)[0],
    ]
    ax.legend(handles, ["|x| / 2^e", "nearest even", "before PR 975, where it differs"], frameon=False, fontsize=8,
              ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))  # fmt: skip
    ax.set(xlabel="element k of the block", ylabel="magnitude in units of the scale", yticks=E2M1_VALUES)
    ax.grid(visible=False)
    return ax


def scale_modes(ax: Axes, low: float = 0.9, high: float = 9.0) -> Axes:
    """Scale byte as a function of the block's maximum, one step line per mode."""
    amax = torch.logspace(np.log2(low), np.log2(high), 4000, base=2)
    for i, (mode, style, colour) in enumerate(
        zip(SCALE_MODES, ("-", "--", "-.", ":"), (BLUE, ORANGE, GREEN, "black"), strict=True)
    ):
        byte = block_exponent(amax, mode) + 127
        ax.plot(amax, byte + (i - 1.5) * 0.05, style, color=colour, linewidth=2, label=mode)
    ax.set_xscale("log", base=2)
    ticks = [1, 1.5, 2, 3, 4, 6, 8]
    ax.set(xticks=ticks, xlabel="largest magnitude of the block", ylabel="scale byte")
    ax.set_xticklabels([f"{t:g}" for t in ticks])
    ax.legend(frameon=False, fontsize=8, title="scale_mode", title_fontsize=8)
    return ax


def difference_matrix(ax: Axes, names: Sequence[str], differing: Mapping[tuple[str, str], int | None]) -> Axes:
    """Packed bytes on which any two answerers differ; a pair that was not compared stays blank.

    Args:
        ax: where to draw.
        names: order of rows and columns.
        differing: (left, right) -> differing bytes, or None.
    """
    n = len(names)
    grid = np.full((n, n), np.nan)
    for (left, right), count in differing.items():
        if count is not None and left in names and right in names:
            i, j = sorted((names.index(left), names.index(right)), reverse=True)
            grid[i, j] = count
    shown = np.where(grid > 0, grid, np.nan)
    top = max(1e4, np.nanmax(shown)) if np.isfinite(shown).any() else 1e4
    ax.imshow(shown, cmap="cividis_r", norm=LogNorm(1, top), aspect="auto")
    for i in range(n):
        for j in range(n):
            if np.isfinite(grid[i, j]):
                count = int(grid[i, j])
                dark = count > 0 and np.log(count) > 0.6 * np.log(top)
                ax.text(j, i, "=" if count == 0 else f"{count:,}", ha="center", va="center",
                        fontsize=11 if count == 0 else 8, color="white" if dark else "black")  # fmt: skip
            elif i > j:
                ax.text(j, i, "·", ha="center", va="center", color="0.6")
    ax.set_xticks(range(n - 1), names[:-1], rotation=35, ha="right")
    ax.set_yticks(range(1, n), names[1:])
    ax.set_xlim(-0.5, n - 1.5)
    ax.set_ylim(n - 0.5, 0.5)
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
    ax.tick_params(length=0)
    return ax


def sum_bits_bars(ax: Axes, labels: Sequence[str], bits: Sequence[float]) -> Axes:
    """Bits that each shape's sums need, beside the 24 that an fp32 accumulator has."""
    position = np.arange(len(labels))
    colours = [BLUE if b <= FP32_BITS else ORANGE for b in bits]
    hatches = ["" if b <= FP32_BITS else "///" for b in bits]
    for y, b, colour, hatch in zip(position, bits, colours, hatches, strict=True):
        ax.barh(y, b, color=colour, hatch=hatch, edgecolor="white")
        ax.text(b, y, f" {b:.1f}", va="center", fontsize=8)
    ax.axvline(FP32_BITS, color="black", linewidth=1.5)
    ax.text(FP32_BITS + 0.3, -0.45, "24 bits: fp32", ha="left", va="bottom", fontsize=8)
    ax.set(yticks=position, yticklabels=labels, xlabel="bits of the largest sum over its granularity",
           xlim=(0, max([*bits, FP32_BITS]) * 1.1))  # fmt: skip
    ax.invert_yaxis()
    return ax


def tie_cost(ax: Axes, labels: Sequence[str], refused: Sequence[int], total: int) -> Axes:
    """Outputs that the task refuses when some elements of A are rounded the other way (log scale).

    Args:
        ax: where to draw.
        labels: what was changed.
        refused: outputs outside the tolerance.
        total: outputs of C.
    """
    position = np.arange(len(labels))
    ax.bar(position, [max(r, 0.5) for r in refused], color=ORANGE, edgecolor="white")
    for x, r in enumerate(refused):
        if r == 0:
            ax.text(x, 0.7, "0: accepted", ha="center", va="bottom", fontsize=8)
        else:
            ax.text(x, r / 1.3, f"{r:,}\n{100 * r / total:.2g} %", ha="center", va="top", fontsize=8, color="white")
    ax.axhline(total, color=GREY, linewidth=1, linestyle="--")
    ax.text(-0.45, total * 1.1, f"all {total:,} outputs", ha="left", va="bottom", fontsize=8, color="0.25")
    ax.set_yscale("log")
    ax.set(xticks=position, xticklabels=labels, ylabel="outputs outside the tolerance", ylim=(0.5, total * 4))
    return ax
