"""Measured times that travel with the repository: what a reader without a GPU can see of real clocks.

``data/recorded/<device>/trials.jsonl`` holds trials like any run's; ``finals.json``, where it exists, a comparison of
finalists with what is not ours, timed alternately in one run. These are times of that device; they say nothing about
another one's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab import display
from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.records import Evidence, Status, read_trials
from mxfp4lab.shapes import Shape

MAX_FINALS_BYTES = 16 << 20
HEADERS = ("device", "what", "us (p50)", "p20 to p80", "empty launch", "evidence", "C identical", "config")


@dataclass(frozen=True)
class RecordedTime:
    """One measured time on one device.

    Attributes:
        what: a variant, or a comparator's name.
        low_us, high_us: p20 and p80; the median itself where the spread was not kept.
        floor_us: an empty kernel in the same run and regime, which no launch goes below; None where it was not kept.
        identical: share of C's bf16 equal to the reference's; None where C is another product.
    """

    device: str
    what: str
    latency_us: float
    low_us: float
    high_us: float
    floor_us: float | None
    identical: float | None
    config_id: str = ""
    about: str = ""


class RecordedTimes:
    """Recorded times of a shape, fastest first per device; a table in a notebook and in a terminal.

    Attributes:
        missing: (device, what, reason) of what was to be compared and does not run there.
    """

    def __init__(self, shape: Shape, times: list[RecordedTime], missing: Sequence[tuple[str, str, str]] = ()) -> None:
        self.shape = shape
        self.times = sorted(times, key=lambda time: (time.device, time.latency_us))
        self.missing = sorted(missing)

    def rows(self) -> list[tuple[Any, ...]]:
        """A row per time, as `HEADERS` heads it; what each is stands in `notes`."""
        return [
            (
                time.device,
                time.what,
                time.latency_us,
                f"{time.low_us:.2f} to {time.high_us:.2f}",
                "" if time.floor_us is None else time.floor_us,
                str(Evidence.measured),
                "another product" if time.identical is None else f"{time.identical:.2%}",
                time.config_id,
            )
            for time in self.times
        ]

    def notes(self) -> dict[str, str]:
        """What -> what it does and does not do, for those that are not ours."""
        return {time.what: time.about for time in self.times if time.about}

    def __str__(self) -> str:
        if not self.times:
            return f"no recorded times of {self.shape}"
        failed = [(device, what, "", "does not run", *[""] * (len(HEADERS) - 4)) for device, what, _ in self.missing]
        lines = [display.text_table(HEADERS, [*self.rows(), *failed]), ""]
        lines += [f"{what}: {about}" for what, about in self.notes().items()]
        lines += [f"{what} does not run on {device}: {reason}" for device, what, reason in self.missing]
        return "\n".join(lines).rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.times:
            return display.card("Measured elsewhere", display.escape(str(self)))
        place = HEADERS.index("evidence") - 2
        notes = self.notes()
        rows: list[tuple[Any, ...]] = [
            (device, display.stacked(what, notes.get(what, "")), *row[:place],
             display.badge(row[place], str(Evidence.measured)), *row[place + 1 :])
            for device, what, *row in self.rows()
        ]  # fmt: skip
        for device, what, reason in self.missing:
            cell = display.stacked(display.badge(f"{what} does not run", "bad"), reason)
            rows.append((device, cell, *[""] * (len(HEADERS) - 2)))
        caption = "Times of the device named: they are not to be compared with predictions for another."
        return display.card(f"Measured elsewhere: {self.shape}", display.table(HEADERS, rows, caption))


def recorded_times(shape: Shape, folder: Path | None = None) -> RecordedTimes:
    """Every device's recorded times of a shape: its finals where there are any, else the best of each variant.

    Args:
        folder: holds a folder per device; ``data/recorded`` of the repository without it. None of it need exist.
    """
    folder = REPO_ROOT / "data" / "recorded" if folder is None else folder
    times: list[RecordedTime] = []
    missing: list[tuple[str, str, str]] = []
    for device in sorted(path for path in folder.glob("*") if path.is_dir()):
        best = _best_of_variants(device / "trials.jsonl", shape)
        name = best[0].device if best else device.name
        timed, failed = _finals(device / "finals.json", shape, name)
        times += timed or best
        missing += failed
    return RecordedTimes(shape, times, missing)


def _best_of_variants(path: Path, shape: Shape) -> list[RecordedTime]:
    best: dict[str, RecordedTime] = {}
    trials, _ = read_trials(path, shape) if path.exists() else ([], [])
    for trial in trials:
        if trial.evidence is not Evidence.measured or trial.status is not Status.ok or trial.latency_us is None:
            continue
        spread = trial.detail.get("timing")
        spread = spread if isinstance(spread, Mapping) else {}
        time = RecordedTime(
            trial.device, trial.variant, trial.latency_us, _number(spread.get("p20_us"), trial.latency_us),
            _number(spread.get("p80_us"), trial.latency_us), _number(spread.get("floor_us"), None),
            trial.bf16_identical, trial.config_id,
        )  # fmt: skip
        if trial.variant not in best or time.latency_us < best[trial.variant].latency_us:
            best[trial.variant] = time
    return list(best.values())


def _finals(path: Path, shape: Shape, device: str) -> tuple[list[RecordedTime], list[tuple[str, str, str]]]:
    """Times of a comparison and what did not run in it; nothing where the file is absent or not as expected."""
    try:
        if path.stat().st_size > MAX_FINALS_BYTES:
            return [], []
        found = json.loads(path.read_text(encoding="utf-8"))[str(shape)]
        times = [_final(name, timing, found, device) for name, timing in found["timings"].items()]
        return times, [(device, str(name), str(why)) for name, why in found.get("missing", {}).items()]
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return [], []


def _final(name: str, timing: Mapping[str, Any], found: Mapping[str, Any], device: str) -> RecordedTime:
    what, config_id, about = name, "", str(found.get("abouts", {}).get(name, ""))
    if name.isdigit():
        from mxfp4lab.config import GemmConfig

        plan = found["plans"][int(name)]
        what, config_id = str(plan["variant"]), GemmConfig.from_dict(plan["config"]).config_id
    identical = found.get("checks", {}).get(name)
    middle = float(timing["p50_us"])
    return RecordedTime(
        device, what, middle, float(timing["p20_us"]), float(timing["p80_us"]), _number(timing.get("floor_us"), None),
        None if identical is None else float(identical), config_id, about,
    )  # fmt: skip


def _number(value: Any, otherwise: float | None) -> Any:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise
