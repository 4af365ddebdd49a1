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
        self.frame, self.caption = frame, caption

    @property
    def headers(self) -> list[str]:
        labels = [str(name or "") for name in self.frame.index.names] if self._labelled else []
        return [*labels, *map(str, self.frame.columns)]

    @property
    def rows(self) -> list[list[Any]]:
        found, above = [], None
        for label, values in zip(self.frame.index, self.frame.itertuples(index=False), strict=True):
            parts = label if isinstance(label, tuple) else (label,)
            same = 0
            while above and same < len(parts) - 1 and parts[same] == above[same]:
                same += 1
            labels = ["" if i < same else str(part) for i, part in enumerate(parts)] if self._labelled else []
            found.append([*labels, *map(_shown, values)])
            above = parts
        return found

    @property
    def _labelled(self) -> bool:
        return any(name is not None for name in self.frame.index.names)

    def __str__(self) -> str:
        return "\n".join(filter(None, (look.text_table(self.headers, self.rows), self.caption)))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(look.table(self.headers, self.rows, self.caption))


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3g}"
    return "" if value is None else value
