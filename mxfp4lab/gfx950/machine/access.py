"""Memory instructions: global, buffer, scratch, LDS and scalar loads and stores, atomics, loads straight to LDS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.isa.row import Move, Row, places
from mxfp4lab.gfx950.machine.alu import check_modifiers
from mxfp4lab.gfx950.machine.errors import LdsOutOfRange, OutOfBounds, UnknownInstruction
from mxfp4lab.gfx950.machine.memory import Buffer, gather, scatter
from mxfp4lab.gfx950.machine.operands import Decoder, Step, plane, refuse, scalar_register, scalar_source
from mxfp4lab.gfx950.machine.state import LANES, M0, Group

_CACHE = ("sc0", "sc1", "nt")
_DROP = np.uint32(0x7FFFFFFF)
_ADDRESS_BITS = np.int64((1 << 48) - 1)
# What an access touches: (buffer or None, typed views, byte offsets, lanes or None for all), one entry per buffer
Parts = list[tuple[Buffer | None, dict[int, np.ndarray], np.ndarray, np.ndarray | None]]
# (group, offset that is added, kind, words to be stored) -> parts, after bounds checks and hooks
Reach = Callable[[Group, int, str, np.ndarray | None], Parts]


def build_move(instruction: Instruction, row: Row, decoder: Decoder) -> Step | None:
    """Closure of a memory instruction."""
    move: Move = row.does
    names = tuple(name for name, _ in move.accesses) if move.space == "lds" else ("offset",)
    buffered = ("offen", "lds") if move.space == "buffer" else ()
    cache = {"scalar": ("glc",), "lds": ()}.get(move.space, _CACHE)
    check_modifiers(instruction, (*names, *buffered, *cache))
    results, sources = places(instruction, row)
    at = dict(zip(row.sources, sources, strict=True))
    if move.space == "scalar":
        return _scalar(instruction, results[0], at, move, decoder)
    if move.kind == "none":
        return None
    reach = _reach(instruction, at, move, decoder)
    data = [place for kind, place in zip(row.sources, sources, strict=True) if kind[0] == "x"]
    if move.kind == "store":
        return _store(instruction, data, move, reach, decoder)
    if move.kind == "atomic":
        return _atomic(
            instruction, results[:1] if row.results and results[0] is not None else [], data, move, reach, decoder
        )
    return _load(instruction, results, move, reach, decoder)


def _offsets(instruction: Instruction, move: Move) -> list[int]:
    found = [instruction.modifier(name, 0) for name, _ in move.accesses]
    if not all(isinstance(offset, int) for offset in found):
        raise refuse(instruction, f"offset {found}")
    return [offset * unit for offset, (_, unit) in zip(found, move.accesses, strict=True)]


def _reach(instruction: Instruction, at: dict[str, int | None], move: Move, decoder: Decoder) -> Reach:
    if move.space == "lds":
        n = plane(instruction, at["at"], decoder)

        def reach_lds(g: Group, offset: int, kind: str, words: np.ndarray | None) -> Parts:
            address, on = g.U[n].astype(np.int64) + offset, None if g.full else g.mask
            return _lds_parts(g, instruction, address, move.nbytes, on, kind, decoder, words)

        return reach_lds
    if move.space == "scratch":
        return _scratch(instruction, at, move, decoder)
    address, limit = (_buffer if move.space == "buffer" else _global)(instruction, at, decoder)
    memory, nbytes = decoder.memory, move.nbytes

    def reach(g: Group, offset: int, kind: str, words: np.ndarray | None) -> Parts:
        on = None if g.full else g.mask
        if limit is not None:
            inside = limit(g, offset, nbytes)
            if not inside.all():
                on = inside if on is None else inside & on
        where = np.broadcast_to(address(g, offset), (g.w, LANES))
        found = memory.locate(where, nbytes, on, g, instruction, kind)
        if memory.observer.hooks:
            for buffer, offsets, lanes in found:
                memory.observer.notify("global", kind, instruction, g, buffer, offsets, nbytes, lanes, words)
        return [(buffer, buffer.views, offsets, lanes) for buffer, offsets, lanes in found]

    return reach


def _global(instruction: Instruction, at: dict[str, int | None], decoder: Decoder):
    """(closure giving int64 virtual addresses, None: every lane that is on accesses memory)."""
    base = at.get("base")
    if base is not None and instruction.operands[base].kind == "sgpr":
        pair, n = scalar_register(instruction, base, 2) // 2, plane(instruction, at["at"], decoder)
        return (lambda g, offset: g.U[n].astype(np.int64) + (g.QI[pair] + np.int64(offset))[:, None]), None
    if base is not None and instruction.operands[base].kind != "off":
        raise refuse(instruction, f"operand {instruction.operands[base]}")
    n = plane(instruction, at["at"], decoder, 2)

    def address(g: Group, offset: int) -> np.ndarray:
        both = np.empty((g.w, LANES, 2), np.uint32)
        both[..., 0], both[..., 1] = g.U[n], g.U[n + 1]
        result = both.view(np.int64)[..., 0]
        if offset:
            result += offset
        return result

    return address, None


def _buffer(instruction: Instruction, at: dict[str, int | None], decoder: Decoder):
    """(closure giving int64 virtual addresses, closure giving the lanes inside the buffer resource)."""
    first = scalar_register(instruction, at["rsrc"], 4)
    scalar = scalar_source(instruction, at["soff"], "u32")
    n = plane(instruction, at["at"], decoder) if instruction.modifier("offen", 0) else None

    def scalar_offset(g: Group) -> np.ndarray:
        return np.reshape(scalar(g).astype(np.int64), (-1, 1))

    def within(g: Group, offset: int) -> np.ndarray:
        return np.full((1, LANES), offset, np.int64) if n is None else g.U[n].astype(np.int64) + np.int64(offset)

    def address(g: Group, offset: int) -> np.ndarray:
        # Without an index the stride plays no part: sizes stay in bytes unless the resource is swizzled (bit 31).
        if g.any(g.S[first + 1] >> np.uint32(31) != 0):
            raise refuse(instruction, "swizzled buffer resource")
        return (g.QI[first // 2] & _ADDRESS_BITS)[:, None] + within(g, offset) + scalar_offset(g)

    # CDNA ISA, "Range checking", raw buffer: out of range where the offset reaches the size less the scalar offset.
    def limit(g: Group, offset: int, nbytes: int) -> np.ndarray:
        left = g.S[first + 2].astype(np.int64)[:, None] - scalar_offset(g)
        start = within(g, offset)
        # Where the 32-bit sum of vector and constant offset wraps, the text does not say what is compared.
        if offset and int(start.max()) >> 32 and (np.broadcast_to(start >> 32 != 0, (g.w, LANES)) & g.lanes()).any():
            raise UnknownInstruction(instruction, "buffer offset that wraps past 2^32 by")
        inside = np.broadcast_to(start + nbytes <= left, (g.w, LANES))
        partly = ~inside & (start < left)
        if partly.any() and (partly & g.lanes()).any():
            raise UnknownInstruction(instruction, "access partly outside its buffer resource by")
        return inside

    return address, limit


def _scratch(instruction: Instruction, at: dict[str, int | None], move: Move, decoder: Decoder) -> Reach:
    """Private memory of a lane, addressed by a vector or a scalar register, or neither."""
    vector, base = (instruction.operands[at[name]] for name in ("at", "base"))
    if vector.kind not in ("off", "vgpr") or base.kind not in ("off", "sgpr"):
        raise UnknownInstruction(instruction, "address form of")
    n = plane(instruction, at["at"], decoder) if vector.kind == "vgpr" else None
    s = scalar_register(instruction, at["base"]) if base.kind == "sgpr" else None
    observer, nbytes = decoder.memory.observer, move.nbytes

    def reach(g: Group, offset: int, kind: str, words: np.ndarray | None) -> Parts:
        place = np.full((g.w, LANES), offset, np.int64)
        if s is not None:
            place += g.S[s].astype(np.int64)[:, None]
        if n is not None:
            place += g.U[n]
        limit = g.chunk.scratch_bytes
        stray = ((place < 0) | (place + nbytes > limit)) & g.lanes()
        if stray.any():
            row, lane, wave, workgroup = g.first_lane(stray)
            raise OutOfBounds(
                instruction, buffer="scratch", byte_offset=int(place[row, lane]), buffer_bytes=limit,
                address=int(place[row, lane]), access_bytes=nbytes, kind=kind, lane=lane, wave=wave,
                workgroup=workgroup,
            )  # fmt: skip
        on = None if g.full else g.mask
        if observer.hooks:
            observer.notify("scratch", kind, instruction, g, None, place, nbytes, on)
        return [(None, g.chunk.scratch_views, place + g.scratch_base, on)]

    return reach


def _lds_parts(g: Group, instruction: Instruction, address: np.ndarray, nbytes: int, on: np.ndarray | None, kind: str,
               decoder: Decoder, words: np.ndarray | None) -> Parts:  # fmt: skip
    """An access to int64 byte addresses within the workgroup's LDS, [w, 64].

    Raises:
        LdsOutOfRange: past the allocation, naming the first lane.
    """
    limit = decoder.lds_bytes
    if int(address.max()) + nbytes > limit or int(address.min()) < 0:
        stray = (address + nbytes > limit) | (address < 0)
        stray = stray if on is None else stray & on
        if stray.any():
            row, lane, wave, workgroup = g.first_lane(stray)
            raise LdsOutOfRange(
                instruction, byte_address=int(address[row, lane]), access_bytes=nbytes, lds_bytes=limit, kind=kind,
                lane=lane, wave=wave, workgroup=workgroup,
            )  # fmt: skip
    if decoder.memory.observer.hooks:
        decoder.memory.observer.notify("lds", kind, instruction, g, None, address, nbytes, on, words)
    return [(None, g.chunk.lds_views, address + g.lds_base, on)]


def _gathered(g: Group, parts: Parts, nbytes: int) -> np.ndarray:
    """What an access reads, [w, 64, dwords]; lanes outside a buffer resource, or off, read 0."""
    on = None if g.full else g.mask
    if len(parts) == 1 and parts[0][3] is on:
        return gather(parts[0][1], parts[0][2], nbytes)
    words = np.zeros((g.w, LANES, max(nbytes // 4, 1)), np.uint32)
    for _, views, offsets, lanes in parts:
        if lanes is None:
            return gather(views, offsets, nbytes)
        words[lanes] = gather(views, offsets[lanes], nbytes)
    return words


def _extended(words: np.ndarray, move: Move) -> np.ndarray:
    if not move.signed:
        return words
    shift = np.int32(32 - 8 * move.nbytes)
    return (words.view(np.int32) << shift >> shift).view(np.uint32)


def _load(instruction: Instruction, results: list[int | None], move: Move, reach: Reach, decoder: Decoder) -> Step:
    offsets, memory, nbytes = _offsets(instruction, move), decoder.memory, move.nbytes
    looks = move.space != "lds" and bool(instruction.modifier("sc0", 0) or instruction.modifier("sc1", 0))
    registers = max(nbytes // 4, 1)
    n = None if move.to_lds else plane(instruction, results[0], decoder, registers * len(offsets))
    # To LDS: lane l's data to byte M0 + offset + l * max(bytes, 4).
    stride = max(nbytes, 4)
    lane = np.arange(LANES, dtype=np.int64) * stride + offsets[0]
    transpose = _transpose(move.transpose) if move.transpose else None

    def fetch(g: Group, offset: int) -> np.ndarray:
        parts = reach(g, offset, "load", None)
        if looks and parts and parts[0][0] is not None and parts[0][0].written:
            memory.looks += 1
        return _extended(_gathered(g, parts, nbytes), move)

    def load_to_lds(g: Group) -> None:
        words = fetch(g, offsets[0])
        place, on = g.S[M0].astype(np.int64)[:, None] + lane, None if g.full else g.mask
        dropped = g.S[M0] == _DROP  # how compilers drop a wave's data: past any LDS, the hardware discards it
        if g.any(dropped):
            on = g.lanes() & ~dropped[:, None]
        for _, views, where, lanes in _lds_parts(g, instruction, place, stride, on, "store", decoder, words):
            scatter(views, where, words, stride, lanes)

    def load(g: Group) -> None:
        several = [fetch(g, offset) for offset in offsets]
        for first, words in enumerate(several):
            if transpose is not None:
                words = transpose(g, words)
            if move.half:
                word, old = words[..., 0] & np.uint32(0xFFFF), g.U[n]
                high = move.half == "high"
                g.put_lanes(n, old & np.uint32(0xFFFF) | word << np.uint32(16) if high
                            else old & np.uint32(0xFFFF0000) | word)  # fmt: skip
                continue
            for i in range(registers):
                g.put_lanes(n + first * registers + i, words[..., i])

    return load_to_lds if move.to_lds else load


def _transpose(bits: int) -> Callable[[Group, np.ndarray], np.ndarray]:
    """Transpose elements among 16 lanes.

    Sixteen lanes read a matrix of E = 64 / bits rows of 16 elements, each row by 16 / E consecutive lanes; lane i gets
    column i, its elements in row order.
    """
    count = 64 // bits
    lane, row = np.arange(16)[:, None], np.arange(count)[None, :]
    source, element = row * (16 // count) + lane // count, lane % count + 0 * row

    def transpose(g: Group, words: np.ndarray) -> np.ndarray:
        raw = np.ascontiguousarray(words).view(np.uint16 if bits == 16 else np.uint8).reshape(g.w, 4, 16, -1)
        if bits == 4:
            nibbles = np.stack((raw & 15, raw >> 4), axis=-1).reshape(g.w, 4, 16, 16)[:, :, source, element]
            moved = nibbles[..., 0::2] | nibbles[..., 1::2] << np.uint8(4)
        else:
            moved = raw[:, :, source, element]
        return np.ascontiguousarray(moved).view(np.uint32).reshape(g.w, LANES, 2)

    return transpose


def _words(g: Group, n: int, registers: int) -> np.ndarray:
    """Registers n.. as [w, 64, registers]."""
    words = np.empty((g.w, LANES, registers), np.uint32)
    for i in range(registers):
        words[..., i] = g.U[n + i]
    return words


def _store(instruction: Instruction, data: list[int | None], move: Move, reach: Reach, decoder: Decoder) -> Step:
    memory, nbytes, registers = decoder.memory, move.nbytes, max(move.nbytes // 4, 1)
    stores = [(plane(instruction, place, decoder, registers), offset)
              for place, offset in zip(data, _offsets(instruction, move), strict=True)]  # fmt: skip
    shift = np.uint32(16 if move.half else 0)

    def store(g: Group) -> None:
        for n, offset in stores:
            words = _words(g, n, registers)
            if shift:
                words >>= shift
            if move.space in ("global", "buffer"):
                memory.progress += 1
            for buffer, views, offsets, lanes in reach(g, offset, "store", words):
                if buffer is not None:
                    buffer.written = True
                scatter(views, offsets, words, nbytes, lanes)

    return store


def _atomic(instruction: Instruction, result: list[int | None], data: list[int | None], move: Move, reach: Reach,
            decoder: Decoder) -> Step:  # fmt: skip
    """Operations in wave, then lane order, so that every run gives the same result."""
    registers = move.nbytes // 4
    compare = move.operation is None
    # A buffer atomic's data register is also where the old value goes.
    place = data[0] if data else result[0]
    n = plane(instruction, place, decoder, registers * (2 if compare else 1))
    returns = bool(result) and (move.space == "lds" or bool(instruction.modifier("sc0", 0)))
    old_to = None
    if returns:
        old_to = n if not data else plane(instruction, result[0], decoder, registers)
    memory, (offset,), nbytes = decoder.memory, _offsets(instruction, move), move.nbytes
    dtype = np.dtype(f"u{nbytes}")

    def run(g: Group) -> None:
        values = _words(g, n, registers).view(dtype)[..., 0]
        expected = _words(g, n + registers, registers).view(dtype)[..., 0] if compare else None
        old = np.zeros((g.w, LANES), dtype)
        for buffer, views, offsets, lanes in reach(g, offset, "atomic", None):
            pick = np.ones((g.w, LANES), bool) if lanes is None else lanes
            index = offsets[pick]
            if int(np.bitwise_or.reduce(index, initial=0)) & (nbytes - 1):
                raise UnknownInstruction(instruction, "misaligned address of")
            index, view = index // nbytes, views[nbytes]
            before = view[index]
            old[pick] = _in_order(view, index, values[pick], move.operation, expected[pick] if compare else None)
            if buffer is not None:
                buffer.written = True
                memory.progress += bool(np.any(view[index] != before))
        if returns:
            words = old.view(np.uint32).reshape(g.w, LANES, registers)
            for i in range(registers):
                g.put_lanes(old_to + i, words[..., i])

    return run


def _in_order(view, index, values, function, expected) -> np.ndarray:
    """Apply in order; accesses to one address see each other's results. Returns the old values."""
    old = np.empty_like(values)
    if function is None:
        for i in range(len(index)):
            old[i] = view[index[i]]
            if old[i] == expected[i]:
                view[index[i]] = values[i]
        return old
    # Rounds of distinct addresses: the n-th access to each address is in round n.
    order = np.argsort(index, kind="stable")
    ranked = index[order]
    start = np.r_[True, ranked[1:] != ranked[:-1]]
    position = np.arange(len(ranked))
    rank = position - np.maximum.accumulate(np.where(start, position, 0))
    for turn in range(int(rank.max(initial=-1)) + 1):
        at = order[rank == turn]
        old[at] = view[index[at]]
        view[index[at]] = function(old[at], values[at])
    return old


