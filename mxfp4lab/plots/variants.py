"""Figures of 03: what variants are made of, what each idea buys, what a published time contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from mxfp4lab.plots.style import EVIDENCE_COLOURS, HUES, variant_style

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
    position = np.arange(len(labels))[::-1]
    left = np.zeros(len(labels))
    per = np.array([max(mix["MFMA"], 1) for mix in mixes])
    for name, (colour, hatch) in MIX_LOOK.items():
        width = np.array([mix[name] for mix in mixes]) / per
        ax.barh(position, width, left=left, color=colour, hatch=hatch, edgecolor="0.3", linewidth=0.4, label=name)
        left += width
    for y, total in zip(position, left, strict=True):
        ax.annotate(f"{total:.0f}", (total, y), (3, 0), textcoords="offset points", va="center", fontsize=8)
    ax.set(yticks=position, yticklabels=labels, xlabel="instructions of one wave per MFMA (emulated counts)")
    ax.grid(axis="y", visible=False)
    ax.legend(ncols=len(MIX_LOOK), loc="lower center", bbox_to_anchor=(0.4, 1.0), columnspacing=1.0, handlelength=1.4)
    return ax


def times_by_shape(
    ax: Axes,
    shapes: Sequence[str],
    predicted: Mapping[str, Sequence[float | None]],
    published: Sequence[float | None],
    floor_us: float,
) -> Axes:
    """Modelled time of every variant on every shape, and the best published one.

    Args:
        ax: where to draw.
        shapes: labels along x.
        predicted: variant to one time per shape in microseconds; None where there is none.
        published: best public harness time per shape, measured by others.
        floor_us: what a call that does nothing costs there.
    """
    x = np.arange(len(shapes))
    spread = np.linspace(-0.32, 0.32, len(predicted))
    for shift, (variant, times) in zip(spread, predicted.items(), strict=True):
        colour, marker = variant_style(variant)
        known = [(xi + shift, time) for xi, time in zip(x, times, strict=True) if time is not None]
        if known:
            ax.plot(
                *zip(*known, strict=True),
                marker,
                color=colour,
                label=variant,
                markersize=6,
                markeredgecolor="0.2",
                markeredgewidth=0.4,
            )
    for xi, time in zip(x, published, strict=True):
        if time is not None:
            ax.hlines(
                time,
                xi - 0.4,
                xi + 0.4,
                color=EVIDENCE_COLOURS["measured"],
                linewidth=2.2,
                label="best published (measured by others)" if xi == 0 else None,
            )
    ax.axhline(floor_us, color="0.4", linestyle=":", linewidth=1)
    ax.annotate(
        "a call that does nothing",
        (len(shapes) - 0.55, floor_us),
        (0, -10),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color="0.3",
    )
    ax.set(
        xticks=x,
        xticklabels=shapes,
        ylabel="time in the harness, us (markers: modelled)",
        yscale="log",
        ylim=(floor_us * 0.9, None),
    )
    ticks = [tick for tick in (5, 6, 7, 8, 10, 12, 15, 20, 30, 40) if tick <= ax.get_ylim()[1]]
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    ax.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def ladder_bars(
    ax: Axes,
    ideas: Sequence[str],
    times: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    valu_per_mfma: Sequence[float],
) -> Axes:
    """One bar an idea: modelled time with its interval; beside it the VALU instructions per MFMA.

    Args:
        ax: where to draw.
        ideas: first on top.
        times, intervals: microseconds.
        valu_per_mfma: written at the right.
    """
    y = np.arange(len(ideas))[::-1]
    ax.barh(y, times, height=0.62, color=EVIDENCE_COLOURS["modelled"], alpha=0.55)
    for yi, time, (low, high), valu in zip(y, times, intervals, valu_per_mfma, strict=True):
        ax.plot([low, high], [yi, yi], color="0.25", linewidth=1.2)
        ax.annotate(f"{time:.2f} us", (0.15, yi), va="center", fontsize=8.5)
        ax.annotate(f"{valu:.1f}", (max(high for _, high in intervals) * 1.02, yi), va="center", fontsize=8.5)
    right = max(high for _, high in intervals)
    ax.annotate("VALU / MFMA", (right * 1.02, len(ideas) - 0.35), fontsize=8, color="0.3")
    ax.set(
        yticks=y,
        yticklabels=ideas,
        xlim=(0, right * 1.18),
        xlabel="modelled time in the harness, us (line: its interval)",
    )
    ax.grid(axis="y", visible=False)
    return ax


def regime_lines(ax: Axes, rows: Mapping[str, Mapping[str, float]], regimes: Sequence[str]) -> Axes:
    """The same implementations on one shape as different regimes read them.

    Args:
        ax: where to draw.
        rows: implementation to (regime to microseconds).
        regimes: from the one that contains most to the one that contains least.
    """
    hues = list(HUES.values())
    for (name, times), marker, hue in zip(rows.items(), ("o", "s", "^", "D", "v", "P"), hues, strict=False):
        known = [(x, times[regime]) for x, regime in enumerate(regimes) if regime in times]
        ax.plot(*zip(*known, strict=True), marker=marker, color=hue, label=name)
        for x, time in known:
            ax.annotate(f"{time:.1f}", (x, time), (6, 3), textcoords="offset points", fontsize=8)
    ax.set(xticks=range(len(regimes)), xticklabels=regimes, ylabel="published time, us", ylim=(0, None))
    ax.set_xlim(-0.3, len(regimes) - 0.5)
    ax.legend(loc="upper right")
    return ax
