"""What a launch can watch beside its bounds checks: traffic, uninitialised reads, races in and between workgroups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mxfp4lab.gfx950.isa import Instruction, Program
from mxfp4lab.gfx950.machine.counts import AccessCounter
from mxfp4lab.gfx950.machine.errors import EmulationError
from mxfp4lab.gfx950.machine.memory import Memory
from mxfp4lab.gfx950.machine.order import OrderWatch
from mxfp4lab.gfx950.machine.poison import PoisonWatch
from mxfp4lab.gfx950.machine.races import RaceWatch
from mxfp4lab.gfx950.machine.vector import Step


@dataclass
class Checks:
    """Watchers of one launch."""

    counts: Any = None
    barrier_hooks: list = field(default_factory=list)
    starters: list = field(default_factory=list)
    watches: list = field(default_factory=list)

    @property
    def findings(self) -> list[EmulationError]:
        """What the watchers found."""
        return [finding for watch in self.watches for finding in watch.findings]

    def wrap(self, instruction: Instruction, step: Step | None) -> Step | None:
        """The closure of an instruction with what the watchers do around it."""
        for watch in self.watches:
            step = watch.wrap(instruction, step)
        return step

    def start(self, chunk) -> None:
        """A chunk of workgroups is about to run."""
        for starter in self.starters:
            starter(chunk)


def attach_checks(memory: Memory, program: Program, accum: int, *, count: bool, poison: bool, races: bool) -> Checks:
    """Hook the asked-for watchers into memory's observer."""
    checks = Checks()
    if count:
        checks.counts = AccessCounter(program)
        memory.observer.hooks.append(checks.counts)
    if races:
        for watch in (RaceWatch(program), OrderWatch(program)):
            memory.observer.hooks.append(watch)
            checks.barrier_hooks.append(watch.barrier)
            checks.starters.append(watch.start)
            checks.watches.append(watch)
    if poison:
        watch = PoisonWatch(program, accum)
        memory.observer.hooks.append(watch)
        checks.starters.append(watch.start)
        checks.watches.append(watch)
    return checks
