"""Vector instructions beyond one 32-bit result: 64-bit arithmetic, carries, lane masks, scaled conversions."""

from __future__ import annotations

import re

import numpy as np

from mxfp4lab.gfx950.isa import Instruction, Operand
from mxfp4lab.gfx950.machine import convert, floats
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.operands import constant_bits, pair64, slot, source
from mxfp4lab.gfx950.machine.state import LANES, Group, unpack_mask
from mxfp4lab.gfx950.machine.tables import store32, store64
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers, destination, expect, store_word

_COMPARE = {
    "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ne": np.not_equal, "ge": np.greater_equal,
}  # fmt: skip
_FLOAT_COMPARE = {
    "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lg": lambda a, b: (a < b) | (a > b), "o": lambda a, b: (a == a) & (b == b), "u": lambda a, b: (a != a) | (b != b),
    "nge": lambda a, b: ~(a >= b), "nlg": lambda a, b: ~((a < b) | (a > b)), "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b), "neq": np.not_equal, "nlt": lambda a, b: ~(a < b),
}  # fmt: skip
_CMP = re.compile(r"v_cmp(x?)_([a-z]+)_([fiu])(16|32|64)")


def mask_pair(instruction: Instruction, operand: Operand) -> int:
    """Index of the SGPR pair that holds a lane mask.

    Raises:
        UnknownInstruction: it is not an aligned pair.
    """
    if operand.kind != "sgpr" or operand.width != 2 or operand.index % 2:
        raise UnknownInstruction(instruction, f"lane mask {operand} in")
    return operand.index // 2


def build_compare(instruction: Instruction, decoder: Decoder) -> Step:
    """v_cmp_* and v_cmpx_*: a lane mask; lanes that are off give 0."""
    match = _CMP.fullmatch(instruction.mnemonic)
    if not match:
        raise UnknownInstruction(instruction)
    exec_too, name, letter, bits = match.groups()
    table = _FLOAT_COMPARE if letter == "f" else _COMPARE
    if name not in table or instruction.encoding == "dpp":
        raise UnknownInstruction(instruction)
    expect(instruction, 3)
    check_modifiers(instruction)
    if instruction.modifier("dst_sel") is not None:
        raise UnknownInstruction(instruction, "dst_sel in")
    compare = table[name]
    a, b = (source(instruction, i, letter + bits, decoder.accum) for i in (1, 2))
    flush = decoder.flush32 and letter + bits == "f32"
    pair = mask_pair(instruction, instruction.operands[0])

    def run(g: Group) -> None:
        x, y = a(g), b(g)
        if flush:
            x, y = floats.flush(x), floats.flush(y)
        lanes = compare(x, y)
        g.put_mask(pair, lanes)
        if exec_too:
            g.put_mask(63, lanes)

    return run


def build_compare_class(instruction: Instruction, decoder: Decoder) -> Step:
    """v_cmp_class_f32."""
    expect(instruction, 3)
    check_modifiers(instruction)
    a, b = source(instruction, 1, "f32", decoder.accum), source(instruction, 2, "u32", decoder.accum)
    pair = mask_pair(instruction, instruction.operands[0])

    def run(g: Group) -> None:
        g.put_mask(pair, floats.classify(np.asarray(a(g)), b(g)))

    return run


def build_cndmask(instruction: Instruction, decoder: Decoder) -> Step:
    """v_cndmask_b32: source 1 where the mask's bit is set, else source 0; the mask is the last operand or vcc."""
    operands = instruction.operands
    if len(operands) == 3:
        pair = 53
    else:
        expect(instruction, 4)
        pair = mask_pair(instruction, operands[3])
    check_modifiers(instruction)
    a, b = (source(instruction, i, "b32", decoder.accum) for i in (1, 2))

    def choose(x, y, mask, out):
        result = np.where(mask, y, x)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return store_word(instruction, decoder, "u32", choose, [a, b, lambda g: unpack_mask(g.Q[pair])])


_CARRY = {  # mnemonic: (reversed, subtract, carry in)
    "v_add_co_u32": (False, False, False), "v_addc_co_u32": (False, False, True), "v_sub_co_u32": (False, True, False),
    "v_subb_co_u32": (False, True, True), "v_subrev_co_u32": (True, True, False),
    "v_subbrev_co_u32": (True, True, True),
}  # fmt: skip


def build_carry(instruction: Instruction, decoder: Decoder) -> Step:
    """v_add_co_u32 and its kin: a word and a carry or borrow mask."""
    swapped, subtract, carry_in = _CARRY[instruction.mnemonic]
    expect(instruction, 5 if carry_in else 4)
    check_modifiers(instruction)
    if instruction.encoding in ("dpp", "sdwa"):
        raise UnknownInstruction(instruction, f"{instruction.encoding} form of")
    n = destination(instruction, decoder)
    carry_out = mask_pair(instruction, instruction.operands[1])
    a, b = (source(instruction, i, "u32", decoder.accum) for i in (2, 3))
    incoming = mask_pair(instruction, instruction.operands[4]) if carry_in else None

    def run(g: Group) -> None:
        x, y = a(g).astype(np.int64), b(g).astype(np.int64)
        if swapped:
            x, y = y, x
        carry = unpack_mask(g.Q[incoming]) if carry_in else 0
        total = x - y - carry if subtract else x + y + carry
        total = np.broadcast_to(total, (g.w, LANES))
        store32(g, n, total.astype(np.uint32))
        g.put_mask(carry_out, total < 0 if subtract else total > 0xFFFFFFFF)

    return run


