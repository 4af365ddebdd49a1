"""What each wave of a launch may rely on of what others stored: vector clocks over vector memory operations.

The vector memory operations of a wave are numbered. ``s_waitcnt vmcnt(n)`` completes all but the last n of them; a
barrier tells the waves of a workgroup what each has completed and knows; a store carries what its wave knows to whoever
sees it. Between XCDs, which have an L2 each, it carries what a ``buffer_wbl2 sc1`` has written back, and only to who
issues a ``buffer_inv sc1`` behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.state import Chunk

Clock = dict[int, np.ndarray]  # workgroup -> for each wave of it, up to which operation all are known to be done


def merged(a: Clock, b: Clock) -> Clock:
    """The later of both in every place; rows are never changed in place."""
    if not a or a is b:
        return b
    both = dict(a)
    for group, row in b.items():
        mine = both.get(group)
        if mine is not row:
            both[group] = row if mine is None else np.maximum(mine, row)
    return both


@dataclass(slots=True, eq=False)
class Store:
    """A store or atomic of one wave, and what its wave knew when it issued it.

    Attributes:
        group, wave: workgroup, in order of start, and wave of it.
        number: which operation of the wave it is.
        completed, published: of the workgroup's waves, what each had waited for, and what barriers had told of it.
        knows, written_back: of other workgroups' stores, and of stores that are visible to other XCDs.
        wide: at device scope.
    """

    group: int
    wave: int
    number: int
    instruction: Instruction
    completed: np.ndarray
    published: np.ndarray
    knows: Clock
    written_back: Clock
    wide: bool
    _clock: Clock | None = field(default=None, repr=False)

    def clock(self) -> Clock:
        """What who sees this store may rely on."""
        if self._clock is None:
            own = self.published.copy()
            own[self.wave] = self.completed[self.wave]
            self._clock = merged(self.knows, {self.group: own})
        return self._clock


class Clocks:
    """The clocks of all waves of a launch; waves and workgroups are numbered in the order in which they start.

    Attributes:
        waves: of a workgroup.
        ids: the linear workgroup id of each workgroup.
        issued: operations of each wave so far.
        observed: (workgroup, store) where a wave of the workgroup has seen the store.
    """

    def __init__(self) -> None:
        self.waves = 1
        self.ids, self._xcd = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.issued = self._completed = self._published = np.zeros(0, np.int64)
        self.observed: set[tuple[int, Store]] = set()
        self._knows: dict[int, Clock] = {}
        self._fetched: dict[int, Clock] = {}  # of other XCDs: to be known after a buffer_inv
        self._written_back: dict[int, Clock] = {}
        self._pending: dict[int, list[tuple]] = {}  # by wave: (operation, what comes of it once it is waited for)
        self._heard: dict[tuple[int, int], tuple[Store, int]] = {}  # (reader's, writer's workgroup): last flag, wave

    def start(self, chunk: Chunk) -> None:
        """Numbers for a chunk's waves, `chunk.order`."""
        n, self.waves = len(chunk.workgroups), chunk.waves_per_group
        chunk.order_first = len(self.ids)
        chunk.order = (chunk.order_first + chunk.local_group) * self.waves + chunk.wave_in_group
        more = np.zeros(n * self.waves, np.int64)
        self.issued = np.concatenate((self.issued, more))
        self._completed = np.concatenate((self._completed, more))
        self._published = np.concatenate((self._published, more))
        self.ids = np.concatenate((self.ids, chunk.workgroups))
        self._xcd = np.concatenate((self._xcd, chunk.xcd[:n].astype(np.int64)))

    def barrier(self, groups: np.ndarray) -> None:
        """The waves of workgroups tell each other what they have waited for and what they know."""
        self._rows(self._published)[groups] = self._rows(self._completed)[groups]
        for clocks in (self._knows, self._fetched, self._written_back):
            for group in groups.tolist() if clocks else ():
                waves = range(group * self.waves, (group + 1) * self.waves)
                total: Clock = {}
                for wave in waves:
                    total = merged(total, clocks.get(wave, total))
                if total:
                    clocks.update(dict.fromkeys(waves, total))

    def wait(self, waves: np.ndarray, allowed: int) -> None:
        """All but the last `allowed` operations of waves are done."""
        self._completed[waves] = np.maximum(self._completed[waves], self.issued[waves] - allowed)
        for wave in waves.tolist() if self._pending else ():
            left = []
            for entry in self._pending.pop(wave, ()):
                number, stores, what = entry
                if number > self._completed[wave]:
                    left.append(entry)
                elif stores is None:
                    self._written_back[wave] = merged(self._written_back.get(wave, {}), what)
                else:
                    self._acquire(wave, stores, what)
            if left:
                self._pending[wave] = left

    def write_back(self, waves: np.ndarray) -> None:
        """A buffer_wbl2 sc1 of waves: it takes along what they stored before, and what they know."""
        for wave in waves.tolist():
            group, own = divmod(wave, self.waves)
            row = self._rows(self._published)[group].copy()
            row[own] = self.issued[wave]
            clock = merged(self._knows.get(wave, {}), {group: row})
            self._pending.setdefault(wave, []).append((self.issued[wave], None, clock))

    def invalidate(self, waves: np.ndarray) -> None:
        """A buffer_inv sc1 of waves."""
        for wave in waves.tolist():
            fetched = self._fetched.pop(wave, None)
            if fetched is not None:
                self._knows[wave] = merged(self._knows.get(wave, {}), fetched)

    def sees(self, wave: int, number: int, stores: list[Store], wide: bool) -> None:
        """Operation `number` of a wave finds stores: to be relied on once it has been waited for."""
        self._pending.setdefault(wave, []).append((number, stores, wide))

    def _acquire(self, wave: int, stores: list[Store], wide: bool) -> None:
        knows, fetched = self._knows.get(wave, {}), self._fetched.get(wave, {})
        group = wave // self.waves
        here = self._xcd[group]
        for store in stores:
            self.observed.add((group, store))
            if store.group == group:
                continue
            self._heard[group, store.group] = store, wave % self.waves
            if self._xcd[store.group] == here or (wide and store.wide):
                near = {other: row for other, row in store.clock().items() if self._xcd[other] == here}
                far = {other: row for other, row in store.written_back.items() if self._xcd[other] != here}
                knows, fetched = merged(knows, near), merged(fetched, far)
        if knows:
            self._knows[wave] = knows
        if fetched:
            self._fetched[wave] = fetched

    def stores(self, waves: np.ndarray, instruction: Instruction) -> list[Store]:
        """A store of each wave by the instruction that they have just issued."""
        groups = waves // self.waves
        wide = "_atomic_" in instruction.mnemonic or bool(instruction.modifier("sc1", 0))
        completed, published = self._rows(self._completed)[groups], self._rows(self._published)[groups]
        return [
            Store(wave // self.waves, wave % self.waves, number, instruction, completed[i], published[i],
                  self._knows.get(wave, {}), self._written_back.get(wave, {}), wide)
            for i, (wave, number) in enumerate(zip(waves.tolist(), self.issued[waves].tolist(), strict=True))
        ]  # fmt: skip

    def done(self, store: Store, wave: int) -> bool:
        """Whether a wave may rely on a store."""
        group, own = divmod(wave, self.waves)
        if store.group == group:
            return store.wave == own or bool(self._published[group * self.waves + store.wave] >= store.number)
        row = self._knows.get(wave, {}).get(store.group)
        return row is not None and bool(row[store.wave] >= store.number)

    def missing(self, store: Store, wave: int) -> tuple[str, str]:
        """What a wave lacks to rely on a store: the reason, and where."""
        group, own = divmod(wave, self.waves)
        if store.group == group:
            waited = self._completed[group * self.waves + store.wave] >= store.number
            return "no barrier between the two waves" if waited else "the store was not waited for (vmcnt)", ""
        if (group, store.group) not in self._heard:
            return "no flag of the storing workgroup was seen and waited for", ""
        flag, hearer = self._heard[group, store.group]
        raised = f" when wave {flag.wave} raised the flag at {flag.instruction.where()}"
        if flag.completed[store.wave] < store.number:
            return "the store was not waited for (vmcnt)", raised
        if flag.wave != store.wave and flag.published[store.wave] < store.number:
            return "no barrier lay behind the storing wave's wait", raised
        if self._xcd[store.group] != self._xcd[group]:
            xcds = f" from XCD {self._xcd[store.group]} to XCD {self._xcd[group]},"
            row = self._fetched.get(wave, {}).get(store.group)
            if row is not None and row[store.wave] >= store.number:
                return "no buffer_inv sc1 behind the flag", xcds[:-1]
            return "no buffer_wbl2 sc1, or a flag without device scope", xcds + raised
        if hearer != own:
            return "no barrier since another wave saw the flag", raised
        return "the flag does not tell of it", raised

    def _rows(self, of_waves: np.ndarray) -> np.ndarray:
        return of_waves.reshape(-1, self.waves)
