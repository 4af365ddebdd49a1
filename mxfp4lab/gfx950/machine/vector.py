"""Turn a vector instruction into a closure: fetch sources, compute, store under EXEC, clamp, SDWA and DPP forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine import floats
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.operands import DPP_CONTROLS, dpp_write_mask, slot, source
from mxfp4lab.gfx950.machine.state import Group
from mxfp4lab.gfx950.machine.valu import OPS, SATURATE, bitop3

Step = Callable[[Group], None]
_DPP = frozenset((*DPP_CONTROLS, "row_mask", "bank_mask", "bound_ctrl"))
_SDWA = frozenset(("dst_sel", "dst_unused", "src0_sel", "src1_sel"))
_PLACE = {
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
}
_LISTS = {"u32": "U", "i32": "I", "f32": "F"}


@dataclass(frozen=True)
class Decoder:
    """What decoding needs to know about the kernel.

    Attributes:
        accum: first accumulation plane of the vector file.
        lds_bytes: LDS of a workgroup.
        flush32: float32 denormals are flushed (float mode).
        memory: the launch's memory; None only where no access is decoded.
        wrap: what checks put around the closure of an instruction.
        sharing: matrix operands that instructions of the block that is being decoded share.
    """

    accum: int
    lds_bytes: int = 0
    flush32: bool = False
    memory: object = None
    wrap: Callable | None = None
    sharing: object = None


def check_modifiers(instruction: Instruction, allowed: tuple[str, ...] | frozenset[str] = ()) -> None:
    """Refuse a modifier that the instruction's meaning below does not take into account.

    Raises:
        UnknownInstruction: naming the modifier.
    """
    known = set(allowed)
    if instruction.encoding == "dpp":
        known |= _DPP
    elif instruction.encoding == "sdwa":
        known |= _SDWA
    for name, value in instruction.modifiers:
        if name not in known and value != 0:
            raise UnknownInstruction(instruction, f"modifier {name}:{value} in")


def destination(instruction: Instruction, decoder: Decoder, position: int = 0, width: int = 1) -> int:
    """Plane of a vector destination.

    Raises:
        UnknownInstruction: it is not a vector register of that width.
    """
    operand = instruction.operands[position]
    if operand.kind not in ("vgpr", "agpr") or operand.width != width:
        raise UnknownInstruction(instruction, f"destination {operand} in")
    return slot(operand, decoder.accum)


def expect(instruction: Instruction, count: int) -> None:
    """Refuse a wrong number of operands.

    Raises:
        UnknownInstruction: naming the counts.
    """
    if len(instruction.operands) != count:
        raise UnknownInstruction(instruction, f"{len(instruction.operands)} operands instead of {count} in")


def build_table(instruction: Instruction, decoder: Decoder) -> Step:
    """Closure of an instruction out of `valu.OPS`."""
    result, kinds, function = OPS[instruction.mnemonic]
    kinds = kinds.split()
    expect(instruction, len(kinds) + 1)
    half = result in ("u16", "i16", "f16")
    allowed = ["clamp"] if result in ("f32", "f16") or instruction.mnemonic in SATURATE else []
    if result in ("f32", "f16"):
        allowed += ["mul", "div"]
    if half or "f16" in kinds:
        allowed.append("op_sel")
    check_modifiers(instruction, tuple(allowed))
    sources = [source(instruction, i + 1, kind, decoder.accum) for i, kind in enumerate(kinds)]
    if instruction.modifier("clamp", 0) and instruction.mnemonic in SATURATE:
        function = _saturating(function, *SATURATE[instruction.mnemonic])
    if result == "f32":
        if decoder.flush32:
            function = _flushing(function, kinds)
        function = _output_modifiers(instruction, function)
    elif (
        instruction.modifier("mul")
        or instruction.modifier("div")
        or (result == "f16" and instruction.modifier("clamp"))
    ):
        raise UnknownInstruction(instruction, "output modifier of a 16-bit result in")
    if half:
        return store_half(instruction, decoder, _call(function, sources))
    return store_word(instruction, decoder, result, function, sources)


def build_bitop3(instruction: Instruction, decoder: Decoder) -> Step:
    """v_bitop3_b32, v_bitop3_b16: three-input logic given by its truth table."""
    expect(instruction, 4)
    half = instruction.mnemonic.endswith("b16")
    check_modifiers(instruction, ("bitop3", "op_sel") if half else ("bitop3",))
    table = instruction.modifier("bitop3", 0)
    if not 0 <= table < 256:
        raise UnknownInstruction(instruction, f"truth table {table} in")
    if half and not instruction.modifier("op_sel") and instruction.encoding not in ("dpp", "sdwa"):
        # Logic does not carry: done on whole words, the high half is cut off.
        words, logic = [source(instruction, i, "u32", decoder.accum) for i in (1, 2, 3)], bitop3(table)
        low = np.uint32(0xFFFF)
        return store_word(
            instruction, decoder, "u32", lambda a, b, c, out: np.bitwise_and(logic(a, b, c), low, out), words
        )
    sources = [source(instruction, i, "u16" if half else "u32", decoder.accum) for i in (1, 2, 3)]
    if half:
        return store_half(instruction, decoder, _call(bitop3(table), sources))
    return store_word(instruction, decoder, "u32", bitop3(table), sources)


def build_fmac(instruction: Instruction, decoder: Decoder) -> Step:
    """v_fmac_f32: the destination is also the addend."""
    expect(instruction, 3)
    check_modifiers(instruction, ("clamp", "mul", "div"))
    n = destination(instruction, decoder)
    sources = [source(instruction, i, "f32", decoder.accum) for i in (1, 2)] + [lambda g: g.F[n]]
    function = _flushing(floats.fma, ["f32"] * 3) if decoder.flush32 else floats.fma
    return store_word(instruction, decoder, "f32", _output_modifiers(instruction, function), sources)


def store_word(instruction: Instruction, decoder: Decoder, kind: str, function, sources) -> Step:
    """Closure that computes a 32-bit result and stores it: `function(*sources, out)`."""
    n = destination(instruction, decoder)
    if instruction.encoding == "sdwa":
        return _sdwa_store(instruction, n, _call(function, sources))
    bank = _LISTS[kind]
    dpp_mask = dpp_write_mask(instruction)
    if dpp_mask is not None:
        compute = _call(function, sources)

        def moved(g: Group) -> None:
            value, mask = compute(g), dpp_mask(g)
            np.copyto(getattr(g, bank)[n], value, where=True if mask is None else mask)

        return moved
    if len(sources) == 1:
        (a,) = sources

        def unary(g: Group) -> None:
            if g.full:
                function(a(g), getattr(g, bank)[n])
            else:
                np.copyto(getattr(g, bank)[n], function(a(g), None), where=g.mask)

        return unary
    if len(sources) == 2:
        a, b = sources

        def binary(g: Group) -> None:
            if g.full:
                function(a(g), b(g), getattr(g, bank)[n])
            else:
                np.copyto(getattr(g, bank)[n], function(a(g), b(g), None), where=g.mask)

        return binary
    a, b, c = sources

    def ternary(g: Group) -> None:
        if g.full:
            function(a(g), b(g), c(g), getattr(g, bank)[n])
        else:
            np.copyto(getattr(g, bank)[n], function(a(g), b(g), c(g), None), where=g.mask)

    return ternary


def store_half(instruction: Instruction, decoder: Decoder, compute) -> Step:
    """Closure that stores a 16-bit result: low half and zero above, or the half that op_sel chooses."""
    n = destination(instruction, decoder)

    def word(g: Group) -> np.ndarray:
        return np.ascontiguousarray(compute(g)).view(np.uint16).astype(np.uint32)

    if instruction.encoding == "sdwa":
        return _sdwa_store(instruction, n, word)
    sel = instruction.modifier("op_sel")
    high = bool(sel and len(sel) == len(instruction.operands) and sel[-1])
    mask_of = dpp_write_mask(instruction)

    def run(g: Group) -> None:
        value = word(g)
        if high:
            value = g.U[n] & np.uint32(0xFFFF) | value << np.uint32(16)
        mask = (None if g.full else g.mask) if mask_of is None else mask_of(g)
        np.copyto(g.U[n], value, where=True if mask is None else mask)

    return run


def _call(function, sources):
    if len(sources) == 1:
        (a,) = sources
        return lambda g: function(a(g), None)
    if len(sources) == 2:
        a, b = sources
        return lambda g: function(a(g), b(g), None)
    a, b, c = sources
    return lambda g: function(a(g), b(g), c(g), None)


def _sdwa_store(instruction: Instruction, n: int, compute) -> Step:
    select = instruction.modifier("dst_sel", "DWORD")
    unused = instruction.modifier("dst_unused", "UNUSED_PAD")
    if unused not in ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"):
        raise UnknownInstruction(instruction, f"dst_unused:{unused} in")
    if select == "DWORD":

        def whole(g: Group) -> None:
            np.copyto(g.U[n], compute(g).view(np.uint32), where=True if g.full else g.mask)

        return whole
    if select not in _PLACE:
        raise UnknownInstruction(instruction, f"dst_sel:{select} in")
    shift, bits = (np.uint32(x) for x in _PLACE[select])
    low = np.uint32((1 << int(bits)) - 1)
    keep = ~(low << shift)

    def run(g: Group) -> None:
        value = compute(g).view(np.uint32) & low
        if unused == "UNUSED_PRESERVE":
            value = g.U[n] & keep | value << shift
        elif unused == "UNUSED_SEXT":
            up = np.uint32(32) - bits
            value = ((value << up).view(np.int32) >> (up - shift).astype(np.int32)).view(np.uint32)
        else:
            value = value << shift
        np.copyto(g.U[n], value, where=True if g.full else g.mask)

    return run


def _saturating(function, low: int, high: int):
    def saturate(a, b, out):
        dtype = a.dtype
        exact = function(a.astype(np.int64), b.astype(np.int64), None)
        result = np.clip(exact, low, high).astype(dtype)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return saturate


def _flushing(function, kinds: list[str]):
    floating = [kind == "f32" for kind in kinds]

    def flushed(*arguments):
        *values, out = arguments
        values = [floats.flush(np.asarray(v)) if f else v for v, f in zip(values, floating, strict=True)]
        result = floats.flush(np.asarray(function(*values, None)))
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return flushed


def _output_modifiers(instruction: Instruction, function):
    factor = {0: 1.0, 2: 2.0, 4: 4.0}.get(instruction.modifier("mul", 0))
    half = {0: 1.0, 2: 0.5}.get(instruction.modifier("div", 0))
    if factor is None or half is None:
        raise UnknownInstruction(instruction, "output modifier in")
    clamp = instruction.modifier("clamp", 0)
    if factor * half == 1.0 and not clamp:
        return function
    scale = np.float32(factor * half)

    def modified(*arguments):
        *values, out = arguments
        result = np.asarray(function(*values, None)) * scale
        if clamp:  # a NaN becomes 0 (dx10_clamp)
            result = np.fmin(np.fmax(result, np.float32(0)), np.float32(1))
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return modified
