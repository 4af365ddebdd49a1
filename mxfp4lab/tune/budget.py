"""How much a search may look at: a number of configs (the same on every machine) or of seconds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

BUDGET_FORMS = 'a number of configs from 1 to 100000 (200, "200 configs"), or of seconds ("90s"), or "all"'
MAX_CONFIGS = 100_000
MAX_SECONDS = 7 * 86_400.0

# Of a budget of configs a part goes over all variants by turns, a part to the variants that did well there, and the
# rest around the best.
SURVEY_SHARE, SPACE_SHARE = 0.35, 0.75
SURVEY_WITHOUT_LIMIT = 60


@dataclass(frozen=True)
class Budget:
    """At most ``configs`` configs, and no new one after ``seconds``; None does not limit."""

    configs: int | None = None
    seconds: float | None = None

    @property
    def survey(self) -> int:
        """Configs with which every variant is tried by turns."""
        if self.configs is None:
            return SURVEY_WITHOUT_LIMIT
        return max(1, math.ceil(self.configs * SURVEY_SHARE))

    @property
    def space(self) -> int | None:
        """Configs of the enumerated space, the survey among them; the rest is for neighbours of the best."""
        return None if self.configs is None else max(1, math.ceil(self.configs * SPACE_SHARE))

    def __str__(self) -> str:
        if self.configs is not None:
            return f"{self.configs} configs"
        return "all configs" if self.seconds is None else f"{self.seconds:g} s"


def parse_budget(value: Any) -> Budget:
    """Read a budget.

    Raises:
        ValueError: naming the value and what is allowed.
    """
    if isinstance(value, Budget):
        return value
    number: float
    unit = ""
    if isinstance(value, str):
        if value.strip().lower() == "all":
            return Budget()
        match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,6})?(?:[eE]\d)?)\s*(s|sec|seconds|configs?)?\s*", value)
        if match is None:
            raise ValueError(f"budget={value!r}; allowed: {BUDGET_FORMS}")
        number, unit = float(match.group(1)), match.group(2) or ""
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError(f"budget={value!r}; allowed: {BUDGET_FORMS}")
    if unit.startswith("s"):
        if not 0 < number <= MAX_SECONDS:
            raise ValueError(f"budget={value!r}: seconds out of range; allowed: {BUDGET_FORMS}")
        return Budget(seconds=number)
    if not math.isfinite(number) or number != int(number) or not 1 <= number <= MAX_CONFIGS:
        raise ValueError(f"budget={value!r}: not a whole number in range; allowed: {BUDGET_FORMS}")
    return Budget(configs=int(number))
