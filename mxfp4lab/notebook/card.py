"""The run card: what a notebook runs with, before it runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxfp4lab import display
from mxfp4lab.paths import shown_path

EVIDENCE_WORDS = {
    "measured": "a clock on a real GPU",
    "emulated": "gfx950 machine code executed on the CPU: exact counts and results, no time",
    "modelled": "a predicted MI355X time, with the model's version and known error",
}


@dataclass(frozen=True)
class RunCard:
    """Resolved parameters, versions, device and folders of one run; HTML in a notebook, plain text elsewhere."""

    title: str
    parameters: dict[str, Any]
    environment: dict[str, Any]
    folder: Path | None = None
    help: dict[str, str] = field(default_factory=dict)

    @property
    def machine_lines(self) -> list[tuple[str, str]]:
        """(name, value) of what the run stands on, in words."""
        packages = self.environment.get("packages", {})
        git = self.environment.get("git") or {}
        device = self.environment.get("device")
        lines = [
            ("device", device or "no GPU: results are emulated and times modelled, nothing is measured"),
            (
                "toolchain",
                ", ".join(f"{name} {packages[name]}" for name in ("triton", "torch", "amd-aiter") if name in packages)
                + f", Python {sys.version_info.major}.{sys.version_info.minor}",
            ),
            ("knobs", ", ".join(f"{k}={v}" for k, v in self.environment.get("knobs", {}).items()) or "none set"),
            ("git", f"{git['commit'][:10]}{' + changes' if git['dirty'] else ''}" if git else "not a git checkout"),
        ]
        if self.folder is not None:
            lines.append(("records", shown_path(self.folder)))
        return lines

    def __str__(self) -> str:
        values = [(name, _value_text(value)) for name, value in self.parameters.items()]
        return display.text_facts(self.title, [*values, *self.machine_lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        values = [
            (
                name,
                display.Html(
                    f"<code>{display.escape(_value_text(value))}</code>"
                    f'<span style="opacity:.7"> {display.escape(self.help.get(name, ""))}</span>'
                ),
            )
            for name, value in self.parameters.items()
        ]
        words = " ".join(
            f'{display.badge(kind, kind)} <span style="opacity:.75">{display.escape(said)}</span>&ensp;'
            for kind, said in EVIDENCE_WORDS.items()
        )
        return display.card(
            self.title,
            display.facts(values)
            + '<div style="height:6px"></div>'
            + display.facts(self.machine_lines)
            + f'<div style="margin-top:6px">{words}</div>',
        )


def _value_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if value is None:
        return "auto"
    return shown_path(value) if isinstance(value, Path) else str(value)
