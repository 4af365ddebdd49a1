"""Read an AMD GPU code object (.co, .hsaco): ELF sections, kernel descriptors, metadata, decoded instructions.

Both readers end in the same form: what `isa.text` makes of Triton's assembly and what this module makes of the code
object assembled from it are equal, instruction for instruction (the tests hold them to it).

Sources: ELF-64; LLVM, User Guide for the AMDGPU Backend: "Code Object", "Kernel Descriptor", "Code Object Metadata".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950.isa.descriptor import KernelArg, KernelDescriptor, build_descriptor
from mxfp4lab.gfx950.isa.instruction import IsaError, Program, preload_entry

EM_AMDGPU = 224
EF_MACHINE_MASK, EF_GFX950 = 0xFF, 0x4F
NT_AMDGPU_METADATA = 32
MAX_BYTES = 256 << 20
MAX_SYMBOLS = 1 << 20
MAX_NAME = 4096
SHT_SYMTAB, SHT_NOTE, SHT_DYNSYM = 2, 7, 11
_DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
_USER_SGPRS = ("private_segment_buffer", "dispatch_ptr", "queue_ptr", "kernarg_segment_ptr", "dispatch_id",
               "flat_scratch_init", "private_segment_size")  # fmt: skip


@dataclass(frozen=True)
class Section:
    """A section of the file: where it lies in the file and at which address it is loaded."""

    name: str
    kind: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class CodeObject:
    """An opened code object.

    Attributes:
        data: the file.
        sections: by position in the file's table.
        symbols: name -> address of global and local symbols.
        metadata: the metadata map.
        path: for messages.
    """

    data: bytes
    sections: tuple[Section, ...]
    symbols: dict[str, int]
    metadata: dict[str, Any]
    path: str

    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, in the order of the metadata."""
        return tuple(entry[".name"] for entry in self.metadata["amdhsa.kernels"])

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes that are loaded at `address`.

        Raises:
            IsaError: no section holds them.
        """
        for section in self.sections:
            if section.address and section.address <= address and address + size <= section.address + section.size:
                start = section.offset + address - section.address
                return self.data[start : start + size]
        raise IsaError(f"{self.path}: no section holds {size} bytes at address {address:#x}")

    def code(self) -> Section:
        """The section of instructions."""
        for section in self.sections:
            if section.name == ".text":
                return section
        raise IsaError(f"{self.path}: the code object has no .text section")


def open_code_object(source: str | Path | bytes) -> CodeObject:
    """Open a code object for gfx950.

    Raises:
        IsaError: it is no ELF file for gfx950, or it is damaged; the message names the file.
    """
    path = "code object" if isinstance(source, bytes) else str(source)
    if isinstance(source, bytes):
        data = source
    else:
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


def read_code_object(
    source: str | Path | bytes, name: str | None = None, lds_bytes: int | None = None
) -> tuple[Program, KernelDescriptor]:
    """Decode one kernel of a code object.

    Args:
        source: path or contents.
        name: the kernel; may be left out where there is only one.
        lds_bytes: LDS that a launch allocates; without it the fixed group segment size.

    Returns:
        The program and its kernel descriptor, as `isa.parse_amdgcn` gives them.

    Raises:
        IsaError: not readable, no such kernel, or code that cannot be decoded.
    """
    from mxfp4lab.gfx950.isa.codeobject_decode import decode_reachable

    found = open_code_object(source)
    names = found.kernels()
    if name is None and len(names) != 1:
        raise IsaError(f"{found.path}: name one of its {len(names)} kernels: {', '.join(names)}")
    name = names[0] if name is None else name
    if name not in names:
        raise IsaError(f"{found.path}: has no kernel {name!r}; it has {', '.join(names)}")
    entry = found.metadata["amdhsa.kernels"][names.index(name)]
    try:
        address, fields = _read_descriptor(found, str(entry.get(".symbol", name + ".kd")))
        metadata = {key.lstrip("."): value for key, value in entry.items() if isinstance(value, int)}
        args = tuple(_argument(item) for item in entry.get(".args", ()))
    except (struct.error, LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        if isinstance(error, IsaError):
            raise
        raise IsaError(f"{found.path}: damaged metadata of {name} ({type(error).__name__}: {error})") from None
    fields, metadata = _settle(fields, metadata)
    descriptor = build_descriptor(name, fields, metadata, args, lds_bytes)
    code = found.code()
    text = found.data[code.offset : code.offset + code.size]
    labels = {symbol: place for symbol, place in found.symbols.items()
              if code.address <= place < code.address + code.size}  # fmt: skip
    instructions, label_index = decode_reachable(text, code.address, address, labels)
    start = preload_entry(instructions) if descriptor.preload_length else 0
    return Program(name, instructions, label_index, start), descriptor


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
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * index) for index in range(count)]
    for entry in raw:
        if entry[1] != 8 and entry[4] + entry[5] > len(data):  # 8: a section without contents
            raise IsaError(f"{path}: truncated, a section ends at byte {entry[4] + entry[5]} of {len(data)}")
    base = raw[names][4]
    sections = tuple(Section(_string(data, base + entry[0]), entry[1], entry[3], entry[4], entry[5], entry[6])
                     for entry in raw)  # fmt: skip
    if sum(section.size for section in sections if section.kind in (SHT_SYMTAB, SHT_DYNSYM)) > 24 * MAX_SYMBOLS:
        raise IsaError(f"{path}: more than {MAX_SYMBOLS} symbols")
    symbols: dict[str, int] = {}
    metadata: dict[str, Any] = {}
    for section in sections:
        if section.kind in (SHT_SYMTAB, SHT_DYNSYM):
            strings = sections[section.link].offset
            for offset in range(section.offset, section.offset + section.size, 24):
                name, _, _, _, value = struct.unpack_from("<IBBHQ", data, offset)
                if name:
                    symbols[_string(data, strings + name)] = value
        elif section.kind == SHT_NOTE:
            metadata = _note(data[section.offset : section.offset + section.size]) or metadata
    if not metadata.get("amdhsa.kernels"):
        raise IsaError(f"{path}: no kernel metadata")
    return CodeObject(data, sections, symbols, metadata, path)


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


def _read_descriptor(found: CodeObject, symbol: str) -> tuple[int, dict[str, int]]:
    """Address of the first instruction, and the descriptor's fields under their assembler names."""
    if symbol not in found.symbols:
        raise IsaError(f"{found.path}: has no symbol {symbol}")
    place = found.symbols[symbol]
    group, private, kernarg, offset, rsrc3, rsrc1, rsrc2, properties, preload = _DESCRIPTOR.unpack(
        found.read(place, 64)
    )
    fields = {
        "group_segment_fixed_size": group, "private_segment_fixed_size": private, "kernarg_size": kernarg,
        "allocated_vgpr": ((rsrc1 & 63) + 1) * 8, "allocated_sgpr": ((rsrc1 >> 6 & 15) // 2 + 1) * 16,
        "accum_offset": ((rsrc3 & 63) + 1) * 4, "tg_split": rsrc3 >> 16 & 1,
        "float_round_mode_32": rsrc1 >> 12 & 3, "float_round_mode_16_64": rsrc1 >> 14 & 3,
        "float_denorm_mode_32": rsrc1 >> 16 & 3, "float_denorm_mode_16_64": rsrc1 >> 18 & 3,
        "dx10_clamp": rsrc1 >> 21 & 1, "ieee_mode": rsrc1 >> 23 & 1, "fp16_overflow": rsrc1 >> 26 & 1,
        "user_sgpr_count": rsrc2 >> 1 & 31, "enable_private_segment": rsrc2 & 1,
        "system_sgpr_workgroup_id_x": rsrc2 >> 7 & 1, "system_sgpr_workgroup_id_y": rsrc2 >> 8 & 1,
        "system_sgpr_workgroup_id_z": rsrc2 >> 9 & 1, "system_sgpr_workgroup_info": rsrc2 >> 10 & 1,
        "system_vgpr_workitem_id": rsrc2 >> 11 & 3,
        "user_sgpr_kernarg_preload_length": preload & 127, "user_sgpr_kernarg_preload_offset": preload >> 7,
    }  # fmt: skip
    fields.update({f"user_sgpr_{name}": properties >> bit & 1 for bit, name in enumerate(_USER_SGPRS)})
    return place + offset, fields


def _settle(fields: dict[str, int], metadata: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Make descriptor and metadata agree on what `build_descriptor` asks for.

    The descriptor knows allocations only (multiples of 8 and 16), the compiler's metadata counts registers. Metadata
    written by hand may leave counts out, or claim less than is allocated by more than a granule: then the allocation
    counts, and what lies behind `accum_offset` are accumulation registers. A descriptor may leave out kernarg_size.
    """
    claimed, allocated = metadata.get("vgpr_count", 0), fields["allocated_vgpr"]
    total = claimed if allocated - 8 < claimed <= allocated else allocated
    sgprs = metadata.get("sgpr_count", fields["allocated_sgpr"])
    fields = {**fields, "next_free_vgpr": total, "next_free_sgpr": max(0, sgprs - 6)}
    if not fields["kernarg_size"]:
        fields["kernarg_size"] = metadata.get("kernarg_segment_size", 0)
    if "agpr_count" not in metadata:
        metadata = {**metadata, "agpr_count": max(0, total - fields["accum_offset"])}
    return fields, metadata


def _argument(item: dict[str, Any]) -> KernelArg:
    return KernelArg(str(item.get(".name", "")), int(item[".offset"]), int(item[".size"]),
                     str(item.get(".value_kind", "by_value")))  # fmt: skip


def unpack_msgpack(data: bytes) -> Any:
    """Decode MessagePack as far as code-object metadata uses it: maps, arrays, strings, numbers, booleans, nil.

    Raises:
        IsaError: other types, or bytes missing or left over.
    """
    value, end = _unpack(data, 0, 0)
    if end != len(data) and data[end:].strip(b"\0"):
        raise IsaError(f"metadata: {len(data) - end} bytes are left over")
    return value


_SIZED = {0xD9: (">B", "str"), 0xDA: (">H", "str"), 0xDB: (">I", "str"), 0xDC: (">H", "array"), 0xDD: (">I", "array"),
          0xDE: (">H", "map"), 0xDF: (">I", "map")}  # fmt: skip
_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
            0xCA: ">f", 0xCB: ">d"}  # fmt: skip


def _unpack(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > 16:
        raise IsaError("metadata: nested too deeply")
    head, at = data[at], at + 1
    if head < 0x80 or head >= 0xE0:
        return head if head < 0x80 else head - 256, at
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    if head in _NUMBERS:
        return struct.unpack_from(_NUMBERS[head], data, at)[0], at + struct.calcsize(_NUMBERS[head])
    if head in _SIZED:
        layout, kind = _SIZED[head]
        size, at = struct.unpack_from(layout, data, at)[0], at + struct.calcsize(layout)
    elif head < 0xC0:
        kind = "map" if head < 0x90 else "array" if head < 0xA0 else "str"
        size = head & (31 if kind == "str" else 15)
    else:
        raise IsaError(f"metadata: type byte {head:#x} is not read")
    if size > len(data) - at:
        raise IsaError("metadata: truncated")
    if kind == "str":
        return data[at : at + size].decode(), at + size
    if kind == "array":
        items = []
        for _ in range(size):
            item, at = _unpack(data, at, depth + 1)
            items.append(item)
        return items, at
    entries = {}
    for _ in range(size):
        key, at = _unpack(data, at, depth + 1)
        entries[key], at = _unpack(data, at, depth + 1)
    return entries, at
