"""Timing on a device that keeps its own clock: order of events, stop rules, spreads, verdicts."""

import sys
from dataclasses import replace

import pytest
import torch

from mxfp4lab.gpu.device import DeviceInfo, overwrite_bytes, present_device
from mxfp4lab.gpu.timing import (
    StopRule,
    overwrites_needed,
    summarize,
    time_leaderboard,
    verdict,
)


class FakeDevice:
    """A GPU whose calls take the time they are told to."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def synchronize(self):
        self.log.append("synchronize")

    def overwrite(self):
        self.log.append("overwrite")
        self.now += 500.0

    def event(self):
        self.log.append("event")
        return self.now

    def elapsed_us(self, start, end):
        return end - start

    def call(self, name, *times):
        """A call that takes `times` in turn, the last one for ever after."""
        left = list(times)

        def run():
            self.log.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]
            return name

        return run


def test_caches_are_overwritten_before_the_start_event_and_one_call_lies_between_the_events():
    device = FakeDevice()
    time_leaderboard({"plan": device.call("plan", 9.0)}, device, StopRule(max_repeats=2, min_repeats=2))
    assert device.log == ["plan", "synchronize"] + 2 * [
        "synchronize", "overwrite", "event", "plan", "event", "synchronize"]  # fmt: skip


def test_the_overwrite_is_repeated_until_it_hides_the_host_s_share_of_a_slow_call(monkeypatch):
    device, now = FakeDevice(), [0.0]
    monkeypatch.setattr("mxfp4lab.gpu.timing.time.perf_counter", lambda: now[0])

    def call(host_us):
        def run():
            now[0] += host_us * 1e-6

        return run

    calls = {"quick": call(20), "slow": call(1300), "endless": call(1e6)}
    needed = overwrites_needed(calls, device)  # an overwrite lasts 500 us here
    assert needed == {"quick": 1, "slow": 6, "endless": 64}
    device.log.clear()
    time_leaderboard({"slow": lambda: None}, device, StopRule(max_repeats=3, min_repeats=3), overwrites=needed)
    assert device.log.count("overwrite") == 18


def test_finalists_take_turns_and_the_order_turns():
    device = FakeDevice()
    calls = {name: device.call(name, 9.0) for name in "ab"}
    time_leaderboard(calls, device, StopRule(max_repeats=3, min_repeats=3))
    assert "".join(entry for entry in device.log if entry in "ab") == "ab" + "ab" + "ba" + "ab"


def test_percentiles_come_from_the_samples_and_the_warm_up_is_none_of_them():
    device = FakeDevice()
    call = device.call("plan", 1000.0, *[float(us) for us in range(1, 12)])
    timing = time_leaderboard({"plan": call}, device, StopRule(max_repeats=11), floor_us=5.8)["plan"]
    assert (timing.n, timing.min_us, timing.p20_us, timing.p50_us, timing.p80_us, timing.max_us) == (11, 1, 3, 6, 9, 11)
    assert timing.mean_us == 6 and timing.floor_us == 5.8 and timing.stopped_by == "repeats"


@pytest.mark.parametrize(
    ("samples", "wall_s", "reason"),
    [
        ([10.0, 10.0], 0, None),  # fewer than three
        ([10.0, 10.0, 10.0], 0, "precision"),
        ([10.0, 12.0, 11.0], 0, None),
        ([10.0, 12.0] * 50, 0, "repeats"),
        ([31e6], 0, "kernel time"),
        ([10.0], 121, "wall time"),
        ([], 121, None),  # at least one
    ],
)
def test_the_stop_rule_of_the_task(samples, wall_s, reason):
    assert StopRule(max_repeats=100, kernel_seconds=30.0).reason(samples, wall_s) == reason


@pytest.mark.parametrize("field", [{"max_repeats": 0}, {"min_repeats": 9, "max_repeats": 3}, {"rel_error": 0.0}])
def test_a_senseless_stop_rule_is_refused_by_name(field):
    with pytest.raises(ValueError, match=next(iter(field))):
        StopRule(**field)


def test_a_call_that_is_precise_leaves_and_the_others_go_on():
    device = FakeDevice()
    calls = {"steady": device.call("steady", 10.0), "noisy": device.call("noisy", *[10.0, 14.0] * 20)}
    timings = time_leaderboard(calls, device, StopRule(max_repeats=20))
    assert (timings["steady"].n, timings["steady"].stopped_by) == (3, "precision")
    assert (timings["noisy"].n, timings["noisy"].stopped_by) == (20, "repeats")


def test_the_overwrite_is_sized_from_the_device():
    def info(cache_mib, memory_gib):
        return DeviceInfo(0, "x", "gfx950", 256, memory_gib << 30, cache_mib << 20)

    assert overwrite_bytes(info(60, 140)) == 1 << 30  # at least 1 GiB
    assert overwrite_bytes(info(512, 288)) == 2 << 30  # four caches
    assert overwrite_bytes(info(60, 2)) == 1 << 29  # at most a quarter of the memory


def _timing(low, high, regime="leaderboard"):
    samples = [low + (high - low) * step / 10 for step in range(11)]
    return replace(summarize(samples, "repeats"), regime=regime)


def test_a_winner_needs_separate_intervals():
    said = verdict({"b": _timing(12, 13), "a": _timing(10, 11)}, len)
    assert (said.kind, said.order) == ("winner", ("a", "b"))


def test_a_tie_prefers_the_simpler():
    timings = {"fast": _timing(10, 11), "simple": _timing(10.2, 11.2), "slow": _timing(20, 21)}
    said = verdict(timings, simplicity={"fast": 9, "simple": 1, "slow": 0}.get)
    assert (said.kind, said.order) == ("tie", ("simple", "fast", "slow"))


def test_regimes_are_not_compared():
    with pytest.raises(ValueError, match="mix regimes kernel, leaderboard"):
        verdict({"a": _timing(10, 11), "b": _timing(10, 11, "kernel")}, len)
    with pytest.raises(ValueError, match="at least one finalist"):
        verdict({}, len)


def test_the_device_s_name_is_empty_without_a_gpu_and_asked_of_torch_where_nvml_is_not(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert present_device() == ""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert present_device() == "GPU 0"
