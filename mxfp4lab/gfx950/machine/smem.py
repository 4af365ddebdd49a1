"""Scalar memory loads and the few scalar instructions that read machine state."""

from __future__ import annotations

import re

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.memory import gather
from mxfp4lab.gfx950.machine.state import Group
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers

_LOAD = re.compile(r"s_(buffer_)?load_dword(?:x(2|4|8|16))?")


def build_scalar_load(instruction: Instruction, decoder: Decoder) -> Step:
    """s_load_dword*, s_buffer_load_dword*: consecutive dwords into consecutive SGPRs."""
    match = _LOAD.fullmatch(instruction.mnemonic)
    if not match:
        raise UnknownInstruction(instruction)
    check_modifiers(instruction, ("offset", "glc"))
    count = int(match[2] or 1)
    destination, base = instruction.operands[:2]
    if destination.kind != "sgpr" or destination.width != count or base.kind != "sgpr" or base.index % 2:
        raise UnknownInstruction(instruction, f"operand {base} in")
    if base.width != (4 if match[1] else 2):
        raise UnknownInstruction(instruction, f"operand {base} in")
    fixed = np.int64(instruction.modifier("offset", 0))
    register = None
    if len(instruction.operands) > 3:
        raise UnknownInstruction(instruction, f"{len(instruction.operands)} operands in")
    if len(instruction.operands) == 3:
        extra = instruction.operands[2]
        if extra.kind == "const" and isinstance(extra.value, int) and not extra.name:
            fixed += np.int64(extra.value)
        elif extra.kind == "sgpr" and extra.width == 1:
            register = extra.index
        else:
            raise UnknownInstruction(instruction, f"operand {extra} in")
    first, n, memory, nbytes = base.index, destination.index, decoder.memory, 4 * count
    buffered = bool(match[1])

    def run(g: Group) -> None:
        offset = fixed if register is None else fixed + g.S[register].astype(np.int64)
        address = g.QI[first // 2]
        if buffered:
            if g.any((g.S[first + 1] >> np.uint32(16) & np.uint32(0x3FFF)) != 0):
                raise UnknownInstruction(instruction, "buffer resource with a stride in")
            if g.any(offset + nbytes > g.S[first + 2].astype(np.int64)):
                raise UnknownInstruction(instruction, "access past its buffer resource by")
            address = address & np.int64((1 << 48) - 1)
        address = np.reshape((address + offset) & ~np.int64(3), (-1, 1))
        mask = None if g.wm is None else g.wm[:, None]
        for where, offsets, lanes in memory.locate(address, nbytes, mask, g, instruction, "load"):
            if memory.observer.hooks:
                memory.observer.notify("scalar", "load", instruction, g, where, offsets, nbytes, lanes)
            words = gather(where.views, offsets, nbytes)[:, 0]
            for i in range(count):
                if lanes is None:
                    g.S[n + i][...] = words[:, i]
                else:
                    np.copyto(g.S[n + i], words[:, i], where=lanes[:, 0])

    return run


def build_setreg_mode(instruction: Instruction, decoder: Decoder) -> Step:
    """s_setreg_imm32_b32 hwreg(HW_REG_MODE, ...): accepted where it sets the mode that the emulator has anyway."""
    operand = instruction.operands[0]
    if operand.name.replace(" ", "") in ("hwreg(HW_REG_MODE,2,2)", "hwreg(HW_REG_MODE,6,2)", "hwreg(HW_REG_MODE,4,4)"):
        value = instruction.operands[1].value
        if value in (3, 15):  # denormals on
            return lambda g: None
    raise UnknownInstruction(instruction, "mode change by")


def build_xcc_id(instruction: Instruction, decoder: Decoder) -> Step:
    """s_getreg_b32 of HW_REG_XCC_ID, whole: the XCD that a wave runs on (`Chunk.xcd`). No other register is there."""
    operand, place = instruction.operands
    if place.name.replace(" ", "") not in ("hwreg(HW_REG_XCC_ID)", "hwreg(HW_REG_XCC_ID,0,32)"):
        raise UnknownInstruction(instruction, f"{place.name} in")
    if operand.kind != "sgpr" or operand.width != 1:
        raise UnknownInstruction(instruction, f"destination {operand} in")
    return lambda g: g.put_scalar(operand.index, g.chunk.xcd[g.first : g.last])


def build_memtime(instruction: Instruction, decoder: Decoder) -> Step:
    """s_memtime, s_memrealtime: a counter that grows with every reading; there is no clock in an emulation."""
    operand = instruction.operands[0]
    if operand.kind != "sgpr" or operand.width != 2 or operand.index % 2:
        raise UnknownInstruction(instruction, f"destination {operand} in")
    ticks = [0]

    def run(g: Group) -> None:
        ticks[0] += 1
        g.put_pair(operand.index // 2, np.uint64(ticks[0]))

    return run


BUILDERS = {
    "s_setreg_imm32_b32": build_setreg_mode, "s_getreg_b32": build_xcc_id,
    "s_memtime": build_memtime, "s_memrealtime": build_memtime,
}  # fmt: skip
