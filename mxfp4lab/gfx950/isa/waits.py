"""Counters of outstanding memory accesses: what raises them, what waits for them, and how long a wave sits waiting.

A pipelined loop asks for the next tile before it works on the present one, and by the time it waits the answer has had
the length of a trip to arrive; a loop that is not pipelined asks and waits at once. Some loops are pipelined in the
source and not in the machine code: a register copy at the end of the trip waits for what its beginning asked for.
Counts of instructions do not tell these apart; the order of a wave's loads and waits does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from mxfp4lab.gfx950.isa.classes import classify
from mxfp4lab.gfx950.isa.instruction import Instruction, Program

MOST = {"vmcnt": 63, "lgkmcnt": 15}  # what a counter holds at most: waiting for it is waiting for nothing
# 0.62 us at 2.4 GHz: the round trip to memory, caches cold, with which published MI355X times of pipelined and
# unpipelined loops agree best (tried: 400 to 2400 cycles; 1100 to 1900 do nearly as well). It decides how much of a
# round trip the work before a wait covers; what a round trip costs is for the time model to fit.
ROUND_TRIP_CYCLES = 1500
_ISSUE_CYCLES = {"valu": 4, "convert": 4, "mfma": 16, "vmem": 4, "lds": 4, "scratch": 4, "smem": 4}


def counter(instruction: Instruction) -> str:
    """What an instruction raises: "vmcnt", "lgkmcnt", "both" (flat addresses), or ""."""
    name, kind = instruction.mnemonic, classify(instruction.mnemonic)
    if name.startswith("flat_"):
        return "both"
    if kind in ("vmem", "scratch") and not name.startswith("buffer_inv"):
        return "vmcnt"
    return "lgkmcnt" if kind == "lds" or (kind == "smem" and "_dcache_" not in name and "_icache_" not in name) else ""


def awaited(instruction: Instruction) -> dict[str, int]:
    """How many accesses of each counter an s_waitcnt leaves outstanding; a counter that it does not wait for is absent.

    Source: CDNA4 ISA, S_WAITCNT: vmcnt in bits 3:0 and 15:14, expcnt 6:4, lgkmcnt 11:8.
    """
    if instruction.mnemonic != "s_waitcnt":
        return {}
    found = {}
    for operand in instruction.operands:
        if operand.kind == "const" and isinstance(operand.value, int):
            value = operand.value
            found = {"vmcnt": value & 15 | (value >> 14 & 3) << 4, "lgkmcnt": value >> 8 & 15}
    found |= {name: value for name, value in instruction.modifiers if name in MOST and isinstance(value, int)}
    return {name: value for name, value in found.items() if value < MOST[name]}


def exposed_waits(program: Program, executed: Iterable[int], round_trip: int = ROUND_TRIP_CYCLES) -> float:
    """Memory round trips that one wave waits out, beyond its first, in units of one round trip.

    A clock advances by what each instruction takes to issue; a load arrives `round_trip` cycles after it was issued; a
    wait for it advances the clock to its arrival and counts what is missing. Stores and scratch accesses occupy the
    same counter and are followed, but are not waited for here: a wait for them is no round trip for operands.

    Args:
        program: the kernel.
        executed: indices of the instructions that one wave executed, in order.
        round_trip: cycles from a load to its data.
    """
    outstanding: deque[int | None] = deque()  # when each access arrives, oldest first; None for other than a load
    clock = waited = 0
    for index in executed:
        instruction = program[index]
        kind = classify(instruction.mnemonic)
        clock += _ISSUE_CYCLES.get(kind, 1)
        if kind in ("vmem", "scratch"):
            load = kind == "vmem" and "load" in instruction.mnemonic
            outstanding.append(clock + round_trip if load else None)
        elif kind == "waitcnt" and "vmcnt" in (allowed := awaited(instruction)):
            arrival = clock
            while len(outstanding) > allowed["vmcnt"]:
                arrival = max(arrival, outstanding.popleft() or 0)
            waited += arrival - clock
            clock = arrival
    return max(waited / round_trip - 1.0, 0.0)
