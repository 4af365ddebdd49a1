"""One search, step by step: compile, screen, count, predict or measure, look around the best, verify or compare, pick.

Every step is a row on disk before the next begins, and the rows are the only state: what an earlier run has recorded is
taken from there, whatever stopped that run. With GPUs every surviving plan is checked and timed by a worker that owns
one; without, the time is the model's and C is checked by executing the machine code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab.config import GemmConfig
from mxfp4lab.records import Evidence, Status, Trial
from mxfp4lab.shapes import Shape
from mxfp4lab.tune.book import Book, Known
from mxfp4lab.tune.budget import Budget
from mxfp4lab.tune.instruments import IDENTICAL_WHERE_INEXACT, Instruments, Look, compare_task, measure_task, screen
from mxfp4lab.tune.pick import Pick
from mxfp4lab.tune.result import Entry, Funnel, TuneResult
from mxfp4lab.tune.space import Candidate, Space, enumerate_space, judge, neighbours, not_searched, searchable_variants

MODEL_REGIME, GPU_REGIME, FINALS_REGIME = "harness", "leaderboard", "leaderboard finals"
ALTERNATIVES = 8

BEAM = 4
"""Configs around which a refining step looks; more finds little, fewer gets stuck on one variant."""
WITHIN_REACH = 1.15
"""Variants whose best in the survey is at most this much slower than the best of all share the rest of the budget."""
REFINE_STEP, REFINE_STEPS = 8, 3
"""A refining step takes a third of its budget, at least eight configs, before it looks again who is best."""


@dataclass
class Search:
    """The search of one shape; `run` does all but the comparison of finalists on GPUs, `conclude` the rest.

    Attributes:
        variants: names; None for all that can be searched, the others being named in the funnel.
        verify: how many of the best are executed whole, or compared.
    """

    shape: Shape
    variants: tuple[str, ...] | None
    budget: Budget
    seed: int
    out: Path
    max_spills: int | None
    verify: int
    extra: Sequence[tuple[str, GemmConfig]]
    use: Instruments
    progress: Callable[[str, int, int, str], None]
    watch: Callable[[TuneResult], None]

    def __post_init__(self) -> None:
        gpus = self.use.gpus
        self.arch, device = (gpus.arch, gpus.device) if gpus else ("gfx950", "")
        knobs, toolchain = dict(self.use.knobs()), dict(self.use.toolchain())
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
            row = self.book.of(variant, config).compiled
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
                of, clock = entry.candidate, self.use.gpus is not None
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
        with closing(self._looked(fresh) if self.use.gpus is None else self._measured(fresh)) as settled:
            for number, entry in enumerate(settled, done + 1):
                self._file(entry)
                self.progress(stage, number, total, self._so_far())
                if self._out_of_time():
                    return

    def _looked(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Entries with what a look at them showed, each on record, in the order in which they are done."""
        plans = [entry.candidate.plan for entry in entries]
        with closing(self.use.look(plans, self.max_spills)) as looks:
            for look in looks:
                entry = entries[look.index]
                self._note(entry, look)
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

        with closing(self.use.gpus.run_all(tasks())) as outcomes:
            for done in outcomes:
                while stopped:
                    yield stopped.pop(0)
                entry, outcome = began[done.index], done.outcome
                fields = outcome.value if outcome.status == "ok" else {
                    "status": outcome.status, "reason": outcome.reason}  # fmt: skip
                self._record_measured(entry, done.worker, **{"regime": GPU_REGIME, **fields})
                yield entry
        yield from stopped

    def _note(self, entry: Entry, look: Look) -> None:
        """Record a look, and the prediction that follows from it."""
        entry.status, entry.reason, entry.facts, entry.counts = look.status, look.reason, look.facts, look.counts
        if entry.status is not Status.ok:
            self._record(entry, resources=entry.facts or None)
        elif entry.counts is not None:
            self._rank(entry)

    def _rank(self, entry: Entry) -> None:
        """Predict, or take the prediction that this model has made before."""
        known = self._known(entry).predicted.get(self.use.model_version())
        if known is not None and known.resources:
            entry.detail = known.detail
            entry.predicted_us, entry.model_version = known.predicted_us, known.model_version
            self._reuse(entry, known)
        else:
            said = self.use.predict(entry.counts)
            entry.predicted_us, entry.model_version = float(said.predicted_us), said.model_version
            entry.detail = {"interval": [float(bound) for bound in said.interval],
                            "terms": {name: float(value) for name, value in said.terms.items()},
                            "extrapolated": bool(said.extrapolated)}  # fmt: skip
            self._record(
                entry, resources=entry.facts, counts=entry.counts, predicted_us=entry.predicted_us,
                model_version=entry.model_version, regime=MODEL_REGIME, detail=entry.detail,
            )  # fmt: skip
        entry.interval = tuple(entry.detail.get("interval") or ()) or None

    def _recall(self, entry: Entry) -> bool:
        """Fill an entry from earlier rows; False if something is missing that needs the compiler or a GPU."""
        known, home = self._known(entry), self.arch == "gfx950"
        measured = known.measured.get(GPU_REGIME)
        # Where nothing is counted or predicted, the measured row is the only one of a config that compiled.
        before = known.compiled or (None if home else measured)
        if before is None or (before.status is Status.ok and not before.resources):
            return False
        removed = screen(before.resources, self.arch, self.max_spills) if before.resources else ""
        if removed:
            # Facts that passed before and fail under stricter thresholds are a row of their own, once.
            entry.facts, entry.status, entry.reason = before.resources, Status.screened, removed
            if known.screened is not None:
                self._reuse(entry, known.screened)
            else:
                self._record(entry, resources=entry.facts)
            return True
        if before.status is not Status.ok and (before.status is not Status.screened or not before.resources):
            entry.facts, entry.status, entry.reason = before.resources or {}, before.status, before.reason
            self._reuse(entry, before)
            return True
        if (home and before.counts is None) or (self.use.gpus is not None and measured is None):
            return False
        entry.facts, entry.counts = before.resources, before.counts
        if home:
            self._rank(entry)
        if self.use.gpus is not None:
            self._take_measured(entry, measured)
            self._reuse(entry, measured)
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

    # -- how it ends --------------------------------------------------------------------------------------------------

    def verify_best(self) -> None:
        """Execute the best whole until one gives the right C (the pick), then leaders of other kinds."""
        good: list[Entry] = []
        tried: set[Entry] = set()
        while len(good) < self.verify:
            ranked = self.result.ranked()
            order = [*self.result.leaders(), *ranked] if good else ranked
            entry = next((entry for entry in order if entry not in tried), None)
            if entry is None:
                break
            tried.add(entry)
            if self._execute(entry, races=not good):  # what may be the pick is executed with every check on
                good.append(entry)
                self.funnel.reach("verified")
            self.progress("verify", len(good), self.verify, entry.reason)
            self.watch(self.result)
        if good:
            self.result.pick = self._pick(good[0])

    def _execute(self, entry: Entry, races: bool) -> bool:
        """Whether the machine code gives the reference's C, executed whole; taken from the records where it was."""
        known = self._known(entry).emulated
        if known is not None and (known.status is not Status.ok or not races or known.detail.get("races_looked_for")):
            self._reuse(entry, known)
        else:
            check = self.use.verify(entry.candidate.plan, self.seed, races)
            entry.status, entry.reason = check.status, check.reason
            known = self._record(
                entry, Evidence.emulated, verified="none" if check.bf16_identical is None else "emulated",
                bf16_identical=check.bf16_identical, detail=check.detail,
            )  # fmt: skip
        entry.status, entry.reason = known.status, known.reason
        if entry.latency_us is None:
            entry.verified, entry.bf16_identical = known.verified, known.bf16_identical
        if entry.status is not Status.ok:
            self.funnel.remove(str(entry.status).replace("_", " "), entry.reason)
        return entry.status is Status.ok

    def finalists(self) -> list[Entry]:
        """The best that were timed and whose C was checked there."""
        timed = [entry for entry in self.result.ranked() if entry.latency_us is not None and entry.verified == "gpu"]
        self.funnel.left["verified"] = len(timed)
        return timed[: max(2, self.verify)]

    def recorded_comparison(self, finalists: Sequence[Entry]) -> dict[str, Any] | None:
        """What an earlier run's comparison of the same finalists said."""
        rows = [self._known(entry).measured.get(FINALS_REGIME) for entry in finalists]
        names = _names(finalists)
        if not all(row is not None and row.detail.get("finalists") == names for row in rows):
            return None
        said = next((row.detail["comparison"] for row in rows if row.detail.get("comparison")), None)
        for entry, row in zip(finalists, rows, strict=True) if said else ():
            self._reuse(entry, row)
        return said

    def crown(self, finalists: Sequence[Entry], said: Mapping[str, Any], worker: str = "") -> None:
        """Place the finalists as their comparison did, those whose check failed last and out of the race.

        Args:
            said: timings, checks and verdict, as `gpu.measure.compare_plans` gives them; {"failed": why} leaves the
                first times as they are, and none apart from the others.
            worker: that compared them; "" where this was recorded before.
        """
        self.result.comparison = said
        failed, checks, timings = "failed" in said, said.get("checks", {}), said.get("timings", {})
        verdict = said.get("verdict") or {"kind": "tie", "order": range(len(finalists)) if failed else ()}
        right = [n for n in verdict["order"] if failed or _passed(checks.get(str(n)), finalists[n])]
        for number, entry in enumerate(finalists) if not failed else ():
            ok = number in right
            reason = "" if ok else said.get("wrong", {}).get(str(number), "C was wrong when finalists were compared")
            latency_us = timings[str(number)]["p50_us"] if ok else None
            entry.status, entry.reason, entry.latency_us = Status.ok if ok else Status.incorrect, reason, latency_us
            entry.place = right.index(number) if ok else None
            if worker:
                keeper = number == (right[0] if right else 0)  # one row holds all that was said
                detail = {"finalists": _names(finalists), "comparison": dict(said) if keeper else {}}
                self._record(
                    entry, Evidence.measured, worker=worker, regime=FINALS_REGIME, verified="gpu", detail=detail,
                    bf16_identical=checks.get(str(number)), latency_us=latency_us,
                )  # fmt: skip
            if not ok:
                self.funnel.remove("incorrect", reason)
        for number in right:
            entry = finalists[number]
            if self.arch == "gfx950" and not self._execute(entry, races=True):
                continue
            tie = verdict["kind"] != "winner" and len(right) > 1
            self.result.pick = self._pick(entry, tie, timings.get(str(number), {}))
            return

    def _pick(self, entry: Entry, tie: bool = False, timing: Mapping[str, float] | None = None) -> Pick:
        timing = timing or {}
        measured = entry.latency_us is not None
        spread = (timing["p20_us"], timing["p80_us"]) if {"p20_us", "p80_us"} <= timing.keys() else None
        others = sorted(
            (other for other in self.result.leaders() if other is not entry), key=lambda other: other.verified == "none"
        )  # a stable sort: what is verified first, each part best first
        return Pick(
            shape=self.shape,
            variant=entry.candidate.variant,
            config=entry.candidate.config,
            arch=self.arch,
            evidence=entry.evidence,
            verified=entry.verified,
            bf16_identical=entry.bf16_identical or 0.0,
            toolchain=self.book.toolchain,
            knobs=self.book.knobs,
            run_id=self.book.run_id,
            predicted_us=None if measured else entry.predicted_us,
            interval=spread if measured else entry.interval,
            model_version="" if measured else entry.model_version,
            extrapolated=not measured and bool(entry.detail.get("extrapolated")),
            latency_us=entry.latency_us,
            regime=GPU_REGIME if measured else MODEL_REGIME,
            device=self.book.device,
            tie=tie,
            floor_us=timing.get("floor_us"),
            origins=entry.candidate.origins,
            facts=entry.facts,
            alternatives=tuple((o.candidate.variant, o.candidate.config, o.interval) for o in others[:ALTERNATIVES]),
        )

    # -- rows -------------------------------------------------------------------------------------------------------

    def _known(self, entry: Entry) -> Known:
        return self.book.of(entry.candidate.variant, entry.candidate.config, entry.candidate.kernel_hash)

    def _reuse(self, entry: Entry, trial: Trial) -> None:
        entry.trials.append(trial)
        self.funnel.reused += 1

    def _record(self, entry: Entry, evidence: Evidence = Evidence.modelled, **fields: Any) -> Trial:
        of = entry.candidate
        detail = {**fields.pop("detail", {}), **({"origins": list(of.origins)} if of.origins else {})}
        given = {"status": entry.status, "reason": entry.reason, **fields, "detail": detail}
        trial = self.book.write(of.variant, of.config, evidence, kernel_hash=of.kernel_hash, **given)
        entry.trials.append(trial)
        return trial

    def _record_measured(self, entry: Entry, worker: str, **fields: Any) -> None:
        resources = None if self.arch == "gfx950" else entry.facts
        trial = self._record(entry, Evidence.measured, worker=worker, resources=resources, **fields)
        self._take_measured(entry, trial)

    @staticmethod
    def _take_measured(entry: Entry, trial: Trial) -> None:
        entry.status, entry.reason, entry.latency_us = trial.status, trial.reason, trial.latency_us
        entry.verified, entry.bf16_identical = trial.verified, trial.bf16_identical


