"""Figures of 03 and 06: what variants are made of, what each idea buys, where a wrong C is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import seaborn as sns
import torch
from matplotlib.axes import Axes

from mxfp4lab.plots.style import EVIDENCE_COLOURS, HUES, SMALL, variant_style

# Classes of instructions: hue and hatch, so that the stack reads in grey as well.
MIX_LOOK: dict[str, tuple[str, str]] = {
    "MFMA": (HUES["blue"], ""),
    "convert": (HUES["green"], "////"),
    "other VALU": (HUES["vermilion"], ""),
    "memory": (HUES["yellow"], ".."),
    "LDS": (HUES["sky"], "xx"),
    "scalar": ("#d9d9d9", ""),
}


def mix_bars(ax: Axes, labels: Sequence[str], mixes: Sequence[Mapping[str, float]]) -> Axes:
    """Dynamic instructions of one wave per MFMA, stacked by class; the number at the end is their sum.

    Args:
        ax: where to draw.
        labels: one per bar, first on top.
        mixes: class to instructions; must hold "MFMA".
    """
    left = np.zeros(len(labels))
    per = np.array([max(mix["MFMA"], 1) for mix in mixes])
    for name, (colour, hatch) in MIX_LOOK.items():
        width = np.array([mix[name] for mix in mixes]) / per
        bars = ax.barh(labels, width, left=left, color=colour, hatch=hatch, edgecolor="0.3", linewidth=0.4, label=name)
        left += width
    ax.bar_label(bars, [f"{total:.0f}" for total in left], padding=3, fontsize=SMALL)
    ax.set(xlabel="instructions of one wave per MFMA (emulated counts)")
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.legend(ncols=len(MIX_LOOK), loc="lower center", bbox_to_anchor=(0.4, 1.0), columnspacing=1.0, handlelength=1.4)
    return ax


def times_by_shape(
    ax: Axes, predicted: Mapping[str, Mapping[str, float]], published: Mapping[str, float], floor_us: float
) -> Axes:
    """Modelled time of every variant on every shape, and the best that others measured.

    Args:
        ax: where to draw.
        predicted: variant -> shape -> microseconds.
        published: shape -> least public harness time of an honest submission, measured by others on MI355X.
        floor_us: what a call that does nothing costs there.
    """
    shapes = list(dict.fromkeys(shape for times in predicted.values() for shape in times))
    spread = np.linspace(-0.32, 0.32, len(predicted))
    for shift, (variant, times) in zip(spread, predicted.items(), strict=True):
        colour, marker = variant_style(variant)
        x = [shapes.index(shape) + shift for shape in times]
        ax.plot(x, list(times.values()), marker, color=colour, label=variant, markersize=6, markeredgecolor="0.2",
                markeredgewidth=0.4)  # fmt: skip
    known = [(x, published[shape]) for x, shape in enumerate(shapes) if shape in published]
    if known:
        x, times = np.array(known).T
        ax.hlines(times, x - 0.4, x + 0.4, color=EVIDENCE_COLOURS["measured"], linewidth=2.2,
                  label="best public time (measured by others)")  # fmt: skip
    ax.axhline(floor_us, color="0.4", linestyle=":", linewidth=1)
    ax.annotate("a call that does nothing", (len(shapes) - 0.55, floor_us), (0, -11), textcoords="offset points",
                ha="right", fontsize=SMALL, color="0.3")  # fmt: skip
    ax.set(ylabel="time in the harness, us (markers: modelled)", yscale="log", ylim=(floor_us * 0.88, None))
    ticks = [tick for tick in (5, 6, 7, 8, 10, 12, 15, 20, 30, 40) if tick <= ax.get_ylim()[1]]
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_xticks(range(len(shapes)), shapes)
    ax.minorticks_off()
    ax.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def ladder_bars(
    ax: Axes, ideas: Sequence[str], times: Sequence[float], intervals: Sequence[tuple[float, float]],
    valu_per_mfma: Sequence[float],
) -> Axes:  # fmt: skip
    """One bar an idea: modelled time in us with its interval; beside it the VALU instructions per MFMA."""
    y = np.arange(len(ideas))
    ax.barh(y, times, height=0.62, color=EVIDENCE_COLOURS["modelled"], alpha=0.55)
    right = max(high for _, high in intervals)
    for yi, time, (low, high), valu in zip(y, times, intervals, valu_per_mfma, strict=True):
        ax.plot([low, high], [yi, yi], color="0.25", linewidth=1.2)
        ax.annotate(f"{time:.2f} us", (0.15, yi), va="center", fontsize=SMALL)
        ax.annotate(f"{valu:.1f}", (right * 1.02, yi), va="center", fontsize=SMALL)
    ax.annotate("VALU / MFMA", (right * 1.02, -0.7), fontsize=SMALL, color="0.3")
    ax.set_yticks(y, ideas)
    ax.set(xlim=(0, right * 1.18), xlabel="modelled time in the harness, us (line: its interval)")
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    return ax


def error_map(ax: Axes, c: torch.Tensor, reference: torch.Tensor, tile: tuple[int, int]) -> Axes:
    """Where C is wrong: the largest |C - reference| of every tile, NaN and infinity as the largest there is.

    A wrong stride shows as columns or diagonals, a lost mask as a margin, a missing part of K everywhere alike.

    Args:
        ax: where to draw.
        c, reference: [M, N].
        tile: rows and columns of a tile.
    """
    m, n = reference.shape
    error = (c.float() - reference.float()).abs().nan_to_num(nan=torch.inf)
    whole = torch.nn.functional.pad(error, (0, -n % tile[1], 0, -m % tile[0]))
    largest = whole.unfold(0, tile[0], tile[0]).unfold(1, tile[1], tile[1]).amax(dim=(2, 3))
    finite = largest[largest.isfinite()]
    top = max(float(finite.max()) if finite.numel() else 0.0, 1e-2)
    bar = {"label": f"largest |C - reference| of a {tile[0]} x {tile[1]} tile"}
    sns.heatmap(largest.clamp(max=top).numpy(), ax=ax, cmap="cividis", vmin=0, vmax=top, cbar_kws=bar)
    ax.set(xlabel="column tile", ylabel="row tile")
    return ax
