"""Instructions that move data between lanes, or between lanes and scalars, without memory."""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.operands import constant_bits, slot, source
from mxfp4lab.gfx950.machine.state import LANES, Group
from mxfp4lab.gfx950.machine.tables import store32
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers, destination, expect


def _scalar(instruction: Instruction, position: int, decoder: Decoder):
    """Closure of a scalar source as uint32 [w] or 0-d."""
    operand = instruction.operands[position]
    if operand.kind == "const":
        value = np.array(constant_bits(operand, 32, instruction), np.uint32)
        return lambda g: value
    if operand.kind == "sgpr" and operand.width == 1:
        n = operand.index
        return lambda g: g.S[n]
    raise UnknownInstruction(instruction, f"operand {operand} in")


def _sgpr(instruction: Instruction) -> int:
    operand = instruction.operands[0]
    if operand.kind != "sgpr" or operand.width != 1:
        raise UnknownInstruction(instruction, f"destination {operand} in")
    return operand.index


def build_readfirstlane(instruction: Instruction, decoder: Decoder) -> Step:
    """v_readfirstlane_b32: the lowest active lane's value (lane 0 if none is active) to a scalar."""
    expect(instruction, 2)
    check_modifiers(instruction)
    n = _sgpr(instruction)
    fetch = source(instruction, 1, "u32", decoder.accum)

    def run(g: Group) -> None:
        x = np.broadcast_to(fetch(g), (g.w, LANES))
        first = x[:, 0] if g.full else x[np.arange(g.w), g.exec.argmax(axis=1)]
        _put(g, n, first)

    return run


def _put(g: Group, n: int, value: np.ndarray) -> None:
    g.put_scalar(n, value)
    if n in (126, 127):
        g.refresh_exec()


def build_readlane(instruction: Instruction, decoder: Decoder) -> Step:
    """v_readlane_b32: one lane's value to a scalar, whether the lane is active or not."""
    expect(instruction, 3)
    check_modifiers(instruction)
    n = _sgpr(instruction)
    fetch, lane = source(instruction, 1, "u32", decoder.accum), _scalar(instruction, 2, decoder)

    def run(g: Group) -> None:
        x = np.broadcast_to(fetch(g), (g.w, LANES))
        _put(g, n, x[np.arange(g.w), lane(g) & np.uint32(63)])

    return run


def build_writelane(instruction: Instruction, decoder: Decoder) -> Step:
    """v_writelane_b32: a scalar to one lane, whether the lane is active or not."""
    expect(instruction, 3)
    check_modifiers(instruction)
    n = destination(instruction, decoder)
    value, lane = _scalar(instruction, 1, decoder), _scalar(instruction, 2, decoder)

    def run(g: Group) -> None:
        rows = np.arange(g.w) if g.wm is None else np.flatnonzero(g.wm)
        lanes = np.broadcast_to(lane(g) & np.uint32(63), g.w)[rows]
        g.U[n][rows, lanes] = np.broadcast_to(value(g), g.w)[rows]

    return run


