"""Scratch: a lane's private memory, where the compiler spills registers."""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.errors import OutOfBounds, UnknownInstruction
from mxfp4lab.gfx950.machine.lanes import plane
from mxfp4lab.gfx950.machine.operands import source
from mxfp4lab.gfx950.machine.state import LANES, Group
from mxfp4lab.gfx950.machine.tables import store32
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers, destination
from mxfp4lab.gfx950.machine.vmem import ACCESS, CACHE, SIZES, put_words


def build_scratch(instruction: Instruction, decoder: Decoder) -> Step:
    """scratch_load, scratch_store: private memory of a lane, addressed by a vector or a scalar register, or neither."""
    match = ACCESS.fullmatch(instruction.mnemonic)
    if not match:
        raise UnknownInstruction(instruction)
    _, direction, _, size, d16, high = match.groups()
    check_modifiers(instruction, CACHE)
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
    stray = ((at < 0) | (at + nbytes > limit)) & g.lanes()
    if stray.any():
        row, lane, wave, workgroup = g.first_lane(stray)
        raise OutOfBounds(
            instruction, buffer="scratch", byte_offset=int(at[row, lane]), buffer_bytes=limit,
            address=int(at[row, lane]), access_bytes=nbytes, kind=kind, lane=lane, wave=wave, workgroup=workgroup,
        )  # fmt: skip
