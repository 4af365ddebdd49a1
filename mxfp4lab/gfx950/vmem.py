"""Vector memory instructions: global, buffer and flat loads, stores and atomics, direct loads to LDS, and scratch."""

from __future__ import annotations

import re

import numpy as np

from mxfp4lab.gfx950.errors import LdsOutOfRange, OutOfBounds, UnknownInstruction
from mxfp4lab.gfx950.lanes import plane
from mxfp4lab.gfx950.memory import gather, scatter
from mxfp4lab.gfx950.operands import constant_bits, source
from mxfp4lab.gfx950.packed import bf16_pair_add, f16_pair_add
from mxfp4lab.gfx950.state import LANES, Group
from mxfp4lab.gfx950.tables import store32
from mxfp4lab.gfx950.vector import Decoder, Step, check_modifiers, destination
from mxfp4lab.isa import Instruction

# suffix of a load or store: (bytes, registers)
SIZES = {
    "ubyte": (1, 1), "sbyte": (1, 1), "byte": (1, 1), "ushort": (2, 1), "sshort": (2, 1), "short": (2, 1),
    "dword": (4, 1), "dwordx2": (8, 2), "dwordx3": (12, 3), "dwordx4": (16, 4),
}  # fmt: skip
_CACHE = ("sc0", "sc1", "nt", "offset")
_ACCESS = re.compile(
    r"(global|buffer|flat|scratch)_(load|store)_(lds_)?([us]?byte|[us]?short|dword(?:x[234])?)(_d16)?(_hi)?"
)
_ATOMIC = re.compile(r"(global|buffer|flat)_atomic_([a-z0-9_]+)")


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


def _active(g: Group, target: Target, nbytes: int) -> tuple[np.ndarray | None, np.ndarray | None]:
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
    match = _ACCESS.fullmatch(instruction.mnemonic)
    if not match:
        raise UnknownInstruction(instruction)
    space, direction, to_lds, size, d16, high = match.groups()
    if space == "scratch":
        return build_scratch(instruction, decoder, direction, size, d16, high)
    nbytes, registers = SIZES[size]
    buffer = space == "buffer"
    check_modifiers(instruction, (*_CACHE, *(("offen", "idxen", "lds") if buffer else ())))
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
        mask, _ = _active(g, target, nbytes)
        address = np.broadcast_to(target.address(g), (g.w, LANES))
        words = np.empty((g.w, LANES, registers), np.uint32)
        for i in range(registers):
            words[..., i] = g.U[n + i] >> shift if shift else g.U[n + i]
        memory.progress += 1
        for where, offsets, lanes in memory.locate(address, nbytes, mask, g, instruction, "store"):
            if memory.observer.hooks:
                memory.observer.notify("global", "store", instruction, g, where, offsets, nbytes, lanes)
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

    def load(g: Group) -> None:
        mask, on = _active(g, target, nbytes)
        address = np.broadcast_to(target.address(g), (g.w, LANES))
        parts = memory.locate(address, nbytes, mask, g, instruction, "load")
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
    """A load whose data goes to LDS: lane l's to byte M0 + offset + l * max(bytes, 4)."""
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
        mask, on = _active(g, target, nbytes)
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
        lds_check(g, instruction, place, stride, on, lds_bytes, "store")
        if memory.observer.hooks:
            memory.observer.notify("lds", "store", instruction, g, None, place, stride, on)
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
        row, lane = (int(i) for i in np.argwhere(stray)[0])
        wave, workgroup = g.chunk.describe(g.first + row)
        raise LdsOutOfRange(
            instruction, byte_address=int(address[row, lane]), access_bytes=nbytes, lds_bytes=limit, kind=kind,
            lane=lane, wave=wave, workgroup=workgroup,
        )  # fmt: skip


