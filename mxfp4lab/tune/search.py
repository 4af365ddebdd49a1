"""One search, step by step: compile, screen, count, predict or measure, look around the best, verify or compare, pick.

Every step is a row on disk before the next begins, and the rows are the only state: what an earlier run has recorded is
taken from there, whatever stopped that run. With GPUs every surviving plan is checked and timed by a worker that owns
one; without, the time is the model's and C is checked by executing the machine code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab.config import GemmConfig
from mxfp4lab.gfx950 import current_knobs, toolchain_versions
from mxfp4lab.gpu import REGIME as GPU_REGIME
from mxfp4lab.model import stored_model
from mxfp4lab.records import Evidence, Status, Trial
from mxfp4lab.shapes import Shape
from mxfp4lab.tune.book import Book, compiled_row, newest
from mxfp4lab.tune.budget import Budget
from mxfp4lab.tune.instruments import look_at_all, measure_task, screen
from mxfp4lab.tune.result import Entry, Funnel, TuneResult
from mxfp4lab.tune.space import Candidate, Space, enumerate_space, judge, neighbours, not_searched, searchable_variants

MODEL_REGIME = "harness"

BEAM = 4
"""Configs around which a refining step looks; more finds little, fewer gets stuck on one variant."""
WITHIN_REACH = 1.15
"""Variants whose best in the survey is at most this much slower than the best of all share the rest of the budget."""
REFINE_STEP, REFINE_STEPS = 8, 3
"""A refining step takes a third of its budget, at least eight configs, before it looks again who is best."""


@dataclass
class Search:
    """The search of one shape; `run` looks and ranks, `finals.conclude` verifies or compares the best.

    Attributes:
        variants: names; None for all that can be searched, the others being named in the funnel.
        verify: how many of the best are executed whole, or compared.
        workers, pool: see `look_at_all`; a pool of GPUs measures.
    """

    shape: Shape
    variants: tuple[str, ...] | None
    budget: Budget
    seed: int
    out: Path
    max_spills: int | None
    verify: int
    extra: Sequence[tuple[str, GemmConfig]]
    workers: int | None
    pool: Any
    progress: Callable[[str, int, int, str], None]
    watch: Callable[[TuneResult], None]

    def __post_init__(self) -> None:
        self.gpus = self.pool if self.pool is not None and self.pool.device else None
        self.arch, device = (self.gpus.arch, self.gpus.device) if self.gpus else ("gfx950", "")
        knobs, toolchain = dict(current_knobs()), dict(toolchain_versions())
        self.book = Book(self.shape, self.out, self.arch, device, knobs, toolchain, self.seed)
        absent = not_searched(self.arch) if self.variants is None else {}
        self.funnel = Funnel(arch=self.arch, device=device, absent=absent)
        names = self.variants or searchable_variants(self.arch)
        self.result = TuneResult(self.shape, names, self.book.run_id, self.book.folder, self.funnel)
        self.seen: set[str] = set()
        self.started = time.monotonic()

    def run(self) -> None:
        """Look at the space and around its best."""
        self.started = time.monotonic()
        self.result.warnings = self.book.open({
            "shape": str(self.shape), "variants": list(self.result.variants), "budget": str(self.budget),
            "seed": self.seed, "max_spills": self.max_spills, "verify": self.verify})  # fmt: skip
        space = enumerate_space(self.shape, self.result.variants, self.arch, self.extra)
        self._announce(space)
        self._explore(list(space.candidates))
        self._refine()

    def finish(self, interrupted: bool = False) -> None:
        """Say that it is over, and close its file."""
        self.result.interrupted = interrupted
        self.result.seconds = time.monotonic() - self.started
        self.book.close()
        self.watch(self.result)

    # -- where to look --------------------------------------------------------------------------------------------

    def _announce(self, space: Space) -> None:
        """Count a space into the funnel and record what it refused."""
        self.funnel.reach("enumerated", space.enumerated)
        self.funnel.reach("valid", space.enumerated - len(space.refused))
        self.funnel.reach("distinct", len(space.candidates))
        self.funnel.known += sum(bool(candidate.origins) for candidate in space.candidates)
        for variant, config, reason in space.refused:
            self.funnel.remove("invalid", reason)
            row = newest(self.book.of(variant, config))
            if row is None:
                row = self.book.write(variant, config, status=Status.invalid, reason=reason)
            else:
                self.funnel.reused += 1
            self.result.refused.append(row)

    def _explore(self, candidates: list[Candidate]) -> None:
        """Look at every variant by turns, then go on with those that are within reach of the best."""
        survey, limit = self.budget.survey, self.budget.space
        total = min(len(candidates), len(candidates) if limit is None else limit)
        self._take(candidates[:survey], "compile", 0, total)
        best: dict[str, float] = {}
        for entry in self.result.ranked():
            best.setdefault(entry.candidate.variant, entry.time_us)
        reach = min(best.values(), default=0.0) * WITHIN_REACH
        rest = sorted(candidates[survey:], key=lambda c: best.get(c.variant, reach) > reach)  # a stable sort
        go_on = rest[: total - survey] if best else rest[: (self.budget.configs or len(candidates)) - survey]
        self._take(go_on, "compile", survey, total)

    def _refine(self) -> None:
        """Spend what is left of the budget around the best: a few neighbours, look again who is best, a few more."""
        refused: set[tuple[str, str]] = set()
        around: dict[Entry, list] = {}
        planned: dict = {}
        explored = len(self.result.entries)
        budget = None if self.budget.configs is None else self.budget.configs - explored
        step = REFINE_STEP if budget is None else max(REFINE_STEP, budget // REFINE_STEPS)
        while not self._out_of_time():
            left = step if budget is None else explored + budget - len(self.result.entries)
            best = self.result.ranked()[:BEAM]
            for entry in best:
                of, clock = entry.candidate, self.gpus is not None
                if entry not in around:
                    around[entry] = list(neighbours(self.shape, of.variant, of.config, self.arch, clock))
            space = judge(self.shape, [p for entry in best for p in around[entry]], self.arch, self.seen, planned)
            chosen = space.candidates[: min(step, max(left, 0))]
            if not chosen:
                return
            new = tuple(row for row in space.refused if (row[0], row[1].config_id) not in refused)
            refused.update((variant, config.config_id) for variant, config, _ in new)
            # Of the neighbours only those that are taken count as enumerated: the others come up again.
            before = best[0].rank_key
            self._announce(Space(len(chosen) + len(new), chosen, new, 0))
            self._take(chosen, "refine", len(self.result.entries) - explored, budget)
            if budget is None and self.result.ranked()[0].rank_key >= before:
                return

    def _out_of_time(self) -> bool:
        return self.budget.seconds is not None and time.monotonic() - self.started >= self.budget.seconds

    # -- compile, screen, rank, measure -----------------------------------------------------------------------------

    def _take(self, chosen: Sequence[Candidate], stage: str, done: int, total: int | None) -> None:
        """Take candidates through compile, screens and ranking; what earlier runs know is not done again."""
        self.seen.update(candidate.kernel_hash for candidate in chosen)
        entries = [Entry(candidate) for candidate in chosen]
        fresh = []
        for entry in entries:
            self._file(entry) if self._recall(entry) else fresh.append(entry)
        if not fresh or self._out_of_time():
            return
        done += len(entries) - len(fresh)
        total = total or done + len(fresh)
        with closing(self._looked(fresh) if self.gpus is None else self._measured(fresh)) as settled:
            for number, entry in enumerate(settled, done + 1):
                self._file(entry)
                self.progress(stage, number, total, self._so_far())
                if self._out_of_time():
                    return

    def _looked(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Entries with what a look at them showed, each on record, in the order in which they are done."""
        plans = [entry.candidate.plan for entry in entries]
        with closing(look_at_all(plans, self.max_spills, self.workers, self.pool)) as looks:
            for look in looks:
                entry = entries[look.index]
                entry.facts, entry.counts = look.facts, look.counts
                if look.status is not Status.ok:
                    self.record(entry, status=look.status, reason=look.reason, resources=entry.facts or None)
                elif entry.counts is not None:
                    self._predict(entry)
                yield entry

    def _measured(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """The same, measured: GPUs time one plan while the cores compile what comes next."""
        stopped: list[Entry] = []
        began: list[Entry] = []

        def tasks() -> Iterator[Any]:
            with closing(self._looked(entries)) as looked:
                for entry in looked:
                    if entry.status is not Status.ok:
                        stopped.append(entry)
                        continue
                    began.append(entry)
                    yield measure_task(entry.candidate.plan, self.seed)

        with closing(self.gpus.run_all(tasks())) as outcomes:
            for done in outcomes:
                while stopped:
                    yield stopped.pop(0)
                entry, outcome = began[done.index], done.outcome
                fields = outcome.value if outcome.status == "ok" else {
                    "status": outcome.status, "reason": outcome.reason}  # fmt: skip
                resources = None if self.arch == "gfx950" else entry.facts
                self.record(entry, Evidence.measured, worker=done.worker, resources=resources,
                             **{"regime": GPU_REGIME, **fields})  # fmt: skip
                yield entry
        yield from stopped

    def _predict(self, entry: Entry) -> None:
        """Predict, or take the prediction that this model has made before."""
        model = stored_model()
        known = newest(self.known(entry), evidence=Evidence.modelled, model_version=model.version)
        if known is not None and known.resources:
            self.reuse(entry, known)
            return
        said = model.predict_counts(entry.counts)
        detail = {"interval": [float(bound) for bound in said.interval],
                  "terms": {name: float(value) for name, value in said.terms.items()},
                  "extrapolated": bool(said.extrapolated)}  # fmt: skip
        self.record(
            entry, resources=entry.facts, counts=entry.counts, predicted_us=float(said.predicted_us),
            model_version=model.version, regime=MODEL_REGIME, detail=detail,
        )  # fmt: skip

    def _recall(self, entry: Entry) -> bool:
        """Fill an entry from earlier rows; False if something is missing that needs the compiler or a GPU."""
        known, home = self.known(entry), self.arch == "gfx950"
        measured = newest(known, evidence=Evidence.measured, regime=GPU_REGIME)
        # Where nothing is counted or predicted, the measured row is the only one of a config that compiled.
        before = compiled_row(known) or (None if home else measured)
        if before is None or (before.status is Status.ok and not before.resources):
            return False
        entry.facts, entry.counts = before.resources or {}, before.counts
        removed = screen(entry.facts, self.arch, self.max_spills) if entry.facts else ""
        if removed:
            # Facts that passed before and fail under stricter thresholds are a row of their own, once.
            row = newest(known, status=Status.screened)
            if row is not None:
                self.reuse(entry, row)
            else:
                self.record(entry, status=Status.screened, reason=removed, resources=entry.facts)
        elif before.status is not Status.ok and not (before.status is Status.screened and entry.facts):
            self.reuse(entry, before)
        elif (home and entry.counts is None) or (self.gpus is not None and measured is None):
            return False
        else:
            if home:
                self._predict(entry)
            if self.gpus is not None:
                self.reuse(entry, measured)
        return True

    def _file(self, entry: Entry) -> None:
        """Count in an entry that is through compile, screens and ranking."""
        self.result.entries.append(entry)
        self.funnel.reach("tried")
        what = str(entry.status).replace("_", " ")
        no_code = entry.status in (Status.compile_error, Status.timeout, Status.worker_died) and not entry.facts
        if not no_code:
            # An LDS limit is told by the compiler itself: such a config never had code to screen.
            self.funnel.reach("compiled")
        if entry.status is Status.screened:
            self.funnel.remove(*entry.reason.split(": ", 1))
        elif not no_code:
            self.funnel.reach("passed screens")
        if entry.status is Status.ok:
            self.funnel.reach("ranked")
        elif entry.status is not Status.screened:
            self.funnel.remove(what, entry.reason)
        self.watch(self.result)

    def _so_far(self) -> str:
        ranked = self.result.ranked()
        if not ranked:
            return "none ranked yet"
        return f"best {ranked[0].time_us:.2f} us ({ranked[0].evidence}) {ranked[0].candidate.variant}"

    # -- rows -------------------------------------------------------------------------------------------------------

    def known(self, entry: Entry) -> list[Trial]:
        return self.book.of(entry.candidate.variant, entry.candidate.config, entry.candidate.kernel_hash)

    def reuse(self, entry: Entry, trial: Trial) -> None:
        entry.trials.append(trial)
        self.funnel.reused += 1

    def record(self, entry: Entry, evidence: Evidence = Evidence.modelled, **fields: Any) -> None:
        of = entry.candidate
        detail = {**fields.pop("detail", {}), **({"origins": list(of.origins)} if of.origins else {})}
        given = {"status": Status.ok, **fields, "detail": detail}
        entry.trials.append(self.book.write(of.variant, of.config, evidence, kernel_hash=of.kernel_hash, **given))
