"""Run the waves of a chunk: groups of waves at one pc, lowest pc first, merged where they meet.

Running the lowest pc first brings waves together again after structured control flow. A group that runs long while
others wait gives way, so that a wave that spins on a flag does not keep the wave it waits for from running.
"""

from __future__ import annotations

import hashlib
import time

import numpy as np

from mxfp4lab.gfx950.isa import Program
from mxfp4lab.gfx950.machine.decode import Block
from mxfp4lab.gfx950.machine.errors import BarrierMismatch, Deadlock, EmulationError
from mxfp4lab.gfx950.machine.memory import Memory
from mxfp4lab.gfx950.machine.state import Chunk, Group

GIVE_WAY = 100  # blocks that one group runs before another, waiting one is let through
MAX_BLOCKS = 5_000_000  # of one chunk: minutes of emulation; a GEMM's workgroup runs some thousands
MOST_TURNS = 64  # of other groups in a row
LOOK = 500  # blocks of a lone group between looks at its progress
SHORT_LOOK = 20  # the same where others could run instead
GIVE_WAY_AT_ONCE = 50  # the same where groups have run in turn and nothing came of it: they are likely spinning


class Executor:
    """Executes one chunk.

    Args:
        program: for messages.
        blocks: decoded blocks by first instruction.
        chunk: registers and LDS.
        memory: global memory; its `progress` counter tells spinning from working.
        max_blocks: give up after so many blocks.
    """

    def __init__(
        self, program: Program, blocks: dict[int, Block], chunk: Chunk, memory: Memory, max_blocks: int = MAX_BLOCKS
    ) -> None:
        self.program, self.blocks, self.chunk, self.memory = program, blocks, chunk, memory
        self.groups = [Group(chunk, program.entry, np.arange(chunk.waves))]
        self.parked: dict[int, int] = {}  # wave -> instruction behind its barrier
        self.ended = np.zeros(chunk.waves, bool)
        self.steps = 0
        self.barrier_hooks: list = []
        self.pending = np.zeros(chunk.waves, np.int32)  # what is outstanding in each wave: a state of `Pending`
        self.blocks_run, self.max_blocks = 0, max_blocks

    @property
    def done(self) -> bool:
        return not self.groups and not self.parked

    def run(self, patience: int, looks: int = 0) -> bool:
        """Run until every wave has ended, or nothing more can come of it before memory changes.

        That is certain once a state recurs, and taken for granted after `patience` blocks without progress, or after
        so many `looks`, if any, at what others store.

        Returns:
            Whether all waves have ended.

        Raises:
            EmulationError: of any kind.
        """
        mark, idle, turn = self._progress(), 0, 0
        watch, looked = None, self.memory.looks
        alone, limit = (SHORT_LOOK, SHORT_LOOK) if looks else (LOOK, GIVE_WAY)
        while self.groups:
            budget = min(alone if len(self.groups) == 1 else limit, self.max_blocks + 1)
            ran = self._run_group(min(self.groups, key=lambda g: g.pc), budget)
            turn += ran
            fair = turn >= limit and len(self.groups) > 1
            if fair:
                ran += self._let_others_run(limit)
                turn = 0
            idle += ran
            self.blocks_run += ran
            if self.blocks_run > self.max_blocks:
                raise EmulationError(
                    f"runs too long: more than {self.max_blocks} blocks of straight-line code in one set of workgroups",
                    self.program[min(self.groups[0].pc, len(self.program) - 1)] if self.groups else None,
                )
            if self.memory.deadline is not None and time.monotonic() > self.memory.deadline:
                raise EmulationError("runs too long: the time that it was given is up")
            now = self._progress()
            spinning = looks and self.memory.looks - looked >= looks and (fair or len(self.groups) == 1)
            if now != mark:
                mark, idle, watch, looked = now, 0, None, self.memory.looks
            elif idle >= patience or spinning:
                return False
            elif fair:
                limit = min(limit, GIVE_WAY_AT_ONCE)
            if idle > 4 * LOOK and (fair or len(self.groups) == 1):
                watch = watch or Recurrence(self)
                if watch.again():
                    return False
        return True

    def _progress(self) -> tuple[int, int]:
        return self.memory.progress, int(np.count_nonzero(self.ended))

    def _let_others_run(self, limit: int) -> int:
        """A turn for every group but the one with the lowest pc, the one furthest ahead first.

        Those that a barrier lets go during the turn get one too.
        """
        lowest, ran, seen = min(self.groups, key=lambda g: g.pc), 0, 0
        while ran < limit and seen < MOST_TURNS:
            others = sorted((g for g in self.groups if g is not lowest), key=lambda g: -g.pc)
            if not others:
                break
            for group in others:
                seen += 1
                if group in self.groups:
                    ran += self._run_group(group, limit)
        return ran

    def _run_group(self, group: Group, budget: int) -> int:
        """Run a group until it ends, parks, splits, meets another group, or used its budget. Returns blocks run."""
        others = len(self.groups) > 1
        horizon = min((g.pc for g in self.groups if g is not group and g.pc > group.pc), default=1 << 60)
        blocks, ran = self.blocks, 0
        while ran < budget:
            block = blocks[group.pc]
            ran += 1
            block.hits += group.n
            self._follow_loads(block, group)
            try:
                for at, step in enumerate(block.steps):  # noqa: B007 - read where a step fails
                    step(group)
            except EmulationError:
                raise
            except Exception as error:
                raise self._internal(block.positions[at], error) from error
            kind = block.exit
            if kind == "fall":
                group.pc = block.end
            elif kind == "jump":
                group.pc = block.target
            elif kind == "branch":
                taken = block.condition(group)
                if group.wm is not None:
                    taken = taken & group.wm
                count = np.count_nonzero(taken)
                if count == 0:
                    group.pc = block.end
                elif count == group.n:
                    group.pc = block.target
                else:
                    self._split(group, taken, block)
                    return ran
            elif kind == "barrier":
                if not self._barrier(group, block.end):
                    return ran
            else:
                self._end(group)
                return ran
            if others and (group.pc >= horizon):
                self._meet(group)
                return ran
        return ran

    def _follow_loads(self, block: Block, group: Group) -> None:
        states = self.pending[group.waves]
        first = states[0]
        for state in (first,) if (states == first).all() else np.unique(states):
            waves = group.waves if state is first else group.waves[states == state]
            known = block.after.get(state)
            if known is None:
                who = self.chunk.describe(int(waves[0]))
                known = block.after[state] = block.pending.after(
                    block.first, block.end, int(state), who, self.memory.findings
                )
            if known != state:
                self.pending[waves] = known

    def _split(self, group: Group, taken: np.ndarray, block: Block) -> None:
        here = taken[group.waves - group.first]
        self.groups.remove(group)
        self._add(group.waves[here], block.target)
        self._add(group.waves[~here], block.end)

    def _add(self, waves: np.ndarray, pc: int) -> None:
        """Waves continue at pc, together with a group that already stands there."""
        for other in self.groups:
            if other.pc == pc:
                self.groups.remove(other)
                waves = np.sort(np.concatenate((waves, other.waves)))
                break
        self.groups.append(Group(self.chunk, pc, waves))

    def _meet(self, group: Group) -> None:
        if any(other.pc == group.pc for other in self.groups if other is not group):
            self.groups.remove(group)
            self._add(group.waves, group.pc)

    def _barrier(self, group: Group, behind: int) -> bool:
        """Waves wait for the rest of their workgroup. Returns whether the whole group goes straight on."""
        alive = self.chunk.waves - int(np.count_nonzero(self.ended))
        if group.n == alive and group.n == self.chunk.waves:
            self._passed(np.arange(len(self.chunk.workgroups)))
            group.pc = behind
            return True
        self.groups.remove(group)
        for wave in group.waves:
            self.parked[int(wave)] = behind
        self._release(np.unique(self.chunk.local_group[group.waves]))
        return False

    def _release(self, workgroups: np.ndarray) -> None:
        """Let go the workgroups of which every wave is parked; refuse those of which the rest has ended."""
        n, per_group = len(self.chunk.workgroups), self.chunk.waves_per_group
        free: dict[int, list[int]] = {}
        for workgroup in workgroups:
            waves = [int(workgroup) + n * i for i in range(per_group)]
            waiting = [w for w in waves if w in self.parked]
            ended = [w for w in waves if self.ended[w]]
            if len(waiting) == per_group:
                self._passed(np.array([workgroup]))
                for wave in waiting:
                    free.setdefault(self.parked.pop(wave), []).append(wave)
            elif waiting and ended and len(waiting) + len(ended) == per_group:
                behind = self.parked[waiting[0]]
                raise BarrierMismatch(
                    f"barrier not reached by every wave: of workgroup {int(self.chunk.workgroups[workgroup])}, waves "
                    f"{[self.chunk.describe(w)[0] for w in waiting]} wait and waves "
                    f"{[self.chunk.describe(w)[0] for w in ended]} have ended",
                    self.program[behind - 1],
                )
        for pc, waves in free.items():
            self._add(np.sort(np.array(waves)), pc)

    def _passed(self, workgroups: np.ndarray) -> None:
        for hook in self.barrier_hooks:
            hook(self.chunk, workgroups)

    def _end(self, group: Group) -> None:
        self.groups.remove(group)
        self.ended[group.waves] = True
        if self.parked:
            self._release(np.unique(self.chunk.local_group[group.waves]))

    def _internal(self, position: int, error: Exception) -> EmulationError:
        """The error for an exception that a closure did not foresee."""
        instruction = self.program[position]
        return EmulationError(f"internal error of the emulator ({type(error).__name__}: {error})", instruction)

    def deadlock(self) -> Deadlock:
        """The error for waves that do not get anywhere."""
        if self.groups:
            group = self.groups[0]
            wave, workgroup = self.chunk.describe(int(group.waves[0]))
            return Deadlock(
                f"deadlock: wave {wave} of workgroup {workgroup} and {group.n - 1} more keep running, "
                f"and no wave changes memory or ends any more",
                self.program[min(group.pc, len(self.program) - 1)],
            )
        return Deadlock("deadlock: every wave waits at a barrier")


