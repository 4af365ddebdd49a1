"""LDS races: two waves of a workgroup touch a byte with no barrier between, and one of them changes it.

A write that leaves a byte as it was is no race: replicated layouts store one value from several waves. Loads straight
to LDS are in flight until their wave has waited for them (vmcnt); until then no wave may touch their bytes, and a
barrier does not publish them.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from mxfp4lab.gfx950.isa import Instruction, Program, classify
from mxfp4lab.gfx950.isa.row import Move
from mxfp4lab.gfx950.isa.table import find_row
from mxfp4lab.gfx950.isa.waits import awaited, counter
from mxfp4lab.gfx950.machine.errors import EmulationError, LdsRace
from mxfp4lab.gfx950.machine.memory import Access
from mxfp4lab.gfx950.machine.operands import Step
from mxfp4lab.gfx950.machine.state import Chunk, Group

MAX_FINDINGS = 100
IN_FLIGHT = np.int32(-2)


class _LdsState:
    """Per byte of a chunk's LDS: who touched it since the last barrier, and by which instruction."""

    def __init__(self, chunk: Chunk) -> None:
        size = len(chunk.lds)
        self.phase = np.zeros(len(chunk.workgroups), np.int32)  # barriers passed, by workgroup
        self.at = np.full(size, -1, np.int32)  # phase in which the masks below hold
        self.writers, self.readers = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
        self.value = np.zeros(size, np.uint8)  # content as the waves of one instruction, taken in turn, leave it
        self.written_by, self.read_by = np.zeros(size, np.int32), np.zeros(size, np.int32)
        # Vector memory operations that each wave has not waited for, oldest first: LDS bytes, or None.
        self.outstanding: list[deque] = [deque() for _ in range(chunk.waves)]


