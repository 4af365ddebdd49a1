"""Kernel arguments: arrays placed in memory, the argument segment, the dispatch packet."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mxfp4lab.gfx950.isa import KernelDescriptor
from mxfp4lab.gfx950.machine.memory import Buffer, Memory


class Pointer(int):
    """A virtual address among kernel arguments."""


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of what a kernel is given for an argument: a tuple's entries one after another, as Triton does."""
    if isinstance(value, (tuple, list)):
        for position, entry in enumerate(value):
            yield from flatten(entry, f"{name}[{position}]")
    else:
        yield name, value


def bind_arguments(memory: Memory, args: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], list[Buffer]]:
    """Place arrays in memory; returns the arguments, tuples laid flat, with pointers for arrays, and the buffers.

    Arrays that overlap share a buffer, named after the first: what is stored through one is seen through the other.
    """
    names = [*names, *(f"arg{place}" for place in range(len(names), len(args)))]
    values = [entry for name, value in zip(names, args, strict=False) for entry in flatten(value, name)]
    spans = {place: _span(value, name) for place, (name, value) in enumerate(values) if _is_array(value)}
    stretches: list[_Stretch] = []
    for place, span in sorted(spans.items(), key=lambda item: (item[1].start, -item[1].end)):
        last = stretches[-1] if stretches else None
        if last is None or span.start >= last.end:
            stretches.append(_Stretch(span.start, span.end, span.writeable, [place]))
        else:
            last.end, last.writeable = max(last.end, span.end), last.writeable or span.writeable
            last.places.append(place)
    bound: list[Any] = [value for _, value in values]
    buffers = []
    for stretch in sorted(stretches, key=lambda stretch: min(stretch.places)):
        raw = np.zeros(0, np.uint8)
        if stretch.end > stretch.start:
            raw = np.ctypeslib.as_array((ctypes.c_uint8 * (stretch.end - stretch.start)).from_address(stretch.start))
        raw.flags.writeable = stretch.writeable
        buffers.append(memory.add(values[min(stretch.places)][0], raw, stretch.start))
        for place in stretch.places:
            bound[place] = Pointer(buffers[-1].base + spans[place].first - stretch.start)
    return bound, buffers


@dataclass
class _Stretch:
    """Memory of arguments that overlap: addresses of this process, and which arguments."""

    start: int
    end: int
    writeable: bool
    places: list[int] = field(default_factory=list)
    first: int = 0  # of a single argument: address of its first element


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (hasattr(value, "data_ptr") and hasattr(value, "untyped_storage"))


def _span(value: Any, name: str) -> _Stretch:
    """The memory that an array among the arguments may reach."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise ValueError(f"{name}: an array of Python objects; allowed: arrays of numbers")
        if not value.flags.c_contiguous:
            raise ValueError(f"{name}: a numpy array with strides {value.strides}; allowed: C-contiguous arrays")
        first, writeable = value.ctypes.data, value.flags.writeable
        return _Stretch(first, first + value.nbytes, writeable, first=first)
    if value.device.type != "cpu":
        raise ValueError(f"{name}: a tensor on {value.device}; the emulator takes CPU tensors")
    first, storage = value.data_ptr(), value.untyped_storage()
    if value.is_contiguous():  # strict bounds: just the tensor's own bytes
        return _Stretch(first, first + value.numel() * value.element_size(), True, first=first)
    return _Stretch(storage.data_ptr(), storage.data_ptr() + storage.nbytes(), True, first=first)


def kernel_arguments(
    descriptor: KernelDescriptor,
    args: Sequence[Any],
    kinds: Sequence[str],
    layout: Sequence[tuple[int, int]] | None,
    hidden: Mapping[str, int],
) -> np.ndarray:
    """The kernel-argument segment, uint8.

    Explicit arguments come first, in order; Triton's own trailing pointers (scratch, profiling) that the caller does
    not pass are null.

    Args:
        descriptor: of the kernel.
        args: numbers, `Pointer`s, or None for null.
        kinds: their Triton types, where known.
        layout: (offset, size) of each, where the descriptor has none.
        hidden: what the launcher fills in, by the metadata's `value_kind`.

    Raises:
        ValueError: too few or too many arguments, or one that does not fit its slot.
    """
    slots = [(a.offset, a.size, a.kind) for a in descriptor.args if not a.hidden]
    if layout is not None:
        slots = [(offset, size, "by_value") for offset, size in layout]
    spare = [kind for _, _, kind in slots[len(args) :]]
    if len(args) > len(slots) or len(spare) > 2 or any(kind != "global_buffer" for kind in spare):
        raise ValueError(f"args: {len(args)} given; {descriptor.name} takes {len(slots)}")
    implicit = [(a.offset, a.size, a.kind) for a in descriptor.args if a.hidden]
    preloaded = 4 * (descriptor.preload_offset + descriptor.preload_length)
    ends = [offset + size for offset, size, _ in (*slots, *implicit)]
    segment = bytearray(max(descriptor.kernarg_bytes, preloaded, 16, *ends))
    for position, ((offset, size, _), value) in enumerate(zip(slots, args, strict=False)):
        kind = kinds[position] if position < len(kinds) else ""
        segment[offset : offset + size] = _encoded(value, size, kind, position)
    for offset, size, kind in implicit:
        segment[offset : offset + size] = hidden.get(kind, 0).to_bytes(size, "little")
    return np.frombuffer(segment, np.uint8)


def _encoded(value: Any, size: int, kind: str, position: int) -> bytes:
    """Bytes of one argument in a slot of `size` bytes; Triton names whole numbers i32, u8, pointers *u8, floats fp32.

    Raises:
        ValueError: the value does not fit.
    """
    if value is None:
        return bytes(size)
    whole = isinstance(value, (bool, np.bool_, int, np.integer))
    if not whole and not isinstance(value, (float, np.floating)):
        allowed = "arrays, CPU tensors, int, float, bool, None, tuples of them"
        raise ValueError(f"args[{position}]: a {type(value).__name__}; allowed: {allowed}")
    if not whole and kind.startswith(("i", "u", "*")):
        raise ValueError(f"args[{position}]: {value!r} where the kernel takes {kind}")
    if whole and not kind.startswith(("fp", "bf")):
        if not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
            raise ValueError(f"args[{position}]: {value} does not fit {size} bytes")
        return (int(value) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    if size not in (2, 4, 8):
        raise ValueError(f"args[{position}]: a float does not fit {size} bytes")
    with np.errstate(over="ignore"):
        if kind == "bf16":
            return np.float32(value).tobytes()[2:]
        return np.dtype(f"<f{size}").type(value).tobytes()


def dispatch_packet(grid, threads, descriptor: KernelDescriptor, lds: int, kernarg: int) -> np.ndarray:
    """The AQL kernel dispatch packet (HSA runtime specification), for kernels that ask for it."""
    packet = struct.pack(
        "<HHHHHHIIIIIQQQQ", 2, 3, threads, 1, 1, 0, grid[0] * threads, grid[1], grid[2], descriptor.scratch_bytes, lds,
        0, kernarg, 0, 0,
    )  # fmt: skip
    return np.frombuffer(bytearray(packet), np.uint8)
