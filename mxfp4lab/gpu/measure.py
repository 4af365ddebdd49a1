"""What a worker process does with its GPU: check a plan's C, time it, compare finalists.

Every function here takes and returns JSON values, because it is called across a process boundary. Inputs, reference
and floor of the last shapes and seeds are kept in the process: the next config of the same search needs them again.
They belong to the measurement; a runner is made anew for every config.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mxfp4lab.config import GemmConfig
from mxfp4lab.gfx950 import CompileError
from mxfp4lab.gpu.clocks import read_clocks
from mxfp4lab.gpu.timing import (
    REGIMES,
    StopRule,
    Timing,
    overwrites_needed,
    rotations,
    time_kernel,
    time_leaderboard,
    verdict,
)
from mxfp4lab.plan import Plan, build_plan
from mxfp4lab.shapes import Shape, parse_shape

IDENTICAL_WHERE_INEXACT = 0.999
"""Share of identical bf16 to ask for where fp32 sums round, so that their order shows; 1.0 where they are exact."""
FIRST_LOOK = StopRule(max_repeats=30, min_repeats=10, rel_error=2e-3, kernel_seconds=5.0, wall_seconds=20.0)
FINAL = StopRule(max_repeats=200, min_repeats=100, rel_error=1e-3, kernel_seconds=20.0, wall_seconds=60.0)


@dataclass
class Bench:
    """What is needed to judge plans on one shape and seed."""

    shape: Shape
    seed: int
    inputs: dict[str, Any]
    reference: Any
    needed: float
    device: Any
    floors: dict[str, float] = field(default_factory=dict)


MAX_BENCHES = 8
_benches: dict[tuple[Shape, int], Bench] = {}


def describe_device(index: int = 0) -> dict[str, Any]:
    """The GPU of this process, as `DeviceInfo`'s fields, and its clocks."""
    from mxfp4lab.gpu.device import device_info

    return {**device_info(index).to_dict(), "clocks": read_clocks(index)}