def conclude(searches: Sequence[Search]) -> None:
    """Verify the best of every shape, or compare all shapes' finalists on the GPUs at once."""
    gpus = searches[0].use.gpus
    if gpus is None:
        for search in searches:
            search.verify_best()
        return
    waiting = []
    for search in searches:
        finalists = search.finalists()
        said = search.recorded_comparison(finalists) if finalists else None
        if said is not None:
            search.crown(finalists, said)
        elif finalists:
            task = compare_task([entry.candidate.plan for entry in finalists], search.seed)
            waiting.append((search, finalists, task))
    for done in gpus.run_all([task for _, _, task in waiting]):
        search, finalists, _ = waiting[done.index]
        outcome = done.outcome
        said = outcome.value if outcome.status == "ok" else {"failed": f"{outcome.status}: {outcome.reason}"}
        search.crown(finalists, said, done.worker)


def _passed(share: float | None, entry: Entry) -> bool:
    """Whether a finalist's C was right once more: exact where it was exact before."""
    return share is not None and share >= (1.0 if entry.bf16_identical == 1.0 else IDENTICAL_WHERE_INEXACT)


def _names(entries: Sequence[Entry]) -> list[str]:
    return [f"{entry.candidate.variant}/{entry.candidate.config.config_id}" for entry in entries]
