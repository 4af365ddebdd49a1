"""Sources and destinations of vector instructions: closures that fetch a typed array and that store one.

A source closure takes a `Group` and returns an array that broadcasts to [w, 64]. Negation, absolute value, SDWA byte
selection and DPP lane movement are folded in when the instruction is decoded; a plain register costs one list look-up.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mxfp4lab.gfx950.isa import Instruction, Operand
from mxfp4lab.gfx950.machine.crosslane import dpp_pattern
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.state import LANES, Group

Source = Callable[[Group], np.ndarray]
SIGN = np.uint32(0x80000000)
_DTYPES = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32, "b32": np.uint32, "u64": np.uint64, "i64": np.int64,
    "f64": np.float64, "u16": np.uint16, "i16": np.int16, "f16": np.float16, "b64": np.uint64,
}  # fmt: skip
_BITS = {"u32": 32, "i32": 32, "f32": 32, "b32": 32, "u64": 64, "i64": 64, "f64": 64, "b64": 64, "u16": 16, "i16": 16,
         "f16": 16}  # fmt: skip
_SELECT = {  # SDWA selector: (shift, bits)
    "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16), "WORD_1": (16, 16),
    "DWORD": (0, 32),
}  # fmt: skip
DPP_CONTROLS = (
    "quad_perm", "row_shl", "row_shr", "row_ror", "wave_shl", "wave_rol", "wave_shr", "wave_ror", "row_mirror",
    "row_half_mirror", "row_bcast", "row_newbcast",
)  # fmt: skip


def constant_bits(operand: Operand, bits: int, instruction: Instruction) -> int:
    """Bit pattern of an inline or literal constant as a source of the given width.

    A float constant is an inline constant in the instruction's own width. A 32-bit literal of a 64-bit integer source
    is sign-extended.

    Raises:
        UnknownInstruction: a named constant, or one that does not fit.
    """
    if operand.name:
        raise UnknownInstruction(instruction, f"constant {operand.name!r} in")
    value = operand.value
    if isinstance(value, float):
        kind = {16: np.float16, 32: np.float32, 64: np.float64}[bits]
        return int(np.array(value, kind).view({16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]))
    if not -(1 << 63) <= value < 1 << max(bits, 32):
        raise UnknownInstruction(instruction, f"constant {value:#x} too wide for")
    return value & ((1 << bits) - 1)


def slot(operand: Operand, accum: int) -> int:
    """Plane of the vector file that holds the operand's first register; `accum` is the first accumulation plane."""
    return operand.index + (accum if operand.kind == "agpr" else 0)


def source(instruction: Instruction, position: int, kind: str, accum: int) -> Source:
    """Fetch closure of operand `position` as type `kind` (u32 i32 f32 b32 u64 i64 f64 u16 i16 f16).

    Raises:
        UnknownInstruction: an operand form or modifier that does not belong there.
    """
    operand = instruction.operands[position]
    bits = _BITS[kind]
    floating = kind in ("f32", "f16", "f64", "b32")
    if (operand.neg or operand.abs) and not floating:
        raise UnknownInstruction(instruction, "negation or absolute value of an integer source in")
    if bits == 64:
        return _source64(instruction, operand, kind, accum)
    if bits == 16:
        return _source16(instruction, operand, position, kind, accum)
    if operand.kind == "const":
        value = constant_bits(operand, 32, instruction)
        value = (value & 0x7FFFFFFF) if operand.abs else value
        value = (value ^ 0x80000000) if operand.neg else value
        array = np.array(value, np.uint32).view(_DTYPES[kind])
        return lambda g: array
    sdwa = _sdwa_select(instruction, position)
    moved = instruction.encoding == "dpp" and position == _dpp_position(instruction)
    if operand.kind in ("vgpr", "agpr"):
        n = slot(operand, accum)
        if not (sdwa or moved or operand.neg or operand.abs or operand.sext):
            if kind == "f32":
                return lambda g: g.F[n]
            if kind == "i32":
                return lambda g: g.I[n]
            return lambda g: g.U[n]
        fetch: Source = lambda g: g.U[n]  # noqa: E731
    elif operand.kind == "sgpr":
        n = operand.index
        if not (sdwa or moved or operand.neg or operand.abs or operand.sext):
            if kind == "f32":
                return lambda g: g.SBF[n]
            if kind == "i32":
                return lambda g: g.SBI[n]
            return lambda g: g.SB[n]
        fetch = lambda g: g.SB[n]  # noqa: E731
    else:
        raise UnknownInstruction(instruction, f"operand {operand} in")
    if moved:
        fetch = _dpp_fetch(instruction, fetch)
    if sdwa:
        fetch = _sdwa_fetch(fetch, *sdwa, operand.sext)
    if operand.abs:
        fetch = _compose(fetch, lambda x: x & np.uint32(0x7FFFFFFF))
    if operand.neg:
        fetch = _compose(fetch, lambda x: x ^ SIGN)
    dtype = _DTYPES[kind]
    if dtype is np.uint32:
        return fetch
    inner = fetch
    return lambda g: inner(g).view(dtype)


