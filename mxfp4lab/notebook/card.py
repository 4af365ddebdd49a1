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


@dataclass(frozen=True, repr=False)
class RunCard(display.Shown):
    """Resolved parameters, versions, device and folder of one run; HTML in a notebook, plain text elsewhere."""

    title: str
    parameters: dict[str, Any]
    environment: dict[str, Any]
    folder: Path | None = None
    help: dict[str, str] = field(default_factory=dict)

    def lines(self) -> list[tuple[str, Any]]:
        packages, git = self.environment.get("packages", {}), self.environment.get("git") or {}
        named = ", ".join(f"{name} {packages[name]}" for name in ("triton", "torch", "amd-aiter") if name in packages)
        knobs = self.environment.get("knobs", {})
        lines = [(name, self._value(name, value)) for name, value in self.parameters.items()]
        device = self.environment.get("device") or "no GPU: results are emulated, times modelled, nothing is measured"
        lines += [
            ("device", device),
            ("toolchain", f"{named}, Python {sys.version_info.major}.{sys.version_info.minor}"),
            ("knobs", ", ".join(f"{k}={v}" for k, v in knobs.items()) or "none set"),
            ("git", f"{git['commit'][:10]}{' + changes' if git['dirty'] else ''}" if git else "not a git checkout"),
        ]
        if self.folder is not None:
            lines.append(("records", shown_path(self.folder)))
        return [*lines, *((display.badge(kind, kind), said) for kind, said in EVIDENCE_WORDS.items())]

    def _value(self, name: str, value: Any) -> display.Html:
        help = f' <span style="opacity:.75">{display.escape(self.help[name])}</span>' if self.help.get(name) else ""
        return display.Html(f"<code>{display.escape(_value_text(value))}</code>{help}")


def _value_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if value is None:
        return "auto"
    return shown_path(value) if isinstance(value, Path) else str(value)
