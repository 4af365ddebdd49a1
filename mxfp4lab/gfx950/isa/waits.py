"""Counters of outstanding memory accesses: what raises them, and what waits for them."""

from __future__ import annotations

from mxfp4lab.gfx950.isa.classes import classify
from mxfp4lab.gfx950.isa.instruction import Instruction

MOST = {"vmcnt": 63, "lgkmcnt": 15}  # what a counter holds at most: waiting for it is waiting for nothing


def counter(instruction: Instruction) -> str:
    """What an instruction raises: "vmcnt", "lgkmcnt", "both" (flat addresses), or ""."""
    name, kind = instruction.mnemonic, classify(instruction.mnemonic)
    if name.startswith("flat_"):
        return "both"
    if kind in ("vmem", "scratch") and not name.startswith("buffer_inv"):
        return "vmcnt"
    return "lgkmcnt" if kind == "lds" or (kind == "smem" and "_dcache_" not in name and "_icache_" not in name) else ""


def awaited(instruction: Instruction) -> dict[str, int]:
    """How many accesses of each counter an s_waitcnt leaves outstanding; a counter that it does not wait for is absent.

    Source: CDNA4 ISA, S_WAITCNT: vmcnt in bits 3:0 and 15:14, expcnt 6:4, lgkmcnt 11:8.
    """
    if instruction.mnemonic != "s_waitcnt":
        return {}
    found = {}
    for operand in instruction.operands:
        if operand.kind == "const" and isinstance(operand.value, int):
            value = operand.value
            found = {"vmcnt": value & 15 | (value >> 14 & 3) << 4, "lgkmcnt": value >> 8 & 15}
    found |= {name: value for name, value in instruction.modifiers if name in MOST and isinstance(value, int)}
    return {name: value for name, value in found.items() if value < MOST[name]}
