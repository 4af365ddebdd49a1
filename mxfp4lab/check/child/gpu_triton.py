"""A Triton driver for a gfx950 that is not there: real compilation, launches sent to the check that started us.

Everything above the driver is Triton's own: `kernel[grid](...)`, `heuristics`, `autotune`, `warmup` and a compiled
kernel's `compiled[grid](...)` all end in the launcher below. The machine code and the arguments go over the link; the
other side executes the code on the very bytes of the GPU's memory, which both share.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator

import torch
import triton
from triton.backends import driver as drivers
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import CompiledKernel
from triton.runtime import Autotuner
from triton.runtime import driver as runtime_driver

from .gpu_cuda import PROPERTIES
from .gpu_memory import Block
from .gpu_order import DEVICE
from .gpu_torch import Backend

MAX_THREADS = 1024
BENCHMARK_RUNS = 3  # of a call that is benchmarked; what is not reset between its runs shows
LARGE = 1 << 30  # bytes: every launch looks at all bytes of what it touches
TABLE = 4096  # numbers up to which an int64 tensor is searched for addresses
CHOICES = 32  # of one autotuner, whose results are compared


class _Utils:
    """What Triton asks of a driver's C extension."""

    def __init__(self, backend: Backend) -> None:
        self._link = backend.link
        self.loading: CompiledKernel | None = None

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[object, int, int, int, int]:
        """Register machine code; answers (module, function, registers, spills, threads) as the HIP driver does."""
        compiled = self.loading
        assert compiled is not None, "a kernel is loaded through CompiledKernel only"
        text = compiled.asm["amdgcn"]
        answer = self._link.ask(
            {
                "op": "kernel",
                "name": name,
                "asm": text,
                "shared": int(shared),
                "num_warps": int(compiled.metadata.num_warps),
                "options": _options(compiled.metadata),
                "signature": list(_flat(compiled.src.signature, _kinds(compiled.src, compiled.metadata))),
                "constants": _constants(compiled.src),
            }
        )
        if "error" in answer:
            self._link.refuse(answer["error"])
        registers, spills = _number(r"\.vgpr_count:\s+(\d+)", text), _number(r"\.vgpr_spill_count:\s+(\d+)", text)
        return object(), int(answer["kernel"]), registers, spills, MAX_THREADS

    def unload_module(self, module: object) -> None:
        """Nothing to free."""

    def get_device_properties(self, device: int = 0) -> dict[str, object]:
        return {
            "max_shared_mem": PROPERTIES.shared_memory_per_multiprocessor,
            "max_num_regs": PROPERTIES.regs_per_multiprocessor,
            "multiprocessor_count": PROPERTIES.multi_processor_count,
            "sm_clock_rate": PROPERTIES.clock_rate,
            "mem_clock_rate": PROPERTIES.memory_clock_rate,
            "mem_bus_width": PROPERTIES.memory_bus_width,
            "arch": "gfx950",
            "warpSize": PROPERTIES.warp_size,
        }


class Launcher:
    """Sends one launch. Triton makes one per compiled kernel and calls it with the grid and all arguments."""

    def __init__(self, src: object, metadata: object) -> None:
        if getattr(metadata, "global_scratch_size", 0):
            runtime_driver.active.link.refuse("a kernel that needs global scratch memory is not modelled")
        self._kinds = _kinds(src, metadata)
        signature = dict(src.signature)
        described = getattr(metadata, "tensordesc_meta", None)
        if described:
            runtime_driver.active.link.refuse("tensor descriptors as hardware objects are not modelled")
        self._launch = self._send
        if any("tensordesc" in str(kind) for kind in signature.values()):  # as pointer, shape and strides
            self._launch = drivers.wrap_handle_tensordesc_impl(
                self._send, signature, [], lambda argument, _, __: drivers.decompose_descriptor(argument)
            )

    def __call__(self, gx, gy, gz, queue, function, packed, launch_metadata, enter_hook, exit_hook, *args) -> None:
        grid = tuple(operator.index(size) for size in (gx, gy, gz))
        if enter_hook is not None:
            enter_hook(launch_metadata)
        self._launch(function, grid, args)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _send(self, function: int, grid: tuple[int, int, int], args: tuple) -> None:
        if len(args) != len(self._kinds):
            raise TypeError(f"the kernel takes {len(self._kinds)} arguments, {len(args)} were given")
        pairs = list(_flat(args, self._kinds))
        runtime_driver.active.launch(function, grid, [value for value, _ in pairs], [kind for _, kind in pairs])


