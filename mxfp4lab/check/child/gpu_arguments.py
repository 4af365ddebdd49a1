"""What torch settles in Python before it asks a device: numbers as devices, pinned memory, whose generator it is."""

from __future__ import annotations

import threading

import torch
from torch.overrides import TorchFunctionMode

from .gpu_memory import Heap
from .gpu_rules import mapped, tensors_in


class Arguments(TorchFunctionMode):
    """The mode under which everything in a submission's process runs.

    Args:
        heap: the GPU's memory.
        generators: those that are the GPU's, by address.
    """

    def __init__(self, heap: Heap, generators: dict[int, torch.Generator]) -> None:
        super().__init__()
        self._heap, self._generators = heap, generators

    def hold(self) -> None:
        """Enter, in this thread and in every one that starts, for as long as the process lives."""
        self.__enter__()
        start = threading.Thread._bootstrap_inner

        def start_under_mode(thread: threading.Thread) -> None:
            with self:
                start(thread)

        threading.Thread._bootstrap_inner = start_under_mode

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if type(kwargs.get("device")) is int:
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        if name in ("to", "cuda") and len(args) > 1 and type(args[1]) is int:
            args = (args[0], torch.device("cuda", args[1]), *args[2:])
        if name in ("__getitem__", "__setitem__") and args[0].is_cuda:  # a CPU index may be
            args = (args[0], mapped(args[1], lambda t: t if t.is_cuda else t.cuda()), *args[2:])
        if name == "__deepcopy__" and args[0].is_cuda and type(args[0]) is torch.Tensor:
            return args[0].detach().clone().requires_grad_(args[0].requires_grad)
        if name == "type" and len(args) > 1 and isinstance(args[1], str) and args[1].startswith("torch.cuda."):
            return args[0].to("cuda", getattr(torch.cuda, args[1].rsplit(".", 1)[1]).dtype)
        if name == "is_pinned":
            block = self._heap.block_of(args[0])
            return block is not None and block.pinned
        if name == "pin_memory":
            if args[0].is_cuda:
                raise RuntimeError(f"cannot pin '{args[0].type()}' only dense CPU tensors can be pinned")
            return self._pinned(args[0]).copy_(args[0])
        self._check_generator(args, kwargs)
        if kwargs.get("pin_memory") and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            made = func(*args, **{**kwargs, "pin_memory": False})
            return self._pinned(made).copy_(made)
        if name in ("to", "cpu") and kwargs.get("non_blocking") and args[0].is_cuda:
            there = func(*args, **{**kwargs, "non_blocking": False})
            if not there.is_cuda:  # torch puts it into pinned memory, which is filled some time later
                return self._pinned(there).copy_(args[0].to(there.dtype), non_blocking=True)
            return there
        return func(*args, **kwargs)

    def _check_generator(self, args: tuple, kwargs: dict) -> None:
        generator = kwargs.get("generator")
        if generator is not None and generator._cdata in self._generators:
            on_gpu = any(t.is_cuda for t in tensors_in(args, []))
            if torch.device(kwargs.get("device") or ("cuda" if on_gpu else "cpu")).type == "cpu":
                raise RuntimeError("Expected a 'cpu' device type for generator but found 'cuda'")

    def _pinned(self, like: torch.Tensor) -> torch.Tensor:
        """Uninitialised pinned memory of that dtype and shape."""
        raw = self._heap.tensor(like.numel() * like.element_size(), pinned=True)
        return raw.view(like.dtype).view(like.shape)
