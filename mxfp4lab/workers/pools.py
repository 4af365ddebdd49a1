"""Many tasks over many workers: the GPUs or cores of this machine, or a Ray cluster."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mxfp4lab.workers.process import DEFAULT_TIMEOUT_S, Outcome, Worker

EXECUTORS = ("local", "ray")
RESOURCES = ("gpu", "cpu")
DESCRIBE = "mxfp4lab.gpu.measure:describe_device"


@dataclass(frozen=True)
class Task:
    """One call in a worker."""

    task: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True)
class Done:
    """A finished task: its place in the list, how it ended, and on which worker."""

    index: int
    outcome: Outcome
    worker: str


class Pool(Protocol):
    """Workers of one kind.

    Attributes:
        device: the GPU's name, the same on all of them; "" for CPU workers.
        arch: its architecture; "" for CPU workers.
    """

    device: str
    arch: str

    def run_all(self, tasks: Iterable[Task]) -> Iterator[Done]: ...

    def close(self) -> None: ...


def open_pool(
    executor: str = "local", resource: str = "gpu", count: int | None = None, address: str | None = None
) -> Pool:
    """Workers on this machine or on a Ray cluster.

    Args:
        executor: "local" or "ray".
        resource: "gpu": one worker per GPU; "cpu": workers that compile and emulate.
        count: at most this many workers; all GPUs, or one per core, without it.
        address: of a Ray cluster ("auto" for the one this machine belongs to); a local one is started without it.

    Raises:
        ValueError: unknown executor or resource, no GPU, GPUs of different names, or Ray is not installed.
    """
    if executor not in EXECUTORS:
        raise ValueError(f"executor={executor!r} is unknown; allowed: {', '.join(EXECUTORS)}")
    if resource not in RESOURCES:
        raise ValueError(f"resource={resource!r} is unknown; allowed: {', '.join(RESOURCES)}")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise ValueError(f"count={count!r} must be a whole number from 1, or None")
    if executor == "ray":
        from mxfp4lab.workers.ray_pool import RayPool

        return RayPool(resource, count, address)
    return LocalPool(resource, count)


class LocalPool:
    """One worker process per GPU of this machine, or several without one."""

    def __init__(self, resource: str = "gpu", count: int | None = None) -> None:
        if resource == "gpu":
            visible = gpu_selectors()
            self.workers = [Worker(f"gpu{number}", environment) for number, environment in enumerate(visible)][:count]
        else:
            self.workers = [Worker(f"cpu{number}") for number in range(count or os.cpu_count() or 1)]
        self.device = self.arch = ""
        if resource == "gpu":
            try:
                self.device, self.arch = one_device({worker.name: worker.run(DESCRIBE) for worker in self.workers})
            except BaseException:
                self.close()
                raise

    def run_all(self, tasks: Iterable[Task]) -> Iterator[Done]:
        """Results in the order in which they are done; every task exactly once.

        `tasks` may be a generator that prepares one after another (compiles, say): workers begin with the first
        while it goes on with the next. It is run in a thread of its own.
        """
        waiting: queue.SimpleQueue[tuple[int, Task] | None] = queue.SimpleQueue()
        done: queue.SimpleQueue[Done | BaseException | int] = queue.SimpleQueue()
        stop = threading.Event()

        def feed() -> None:
            count = 0
            try:
                for task in tasks:
                    if stop.is_set():
                        break
                    waiting.put((count, task))
                    count += 1
                done.put(count)
            except BaseException as error:  # goes to the caller's thread
                done.put(error)
            for _ in self.workers:
                waiting.put(None)

        def serve(worker: Worker) -> None:
            while not stop.is_set():
                item = waiting.get()
                if item is None:
                    return
                index, task = item
                try:
                    done.put(Done(index, worker.run(task.task, task.arguments, task.timeout_s), worker.name))
                except BaseException as error:
                    done.put(error)
                    return

        threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in self.workers]
        for thread in (*threads, threading.Thread(target=feed, daemon=True)):
            thread.start()
        total, finished = None, 0
        try:
            while total is None or finished < total:
                result = done.get()
                if isinstance(result, BaseException):
                    raise result
                if isinstance(result, int):
                    total = result
                    continue
                finished += 1
                yield result
        finally:
            stop.set()
            for _ in self.workers:
                waiting.put(None)
            for worker, thread in zip(self.workers, threads, strict=True):
                thread.join(0.1)
                if thread.is_alive():  # the caller leaves early: what still runs is not wanted
                    worker.abort()
                    thread.join()

    def close(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.close()


def gpu_selectors() -> list[dict[str, str]]:
    """Per visible GPU, the environment in which a child sees it alone.

    Raises:
        ValueError: torch sees none, and why.
    """
    import torch

    if torch.version.hip is None and torch.version.cuda is None:
        raise ValueError(f"no GPU: torch {torch.__version__} is built without ROCm and CUDA")
    count = torch.cuda.device_count()
    if count == 0:
        raise ValueError(f"no GPU: torch {torch.__version__} finds no device")
    variable = "HIP_VISIBLE_DEVICES" if torch.version.hip else "CUDA_VISIBLE_DEVICES"
    given = [name for name in os.environ.get(variable, "").split(",") if name.strip()]
    names = given if len(given) == count else [str(number) for number in range(count)]
    return [{variable: name} for name in names]


def one_device(described: Mapping[str, Outcome]) -> tuple[str, str]:
    """(name, architecture) that all workers' GPUs share.

    Raises:
        ValueError: a worker cannot use its GPU, or they differ: times of different devices are never mixed.
    """
    for name, outcome in described.items():
        if outcome.status != "ok":
            raise ValueError(f"worker {name} cannot use its GPU: {outcome.reason}")
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, outcome in described.items():
        kinds.setdefault((outcome.value["name"], outcome.value["arch"]), []).append(name)
    if len(kinds) != 1:
        said = "; ".join(f"{device}: {', '.join(names)}" for (device, _), names in kinds.items())
        raise ValueError(f"devices differ ({said}): one run is one device name; select GPUs of one kind")
    return next(iter(kinds))