def _compose(fetch: Source, change: Callable[[np.ndarray], np.ndarray]) -> Source:
    return lambda g: change(fetch(g))


def _source64(instruction: Instruction, operand: Operand, kind: str, accum: int) -> Source:
    dtype = _DTYPES[kind]
    if instruction.encoding in ("dpp", "sdwa"):
        raise UnknownInstruction(instruction, "64-bit source with DPP or SDWA in")
    if operand.kind == "const":
        if kind == "f64" and isinstance(operand.value, int) and not -16 <= operand.value <= 64:
            value = (operand.value & 0xFFFFFFFF) << 32  # a literal gives the high half of a double
        else:
            value = constant_bits(operand, 64, instruction)
        array = np.array(value, np.uint64).view(dtype)
        fetch: Source = lambda g: array  # noqa: E731
    elif operand.width != 2:
        raise UnknownInstruction(instruction, f"operand {operand} is not 64 bits wide in")
    elif operand.kind in ("vgpr", "agpr"):
        n = slot(operand, accum)

        def fetch(g: Group) -> np.ndarray:
            return pair64(g.U[n], g.U[n + 1]).view(dtype)
    elif operand.kind == "sgpr" and operand.index % 2 == 0:
        n = operand.index // 2
        fetch = lambda g: g.Q[n][:, None].view(dtype)  # noqa: E731
    else:
        raise UnknownInstruction(instruction, f"operand {operand} in")
    if operand.abs:
        fetch = _compose(fetch, np.abs)
    if operand.neg:
        fetch = _compose(fetch, np.negative)
    return fetch


