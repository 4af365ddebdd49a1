"""Decode a program once: every instruction becomes a closure, straight-line runs of them become blocks.

A block starts at a branch target or behind a branch or barrier, and ends with one; the executor runs its closures in a
row and only then looks where the waves go. An instruction that no table knows raises here, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from mxfp4lab.gfx950.isa import Instruction, Program
from mxfp4lab.gfx950.machine import atomics, lds, mfma, packed, salu, scratch, smem, valu, vector, vmem, wide
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.lanes import (
    build_permlane_swap,
    build_readfirstlane,
    build_readlane,
    build_swap,
    build_writelane,
)
from mxfp4lab.gfx950.machine.state import EXEC_PAIR, VCC_PAIR, Group
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers

_NOTHING = frozenset(  # no effect on the result of a program that is executed instruction by instruction
    ("s_nop", "s_sleep", "s_setprio", "s_waitcnt", "s_waitcnt_vmcnt", "s_waitcnt_lgkmcnt", "s_sched_barrier",
     "s_icache_inv", "s_dcache_wb", "s_dcache_inv", "v_nop", "s_inst_prefetch", "s_ttracedata")
)  # fmt: skip
BUILDERS: dict[str, Callable[[Instruction, Decoder], Step]] = {
    **dict.fromkeys(valu.OPS, vector.build_table),
    **dict.fromkeys(("v_bitop3_b32", "v_bitop3_b16"), vector.build_bitop3),
    "v_fmac_f32": vector.build_fmac,
    **salu.BUILDERS,
    **mfma.BUILDERS,
    **dict.fromkeys(packed.PACKED16, packed.build_packed16),
    **dict.fromkeys(packed.PACKED32, packed.build_packed32),
    "v_pk_mov_b32": packed.build_packed_move,
    **dict.fromkeys(("v_fma_mix_f32", "v_mad_mix_f32"), packed.build_mix),
    **dict.fromkeys(wide._CARRY, wide.build_carry),
    **dict.fromkeys((*wide._WIDE, *wide._NARROW), wide.build_wide),
    **dict.fromkeys(("v_mad_u64_u32", "v_mad_i64_i32"), wide.build_mad64),
    "v_lshl_add_u64": wide.build_lshl_add_u64,
    "v_cndmask_b32": wide.build_cndmask,
    "v_cmp_class_f32": wide.build_compare_class,
    "v_div_scale_f32": wide.build_div_scale,
    "v_div_fmas_f32": wide.build_div_fmas,
    **dict.fromkeys([f"v_cvt_scalef32_pk_fp4_{t}" for t in ("f32", "bf16", "f16")], wide.build_pack_fp4),
    **dict.fromkeys([f"v_cvt_scalef32_pk_{t}_fp4" for t in ("f32", "bf16", "f16")], wide.build_unpack_fp4),
    "v_readfirstlane_b32": build_readfirstlane,
    "v_readlane_b32": build_readlane,
    "v_writelane_b32": build_writelane,
    **dict.fromkeys(("v_permlane16_swap_b32", "v_permlane32_swap_b32"), build_permlane_swap),
    "v_swap_b32": build_swap,
    **dict.fromkeys(("buffer_wbl2", "buffer_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol"), vmem.build_cache_control),
}
_PREFIXES = (
    ("v_cmp", wide.build_compare),
    ("ds_", lds.build_lds),
    ("s_load_", smem.build_scalar_load),
    ("s_buffer_load_", smem.build_scalar_load),
)

# Conditions of conditional branches: [w] bool.
_CONDITIONS: dict[str, Callable[[Group], np.ndarray]] = {
    "s_cbranch_scc0": lambda g: ~g.scc,
    "s_cbranch_scc1": lambda g: g.scc,
    "s_cbranch_vccz": lambda g: g.Q[VCC_PAIR] == 0,
    "s_cbranch_vccnz": lambda g: g.Q[VCC_PAIR] != 0,
    "s_cbranch_execz": lambda g: g.Q[EXEC_PAIR] == 0,
    "s_cbranch_execnz": lambda g: g.Q[EXEC_PAIR] != 0,
}


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
    """

    first: int
    end: int
    steps: list[Step] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    exit: str = "fall"
    condition: Callable[[Group], np.ndarray] | None = None
    target: int = -1
    hits: int = 0


