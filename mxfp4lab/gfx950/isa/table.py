"""The whole instruction table, and what it says of an instruction's operands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from mxfp4lab.gfx950.isa import moves, scalar, vector
from mxfp4lab.gfx950.isa.instruction import Instruction, Operand, Program
from mxfp4lab.gfx950.isa.row import IMPLICIT, Row, known_places

ROWS: dict[str, Row] = vector.ROWS | scalar.ROWS | moves.ROWS
NOTHING = moves.NOTHING
_WRITES_NONE = re.compile(r"\w+_store_|ds_write|s_(cmp|bitcmp|setreg|cbranch|branch)|\w+_atomic_")
_FIRST_BIT = {"agpr": 0, "sgpr": 256, "vgpr": 512}  # of the registers of each kind


def find_row(instruction: Instruction) -> Row | None:
    """The instruction's row; None where the table has none."""
    name = instruction.mnemonic
    return ROWS.get(f"{name} lds" if instruction.modifiers and instruction.modifier("lds", 0) else name)


def roles(instruction: Instruction) -> tuple[list[Operand], list[Operand]]:
    """Registers that an instruction (writes, reads), those among them that its text does not name included.

    Of an instruction that the table does not have, or has with other operands: the first operand is taken as written,
    unless the name says that nothing is, and the rest as read.
    """
    operands, returns = instruction.operands, bool(instruction.modifiers) and bool(instruction.modifier("sc0", 0))
    written, read = _pattern(instruction.mnemonic, find_row(instruction), len(operands), returns)
    everything = (*operands, *IMPLICIT.values())
    return ([o for i in written if (o := everything[i]).kind in _FIRST_BIT],
            [o for i in read if (o := everything[i]).kind in _FIRST_BIT])  # fmt: skip


@cache
def _pattern(name: str, row: Row | None, count: int, returns: bool) -> tuple[list[int], list[int]]:
    """Positions of what is (written, read) among the operands with those of `IMPLICIT` behind them."""
    implicit = {kind: count + i for i, kind in enumerate(IMPLICIT)}
    try:
        results, sources = known_places(row, count, returns) if row is not None else (None, None)
    except ValueError:
        results = None
    if results is None:
        first = 0 if name in NOTHING or _WRITES_NONE.match(name) else 1
        written, read = list(range(first)), list(range(first, count))
        if row is not None:
            written += [implicit[kind] for kind in row.results if kind in implicit]
            read += [implicit[kind] for kind in row.sources if kind in implicit]
        return written, read
    made = [(kind, implicit.get(kind, at)) for kind, at in zip(row.results, results, strict=True)]
    used = [implicit.get(kind, at) for kind, at in zip(row.sources, sources, strict=True)]
    written = [at for kind, at in made if at is not None and (kind[:2] != "?+" or returns)]
    read = [at for kind, at in made if at is not None and "+" in kind]
    return written, read + [at for at in used if at is not None]


def register_bits(operands: Iterable[Operand]) -> int:
    """A set of registers as bits of a number."""
    found = 0
    for operand in operands:
        found |= (1 << operand.width) - 1 << _FIRST_BIT[operand.kind] + operand.index
    return found


def uses(program: Program, index: int) -> tuple[int, int]:
    """Registers that an instruction (writes, reads), as `register_bits`; kept with the program."""
    found = program.uses.get(index)
    if found is None:
        written, read = roles(program[index])
        found = program.uses[index] = register_bits(written), register_bits(read)
    return found


def first_register(bits: int) -> str:
    """Name of the lowest register of a set."""
    at = (bits & -bits).bit_length() - 1
    kind = max((kind for kind, first in _FIRST_BIT.items() if first <= at), key=_FIRST_BIT.get)
    return f"{kind[0]}{at - _FIRST_BIT[kind]}"
