"""Read the amdgcn text that Triton's offline compile returns: instructions, labels, source lines, kernel descriptor.

The text may come from anywhere, so nothing is skipped silently: what this reader cannot read is an `IsaError` with the
line number. Whether an instruction exists is not asked here; the emulator asks that.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from mxfp4lab.gfx950.isa.descriptor import KernelDescriptor, build_descriptor, parse_metadata
from mxfp4lab.gfx950.isa.instruction import (
    ALIASES,
    NAMED_CONSTANTS,
    NAMED_SGPRS,
    TTMP0,
    Instruction,
    IsaError,
    Operand,
    Program,
    preload_entry,
    split_encoding,
)

MAX_BYTES = 64 << 20
MAX_INSTRUCTIONS = 400_000
_LIMITS = {"v": 256, "a": 256, "s": 102, "ttmp": 16}
_FLAGS = frozenset(
    ["sc0", "sc1", "nt", "glc", "slc", "scc", "lds", "gds", "offen", "idxen", "clamp", "tfe", "lwe", "done", "vm",
     "row_mirror", "row_half_mirror"]
)  # fmt: skip
_REGISTER = re.compile(r"(ttmp|[vas])(?:(\d{1,4})|\[(\d{1,4})(?::(\d{1,4}))?\])")
_INTEGER = re.compile(r"-?(?:0x[0-9a-fA-F]{1,16}|0|[1-9]\d{0,19})")
_FLOAT = re.compile(r"-?(?:\d{1,30}\.\d{0,30}(?:e[+-]?\d{1,3})?|\d{1,20}e[+-]?\d{1,3})")
_MODIFIER = re.compile(r"([a-z_][a-z0-9_]*):(.+)")
_COUNTER = re.compile(r"(vmcnt|lgkmcnt|expcnt|vscnt)\((0|[1-9]\d{0,2}|0x[0-9a-f]{1,2})\)")
_SWIZZLE = re.compile(r'swizzle\(([A-Z_]+),([0-9,]+|"[01pi]{5}")\)')
_CALL = re.compile(r"[a-z_]+\([A-Za-z0-9_, ]*\)")
_LITERAL = re.compile(r"lit(?:64)?\((-?(?:0x[0-9a-fA-F]{1,16}|0|[1-9]\d{0,19}))\)")
_SYMBOL = re.compile(r"[A-Za-z_.$][\w.$@]*(?:[+-]\d{1,9})?")
_LABEL = re.compile(r"([A-Za-z_.$][\w.$]*):")
_MNEMONIC = re.compile(r"[a-z][a-z0-9_]*")
_BRANCHES = ("s_branch", "s_cbranch_", "s_call_")
_TEXT_SECTION = re.compile(r"\.text(?:\.[\w.$]+)?")
_DATA_DIRECTIVES = frozenset(
    [".byte", ".short", ".hword", ".long", ".word", ".int", ".quad", ".octa", ".ascii", ".asciz", ".string", ".zero"]
)


def parse_amdgcn(text: str, lds_bytes: int | None = None) -> tuple[Program, KernelDescriptor]:
    """Parse the assembly text of one kernel.

    Args:
        text: amdgcn assembly with one `.amdhsa_kernel` block (what `triton.compile` returns for gfx950).
        lds_bytes: LDS that the launch allocates (Triton's `metadata.shared`); without it the fixed group segment size.

    Returns:
        The program and its kernel descriptor.

    Raises:
        IsaError: the text cannot be read, with the line number.
    """
    if not isinstance(text, str):
        raise IsaError(f"text: expected the amdgcn assembly as str, got {type(text).__name__}")
    if len(text) > MAX_BYTES:
        raise IsaError(f"text: {len(text)} characters; at most {MAX_BYTES} are accepted")
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        try:
            reader.read_line(line, number)
        except IsaError as error:
            raise IsaError(f"line {number}: {error}") from None
    return reader.finish(lds_bytes)


class _Reader:
    """Line by line state: section, source line, instructions, labels, directives, metadata."""

    def __init__(self) -> None:
        self.in_text = True
        self.instructions: list[Instruction] = []
        self.lines: list[int] = []
        self.labels: dict[str, int] = {}
        self.files: dict[int, str] = {}
        self.source: tuple[str, int] | None = None
        self.fields: dict[str, int] = {}
        self.kernel: str | None = None
        self.in_kernel_block = False
        self.metadata: list[tuple[int, str]] | None = None
        self.metadata_open = False

    def read_line(self, line: str, number: int) -> None:
        if self.metadata_open:
            if line.strip() == ".end_amdgpu_metadata":
                self.metadata_open = False
            else:
                self.metadata.append((number, line))
            return
        line = line.strip()
        if not line or line[0] in ";#" or line.startswith("//"):
            return
        if self.in_kernel_block:
            self._kernel_directive(line)
            return
        label = _LABEL.match(line)
        while label:
            if self.in_text:
                if label[1] in self.labels:
                    raise IsaError(f"label {label[1]!r} is defined twice")
                self.labels[label[1]] = len(self.instructions)
            line = line[label.end() :].strip()
            label = _LABEL.match(line)
        if not line or line[0] == ";":
            return
        if line[0] == ".":
            self._directive(line, number)
        elif self.in_text:
            self._instruction(line, number)

    def _directive(self, line: str, number: int) -> None:
        name, _, rest = line.partition("\t") if "\t" in line else line.partition(" ")
        rest = rest.strip()
        if name == ".loc":
            fields = rest.split(";")[0].split()
            if len(fields) < 2 or not (fields[0].isdecimal() and fields[1].isdecimal() and len(fields[1]) < 10):
                raise IsaError(f".loc: expected a file and a line number, got {rest[:60]!r}")
            file = self.files.get(int(fields[0][:9]), f"file {fields[0][:9]}")
            self.source = (file, int(fields[1])) if int(fields[1]) else None
        elif name == ".file":
            numbered = re.match(r'(\d{1,6})\s+(?:"([^"]*)"\s+)?"([^"]*)"', rest)
            if numbered:
                self.files[int(numbered[1])] = numbered[3]
        elif name == ".text":
            self.in_text = True
        elif name in (".section", ".pushsection"):
            self.in_text = bool(_TEXT_SECTION.fullmatch(rest.split(",")[0].strip().strip('"')))
        elif name in (".data", ".bss", ".popsection", ".previous"):
            self.in_text = False
        elif name == ".amdhsa_kernel":
            if self.kernel is not None:
                raise IsaError(f"a second kernel {rest[:80]!r} beside {self.kernel!r}; one kernel per text is accepted")
            if not rest:
                raise IsaError(".amdhsa_kernel: no kernel name")
            self.kernel, self.in_kernel_block = rest.split(";")[0].strip(), True
        elif name == ".amdgpu_metadata":
            self.metadata, self.metadata_open = [], True
        elif name == ".amdgcn_target" and "gfx950" not in rest:
            raise IsaError(f".amdgcn_target {rest[:80]}: only gfx950 is accepted")
        elif name in _DATA_DIRECTIVES and self.in_text and self.instructions:
            raise IsaError(f"{name}: data between instructions is not accepted")

    def _kernel_directive(self, line: str) -> None:
        line = line.split(";")[0].strip()
        if line == ".end_amdhsa_kernel":
            self.in_kernel_block = False
            return
        name, _, value = line.replace("\t", " ").partition(" ")
        if not name.startswith(".amdhsa_"):
            raise IsaError(f"expected an .amdhsa_ directive, got {line[:80]!r}")
        value = value.strip()
        if not _INTEGER.fullmatch(value):
            raise IsaError(f"{name}: expected an integer, got {value[:60]!r}")
        self.fields[name[len(".amdhsa_") :]] = int(value, 0)

    def _instruction(self, line: str, number: int) -> None:
        line = line.split(";")[0].split("//")[0].strip()
        if not line:
            return
        if len(self.instructions) >= MAX_INSTRUCTIONS:
            raise IsaError(f"more than {MAX_INSTRUCTIONS} instructions")
        written, _, rest = line.replace("\t", " ").partition(" ")
        if not _MNEMONIC.fullmatch(written):
            raise IsaError(f"expected an instruction, got {line[:80]!r}")
        mnemonic, encoding = split_encoding(written)
        operands, modifiers = _parse_operands(rest.strip(), mnemonic.startswith(_BRANCHES))
        self.lines.append(number)
        self.instructions.append(
            Instruction(len(self.instructions), mnemonic, encoding, operands, modifiers, None, self.source, line)
        )

    def finish(self, lds_bytes: int | None) -> tuple[Program, KernelDescriptor]:
        if self.metadata_open:
            raise IsaError("the text ends inside .amdgpu_metadata")
        if self.kernel is None:
            raise IsaError("the text has no .amdhsa_kernel block: it is no AMD GPU kernel")
        if self.in_kernel_block:
            raise IsaError("the text ends inside .amdhsa_kernel")
        start = self.labels.get(self.kernel)
        if start is None or start >= len(self.instructions):
            raise IsaError(f"no instructions follow the label of kernel {self.kernel!r}")
        for position, instruction in enumerate(self.instructions):
            label = next((o.name for o in instruction.operands if o.kind == "label"), None)
            if label is not None:
                if label not in self.labels:
                    raise IsaError(f"line {self.lines[position]}: branch to {label!r}, a label that is not defined")
                self.instructions[position] = replace(instruction, target=self.labels[label])
        metadata, args = parse_metadata(self.metadata or [], self.kernel)
        descriptor = build_descriptor(self.kernel, self.fields, metadata, args, lds_bytes)
        entry = start
        if descriptor.preload_length:
            entry = preload_entry(self.instructions[start:]) or start
        return Program(self.kernel, tuple(self.instructions), self.labels, entry), descriptor


def _split(rest: str) -> list[list[str]]:
    """Split at top-level commas, each part into words: "v0, v[1:2] op_sel:[0, 1]" -> [[v0], [v[1:2], op_sel:[0,1]]]."""
    groups, words, word, depth = [], [], [], 0
    for char in rest:
        if char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
            if depth < 0:
                raise IsaError(f"unbalanced bracket in {rest[:80]!r}")
        if depth == 0 and char in ", ":
            if word:
                words.append("".join(word))
                word = []
            if char == ",":
                groups.append(words)
                words = []
        elif char != " ":
            word.append(char)
    if depth:
        raise IsaError(f"unbalanced bracket in {rest[:80]!r}")
    if word:
        words.append("".join(word))
    groups.append(words)
    return groups


def _parse_operands(rest: str, branch: bool) -> tuple[tuple[Operand, ...], tuple]:
    operands: list[Operand] = []
    modifiers: dict[str, int | str | tuple[int, ...]] = {}
    if not rest:
        return (), ()
    groups = _split(rest)
    for position, words in enumerate(groups):
        if not words:
            raise IsaError(f"an operand is missing in {rest[:80]!r}")
        for place, word in enumerate(words):
            found = _parse_modifier(word)
            if found:
                if found[0] in modifiers:
                    raise IsaError(f"modifier {found[0]!r} is given twice")
                modifiers[found[0]] = found[1]
            elif word == "&" and modifiers:  # s_waitcnt vmcnt(0) & lgkmcnt(0)
                continue
            elif place == 0:
                operands.append(_parse_label(word) if branch else _parse_operand(word))
            else:
                raise IsaError(f"unexpected {word[:60]!r}: neither a modifier nor after a comma")
        if modifiers and position + 1 < len(groups) and len(words) > 1:
            raise IsaError(f"an operand follows modifiers in {rest[:80]!r}")
    return tuple(operands), tuple(sorted(modifiers.items()))


@lru_cache(maxsize=1 << 14)
def _parse_modifier(word: str) -> tuple[str, int | str | tuple[int, ...]] | None:
    if word in _FLAGS:
        return word, 1
    counter = _COUNTER.fullmatch(word)
    if counter:
        return counter[1], int(counter[2], 0)
    match = _MODIFIER.fullmatch(word)
    if not match:
        return None
    name, value = match[1], match[2]
    if _INTEGER.fullmatch(value):
        # LLVM has printed both bound_ctrl:0 and bound_ctrl:1 for the same set bit.
        return name, 1 if name == "bound_ctrl" else int(value, 0)
    if value[0] == "[" and value[-1] == "]":
        entries = value[1:-1].split(",")
        if not all(_INTEGER.fullmatch(entry) for entry in entries):
            raise IsaError(f"modifier {name}: expected a list of integers, got {value[:60]!r}")
        return name, tuple(int(entry, 0) for entry in entries)
    if _MNEMONIC.fullmatch(value.lower()):
        return name, value
    swizzle = _SWIZZLE.fullmatch(value)
    if swizzle:
        return name, _swizzle_offset(swizzle[1], swizzle[2])
    raise IsaError(f"modifier {name}: cannot read {value[:60]!r}")


def _swizzle_offset(mode: str, arguments: str) -> int:
    """Offset field of ds_swizzle_b32 for the assembler's symbolic modes (LLVM, "Syntax of AMDGPU modifiers")."""
    numbers = [] if arguments[0] == '"' else [int(n) for n in arguments.split(",") if n and len(n) < 3]
    if mode == "QUAD_PERM" and len(numbers) == 4 and all(n < 4 for n in numbers):
        return 0x8000 | sum(n << 2 * i for i, n in enumerate(numbers))
    if mode == "SWAP" and len(numbers) == 1 and numbers[0] in (1, 2, 4, 8, 16):
        return 0x1F | numbers[0] << 10
    if mode == "REVERSE" and len(numbers) == 1 and numbers[0] in (2, 4, 8, 16, 32):
        return 0x1F | (numbers[0] - 1) << 10
    if mode == "BROADCAST" and len(numbers) == 2 and numbers[0] in (2, 4, 8, 16, 32) and numbers[1] < numbers[0]:
        return 32 - numbers[0] | numbers[1] << 5
    if mode == "BITMASK_PERM" and not numbers:  # per lane-number bit, high first: set, clear, keep, invert
        bits = arguments.strip('"')
        keep, either, flip = (
            sum(1 << 4 - i for i, bit in enumerate(bits) if bit in which) for which in ("pi", "1", "i")
        )
        return keep | either << 5 | flip << 10
    raise IsaError(f"swizzle: cannot read {mode} of {arguments[:20]!r}")


@lru_cache(maxsize=1 << 14)
def _parse_label(word: str) -> Operand:
    if _REGISTER.fullmatch(word) or word in NAMED_SGPRS:
        return _parse_operand(word)
    if not _SYMBOL.fullmatch(word):
        raise IsaError(f"expected a label, got {word[:60]!r}")
    return Operand("label", name=word)


@lru_cache(maxsize=1 << 14)
def _parse_operand(word: str) -> Operand:
    if word == "off":
        return Operand("off")
    if _INTEGER.fullmatch(word):
        value = int(word, 0)
        if not -(1 << 63) <= value < 1 << 64:
            raise IsaError(f"constant {word[:60]} does not fit 64 bits")
        return Operand("const", value=value)
    if _FLOAT.fullmatch(word):
        return Operand("const", value=float(word))
    literal = _LITERAL.fullmatch(word)
    if literal:
        return Operand("const", value=int(literal[1], 0))
    if len(word) > 1 and word[0] == "-" and word[1] != "-":
        return replace(_parse_operand(word[1:]), neg=True)
    if len(word) > 2 and word[0] == word[-1] == "|":
        return replace(_parse_operand(word[1:-1]), abs=True)
    for function in ("neg", "abs", "sext"):
        if word.startswith(function + "(") and word.endswith(")"):
            return replace(_parse_operand(word[len(function) + 1 : -1]), **{function: True})
    word = ALIASES.get(word, word)
    if word in NAMED_SGPRS:
        index, width = NAMED_SGPRS[word]
        return Operand("sgpr", index, width)
    if word in NAMED_CONSTANTS:
        return Operand("const", name=word)
    register = _REGISTER.fullmatch(word)
    if register:
        return _register(word, register)
    if _CALL.fullmatch(word) or _SYMBOL.fullmatch(word):
        return Operand("const", name=word)
    raise IsaError(f"cannot read operand {word[:60]!r}")


def _register(word: str, match: re.Match) -> Operand:
    bank, single, first, last = match.groups()
    low = int(single if single is not None else first)
    high = low if last is None else int(last)
    if not low <= high < _LIMITS[bank]:
        raise IsaError(f"register {word} is out of range: {bank}0 to {bank}{_LIMITS[bank] - 1}")
    kind = {"v": "vgpr", "a": "agpr"}.get(bank, "sgpr")
    return Operand(kind, low + (TTMP0 if bank == "ttmp" else 0), high - low + 1)
