"""Memory round trips that a wave sits through with nothing else to do, from the instructions that it executed.

A pipelined loop asks for the next tile before it works on the present one: when it waits, the answer has had the length
of a trip to arrive. A loop that is not pipelined asks and waits at once. Counts of instructions do not tell the two
apart; the order of a wave's loads and waits does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .classes import classify
from .instruction import Instruction, Program

# Issue cycles between a load and the wait for it that make the wait covered. A round trip to HBM takes about 2000; a
# trip of a pipelined K loop 500 to 1500; the addressing between a load and its immediate wait tens of cycles.
COVERED_CYCLES = 256
_ISSUE_CYCLES = {"valu": 4, "convert": 4, "mfma": 16, "vmem": 4, "lds": 4, "scratch": 4, "smem": 4, "salu": 1}


def exposed_waits(program: Program, executed: Iterable[int]) -> int:
    """Counts the waits for global loads that come right after the loads, beyond a wave's first.

    Waits for several loads issued together count once. Stores and scratch accesses occupy the same counter and are
    followed, but a wait for them alone is no round trip for operands.

    Args:
        program: the kernel.
        executed: indices of the instructions that one wave executed, in order.
    """
    outstanding: deque[tuple[int, bool]] = deque()  # (issue time, is a load), oldest first; vmcnt counts them in order
    clock = exposed = 0
    last_arrival_of = -1  # issue time of the youngest load known to have arrived
    for index in executed:
        instruction = program[index]
        kind = classify(instruction.mnemonic)
        clock += _ISSUE_CYCLES.get(kind, 1)
        if kind in ("vmem", "scratch"):
            outstanding.append((clock, kind == "vmem" and "load" in instruction.mnemonic))
        elif kind == "waitcnt":
            allowed = _vmcnt(instruction)
            if allowed is None:
                continue
            youngest = -1
            while len(outstanding) > allowed:
                issued, load = outstanding.popleft()
                youngest = issued if load else youngest
            if youngest > last_arrival_of:
                exposed += clock - youngest < COVERED_CYCLES
                last_arrival_of = clock  # what was issued before has now had its round trip
    return max(exposed - 1, 0)


def _vmcnt(instruction: Instruction) -> int | None:
    """The vmcnt that a wait demands; None where it waits for other counters only."""
    value = instruction.modifier("vmcnt")
    return value if isinstance(value, int) else None
