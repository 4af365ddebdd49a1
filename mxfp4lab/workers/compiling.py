"""Compile many plans on all cores: each kernel once, a crash or a hang of the compiler costs one row."""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.util
import inspect
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950.toolchain import cache, errors
from mxfp4lab.gfx950.toolchain.compile import compile_job, compile_launch
from mxfp4lab.gfx950.toolchain.compiled import Compiled, CompiledPlan
from mxfp4lab.gfx950.toolchain.errors import CompileError
from mxfp4lab.gfx950.toolchain.jobs import KernelJob, launch_job, unwrap
from mxfp4lab.workers.pools import LocalPool, Task
from mxfp4lab.workers.process import Outcome

DEFAULT_TIMEOUT_S = 300.0
_COMPILE = "mxfp4lab.workers.compiling:compile_request"


@dataclass(frozen=True)
class PlanResult:
    """What became of one plan: `compiled` or `error`, and the plan's place in the input."""

    index: int
    plan: Any
    compiled: CompiledPlan | None
    error: CompileError | None


class NotPortableError(Exception):
    """A job that another process cannot repeat: its function or a constant has no name to find it by."""


def compile_many(
    plans: Iterable[Any],
    workers: int | None = None,
    on_done: Callable[[PlanResult], None] | None = None,
    *,
    arch: str | None = None,
    knobs: Mapping[str, str | None] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    use_cache: bool = True,
) -> Iterator[PlanResult]:
    """Compile plans in worker processes; results come in the order in which they are done.

    Plans share kernels (one quantizer serves many configs): each distinct kernel is compiled once.

    Args:
        plans: any number of plans.
        workers: processes; every core without it.
        on_done: called with each result before it is yielded.
        arch: target; each plan's own without it.
        knobs: environment knobs for these compilations only.
        timeout_s: seconds that one kernel may take before its worker is killed.
        use_cache: whether to look into and write the disk cache.

    Yields:
        One `PlanResult` per plan; a failing plan is a result with `error`, never an exception.
    """
    plans = list(plans)
    slots = [_slots(index, plan, arch, knobs) for index, plan in enumerate(plans)]
    outcomes: dict[str, Compiled | CompileError] = {}
    unsettled = dict.fromkeys(range(len(plans)))

    def settled(indices: Iterable[int]) -> Iterator[PlanResult]:
        """Results of plans that have just become complete or hopeless."""
        for index in [index for index in indices if index in unsettled]:
            found = [outcomes.get(slot.key) if isinstance(slot, KernelJob) else slot for slot in slots[index]]
            failed = next((outcome for outcome in found if isinstance(outcome, CompileError)), None)
            if failed is None and None in found:
                continue
            compiled = CompiledPlan(plans[index], tuple(found)) if failed is None else None
            del unsettled[index]
            result = PlanResult(index, plans[index], compiled, failed)
            if on_done is not None:
                on_done(result)
            yield result

    yield from settled(range(len(plans)))
    jobs: dict[str, KernelJob] = {}
    users: dict[str, list[int]] = {}
    for index in unsettled:
        for slot in slots[index]:
            if isinstance(slot, KernelJob):
                jobs[slot.key] = slot
                users.setdefault(slot.key, []).append(index)
    for job, outcome in compile_jobs(list(jobs.values()), workers, timeout_s=timeout_s, use_cache=use_cache):
        outcomes[job.key] = outcome
        yield from settled(users[job.key])


def _slots(index: int, plan: Any, arch: str | None, knobs: Mapping[str, str | None] | None) -> list[Any]:
    """Per launch a job, or what is known of it already: a `Compiled` or a `CompileError`."""
    if not hasattr(plan, "launches"):
        raise CompileError(f"plans[{index}]: a {type(plan).__name__}; allowed: Plans", "request")
    target = arch or getattr(plan, "arch", "gfx950")
    found: list[Any] = []
    for launch in plan.launches:
        try:
            if hasattr(launch, "fn"):
                found.append(launch_job(launch, plan.buffers, target, knobs))
            else:
                found.append(compile_launch(launch, plan.buffers, target))
        except CompileError as error:
            found.append(error)
    return found