def pair64(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Two uint32 planes [w, 64] as one uint64 plane."""
    both = np.empty((*low.shape, 2), np.uint32)
    both[..., 0] = low
    both[..., 1] = high
    return both.view(np.uint64)[..., 0]


def _source16(instruction: Instruction, operand: Operand, position: int, kind: str, accum: int) -> Source:
    dtype = _DTYPES[kind]
    if operand.kind == "const":
        value = constant_bits(operand, 16, instruction)
        value = (value & 0x7FFF) if operand.abs else value
        value = (value ^ 0x8000) if operand.neg else value
        array = np.array(value, np.uint16).view(dtype)
        return lambda g: array
    high = _op_sel(instruction, position - 1)
    sdwa = _sdwa_select(instruction, position)
    moved = instruction.encoding == "dpp" and position == _dpp_position(instruction)
    if operand.kind in ("vgpr", "agpr"):
        n = slot(operand, accum)
        fetch: Source = lambda g: g.U[n]  # noqa: E731
    elif operand.kind == "sgpr":
        n = operand.index
        fetch = lambda g: g.SB[n]  # noqa: E731
    else:
        raise UnknownInstruction(instruction, f"operand {operand} in")
    if moved:
        fetch = _dpp_fetch(instruction, fetch)
    if sdwa:
        fetch = _sdwa_fetch(fetch, *sdwa, operand.sext)
    inner = fetch
    take = (lambda x: (x >> np.uint32(16)).astype(np.uint16)) if high else (lambda x: x.astype(np.uint16))
    change = take
    if operand.abs:
        change = _then(change, lambda x: x & np.uint16(0x7FFF))
    if operand.neg:
        change = _then(change, lambda x: x ^ np.uint16(0x8000))
    return lambda g: change(inner(g)).view(dtype)


def _then(first, second):
    return lambda x: second(first(x))


def _op_sel(instruction: Instruction, place: int) -> int:
    sel = instruction.modifier("op_sel")
    return sel[place] if sel is not None and place < len(sel) else 0


def _sdwa_select(instruction: Instruction, position: int) -> tuple[int, int] | None:
    """(shift, bits) of an SDWA source, or None where the whole dword is taken."""
    if instruction.encoding != "sdwa":
        return None
    number = position - first_source(instruction)
    name = instruction.modifier(f"src{number}_sel", "DWORD")
    if name not in _SELECT:
        raise UnknownInstruction(instruction, f"src{number}_sel:{name} in")
    return _SELECT[name] if name != "DWORD" else None


def first_source(instruction: Instruction) -> int:
    """Position of source 0: after the destination, and after a carry-out where there is one."""
    if instruction.mnemonic in ("v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32", "v_addc_co_u32", "v_subb_co_u32",
                                "v_subbrev_co_u32"):  # fmt: skip
        return 2
    return 1


_dpp_position = first_source


def _sdwa_fetch(fetch: Source, shift: int, bits: int, sign: bool) -> Source:
    if sign:
        left, right = 32 - shift - bits, 32 - bits
        return lambda g: ((fetch(g) << np.uint32(left)).view(np.int32) >> np.int32(right)).view(np.uint32)
    low = np.uint32((1 << bits) - 1)
    return lambda g: (fetch(g) >> np.uint32(shift)) & low


def _dpp_fetch(instruction: Instruction, fetch: Source) -> Source:
    pattern, valid = dpp_pattern(instruction)
    bound = bool(instruction.modifier("bound_ctrl", 0))
    zero = np.uint32(0)

    def moved(g: Group) -> np.ndarray:
        x = fetch(g)
        if x.shape != (g.w, LANES):
            x = np.broadcast_to(x, (g.w, LANES))
        y = x.take(pattern, axis=1)
        if bound:
            if valid is not None:
                y *= valid
            if not g.full:  # a lane that is off gives 0, as one outside the row does
                y = np.where(g.exec.take(pattern, axis=1), y, zero)
        return y

    return moved


def dpp_write_mask(instruction: Instruction) -> Callable[[Group], np.ndarray | None] | None:
    """Closure for the lanes that a DPP instruction writes, or None where EXEC alone decides.

    Rows and banks that are masked off are not written. Without bound_ctrl, neither are lanes whose source lane is
    outside the row or off.
    """
    if instruction.encoding != "dpp":
        return None
    pattern, valid = dpp_pattern(instruction)
    rows, banks = instruction.modifier("row_mask", 15), instruction.modifier("bank_mask", 15)
    lane = np.arange(LANES)
    allowed = (rows >> lane // 16 & 1).astype(bool) & (banks >> lane % 16 // 4 & 1).astype(bool)
    bound = bool(instruction.modifier("bound_ctrl", 0))
    if not bound and valid is not None:
        allowed &= valid.astype(bool)
    static = None if allowed.all() else allowed

    def mask(g: Group) -> np.ndarray | None:
        if g.full:
            return static
        lanes = g.mask if static is None else g.mask & static
        return lanes if bound else lanes & g.exec.take(pattern, axis=1)

    return mask
