"""Kernel arguments: arrays placed in memory, the argument segment, the dispatch packet."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mxfp4lab.gfx950.isa import KernelDescriptor
from mxfp4lab.gfx950.machine.memory import Buffer, Memory
from mxfp4lab.gfx950.toolchain.specialize import flatten


class Pointer(int):
    """A virtual address among kernel arguments."""


class _Span(NamedTuple):
    """Addresses of this process that an array among the arguments may reach, and that of its first element."""

    start: int
    end: int
    first: int
    writeable: bool


def bind_arguments(memory: Memory, args: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], list[Buffer]]:
    """Place arrays in memory; returns the arguments, tuples laid flat, with pointers for arrays, and the buffers.

    Arrays that overlap share a buffer, named after the first: what is stored through one is seen through the other.

    Args:
        memory: takes the buffers.
        args: as of `run`.
        names: of the arguments laid flat, as far as they are known.
    """
    named = [entry for place, value in enumerate(args) for entry in flatten(value, f"arg{place}")]
    names = [*names[: len(named)], *(name for name, _ in named[len(names) :])]
    bound = [value for _, value in named]
    spans = {place: _span(value, names[place]) for place, value in enumerate(bound) if _is_array(value)}
    together: list[list[int]] = []
    end = 0
    for place in sorted(spans, key=lambda place: (spans[place].start, -spans[place].end)):
        if together and spans[place].start < end:
            together[-1].append(place)
        else:
            together.append([place])
        end = max(end, spans[place].end)
    buffers = []
    for places in sorted(together, key=min):
        start, end = min(spans[place].start for place in places), max(spans[place].end for place in places)
        raw = np.zeros(0, np.uint8)
        if end > start:
            raw = np.ctypeslib.as_array((ctypes.c_uint8 * (end - start)).from_address(start))
        raw.flags.writeable = any(spans[place].writeable for place in places)
        buffers.append(memory.add(names[min(places)], raw, start))
        for place in places:
            bound[place] = Pointer(buffers[-1].base + spans[place].first - start)
    return bound, buffers


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (hasattr(value, "data_ptr") and hasattr(value, "untyped_storage"))


def _span(value: Any, name: str) -> _Span:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise ValueError(f"{name}: an array of Python objects; allowed: arrays of numbers")
        if not value.flags.c_contiguous:
            raise ValueError(f"{name}: a numpy array with strides {value.strides}; allowed: C-contiguous arrays")
        first = value.ctypes.data
        return _Span(first, first + value.nbytes, first, value.flags.writeable)
    if value.device.type != "cpu":
        raise ValueError(f"{name}: a tensor on {value.device}; the emulator takes CPU tensors")
    first, storage = value.data_ptr(), value.untyped_storage()
    if value.is_contiguous():  # strict bounds: just the tensor's own bytes
        return _Span(first, first + value.numel() * value.element_size(), first, True)
    return _Span(storage.data_ptr(), storage.data_ptr() + storage.nbytes(), first, True)


def kernel_arguments(
    descriptor: KernelDescriptor,
    args: Sequence[Any],
    kinds: Sequence[str],
    layout: Sequence[tuple[int, int]] | None,
    sizes: tuple[int, int, int],
    threads: int,
    lds_bytes: int,
) -> np.ndarray:
    """The kernel-argument segment, uint8.

    Explicit arguments come first, in order; Triton's own trailing pointers (scratch, profiling) that the caller does
    not pass are null. What the launcher fills in follows from grid, block and LDS.

    Args:
        descriptor: of the kernel.
        args: numbers, `Pointer`s, or None for null.
        kinds: their Triton types, where known.
        layout: (offset, size) of each, where the descriptor has none.
        sizes: workgroups along x, y, z.
        threads: work-items of a workgroup.
        lds_bytes: LDS of a workgroup.

    Raises:
        ValueError: too few or too many arguments, or one that does not fit its slot.
    """
    slots = [(a.offset, a.size, a.kind) for a in descriptor.args if not a.hidden]
    if layout is not None:
        slots = [(offset, size, "by_value") for offset, size in layout]
    spare = [kind for _, _, kind in slots[len(args) :]]
    if len(args) > len(slots) or len(spare) > 2 or any(kind != "global_buffer" for kind in spare):
        raise ValueError(f"args: {len(args)} given; {descriptor.name} takes {len(slots)}")
    filled_in = {
        "hidden_block_count_x": sizes[0], "hidden_block_count_y": sizes[1], "hidden_block_count_z": sizes[2],
        "hidden_group_size_x": threads, "hidden_group_size_y": 1, "hidden_group_size_z": 1,
        "hidden_grid_dims": 3 if sizes[2] > 1 else 2 if sizes[1] > 1 else 1, "hidden_dynamic_lds_size": lds_bytes,
    }  # fmt: skip
    hidden = [(a.offset, a.size, a.kind) for a in descriptor.args if a.hidden]
    preloaded = 4 * (descriptor.preload_offset + descriptor.preload_length)
    ends = [offset + size for offset, size, _ in (*slots, *hidden)]
    segment = bytearray(max(descriptor.kernarg_bytes, preloaded, 16, *ends))
    for position, ((offset, size, _), value) in enumerate(zip(slots, args, strict=False)):
        kind = kinds[position] if position < len(kinds) else ""
        segment[offset : offset + size] = _encoded(value, size, kind, position)
    for offset, size, kind in hidden:
        segment[offset : offset + size] = filled_in.get(kind, 0).to_bytes(size, "little")
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
