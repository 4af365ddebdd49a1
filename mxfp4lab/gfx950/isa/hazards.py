"""Static check of hazards that the hardware does not interlock: what arrives, or is read, late.

The compiler inserts an `s_nop` in code that it schedules, and none inside an inline-asm block: there the author has to.
Each rule says which result must not be touched by which instruction within how many wait states; an instruction counts
as one, `s_nop N` as N + 1. The rules stand at the end.

Sources: LLVM, GCNHazardRecognizer for gfx940 and gfx950 (checkVALUHazards, checkDPPHazards, checkPermlaneHazards,
checkRWLaneHazards, checkDivFMasHazards, checkVMEMHazards, checkReadM0Hazards, checkGetRegHazards, checkSetRegHazards,
createsVALUHazard, checkMAIHazards90A); pull requests 100276 (destination select), 117844 ("no 4 clk forwarding on
opcodes that convert from F32/F16 to F8 or F4") and 118589 (FP4 needs the wait whatever op_sel is); issues 117286
(v_cmpx) and 197267 (stores). For the non-stochastic FP4 conversions with op_sel 0 LLVM itself inserts no wait; the
hardware note that it cites makes no exception, so neither do we. AMD's own hand-written GEMMs keep all these rules. Not
checked: what an MFMA's result needs (no inline assembly here holds one).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mxfp4lab.gfx950.isa.classes import classify
from mxfp4lab.gfx950.isa.instruction import EXEC, M0, VCC, Instruction, Operand, Program
from mxfp4lab.gfx950.isa.row import Move
from mxfp4lab.gfx950.isa.table import find_row, roles

_TO_FP4 = re.compile(r"v_cvt_scalef32_(?:sr_)?pk_fp4_")
_TO_FP8 = re.compile(r"v_cvt_(?:scalef32_)?(?:sr_)?(?:pk_)?(?:fp8|bf8)_")
_TRANSCENDENTAL = re.compile(r"v_(?:exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_(?:f16|f32|f64|legacy_f32)$")
_LANES = ("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32")
# Packed and mixed-precision encodings (VOP3P) use op_sel for sources only.
_NO_DESTINATION_SELECT = ("v_pk_", "v_dot", "v_fma_mix", "v_mad_mix", "v_mfma_", "v_smfmac_")
_LONGEST = 5
Operands = list[Operand]


@dataclass(frozen=True)
class Hazard:
    """Two instructions too close to each other.

    Attributes:
        kind: the rule, as above.
        index: the second instruction's index in the program.
        register: the register between them, as the assembler writes it.
        message: both instructions and what to do, one line.
    """

    kind: str
    index: int
    register: str
    message: str


class _Facts:
    """What the rules ask of an instruction."""

    def __init__(self, item: Instruction) -> None:
        self.item, self.name, self.unit = item, item.mnemonic, classify(item.mnemonic)
        self.written, self.read = roles(item)
        self.valu = self.unit in ("valu", "convert")
        self.vector = self.valu or self.unit == "mfma"

    def reads(self, *kinds: str) -> Operands:
        """Registers of these kinds that it reads."""
        return [operand for operand in self.read if operand.kind in kinds]

    def results(self, *kinds: str) -> Operands:
        """Registers of these kinds that it writes as a vector ALU instruction."""
        return [operand for operand in self.written if operand.kind in kinds] if self.valu else []


@dataclass(frozen=True)
class _Rule:
    """`results` of one instruction must not be among what the other `touches` within so many wait states."""

    kind: str
    waits: int
    results: Callable[[_Facts], Operands]
    touches: Callable[[_Facts], Operands]
    words: str
    prebuilt: bool = True  # whether AMD's prebuilt kernels keep it


def find_hazards(program: Program, prebuilt: bool = False) -> list[Hazard]:
    """Every hazard of a program, in program order, along the text.

    A path that arrives by a branch has spent a wait state on the branch; what it might still miss is not looked for.

    Args:
        prebuilt: it is a code object of AMD's.
    """
    facts = [_Facts(item) for item in program.instructions]
    rules = [rule for rule in _RULES if rule.prebuilt or not prebuilt]
    made = [[(rule, results) for rule in rules if (results := rule.results(fact))] for fact in facts]
    found = []
    for place, consumer in enumerate(facts):
        if consumer.unit in ("nop", "waitcnt", "barrier", "branch"):
            continue
        waited, back = 0, place - 1
        while back >= 0 and waited < _LONGEST:
            producer = program.instructions[back]
            worst = _worst(consumer, made[back], waited)
            if worst is not None:
                found.append(_hazard(producer, consumer.item, waited, *worst))
            if producer.mnemonic in ("s_branch", "s_endpgm"):
                break  # what stands above it does not fall through
            counted = producer.mnemonic == "s_nop" and producer.operands and producer.operands[0].kind == "const"
            waited += int(producer.operands[0].value) + 1 if counted else 1
            back -= 1
    return found


def _worst(consumer: _Facts, made: list[tuple[_Rule, Operands]], waited: int) -> tuple[_Rule, Operand] | None:
    """The rule with the longest wait that a pair of instructions breaks, and the register."""
    worst = None
    for rule, results in made:
        if waited < rule.waits and (worst is None or rule.waits > worst[0].waits):
            touched = rule.touches(consumer)
            for result in results:
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


def _unforwarded(fact: _Facts) -> Operands:
    """The vector register that an instruction writes in part or shifted into place.

    All scaled conversions to FP4 do (they write one byte), conversions to FP8 and BF8 into an upper part, SDWA with
    `dst_sel` other than DWORD, and VOP3 that writes the upper half by op_sel.
    """
    instruction, name, operands = fact.item, fact.name, fact.item.operands[:1]
    if not name.startswith("v_") or not operands or operands[0].kind not in ("vgpr", "agpr"):
        return []
    select = instruction.modifier("op_sel")
    if _TO_FP4.match(name):
        partial = True
    elif instruction.encoding == "sdwa":
        partial = instruction.modifier("dst_sel", "DWORD") != "DWORD"
    elif not isinstance(select, tuple) or name.startswith(_NO_DESTINATION_SELECT):
        partial = False
    elif _TO_FP8.match(name):
        partial = any(select[2:])
    else:  # one bit per source, then one for the destination
        partial = len(select) == len(instruction.operands) and select[-1]
    return list(operands) if partial else []


def _overlap(destination: Operand, operand: Operand) -> bool:
    if destination.kind == "const":  # a mode register
        return operand.name.split(",")[0] == destination.name.split(",")[0]
    return (operand.kind == destination.kind
            and operand.index < destination.index + destination.width
            and destination.index < operand.index + operand.width)  # fmt: skip


def _only(operands: Operands, index: int) -> Operands:
    return [o for o in operands if o.kind == "sgpr" and o.index <= index < o.index + o.width]


def _scalars(fact: _Facts) -> Operands:
    return [operand for operand in fact.results("sgpr") if operand.index != EXEC]


def _exec(fact: _Facts) -> Operands:
    return _only(fact.results("sgpr"), EXEC) if fact.name.startswith("v_cmpx") else []


def _mode(fact: _Facts, *names: str) -> Operands:
    """The hardware register of s_setreg, s_getreg."""
    return [o for o in fact.item.operands if o.name.startswith("hwreg")] if fact.name.startswith(names) else []


def _wide_data(fact: _Facts, scalar_offset: bool) -> Operands:
    """Data of a store of more than 8 bytes, by whether a scalar register is its offset."""
    row = find_row(fact.item)
    move = row.does if row is not None else None
    if not isinstance(move, Move) or move.kind != "store" or move.nbytes <= 8 or move.space not in ("global", "buffer"):
        return []
    by_register = move.space == "buffer" and fact.item.operands[-1].kind == "sgpr"
    return [o for o in fact.read if o.kind in ("vgpr", "agpr") and o.width > 2] if by_register == scalar_offset else []


def _when(test: Callable[[_Facts], object], *kinds: str) -> Callable[[_Facts], Operands]:
    """Registers of these kinds that instructions read which pass a test."""
    return lambda fact: fact.reads(*kinds) if test(fact) else []


_EXEC_READ = [Operand("sgpr", EXEC, 2)]
_RULES: tuple[_Rule, ...] = (
    # Writing the register counts too: a partial write merges with the old value. Stores are not affected.
    _Rule("forward", 1, _unforwarded, lambda fact: list(fact.item.operands) if fact.vector else [],
          "a partial write is not forwarded"),
    _Rule("transcendental", 1, lambda fact: fact.results("vgpr") if _TRANSCENDENTAL.match(fact.name) else [],
          _when(lambda fact: fact.vector and not _TRANSCENDENTAL.match(fact.name), "vgpr"),
          "transcendental results arrive later"),
    _Rule("lane", 1, lambda fact: fact.results("vgpr"), _when(lambda fact: fact.name in _LANES[:2], "vgpr"),
          "a lane is read before the write arrives"),
    _Rule("lane select", 4, _scalars, lambda fact: fact.item.operands[-1:] if fact.name in _LANES[::2] else [],
          "a scalar written by the vector unit selects a lane later"),
    _Rule("swap", 2, lambda fact: fact.results("vgpr"), _when(lambda fact: fact.name.startswith("v_permlane"), "vgpr"),
          "a swap reads before the write arrives"),
    _Rule("dpp", 2, lambda fact: fact.results("vgpr"), _when(lambda fact: fact.item.encoding == "dpp", "vgpr"),
          "DPP reads before the write arrives"),
    _Rule("exec", 4, _exec, lambda fact: _EXEC_READ if fact.name.startswith(("v_permlane", *_LANES)) else [],
          "the lanes that it leaves on are known later"),
    _Rule("exec", 5, _exec, lambda fact: _EXEC_READ if fact.item.encoding == "dpp" else [],
          "the lanes that it leaves on are known later"),
    _Rule("scalar", 2, _scalars, _when(lambda fact: fact.vector, "sgpr"),
          "a scalar written by the vector unit arrives later"),
    _Rule("division", 4, lambda fact: _only(_scalars(fact), VCC),
          _when(lambda fact: fact.name.startswith("v_div_fmas"), "sgpr"), "v_div_fmas reads vcc early"),
    _Rule("address", 5, _scalars, _when(lambda fact: fact.unit in ("vmem", "scratch"), "sgpr"),
          "a scalar written by the vector unit addresses memory later"),
    _Rule("matrix", 2, lambda fact: fact.results("vgpr", "agpr"),
          _when(lambda fact: fact.unit == "mfma", "vgpr", "agpr"),
          "an MFMA reads before the write arrives"),
    _Rule("m0", 1, lambda fact: _only(fact.written, M0) if fact.unit == "salu" else [],
          lambda fact: _only(fact.read, M0) if fact.unit == "vmem" else [], "m0 arrives later at a load to LDS", False),
    _Rule("mode", 2, lambda fact: _mode(fact, "s_setreg"), lambda fact: _mode(fact, "s_setreg", "s_getreg"),
          "a mode arrives later"),
    _Rule("store", 2, lambda fact: _wide_data(fact, False), lambda fact: fact.written if fact.vector else [],
          "a store of more than 8 bytes reads its data late"),
    _Rule("store", 1, lambda fact: _wide_data(fact, True), lambda fact: fact.written if fact.vector else [],
          "a store of more than 8 bytes reads its data late", False),
)  # fmt: skip
