"""What it costs to try configs in the model's order: best-so-far against the number tried.

A curve starts at the config that the model likes best. At 1.0 the best published config has been tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def regret_curve(published_us: Sequence[float], predicted_us: Sequence[float]) -> list[float]:
    """Best published time among the first 1, 2, ... configs in order of prediction, over the best of all.

    Configs that the model cannot tell apart are tried worst first: no credit for luck.

    Raises:
        ValueError: if the two differ in length or are empty.
    """
    if len(published_us) != len(predicted_us) or not published_us:
        raise ValueError(
            f"published_us, predicted_us: lengths {len(published_us)}, {len(predicted_us)}; allowed: equal, at least 1"
        )
    order = sorted(range(len(published_us)), key=lambda i: (round(predicted_us[i], 6), -published_us[i]))
    best, curve = math.inf, []
    for i in order:
        best = min(best, published_us[i])
        curve.append(best / min(published_us))
    return curve


def random_curve(published_us: Sequence[float]) -> list[float]:
    """The expectation of the same curve when configs are tried in random order.

    The chance that the best of `t` drawn is the i-th best (0-based) of n is C(n-1-i, t-1) / C(n, t).
    """
    ordered = sorted(published_us)
    n = len(ordered)
    return [
        sum(us * math.comb(n - 1 - i, tried - 1) / math.comb(n, tried) for i, us in enumerate(ordered)) / ordered[0]
        for tried in range(1, n + 1)
    ]


def tried_until(curve: Sequence[float], within: float = 1.05) -> int:
    """How many configs are tried until the best so far is within a factor of the best of all."""
    return next(i + 1 for i, value in enumerate(curve) if value <= within)
