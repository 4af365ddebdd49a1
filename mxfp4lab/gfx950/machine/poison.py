"""Uninitialised memory: which values come from bytes that nobody wrote, and where they are used.

Buffers without contents, LDS and scratch start poisoned; every byte is tracked. A load of a poisoned byte is no fault
by itself - kernels load whole tiles and drop what they do not need. Its result is followed through registers, LDS and
scratch, and reported where it reaches global memory, an address or a branch.

Taint is kept per register and lane, so it is approximate in one direction: a value counts as tainted although the
poisoned bits were masked off (for example by `and`), and a comparison of a tainted lane taints its wave's whole mask.
Registers that hold nothing at the start of a kernel are not poisoned.
"""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.isa import Instruction, Program, classify
from mxfp4lab.gfx950.machine.errors import EmulationError, UninitialisedRead
from mxfp4lab.gfx950.machine.memory import Access, Buffer
from mxfp4lab.gfx950.machine.state import LANES, Chunk, Group
from mxfp4lab.gfx950.machine.taint import propagation
from mxfp4lab.gfx950.machine.vector import Step

MAX_FINDINGS = 100
NEVER = -1  # a byte that nobody wrote; 0: written; n > 0: written with what instruction n - 1 loaded


class Taint:
    """Taint of a chunk's registers and private memories: 0, or 1 + index of the load that a value comes from."""

    def __init__(self, chunk: Chunk) -> None:
        self.v = np.zeros(chunk.vfile.shape, np.int32)
        self.s = np.zeros((128, chunk.waves), np.int32)
        self.scc = np.zeros(chunk.waves, np.int32)
        self.lds = np.full(len(chunk.lds), NEVER, np.int32)
        self.scratch = np.full((4 * len(chunk.scratch), chunk.waves, LANES), NEVER, np.int32)