def measure_plan(
    variant: str, config: dict[str, Any], shape: str, arch: str, seed: int, regime: str = "leaderboard",
    launch: str = "direct", rule: dict[str, Any] | None = None, graph: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Check one plan's C on the task's inputs, then time it.

    Args:
        variant, config, shape, arch: of the plan.
        seed: of the inputs, drawn by the CPU's generator.
        regime: "leaderboard" or "kernel".
        launch: "direct" or "jit".
        rule: fields of `StopRule`; `FIRST_LOOK` without it.
        graph: in regime "kernel": replay a captured graph instead of issuing every call.

    Returns:
        fields of a measured Trial: status ("ok", "incorrect", "screened", "compile_error"), reason, verified,
        bf16_identical, latency_us (the median), regime, detail.
    """
    if regime not in REGIMES:
        raise ValueError(f"regime={regime!r} is unknown; allowed: {', '.join(REGIMES)}")
    bench = _bench_for(parse_shape(shape), seed)
    plan = build_plan(variant, GemmConfig.from_dict(config), bench.shape, arch)
    try:
        call = _runner(plan, bench, launch)
    except CompileError as error:
        if error.kind == "lds":
            return {"status": "screened", "reason": f"lds: {error}"}
        return {"status": "compile_error", "reason": str(error)}
    wrong = _check(call, bench)
    if wrong["status"] != "ok":
        return wrong
    if regime == "leaderboard":
        stop = StopRule(**rule) if rule else FIRST_LOOK
        timing = time_leaderboard({"plan": call}, bench.device, stop, floor_us=_floor(bench, regime))["plan"]
    else:
        capture = bench.device.capture if graph else None
        timing = time_kernel(_rotated(plan, bench, launch), bench.device, graph=capture, floor_us=_floor(bench, regime))
    # Once more after many calls: a race or a workspace left dirty shows here.
    again = _check(call, bench)
    if again["status"] != "ok":
        return {**again, "reason": f"right at first, wrong after {timing.n} timed calls: {again['reason']}"}
    detail = {**_detail(timing, bench, launch), **({"graph": True} if graph and regime == "kernel" else {})}
    return {**again, "latency_us": timing.p50_us, "regime": regime, "detail": detail}


def compare_plans(
    plans: Sequence[dict[str, Any]], shape: str, arch: str, seed: int, launch: str = "direct",
    comparators: bool = False, rule: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Time finalists alternately under the leaderboard protocol, with an empty kernel and comparators between them.

    Args:
        plans: {"variant", "config"} each.
        shape, arch, seed, launch: as in `measure_plan`.
        comparators: also time what is not ours.
        rule: fields of `StopRule`; `FINAL` without it.

    Returns:
        timings (plan number or comparator name -> `Timing`'s fields), checks (the same -> identical share), floor_us,
        verdict over the plans (kind, order of plan numbers, message), missing comparators with reasons, clocks,
        overwrites (comparator -> how often the caches were overwritten before each repeat, to hide its host time).
    """
    bench = _bench_for(parse_shape(shape), seed)
    calls: dict[str, Callable[[], Any]] = {}
    checks: dict[str, float | None] = {}
    abouts: dict[str, str] = {}
    for number, entry in enumerate(plans):
        plan = build_plan(entry["variant"], GemmConfig.from_dict(entry["config"]), bench.shape, arch)
        calls[str(number)] = call = _runner(plan, bench, launch)
        checks[str(number)] = _check(call, bench)["bf16_identical"]
    missing: dict[str, str] = {}
    if comparators:
        from mxfp4lab.gpu.comparators import available_comparators

        found, missing = available_comparators(bench.shape, bench.inputs)
        for comparator in found:
            calls[comparator.name] = comparator.call
            abouts[comparator.name] = comparator.about
            checks[comparator.name] = _identical(comparator.call(), bench) if comparator.same_task else None
    calls["null_launch"] = bench.device.null_call()
    stop = StopRule(**rule) if rule else FINAL
    # Ours are issued with little host work; a foreign library's front end may take longer than one overwrite hides.
    foreign = {name: call for name, call in calls.items() if name in abouts}
    overwrites = overwrites_needed(foreign, bench.device) if foreign else {}
    timings = time_leaderboard(calls, bench.device, stop, overwrites=overwrites)
    floor = timings.pop("null_launch").p50_us
    timings = {name: replace(timing, floor_us=floor) for name, timing in timings.items()}
    ours = {name: timing for name, timing in timings.items() if name.isdigit()}
    said = verdict(ours, lambda name: _simplicity(plans[int(name)])) if ours else None
    order = [] if said is None else _order(said.name, said.tied, ours)
    return {
        "timings": {name: timing.to_dict() for name, timing in timings.items()},
        "checks": checks,
        "abouts": abouts,
        "missing": missing,
        "floor_us": floor,
        "verdict": None if said is None else {"kind": said.kind, "order": order, "message": said.message},
        "clocks": read_clocks(bench.device.info.index),
        "overwrite_bytes": bench.device.overwrite_bytes,
        "overwrites": overwrites,
    }


def run_plan(
    variant: str, config: dict[str, Any], shape: str, arch: str, seed: int, launch: str = "direct", repeats: int = 1
) -> dict[str, Any]:
    """Only execute a plan, checked: what a profiler is put around."""
    bench = _bench_for(parse_shape(shape), seed)
    call = _runner(build_plan(variant, GemmConfig.from_dict(config), bench.shape, arch), bench, launch)
    for _ in range(repeats - 1):
        call()
    return _check(call, bench)


def _bench_for(shape: Shape, seed: int) -> Bench:
    """Inputs and reference of a shape and seed, of the last `MAX_BENCHES` asked for; one device for all."""
    key = (shape, seed)
    bench = _benches.pop(key, None)
    if bench is None:
        from mxfp4lab.gpu.device import TorchDevice
        from mxfp4lab.gpu.execute import on_device
        from mxfp4lab.task import input_dict

        device = next((other.device for other in _benches.values()), None) or TorchDevice(0)
        inputs = on_device(input_dict(shape, seed))
        reference, needed = _judgement(inputs)
        bench = Bench(shape, seed, inputs, reference, needed, device)
        while len(_benches) >= MAX_BENCHES:
            _benches.pop(next(iter(_benches)))
    _benches[key] = bench
    return bench


def _judgement(inputs: dict[str, Any]) -> tuple[Any, float]:
    """The reference C, and the share of identical bf16 that is asked for."""
    from mxfp4lab.task import input_sum_bits, reference_output

    data = tuple(inputs.values())
    return reference_output(data), 1.0 if float(input_sum_bits(data)) <= 24 else IDENTICAL_WHERE_INEXACT


def _runner(plan: Plan, bench: Bench, launch: str) -> Callable[[], Any]:
    from mxfp4lab.gpu.execute import PlanRunner

    return PlanRunner(plan, launch=launch).bind(bench.inputs)


def _rotated(plan: Plan, bench: Bench, launch: str) -> list[Callable[[], Any]]:
    """The plan bound to copies of its inputs that together exceed the last-level cache."""
    size = sum(buffer.nbytes for buffer in plan.buffers if buffer.role == "input" and buffer.name != "b")
    copies = rotations(size, bench.device.info.last_level_cache_bytes)
    bound = []
    for _ in range(copies):
        inputs = {name: tensor if name == "b" else tensor.clone() for name, tensor in bench.inputs.items()}
        bound.append(_runner(plan, replace(bench, inputs=inputs), launch))
    return bound


def _check(call: Callable[[], Any], bench: Bench) -> dict[str, Any]:
    """Compare C with the reference; memory that the output may get is filled with NaN first, so that no element goes
    unwritten unseen."""
    import torch

    poison = torch.full(bench.reference.shape, float("nan"), dtype=torch.bfloat16, device=bench.reference.device)
    del poison
    c = call()
    bench.device.synchronize()
    share = _identical(c, bench)
    if share >= bench.needed:
        return {"status": "ok", "reason": "", "verified": "gpu", "bf16_identical": share}
    from mxfp4lab.task import check_output

    said = check_output(c, bench.reference).message
    return {"status": "incorrect", "reason": said, "verified": "gpu", "bf16_identical": share}


def _identical(c: Any, bench: Bench) -> float:
    from mxfp4lab.task import check_output

    return check_output(c, bench.reference).bf16_identical_fraction


def _floor(bench: Bench, regime: str) -> float:
    """The empty kernel in the same process and regime, measured once per shape."""
    if regime not in bench.floors:
        null = bench.device.null_call()
        if regime == "leaderboard":
            floor = time_leaderboard({"null": null}, bench.device, replace(FIRST_LOOK, max_repeats=100))["null"]
        else:
            floor = time_kernel([null] * 50, bench.device)
        bench.floors[regime] = floor.p50_us
    return bench.floors[regime]


def _detail(timing: Timing, bench: Bench, launch: str) -> dict[str, Any]:
    spread = {name: round(value, 4) if isinstance(value, float) else value for name, value in timing.to_dict().items()}
    clocks = read_clocks(bench.device.info.index)
    return {"timing": spread, "statistic": "p50", "launch": launch, "clocks": clocks,
            "overwrite_bytes": bench.device.overwrite_bytes}  # fmt: skip


def _simplicity(entry: dict[str, Any]) -> int:
    """Fewer axes off their defaults is simpler; among equals the faster comes first."""
    return len(GemmConfig.from_dict(entry["config"]).changes())


def _order(first: str, tied: Sequence[str], timings: dict[str, Timing]) -> list[int]:
    others = [name for name in timings if name != first]
    others.sort(key=lambda name: (name not in tied, timings[name].p50_us))
    return [int(name) for name in (first, *others)]
