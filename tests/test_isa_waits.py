"""Waits for memory that a wave has nothing to cover with, on programs small enough to count by hand."""

from __future__ import annotations

import pytest

from mxfp4lab.gfx950 import ROUND_TRIP_CYCLES, Instruction, Program, exposed_waits


def program(*lines: str) -> Program:
    """`load`, `store`, `spill`, `wait N`, `lgkm`, `valu`: enough of an assembler for these tests."""
    forms = {"load": "global_load_dwordx4", "store": "global_store_dword", "spill": "scratch_load_dword"}
    forms["valu"] = "v_add_u32"
    instructions = []
    for index, line in enumerate(lines):
        word, *rest = line.split()
        if word == "wait":
            instructions.append(Instruction(index, "s_waitcnt", modifiers=(("vmcnt", int(rest[0])),)))
        elif word == "lgkm":
            instructions.append(Instruction(index, "s_waitcnt", modifiers=(("lgkmcnt", 0),)))
        else:
            instructions.append(Instruction(index, forms[word]))
    return Program("k", tuple(instructions))


WORK = ("valu",) * (ROUND_TRIP_CYCLES // 4)
HALF = WORK[::2]


def count(*lines: str) -> float:
    p = program(*lines)
    return exposed_waits(p, range(len(p)))


@pytest.mark.parametrize(
    ("lines", "trips"),
    [
        ((), 0),
        (("load", "wait 0", *WORK), 0),  # the first round trip is in every kernel and not counted
        (("load", "load", "wait 0", *WORK) * 5, 4),  # a loop that asks and waits
        (("load", *("load", *WORK, "wait 1") * 5), 0),  # one that asks a round trip ahead
        (("load", *("load", *HALF, "wait 1") * 9, "wait 0"), 0),  # half a round trip of work, a load two trips old
        (("load", "wait 0", *("load", *HALF, "wait 0") * 8), 4),  # a copy at the trip's end undoes the pipeline
        (("load", "load", "load", "load", "wait 3", "wait 2", "wait 1", "wait 0", *WORK) * 3, 2),  # issued together
        (("load", "wait 0", "valu", "load", "wait 0"), 1),  # one depends on the other
        (("load", "wait 0", *("store", "wait 0") * 4), 0),
        (("load", "wait 0", *("spill", "wait 0") * 4), 0),
        (("load", "lgkm", *WORK, "wait 0") * 4, 0),
    ],
)
def test_round_trips_that_a_wave_waits_out(lines, trips):
    assert count(*lines) == pytest.approx(trips, abs=0.1)


def test_the_order_of_execution_counts_not_the_order_of_the_text():
    p = program("load", "wait 0", *WORK)
    assert exposed_waits(p, [*range(len(p))] * 4) == pytest.approx(3, abs=0.02)
    assert exposed_waits(p, [0, 1]) == 0
