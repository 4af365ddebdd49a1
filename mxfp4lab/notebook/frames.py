"""A pandas table in the lab's look: text in full, numbers short, the index a column like the others."""

from __future__ import annotations

import math
from typing import Any

from mxfp4lab import display as look


class FrameTable:
    """A data frame shown as HTML in a notebook and as the same plain text elsewhere.

    Args:
        frame: a pandas DataFrame; a row label that repeats the one above is left blank.
        caption: what the numbers are, their kind of evidence included.
    """

    def __init__(self, frame: Any, caption: str = "") -> None:
        self.caption = caption
        labelled = any(name is not None for name in frame.index.names)
        names = [str(name or "") for name in frame.index.names] if labelled else []
        self.headers = [*names, *map(str, frame.columns)]
        self.rows: list[list[Any]] = []
        above: tuple[Any, ...] = ()
        for label, values in zip(frame.index, frame.itertuples(index=False), strict=True):
            parts = label if isinstance(label, tuple) else (label,)
            same = next((i for i, (a, b) in enumerate(zip(above, parts, strict=False)) if a != b), len(above))
            same = min(same, len(parts) - 1)
            labels = ["" if i < same else str(part) for i, part in enumerate(parts)] if labelled else []
            self.rows.append([*labels, *map(_shown, values)])
            above = parts

    def __str__(self) -> str:
        return "\n".join(filter(None, (look.text_table(self.headers, self.rows), self.caption)))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(look.table(self.headers, self.rows, self.caption))


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3g}"
    return "" if value is None else value