def build_scratch(instruction, decoder, direction, size, d16, high) -> Step:
    """scratch_load, scratch_store: private memory of a lane, addressed by a vector or a scalar register, or neither."""
    check_modifiers(instruction, _CACHE)
    nbytes, registers = SIZES[size]
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, f"{len(instruction.operands)} operands in")
    load = direction == "load"
    vector, data, scalar = (1, 0, 2) if load else (0, 1, 2)
    n = destination(instruction, decoder, 0, registers) if load else plane(instruction, data, decoder, registers)
    address = instruction.operands[vector]
    base = instruction.operands[scalar]
    offset = instruction.modifier("offset", 0)
    if address.kind not in ("off", "vgpr") or base.kind not in ("off", "sgpr"):
        raise UnknownInstruction(instruction, "address form of")
    vector_address = source(instruction, vector, "u32", decoder.accum) if address.kind == "vgpr" else None
    observer = decoder.memory.observer

    def place(g: Group) -> np.ndarray:
        at = np.full((g.w, LANES), offset, np.int64)
        if base.kind == "sgpr":
            at += g.S[base.index].astype(np.int64)[:, None]
        if vector_address is not None:
            at += vector_address(g).astype(np.int64)
        return at

    if address.kind == "off" and base.kind == "off" and offset % 4 == 0 and nbytes % 4 == 0:
        first = offset // 4

        def run(g: Group) -> None:
            if first < 0 or first + registers > len(g.scratch):
                _scratch_check(g, instruction, place(g), nbytes, direction)
            if observer.hooks:
                observer.notify(
                    "scratch", direction, instruction, g, None, place(g), nbytes, None if g.full else g.mask
                )
            for i in range(registers):
                if load:
                    store32(g, n + i, g.scratch[first + i])
                else:
                    np.copyto(g.scratch[first + i], g.U[n + i], where=True if g.full else g.mask)

        return run
    shift = np.uint32(16 if high else 0)

    def run_addressed(g: Group) -> None:
        at = place(g)
        on = None if g.full else g.mask
        _scratch_check(g, instruction, at, nbytes, direction)
        if observer.hooks:
            observer.notify("scratch", direction, instruction, g, None, at, nbytes, on)
        # scratch is [dwords, waves, 64]: byte b of lane l lies in dword plane b // 4
        rows, lanes = np.arange(g.w)[:, None], np.arange(LANES)
        at = np.where(g.lanes(), at, 0)
        raw = [g.scratch[(at + i) // 4, rows, lanes] >> (8 * ((at + i) % 4)).astype(np.uint32) for i in range(nbytes)]
        if load:
            count = max(nbytes // 4, 1)
            words = np.zeros((g.w, LANES, count), np.uint32)
            for i, byte in enumerate(raw):
                words[..., i // 4] |= (byte & np.uint32(255)) << np.uint32(8 * (i % 4))
            put_words(g, n, words, size, size in ("sbyte", "sshort"), d16, high)
            return
        keep = g.lanes()
        for i in range(nbytes):
            byte = (g.U[n + i // 4] >> shift >> np.uint32(8 * (i % 4))) & np.uint32(255)
            dword, bits = (at + i) // 4, (8 * ((at + i) % 4)).astype(np.uint32)
            old = g.scratch[dword, rows, lanes]
            new = old & ~(np.uint32(255) << bits) | byte << bits
            g.scratch[dword, rows, lanes] = np.where(keep, new, old)

    return run_addressed


def _scratch_check(g: Group, instruction: Instruction, at: np.ndarray, nbytes: int, kind: str) -> None:
    limit = g.scratch.shape[0] * 4
    lds_check_mask = g.lanes()
    if (((at < 0) | (at + nbytes > limit)) & lds_check_mask).any():
        row, lane = (int(i) for i in np.argwhere(((at < 0) | (at + nbytes > limit)) & lds_check_mask)[0])
        wave, workgroup = g.chunk.describe(g.first + row)
        raise OutOfBounds(
            instruction, buffer="scratch", byte_offset=int(at[row, lane]), buffer_bytes=limit,
            address=int(at[row, lane]), access_bytes=nbytes, kind=kind, lane=lane, wave=wave, workgroup=workgroup,
        )  # fmt: skip


def _float_add(old, new):
    return (old.view(np.float32) + new.view(np.float32)).view(np.uint32)


# operation: (bytes per lane, function(old, new) on uint32 or uint64)
ATOMICS = {
    "add": (4, np.add), "sub": (4, np.subtract), "swap": (4, lambda old, new: new), "and": (4, np.bitwise_and),
    "or": (4, np.bitwise_or), "xor": (4, np.bitwise_xor), "umin": (4, np.minimum), "umax": (4, np.maximum),
    "smin": (4, lambda o, n: np.minimum(o.view(np.int32), n.view(np.int32)).view(np.uint32)),
    "smax": (4, lambda o, n: np.maximum(o.view(np.int32), n.view(np.int32)).view(np.uint32)),
    "inc": (4, lambda old, new: np.where(old >= new, np.uint32(0), old + np.uint32(1))),
    "dec": (4, lambda old, new: np.where((old == 0) | (old > new), new, old - np.uint32(1))),
    "add_f32": (4, _float_add), "pk_add_bf16": (4, bf16_pair_add), "pk_add_f16": (4, f16_pair_add),
    "cmpswap": (4, None), "add_x2": (8, np.add), "swap_x2": (8, lambda old, new: new), "cmpswap_x2": (8, None),
    "or_x2": (8, np.bitwise_or), "and_x2": (8, np.bitwise_and), "umax_x2": (8, np.maximum), "umin_x2": (8, np.minimum),
    "add_f64": (8, lambda o, n: (o.view(np.float64) + n.view(np.float64)).view(np.uint64)),
}  # fmt: skip


def build_atomic(instruction: Instruction, decoder: Decoder) -> Step:
    """Atomics on global memory, in wave then lane order; sc0 returns the old value."""
    match = _ATOMIC.fullmatch(instruction.mnemonic)
    if not match or match[2] not in ATOMICS:
        raise UnknownInstruction(instruction)
    space, operation = match.groups()
    nbytes, function = ATOMICS[operation]
    compare = function is None
    registers = nbytes // 4
    buffer = space == "buffer"
    returns = bool(instruction.modifier("sc0", 0))
    check_modifiers(instruction, (*_CACHE, *(("offen", "idxen") if buffer else ())))
    memory = decoder.memory
    if buffer:  # the data register is also where the old value goes
        data, positions, expected = 0, (1, 2, 3), 4
        result = destination(instruction, decoder, 0, registers * (2 if compare else 1)) if returns else None
    else:
        first = 1 if returns else 0
        data, positions, expected = first + 1, (first, first + 2 if space == "global" else None), first + 3
        expected -= space == "flat"
        result = destination(instruction, decoder, 0, registers) if returns else None
    if len(instruction.operands) != expected:
        raise UnknownInstruction(instruction, f"{len(instruction.operands)} operands in")
    n = plane(instruction, data, decoder, registers * (2 if compare else 1))
    target = Target(instruction, decoder, positions)
    dtype = np.uint32 if nbytes == 4 else np.uint64

    def run(g: Group) -> None:
        mask, _ = _active(g, target, nbytes)
        address = np.broadcast_to(target.address(g), (g.w, LANES))
        values = _words(g, n, registers).view(dtype)[..., 0]
        expected_values = _words(g, n + registers, registers).view(dtype)[..., 0] if compare else None
        old = np.zeros((g.w, LANES), dtype)
        for where, offsets, lanes in memory.locate(address, nbytes, mask, g, instruction, "atomic"):
            if int(np.bitwise_or.reduce(offsets if lanes is None else offsets[lanes], axis=None)) & (nbytes - 1):
                raise UnknownInstruction(instruction, "misaligned address of")
            if memory.observer.hooks:
                memory.observer.notify("global", "atomic", instruction, g, where, offsets, nbytes, lanes)
            where.written = True
            pick = np.ones((g.w, LANES), bool) if lanes is None else lanes
            index = offsets[pick] // nbytes
            before = where.views[nbytes][index]
            old[pick] = _apply(
                where.views[nbytes], index, values[pick], function, expected_values[pick] if compare else None
            )
            if np.any(where.views[nbytes][index] != before):
                memory.progress += 1
        if returns:
            raw = np.ascontiguousarray(old).view(np.uint32).reshape(g.w, LANES, registers)
            for i in range(registers):
                store32(g, result + i, raw[..., i])

    return run


def _words(g: Group, n: int, registers: int) -> np.ndarray:
    words = np.empty((g.w, LANES, registers), np.uint32)
    for i in range(registers):
        words[..., i] = g.U[n + i]
    return words


def _apply(view, index, values, function, expected) -> np.ndarray:
    """Apply in order; accesses to one address see each other's results. Returns the old values."""
    if function is None:
        return _compare_and_swap(view, index, values, expected)
    old = np.empty_like(values)
    # Rounds of distinct addresses: the n-th access to each address is in round n.
    order = np.argsort(index, kind="stable")
    ranked = index[order]
    start = np.r_[True, ranked[1:] != ranked[:-1]]
    position = np.arange(len(ranked))
    rank = position - np.maximum.accumulate(np.where(start, position, 0))
    rounds = int(rank.max()) + 1 if len(rank) else 0
    for r in range(rounds):
        at = order[rank == r] if rounds > 1 else order
        old[at] = view[index[at]]
        view[index[at]] = function(old[at], values[at])
    return old


def _compare_and_swap(view, index, values, expected) -> np.ndarray:
    old = np.empty_like(values)
    for i in range(len(index)):
        old[i] = view[index[i]]
        if old[i] == expected[i]:
            view[index[i]] = values[i]
    return old


def build_cache_control(instruction: Instruction, decoder: Decoder) -> Step:
    """buffer_wbl2, buffer_inv and kin: caches are not modelled, so they do nothing."""
    check_modifiers(instruction, ("sc0", "sc1", "nt"))
    return lambda g: None
