"""Data races between workgroups: bytes of global memory that reach a reader by luck and not by order.

The emulator stores at once and in program order; a GPU does not. So each load is asked whether the store that it finds
happened before it, by the rules of `clocks`. What puts them in order is a flag: an atomic that returns, or a load of at
most 8 bytes with a scope bit (sc0, sc1), acquires what the store that it finds carries, once it has been waited for; a
chain of atomics on one place carries on what each of them carried. Across XCDs a flag needs device scope at both ends
(an atomic, or sc1).

Two waves that store different values to a byte with no order between are reported too. Storing the value that is there
is no race, and a reader may rely on any of its stores. A dword of which some bytes were rightly awaited is taken as
read for those, as kernels read dwords of scales for a byte. A counter of integer atomics may be read at any time: which
of its values is found is the kernel's to bear.

Not seen: a store that overtakes another workgroup's earlier load, and a line that a vector cache still holds from an
early load (that load is reported where it found bytes already stored). A look that a vector cache may answer (sc0
without nt or sc1) can find the flag late or never: that costs time and not order. Data stored with sc1 and never
written back counts as kept in its XCD.
"""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.isa import Instruction, Program
from mxfp4lab.gfx950.isa.waits import awaited, counter
from mxfp4lab.gfx950.machine.clocks import Clocks, Store
from mxfp4lab.gfx950.machine.errors import DataRace, EmulationError
from mxfp4lab.gfx950.machine.memory import Access
from mxfp4lab.gfx950.machine.operands import Step
from mxfp4lab.gfx950.machine.state import Chunk, Group

MAX_FINDINGS = 100
WIDEST_FLAG = 8  # bytes that one access moves as a whole


class Content:
    """Where a byte's value comes from.

    Attributes:
        store: the last store to it.
        older: what was there before, where it counts: the same value, or, with `every`, what an atomic changed.
    """

    __slots__ = ("every", "older", "store")

    def __init__(self, store: Store, older: Content | None = None, every: bool = False) -> None:
        self.store, self.older, self.every = store, older, every

    def flags(self) -> list[Store]:
        """What a flag's reader acquires from: of stores of one value the first, of atomics each."""
        found, content = [], self
        while content is not None:
            if content.older is None or content.every:
                found.append(content.store)
            content = content.older
        return found

    def late(self, clocks: Clocks, wave: int) -> Store | None:
        """A store that a wave relies on and may not; None where all is in order."""
        content = self
        while True:
            done = clocks.done(content.store, wave)
            if content.older is None or content.every != done:
                return None if done else content.store
            content = content.older


