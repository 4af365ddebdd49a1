"""Read an AMD GPU code object (.co, .hsaco): the kernels of an ELF file, their descriptors, their instructions.

Both readers end in the same form: what `isa.text` makes of Triton's assembly and what this module makes of the code
object assembled from it are equal, instruction for instruction (the tests hold them to it).

Sources: LLVM, User Guide for the AMDGPU Backend: "Kernel Descriptor", "Code Object Metadata".
"""

from __future__ import annotations

import struct
from pathlib import Path

from mxfp4lab.gfx950.isa.descriptor import USER_SGPRS, KernelDescriptor, build_descriptor, kernel_entries, read_entry
from mxfp4lab.gfx950.isa.elf import CodeObject, open_code_object
from mxfp4lab.gfx950.isa.encoding import load_decoder
from mxfp4lab.gfx950.isa.instruction import Instruction, IsaError, Operand, Program, preload_entry

MAX_INSTRUCTIONS = 400_000
_DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
_MODE = {"float_round_mode_32": (12, 3), "float_round_mode_16_64": (14, 3), "float_denorm_mode_32": (16, 3),
         "float_denorm_mode_16_64": (18, 3), "dx10_clamp": (21, 1), "ieee_mode": (23, 1),
         "fp16_overflow": (26, 1)}  # fmt: skip
_WORKGROUP = ("id_x", "id_y", "id_z", "info")
_ENDS = ("s_endpgm", "s_branch", "s_endpgm_saved")
_INDIRECT = ("s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join",
             "s_rfe_b64", "s_rfe_restore_b64")  # fmt: skip


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
    found = open_code_object(source)
    names = found.kernels()
    if name is None and len(names) != 1:
        raise IsaError(f"{found.path}: name one of its {len(names)} kernels: {', '.join(names)}")
    name = names[0] if name is None else name
    if name not in names:
        raise IsaError(f"{found.path}: has no kernel {name!r}; it has {', '.join(names)}")
    entry = kernel_entries(found.metadata)[name]
    metadata, args = read_entry(entry)
    address, fields = _read_descriptor(found, str(entry.get(".symbol", name + ".kd")), metadata)
    agprs = {"agpr_count": max(0, fields["next_free_vgpr"] - fields["accum_offset"])}
    descriptor = build_descriptor(name, fields, agprs | metadata, args, lds_bytes)
    code, start = found.code()
    labels = {symbol: place for symbol, place in found.symbols.items() if start <= place < start + len(code)}
    instructions, label_index = decode_reachable(code, start, address, labels)
    entry_index = preload_entry(instructions) if descriptor.preload_length else 0
    return Program(name, instructions, label_index, entry_index), descriptor


