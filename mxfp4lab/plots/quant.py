"""Pictures of the conversion to MXFP4. Each function draws into an Axes and returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn as sns
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from mxfp4lab.formats import E2M1_VALUES, SCALE_MODES, block_exponent, decode_e2m1, encode_e2m1
from mxfp4lab.plots.style import HUES, SMALL

BLUE, ORANGE, GREEN, GREY = HUES["blue"], HUES["vermilion"], HUES["green"], "0.45"
MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


def staircase(ax: Axes) -> Axes:
    """What e2m1 makes of a scaled magnitude, and the seven midpoints on which the two roundings part."""
    x = torch.linspace(0, 7.2, 7201)
    ax.plot(x, decode_e2m1(encode_e2m1(x)), color=BLUE, linewidth=2, label="e2m1, nearest")
    ax.plot(x, x, color=GREY, linewidth=0.8, linestyle=":", label="exact")
    new, old = (decode_e2m1(encode_e2m1(torch.tensor(MIDPOINTS), rounding)) for rounding in ("even", "half_away"))
    ax.plot(MIDPOINTS, new, "o", color=BLUE, markersize=7, label="tie, to even (since PR 975)")
    ax.plot(MIDPOINTS, old, "^", color=ORANGE, markersize=9, fillstyle="none", markeredgewidth=1.6,
            label="tie, away from zero (before)")  # fmt: skip
    ax.set(xlabel="|x| / 2^e", ylabel="e2m1 value", xticks=range(8), yticks=E2M1_VALUES)
    ax.legend()
    return ax


def block_picture(ax: Axes, scaled: Sequence[float], new: Sequence[float], old: Sequence[float]) -> Axes:
    """One block: each scaled magnitude on the e2m1 grid, what it becomes, and what it became before PR 975.

    Args:
        ax: where to draw.
        scaled: |x| / 2^e per element.
        new, old: the e2m1 magnitudes with ties to even, and away from zero.
    """
    k = np.arange(len(scaled))
    scaled, new, old = (np.asarray(values, dtype=float) for values in (scaled, new, old))
    for value in E2M1_VALUES:
        ax.axhline(value, color="0.85", linewidth=0.8, zorder=0)
    ax.vlines(k, np.minimum(scaled, new), np.maximum(scaled, new), color=GREY, linewidth=1, zorder=1)
    ax.plot(k, scaled, "_", color="black", markersize=9, markeredgewidth=1.8, label="|x| / 2^e", zorder=3)
    ax.plot(k, new, "s", color=BLUE, markersize=5, label="nearest even", zorder=2)
    parted = k[new != old]
    ax.plot(parted, old[parted], "^", color=ORANGE, markersize=8, fillstyle="none", markeredgewidth=1.6,
            label="before PR 975, where it differs", zorder=3)  # fmt: skip
    for i in parted:
        ax.annotate(f"k = {i}: tie", (i, old[i]), textcoords="offset points", xytext=(8, 5), fontsize=SMALL)
    ax.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    ax.set(xlabel="element k of the block", ylabel="magnitude in units of the scale", yticks=E2M1_VALUES)
    ax.grid(visible=False)
    return ax


def scale_modes(ax: Axes, low: float = 0.9, high: float = 9.0) -> Axes:
    """Scale byte as a function of the block's maximum, one step line per mode."""
    amax = torch.logspace(np.log2(low), np.log2(high), 4000, base=2)
    looks = zip(SCALE_MODES, ("-", "--", "-.", ":"), (BLUE, ORANGE, GREEN, "black"), strict=True)
    for i, (mode, style, colour) in enumerate(looks):
        ax.plot(amax, block_exponent(amax, mode) + 127 + (i - 1.5) * 0.05, style, color=colour, linewidth=2, label=mode)
    ax.set_xscale("log", base=2)
    ticks = [1, 1.5, 2, 3, 4, 6, 8]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set(xlabel="largest magnitude of the block", ylabel="scale byte")
    ax.legend(title="scale_mode")
    return ax


def difference_matrix(ax: Axes, names: Sequence[str], bytes_off: Mapping[tuple[str, str], int]) -> Axes:
    """Bytes on which any two answerers differ; "=" where there are none.

    Args:
        ax: where to draw.
        names: order of rows and columns.
        bytes_off: (left, right) -> differing bytes, of every pair.
    """
    grid = pd.DataFrame(np.nan, index=list(names), columns=list(names))
    for (left, right), count in bytes_off.items():
        first, second = sorted((left, right), key=names.index)
        grid.loc[second, first] = count
    grid = grid.iloc[1:, :-1]
    text = grid.map(lambda count: "" if np.isnan(count) else "=" if count == 0 else f"{count:,.0f}")
    top = max(1e4, np.nanmax(grid.to_numpy()))
    look = {"cmap": "cividis_r", "norm": LogNorm(1, top), "cbar": False, "linewidths": 0.5, "linecolor": "0.9"}
    sns.heatmap(grid.where(grid > 0), ax=ax, **look)
    for row, column in np.argwhere(text.to_numpy() != ""):
        count = grid.iat[row, column]
        ink = "white" if count > 0 and np.log(count) > 0.55 * np.log(top) else "black"
        ax.text(column + 0.5, row + 0.5, text.iat[row, column], ha="center", va="center", fontsize=SMALL, color=ink)
    ax.grid(visible=False)
    ax.tick_params(axis="y", rotation=0, length=0)
    ax.set_xticks(ax.get_xticks(), grid.columns, rotation=35, ha="right")
    return ax
