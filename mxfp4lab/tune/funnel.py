"""How many configs each step of a search left, and what each screen took, in words, HTML and numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mxfp4lab import display
from mxfp4lab.tune.screens import SCREENS

STAGES: dict[str, str] = {
    "enumerated": "tile axes, known submissions' configs, neighbours of the best",
    "valid": "config_errors has no objection",
    "distinct": "machine code that no other config stands for",
    "tried": "within the budget",
    "compiled": "the offline compiler made gfx950 code",
    "passed screens": "spills, LDS, scaled MFMA, hazards",
    "ranked": "counted by the emulator, time predicted by the model",
    "verified": "executed whole on this shape, C compared bit by bit",
}


def stage_words(arch: str = "gfx950", device: str = "") -> dict[str, str]:
    """What each stage means for a target, and on a GPU where there is one.

    Args:
        arch: what plans are compiled for.
        device: the GPU's name; "" where nothing is measured.
    """
    words = dict(STAGES)
    if arch != "gfx950":
        words["compiled"] = f"the offline compiler made {arch} code"
        words["passed screens"] = "spills, shared memory"
    if device:
        counted = "counted by the emulator, " if arch == "gfx950" else ""
        words["ranked"] = f"{counted}C right and timed on {device}"
        words["verified"] = f"C compared bit by bit on {device}, before its time counts"
    return words


@dataclass
class Funnel:
    """Counts per stage, and why configs left.

    Attributes:
        left: stage -> configs that reached it.
        removed: what removed configs -> how many ("spills", "lds", "invalid", "compile error", ...).
        example: what removed configs -> one of the reasons, as recorded.
        reused: trials that earlier runs had done.
        known: candidates that are a known submission's own.
        arch, device: of the search, for the words beside the stages; device is "" where nothing is measured.
    """

    left: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    removed: Counter = field(default_factory=Counter)
    example: dict[str, str] = field(default_factory=dict)
    reused: int = 0
    known: int = 0
    arch: str = "gfx950"
    device: str = ""

    def reach(self, stage: str, count: int = 1) -> None:
        self.left[stage] += count

    def remove(self, why: str, reason: str, count: int = 1) -> None:
        self.removed[why] += count
        self.example.setdefault(why, reason)

    def removed_lines(self) -> list[tuple[str, int, str]]:
        """(what, how many, an example), most first."""
        return [(why, count, self.example.get(why, "")) for why, count in self.removed.most_common()]

    def nothing_left(self) -> str:
        """One sentence for a search that ends with nothing, naming what removed what."""
        took = ", ".join(f"{why} removed {count}" for why, count, _ in self.removed_lines())
        worst = next((example for _, _, example in self.removed_lines() if example), "")
        return f"no config is left of {self.left['tried']} tried: {took or 'nothing was tried'}" + (
            f" (for example: {worst})" if worst else ""
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "left": dict(self.left),
            "removed": dict(self.removed),
            "example": dict(self.example),
            "reused": self.reused,
            "known": self.known,
        }

    def __str__(self) -> str:
        words = stage_words(self.arch, self.device)
        rows = [(stage, count, words[stage]) for stage, count in self.left.items()]
        lines = [display.text_table(("stage", "configs", "what it means"), rows)]
        if self.removed:
            lines.append(display.text_table(("removed by", "configs", "for example"), self.removed_lines()))
        lines.append(f"{self.known} known submissions' configs among them; {self.reused} trials came from earlier runs")
        return "\n\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        top = max(self.left.values(), default=1) or 1
        words = stage_words(self.arch, self.device)
        bars = [
            (
                stage,
                count,
                display.Html(
                    f'<span style="display:inline-block;height:10px;background:{display.TONES["emulated"][0]};'
                    f'width:{max(1, round(180 * count / top))}px"></span>'
                ),
                words[stage],
            )
            for stage, count in self.left.items()
        ]
        body = display.table(("stage", "configs", "", "what it means"), bars)
        if self.removed:
            rows = [(why, count, SCREENS.get(why, ""), example) for why, count, example in self.removed_lines()]
            body += '<div style="height:8px"></div>' + display.table(
                ("removed by", "configs", "why it matters", "for example"), rows
            )
        note = f"{self.known} known submissions' configs among them; {self.reused} trials came from earlier runs."
        return display.card("Funnel", body + f'<div style="opacity:.75;margin-top:6px">{note}</div>')
