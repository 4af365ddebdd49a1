"""`torch.cuda` and what else of torch speaks of a GPU, true of the stand-in: one MI355X without a clock.

Where torch.cuda asks its C++ part, that part is given (`torch._C._cuda_*`), and torch's own Python around it stays.
"""

from __future__ import annotations

import contextlib
import sys
import types

import torch

from .gpu_memory import DEVICE_BYTES
from .gpu_queues import Event, Graph, GraphContext, Queue

NAME = "AMD Instinct MI355X"
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_TORCH_COMPILE = torch.compile
_NOT_MODELLED = (
    "make_graphed_callables", "caching_allocator_alloc", "memory_snapshot", "memory_summary",
    "change_current_allocator", "CUDAPluggableAllocator", "MemPool", "use_mem_pool",
)  # fmt: skip
_TYPES = {
    "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64,
    "Half": torch.float16, "BFloat16": torch.bfloat16, "Float": torch.float32, "Double": torch.float64,
    "Bool": torch.bool,
}  # fmt: skip
# What `torch.cuda.get_device_properties` says on an MI355X (AMD's specification; names as in torch on ROCm).
PROPERTIES = types.SimpleNamespace(
    name=NAME,
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
    is_integrated=False,
    is_multi_gpu_board=False,
    uuid="00000000-0000-0000-0000-000000000000",
    pci_bus_id=0,
    pci_device_id=0,
    pci_domain_id=0,
)


def replace(backend) -> None:
    """Replace what torch has for GPUs; `backend` does the work."""
    cuda, order, heap = torch.cuda, backend.order, backend.heap
    torch.version.hip, torch.version.cuda = "7.0.0", None
    cuda._initialized, cuda._lazy_init = True, lambda: None
    cuda._get_device_properties = lambda device: PROPERTIES
    cuda.get_device_properties = _first_only(lambda device=None: PROPERTIES)
    cuda.is_available = cuda._is_compiled = lambda: True
    cuda.device_count = lambda: 1
    functions = _c_functions(backend)
    for name, answer in functions.items():
        setattr(torch._C, f"_cuda_{name}", answer)
    cuda._exchange_device = cuda._maybe_exchange_device = functions["exchangeDevice"]
    torch._C._accelerator_hooks_device_count = lambda: 1
    for kind in (Event, Queue, Graph):
        kind.order = order
    cuda.Event = torch.Event = cuda.streams.Event = Event
    cuda.Stream = torch.Stream = cuda.ExternalStream = cuda.streams.Stream = Queue
    cuda.CUDAGraph = cuda.graphs.CUDAGraph = Graph
    cuda.graph = cuda.graphs.graph = GraphContext
    for name in _NOT_MODELLED:
        said = f"torch.cuda.{name} is not modelled"
        setattr(cuda, name, lambda *_, said=said, **__: backend.link.refuse(said))
    cuda.is_current_stream_capturing = lambda: order.capturing is not None
    cuda.graph_pool_handle = lambda: (0, 1)
    cuda.current_stream = _first_only(lambda device=None: Queue(number=order.current))
    cuda.default_stream = _first_only(lambda device=None: Queue(number=0))
    cuda.stream = lambda queue: contextlib.nullcontext() if queue is None else queue
    cuda.set_stream = lambda queue: setattr(order, "current", queue.number)
    cuda.synchronize = _first_only(lambda device=None: order.synchronize())
    cuda.empty_cache = heap.trim
    cuda.memory_stats = lambda device=None: {
        "allocated_bytes.all.current": heap.allocated,
        "allocated_bytes.all.peak": heap.peak,
        "reserved_bytes.all.current": heap.reserved,
        "reserved_bytes.all.peak": heap.reserved,
    }
    cuda.memory_allocated = lambda device=None: heap.allocated
    cuda.max_memory_allocated = lambda device=None: heap.peak
    cuda.memory_reserved = cuda.max_memory_reserved = lambda device=None: heap.reserved
    cuda.mem_get_info = lambda device=None: (DEVICE_BYTES - heap.reserved, DEVICE_BYTES)
    cuda.reset_peak_memory_stats = lambda device=None: setattr(heap, "peak", heap.allocated)
    cuda.cudart = _runtime
    cuda.is_bf16_supported = cuda.is_tf32_supported = lambda *_, **__: True
    cuda.get_gencode_flags = lambda: ""
    cuda.nvtx._nvtx = types.SimpleNamespace(
        **{name: (lambda *_: 0) for name in ("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA")}
    )
    _random(backend)
    _tensor_types(cuda)
    if hasattr(torch, "accelerator"):
        accelerator = {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "synchronize": cuda.synchronize,
            "current_device_index": lambda: 0,
            "current_accelerator": lambda *_, **__: torch.device("cuda"),
            "current_stream": cuda.current_stream,
        }
        for name, function in accelerator.items():
            setattr(torch.accelerator, name, function)
    torch.compile = _compile
    sys.modules["torch.utils.cpp_extension"] = torch.utils.cpp_extension = _no_extensions(backend)


def _c_functions(backend) -> dict[str, object]:
    """What torch.cuda asks of its C++ part, by name without `_cuda_`."""
    sync_mode = [0]

    def set_device(index: int) -> None:
        if index > 0:
            raise _invalid_device()

    return {
        "getDevice": lambda: 0,
        "setDevice": set_device,
        "exchangeDevice": lambda index: set_device(index) or 0,
        "maybeExchangeDevice": lambda index: set_device(index) or 0,
        "getDeviceCount": lambda: 1,
        "getArchFlags": lambda: "gfx950",
        "isInBadFork": lambda: False,
        "getCurrentBlasHandle": lambda: 1,
        "get_sync_debug_mode": lambda: sync_mode[0],
        "set_sync_debug_mode": lambda mode: sync_mode.__setitem__(0, mode),
        "canDeviceAccessPeer": lambda one, other: False,
        "ipc_collect": lambda: None,
        "getCurrentRawStream": lambda index: backend.order.current,
        "sleep": lambda cycles: None,
    }


def _invalid_device() -> Exception:
    return getattr(torch, "AcceleratorError", RuntimeError)("CUDA error: invalid device ordinal")


def _first_only(function):
    """A function of a device, for the one there is."""

    def checked(device: object = None):
        index = device if isinstance(device, int) else (device is not None and torch.device(device).index) or 0
        if index > 0:
            raise _invalid_device()
        return function()

    return checked


def _runtime() -> types.SimpleNamespace:
    free = lambda device=0: torch.cuda.mem_get_info()  # noqa: E731
    return types.SimpleNamespace(
        cudaMemGetInfo=free,
        cudaGetErrorString=lambda code: f"error {code}",
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaError=types.SimpleNamespace(success=0),
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
                    raise _invalid_device()
                made._device = torch.device("cuda", 0)
                backend.generators.add(made._cdata)
                backend.kept_generators.append(made)  # an address is another's once its owner is gone
            return made

        @property
        def device(self) -> torch.device:
            return self._device

    Generator.__module__, Generator.__qualname__ = original.__module__, original.__qualname__
    torch.Generator = Generator
    backend.generator = Generator("cuda")
    torch.cuda.default_generators = (backend.generator,)


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

    def refuse(*_: object, **__: object) -> None:
        backend.link.refuse("HIP C++ cannot be compiled here: the emulator backend executes Triton kernels only")

    module = types.ModuleType("torch.utils.cpp_extension")
    for name in ("load", "load_inline", "CUDAExtension", "CppExtension", "BuildExtension", "include_paths"):
        setattr(module, name, refuse)
    return module
