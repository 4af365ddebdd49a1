"""Fields of an encoded gfx950 instruction, and the operand that a source code stands for."""

from __future__ import annotations

from typing import Any

from mxfp4lab.gfx950.isa.instruction import Operand

_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
_INV_2PI = {16: 0.1592, 32: 0.15915494, 64: 0.15915494309189532}
_NAMED = {235: "src_shared_base", 236: "src_shared_limit", 237: "src_private_base", 238: "src_private_limit",
          239: "src_pops_exiting_wave_id", 251: "src_vccz", 252: "src_execz", 253: "src_scc",
          254: "src_lds_direct"}  # fmt: skip


def source_operand(raw: Any, code: int, width: int, bits: int = 32, **flags: bool) -> Operand:
    """The operand behind a 9-bit (or shorter) source code."""
    if code >= 256:
        return Operand("vgpr", code - 256, width, **flags)
    if code == 255:
        return Operand("const", value=int(raw.literal), **flags)
    if code < 128:
        return Operand("sgpr", code, 1 if code == 124 else width, **flags)
    if code <= 208:
        return Operand("const", value=code - 128 if code <= 192 else 192 - code, **flags)
    if code in _FLOATS:
        return Operand("const", value=_FLOATS[code], **flags)
    if code == 248:
        return Operand("const", value=_INV_2PI.get(bits, _INV_2PI[32]), **flags)
    if code in _NAMED:
        return Operand("const", name=_NAMED[code], **flags)
    raise ValueError(f"source code {code} is reserved")


def field_value(raw: Any, name: str) -> int:
    """The bits of a field, undecoded."""
    field = getattr(type(raw), name)
    return raw._raw >> field.lo & field.mask


def operand_bits(raw: Any, *names: str) -> int:
    """Width in bits of the operand that the tables know under one of `names`."""
    for name in names:
        if name in raw.op_bits:
            return raw.op_bits[name]
    return 32


def has_operand(raw: Any, *names: str) -> bool:
    """Do the tables give the instruction an operand of one of these names?"""
    return any(name in raw.operands for name in names)


def named_operand(raw: Any, name: str, **flags: bool) -> Operand:
    """The operand that a field names."""
    bits = operand_bits(raw, name, name[1:] if name.startswith("v") else "v" + name)
    offset = {"VGPRField": 256}.get(type(getattr(type(raw), name)).__name__, 0)
    return source_operand(raw, field_value(raw, name) + offset, max(1, bits // 32), bits, **flags)
