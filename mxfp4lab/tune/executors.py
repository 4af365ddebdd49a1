"""Who measures: the one interface between a search and a GPU.

A search compiles and ranks on the CPU whatever the backend; with a GPU it also hands every surviving plan to an
executor, which runs it in a process of its own, checks its C and times it. One executor is one device name: results
of different devices are never mixed in a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from mxfp4lab.gpu.timing import Comparison

BACKENDS = ("auto", "emulator", "gpu")


@runtime_checkable
class Executor(Protocol):
    """Measures plans on one kind of device.

    Attributes:
        arch: what plans are compiled for, e.g. "gfx950" or "sm_90".
        device: the GPU's name as records hold it.
        regime: of its times, e.g. "leaderboard".
    """

    arch: str
    device: str
    regime: str

    def measure(self, plan: Any, compiled: Any) -> dict[str, Any]:
        """Run one plan, check its C, time it.

        Returns:
            fields of a `Trial`: ``status``, and where they apply ``reason``, ``verified``, ``bf16_identical``,
            ``latency_us``, ``detail`` (spread, number of repeats, the null launch's time, clocks).
            A fault, a hang or an out-of-memory is a status, never an exception.
        """
        ...

    def compare(self, plans: Sequence[Any]) -> Comparison:
        """Time finalists alternately and say whether the first is separate from the others."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...


def open_executor(backend: str, seed: int, workers: int | None = None) -> Executor | None:
    """The executor of a backend; None means that nothing is measured.

    Args:
        backend: "auto" takes a GPU if there is one, "gpu" insists on one, "emulator" never looks for one.
        seed: of the inputs on which C is checked.

    Raises:
        ValueError: unknown backend, or "gpu" where there is none.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r} is unknown; allowed: {', '.join(BACKENDS)}")
    if backend == "emulator":
        return None
    reason = "this version has no GPU room"
    try:
        from mxfp4lab.gpu.executors import open_executor as open_gpu
    except ImportError:
        open_gpu = None
    if open_gpu is not None:
        try:
            return open_gpu(seed)
        except ValueError as error:  # no device, or one that is not supported: the message says which
            reason = str(error)
    if backend == "gpu":
        raise ValueError(f"backend='gpu': {reason}; allowed here: auto, emulator")
    return None
