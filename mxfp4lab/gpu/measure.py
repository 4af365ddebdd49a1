"""What a worker process does with its GPU: check a plan's C, time it, compare finalists.

Every function here takes and returns JSON values, because it is called across a process boundary. Inputs, reference
and floor of the last shapes and seeds are kept in the process: the next config of the same search needs them again.
They belong to the measurement; a runner is made anew for every config.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mxfp4lab.config import GemmConfig
from mxfp4lab.gfx950 import CompileError
from mxfp4lab.gpu import REGIME
from mxfp4lab.gpu.device import TorchDevice, device_info, read_clocks
from mxfp4lab.gpu.execute import PlanRunner, on_device
from mxfp4lab.gpu.timing import StopRule, Timing, overwrites_needed, time_leaderboard, verdict
from mxfp4lab.plan import build_plan
from mxfp4lab.shapes import Shape, parse_shape

FIRST_LOOK = StopRule(max_repeats=30, min_repeats=10, rel_error=2e-3, kernel_seconds=5.0, wall_seconds=20.0)
FINAL = StopRule(max_repeats=200, min_repeats=100, rel_error=1e-3, kernel_seconds=20.0, wall_seconds=60.0)
MAX_BENCHES = 8


@dataclass
class Bench:
    """What is needed to judge plans on one shape and seed."""

    shape: Shape
    seed: int
    inputs: dict[str, Any]
    reference: Any
    needed: float
    device: Any
    floor_us: float | None = None


_benches: dict[tuple[Shape, int], Bench] = {}


def describe_device(index: int = 0) -> dict[str, Any]:
    """The GPU of this process, as `DeviceInfo`'s fields, and its clocks."""
    return {**device_info(index).to_dict(), "clocks": read_clocks(index)}


