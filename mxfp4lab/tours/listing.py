"""Machine code beside the source that it came from: the K loop of a kernel, or all of a kernel without one."""

from __future__ import annotations

import linecache
import re
from collections import Counter, OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950 import classify


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


def lines_of(compiled: Any) -> list[Line]:
    """Every instruction of the inner loop with its source."""
    return lines_between(compiled, *inner_loop(compiled.program))


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


def by_source(lines: list[Line]) -> list[tuple[str, int, dict[str, int]]]:
    """(source line, instructions, instructions by class), in order of first appearance."""
    groups: OrderedDict[str, Counter[str]] = OrderedDict()
    for line in lines:
        groups.setdefault(line.source or "(no source line)", Counter())[line.kind] += 1
    return [(source, sum(kinds.values()), dict(kinds)) for source, kinds in groups.items()]
