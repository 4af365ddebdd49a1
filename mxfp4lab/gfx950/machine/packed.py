"""Packed instructions: two 16-bit values in a word, or two float32 in a register pair."""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine import convert, floats
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.operands import constant_bits, slot
from mxfp4lab.gfx950.machine.state import LANES, Group
from mxfp4lab.gfx950.machine.tables import store32
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers, destination, expect

_FIFTEEN = np.uint16(15)


def _maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IEEE 754-2019 maximum: NaN if either is, and +0 above -0 (numpy may return either zero)."""
    return np.where((a == b) & ~np.signbit(a), a, np.maximum(b, a))


def _minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IEEE 754-2019 minimum: NaN if either is, and -0 below +0."""
    return np.where((a == b) & np.signbit(a), a, np.minimum(b, a))


# mnemonic: (element type, sources, function); the function sees arrays of the element type
PACKED16 = {
    "v_pk_add_u16": ("u16", 2, np.add), "v_pk_add_i16": ("i16", 2, np.add),
    "v_pk_sub_u16": ("u16", 2, np.subtract), "v_pk_sub_i16": ("i16", 2, np.subtract),
    "v_pk_mul_lo_u16": ("u16", 2, np.multiply),
    "v_pk_mad_u16": ("u16", 3, lambda a, b, c: a * b + c), "v_pk_mad_i16": ("i16", 3, lambda a, b, c: a * b + c),
    "v_pk_lshlrev_b16": ("u16", 2, lambda s, x: x << (s & _FIFTEEN)),
    "v_pk_lshrrev_b16": ("u16", 2, lambda s, x: x >> (s & _FIFTEEN)),
    "v_pk_ashrrev_i16": ("i16", 2, lambda s, x: x >> (s & np.int16(15))),
    "v_pk_max_u16": ("u16", 2, np.maximum), "v_pk_max_i16": ("i16", 2, np.maximum),
    "v_pk_min_u16": ("u16", 2, np.minimum), "v_pk_min_i16": ("i16", 2, np.minimum),
    "v_pk_add_f16": ("f16", 2, np.add), "v_pk_mul_f16": ("f16", 2, np.multiply),
    "v_pk_max_f16": ("f16", 2, np.fmax), "v_pk_min_f16": ("f16", 2, np.fmin),
    "v_pk_maximum3_f16": ("f16", 3, lambda a, b, c: _maximum(_maximum(a, b), c)),
    "v_pk_minimum3_f16": ("f16", 3, lambda a, b, c: _minimum(_minimum(a, b), c)),
}  # fmt: skip
PACKED32 = {
    "v_pk_add_f32": (2, np.add), "v_pk_mul_f32": (2, np.multiply), "v_pk_fma_f32": (3, floats.fma),
}  # fmt: skip
_DTYPES = {"u16": np.uint16, "i16": np.int16, "f16": np.float16}
_LIMITS = {"u16": (0, 0xFFFF), "i16": (-0x8000, 0x7FFF)}
_SATURATES = ("v_pk_add_u16", "v_pk_add_i16", "v_pk_sub_u16", "v_pk_sub_i16")
_MODIFIERS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")


def _selection(instruction: Instruction, name: str, count: int, default: int) -> tuple[int, ...]:
    value = instruction.modifier(name)
    if value is None:
        return (default,) * count
    if len(value) < count:
        raise UnknownInstruction(instruction, f"{name}:{list(value)} in")
    return tuple(value[:count])


def build_packed16(instruction: Instruction, decoder: Decoder) -> Step:
    """Two 16-bit results; op_sel and op_sel_hi choose the source halves of the low and the high result."""
    kind, count, function = PACKED16[instruction.mnemonic]
    expect(instruction, count + 1)
    clamp = bool(instruction.modifier("clamp", 0))
    if clamp and instruction.mnemonic not in _SATURATES:
        raise UnknownInstruction(instruction, "clamp in")
    check_modifiers(instruction, (*_MODIFIERS, "clamp"))
    n, dtype = destination(instruction, decoder), _DTYPES[kind]
    lows, highs = [], []
    for i in range(count):
        word = _word(instruction, i + 1, decoder)
        selected = [
            _selection(instruction, name, count, default)[i] for name, default in (("op_sel", 0), ("op_sel_hi", 1))
        ]
        negated = [_selection(instruction, name, count, 0)[i] for name in ("neg_lo", "neg_hi")]
        if any(negated) and kind != "f16":
            raise UnknownInstruction(instruction, "negation of an integer source in")
        lows.append(_half(word, selected[0], negated[0], dtype))
        highs.append(_half(word, selected[1], negated[1], dtype))
    if clamp:
        wrapped, (low, high) = function, _LIMITS[kind]

        def function(*values):
            return np.clip(wrapped(*(v.astype(np.int32) for v in values)), low, high).astype(dtype)

    def run(g: Group) -> None:
        low = function(*(half(g) for half in lows))
        high = function(*(half(g) for half in highs))
        pair = np.empty((g.w, LANES, 2), dtype)
        pair[..., 0], pair[..., 1] = low, high
        store32(g, n, pair.view(np.uint32)[..., 0])

    return run


