"""The GPU as a search sees it: measure one plan, compare finalists; whatever happens on the GPU becomes a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxfp4lab.gpu.timing import REGIME, Comparison
from mxfp4lab.plan import Plan
from mxfp4lab.workers.pools import DESCRIBE, gpu_selectors, one_device
from mxfp4lab.workers.process import DEFAULT_TIMEOUT_S, Worker

MEASURE = "mxfp4lab.gpu.measure:measure_plan"
COMPARE = "mxfp4lab.gpu.measure:compare_plans"
COMPARE_TIMEOUT_S = 600.0


def open_executor(seed: int) -> GpuExecutor:
    """The first visible GPU, owned by a worker process of its own.

    Args:
        seed: of the inputs on which C is checked and timed.

    Raises:
        ValueError: there is no GPU, or the worker cannot use it, and why.
    """
    return GpuExecutor(Worker("gpu0", gpu_selectors()[0]), seed)


def comparison(said: dict[str, Any], count: int) -> Comparison:
    """What `measure.compare_plans` says of `count` plans."""
    timings, judged = said["timings"], said["verdict"]
    latency = tuple(timings[str(number)]["p50_us"] if str(number) in timings else None for number in range(count))
    if judged is None:
        return Comparison((), False, latency, said)
    return Comparison(tuple(judged["order"]), judged["kind"] == "winner", latency, said)


class GpuExecutor:
    """One GPU behind one worker process.

    Attributes:
        arch, device, regime: as records hold them.
    """

    regime = REGIME

    def __init__(self, worker: Worker, seed: int) -> None:
        self._worker, self._seed = worker, seed
        self._first: dict[tuple[str, str, str], float] = {}
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
        arguments = {"variant": plan.variant, "config": plan.config.to_dict(), "shape": str(plan.shape),
                     "arch": plan.arch, "seed": self._seed}  # fmt: skip
        outcome = self._worker.run(MEASURE, arguments, DEFAULT_TIMEOUT_S)
        if outcome.status != "ok":
            return {"status": outcome.status, "reason": outcome.reason, "regime": self.regime}
        if outcome.value.get("latency_us") is not None:
            self._first[_key(plan)] = outcome.value["latency_us"]
        return dict(outcome.value)

    def compare(self, plans: Sequence[Plan]) -> Comparison:
        """Time finalists alternately; if that fails as a whole, their first times stand and nothing is separate."""
        if not plans:
            raise ValueError("plans is empty; give at least one finalist")
        arguments = {
            "plans": [{"variant": plan.variant, "config": plan.config.to_dict()} for plan in plans],
            "shape": str(plans[0].shape), "arch": self.arch, "seed": self._seed,
        }  # fmt: skip
        outcome = self._worker.run(COMPARE, arguments, COMPARE_TIMEOUT_S)
        if outcome.status != "ok":
            failed = {"failed": f"{outcome.status}: {outcome.reason}"}
            latency = tuple(self._first.get(_key(plan)) for plan in plans)
            known = [number for number, first in enumerate(latency) if first is not None]
            return Comparison(tuple(sorted(known, key=lambda number: latency[number])), False, latency, failed)
        return comparison(outcome.value, len(plans))

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


def _key(plan: Plan) -> tuple[str, str, str]:
    return plan.variant, plan.config.config_id, str(plan.shape)
