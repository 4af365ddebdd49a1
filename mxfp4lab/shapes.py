"""GEMM shapes: one frozen type, one parser, and the shapes of the public `amd-mxfp4-mm` task.

Nothing here imports torch, so that the command line can parse a shape and answer at once.
"""

from __future__ import annotations

import numbers
import re
from dataclasses import dataclass

N_MULTIPLE = 32  # rows of the e8m0 shuffle's inner tile; the (16,16) weight shuffle needs 16
K_MULTIPLE = 64  # two scale blocks: one (16,16) weight tile is 32 bytes = 64 elements wide
MAX_DIM = 1 << 20
DEFAULT_SEED = 42  # of the inputs of a shape that the task does not have
MAX_ELEMENTS = 1 << 30  # of A, B and C each: every byte offset stays below 2^31, the kernels' offset type

ACCEPTED_FORMS = '"64,7168,2048", "64x7168x2048", "(64, 7168, 2048)", "[64, 7168, 2048]", or a list or tuple of 3 ints'

_SEPARATED = re.compile(r"\s*(\d+)\s*([,xX×])\s*(\d+)\s*([,xX×])\s*(\d+)\s*", re.ASCII)


@dataclass(frozen=True, order=True)
class Shape:
    """`C[M, N] = A[M, K] @ B[N, K].T`; `k` counts logical elements, also where they are packed.

    The type itself only demands positive integers, so that layouts can be studied on any size.
    `parse_shape` adds what a GEMM needs.
    """

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise ValueError(f"shape: {name}={value!r} must be a positive integer")
            object.__setattr__(self, name, int(value))  # numpy integers would break JSON and hashing by text

    def __str__(self) -> str:
        """`64x7168x2048`: the form used in tables, figures and file names."""
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def label(self) -> str:
        return str(self)

    @property
    def as_tuple(self) -> tuple[int, int, int]:
        return (self.m, self.n, self.k)


@dataclass(frozen=True, order=True)
class TaskCase:
    """One case line of the task: a shape and the seed of its inputs."""

    shape: Shape
    seed: int

    def __str__(self) -> str:
        return f"m: {self.shape.m}; n: {self.shape.n}; k: {self.shape.k}; seed: {self.seed}"


def _case(m: int, n: int, k: int, seed: int) -> TaskCase:
    return TaskCase(Shape(m, n, k), seed)


# gpu-mode/reference-kernels, problems/amd_202602/mxfp4-mm/task.yml
TEST_SHAPES: tuple[TaskCase, ...] = (
    _case(8, 2112, 7168, 124),
    _case(16, 3072, 1536, 6635),
    _case(64, 3072, 1536, 45),
    _case(256, 2880, 512, 78),
)
BENCHMARK_SHAPES: tuple[TaskCase, ...] = (
    _case(4, 2880, 512, 4565),
    _case(16, 2112, 7168, 15),
    _case(32, 4096, 512, 457),
    _case(32, 2880, 512, 54),
    _case(64, 7168, 2048, 687),
    _case(256, 3072, 1536, 7856),
)
TASK_SHAPES: tuple[Shape, ...] = tuple(case.shape for case in BENCHMARK_SHAPES)


def task_seed(shape: Shape) -> int:
    """The task's own seed for `shape` (benchmark cases first); `DEFAULT_SEED` for a shape that is not in the task."""
    for case in BENCHMARK_SHAPES + TEST_SHAPES:
        if case.shape == shape:
            return case.seed
    return DEFAULT_SEED


def shape_errors(m: int, n: int, k: int) -> list[str]:
    """Why (m, n, k) cannot be a GEMM of this project, a clause per dimension; empty when it can."""
    errors = []
    for name, value in (("m", m), ("n", n), ("k", k)):
        if value < 1:
            errors.append(f"{name}={value} must be at least 1")
        elif value > MAX_DIM:
            errors.append(f"{name}={value} is larger than {MAX_DIM}")
    if errors:
        return errors
    if n % N_MULTIPLE:
        errors.append(f"n={n} must be a multiple of {N_MULTIPLE}")
    if k % K_MULTIPLE:
        errors.append(f"k={k} must be a multiple of {K_MULTIPLE}")
    for name, size in (("A (m*k)", m * k), ("B (n*k)", n * k), ("C (m*n)", m * n)):
        if size > MAX_ELEMENTS:
            errors.append(f"{name} has {size} elements, more than {MAX_ELEMENTS} (32-bit byte offsets)")
    return errors


def _numbers_of(value: object) -> tuple[int, int, int] | None:
    """The three integers in one of the accepted forms, or None where the form is not accepted."""
    if isinstance(value, str):
        text = value.strip()
        if len(text) >= 2 and text[0] + text[-1] in ("()", "[]"):
            text = text[1:-1]
        match = _SEPARATED.fullmatch(text)
        if match is None or match.group(2).lower() != match.group(4).lower():
            return None
        return int(match.group(1)), int(match.group(3)), int(match.group(5))
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        return None
    if any(isinstance(v, bool) or not isinstance(v, numbers.Integral) for v in value):
        return None
    return int(value[0]), int(value[1]), int(value[2])


def parse_shape(value: object) -> Shape:
    """Read a GEMM shape from what a person, papermill or a record may give.

    papermill's `-p shape 64,7168,2048` arrives as a string, a YAML parameter file gives a list, a record a
    tuple: all mean the same. A bare number, a float, or a wrong count is refused, never guessed at.

    Args:
        value: one of `ACCEPTED_FORMS`, or a `Shape`.

    Returns:
        A shape for which `shape_errors` is empty.

    Raises:
        ValueError: naming the value and the accepted forms, or every dimension that is out of range.
    """
    triple = value.as_tuple if isinstance(value, Shape) else _numbers_of(value)
    if triple is None:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        raise ValueError(f"shape={shown} is not a shape m,n,k; accepted forms: {ACCEPTED_FORMS}")
    errors = shape_errors(*triple)
    if errors:
        raise ValueError(f"shape={value!r}: {'; '.join(errors)}; accepted forms: {ACCEPTED_FORMS}")
    return Shape(*triple)