def _word(instruction: Instruction, position: int, decoder: Decoder):
    operand = instruction.operands[position]
    if operand.neg or operand.abs:
        raise UnknownInstruction(instruction, f"operand {operand} in")
    if operand.kind == "const":
        if isinstance(operand.value, float):
            bits = constant_bits(operand, 16, instruction)
        else:
            bits = constant_bits(operand, 32, instruction)
        word = np.array(bits, np.uint32)
        return lambda g: word
    if operand.kind == "sgpr" and operand.width == 1:
        n = operand.index
        return lambda g: g.SB[n]
    if operand.kind in ("vgpr", "agpr") and operand.width == 1:
        n = slot(operand, decoder.accum)
        return lambda g: g.U[n]
    raise UnknownInstruction(instruction, f"operand {operand} in")


def _half(word, high: int, negate: int, dtype):
    flip = np.uint16(0x8000 if negate else 0)
    if high:
        return lambda g: ((word(g) >> np.uint32(16)).astype(np.uint16) ^ flip).view(dtype)
    return lambda g: (word(g).astype(np.uint16) ^ flip).view(dtype)


def build_packed32(instruction: Instruction, decoder: Decoder) -> Step:
    """Two float32 results in a register pair; op_sel and op_sel_hi choose the source words."""
    count, function = PACKED32[instruction.mnemonic]
    expect(instruction, count + 1)
    check_modifiers(instruction, _MODIFIERS)
    n = destination(instruction, decoder, width=2)
    results = []
    for name, default, negation in (("op_sel", 0, "neg_lo"), ("op_sel_hi", 1, "neg_hi")):
        selected, negated = _selection(instruction, name, count, default), _selection(instruction, negation, count, 0)
        results.append([_single(instruction, i + 1, selected[i], negated[i], decoder) for i in range(count)])
    flush = decoder.flush32

    def one(g: Group, sources) -> np.ndarray:
        values = [s(g) for s in sources]
        if flush:
            return floats.flush(np.asarray(function(*(floats.flush(v) for v in values))))
        return np.asarray(function(*values))

    def run(g: Group) -> None:
        low, high = (one(g, sources) for sources in results)
        store32(g, n, low.view(np.uint32))
        store32(g, n + 1, high.view(np.uint32))

    return run


def _single(instruction: Instruction, position: int, word: int, negate: int, decoder: Decoder):
    operand = instruction.operands[position]
    if operand.kind == "const":
        if word:  # which bits a constant has in its high word is not documented
            raise UnknownInstruction(instruction, "high word of a constant in")
        value = np.array(constant_bits(operand, 32, instruction), np.uint32).view(np.float32)
        fetch = lambda g: value  # noqa: E731
    elif operand.width != 2:
        raise UnknownInstruction(instruction, f"operand {operand} in")
    elif operand.kind == "sgpr":
        n = operand.index + word
        fetch = lambda g: g.SBF[n]  # noqa: E731
    else:
        n = slot(operand, decoder.accum) + word
        fetch = lambda g: g.F[n]  # noqa: E731
    return (lambda g: -fetch(g)) if negate else fetch


def build_packed_move(instruction: Instruction, decoder: Decoder) -> Step:
    """v_pk_mov_b32: op_sel chooses the word of source 0 for the low result and of source 1 for the high one."""
    expect(instruction, 3)
    check_modifiers(instruction, ("op_sel", "op_sel_hi"))
    n = destination(instruction, decoder, width=2)
    sel = _selection(instruction, "op_sel", 2, 0)
    low, high = (_single(instruction, i + 1, sel[i], 0, decoder) for i in range(2))

    def run(g: Group) -> None:
        first, second = low(g).view(np.uint32).copy(), high(g).view(np.uint32).copy()
        store32(g, n, first)
        store32(g, n + 1, second)

    return run


def build_mix(instruction: Instruction, decoder: Decoder) -> Step:
    """v_fma_mix_f32, v_mad_mix_f32: fma of sources that are each float32 or, by op_sel_hi, a half of two float16."""
    expect(instruction, 4)
    check_modifiers(instruction, ("op_sel", "op_sel_hi"))
    n = destination(instruction, decoder)
    half = _selection(instruction, "op_sel_hi", 3, 0)
    place = _selection(instruction, "op_sel", 3, 0)
    sources = []
    for i in range(3):
        word = _word(instruction, i + 1, decoder)
        if half[i]:
            fetch = _half(word, place[i], 0, np.float16)
            sources.append(lambda g, fetch=fetch: fetch(g).astype(np.float32))
        else:
            sources.append(lambda g, word=word: word(g).view(np.float32))

    def run(g: Group) -> None:
        store32(g, n, floats.fma(*(s(g) for s in sources)).view(np.uint32))

    return run


def bf16_pair_add(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Sum of two words of two bf16 each, every half rounded to nearest even (the atomic's addition)."""
    low = convert.from_bf16_bits(old & np.uint32(0xFFFF)) + convert.from_bf16_bits(new & np.uint32(0xFFFF))
    high = convert.from_bf16_bits(old >> np.uint32(16)) + convert.from_bf16_bits(new >> np.uint32(16))
    return convert.pack_bf16(low, high)


def f16_pair_add(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Sum of two words of two float16 each."""
    both = np.ascontiguousarray(old).view(np.float16) + np.ascontiguousarray(new).view(np.float16)
    return both.view(np.uint32)
