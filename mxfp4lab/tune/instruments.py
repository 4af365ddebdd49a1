"""What a search works with: compiler, emulator, model. One place to swap them, and to keep their imports late."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mxfp4lab.records import Counts, Status
from mxfp4lab.shapes import Shape

IDENTICAL_WHERE_INEXACT = 0.999
"""Share of identical bf16 to ask for where fp32 sums round, so that their order shows; 1.0 where they are exact."""


@dataclass(frozen=True)
class Check:
    """What executing a whole plan showed.

    Attributes:
        status: ``ok``, ``incorrect``, ``out_of_bounds`` or ``runtime_error``.
        bf16_identical: share of C's elements whose bits equal the reference's; None where there is no C.
    """

    status: Status
    reason: str = ""
    bf16_identical: float | None = None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Instruments:
    """The rooms below, as functions.

    Attributes:
        compile_many: plans, worker count -> results in the order in which they are done.
        count: compiled plan -> counts of one workgroup of each launch.
        predict: counts -> a prediction with predicted_us, interval, terms, model_version, extrapolated.
        model_version: of what `predict` would answer now.
        verify: compiled plan, seed -> what executing it on the real shape showed.
        toolchain: versions that decide the machine code.
        knobs: environment variables that do, as they are now.
    """

    compile_many: Callable[[Sequence[Any], int | None], Iterator[Any]]
    count: Callable[[Any], Counts]
    predict: Callable[[Counts], Any]
    model_version: Callable[[], str]
    verify: Callable[[Any, int], Check]
    toolchain: Callable[[], Mapping[str, str]]
    knobs: Callable[[], Mapping[str, str]]


def real_instruments() -> Instruments:
    """The toolchain, the gfx950 emulator and the time model."""
    from mxfp4lab.emulate import count_plan
    from mxfp4lab.gfx950 import current_knobs, toolchain_versions
    from mxfp4lab.model import predict_counts, stored_model
    from mxfp4lab.workers import compile_many

    return Instruments(
        compile_many=lambda plans, workers: compile_many(plans, workers),
        count=count_plan,
        predict=predict_counts,
        model_version=lambda: stored_model().version,
        verify=Verifier(),
        toolchain=toolchain_versions,
        knobs=current_knobs,
    )


class Verifier:
    """Executes a plan's machine code on the task's inputs and compares C with the reference, bit by bit.

    Inputs and reference of the last shape and seed are kept: finalists share them.
    """

    def __init__(self) -> None:
        self._key: tuple[Shape, int] | None = None
        self._inputs: dict[str, Any] = {}
        self._reference: Any = None
        self._needed = 1.0

    def __call__(self, compiled: Any, seed: int) -> Check:
        from mxfp4lab.emulate import emulate_plan
        from mxfp4lab.gfx950 import EmulationError, OutOfBounds
        from mxfp4lab.task import check_output

        self._prepare(compiled.plan.shape, seed)
        inputs = {name: tensor.clone() for name, tensor in self._inputs.items()}
        try:
            emulation = emulate_plan(compiled, inputs)
        except OutOfBounds as error:
            return Check(Status.out_of_bounds, str(error))
        except EmulationError as error:
            return Check(Status.runtime_error, str(error))
        check = check_output(emulation.c, self._reference)
        share = check.bf16_identical_fraction
        good = check.passed and share >= self._needed
        reason = "" if good else f"{share:.4%} of bf16 identical, {self._needed:.1%} needed: {check.message}"
        detail = {
            "max_abs_err": check.max_abs_err,
            "needed_identical": self._needed,
            "lane_instructions": int(emulation.lane_instructions),
            "emulate_s": round(float(emulation.emulate_s), 3),
        }
        return Check(Status.ok if good else Status.incorrect, reason, share, detail)

    def _prepare(self, shape: Shape, seed: int) -> None:
        if self._key == (shape, seed):
            return
        from mxfp4lab.exactness import FP32_BITS, input_sum_bits
        from mxfp4lab.task import INPUT_NAMES, generate_input, reference_output

        data = generate_input(shape, seed)
        self._inputs = dict(zip(INPUT_NAMES, data, strict=True))
        self._reference = reference_output(data)
        self._needed = 1.0 if input_sum_bits(data) <= FP32_BITS else IDENTICAL_WHERE_INEXACT
        self._key = (shape, seed)
