"""The one form of a gfx950 instruction, whether it was read as text or decoded from a code object.

Registers are numbered as the hardware encodes them, so that both readers agree:
`vcc` is sgpr 106:107, `flat_scratch` 102:103, `xnack_mask` 104:105, `ttmp0` 108, `m0` 124, `exec` 126:127.
Source: AMD CDNA4 ISA, section "Scalar ALU operands"; LLVM, AMDGPU operand syntax.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

VCC, M0, EXEC = 106, 124, 126
FLAT_SCRATCH, XNACK_MASK, TTMP0 = 102, 104, 108
NAMED_SGPRS: dict[str, tuple[int, int]] = {
    "flat_scratch": (FLAT_SCRATCH, 2), "flat_scratch_lo": (FLAT_SCRATCH, 1), "flat_scratch_hi": (FLAT_SCRATCH + 1, 1),
    "xnack_mask": (XNACK_MASK, 2), "xnack_mask_lo": (XNACK_MASK, 1), "xnack_mask_hi": (XNACK_MASK + 1, 1),
    "vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1),
    "m0": (M0, 1),
    "exec": (EXEC, 2), "exec_lo": (EXEC, 1), "exec_hi": (EXEC + 1, 1),
}  # fmt: skip
# Sources that are neither a register nor a number; an Operand of kind "const" carries the name.
NAMED_CONSTANTS: tuple[str, ...] = (
    "src_shared_base", "src_shared_limit", "src_private_base", "src_private_limit", "src_pops_exiting_wave_id",
    "src_vccz", "src_execz", "src_scc", "src_lds_direct",
)  # fmt: skip
ALIASES: dict[str, str] = {
    "shared_base": "src_shared_base", "shared_limit": "src_shared_limit", "private_base": "src_private_base",
    "private_limit": "src_private_limit", "vccz": "src_vccz", "execz": "src_execz", "scc": "src_scc",
    "lds_direct": "src_lds_direct",
}  # fmt: skip
ENCODING_SUFFIXES: tuple[str, ...] = ("_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa")


class IsaError(ValueError):
    """ISA text or a code object that cannot be read; the message says where and why, in one line of bearable length."""

    def __init__(self, message: str) -> None:
        message = " ".join(message.splitlines())
        super().__init__(message if len(message) <= 500 else f"{message[:380]} ... {message[-100:]}")


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand in assembly order.

    Attributes:
        kind: "vgpr", "agpr", "sgpr", "const", "label" or "off" (an address register that is switched off).
        index: first register (vgpr, agpr, sgpr as the hardware numbers them).
        width: dwords that the operand spans.
        value: for "const": an int is the bit pattern as written (may be negative), a float an inline float constant
            whose bits depend on the instruction's type (16, 32 or 64 bits).
        name: named constants ("src_scc"), labels, symbolic arguments ("hwreg(HW_REG_MODE)").
        neg: the source is negated (floating point).
        abs: the source's absolute value is taken before `neg`.
        sext: the SDWA source is sign-extended.
    """

    kind: str
    index: int = 0
    width: int = 1
    value: int | float = 0
    name: str = ""
    neg: bool = False
    abs: bool = False
    sext: bool = False

    def __str__(self) -> str:
        if self.kind in ("vgpr", "agpr", "sgpr"):
            body = _register_name(self.kind, self.index, self.width)
        elif self.kind == "const" and not self.name:
            body = str(self.value) if isinstance(self.value, float) or -16 <= self.value <= 64 else hex(self.value)
        else:
            body = self.name or self.kind
        body = f"|{body}|" if self.abs else body
        body = f"sext({body})" if self.sext else body
        return f"-{body}" if self.neg else body


def _register_name(kind: str, index: int, width: int) -> str:
    if kind == "sgpr":
        for name, place in NAMED_SGPRS.items():
            if place == (index, width):
                return name
        if TTMP0 <= index < TTMP0 + 16:
            first = index - TTMP0
            return f"ttmp{first}" if width == 1 else f"ttmp[{first}:{first + width - 1}]"
    return f"{kind[0]}{index}" if width == 1 else f"{kind[0]}[{index}:{index + width - 1}]"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction.

    Attributes:
        index: position in the program; branch targets are such positions.
        mnemonic: without an encoding suffix ("v_add_u32", not "v_add_u32_e32").
        encoding: "e32", "e64", "dpp", "sdwa" or "" where the form has one encoding only.
        operands: in assembly order, destination first.
        modifiers: sorted (name, value) pairs; a bare flag has value 1, a list is a tuple of ints.
            Names are the assembler's: offset, op_sel, op_sel_hi, neg_lo, cbsz, blgp, bitop3, quad_perm, row_shr,
            row_mask, bank_mask, bound_ctrl, dst_sel, src0_sel, sc0, sc1, nt, lds, offen, clamp, vmcnt, ...
        target: instruction index that a branch goes to, or None.
        source: (file, line) of the kernel's source, where the text tells.
        text: the instruction as written, for messages.
    """

    index: int
    mnemonic: str
    encoding: str = ""
    operands: tuple[Operand, ...] = ()
    modifiers: tuple[tuple[str, int | str | tuple[int, ...]], ...] = ()
    target: int | None = None
    source: tuple[str, int] | None = None
    text: str = ""

    def modifier(self, name: str, default: int | str | tuple[int, ...] | None = None) -> int | str | tuple | None:
        """Value of modifier `name`, or `default`."""
        for key, value in self.modifiers:
            if key == name:
                return value
        return default

    def where(self) -> str:
        """The instruction's place for a message: index, text and source line."""
        at = ""
        if self.source:
            file, line = self.source
            # A kernel typed into a notebook cell is compiled under a number for a name.
            at = f" (cell, line {line})" if file.removesuffix(".py").isdigit() else f" ({file}:{line})"
        return f"instruction {self.index}: {self.text or self.mnemonic}{at}"


@dataclass
class Program:
    """The instructions of one kernel.

    Attributes:
        name: the kernel's symbol.
        instructions: in address order.
        labels: label -> instruction index (may equal len(instructions) for a label at the end).
        entry: instruction at which execution starts; not 0 where a prologue for old firmware precedes it.
        uses: by index, sets of the registers that an instruction (writes, reads), as far as `table.uses` was asked.
    """

    name: str
    instructions: tuple[Instruction, ...]
    labels: dict[str, int] = field(default_factory=dict)
    entry: int = 0
    uses: dict[int, tuple[int, int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.instructions)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __getitem__(self, index: int) -> Instruction:
        return self.instructions[index]


def split_encoding(mnemonic: str) -> tuple[str, str]:
    """Split "v_add_u32_e32" into ("v_add_u32", "e32"); a mnemonic without a suffix gives ("...", "")."""
    for suffix in ENCODING_SUFFIXES:
        if mnemonic.endswith(suffix):
            return mnemonic[: -len(suffix)], "dpp" if suffix == "_e64_dpp" else suffix[1:]
    return mnemonic, ""


def preload_entry(instructions: tuple[Instruction, ...] | list[Instruction]) -> int:
    """Where a kernel with preloaded arguments starts: past the prologue that loads them on old firmware.

    The prologue is scalar loads, waits and one branch; firmware that preloads enters at the branch's target.
    """
    for instruction in instructions:
        if instruction.mnemonic == "s_branch" and instruction.target is not None:
            return instruction.target
        if not instruction.mnemonic.startswith(("s_load_", "s_waitcnt", "s_nop")):
            break
    return 0
