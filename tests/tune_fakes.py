"""Stand-ins for compiler, emulator, model and GPU, so that every ending of a search can be brought about."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mxfp4lab import tune
from mxfp4lab.config import GemmConfig
from mxfp4lab.gfx950 import Resources
from mxfp4lab.records import Counts, LaunchCounts, Status, Trial
from mxfp4lab.shapes import Shape
from mxfp4lab.workers import PlanResult

SMALL = Shape(4, 2880, 512)


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
        self.compiled: list[str] = []
        self.counted: list[str] = []
        self.emulated: list[str] = []
        self.stop_after = math.inf
        self.version = "fake-1"
        self.extrapolated = False
        self.kernel = lambda config: Kernel(num_warps=config.num_warps)
        self.error = lambda config: None
        self.check = lambda config: tune.Check(Status.ok, "", 1.0, {"lane_instructions": 1})
        self._order = random.Random(seed)

    def compile_many(self, plans: list, workers: int | None) -> Iterator[PlanResult]:
        order = list(range(len(plans)))
        self._order.shuffle(order)  # results come in the order in which they are done
        for index in order:
            if len(self.compiled) >= self.stop_after:
                raise KeyboardInterrupt
            plan = plans[index]
            self.compiled.append(f"{plan.variant}/{plan.config.config_id}")
            error = self.error(plan.config)
            compiled = SimpleNamespace(plan=plan, kernels=(self.kernel(plan.config),))
            yield PlanResult(index, plan, None if error else compiled, error)

    def count(self, compiled: Any) -> Counts:
        plan = compiled.plan
        self.counted.append(f"{plan.variant}/{plan.config.config_id}")
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
                               model_version=self.version, extrapolated=self.extrapolated)  # fmt: skip

    def verify(self, compiled: Any, seed: int) -> tune.Check:
        self.emulated.append(f"{compiled.plan.variant}/{compiled.plan.config.config_id}")
        return self.check(compiled.plan.config)

    @property
    def instruments(self) -> tune.Instruments:
        return tune.Instruments(
            compile_many=self.compile_many, count=self.count, predict=self.predict,
            model_version=lambda: self.version, verify=self.verify, toolchain=lambda: {"triton": "fake"},
            knobs=lambda: {"TRITON_DEFAULT_FP_FUSION": "1"},
        )  # fmt: skip


def identities(*folders: Path) -> list[str]:
    """Of every whole row of every trial file below the folders, repeated rows repeated."""
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("trials-*.jsonl")):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    found.append(Trial.from_dict(json.loads(line)).identity)
    return found


def search(out: Path, tools: Tools, **options: Any) -> tune.TuneResult:
    options = {"budget": 40, "backend": "emulator", **options}
    return tune.tune(SMALL, out=out, instruments=tools.instruments, **options)


class FakeGpu:
    """An executor whose clock reads a function of the config."""

    arch, device, regime = "gfx950", "Test GPU", "leaderboard"

    def __init__(self, separate: bool = True) -> None:
        self.measured: list[str] = []
        self.separate = separate
        self.compared = 0
        self.closed = False

    def time(self, config: GemmConfig) -> float:
        return 5 + config.block_n / 64 + config.num_warps / 10

    def measure(self, plan: Any, compiled: Any) -> dict[str, Any]:
        self.measured.append(plan.config.config_id)
        if plan.config.block_n == 128:
            return {"status": "timeout", "reason": "no answer in 10 s"}
        if plan.config.block_n == 256:
            return {"status": "incorrect", "reason": "C differs", "verified": "gpu", "bf16_identical": 0.5}
        return {"status": "ok", "verified": "gpu", "bf16_identical": 1.0, "latency_us": self.time(plan.config),
                "detail": {"n": 100}}  # fmt: skip

    def compare(self, plans: list) -> tune.Comparison:
        self.compared += 1
        times = [self.time(plan.config) for plan in plans]
        return tune.Comparison(tuple(sorted(range(len(plans)), key=times.__getitem__)), self.separate, tuple(times))

    def close(self) -> None:
        self.closed = True
