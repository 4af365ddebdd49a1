"""What a reading notebook keeps: tables, figures with captions, verdicts on claims, one JSON file of facts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mxfp4lab import display as look
from mxfp4lab.notebook.results import show, show_figure, write_json
from mxfp4lab.paths import shown_path

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
        show(look.table(headers, rows, caption), look.text_table(headers, rows) + (f"\n{caption}" if caption else ""))

    def figure(self, figure: Any, name: str, caption: str) -> None:
        """Save a figure as SVG and PNG, show it with its caption as alt text, and close it."""
        _, png = show_figure(figure, self.folder, name, caption)
        self._figures.append({"file": png.name, "caption": caption})

    def verdict(self, claim: str, holds: bool, because: str, evidence: str = "") -> None:
        """Judge a claim from the field by what a cell just computed.

        Args:
            claim: as it is told.
            holds: whether it is true here.
            because: one line with the numbers.
            evidence: "emulated", "measured", "modelled", or "" where torch computed it from the formats alone.
        """
        self._verdicts.append({"claim": claim, "holds": bool(holds), "because": because, "evidence": evidence})
        word = look.badge("true", "good") if holds else look.badge("not so", "bad")
        facts = [("claim", claim), ("verdict", word), ("because", because)]
        facts += [("evidence", look.badge(evidence, evidence))] if evidence else []
        show(look.facts(facts), look.text_facts("", facts))

    def write(self) -> Path:
        """Show all verdicts, write ``findings.json`` beside the figures and say where."""
        if self._verdicts:
            words = [[v["claim"], "true" if v["holds"] else "not so", v["because"]] for v in self._verdicts]
            self.table(["claim", "verdict", "because"], words)
        path = self.folder / "findings.json"
        parts = {"facts": self._facts, "verdicts": self._verdicts, "figures": self._figures}
        write_json(path, {"schema": SCHEMA, "notebook": self.name, **parts})
        print(f"{', '.join(f'{len(part)} {name}' for name, part in parts.items())}: {shown_path(path)}")
        return path
