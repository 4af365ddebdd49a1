"""What a notebook shows and leaves behind: figures, its pick inside its own file, its summary beside the records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mxfp4lab import display as look
from mxfp4lab.notebook.session import ipython
from mxfp4lab.paths import shown_path, writing


def show(html: str, plain: str) -> None:
    """Show something as HTML in a notebook, as text elsewhere."""
    if ipython() is None:
        print(plain)
        return
    from IPython.display import display

    display({"text/html": str(html), "text/plain": plain}, raw=True)


class PickBundle:
    """Picks of one or several shapes, shown as a card, and kept whole in the notebook's file.

    The executed file alone is enough to export from: the output carries the picks as JSON under
    ``application/vnd.mxfp4lab.pick+json``, ``{"schema": 1, "picks": [...]}``.
    """

    def __init__(self, picks: Sequence[Any]) -> None:
        self.picks = tuple(picks)

    def to_dict(self) -> dict[str, Any]:
        from mxfp4lab.tune import PICK_SCHEMA

        return {"schema": PICK_SCHEMA, "picks": [pick.to_dict() for pick in self.picks]}

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.picks)) or "no pick"

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        from mxfp4lab.tune import PICK_MIME

        html = "".join(pick._repr_html_() for pick in self.picks) or "<p>no pick</p>"
        return {PICK_MIME: self.to_dict(), "text/plain": str(self), "text/html": html}


def publish_picks(*picks: Any) -> None:
    """Show picks, so that the notebook's file holds them; in a plain interpreter print them."""
    bundle = PickBundle([pick for pick in picks if pick is not None])
    if ipython() is None:
        print(bundle)
        return
    from IPython.display import display

    display(bundle)


def show_figure(figure: Any, folder: Path, name: str, caption: str) -> tuple[Path, Path]:
    """Save a figure as SVG and PNG beside the records, show it with its caption as alt text, and close it."""
    import matplotlib.pyplot as plt

    from mxfp4lab.plots import save

    svg, png = save(figure, folder, name)
    width = int(96 * figure.get_size_inches()[0])
    plt.close(figure)
    if ipython() is None:
        print(f"[{shown_path(png)}] {caption}")
        return svg, png
    from IPython.display import Image, display

    display(Image(filename=str(png), alt=caption, width=width))
    show(f'<div style="opacity:.8;max-width:1000px">{look.escape(caption)}</div>', caption)
    return svg, png


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file of facts; a later cell may say more, so it replaces the file whole."""
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    temporary = path.with_suffix(".tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def write_summary(folder: Path, content: dict[str, Any]) -> Path:
    """Write ``summary.json`` beside a run's records."""
    path = Path(folder) / "summary.json"
    write_json(path, content)
    return path
