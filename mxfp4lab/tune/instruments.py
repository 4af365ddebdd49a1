"""What a search does to one plan: compile and screen it, count it, execute it whole, have a GPU measure it.

A `Look` is what compiling a plan and executing one workgroup of each launch showed; it is taken in this process's
compile workers, or in the workers of a pool, by the same function. Imports are late: torch and triton load with the
first plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from mxfp4lab.hardware import LDS_BYTES
from mxfp4lab.records import Counts, Status
from mxfp4lab.shapes import Shape

DEFAULT_MAX_SPILLS = 16
"""Spilled VGPRs: in published MI355X times 2-4 cost about 1.1x, 8-16 about 1.3x, more 1.6x and up."""

SCREENS: dict[str, str] = {
    "hazard": "an instruction reads a result too early: its value cannot be trusted",
    "scaled mfma": "Triton fell back to bf16 matrix instructions",
    "lds": f"more LDS than the {LDS_BYTES} bytes of a workgroup",
    "spills": "too many registers spilled to memory",
}

Facts = Mapping[str, Mapping[str, Any]]
"""What screens, tables and records need of compiled kernels, as JSON values: kernel name -> facts."""


@dataclass(frozen=True)
class Look:
    """What became of one plan: not ``ok`` with a reason, or its facts and, on gfx950, its counts."""

    index: int
    status: Status = Status.ok
    reason: str = ""
    facts: Facts = field(default_factory=dict)
    counts: Counts | None = None


# -- compile, screen, count -------------------------------------------------------------------------------------------


def look_at_all(plans: Sequence[Any], max_spills: int | None, workers: int | None, pool: Any) -> Iterator[Look]:
    """A look at each plan, in the order in which they are done.

    Args:
        max_spills: see `screen`.
        workers: local processes that compile, one per core without it; what they compile is counted in this process.
        pool: of CPUs anywhere, which compile and count in place of this machine; None, or one of GPUs, does not.
    """
    if pool is not None and not pool.device:
        yield from _look_in_pool(pool, plans, max_spills)
        return
    from mxfp4lab.workers import compile_many

    # Closing the generator ends its worker processes, also on Ctrl-C or when time is up.
    with closing(compile_many(plans, workers)) as results:
        for done in results:
            yield Look(done.index, *judged(done.compiled, done.error, max_spills))


def _look_in_pool(pool: Any, plans: Sequence[Any], max_spills: int | None) -> Iterator[Look]:
    """Compiled and counted by the pool's workers."""
    from mxfp4lab.workers import Task

    tasks = [Task("mxfp4lab.tune.instruments:look_at", {**plan_request(plan), "max_spills": max_spills})
             for plan in plans]  # fmt: skip
    with closing(pool.run_all(tasks)) as results:
        for done in results:
            if done.outcome.status != "ok":
                yield Look(done.index, Status(done.outcome.status), done.outcome.reason)
                continue
            said = done.outcome.value
            counts = None if said["counts"] is None else Counts.from_dict(said["counts"])
            yield Look(done.index, Status(said["status"]), said["reason"], said["facts"], counts)


def plan_request(plan: Any) -> dict[str, Any]:
    """A plan as a worker is told of it."""
    return {"variant": plan.variant, "config": plan.config.to_dict(), "shape": str(plan.shape), "arch": plan.arch}


def look_at(
    variant: str, config: dict[str, Any], shape: str, arch: str, max_spills: int | None = None
) -> dict[str, Any]:
    """A look in a worker, as JSON values."""
    from mxfp4lab.config import GemmConfig
    from mxfp4lab.gfx950 import CompileError, compile_plan
    from mxfp4lab.plan import build_plan

    plan = build_plan(variant, GemmConfig.from_dict(config), shape, arch)
    try:
        compiled, error = compile_plan(plan), None
    except CompileError as found:
        compiled, error = None, found
    status, reason, facts, counts = judged(compiled, error, max_spills)
    return {"status": str(status), "reason": reason, "facts": facts, "counts": counts and counts.to_dict()}


def judged(compiled: Any, error: Any, max_spills: int | None) -> tuple[Status, str, Facts, Counts | None]:
    """Status, reason, facts and counts of a compiled plan, or of one that did not compile."""
    if error is not None:
        if error.kind == "machine":  # no row: a full disk is no property of a config
            raise error
        if error.kind == "lds":
            return Status.screened, f"lds: {error}", {}, None
        kinds = {"timeout": Status.timeout, "crash": Status.worker_died}
        return kinds.get(error.kind, Status.compile_error), str(error), {}, None
    facts, arch = kernel_facts(compiled.kernels), compiled.plan.arch
    removed = screen(facts, arch, max_spills)
    if removed or arch != "gfx950":
        return Status.screened if removed else Status.ok, removed, facts, None
    from mxfp4lab.emulate import count_plan
    from mxfp4lab.gfx950 import OutOfBounds

    try:
        return Status.ok, "", facts, count_plan(compiled)
    except (RuntimeError, ValueError) as failed:  # out of bounds, an unknown instruction, code it cannot read
        status = Status.out_of_bounds if isinstance(failed, OutOfBounds) else Status.runtime_error
        return status, f"counting: {failed}", facts, None