class Gfx950Driver(drivers.DriverBase):
    """The active Triton driver of a submission's process on the emulator backend."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self.gpu, self.link = backend, backend.link
        self.utils = _Utils(backend)
        self.launcher_cls = Launcher
        self.tuned: list[tuple[Autotuner, tuple, list]] = []  # (tuner, key, its configs) since the last comparison

    @staticmethod
    def is_active() -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("no launcher is compiled here")

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", "gfx950", 64)

    def get_active_torch_device(self) -> torch.device:
        return DEVICE

    def get_device_interface(self):
        return torch.cuda

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        torch.cuda.set_device(device)

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return (9, 5)

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1, dtype=torch.int, device="cuda")

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is no cache to clear."""

    # benchmarks and choices ---------------------------------------------------------------------------------------

    def get_benchmarker(self) -> Callable:
        return self.benchmark

    def benchmark(self, fn: Callable, *_: object, quantiles=None, return_mode: str = "mean", **__: object):
        """In the place of a timing: run the call several times, as a GPU does, and say that it takes a millisecond.

        Autotune keeps the smallest time and, among equals, the first; `compare_choices` looks at the others.
        """
        for _ in range(BENCHMARK_RUNS):
            fn()
        self.gpu.order.wait()
        self.link.ask({"op": "note", "text": "a benchmark inside the submission was run and not timed: all take 1 ms"})
        if quantiles is not None:
            return [1.0] * len(quantiles)
        return [1.0] * BENCHMARK_RUNS if return_mode == "all" else 1.0

    def watch(self, run: Callable) -> Callable:
        """Around `Autotuner.run`: remember what was chosen among."""

        def run_and_remember(tuner: Autotuner, *args, **kwargs):
            before = set(tuner.cache)
            result = run(tuner, *args, **kwargs)
            for key in set(tuner.cache) - before:
                timings = getattr(tuner, "configs_timings", None) or {}
                working = [config for config, ms in timings.items() if (ms if isinstance(ms, float) else ms[0]) < 1e30]
                self.tuned.append((tuner, key, working[:CHOICES]))
            return result

        return run_and_remember

    def compare_choices(self, call: Callable[[], torch.Tensor], c: torch.Tensor) -> None:
        """After a call that autotuned: any choice may be the fastest on a GPU, so each must give this C.

        Raises:
            Refused: naming the choice that gives another.
        """
        tuned, self.tuned = self.tuned, []
        for index in range(1, max((len(configs) for _, _, configs in tuned), default=0)):
            for tuner, key, configs in tuned:
                tuner.cache[key] = configs[index % len(configs)]
            other = call()
            same = isinstance(c, torch.Tensor) and isinstance(other, torch.Tensor) and c.shape == other.shape
            if same and not torch.allclose(other.float(), c.float(), rtol=1e-2, atol=1e-2, equal_nan=True):
                chosen = "; ".join(f"{t.base_fn.__name__}: {t.cache[key]}" for t, key, _ in tuned)
                self.link.refuse(f"C is another one where autotune chooses {chosen}; on a GPU the fastest choice wins")
        for tuner, key, configs in tuned:
            tuner.cache[key] = configs[0]

    # launches -----------------------------------------------------------------------------------------------------

    def launch_prebuilt(self, request: dict, tensors: dict[str, torch.Tensor]) -> dict:
        """aiter's prebuilt GEMM as machine code; the answer holds `error` where there is none to execute.

        Args:
            request: m, n, k, kernel (a name, or "" for aiter's choice), log2_k_split.
            tensors: a_q, b_shuffle, a_scale_sh, b_scale_sh and c (rows padded to 32), as the kernel reads them.
        """
        answer = self.link.ask({"op": "prebuilt", **request})
        if "error" in answer:
            return answer
        if answer["split"]:
            tensors["c"].zero_()  # its shares are added into C
        values = [tensors[entry["tensor"]] if "tensor" in entry else entry["value"] for entry in answer["args"]]
        self.launch(int(answer["kernel"]), tuple(answer["grid"]), values, [entry["kind"] for entry in answer["args"]])
        return answer

    def launch(self, function: int, grid: tuple[int, int, int], values: list, kinds: list[str]) -> None:
        """Send the arguments and wait; the memory is shared.

        Raises:
            ValueError: a CPU tensor, as Triton's own driver.
            Refused: a launch that cannot be executed.
        """
        entries: list[dict] = []
        touched: list[Block] = []
        for value, kind in zip(values, kinds, strict=True):
            if kind.startswith("*"):
                block, offset = self._located(value)
                if block not in touched:
                    touched.append(block)
                entries.append({"buffer": touched.index(block), "offset": offset})
            else:
                entries.append({"value": float(value) if kind.startswith(("fp", "bf", "f")) else int(value)})
        if any(block.nbytes > LARGE for block in touched):
            self.link.refuse("a kernel on a piece of memory of more than 1 GiB is not modelled")
        if any(address and self.gpu.heap.at(address) for address in self._addresses(values, kinds)):
            self.link.refuse("a kernel that takes addresses of tensors as numbers is not modelled: pass the tensors")
        message = {"op": "launch", "kernel": function, "grid": list(grid), "args": entries}
        message["buffers"] = [{"offset": block.offset, "nbytes": block.nbytes} for block in touched]

        def send() -> None:
            answer = self.link.ask(message)
            if "error" in answer:
                self.link.refuse(answer["error"])

        if any(block.pinned for block in touched):
            self.gpu.order.arrive()
        self.gpu.order.saved(touched)
        send()
        self.gpu.order.ran(send, values)

    def _located(self, value: object) -> tuple[Block, int]:
        """The block and byte offset behind a pointer argument: a tensor, something with `data_ptr`, or an address."""
        value = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
        address = value if isinstance(value, int) else int(value.data_ptr())
        if isinstance(value, torch.Tensor):
            block = self.gpu.heap.block_of(value)
            if block is None and value.is_cuda and not value.untyped_storage().nbytes():
                return Block(0, 0, 0, 0), 0
        else:
            block = self.gpu.heap.at(address)
        if block is None and isinstance(value, int):
            self.link.refuse(f"pointer 0x{address:x} lies in no GPU tensor")
        if block is None:
            raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
        return block, address - block.address

    def _addresses(self, values: list, kinds: list[str]) -> Iterator[int]:
        """Numbers that may be addresses: 64-bit scalars, and what small int64 tensors hold."""
        for value, kind in zip(values, kinds, strict=True):
            if kind in ("i64", "u64"):
                yield int(value)
            elif kind in ("*i64", "*u64") and isinstance(value, torch.Tensor) and value.numel() <= TABLE:
                yield from (self.gpu.heap.host(value) if value.is_cuda else value).reshape(-1).tolist()


