"""`torch.cuda` and what else of torch speaks of a GPU, true of the stand-in: one MI355X without a clock.

Where torch.cuda asks its C++ part, that part is given (`torch._C._cuda_*`), and torch's own Python around it stays.
What is not given is refused by its name.
"""

from __future__ import annotations

import sys
import types

import torch

from .gpu_memory import DEVICE_BYTES
from .gpu_order import DEVICE, Event, Graph, GraphContext, Queue

_TORCH_COMPILE = torch.compile
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_TYPES = {
    "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64,
    "Half": torch.float16, "BFloat16": torch.bfloat16, "Float": torch.float32, "Double": torch.float64,
    "Bool": torch.bool,
}  # fmt: skip
# What `torch.cuda.get_device_properties` says on an MI355X (AMD's specification; names as in torch on ROCm).
PROPERTIES = types.SimpleNamespace(
    name="AMD Instinct MI355X",
    major=9,
    minor=5,
    gcnArchName="gfx950:sramecc+:xnack-",
    multi_processor_count=256,
    total_memory=DEVICE_BYTES,
    warp_size=64,
    L2_cache_size=4 << 20,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    regs_per_multiprocessor=131072,
    shared_memory_per_block=65536,
    shared_memory_per_multiprocessor=163840,
    clock_rate=2400000,
    memory_clock_rate=2000000,
    memory_bus_width=8192,
    uuid="00000000-0000-0000-0000-000000000000",
    pci_bus_id=0,
)


def replace(backend) -> None:
    """Replace what torch has for GPUs; `backend` does the work."""
    cuda = torch.cuda
    torch.version.hip, torch.version.cuda = "7.0.0", None
    cuda._initialized, cuda._lazy_init = True, lambda: None
    functions = _c_functions(backend)
    for name, answer in functions.items():
        setattr(torch._C, f"_cuda_{name}", answer)
    torch._C.__getattr__ = lambda name: _missing(name, backend.link.refuse)
    cuda._get_device_properties = lambda device: PROPERTIES
    cuda.is_available = cuda._is_compiled = lambda: True
    cuda.device_count = torch._C._accelerator_hooks_device_count = lambda: 1
    cuda._exchange_device = cuda._maybe_exchange_device = functions["exchangeDevice"]
    for kind in (Event, Queue, Graph):
        kind.order = backend.order
    cuda.Event = torch.Event = cuda.streams.Event = Event
    cuda.Stream = torch.Stream = cuda.ExternalStream = cuda.streams.Stream = Queue
    cuda.CUDAGraph = cuda.graphs.CUDAGraph = Graph
    cuda.graph = cuda.graphs.graph = GraphContext
    cuda.is_current_stream_capturing = lambda: backend.order.capturing is not None
    cuda.graph_pool_handle = lambda: (0, 1)
    cuda.make_graphed_callables = lambda *_, **__: backend.link.refuse("make_graphed_callables is not modelled")
    cuda.cudart = _runtime
    cuda.get_gencode_flags = lambda: ""
    cuda.nvtx._nvtx = types.SimpleNamespace(
        **{name: (lambda *_: 0) for name in ("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA")}
    )
    _random(backend)
    _tensor_types(cuda)
    torch.compile = _compile
    sys.modules["torch.utils.cpp_extension"] = torch.utils.cpp_extension = _no_extensions(backend)