class Recurrence:
    """Tells whether a chunk has come back to an earlier state (Brent's cycle finding over looks at it).

    The machine is deterministic: from a state that recurs, with memory unchanged, it goes round for ever.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.anchor: tuple[bytes, bytes] | None = None
        self.looks, self.power = 0, 1

    def again(self) -> bool:
        """Look at the state now; whether it is the anchor's."""
        small = self._small()
        if self.anchor is not None and small == self.anchor[0] and self._large() == self.anchor[1]:
            return True
        self.looks += 1
        if self.anchor is None or self.looks == self.power:
            self.anchor, self.power, self.looks = (small, self._large()), 2 * self.power, 0
        return False

    def _small(self) -> bytes:
        executor = self.executor
        state = hashlib.blake2b(executor.chunk.sfile.tobytes() + executor.chunk.scc.tobytes())
        for group in sorted(executor.groups, key=lambda g: (g.pc, g.first)):
            state.update(repr(group.pc).encode() + group.waves.tobytes())
        state.update(repr(sorted(executor.parked.items())).encode())
        return state.digest()

    def _large(self) -> bytes:
        chunk = self.executor.chunk
        state = hashlib.blake2b()
        for array in (chunk.vfile, chunk.lds, chunk.scratch):
            state.update(np.ascontiguousarray(array).view(np.uint8).data)
        return state.digest()
