"""The task's case lines, its seeds, and the log that a run writes.

A case line looks like `m: 64; n: 7168; k: 2048; seed: 687` (gpu-mode/reference-kernels, problems/amd_202602/eval.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mxfp4lab.paths import read_bounded
from mxfp4lab.shapes import BENCHMARK_SHAPES, TEST_SHAPES, Shape, parse_shape, task_seed

MODES = ("test", "benchmark", "leaderboard", "import")  # import: only load the file and find custom_kernel
TIME_LIMITS_S = {"test": 420.0, "benchmark": 420.0, "leaderboard": 600.0, "import": 60.0}
EXIT_PASS, EXIT_BAD_REQUEST, EXIT_NO_LOG, EXIT_FAIL, EXIT_BAD_CASES = 0, 2, 111, 112, 113
DEFAULT_SEED = 42
MAX_FILE_BYTES = 1 << 20  # of case lines, 60 bytes each

_FIELD = re.compile(r"\s*([a-zA-Z_]\w*)\s*:\s*([+-]?[0-9]+)\s*")


class BadCases(ValueError):
    """A case file that cannot be read; the task answers with exit code 113."""


class NoLog(ValueError):
    """POPCORN_FD names nothing that can be written; the task answers with exit code 111."""


@dataclass(frozen=True)
class Case:
    """One line: a shape and a seed, and the line as it was given."""

    shape: Shape
    seed: int
    spec: str


def combine(a: int, b: int) -> int:
    """The seed of a case from its public seed `a` and the run's secret seed `b`: `a + (a + b)(a + b + 1) // 2`."""
    return a + (a + b) * (a + b + 1) // 2


def parse_case(line: str) -> Case:
    """Read one case line.

    Raises:
        BadCases: naming the line and what is wrong with it.
    """
    values: dict[str, int] = {}
    for part in line.split(";"):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise BadCases(f"invalid test case: {line!r}: {part!r} is not `name: integer`")
        values[match[1]] = int(match[2])
    if set(values) != {"m", "n", "k", "seed"}:
        raise BadCases(f"invalid test case: {line!r}: needs m, n, k and seed")
    try:
        shape = parse_shape((values["m"], values["n"], values["k"]))
    except ValueError as error:
        raise BadCases(f"invalid test case: {line!r}: {error}") from None
    if values["seed"] < 0:
        raise BadCases(f"invalid test case: {line!r}: seed={values['seed']} must not be negative")
    return Case(shape, values["seed"], line.strip())


def read_cases(path: str | Path) -> list[Case]:
    """Every line of a case file.

    Raises:
        BadCases: for a file that is missing, empty, or holds a line that is no case.
    """
    try:
        lines = read_bounded(path, MAX_FILE_BYTES).splitlines()
    except (OSError, ValueError) as error:
        raise BadCases(f"could not open test file {str(path)!r}: {error}") from None
    cases = [parse_case(line) for line in lines if line.strip()]
    if not cases:
        raise BadCases(f"test file {str(path)!r} holds no case")
    return cases


def task_cases(mode: str, shapes: Iterable[Shape] = ()) -> list[Case]:
    """The task's own cases for a mode, or the named shapes with the task's seeds (42 for a shape it does not have)."""
    chosen = list(shapes)
    if not chosen:
        return [Case(c.shape, c.seed, str(c)) for c in (TEST_SHAPES if mode == "test" else BENCHMARK_SHAPES)]
    cases = []
    for shape in chosen:
        seed = task_seed(shape)
        seed = DEFAULT_SEED if seed is None else seed
        cases.append(Case(shape, seed, f"m: {shape.m}; n: {shape.n}; k: {shape.k}; seed: {seed}"))
    return cases


def with_secret(cases: list[Case], secret: int | None) -> list[Case]:
    """The cases with POPCORN_SEED combined into their seeds; the lines stay as they were given."""
    if secret is None:
        return cases
    return [Case(c.shape, combine(c.seed, secret) % 2**63, c.spec) for c in cases]


def secret_seed() -> int | None:
    """POPCORN_SEED as an integer, or None where it is not set.

    Raises:
        ValueError: if it is set to something else.
    """
    text = os.environ.get("POPCORN_SEED", "")
    if not text:
        return None
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        raise ValueError(f"POPCORN_SEED={text!r} must be an integer")
    return int(text)


class Log:
    """`key: value` lines, kept and written to a descriptor.

    Args:
        descriptor: POPCORN_FD's number; None only keeps the lines.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.lines: list[str] = []
        self._descriptor = descriptor

    @classmethod
    def from_environment(cls) -> Log:
        """The log that POPCORN_FD names; without it the lines are only kept.

        Raises:
            NoLog: if it is set and names no open descriptor.
        """
        text = os.environ.get("POPCORN_FD", "")
        if not text:
            return cls()
        try:
            descriptor = int(text)
            os.fstat(descriptor)
            os.write(descriptor, b"")
        except (ValueError, OSError) as error:
            raise NoLog(f"POPCORN_FD={text!r} names no open descriptor ({error})") from None
        return cls(descriptor)

    def write(self, key: str, value: object) -> None:
        """One line; line breaks in the value become "\\n" as the task writes them."""
        line = f"{key}: {str(value).replace(chr(10), chr(92) + 'n')}"
        self.lines.append(line)
        if self._descriptor is not None:
            os.write(self._descriptor, line.encode() + b"\n")
