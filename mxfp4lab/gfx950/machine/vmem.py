"""Vector memory instructions: global, buffer and flat loads and stores, and loads straight to LDS."""

from __future__ import annotations

import re

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.errors import LdsOutOfRange, UnknownInstruction
from mxfp4lab.gfx950.machine.lanes import plane
from mxfp4lab.gfx950.machine.memory import gather, scatter
from mxfp4lab.gfx950.machine.operands import constant_bits
from mxfp4lab.gfx950.machine.state import LANES, Group
from mxfp4lab.gfx950.machine.tables import store32
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers, destination

# suffix of a load or store: (bytes, registers)
SIZES = {
    "ubyte": (1, 1), "sbyte": (1, 1), "byte": (1, 1), "ushort": (2, 1), "sshort": (2, 1), "short": (2, 1),
    "dword": (4, 1), "dwordx2": (8, 2), "dwordx3": (12, 3), "dwordx4": (16, 4),
}  # fmt: skip
CACHE = ("sc0", "sc1", "nt", "offset")
ACCESS = re.compile(
    r"(global|buffer|flat|scratch)_(load|store)_(lds_)?([us]?byte|[us]?short|dword(?:x[234])?)(_d16)?(_hi)?"
)


_DROP = np.uint32(0x7FFFFFFF)


