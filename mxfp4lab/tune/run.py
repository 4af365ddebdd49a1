"""One run of a search, step by step: compile, screen, count and predict, look around the best, verify, pick.

Every step is a row on disk before the next begins, and the rows are the only state: what an earlier run has recorded
is taken from there, whatever stopped that run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mxfp4lab.config import GemmConfig
from mxfp4lab.records import (
    Evidence,
    Status,
    Trial,
    TrialLog,
    environment,
    new_run_id,
    read_all_trials,
    write_run_json,
)
from mxfp4lab.shapes import Shape
from mxfp4lab.tune.budget import Budget
from mxfp4lab.tune.conclude import MODEL_REGIME, compare_finalists, verify_best
from mxfp4lab.tune.executors import Executor
from mxfp4lab.tune.explore import explore, refine
from mxfp4lab.tune.funnel import Funnel
from mxfp4lab.tune.instruments import Instruments
from mxfp4lab.tune.result import Entry, TuneResult
from mxfp4lab.tune.resume import Bench, Memory
from mxfp4lab.tune.screens import kernel_facts, screen
from mxfp4lab.tune.space import Candidate, Refused, Space, enumerate_space


class Search:
    """State of one run; `tune` is the way in."""

    def __init__(
        self, shape: Shape, variants: tuple[str, ...], budget: Budget, executor: Executor | None, workers: int | None,
        seed: int, out: Path, max_spills: int | None, verify: int, progress: Callable[[str, int, int, str], None],
        watch: Callable[[TuneResult], None], instruments: Instruments,
    ) -> None:  # fmt: skip
        self.shape, self.variants, self.budget, self.executor = shape, variants, budget, executor
        self.workers, self.out, self.max_spills, self.verify = workers, out, max_spills, verify
        self.progress, self.watch, self.use = progress, watch, instruments
        self.arch = executor.arch if executor else "gfx950"
        self.bench = Bench(
            arch=self.arch, knobs=dict(instruments.knobs()), toolchain=dict(instruments.toolchain()), seed=seed,
            generator_device="cpu", device=executor.device if executor else "",
        )  # fmt: skip
        self.started = time.monotonic()
        run_id = new_run_id(f"tune-{shape}")
        self.result = TuneResult(
            shape=shape, variants=variants, backend="gpu" if executor else "emulator", arch=self.arch, run_id=run_id,
            folder=out / "runs" / run_id, funnel=Funnel(arch=self.arch, device=self.bench.device),
        )  # fmt: skip
        self.funnel = self.result.funnel
        self.log: TrialLog | None = None
        self.memory = Memory(self.bench)
        self.seen: set[str] = set()

    # -- the run ----------------------------------------------------------------------------------------------------

    def run(self, extra: list[tuple[str, GemmConfig]], recorded: list[Path]) -> TuneResult:
        earlier, warnings = read_all_trials(self.out, self.shape, recorded)
        self.result.warnings += warnings
        self.memory = Memory(self.bench, earlier.values())
        self.log = TrialLog(self.result.folder)
        write_run_json(self.result.folder, self._run_description())
        try:
            space = enumerate_space(self.shape, self.variants, self.arch, extra)
            self.announce(space)
            explore(self, list(space.candidates))
            refine(self)
            verify_best(self) if self.executor is None else compare_finalists(self)
        except KeyboardInterrupt:
            self.result.interrupted = True
            self._finish()
            raise
        self._finish()
        return self.result

    def close(self) -> None:
        if self.log is not None:
            self.log.close()
        if self.executor is not None:
            self.executor.close()

    def _finish(self) -> None:
        self.result.seconds = time.monotonic() - self.started
        self.watch(self.result)

    def _run_description(self) -> dict[str, Any]:
        return {
            "run_id": self.result.run_id,
            "kind": "tune",
            "started_at": _now(),
            "parameters": {
                "shape": str(self.shape),
                "variants": list(self.variants),
                "budget": str(self.budget),
                "backend": self.result.backend,
                "workers": self.workers,
                "seed": self.bench.seed,
                "max_spills": self.max_spills,
                "verify": self.verify,
            },
            "arch": self.arch,
            "toolchain": dict(self.bench.toolchain),
            "environment": environment(self.bench.device, self.bench.knobs),
        }

    # -- enumerate, compile, screen, rank ---------------------------------------------------------------------------

    def announce(self, space: Space) -> None:
        """Count a space into the funnel and record what it refused."""
        self.funnel.reach("enumerated", space.enumerated)
        self.funnel.reach("valid", space.enumerated - len(space.refused))
        self.funnel.reach("distinct", len(space.candidates))
        self.funnel.known += sum(bool(candidate.origins) for candidate in space.candidates)
        for refused in space.refused:
            self._refuse(refused)

    def take(self, chosen: Sequence[Candidate], stage: str, before: int = 0, total: int | None = None) -> None:
        """Take candidates through compile, screens and ranking; what earlier runs know is not done again.

        Args:
            before, total: of the stage's progress, where it takes several goes.
        """
        self.seen.update(candidate.kernel_hash for candidate in chosen)
        fresh: list[Entry] = []
        for candidate in chosen:
            entry = Entry(candidate)
            if self._settle_from_memory(entry):
                self._count_in(entry)
            else:
                fresh.append(entry)
        done = before + len(chosen) - len(fresh)
        self._compile(fresh, stage, done, before + len(chosen) if total is None else total)

    def _compile(self, entries: list[Entry], stage: str, done: int, total: int) -> None:
        if not entries or self.out_of_time():
            return
        results = self.use.compile_many([entry.candidate.plan for entry in entries], self.workers)
        # Closing the generator ends its worker processes, also on Ctrl-C or when time is up.
        with closing(results):
            for outcome in results:
                entry = entries[outcome.index]
                self._after_compile(entry, outcome)
                self._count_in(entry)
                done += 1
                self.progress(stage, done, total, self._so_far())
                if self.out_of_time():
                    return

    def _after_compile(self, entry: Entry, outcome: Any) -> None:
        """Screen, count, predict: one row, whatever happens."""
        if outcome.error is not None:
            kind = getattr(outcome.error, "kind", "")
            if kind == "machine":  # no row: a full disk is no property of a config
                raise outcome.error
            if kind == "lds":
                entry.status, entry.reason = Status.screened, f"lds: {outcome.error}"
            elif kind == "timeout":
                entry.status, entry.reason = Status.timeout, str(outcome.error)
            elif kind == "crash":
                entry.status, entry.reason = Status.worker_died, str(outcome.error)
            else:
                entry.status, entry.reason = Status.compile_error, str(outcome.error)
            self.record(entry)
            return
        entry.facts = kernel_facts(outcome.compiled.kernels)
        if self._screened(entry):
            self.record(entry, resources=entry.facts)
            return
        if self.arch == "gfx950":
            try:
                entry.counts = self.use.count(outcome.compiled)
            except (RuntimeError, ValueError) as error:  # out of bounds, an unknown instruction, code it cannot read
                entry.status, entry.reason = _emulation_status(error), f"counting: {error}"
                self.record(entry, resources=entry.facts)
                return
            self._predict(entry)
        if self.executor is not None:
            self._measure(entry, outcome.compiled)

    def _screened(self, entry: Entry) -> bool:
        verdict = screen(entry.facts, self.arch, self.max_spills)
        if verdict is not None:
            entry.status, entry.reason = Status.screened, f"{verdict.screen}: {verdict.reason}"
        return verdict is not None

    def _predict(self, entry: Entry) -> None:
        prediction = self.use.predict(entry.counts)
        entry.predicted_us = float(prediction.predicted_us)
        entry.interval = (float(prediction.interval[0]), float(prediction.interval[1]))
        entry.model_version = prediction.model_version
        entry.detail = {
            "interval": list(entry.interval),
            "terms": {name: float(value) for name, value in prediction.terms.items()},
            "extrapolated": bool(prediction.extrapolated),
        }
        self.record(
            entry, resources=entry.facts, counts=entry.counts, predicted_us=entry.predicted_us,
            model_version=entry.model_version, regime=MODEL_REGIME, detail=entry.detail,
        )  # fmt: skip

    def _settle_from_memory(self, entry: Entry) -> bool:
        """Fill an entry from earlier rows; False if something is missing that needs the compiler."""
        known = self.memory.of(entry.candidate)
        before = known.compiled
        if before is None and self.executor is not None and self.arch != "gfx950":
            # Where nothing is counted or predicted, the measured row is the only one of a config that compiled.
            before = known.measured.get(self.executor.regime)
        if before is None:
            return False
        if before.status is Status.compile_error or (before.status is not Status.ok and not before.resources):
            entry.status, entry.reason = before.status, before.reason
            self.reuse(entry, before)
            return True
        entry.facts = before.resources or {}
        if self._screened(entry):
            # Facts that passed before and fail under stricter thresholds are a row of their own, once.
            if known.screened is not None:
                self.reuse(entry, known.screened)
            else:
                self.record(entry, resources=entry.facts)
            return True
        if before.status not in (Status.ok, Status.screened):
            entry.status, entry.reason = before.status, before.reason
            self.reuse(entry, before)
            return True
        if self.arch == "gfx950":
            if before.counts is None:
                return False
            entry.counts = before.counts
            predicted = known.predicted.get(self.use.model_version())
            if predicted is None:
                self._predict(entry)
            else:
                entry.predicted_us, entry.model_version = predicted.predicted_us, predicted.model_version
                entry.detail = dict(predicted.detail)
                entry.interval = tuple(predicted.detail.get("interval") or ()) or None
                self.reuse(entry, predicted)
        if self.executor is not None:
            measured = known.measured.get(self.executor.regime)
            if measured is None:
                return False
            self._take_measured(entry, measured)
            self.reuse(entry, measured)
        return True

    # -- measure ------------------------------------------------------------------------------------------------------

    def _measure(self, entry: Entry, compiled: Any) -> None:
        assert self.executor is not None
        fields = {"regime": self.executor.regime, **self.executor.measure(entry.candidate.plan, compiled)}
        if self.arch != "gfx950":
            fields["resources"] = entry.facts
        entry.status, entry.reason = Status(fields.pop("status")), fields.pop("reason", "")
        self._take_measured(entry, self.record_measured(entry, **fields))

    def record_measured(self, entry: Entry, **fields: Any) -> Trial:
        return self.record(
            entry, evidence=Evidence.measured, device=self.bench.device, seed=self.bench.seed,
            generator_device=self.bench.generator_device, **fields,
        )  # fmt: skip

    @staticmethod
    def _take_measured(entry: Entry, trial: Trial) -> None:
        entry.status, entry.reason = trial.status, trial.reason
        entry.latency_us = trial.latency_us
        entry.verified, entry.bf16_identical = trial.verified, trial.bf16_identical

    # -- rows -------------------------------------------------------------------------------------------------------

    def record(self, entry: Entry, **fields: Any) -> Trial:
        candidate = entry.candidate
        detail = dict(fields.pop("detail", {}))
        if candidate.origins:
            detail["origins"] = list(candidate.origins)
        trial = self._trial(
            candidate.variant, candidate.config, kernel_hash=candidate.kernel_hash, status=entry.status,
            reason=entry.reason, detail=detail, **fields,
        )  # fmt: skip
        entry.trials.append(trial)
        return trial

    def _refuse(self, refused: Refused) -> None:
        self.funnel.remove("invalid", refused.reason)
        known = self.memory.of_refused(refused.variant, refused.config.to_dict()).compiled
        if known is not None:
            self.funnel.reused += 1
        else:
            known = self._trial(refused.variant, refused.config, status=Status.invalid, reason=refused.reason)
        self.result.refused.append(known)

    def _trial(self, variant: str, config: GemmConfig, **fields: Any) -> Trial:
        fields = {"evidence": Evidence.modelled, **fields}
        trial = Trial(
            run_id=self.result.run_id, shape=self.shape, variant=variant, config=config.to_dict(),
            config_id=config.config_id, arch=self.arch, knobs=self.bench.knobs, toolchain=self.bench.toolchain,
            started_at=_now(), worker="main", **fields,
        )  # fmt: skip
        assert self.log is not None
        self.log.append(trial)
        self.memory.add(trial)
        return trial

    def reuse(self, entry: Entry, trial: Trial) -> None:
        entry.trials.append(trial)
        self.funnel.reused += 1

    def _count_in(self, entry: Entry) -> None:
        """File an entry that is through compile, screens and ranking."""
        self.result.entries.append(entry)
        self.funnel.reach("tried")
        if entry.status in (Status.compile_error, Status.timeout, Status.worker_died) and not entry.facts:
            self.funnel.remove(str(entry.status).replace("_", " "), entry.reason)
        elif entry.status is Status.screened:
            # An LDS limit is told by the compiler itself: such a config never had code to screen.
            self.funnel.reach("compiled")
            self.funnel.remove(*entry.reason.split(": ", 1))
        else:
            self.funnel.reach("compiled")
            self.funnel.reach("passed screens")
            if entry.status is Status.ok:
                self.funnel.reach("ranked")
            else:
                self.funnel.remove(str(entry.status).replace("_", " "), entry.reason)
        self.watch(self.result)

    def _so_far(self) -> str:
        ranked = self.result.ranked()
        if not ranked:
            return "none ranked yet"
        best = ranked[0]
        time_us = best.latency_us if best.latency_us is not None else best.predicted_us
        return f"best {time_us:.2f} us ({best.evidence}) {best.candidate.variant}"

    def out_of_time(self) -> bool:
        return self.budget.seconds is not None and time.monotonic() - self.started >= self.budget.seconds


def _emulation_status(error: Exception) -> Status:
    from mxfp4lab.gfx950 import OutOfBounds

    return Status.out_of_bounds if isinstance(error, OutOfBounds) else Status.runtime_error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
