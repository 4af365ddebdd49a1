"""Decode gfx950 machine code into the common instruction form: follow the code, name the labels, write the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxfp4lab.gfx950.isa.codeobject_forms import convert
from mxfp4lab.gfx950.isa.instruction import Instruction, IsaError, Operand

VERSION = "0.14.0"
INSTALL = f"decoding code objects needs tinygrad=={VERSION}: pip install 'mxfp4lab[codeobject]'"
SCALE_PREFIX = 0xD3AC  # upper half of the dword that starts a scaled MFMA's 16 bytes
MAX_INSTRUCTIONS = 400_000
_ENDS = ("s_endpgm", "s_branch", "s_endpgm_saved")
_INDIRECT = ("s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join",
             "s_rfe_b64", "s_rfe_restore_b64")  # fmt: skip


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
    decode = _load_decoder()
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
                raw = decode(code[offset : offset + 16].ljust(16, b"\0"))
                instruction = convert(raw)
            except (ValueError, KeyError, IndexError, AttributeError, TypeError, AssertionError, RuntimeError) as error:
                word = int.from_bytes(code[offset : offset + 4], "little")
                raise IsaError(f"address {address:#x}: cannot decode {word:#010x}: {error}") from None
            if instruction.mnemonic in _INDIRECT:
                raise IsaError(
                    f"address {address:#x}: {instruction.mnemonic} jumps to an address known only at run time"
                )
            following = address + raw.size()
            target = None
            if instruction.mnemonic.startswith(("s_branch", "s_cbranch_")):
                step = int(raw.simm16)
                target = following + 4 * (step - (1 << 16) if step & 0x8000 else step)
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


def _load_decoder() -> Callable[[bytes], Any]:
    try:
        from tinygrad.renderer.amd import decode_inst
    except ImportError:
        raise IsaError(INSTALL) from None

    def decode(data: bytes) -> Any:
        raw = decode_inst(data, "cdna")
        # The package takes any matrix instruction before an unscaled f8f6f4 one for a scaled pair of 16 bytes.
        if len(data) > 8 and type(raw).__name__ == "VOP3PX2" and int.from_bytes(data[2:4], "little") != SCALE_PREFIX:
            raw = decode_inst(data[:8], "cdna")
        return raw

    return decode


def _assembly(mnemonic: str, encoding: str, operands: tuple[Operand, ...], modifiers: tuple) -> str:
    """The instruction as the assembler would write it, for messages."""
    head = mnemonic + (f"_{encoding}" if encoding else "")
    body = ", ".join(str(operand) for operand in operands)
    tail = " ".join(name if value == 1 and name in ("sc0", "sc1", "nt", "offen", "idxen", "lds", "clamp", "glc")
                    else f"{name}:{list(value) if isinstance(value, tuple) else value}"
                    for name, value in modifiers)  # fmt: skip
    return " ".join(part for part in (head, body, tail) if part)
