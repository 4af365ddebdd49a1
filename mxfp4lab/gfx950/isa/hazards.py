"""Static check of hazards that the hardware does not interlock: results that arrive later than the next instruction.

The compiler inserts an `s_nop` in code that it schedules, and none inside an inline-asm block: there the author has to.
Each rule says which result must not be touched by which instruction within how many wait states; an instruction counts
as one, `s_nop N` as N + 1.

- "forward" (1): the result of an instruction that writes only bytes or a half of a register, or shifts its result into
  place: scaled conversions to FP4 (all: they write one byte), conversions to FP8/BF8 into an upper part, SDWA with
  `dst_sel` other than DWORD, VOP3 that writes the upper half by op_sel. Reading the register counts, and so does
  writing it (a partial write merges with, and so reads, the old value). Stores are not affected: they are not
  forwarded to.
- "transcendental" (1): v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin, v_cos, read by a vector instruction of another unit.
- "lane" (1): a vector register read by v_readlane or v_readfirstlane.
- "swap" (2): a vector register read by v_permlane16_swap or v_permlane32_swap.
- "dpp" (2): a vector register read through DPP.
- "scalar" (2): a scalar register (vcc included) written by a vector instruction and read by one.
- "matrix" (2): a vector register read by an MFMA.

Sources: LLVM, GCNHazardRecognizer (checkVALUHazards, checkDPPHazards, checkPermlaneHazards, checkMAIHazards90A for
gfx940 and gfx950); pull requests 100276 (destination select), 117844 ("no 4 clk forwarding on opcodes that convert from
F32/F16 to F8 or F4") and 118589 (FP4 needs the wait whatever op_sel is). For the non-stochastic FP4 conversions with
op_sel 0 LLVM itself inserts no wait; the hardware note that it cites makes no exception, so neither do we. AMD's own
hand-written GEMMs keep all these rules. Not checked: what an MFMA's result needs (no inline assembly here holds one).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mxfp4lab.gfx950.isa.classes import classify
from mxfp4lab.gfx950.isa.instruction import Instruction, Operand, Program

_TO_FP4 = re.compile(r"v_cvt_scalef32_(?:sr_)?pk_fp4_")
_TO_FP8 = re.compile(r"v_cvt_(?:scalef32_)?(?:sr_)?(?:pk_)?(?:fp8|bf8)_")
_TRANSCENDENTAL = re.compile(r"v_(?:exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_(?:f16|f32|f64|legacy_f32)$")
_SWAP = re.compile(r"v_permlane(?:16|32)_swap_b32|v_swap_b32")
_TWO_RESULTS = re.compile(r"v_(?:add|sub|subrev|addc|subb|subbrev)_co_|v_div_scale_|v_mad_[ui]64_[ui]32")
_VECTOR_CLASSES = ("valu", "mfma", "convert")
# Packed and mixed-precision encodings (VOP3P) use op_sel for sources only.
_NO_DESTINATION_SELECT = ("v_pk_", "v_dot", "v_fma_mix", "v_mad_mix", "v_mfma_", "v_smfmac_")
_LONGEST = 2


@dataclass(frozen=True)
class Hazard:
    """Two instructions too close to each other.

    Attributes:
        kind: the rule: "forward", "transcendental", "lane", "swap", "dpp", "scalar" or "matrix".
        index: the second instruction's index in the program.
        register: the register between them, as the assembler writes it.
        message: both instructions and what to do, one line.
    """

    kind: str
    index: int
    register: str
    message: str


@dataclass(frozen=True)
class _Rule:
    kind: str
    waits: int
    results: Callable[[Instruction], tuple[Operand, ...]]
    touches: Callable[[Instruction], tuple[Operand, ...]]
    words: str


def find_hazards(program: Program) -> list[Hazard]:
    """Every hazard of a program, in program order, along the text.

    A path that arrives by a branch has spent a wait state on the branch; what it might still miss is not looked for.
    """
    instructions = program.instructions
    results = [tuple(rule.results(item) for rule in _RULES) for item in instructions]
    found = []
    for place, consumer in enumerate(instructions):
        if classify(consumer.mnemonic) not in _VECTOR_CLASSES:
            continue
        waited, back = 0, place - 1
        while back >= 0 and waited < _LONGEST:
            producer = instructions[back]
            worst = _worst(consumer, results[back], waited)
            if worst is not None:
                found.append(_hazard(producer, consumer, waited, *worst))
            if producer.mnemonic in ("s_branch", "s_endpgm"):
                break  # what stands above it does not fall through
            counted = producer.mnemonic == "s_nop" and producer.operands and producer.operands[0].kind == "const"
            waited += int(producer.operands[0].value) + 1 if counted else 1
            back -= 1
    return found


def _worst(
    consumer: Instruction, results: tuple[tuple[Operand, ...], ...], waited: int
) -> tuple[_Rule, Operand] | None:
    """The rule with the longest wait that a pair of instructions breaks, and the register."""
    worst = None
    for rule, made in zip(_RULES, results, strict=True):
        if made and waited < rule.waits and (worst is None or rule.waits > worst[0].waits):
            touched = rule.touches(consumer)
            for result in made:
                if any(_overlap(result, operand) for operand in touched):
                    worst = rule, result
    return worst


def _hazard(producer: Instruction, consumer: Instruction, waited: int, rule: _Rule, result: Operand) -> Hazard:
    missing = rule.waits - waited
    message = (
        f"{consumer.where()} uses {result} too soon behind {producer.text or producer.mnemonic} ({rule.words}): "
        f"put {missing} independent instruction{'s' * (missing > 1)} or s_nop {missing - 1} between"
    )
    return Hazard(rule.kind, consumer.index, str(result), message)


def unforwarded_destination(instruction: Instruction) -> Operand | None:
    """The vector register that `instruction` writes in part or shifted, so that it is not forwarded; or None."""
    name = instruction.mnemonic
    if not name.startswith("v_") or not instruction.operands:
        return None
    destination = instruction.operands[0]
    if destination.kind not in ("vgpr", "agpr"):
        return None
    if _TO_FP4.match(name):
        return destination
    if instruction.encoding == "sdwa":
        return destination if str(instruction.modifier("dst_sel", "DWORD")) != "DWORD" else None
    select = instruction.modifier("op_sel")
    if not isinstance(select, tuple) or name.startswith(_NO_DESTINATION_SELECT):
        return None
    if _TO_FP8.match(name):
        return destination if any(select[2:]) else None
    # One bit per source, then one for the destination.
    return destination if len(select) == len(instruction.operands) and select[-1] else None


def _unforwarded(instruction: Instruction) -> tuple[Operand, ...]:
    destination = unforwarded_destination(instruction)
    return (destination,) if destination else ()


def _results(instruction: Instruction) -> tuple[Operand, ...]:
    """Registers that a vector ALU instruction writes."""
    if not instruction.operands or classify(instruction.mnemonic) not in ("valu", "convert"):
        return ()
    two = _SWAP.match(instruction.mnemonic) or _TWO_RESULTS.match(instruction.mnemonic)
    return instruction.operands[: 2 if two else 1]


def _vector_results(instruction: Instruction) -> tuple[Operand, ...]:
    return tuple(operand for operand in _results(instruction) if operand.kind == "vgpr")


def _any_vector_results(instruction: Instruction) -> tuple[Operand, ...]:
    return tuple(operand for operand in _results(instruction) if operand.kind in ("vgpr", "agpr"))


def _scalar_results(instruction: Instruction) -> tuple[Operand, ...]:
    return tuple(operand for operand in _results(instruction) if operand.kind == "sgpr")


def _slow_results(instruction: Instruction) -> tuple[Operand, ...]:
    return _vector_results(instruction) if _TRANSCENDENTAL.match(instruction.mnemonic) else ()


def _sources(instruction: Instruction) -> tuple[Operand, ...]:
    if _SWAP.match(instruction.mnemonic):
        return instruction.operands
    return instruction.operands[2 if _TWO_RESULTS.match(instruction.mnemonic) else 1 :]


def _only(test: Callable[[Instruction], object]) -> Callable[[Instruction], tuple[Operand, ...]]:
    """The sources of instructions that pass a test."""
    return lambda instruction: _sources(instruction) if test(instruction) else ()


def _overlap(destination: Operand, operand: Operand) -> bool:
    return (operand.kind == destination.kind
            and operand.index < destination.index + destination.width
            and destination.index < operand.index + operand.width)  # fmt: skip


_RULES: tuple[_Rule, ...] = (
    _Rule("forward", 1, _unforwarded, lambda item: item.operands, "a partial write is not forwarded"),
    _Rule("transcendental", 1, _slow_results, _only(lambda item: not _TRANSCENDENTAL.match(item.mnemonic)),
          "transcendental results arrive later"),
    _Rule("lane", 1, _vector_results, _only(lambda item: item.mnemonic in ("v_readlane_b32", "v_readfirstlane_b32")),
          "a lane is read before the write arrives"),
    _Rule("swap", 2, _vector_results, _only(lambda item: item.mnemonic.startswith("v_permlane")),
          "a swap reads before the write arrives"),
    _Rule("dpp", 2, _vector_results, _only(lambda item: item.encoding == "dpp"), "DPP reads before the write arrives"),
    _Rule("scalar", 2, _scalar_results, _only(lambda item: True), "a scalar written by the vector unit arrives later"),
    _Rule("matrix", 2, _any_vector_results, _only(lambda item: classify(item.mnemonic) == "mfma"),
          "an MFMA reads before the write arrives"),
)  # fmt: skip
