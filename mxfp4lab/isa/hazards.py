"""Static check of two hazards that the hardware does not interlock and inline assembly has to mind itself.

**Forwarding of partly written vector registers.**

On gfx940 and later the result of an instruction that writes only bytes or a half of a register, or that shifts its
result into place, is not forwarded: the next VALU instruction must not touch that register. The compiler inserts an
`s_nop` in code that it schedules, and none inside an inline-asm block: there the author has to.

Producers: scaled conversions to FP4 (all: they write one byte), conversions to FP8/BF8 that select an upper part, SDWA
with `dst_sel` other than DWORD, VOP3 that writes the upper half by op_sel. Consumers: a VALU, MFMA or conversion
instruction directly behind that reads the register, or writes it (a partial write merges with, and so reads, the old
value). Stores are not affected: they do not take the forwarding path.

Sources: LLVM pull requests 100276 (destination select), 117844 ("no 4 clk forwarding on opcodes that convert from
F32/F16 to F8 or F4") and 118589 (FP4 needs the wait whatever op_sel is). For the non-stochastic FP4 conversions with
op_sel 0 LLVM itself inserts no wait; the hardware note that it cites makes no exception, so neither do we.

**Matrix operands.** An MFMA that reads a register which a vector instruction wrote needs two wait states between them
(LLVM's hazard recognizer for gfx90a and later; an instruction is one wait state, `s_nop n` is n + 1). The compiler
counts for instructions that it emits, not for what an inline-asm block wrote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mxfp4lab.isa.classes import classify
from mxfp4lab.isa.instruction import Instruction, Operand, Program

_TO_FP4 = re.compile(r"v_cvt_scalef32_(?:sr_)?pk_fp4_")
_TO_FP8 = re.compile(r"v_cvt_(?:scalef32_)?(?:sr_)?(?:pk_)?(?:fp8|bf8)_")
_VECTOR_CLASSES = ("valu", "mfma", "convert")
MATRIX_WAIT_STATES = 2
# Packed and mixed-precision encodings (VOP3P) use op_sel for sources only.
_NO_DESTINATION_SELECT = ("v_pk_", "v_dot", "v_fma_mix", "v_mad_mix", "v_mfma_", "v_smfmac_")


@dataclass(frozen=True)
class Hazard:
    """One pair of instructions that needs independent instructions or `s_nop` between.

    Attributes:
        kind: "read" (the second reads what the first wrote), "write" (both write the register) or "matrix".
        index: the second instruction's index in the program.
        register: the register, as the assembler writes it.
        message: both instructions and what to do, one line.
    """

    kind: str
    index: int
    register: str
    message: str


def find_hazards(program: Program) -> list[Hazard]:
    """Every forwarding hazard of a program, in program order.

    A producer never branches, so the instruction behind it in the text is the one behind it in time, on every path.
    """
    found = []
    for producer, consumer in zip(program.instructions, program.instructions[1:], strict=False):
        destination = unforwarded_destination(producer)
        if destination is None or classify(consumer.mnemonic) not in _VECTOR_CLASSES:
            continue
        touched = [place for place, operand in enumerate(consumer.operands) if _overlap(destination, operand)]
        if touched:
            kind = "write" if touched == [0] else "read"
            verb = "writes" if kind == "write" else "reads"
            message = (
                f"{consumer.where()} {verb} {destination}, which the instruction before it writes in part "
                f"({producer.text or producer.mnemonic}): put an independent instruction or s_nop 0 between"
            )
            found.append(Hazard(kind, consumer.index, str(destination), message))
    known = {hazard.index for hazard in found}
    found += [hazard for hazard in matrix_hazards(program) if hazard.index not in known]
    return sorted(found, key=lambda hazard: hazard.index)


def matrix_hazards(program: Program) -> list[Hazard]:
    """Every MFMA whose operand a vector instruction wrote less than two wait states before."""
    found = []
    for consumer in program.instructions:
        if classify(consumer.mnemonic) != "mfma":
            continue
        waited, place = 0, consumer.index - 1
        while waited < MATRIX_WAIT_STATES and place >= 0:
            producer = program.instructions[place]
            kind = classify(producer.mnemonic)
            written = producer.operands[0] if kind in ("valu", "convert") and producer.operands else None
            vector = written is not None and written.kind in ("vgpr", "agpr")
            if vector and any(_overlap(written, operand) for operand in consumer.operands[1:]):
                message = (
                    f"{consumer.where()} reads {written}, written {waited} wait states before "
                    f"({producer.text or producer.mnemonic}): an MFMA needs {MATRIX_WAIT_STATES}"
                )
                found.append(Hazard("matrix", consumer.index, str(written), message))
                break
            waited += 1 + _extra_waits(producer)
            place -= 1
    return found


def _extra_waits(instruction: Instruction) -> int:
    """Wait states of an instruction beyond its own: `s_nop n` adds n."""
    if instruction.mnemonic != "s_nop" or not instruction.operands:
        return 0
    return int(instruction.operands[0].value)


def unforwarded_destination(instruction: Instruction) -> Operand | None:
    """The vector register that `instruction` writes without forwarding it, or None."""
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


def _overlap(destination: Operand, operand: Operand) -> bool:
    return (operand.kind == destination.kind
            and operand.index < destination.index + destination.width
            and destination.index < operand.index + operand.width)  # fmt: skip
