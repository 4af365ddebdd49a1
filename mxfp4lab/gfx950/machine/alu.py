"""Closures of vector and scalar ALU instructions, made of their rows: fetch the sources, compute, store under EXEC."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.isa.numbers import flush
from mxfp4lab.gfx950.isa.row import Row, places
from mxfp4lab.gfx950.machine.operands import (
    BANKS,
    DPP_CONTROLS,
    Decoder,
    Source,
    Step,
    dpp_lanes,
    plane,
    refuse,
    scalar_register,
    scalar_source,
    sdwa_store,
    vector_source,
)
from mxfp4lab.gfx950.machine.state import EXEC_PAIR, LANES, VCC_PAIR, Group, unpack_mask

Put = Callable[[Group, Any], None]
_ENCODED = {
    "dpp": (*DPP_CONTROLS, "row_mask", "bank_mask", "bound_ctrl"),
    "sdwa": ("dst_sel", "dst_unused", "src0_sel", "src1_sel"),
}
_SELECTIONS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")
_VECTOR_STATE: dict[str, Source] = {
    "vcc": lambda g: unpack_mask(g.Q[VCC_PAIR]),
    "exec": lambda g: g.exec,  # None where all lanes are on
    "ovfl": lambda g: g.ovfl[:, None],
}
_SCALAR_STATE: dict[str, Source] = {
    "vcc": lambda g: g.Q[VCC_PAIR],
    "exec": lambda g: g.Q[EXEC_PAIR],
    "scc": lambda g: g.scc,
    "xcc": lambda g: g.chunk.xcd[g.first : g.last],
}


def check_modifiers(instruction: Instruction, allowed: Collection[str] = ()) -> None:
    """Refuse a modifier that the instruction's meaning does not take into account.

    Raises:
        UnknownInstruction: naming the modifier.
    """
    encoded = _ENCODED.get(instruction.encoding, ())
    for name, value in instruction.modifiers:
        if name not in allowed and name not in encoded and value != 0:
            raise refuse(instruction, f"modifier {name}:{value}")


def build_alu(instruction: Instruction, row: Row, decoder: Decoder) -> Step:
    """Closure of a vector or scalar instruction whose meaning is a function."""
    vector = instruction.mnemonic[0] != "s"
    results, sources = places(instruction, row)
    check_modifiers(instruction, _allowed(row) if vector else ())
    fetch, number, constants = [], 0, []
    for kind, at in zip(row.sources, sources, strict=True):
        if kind[0] == "%":
            constants.append(instruction.modifier(kind[1:], None if kind == "%op_sel" else 0))
        elif at is None:
            fetch.append((_VECTOR_STATE if vector else _SCALAR_STATE)[kind])
        elif kind != "label":
            fetch.append(vector_source(instruction, at, number, kind, decoder) if vector
                         else scalar_source(instruction, at, kind))  # fmt: skip
            number += 1
    for kind, at in zip(row.results, results, strict=True):
        if kind[0] == "+":
            bare = kind.strip("+!")
            fetch.append(vector_source(instruction, at, -1, bare, decoder) if vector
                         else scalar_source(instruction, at, bare))  # fmt: skip
    function = row.does(*constants) if constants else row.does
    if vector and len(row.results) == 1:
        return _one_result(instruction, row, results[0], function, fetch, decoder)
    if instruction.encoding in ("dpp", "sdwa") and row.results[0] != "mask":
        raise refuse(instruction, f"{instruction.encoding} form")
    single = len(row.results) == 1
    puts = [_put(instruction, kind, at, decoder, vector) for kind, at in zip(row.results, results, strict=True)]
    first = puts[0]

    def run(g: Group) -> None:
        values = function(*[source(g) for source in fetch])
        if single:
            first(g, values)
        else:
            for put, value in zip(puts, values, strict=True):
                put(g, value)

    return run


@cache
def _allowed(row: Row) -> frozenset[str]:
    kinds = {kind.strip("+!") for kind in (*row.results, *row.sources)}
    allowed = {kind[1:] for kind in kinds if kind[0] == "%"}
    if row.clamps or row.results[0] == "f32":
        allowed.add("clamp")
    if kinds & {"u16", "i16", "f16"}:
        allowed.add("op_sel")
    if any(kind[0] == "2" or kind == "mix" for kind in kinds):
        allowed.update(_SELECTIONS if "mix" not in kinds else _SELECTIONS[:2])
    return frozenset(allowed)


def _one_result(instruction: Instruction, row: Row, at: int, function: Callable, fetch: list[Source],
                decoder: Decoder) -> Step:  # fmt: skip
    kind = row.results[0].strip("+!")
    if decoder.flush32 and kind in ("f32", "2f32", "mask"):
        fetch = [_flushed(source) if of in ("f32", "2f32") else source
                 for source, of in zip(fetch, (*row.sources, kind), strict=False)]  # fmt: skip
    if kind in ("mask", "s32", "u64", "i64", "f64", "w64"):  # functions of these get no array for the result
        if instruction.encoding == "dpp":
            raise refuse(instruction, "dpp form")
        put = _put(instruction, kind, at, decoder, True)
        return lambda g: put(g, function(*[source(g) for source in fetch]))
    if instruction.modifier("clamp", 0):
        function = _clamped(function, kind)
    if decoder.flush32 and kind in ("f32", "2f32"):
        function = _flushed_result(function)
    n = plane(instruction, at, decoder, 2 if kind == "2f32" else 1)
    if instruction.encoding == "sdwa":
        store = sdwa_store(instruction, n)
        return lambda g: store(g, _word(function(*[source(g) for source in fetch], None)))
    if kind not in BANKS and kind != "2f32":
        return _half_result(instruction, n, kind, function, fetch)
    if instruction.encoding == "dpp":
        lanes = dpp_lanes(instruction)
        return lambda g: np.copyto(g.U[n], _word(function(*[source(g) for source in fetch], None)), where=lanes(g))
    if row.results[0][-1] == "!":
        return lambda g: np.copyto(g.U[n], function(*[source(g) for source in fetch], None),
                                   where=True if g.wm is None else g.wm[:, None])  # fmt: skip
    if kind == "2f32":

        def place(g: Group) -> np.ndarray:
            return g.V[n : n + 2].view(np.float32)
    else:
        bank = BANKS[kind]

        def place(g: Group) -> np.ndarray:
            return getattr(g, bank)[n]

    if len(fetch) == 2:
        a, b = fetch

        def run(g: Group) -> None:
            out = place(g)
            if g.full:
                value = function(a(g), b(g), out)
                if value is not out:
                    np.copyto(out, value)
            else:
                np.copyto(out, function(a(g), b(g), None), where=g.mask)

        return run

    def run_many(g: Group) -> None:
        out = place(g)
        if g.full:
            value = function(*[source(g) for source in fetch], out)
            if value is not out:
                np.copyto(out, value)
        else:
            np.copyto(out, function(*[source(g) for source in fetch], None), where=g.mask)

    return run_many


def _word(value: np.ndarray) -> np.ndarray:
    """A result as uint32: halves are zero-extended."""
    value = np.asarray(value)
    return value.view(np.uint32) if value.dtype.itemsize == 4 else value.view(np.uint16).astype(np.uint32)


def _half_result(instruction: Instruction, n: int, kind: str, function: Callable, fetch: list[Source]) -> Step:
    """Store of a 16-bit result (low half and zero above, or the half that op_sel chooses), or of two."""
    select = instruction.modifier("op_sel")
    high = kind[0] != "2" and bool(select and len(select) == len(instruction.operands) and select[-1])
    lanes = dpp_lanes(instruction) if instruction.encoding == "dpp" else None

    def run(g: Group) -> None:
        value = function(*[source(g) for source in fetch], None)
        if kind[0] == "2":
            value = np.ascontiguousarray(np.broadcast_to(value, (g.w, LANES, 2))).view(np.uint32)[..., 0]
        else:
            value = np.asarray(value).view(np.uint16)
            if high:
                value = g.U[n] & np.uint32(0xFFFF) | value.astype(np.uint32) << np.uint32(16)
        np.copyto(g.U[n], value, where=lanes(g) if lanes is not None else True if g.full else g.mask)

    return run


def _put(instruction: Instruction, kind: str, at: int | None, decoder: Decoder, vector: bool) -> Put:
    """Store of one result that is no word of a vector register, or one of several."""
    bare = kind.strip("+!")
    if bare in ("scc", "ovfl"):
        return lambda g, value: g.put_bit(bare, value)
    if bare == "exec":
        return lambda g, value: g.put_mask(EXEC_PAIR, value) if vector else g.put_pair(EXEC_PAIR, value)
    if bare == "mask":
        pair = scalar_register(instruction, at, 2) // 2
        return lambda g, value: g.put_mask(pair, value)
    if not vector or bare == "s32":
        wide = bare[1:] == "64"
        n = scalar_register(instruction, at, 2 if wide else 1)
        unsigned = np.uint64 if wide else np.uint32
        if wide:
            return lambda g, value: g.put_pair(n // 2, np.asarray(value).view(unsigned))
        return lambda g, value: g.put_scalar(n, np.asarray(value).view(unsigned))
    wide = bare in ("u64", "i64", "f64", "w64")
    n = plane(instruction, at, decoder, 2 if wide else 1)
    if not wide:
        return lambda g, value: g.put_lanes(n, np.asarray(value).view(np.uint32))

    def put(g: Group, value: Any) -> None:
        if bare == "w64":
            low, high = value
        else:
            words = np.ascontiguousarray(value).view(np.uint32).reshape(*np.shape(value), 2)
            low, high = words[..., 0], words[..., 1]
        g.put_lanes(n, low)
        g.put_lanes(n + 1, high)

    return put


def _clamped(function: Callable, kind: str) -> Callable:
    """With clamp a float result stays within 0 and 1 (a NaN becomes 0), an integer sum or difference saturates."""
    if kind == "f32":
        return lambda *given: np.fmin(np.fmax(function(*given[:-1], None), np.float32(0)), np.float32(1))
    dtype = np.dtype({"u": "uint", "i": "int"}[kind[-3]] + kind[-2:])
    limits = np.iinfo(dtype)
    return lambda a, b, o: np.clip(function(a.astype(np.int64), b.astype(np.int64)), limits.min, limits.max).astype(
        dtype
    )


def _flushed(source: Source) -> Source:
    return lambda g: flush(source(g))


def _flushed_result(function: Callable) -> Callable:
    return lambda *given: flush(np.asarray(function(*given[:-1], None)))
