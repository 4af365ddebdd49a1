"""The form of a table row: what one opcode reads, writes and does.

A row is `(signature, meaning)`. The signature "u32 mask <- u32 u32 mask" names results and sources in the order of the
assembly's operands; hazards, waits and decoding read the roles of operands from it. The meaning is a function of the
sources on numpy arrays, or, for memory and matrix instructions, a description (`Move`, `Matrix`).

Kinds of operands:
    u32 i32 f32 b32 u16 i16 f16   a word, or a half of one; b32 takes negation although it is not computed with
    u64 i64 f64                   a register pair
    w64                           the same as (low word, high word)
    2u16 2i16 2f16 2f32           two numbers that op_sel chooses, in a last axis (halves) or a first one (words)
    mask                          a pair of scalar registers, a bit per lane
    s32                           a scalar of a vector instruction, one per wave
    k ku                          a 16-bit immediate, signed or not
    x1 .. x16                     that many registers, moved as they are
    at base rsrc soff             vector address, scalar base, buffer resource, scalar offset
    hwreg label mat               a hardware register's name, a branch target, a matrix operand
Not in the assembly: vcc, exec, scc, m0, ovfl (mode bit FP16_OVFL), xcc (the XCD of a wave). Of a row with %name the
meaning is a function of that modifier's value that gives the function.
A result "+kind" is read too, and given to the function last; "kind!" is written whatever EXEC says; "?kind" is there
with the modifier sc0 only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from mxfp4lab.gfx950.isa.instruction import EXEC, M0, VCC, Instruction, Operand

IMPLICIT = {
    "vcc": Operand("sgpr", VCC, 2), "exec": Operand("sgpr", EXEC, 2), "m0": Operand("sgpr", M0, 1),
    "scc": Operand("const", name="src_scc"), "ovfl": Operand("off"), "xcc": Operand("off"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Row:
    """One opcode.

    Attributes:
        results, sources: kinds, in the order of the operands.
        does: the meaning.
        clamps: whether the modifier `clamp` saturates the integer result.
    """

    results: tuple[str, ...]
    sources: tuple[str, ...]
    does: Any
    clamps: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Results, then sources."""
        return self.results + self.sources


@dataclass(frozen=True)
class Move:
    """A memory instruction.

    Attributes:
        space: "global", "buffer", "scratch", "lds" or "scalar".
        kind: "load", "store", "atomic", or "none" for cache control.
        nbytes: bytes per lane of one access.
        signed: a byte or a short is sign-extended.
        half: "" or which half of a register it fills or is taken from: "low", "high".
        to_lds: the data goes to LDS.
        accesses: modifiers that hold an offset, one per access, and the bytes that one unit of it stands for.
        operation: of an atomic: function(old, new), or None for compare and swap.
        transpose: bits of the elements that are transposed among 16 lanes.
    """

    space: str
    kind: str
    nbytes: int = 4
    signed: bool = False
    half: str = ""
    to_lds: bool = False
    accesses: tuple[tuple[str, int], ...] = (("offset", 1),)
    operation: Callable | None = None
    transpose: int = 0


@dataclass(frozen=True)
class Matrix:
    """A matrix instruction: `rows` x `rows` sums over `k` of products of `kinds` (of A and of B).

    An f8f6f4 instruction has no kinds: its modifiers cbsz and blgp say them; `scaled` where it has block scales.
    """

    rows: int
    k: int
    kinds: tuple[str, str] | None = None
    scaled: bool = False


def make_row(signature: str, does: Any, clamps: bool = False) -> Row:
    """A row of a table."""
    results, _, sources = signature.partition("<-")
    return Row(tuple(results.split()), tuple(sources.split()), does, clamps)


def places(instruction: Instruction, row: Row) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """Positions of the operands of (results, sources); None for what is not in the assembly.

    Raises:
        ValueError: the instruction has another number of operands.
    """
    return known_places(row, len(instruction.operands), bool(instruction.modifier("sc0", 0)))


@cache
def known_places(row: Row, count: int, returns: bool) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """`places` of an instruction with `count` operands; `returns`: with the modifier sc0."""
    at, found = 0, []
    for kind in row.kinds:
        if kind[0] == "?":
            there = kind[1] == "+" or returns
        else:
            there = kind not in IMPLICIT and kind[0] != "%"
        found.append(at if there else None)
        at += there
    if at != count:
        raise ValueError(f"{count} operands instead of {at}")
    return tuple(found[: len(row.results)]), tuple(found[len(row.results) :])
