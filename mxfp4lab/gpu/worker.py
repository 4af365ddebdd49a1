"""A process that runs tasks one after another, with a time limit for each; its faults never reach the caller.

A GPU fault, a hang, an out-of-memory or an abort ends the process, not the caller: the caller gets an `Outcome`, and
the next task gets a new process. The process is spawned, so it inherits no GPU state, and it alone touches its GPU. It
ends by itself when the caller's process has gone.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_TIMEOUT_S = 120.0
START_TIMEOUT_S = 180.0
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from mxfp4lab.gpu.worker import serve; serve(int(sys.argv[2]))"
)
_RUINED = ("MemoryError", "OutOfMemoryError", "AcceleratorError")
"""Exceptions after which a process is not trusted with another task."""


@dataclass(frozen=True)
class Outcome:
    """How a task ended.

    Attributes:
        status: "ok", "runtime_error" (the task raised), "timeout", or "worker_died" (killed by a signal or an abort).
        value: what the task returned, for "ok".
        reason: one line otherwise.
        seconds: from request to answer.
        fresh: whether a new process had to be started for it.
    """

    status: str
    value: Any = None
    reason: str = ""
    seconds: float = 0.0
    fresh: bool = False


class Worker:
    """One child process. Not thread-safe: one task at a time."""

    def __init__(self, name: str = "gpu0", environment: Mapping[str, str] | None = None) -> None:
        """Nothing is started before the first task.

        Args:
            name: for records.
            environment: variables set in the child besides the caller's own (CUDA_VISIBLE_DEVICES, say).
        """
        self.name = name
        self._environment = dict(environment or {})
        self._process: subprocess.Popen | None = None
        self._answers: int = -1
        self._errors: Any = None
        self.started = 0

    def run(
        self, task: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Outcome:
        """Call ``module:function`` with keyword arguments (JSON values) in the child.

        Args:
            task: such as "mxfp4lab.gpu.measure:measure_plan"; its result must be a JSON value.
            arguments: keyword arguments.
            timeout_s: the child is killed after this long.
        """
        try:
            return self._run(task, arguments, timeout_s)
        except BaseException:  # Ctrl-C, too: an answer that comes late must not be taken for the next task's
            self.close(kill=True)
            raise

    def _run(self, task: str, arguments: Mapping[str, Any] | None, timeout_s: float) -> Outcome:
        began = time.monotonic()
        fresh = self._process is None or self._process.poll() is not None
        if fresh:
            problem = self._start()
            if problem:
                return Outcome("worker_died", reason=problem, seconds=time.monotonic() - began, fresh=True)
        request = json.dumps({"task": task, "arguments": dict(arguments or {})})
        try:
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return self._died(began, fresh)
        answer = self._read(timeout_s)
        seconds = time.monotonic() - began
        if answer is None:
            if self._process.poll() is None:
                self.close(kill=True)
                return Outcome("timeout", reason=f"no answer within {timeout_s:g} s", seconds=seconds, fresh=fresh)
            return self._died(began, fresh)
        outcome = Outcome(answer["status"], answer.get("value"), answer.get("reason", ""), seconds, fresh)
        if answer.get("end"):
            # After a device fault or an out-of-memory the process is not trusted with another task.
            self.close(kill=True)
        return outcome

    def close(self, kill: bool = False) -> None:
        """End the child: its input is closed and it leaves, or it is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        if not kill:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        if process.poll() is None:
            # The child leads a group of its own: compilers that it started go with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        with contextlib.suppress(OSError):
            process.stdin.close()
        os.close(self._answers)

    def abort(self) -> None:
        """Kill the child from another thread; a `run` in progress ends with "worker_died"."""
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> str:
        """Start a child and wait until it is ready; a problem in one line, or ""."""
        self.close(kill=True)
        self._answers, theirs = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **self._environment}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path), str(theirs)], stdin=subprocess.PIPE,
                stdout=self._errors, stderr=self._errors, pass_fds=(theirs,), env=environment, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(theirs)
        self.started += 1
        if self._read(START_TIMEOUT_S) is None:
            reason = self._last_words()
            self.close(kill=True)
            return f"the worker did not start: {reason}"
        return ""

    def _read(self, timeout_s: float) -> dict[str, Any] | None:
        """The next answer; None after the time limit or when the child has gone."""
        data = b""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while not data.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                piece = os.read(self._answers, 1 << 16)
                if not piece:
                    self._wait_briefly()
                    return None
                data += piece
        return json.loads(data)

    def _wait_briefly(self) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)

    def _died(self, began: float, fresh: bool) -> Outcome:
        self._wait_briefly()
        code = self._process.poll() if self._process is not None else None
        if code is not None and code < 0:
            reason = f"the worker was ended by {signal.Signals(-code).name}"
        else:
            reason = f"the worker ended with code {code}"
        said = self._last_words()
        self.close(kill=True)
        return Outcome("worker_died", reason=f"{reason}: {said}" if said else reason,
                       seconds=time.monotonic() - began, fresh=fresh)  # fmt: skip

    def _last_words(self) -> str:
        """The last line with text that the child printed, shortened."""
        if self._errors is None:
            return ""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 8192))
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        # faulthandler's stack is for a debugger; its headline says what happened.
        fatal = [line for line in lines if line.startswith("Fatal Python error")]
        return (fatal or lines or [""])[-1][:300]


def serve(answers: int) -> None:
    """Answer requests from standard input until it ends, one JSON line each on descriptor `answers`."""
    out = os.fdopen(answers, "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    print(json.dumps({"status": "ready"}), file=out, flush=True)
    for line in requests:
        request = json.loads(line)
        try:
            module, _, function = request["task"].partition(":")
            value = getattr(importlib.import_module(module), function)(**request["arguments"])
            answer = {"status": "ok", "value": value}
            text = json.dumps(answer)
        except Exception as error:
            # An exception that the GPU raised may have ruined the device for this process.
            name = type(error).__name__
            ruined = name in _RUINED or "CUDA error" in str(error) or "HIP error" in str(error)
            first = next((said for said in str(error).splitlines() if said.strip()), "no message")
            reason = f"{name}: {first.strip()[:300]}"
            text = json.dumps({"status": "runtime_error", "reason": reason, "end": ruined})
        print(text, file=out, flush=True)


def _end_with(parent: int) -> None:
    """End this process once its parent has gone, also in the middle of a task: a GPU must not stay taken."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
