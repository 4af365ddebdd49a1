"""GPUs seen through torch (ROCm and CUDA alike): architecture, caches, clocks, events, the cache overwrite."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

GIB = 1 << 30

# Last-level caches that torch does not report: on MI355X its L2_cache_size is one XCD's 4 MiB, behind which the
# Infinity Cache holds 256 MiB (CDNA4 white paper).
INFINITY_CACHE_BYTES = {"gfx950": 256 << 20, "gfx942": 256 << 20}


@dataclass(frozen=True)
class DeviceInfo:
    """One GPU.

    Attributes:
        index: torch's number of it in this process.
        name: as the driver calls it; results of different names are never mixed.
        arch: "gfx950", "sm_90", ...
        compute_units: CUs or SMs.
        memory_bytes, last_level_cache_bytes: sizes.
    """

    index: int
    name: str
    arch: str
    compute_units: int
    memory_bytes: int
    last_level_cache_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain data."""
        return asdict(self)


def present_device() -> str:
    """Name of the first GPU that a worker would get, or ""; asked of NVML where it answers: that takes no context."""
    import torch

    if not torch.cuda.is_available():
        return ""
    try:
        import pynvml

        first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
        pynvml.nvmlInit()
        try:
            name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(int(first)))
        finally:
            pynvml.nvmlShutdown()
        return name.decode() if isinstance(name, bytes) else str(name)
    except Exception:  # no such library, no such device by number, ROCm: torch knows, and takes a context to say so
        return str(torch.cuda.get_device_name(0))


def device_info(index: int = 0) -> DeviceInfo:
    """The GPU with torch's number `index`.

    Raises:
        ValueError: if there is none.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not 0 <= index < count:
        raise ValueError(f"device index {index!r}: torch sees {count} GPU(s)" + (f", 0..{count - 1}" if count else ""))
    properties = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        arch = properties.gcnArchName.split(":")[0]
    else:
        arch = f"sm_{properties.major}{properties.minor}"
    cache = max(int(getattr(properties, "L2_cache_size", 0) or 0), INFINITY_CACHE_BYTES.get(arch, 0))
    return DeviceInfo(index, properties.name, arch, properties.multi_processor_count, properties.total_memory, cache)


def read_clocks(index: int = 0) -> dict[str, float]:
    """sm_mhz, power_w, temperature_c of a GPU now: those that torch can read (NVML or amdsmi); nothing is ever set."""
    import torch

    found = {}
    for name, scale in (("clock_rate", 1.0), ("power_draw", 1e-3), ("temperature", 1.0)):
        with contextlib.suppress(Exception):  # a missing library or permission, a sensor that a board lacks
            found[name] = float(getattr(torch.cuda, name)(index)) * scale
    names = {"clock_rate": "sm_mhz", "power_draw": "power_w", "temperature": "temperature_c"}
    return {names[name]: value for name, value in found.items()}


def overwrite_bytes(info: DeviceInfo) -> int:
    """Size of the cache overwrite: four last-level caches, at least 1 GiB, at most a quarter of the memory.

    1 GiB also keeps a 4 TB/s GPU busy for a quarter of a millisecond, longer than a host takes to issue a call. (The
    task's own overwrite takes 62.5 GiB, for the same purpose.)
    """
    return min(max(4 * info.last_level_cache_bytes, GIB), info.memory_bytes // 4)


class TorchDevice:
    """A GPU as `timing` wants it."""

    def __init__(self, index: int = 0) -> None:
        import torch

        self.info = device_info(index)
        self._torch = torch
        torch.cuda.set_device(index)
        self.overwrite_bytes = overwrite_bytes(self.info)
        self._scratch = torch.empty(self.overwrite_bytes // 4, dtype=torch.float32, device=f"cuda:{index}")
        self._fill = 0.0

    def synchronize(self) -> None:
        """Wait for everything queued."""
        self._torch.cuda.synchronize()

    def overwrite(self) -> None:
        """Queue a write of `overwrite_bytes`, a new value each time, so that nothing can be kept."""
        self._fill += 1.0
        self._scratch.fill_(self._fill)

    def event(self) -> Any:
        """Record an event behind what is queued."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two completed events."""
        return 1e3 * start.elapsed_time(end)

    def null_call(self) -> Callable[[], None]:
        """A launch of an empty kernel: the floor of every time on this device."""
        from mxfp4lab.kernels.null import null_kernel

        anchor = self._scratch[:4]
        return lambda: null_kernel[(1,)](anchor)
