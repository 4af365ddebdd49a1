"""The stand-in GPU's memory: blocks of the shared window, as torch tensors that say they are on a GPU.

torch without a GPU build still knows the label "cuda"; what it lacks is memory under it. A DLPack capsule names an
address and a device, so a block of the window becomes a tensor on `cuda:0`, or a pinned one on the CPU. Kernels read
and write the same bytes on the other side of the link: nothing is copied for a launch.

Blocks behave as torch's caching allocator makes them: aligned, handed out again at the same address, uninitialised.
What nobody wrote, and what was freed, is poison: NaN as bf16, f32 and e8m0.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import torch

POISON = 0xFF
ROUND = 512  # bytes: torch's allocator hands out multiples of it
LARGE = 256 << 20  # bytes from which a block is not filled with poison, so that untouched memory costs nothing
DEVICE_BYTES = 288 * 10**9  # of an MI355X
REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"  # c10::impl::device_guard_impl_registry, by device type
_CPU, _CUDA, _META = 1, 1, 14  # DLPack's number of the CPU; torch's of CUDA and meta
_DLPACK_CUDA = 2
_REMOVE = 9  # madvise: MADV_REMOVE


class _DLDevice(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@dataclass
class Block:
    """A piece of memory.

    Attributes:
        address: where it lies; offset: the same in the window.
        nbytes: as asked for; size: as reserved.
        pinned: host memory that the GPU reaches.
    """

    address: int
    offset: int
    nbytes: int
    size: int
    pinned: bool = False


class Heap:
    """Hands out blocks of the window.

    Args:
        window: the shared memory.
        start: offset of the first byte that is the heap's.
    """

    def __init__(self, window: mmap.mmap, start: int) -> None:
        self._window = window
        self._origin = ctypes.addressof(ctypes.c_char.from_buffer(window))
        self._next, self._end = start, len(window)
        self._free: dict[int, list[Block]] = {}  # size -> blocks
        self._lock = threading.RLock()
        self._managed: dict[int, tuple[object, Block]] = {}
        self._deleter = _Deleter(self._deleted)
        self.blocks: dict[int, Block] = {}
        self.allocated = self.peak = 0

    def tensor(self, nbytes: int, pinned: bool = False, poison: bool = True) -> torch.Tensor:
        """A new uint8 tensor [nbytes], on the GPU or, pinned, on the CPU.

        Raises:
            torch.OutOfMemoryError: if the device has no such piece left.
        """
        with self._lock:
            block = self._take(nbytes, poison) if nbytes else Block(0, 0, 0, 0)
            block.pinned = pinned
            shape, strides = (ctypes.c_int64 * 1)(nbytes), (ctypes.c_int64 * 1)(1)
            device = _DLDevice(_CPU if pinned else _DLPACK_CUDA, 0)
            described = _DLTensor(block.address, device, 1, 1, 8, 1, shape, strides, 0)
            managed = _Managed(described, None, ctypes.cast(self._deleter, ctypes.c_void_p).value)
            self._managed[ctypes.addressof(managed)] = ((managed, shape, strides), block)
        return torch._C._from_dlpack(_capsule(ctypes.addressof(managed), b"dltensor", None))

    def _take(self, nbytes: int, poison: bool) -> Block:
        size = -(-nbytes // ROUND) * ROUND
        found = self._free.get(size)
        if found:
            block = found.pop()
            block.nbytes = nbytes
        else:
            if self._next + size > self._end:
                asked, free = f"{nbytes / 2**30:.2f} GiB", f"{(self._end - self._next) / 2**30:.2f} GiB"
                raise torch.OutOfMemoryError(f"HIP out of memory. Tried to allocate {asked}. {free} are free.")
            block = Block(self._origin + self._next, self._next, nbytes, size)
            self._next += size
            if poison and size < LARGE:
                ctypes.memset(block.address, POISON, size)
        self.blocks[block.address] = block
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        return block

    def _deleted(self, managed: int) -> None:
        """torch dropped the last reference to a block."""
        with self._lock:
            _, block = self._managed.pop(managed)
            if not block.size:
                return
            del self.blocks[block.address]
            self.allocated -= block.size
            if block.size < LARGE:
                ctypes.memset(block.address, POISON, block.size)
            else:  # the pages go back to the machine
                start = -(-block.address // mmap.PAGESIZE) * mmap.PAGESIZE
                length = (block.address + block.size - start) // mmap.PAGESIZE * mmap.PAGESIZE
                ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _REMOVE)
            self._free.setdefault(block.size, []).append(block)

    def at(self, address: int) -> Block | None:
        """The live block that holds an address."""
        with self._lock:
            found = self.blocks.get(address)
            if found is None:
                found = next((b for b in self.blocks.values() if b.address <= address < b.address + b.nbytes), None)
            return found

    def block_of(self, tensor: torch.Tensor) -> Block | None:
        """The block behind a tensor; None for memory that is no part of the heap, or none at all."""
        return self.blocks.get(tensor.untyped_storage().data_ptr())

    def blocks_of(self, tensors: Iterable[torch.Tensor]) -> list[Block]:
        """The blocks behind tensors."""
        return [block for tensor in tensors if (block := self.block_of(tensor)) is not None]

    def bytes_of(self, block: Block) -> torch.Tensor:
        """The whole block as a CPU tensor, uint8 [nbytes]."""
        return torch.frombuffer(self._window, dtype=torch.uint8, count=block.nbytes, offset=block.offset)

    def host(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same memory, sizes, strides and offset as a CPU tensor."""
        tensor = tensor.detach() if tensor.requires_grad else tensor
        view = torch.empty(0, dtype=tensor.dtype)
        block = self.block_of(tensor)
        if block is not None:
            view.set_(self.bytes_of(block).untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
        else:
            view = view.as_strided(tensor.shape, tensor.stride())
        return view.conj() if tensor.is_conj() else view


def restride(tensor: torch.Tensor, dtype: torch.dtype, size, stride, offset: int) -> torch.Tensor:
    """Another view of a GPU tensor's storage; the offset in elements of `dtype` from the storage's start."""
    view = torch.ops.aten.alias(tensor)
    if dtype != tensor.dtype:
        whole = tensor.untyped_storage().nbytes() // tensor.element_size()
        view = torch.ops.aten.as_strided_(view, [whole], [1], 0).view(dtype)
    return torch.ops.aten.as_strided_(view, list(size), list(stride), offset)


_guard_parts: list[object] = []  # what torch's registry points to must live as long as the process


def register_device() -> None:
    """Give torch a guard for the device type CUDA that does nothing and answers cuda:0, made of the meta device's.

    Before it runs an operation torch asks such a guard which device is current. Only a CUDA build has one, and there
    is no way from Python to add one: the registry is a C++ variable, found by its name.

    Raises:
        RuntimeError: if this torch has no such variable, or what it holds does not answer as it should.
    """
    problem = f"the emulator backend cannot stand in for a GPU under torch {torch.__version__}: "
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
        registry = (ctypes.c_void_p * 20).in_dll(library, REGISTRY)
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{problem}{error}") from None
    meta = registry[_META]
    if not meta:
        raise RuntimeError(f"{problem}its registry of device guards has none for the meta device")
    table = (ctypes.c_void_p * 48)(*(ctypes.c_void_p * 48).from_address(ctypes.c_void_p.from_address(meta).value))
    kind = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(lambda _: _CUDA)
    exchange = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p, ctypes.c_uint16)(lambda _, device: _CUDA)
    current = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p)(lambda _: _CUDA)  # index 0 in the upper byte
    for slot, function in enumerate((kind, exchange, current)):  # type(), exchangeDevice(), getDevice()
        table[slot] = ctypes.cast(function, ctypes.c_void_p).value
    guard = (ctypes.c_void_p * 2)(ctypes.addressof(table), 0)
    registry[_CUDA] = ctypes.addressof(guard)
    _guard_parts.extend([table, kind, exchange, current, guard])