def build_div_scale(instruction: Instruction, decoder: Decoder) -> Step:
    """v_div_scale_f32: scaled operand and the mask of lanes to rescale."""
    expect(instruction, 5)
    check_modifiers(instruction)
    n, pair = destination(instruction, decoder), mask_pair(instruction, instruction.operands[1])
    sources = [source(instruction, i, "f32", decoder.accum) for i in (2, 3, 4)]

    def run(g: Group) -> None:
        value, rescale = floats.div_scale(*(s(g) for s in sources))
        store32(g, n, np.broadcast_to(value, (g.w, LANES)).view(np.uint32))
        g.put_mask(pair, rescale)

    return run


def build_div_fmas(instruction: Instruction, decoder: Decoder) -> Step:
    """v_div_fmas_f32: fma, times 2^32 in lanes whose vcc bit is set."""
    expect(instruction, 4)
    check_modifiers(instruction)
    n = destination(instruction, decoder)
    sources = [source(instruction, i, "f32", decoder.accum) for i in (1, 2, 3)]

    def run(g: Group) -> None:
        value = floats.fma(*(s(g) for s in sources))
        rescale = unpack_mask(g.Q[53])
        if np.count_nonzero(rescale):
            value = np.where(rescale, value * np.float32(2.0**32), value)
        store32(g, n, np.broadcast_to(np.ascontiguousarray(value).view(np.uint32), (g.w, LANES)))

    return run


def build_lshl_add_u64(instruction: Instruction, decoder: Decoder) -> Step:
    """v_lshl_add_u64: (a << b) + c; the usual shift of 0 is done as two adds with carry."""
    expect(instruction, 4)
    check_modifiers(instruction)
    n = destination(instruction, decoder, width=2)
    shift = instruction.operands[2]
    amount = source(instruction, 2, "u32", decoder.accum)
    halves = [_halves(instruction, instruction.operands[i], decoder.accum) for i in (1, 3)]
    if shift.kind == "const" and shift.value == 0:
        (a_low, a_high), (c_low, c_high) = halves

        def add(g: Group) -> None:
            x = a_low(g)
            low = x + c_low(g)
            high = a_high(g) + c_high(g)
            high = high + (low < x)
            store32(g, n, low)
            store32(g, n + 1, high)

        return add
    a, c = (source(instruction, i, "u64", decoder.accum) for i in (1, 3))

    def run(g: Group) -> None:
        store64(g, n, np.broadcast_to((a(g) << (amount(g) & np.uint32(7)).astype(np.uint64)) + c(g), (g.w, LANES)))

    return run


def _halves(instruction: Instruction, operand: Operand, accum: int):
    """(low, high) word closures of a 64-bit source."""
    if operand.kind == "const":
        value = constant_bits(operand, 64, instruction)
        low, high = np.array(value & 0xFFFFFFFF, np.uint32), np.array(value >> 32, np.uint32)
        return (lambda g: low), (lambda g: high)
    if operand.width != 2 or operand.neg or operand.abs:
        raise UnknownInstruction(instruction, f"operand {operand} in")
    if operand.kind == "sgpr":
        n = operand.index
        return (lambda g: g.SB[n]), (lambda g: g.SB[n + 1])
    n = slot(operand, accum)
    return (lambda g: g.U[n]), (lambda g: g.U[n + 1])


_WIDE = {  # mnemonic: (source types, function) with a 64-bit result
    "v_lshlrev_b64": ("u32 u64", lambda s, x: x << (s & np.uint32(63)).astype(np.uint64)),
    "v_lshrrev_b64": ("u32 u64", lambda s, x: x >> (s & np.uint32(63)).astype(np.uint64)),
    "v_ashrrev_i64": ("u32 i64", lambda s, x: x >> (s & np.uint32(63)).astype(np.int64)),
    "v_mov_b64": ("b64", lambda x: x),
    "v_add_f64": ("f64 f64", np.add),
    "v_mul_f64": ("f64 f64", np.multiply),
    "v_fma_f64": ("f64 f64 f64", floats.fma64),
    "v_max_f64": ("f64 f64", np.fmax),
    "v_min_f64": ("f64 f64", np.fmin),
    "v_cvt_f64_f32": ("f32", lambda x: x.astype(np.float64)),
    "v_cvt_f64_i32": ("i32", lambda x: x.astype(np.float64)),
    "v_cvt_f64_u32": ("u32", lambda x: x.astype(np.float64)),
}
_NARROW = {  # mnemonic: (source type, function) from 64 to 32 bits
    "v_cvt_f32_f64": ("f64", lambda x: x.astype(np.float32).view(np.uint32)),
    "v_cvt_i32_f64": ("f64", lambda x: convert.f32_to_i32(x).view(np.uint32)),
    "v_cvt_u32_f64": ("f64", lambda x: convert.f32_to_u32(x)),
}


