"""torch with a "cuda" device that is not there: its tensors live in CPU memory and say they are on the GPU.

A submission makes tensors with `device="cuda"`, moves them with `.cuda()`, asks `x.is_cuda` and `x.device`, records
events. All of that works here under one function mode, which strips the device from every call and marks the storage
of what comes back. The mark sits on the storage, so views share it and a tensor that never left the CPU does not
have it: handing such a tensor to a kernel is refused, as on a real GPU.
"""

from __future__ import annotations

import sys
import threading
import types
import weakref
from collections.abc import Callable

import torch
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cuda", 0)
POISON = 0xFF  # every byte of uninitialised "GPU" memory: NaN as bf16, f32 and e8m0
NAME = "AMD Instinct MI355X"
_MARK = "_on_gpu"

_storages: weakref.WeakValueDictionary[int, torch.UntypedStorage] = weakref.WeakValueDictionary()


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    """The storage behind a tensor, the same object for all its views."""
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage()


def on_gpu(tensor: torch.Tensor) -> bool:
    """Does the tensor claim to be on the GPU?"""
    return getattr(storage_of(tensor), _MARK, False)


def mark(tensor: torch.Tensor) -> torch.Tensor:
    """Put a tensor (and all views of its storage) on the "GPU"."""
    storage = storage_of(tensor)
    if not getattr(storage, _MARK, False):
        setattr(storage, _MARK, True)
        _storages[storage.data_ptr()] = storage
    return tensor


def storage_at(address: int) -> tuple[torch.UntypedStorage, int] | None:
    """The "GPU" storage that holds a raw address, and the offset in it."""
    for base, storage in list(_storages.items()):
        if base <= address < base + max(storage.nbytes(), 1) and storage.data_ptr() == base:
            return storage, address - base
    return None


def _is_gpu(device: object) -> bool:
    """Does a device argument name the GPU? Integers mean a GPU index in torch."""
    if isinstance(device, bool):
        return False
    if isinstance(device, int):
        return True
    return torch.device(device).type == "cuda"


def _tensors(values: object, found: list[torch.Tensor], depth: int = 3) -> list[torch.Tensor]:
    """Every tensor in nested arguments."""
    if isinstance(values, torch.Tensor):
        found.append(values)
    elif depth and isinstance(values, (tuple, list)):
        for value in values:
            _tensors(value, found, depth - 1)
    elif depth and isinstance(values, dict):
        for value in values.values():
            _tensors(value, found, depth - 1)
    return found


_GETTERS = {
    torch.Tensor.device.__get__: "device",
    torch.Tensor.is_cuda.__get__: "is_cuda",
    torch.Tensor.is_cpu.__get__: "is_cpu",
}
_UNINITIALISED = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}


class GpuMode(TorchFunctionMode):
    """The function mode under which a submission is loaded and called."""

    def __init__(self) -> None:
        super().__init__()
        self.default_gpu = False  # torch.set_default_device("cuda")

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None):
        kwargs = dict(kwargs or {})
        getter = _GETTERS.get(func)
        if getter is not None:
            return self._property(getter, func, args)
        name = getattr(func, "__name__", "")
        if name == "get_device" and args:
            return 0 if on_gpu(args[0]) else -1
        if name in ("to", "cuda", "cpu") and args and isinstance(args[0], torch.Tensor):
            return self._move(name, func, args, kwargs)
        if name in ("numpy", "__array__") and args and isinstance(args[0], torch.Tensor) and on_gpu(args[0]):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        if name in ("pin_memory", "record_stream"):
            return args[0]
        return self._call(name, func, args, kwargs)

    @staticmethod
    def _property(getter: str, func: Callable, args: tuple):
        if not on_gpu(args[0]):
            return func(*args)
        return {"device": DEVICE, "is_cuda": True, "is_cpu": False}[getter]

    def _call(self, name: str, func: Callable, args: tuple, kwargs: dict):
        sources = _tensors(args, [])
        sources += _tensors(kwargs, [])
        device = kwargs.pop("device", None)
        kwargs.pop("pin_memory", None)
        if device is not None:
            gpu = _is_gpu(device)
        elif sources:
            gpu = any(on_gpu(t) for t in sources)
        else:
            gpu = self.default_gpu
        result = func(*args, **kwargs)
        if gpu:
            old = {id(storage_of(t)) for t in sources if t.layout == torch.strided}
            for tensor in _tensors(result, []):
                if tensor.layout == torch.strided and id(storage_of(tensor)) not in old:
                    mark(tensor)
                    if name in _UNINITIALISED:
                        poison(tensor)
                elif device is not None and not on_gpu(tensor):  # as_tensor(x, device="cuda") of a CPU tensor copies
                    return mark(tensor.clone())
        return result

    def _move(self, name: str, func: Callable, args: tuple, kwargs: dict):
        tensor, rest = args[0], list(args[1:])
        was = on_gpu(tensor)
        target = {"cuda": True, "cpu": False}.get(name, was)
        if name == "to":
            if rest and isinstance(rest[0], torch.Tensor):
                target = on_gpu(rest[0])
            elif rest and (isinstance(rest[0], (str, torch.device)) or type(rest[0]) is int):
                target = _is_gpu(rest.pop(0))
            if isinstance(kwargs.get("other"), torch.Tensor):
                target = on_gpu(kwargs["other"])
            if kwargs.get("device") is not None:
                target = _is_gpu(kwargs["device"])
            kwargs.pop("device", None)
            result = func(tensor, *rest, **kwargs) if rest or kwargs else tensor
        else:
            result = tensor
        if target != was and storage_of(result) is storage_of(tensor):
            result = result.clone()
        return mark(result) if target else result