def _kinds(src: object, metadata: object) -> tuple:
    """The type of every argument, descriptors taken apart, tuples as tuples, "constexpr" for what no launch carries."""
    kinds = list(src.signature.values())
    if any("tensordesc" in str(kind) for kind in kinds):
        kinds = drivers.expand_signature(kinds, getattr(metadata, "tensordesc_meta", None), "tensordesc")
    return tuple(kinds)


def _flat(values: object, kinds: object) -> Iterator[tuple[object, str]]:
    """(value, type) of every argument that exists at run time; tuples are taken apart."""
    values = list(values)
    for index, kind in enumerate(kinds):
        value = values[index] if index < len(values) else f"argument{index}"
        if isinstance(kind, (tuple, list)):
            inner = [f"{value}.{i}" for i in range(len(kind))] if isinstance(value, str) else value
            yield from _flat(inner, kind)
        elif kind != "constexpr":
            yield value, str(kind)


def _constants(src: object) -> dict[str, str]:
    """Constexpr arguments as text, for the report."""
    names, shown = [str(name) for name in src.signature], {}
    for key, value in src.constants.items():
        path = key if isinstance(key, tuple) else (key,)
        first = names[path[0]] if isinstance(path[0], int) else str(path[0])
        shown[".".join([first, *map(str, path[1:])])] = str(getattr(value, "value", value))
    return shown


def _options(metadata: object) -> dict[str, int]:
    kept = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim")
    return {name: int(getattr(metadata, name)) for name in kept if hasattr(metadata, name)}


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0


def install(backend: Backend) -> Gfx950Driver:
    """Make Triton compile for gfx950 and launch over the link."""
    active = Gfx950Driver(backend)
    runtime_driver.set_active(active)
    if hasattr(runtime_driver, "_default"):
        runtime_driver._default = active
    load = CompiledKernel._init_handles

    def load_through_link(self: CompiledKernel) -> None:
        active.utils.loading = self
        load(self)

    CompiledKernel._init_handles = load_through_link
    Autotuner.run = active.watch(Autotuner.run)
    triton.testing.do_bench = active.benchmark
    if hasattr(triton.testing, "do_bench_cudagraph"):
        triton.testing.do_bench_cudagraph = active.benchmark
    backend.triton = active
    return active