class RaceWatch:
    """A hook for accesses, barriers and waits of one launch.

    Attributes:
        findings: one `LdsRace` per pair of instructions.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.findings: list[EmulationError] = []
        self._seen: set[tuple[int, int]] = set()

    def start(self, chunk: Chunk) -> None:
        """Fresh state for a chunk of workgroups."""
        chunk.races = _LdsState(chunk)

    def barrier(self, chunk: Chunk, workgroups: np.ndarray) -> None:
        """Workgroups pass a barrier."""
        chunk.races.phase[workgroups] += 1

    def __call__(self, access: Access) -> None:
        group, instruction = access.group, access.instruction
        state: _LdsState = group.chunk.races
        to_lds = access.space == "lds" and classify(instruction.mnemonic) != "lds"
        if access.space != "lds":
            return
        offsets = access.offsets + group.lds_base
        span = np.arange(access.nbytes)
        data = None
        if access.words is not None:
            raw = np.ascontiguousarray(access.words).view(np.uint8)
            data = raw.reshape(*access.words.shape[:2], -1)[..., : access.nbytes]
        # The waves of one instruction are taken one after the other; equal numbers are of different workgroups.
        number = group.chunk.wave_in_group[group.waves]
        for wave in np.unique(number):
            rows = group.waves[number == wave] - group.first
            lanes = np.ones((len(rows), 64), bool) if access.mask is None else access.mask[rows]
            where = (offsets[rows][lanes][:, None] + span).ravel()
            home = np.repeat(group.chunk.local_group[group.first + rows][:, None], 64, axis=1)[lanes]
            home = np.repeat(home, access.nbytes)
            new = None if data is None else data[rows][lanes].ravel()
            if new is not None and wave == number.min():
                state.value[...] = group.chunk.lds
            self._touch(access, int(wave), where, home, new, to_lds)
            if to_lds:
                for row in rows:
                    mine = home == group.chunk.local_group[group.first + row]
                    state.outstanding[group.first + row].append((where[mine], int(wave), instruction.index))

    def _touch(self, access: Access, wave: int, where: np.ndarray, home: np.ndarray, new, to_lds: bool) -> None:
        chunk, instruction = access.group.chunk, access.instruction
        state: _LdsState = chunk.races
        phase = state.phase[home]
        flying = state.at[where] == IN_FLIGHT
        stale = ~flying & (state.at[where] != phase)
        old = where[stale]
        state.writers[old] = state.readers[old] = 0
        state.at[old] = phase[stale]
        me = np.uint32(1 << wave)
        if flying.any():
            self._report("reading" if access.kind == "load" else "writing", "load to LDS still in flight,",
                         access, wave, where, home, flying, state.written_by)  # fmt: skip
        writers, readers = state.writers[where], state.readers[where]
        if access.kind == "load":
            bad = ~flying & (writers != 0) & (writers & me == 0)
            if bad.any():
                self._report("reading", "", access, wave, where, home, bad, state.written_by)
            state.readers[where] |= me
            state.read_by[where] = instruction.index
            return
        changed = np.ones(len(where), bool) if new is None else state.value[where] != new
        if access.kind == "atomic":  # atomics do not race with each other
            changed = changed & ~self._was_atomic(state.written_by[where])
        bad = ~flying & changed & (writers & ~me != 0)
        if bad.any():
            self._report("writing", "", access, wave, where, home, bad, state.written_by)
        late = ~flying & ~bad & changed & (readers & ~me != 0)
        if late.any():
            self._report("writing", "", access, wave, where, home, late, state.read_by)
        state.writers[where] = np.where(changed, me, writers | me)
        state.written_by[where] = instruction.index
        if new is not None:
            state.value[where] = new
        if to_lds:
            state.at[where] = IN_FLIGHT

    def _was_atomic(self, index: np.ndarray) -> np.ndarray:
        rows = {int(i): find_row(self.program[int(i)]) for i in np.unique(index)}
        atomic = {
            i: row is not None and isinstance(row.does, Move) and row.does.kind == "atomic" for i, row in rows.items()
        }
        return np.array([atomic[int(i)] for i in index], bool)

    def _report(self, what, extra, access, wave, where, home, bad, by) -> None:
        chunk = access.group.chunk
        for at in np.flatnonzero(bad):
            first = self.program[int(by[where[at]])]
            pair = (first.index, access.instruction.index)
            if pair in self._seen:
                continue
            self._seen.add(pair)
            if len(self.findings) >= MAX_FINDINGS:
                return
            state = chunk.races
            others = int(state.writers[where[at]] | (state.readers[where[at]] if what == "writing" else 0))
            self.findings.append(
                LdsRace(
                    f"{extra} {what}".strip(), first, access.instruction,
                    byte_address=int(where[at]) - int(home[at]) * chunk.lds_row, others=others & ~(1 << wave) or others,
                    wave=wave, workgroup=int(chunk.workgroups[home[at]]),
                )
            )  # fmt: skip

    def wrap(self, instruction: Instruction, step: Step | None) -> Step | None:
        """Vector memory operations are counted by wave; an s_waitcnt completes those to LDS that it waits for."""
        if step is not None and counter(instruction) in ("vmcnt", "both"):
            return _counted(step)
        allowed = awaited(instruction).get("vmcnt")
        if allowed is None:
            return step

        def run(g: Group) -> None:
            state: _LdsState = g.chunk.races
            for wave in g.waves:
                queue = state.outstanding[wave]
                while len(queue) > allowed:
                    done = queue.popleft()
                    if done is None:
                        continue
                    where, number, index = done
                    mine = where[(state.at[where] == IN_FLIGHT) & (state.written_by[where] == index)]
                    state.at[mine] = state.phase[g.chunk.local_group[wave]]
                    state.writers[mine], state.readers[mine] = np.uint32(1 << number), 0

        return run


def _counted(step: Step) -> Step:
    """One entry per wave that issues it: lanes that are off, or read zeros past a buffer's range, change nothing."""

    def run(g: Group) -> None:
        outstanding = g.chunk.races.outstanding
        before = [len(outstanding[wave]) for wave in g.waves]
        step(g)
        for wave, length in zip(g.waves, before, strict=True):
            if len(outstanding[wave]) == length:  # a load to LDS has put in its bytes
                outstanding[wave].append(None)

    return run
