"""How long a call takes on the GPU: two regimes, one floor, and what may be called a winner.

- ``leaderboard``: the task's protocol. Per repeat: synchronize; overwrite the caches; record an event; call; record an
  event; synchronize. The overwrite is queued before the start event, so the GPU is still busy while the host issues the
  call, and host launch cost is hidden. Every call finds cold caches. A search keeps its inputs from repeat to repeat,
  as the task's benchmark mode does; `before_repeat` can draw new ones, and the ranked mode of `check` does.
- ``kernel``: calls back to back between two events, over inputs that together exceed the last-level cache, so that no
  call finds its own inputs there. Launch gaps that the GPU sees are in the figure. The calls can be captured in a graph
  and replayed; an option only, because graph capture has crashed on some ROCm releases.

The device is passed in, so everything here but `device.TorchDevice` runs, and is tested, without a GPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

REGIMES = ("leaderboard", "kernel")


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
            mean = sum(samples_us) / n
            variance = sum((x - mean) ** 2 for x in samples_us) / (n - 1)
            if mean > 0 and math.sqrt(variance / n) / mean < self.rel_error:
                return "precision"
        return None


TASK_LEADERBOARD = StopRule(max_repeats=100, kernel_seconds=30.0)


@dataclass(frozen=True)
class Timing:
    """Repeats of one call, in microseconds.

    Attributes:
        regime: of `REGIMES`.
        n: repeats; mean_us, std_us, min_us, p20_us, p50_us, p80_us, max_us: over them (std with n - 1).
        stopped_by: see `StopRule.reason`.
        floor_us: p50 of an empty kernel, measured in the same run, in the same regime; None if not measured.
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


def quantile(sorted_values: Sequence[float], q: float) -> float:
    """The q-quantile (0..1) of ascending values, linear between neighbours."""
    if not sorted_values:
        raise ValueError("quantile of no values")
    position = q * (len(sorted_values) - 1)
    low = math.floor(position)
    high = min(low + 1, len(sorted_values) - 1)
    return sorted_values[low] + (sorted_values[high] - sorted_values[low]) * (position - low)


def summarize(samples_us: Sequence[float], regime: str, stopped_by: str, floor_us: float | None = None) -> Timing:
    """A `Timing` of raw samples."""
    ordered = sorted(samples_us)
    n = len(ordered)
    mean = sum(ordered) / n
    std = math.sqrt(sum((x - mean) ** 2 for x in ordered) / (n - 1)) if n > 1 else 0.0
    return Timing(
        regime,
        n,
        mean,
        std,
        ordered[0],
        quantile(ordered, 0.2),
        quantile(ordered, 0.5),
        quantile(ordered, 0.8),
        ordered[-1],
        stopped_by,
        floor_us,
    )


def time_leaderboard(
    calls: Mapping[str, Callable[[], Any]],
    device: TimedDevice,
    rule: StopRule = TASK_LEADERBOARD,
    *,
    before_repeat: Callable[[int], None] | None = None,
    after_call: Callable[[str, Any], None] | None = None,
    floor_us: float | None = None,
    overwrites: Mapping[str, int] | None = None,
) -> dict[str, Timing]:
    """Cold-cache times of several calls, interleaved: one repeat of each in turn, the order turned every round.

    Interleaving makes drifts of clock and temperature fall on all of them alike. A call that has met its stop rule
    leaves the round.

    Args:
        calls: name to a call without arguments; each is called once, untimed, before its first repeat.
        before_repeat: called with the round's number before it, outside the events (new inputs, say).
        after_call: called with name and result behind the closing synchronize (a check of the output, say).
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
        if before_repeat is not None:
            before_repeat(round_number)
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
            if after_call is not None:
                after_call(name, result)
            del result
            # Every call has had the same wall time to itself only if the round's is shared out.
            wall = (time.monotonic() - started) / len(calls)
            reason = rule.reason(samples[name], wall)
            if reason is not None:
                stopped[name] = reason
        round_number += 1
    return {name: summarize(samples[name], "leaderboard", stopped[name], floor_us) for name in calls}


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
        host_us = sorted(taken)[len(taken) // 2]
        needed[name] = max(1, min(most, math.ceil(margin * host_us / max(min(lasts), 1.0))))
    return needed


def time_kernel(
    calls: Sequence[Callable[[], Any]],
    device: TimedDevice,
    *,
    batches: int = 20,
    graph: Callable[[Callable[[], None]], Callable[[], None]] | None = None,
    floor_us: float | None = None,
) -> Timing:
    """Back-to-back time of one implementation over a rotation of inputs.

    Args:
        calls: the same implementation bound to different inputs; together they should exceed the last-level cache
            (`rotations` says how many that takes). One batch runs each once.
        batches: number of timed batches; a sample is a batch's time over its number of calls.
        graph: captures a function into a graph and returns its replay (`TorchDevice.capture`); None issues the calls.
    """
    if not calls:
        raise ValueError("calls is empty; give the implementation bound to at least one input")
    if batches < 1:
        raise ValueError(f"batches={batches!r} must be at least 1")

    def batch() -> None:
        for call in calls:
            call()

    batch()
    device.synchronize()
    issue = graph(batch) if graph is not None else batch
    samples = []
    for _ in range(batches):
        device.synchronize()
        # The first launch of a batch must find a busy queue, or the host's launch time leaks into the sample.
        device.overwrite()
        start = device.event()
        issue()
        end = device.event()
        device.synchronize()
        samples.append(device.elapsed_us(start, end) / len(calls))
    return summarize(samples, "kernel", "repeats", floor_us)


def rotations(input_bytes: int, cache_bytes: int, most: int = 256) -> int:
    """How many copies of the inputs exceed twice the last-level cache: `time_kernel`'s rotation."""
    return max(1, min(most, -(-2 * cache_bytes // max(1, input_bytes))))


@dataclass(frozen=True)
class Verdict:
    """Who won among finalists measured in one interleaved run.

    Attributes:
        kind: "winner" if one interval [p20, p80] lies below all others, else "tie".
        name: the winner, or the one preferred among the tied.
        tied: all names whose interval overlaps the fastest one's, fastest first.
        message: one line.
    """

    kind: str
    name: str
    tied: tuple[str, ...]
    message: str


def verdict(timings: Mapping[str, Timing], simplicity: Callable[[str], Any] | None = None) -> Verdict:
    """A winner where intervals separate, otherwise a tie, in which the simplest is preferred.

    Args:
        timings: finalists of one interleaved run, one regime.
        simplicity: sort key of a name, smaller is simpler; None takes the fastest median.

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
    tied = tuple(name for name in order if timings[name].p20_us <= best.p80_us)
    if len(tied) == 1:
        return Verdict("winner", order[0], tied, f"winner {order[0]}: p50 {best.p50_us:.2f} us, intervals separate")
    chosen = min(tied, key=simplicity) if simplicity is not None else order[0]
    return Verdict(
        "tie",
        chosen,
        tied,
        f"tie of {len(tied)} within p20..p80 of {order[0]} ({best.p50_us:.2f} us); "
        f"{chosen} is preferred" + (" as the simplest" if simplicity is not None else ""),
    )


@dataclass(frozen=True)
class Comparison:
    """Finalists timed alternately in one go.

    Attributes:
        order: indices into the plans, best first; of plans that cannot be told apart the simpler config first.
        separate: whether the best's interval lies below every other's; else the result is a tie.
        latency_us: per plan, in the plans' order.
        detail: spreads and whatever else belongs into the records.
    """

    order: tuple[int, ...]
    separate: bool
    latency_us: tuple[float, ...]
    detail: dict[str, Any] = field(default_factory=dict)
