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


def test_the_first_round_trip_is_in_every_kernel_and_not_counted():
    assert count() == 0
    assert count("load", "wait 0", *WORK) == 0


def test_a_loop_that_asks_and_waits_exposes_one_a_trip():
    trip = ("load", "load", "wait 0", *WORK)
    assert count(*trip * 5) == pytest.approx(4, abs=0.02)


def test_a_loop_that_asks_a_round_trip_ahead_exposes_none():
    assert count("load", *("load", *WORK, "wait 1") * 5) == pytest.approx(0, abs=0.02)


def test_two_loads_in_flight_overlap_their_round_trips():
    """A trip of half a round trip, asked for one trip ahead: the load is as old as two trips when it is waited for."""
    assert count("load", *("load", *HALF, "wait 1") * 9, "wait 0") == pytest.approx(0, abs=0.1)


def test_a_copy_at_the_end_of_the_trip_undoes_the_pipeline():
    """The next tile is asked for first, but its registers are copied, and so waited for, before the trip ends."""
    assert count("load", "wait 0", *("load", *HALF, "wait 0") * 8) == pytest.approx(0.5 * 8, abs=0.1)


def test_waits_for_loads_issued_together_are_one_round_trip():
    trip = ("load", "load", "load", "load", "wait 3", "wait 2", "wait 1", "wait 0", *WORK)
    assert count(*trip * 3) == pytest.approx(2, abs=0.03)


def test_dependent_loads_are_two():
    assert count("load", "wait 0", "valu", "load", "wait 0") == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("other", ["store", "spill"])
def test_a_wait_for_something_else_alone_is_none(other):
    assert count("load", "wait 0", *(other, "wait 0") * 4) == 0


def test_other_counters_do_not_matter():
    assert count(*("load", "lgkm", *WORK, "wait 0") * 4) == 0


def test_the_order_of_execution_counts_not_the_order_of_the_text():
    p = program("load", "wait 0", *WORK)
    assert exposed_waits(p, [*range(len(p))] * 4) == pytest.approx(3, abs=0.02)
    assert exposed_waits(p, [0, 1]) == 0
