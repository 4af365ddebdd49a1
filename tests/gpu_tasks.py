"""Tasks for worker processes: what a GPU can do to a process, done to it on the CPU."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from typing import Any


def echo(value: Any = None) -> dict[str, Any]:
    return {"value": value, "pid": os.getpid()}


def describe(name: str = "GPU A", arch: str = "sm_90") -> dict[str, Any]:
    return {"name": name, "arch": arch}


def fault(number: int = signal.SIGSEGV) -> None:
    print("memory access fault by GPU node-1", file=sys.stderr, flush=True)
    os.kill(os.getpid(), number)


def abort() -> None:
    os.abort()


def leave(code: int = 3) -> None:
    print("RuntimeError: driver shutting down", flush=True)
    os._exit(code)


def hang(seconds: float = 60.0) -> None:
    time.sleep(seconds)


def raises(message: str = "CUDA error: an illegal memory access was encountered") -> None:
    raise RuntimeError(message)


def eat_memory(limit_bytes: int = 1 << 30) -> int:
    """Allocate beyond a limit of this process's own."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limit_bytes, used + limit_bytes))
    return len(bytearray(4 * limit_bytes))


def slow_square(value: int, seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return value * value


def die_once(path: str) -> str:
    """Kill this process the first time, answer the second."""
    if not os.path.exists(path):
        with open(path, "w"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def predict(variant: str, config: dict[str, Any], shape: str, seconds: float = 0.0) -> dict[str, Any]:
    """A trial whose "prediction" is made of the config alone; block_k 512 kills the process."""
    time.sleep(seconds)
    if config["block_k"] == 512:
        os.kill(os.getpid(), signal.SIGSEGV)
    us = config["block_n"] / config["num_warps"] + config["block_m"] + config["split_k"]
    return {"status": "ok", "predicted_us": us, "model_version": "test-1", "regime": "harness"}


def slow_predict(**arguments: Any) -> dict[str, Any]:
    return predict(**arguments, seconds=0.3)