class OrderWatch:
    """A hook for accesses, barriers, waits and cache control of one launch.

    Attributes:
        findings: one `DataRace` per pair of instructions and reason.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.findings: list[EmulationError] = []
        self._clocks = Clocks()
        self._shadow: dict[int, np.ndarray] = {}  # by buffer that is stored to: of each byte its content, or 0
        self._contents: list[Content | None] = [None]
        self._pairs: dict[tuple[int, int], int] = {}  # contents made of an older one and a store
        self._looked: set[tuple[int, int]] = set()  # (wave, content) seen as a flag
        self._polls: dict[tuple, tuple[np.ndarray, np.ndarray]] = {}
        self._seen: set[tuple] = set()

    def start(self, chunk: Chunk) -> None:
        """A chunk of workgroups is about to run."""
        self._clocks.start(chunk)

    def barrier(self, chunk: Chunk, workgroups: np.ndarray) -> None:
        """Workgroups pass a barrier."""
        self._clocks.barrier(chunk.order_first + workgroups)

    def wrap(self, instruction: Instruction, step: Step | None) -> Step | None:
        """Count operations, complete them where they are waited for, follow cache control."""
        name, clocks = instruction.mnemonic, self._clocks
        allowed = awaited(instruction).get("vmcnt")
        inv, back = (name == kind and instruction.modifier("sc1", 0) for kind in ("buffer_inv", "buffer_wbl2"))
        counted = counter(instruction) in ("vmcnt", "both")
        if allowed is None and not inv and not counted:
            return step

        def run(g: Group) -> None:
            waves = g.chunk.order[g.waves]
            if counted:
                clocks.issued[waves] += 1
            if step is not None:
                step(g)
            if allowed is not None:
                clocks.wait(waves, allowed)
            elif inv:
                clocks.invalidate(waves)
            elif back:
                clocks.write_back(waves)

        return run

    def __call__(self, access: Access) -> None:
        """A load, store or atomic that is about to happen."""
        if access.space not in ("global", "scalar"):
            return
        shadow = self._shadow.get(access.buffer.base)
        if access.kind == "load":
            if shadow is not None:
                self._load(access, shadow)
            return
        if shadow is None:
            shadow = self._shadow[access.buffer.base] = np.zeros(len(access.buffer.bytes), np.int32)
        self._store(access, shadow)

    def _load(self, access: Access, shadow: np.ndarray) -> None:
        row, at, unit = pieces(access)
        cells = shadow.reshape(-1, unit)[at // unit]
        if not cells.any():
            return
        instruction, g = access.instruction, access.group
        wide = bool(instruction.modifier("sc1", 0))
        scoped = access.nbytes <= WIDEST_FLAG and (wide or bool(instruction.modifier("sc0", 0)))
        if scoped:  # a wave that looks again and again sees the same for long
            look = (instruction.index, g.chunk.order_first, g.first, g.last)
            known = self._polls.get(look)
            if known is not None and np.array_equal(known[0], cells) and np.array_equal(known[1], row):
                return
            self._polls[look] = cells, row
        if unit > 1 and (cells != cells[:, :1]).any():
            row, at = np.repeat(row, unit), (at[:, None] + np.arange(unit)).ravel()
            cells = cells.reshape(-1, 1)
        stored = np.flatnonzero(cells[:, 0])
        row, at, number = row[stored], at[stored], cells[stored, 0].astype(np.int64)
        _, place, back = np.unique(row << 32 | number, return_index=True, return_inverse=True)
        waves = g.chunk.order[g.first + row[place]].tolist()
        late: dict[int, Store] = {}
        for i, (wave, n) in enumerate(zip(waves, number[place].tolist(), strict=True)):
            content = self._contents[n]
            if scoped:
                if (wave, n) not in self._looked:
                    self._looked.add((wave, n))
                    self._clocks.sees(wave, int(self._clocks.issued[wave]), content.flags(), wide)
            elif not is_counter(content.store.instruction):
                store = content.late(self._clocks, wave)
                if store is not None:
                    late[i] = store
        if late:
            bad = np.isin(back, list(late))
            dword = row << 40 | at >> 2
            bad &= ~np.isin(dword, dword[~bad])
            for i in np.unique(back[bad]).tolist():
                self._report("load", access, late[i], waves[i], int(at[bad & (back == i)].min()))

    def _store(self, access: Access, shadow: np.ndarray) -> None:
        row, at, unit = pieces(access)
        g = access.group
        numbers, rows = np.zeros(g.w, np.int32), np.unique(row)
        numbers[rows] = np.arange(len(rows)) + len(self._contents)
        stores = self._clocks.stores(g.chunk.order[g.first + rows], access.instruction)
        self._contents.extend(Content(store) for store in stores)
        new, cell, cells = numbers[row], at // unit, shadow.reshape(-1, unit)
        before = cells[cell]
        if not before.any():
            cells[cell] = new[:, None]
            if (cells[cell, 0] == new).all():
                return
            cells[cell] = 0  # waves store to the same bytes: one after another
        elif unit > 1 and (before != before[:, :1]).any():
            cell, new, unit = (at[:, None] + np.arange(unit)).ravel(), np.repeat(new, unit), 1
            cells = shadow.reshape(-1, 1)
        order = np.argsort(cell, kind="stable")
        cell, new = cell[order], new[order]
        first = np.r_[True, cell[1:] != cell[:-1]]
        position = np.arange(len(cell))
        turn = position - np.maximum.accumulate(np.where(first, position, 0))
        same = np.zeros(len(cell), bool)
        if access.words is not None and access.kind == "store":
            data = bytes_of(access).reshape(-1, unit)[order]
            held = access.buffer.bytes.reshape(-1, unit)[cell]
            held[~first] = data[:-1][~first[1:]]
            same = (data == held).all(axis=1)
        for each in range(int(turn.max(initial=-1)) + 1):
            now = np.flatnonzero(turn == each)
            key = cells[cell[now], 0].astype(np.int64) << 32 | new[now].astype(np.int64) << 1 | same[now]
            found, place, back = np.unique(key, return_index=True, return_inverse=True)
            after = [
                self._after(access, n >> 32, n >> 1 & 0x7FFFFFFF, bool(n & 1), int(cell[now[i]]) * unit)
                for n, i in zip(found.tolist(), place.tolist(), strict=True)
            ]
            cells[cell[now]] = np.array(after, np.int32)[back][:, None]

    def _after(self, access: Access, old: int, new: int, same: bool, at: int) -> int:
        """The content of bytes that held `old` when `new` is stored."""
        if not old:
            return new
        before, store = self._contents[old], self._contents[new].store
        wave = store.group * self._clocks.waves + store.wave
        last = before.store
        if access.kind == "atomic":
            if access.instruction.modifier("sc0", 0):
                self._clocks.sees(wave, store.number, before.flags(), True)
        elif not same:
            counted = is_counter(last.instruction) and last.group == store.group  # it came last and saw the others
            if not counted and (store.group, last) not in self._clocks.observed:
                late = before.late(self._clocks, wave)
                if late is not None:
                    self._report("store", access, late, wave, at)
            return new
        elif (last.group, last.wave) == (store.group, store.wave):
            return old
        if (old, new) not in self._pairs:
            self._pairs[old, new] = len(self._contents)
            self._contents.append(Content(store, before, access.kind == "atomic"))
        return self._pairs[old, new]

    def _report(self, kind: str, access: Access, store: Store, wave: int, at: int) -> None:
        reason, where = self._clocks.missing(store, wave)
        key = (kind, store.instruction.index, access.instruction.index, reason)
        if key in self._seen or len(self.findings) >= MAX_FINDINGS:
            return
        self._seen.add(key)
        group, own = divmod(wave, self._clocks.waves)
        ids = self._clocks.ids
        self.findings.append(
            DataRace(
                kind, store.instruction, access.instruction, reason + where, buffer=access.buffer.name, byte_offset=at,
                writer=(int(ids[store.group]), store.wave), other=(int(ids[group]), own),
            )
        )  # fmt: skip


def is_counter(instruction: Instruction) -> bool:
    """Whether it is an atomic on whole numbers."""
    name = instruction.mnemonic
    return "_atomic_" in name and not name.endswith(("f16", "f32", "f64"))


def pieces(access: Access) -> tuple[np.ndarray, np.ndarray, int]:
    """An access in aligned pieces of 1 to 16 bytes: (row of the group, byte offset) of each, and bytes of one."""
    if access.mask is None:
        at = access.offsets.ravel()
        row = np.repeat(np.arange(len(access.offsets)), access.offsets.shape[1])
    else:
        at, row = access.offsets[access.mask], np.nonzero(access.mask)[0]
    low = access.nbytes | int(np.bitwise_or.reduce(at, initial=16))
    unit = low & -low
    if unit < access.nbytes:
        at = (at[:, None] + np.arange(0, access.nbytes, unit)).ravel()
        row = np.repeat(row, access.nbytes // unit)
    return row, at, unit


def bytes_of(access: Access) -> np.ndarray:
    """What an access stores, a row of bytes per lane that is on."""
    words = access.words if access.mask is None else access.words[access.mask]
    raw = np.ascontiguousarray(words).view(np.uint8)
    return raw.reshape(-1, raw.shape[-1])[:, : access.nbytes]
