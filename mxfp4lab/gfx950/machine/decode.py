"""Decode a program once: every instruction becomes a closure, straight-line runs of them become blocks.

A block starts at a branch target or behind a branch or barrier, and ends with one; the executor runs its closures in a
row and only then looks where the waves go. An instruction that the table does not have raises here, before anything
runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from mxfp4lab.gfx950.isa import Instruction, Program
from mxfp4lab.gfx950.isa.row import Matrix, Move
from mxfp4lab.gfx950.isa.table import NOTHING, find_row, uses
from mxfp4lab.gfx950.machine.access import build_move
from mxfp4lab.gfx950.machine.alu import build_alu, check_modifiers
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.matrix import Sharing, build_matrix
from mxfp4lab.gfx950.machine.operands import Decoder, Step
from mxfp4lab.gfx950.machine.pending import Pending
from mxfp4lab.gfx950.machine.state import EXEC_PAIR, VCC_PAIR, Group

_STATE = {"scc": lambda g: g.scc, "vcc": lambda g: g.Q[VCC_PAIR], "exec": lambda g: g.Q[EXEC_PAIR]}


@dataclass
class Block:
    """Straight-line code.

    Attributes:
        first, end: instruction positions [first, end).
        steps: closures, in order; instructions without effect have none.
        positions: instruction position of each step.
        exit: "fall", "jump", "branch", "barrier" or "end".
        condition: of a "branch".
        target: position jumped to.
        hits: how many waves ran the block.
        pending: what tells which loads are outstanding behind the block.
        after: its answers, by the state before.
    """

    first: int
    end: int
    pending: Pending
    steps: list[Step] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    exit: str = "fall"
    condition: Callable[[Group], np.ndarray] | None = None
    target: int = -1
    hits: int = 0
    after: dict[int, int] = field(default_factory=dict)


def build_step(instruction: Instruction, decoder: Decoder) -> Step | None:
    """Closure of one instruction that does not branch; None for one without effect.

    Raises:
        UnknownInstruction: the mnemonic, an operand form or a modifier is not known.
    """
    if instruction.mnemonic in NOTHING:
        return None
    row = find_row(instruction)
    if row is None:
        raise UnknownInstruction(instruction)
    build = {Move: build_move, Matrix: build_matrix}.get(type(row.does), build_alu)
    try:
        return build(instruction, row, decoder)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        # A form that its row does not foresee: say so rather than guess.
        raise UnknownInstruction(
            instruction, f"operand or modifier form ({type(error).__name__}: {error}) of"
        ) from error


def decode(program: Program, decoder: Decoder) -> dict[int, Block]:
    """Blocks of a program by their first instruction.

    Raises:
        UnknownInstruction: on the first instruction reachable from the entry that is not known.
    """
    leaders = {program.entry}
    for position, instruction in enumerate(program):
        if instruction.target is not None:
            leaders.update((instruction.target, position + 1))
        elif instruction.mnemonic in ("s_barrier", "s_endpgm"):
            leaders.add(position + 1)
    blocks: dict[int, Block] = {}
    pending = Pending(program)
    work = [program.entry]
    while work:
        first = work.pop()
        if first in blocks:
            continue
        if not 0 <= first < len(program):
            raise UnknownInstruction(program[len(program) - 1], "execution runs past the end after")
        block = blocks[first] = _decode_block(program, Block(first, first, pending), leaders, decoder)
        if block.exit in ("jump", "branch"):
            work.append(block.target)
        if block.exit in ("fall", "branch", "barrier"):
            work.append(block.end)
    return blocks


def _decode_block(program: Program, block: Block, leaders: set[int], decoder: Decoder) -> Block:
    sharing = Sharing()
    decoder = replace(decoder, sharing=sharing)
    at = block.first
    while True:
        if at >= len(program):
            raise UnknownInstruction(program[at - 1], "execution runs past the end after")
        if at != block.first and at in leaders:
            break
        instruction = program[at]
        name = instruction.mnemonic
        at += 1
        if name in ("s_endpgm", "s_barrier"):
            block.exit = "end" if name == "s_endpgm" else "barrier"
            break
        if name.startswith(("s_branch", "s_cbranch_")):
            check_modifiers(instruction)
            row = find_row(instruction)
            if instruction.target is None or row is None:
                raise UnknownInstruction(instruction)
            block.exit, block.target = "jump", instruction.target
            if row.does is not None:
                block.exit, block.condition = "branch", _condition(row.does, _STATE[row.sources[1]])
            break
        step = build_step(instruction, decoder)
        if sharing.live:
            sharing.written(uses(program, at - 1)[0])
        if decoder.wrap is not None:
            step = decoder.wrap(instruction, step)
        if step is not None:
            block.steps.append(step)
            block.positions.append(at - 1)
    block.end = at
    return block


def _condition(test: Callable, source: Callable[[Group], np.ndarray]) -> Callable[[Group], np.ndarray]:
    return lambda g: test(source(g))
