"""How long a call takes on the GPU in the task's regime, and what may be called a winner.

Regime ``leaderboard``. Per repeat: synchronize; overwrite the caches; record an event; call; record an event;
synchronize. The overwrite is queued before the start event, so the GPU is still busy while the host issues the call,
and host launch cost is hidden. Every call finds cold caches. Inputs stay from repeat to repeat, as in the task's
benchmark mode.

The device is passed in, so everything here runs, and is tested, without a GPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from mxfp4lab.gpu import REGIME


class TimedDevice(Protocol):
    """What timing needs of a GPU."""

    def synchronize(self) -> None: ...

    def overwrite(self) -> None: ...

    def event(self) -> Any: ...

    def elapsed_us(self, start: Any, end: Any) -> float: ...


@dataclass(frozen=True)
class StopRule:
    """When to stop repeating a call.

    Attributes:
        max_repeats: never more than this (the task: 1000 in benchmark mode, 100 in leaderboard mode).
        min_repeats: never fewer, unless a limit of time strikes first (the task: 3).
        rel_error: stop once standard error / mean falls below this (the task: 0.001).
        kernel_seconds: stop after this much time inside the events (the task: 50, ranked 30).
        wall_seconds: stop after this much time on the wall (the task: 120).
    """

    max_repeats: int = 100
    min_repeats: int = 3
    rel_error: float = 1e-3
    kernel_seconds: float = 30.0
    wall_seconds: float = 120.0

    def __post_init__(self) -> None:
        for name in ("max_repeats", "min_repeats"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)!r} must be an integer of at least 1")
        if self.min_repeats > self.max_repeats:
            raise ValueError(f"min_repeats={self.min_repeats} must not exceed max_repeats={self.max_repeats}")
        for name in ("rel_error", "kernel_seconds", "wall_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)!r} must be positive")

    def reason(self, samples_us: Sequence[float], wall_s: float) -> str | None:
        """Why to stop now, or None: "repeats", "precision", "kernel time" or "wall time"."""
        n = len(samples_us)
        if n >= self.max_repeats:
            return "repeats"
        if n and sum(samples_us) * 1e-6 > self.kernel_seconds:
            return "kernel time"
        if n and wall_s > self.wall_seconds:
            return "wall time"
        if n >= max(2, self.min_repeats):
            mean = np.mean(samples_us)
            if mean > 0 and np.std(samples_us, ddof=1) / math.sqrt(n) / mean < self.rel_error:
                return "precision"
        return None


@dataclass(frozen=True)
class Timing:
    """Repeats of one call, in microseconds.

    Attributes:
        regime: of the times.
        n: repeats; mean_us, std_us, min_us, p20_us, p50_us, p80_us, max_us: over them (std with n - 1).
        stopped_by: see `StopRule.reason`.
        floor_us: p50 of an empty kernel, measured in the same run; None if not measured.
    """

    regime: str
    n: int
    mean_us: float
    std_us: float
    min_us: float
    p20_us: float
    p50_us: float
    p80_us: float
    max_us: float
    stopped_by: str
    floor_us: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain data."""
        return asdict(self)


def summarize(samples_us: Sequence[float], stopped_by: str, floor_us: float | None = None) -> Timing:
    """A `Timing` of raw samples."""
    least, p20, p50, p80, most = map(float, np.quantile(samples_us, (0, 0.2, 0.5, 0.8, 1)))
    std = float(np.std(samples_us, ddof=1)) if len(samples_us) > 1 else 0.0
    mean = float(np.mean(samples_us))
    return Timing(REGIME, len(samples_us), mean, std, least, p20, p50, p80, most, stopped_by, floor_us)


