"""Scalar ALU: one table line per instruction; values are [w] arrays, one entry per wave.

A line gives the result's width, the sources' types, a function of the sources, and how SCC is set: "" (kept), "nz"
(result is not zero), or "f" where the function returns (result, scc). Compares return scc alone.
Source of the semantics: AMD CDNA4 ISA, "Scalar ALU instructions".
"""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.operands import constant_bits
from mxfp4lab.gfx950.machine.state import EXEC_PAIR, Group
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers, expect

_31, _63 = np.uint32(31), np.uint64(63)


def _add_u32(a, b):
    total = a + b
    return total, total < a


def _sub_u32(a, b):
    return a - b, b > a


def _add_i32(a, b):
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


def _sub_i32(a, b):
    total = a - b
    return total, ((a ^ b) & (a ^ total)) < 0


def _bfe_u32(a, b):
    width = (b >> np.uint32(16) & np.uint32(127)).astype(np.uint64)
    mask = (np.uint64(1) << np.minimum(width, np.uint64(32))) - np.uint64(1)
    return ((a >> (b & _31)).astype(np.uint64) & mask).astype(np.uint32)


def _bfe_i32(a, b):
    width = np.minimum(b >> np.int32(16) & np.int32(127), 32).astype(np.int64)
    field = (a.astype(np.int64) >> (b & np.int32(31)).astype(np.int64)) & ((np.int64(1) << width) - 1)
    sign = np.where(width > 0, np.int64(1) << np.maximum(width - 1, 0), 0)
    return ((field ^ sign) - sign).astype(np.int32)


def _bfe_u64(a, b):
    width = np.minimum(b >> np.uint32(16) & np.uint32(127), 64).astype(np.uint64)
    shifted = a >> (b.astype(np.uint64) & _63)
    full = np.uint64(0xFFFFFFFFFFFFFFFF)
    return np.where(width >= 64, shifted, shifted & ((np.uint64(1) << (width & _63)) - np.uint64(1)) & full)


def _min(a, b):
    return np.minimum(a, b), a < b


def _max(a, b):
    return np.maximum(a, b), a > b


def _lshl_add(n):
    def add(a, b):
        total = (a.astype(np.uint64) << np.uint64(n)) + b
        return total.astype(np.uint32), total > np.uint64(0xFFFFFFFF)

    return add


def _absdiff(a, b):
    return np.abs((a - b).view(np.int32) if np.ndim(a - b) else np.int32(a - b))


