"""The explorer of notebook 01: pick a scale or a byte, see its place in the tile, its lane, its byte, its offset.

Widgets where a person is watching; the same picture and a table of a few picks where papermill runs the notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxfp4lab import display as look
from mxfp4lab.layouts import e8m0_offset, e8m0_position, weight_offset, weight_position
from mxfp4lab.notebook.session import is_live
from mxfp4lab.plots.shuffle import BYTE_COLOURS, BYTE_INK

HEADERS = ("layout", "row", "column", "byte offset", "that is")
WIDTH, HEIGHT, LEFT, TOP = 52, 15, 40, 20  # of a cell; of the margins, pixels


def found_at(row: int, col: int, scale_cols: int, k_bytes: int) -> list[list[Any]]:
    """Where (row, col) lies in both layouts, under `HEADERS`; `col` counts scale columns in one, bytes in the other."""
    offset, flat = e8m0_offset(row, col, scale_cols), weight_offset(row, col, k_bytes)
    scale = f"tile {offset // 256}: dword of lane {offset % 256 // 4}, byte {offset % 4}"
    weight = (
        f"row group {row // 16}, 16-byte piece {col // 16} of lane {row % 16 + 16 * (col // 16 % 4)}, byte {col % 16}"
    )
    return [["e8m0 scales", row, col, offset, scale], ["(16, 16) weights", row, col, flat, weight]]


def tile_picture(row: int, col: int, scale_cols: int) -> str:
    """The 32 x 8 tile around a scale as SVG: offsets within the tile, bytes as colours, the scale itself ringed.

    Outside the cells it takes the theme's ink, so it reads on light and on dark pages.
    """
    first_row, first_col = row // 32 * 32, col // 8 * 8
    base = e8m0_offset(first_row, first_col, scale_cols)
    cells = []
    for r in range(32):
        y = TOP + HEIGHT * r
        cells.append(f'<text x="{LEFT - 6}" y="{y + 11}" text-anchor="end">{first_row + r}</text>')
        for c in range(8):
            x, offset = LEFT + WIDTH * c, e8m0_offset(first_row + r, first_col + c, scale_cols) - base
            chosen = (first_row + r, first_col + c) == (row, col)
            weight = ' font-weight="bold"' if chosen else ""
            cells.append(
                f'<rect x="{x}" y="{y}" width="{WIDTH - 1}" height="{HEIGHT - 1}" fill="{BYTE_COLOURS[offset % 4]}"/>'
                f'<text x="{x + WIDTH // 2}" y="{y + 11}" text-anchor="middle" style="fill:{BYTE_INK[offset % 4]}"'
                f"{weight}>{offset}</text>"
            )
    middles = [LEFT + WIDTH * c + WIDTH // 2 for c in range(8)]
    heads = [f'<text x="{x}" y="14" text-anchor="middle">{first_col + c}</text>' for c, x in enumerate(middles)]
    x, y = LEFT + WIDTH * (col % 8), TOP + HEIGHT * (row % 32)
    ring = "".join(
        f'<rect x="{x - d}" y="{y - d}" width="{WIDTH - 1 + 2 * d}" height="{HEIGHT - 1 + 2 * d}" fill="none" '
        f'stroke="{ink}" stroke-width="2"/>' for d, ink in ((1, "black"), (3, "white"))
    )  # fmt: skip
    said = f"scale ({row}, {col}) in its tile: byte {e8m0_offset(row, col, scale_cols) - base} of 256"
    return (
        f'<svg width="{LEFT + 8 * WIDTH + 8}" height="{TOP + 32 * HEIGHT + 8}" role="img" aria-label="{said}" '
        f'style="font-size:12px;fill:var(--jp-ui-font-color1, currentColor);max-width:100%">'
        f"{''.join(heads)}{''.join(cells)}{ring}</svg>"
    )


class Places:
    """Rows of `found_at` with the picture of the first; HTML in a notebook, the table elsewhere."""

    def __init__(self, rows: Sequence[Sequence[Any]], scale_cols: int, caption: str = "") -> None:
        self.rows, self.caption = list(rows), caption
        self._picture = tile_picture(rows[0][1], rows[0][2], scale_cols)

    def _repr_html_(self) -> str:
        return f"{look.table(HEADERS, self.rows, self.caption)}{self._picture}"

    def __repr__(self) -> str:
        return "\n".join(filter(None, (look.text_table(HEADERS, self.rows), self.caption)))


def shuffle_explorer(
    rows: int, scale_cols: int, k_bytes: int, picks: Sequence[tuple[int, int]], live: bool | None = None
) -> Any:
    """Explore both layouts of an operand.

    Args:
        rows: rows of the operand (padded).
        scale_cols: columns of its shuffled scales (padded).
        k_bytes: packed bytes per row.
        picks: (row, column) shown where nobody can move a slider; sliders start at the first.
        live: whether to give widgets; None asks the session.

    Returns:
        A widget, or an object that shows the picks as a table, the first one marked in its tile.
    """
    if is_live() if live is None else live:
        return _widgets(rows, scale_cols, k_bytes, picks[0])
    found = [entry for row, col in picks for entry in found_at(row, col, scale_cols, k_bytes)]
    return Places(found, scale_cols, "Ringed below: the first row of the table.")


def _widgets(rows: int, scale_cols: int, k_bytes: int, start: tuple[int, int]) -> Any:
    import ipywidgets as widgets

    row = widgets.IntSlider(description="row", value=start[0], max=rows - 1)
    col = widgets.IntSlider(description="column", value=start[1], max=scale_cols - 1)
    offset = widgets.BoundedIntText(description="byte offset", max=rows * scale_cols - 1)
    shown = widgets.HTML()

    def from_position(_: Any = None) -> None:
        shown.value = Places(found_at(row.value, col.value, scale_cols, k_bytes), scale_cols)._repr_html_()

    def from_offset(_: Any = None) -> None:
        scale = found_at(*e8m0_position(offset.value, scale_cols), scale_cols, k_bytes)[0]
        weight = found_at(*weight_position(offset.value, k_bytes), scale_cols, k_bytes)[1]
        shown.value = Places([scale, weight], scale_cols, f"who sits at byte {offset.value}")._repr_html_()

    for slider in (row, col):
        slider.observe(from_position, names="value")
    offset.observe(from_offset, names="value")
    from_position()
    return widgets.VBox([widgets.HBox([row, col, offset]), shown])