def _scalar(instruction: Instruction, result: int, at: dict[str, int | None], move: Move, decoder: Decoder) -> Step:
    """Consecutive dwords into consecutive SGPRs."""
    memory, nbytes = decoder.memory, move.nbytes
    buffered = "rsrc" in at
    first = scalar_register(instruction, at["rsrc" if buffered else "base"], 4 if buffered else 2)
    n, count = scalar_register(instruction, result, nbytes // 4), nbytes // 4
    register, fixed = scalar_source(instruction, at["soff"], "u32"), np.int64(instruction.modifier("offset", 0))
    constant = instruction.operands[at["soff"]]
    if constant.kind == "const":  # sign-extended, unlike a register
        register, fixed = None, fixed + np.int64(constant.value)

    def load(g: Group) -> None:
        offset = fixed if register is None else fixed + register(g).astype(np.int64)
        address = g.QI[first // 2]
        if buffered:
            if g.any((g.S[first + 1] >> np.uint32(16) & np.uint32(0x3FFF)) != 0):
                raise refuse(instruction, "buffer resource with a stride")
            if g.any(offset + nbytes > g.S[first + 2].astype(np.int64)):
                raise UnknownInstruction(instruction, "access past its buffer resource by")
            address = address & _ADDRESS_BITS
        address = np.reshape((address + offset) & ~np.int64(3), (-1, 1))
        mask = None if g.wm is None else g.wm[:, None]
        for buffer, offsets, lanes in memory.locate(address, nbytes, mask, g, instruction, "load"):
            if memory.observer.hooks:
                memory.observer.notify("scalar", "load", instruction, g, buffer, offsets, nbytes, lanes)
            words = gather(buffer.views, offsets, nbytes)[:, 0]
            for i in range(count):
                np.copyto(g.S[n + i], words[:, i], where=True if lanes is None else lanes[:, 0])

    return load
