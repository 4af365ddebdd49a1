"""Kernel arguments: arrays placed in memory, the argument segment, the dispatch packet."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from mxfp4lab.gfx950.isa import KernelDescriptor
from mxfp4lab.gfx950.machine.memory import Buffer, Memory

_FORMATS = {
    "i1": "<B", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q", "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q",
    "fp32": "<f", "f32": "<f", "fp64": "<d", "f64": "<d",
}  # fmt: skip


def bind_arguments(memory: Memory, args: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], list[Buffer]]:
    """Place arrays in memory; returns the arguments with pointers for arrays, and the buffers.

    Arrays that share storage share a buffer, so that a store through one is seen through the other.
    """
    bound, buffers, placed = [], [], {}
    for position, value in enumerate(args):
        name = names[position] if position < len(names) else f"arg{position}"
        if not _is_array(value):
            bound.append(value)
            continue
        data, key, skip = _bytes_of(value, name)
        if key not in placed:
            placed[key] = memory.add(name, data)
            buffers.append(placed[key])
        bound.append(Pointer(placed[key].base + skip))
    return bound, buffers


class Pointer(int):
    """A virtual address among kernel arguments."""


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (hasattr(value, "data_ptr") and hasattr(value, "untyped_storage"))


def _bytes_of(value: Any, name: str) -> tuple[np.ndarray, tuple[int, int], int]:
    """(uint8 view of the bytes the argument may reach, identity, offset of its first element)."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise ValueError(f"{name}: an array of Python objects; allowed: arrays of numbers")
        if not value.flags.c_contiguous:
            raise ValueError(f"{name}: a numpy array with strides {value.strides}; allowed: C-contiguous arrays")
        if not value.flags.writeable:
            value = value.copy()
        data = value.reshape(-1).view(np.uint8) if value.size else np.zeros(0, np.uint8)
        return data, (data.ctypes.data, data.nbytes), 0
    import torch

    if value.device.type != "cpu":
        raise ValueError(f"{name}: a tensor on {value.device}; the emulator takes CPU tensors")
    value = value.detach()
    storage = value.untyped_storage()
    start = value.storage_offset() * value.element_size()
    if value.is_contiguous():  # strict bounds: just the tensor's own bytes
        first, nbytes, skip = start, value.numel() * value.element_size(), 0
    else:
        first, nbytes, skip = 0, storage.nbytes(), start
    raw = torch.empty(0, dtype=torch.uint8).set_(storage, first, (nbytes,), (1,)).numpy()
    return raw, (storage.data_ptr() + first, nbytes), skip


def kernel_arguments(
    descriptor: KernelDescriptor,
    args: Sequence[Any],
    grid: tuple[int, int, int],
    threads: int,
    lds: int,
    layout: Sequence[tuple[int, int]] | None,
    signature: Sequence[str],
) -> np.ndarray:
    """The kernel-argument segment, uint8.

    Explicit arguments come first, in order; Triton's own trailing pointers (scratch, profiling) that the caller does
    not pass are null. Hidden arguments are filled from the launch.

    Raises:
        ValueError: too few or too many arguments, or one that does not fit its slot.
    """
    slots = [(a.offset, a.size, a.kind) for a in descriptor.args if not a.hidden]
    if layout is not None:
        slots = [(offset, size, "by_value") for offset, size in layout]
    spare = [kind for _, _, kind in slots[len(args) :]]
    if len(args) > len(slots) or len(spare) > 2 or any(kind != "global_buffer" for kind in spare):
        raise ValueError(f"args: {len(args)} given; {descriptor.name} takes {len(slots)}")
    hidden = [(a.offset, a.size, a.kind) for a in descriptor.args if a.hidden]
    end = max((offset + size for offset, size, _ in (*slots, *hidden)), default=0)
    segment = bytearray(
        max(descriptor.kernarg_bytes, end, 4 * (descriptor.preload_offset + descriptor.preload_length), 16)
    )
    for position, (offset, size, _) in enumerate(slots):
        value = args[position] if position < len(args) else None
        kind = signature[position] if position < len(signature) else ""
        segment[offset : offset + size] = encode_argument(value, size, kind, position)
    implicit = {
        "hidden_block_count_x": grid[0], "hidden_block_count_y": grid[1], "hidden_block_count_z": grid[2],
        "hidden_group_size_x": threads, "hidden_group_size_y": 1, "hidden_group_size_z": 1,
        "hidden_grid_dims": 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1, "hidden_dynamic_lds_size": lds,
    }  # fmt: skip
    for offset, size, kind in hidden:
        segment[offset : offset + size] = implicit.get(kind, 0).to_bytes(size, "little")
    return np.frombuffer(segment, np.uint8)


def encode_argument(value: Any, size: int, kind: str, position: int) -> bytes:
    """Bytes of one argument in a slot of `size` bytes.

    Raises:
        ValueError: the value does not fit.
    """
    if value is None:
        return bytes(size)
    if isinstance(value, (bool, np.bool_)):
        value = int(value)
    form = _FORMATS.get(kind)
    if isinstance(value, (float, np.floating)) and form is not None and form not in ("<f", "<d"):
        raise ValueError(f"args[{position}]: {value!r} where the kernel takes {kind}")
    if isinstance(value, (float, np.floating)):
        form = form if form in ("<f", "<d") else {4: "<f", 8: "<d", 2: "<e"}.get(size)
        value = float(value)
    elif isinstance(value, (int, np.integer)):
        value = int(value)
        if form in ("<f", "<d"):
            value = float(value)
        elif not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
            raise ValueError(f"args[{position}]: {value} does not fit {size} bytes")
        else:
            return (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    else:
        raise ValueError(
            f"args[{position}]: a {type(value).__name__}; allowed: arrays, CPU tensors, int, float, bool, None"
        )
    if form is None or struct.calcsize(form) != size:
        raise ValueError(f"args[{position}]: a float does not fit {size} bytes")
    return struct.pack(form, value)


def dispatch_packet(grid, threads, descriptor: KernelDescriptor, lds: int, kernarg: int) -> np.ndarray:
    """The AQL kernel dispatch packet (HSA runtime specification), for kernels that ask for it."""
    packet = struct.pack(
        "<HHHHHHIIIIIQQQQ", 2, 3, threads, 1, 1, 0, grid[0] * threads, grid[1], grid[2], descriptor.scratch_bytes, lds,
        0, kernarg, 0, 0,
    )  # fmt: skip
    return np.frombuffer(bytearray(packet), np.uint8)
