"""Open an AMD GPU code object: sections, symbols and metadata of its ELF file.

Sources: ELF-64; LLVM, User Guide for the AMDGPU Backend: "Code Object"; MessagePack.
"""

from __future__ import annotations

import struct
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950.isa.descriptor import kernel_entries
from mxfp4lab.gfx950.isa.instruction import IsaError

EM_AMDGPU = 224
EF_MACHINE_MASK, EF_GFX950 = 0xFF, 0x4F
NT_AMDGPU_METADATA = 32
MAX_BYTES = 256 << 20
MAX_SYMBOLS = 1 << 20
MAX_NAME = 4096
SHT_SYMTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 7, 8, 11


# An entry of the section table; `address` is where it is loaded, `offset` where it lies in the file.
_Section = namedtuple("_Section", "name kind flags address offset size link info align entry_size")


@dataclass(frozen=True)
class CodeObject:
    """An opened code object: the file, sections by name, name -> address of symbols, the metadata map, its path."""

    data: bytes
    sections: dict[str, _Section]
    symbols: dict[str, int]
    metadata: dict[str, Any]
    path: str

    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, in the order of the metadata."""
        return tuple(kernel_entries(self.metadata))

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes that are loaded at `address`.

        Raises:
            IsaError: no section holds them.
        """
        for section in self.sections.values():
            if section.address and section.address <= address and address + size <= section.address + section.size:
                start = section.offset + address - section.address
                if start + size <= len(self.data):
                    return self.data[start : start + size]
        raise IsaError(f"{self.path}: no section holds {size} bytes at address {address:#x}")

    def code(self) -> tuple[bytes, int]:
        """The instructions, and the address at which they are loaded."""
        section = self.sections.get(".text")
        if section is None:
            raise IsaError(f"{self.path}: the code object has no .text section")
        return self.data[section.offset : section.offset + section.size], section.address


def open_code_object(source: str | Path | bytes) -> CodeObject:
    """Open a code object for gfx950.

    Raises:
        IsaError: it is no ELF file for gfx950, or it is damaged; the message names the file.
    """
    path, data = "code object" if isinstance(source, bytes) else str(source), source
    if not isinstance(source, bytes):
        try:
            with open(source, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise IsaError(f"{path}: {error.strerror or error}") from None
        except (TypeError, ValueError):
            raise IsaError(f"source: {source!r} is no path of a code object") from None
    if len(data) > MAX_BYTES:
        raise IsaError(f"{path}: larger than {MAX_BYTES} bytes")
    try:
        return _open(data, path)
    except (struct.error, LookupError, TypeError, RecursionError, ArithmeticError, ValueError) as error:
        if isinstance(error, IsaError):
            raise
        raise IsaError(f"{path}: damaged code object ({type(error).__name__}: {error})") from None


def _open(data: bytes, path: str) -> CodeObject:
    if data[:4] != b"\x7fELF" or len(data) < 64:
        raise IsaError(f"{path}: no ELF file (a code object starts with 7f 45 4c 46)")
    if data[4] != 2 or data[5] != 1:
        raise IsaError(f"{path}: no 64-bit little-endian ELF file")
    machine, flags = struct.unpack_from("<H", data, 18)[0], struct.unpack_from("<I", data, 48)[0]
    if machine != EM_AMDGPU:
        raise IsaError(f"{path}: ELF machine {machine}; a code object has {EM_AMDGPU} (AMD GPU)")
    if flags & EF_MACHINE_MASK != EF_GFX950:
        raise IsaError(f"{path}: built for another AMD GPU (flags {flags:#x}); only gfx950 ({EF_GFX950:#x}) is read")
    table, count, names = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 60)
    sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * index)) for index in range(count)]
    for section in sections:
        end = section.offset + section.size
        if section.kind != SHT_NOBITS and end > len(data):
            raise IsaError(f"{path}: truncated, a section ends at byte {end} of {len(data)}")
    tables = [section for section in sections if section.kind in (SHT_SYMTAB, SHT_DYNSYM)]
    if sum(section.size for section in tables) > 24 * MAX_SYMBOLS:
        raise IsaError(f"{path}: more than {MAX_SYMBOLS} symbols")
    symbols: dict[str, int] = {}
    for section in tables:
        for offset in range(section.offset, section.offset + section.size, 24):
            name, _, _, _, value = struct.unpack_from("<IBBHQ", data, offset)
            if name:
                symbols[_string(data, sections[section.link].offset + name)] = value
    metadata: dict[str, Any] = {}
    for section in sections:
        if section.kind == SHT_NOTE:
            metadata = _note(data[section.offset : section.offset + section.size]) or metadata
    if not kernel_entries(metadata):
        raise IsaError(f"{path}: no kernel metadata")
    named = {_string(data, sections[names].offset + section.name): section for section in reversed(sections)}
    return CodeObject(data, named, symbols, metadata, path)


def _string(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset, offset + MAX_NAME)].decode()


def _note(data: bytes) -> dict[str, Any]:
    offset = 0
    while offset + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, offset)
        start = offset + 12 + (name_size + 3 & ~3)
        if kind == NT_AMDGPU_METADATA and data[offset + 12 : offset + 18] == b"AMDGPU":
            return unpack_msgpack(data[start : start + size])
        offset = start + (size + 3 & ~3)
    return {}


def unpack_msgpack(data: bytes) -> Any:
    """Decode MessagePack as far as code-object metadata uses it: maps, arrays, strings, numbers, booleans, nil.

    Raises:
        IsaError: other types, or bytes missing or left over.
    """
    value, end = _unpack(data, 0, 0)
    if data[end:].strip(b"\0"):
        raise IsaError(f"metadata: {len(data) - end} bytes are left over")
    return value


_PLAIN = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {0xCA + place: ">" + letter for place, letter in enumerate("fdBHIQbhiq")}
# First byte -> kind, and the format of its size; a mask says where the first byte holds the size itself.
_SIZED = {0xD9: ("str", ">B"), 0xDA: ("str", ">H"), 0xDB: ("str", ">I"), 0xDC: ("array", ">H"), 0xDD: ("array", ">I"),
          0xDE: ("map", ">H"), 0xDF: ("map", ">I"), **dict.fromkeys(range(0x80, 0x90), ("map", 15)),
          **dict.fromkeys(range(0x90, 0xA0), ("array", 15)),
          **dict.fromkeys(range(0xA0, 0xC0), ("str", 31))}  # fmt: skip


def _unpack(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > 16:
        raise IsaError("metadata: nested too deeply")
    head, at = data[at], at + 1
    if head < 0x80 or head >= 0xE0:
        return head if head < 0x80 else head - 256, at
    if head in _PLAIN:
        return _PLAIN[head], at
    if head in _NUMBERS:
        return struct.unpack_from(_NUMBERS[head], data, at)[0], at + struct.calcsize(_NUMBERS[head])
    if head not in _SIZED:
        raise IsaError(f"metadata: type byte {head:#x} is not read")
    kind, layout = _SIZED[head]
    size = head & layout if isinstance(layout, int) else struct.unpack_from(layout, data, at)[0]
    at += 0 if isinstance(layout, int) else struct.calcsize(layout)
    if size > len(data) - at:
        raise IsaError("metadata: truncated")
    if kind == "str":
        return data[at : at + size].decode(), at + size
    items = []
    for _ in range(size * (2 if kind == "map" else 1)):
        item, at = _unpack(data, at, depth + 1)
        items.append(item)
    return dict(zip(items[::2], items[1::2], strict=True)) if kind == "map" else items, at
