"""The explorer of notebook 01: pick a position or a byte offset, see the other side in both layouts.

Widgets where a person is watching; the same answers as a table of a few picks where papermill runs the notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxfp4lab import display as look
from mxfp4lab.notebook.session import is_live
from mxfp4lab.tours.shuffle_tour import Lookup, look_back, look_up

_HEADERS = ("layout", "row", "column", "byte offset", "that is")


def _rows(found: Sequence[Lookup]) -> list[list[Any]]:
    return [[f.layout, f.row, f.col, f.offset, f.detail] for f in found]


def shuffle_explorer(
    rows: int, scale_cols: int, k_bytes: int, picks: Sequence[tuple[int, int]] = (), live: bool | None = None
) -> Any:
    """Explore both layouts of an operand of `rows` rows.

    Args:
        rows: rows of the operand (padded).
        scale_cols: columns of its shuffled scales (padded).
        k_bytes: packed bytes per row.
        picks: (row, column) shown where nobody can move a slider; sliders start at the first.
        live: whether to give widgets; None asks the session.

    Returns:
        A widget, or an object that shows the picks as a table.
    """
    if is_live() if live is None else live:
        return _widgets(rows, scale_cols, k_bytes, picks[0] if picks else (0, 0))
    found = [entry for row, col in picks for entry in look_up(row, col, scale_cols, k_bytes)]
    if picks:  # and once the other way round
        offset = look_up(*picks[0], scale_cols, k_bytes)[0].offset
        found += look_back(offset, scale_cols, k_bytes)
        return StaticTable(_HEADERS, _rows(found), f"The last two rows: who sits at byte {offset} of either layout.")
    return StaticTable(_HEADERS, _rows(found))


class StaticTable:
    """A table that shows itself as HTML or plain text."""

    def __init__(self, headers: Sequence[str], rows: list[list[Any]], caption: str = "") -> None:
        self.headers, self.rows, self.caption = headers, rows, caption

    def _repr_html_(self) -> str:
        return str(look.table(self.headers, self.rows, self.caption))

    def __repr__(self) -> str:
        return "\n".join(filter(None, (look.text_table(self.headers, self.rows), self.caption)))


def _widgets(rows: int, scale_cols: int, k_bytes: int, start: tuple[int, int]) -> Any:
    import ipywidgets as widgets

    row = widgets.IntSlider(description="row", value=start[0], max=rows - 1)
    col = widgets.IntSlider(description="column", value=start[1], max=scale_cols - 1)
    offset = widgets.BoundedIntText(description="byte offset", max=rows * scale_cols - 1)
    shown = widgets.HTML()

    def from_position(_: Any = None) -> None:
        found = look_up(row.value, col.value, scale_cols, k_bytes)
        shown.value = "<b>where (row, column) lies</b>" + str(look.table(_HEADERS, _rows(found)))

    def from_offset(_: Any = None) -> None:
        found = look_back(offset.value, scale_cols, k_bytes)
        shown.value = "<b>who sits at the offset</b>" + str(look.table(_HEADERS, _rows(found)))

    for slider in (row, col):
        slider.observe(from_position, names="value")
    offset.observe(from_offset, names="value")
    from_position()
    return widgets.VBox([widgets.HBox([row, col]), offset, shown])
