"""Many shapes over many workers in one go: a budget of configs each, every trial a row, the best of each at the end.

On GPUs a trial is measured and finalists are compared on one GPU, alternately; on CPU workers it is compiled, counted
and predicted. Rows are written by this process alone, the moment a trial is done, and a re-run does what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950 import CompileError, current_knobs, toolchain_versions
from mxfp4lab.gpu.executors import COMPARE, COMPARE_TIMEOUT_S, MEASURE
from mxfp4lab.paths import REPO_ROOT, writing
from mxfp4lab.records import (
    Counts,
    Evidence,
    Status,
    Trial,
    TrialLog,
    environment,
    new_run_id,
    read_all_trials,
    write_run_json,
)
from mxfp4lab.shapes import Shape, parse_shape, task_seed
from mxfp4lab.tune.screens import Facts, kernel_facts
from mxfp4lab.tune.space import Candidate, enumerate_space, searchable_variants
from mxfp4lab.workers import compile_many
from mxfp4lab.workers.pools import Pool, Task
from mxfp4lab.workers.process import Outcome

PREDICT = "mxfp4lab.tune.sweep:predict_trial"
REGIME = "leaderboard"
_TRY_AGAIN = (Status.timeout, Status.worker_died, Status.skipped)


@dataclass
class ShapeResult:
    """What a sweep knows of one shape.

    Attributes:
        trials: all of its rows, this run's and earlier ones'.
        best: the winner (measured) or the pick (modelled); None where nothing is ok.
        comparison: of the finalists, as `measure.compare_plans` gives it; {} without a GPU.
    """

    shape: Shape
    trials: list[Trial] = field(default_factory=list)
    best: Trial | None = None
    comparison: dict[str, Any] = field(default_factory=dict)

    def ranked(self) -> list[Trial]:
        """ok trials, fastest first; the config's id decides between equals, so the order is certain."""
        ok = [trial for trial in self.trials if trial.status is Status.ok and _time_of(trial) is not None]
        return sorted(ok, key=lambda trial: (_time_of(trial), trial.config_id))


@dataclass
class SweepResult:
    """All shapes of one run."""

    run_id: str
    folder: Path
    device: str
    shapes: dict[Shape, ShapeResult]
    resumed: int = 0


def sweep(
    shapes: Iterable[Shape | str | Sequence[int]],
    pool: Pool,
    *,
    variants: Sequence[str] | None = None,
    budget: int = 40,
    finalists: int = 3,
    comparators: bool = False,
    out: Path | str | None = None,
    progress: Callable[[int, int, Trial], None] | None = None,
) -> SweepResult:
    """Search several shapes on a pool of workers.

    Args:
        shapes: anything `parse_shape` reads.
        pool: from `open_pool`; the caller closes it.
        variants: names; all that the target has without it.
        budget: configs per shape, most promising first.
        finalists: how many are compared at the end (GPU only).
        comparators: also time what is not ours beside the finalists.
        out: folder that holds ``runs/``; ``outputs`` of the repository without it.
        progress: called with (done, total, trial).

    Raises:
        ValueError: no shapes, a bad one, a bad budget, or an unknown variant.
    """
    wanted = [parse_shape(shape) for shape in shapes]
    if not wanted:
        raise ValueError("shapes is empty; give at least one")
    for name, value in (("budget", budget), ("finalists", finalists)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r} must be a whole number from 1")
    run = _Sweep(pool, Path(out) if out is not None else REPO_ROOT / "outputs", wanted)
    try:
        run.search(tuple(variants) if variants is not None else searchable_variants(run.arch), budget, progress)
        run.conclude(finalists, comparators)
    finally:
        run.log.close()
    return run.result


