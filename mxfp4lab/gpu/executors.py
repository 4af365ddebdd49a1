"""The GPU as a search sees it: measure one plan, compare finalists; whatever happens on the GPU becomes a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxfp4lab.gpu.timing import Comparison
from mxfp4lab.plan import Plan
from mxfp4lab.workers.pools import DESCRIBE, gpu_selectors, one_device
from mxfp4lab.workers.process import DEFAULT_TIMEOUT_S, Worker

MEASURE = "mxfp4lab.gpu.measure:measure_plan"
COMPARE = "mxfp4lab.gpu.measure:compare_plans"
COMPARE_TIMEOUT_S = 600.0


def open_executor(seed: int, workers: int | None = None, regime: str = "leaderboard") -> GpuExecutor:
    """The first visible GPU, owned by a worker process of its own.

    Args:
        seed: of the inputs on which C is checked and timed.
        workers: processes that compile; a search has its own, nothing is made of it here.
        regime: of the times.

    Raises:
        ValueError: there is no GPU, or the worker cannot use it, and why.
    """
    del workers
    return GpuExecutor(Worker("gpu0", gpu_selectors()[0]), seed, regime)


class GpuExecutor:
    """One GPU behind one worker process; see `tune.executors.Executor`.

    Attributes:
        arch, device, regime: as records hold them.
    """

    def __init__(
        self, worker: Worker, seed: int, regime: str = "leaderboard", launch: str = "direct",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:  # fmt: skip
        self._worker, self._seed, self._launch, self._timeout_s = worker, seed, launch, timeout_s
        self.regime = regime
        self._latencies: dict[str, float] = {}
        try:
            self.device, self.arch = one_device({worker.name: worker.run(DESCRIBE)})
        except BaseException:
            worker.close(kill=True)
            raise

    def measure(self, plan: Plan, compiled: Any = None) -> dict[str, Any]:
        """Check and time one plan in the worker; a fault, a hang or an out-of-memory is a status.

        Args:
            plan: for this executor's architecture.
            compiled: not sent along: the worker finds the kernels in the compile cache.
        """
        del compiled
        outcome = self._worker.run(MEASURE, {**self._of(plan), "regime": self.regime}, self._timeout_s)
        if outcome.status != "ok":
            return {"status": outcome.status, "reason": outcome.reason, "regime": self.regime}
        fields = dict(outcome.value)
        if fields.get("latency_us") is not None:
            self._latencies[_key(plan)] = fields["latency_us"]
        return fields

    def compare(self, plans: Sequence[Plan]) -> Comparison:
        """Time finalists alternately; if that fails as a whole, their first times stand and nothing is separate."""
        if not plans:
            raise ValueError("plans is empty; give at least one finalist")
        arguments = {
            "plans": [{"variant": plan.variant, "config": plan.config.to_dict()} for plan in plans],
            "shape": str(plans[0].shape), "arch": self.arch, "seed": self._seed, "launch": self._launch,
        }  # fmt: skip
        outcome = self._worker.run(COMPARE, arguments, COMPARE_TIMEOUT_S)
        if outcome.status != "ok":
            latency = tuple(self._latencies.get(_key(plan), float("inf")) for plan in plans)
            order = tuple(sorted(range(len(plans)), key=lambda number: latency[number]))
            return Comparison(order, False, latency, {"failed": f"{outcome.status}: {outcome.reason}"})
        said = outcome.value
        latency = tuple(said["timings"][str(number)]["p50_us"] for number in range(len(plans)))
        return Comparison(tuple(said["verdict"]["order"]), said["verdict"]["kind"] == "winner", latency, said)

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def _of(self, plan: Plan) -> dict[str, Any]:
        return {"variant": plan.variant, "config": plan.config.to_dict(), "shape": str(plan.shape), "arch": plan.arch,
                "seed": self._seed, "launch": self._launch}  # fmt: skip


def _key(plan: Plan) -> str:
    return f"{plan.variant} {plan.config.config_id} {plan.shape}"
