"""How a search ends: the best executed whole, or the finalists compared on the GPUs; then the pick.

Without a GPU a pick is the best config whose machine code gives the right C. With one it is the winner of one
interleaved run of the finalists, all shapes' at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mxfp4lab.gpu import REGIME as GPU_REGIME
from mxfp4lab.records import Evidence, Status
from mxfp4lab.tune.book import newest
from mxfp4lab.tune.instruments import compare_task, verify
from mxfp4lab.tune.pick import Pick
from mxfp4lab.tune.result import Entry
from mxfp4lab.tune.search import MODEL_REGIME, Search

FINALS_REGIME = "leaderboard finals"
ALTERNATIVES = 8


def conclude(searches: Sequence[Search]) -> None:
    """Verify the best of every shape, or compare all shapes' finalists on the GPUs at once."""
    gpus = searches[0].gpus
    if gpus is None:
        for search in searches:
            _verify_best(search)
        return
    waiting = []
    for search in searches:
        finalists = _finalists(search)
        said = _recorded_comparison(search, finalists) if finalists else None
        if said is not None:
            _crown(search, finalists, said)
        elif finalists:
            task = compare_task([entry.candidate.plan for entry in finalists], search.seed)
            waiting.append((search, finalists, task))
    for done in gpus.run_all([task for _, _, task in waiting]):
        search, finalists, _ = waiting[done.index]
        if done.outcome.status == "ok":
            said = done.outcome.value
            _record_comparison(search, finalists, said, done.worker)
        else:
            said = {"failed": f"{done.outcome.status}: {done.outcome.reason}"}
        _crown(search, finalists, said)


def _passed(share: float | None, entry: Entry) -> bool:
    """Whether a finalist's C was right once more: exact where it was exact before."""
    from mxfp4lab.task import IDENTICAL_WHERE_INEXACT  # torch comes with it

    return share is not None and share >= (1.0 if entry.bf16_identical == 1.0 else IDENTICAL_WHERE_INEXACT)


def _names(entries: Sequence[Entry]) -> list[str]:
    return [f"{entry.candidate.variant}/{entry.candidate.config.config_id}" for entry in entries]


def _verify_best(search: Search) -> None:
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
        if _execute(search, entry, races=not good):  # what may be the pick is executed with every check on
            good.append(entry)
            search.funnel.reach("verified")
        search.progress("verify", len(good), search.verify, entry.reason)
        search.watch(search.result)
    if good:
        search.result.pick = _pick(search, good[0])


def _execute(search: Search, entry: Entry, races: bool) -> bool:
    """Whether the machine code gives the reference's C, executed whole; taken from the records where it was."""
    known = newest(search.known(entry), evidence=Evidence.emulated)
    if known is not None and (known.status is not Status.ok or not races or known.detail.get("races_looked_for")):
        search.reuse(entry, known)
    else:
        search.record(entry, Evidence.emulated, **verify(entry.candidate.plan, search.seed, races))
    if entry.status is not Status.ok:
        search.funnel.remove(str(entry.status).replace("_", " "), entry.reason)
    return entry.status is Status.ok


def _finalists(search: Search) -> list[Entry]:
    """The best that were timed and whose C was checked there."""
    timed = [entry for entry in search.result.ranked() if entry.latency_us is not None and entry.verified == "gpu"]
    search.funnel.left["verified"] = len(timed)
    return timed[: max(2, search.verify)]


def _recorded_comparison(search: Search, finalists: Sequence[Entry]) -> dict[str, Any] | None:
    """What an earlier run's comparison of the same finalists said."""
    rows = [newest(search.known(entry), evidence=Evidence.measured, regime=FINALS_REGIME) for entry in finalists]
    names = _names(finalists)
    if not all(row is not None and row.detail.get("finalists") == names for row in rows):
        return None
    said = next((row.detail["comparison"] for row in rows if row.detail.get("comparison")), None)
    for entry, row in zip(finalists, rows, strict=True) if said else ():
        search.reuse(entry, row)
    return said


def _record_comparison(search: Search, finalists: Sequence[Entry], said: Mapping[str, Any], worker: str) -> None:
    """A row for each finalist; one of them holds all that was said."""
    order, checks = (said["verdict"] or {"order": ()})["order"], said["checks"]
    right = [n for n in order if _passed(checks.get(str(n)), finalists[n])]
    for number, entry in enumerate(finalists):
        wrong = {
            "status": Status.incorrect,
            "reason": said.get("wrong", {}).get(str(number), "C was wrong when finalists were compared"),
        }
        ended = {"latency_us": said["timings"][str(number)]["p50_us"]} if number in right else wrong
        detail = {"finalists": _names(finalists), "comparison": said if number == (right or [0])[0] else {}}
        search.record(entry, Evidence.measured, worker=worker, regime=FINALS_REGIME, verified="gpu", detail=detail,
                     bf16_identical=checks.get(str(number)), **ended)  # fmt: skip


def _crown(search: Search, finalists: Sequence[Entry], said: Mapping[str, Any]) -> None:
    """Place the finalists as their comparison did, those whose check failed out of the race, and pick the first.

    Args:
        said: timings, checks and verdict, as `gpu.measure.compare_plans` gives them, and on record; {"failed": why}
            leaves the first times as they are, and none apart from the others.
    """
    search.result.comparison = said
    failed = "failed" in said
    verdict = said.get("verdict") or {"kind": "tie", "order": range(len(finalists)) if failed else ()}
    right = [n for n in verdict["order"] if finalists[n].status is Status.ok]
    for number, entry in enumerate(finalists):
        if entry.status is not Status.ok:
            search.funnel.remove("incorrect", entry.reason)
        elif not failed:
            entry.place = right.index(number)
    for number in right:
        entry = finalists[number]
        if search.arch == "gfx950" and not _execute(search, entry, races=True):
            continue
        tie = verdict["kind"] != "winner" and len(right) > 1
        search.result.pick = _pick(search, entry, tie, said.get("timings", {}).get(str(number), {}))
        return


def _pick(search: Search, entry: Entry, tie: bool = False, timing: Mapping[str, float] | None = None) -> Pick:
    timing = timing or {}
    measured = entry.latency_us is not None
    spread = (timing["p20_us"], timing["p80_us"]) if {"p20_us", "p80_us"} <= timing.keys() else None
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
        toolchain=search.book.toolchain,
        knobs=search.book.knobs,
        run_id=search.book.run_id,
        predicted_us=None if measured else entry.predicted_us,
        interval=spread if measured else entry.interval,
        model_version="" if measured else entry.prediction.model_version,
        extrapolated=not measured and bool(entry.prediction.detail.get("extrapolated")),
        latency_us=entry.latency_us,
        regime=GPU_REGIME if measured else MODEL_REGIME,
        device=search.book.device,
        tie=tie,
        floor_us=timing.get("floor_us"),
        origins=entry.candidate.origins,
        facts=entry.facts,
        alternatives=tuple((o.candidate.variant, o.candidate.config, o.interval) for o in others[:ALTERNATIVES]),
    )