def _read_descriptor(found: CodeObject, symbol: str, metadata: dict[str, int]) -> tuple[int, dict[str, int]]:
    """Address of the first instruction, and the descriptor's fields under their assembler names.

    The descriptor knows allocations only (multiples of 8 and 16), the compiler's metadata counts registers. Metadata
    written by hand may leave counts out, or claim less than is allocated by more than a granule: then the allocation
    counts. A descriptor may leave out kernarg_size.
    """
    if symbol not in found.symbols:
        raise IsaError(f"{found.path}: has no symbol {symbol}")
    place = found.symbols[symbol]
    group, private, kernarg, offset, rsrc3, rsrc1, rsrc2, properties, preload = _DESCRIPTOR.unpack(
        found.read(place, 64)
    )
    allocated, claimed = ((rsrc1 & 63) + 1) * 8, metadata.get("vgpr_count", 0)
    sgprs = metadata.get("sgpr_count", ((rsrc1 >> 6 & 15) // 2 + 1) * 16)
    fields = {
        "group_segment_fixed_size": group, "private_segment_fixed_size": private,
        "kernarg_size": kernarg or metadata.get("kernarg_segment_size", 0),
        "next_free_vgpr": claimed if allocated - 8 < claimed <= allocated else allocated,
        "next_free_sgpr": max(0, sgprs - 6), "accum_offset": ((rsrc3 & 63) + 1) * 4, "tg_split": rsrc3 >> 16 & 1,
        "user_sgpr_count": rsrc2 >> 1 & 31, "enable_private_segment": rsrc2 & 1,
        "system_vgpr_workitem_id": rsrc2 >> 11 & 3,
        "user_sgpr_kernarg_preload_length": preload & 127, "user_sgpr_kernarg_preload_offset": preload >> 7,
    }  # fmt: skip
    fields |= {name: rsrc1 >> bit & mask for name, (bit, mask) in _MODE.items()}
    fields |= {f"system_sgpr_workgroup_{name}": rsrc2 >> 7 + bit & 1 for bit, name in enumerate(_WORKGROUP)}
    fields |= {f"user_sgpr_{name}": properties >> bit & 1 for bit, name in enumerate(USER_SGPRS)}
    return place + offset, fields


def decode_reachable(
    code: bytes, base: int, entry: int, symbols: dict[str, int]
) -> tuple[tuple[Instruction, ...], dict[str, int]]:
    """Decode what can be reached from `entry`: padding and data between instructions are never looked at.

    Args:
        code: contents of the section of instructions.
        base: address at which it is loaded.
        entry: address of the kernel's first instruction.
        symbols: label -> address, for names only.

    Returns:
        Instructions in address order, and label -> instruction index.

    Raises:
        IsaError: an instruction that cannot be decoded, a jump out of the section, or an indirect jump.
    """
    decode = load_decoder()
    found: dict[int, tuple[Instruction, int, int | None]] = {}  # address -> (instruction, next address, target address)
    todo = [entry]
    while todo:
        address = todo.pop()
        while address not in found:
            if len(found) >= MAX_INSTRUCTIONS:
                raise IsaError(f"more than {MAX_INSTRUCTIONS} instructions")
            offset = address - base
            if not 0 <= offset <= len(code) - 4 or offset % 4:
                raise IsaError(f"execution reaches address {address:#x}, outside the section of instructions")
            try:
                instruction, size, step = decode(code[offset : offset + 16].ljust(16, b"\0"))
            except (ValueError, KeyError, IndexError, AttributeError, TypeError, AssertionError, RuntimeError) as error:
                word = int.from_bytes(code[offset : offset + 4], "little")
                raise IsaError(f"address {address:#x}: cannot decode {word:#010x}: {error}") from None
            if instruction.mnemonic in _INDIRECT:
                raise IsaError(
                    f"address {address:#x}: {instruction.mnemonic} jumps to an address known only at run time"
                )
            following = address + size
            target = None if step is None else following + 4 * step
            if target is not None:
                todo.append(target)
            found[address] = instruction, following, target
            if instruction.mnemonic in _ENDS:
                break
            address = following
    index = {address: place for place, address in enumerate(sorted(found))}
    names = {address: name for name, address in sorted(symbols.items(), reverse=True)}
    labels = {name: index[address] for name, address in symbols.items() if address in index}
    instructions = []
    for address, place in index.items():
        instruction, _, target = found[address]
        operands, goal = instruction.operands, None
        if target is not None:
            goal = index[target]
            label = names.get(target, f".L{target:x}")
            labels.setdefault(label, goal)
            operands = (Operand("label", name=label),)
        text = _assembly(instruction.mnemonic, instruction.encoding, operands, instruction.modifiers)
        instructions.append(Instruction(place, instruction.mnemonic, instruction.encoding, operands,
                                        instruction.modifiers, goal, None, text))  # fmt: skip
    return tuple(instructions), labels


def _assembly(mnemonic: str, encoding: str, operands: tuple[Operand, ...], modifiers: tuple) -> str:
    """The instruction as the assembler would write it, for messages."""
    head = mnemonic + (f"_{encoding}" if encoding else "")
    body = ", ".join(str(operand) for operand in operands)
    tail = " ".join(name if value == 1 and name in ("sc0", "sc1", "nt", "offen", "idxen", "lds", "clamp", "glc")
                    else f"{name}:{list(value) if isinstance(value, tuple) else value}"
                    for name, value in modifiers)  # fmt: skip
    return " ".join(part for part in (head, body, tail) if part)