def kernel_facts(kernels: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Resources, matrix instructions and hazards of compiled kernels."""
    facts = {}
    for kernel in kernels:
        scaled = sum(count for name, count in kernel.mfma.items() if name.startswith("v_mfma_scale_"))
        facts[kernel.name] = {
            **(asdict(kernel.resources) if kernel.resources is not None else {}),
            "num_warps": kernel.num_warps,
            "mfma_scaled": scaled,
            "mfma_other": sum(kernel.mfma.values()) - scaled,
            "hazards": len(kernel.hazards),
        }
    return facts


def screen(facts: Facts, arch: str, max_spills: int | None) -> str:
    """``screen: reason`` of the first screen that removes these kernels; "" where none does.

    It looks at recorded facts only, so that a re-run with other thresholds needs no compiler.

    Args:
        facts: as `kernel_facts` gives them, or as a record holds them.
        arch: scaled MFMA and LDS are looked for on gfx950 only.
        max_spills: spilled registers allowed per kernel; None for any number.
    """
    for name, found in facts.items():
        if found.get("hazards"):
            return f"hazard: {name}: {found['hazards']} read-too-early hazard(s) in the machine code"
    if arch == "gfx950":
        other = [f"{name} has {found['mfma_other']} unscaled MFMA" for name, found in facts.items()
                 if found.get("mfma_other")]  # fmt: skip
        if other or not any(found.get("mfma_scaled") for found in facts.values()):
            return f"scaled mfma: {', '.join(other) or 'no scaled MFMA in any kernel'}"
    for name, found in facts.items():
        if arch == "gfx950" and found.get("lds_bytes", 0) > LDS_BYTES:
            return f"lds: {name}: {found['lds_bytes']} bytes of LDS, limit {LDS_BYTES}"
        if max_spills is not None and found.get("spilled_vgprs", 0) > max_spills:
            return f"spills: {name}: {found['spilled_vgprs']} spilled registers, allowed {max_spills}"
    return ""


def main_kernel(facts: Facts) -> Mapping[str, Any]:
    """Facts of the kernel with most matrix instructions: the one whose resources a table shows.

    Where matrix instructions are not counted (CUDA), the GEMM is told by its name.
    """

    def order(name: str) -> tuple[int, bool]:
        return facts[name].get("mfma_scaled", 0) + facts[name].get("mfma_other", 0), "gemm" in name

    return facts[max(facts, key=order)] if facts else {}


# -- on GPUs ----------------------------------------------------------------------------------------------------------


def measure_task(plan: Any, seed: int) -> Any:
    """A worker checks a plan's C and times it; its answer are fields of a `Trial`."""
    from mxfp4lab.gpu import MEASURE
    from mxfp4lab.workers import Task

    return Task(MEASURE, {**plan_request(plan), "seed": seed})


def compare_task(plans: Sequence[Any], seed: int) -> Any:
    """A worker times plans of one shape alternately; its answer is that of `gpu.measure.compare_plans`."""
    from mxfp4lab.gpu import COMPARE, COMPARE_TIMEOUT_S
    from mxfp4lab.workers import Task

    asked = [plan_request(plan) for plan in plans]
    given = {"plans": [{"variant": one["variant"], "config": one["config"]} for one in asked],
             "shape": asked[0]["shape"], "arch": asked[0]["arch"], "seed": seed}  # fmt: skip
    return Task(COMPARE, given, COMPARE_TIMEOUT_S)


# -- execute ----------------------------------------------------------------------------------------------------------


def verify(plan: Any, seed: int, races: bool) -> dict[str, Any]:
    """Execute a plan's machine code on the task's inputs and compare C with the reference, bit by bit.

    Args:
        races: what two waves do to one byte unordered is a failure too.

    Returns:
        fields of a `Trial`; status is ``ok``, ``incorrect``, ``out_of_bounds``, ``runtime_error`` or ``compile_error``.
    """
    from mxfp4lab.emulate import emulate_plan
    from mxfp4lab.gfx950 import CompileError, EmulationError, OutOfBounds, compile_plan
    from mxfp4lab.task import check_output

    inputs, reference, needed = _inputs_and_reference(plan.shape, seed)
    try:
        emulation = emulate_plan(compile_plan(plan), inputs, races=races)
    except CompileError as error:
        if error.kind == "machine":
            raise
        return {"status": Status.compile_error, "reason": str(error)}
    except EmulationError as error:
        status = Status.out_of_bounds if isinstance(error, OutOfBounds) else Status.runtime_error
        return {"status": status, "reason": str(error)}
    check = check_output(emulation.c, reference)
    share = check.bf16_identical_fraction
    reason = f"race: {emulation.findings[0]}" if emulation.findings else ""
    if not check.passed or share < needed:
        reason = f"{share:.4%} of bf16 identical, {needed:.1%} needed: {check.message}"
    return {
        "status": Status.incorrect if reason else Status.ok,
        "reason": reason,
        "verified": "emulated",
        "bf16_identical": share,
        "detail": {
            "max_abs_err": check.max_abs_err,
            "needed_identical": needed,
            "races_looked_for": races,
            "lane_instructions": int(emulation.lane_instructions),
            "emulate_s": round(float(emulation.emulate_s), 3),
        },
    }


@lru_cache(maxsize=1)  # finalists of a shape share them
def _inputs_and_reference(shape: Shape, seed: int) -> tuple[dict[str, Any], Any, float]:
    """Inputs by name, the reference's C, and the share of identical bf16 to ask for."""
    from mxfp4lab.task import input_dict, needed_identical, reference_output

    inputs = input_dict(shape, seed)
    data = tuple(inputs.values())
    return inputs, reference_output(data), needed_identical(data)
