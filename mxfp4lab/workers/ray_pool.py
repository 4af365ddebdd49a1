"""A pool on a Ray cluster: Ray gives every task a GPU (or a core) and begins it again when its host dies.

Needs the extra: ``pip install "mxfp4lab[ray]"``, on every host the same checkout or installation. In the process that
Ray chooses, a supervised worker process takes the faults of tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.workers.pools import DESCRIBE, Done, Task, one_device
from mxfp4lab.workers.process import Outcome, Worker

MAX_ATTEMPTS = 3
"""How often a task is begun whose host dies; a host that dies thrice under one task is taken as the task's doing."""
START_TIMEOUT_S = 120.0
_workers: dict[str, Worker] = {}  # of the process that Ray has chosen, by the GPUs that Ray has given it


def run_on_host(task: str, arguments: dict[str, Any], timeout_s: float) -> tuple[dict[str, Any], str]:
    """Runs where Ray says; (fields of the `Outcome`, the host's and worker's name)."""
    import ray

    devices = ",".join(map(str, ray.get_gpu_ids()))
    name = f"{ray.get_runtime_context().get_node_id()[:6]}-{f'gpu{devices}' if devices else f'cpu{os.getpid()}'}"
    for other in [known for known in _workers if known != name]:
        _workers.pop(other).close(kill=True)  # Ray has given this process another GPU
    worker = _workers.setdefault(name, Worker(name))
    return asdict(worker.run(task, arguments, timeout_s)), name


class RayPool:
    """Tasks on a cluster; see `pools.open_pool`."""

    def __init__(self, resource: str = "gpu", count: int | None = None, address: str | None = None) -> None:
        """Start or join a cluster.

        Raises:
            ValueError: Ray is not installed, the cluster has no such resource, or its GPUs differ.
        """
        try:
            import ray
        except ImportError:
            raise ValueError("executor='ray' needs Ray: pip install 'mxfp4lab[ray]'; allowed here: local") from None
        self._ray = ray
        self._owns = not ray.is_initialized()
        paths = [str(REPO_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}}
        if self._owns:
            ray.init(address=address, log_to_driver=False, include_dashboard=False, configure_logging=False)
        self.device = self.arch = ""
        try:
            available = int(ray.cluster_resources().get(resource.upper(), 0))
            if available < 1:
                raise ValueError(f"the Ray cluster has no {resource.upper()}; resource must be one it has")
            self._slots = min(count or available, available)
            amount = {"num_gpus": 1, "num_cpus": 0} if resource == "gpu" else {"num_cpus": 1}
            self._remote = ray.remote(run_on_host).options(
                **amount, max_retries=MAX_ATTEMPTS - 1, runtime_env=environment
            )
            if resource == "gpu":
                described = self.run_all([Task(DESCRIBE, {}, START_TIMEOUT_S)] * self._slots)
                self.device, self.arch = one_device(
                    {f"{done.worker} #{done.index}": done.outcome for done in described}
                )
        except BaseException:
            self.close()
            raise

    def run_all(self, tasks: Iterable[Task]) -> Iterator[Done]:
        """Results in the order in which they are done; a task whose host dies is begun again by Ray."""
        ray, waiting = self._ray, iter(enumerate(tasks))
        running: dict[Any, int] = {}
        try:
            while True:
                while len(running) < self._slots and (following := next(waiting, None)) is not None:
                    index, task = following
                    running[self._remote.remote(task.task, dict(task.arguments), task.timeout_s)] = index
                if not running:
                    return
                (reference,), _ = ray.wait(list(running), num_returns=1)
                index = running.pop(reference)
                try:
                    fields, name = ray.get(reference)
                    yield Done(index, Outcome(**fields), name)
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
                    reason = f"its host died at each of {MAX_ATTEMPTS} attempts: {type(error).__name__}"
                    yield Done(index, Outcome("worker_died", reason=reason), "ray")
        finally:
            for reference in running:  # the caller leaves early: what still runs is not wanted
                ray.cancel(reference, force=True)

    def close(self) -> None:
        """End the cluster if it was started here."""
        if self._owns and self._ray.is_initialized():
            self._ray.shutdown()
