"""Pictures of the time model. Each function draws into an Axes and returns it; nothing here predicts or fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, PercentFormatter

# Okabe-Ito hues; shapes are told apart by marker as well.
HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
# One colour per term by kind: floor grey, launches green, issue blue, memory orange, spills red, untimed violet.
TERM_COLOURS = {
    "launch floor": "#c8c8c8",
    "second launch": "#009e73",
    "VALU issue": "#0072b2",
    "MFMA issue": "#56b4e9",
    "operand reads": "#e69f00",
    "spills": "#d55e00",
    "workgroups that wait": "#cc79a7",
    "sum in the launch": "#7a4a68",
}


def against_published(ax: Axes, rows: pd.DataFrame, device_rows: pd.DataFrame) -> Axes:
    """Log-log scatter with the diagonal and a band of 10 %; on the line is perfect.

    Args:
        ax: where to draw.
        rows: harness rows: columns shape, published_us, predicted_us; one colour and marker a shape.
        device_rows: the same of the profiler's regime, small and grey behind.
    """
    every = pd.concat([rows, device_rows])[["published_us", "predicted_us"]]
    low, high = every.min().min() * 0.85, every.max().max() * 1.15
    line = np.array([low, high])
    ax.fill_between(line, line * 0.9, line * 1.1, color="0.5", alpha=0.2, zorder=0, linewidth=0, label="within 10 %")
    ax.plot(line, line, color="0.5", linewidth=1, zorder=1)
    ax.scatter(device_rows["published_us"], device_rows["predicted_us"], s=8, color="0.55", alpha=0.6, linewidths=0,
               label="device: prebuilt GEMM")  # fmt: skip
    hues = list(HUES[: rows["shape"].nunique()])
    sns.scatterplot(rows, x="published_us", y="predicted_us", hue="shape", style="shape", palette=hues, s=55, ax=ax)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator([t for t in (3, 4, 6, 8, 10, 15, 20, 30, 50, 100) if low <= t <= high]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.minorticks_off()
    ax.set(xlabel="published time, us (measured by others)", ylabel="predicted time, us (modelled)")
    ax.legend(loc="upper left", fontsize=9, frameon=False)
    return ax


def residuals(ax: Axes, rows: pd.DataFrame, width: float) -> Axes:
    """Error of every row, a line each, named on the axis; the band is where an interval promises four of five.

    Args:
        ax: where to draw.
        rows: columns name, shape, published_us, predicted_us.
        width: half-width of the band, in log(predicted / published).
    """
    rows = rows.assign(error=rows["predicted_us"] / rows["published_us"] - 1)
    ax.axvspan(np.exp(-width) - 1, np.exp(width) - 1, color="0.5", alpha=0.18, zorder=0, linewidth=0)
    ax.axvline(0, color="0.5", linewidth=1)
    hues = list(HUES[: rows["shape"].nunique()])
    sns.scatterplot(rows, x="error", y="name", hue="shape", style="shape", palette=hues, s=50, ax=ax)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.tick_params(axis="y", labelsize=9)
    ax.set(xlabel="predicted over published, less 1", ylabel="")
    ax.legend(fontsize=9, loc="lower left")
    return ax


def terms_stacked(
    ax: Axes, labels: Sequence[str], terms: Sequence[Mapping[str, float]],
    published_us: Sequence[float | None] | None = None, intervals: Sequence[tuple[float, float]] | None = None,
) -> Axes:  # fmt: skip
    """Where predicted time goes: one stacked bar a row; a diamond is the published time.

    Args:
        ax: where to draw.
        labels: one per bar.
        terms: the predictions' terms, microseconds by name.
        published_us: published times, None where there is none.
        intervals: the predictions' intervals, drawn as whiskers.
    """
    left, y = np.zeros(len(labels)), np.arange(len(labels))
    for name, colour in TERM_COLOURS.items():
        width = np.array([row.get(name, 0.0) for row in terms])
        if width.max(initial=0.0) > 0.005:
            ax.barh(y, width, left=left, color=colour, height=0.72, label=name, edgecolor="white", linewidth=0.5)
        left += width
    if intervals is not None:
        low, high = np.array(intervals).T
        ax.errorbar(left, y, xerr=[left - low, high - left], fmt="none", ecolor="0.4", elinewidth=1, capsize=3)
    shown = [(us, i) for i, us in enumerate(published_us or ()) if us is not None]
    if shown:
        ax.plot(*zip(*shown, strict=True), "D", color="black", markeredgecolor="white", markersize=6, label="published")
    ax.set_yticks(y, labels, fontsize=9)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set(xlabel="predicted time, us (modelled)", xlim=(0, None))
    ax.legend(fontsize=9, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return ax