class PoisonWatch:
    """Follows taint through one launch.

    Args:
        program: the kernel.
        accum: first accumulation plane of the vector file.

    Attributes:
        findings: one `UninitialisedRead` per pair of load and use.
    """

    of_launch = True

    def __init__(self, program: Program, accum: int) -> None:
        self.program, self.accum = program, accum
        self.findings: list[EmulationError] = []
        self._seen: set[tuple[int, int]] = set()
        self._examples: dict[int, tuple[str, int]] = {}
        # What the instruction that runs now has loaded, and the taint of the data that it stores.
        self._loaded: list[np.ndarray] = []
        self._stores: list[np.ndarray] = []

    def start(self, chunk: Chunk) -> None:
        """Fresh state for a chunk of workgroups."""
        chunk.taint = Taint(chunk)

    def wrap(self, instruction: Instruction, step: Step | None) -> Step | None:
        """The closure with the taint's way through it."""
        kind = classify(instruction.mnemonic)
        if kind == "branch":
            return self._branch(instruction)
        if step is None:
            return None
        if kind in ("vmem", "scratch", "smem") or (kind == "lds" and "permute" not in instruction.mnemonic
                                                   and "swizzle" not in instruction.mnemonic):  # fmt: skip
            return self._memory(instruction, step)
        spread = propagation(instruction, self.accum)

        def run(g: Group) -> None:
            update = spread(g, g.chunk.taint)
            step(g)
            update()

        return run

    def _branch(self, instruction: Instruction) -> Step | None:
        name = instruction.mnemonic
        if not name.startswith("s_cbranch_"):
            return None
        first = {"scc": None, "vcc": 106, "exe": 126}[name[len("s_cbranch_") :][:3]]

        def run(g: Group) -> None:
            taint = g.chunk.taint
            span = slice(g.first, g.last)
            found = taint.scc[span] if first is None else taint.s[first : first + 2, span].max(axis=0)
            self._report(g, instruction, found[:, None], None, "a branch")

        return run

    def _memory(self, instruction: Instruction, step: Step) -> Step:
        result, addresses, data = memory_operands(instruction)
        atomic = "_atomic_" in instruction.mnemonic

        def run(g: Group) -> None:
            taint = g.chunk.taint
            self._loaded = []
            self._stores = [self._planes(g, taint, instruction.operands[p]) for p in data]
            for position in addresses:
                operand = instruction.operands[position]
                if operand.kind == "vgpr":
                    found = self._planes(g, taint, operand).max(axis=-1)
                elif operand.kind == "sgpr":
                    found = taint.s[operand.index : operand.index + operand.width, g.first : g.last].max(axis=0)[
                        :, None
                    ]
                else:
                    continue
                self._report(g, instruction, found, None, "an address")
            step(g)
            if result is None:
                return
            operand = instruction.operands[result]
            loaded = np.concatenate(self._loaded, axis=-1) if self._loaded else None
            self._put(g, taint, operand, loaded, partial="_d16" in instruction.mnemonic)
            if atomic:
                self._loaded = []

        return run

    def _planes(self, g: Group, taint: Taint, operand) -> np.ndarray:
        """Taint of a vector operand, [w, 64, registers]."""
        n = operand.index + (self.accum if operand.kind == "agpr" else 0)
        return np.moveaxis(taint.v[n : n + operand.width, g.first : g.last], 0, -1)

    def _put(self, g: Group, taint: Taint, operand, loaded: np.ndarray | None, partial: bool) -> None:
        for i in range(operand.width):
            value = np.int32(0) if loaded is None or i >= loaded.shape[-1] else loaded[..., i]
            if operand.kind == "sgpr":
                row = taint.s[operand.index + i, g.first : g.last]
                value = value[:, 0] if np.ndim(value) else value
                np.copyto(row, value, where=True if g.wm is None else g.wm)
                continue
            row = taint.v[operand.index + (self.accum if operand.kind == "agpr" else 0) + i, g.first : g.last]
            value = np.maximum(value, row) if partial else value
            np.copyto(row, value, where=True if g.full else g.mask)

    def __call__(self, access: Access) -> None:
        """An access of the instruction that runs now: read or write the memory's shadow."""
        g, taint = access.group, access.group.chunk.taint
        if access.space in ("global", "scalar"):
            self._touch_buffer(access, access.buffer)
            return
        index = self._index(access)
        shadow = taint.lds if access.space == "lds" else taint.scratch
        if access.kind != "store":
            found = self._origins(access, shadow[index], "LDS" if access.space == "lds" else "scratch")
            if access.kind == "atomic":
                self._report(g, access.instruction, found.max(axis=-1), access.mask, "memory")
                shadow[self._on(index, access.mask)] = 0
            else:
                self._loaded.append(found)
            return
        data = self._stores.pop(0) if self._stores else (self._loaded[0] if self._loaded else np.zeros((g.w, LANES, 1)))
        byte = data[..., np.minimum(np.arange(access.nbytes) // 4, data.shape[-1] - 1)].astype(np.int32)
        shadow[self._on(index, access.mask)] = byte if access.mask is None else byte[access.mask]

    def _index(self, access: Access):
        """Index of every byte of an access into its shadow, [w, 64, nbytes]; lanes that are off point to byte 0."""
        g = access.group
        offsets = access.offsets if access.mask is None else np.where(access.mask, access.offsets, 0)
        bytes_ = offsets[..., None] + np.arange(access.nbytes)
        if access.space == "lds":
            return bytes_ + g.lds_base[..., None]
        rows = np.arange(g.first, g.last)[:, None, None]
        return bytes_, np.broadcast_to(rows, bytes_.shape), np.broadcast_to(np.arange(LANES)[:, None], bytes_.shape)

    @staticmethod
    def _on(index, mask: np.ndarray | None):
        if mask is None:
            return index
        return tuple(i[mask] for i in index) if isinstance(index, tuple) else index[mask]

    def _touch_buffer(self, access: Access, buffer: Buffer) -> None:
        g = access.group
        mask = access.mask
        if access.kind != "load":
            data = np.concatenate(self._stores, axis=-1) if self._stores else None
            if data is not None:
                self._report(g, access.instruction, data.max(axis=-1), mask, f"memory (buffer {buffer.name!r})")
        unwritten = shadow_of(buffer)
        shape = access.offsets.shape
        dwords = max(access.nbytes // 4, 1)
        found = np.zeros((*shape, dwords), np.int32)
        if unwritten is not None:
            offsets = access.offsets if mask is None else np.where(mask, access.offsets, 0)
            index = offsets[..., None] + np.arange(access.nbytes)
            if access.kind != "store":
                found = self._origins(access, np.where(unwritten[index], NEVER, 0), buffer.name)
            if access.kind == "atomic":
                self._report(g, access.instruction, found.max(axis=-1), mask, f"memory (buffer {buffer.name!r})")
            if access.kind != "load":
                unwritten[index if mask is None else index[mask]] = False
        if access.kind == "load":
            if self._loaded:  # one access that is spread over buffers
                self._loaded[0] = np.maximum(self._loaded[0], found)
            else:
                self._loaded.append(found)

    def _origins(self, access: Access, shadow: np.ndarray, name: str) -> np.ndarray:
        """Taint per dword of what is loaded, from the shadow of its bytes."""
        mark = access.instruction.index + 1
        poisoned = shadow == NEVER
        if access.mask is not None:
            poisoned = poisoned & access.mask[..., None]
            shadow = np.where(access.mask[..., None], shadow, 0)
        if mark not in self._examples and poisoned.any():
            row, lane, byte = (int(i) for i in np.argwhere(poisoned)[0])
            self._examples[mark] = (name, int(access.offsets[row, lane]) + byte)
        origin = np.where(poisoned, mark, np.maximum(shadow, 0)).astype(np.int32)
        dwords = max(access.nbytes // 4, 1)
        return origin.reshape(*origin.shape[:2], dwords, -1).max(axis=-1)

    def _report(self, g: Group, use: Instruction, found: np.ndarray, mask: np.ndarray | None, what: str) -> None:
        """Note uses of tainted values in lanes that are on; `found` is [w, 64] or [w, 1]."""
        if not found.any():
            return
        if found.shape[-1] == LANES:
            on = g.lanes() if mask is None else mask
        else:
            on = np.ones(found.shape, bool) if g.wm is None else g.wm[:, None]
        hit = (found > 0) & on
        if not hit.any():
            return
        for mark in np.unique(found[hit]):
            pair = (int(mark), use.index)
            if pair in self._seen or len(self.findings) >= MAX_FINDINGS:
                continue
            self._seen.add(pair)
            _, lane, wave, workgroup = g.first_lane(hit & (found == mark))
            name, offset = self._examples.get(int(mark), ("memory", 0))
            self.findings.append(
                UninitialisedRead(
                    self.program[int(mark) - 1], use, what, buffer=name, byte_offset=offset, lane=lane, wave=wave,
                    workgroup=workgroup,
                )
            )  # fmt: skip


def shadow_of(buffer: Buffer) -> np.ndarray | None:
    """Per byte whether nobody wrote it; None for a buffer with contents. Kept with the buffer across launches."""
    if buffer.initialised:
        return None
    if buffer.unwritten is None:
        buffer.unwritten = np.ones(len(buffer.bytes), bool)
    return buffer.unwritten


def memory_operands(instruction: Instruction) -> tuple[int | None, list[int], list[int]]:
    """(position of the result or None, positions of address operands, positions of data) of a memory instruction."""
    name = instruction.mnemonic
    last = len(instruction.operands)
    if name.startswith(("s_load", "s_buffer_load")):
        return 0, list(range(1, last)), []
    if "_atomic_" in name:
        returns = bool(instruction.modifier("sc0", 0))
        if name.startswith("buffer"):
            return (0 if returns else None), list(range(1, last)), [0]
        first = 1 if returns else 0
        return (0 if returns else None), [first, *range(first + 2, last)], [first + 1]
    if name.startswith("ds_"):
        if name.startswith("ds_read"):
            return 0, [1], []
        if "_rtn" in name:
            return 0, [1], [2]
        return None, [0], list(range(1, last))
    if "_load_lds" in name or instruction.modifier("lds", 0):
        return None, list(range(1 if last == 4 else 0, last)), []
    if "_load" in name:
        return 0, list(range(1, last)), []
    if "_store" in name:
        if name.startswith("buffer"):
            return None, list(range(1, last)), [0]
        return None, [0, *range(2, last)], [1]
    return None, [], []
