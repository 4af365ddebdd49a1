"""A pool on a Ray cluster: an actor per GPU (or per core), each with a worker process of its own.

Needs the extra: ``pip install "mxfp4lab[ray]"``, on every host the same checkout or installation. Ray is told of a GPU
per actor, so it gives every actor a device of its own, on any number of hosts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from mxfp4lab.gpu.pools import DESCRIBE, Backlog, Done, Task, one_device, package_path
from mxfp4lab.gpu.worker import Outcome, Worker

START_TIMEOUT_S = 120.0


class _Host:
    """Runs in an actor; the worker process below it takes the faults."""

    def __init__(self, name: str) -> None:
        self._worker = Worker(name)

    def run(self, task: str, arguments: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        return asdict(self._worker.run(task, arguments, timeout_s))

    def ready(self) -> bool:
        return True


class RayPool:
    """Actors on a cluster; see `pools.open_pool`."""

    def __init__(self, resource: str = "gpu", count: int | None = None, address: str | None = None) -> None:
        """Start or join a cluster and place the actors.

        Raises:
            ValueError: Ray is not installed, the cluster has no such resource, or its GPUs differ.
        """
        try:
            import ray
        except ImportError:
            raise ValueError("executor='ray' needs Ray: pip install 'mxfp4lab[ray]'; allowed here: local") from None
        self._ray, self._resource = ray, resource
        self._owns = not ray.is_initialized()
        if self._owns:
            ray.init(address=address, log_to_driver=False, include_dashboard=False, configure_logging=False)
        self._actors: dict[str, Any] = {}
        self._next = 0
        self.device = self.arch = ""
        try:
            available = int(ray.cluster_resources().get(resource.upper(), 0))
            if available < 1:
                raise ValueError(f"the Ray cluster has no {resource.upper()}; resource must be one it has")
            self._add_actors(min(count or available, available))
            if resource == "gpu":
                asked = {name: actor.run.remote(DESCRIBE, {}, START_TIMEOUT_S) for name, actor in self._actors.items()}
                described = {name: Outcome(**ray.get(ref)) for name, ref in asked.items()}
                self.device, self.arch = one_device(described)
        except BaseException:
            self.close()
            raise

    def run_all(self, tasks: Iterable[Task]) -> Iterator[Done]:
        """Results in the order in which they are done; a task whose host dies is begun again on another.

        Raises:
            RuntimeError: no host is left.
        """
        tasks = list(tasks)
        ray, backlog = self._ray, Backlog(len(tasks))
        running: dict[Any, tuple[int, int, str]] = {}
        idle = list(self._actors)
        finished = 0
        while finished < len(tasks):
            while idle:
                chosen = backlog.take()
                if chosen is None:
                    break
                (index, attempt), name = chosen, idle.pop()
                task = tasks[index]
                ref = self._actors[name].run.remote(task.task, dict(task.arguments), task.timeout_s)
                running[ref] = (index, attempt, name)
            if not running:
                raise RuntimeError("no host of the Ray cluster is left")
            (ref,), _ = ray.wait(list(running), num_returns=1)
            index, attempt, name = running.pop(ref)
            try:
                outcome = Outcome(**ray.get(ref))
            except (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
                self._actors.pop(name, None)
                idle += self._replace()
                final = backlog.host_died(index, attempt, name)
                if final is not None:
                    finished += 1
                    yield final
                continue
            idle.append(name)
            finished += 1
            yield Done(index, outcome, name, attempt)

    def close(self) -> None:
        """End the actors, and the cluster if it was started here."""
        for actor in self._actors.values():
            with contextlib.suppress(Exception):
                self._ray.kill(actor)
        self._actors.clear()
        if self._owns and self._ray.is_initialized():
            self._ray.shutdown()

    def _replace(self) -> list[str]:
        """An actor in place of a dead one, if what is left of the cluster has room for it."""
        free = self._ray.available_resources().get(self._resource.upper(), 0)
        return self._add_actors(1) if free >= 1 else []

    def _add_actors(self, count: int) -> list[str]:
        amount = {"num_gpus": 1, "num_cpus": 0} if self._resource == "gpu" else {"num_cpus": 1}
        remote = self._ray.remote(_Host).options(
            **amount, max_restarts=0, runtime_env={"env_vars": {"PYTHONPATH": package_path()}})  # fmt: skip
        added = {f"{self._resource}{self._next + offset}": None for offset in range(count)}
        self._next += count
        actors = {name: remote.remote(name) for name in added}
        pending = {actor.ready.remote(): name for name, actor in actors.items()}
        ready, late = self._ray.wait(list(pending), num_returns=count, timeout=START_TIMEOUT_S)
        for ref in ready:
            with contextlib.suppress(self._ray.exceptions.RayActorError):
                self._ray.get(ref)
                self._actors[pending[ref]] = actors[pending[ref]]
        for ref in late:
            self._ray.kill(actors[pending[ref]])
        if not self._actors:
            raise RuntimeError(f"no actor of the Ray cluster was ready within {START_TIMEOUT_S:g} s")
        return [name for name in added if name in self._actors]
