"""Stand-ins for compiler, emulator, model and GPU, so that every ending of a search can be brought about."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from mxfp4lab import tune
from mxfp4lab.config import GemmConfig
from mxfp4lab.gfx950 import Resources
from mxfp4lab.records import Counts, LaunchCounts, Trial
from mxfp4lab.shapes import Shape
from mxfp4lab.tune import space
from mxfp4lab.workers import Done, Outcome, Task

SMALL = Shape(4, 2880, 512)
_PLANS = functools.cache(space._plan)  # searches of one module plan the same configs


@dataclass
class Kernel:
    """As much of a compiled kernel as a search looks at."""

    name: str = "gemm"
    spilled: int = 0
    lds: int = 1024
    scaled: int = 8
    other: int = 0
    hazards: tuple = ()
    num_warps: int = 4

    @property
    def resources(self) -> Resources:
        return Resources(96, 0, 40, self.spilled, 0, 0, self.lds, 4)

    @property
    def mfma(self) -> dict[str, int]:
        return {"v_mfma_scale_f32_16x16x128_f8f6f4": self.scaled, "v_mfma_f32_16x16x32_bf16": self.other}


class Tools:
    """Stand-ins for compiler, emulator and model that remember what they were asked."""

    def __init__(self, seed: int = 0) -> None:
        self.looked: list[str] = []
        self.counted: list[str] = []
        self.emulated: list[str] = []
        self.races: list[bool] = []
        self.stop_after = math.inf
        self.version = "fake-1"
        self.extrapolated = False
        self.kernel = lambda config: Kernel(num_warps=config.num_warps)
        self.error = lambda config: None
        self.check = lambda config: {}
        self.toolchain, self.knobs = {"triton": "fake"}, {"TRITON_DEFAULT_FP_FUSION": "1"}
        self._order = random.Random(seed)

    def compile_many(self, plans: list, workers: int | None) -> Iterator[Any]:
        order = list(range(len(plans)))
        self._order.shuffle(order)  # results come in the order in which they are done
        for index in order:
            if len(self.looked) >= self.stop_after:
                raise KeyboardInterrupt
            plan = plans[index]
            self.looked.append(name_of(plan))
            error = self.error(plan.config)
            compiled = None if error else SimpleNamespace(plan=plan, kernels=(self.kernel(plan.config),))
            yield SimpleNamespace(index=index, compiled=compiled, error=error)

    def count(self, compiled: Any) -> Counts:
        plan = compiled.plan
        self.counted.append(name_of(plan))
        # A made-up cost with one best config, a function of the config alone.
        config = plan.config
        cost = 100 + abs(config.block_n - 64) + abs(config.block_k - 512) / 8 + 40 * (config.split_k - 1)
        cost += 5 * config.num_warps + (7 if config.num_stages != 3 else 0) + len(plan.launches) * 500
        launch = LaunchCounts(name="gemm", workgroups=9, waves_per_workgroup=config.num_warps, valu_per_wave=cost,
                              mfma_per_wave=8)  # fmt: skip
        return Counts(shape=plan.shape, launches=(launch,), split_k=config.split_k)

    def predict(self, counts: Counts) -> Any:
        time = counts.launches[0].valu_per_wave / 100
        return SimpleNamespace(predicted_us=time, interval=(time * 0.9, time * 1.2), terms={"floor": time},
                               extrapolated=self.extrapolated)  # fmt: skip

    def verify(self, plan: Any, seed: int, races: bool) -> dict[str, Any]:
        self.emulated.append(name_of(plan))
        self.races.append(races)
        return {"verified": "emulated", "bf16_identical": 1.0, **self.check(plan.config),
                "detail": {"races_looked_for": races}}  # fmt: skip

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """These stand in for the real ones."""
        model = SimpleNamespace(version=self.version, predict_counts=self.predict)
        with (
            patch("mxfp4lab.workers.compile_many", self.compile_many),
            patch("mxfp4lab.emulate.count_plan", lambda compiled: self.count(compiled)),
            patch("mxfp4lab.tune.space._plan", _PLANS),
            patch("mxfp4lab.tune.finals.verify", lambda *of: self.verify(*of)),
            patch.multiple(
                "mxfp4lab.tune.search", stored_model=lambda: model,
                toolchain_versions=lambda: self.toolchain, current_knobs=lambda: self.knobs,
            ),
        ):  # fmt: skip
            yield


def name_of(plan: Any) -> str:
    return f"{plan.variant}/{plan.config.config_id}"


def identities(*folders: Path) -> list[str]:
    """Of every whole row of every trial file below the folders, repeated rows repeated."""
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("trials-*.jsonl")):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    found.append(Trial.from_dict(json.loads(line)).identity)
    return found


def search(out: Path, tools: Tools, gpus: Any = None, **options: Any) -> tune.TuneResult:
    options = {"budget": 40, "backend": "emulator", **options}
    with tools.in_place():
        return tune.tune_shape(SMALL, out=out, pool=gpus, **options)


class FakeGpus:
    """A pool whose clock reads a function of the config."""

    def __init__(self, separate: bool = True, arch: str = "gfx950", device: str = "Test GPU") -> None:
        self.arch, self.device, self.separate = arch, device, separate
        self.measured: list[str] = []
        self.compared = 0
        self.wrong_finalists: set[int] = set()
        self.comparison_fails = ""
        self.slower_us = 0.0

    def time(self, config: Mapping[str, Any]) -> float:
        return 5 + config["block_n"] / 64 + config["num_warps"] / 10

    def run_all(self, tasks: Iterable[Task]) -> Iterator[Done]:
        for index, task in enumerate(tasks):
            answer = self.compare if "plans" in task.arguments else self.measure
            assert json.loads(json.dumps(dict(task.arguments))) == task.arguments, "it crosses a process boundary"
            yield Done(index, answer(**task.arguments), "gpu0")

    def measure(self, config: dict[str, Any], **_: Any) -> Outcome:
        self.measured.append(GemmConfig.from_dict(config).config_id)
        if config["block_n"] == 128:
            return Outcome("timeout", reason="no answer in 10 s")
        if config["block_n"] == 256:
            return Outcome("ok", {"status": "incorrect", "reason": "C differs", "verified": "gpu",
                                  "bf16_identical": 0.5})  # fmt: skip
        return Outcome("ok", {"status": "ok", "verified": "gpu", "bf16_identical": 1.0, "detail": {"n": 100},
                              "latency_us": self.time(config), "regime": "leaderboard"})  # fmt: skip

    def compare(self, plans: list[dict[str, Any]], **_: Any) -> Outcome:
        self.compared += 1
        if self.comparison_fails:
            return Outcome("timeout", reason=self.comparison_fails)
        times = [self.time(plan["config"]) + self.slower_us for plan in plans]
        timings = {str(n): {"p50_us": t, "p20_us": t - 0.1, "p80_us": t + 0.1, "floor_us": 2.5}
                   for n, t in enumerate(times)}  # fmt: skip
        order = [n for n in sorted(range(len(plans)), key=times.__getitem__) if n not in self.wrong_finalists]
        checks = {str(n): 1.0 if n in order else 0.5 for n in range(len(plans))}
        wrong = {str(n): "incorrect: C differs" for n in self.wrong_finalists}
        verdict = {"kind": "winner" if self.separate else "tie", "order": order} if order else None
        timings = {name: timing for name, timing in timings.items() if name not in wrong}
        return Outcome("ok", {"timings": timings, "checks": checks, "wrong": wrong, "verdict": verdict})

    def close(self) -> None:
        pass
