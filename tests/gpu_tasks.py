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


AITER_FILES = {
    "aiter/__init__.py": "",
    "aiter/jit/core.py": "",
    "aiter/ops/triton/quant.py": """
import torch
def dynamic_mxfp4_quant(x, scaling_mode="even"):
    return (torch.zeros(x.shape[0], x.shape[1] // 2, dtype=torch.uint8),
            torch.zeros(x.shape[0], x.shape[1] // 32, dtype=torch.uint8))
""",
    "aiter/utility/fp4_utils.py": """
import torch
def e8m0_shuffle(scale):
    rows, columns = -(-scale.shape[0] // 256) * 256, -(-scale.shape[1] // 8) * 8
    return torch.zeros(rows, columns, dtype=torch.uint8)
""",
    "aiter/ops/gemm_op_a4w4.py": """
import torch
CALLS = []
def gemm_a4w4(A, B, A_scale, B_scale, bias=None, dtype=torch.bfloat16, alpha=1.0, beta=0.0, bpreshuffle=True):
    CALLS.append([str(t.dtype) + str(list(t.shape)) for t in (A, B, A_scale, B_scale)] + [bpreshuffle])
    return torch.zeros(-(-A.shape[0] // 32) * 32, B.shape[0], dtype=dtype)
""",
}


def aiter_comparators(folder: str) -> dict[str, Any]:
    """Comparators where an aiter of the task's layout can be imported; its calls and the shape of its C."""
    import importlib
    from pathlib import Path

    for name, text in AITER_FILES.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sys.path.insert(0, folder)
    from mxfp4lab.gpu.comparators import available_comparators
    from mxfp4lab.shapes import Shape
    from mxfp4lab.task import input_dict

    shape = Shape(20, 64, 512)
    found, missing = available_comparators(shape, input_dict(shape, 1))
    by_name = {comparator.name: comparator for comparator in found}
    shown = list(by_name["aiter_reference"].call().shape) if "aiter_reference" in by_name else None
    calls = importlib.import_module("aiter.ops.gemm_op_a4w4").CALLS if shown else []
    return {"missing": missing, "c": shown, "call": calls[0] if calls else None}
