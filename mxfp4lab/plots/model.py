"""Pictures of the time model. Each function draws into an Axes and returns it; nothing here predicts or fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, PercentFormatter

# Okabe-Ito hues; shapes are told apart by marker as well.
SHAPE_STYLE = (
    ("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#e69f00", "v"), ("#56b4e9", "P"),
)  # fmt: skip
# One colour per term, grouped by kind: floors grey, issue blue, memory orange and yellow, launches green, spills red.
TERM_COLOURS = {
    "launch floor": "#c8c8c8",
    "VALU issue": "#0072b2",
    "MFMA issue": "#004b70",
    "shared SIMD": "#56b4e9",
    "tail": "#a6d5f2",
    "LDS": "#5b4a9f",
    "operand reads": "#e69f00",
    "memory bandwidth": "#b47a00",
    "memory latency": "#f0e442",
    "spills": "#d55e00",
    "quantize launch": "#7fd0b6",
    "second launch": "#009e73",
    "reduce": "#006b4e",
    "partials": "#9a9a3d",
    "split-K inside": "#cc79a7",
}
_PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


def predicted_against_published(
    ax: Axes, rows: Sequence[Mapping], device_rows: Sequence[Mapping] = (), published_noise: float = 0.05
) -> Axes:
    """Log-log scatter with the diagonal and a band of ±10 %; perfect is on the line.

    Args:
        ax: where to draw.
        rows: mappings with `shape`, `published_us`, `predicted_us`; one colour and marker per shape.
        device_rows: the same of another regime, drawn small and grey behind; empty for none.
        published_noise: relative standard deviation of a published time, drawn as horizontal bars.
    """
    every = [*rows, *device_rows]
    values = [row[key] for row in every for key in ("published_us", "predicted_us")]
    low, high = min(values) * 0.85, max(values) * 1.15
    line = np.array([low, high])
    ax.fill_between(line, line * 0.9, line * 1.1, color="0.9", zorder=0, label="±10 %")
    ax.plot(line, line, color="0.45", linewidth=1, zorder=1)
    if device_rows:
        ax.scatter(
            [row["published_us"] for row in device_rows], [row["predicted_us"] for row in device_rows],
            s=8, color="0.55", alpha=0.6, linewidths=0, zorder=2, label="device: prebuilt GEMM",
        )  # fmt: skip
    for shape, (colour, marker) in zip(_shapes(rows), _styles(), strict=False):
        mine = [row for row in rows if row["shape"] == shape]
        x = np.array([row["published_us"] for row in mine])
        ax.errorbar(
            x, [row["predicted_us"] for row in mine], xerr=x * published_noise, fmt=marker, markersize=6,
            color=colour, markeredgecolor="white", markeredgewidth=0.6, elinewidth=0.8, zorder=3, label=str(shape),
        )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    ticks = [t for t in (3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100) if low <= t <= high]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(_fixed(ticks))
        axis.set_major_formatter(_PLAIN)
        axis.minorticks_off()
    ax.set(xlabel="published time, us (measured by others)", ylabel="predicted time, us (modelled)")
    ax.legend(loc="upper left", fontsize=8, frameon=False)
    return ax


def residuals(ax: Axes, rows: Sequence[Mapping], width: float) -> Axes:
    """Relative error of every row, grouped by shape, named on the axis; the band is the model's own interval.

    Args:
        ax: where to draw.
        rows: mappings with `shape`, `label`, `published_us`, `predicted_us`.
        width: half-width of the band, relative.
    """
    ordered = [row for shape in _shapes(rows) for row in rows if row["shape"] == shape]
    style = dict(zip(_shapes(rows), _styles(), strict=False))
    ax.axvspan(-width, width, color="0.93", zorder=0)
    ax.axvline(0, color="0.45", linewidth=1, zorder=1)
    for y, row in enumerate(ordered):
        error = row["predicted_us"] / row["published_us"] - 1
        colour, marker = style[row["shape"]]
        ax.plot([0, error], [y, y], color=colour, linewidth=1.2, alpha=0.7, zorder=2)
        ax.plot(error, y, marker, color=colour, markersize=5.5, zorder=3)
    names = [f"{row['label'][:34]}  {row['published_us']:g}" for row in ordered]
    ax.set_yticks(range(len(ordered)), names, fontsize=7.5)
    ax.set_ylim(len(ordered) - 0.3, -0.7)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set(xlabel="predicted over published, less 1")
    ax.grid(axis="y", color="0.93", linewidth=0.6)
    ax.legend(handles=_shape_handles(style), fontsize=8, frameon=True, loc="lower left")
    return ax


def residuals_by_matrix(ax: Axes, rows: Sequence[Mapping]) -> Axes:
    """Relative errors of the rows of each weight matrix (N x K), matrices by their median; a short bar is the median.

    Args:
        ax: where to draw.
        rows: mappings with `shape` ("MxNxK"), `published_us`, `predicted_us`.
    """
    groups: dict[str, list[float]] = {}
    for row in rows:
        matrix = str(row["shape"]).split("x", 1)[1]
        groups.setdefault(matrix, []).append(row["predicted_us"] / row["published_us"] - 1)
    ordered = sorted(groups.items(), key=lambda item: float(np.median(item[1])))
    ax.axhline(0, color="0.45", linewidth=1)
    for x, (_, errors) in enumerate(ordered):
        ax.plot([x] * len(errors), errors, "o", color="#0072b2", markersize=3.5, alpha=0.5, markeredgewidth=0)
        ax.plot([x - 0.35, x + 0.35], [np.median(errors)] * 2, color="#d55e00", linewidth=2)
    ax.set_xticks(range(len(ordered)), [name for name, _ in ordered], rotation=90, fontsize=7.5)
    ax.set_xlim(-0.7, len(ordered) - 0.3)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.grid(axis="y", color="0.93", linewidth=0.6)
    ax.set(xlabel="weights (N x K), by median", ylabel="predicted over published, less 1")
    return ax


def terms_stacked(
    ax: Axes,
    labels: Sequence[str],
    terms: Sequence[Mapping[str, float]],
    published_us: Sequence[float | None] | None = None,
    intervals: Sequence[tuple[float, float]] | None = None,
) -> Axes:
    """Where predicted time goes: one stacked bar a row; a black diamond is the published time.

    Args:
        ax: where to draw.
        labels: one per bar.
        terms: the predictions' terms, microseconds by name.
        published_us: published times, None where there is none.
        intervals: the predictions' intervals, drawn as whiskers.
    """
    left = np.zeros(len(labels))
    y = np.arange(len(labels))
    for name, colour in TERM_COLOURS.items():
        width = np.array([row.get(name, 0.0) for row in terms])
        if width.max(initial=0.0) > 0.005:
            ax.barh(y, width, left=left, color=colour, height=0.72, label=name, edgecolor="white", linewidth=0.5)
        left += width
    if intervals is not None:
        low, high = np.array(intervals).T
        ax.errorbar(left, y, xerr=[left - low, high - left], fmt="none", ecolor="0.25", elinewidth=1, capsize=3)
    if published_us is not None:
        shown = [(us, i) for i, us in enumerate(published_us) if us is not None]
        if shown:
            ax.plot(*zip(*shown, strict=True), "D", color="black", markersize=5, label="published", zorder=5)
    ax.set_yticks(y, labels, fontsize=8)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set(xlabel="predicted time, us (modelled)", xlim=(0, None))
    ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return ax


def ablation_dumbbells(ax: Axes, changes: Sequence[Mapping]) -> Axes:
    """What a change did (filled) and what the model says it does (open), as a factor of time; log axis.

    Args:
        ax: where to draw.
        changes: mappings with `name`, `published_ratio`, `predicted_ratio`, `field`; drawn in this order.
    """
    fields = list(dict.fromkeys(change["field"] for change in changes))
    colours = {field: SHAPE_STYLE[i % len(SHAPE_STYLE)][0] for i, field in enumerate(fields)}
    ax.axvline(1.0, color="0.45", linewidth=1)
    for y, change in enumerate(changes):
        pair = (change["published_ratio"], change["predicted_ratio"])
        colour = colours[change["field"]]
        ax.plot(pair, (y, y), color=colour, linewidth=1.5, alpha=0.6)
        ax.plot(pair[0], y, "o", color=colour, markersize=7)
        ax.plot(pair[1], y, "o", markerfacecolor="white", markeredgecolor=colour, markersize=7, markeredgewidth=1.5)
    ax.set_yticks(range(len(changes)), [change["name"] for change in changes], fontsize=8)
    ax.set_ylim(len(changes) - 0.4, -0.6)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(_fixed([0.9, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"×{value:g}"))
    ax.xaxis.minorticks_off()
    ax.grid(axis="x", color="0.93", linewidth=0.6)
    ax.set(xlabel="time after the change over time before")
    handles = [
        Line2D([], [], marker="o", linestyle="", color="0.3", label="published"),
        Line2D([], [], marker="o", linestyle="", markerfacecolor="white", markeredgecolor="0.3", label="model"),
    ]
    ax.legend(handles=handles, fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return ax


def regret(ax: Axes, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Axes:
    """Best so far over best of all against the number of configs tried.

    Args:
        ax: where to draw.
        curves: shape -> (in the model's order, expectation of random order).
    """
    for (name, (ranked, chance)), (colour, marker) in zip(curves.items(), _styles(), strict=False):
        tried = np.arange(1, len(ranked) + 1)
        ax.step(tried, ranked, where="post", color=colour, linewidth=2, label=f"{name}: the model's order")
        ax.plot(tried, ranked, marker, color=colour, markersize=4)
        ax.plot(tried, chance, color=colour, linewidth=1.2, linestyle="--", label=f"{name}: random order")
    ax.set(xlabel="configs tried", ylabel="best so far over best of all", ylim=(0.98, None))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(fontsize=8, frameon=False)
    return ax


def lever_map(ax: Axes, table: Mapping[str, Mapping[str, float]]) -> Axes:
    """Microseconds that each change would save on each shape, by the model; darker saves more.

    Args:
        ax: where to draw.
        table: row label -> lever -> microseconds.
    """
    rows, columns = list(table), list(next(iter(table.values())))
    grid = np.array([[table[row][column] for column in columns] for row in rows])
    ax.imshow(grid, cmap="Blues", aspect="auto", vmin=0, vmax=max(2.0, grid.max() * 1.1))
    for i, j in np.ndindex(*grid.shape):
        ink = "white" if grid[i, j] > 0.6 * max(2.0, grid.max() * 1.1) else "black"
        text = f"{grid[i, j]:.2f}" if grid[i, j] >= 0.005 else "–"
        ax.text(j, i, text, ha="center", va="center", color=ink, fontsize=9)
    ax.set_xticks(range(len(columns)), [fill(column, 14) for column in columns], fontsize=8)
    ax.set_yticks(range(len(rows)), rows, fontsize=8)
    ax.tick_params(length=0)
    ax.grid(False)
    for side in ax.spines.values():
        side.set_visible(False)
    return ax


def _shapes(rows: Sequence[Mapping]) -> list:
    return list(dict.fromkeys(row["shape"] for row in rows))


def _styles():
    while True:
        yield from SHAPE_STYLE


def _shape_handles(style: Mapping) -> list[Line2D]:
    return [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=str(shape))
        for shape, (colour, marker) in style.items()
    ]


def _fixed(ticks: Sequence[float]):
    from matplotlib.ticker import FixedLocator

    return FixedLocator(ticks)
