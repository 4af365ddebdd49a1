"""A piece of work in a forked process: what kills that process costs an answer, not the caller.

For kernels that no fresh process can find by name, above all those typed into a notebook cell: LLVM may abort on one,
and the notebook's state would be gone with it.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
import warnings
from collections.abc import Callable


class DiedError(Exception):
    """The process ended without an answer; the message is how."""


def run_apart(work: Callable[[], bytes], timeout_s: float) -> bytes:
    """Call ``work`` in a fork of this process.

    The fork has this thread alone and shares nothing it changes; it must not touch a GPU.

    Args:
        work: what to do; its bytes, not empty, are the answer.
        timeout_s: seconds until the fork is killed.

    Raises:
        DiedError: it ended without an answer.
        TimeoutError: it was killed.
    """
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: none of theirs is needed
        child = os.fork()
    if child == 0:
        _answer_and_end(work, theirs)
    os.close(theirs)
    try:
        answer = _read_all(ours, timeout_s)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(ours)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0 or not answer:
        raise DiedError(signal.Signals(-code).name if code < 0 else f"exit {code}")
    return answer


def _answer_and_end(work: Callable[[], bytes], pipe: int) -> None:
    code = 70
    try:
        left = memoryview(work())
        while left:
            left = left[os.write(pipe, left) :]
        code = 0
    finally:
        os._exit(code)  # no handler, buffer or thread of the caller's may run a second time


def _read_all(pipe: int, timeout_s: float) -> bytes:
    deadline = time.monotonic() + timeout_s
    pieces = []
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"over {timeout_s:g} s")
            piece = os.read(pipe, 1 << 16)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
