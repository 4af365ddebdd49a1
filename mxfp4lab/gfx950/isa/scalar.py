"""Scalar instructions: one row an opcode (`row` says how to read it); values are arrays with an entry per wave.

Source of the semantics: AMD CDNA4 ISA, "Scalar ALU instructions".
"""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.isa import numbers
from mxfp4lab.gfx950.isa.numbers import U32
from mxfp4lab.gfx950.isa.row import Row, make_row

I32, I64, U64 = np.int32, np.int64, np.uint64
_31, _63, _HIGH = U32(31), U64(63), U32(0xFFFF0000)


def _nz(function):
    """SCC says whether the result is not zero."""
    return lambda *sources: ((value := function(*sources)), value != 0)


def _add_u32(a, b, carry=False):
    total = a.astype(I64) + b + carry
    return total.astype(U32), total > 0xFFFFFFFF


def _sub_u32(a, b, borrow=False):
    total = a.astype(I64) - b - borrow
    return total.astype(U32), total < 0


def _add_i32(a, b):
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


def _sub_i32(a, b):
    total = a - b
    return total, ((a ^ b) & (a ^ total)) < 0


def _bfe_u32(a, b):
    width = (b >> U32(16) & U32(127)).astype(U64)
    mask = (U64(1) << np.minimum(width, U64(32))) - U64(1)
    return ((a >> (b & _31)).astype(U64) & mask).astype(U32)


def _bfe_i32(a, b):
    return numbers.signed_field(a, b & I32(31), np.minimum(b >> I32(16) & I32(127), 32))


def _lshl_add(n):
    def add(a, b):
        total = (a.astype(U64) << U64(n)) + b
        return total.astype(U32), total > U64(0xFFFFFFFF)

    return add


def _save(combine):
    """EXEC to the destination, the combination to EXEC, SCC whether any lane is left."""
    return lambda s, old: (old.copy(), (new := combine(s, old)), new != 0)


