"""A Triton driver for a gfx950 that is not there: real compilation, launches sent to the check that started us.

Everything above the driver is Triton's own: `kernel[grid](...)`, `heuristics`, `autotune`, `warmup` and a compiled
kernel's `compiled[grid](...)` all end in the launcher below. The machine code and the arguments go over the link; the
other side executes the code on the very bytes of the tensors' storages and writes them back.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler.compiler import CompiledKernel
from triton.runtime import driver as runtime_driver

from . import gpu_torch
from .link import Link, Packer

LDS_BYTES = 163840  # CDNA4: 160 KiB per compute unit
MAX_THREADS = 1024


class LaunchRefused(RuntimeError):
    """The launch could not be executed; the message says why."""


class _Utils:
    """What Triton asks of a driver's C extension."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.loading: CompiledKernel | None = None

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[object, int, int, int, int]:
        """Register machine code; answers (module, function, registers, spills, threads) as the HIP driver does."""
        compiled = self.loading
        assert compiled is not None, "a kernel is loaded through CompiledKernel only"
        text = compiled.asm["amdgcn"]
        names = _names(compiled.src)
        answer = self._link.ask(
            {
                "op": "kernel",
                "name": name,
                "asm": text,
                "shared": int(shared),
                "num_warps": int(compiled.metadata.num_warps),
                "options": _options(compiled.metadata),
                "signature": _signature(compiled.src),
                "constants": _constants(compiled.src, names),
            }
        )
        if "error" in answer:
            raise LaunchRefused(answer["error"])
        registers, spills = _number(r"\.vgpr_count:\s+(\d+)", text), _number(r"\.vgpr_spill_count:\s+(\d+)", text)
        return object(), int(answer["kernel"]), registers, spills, MAX_THREADS

    def unload_module(self, module: object) -> None:
        """Nothing to free."""

    def get_device_properties(self, device: int = 0) -> dict[str, object]:
        return {
            "max_shared_mem": LDS_BYTES,
            "max_num_regs": 131072,
            "multiprocessor_count": 256,
            "sm_clock_rate": 2400000,
            "mem_clock_rate": 2000000,
            "mem_bus_width": 8192,
            "arch": "gfx950",
            "warpSize": 64,
            "cooperativeLaunch": 1,
        }


class Launcher:
    """Sends one launch. Triton makes one per compiled kernel and calls it with the grid and all arguments."""

    def __init__(self, src: object, metadata: object) -> None:
        self._signature = [entry for _, entry in _signature(src)]
        if getattr(metadata, "global_scratch_size", 0):
            raise LaunchRefused("the kernel needs global scratch memory, which the emulator backend does not give")
        self._all = list(src.signature.values())

    def __call__(self, gx, gy, gz, queue, function, packed, launch_metadata, enter_hook, exit_hook, *args) -> None:
        driver = runtime_driver.active
        if driver.rehearsing:
            return
        values = [value for value, kind in zip(args, self._all, strict=True) if kind != "constexpr"]
        with torch._C.DisableTorchFunction():
            driver.launch(function, (int(gx), int(gy), int(gz)), values, self._signature)