def build_permlane_swap(instruction: Instruction, decoder: Decoder) -> Step:
    """v_permlane16_swap_b32, v_permlane32_swap_b32.

    The second operand's lower rows (of 16, or 32) change places with the first one's upper rows.
    """
    expect(instruction, 2)
    check_modifiers(instruction)
    size = 16 if "16" in instruction.mnemonic else 32
    n = destination(instruction, decoder)
    m = destination(instruction, decoder, position=1)

    def run(g: Group) -> None:
        d, s = (g.U[r].reshape(g.w, LANES // (2 * size), 2, size) for r in (n, m))
        upper, lower = d[:, :, 1].copy(), s[:, :, 0].copy()
        if g.full:
            d[:, :, 1], s[:, :, 0] = lower, upper
        else:
            mask = g.mask.reshape(g.w, LANES // (2 * size), 2, size)
            np.copyto(d[:, :, 1], lower, where=mask[:, :, 1])
            np.copyto(s[:, :, 0], upper, where=mask[:, :, 0])

    return run


def build_swap(instruction: Instruction, decoder: Decoder) -> Step:
    """v_swap_b32."""
    expect(instruction, 2)
    check_modifiers(instruction)
    n, m = destination(instruction, decoder), destination(instruction, decoder, position=1)

    def run(g: Group) -> None:
        old = g.U[n].copy()
        store32(g, n, g.U[m])
        store32(g, m, old)

    return run


def build_bpermute(instruction: Instruction, decoder: Decoder) -> Step:
    """ds_bpermute_b32: each lane reads the lane that (address + offset) / 4 names; a lane that is off gives 0."""
    expect(instruction, 3)
    check_modifiers(instruction, ("offset",))
    n = destination(instruction, decoder)
    offset = np.uint32(instruction.modifier("offset", 0))
    address, data = (source(instruction, i, "u32", decoder.accum) for i in (1, 2))

    def run(g: Group) -> None:
        lane = ((address(g) + offset) >> np.uint32(2) & np.uint32(63)).astype(np.intp)
        value = np.take_along_axis(data(g), np.broadcast_to(lane, (g.w, LANES)), axis=1)
        if not g.full:
            value = np.where(
                np.take_along_axis(g.exec, np.broadcast_to(lane, (g.w, LANES)), axis=1), value, np.uint32(0)
            )
        store32(g, n, value)

    return run


def build_permute(instruction: Instruction, decoder: Decoder) -> Step:
    """ds_permute_b32: each active lane writes to lane (address + offset) / 4; the highest source lane wins."""
    expect(instruction, 3)
    check_modifiers(instruction, ("offset",))
    n = destination(instruction, decoder)
    offset = np.uint32(instruction.modifier("offset", 0))
    address, data = (source(instruction, i, "u32", decoder.accum) for i in (1, 2))

    def run(g: Group) -> None:
        lane = np.broadcast_to(((address(g) + offset) >> np.uint32(2) & np.uint32(63)).astype(np.intp), (g.w, LANES))
        result = np.zeros((g.w, LANES), np.uint32)
        values, on = data(g), g.lanes()
        rows = np.arange(g.w)
        for i in range(LANES):
            hit = on[:, i]
            result[rows[hit], lane[hit, i]] = values[hit, i]
        store32(g, n, result)

    return run


def build_swizzle(instruction: Instruction, decoder: Decoder) -> Step:
    """ds_swizzle_b32: quad permutation (offset bit 15 set) or and/or/xor of the lane number within 32 lanes."""
    expect(instruction, 2)
    check_modifiers(instruction, ("offset",))
    n = destination(instruction, decoder)
    offset = instruction.modifier("offset", 0)
    if not isinstance(offset, int) or offset >= 0xE000:  # FFT and rotate modes
        raise UnknownInstruction(instruction, f"swizzle {offset} in")
    lane = np.arange(LANES)
    if offset & 0x8000:
        pattern = lane // 4 * 4 + (offset >> 2 * (lane % 4) & 3)
    else:
        keep, either, flip = offset & 31, offset >> 5 & 31, offset >> 10 & 31
        pattern = lane // 32 * 32 + ((lane % 32 & keep | either) ^ flip)
    fetch = source(instruction, 1, "u32", decoder.accum)

    def run(g: Group) -> None:
        value = fetch(g).take(pattern, axis=1)
        if not g.full:
            value = np.where(g.exec.take(pattern, axis=1), value, np.uint32(0))
        store32(g, n, value)

    return run


def plane(instruction: Instruction, position: int, decoder: Decoder, width: int | None = None) -> int:
    """Plane of a vector source; checks its width where given.

    Raises:
        UnknownInstruction: it is no vector register of that width.
    """
    operand = instruction.operands[position]
    wrong = operand.kind not in ("vgpr", "agpr") or operand.neg or operand.abs
    if wrong or (width is not None and operand.width != width):
        raise UnknownInstruction(instruction, f"operand {operand} in")
    return slot(operand, decoder.accum)
