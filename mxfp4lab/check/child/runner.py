"""Serves one submission: loads it, calls it on tensors that the check hands over, answers with its output.

Started as a fresh process in a scratch folder. Every request and answer is one JSON object over the link; tensors lie
in the shared window. Whatever the submission raises becomes an answer; only its death does not.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

from . import confine
from .imports import AfterTriton, NoLab
from .link import Link, LinkClosed, Packer

INPUT_NAMES = ("A", "B", "B_q", "B_shuffle", "B_scale_sh")


class Submission:
    """The module under test and what has been seen of it.

    Args:
        link: to the check.
        gpu: run on a real GPU; False: on the emulator's stand-in.
        folder: where `submission.py` lies.
    """

    def __init__(self, link: Link, gpu: bool, folder: str) -> None:
        import torch

        self.torch, self.link, self.gpu, self.folder = torch, link, gpu, folder
        self.stand_in = None
        if not gpu:
            from . import gpu_torch

            self.stand_in = gpu_torch.install(link)
            sys.meta_path.insert(0, AfterTriton(self.stand_in))
            self._label_aiter()
        self.pid = os.getpid()
        self.clocks = _watched(torch)
        self.last: tuple | None = None  # the last output and its bytes as they were returned
        self.data: tuple = ()
        # The last ones stay alive: a fresh one cannot share their memory, and a buffer handed out in turns is seen.
        self.outputs: deque = deque(maxlen=3)
        self.kernel = None

    def _label_aiter(self) -> None:
        from aiter import _compute

        _compute.note = lambda text: self.link.ask({"op": "note", "text": text})
        _compute.prebuilt = self._prebuilt

    def _prebuilt(self, request: dict, tensors: dict) -> dict:
        """aiter's GEMM as machine code, by the driver that importing Triton puts in place."""
        from triton.runtime import driver

        return driver.active.launch_prebuilt(request, tensors)

    # requests -----------------------------------------------------------------------------------------------------

    def load(self, request: dict) -> dict:
        """Import the file as module `submission` and find `custom_kernel` in it."""
        self._run(self._import)
        if not callable(self.kernel):
            return {"error": "submission.py defines no custom_kernel", "kind": "missing"}
        return {"ok": True}

    def _import(self) -> None:
        module = importlib.import_module("submission")
        self.kernel = getattr(module, "custom_kernel", None)

    def call(self, request: dict) -> dict:
        """One call of `custom_kernel`.

        `inputs` says on which tensors: descriptions of new ones in the window ("fresh"), or those of the last call
        ("same"). As in the task the last ones are dropped before new ones are made, so that the allocator hands their
        addresses out again: what is cached by pointer or id is stale then. `timed` records events around the call.
        """
        outlived = self._changed_since()
        if request["how"] != "same":
            self.data = ()
            self.data = tuple(self._take(entry) for entry in request["inputs"])
        before = [t.clone() for t in self.data]
        nanoseconds = None
        running = set(threading.enumerate())
        if request.get("timed") and self.gpu:
            output, nanoseconds = self._timed_call(request["flush_bytes"])
        else:
            output = self._run(lambda: self.kernel(self.data))
            self._synchronize()
        answer = self._describe(output)
        answer["nanoseconds"] = nanoseconds
        answer["outlived"] = outlived
        answer["threads"] = len(set(threading.enumerate()) - running)
        answer["changed"] = [
            name
            for name, old, new in zip(INPUT_NAMES, before, self.data, strict=True)
            if not self.torch.equal(_bytes(old), _bytes(new))
        ]
        return answer

    def settle(self, request: dict) -> dict:
        """After the last call: whether its output is still what it was."""
        return {"outlived": self._changed_since()}

    def _changed_since(self) -> bool:
        """Did the last output change after it was returned?"""
        if self.last is None:
            return False
        output, then = self.last
        self.last = None
        return not self.torch.equal(_bytes(output.detach().contiguous()).cpu(), then)

    def time(self, request: dict) -> dict:
        """Repeated timed calls on the tensors of the last call, on a real GPU; stops as the task does."""
        durations: list[float] = []
        started = time.perf_counter()
        for repeat in range(request["max_repeats"]):
            output, nanoseconds = self._timed_call(request["flush_bytes"])
            del output
            durations.append(nanoseconds)
            if repeat > 1:
                mean = sum(durations) / len(durations)
                spread = (sum((d - mean) ** 2 for d in durations) / (len(durations) - 1)) ** 0.5
                error = spread / len(durations) ** 0.5
                wall = time.perf_counter() - started
                if error / mean < 1e-3 or sum(durations) > request["max_kernel_ns"] or wall > request["max_wall_s"]:
                    break
        return {"durations": durations}

    def device(self, request: dict) -> dict:
        """Name and cache size of the GPU that the calls run on."""
        if not self.gpu:
            return {"name": "gfx950 emulator", "l2_bytes": 0, "free_bytes": 0}
        properties = self.torch.cuda.get_device_properties(0)
        arch = getattr(properties, "gcnArchName", "").split(":")[0]
        return {
            "name": properties.name,
            "l2_bytes": int(getattr(properties, "L2_cache_size", 0)),
            "arch": arch,
            "free_bytes": int(self.torch.cuda.mem_get_info()[0]),
        }

    # parts --------------------------------------------------------------------------------------------------------

    def _run(self, function):
        return function() if self.stand_in is None else self.stand_in.run(function)

    def _synchronize(self) -> None:
        if self.gpu:
            self.clocks["torch.cuda.synchronize"]()

    def _timed_call(self, flush_bytes: int) -> tuple[object, float]:
        """Cold caches, then the call between two events: the overwrite is queued before the first of them."""
        torch = self.torch
        event = self.clocks["torch.cuda.Event"]
        self._synchronize()
        if flush_bytes:
            torch.empty(flush_bytes // 4, dtype=torch.float32, device="cuda").normal_()
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        output = self.kernel(self.data)
        end.record()
        self._synchronize()
        return output, start.elapsed_time(end) * 1e6

    def _take(self, entry: dict):
        """A tensor on the (stand-in) GPU from the window."""
        torch = self.torch
        dtype = getattr(torch, entry["dtype"])
        size = entry["nbytes"]
        raw = torch.empty(size, dtype=torch.uint8)
        if size:
            raw.copy_(torch.frombuffer(self.link.window, dtype=torch.uint8, count=size, offset=entry["offset"]))
        return raw.view(dtype).view(entry["shape"]).to("cuda")

    def _describe(self, output: object) -> dict:
        """What came back, with its bytes in the window."""
        torch = self.torch
        if not isinstance(output, torch.Tensor):
            return {
                "error": f"custom_kernel returned {_article(type(output).__name__)}, not a tensor",
                "kind": "output",
            }
        if type(output) is not torch.Tensor:
            said = f"custom_kernel returned {_article(type(output).__name__)}, a subclass that could compute C later"
            return {"error": said, "kind": "output"}
        if output.layout != torch.strided:
            return {"error": f"custom_kernel returned a tensor of layout {output.layout}", "kind": "output"}
        where = str(output.device)
        if not where.startswith("cuda"):
            return {"error": f"custom_kernel returned a tensor on {where}, not on the GPU", "kind": "output"}
        answer: dict = {
            "shape": list(output.shape),
            "dtype": str(output.dtype).removeprefix("torch."),
            "strides": list(output.stride()),
            "contiguous": output.is_contiguous(),
        }
        last = output.storage_offset() + sum(
            (n - 1) * step for n, step in zip(output.shape, output.stride(), strict=True)
        )
        if output.numel() and (last + 1) * output.element_size() > output.untyped_storage().nbytes():
            return {
                "error": "custom_kernel returned a tensor whose storage is smaller than the tensor",
                "kind": "output",
            }
        ours = output.untyped_storage().data_ptr()
        for name, tensor in zip(INPUT_NAMES, self.data, strict=True):
            if output.numel() and tensor.untyped_storage().data_ptr() == ours:
                answer["view_of"] = name
        for index, old in enumerate(self.outputs):
            if output.numel() and old.untyped_storage().data_ptr() == ours:
                answer["same_as_call"] = index
        self.outputs.append(output)
        flat = _bytes(output.detach().contiguous()).cpu()
        answer["offset"] = Packer(len(self.link.window)).place(flat.numel())
        answer["nbytes"] = flat.numel()
        if flat.numel():
            torch.frombuffer(self.link.window, dtype=torch.uint8, count=flat.numel()).copy_(flat)
        self.last = (output, flat.clone())
        return answer


_TENSOR = (
    "contiguous", "view", "cpu", "clone", "copy_", "detach", "data_ptr", "untyped_storage", "stride", "is_contiguous",
    "storage_offset", "shape", "dtype", "device", "layout", "numel", "element_size", "to", "cuda", "is_cuda",
)  # fmt: skip


def watch(torch) -> Callable[[], list[str]]:
    """What tells which of the things that the check rests on are no longer what they are now."""
    look, before = _watched, _watched(torch)

    def replaced() -> list[str]:
        now = look(torch)
        return [name for name, value in before.items() if now.get(name) is not value]

    return replaced


def _watched(torch) -> dict[str, object]:
    """What the timing and the check rest on: a submission has no business to replace it."""
    found = {
        f"time.{name}": getattr(time, name)
        for name in ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic")
    }
    found |= {f"builtins.{name}": value for name, value in vars(builtins).items() if name != "_"}
    found |= {"sys.settrace": sys.gettrace(), "sys.setprofile": sys.getprofile()}
    found |= {f"torch.Tensor.{name}": getattr(torch.Tensor, name) for name in _TENSOR}
    modes = [type(mode).__name__ for mode in torch.overrides._get_current_function_mode_stack()]
    # torch.set_default_device leaves one of its own.
    found["torch's function modes"] = [name for name in modes if name != "DeviceContext"] != []
    ours = {"Submission": Submission, "Link": Link, "Packer": Packer}
    found |= {f"the check's {name}.{part}": value for name, kind in ours.items() for part, value in vars(kind).items()}
    found |= {f"torch.cuda.{name}": getattr(torch.cuda, name, None) for name in ("Event", "synchronize")}
    event = torch.cuda.Event
    found |= {
        f"torch.cuda.Event.{name}": getattr(event, name, None) for name in ("record", "elapsed_time", "synchronize")
    }
    names = ("allclose", "isclose", "equal", "randn", "frombuffer", "empty")
    found |= {f"torch.{name}": getattr(torch, name) for name in names}
    return found


def _bytes(tensor):
    import torch

    return tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else torch.empty(0, dtype=torch.uint8)


def _article(word: str) -> str:
    return f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word}"