def measure_plan(
    variant: str, config: dict[str, Any], shape: str, arch: str, seed: int, rule: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Check one plan's C on the task's inputs, then time it.

    Args:
        variant, config, shape, arch: of the plan.
        seed: of the inputs, drawn by the CPU's generator.
        rule: fields of `StopRule`; `FIRST_LOOK` without it.

    Returns:
        fields of a measured Trial: status ("ok", "incorrect", "screened", "compile_error"), reason, regime, verified,
        bf16_identical, latency_us (the median), detail.
    """
    bench = _bench_for(parse_shape(shape), seed)
    call, fields = _right_call(variant, config, arch, bench)
    if call is None:
        return fields
    if bench.floor_us is None:
        null = {"null": bench.device.null_call()}
        bench.floor_us = time_leaderboard(null, bench.device, replace(FIRST_LOOK, max_repeats=100))["null"].p50_us
    stop = StopRule(**rule) if rule else FIRST_LOOK
    timing = time_leaderboard({"plan": call}, bench.device, stop, floor_us=bench.floor_us)["plan"]
    again = _check_again(call, bench, timing)
    if again["status"] != "ok":
        return again
    spread = {name: round(value, 4) if isinstance(value, float) else value for name, value in timing.to_dict().items()}
    detail = {"timing": spread, "statistic": "p50", "clocks": read_clocks(bench.device.info.index),
              "overwrite_bytes": bench.device.overwrite_bytes}  # fmt: skip
    return {**again, "latency_us": timing.p50_us, "detail": detail}


def compare_plans(
    plans: Sequence[dict[str, Any]], shape: str, arch: str, seed: int, comparators: bool = False,
    rule: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Time finalists alternately under the leaderboard protocol, with an empty kernel and comparators between them.

    A plan whose C is wrong before or after the timed calls has no time and no place in the verdict.

    Args:
        plans: {"variant", "config"} each.
        shape, arch, seed: as in `measure_plan`.
        comparators: also time what is not ours.
        rule: fields of `StopRule`; `FINAL` without it.

    Returns:
        timings (plan number or comparator name -> `Timing`'s fields), checks (the same -> identical share), wrong (plan
        number -> why it has no time), floor_us, verdict over the right plans (kind, order of plan numbers, message;
        None if there is none), missing comparators with reasons, clocks, overwrites (comparator -> how often the caches
        were overwritten before each repeat, to hide its host time).
    """
    bench = _bench_for(parse_shape(shape), seed)
    calls: dict[str, Callable[[], Any]] = {}
    checks: dict[str, float | None] = {}
    abouts: dict[str, str] = {}
    wrong: dict[str, str] = {}
    for number, entry in enumerate(plans):
        call, fields = _right_call(entry["variant"], entry["config"], arch, bench)
        checks[str(number)] = fields.get("bf16_identical")
        if call is None:
            wrong[str(number)] = f"{fields['status']}: {fields['reason']}"
        else:
            calls[str(number)] = call
    missing: dict[str, str] = {}
    if comparators:
        from mxfp4lab.gpu.comparators import available_comparators
        from mxfp4lab.task import check_output

        found, missing = available_comparators(bench.shape, bench.inputs)
        for comparator in found:
            calls[comparator.name] = comparator.call
            abouts[comparator.name] = comparator.about
            checks[comparator.name] = None
            if comparator.same_task:
                checks[comparator.name] = check_output(comparator.call(), bench.reference).bf16_identical_fraction
    calls["null_launch"] = bench.device.null_call()
    # Ours are issued with little host work; a foreign library's front end may take longer than one overwrite hides.
    foreign = {name: call for name, call in calls.items() if name in abouts}
    overwrites = overwrites_needed(foreign, bench.device)
    timings = time_leaderboard(calls, bench.device, StopRule(**rule) if rule else FINAL, overwrites=overwrites)
    floor = timings.pop("null_launch").p50_us
    for name in [name for name in timings if name.isdigit()]:
        again = _check_again(calls[name], bench, timings[name])
        if again["status"] != "ok":
            checks[name], wrong[name] = again["bf16_identical"], f"{again['status']}: {again['reason']}"
            del timings[name]
    ours = {name: timing for name, timing in timings.items() if name.isdigit()}
    # Fewer axes off their defaults is simpler; among equals the faster comes first.
    said = verdict(ours, lambda name: len(GemmConfig.from_dict(plans[int(name)]["config"]).changes())) if ours else None
    return {
        "timings": {name: replace(timing, floor_us=floor).to_dict() for name, timing in timings.items()},
        "checks": checks,
        "wrong": wrong,
        "abouts": abouts,
        "missing": missing,
        "floor_us": floor,
        "verdict": said and {"kind": said.kind, "order": [int(name) for name in said.order], "message": said.message},
        "clocks": read_clocks(bench.device.info.index),
        "overwrite_bytes": bench.device.overwrite_bytes,
        "overwrites": overwrites,
    }


def _bench_for(shape: Shape, seed: int) -> Bench:
    """Inputs and reference of a shape and seed, of the last `MAX_BENCHES` asked for; one device for all."""
    key = (shape, seed)
    bench = _benches.pop(key, None)
    if bench is None:
        from mxfp4lab.task import input_dict, needed_identical, reference_output

        device = next((other.device for other in _benches.values()), None) or TorchDevice(0)
        inputs = on_device(input_dict(shape, seed))
        data = tuple(inputs.values())
        bench = Bench(shape, seed, inputs, reference_output(data), needed_identical(data), device)
        while len(_benches) >= MAX_BENCHES:
            _benches.pop(next(iter(_benches)))
    _benches[key] = bench
    return bench


def _right_call(
    variant: str, config: dict[str, Any], arch: str, bench: Bench
) -> tuple[Callable[[], Any] | None, dict[str, Any]]:
    """A call of the plan and its passed check, or None and why there is none."""
    plan = build_plan(variant, GemmConfig.from_dict(config), bench.shape, arch)
    try:
        call = PlanRunner(plan).bind(bench.inputs)
    except CompileError as error:
        if error.kind == "lds":
            return None, {"status": "screened", "reason": f"lds: {error}", "regime": REGIME}
        return None, {"status": "compile_error", "reason": str(error), "regime": REGIME}
    fields = _check(call, bench)
    return (call if fields["status"] == "ok" else None), fields


def _check(call: Callable[[], Any], bench: Bench) -> dict[str, Any]:
    """Compare C with the reference; memory that the output may get is filled with NaN first, so that no element goes
    unwritten unseen."""
    import torch

    from mxfp4lab.task import check_output

    poison = torch.full(bench.reference.shape, float("nan"), dtype=torch.bfloat16, device=bench.reference.device)
    del poison
    c = call()
    bench.device.synchronize()
    found = check_output(c, bench.reference)
    share = found.bf16_identical_fraction
    right = share >= bench.needed
    reason = "" if right else found.message
    return {"status": "ok" if right else "incorrect", "reason": reason, "regime": REGIME, "verified": "gpu",
            "bf16_identical": share}  # fmt: skip


def _check_again(call: Callable[[], Any], bench: Bench, timing: Timing) -> dict[str, Any]:
    """The check once more after many calls: a race or a workspace left dirty shows here."""
    fields = _check(call, bench)
    if fields["status"] != "ok":
        fields["reason"] = f"right at first, wrong after {timing.n} timed calls: {fields['reason']}"
    return fields
