"""Every check that objects to a plan: the compiler, static screens, the emulator's findings, the results.

A verdict holds the detectors in the order of `DETECTORS`; the first is what a person would be told first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from mxfp4lab.emulate import emulate_plan
from mxfp4lab.gfx950 import (
    BarrierMismatch,
    CompileError,
    EmulationError,
    LdsOutOfRange,
    OutOfBounds,
    compile_plan,
)
from mxfp4lab.gfx950.machine import runs
from mxfp4lab.gfx950.machine.errors import DataRace, LdsRace, UnwaitedData
from mxfp4lab.task import check_output
from mxfp4lab.tune import DEFAULT_MAX_SPILLS, kernel_facts, screen
from tests.mutations.cases import CASES, inputs_of
from tests.mutations.fault import Mutation

DETECTORS: dict[str, str] = {
    "compile": "the compiler refuses it",
    "hazard": "static: a result is read too early",
    "screen": "static: no scaled MFMA, too much LDS, too many spills",
    "out_of_bounds": "emulator: an access outside every buffer",
    "lds": "emulator: an access outside the workgroup's LDS",
    "barrier": "emulator: a barrier that some waves never reach",
    "race": "emulator: two waves touch a byte of LDS with no barrier between",
    "data_race": "emulator: a byte of memory that another wave stored, with nothing that orders the two",
    "unwaited": "emulator: a register is used before its load was waited for",
    "stopped": "emulator: it refuses to go on for another reason",
    "check": "the task's own tolerance refuses C",
    "wrong_bits": "C passes the task's tolerance, and is not the reference's bit by bit",
    "order": "workgroups run one after another give another C than together",
    "second_call": "the first call is right, the second on the same workspaces is not",
    "lint": "export's lint refuses the submission file",
}
_KINDS = ((OutOfBounds, "out_of_bounds"), (LdsOutOfRange, "lds"), (BarrierMismatch, "barrier"), (LdsRace, "race"),
          (DataRace, "data_race"), (UnwaitedData, "unwaited"))  # fmt: skip


@dataclass
class Verdict:
    """What objected, and each detector's first sentence."""

    said: dict[str, str] = field(default_factory=dict)

    def object(self, detector: str, message: str) -> None:
        """Note an objection."""
        self.said.setdefault(detector, message)

    @property
    def detectors(self) -> tuple[str, ...]:
        """All that objected, in the order of `DETECTORS`."""
        return tuple(name for name in DETECTORS if name in self.said)

    @property
    def first(self) -> str:
        """The first of them, or ""."""
        return self.detectors[0] if self.said else ""


def examine(mutation: Mutation) -> Verdict:
    """The verdict on a mutant."""
    if mutation.judge is not None:
        return mutation.judge()
    case = CASES[mutation.case]
    data, reference = inputs_of(case.shape, case.inputs)
    return examine_plan(mutation.apply(case.plan()), data, reference, case.calls, mutation.machine_code, **case.modes)


def examine_case(name: str) -> Verdict:
    """The verdict on a case without a fault: nobody may object."""
    case = CASES[name]
    data, reference = inputs_of(case.shape, case.inputs)
    return examine_plan(case.plan(), data, reference, case.calls, **case.modes)


def examine_plan(
    plan: Any,
    data: dict,
    reference: torch.Tensor,
    calls: int = 1,
    change: Callable[[Any], Any] | None = None,
    **modes: Any,
) -> Verdict:
    """Compile, screen, emulate with every check on, and `modes` of the emulator, compare."""
    verdict = Verdict()
    try:
        compiled = compile_plan(plan)
    except CompileError as error:
        verdict.object("compile", str(error))
        return verdict
    if change is not None:
        compiled = change(compiled)
    for kernel in compiled.kernels:
        if kernel.hazards:
            verdict.object("hazard", kernel.hazards[0].message)
    refused = screen(kernel_facts(compiled.kernels), plan.arch, DEFAULT_MAX_SPILLS)
    if refused and not refused.startswith("hazard"):
        verdict.object("screen", refused.partition(": ")[2])
    if not emulate(verdict, compiled, data, reference, 1, **modes) or verdict.said:
        return verdict
    if any(buffer.fill is not None for buffer in plan.buffers):  # counters: the order of workgroups may matter
        later = Verdict()
        with one_workgroup_at_a_time():
            emulate(later, compiled, data, reference, 1, **modes)
        if later.said:
            verdict.object("order", next(iter(later.said.values())))
    if calls > 1 and not verdict.said:
        later = Verdict()
        emulate(later, compiled, data, reference, calls, **modes)
        if later.said:
            verdict.object("second_call", next(iter(later.said.values())))
    return verdict


@contextlib.contextmanager
def one_workgroup_at_a_time() -> Iterator[None]:
    """The emulator runs a workgroup to its end before the next one starts."""
    before, runs.WAVES_PER_CHUNK = runs.WAVES_PER_CHUNK, 1
    try:
        yield
    finally:
        runs.WAVES_PER_CHUNK = before


def emulate(verdict: Verdict, compiled: Any, data: dict, reference: torch.Tensor, calls: int, **modes: Any) -> bool:
    """Run the plan and note what the emulator and the comparison say; False where it did not end."""
    try:
        checks = {"on_out_of_bounds": "record", "races": True}
        result = emulate_plan(compiled, data, calls=calls, **checks, **modes)
    except EmulationError as error:
        verdict.object(kind_of(error), str(error))
        return False
    for finding in result.findings:
        verdict.object(kind_of(finding), str(finding))
    found = check_output(result.c, reference)
    if not found.passed:
        verdict.object("check", found.message)
    elif not same_values(result.c, reference):
        verdict.object("wrong_bits", found.message)
    return True


def kind_of(error: Exception) -> str:
    """The detector that an error of the emulator stands for."""
    return next((name for kind, name in _KINDS if isinstance(error, kind)), "stopped")


def same_values(c: torch.Tensor, reference: torch.Tensor) -> bool:
    """Bit by bit, zeros of either sign alike: an exact sum of nothing has no sign."""
    zero = (c == 0) & (reference == 0)
    return bool(((c.view(torch.int16) == reference.view(torch.int16)) | zero).all())
