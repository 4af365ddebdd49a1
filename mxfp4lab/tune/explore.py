"""Where a search looks: at every variant by turns, then at those within reach of the best, then around the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mxfp4lab.config import GemmConfig
from mxfp4lab.tune.result import Entry
from mxfp4lab.tune.space import Candidate, Space, judge, neighbours

if TYPE_CHECKING:
    from mxfp4lab.tune.run import Search

BEAM = 4
"""Configs around which a refining step looks; more finds little, fewer gets stuck on one variant."""
WITHIN_REACH = 1.15
"""Variants whose best in the survey is at most this much slower than the best of all share the rest of the budget."""
REFINE_STEP, REFINE_STEPS = 8, 3
"""A refining step takes a third of its budget, at least eight configs, before it looks again who is best."""


def explore(search: Search, candidates: list[Candidate]) -> None:
    """Look at every variant by turns, then go on with those that are within reach of the best."""
    survey, limit = search.budget.survey, search.budget.space
    total = min(len(candidates), len(candidates) if limit is None else limit)
    search.take(candidates[:survey], "compile", 0, total)
    best: dict[str, float] = {}
    for entry in search.result.ranked():
        best.setdefault(entry.candidate.variant, entry.time_us)
    reach = min(best.values(), default=0.0) * WITHIN_REACH
    rest = sorted(candidates[survey:], key=lambda c: best.get(c.variant, reach) > reach)  # a stable sort
    go_on = rest[: total - survey] if best else rest[: (search.budget.configs or len(candidates)) - survey]
    search.take(go_on, "compile", survey, total)


def refine(search: Search) -> None:
    """Spend what is left of the budget around the best: a few neighbours, look again who is best, a few more."""
    refused: set[tuple[str, GemmConfig]] = set()
    around: dict[Entry, list] = {}
    planned: dict = {}
    before_refining = len(search.result.entries)
    budget = None if search.budget.configs is None else search.budget.configs - before_refining
    while not search.out_of_time():
        left = None if search.budget.configs is None else search.budget.configs - len(search.result.entries)
        best = search.result.ranked()[:BEAM]
        if not best or (left is not None and left <= 0):
            return
        for entry in best:
            if entry not in around:
                of = entry.candidate
                clock = search.executor is not None
                around[entry] = list(neighbours(search.shape, of.variant, of.config, search.arch, clock))
        proposals = [proposal for entry in best for proposal in around[entry]]
        space = judge(search.shape, proposals, search.arch, search.seen, planned)
        chosen = _as_proposed(space.candidates, proposals)
        step = REFINE_STEP if budget is None else max(REFINE_STEP, budget // REFINE_STEPS)
        chosen = chosen[: step if left is None else min(step, left)]
        new_refused = tuple(r for r in space.refused if (r.variant, r.config) not in refused)
        refused.update((r.variant, r.config) for r in new_refused)
        if not chosen:
            return
        # Of the neighbours only those that are taken count as enumerated: the others come up again.
        before = best[0].rank_key
        search.announce(Space(len(chosen) + len(new_refused), chosen, new_refused, 0))
        search.take(chosen, "refine", len(search.result.entries) - before_refining, budget)
        if budget is None and search.result.ranked()[0].rank_key >= before:
            return


def _as_proposed(
    candidates: Sequence[Candidate], proposals: Sequence[tuple[str, GemmConfig, tuple[str, ...]]]
) -> tuple[Candidate, ...]:
    """Candidates in the order in which they were proposed: the best config's neighbours first."""
    place = {(variant, config): i for i, (variant, config, _) in reversed(list(enumerate(proposals)))}
    return tuple(sorted(candidates, key=lambda candidate: place[candidate.variant, candidate.config]))
