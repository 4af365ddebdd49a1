"""What a launch can watch beside its bounds checks: counts of traffic, uninitialised reads, LDS races."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mxfp4lab.gfx950.counts import AccessCounter
from mxfp4lab.gfx950.errors import EmulationError
from mxfp4lab.gfx950.memory import Memory
from mxfp4lab.isa import Program


@dataclass
class Checks:
    """Watchers of one launch."""

    counts: Any = None
    findings: list[EmulationError] = field(default_factory=list)
    barrier_hooks: list = field(default_factory=list)
    starters: list = field(default_factory=list)

    def start(self, chunk) -> None:
        """A chunk of workgroups is about to run."""
        for starter in self.starters:
            starter(chunk)


def attach_checks(
    memory: Memory, program: Program, *, count: bool, poison: bool, races: bool, lds_bytes: int
) -> Checks:
    """Hook the asked-for watchers into memory's observer."""
    checks = Checks()
    if count:
        checks.counts = AccessCounter(program)
        memory.observer.hooks.append(checks.counts)
    return checks