_TESTS = {
    "eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip
# mnemonic: (signature, function)
_ROWS = {
    "s_mov_b32": ("u32 <- u32", lambda a: a),
    "s_mov_b64": ("u64 <- u64", lambda a: a),
    "s_movk_i32": ("i32 <- k", lambda a: a),
    "s_cselect_b32": ("u32 <- u32 u32 scc", lambda a, b, scc: np.where(scc, a, b)),
    "s_cselect_b64": ("u64 <- u64 u64 scc", lambda a, b, scc: np.where(scc, a, b)),
    "s_not_b32": ("u32 scc <- u32", _nz(np.invert)),
    "s_not_b64": ("u64 scc <- u64", _nz(np.invert)),
    "s_brev_b32": ("u32 <- u32", numbers.bit_reverse),
    "s_abs_i32": ("i32 scc <- i32", _nz(np.abs)),
    "s_bcnt1_i32_b32": ("i32 scc <- u32", _nz(numbers.ones)),
    "s_bcnt1_i32_b64": ("i32 scc <- u64", _nz(numbers.ones)),
    "s_ff1_i32_b32": ("i32 <- u32", numbers.lowest_one),
    "s_ff1_i32_b64": ("i32 <- u64", numbers.lowest_one),
    "s_flbit_i32_b32": ("i32 <- u32", numbers.highest_one),
    "s_flbit_i32_b64": ("i32 <- u64", numbers.highest_one),
    "s_flbit_i32": ("i32 <- i32", lambda a: numbers.highest_one((a ^ a >> I32(31)).astype(U32))),
    "s_sext_i32_i8": ("i32 <- i32", lambda a: a << I32(24) >> I32(24)),
    "s_sext_i32_i16": ("i32 <- i32", lambda a: a << I32(16) >> I32(16)),
    "s_add_u32": ("u32 scc <- u32 u32", _add_u32),
    "s_addc_u32": ("u32 scc <- u32 u32 scc", _add_u32),
    "s_sub_u32": ("u32 scc <- u32 u32", _sub_u32),
    "s_subb_u32": ("u32 scc <- u32 u32 scc", _sub_u32),
    "s_add_i32": ("i32 scc <- i32 i32", _add_i32),
    "s_sub_i32": ("i32 scc <- i32 i32", _sub_i32),
    "s_addk_i32": ("+i32 scc <- k", lambda k, old: _add_i32(old, k)),
    "s_mulk_i32": ("+i32 <- k", lambda k, old: old * k),
    "s_mul_i32": ("i32 <- i32 i32", np.multiply),
    "s_mul_hi_u32": ("u32 <- u32 u32", lambda a, b: (a.astype(U64) * b >> U64(32)).astype(U32)),
    "s_mul_hi_i32": ("i32 <- i32 i32", lambda a, b: (a.astype(I64) * b >> I64(32)).astype(I32)),
    "s_min_i32": ("i32 scc <- i32 i32", lambda a, b: (np.minimum(a, b), a < b)),
    "s_max_i32": ("i32 scc <- i32 i32", lambda a, b: (np.maximum(a, b), a > b)),
    "s_min_u32": ("u32 scc <- u32 u32", lambda a, b: (np.minimum(a, b), a < b)),
    "s_max_u32": ("u32 scc <- u32 u32", lambda a, b: (np.maximum(a, b), a > b)),
    "s_lshl_b32": ("u32 scc <- u32 u32", _nz(lambda a, b: a << (b & _31))),
    "s_lshr_b32": ("u32 scc <- u32 u32", _nz(lambda a, b: a >> (b & _31))),
    "s_ashr_i32": ("i32 scc <- i32 i32", _nz(lambda a, b: a >> (b & I32(31)))),
    "s_lshl_b64": ("u64 scc <- u64 u32", _nz(lambda a, b: a << (b.astype(U64) & _63))),
    "s_lshr_b64": ("u64 scc <- u64 u32", _nz(lambda a, b: a >> (b.astype(U64) & _63))),
    "s_ashr_i64": ("i64 scc <- i64 u32", _nz(lambda a, b: a >> (b.astype(I64) & I64(63)))),
    "s_bfe_u32": ("u32 scc <- u32 u32", _nz(_bfe_u32)),
    "s_bfe_i32": ("i32 scc <- i32 i32", _nz(_bfe_i32)),
    "s_lshl1_add_u32": ("u32 scc <- u32 u32", _lshl_add(1)),
    "s_lshl2_add_u32": ("u32 scc <- u32 u32", _lshl_add(2)),
    "s_lshl3_add_u32": ("u32 scc <- u32 u32", _lshl_add(3)),
    "s_lshl4_add_u32": ("u32 scc <- u32 u32", _lshl_add(4)),
    "s_pack_ll_b32_b16": ("u32 <- u32 u32", lambda a, b: a & U32(0xFFFF) | b << U32(16)),
    "s_pack_lh_b32_b16": ("u32 <- u32 u32", lambda a, b: a & U32(0xFFFF) | b & _HIGH),
    "s_pack_hh_b32_b16": ("u32 <- u32 u32", lambda a, b: a >> U32(16) | b & _HIGH),
    "s_bitset1_b32": ("+u32 <- u32", lambda a, old: old | U32(1) << (a & _31)),
    "s_bitcmp0_b32": ("scc <- u32 u32", lambda a, b: a >> (b & _31) & U32(1) == 0),
    "s_bitcmp1_b32": ("scc <- u32 u32", lambda a, b: a >> (b & _31) & U32(1) == 1),
    "s_and_saveexec_b64": ("u64 exec scc <- u64 exec", _save(lambda s, e: s & e)),
    "s_or_saveexec_b64": ("u64 exec scc <- u64 exec", _save(lambda s, e: s | e)),
    "s_andn2_saveexec_b64": ("u64 exec scc <- u64 exec", _save(lambda s, e: s & ~e)),
    "s_getreg_b32": ("u32 <- hwreg xcc", lambda place, xcc: xcc.astype(U32)),
    "s_setreg_imm32_b32": ("ovfl <- hwreg u32", lambda place, value: value & U32(1) != 0),
    "s_branch": ("<- label", None),
    "s_cbranch_scc0": ("<- label scc", lambda scc: ~scc),
    "s_cbranch_scc1": ("<- label scc", lambda scc: scc),
    "s_cbranch_vccz": ("<- label vcc", lambda mask: mask == 0),
    "s_cbranch_vccnz": ("<- label vcc", lambda mask: mask != 0),
    "s_cbranch_execz": ("<- label exec", lambda mask: mask == 0),
    "s_cbranch_execnz": ("<- label exec", lambda mask: mask != 0),
    **{f"s_cmp_{n}_{t}": (f"scc <- {t} {t}", f) for n, f in _TESTS.items() for t in ("i32", "u32")},
    **{f"s_cmpk_{n}_i32": ("scc <- i32 k", f) for n, f in _TESTS.items()},
    **{f"s_cmpk_{n}_u32": ("scc <- u32 ku", f) for n, f in _TESTS.items()},
    **{f"s_cmp_{n}_u64": ("scc <- u64 u64", _TESTS[n]) for n in ("eq", "lg")},
}  # fmt: skip
for _name, _function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor),
                         ("andn2", lambda a, b: a & ~b), ("orn2", lambda a, b: a | ~b),
                         ("nand", lambda a, b: ~(a & b)), ("nor", lambda a, b: ~(a | b)),
                         ("xnor", lambda a, b: ~(a ^ b))):  # fmt: skip
    for _bits in (32, 64):
        _ROWS[f"s_{_name}_b{_bits}"] = f"u{_bits} scc <- u{_bits} u{_bits}", _nz(_function)

ROWS: dict[str, Row] = {name: make_row(*entry) for name, entry in _ROWS.items()}
