"""Launching a code object that no Triton launcher belongs to: the driver's module API, ROCm and CUDA alike.

The two APIs have the same functions under different names and pass a packed argument segment the same way (an `extra`
list of pointer, size, end). aiter's prebuilt GEMM is launched through the HIP names on an MI355X, where this has not
been run yet; the CUDA names have been run on an H200.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_BUFFER_POINTER, _BUFFER_SIZE = 1, 2
_FORMATS = {(4, False): "<I", (8, False): "<Q", (4, True): "<f", (8, True): "<d"}


@dataclass(frozen=True)
class DriverNames:
    """How one vendor's driver spells what is needed.

    Attributes:
        libraries: names to try, in order.
        load, function, launch: module load from memory, function lookup, launch.
        error: (code, pointer to text) or, for HIP, code to text.
        end: the value that closes the `extra` list.
    """

    libraries: tuple[str, ...]
    load: str
    function: str
    launch: str
    error: str
    end: int


HIP = DriverNames(
    ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"), "hipModuleLoadData", "hipModuleGetFunction",
    "hipModuleLaunchKernel", "hipGetErrorString", 3)  # fmt: skip
CUDA = DriverNames(
    ("libcuda.so.1", "libcuda.so"), "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "cuGetErrorName", 0
)


def pack_arguments(args: Sequence[tuple[int, int, int | float]]) -> bytearray:
    """The argument segment: each value at its byte offset, gaps zero.

    Args:
        args: (byte offset, size in bytes, value); ints (addresses too) may be negative.

    Raises:
        ValueError: a size that is not 4 or 8.
    """
    segment = bytearray(max((offset + size for offset, size, _ in args), default=0))
    for offset, size, value in args:
        form = _FORMATS.get((size, isinstance(value, float)))
        if form is None:
            raise ValueError(f"argument at byte {offset} has size {size}; allowed: 4 or 8")
        if isinstance(value, int):
            value &= (1 << (8 * size)) - 1
        struct.pack_into(form, segment, offset, value)
    return segment


class Module:
    """A loaded code object and one function of it, on the current device."""

    def __init__(self, binary: bytes, name: str, names: DriverNames | None = None) -> None:
        """Load.

        Args:
            binary: hsaco or cubin.
            name: the kernel's symbol.
            names: the driver; torch's own without it.

        Raises:
            RuntimeError: the driver's message.
        """
        if names is None:
            import torch

            names = HIP if torch.version.hip else CUDA
        self._names, self._library = names, _open(names)
        self._binary = ctypes.create_string_buffer(binary, len(binary))
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(names.load, ctypes.byref(self._module), self._binary)
        self._check(names.function, ctypes.byref(self._function), self._module, name.encode())

    def prepare(
        self, grid: tuple[int, int, int], block: int, args: Sequence[tuple[int, int, int | float]],
        places: Mapping[str, int] | None = None,
    ) -> Callable[[int, Mapping[str, int]], None]:  # fmt: skip
        """A launch with its argument segment packed once.

        Args:
            grid: workgroups along x, y, z.
            block: threads of a workgroup.
            args: as `pack_arguments` takes them.
            places: name -> byte offset of addresses that change from call to call.

        Returns:
            function of (queue handle, name -> address).
        """
        segment = pack_arguments(args)
        raw = (ctypes.c_char * len(segment)).from_buffer(segment)
        size = ctypes.c_size_t(len(segment))
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.cast(raw, ctypes.c_void_p), _BUFFER_SIZE,
            ctypes.cast(ctypes.pointer(size), ctypes.c_void_p), self._names.end)  # fmt: skip
        sizes = [ctypes.c_uint(value) for value in (*grid, block, 1, 1, 0)]
        kept = (segment, raw, size)  # the driver reads them at every launch

        def call(queue: int, addresses: Mapping[str, int]) -> None:
            for name, offset in (places or {}).items():
                struct.pack_into("<Q", kept[0], offset, addresses[name])
            self._check(self._names.launch, self._function, *sizes, ctypes.c_void_p(queue), None, extra)

        return call

    def _check(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if not code:
            return
        text = ctypes.c_char_p()
        if self._names is CUDA:
            self._library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
        else:
            get = getattr(self._library, self._names.error)
            get.restype = ctypes.c_char_p
            text.value = get(ctypes.c_int(code))
        raise RuntimeError(f"{function}: error {code} ({(text.value or b'?').decode(errors='replace')})")


def _open(names: DriverNames) -> ctypes.CDLL:
    reasons = []
    for library in names.libraries:
        try:
            return ctypes.CDLL(library)
        except OSError as error:
            reasons.append(str(error))
    raise RuntimeError(f"no GPU driver library: {'; '.join(reasons)}")
