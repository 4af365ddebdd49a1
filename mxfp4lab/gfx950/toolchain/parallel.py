"""Compile many plans on all cores: each kernel once, a crash or a hang of the compiler costs one row."""

from __future__ import annotations

import json
import os
import queue
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950.toolchain import cache
from mxfp4lab.gfx950.toolchain.compile import KernelJob, compile_job, launch_job
from mxfp4lab.gfx950.toolchain.compiled import Compiled, CompiledPlan
from mxfp4lab.gfx950.toolchain.diagnostics import last_words
from mxfp4lab.gfx950.toolchain.errors import CompileError
from mxfp4lab.gfx950.toolchain.worker import NotPortableError, decode_answer, encode_job

DEFAULT_TIMEOUT_S = 300.0
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from mxfp4lab.gfx950.toolchain.worker import serve; serve(sys.argv[2])"
)


@dataclass(frozen=True)
class PlanResult:
    """What became of one plan: `compiled` or `error`, and the plan's place in the input."""

    index: int
    plan: Any
    compiled: CompiledPlan | None
    error: CompileError | None


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
    board = _Board(plans, arch, knobs)
    yield from _finish(board.take_settled(), on_done)
    for job, outcome in compile_jobs(board.open_jobs(), workers, timeout_s=timeout_s, use_cache=use_cache):
        board.outcomes[job.key] = outcome
        yield from _finish(board.take_settled(job.key), on_done)


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
    remaining = []
    for job in jobs:
        found = cache.load(job.key) if use_cache else None
        if found is None:
            remaining.append(job)
        else:
            yield job, found
    workers = max(1, min(workers or os.cpu_count() or 1, len(remaining)))
    todo: queue.SimpleQueue[KernelJob | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[KernelJob, Any]] = queue.SimpleQueue()
    for job in remaining:
        todo.put(job)
    for _ in range(workers):
        todo.put(None)
    crew: list[_Worker] = []
    try:
        while len(crew) < workers and remaining:
            crew.append(_Worker(todo, done, timeout_s, use_cache))
    except OSError:  # no room for its files: fewer workers, or this process, where whoever compiles will say so
        if not crew:
            yield from ((job, _compile_here(job, use_cache)) for job in remaining)
            return
    try:
        for _ in remaining:
            job, outcome = done.get()
            yield job, _compile_here(job, use_cache) if outcome is None else outcome
    finally:
        for worker in crew:
            worker.stop()


def _compile_here(job: KernelJob, use_cache: bool) -> Compiled | CompileError:
    try:
        return compile_job(job, use_cache)
    except CompileError as error:
        return error


def _finish(results: Iterable[PlanResult], on_done: Callable[[PlanResult], None] | None) -> Iterator[PlanResult]:
    for result in results:
        if on_done is not None:
            on_done(result)
        yield result


class _Board:
    """Which kernels each plan waits for."""

    def __init__(self, plans: list[Any], arch: str | None, knobs: Mapping[str, str | None] | None) -> None:
        self.plans = plans
        self.slots: list[list[Any]] = []  # per plan and launch: a job, a Compiled, or a CompileError
        self.outcomes: dict[str, Compiled | CompileError] = {}
        self.waiting: dict[str, list[int]] = {}
        self.unsettled = set(range(len(plans)))
        for index, plan in enumerate(plans):
            if not hasattr(plan, "launches"):
                raise CompileError(f"plans[{index}]: a {type(plan).__name__}; allowed: Plans", "request")
            target = arch or getattr(plan, "arch", "gfx950")
            self.slots.append([self._slot(launch, plan, target, knobs) for launch in plan.launches])
            for job in self._jobs(index):
                self.waiting.setdefault(job.key, []).append(index)

    @staticmethod
    def _slot(launch: Any, plan: Any, arch: str, knobs: Mapping[str, str | None] | None) -> Any:
        try:
            if hasattr(launch, "fn"):
                return launch_job(launch, plan.buffers, arch, knobs)
            from mxfp4lab.gfx950.toolchain.codeobject import load_launch

            return load_launch(launch, arch)
        except CompileError as error:
            return error

    def _jobs(self, index: int) -> list[KernelJob]:
        return [slot for slot in self.slots[index] if isinstance(slot, KernelJob)]

    def open_jobs(self) -> list[KernelJob]:
        """Distinct jobs of plans that are not settled, in the plans' order."""
        jobs = {job.key: job for index in sorted(self.unsettled) for job in self._jobs(index)}
        return list(jobs.values())

    def take_settled(self, key: str | None = None) -> list[PlanResult]:
        """Results of plans that have just become complete or hopeless."""
        results = []
        for index in sorted(self.unsettled if key is None else set(self.waiting[key]) & self.unsettled):
            outcomes = [self.outcomes.get(slot.key) if isinstance(slot, KernelJob) else slot
                        for slot in self.slots[index]]  # fmt: skip
            failed = next((outcome for outcome in outcomes if isinstance(outcome, CompileError)), None)
            if failed is not None:
                results.append(PlanResult(index, self.plans[index], None, failed))
            elif None not in outcomes:
                plan = self.plans[index]
                results.append(PlanResult(index, plan, CompiledPlan(plan, tuple(outcomes)), None))
            else:
                continue
            self.unsettled.discard(index)
        return results