def compile_jobs(
    jobs: Sequence[KernelJob],
    workers: int | None = None,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    use_cache: bool = True,
) -> Iterator[tuple[KernelJob, Compiled | CompileError]]:
    """Compile jobs in worker processes; yields each with its outcome as it is done.

    What the disk cache holds is answered at once and starts no process. Jobs that another process cannot repeat
    (kernels typed into a notebook cell) are compiled in a fork of this one.
    """
    remaining: dict[str, KernelJob] = {}
    tasks = []
    for job in jobs:
        found = cache.load(job.key) if use_cache else None
        if found is not None:
            yield job, found
            continue
        remaining[job.key] = job
        try:
            tasks.append(Task(_COMPILE, {"job": encode_job(job), "use_cache": use_cache}, timeout_s))
        except NotPortableError:
            continue  # stays in `remaining`: compiled here
    if tasks:
        pool = LocalPool("cpu", max(1, min(workers or os.cpu_count() or 1, len(tasks))))
        try:
            for done in pool.run_all(tasks):
                job = remaining[tasks[done.index].arguments["job"]["key"]]
                outcome = _outcome(job, done.outcome)
                if outcome is not None:
                    del remaining[job.key]
                    yield job, outcome
        except OSError:
            pass  # no room for a process or its files: in this process, where whoever compiles will say so
        finally:
            pool.close()
    for job in remaining.values():
        try:
            yield job, compile_job(job, use_cache)
        except CompileError as error:
            yield job, error


def _outcome(job: KernelJob, outcome: Outcome) -> Compiled | CompileError | None:
    """What a worker's answer means; None if the job has to be compiled by the caller."""
    name = job.jit_fn.__name__
    if outcome.status == "timeout":
        return CompileError(f"{name}: compilation took {outcome.reason.replace('no answer within', 'over')}", "timeout")
    if outcome.status == "worker_died":
        return CompileError(f"{name}: the compiler died: {outcome.reason}", "crash")
    if outcome.status != "ok":
        return CompileError(f"{name}: compile worker failed: {outcome.reason}", "crash")
    if outcome.value is None:
        return None
    result = cache.decode_entry(base64.b64decode(outcome.value["entry"]), job.key)
    if result is None:
        return CompileError(f"{name}: a compile worker sent an answer that does not check out", "crash")
    if not isinstance(result, CompileError):
        result.from_cache = not outcome.value["fresh"]
    return result


def compile_request(job: dict[str, Any], use_cache: bool) -> dict[str, Any] | None:
    """Runs in a worker: the job's cache entry, or None where this process does not find the same kernel."""
    # What the compiler prints before it kills this process goes where the caller looks for last words.
    errors.kept_in = "/proc/self/fd/2"
    try:
        result = compile_job(decode_job(job), use_cache)
    except CompileError as error:
        result = error
    except NotPortableError:
        return None
    entry = base64.b64encode(cache.encode_entry(result, job["key"])).decode()
    return {"entry": entry, "fresh": not getattr(result, "from_cache", True)}


class _Pickler(pickle.Pickler):
    """Jitted functions, wherever they stand in a job, go by their names."""

    def persistent_id(self, value: Any) -> Any:
        return _name_function(value) if hasattr(value, "cache_key") and hasattr(value, "fn") else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, find: Callable[[tuple[str, str, str]], Any]) -> None:
        super().__init__(file)
        self.persistent_load = find


def encode_job(job: KernelJob) -> dict[str, str]:
    """A job as JSON values.

    Raises:
        NotPortableError: the kernel lives in no file (a notebook cell), or a constant cannot be sent.
    """
    file = io.BytesIO()
    try:
        _Pickler(file).dump([getattr(job, field.name) for field in fields(job)])  # its key is computed anew there
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise NotPortableError(f"{job.jit_fn.__name__}: {error}") from None
    return {"key": job.key, "job": base64.b64encode(file.getvalue()).decode()}


def decode_job(request: Mapping[str, str]) -> KernelJob:
    """The job behind `encode_job`, in another process.

    Raises:
        NotPortableError: what this process finds under the function's name is not the same kernel.
    """
    for find in (_find_by_module, _find_by_file):
        job = KernelJob(*_Unpickler(io.BytesIO(base64.b64decode(request["job"])), find).load())
        if job.jit_fn is not None and job.key == request["key"]:
            return job
    raise NotPortableError("the kernel differs in another process")


def _name_function(jit_fn: Any) -> tuple[str, str, str]:
    """(module, qualified name, file)."""
    function = jit_fn.fn
    try:
        path = inspect.getsourcefile(function) or ""
    except TypeError:
        path = ""
    if "<locals>" in function.__qualname__ or not os.path.isfile(path):
        raise NotPortableError(f"{function.__qualname__} is in no file that another process can load")
    return function.__module__, function.__qualname__, os.path.abspath(path)


def _find_by_module(function: tuple[str, str, str]) -> Any:
    module, name, _ = function
    if module in ("__main__", "__mp_main__"):
        return None
    try:
        return _attribute(importlib.import_module(module), name)
    except Exception:
        return None


def _find_by_file(function: tuple[str, str, str]) -> Any:
    path = Path(function[2])
    name = f"mxfp4lab_kernels_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise NotPortableError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from None
    return _attribute(sys.modules[name], function[1])


def _attribute(module: Any, qualname: str) -> Any:
    found = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    try:
        return None if found is None else unwrap(found)
    except CompileError:
        return None