def _failure(error: BaseException, folder: str) -> dict:
    """An exception as one line, with the place in the submission."""
    path = os.path.join(folder, "submission.py")
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) and error.filename == path else None
    if line is None:
        places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        line = places[-1] if places else None
    if isinstance(error, SystemExit):
        said = f"the submission called exit({error.code!r})"
    else:
        try:
            text = error.msg if isinstance(error, SyntaxError) and error.msg else str(error)
        except BaseException:
            text = "an exception that cannot be shown"
        said = f"{type(error).__name__}: {' '.join(text[:2000].split())[:400]}".rstrip(": ")
    where = f"submission.py line {line}: " if line else ""
    return {"error": where + said, "kind": "raised"}


def _end() -> None:
    """Leave without the interpreter's farewell: Triton's bindings print a page of leak reports in it."""
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            output.flush()
    os._exit(0)


def main(config: dict, apart: str) -> None:
    """Confine this process, then serve requests until told to stop.

    Args:
        config: what the check gave.
        apart: what the namespaces of this process keep it from, in words.
    """
    link = Link.from_descriptors(config["socket_fd"], config["window_fd"])
    confined = [apart] if apart else []
    if "landlock" in config["means"]:
        # A CUDA driver writes the names of its threads below /proc; without that its start fails.
        devices = ["/dev", "/proc/self"] if config["gpu"] else ["/dev"]
        # GPU runtimes keep semaphores and queues in /dev/shm.
        writable = [config["work_folder"]] + (["/dev/shm"] if config["gpu"] else [])
        landlock = confine.forbid_writes(writable, devices, network=False)
        confined += [landlock] if landlock else []
    sys.meta_path.insert(0, NoLab())
    submission = Submission(link, config["gpu"], config["task_folder"])
    replaced = watch(submission.torch)
    link.send({"ready": True, "confined": "; ".join(confined)})
    handlers = {
        "load": submission.load,
        "call": submission.call,
        "time": submission.time,
        "settle": submission.settle,
        "device": submission.device,
    }
    while True:
        try:
            request = link.receive()
        except LinkClosed:
            _end()
        if request.get("op") == "quit":
            _end()
        try:
            answer = handlers[request["op"]](request)
            answer["tampered"] = replaced()
        except BaseException as error:
            if isinstance(error, LinkClosed):
                _end()
            answer = _failure(error, config["task_folder"])
        if os.getpid() != submission.pid:  # a process that the submission forked came back here
            os._exit(0)
        link.send({"done": True, **answer})
