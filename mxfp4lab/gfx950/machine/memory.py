"""Flat global memory: buffers far apart in a virtual address space, so that a stray access falls into a guard zone.

Every buffer starts at its own multiple of 64 GiB. An index that overflows 32 bits, or a row too many, therefore leaves
the buffer and hits nothing; on hardware it would hit a neighbour. Every access of a kernel - global, LDS, scratch and
scalar - passes `Observer.notify`: that is where counting and race checks look on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.errors import OutOfBounds
from mxfp4lab.gfx950.machine.state import Group, typed_views

FIRST_ADDRESS = 1 << 40
SPACING = 1 << 36
_LIMIT = 1000


@dataclass
class Access:
    """One memory instruction executed by one group of waves.

    Attributes:
        space: "global", "lds", "scratch" or "scalar".
        kind: "load", "store" or "atomic".
        instruction: the instruction.
        group: who executes it.
        buffer: the buffer hit ("global", "scalar"), else None.
        offsets: byte offset of each lane's access from the buffer's start or the workgroup's LDS, int64, [w, 64]
            ([w, 1] for scalar loads); garbage where `mask` is False.
        nbytes: bytes per lane.
        mask: [w, 64] bool of active lanes, or None where all are.
        words: what a store to LDS or a vector store to a buffer writes, uint32 [w, 64, dwords]; None elsewhere.
    """

    space: str
    kind: str
    instruction: Instruction
    group: Group
    buffer: Buffer | None
    offsets: np.ndarray
    nbytes: int
    mask: np.ndarray | None
    words: np.ndarray | None = None


@dataclass
class Observer:
    """The one hook through which every access passes."""

    hooks: list[Callable[[Access], None]] = field(default_factory=list)

    def notify(self, space, kind, instruction, group, buffer, offsets, nbytes, mask, words=None) -> None:
        """Tell every hook about an access; called after its bounds check and before it happens."""
        access = Access(space, kind, instruction, group, buffer, offsets, nbytes, mask, words)
        for hook in self.hooks:
            hook(access)


class Buffer:
    """A named piece of global memory.

    Args:
        name: for messages.
        base: virtual address of its first byte.
        data: contiguous uint8 array; written in place.
    """

    def __init__(self, name: str, base: int, data: np.ndarray) -> None:
        self.name, self.base, self.nbytes = name, base, data.nbytes
        self.end = base + data.nbytes
        self.source = data
        self.written = False
        # Work on a copy padded to whole 16-byte words, unless the caller's array can be used as it is.
        if data.nbytes % 16 == 0 and data.ctypes.data % 16 == 0 and data.flags.writeable and data.nbytes:
            self.bytes = data
        else:
            self.bytes = np.zeros(-(-max(data.nbytes, 1) // 16) * 16, np.uint8)
            self.bytes[: data.nbytes] = data
        self.views = typed_views(self.bytes)

    def sync(self) -> None:
        """Bring the caller's array up to date."""
        if self.bytes is not self.source and self.written:
            self.source[...] = self.bytes[: self.nbytes]


class Memory:
    """All buffers of a run.

    Args:
        on_out_of_bounds: "raise", or "record": note the finding, read zeros and drop stores.
    """

    def __init__(self, on_out_of_bounds: str = "raise") -> None:
        if on_out_of_bounds not in ("raise", "record"):
            raise ValueError(f"on_out_of_bounds: {on_out_of_bounds!r}; allowed: 'raise', 'record'")
        self.buffers: list[Buffer] = []
        self.observer = Observer()
        self.record = on_out_of_bounds == "record"
        self.findings: list[OutOfBounds] = []
        self.progress = 0  # stores and atomics so far: a run without any is spinning
        self.looks = 0  # loads past a cache of what kernels store: a run with many and no progress waits for others
        self._hosts: list[tuple[int, Buffer]] = []
        self.deadline: float | None = None  # `time.monotonic()` at which a launch is given up

    def add(self, name: str, data: np.ndarray, host_address: int = 0) -> Buffer:
        """Place a contiguous uint8 array and return its buffer (arguments as of `Buffer`).

        Args:
            host_address: where its program believes it to lie: tables of pointers hold such addresses.
        """
        if len(self.buffers) >= _LIMIT:
            raise ValueError(f"buffers: at most {_LIMIT}")
        buffer = Buffer(name, FIRST_ADDRESS + len(self.buffers) * SPACING, data)
        self.buffers.append(buffer)
        if host_address:
            self._hosts.append((host_address, buffer))
        return buffer

    def find(self, address: int) -> Buffer | None:
        """The buffer that holds the address."""
        at = (address - FIRST_ADDRESS) // SPACING
        if 0 <= at < len(self.buffers) and address < self.buffers[at].end:
            return self.buffers[at]
        return None

    def locate(self, address: np.ndarray, nbytes: int, mask: np.ndarray | None, group: Group,
               instruction: Instruction, kind: str) -> list[tuple[Buffer, np.ndarray, np.ndarray | None]]:  # fmt: skip
        """Check an access and split it by buffer.

        Args:
            address: int64 virtual addresses, [w, 64] or [w, 1].
            nbytes: bytes per lane.
            mask: active lanes, or None for all.
            group, instruction, kind: for the report.

        Returns:
            (buffer, byte offsets shaped as `address`, mask) per buffer hit; usually one entry. Offsets are valid where
            the mask is True.

        Raises:
            OutOfBounds: a lane's bytes are not inside one buffer.
        """
        if mask is None:
            low, high = int(address.min()), int(address.max())
        else:
            active = address[mask]
            if not active.size:
                return []
            low, high = int(active.min()), int(active.max())
        buffer = self.find(low)
        if buffer is not None and high + nbytes <= buffer.end:
            return [(buffer, address - buffer.base, mask)]
        return self._locate_many(address, nbytes, mask, group, instruction, kind)

    def _locate_many(self, address, nbytes, mask, group, instruction, kind):
        if mask is None:
            mask = np.ones(address.shape, bool)
        for start, buffer in self._hosts:
            hit = (address >= start) & (address < start + buffer.nbytes)
            if hit.any():
                address = np.where(hit, address - start + buffer.base, address)
        slot = (address - FIRST_ADDRESS) // SPACING
        found, inside = [], np.zeros(address.shape, bool)
        for at in np.unique(slot[mask]):
            if 0 <= at < len(self.buffers):
                buffer = self.buffers[at]
                hit = mask & (slot == at) & (address + nbytes <= buffer.end)
                if hit.any():
                    found.append((buffer, address - buffer.base, hit))
                    inside |= hit
        stray = mask & ~inside
        if stray.any():
            error = self.report(address, nbytes, stray, group, instruction, kind)
            if not self.record:
                raise error
            self.findings.append(error)
        return found

    def report(self, address, nbytes, stray, group, instruction, kind) -> OutOfBounds:
        """The finding for the first stray lane."""
        row, lane, wave, workgroup = group.first_lane(stray)
        where = int(address[row, lane])
        near = min(
            self.buffers,
            key=lambda b: max(b.base - where, where + nbytes - b.end, 0),
            default=None,
        )
        if near is not None and not near.base - SPACING < where < near.end + SPACING:
            near = None
        return OutOfBounds(
            instruction, buffer=near.name if near else "", byte_offset=where - near.base if near else 0,
            buffer_bytes=near.nbytes if near else 0, address=where, access_bytes=nbytes, kind=kind, lane=lane,
            wave=wave, workgroup=workgroup,
        )  # fmt: skip