def build_step(instruction: Instruction, decoder: Decoder) -> Step | None:
    """Closure of one instruction that does not branch; None for one without effect.

    Raises:
        UnknownInstruction: the mnemonic, an operand form or a modifier is not known.
    """
    name = instruction.mnemonic
    if name in _NOTHING:
        return None
    builder = BUILDERS.get(name)
    if builder is None:
        for prefix, candidate in _PREFIXES:
            if name.startswith(prefix):
                builder = candidate
                break
        else:
            if name.startswith(("global_atomic_", "buffer_atomic_", "flat_atomic_")):
                builder = atomics.build_atomic
            elif name.startswith("scratch_"):
                builder = scratch.build_scratch
            elif name.startswith(("global_", "buffer_", "flat_")):
                builder = vmem.build_access
            elif name in smem.BUILDERS:
                builder = smem.BUILDERS[name]
            else:
                raise UnknownInstruction(instruction)
    try:
        return builder(instruction, decoder)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        # A form that its builder did not foresee: say so rather than guess.
        raise UnknownInstruction(
            instruction, f"operand or modifier form ({type(error).__name__}: {error}) of"
        ) from error


def decode(program: Program, decoder: Decoder) -> dict[int, Block]:
    """Blocks of a program by their first instruction.

    Raises:
        UnknownInstruction: on the first instruction reachable from the entry that is not known.
    """
    leaders = _leaders(program)
    blocks: dict[int, Block] = {}
    work = [program.entry]
    while work:
        first = work.pop()
        if first in blocks:
            continue
        if not 0 <= first < len(program):
            raise UnknownInstruction(program[len(program) - 1], "execution runs past the end after")
        block = blocks[first] = _decode_block(program, first, leaders, decoder)
        if block.exit in ("jump", "branch"):
            work.append(block.target)
        if block.exit in ("fall", "branch", "barrier"):
            work.append(block.end)
    return blocks


def _leaders(program: Program) -> set[int]:
    leaders = {program.entry}
    for position, instruction in enumerate(program):
        if instruction.target is not None:
            leaders.update((instruction.target, position + 1))
        elif instruction.mnemonic in ("s_barrier", "s_endpgm"):
            leaders.add(position + 1)
    return leaders


def _decode_block(program: Program, first: int, leaders: set[int], decoder: Decoder) -> Block:
    block = Block(first, first)
    sharing = mfma.Sharing()
    decoder = replace(decoder, sharing=sharing)
    at = first
    while True:
        if at >= len(program):
            raise UnknownInstruction(program[at - 1], "execution runs past the end after")
        if at != first and at in leaders:
            break
        instruction = program[at]
        name = instruction.mnemonic
        at += 1
        if name == "s_endpgm":
            block.exit = "end"
            break
        if name == "s_barrier":
            block.exit = "barrier"
            break
        if name.startswith(("s_branch", "s_cbranch_")):
            check_modifiers(instruction)
            if instruction.target is None or (name != "s_branch" and name not in _CONDITIONS):
                raise UnknownInstruction(instruction)
            watched = decoder.wrap(instruction, None) if decoder.wrap is not None else None
            if watched is not None:
                block.steps.append(watched)
                block.positions.append(at - 1)
            block.exit = "jump" if name == "s_branch" else "branch"
            block.condition = _CONDITIONS.get(name)
            block.target = instruction.target
            break
        step = build_step(instruction, decoder)
        sharing.written(instruction)
        if decoder.wrap is not None:
            step = decoder.wrap(instruction, step)
        if step is not None:
            block.steps.append(step)
            block.positions.append(at - 1)
    block.end = at
    return block
