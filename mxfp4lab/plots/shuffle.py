"""Pictures of the two byte shuffles. Each function draws into an Axes and returns it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle

from mxfp4lab.plots.style import HUES, SMALL

# Four Okabe-Ito hues of clearly different lightness: the bytes of a dword, told apart in greyscale too. The ink on
# each has a contrast of at least 4.5:1.
BYTE_COLOURS = (HUES["yellow"], HUES["sky"], HUES["vermilion"], "#004b70")
BYTE_INK = ("black", "black", "black", "white")


def byte_map(ax: Axes, byte: np.ndarray, text: np.ndarray, framed: Iterable[tuple[int, int]] = ()) -> Axes:
    """A grid whose colours are bytes of a dword, with a text in every cell.

    Args:
        ax: where to draw.
        byte: [rows, columns] of 0..3.
        text: [rows, columns], written into the cells.
        framed: (row, column) of cells with a thick frame.
    """
    look = {"cmap": ListedColormap(BYTE_COLOURS), "vmin": -0.5, "vmax": 3.5, "cbar": False, "linewidths": 0.4}
    sns.heatmap(np.asarray(byte), ax=ax, annot=np.asarray(text), fmt="", annot_kws={"fontsize": SMALL}, **look)
    for label, value in zip(ax.texts, np.asarray(byte).flat, strict=True):
        label.set_color(BYTE_INK[int(value)])
    for row, column in framed:
        ax.add_patch(Rectangle((column + 0.03, row + 0.03), 0.94, 0.94, fill=False, edgecolor="black", linewidth=2))
    handles = [Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor="0.3") for colour in BYTE_COLOURS]
    ax.legend(handles, [f"byte {i}" for i in range(4)], ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0),
              handlelength=1.2, columnspacing=1.0)  # fmt: skip
    ax.tick_params(axis="y", rotation=0)
    return ax


def offset_map(ax: Axes, offset: np.ndarray, rows: int, cols: int) -> Axes:
    """Heat map of where each scale lies, padding hatched.

    Args:
        ax: where to draw.
        offset: [padded rows, padded columns] flat byte offsets.
        rows, cols: how much of it holds scales.
    """
    sns.heatmap(offset, ax=ax, cmap="cividis", cbar_kws={"label": "flat byte offset"}, xticklabels=8, yticklabels=32)
    height, width = offset.shape
    for x, y, across, down in ((cols, 0, width - cols, rows), (0, rows, width, height - rows)):
        if across and down:
            ax.add_patch(Rectangle((x, y), across, down, facecolor="white", edgecolor="0.25", hatch="///", alpha=0.75))
    ax.set(xlabel="scale column (32 elements of K each)", ylabel="row")
    ax.tick_params(axis="y", rotation=0)
    return ax


def padding_bars(ax: Axes, labels: Sequence[str], used: Sequence[int], padded: Sequence[int]) -> Axes:
    """Bytes of shuffled scale tensors that hold scales (`used`) of all (`padded`), one bar per label."""
    share = 100 * np.asarray(used) / np.asarray(padded)
    sns.barplot(x=share, y=list(labels), ax=ax, color=HUES["blue"], label="scales")
    ax.barh(labels, 100 - share, left=share, color="white", edgecolor="0.35", hatch="////", label="padding")
    for y, (u, p) in enumerate(zip(used, padded, strict=True)):
        ax.text(101, y, f"{p - u:,} of {p:,} bytes are padding", va="center", fontsize=SMALL)
    ax.set(xlabel="share of the shuffled tensor's bytes (%)", xlim=(0, 100))
    ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax
