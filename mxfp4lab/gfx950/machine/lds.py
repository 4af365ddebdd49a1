"""LDS instructions: reads, writes, two-address forms, transposing reads, atomics."""

from __future__ import annotations

import re

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.atomics import ATOMICS, apply_in_order
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.lanes import build_bpermute, build_permute, build_swizzle, plane
from mxfp4lab.gfx950.machine.memory import gather, scatter
from mxfp4lab.gfx950.machine.state import LANES, Group
from mxfp4lab.gfx950.machine.tables import store32
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers, destination, expect
from mxfp4lab.gfx950.machine.vmem import lds_check, lds_views, put_words

_BITS = {"b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2, "i16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
_READ = re.compile(r"ds_read_([bui])(8|16|32|64|96|128)(_d16)?(_hi)?")
_WRITE = re.compile(r"ds_write_b(8|16|32|64|96|128)(_d16_hi)?")
_TWO = re.compile(r"ds_(read|write)2(st64)?_b(32|64)")
_TRANSPOSE = {"ds_read_b64_tr_b16": 16, "ds_read_b64_tr_b8": 8, "ds_read_b64_tr_b4": 4}
_ATOMIC = re.compile(r"ds_(add|sub|and|or|xor|min|max)(_rtn)?_([uibf])32")


def _offset(instruction: Instruction, name: str = "offset") -> int:
    value = instruction.modifier(name, 0)
    if not isinstance(value, int):
        raise UnknownInstruction(instruction, f"{name}:{value} in")
    return value


def _load(g: Group, instruction, decoder, n_address: int, offset: int, nbytes: int) -> np.ndarray:
    address = g.U[n_address].astype(np.int64)
    if offset:
        address += offset
    on = None if g.full else g.mask
    lds_check(g, instruction, address, nbytes, on, decoder.lds_bytes, "load")
    observer = decoder.memory.observer
    if observer.hooks:
        observer.notify("lds", "load", instruction, g, None, address, nbytes, on)
    address += g.lds_base
    return gather(lds_views(g), address, nbytes)


def _store(g: Group, instruction, decoder, n_address: int, offset: int, nbytes: int, words: np.ndarray) -> None:
    address = g.U[n_address].astype(np.int64)
    if offset:
        address += offset
    on = None if g.full else g.mask
    lds_check(g, instruction, address, nbytes, on, decoder.lds_bytes, "store")
    observer = decoder.memory.observer
    if observer.hooks:
        observer.notify("lds", "store", instruction, g, None, address, nbytes, on, words)
    address += g.lds_base
    scatter(lds_views(g), address, words, nbytes, on)


def build_read(instruction: Instruction, decoder: Decoder) -> Step:
    """ds_read_*."""
    match = _READ.fullmatch(instruction.mnemonic)
    if not match:
        raise UnknownInstruction(instruction)
    letter, bits, d16, high = match.groups()
    nbytes = int(bits) // 8
    if nbytes < 4 and letter == "b":
        raise UnknownInstruction(instruction)
    expect(instruction, 2)
    check_modifiers(instruction, ("offset",))
    n = destination(instruction, decoder, width=max(nbytes // 4, 1))
    a, offset = plane(instruction, 1, decoder, 1), _offset(instruction)
    size = {1: "sbyte", 2: "sshort"}.get(nbytes, "")

    def run(g: Group) -> None:
        words = _load(g, instruction, decoder, a, offset, nbytes)
        put_words(g, n, words, size, letter == "i", d16, high)

    return run


def build_write(instruction: Instruction, decoder: Decoder) -> Step:
    """ds_write_*."""
    match = _WRITE.fullmatch(instruction.mnemonic)
    if not match:
        raise UnknownInstruction(instruction)
    nbytes = int(match[1]) // 8
    registers = max(nbytes // 4, 1)
    expect(instruction, 2)
    check_modifiers(instruction, ("offset",))
    a, n, offset = plane(instruction, 0, decoder, 1), plane(instruction, 1, decoder, registers), _offset(instruction)
    shift = np.uint32(16 if match[2] else 0)

    def run(g: Group) -> None:
        words = np.empty((g.w, LANES, registers), np.uint32)
        for i in range(registers):
            words[..., i] = g.U[n + i] >> shift
        _store(g, instruction, decoder, a, offset, nbytes, words)

    return run


def build_two(instruction: Instruction, decoder: Decoder) -> Step:
    """ds_read2_*, ds_write2_*, and st64 forms: two elements; offsets count elements, or 64 elements each."""
    direction, strided, bits = _TWO.fullmatch(instruction.mnemonic).groups()
    nbytes = int(bits) // 8
    registers = nbytes // 4
    unit = nbytes * (64 if strided else 1)
    check_modifiers(instruction, ("offset0", "offset1"))
    offsets = [_offset(instruction, name) * unit for name in ("offset0", "offset1")]
    if direction == "read":
        expect(instruction, 2)
        n, a = destination(instruction, decoder, width=2 * registers), plane(instruction, 1, decoder, 1)

        def read(g: Group) -> None:
            both = [_load(g, instruction, decoder, a, offset, nbytes) for offset in offsets]
            for half, words in enumerate(both):
                for i in range(registers):
                    store32(g, n + half * registers + i, words[..., i])

        return read
    expect(instruction, 3)
    a = plane(instruction, 0, decoder, 1)
    data = [plane(instruction, i, decoder, registers) for i in (1, 2)]

    def write(g: Group) -> None:
        for offset, n in zip(offsets, data, strict=True):
            words = np.empty((g.w, LANES, registers), np.uint32)
            for i in range(registers):
                words[..., i] = g.U[n + i]
            _store(g, instruction, decoder, a, offset, nbytes, words)

    return write


def transpose_source(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Where result element j of each of 16 lanes comes from: (lane, element), each [16, 64 // bits].

    Sixteen lanes read a matrix of E = 64 / bits rows of 16 elements, each row by 16 / E consecutive lanes; lane i gets
    column i, its elements in row order.
    """
    count = 64 // bits
    lanes_per_row = 16 // count if count < 16 else 1
    lane = np.arange(16)[:, None]
    row = np.arange(count)[None, :]
    return row * lanes_per_row + lane // count, lane % count + 0 * row


def build_transpose(instruction: Instruction, decoder: Decoder) -> Step:
    """ds_read_b64_tr_*: a 64-bit read whose elements are transposed among 16 lanes."""
    bits = _TRANSPOSE[instruction.mnemonic]
    expect(instruction, 2)
    check_modifiers(instruction, ("offset",))
    n, a = destination(instruction, decoder, width=2), plane(instruction, 1, decoder, 1)
    offset = _offset(instruction)
    lane, element = transpose_source(bits)

    def run(g: Group) -> None:
        words = _load(g, instruction, decoder, a, offset, 8)
        if bits == 4:
            raw = np.ascontiguousarray(words).view(np.uint8).reshape(g.w, 4, 16, 8)
            nibbles = np.stack((raw & 15, raw >> 4), axis=-1).reshape(g.w, 4, 16, 16)
            moved = nibbles[:, :, lane, element]
            packed = moved[..., 0::2] | moved[..., 1::2] << np.uint8(4)
        else:
            kind = {16: np.uint16, 8: np.uint8}[bits]
            packed = np.ascontiguousarray(words).view(kind).reshape(g.w, 4, 16, 64 // bits)[:, :, lane, element]
        result = np.ascontiguousarray(packed).view(np.uint32).reshape(g.w, LANES, 2)
        store32(g, n, result[..., 0])
        store32(g, n + 1, result[..., 1])

    return run


def build_atomic(instruction: Instruction, decoder: Decoder) -> Step:
    """ds_add_u32 and kin, in wave then lane order; _rtn returns the old value."""
    match = _ATOMIC.fullmatch(instruction.mnemonic)
    if not match:
        raise UnknownInstruction(instruction)
    operation, returns, letter = match.groups()
    name = {"f": "add_f32"}.get(letter, operation)
    if operation in ("min", "max"):
        name = {"u": "u", "i": "s"}.get(letter, "?") + operation
    if name not in ATOMICS or (letter == "f" and operation != "add"):
        raise UnknownInstruction(instruction)
    function = ATOMICS[name][1]
    first = 1 if returns else 0
    expect(instruction, first + 2)
    check_modifiers(instruction, ("offset",))
    n = destination(instruction, decoder) if returns else None
    a, data, offset = (
        plane(instruction, first, decoder, 1),
        plane(instruction, first + 1, decoder, 1),
        _offset(instruction),
    )

    def run(g: Group) -> None:
        address = g.U[a].astype(np.int64) + offset
        on = None if g.full else g.mask
        lds_check(g, instruction, address, 4, on, decoder.lds_bytes, "atomic")
        observer = decoder.memory.observer
        if observer.hooks:
            observer.notify("lds", "atomic", instruction, g, None, address, 4, on)
        pick = g.lanes()
        at = (address + g.lds_base)[pick]
        if at.size and int(np.bitwise_or.reduce(at)) & 3:
            raise UnknownInstruction(instruction, "misaligned address of")
        old = np.zeros((g.w, LANES), np.uint32)
        old[pick] = apply_in_order(lds_views(g)[4], at // 4, g.U[data][pick], function, None)
        if returns:
            store32(g, n, old)

    return run


def build_lds(instruction: Instruction, decoder: Decoder) -> Step:
    """Closure of any ds_ instruction."""
    name = instruction.mnemonic
    special = {"ds_bpermute_b32": build_bpermute, "ds_permute_b32": build_permute, "ds_swizzle_b32": build_swizzle}
    if name in special:
        return special[name](instruction, decoder)
    if name in _TRANSPOSE:
        return build_transpose(instruction, decoder)
    if _TWO.fullmatch(name):
        return build_two(instruction, decoder)
    if name.startswith("ds_read_"):
        return build_read(instruction, decoder)
    if name.startswith("ds_write_"):
        return build_write(instruction, decoder)
    return build_atomic(instruction, decoder)