def poison(tensor: torch.Tensor) -> None:
    """Fill memory that the real device would leave as it was."""
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        if storage.nbytes():
            torch.frombuffer(_memory(storage), dtype=torch.uint8).fill_(POISON)


def _memory(storage: torch.UntypedStorage):
    import ctypes

    return (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())


class Event:
    """`torch.cuda.Event` without a clock: any two events are one millisecond apart."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: object
    ) -> None:
        self.enable_timing = enable_timing

    def record(self, queue: object = None) -> None:
        """Nothing is queued here: launches run at once."""

    def wait(self, queue: object = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Event) -> float:
        return 1.0


class _Queue:
    """The one in-order queue of the device."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    device = DEVICE

    def __enter__(self) -> _Queue:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def synchronize(self) -> None:
        """Launches run at once."""

    wait_event = wait_stream = record_event = lambda self, *_: None

    def query(self) -> bool:
        return True


class _Unavailable:
    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("graph capture is not available on the emulator backend")


class _DeviceContext:
    def __init__(self, device: object = 0) -> None:
        self.idx = 0

    def __enter__(self) -> _DeviceContext:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def device_properties(device: object = None) -> types.SimpleNamespace:
    """What `torch.cuda.get_device_properties` says on an MI355X (AMD's specification; names as in torch on ROCm)."""
    return types.SimpleNamespace(
        name=NAME,
        major=9,
        minor=5,
        gcnArchName="gfx950:sramecc+:xnack-",
        multi_processor_count=256,
        total_memory=288 * 10**9,
        warp_size=64,
        L2_cache_size=4 << 20,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=131072,
        shared_memory_per_block=65536,
        shared_memory_per_multiprocessor=163840,
        clock_rate=2400000,
        memory_clock_rate=2000000,
        memory_bus_width=8192,
        is_integrated=False,
        is_multi_gpu_board=False,
    )


def _generator(original: type) -> type:
    class Generator(original):
        """A generator whose device may be named "cuda"; the numbers are those of the CPU generator."""

        def __new__(cls, device: object = None):
            return super().__new__(cls)

    Generator.__module__, Generator.__qualname__ = original.__module__, original.__qualname__
    return Generator


def install() -> GpuMode:
    """Replace `torch.cuda` and friends; the mode that is returned must be entered around the submission's code."""
    mode = GpuMode()
    torch.version.hip, torch.version.cuda = "7.0.0", None
    queue = _Queue()
    cuda = torch.cuda
    constants = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "synchronize": None,
        "init": None,
        "set_device": None,
        "get_device_name": NAME,
        "get_device_capability": (9, 5),
        "empty_cache": None,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "reset_peak_memory_stats": None,
        "mem_get_info": (280 * 10**9, 288 * 10**9),
        "manual_seed": None,
        "manual_seed_all": None,
        "ipc_collect": None,
        "is_bf16_supported": True,
        "current_stream": queue,
        "default_stream": queue,
        "stream": queue,
        "set_stream": None,
        "Stream": queue,
        "ExternalStream": queue,
        "is_current_stream_capturing": False,
        "_lazy_init": None,
        "get_arch_list": ["gfx950"],
        "can_device_access_peer": False,
        "get_rng_state": None,
        "set_rng_state": None,
    }
    for name, value in constants.items():
        setattr(cuda, name, _constant(name, value))
    cuda.get_device_properties = device_properties
    cuda.Event = torch.Event = Event
    cuda.device = cuda.device_of = _DeviceContext
    cuda.CUDAGraph = cuda.graph = cuda.make_graphed_callables = _Unavailable
    torch.Generator = _generator(torch.Generator)
    torch.set_default_device = lambda device: setattr(mode, "default_gpu", device is not None and _is_gpu(device))
    torch.get_default_device = lambda: DEVICE if mode.default_gpu else torch.device("cpu")
    if hasattr(torch, "accelerator"):
        for name, value in {
            "is_available": True,
            "device_count": 1,
            "synchronize": None,
            "current_device_index": 0,
            "current_accelerator": torch.device("cuda"),
        }.items():
            setattr(torch.accelerator, name, _constant(name, value))
    # Compiled or not, a function of torch gives the same values; there is no GPU to compile for.
    torch.compile = lambda model=None, **_: (lambda function: function) if model is None else model
    sys.modules["torch.utils.cpp_extension"] = torch.utils.cpp_extension = _no_extensions()
    _follow_threads(mode)
    return mode


def _no_extensions() -> types.ModuleType:
    """`torch.utils.cpp_extension` whose every function says why it cannot work here."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("HIP C++ cannot be compiled here: the emulator backend executes Triton kernels only")

    module = types.ModuleType("torch.utils.cpp_extension")
    for name in ("load", "load_inline", "CUDAExtension", "CppExtension", "BuildExtension", "include_paths"):
        setattr(module, name, refuse)
    return module


def _constant(name: str, value: object) -> Callable:
    def answer(*_: object, **__: object):
        return value

    answer.__name__ = answer.__qualname__ = name
    return answer


def _follow_threads(mode: GpuMode) -> None:
    """A function mode belongs to one thread: give it to the threads that a submission starts as well."""
    run = threading.Thread.run

    def run_under_mode(self: threading.Thread) -> None:
        with GpuMode() as here:
            here.default_gpu = mode.default_gpu
            run(self)

    threading.Thread.run = run_under_mode
