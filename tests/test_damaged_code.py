"""Machine code as text, damaged line by line: a program, or one bearable line that says what is wrong."""

from __future__ import annotations

import functools
import random
import time

import pytest

from mxfp4lab.gfx950 import IsaError, compile_plan, find_hazards, parse_amdgcn
from tests.mutations.cases import CASES


@functools.cache
def texts() -> tuple[str, ...]:
    """Assembly of a GEMM, of a Gluon GEMM with a counter, of a reduce kernel."""
    plans = [CASES[name].plan() for name in ("split", "sliced_inside")]
    return tuple(kernel.asm for plan in plans for kernel in compile_plan(plan).kernels)


def damaged(rng: random.Random) -> str:
    """One of the texts with up to twenty lines lost, doubled, exchanged, cut, repeated or misspelt."""
    lines = rng.choice(texts()).splitlines()
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at, kind = rng.randrange(len(lines)), rng.randrange(7)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, rng.choice(lines))
        elif kind == 2:
            lines[at] = rng.choice(rng.choice(texts()).splitlines())
        elif kind == 3 and lines[at]:
            place = rng.randrange(len(lines[at]))
            other = chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xD800))))
            lines[at] = lines[at][:place] + other + lines[at][place + 1 :]
        elif kind == 4:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        elif kind == 5:
            lines[at] *= rng.choice((2, 1000))
        else:
            lines[at] = lines[at].replace(rng.choice("0123456789"), rng.choice(("9" * 30, "-1", "0x", "", ":")))
    return "\n".join(lines)


def answer(text: str) -> bool:
    """Whether the text is a program; anything but a clean answer within seconds fails."""
    started = time.perf_counter()
    try:
        program, _ = parse_amdgcn(text)
        find_hazards(program)
    except IsaError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
        return False
    finally:
        assert time.perf_counter() - started < 20
    return True


def test_damaged_text_gets_a_clean_answer() -> None:
    rng = random.Random(3)
    answers = [answer(damaged(rng)) for _ in range(200)]
    assert any(answers) and not all(answers)


def with_line(line: str) -> str:
    """A whole kernel with one line put before its first branch."""
    text = texts()[0]
    place = text.index("\ts_load")
    return text[:place] + line + "\n" + text[place:]


# Found by the minutes below.
FINDS = [
    ("\ts_nop", True),  # a wait without a count is one state
    ("\tgs_mov_b64 s[0:1], 0", False),  # belongs to no class
    ("\tv_mov_b32_e32 v0, " + "v1 " * 2000, False),  # the message does not quote all of it
]


@pytest.mark.parametrize(("line", "is_program"), FINDS, ids=["s_nop", "no class", "long"])
def test_finds(line: str, is_program: bool) -> None:
    assert answer(with_line(line)) == is_program


@pytest.mark.torture
def test_minutes_of_damaged_text() -> None:
    rng, stop, tried = random.Random(17), time.monotonic() + 120, 0
    while time.monotonic() < stop:
        answer(damaged(rng))
        tried += 1
    assert tried > 100
