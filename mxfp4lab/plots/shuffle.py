"""Pictures of the two byte shuffles. Each function draws into an Axes and returns it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle

from mxfp4lab.layouts import e8m0_offset, e8m0_position
from mxfp4lab.plots.style import HUES
from mxfp4lab.tours.lanes import LANES, ScaleUse, scale_uses

# Four Okabe-Ito hues of clearly different lightness: the bytes of a dword, told apart in greyscale too.
BYTE_COLOURS = (HUES["yellow"], HUES["sky"], HUES["vermilion"], "#004b70")
BYTE_INK = ("black", "black", "white", "white")
MAP = "cividis"


def offset_map(
    ax: Axes,
    padded_rows: int,
    padded_cols: int,
    rows: int | None = None,
    cols: int | None = None,
    last_row: int | None = None,
) -> Axes:
    """Heat map of the flat offset at which scale (row, column) lies; padding is hatched.

    Args:
        ax: where to draw.
        padded_rows, padded_cols: the shuffled shape.
        rows, cols: how much of it is real; None means all.
        last_row: show rows up to this one only.
    """
    padded_rows = min(padded_rows, last_row or padded_rows)
    row, col = np.meshgrid(np.arange(padded_rows), np.arange(padded_cols), indexing="ij")
    ax.grid(visible=False)
    image = ax.imshow(e8m0_offset(row, col, padded_cols), cmap=MAP, aspect="auto", interpolation="nearest",
                      extent=(-0.5, padded_cols - 0.5, padded_rows - 0.5, -0.5))  # fmt: skip
    rows, cols = rows or padded_rows, cols or padded_cols
    for x, y, width, height in (
        (cols, 0, padded_cols - cols, rows),
        (0, rows, padded_cols, padded_rows - rows),
    ):
        if width and height:
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), width, height, facecolor="white", edgecolor="0.25",
                                   hatch="///", linewidth=0.8, alpha=0.75))  # fmt: skip
    ax.set(xlabel="scale column (32 elements of K each)", ylabel="row")
    ax.figure.colorbar(image, ax=ax, label="flat byte offset")
    return ax


def position_map(ax: Axes, tiles: int = 2, padded_cols: int = 16) -> Axes:
    """The reverse: which row sits at each byte, 64 dwords of a tile across and the dword's bytes down.

    Args:
        ax: where to draw.
        tiles: how many 256-byte tiles, one below the other.
        padded_cols: columns of the shuffled shape.
    """
    offset = np.arange(256 * tiles)
    row, col = e8m0_position(offset, padded_cols)
    grid = np.empty((4 * tiles, 64), dtype=int)
    columns = np.empty_like(grid)
    for o, r, c in zip(offset, row, col, strict=True):
        grid[4 * (o // 256) + o % 4, (o % 256) // 4] = r
        columns[4 * (o // 256) + o % 4, (o % 256) // 4] = c
    ax.grid(visible=False)
    image = ax.imshow(grid, cmap=MAP, aspect="auto", interpolation="nearest")
    for y in range(grid.shape[0]):
        for x in range(0, 64, 16):
            ax.text(x + 7.5, y, f"column {columns[y, x]}", ha="center", va="center", fontsize=8,
                    color="white" if grid[y, x + 7] < 16 else "black")  # fmt: skip
    for y in range(4, 4 * tiles, 4):
        ax.axhline(y - 0.5, color="white", linewidth=2)
    for x in range(16, 64, 16):
        ax.axvline(x - 0.5, color="white", linewidth=0.8)
    ax.set(xlabel="dword of the 256-byte tile", yticks=range(4 * tiles),
           yticklabels=[f"tile {y // 4}, byte {y % 4}" for y in range(4 * tiles)])  # fmt: skip
    ax.figure.colorbar(image, ax=ax, label="row that sits there")
    return ax


def tile_map(ax: Axes) -> Axes:
    """One 32-row, 8-column tile of scales; each cell says its offset, its colour which byte of a dword it becomes."""
    row, col = np.meshgrid(np.arange(32), np.arange(8), indexing="ij")
    offset = e8m0_offset(row, col, 8)
    ax.grid(visible=False)
    ax.imshow(offset % 4, cmap=ListedColormap(BYTE_COLOURS), vmin=-0.5, vmax=3.5, aspect="auto")
    for r in range(32):
        for c in range(8):
            ax.text(c, r, str(offset[r, c]), ha="center", va="center", fontsize=7, color=BYTE_INK[offset[r, c] % 4])
    ax.axhline(15.5, color="black", linewidth=1.2)
    ax.axvline(3.5, color="black", linewidth=1.2)
    ax.set(xlabel="scale column", ylabel="row", xticks=range(8), yticks=range(0, 32, 4))
    byte_legend(ax)
    return ax


def byte_legend(ax: Axes) -> None:
    """Name the four byte colours above an Axes."""
    handles = [Rectangle((0, 0), 1, 1, facecolor=c, edgecolor="0.3") for c in BYTE_COLOURS]
    ax.legend(handles, [f"byte {i}" for i in range(4)], ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0),
              frameon=False, fontsize=8, handlelength=1.2, columnspacing=1.0)  # fmt: skip


def lane_map(ax: Axes, form: str, row_tile: int = 0, k_step: int = 0) -> Axes:
    """Which byte each lane of one MFMA consumes: lanes across in four rows of 16, each cell 'row, column'.

    The colour is the byte of the loaded dword; a cell with a thick frame draws its byte from another lane.

    Args:
        ax: where to draw.
        form: "16x16x128" or "32x32x64".
        row_tile, k_step: which MFMA of the 32x8 tile.
    """
    mine: list[ScaleUse] = [u for u in scale_uses(form) if (u.row_tile, u.k_step) == (row_tile, k_step)]
    grid = np.zeros((4, 16), dtype=int)
    for use in mine:
        grid[use.lane // 16, use.lane % 16] = use.byte
    ax.grid(visible=False)
    ax.imshow(grid, cmap=ListedColormap(BYTE_COLOURS), vmin=-0.5, vmax=3.5, aspect="auto")
    for use in mine:
        y, x = divmod(use.lane, 16)
        text = f"{use.row},{use.block}"
        if not use.in_place:
            text += f"\nlane {use.holder}"
            ax.add_patch(Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, fill=False, edgecolor="black", linewidth=1.6))
        ax.text(x, y, text, ha="center", va="center", fontsize=6.5, color=BYTE_INK[use.byte])
    ax.set(xticks=range(16), yticks=range(4), yticklabels=[f"{16 * y}-{16 * y + 15}" for y in range(LANES // 16)],
           xlabel="lane within its 16", ylabel="lanes")  # fmt: skip
    byte_legend(ax)
    return ax


def padding_bars(ax: Axes, labels: Sequence[str], used: Sequence[int], padded: Sequence[int]) -> Axes:
    """Bytes of a shuffled scale tensor that hold scales, and the padding around them.

    Args:
        ax: where to draw.
        labels: one per tensor.
        used: bytes with a scale.
        padded: all bytes.
    """
    position = np.arange(len(labels))
    share = 100 * np.asarray(used) / np.asarray(padded)
    ax.barh(position, share, color=HUES["blue"], label="scales")
    ax.barh(position, 100 - share, left=share, color="white", edgecolor="0.35", hatch="////", label="padding")
    for y, (u, p) in enumerate(zip(used, padded, strict=True)):
        ax.text(101, y, f"{p - u:,} of {p:,} bytes are padding", va="center", fontsize=8)
    ax.set(yticks=position, yticklabels=labels, xlabel="share of the shuffled tensor's bytes (%)", xlim=(0, 100))
    ax.spines[["top", "right"]].set_visible(False)
    ax.invert_yaxis()
    ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)
    return ax