def _reverse(x, bits):
    raw = np.ascontiguousarray(np.atleast_1d(x)).view(np.uint8)
    flipped = np.packbits(np.unpackbits(raw, bitorder="little"), bitorder="big").reshape(-1, bits // 8)
    return np.ascontiguousarray(flipped[:, ::-1]).view(np.uint32 if bits == 32 else np.uint64)[:, 0]


def _lowest_one(x):
    lowest = x & (~x + x.dtype.type(1))
    return np.where(x == 0, np.int32(-1), np.bitwise_count(lowest - x.dtype.type(1)).astype(np.int32))


def _highest_one(bits):
    def find(x):
        spread = x
        for step in (1, 2, 4, 8, 16, 32)[: 5 if bits == 32 else 6]:
            spread = spread | spread >> x.dtype.type(step)
        return np.where(x == 0, np.int32(-1), bits - np.bitwise_count(spread).astype(np.int32)).astype(np.int32)

    return find


def _whole_quads(x):
    some = x | x >> np.uint64(1)
    some = (some | some >> np.uint64(2)) & np.uint64(0x1111111111111111)
    return some * np.uint64(15)


def _count(x):
    return np.bitwise_count(x).astype(np.int32)


# mnemonic: (result type, source types, function, scc rule)
OPS: dict[str, tuple[str, str, object, str]] = {
    "s_mov_b32": ("u32", "u32", lambda a: a, ""),
    "s_mov_b64": ("u64", "u64", lambda a: a, ""),
    "s_movk_i32": ("i32", "k", lambda a: a, ""),
    "s_not_b32": ("u32", "u32", np.invert, "nz"),
    "s_not_b64": ("u64", "u64", np.invert, "nz"),
    "s_brev_b32": ("u32", "u32", lambda a: _reverse(a, 32), ""),
    "s_brev_b64": ("u64", "u64", lambda a: _reverse(a, 64), ""),
    "s_abs_i32": ("i32", "i32", np.abs, "nz"),
    "s_bcnt1_i32_b32": ("i32", "u32", _count, "nz"),
    "s_bcnt1_i32_b64": ("i32", "u64", _count, "nz"),
    "s_bcnt0_i32_b32": ("i32", "u32", lambda a: _count(~a), "nz"),
    "s_bcnt0_i32_b64": ("i32", "u64", lambda a: _count(~a), "nz"),
    "s_ff1_i32_b32": ("i32", "u32", _lowest_one, ""),
    "s_ff1_i32_b64": ("i32", "u64", _lowest_one, ""),
    "s_flbit_i32_b32": ("i32", "u32", _highest_one(32), ""),
    "s_flbit_i32_b64": ("i32", "u64", _highest_one(64), ""),
    "s_wqm_b64": ("u64", "u64", _whole_quads, "nz"),
    "s_sext_i32_i8": ("i32", "i32", lambda a: a << np.int32(24) >> np.int32(24), ""),
    "s_sext_i32_i16": ("i32", "i32", lambda a: a << np.int32(16) >> np.int32(16), ""),
    "s_add_u32": ("u32", "u32 u32", _add_u32, "f"),
    "s_sub_u32": ("u32", "u32 u32", _sub_u32, "f"),
    "s_add_i32": ("i32", "i32 i32", _add_i32, "f"),
    "s_sub_i32": ("i32", "i32 i32", _sub_i32, "f"),
    "s_addk_i32": ("i32", "d k", _add_i32, "f"),
    "s_mulk_i32": ("i32", "d k", np.multiply, ""),
    "s_mul_i32": ("i32", "i32 i32", np.multiply, ""),
    "s_mul_hi_u32": ("u32", "u32 u32", lambda a, b: (a.astype(np.uint64) * b >> np.uint64(32)).astype(np.uint32), ""),
    "s_mul_hi_i32": ("i32", "i32 i32", lambda a, b: (a.astype(np.int64) * b >> np.int64(32)).astype(np.int32), ""),
    "s_min_i32": ("i32", "i32 i32", _min, "f"),
    "s_min_u32": ("u32", "u32 u32", _min, "f"),
    "s_max_i32": ("i32", "i32 i32", _max, "f"),
    "s_max_u32": ("u32", "u32 u32", _max, "f"),
    "s_absdiff_i32": ("i32", "i32 i32", _absdiff, "nz"),
    "s_and_b32": ("u32", "u32 u32", np.bitwise_and, "nz"),
    "s_and_b64": ("u64", "u64 u64", np.bitwise_and, "nz"),
    "s_or_b32": ("u32", "u32 u32", np.bitwise_or, "nz"),
    "s_or_b64": ("u64", "u64 u64", np.bitwise_or, "nz"),
    "s_xor_b32": ("u32", "u32 u32", np.bitwise_xor, "nz"),
    "s_xor_b64": ("u64", "u64 u64", np.bitwise_xor, "nz"),
    "s_andn2_b32": ("u32", "u32 u32", lambda a, b: a & ~b, "nz"),
    "s_andn2_b64": ("u64", "u64 u64", lambda a, b: a & ~b, "nz"),
    "s_orn2_b32": ("u32", "u32 u32", lambda a, b: a | ~b, "nz"),
    "s_orn2_b64": ("u64", "u64 u64", lambda a, b: a | ~b, "nz"),
    "s_nand_b32": ("u32", "u32 u32", lambda a, b: ~(a & b), "nz"),
    "s_nand_b64": ("u64", "u64 u64", lambda a, b: ~(a & b), "nz"),
    "s_nor_b32": ("u32", "u32 u32", lambda a, b: ~(a | b), "nz"),
    "s_nor_b64": ("u64", "u64 u64", lambda a, b: ~(a | b), "nz"),
    "s_xnor_b32": ("u32", "u32 u32", lambda a, b: ~(a ^ b), "nz"),
    "s_xnor_b64": ("u64", "u64 u64", lambda a, b: ~(a ^ b), "nz"),
    "s_lshl_b32": ("u32", "u32 u32", lambda a, b: a << (b & _31), "nz"),
    "s_lshr_b32": ("u32", "u32 u32", lambda a, b: a >> (b & _31), "nz"),
    "s_ashr_i32": ("i32", "i32 i32", lambda a, b: a >> (b & np.int32(31)), "nz"),
    "s_lshl_b64": ("u64", "u64 u32", lambda a, b: a << (b.astype(np.uint64) & _63), "nz"),
    "s_lshr_b64": ("u64", "u64 u32", lambda a, b: a >> (b.astype(np.uint64) & _63), "nz"),
    "s_ashr_i64": ("i64", "i64 u32", lambda a, b: a >> (b.astype(np.int64) & np.int64(63)), "nz"),
    "s_bfe_u32": ("u32", "u32 u32", _bfe_u32, "nz"),
    "s_bfe_i32": ("i32", "i32 i32", _bfe_i32, "nz"),
    "s_bfe_u64": ("u64", "u64 u32", _bfe_u64, "nz"),
    "s_bfm_b32": ("u32", "u32 u32", lambda a, b: ((np.uint32(1) << (a & _31)) - np.uint32(1)) << (b & _31), ""),
    "s_bfm_b64": ("u64", "u32 u32", lambda a, b: ((np.uint64(1) << (a.astype(np.uint64) & _63)) - np.uint64(1))
                  << (b.astype(np.uint64) & _63), ""),
    "s_lshl1_add_u32": ("u32", "u32 u32", _lshl_add(1), "f"),
    "s_lshl2_add_u32": ("u32", "u32 u32", _lshl_add(2), "f"),
    "s_lshl3_add_u32": ("u32", "u32 u32", _lshl_add(3), "f"),
    "s_lshl4_add_u32": ("u32", "u32 u32", _lshl_add(4), "f"),
    "s_pack_ll_b32_b16": ("u32", "u32 u32", lambda a, b: a & np.uint32(0xFFFF) | b << np.uint32(16), ""),
    "s_pack_lh_b32_b16": ("u32", "u32 u32", lambda a, b: a & np.uint32(0xFFFF) | b & np.uint32(0xFFFF0000), ""),
    "s_pack_hh_b32_b16": ("u32", "u32 u32", lambda a, b: a >> np.uint32(16) | b & np.uint32(0xFFFF0000), ""),
    "s_bitset0_b32": ("u32", "d u32", lambda d, a: d & ~(np.uint32(1) << (a & _31)), ""),
    "s_bitset1_b32": ("u32", "d u32", lambda d, a: d | np.uint32(1) << (a & _31), ""),
}  # fmt: skip
_TESTS = {
    "eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip
COMPARES: dict[str, tuple[str, object]] = {
    **{f"s_cmp_{n}_{t}": (f"{t} {t}", f) for n, f in _TESTS.items() for t in ("i32", "u32")},
    **{f"s_cmpk_{n}_i32": ("i32 k", f) for n, f in _TESTS.items()},
    **{f"s_cmpk_{n}_u32": ("u32 ku", f) for n, f in _TESTS.items()},
    **{f"s_cmp_{n}_u64": ("u64 u64", _TESTS[n]) for n in ("eq", "lg")},
    "s_bitcmp0_b32": ("u32 u32", lambda a, b: a >> (b & _31) & np.uint32(1) == 0),
    "s_bitcmp1_b32": ("u32 u32", lambda a, b: a >> (b & _31) & np.uint32(1) == 1),
    "s_bitcmp0_b64": ("u64 u32", lambda a, b: a >> (b.astype(np.uint64) & _63) & np.uint64(1) == 0),
    "s_bitcmp1_b64": ("u64 u32", lambda a, b: a >> (b.astype(np.uint64) & _63) & np.uint64(1) == 1),
}
_SAVEEXEC = {
    "s_and_saveexec_b64": lambda s, e: s & e, "s_or_saveexec_b64": lambda s, e: s | e,
    "s_xor_saveexec_b64": lambda s, e: s ^ e, "s_andn2_saveexec_b64": lambda s, e: s & ~e,
    "s_orn2_saveexec_b64": lambda s, e: s | ~e, "s_nand_saveexec_b64": lambda s, e: ~(s & e),
    "s_nor_saveexec_b64": lambda s, e: ~(s | e), "s_xnor_saveexec_b64": lambda s, e: ~(s ^ e),
    "s_andn1_saveexec_b64": lambda s, e: ~s & e, "s_orn1_saveexec_b64": lambda s, e: ~s | e,
}  # fmt: skip
_NAMED = {  # sources that are computed: [w] uint32
    "src_scc": lambda g: g.scc.astype(np.uint32),
    "src_vccz": lambda g: (g.Q[53] == 0).astype(np.uint32),
    "src_execz": lambda g: (g.Q[EXEC_PAIR] == 0).astype(np.uint32),
}


def scalar_source(instruction: Instruction, position: int, kind: str):
    """Closure of a scalar source as [w] or 0-d array of `kind` (u32 i32 u64 i64; k, ku: a 16-bit immediate).

    Raises:
        UnknownInstruction: an operand form that does not belong there.
    """
    operand = instruction.operands[position]
    if operand.neg or operand.abs:
        raise UnknownInstruction(instruction, f"operand {operand} in")
    if kind in ("k", "ku"):
        if operand.kind != "const" or operand.name or not isinstance(operand.value, int):
            raise UnknownInstruction(instruction, f"operand {operand} in")
        value = operand.value & 0xFFFF
        value = value - 0x10000 if kind == "k" and value & 0x8000 else value
        fixed = np.array(value, np.int32 if kind == "k" else np.uint32)
        return lambda g: fixed
    wide = kind in ("u64", "i64")
    dtype = {"u32": np.uint32, "i32": np.int32, "u64": np.uint64, "i64": np.int64}[kind]
    if operand.kind == "const":
        if operand.name in _NAMED and not wide:
            compute = _NAMED[operand.name]
            return lambda g: compute(g).view(dtype)
        bits = constant_bits(operand, 64 if wide else 32, instruction)
        constant = np.array(bits, np.uint64 if wide else np.uint32).view(dtype)
        return lambda g: constant
    if operand.kind != "sgpr" or operand.width != (2 if wide else 1):
        raise UnknownInstruction(instruction, f"operand {operand} in")
    if wide:
        if operand.index % 2:
            raise UnknownInstruction(instruction, f"operand {operand} in")
        pair = operand.index // 2
        return (lambda g: g.Q[pair]) if kind == "u64" else (lambda g: g.QI[pair])
    n = operand.index
    return (lambda g: g.S[n]) if kind == "u32" else (lambda g: g.SI[n])


def scalar_destination(instruction: Instruction, wide: bool):
    """Closure that stores a scalar result.

    Raises:
        UnknownInstruction: the destination is no scalar register of that width.
    """
    operand = instruction.operands[0]
    if operand.kind != "sgpr" or operand.width != (2 if wide else 1) or (wide and operand.index % 2):
        raise UnknownInstruction(instruction, f"destination {operand} in")
    n = operand.index
    if wide:
        return lambda g, value: g.put_pair(n // 2, value)
    if n in (126, 127):

        def put_exec_half(g: Group, value: np.ndarray) -> None:
            g.put_scalar(n, value)
            g.refresh_exec()

        return put_exec_half

    def put(g: Group, value: np.ndarray) -> None:
        if g.wm is None:
            g.S[n][...] = value
        else:
            np.copyto(g.S[n], value, where=g.wm, casting="unsafe")

    return put


def _result(value: np.ndarray) -> np.ndarray:
    """Signed results as the unsigned bits that registers hold."""
    value = np.asarray(value)
    return value.view({4: np.uint32, 8: np.uint64}[value.dtype.itemsize])


def build_scalar(instruction: Instruction, decoder: Decoder) -> Step:
    """Closure of an instruction out of `OPS`."""
    result, kinds, function, rule = OPS[instruction.mnemonic]
    kinds = kinds.split()
    check_modifiers(instruction)
    reads_destination = "d" in kinds
    expect(instruction, len(kinds) + (0 if reads_destination else 1))
    sources = []
    for i, kind in enumerate(kinds):
        position = i if reads_destination else i + 1
        sources.append(scalar_source(instruction, position, result if kind == "d" else kind))
    put = scalar_destination(instruction, result.endswith("64"))

    def run(g: Group) -> None:
        value = function(*(s(g) for s in sources))
        if rule == "f":
            value, scc = value
            g.put_scc(scc)
        elif rule == "nz":
            g.put_scc(value != 0)
        put(g, _result(value))

    return run


def build_scalar_compare(instruction: Instruction, decoder: Decoder) -> Step:
    """s_cmp_*, s_cmpk_*, s_bitcmp*: SCC alone."""
    kinds, function = COMPARES[instruction.mnemonic]
    expect(instruction, 2)
    check_modifiers(instruction)
    a, b = (scalar_source(instruction, i, kind) for i, kind in enumerate(kinds.split()))
    return lambda g: g.put_scc(function(a(g), b(g)))


def build_carry(instruction: Instruction, decoder: Decoder) -> Step:
    """s_addc_u32, s_subb_u32: SCC is carry or borrow, in and out."""
    expect(instruction, 3)
    check_modifiers(instruction)
    a, b = (scalar_source(instruction, i, "u32") for i in (1, 2))
    put = scalar_destination(instruction, False)
    subtract = instruction.mnemonic == "s_subb_u32"

    def run(g: Group) -> None:
        x, y = a(g).astype(np.int64), b(g).astype(np.int64)
        total = x - y - g.scc if subtract else x + y + g.scc
        g.put_scc(total < 0 if subtract else total > 0xFFFFFFFF)
        put(g, total.astype(np.uint32))

    return run


def build_select(instruction: Instruction, decoder: Decoder) -> Step:
    """s_cselect_*: source 0 where SCC, else source 1; s_cmov_*, s_cmovk_i32: source 0 where SCC, else unchanged."""
    wide = instruction.mnemonic.endswith("64")
    kind = "u64" if wide else "u32"
    check_modifiers(instruction)
    move = instruction.mnemonic.startswith("s_cmov")
    expect(instruction, 2 if move else 3)
    if instruction.mnemonic == "s_cmovk_i32":
        first = scalar_source(instruction, 1, "k")
    else:
        first = scalar_source(instruction, 1, kind)
    second = scalar_source(instruction, 0 if move else 2, kind)
    put = scalar_destination(instruction, wide)
    return lambda g: put(g, np.where(g.scc, _result(first(g)), second(g)))


def build_saveexec(instruction: Instruction, decoder: Decoder) -> Step:
    """s_*_saveexec_b64: EXEC to the destination, the combination to EXEC, SCC whether any lane is left."""
    combine = _SAVEEXEC[instruction.mnemonic]
    expect(instruction, 2)
    check_modifiers(instruction)
    operand = instruction.operands[0]
    if operand.kind != "sgpr" or operand.width != 2 or operand.index % 2 or operand.index == 126:
        raise UnknownInstruction(instruction, f"destination {operand} in")
    pair = operand.index // 2
    s = scalar_source(instruction, 1, "u64")

    def run(g: Group) -> None:
        old = g.Q[EXEC_PAIR].copy()
        new = combine(s(g), old)
        g.put_pair(pair, old)
        g.put_pair(EXEC_PAIR, new)
        g.put_scc(new != 0)

    return run


BUILDERS = {
    **dict.fromkeys(OPS, build_scalar),
    **dict.fromkeys(COMPARES, build_scalar_compare),
    **dict.fromkeys(("s_addc_u32", "s_subb_u32"), build_carry),
    **dict.fromkeys(("s_cselect_b32", "s_cselect_b64", "s_cmov_b32", "s_cmov_b64", "s_cmovk_i32"), build_select),
    **dict.fromkeys(_SAVEEXEC, build_saveexec),
}