class _Worker:
    """A thread that feeds one worker process, kills it when it hangs, and starts another when it has died."""

    def __init__(self, todo: queue.SimpleQueue, done: queue.SimpleQueue, timeout_s: float, use_cache: bool) -> None:
        self.todo, self.done, self.timeout_s, self.use_cache = todo, done, timeout_s, use_cache
        self.process: subprocess.Popen | None = None
        self.stopped = False
        self.folder = tempfile.TemporaryDirectory(prefix="mxfp4lab-")
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """End the process and the thread; jobs not begun stay undone."""
        self.stopped = True
        process = self.process
        if process is not None:
            process.kill()
        self.todo.put(None)
        self.thread.join(timeout=10)
        self.folder.cleanup()

    def _work(self) -> None:
        while (job := self.todo.get()) is not None and not self.stopped:
            try:
                outcome = self._ask(job)
            except NotPortableError:
                outcome = None  # the caller compiles it in its own process
            except Exception as error:
                outcome = CompileError(f"{job.jit_fn.__name__}: compile worker failed: {error}", "crash")
            self.done.put((job, outcome))
        self._end_process()

    def _ask(self, job: KernelJob) -> Compiled | CompileError:
        request = json.dumps(encode_job(job, self.use_cache)).encode() + b"\n"
        process = self._running()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = self._read_line(process)
        except BrokenPipeError:
            line = b""
        if line is None:
            self._end_process()
            return CompileError(f"{job.jit_fn.__name__}: compilation took over {self.timeout_s:g} s", "timeout")
        if not line:
            code = process.wait()
            self._end_process()
            return CompileError(
                f"{job.jit_fn.__name__}: the compiler died (exit {code}): {self._last_words()}", "crash"
            )
        answer = json.loads(line)
        if "not_portable" in answer:
            raise NotPortableError(answer["not_portable"])
        return decode_answer(answer, job.key)

    def _running(self) -> subprocess.Popen:
        if self.process is None:
            diagnostics = str(Path(self.folder.name) / "diagnostics")
            arguments = [sys.executable, "-c", _START, json.dumps(sys.path), diagnostics]
            with open(Path(self.folder.name) / "stderr", "wb") as errors:
                self.process = subprocess.Popen(
                    arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
                )
        return self.process

    def _read_line(self, process: subprocess.Popen) -> bytes | None:
        """One line of the process's output; b"" if it ended, None after the time-out."""
        deadline = time.monotonic() + self.timeout_s
        pieces: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                piece = os.read(process.stdout.fileno(), 1 << 16)
                pieces.append(piece)
                if not piece:
                    return b""
                if piece.endswith(b"\n"):
                    return b"".join(pieces)

    def _last_words(self) -> str:
        for name in ("diagnostics", "stderr"):
            try:
                text = (Path(self.folder.name) / name).read_text(errors="replace")
            except OSError:
                continue
            if text.strip():
                return last_words(text)
        return last_words("")

    def _end_process(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