class Target:
    """Address of a global or buffer instruction, decoded once.

    Attributes:
        address: closure giving int64 virtual addresses, [w, 64] or [w, 1].
        data: position of the first operand after the destination of a load or of the data of a store.
        limit: closure giving lanes that are inside a buffer resource, or None for global addresses.
    """

    def __init__(self, instruction: Instruction, decoder: Decoder, positions: tuple[int, ...]) -> None:
        offset = instruction.modifier("offset", 0)
        if not isinstance(offset, int):
            raise UnknownInstruction(instruction, f"offset {offset} in")
        self.limit = None
        self.offset = offset
        if instruction.mnemonic.startswith("buffer_"):
            self._buffer(instruction, decoder, positions)
        else:
            self._global(instruction, decoder, positions)

    def _global(self, instruction: Instruction, decoder: Decoder, positions: tuple[int, ...]) -> None:
        vector, scalar = positions
        base = instruction.operands[scalar] if scalar is not None else None
        offset = np.int64(self.offset)
        if base is not None and base.kind == "sgpr":
            if base.width != 2 or base.index % 2:
                raise UnknownInstruction(instruction, f"operand {base} in")
            pair = base.index // 2
            n = plane(instruction, vector, decoder, 1)
            self.address = lambda g: g.U[n].astype(np.int64) + (g.QI[pair] + offset)[:, None]
            return
        if base is not None and base.kind != "off":
            raise UnknownInstruction(instruction, f"operand {base} in")
        n = plane(instruction, vector, decoder, 2)

        def address(g: Group) -> np.ndarray:
            both = np.empty((g.w, LANES, 2), np.uint32)
            both[..., 0], both[..., 1] = g.U[n], g.U[n + 1]
            result = both.view(np.int64)[..., 0]
            if offset:
                result += offset
            return result

        self.address = address

    def _buffer(self, instruction: Instruction, decoder: Decoder, positions: tuple[int, ...]) -> None:
        vector, resource, scalar = positions
        if instruction.modifier("idxen", 0):
            raise UnknownInstruction(instruction, "idxen in")
        descriptor = instruction.operands[resource]
        if descriptor.kind != "sgpr" or descriptor.width != 4 or descriptor.index % 2:
            raise UnknownInstruction(instruction, f"operand {descriptor} in")
        first = descriptor.index
        fixed = instruction.operands[scalar]
        if fixed.kind == "sgpr" and fixed.width == 1:
            soffset = lambda g: g.S[fixed.index].astype(np.int64)  # noqa: E731
        elif fixed.kind == "const":
            constant = np.int64(constant_bits(fixed, 32, instruction))
            soffset = lambda g: constant  # noqa: E731
        else:
            raise UnknownInstruction(instruction, f"operand {fixed} in")
        if instruction.modifier("offen", 0):
            n = plane(instruction, vector, decoder, 1)
            voffset = lambda g: g.U[n].astype(np.int64)  # noqa: E731
        else:
            voffset = lambda g: np.zeros((g.w, LANES), np.int64)  # noqa: E731
        offset = np.int64(self.offset)

        def base(g: Group) -> np.ndarray:
            # Without an index the stride plays no part: sizes stay in bytes unless the resource is swizzled (bit 31).
            if g.any(g.S[first + 1] >> np.uint32(31) != 0):
                raise UnknownInstruction(instruction, "swizzled buffer resource in")
            return (g.QI[first // 2] & np.int64((1 << 48) - 1))[:, None]

        def soffset_column(g: Group) -> np.ndarray:
            return np.reshape(soffset(g), (-1, 1)) if np.ndim(soffset(g)) else soffset(g)

        def address(g: Group) -> np.ndarray:
            return base(g) + voffset(g) + (soffset_column(g) + offset)

        # CDNA ISA, "Range checking", raw buffer: out of range where the offset reaches the size less the scalar offset.
        def limit(g: Group, nbytes: int) -> np.ndarray:
            left = g.S[first + 2].astype(np.int64)[:, None] - soffset_column(g)
            start = voffset(g) + offset
            inside = start + nbytes <= left
            partly = ~inside & (start < left)
            if partly.any() and (partly & g.lanes()).any():
                raise UnknownInstruction(instruction, "access partly outside its buffer resource by")
            return inside

        self.address, self.limit = address, limit


def active_lanes(g: Group, target: Target, nbytes: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(lanes that access memory, lanes that are on): both None where that is every lane."""
    on = None if g.full else g.mask
    if target.limit is None:
        return on, on
    inside = target.limit(g, nbytes)
    if inside.all():
        return on, on
    return (inside if on is None else inside & on), on


def build_access(instruction: Instruction, decoder: Decoder) -> Step:
    """Loads and stores of global and buffer memory (flat ones are taken as global)."""
    match = ACCESS.fullmatch(instruction.mnemonic)
    if not match:
        raise UnknownInstruction(instruction)
    space, direction, to_lds, size, d16, high = match.groups()
    nbytes, registers = SIZES[size]
    buffer = space == "buffer"
    check_modifiers(instruction, (*CACHE, *(("offen", "idxen", "lds") if buffer else ())))
    if to_lds or instruction.modifier("lds", 0):
        return _build_load_to_lds(instruction, decoder, nbytes)
    count = 4 if buffer else 3
    if len(instruction.operands) != count - (space == "flat"):
        raise UnknownInstruction(instruction, f"{len(instruction.operands)} operands in")
    if direction == "load":
        target = Target(instruction, decoder, (1, 2, 3) if buffer else (1, 2 if space == "global" else None))
        return _build_load(instruction, decoder, target, size, nbytes, registers, d16, high)
    data = 0 if buffer else 1
    target = Target(instruction, decoder, (1, 2, 3) if buffer else (0, 2 if space == "global" else None))
    n = plane(instruction, data, decoder, registers)
    memory = decoder.memory
    shift = np.uint32(16 if high else 0)

    def store(g: Group) -> None:
        mask, _ = active_lanes(g, target, nbytes)
        address = np.broadcast_to(target.address(g), (g.w, LANES))
        words = np.empty((g.w, LANES, registers), np.uint32)
        for i in range(registers):
            words[..., i] = g.U[n + i] >> shift if shift else g.U[n + i]
        memory.progress += 1
        for where, offsets, lanes in memory.locate(address, nbytes, mask, g, instruction, "store"):
            if memory.observer.hooks:
                memory.observer.notify("global", "store", instruction, g, where, offsets, nbytes, lanes, words)
            where.written = True
            scatter(where.views, offsets, words, nbytes, lanes)

    return store


def _build_load(instruction, decoder, target, size, nbytes, registers, d16, high) -> Step:
    n = destination(instruction, decoder, width=registers)
    memory = decoder.memory
    signed = size in ("sbyte", "sshort")
    if d16 and size not in ("ubyte", "sbyte", "short"):
        raise UnknownInstruction(instruction)
    if not d16 and size in ("byte", "short"):
        raise UnknownInstruction(instruction)
    looks = bool(instruction.modifier("sc0", 0) or instruction.modifier("sc1", 0))

    def load(g: Group) -> None:
        mask, on = active_lanes(g, target, nbytes)
        address = np.broadcast_to(target.address(g), (g.w, LANES))
        parts = memory.locate(address, nbytes, mask, g, instruction, "load")
        if looks and parts and parts[0][0].written:
            memory.looks += 1
        if len(parts) == 1 and parts[0][2] is on:
            where, offsets, lanes = parts[0]
            if memory.observer.hooks:
                memory.observer.notify("global", "load", instruction, g, where, offsets, nbytes, lanes)
            words = gather(where.views, offsets, nbytes)
        else:  # lanes outside a buffer resource read 0
            words = np.zeros((g.w, LANES, registers), np.uint32)
            for where, offsets, lanes in parts:
                if memory.observer.hooks:
                    memory.observer.notify("global", "load", instruction, g, where, offsets, nbytes, lanes)
                words[lanes] = gather(where.views, offsets[lanes], nbytes)
        put_words(g, n, words, size, signed, d16, high)

    return load


def put_words(g: Group, n: int, words: np.ndarray, size: str, signed, d16, high) -> None:
    """Store loaded words [w, 64, registers] to registers n.. where lanes are on: sign extension, d16 halves."""
    if signed:
        shift = np.int32(24 if size == "sbyte" else 16)
        words = (words.view(np.int32) << shift >> shift).view(np.uint32)
    if d16:
        word = words[..., 0] & np.uint32(0xFFFF)
        old = g.U[n]
        word = old & np.uint32(0xFFFF) | word << np.uint32(16) if high else old & np.uint32(0xFFFF0000) | word
        store32(g, n, word)
        return
    for i in range(words.shape[-1]):
        store32(g, n + i, words[..., i])


def _build_load_to_lds(instruction: Instruction, decoder: Decoder, nbytes: int) -> Step:
    """A load whose data goes to LDS: lane l's to byte M0 + offset + l * max(bytes, 4).

    Compilers set M0 to 0x7fffffff where a wave's data is to be dropped: past any LDS, the hardware discards it.
    """
    if instruction.mnemonic.startswith("buffer_"):
        target = Target(instruction, decoder, (0, 1, 2) if len(instruction.operands) == 3 else (1, 2, 3))
    else:
        if len(instruction.operands) != 2:
            raise UnknownInstruction(instruction, f"{len(instruction.operands)} operands in")
        target = Target(instruction, decoder, (0, 1))
    memory, lds_bytes = decoder.memory, decoder.lds_bytes
    stride = max(nbytes, 4)
    lane = np.arange(LANES, dtype=np.int64) * stride + target.offset

    def load(g: Group) -> None:
        mask, on = active_lanes(g, target, nbytes)
        address = np.broadcast_to(target.address(g), (g.w, LANES))
        words = np.zeros((g.w, LANES, max(nbytes // 4, 1)), np.uint32)
        for where, offsets, lanes in memory.locate(address, nbytes, mask, g, instruction, "load"):
            if memory.observer.hooks:
                memory.observer.notify("global", "load", instruction, g, where, offsets, nbytes, lanes)
            if lanes is None:
                words = gather(where.views, offsets, nbytes)
            else:
                words[lanes] = gather(where.views, offsets[lanes], nbytes)
        place = g.S[124].astype(np.int64)[:, None] + lane
        dropped = g.S[124] == _DROP
        if g.any(dropped):
            on = g.lanes() & ~dropped[:, None]
        lds_check(g, instruction, place, stride, on, lds_bytes, "store")
        if memory.observer.hooks:
            memory.observer.notify("lds", "store", instruction, g, None, place, stride, on, words)
        scatter(lds_views(g), place + g.lds_base, words, stride, on)

    return load


def lds_views(g: Group) -> dict[int, np.ndarray]:
    """Typed views of the chunk's LDS, made once."""
    chunk = g.chunk
    views = getattr(chunk, "lds_typed", None)
    if views is None:
        raw = chunk.lds
        views = chunk.lds_typed = {
            1: raw, 2: raw.view(np.uint16), 4: raw.view(np.uint32), 8: raw.view(np.uint64), 16: raw.view(np.complex128),
        }  # fmt: skip
    return views


def lds_check(
    g: Group, instruction: Instruction, address: np.ndarray, nbytes: int, mask, limit: int, kind: str
) -> None:
    """Refuse an LDS access past the allocation.

    Args:
        address: int64 byte addresses within the workgroup's LDS, [w, 64].

    Raises:
        LdsOutOfRange: naming the first lane.
    """
    if mask is None:
        bad = int(address.max()) + nbytes > limit or int(address.min()) < 0
        stray = None
    else:
        stray = mask & ((address + nbytes > limit) | (address < 0))
        bad = bool(stray.any())
    if bad:
        stray = (address + nbytes > limit) | (address < 0) if stray is None else stray
        row, lane, wave, workgroup = g.first_lane(stray)
        raise LdsOutOfRange(
            instruction, byte_address=int(address[row, lane]), access_bytes=nbytes, lds_bytes=limit, kind=kind,
            lane=lane, wave=wave, workgroup=workgroup,
        )  # fmt: skip


def build_cache_control(instruction: Instruction, decoder: Decoder) -> Step:
    """buffer_wbl2, buffer_inv and kin: caches are not modelled, so they do nothing."""
    check_modifiers(instruction, ("sc0", "sc1", "nt"))
    return lambda g: None
