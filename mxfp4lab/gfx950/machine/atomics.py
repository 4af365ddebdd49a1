"""Atomics on global memory: operations in wave, then lane order, so that every run gives the same result."""

from __future__ import annotations

import re

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.lanes import plane
from mxfp4lab.gfx950.machine.packed import bf16_pair_add, f16_pair_add
from mxfp4lab.gfx950.machine.state import LANES, Group
from mxfp4lab.gfx950.machine.tables import store32
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers, destination
from mxfp4lab.gfx950.machine.vmem import CACHE, Target, active_lanes

_ATOMIC = re.compile(r"(global|buffer|flat)_atomic_([a-z0-9_]+)")


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
    check_modifiers(instruction, (*CACHE, *(("offen", "idxen") if buffer else ())))
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
        mask, _ = active_lanes(g, target, nbytes)
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
            old[pick] = apply_in_order(
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


def apply_in_order(view, index, values, function, expected) -> np.ndarray:
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
