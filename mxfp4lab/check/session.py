"""A submission's process, seen from outside: started apart, asked one thing at a time, ended with all it started.

The process gets a scratch folder, an environment without secrets, a limit on its own seconds and memory, and a pipe
whose content beyond 64 KiB is counted and dropped. Above it stands a process that sets it apart and waits for it
(`child.supervise`). What this is: protection from mistakes and from a file that does silly things. What it is not: a
sandbox against malice (the file can read what you can read).
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mxfp4lab.check.child.link import WINDOW_BYTES, Link, LinkClosed, LinkGarbage, LinkTimeout, Packer, sealed_memory
from mxfp4lab.check.child.supervise import GRACE_S, descendants
from mxfp4lab.check.surroundings import (
    bytes_below,
    clean_environment,
    import_path,
    lay_out,
    marked_processes,
    scratch_writes,
)
from mxfp4lab.paths import REPO_ROOT

KEPT_OUTPUT = 64 << 10
MAX_PROCESSES = 256
MAX_SCRATCH_BYTES = 8 << 30
MEANS = ("landlock", "namespaces")  # by which a process is kept from writing outside its folder, where Linux has them


class SubmissionEnded(Exception):
    """The process is gone, or was ended because it went over a limit; the message is one line for the log."""


@dataclass(frozen=True)
class Limits:
    """What a submission's process may use.

    Attributes:
        seconds: of its own: time that the emulator spends on its launches does not count.
        memory_bytes: resident memory of all its processes together.
    """

    seconds: float = 420.0
    memory_bytes: int = 12 << 30


@dataclass
class Printed:
    """What the submission wrote to stdout and stderr: the first bytes, and how many there were."""

    head: bytes = b""
    total: int = 0

    def add(self, data: bytes) -> None:
        self.head += data[: max(0, KEPT_OUTPUT - len(self.head))]
        self.total += len(data)

    @property
    def text(self) -> str:
        return self.head.decode("utf-8", "replace")


class Session:
    """Owns the process of one submission. Use as a context manager.

    Args:
        source: bytes of the file under test.
        gpu: run on the machine's GPU instead of on the emulator's stand-in.
        limits: see `Limits`.
        serve: answers the process's own requests (kernels, launches, notes) while it works.
        means: which ways of keeping it from writing may be tried; None: all.

    Attributes:
        confined: what it is kept from, in words; "" where the machine offers no means.
        leftovers: processes that it left behind.
    """

    def __init__(
        self,
        source: bytes,
        *,
        gpu: bool,
        limits: Limits,
        serve: Callable[[dict], dict],
        means: Sequence[str] | None = None,
    ) -> None:
        self._source, self._gpu, self.limits, self._serve = source, gpu, limits, serve
        self._means = list(MEANS if means is None else means)
        self.printed = Printed()
        self.confined = ""
        self.leftovers = 0
        self._spent = 0.0
        self._ended_because = ""
        self._said: dict | None = None
        self._id = uuid.uuid4().hex

    def __enter__(self) -> Session:
        with scratch_writes():
            self._folder = Path(tempfile.mkdtemp(prefix="mxfp4lab-check-"))
        try:
            with scratch_writes():
                lay_out(self._folder, self._source, gpu=self._gpu)
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        task, work, harness = (self._folder / name for name in ("task", "work", "harness"))
        ours, theirs = socket.socketpair()
        self._report_fd, report_fd = os.pipe()
        window_fd = sealed_memory(WINDOW_BYTES)
        self._window = mmap.mmap(window_fd, WINDOW_BYTES)
        self.link = Link(ours, self._window)
        config = {
            "socket_fd": theirs.fileno(),
            "window_fd": window_fd,
            "gpu": self._gpu,
            "report_fd": report_fd,
            "means": self._means,
            "protected": [os.getcwd(), str(REPO_ROOT), str(REPO_ROOT / "outputs"), os.path.expanduser("~")],
            "memory_bytes": None if self._gpu else self.limits.memory_bytes,
            "task_folder": str(task),
            "work_folder": str(work),
            "path": [str(task), str(work), str(harness), *import_path()],
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-X", "faulthandler", str(harness / "start.py"), json.dumps(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=clean_environment(work, self._id),
            pass_fds=(theirs.fileno(), window_fd, report_fd),
            start_new_session=True,
        )
        theirs.close()
        os.close(window_fd)
        os.close(report_fd)
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()
        self._watching = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()
        hello = self._receive(self.limits.seconds + 60)
        self.confined = str(hello.get("confined", ""))
        self._spent = 0.0  # starting Python and torch is not the submission's time

    # talking --------------------------------------------------------------------------------------------------------

    def request(self, op: str, **fields: object) -> dict:
        """Ask the process for one thing, serving its launches meanwhile.

        Returns:
            Its answer; `error` in it when the submission's code failed.

        Raises:
            SubmissionEnded: if it is gone or over a limit.
        """
        try:
            self.link.send({"op": op, **fields})
        except LinkClosed:
            self._raise_ended()
        while True:
            message = self._receive(self.limits.seconds - self._spent)
            if "op" not in message:
                return message
            answer = self._serve(message)
            try:
                self.link.send(answer)
            except LinkClosed:
                self._raise_ended()

    def _receive(self, timeout_s: float) -> dict:
        started = time.monotonic()
        try:
            return self.link.receive(max(timeout_s, 0.001))
        except LinkTimeout:
            self._ended_because = f"over its time limit of {self.limits.seconds:g} s: ended"
            self._kill()
            raise SubmissionEnded(self._ended_because) from None
        except LinkGarbage:
            self._ended_because = "the submission's process sent what is no message of the check's: ended"
            self._kill()
            raise SubmissionEnded(self._ended_because) from None
        except LinkClosed:
            self._raise_ended()
        finally:
            self._spent += time.monotonic() - started
        raise AssertionError

    def give(self, tensors: Sequence[torch.Tensor]) -> list[dict]:
        """Put tensors into the window and describe them for a request."""
        packer = Packer(WINDOW_BYTES)
        entries = []
        for tensor in tensors:
            flat = tensor.contiguous().view(-1).view(torch.uint8)
            offset = packer.place(flat.numel())
            if flat.numel():
                torch.frombuffer(self._window, dtype=torch.uint8, count=flat.numel(), offset=offset).copy_(flat)
            entries.append(
                {
                    "offset": offset,
                    "nbytes": flat.numel(),
                    "shape": list(tensor.shape),
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                }
            )
        return entries

    def take(self, answer: dict) -> torch.Tensor:
        """The output tensor that an answer describes, copied out of the window.

        Raises:
            ValueError: if the description does not fit together.
        """
        dtype = getattr(torch, str(answer["dtype"]), None)
        shape, size, offset = [int(n) for n in answer["shape"]], int(answer["nbytes"]), int(answer["offset"])
        if (
            not isinstance(dtype, torch.dtype)
            or any(n < 0 for n in shape)
            or not 0 <= offset <= offset + size <= WINDOW_BYTES
        ):
            raise ValueError("the answer describes no tensor")
        raw = torch.empty(size, dtype=torch.uint8)
        if size:
            raw.copy_(torch.frombuffer(self._window, dtype=torch.uint8, count=size, offset=offset))
        return raw.view(dtype).view(shape)

    # ending ---------------------------------------------------------------------------------------------------------

    def _raise_ended(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5 + GRACE_S)
        if not self._ended_because:
            code = self._process.poll()
            code = self._report().get("code", code) if code is not None else None
            if code is None:
                self._ended_because = "the submission's process closed its connection"
            elif code < 0:
                name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
                self._ended_because = f"the submission's process died by {name}"
            else:
                self._ended_because = f"the submission ended its process (exit code {code})"
        raise SubmissionEnded(self._ended_because)

    def _report(self) -> dict:
        """What the process above the submission's said at its end: exit code and processes left; {} if it was ended."""
        if self._said is None:
            os.set_blocking(self._report_fd, False)
            self._said = {}
            with contextlib.suppress(OSError, ValueError):
                self._said = json.loads(os.read(self._report_fd, 4096))
        return self._said

    def _kill(self) -> None:
        """End all of it: first what is below the process that would else lose its parent, then that process."""
        if self._process.poll() is not None:
            return  # it has seen to all below it, and its number may be another's by now
        for _ in range(5):
            below = descendants(self._process.pid)
            for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none starts another meanwhile
                for pid in below:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            if not below:
                break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_process"):
            with contextlib.suppress(LinkClosed, ValueError):
                self.link.send({"op": "quit"})
            try:
                self._process.wait(timeout=3 + GRACE_S)
            except subprocess.TimeoutExpired:
                self._ended_because = self._ended_because or "did not end when asked"
            self._watching.set()
            self._kill()
            self._process.wait()
            self.leftovers = int(self._report().get("left", 0)) + self._end_marked()
            self._reader.join(timeout=2)
            self._process.stdout.close()
            os.close(self._report_fd)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end_marked(self) -> int:
        """End every process that carries this check's mark: what is left where the one above it was ended too."""
        found = marked_processes(self._id)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def _drain(self) -> None:
        while True:
            try:
                data = os.read(self._process.stdout.fileno(), 1 << 16)
            except (OSError, ValueError):
                return
            if not data:
                return
            self.printed.add(data)

    def _watch(self) -> None:
        """End all of it when it grows over its memory, into too many processes, or fills its folder."""
        while not self._watching.wait(0.3):
            members = descendants(self._process.pid)
            if len(members) > MAX_PROCESSES:
                self._ended_because = f"over its limit of {MAX_PROCESSES} processes: ended"
                self._kill()
            elif sum(members.values()) > self.limits.memory_bytes:
                self._ended_because = f"over its memory limit of {self.limits.memory_bytes >> 20} MiB: ended"
                self._kill()
            elif bytes_below(self._folder / "work") > MAX_SCRATCH_BYTES:
                self._ended_because = f"over its limit of {MAX_SCRATCH_BYTES >> 30} GiB in its folder: ended"
                self._kill()
