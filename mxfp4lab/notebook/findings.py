"""What a reading notebook keeps: tables, figures with captions, verdicts on claims, one JSON file of facts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mxfp4lab import display as look
from mxfp4lab.notebook.session import ipython
from mxfp4lab.paths import shown_path, writing

SCHEMA = 1


class Findings:
    """Collects the facts of one notebook run under ``<out>/<name>/`` and shows them as they come.

    Args:
        out: the notebook's output folder.
        name: of the notebook, for example "01_shuffle".
    """

    def __init__(self, out: Path, name: str) -> None:
        self.folder = Path(out) / name
        self.name = name
        self._facts: dict[str, Any] = {}
        self._verdicts: list[dict[str, Any]] = []
        self._figures: list[dict[str, str]] = []

    def fact(self, name: str, value: Any) -> Any:
        """Keep one number, text, list or dict under a name; returns the value."""
        json.dumps(value, allow_nan=False)  # refuse here what could not be written at the end
        self._facts[name] = value
        return value

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> None:
        """Show a table, as HTML and as plain text."""
        rows = [list(row) for row in rows]
        plain = look.text_table(headers, rows) + (f"\n{caption}" if caption else "")
        _show(str(look.table(headers, rows, caption)), plain)

    def figure(self, figure: Any, name: str, caption: str) -> None:
        """Save a figure as SVG and PNG, show it with its caption as alt text, and close it."""
        import matplotlib.pyplot as plt

        from mxfp4lab.plots import save

        _, png = save(figure, self.folder, name)
        plt.close(figure)
        self._figures.append({"file": png.name, "caption": caption})
        if ipython() is None:
            print(f"[figure {png.name}] {caption}")
            return
        from IPython.display import Image, display

        width, _ = figure.get_size_inches()
        display(Image(filename=str(png), alt=caption, width=int(96 * width)))
        _show(f'<div style="opacity:.75;max-width:900px">{look.escape(caption)}</div>', caption)

    def verdict(self, claim: str, holds: bool, because: str, evidence: str = "") -> None:
        """Judge a claim from the field by what a cell just computed.

        Args:
            claim: as it is told.
            holds: whether it is true here.
            because: one line with the numbers.
            evidence: "emulated", "measured", "modelled", or "" for plain arithmetic.
        """
        self._verdicts.append({"claim": claim, "holds": bool(holds), "because": because, "evidence": evidence})
        tone, word = ("good", "true") if holds else ("bad", "not so")
        body = [("claim", claim), ("verdict", look.badge(word, tone)), ("because", because)]
        if evidence:
            body.append(("evidence", look.badge(evidence, evidence)))
        plain = f"{word}: {claim}\n  {because}" + (f" [{evidence}]" if evidence else "")
        _show(f'<div style="margin:8px 0">{look.facts(body)}</div>', plain)

    def verdict_table(self) -> None:
        """All verdicts so far, a line each."""
        rows = [
            [v["claim"], "true" if v["holds"] else "not so", v["evidence"] or "arithmetic", v["because"]]
            for v in self._verdicts
        ]
        self.table(["claim", "verdict", "evidence", "because"], rows)

    def write(self) -> Path:
        """Write ``findings.json`` beside the figures and say where."""
        path = self.folder / "findings.json"
        content = {
            "schema": SCHEMA,
            "notebook": self.name,
            "facts": self._facts,
            "verdicts": self._verdicts,
            "figures": self._figures,
        }
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        kept = f"{len(self._facts)} facts, {len(self._verdicts)} verdicts, {len(self._figures)} figures"
        print(f"{kept}: {shown_path(path)}")
        return path


def _show(html: str, plain: str) -> None:
    if ipython() is None:
        print(plain)
        return
    from IPython.display import display

    display({"text/html": html, "text/plain": plain}, raw=True)