def build_wide(instruction: Instruction, decoder: Decoder) -> Step:
    """Instructions with a 64-bit result out of `_WIDE`, or a 64-bit source and a word out of `_NARROW`."""
    check_modifiers(instruction)
    narrow = instruction.mnemonic in _NARROW
    kinds, function = (_NARROW if narrow else _WIDE)[instruction.mnemonic]
    kinds = kinds.split()
    expect(instruction, len(kinds) + 1)
    n = destination(instruction, decoder, width=1 if narrow else 2)
    sources = [source(instruction, i + 1, kind, decoder.accum) for i, kind in enumerate(kinds)]
    store = store32 if narrow else store64

    def run(g: Group) -> None:
        store(g, n, np.broadcast_to(function(*(s(g) for s in sources)), (g.w, LANES)))

    return run


def build_mad64(instruction: Instruction, decoder: Decoder) -> Step:
    """v_mad_u64_u32, v_mad_i64_i32: a * b + c in 64 bits, with a carry mask."""
    expect(instruction, 5)
    check_modifiers(instruction)
    n, pair = destination(instruction, decoder, width=2), mask_pair(instruction, instruction.operands[1])
    signed = instruction.mnemonic == "v_mad_i64_i32"
    a, b = (source(instruction, i, "i32" if signed else "u32", decoder.accum) for i in (2, 3))
    c = source(instruction, 4, "i64" if signed else "u64", decoder.accum)
    wide = np.int64 if signed else np.uint64

    def run(g: Group) -> None:
        addend = c(g)
        product = a(g).astype(wide) * b(g).astype(wide)
        total = np.broadcast_to(product + addend, (g.w, LANES))
        if signed:
            overflow = ((product ^ total) & (addend ^ total)) < 0
        else:
            overflow = total < product
        store64(g, n, total)
        g.put_mask(pair, overflow)

    return run


def build_pack_fp4(instruction: Instruction, decoder: Decoder) -> Step:
    """v_cvt_scalef32_pk_fp4_f32 and _bf16, _f16: two values to one byte; op_sel's last two bits choose the byte."""
    from_f32 = instruction.mnemonic.endswith("_f32")
    expect(instruction, 4 if from_f32 else 3)
    check_modifiers(instruction, ("op_sel",))
    n = destination(instruction, decoder)
    sel = instruction.modifier("op_sel", (0, 0, 0, 0))
    if len(sel) != 4 or sel[0] or sel[1]:
        raise UnknownInstruction(instruction, f"op_sel:{list(sel)} in")
    shift = np.uint32(8 * (sel[2] + 2 * sel[3]))
    keep = ~(np.uint32(255) << shift)
    scale = source(instruction, 3 if from_f32 else 2, "f32", decoder.accum)
    if from_f32:
        a, b = (source(instruction, i, "f32", decoder.accum) for i in (1, 2))
    else:
        both = source(instruction, 1, "u32", decoder.accum)
        if instruction.mnemonic.endswith("_bf16"):
            a, b = (
                (lambda g: convert.from_bf16_bits(both(g))),
                (lambda g: (both(g) & np.uint32(0xFFFF0000)).view(np.float32)),
            )
        else:
            a = lambda g: both(g).astype(np.uint16).view(np.float16).astype(np.float32)  # noqa: E731
            b = lambda g: (both(g) >> np.uint32(16)).astype(np.uint16).view(np.float16).astype(np.float32)  # noqa: E731

    def run(g: Group) -> None:
        byte = convert.pack_fp4(a(g), b(g), scale(g))
        store32(g, n, g.U[n] & keep | byte << shift)

    return run


def build_unpack_fp4(instruction: Instruction, decoder: Decoder) -> Step:
    """v_cvt_scalef32_pk_{f32,bf16,f16}_fp4: one byte to two values; op_sel's first two bits choose the byte."""
    expect(instruction, 3)
    check_modifiers(instruction, ("op_sel",))
    wide = "_pk_f32_" in instruction.mnemonic
    n = destination(instruction, decoder, width=2 if wide else 1)
    sel = instruction.modifier("op_sel", (0, 0, 0))
    if any(sel[2:]):
        raise UnknownInstruction(instruction, f"op_sel:{list(sel)} in")
    shift = np.uint32(8 * (sel[0] + 2 * sel[1]))
    word, scale = source(instruction, 1, "u32", decoder.accum), source(instruction, 2, "f32", decoder.accum)

    def run(g: Group) -> None:
        low, high = convert.unpack_fp4(word(g) >> shift & np.uint32(255), scale(g))
        if wide:
            store64(g, n, pair64(low.view(np.uint32), high.view(np.uint32)))
        elif "_pk_bf16_" in instruction.mnemonic:
            store32(g, n, convert.pack_bf16(low, high))
        else:
            halves = (x.astype(np.float16).view(np.uint16).astype(np.uint32) for x in (low, high))
            store32(g, n, next(halves) | next(halves) << np.uint32(16))

    return run