def time_leaderboard(
    calls: Mapping[str, Callable[[], Any]],
    device: TimedDevice,
    rule: StopRule,
    *,
    floor_us: float | None = None,
    overwrites: Mapping[str, int] | None = None,
) -> dict[str, Timing]:
    """Cold-cache times of several calls, interleaved: one repeat of each in turn, the order turned every round.

    Interleaving makes drifts of clock and temperature fall on all of them alike. A call that has met its stop rule
    leaves the round.

    Args:
        calls: name to a call without arguments; each is called once, untimed, before its first repeat.
        floor_us: recorded with every result.
        overwrites: name to how often the caches are overwritten before each of its repeats, see `overwrites_needed`;
            once without it.

    Returns:
        name to `Timing`.
    """
    if not calls:
        raise ValueError("calls is empty; name at least one call to time")
    for call in calls.values():
        call()
    device.synchronize()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    stopped: dict[str, str] = {}
    started = time.monotonic()
    round_number = 0
    while len(stopped) < len(calls):
        names = [name for name in calls if name not in stopped]
        turn = round_number % len(names)
        for name in names[turn:] + names[:turn]:
            device.synchronize()
            for _ in range((overwrites or {}).get(name, 1)):
                device.overwrite()
            start = device.event()
            result = calls[name]()
            end = device.event()
            device.synchronize()
            samples[name].append(device.elapsed_us(start, end))
            del result
            # Every call has had the same wall time to itself only if the round's is shared out.
            reason = rule.reason(samples[name], (time.monotonic() - started) / len(calls))
            if reason is not None:
                stopped[name] = reason
        round_number += 1
    return {name: summarize(samples[name], stopped[name], floor_us) for name in calls}


def overwrites_needed(
    calls: Mapping[str, Callable[[], Any]], device: TimedDevice, *, margin: float = 2.0, most: int = 64
) -> dict[str, int]:
    """How many overwrites keep the GPU busy for longer than the host takes to issue each call.

    A call of several launches through a slow front end outlasts a single overwrite, and its time would be the host's.
    (The task's own overwrite takes some 15 ms.)

    Args:
        calls: name to a call without arguments; each is made five times.
        margin: times the median of the host's time.
        most: never more than this.
    """
    lasts = []
    for _ in range(3):
        device.synchronize()
        start = device.event()
        device.overwrite()
        end = device.event()
        device.synchronize()
        lasts.append(device.elapsed_us(start, end))
    needed = {}
    for name, call in calls.items():
        taken = []
        for _ in range(5):
            device.synchronize()
            began = time.perf_counter()
            call()
            taken.append(1e6 * (time.perf_counter() - began))
        device.synchronize()
        needed[name] = max(1, min(most, math.ceil(margin * float(np.median(taken)) / max(min(lasts), 1.0))))
    return needed


@dataclass(frozen=True)
class Verdict:
    """Who won among finalists measured in one interleaved run.

    Attributes:
        kind: "winner" if one interval [p20, p80] lies below all others, else "tie".
        order: all names: the winner, or the one preferred among the tied, then the tied, then the others by median.
        message: one line.
    """

    kind: str
    order: tuple[str, ...]
    message: str


def verdict(timings: Mapping[str, Timing], simplicity: Callable[[str], Any]) -> Verdict:
    """A winner where intervals separate, otherwise a tie, in which the simplest is preferred.

    Args:
        timings: finalists of one interleaved run, one regime.
        simplicity: sort key of a name, smaller is simpler.

    Raises:
        ValueError: no finalists, or regimes mixed.
    """
    if not timings:
        raise ValueError("timings is empty; a verdict needs at least one finalist")
    regimes = {timing.regime for timing in timings.values()}
    if len(regimes) > 1:
        raise ValueError(f"timings mix regimes {', '.join(sorted(regimes))}; compare within one")
    order = sorted(timings, key=lambda name: timings[name].p50_us)
    best = timings[order[0]]
    tied = [name for name in order if timings[name].p20_us <= best.p80_us]
    if len(tied) == 1:
        message = f"winner {order[0]}: p50 {best.p50_us:.2f} us, intervals separate"
        return Verdict("winner", tuple(order), message)
    chosen = min(tied, key=simplicity)
    within = f"within p20..p80 of {order[0]} ({best.p50_us:.2f} us)"
    message = f"tie of {len(tied)} {within}; {chosen} is preferred as the simplest"
    others = [name for name in order if name != chosen]
    return Verdict("tie", (chosen, *sorted(others, key=lambda name: name not in tied)), message)
