"""Times that were measured: those that travel with the repository, those imported, and those others have published.

``data/recorded/<device>/trials.jsonl`` holds trials like any run's; ``finals.json``, where it exists, a comparison of
finalists with what is not ours, timed alternately in one run. These are times of that device; they say nothing about
another one's, and times of two regimes are never compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from mxfp4lab.display import Grid, Shown, badge
from mxfp4lab.paths import data_path, read_bounded
from mxfp4lab.records.log import read_all_trials, read_trials
from mxfp4lab.records.trial import Evidence, Status, Trial
from mxfp4lab.shapes import Shape

MAX_FINALS_BYTES = 16 << 20
HEADERS = ("device", "what", "us", "p20 to p80", "empty launch", "regime", "evidence", "C identical", "config")


@dataclass(frozen=True)
class RecordedTime:
    """One measured time on one device, in one regime.

    Attributes:
        what: a variant, or a comparator's name.
        spread: p20 and p80; None where they were not kept.
        floor_us: an empty kernel in the same run and regime, which no launch goes below; None where it was not kept.
        identical: share of C's bf16 equal to the reference's; None where C is another product.
    """

    device: str
    what: str
    latency_us: float
    regime: str
    spread: tuple[float, float] | None = None
    floor_us: float | None = None
    identical: float | None = None
    config_id: str = ""
    about: str = ""


@dataclass(frozen=True, repr=False)
class RecordedTimes(Shown):
    """Measured times of a shape, by device and regime, fastest first.

    Attributes:
        missing: (device, what, reason) of what was to be compared and does not run there.
    """

    shape: Shape
    times: list[RecordedTime]
    missing: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"Measured times of {self.shape}"

    def lines(self) -> list[Any]:
        """A table, and below it what the comparators are and what does not run."""
        if not self.times:
            return ["none are recorded here"]
        rows = [
            (t.device, t.what, t.latency_us, f"{t.spread[0]:.2f} to {t.spread[1]:.2f}" if t.spread else "",
             "" if t.floor_us is None else t.floor_us, t.regime, badge("measured", "measured"),
             "another product" if t.identical is None else f"{t.identical:.2%}", t.config_id)
            for t in self.times
        ]  # fmt: skip
        caption = "Times of the device named: they are not to be compared with predictions for another."
        about = dict.fromkeys(f"{time.what}: {time.about}" for time in self.times if time.about)
        failed = [f"{what} does not run on {device}: {reason}" for device, what, reason in self.missing]
        return [Grid(HEADERS, rows, caption), *about, *failed]


def recorded_times(shape: Shape, outputs: Path | None = None, folder: Path | None = None) -> RecordedTimes:
    """Every device's measured times of a shape: its finals where there are any, else the best of each variant.

    Args:
        outputs: folder whose ``runs/`` are looked through for measured rows besides: own runs, imported reports.
        folder: holds a folder per device; ``data/recorded`` of the repository without it. None of it need exist.
    """
    folder = data_path("recorded") if folder is None else folder
    times: list[RecordedTime] = []
    missing: list[tuple[str, str, str]] = []
    for place in sorted(path for path in folder.glob("*") if path.is_dir()):
        trials, _ = read_trials(place / "trials.jsonl", shape) if (place / "trials.jsonl").exists() else ([], [])
        best = _best_of_variants(trials)
        timed, failed = _finals(place / "finals.json", shape, best[0].device if best else place.name)
        times += timed or best
        missing += failed
    if outputs is not None:
        times += _best_of_variants(read_all_trials(outputs, shape)[0].values())
    order = {time: (time.device, time.regime, time.latency_us) for time in times}
    return RecordedTimes(shape, sorted(order, key=order.__getitem__), sorted(missing))


def _best_of_variants(trials: Iterable[Trial]) -> list[RecordedTime]:
    best: dict[tuple[str, str, str], RecordedTime] = {}
    for trial in trials:
        if trial.evidence is not Evidence.measured or trial.status is not Status.ok or trial.latency_us is None:
            continue
        found = trial.detail.get("timing")
        time = _time(found if isinstance(found, Mapping) else {}, trial.device, trial.variant, trial.latency_us,
                     trial.regime, trial.bf16_identical, trial.config_id)  # fmt: skip
        key = (time.device, time.what, time.regime)
        if key not in best or time.latency_us < best[key].latency_us:
            best[key] = time
    return list(best.values())


def _time(
    timing: Mapping[str, Any], device: str, what: str, us: float, regime: str, identical: Any, config_id: str,
    about: str = "",
) -> RecordedTime:  # fmt: skip
    low, high, floor = (
        float(timing[name]) if isinstance(timing.get(name), (int, float)) else None
        for name in ("p20_us", "p80_us", "floor_us")
    )
    spread = None if low is None or high is None else (low, high)
    share = None if identical is None else float(identical)
    return RecordedTime(device, what, us, regime, spread, floor, share, config_id, about)


def _finals(path: Path, shape: Shape, device: str) -> tuple[list[RecordedTime], list[tuple[str, str, str]]]:
    """Times of a comparison and what did not run in it; nothing where the file is absent or not as expected."""
    times = []
    try:
        found = json.loads(read_bounded(path, MAX_FINALS_BYTES))[str(shape)]
        for name, timing in found["timings"].items():
            what, config_id = name, ""
            if name.isdigit():
                plan = found["plans"][int(name)]
                what, config_id = str(plan["variant"]), _config_id(plan["config"])
            about = str(found.get("abouts", {}).get(name, ""))
            share = found.get("checks", {}).get(name)
            times.append(_time(timing, device, what, float(timing["p50_us"]), "leaderboard", share, config_id, about))
        return times, [(device, str(name), str(why)) for name, why in found.get("missing", {}).items()]
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return [], []


def _config_id(values: Mapping[str, Any]) -> str:
    """The config's id; "" where a field was retired that was not at its default."""
    from mxfp4lab.config import GemmConfig

    try:
        return GemmConfig.from_dict(values).config_id
    except ValueError:
        return ""


@lru_cache(maxsize=1)
def _published() -> Any:
    import pandas as pd

    found = pd.read_csv(data_path("mi355x_published_times.csv"), keep_default_na=False)
    found["approximate"] = found.notes.str.contains("approx")
    return found[found.use != "exclude"].sort_values("us", kind="stable")


def published_times(shape: Shape, regime: str | None = None) -> Any:
    """Others' MI355X times of a shape as a pandas DataFrame, fastest first, rows that are not to be used left out.

    Args:
        regime: of the file's ``regime`` column, e.g. ``harness_benchmark``; all without it, not to be compared.

    Returns:
        the columns of data/mi355x_published_times.csv, and ``approximate``: the source gives a rounded figure.
    """
    found = _published()
    here = (found.m == shape.m) & (found.n == shape.n) & (found.k == shape.k)
    return found[here & (found.regime == regime)] if regime else found[here]


def best_published(shape: Shape, regime: str = "harness_benchmark") -> float | None:
    """The best published time of an honest submission in one regime, microseconds; approximate figures do not count."""
    found = published_times(shape, regime)
    found = found[~found.approximate]
    return None if found.empty else float(found.us.iloc[0])
