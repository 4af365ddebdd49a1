"""How a search ends: the best executed whole and a pick, or finalists timed alternately and a winner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mxfp4lab.records import Evidence, Status
from mxfp4lab.tune.instruments import Check
from mxfp4lab.tune.pick import Pick
from mxfp4lab.tune.result import Entry

if TYPE_CHECKING:
    from mxfp4lab.tune.run import Search

MODEL_REGIME = "harness"
ALTERNATIVES = 8


def verify_best(search: Search) -> None:
    """Execute the best whole until one gives the right C (the pick), then leaders of other kinds."""
    good: list[Entry] = []
    tried: set[Entry] = set()
    while len(good) < search.verify:
        ranked = search.result.ranked()
        order = [*search.result.leaders(), *ranked] if good else ranked
        entry = next((entry for entry in order if entry not in tried), None)
        if entry is None:
            break
        tried.add(entry)
        known = search.memory.of(entry.candidate).emulated
        if known is not None:
            entry.status, entry.reason = known.status, known.reason
            entry.verified, entry.bf16_identical = known.verified, known.bf16_identical
            search.reuse(entry, known)
        else:
            _emulate(search, entry)
        if entry.status is Status.ok:
            good.append(entry)
            search.funnel.reach("verified")
        else:
            search.funnel.remove(str(entry.status).replace("_", " "), entry.reason)
        search.progress("verify", len(good), search.verify, entry.reason)
        search.watch(search.result)
    if good:
        search.result.pick = _pick(search, good[0])


def _emulate(search: Search, entry: Entry) -> None:
    (outcome,) = search.use.compile_many([entry.candidate.plan], 1)  # from the compile cache
    if outcome.error is not None:
        if getattr(outcome.error, "kind", "") == "machine":
            raise outcome.error
        check = Check(Status.compile_error, str(outcome.error))
    else:
        check = search.use.verify(outcome.compiled, search.bench.seed)
    entry.status, entry.reason = check.status, check.reason
    entry.bf16_identical = check.bf16_identical
    entry.verified = "none" if check.bf16_identical is None else "emulated"
    search.record(
        entry, evidence=Evidence.emulated, verified=entry.verified, bf16_identical=check.bf16_identical,
        seed=search.bench.seed, generator_device=search.bench.generator_device, detail=dict(check.detail or {}),
    )  # fmt: skip


def compare_finalists(search: Search) -> None:
    """Time the best again, alternately; the rows of such a comparison are of a regime of their own."""
    assert search.executor is not None
    timed = [entry for entry in search.result.ranked() if entry.latency_us is not None]
    search.funnel.reach("verified", sum(entry.verified == "gpu" for entry in timed))
    finalists = timed[: max(2, search.verify)]
    if not finalists:
        return
    regime = f"{search.executor.regime} finals"
    names = [f"{entry.candidate.variant}/{entry.candidate.config.config_id}" for entry in finalists]
    known = [search.memory.of(entry.candidate).measured.get(regime) for entry in finalists]
    if all(trial is not None and trial.detail.get("finalists") == names for trial in known):
        for entry, trial in zip(finalists, known, strict=True):
            entry.latency_us = trial.latency_us
            search.reuse(entry, trial)
        places = [int(trial.detail["place"]) for trial in known]
        best = min(range(len(known)), key=places.__getitem__)
        separate = bool(known[0].detail["separate"])
        comparison = known[best].detail.get("comparison") or {}
    else:
        said = search.executor.compare([entry.candidate.plan for entry in finalists])
        if not said.order:  # nobody's C was right in that run: there is nobody to name
            return
        finalists = [finalists[index] for index in said.order]  # a finalist whose C was wrong is none
        best, separate, comparison = 0, said.separate, said.detail
        places = list(range(len(finalists)))
        for index, entry in enumerate(finalists):
            entry.latency_us = said.latency_us[said.order[index]]
            detail = {"finalists": names, "place": places[index], "separate": separate}
            search.record_measured(
                entry, regime=regime, latency_us=entry.latency_us, verified=entry.verified,
                bf16_identical=entry.bf16_identical,
                detail=detail if index != best else {**detail, "comparison": said.detail},
            )  # fmt: skip
    for entry, place in zip(finalists, places, strict=True):
        entry.place = place
    search.result.pick = _pick(
        search, finalists[best], tie=not separate and len(finalists) > 1, timing=_timing(comparison)
    )


def _timing(comparison: Mapping[str, Any]) -> Mapping[str, float]:
    """Spread and floor of the first, as the comparison has them; {} where it does not."""
    timings, judged = comparison.get("timings"), comparison.get("verdict")
    found = timings.get(str(judged["order"][0])) if isinstance(timings, Mapping) and judged else None
    return found if isinstance(found, Mapping) else {}


def _pick(search: Search, entry: Entry, tie: bool = False, timing: Mapping[str, float] | None = None) -> Pick:
    spread = (timing["p20_us"], timing["p80_us"]) if timing and {"p20_us", "p80_us"} <= timing.keys() else None
    others = sorted(
        (other for other in search.result.leaders() if other is not entry), key=lambda other: other.verified == "none"
    )  # a stable sort: what is verified first, each part best first
    return Pick(
        shape=search.shape,
        variant=entry.candidate.variant,
        config=entry.candidate.config,
        arch=search.arch,
        evidence=entry.evidence,
        verified=entry.verified,
        bf16_identical=entry.bf16_identical or 0.0,
        toolchain=search.bench.toolchain,
        knobs=search.bench.knobs,
        run_id=search.result.run_id,
        predicted_us=None if entry.latency_us is not None else entry.predicted_us,
        interval=spread if entry.latency_us is not None else entry.interval,
        model_version="" if entry.latency_us is not None else entry.model_version,
        extrapolated=entry.latency_us is None and bool(entry.detail.get("extrapolated")),
        latency_us=entry.latency_us,
        regime=search.executor.regime if search.executor else MODEL_REGIME,
        device=search.bench.device,
        tie=tie,
        floor_us=timing.get("floor_us") if timing else None,
        origins=entry.candidate.origins,
        facts=entry.facts,
        alternatives=tuple((o.candidate.variant, o.candidate.config) for o in others[:ALTERNATIVES]),
    )