def _c_functions(backend) -> dict[str, object]:
    """What torch.cuda asks of its C++ part, by name without `_cuda_`."""
    heap, sync_mode = backend.heap, [0]

    def set_device(index: int) -> int:
        if index > 0:
            raise invalid_device()
        return 0

    def memory(device: int) -> dict:
        now = {"all": {"current": heap.allocated, "peak": heap.peak}}
        return {"allocated_bytes": now, "reserved_bytes": now}

    return {
        "getDevice": lambda: 0,
        "setDevice": set_device,
        "exchangeDevice": set_device,
        "maybeExchangeDevice": set_device,
        "getDeviceCount": lambda: 1,
        "getArchFlags": lambda: "gfx950",
        "isInBadFork": lambda: False,
        "getCurrentBlasHandle": lambda: 1,
        "get_sync_debug_mode": lambda: sync_mode[0],
        "set_sync_debug_mode": lambda mode: sync_mode.__setitem__(0, mode),
        "getCurrentRawStream": lambda device: 0,
        "getCurrentStream": lambda device: (0, 0, 1),
        "getDefaultStream": lambda device: (0, 0, 1),
        "setStream": lambda **_: None,
        "synchronize": backend.order.wait,
        "memoryStats": memory,
        "resetPeakMemoryStats": lambda device: setattr(heap, "peak", heap.allocated),
        "emptyCache": lambda: None,
    }


def _missing(name: str, refuse):
    if not name.startswith("_cuda_"):
        raise AttributeError(f"module 'torch._C' has no attribute {name!r}")
    return lambda *_, **__: refuse(f"{name.removeprefix('_cuda_')} of torch.cuda is not modelled")


def invalid_device() -> Exception:
    """What the runtime raises for a GPU that there is not."""
    return getattr(torch, "AcceleratorError", RuntimeError)("CUDA error: invalid device ordinal")


def _runtime() -> types.SimpleNamespace:
    return types.SimpleNamespace(
        cudaMemGetInfo=lambda device=0: (DEVICE_BYTES - torch.cuda.memory_allocated(), DEVICE_BYTES),
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
    )


def _random(backend) -> None:
    """Generators that say on which device they are; the GPU's draw from torch's CPU engine."""
    original = torch.Generator

    class Generator(original):
        def __new__(cls, device: object = "cpu"):
            made = super().__new__(cls)
            made._device = torch.device(device)
            if made._device.type == "cuda":
                if (made._device.index or 0) > 0:
                    raise invalid_device()
                made._device = DEVICE
                backend.generators[made._cdata] = made
            return made

        @property
        def device(self) -> torch.device:
            return self._device

    Generator.__module__, Generator.__qualname__ = original.__module__, original.__qualname__
    torch.Generator = Generator
    torch.cuda.default_generators = (Generator("cuda"),)


def _tensor_types(cuda) -> None:
    """`torch.cuda.FloatTensor(2, 3)` and its like, which make tensors and know their own."""

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype == cls.dtype

        def __call__(cls, *args):
            if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
                return torch.tensor(args[0], dtype=cls.dtype, device="cuda")
            size = args[0] if args and isinstance(args[0], torch.Size) else args
            return torch.empty(size or (0,), dtype=cls.dtype, device="cuda")

    for name, dtype in _TYPES.items():
        setattr(cuda, f"{name}Tensor", Kind(f"{name}Tensor", (), {"dtype": dtype, "__module__": "torch.cuda"}))


def _compile(
    model=None, *, fullgraph: bool = False, dynamic: object = None, backend: object = "inductor",
    mode: str | None = None, options: dict | None = None, disable: bool = False,
):  # fmt: skip
    """`torch.compile`: what it refuses is refused; compiled or not, a function of torch gives the same values."""
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if model is None:
        return lambda function: _compile(function, fullgraph=fullgraph, dynamic=dynamic, disable=disable)
    if fullgraph and not disable:  # torch's own tracer says what it cannot trace
        return _TORCH_COMPILE(model, fullgraph=True, dynamic=dynamic, backend="eager")
    return model


def _no_extensions(backend) -> types.ModuleType:
    """`torch.utils.cpp_extension` whose every function says why it cannot work here."""
    module = types.ModuleType("torch.utils.cpp_extension")
    why = "HIP C++ cannot be compiled here: the emulator backend executes Triton kernels only"
    for name in ("load", "load_inline", "CUDAExtension", "CppExtension", "BuildExtension", "include_paths"):
        setattr(module, name, lambda *_, **__: backend.link.refuse(why))
    return module
