"""The whole instruction table, and what it says of an instruction's operands."""

from __future__ import annotations

import re

from mxfp4lab.gfx950.isa import moves, scalar, vector
from mxfp4lab.gfx950.isa.instruction import Instruction, Operand
from mxfp4lab.gfx950.isa.row import IMPLICIT, Row, places

ROWS: dict[str, Row] = vector.ROWS | scalar.ROWS | moves.ROWS
NOTHING = moves.NOTHING
_WRITES_NONE = re.compile(r"\w+_store_|ds_write|s_(cmp|bitcmp|setreg|cbranch|branch)|\w+_atomic_")
_REGISTERS = ("vgpr", "agpr", "sgpr")


def find_row(instruction: Instruction) -> Row | None:
    """The instruction's row; None where the table has none."""
    name = instruction.mnemonic
    return ROWS.get(f"{name} lds" if instruction.modifiers and instruction.modifier("lds", 0) else name)


def roles(instruction: Instruction) -> tuple[list[Operand], list[Operand]]:
    """Registers that an instruction (writes, reads), those among them that its text does not name included.

    Of an instruction that the table does not have, or has with other operands: the first operand is taken as written,
    unless the name says that nothing is, and the rest as read.
    """
    row, operands = find_row(instruction), instruction.operands
    written, read = [], []
    try:
        results, sources = places(instruction, row) if row is not None else (None, None)
    except ValueError:
        results = None
    if results is None:
        none = instruction.mnemonic in NOTHING or _WRITES_NONE.match(instruction.mnemonic)
        written, read = ([], list(operands)) if none else (list(operands[:1]), list(operands[1:]))
        if row is not None:
            written += [IMPLICIT[kind] for kind in row.results if kind in IMPLICIT]
            read += [IMPLICIT[kind] for kind in row.sources if kind in IMPLICIT]
    else:
        for kind, at in zip(row.results, results, strict=True):
            operand = operands[at] if at is not None else IMPLICIT.get(kind)
            if operand is not None:
                if kind[:2] != "?+" or instruction.modifier("sc0", 0):
                    written.append(operand)
                if "+" in kind:
                    read.append(operand)
        for kind, at in zip(row.sources, sources, strict=True):
            operand = operands[at] if at is not None else IMPLICIT.get(kind)
            if operand is not None:
                read.append(operand)
    return [o for o in written if o.kind in _REGISTERS], [o for o in read if o.kind in _REGISTERS]
