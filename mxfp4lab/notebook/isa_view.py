"""Machine code beside the source it came from, as a page: prologue, K loop and epilogue fold."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab import display as look
from mxfp4lab.gfx950 import classify

# Ink of an instruction's class: the same hues as figures, dark enough for white and light enough for black paper.
INKS = {
    "mfma": "#c2410c",
    "convert": "#0a7d5c",
    "vmem": "#2f7fc1",
    "lds": "#b565a7",
    "scratch": "#d01c1c",
    "waitcnt": "#8a8a8a",
    "barrier": "#8a8a8a",
}


@dataclass(frozen=True)
class Line:
    """One instruction: its place in the program, text, class, and the source line behind it ("" if unknown)."""

    index: int
    text: str
    kind: str
    source: str


def inner_loop(program: Any) -> tuple[int, int]:
    """First and last instruction of the loop with most MFMA, or of the whole program where no loop has one."""
    loops = [(i.target, i.index) for i in program.instructions if i.target is not None and i.target <= i.index]
    best, most = (0, len(program.instructions) - 1), 0
    for first, last in loops:
        found = sum(ins.mnemonic.startswith("v_mfma") for ins in program.instructions[first : last + 1])
        if found > most:
            best, most = (first, last), found
    return best


def lines_between(compiled: Any, first: int, last: int) -> list[Line]:
    """Instructions ``first`` to ``last``, both included, with their source."""
    folders = {name: folder for folder, name in re.findall(r'^\s*\.file\s+\d+ "([^"]+)" "([^"]+)"', compiled.asm, re.M)}
    lines = []
    for ins in compiled.program.instructions[first : last + 1]:
        source = ""
        if ins.source is not None:
            name, number = ins.source
            folder = Path(folders.get(name, ""))
            text = linecache.getline(str(folder / name), number).strip()
            # A notebook cell is compiled under a made-up file name.
            source = f"{'cell' if folder.name.startswith('ipykernel_') else name}:{number}  {text}"
        lines.append(Line(ins.index, " ".join(ins.text.split()), classify(ins.mnemonic), source))
    return lines


class IsaView:
    """The annotated machine code of one compiled kernel; HTML in a notebook, the same listing as plain text.

    Args:
        compiled: a `Compiled` for gfx950.
        open_loop: whether the K loop starts unfolded.
        find: only instructions whose text holds this, with a few around each; "" for all.
    """

    def __init__(self, compiled: Any, *, open_loop: bool = True, find: str = "") -> None:
        if not compiled.readable:
            raise ValueError(f"arch: the machine code of {compiled.arch} cannot be read here; allowed: gfx950")
        self.compiled, self.open_loop, self.find = compiled, open_loop, find
        self.title = f"{compiled.name} on {compiled.arch}: {len(compiled.program.instructions)} instructions"

    def sections(self) -> list[tuple[str, list[Line]]]:
        """(name, instructions): before the K loop, the loop, after it."""
        program = self.compiled.program
        first, last = inner_loop(program)
        end = len(program.instructions) - 1
        loop = f"K loop ({first} to {last})" if (first, last) != (0, end) else "whole kernel: it has no loop"
        parts = [("prologue", 0, first - 1), (loop, first, last), ("epilogue", last + 1, end)]
        return [(name, self._filtered(lines_between(self.compiled, a, b))) for name, a, b in parts if a <= b]

    def _filtered(self, lines: list[Line]) -> list[Line]:
        if not self.find:
            return lines
        hits = [i for i, line in enumerate(lines) if self.find in line.text]
        kept = sorted({j for i in hits for j in range(max(0, i - 3), min(len(lines), i + 4))})
        return [lines[j] for j in kept]

    def by_source(self) -> list[tuple[str, int, dict[str, int]]]:
        """(source line, instructions, instructions by class) of the K loop, most instructions first."""
        (loop,) = [lines for name, lines in self.sections() if name.startswith(("K loop", "whole"))]
        groups: dict[str, Counter[str]] = {}
        for line in loop:
            groups.setdefault(line.source or "(no source line)", Counter())[line.kind] += 1
        found = [(source, kinds.total(), dict(kinds.most_common())) for source, kinds in groups.items()]
        return sorted(found, key=lambda entry: -entry[1])

    def __str__(self) -> str:
        text = [self.title]
        for name, lines in self.sections():
            text.append(f"{name}: {_mix(lines)}")
            source = ""
            for line in lines:
                if line.source != source:
                    source = line.source
                    text.append(f"          ; {source or 'no source line'}")
                text.append(f"  {line.index:6d}  {line.text}")
        return "\n".join(text)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        hazards = {hazard.index for hazard in self.compiled.hazards}
        parts = []
        for name, lines in self.sections():
            opened = self.open_loop and name.startswith(("K loop", "whole"))
            parts.append(look.details(f"{name}: {_mix(lines)}", _listing(lines, hazards), opened=opened))
        return str(look.card(self.title, "".join(parts)))


def isa_view(compiled: Any, find: str = "") -> IsaView:
    """The annotated machine code of a `Compiled`, or of the kernel with most MFMA of a `CompiledPlan`."""
    kernels = getattr(compiled, "kernels", None)
    if kernels:
        compiled = max(kernels, key=lambda kernel: sum(kernel.mfma.values()))
    return IsaView(compiled, find=find)


def _mix(lines: Sequence[Line]) -> str:
    counts = Counter(line.kind for line in lines)
    return f"{len(lines)} instructions, " + ", ".join(f"{n} {kind}" for kind, n in counts.most_common())


def _listing(lines: Sequence[Line], hazards: set[int]) -> str:
    rows, source = [], None
    for line in lines:
        if line.source != source:
            source = line.source
            said = look.escape(source or "no source line")
            rows.append(f'<div style="opacity:.75;white-space:pre">       ; {said}</div>')
        ink = f"color:{INKS[line.kind]};" if line.kind in INKS else ""
        mark = " background:rgba(208,28,28,.25);" if line.index in hazards else ""
        rows.append(
            f'<div style="white-space:pre;{mark}"><span style="opacity:.6">{line.index:6d}</span>  '
            f'<span style="{ink}" title="{look.escape(line.kind)}">{look.escape(line.text)}</span></div>'
        )
    style = "font-family:var(--jp-code-font-family, monospace);font-size:12px;line-height:1.35;max-height:520px"
    return f'<div style="{style};overflow:auto;margin:4px 0">{"".join(rows)}</div>'
