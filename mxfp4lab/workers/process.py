"""A process that runs tasks one after another, with a time limit for each; its faults never reach the caller.

A GPU fault, a compiler that aborts, a hang or an out-of-memory ends the process, not the caller: the caller gets an
`Outcome`, and the next task gets a new process. The process is started as a plain subprocess, so a caller's
``__main__``, threads and GPU state play no part, and it ends by itself when the caller's process has gone.
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
    "from mxfp4lab.workers.process import serve; serve(int(sys.argv[2]))"
)
_RUINED = ("MemoryError", "OutOfMemoryError", "AcceleratorError")
"""Exceptions after which a process is not trusted with another task."""


@dataclass(frozen=True)
class Outcome:
    """How a task ended.

    Attributes:
        status: "ok", "runtime_error" (the task raised), "timeout", or "worker_died" (a signal, an abort, an exit).
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
        self._answers = -1
        self._printed: Any = None

    def run(
        self, task: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Outcome:
        """Call ``module:function`` with keyword arguments in the child.

        Args:
            task: such as "mxfp4lab.gpu.measure:measure_plan"; its result must be a JSON value.
            arguments: keyword arguments, JSON values.
            timeout_s: the child is killed after this long.

        Raises:
            OSError: no process can be started (no memory, no room for what it prints).
        """
        began = time.monotonic()
        fresh = self._process is None or self._process.poll() is not None
        try:
            status, value, reason = ("ok", None, "") if not fresh else self._start()
            if status == "ok":
                status, value, reason = self._ask(task, arguments, timeout_s)
        except BaseException:  # Ctrl-C, too: an answer that comes late must not be taken for the next task's
            self.close(kill=True)
            raise
        return Outcome(status, value, reason, time.monotonic() - began, fresh)

    def _ask(self, task: str, arguments: Mapping[str, Any] | None, timeout_s: float) -> tuple[str, Any, str]:
        request = json.dumps({"task": task, "arguments": dict(arguments or {})})
        with contextlib.suppress(BrokenPipeError):  # the child has gone: there will be no answer
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
        answer = self._read(timeout_s)
        if answer is None:
            return self._failed(timeout_s)
        if answer.get("end"):
            # After a device fault or an out-of-memory the process is not trusted with another task.
            self.close(kill=True)
        return answer["status"], answer.get("value"), answer.get("reason", "")

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
        _kill_group(process)
        process.wait()
        with contextlib.suppress(OSError):
            process.stdin.close()
        os.close(self._answers)
        self._printed.close()

    def abort(self) -> None:
        """Kill the child from another thread; a `run` in progress ends with "worker_died"."""
        process = self._process
        if process is not None:
            _kill_group(process)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> tuple[str, Any, str]:
        self.close(kill=True)
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self._answers, theirs = os.pipe()
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **self._environment}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path), str(theirs)], stdin=subprocess.PIPE,
                stdout=self._printed, stderr=self._printed, pass_fds=(theirs,), env=environment, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(theirs)
        if self._read(START_TIMEOUT_S) is None:
            _, _, reason = self._failed(START_TIMEOUT_S)
            return "worker_died", None, f"the worker did not start: {reason}"
        return "ok", None, ""

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
                if not piece:  # its end is near; how it ended is worth a moment's waiting
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(5)
                    return None
                data += piece
        return json.loads(data)

    def _failed(self, timeout_s: float) -> tuple[str, Any, str]:
        """Why no answer came; whatever is left of the child is ended."""
        code = self._process.poll()
        said = self._last_words()
        self.close(kill=True)
        if code is None:
            return "timeout", None, f"no answer within {timeout_s:g} s"
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return "worker_died", None, f"the worker {how}" + (f": {said}" if said else "")

    def _last_words(self) -> str:
        """Of what the child printed the line that says why it died, else the last with text."""
        size = os.fstat(self._printed.fileno()).st_size
        # Read by position: the child writes through the same open file.
        text = os.pread(self._printed.fileno(), 1 << 16, max(0, size - (1 << 16))).decode(errors="replace")
        lines = [line.strip() for line in text.replace("\0", "").splitlines() if line.strip()]
        marks = ("Fatal Python error", "LLVM ERROR", "Assertion", "error:")
        # faulthandler's stack is for a debugger; its headline says what happened, unless the compiler said it before.
        told = [line for mark in marks[1:] for line in lines if mark in line]
        told += [line for line in lines if line.startswith(marks[0])]
        return (told[:1] or lines[-1:] or [""])[0][:300]


def _kill_group(process: subprocess.Popen) -> None:
    """The child leads a group of its own: compilers that it started go with it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


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
            text = json.dumps({"status": "ok", "value": value})
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