def predict_trial(variant: str, config: dict[str, Any], shape: str) -> dict[str, Any]:
    """A trial without a GPU: compile for gfx950, count by emulation, predict. Runs in a worker."""
    from mxfp4lab.config import GemmConfig
    from mxfp4lab.emulate import count_plan
    from mxfp4lab.gfx950 import CompileError, compile_plan
    from mxfp4lab.model import predict_counts
    from mxfp4lab.plan import build_plan

    try:
        counts = count_plan(compile_plan(build_plan(variant, GemmConfig.from_dict(config), shape)))
    except CompileError as error:
        return {"status": "compile_error", "reason": str(error)}
    said = predict_counts(counts)
    return {"status": "ok", "counts": counts.to_dict(), "predicted_us": float(said.predicted_us),
            "model_version": said.model_version, "regime": "harness"}  # fmt: skip


class _Sweep:
    """State of one run."""

    def __init__(self, pool: Pool, out: Path, shapes: list[Shape]) -> None:
        self.pool, self.out = pool, out
        self.arch = pool.arch or "gfx950"
        self.knobs, self.toolchain = dict(current_knobs()), dict(toolchain_versions())
        run_id = new_run_id("sweep")
        self.result = SweepResult(run_id, out / "runs" / run_id, pool.device, {s: ShapeResult(s) for s in shapes})
        self.log = TrialLog(self.result.folder)
        self.refused: list[tuple[Candidate, CompileError]] = []
        parameters = {"shapes": [str(shape) for shape in shapes]}
        write_run_json(self.result.folder, {
            "run_id": run_id, "kind": "sweep", "started_at": _now(), "parameters": parameters, "arch": self.arch,
            "toolchain": self.toolchain, "environment": environment(pool.device, self.knobs)})  # fmt: skip

    def search(
        self, variants: tuple[str, ...], budget: int, progress: Callable[[int, int, Trial], None] | None
    ) -> None:
        """All trials of all shapes; those of one shape stay together, because a worker keeps the shape's inputs."""
        wanted: list[Candidate] = []
        for shape, state in self.result.shapes.items():
            earlier, _ = read_all_trials(self.out, shape)
            for candidate in enumerate_space(shape, variants, self.arch).candidates[:budget]:
                known = self._known(candidate, earlier.values())
                if known is None:
                    wanted.append(candidate)
                else:
                    state.trials.append(known)
                    self.result.resumed += 1
        began: list[tuple[Candidate, Facts | None]] = []
        settled = 0
        for done in self.pool.run_all(self._tasks(wanted, began)):
            candidate, facts = began[done.index]
            trial = self._record(candidate, done.outcome, done.worker, 1, facts)
            settled += 1
            if progress is not None:
                progress(settled, len(wanted), trial)
        for candidate, error in self.refused:
            status = "screened" if error.kind == "lds" else "compile_error"
            reason = f"lds: {error}" if error.kind == "lds" else str(error)
            trial = self._record(candidate, Outcome("ok", {"status": status, "reason": reason}), "main")
            settled += 1
            if progress is not None:
                progress(settled, len(wanted), trial)

    def conclude(self, finalists: int, comparators: bool) -> None:
        """Compare each shape's finalists where there is a GPU, and name the best."""
        chosen = {shape: state.ranked()[:finalists] for shape, state in self.result.shapes.items()}
        for shape, best in chosen.items():
            if best:
                self.result.shapes[shape].best = best[0]
        if self.pool.device:
            shapes = [shape for shape, best in chosen.items() if best]
            tasks = [
                Task(COMPARE, {
                    "plans": [{"variant": trial.variant, "config": dict(trial.config)} for trial in chosen[shape]],
                    "shape": str(shape), "arch": self.arch, "seed": task_seed(shape) or 0, "comparators": comparators,
                }, COMPARE_TIMEOUT_S)
                for shape in shapes
            ]  # fmt: skip
            for done in self.pool.run_all(tasks):
                shape = shapes[done.index]
                state = self.result.shapes[shape]
                if done.outcome.status == "ok":
                    state.comparison = done.outcome.value
                    state.best = chosen[shape][state.comparison["verdict"]["order"][0]]
                else:
                    state.comparison = {"failed": f"{done.outcome.status}: {done.outcome.reason}"}
        summary = {str(shape): _summary(state) for shape, state in self.result.shapes.items()}
        text = json.dumps({"run_id": self.result.run_id, "device": self.pool.device, "shapes": summary}, indent=1)
        path = self.result.folder / "summary.json"
        with writing(path):
            path.write_text(text + "\n", encoding="utf-8")

    def _tasks(self, wanted: list[Candidate], began: list[tuple[Candidate, Facts | None]]) -> Iterator[Task]:
        """Tasks in the order in which they can begin, noted in `began`; what does not compile in `refused`.

        GPUs measure while the cores compile what comes next; the compile cache joins the two.
        """
        if not self.pool.device:
            for candidate in wanted:
                began.append((candidate, None))
                yield self._task(candidate)
            return
        for result in compile_many([candidate.plan for candidate in wanted]):
            candidate = wanted[result.index]
            if result.error is not None:
                if result.error.kind == "machine":  # a full disk is no property of a config
                    raise result.error
                self.refused.append((candidate, result.error))
            else:
                began.append((candidate, kernel_facts(result.compiled.kernels)))
                yield self._task(candidate)

    def _task(self, candidate: Candidate) -> Task:
        arguments = {"variant": candidate.variant, "config": candidate.config.to_dict(),
                     "shape": str(candidate.plan.shape)}  # fmt: skip
        if not self.pool.device:
            return Task(PREDICT, arguments)
        seed = task_seed(candidate.plan.shape) or 0
        return Task(MEASURE, {**arguments, "arch": self.arch, "seed": seed})

    def _stub(self, candidate: Candidate) -> dict[str, Any]:
        gpu = bool(self.pool.device)
        return {
            "shape": candidate.plan.shape, "variant": candidate.variant, "config": candidate.config.to_dict(),
            "config_id": candidate.config.config_id, "kernel_hash": candidate.kernel_hash, "arch": self.arch,
            "knobs": self.knobs, "toolchain": self.toolchain, "device": self.pool.device,
            "evidence": Evidence.measured if gpu else Evidence.modelled,
            "seed": (task_seed(candidate.plan.shape) or 0) if gpu else None,
            "generator_device": "cpu" if gpu else "",
        }  # fmt: skip

    def _known(self, candidate: Candidate, earlier: Iterable[Trial]) -> Trial | None:
        """An earlier row that says what this trial would say."""
        stub = self._stub(candidate)
        for trial in earlier:
            if trial.status not in _TRY_AGAIN and all(getattr(trial, name) == value for name, value in stub.items()):
                settled = trial.status is not Status.ok or _time_of(trial) is not None
                if settled and trial.regime in ("", REGIME, "harness"):
                    return trial
        return None

    def _record(
        self, candidate: Candidate, outcome: Outcome, worker: str, attempt: int = 1, facts: Facts | None = None
    ) -> Trial:
        fields = dict(outcome.value) if outcome.status == "ok" else {
            "status": outcome.status, "reason": outcome.reason}  # fmt: skip
        fields["status"] = Status(fields["status"])
        if "counts" in fields:
            fields["counts"] = Counts.from_dict(fields["counts"])
        if attempt > 1:
            fields["detail"] = {**fields.get("detail", {}), "attempt": attempt}
        if facts:
            fields["resources"] = facts
        stub = self._stub(candidate)
        trial = Trial(run_id=self.result.run_id, started_at=_now(), worker=worker, **stub, **fields)
        self.log.append(trial)
        self.result.shapes[candidate.plan.shape].trials.append(trial)
        return trial


def _time_of(trial: Trial) -> float | None:
    return trial.latency_us if trial.evidence is Evidence.measured else trial.predicted_us


def _summary(state: ShapeResult) -> dict[str, Any]:
    best = state.best
    return {
        "trials": len(state.trials), "ok": len(state.ranked()),
        "best": None if best is None else {
            "variant": best.variant, "config": dict(best.config), "config_id": best.config_id,
            "evidence": str(best.evidence), "us": _time_of(best), "kernel_hash": best.kernel_hash},
        "comparison": state.comparison,
    }  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