class Gfx950Driver(DriverBase):
    """The active Triton driver of a submission's process on the emulator backend."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self.utils = _Utils(link)
        self.launcher_cls = Launcher
        self.rehearsing = False  # autotune: compile, do not execute

    @staticmethod
    def is_active() -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("no launcher is compiled here")

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", "gfx950", 64)

    def get_active_torch_device(self) -> torch.device:
        return gpu_torch.DEVICE

    def get_device_interface(self):
        return torch.cuda

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one device."""

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return (9, 5)

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1, dtype=torch.int, device="cuda")

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is no cache to clear."""

    def get_benchmarker(self) -> Callable:
        return self.rehearse

    def rehearse(self, kernel_call: Callable, *_: object, quantiles: object = None, **__: object):
        """In the place of a timing: compile the kernel and say that it takes one millisecond.

        Autotune keeps the smallest time and, among equals, the first: the first config that compiles.
        """
        self.rehearsing = True
        try:
            kernel_call()
        finally:
            self.rehearsing = False
        self._link.ask(
            {
                "op": "note",
                "text": "a benchmark inside the submission was not timed: the first choice that compiles wins",
            }
        )
        return [1.0] * len(quantiles) if quantiles is not None else 1.0

    def launch_prebuilt(self, request: dict, tensors: dict[str, torch.Tensor]) -> dict:
        """aiter's prebuilt GEMM as machine code; the answer holds `error` where there is none to execute.

        Args:
            request: m, n, k, kernel (a name, or "" for aiter's choice), log2_k_split.
            tensors: a_q, b_shuffle, a_scale_sh, b_scale_sh and c (rows padded to 32), as the kernel reads them.
        """
        answer = self._link.ask({"op": "prebuilt", **request})
        if "error" in answer:
            return answer
        if answer["split"]:
            tensors["c"].zero_()  # its shares are added into C
        values = [tensors[entry["tensor"]] if "tensor" in entry else entry["value"] for entry in answer["args"]]
        with torch._C.DisableTorchFunction():
            self.launch(
                int(answer["kernel"]), tuple(answer["grid"]), values, [entry["kind"] for entry in answer["args"]]
            )
        return answer

    def launch(self, function: int, grid: tuple[int, int, int], values: list, kinds: list[str]) -> None:
        """Send storages and arguments, wait, and read the storages back."""
        packer = Packer(len(self._link.window))
        storages: dict[int, tuple[torch.UntypedStorage, int, int]] = {}  # id -> (storage, index, offset in the window)
        arguments: list[dict] = []
        for value, kind in zip(values, kinds, strict=True):
            if not kind.startswith("*"):
                arguments.append({"value": _scalar(value, kind)})
                continue
            if value is None:
                raise LaunchRefused("a null pointer was passed to a kernel")
            storage, offset = _locate(value)
            if id(storage) not in storages:
                place = packer.place(storage.nbytes())
                _copy(self._link.window, place, storage, into_window=True)
                storages[id(storage)] = (storage, len(storages), place)
            arguments.append({"buffer": storages[id(storage)][1], "offset": offset})
        answer = self._link.ask(
            {
                "op": "launch",
                "kernel": function,
                "grid": list(grid),
                "args": arguments,
                "buffers": [{"offset": place, "nbytes": storage.nbytes()} for storage, _, place in storages.values()],
            }
        )
        if "error" in answer:
            raise LaunchRefused(answer["error"])
        for index in answer.get("written", []):
            storage, _, place = list(storages.values())[index]
            _copy(self._link.window, place, storage, into_window=False)


def _locate(value: object) -> tuple[torch.UntypedStorage, int]:
    """The storage and byte offset behind a pointer argument (a tensor, or a raw address)."""
    if isinstance(value, int):
        found = gpu_torch.storage_at(value)
        if found is None:
            raise LaunchRefused(f"pointer 0x{value:x} lies in no GPU tensor")
        return found
    base = getattr(value, "base", value)  # triton.reinterpret wraps a tensor
    if not isinstance(base, torch.Tensor):
        address = value.data_ptr()
        return _locate(int(address))
    if not gpu_torch.on_gpu(base):
        raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
    storage = base.untyped_storage()
    return storage, base.data_ptr() - storage.data_ptr()


def _copy(window, place: int, storage: torch.UntypedStorage, into_window: bool) -> None:
    size = storage.nbytes()
    if not size:
        return
    shared = torch.frombuffer(window, dtype=torch.uint8, count=size, offset=place)
    own = torch.frombuffer(gpu_torch._memory(storage), dtype=torch.uint8)
    if into_window:
        shared.copy_(own)
    else:
        own.copy_(shared)


def _scalar(value: object, kind: str) -> int | float:
    if kind.startswith(("fp", "bf")):
        return float(value)
    return int(value)


def _signature(src: object) -> list[tuple[str, str]]:
    """(name, type) of every argument that exists at run time, in order."""
    names, found = _names(src), []
    for name, kind in zip(names, src.signature.values(), strict=True):
        if isinstance(kind, (tuple, list)) or str(kind).startswith("tensordesc"):
            raise LaunchRefused(
                f"argument {name}: tuples and tensor descriptors are not carried by the emulator backend"
            )
        if kind != "constexpr":
            found.append((name, kind))
    return found


def _names(src: object) -> list[str]:
    return [str(name) for name in src.signature]


def _constants(src: object, names: list[str]) -> dict[str, str]:
    """Constexpr arguments as text, for the report."""
    shown = {}
    for key, value in src.constants.items():
        index = key[0] if isinstance(key, tuple) else key
        shown[names[index] if isinstance(index, int) else str(index)] = str(getattr(value, "value", value))
    return shown


def _options(metadata: object) -> dict[str, int]:
    kept = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim")
    return {name: int(getattr(metadata, name)) for name in kept if hasattr(metadata, name)}


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0


def install(link: Link) -> Gfx950Driver:
    """Make Triton compile for gfx950 and launch over `link`."""
    active = Gfx950Driver(link)
    runtime_driver.set_active(active)
    if hasattr(runtime_driver, "_default"):
        runtime_driver._default = active
    load = CompiledKernel._init_handles

    def load_through_link(self: CompiledKernel) -> None:
        active.utils.loading = self
        load(self)

    CompiledKernel._init_handles = load_through_link
    triton.testing.do_bench = active.rehearse
    if hasattr(triton.testing, "do_bench_cudagraph"):
        triton.testing.do_bench_cudagraph = active.rehearse
    return active