def gather(views: dict[int, np.ndarray], offsets: np.ndarray, nbytes: int) -> np.ndarray:
    """Read `nbytes` (1, 2, or a multiple of 4) per lane at byte offsets from typed views of one byte array.

    Lanes that are off may carry any offset: reads are clipped, their result is not used.

    Returns:
        uint32, offsets.shape + [dwords]; sub-dword reads are zero-extended.
    """
    shape = offsets.shape
    low_bits = int(np.bitwise_or.reduce(offsets, axis=None))
    dwords = max(nbytes // 4, 1)
    if nbytes == 1:
        return views[1].take(offsets, mode="clip").astype(np.uint32)[..., None]
    if nbytes in (8, 16) and not low_bits & (nbytes - 1):
        items = views[nbytes].take(offsets >> (4 if nbytes == 16 else 3), mode="clip")
        return items.view(np.uint32).reshape(*shape, dwords)
    if nbytes == 2 and not low_bits & 1:
        return views[2].take(offsets >> 1, mode="clip").astype(np.uint32)[..., None]
    if nbytes % 4 == 0 and not low_bits & 3:
        index = offsets >> 2
        if dwords == 1:
            return views[4].take(index, mode="clip")[..., None]
        return views[4].take(index[..., None] + np.arange(dwords), mode="clip")
    raw = views[1].take(offsets[..., None] + np.arange(nbytes), mode="clip")
    if nbytes == 2:
        return (raw[..., 0] | raw[..., 1].astype(np.uint32) << 8).astype(np.uint32)[..., None]
    return np.ascontiguousarray(raw).view(np.uint32)


def scatter(views: dict[int, np.ndarray], offsets: np.ndarray, words: np.ndarray, nbytes: int,
            mask: np.ndarray | None) -> None:  # fmt: skip
    """Write `nbytes` per lane at byte offsets; of lanes that write the same byte the last wins (wave, then lane order).

    Args:
        views: typed views of one byte array.
        offsets: int64, [w, 64].
        words: uint32, [w, 64, dwords]; the low bytes of the first dword for sub-dword stores.
        nbytes: 1, 2 or a multiple of 4.
        mask: lanes that write, or None for all.
    """
    if mask is not None:
        offsets, words = offsets[mask], words[mask]
    low_bits = int(np.bitwise_or.reduce(offsets, axis=None)) if offsets.size else 0
    if nbytes == 1:
        views[1][offsets] = words[..., 0].astype(np.uint8)
    elif nbytes == 2 and not low_bits & 1:
        views[2][offsets >> 1] = words[..., 0].astype(np.uint16)
    elif nbytes == 16 and not low_bits & 15:
        views[16][offsets >> 4] = np.ascontiguousarray(words).view(np.complex128)[..., 0]
    elif nbytes == 8 and not low_bits & 7:
        views[8][offsets >> 3] = np.ascontiguousarray(words).view(np.uint64)[..., 0]
    elif nbytes % 4 == 0 and not low_bits & 3:
        index = offsets >> 2
        for i in range(nbytes // 4):
            views[4][index + i] = words[..., i]
    else:
        raw = np.ascontiguousarray(words).view(np.uint8)
        for i in range(nbytes):
            views[1][offsets + i] = raw[..., i]
