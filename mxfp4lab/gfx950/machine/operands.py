"""Sources and destinations of instructions: closures that fetch an array of a kind (`isa.row`) and that store one.

A source closure takes a `Group` and returns an array that broadcasts to [w, 64] (scalar instructions: to [w]).
Negation, absolute value, SDWA selection and DPP lane movement are folded in when the instruction is decoded; a plain
register costs one list look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mxfp4lab.gfx950.isa import Instruction, Operand
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.state import EXEC_PAIR, LANES, VCC_PAIR, Group, unpack_mask

Step = Callable[[Group], None]
Source = Callable[[Group], Any]
_DTYPES = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32, "b32": np.uint32, "u64": np.uint64, "i64": np.int64,
    "f64": np.float64, "u16": np.uint16, "i16": np.int16, "f16": np.float16,
}  # fmt: skip
BANKS = {"u32": "U", "b32": "U", "i32": "I", "f32": "F"}
_SELECT = {  # SDWA selector: (shift, bits)
    "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16), "WORD_1": (16, 16),
    "DWORD": (0, 32),
}  # fmt: skip
_HWREGS = {"s_getreg_b32": ("HW_REG_XCC_ID", "HW_REG_XCC_ID,0,32"), "s_setreg_imm32_b32": ("HW_REG_MODE,23,1",)}


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
    memory: Any = None
    wrap: Callable | None = None
    sharing: Any = None


def refuse(instruction: Instruction, what: object) -> UnknownInstruction:
    """The error for an operand or a modifier that the instruction's row does not foresee."""
    return UnknownInstruction(instruction, f"{what} in")


def constant_bits(operand: Operand, bits: int, instruction: Instruction) -> int:
    """Bit pattern of an inline or literal constant as a source of the given width.

    A float constant is an inline constant in the instruction's own width. A 32-bit literal of a 64-bit integer source
    is sign-extended.

    Raises:
        UnknownInstruction: a named constant, or one that does not fit.
    """
    if operand.name:
        raise refuse(instruction, f"constant {operand.name!r}")
    value = operand.value
    if isinstance(value, float):
        kind = {16: np.float16, 32: np.float32, 64: np.float64}[bits]
        return int(np.array(value, kind).view(f"u{bits // 8}"))
    if not -(1 << 63) <= value < 1 << max(bits, 32):
        raise refuse(instruction, f"constant {value:#x} too wide")
    return value & ((1 << bits) - 1)


def plane(instruction: Instruction, position: int, decoder: Decoder, width: int = 1, signs: bool = False) -> int:
    """Plane of the vector file that holds the first register of an operand.

    Raises:
        UnknownInstruction: it is no vector register of that width, or negated where `signs` does not foresee that.
    """
    operand = instruction.operands[position]
    negated = (operand.neg or operand.abs) and not signs
    if operand.kind not in ("vgpr", "agpr") or operand.width != width or negated:
        raise refuse(instruction, f"operand {operand}")
    return operand.index + (decoder.accum if operand.kind == "agpr" else 0)


def scalar_register(instruction: Instruction, position: int, width: int = 1) -> int:
    """First scalar register of an operand, even where it is wider than one.

    Raises:
        UnknownInstruction: it is no scalar register of that width.
    """
    operand = instruction.operands[position]
    if operand.kind != "sgpr" or operand.width != width or (width > 1 and operand.index % 2):
        raise refuse(instruction, f"operand {operand}")
    return operand.index


def scalar_source(instruction: Instruction, position: int, kind: str) -> Source:
    """A scalar source as [w] or 0-d array; k, ku: a 16-bit immediate; hwreg: the register's name.

    Raises:
        UnknownInstruction: an operand form that does not belong there.
    """
    operand = instruction.operands[position]
    if kind == "hwreg":
        name = operand.name.replace(" ", "").removeprefix("hwreg(").removesuffix(")")
        if name not in _HWREGS[instruction.mnemonic]:
            raise UnknownInstruction(instruction, f"{operand.name or operand} by")
        return lambda g: name
    if operand.neg or operand.abs:
        raise refuse(instruction, f"operand {operand}")
    dtype = _DTYPES[{"k": "i32", "ku": "u32", "s32": "u32"}.get(kind, kind)]
    bits = 8 * np.dtype(dtype).itemsize
    if kind in ("k", "ku"):
        if operand.kind != "const" or operand.name or not isinstance(operand.value, int):
            raise refuse(instruction, f"operand {operand}")
        value = operand.value & 0xFFFF
        fixed = np.array(value - 0x10000 if kind == "k" and value & 0x8000 else value, dtype)
        return lambda g: fixed
    if operand.kind == "const":
        if operand.name in _NAMED and bits == 32:
            compute = _NAMED[operand.name]
            return lambda g: compute(g).astype(dtype)
        fixed = np.array(constant_bits(operand, bits, instruction), f"u{bits // 8}").view(dtype)
        return lambda g: fixed
    n = scalar_register(instruction, position, bits // 32)
    if bits == 64:
        n //= 2
        return (lambda g: g.Q[n]) if kind == "u64" else (lambda g: g.QI[n])
    return (lambda g: g.SI[n]) if dtype is np.int32 else (lambda g: g.S[n])


_NAMED = {  # sources that are computed, [w]
    "src_scc": lambda g: g.scc,
    "src_vccz": lambda g: g.Q[VCC_PAIR] == 0,
    "src_execz": lambda g: g.Q[EXEC_PAIR] == 0,
}


def vector_source(instruction: Instruction, position: int, number: int, kind: str, decoder: Decoder) -> Source:
    """Source `number` of a vector instruction, at `position` among its operands.

    Raises:
        UnknownInstruction: an operand form or modifier that does not belong there.
    """
    operand = instruction.operands[position]
    if kind == "s32":
        return scalar_source(instruction, position, kind)
    if kind == "mask":
        pair = scalar_register(instruction, position, 2) // 2
        return lambda g: unpack_mask(g.Q[pair])
    if kind in ("w64", "2f32", "u64", "i64", "f64"):
        return _pair(instruction, position, number, kind, decoder)
    if kind in ("mix", "2u16", "2i16", "2f16"):
        return _halves(instruction, position, number, kind, decoder)
    if (operand.neg or operand.abs) and kind not in ("f32", "f16", "b32"):
        raise refuse(instruction, "negation or absolute value of an integer source")
    dtype = _DTYPES[kind]
    bits, word = 8 * np.dtype(dtype).itemsize, np.dtype(f"u{np.dtype(dtype).itemsize}").type
    sign = word(1 << bits - 1)
    if operand.kind == "const":
        value = np.array(constant_bits(operand, bits, instruction), word)
        value = (value & ~sign) if operand.abs else value
        fixed = ((value ^ sign) if operand.neg else value).view(dtype)
        return lambda g: fixed
    sdwa = _sdwa_select(instruction, number)
    moved = instruction.encoding == "dpp" and number == 0
    plain = not (sdwa or moved or operand.neg or operand.abs)
    if operand.kind in ("vgpr", "agpr"):
        n = plane(instruction, position, decoder, signs=True)
        bank = BANKS.get(kind)
        if plain and bank == "F":
            return lambda g: g.F[n]
        if plain and bank == "I":
            return lambda g: g.I[n]
        if plain and bank:
            return lambda g: g.U[n]
        fetch: Source = lambda g: g.U[n]  # noqa: E731
    else:
        n = scalar_register(instruction, position)
        if plain and bits == 32:
            return lambda g: g.S[n][:, None].view(dtype)
        fetch = lambda g: g.S[n][:, None]  # noqa: E731
    if moved:
        fetch = _dpp_fetch(instruction, fetch)
    if sdwa:
        fetch = _sdwa_fetch(fetch, *sdwa, operand.sext)
    inner, high = fetch, bits == 16 and _selected(instruction, "op_sel", number)

    def take(g: Group) -> np.ndarray:
        x = inner(g)
        if bits == 16:
            x = np.ascontiguousarray(x).view(np.uint16)[..., int(bool(high)) :: 2]
        x = x & ~sign if operand.abs else x
        return (x ^ sign if operand.neg else x).view(dtype)

    return take


def _selected(instruction: Instruction, name: str, number: int, default: int = 0) -> int:
    values = instruction.modifier(name)
    return default if values is None or number >= len(values) else values[number]


def _pair(instruction: Instruction, position: int, number: int, kind: str, decoder: Decoder) -> Source:
    """A register pair: as 64 bits, as (low, high) words, or as two float32 that op_sel and op_sel_hi choose."""
    operand = instruction.operands[position]
    if instruction.encoding in ("dpp", "sdwa"):
        raise refuse(instruction, "64-bit source with DPP or SDWA")
    order = tuple(_selected(instruction, name, number, i) for i, name in enumerate(("op_sel", "op_sel_hi")))
    if instruction.mnemonic == "v_pk_mov_b32":  # op_sel alone counts: of source 0 for the low result, of 1 for the high
        order = (order[0], order[0])
    if operand.kind == "const":
        if kind == "2f32":
            if any(order):  # which bits a constant has in its high word is not documented
                raise refuse(instruction, "high word of a constant")
            words = np.array([constant_bits(operand, 32, instruction)] * 2, np.uint32)
        elif kind == "f64" and isinstance(operand.value, int) and not -16 <= operand.value <= 64:
            words = np.array([0, operand.value & 0xFFFFFFFF], np.uint32)  # a literal gives a double's high half
        else:
            words = np.array([constant_bits(operand, 64, instruction)], np.uint64).view(np.uint32)
        fetch: Source = lambda g: words[:, None, None]  # noqa: E731
    elif operand.kind == "sgpr":
        n = scalar_register(instruction, position, 2)
        fetch = lambda g: np.stack((g.S[n], g.S[n + 1]))[:, :, None]  # noqa: E731
    else:
        n = plane(instruction, position, decoder, 2, signs=True)
        fetch = lambda g: g.V[n : n + 2]  # noqa: E731
    if kind == "w64":
        if operand.neg or operand.abs:
            raise refuse(instruction, f"operand {operand}")
        return fetch
    if kind == "2f32":
        if operand.neg or operand.abs:
            raise refuse(instruction, f"operand {operand}")
        signs = [-1.0 if _selected(instruction, name, number) else 1.0 for name in ("neg_lo", "neg_hi")]
        factor = None if signs == [1, 1] else np.array(signs, np.float32)[:, None, None]
        index = None if order == (0, 1) or operand.kind == "const" else list(order)

        def both(g: Group) -> np.ndarray:
            x = fetch(g) if index is None else fetch(g)[index]
            return x.view(np.float32) if factor is None else x.view(np.float32) * factor

        return both
    dtype = _DTYPES[kind]

    def whole(g: Group) -> np.ndarray:
        low, high = fetch(g)
        joint = np.empty((*low.shape, 2), np.uint32)
        joint[..., 0], joint[..., 1] = low, high
        x = joint.view(dtype)[..., 0]
        x = np.abs(x) if operand.abs else x
        return -x if operand.neg else x

    if (operand.neg or operand.abs) and kind != "f64":
        raise refuse(instruction, "negation or absolute value of an integer source")
    return whole


def _halves(instruction: Instruction, position: int, number: int, kind: str, decoder: Decoder) -> Source:
    """Two 16-bit numbers in a last axis, chosen by op_sel and op_sel_hi; mix: float32, or a float16 half by op_sel."""
    operand = instruction.operands[position]
    if operand.kind == "const":
        bits = constant_bits(operand, 16 if isinstance(operand.value, float) and kind != "mix" else 32, instruction)
        fixed = np.array([bits], np.uint32)
        word: Source = lambda g: fixed  # noqa: E731
    elif operand.kind == "sgpr" and not (operand.neg or operand.abs):
        s = scalar_register(instruction, position)
        word = lambda g: np.ascontiguousarray(g.S[s])[:, None]  # noqa: E731
    else:
        n = plane(instruction, position, decoder)
        word = lambda g: g.U[n]  # noqa: E731
    order = [_selected(instruction, "op_sel", number), _selected(instruction, "op_sel_hi", number, int(kind != "mix"))]
    flips = [_selected(instruction, name, number) << 15 for name in ("neg_lo", "neg_hi")]
    if any(flips) and kind != "2f16":
        raise refuse(instruction, "negation of an integer source")
    if kind == "mix":
        if not order[1]:
            return lambda g: word(g).view(np.float32)
        return lambda g: word(g).view(np.float16)[..., order[0] :: 2].astype(np.float32)
    dtype, flip = _DTYPES[kind[1:]], np.array(flips, np.uint16)

    def take(g: Group) -> np.ndarray:
        x = word(g)
        x = x.view(np.uint16).reshape(*x.shape, 2)
        x = x if order == [0, 1] else x[..., order]
        return (x ^ flip if any(flips) else x).view(dtype)

    return take


def _sdwa_select(instruction: Instruction, number: int) -> tuple[int, int] | None:
    """(shift, bits) of an SDWA source, or None where the whole dword is taken."""
    if instruction.encoding != "sdwa":
        return None
    name = instruction.modifier(f"src{number}_sel", "DWORD")
    if name not in _SELECT:
        raise refuse(instruction, f"src{number}_sel:{name}")
    return _SELECT[name] if name != "DWORD" else None


def _sdwa_fetch(fetch: Source, shift: int, bits: int, sign: bool) -> Source:
    if sign:
        left, right = 32 - shift - bits, 32 - bits
        return lambda g: ((fetch(g) << np.uint32(left)).view(np.int32) >> np.int32(right)).view(np.uint32)
    low = np.uint32((1 << bits) - 1)
    return lambda g: (fetch(g) >> np.uint32(shift)) & low


def sdwa_store(instruction: Instruction, n: int) -> Callable[[Group, np.ndarray], None]:
    """Store of a word to the part of register n that dst_sel names."""
    select, unused = instruction.modifier("dst_sel", "DWORD"), instruction.modifier("dst_unused", "UNUSED_PAD")
    if unused not in ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE") or select not in _SELECT:
        raise refuse(instruction, f"dst_sel:{select} dst_unused:{unused}")
    shift, bits = (np.uint32(x) for x in _SELECT[select])
    low = np.uint32((1 << int(bits)) - 1)
    keep, up = ~(low << shift), np.uint32(32) - bits

    def put(g: Group, value: np.ndarray) -> None:
        value = value & low
        if unused == "UNUSED_PRESERVE":
            value = g.U[n] & keep | value << shift
        elif unused == "UNUSED_SEXT":
            value = ((value << up).view(np.int32) >> (up - shift).astype(np.int32)).view(np.uint32)
        else:
            value = value << shift
        g.put_lanes(n, value)

    return put


def _row(step: int) -> tuple[np.ndarray, np.ndarray]:
    at = _LANE % 16 + step
    return _LANE // 16 * 16 + at.clip(0, 15), (at >= 0) & (at < 16)


_LANE = np.arange(LANES)
DPP_CONTROLS = {  # control: (allowed values, function to (source lanes, which have one))
    "row_shl": (range(1, 16), lambda n: _row(n)),
    "row_shr": (range(1, 16), lambda n: _row(-n)),
    "row_ror": (range(1, 16), lambda n: (_LANE // 16 * 16 + (_LANE - n) % 16, None)),
    "row_mirror": ((1,), lambda n: (_LANE ^ 15, None)),
    "row_half_mirror": ((1,), lambda n: (_LANE ^ 7, None)),
    "row_newbcast": (range(16), lambda n: (_LANE // 16 * 16 + n, None)),
    "wave_shr": ((1,), lambda n: ((_LANE - 1).clip(0, 63), _LANE > 0)),
    "row_bcast": ((15, 31), lambda n: (((_LANE // 16 * 16 - 1).clip(0, 63), _LANE >= 16) if n == 15
                                       else (np.full(64, 31), _LANE >= 32))),
    "quad_perm": (None, lambda p: (_LANE // 4 * 4 + np.array(p)[_LANE % 4], None)),
}  # fmt: skip


@lru_cache(maxsize=256)
def _pattern(name: str, value: int | tuple[int, ...]) -> tuple[np.ndarray, np.ndarray | None]:
    allowed, lanes = DPP_CONTROLS[name]
    if name == "quad_perm":
        if not isinstance(value, tuple) or len(value) != 4 or any(not 0 <= v < 4 for v in value):
            raise ValueError("four lanes 0 to 3 are allowed")
    elif value not in allowed:
        raise ValueError(f"allowed: {list(allowed)}")
    pattern, valid = lanes(value)
    return np.ascontiguousarray(pattern, np.intp), None if valid is None else valid.astype(np.uint32)


def _dpp_pattern(instruction: Instruction) -> tuple[np.ndarray, np.ndarray | None]:
    """Source lane of each lane, [64]; and [64] uint32 of 0 and 1, or None where every lane has a source."""
    for name, value in instruction.modifiers:
        if name in DPP_CONTROLS:
            try:
                return _pattern(name, value)
            except ValueError as error:
                raise refuse(instruction, f"DPP control {name}:{value} ({error})") from None
    raise refuse(instruction, "no known DPP control")


def _dpp_fetch(instruction: Instruction, fetch: Source) -> Source:
    pattern, valid = _dpp_pattern(instruction)
    bound = bool(instruction.modifier("bound_ctrl", 0))

    def moved(g: Group) -> np.ndarray:
        y = np.broadcast_to(fetch(g), (g.w, LANES)).take(pattern, axis=1)
        if bound:
            if valid is not None:
                y *= valid
            if not g.full:  # a lane that is off gives 0, as one outside the row does
                y = np.where(g.exec.take(pattern, axis=1), y, np.uint32(0))
        return y

    return moved


def dpp_lanes(instruction: Instruction) -> Callable[[Group], np.ndarray | bool]:
    """Lanes that a DPP instruction writes.

    Rows and banks that are masked off are not written. Without bound_ctrl, neither are lanes whose source lane is
    outside the row or off.
    """
    pattern, valid = _dpp_pattern(instruction)
    rows, banks = instruction.modifier("row_mask", 15), instruction.modifier("bank_mask", 15)
    allowed = (rows >> _LANE // 16 & 1).astype(bool) & (banks >> _LANE % 16 // 4 & 1).astype(bool)
    bound = bool(instruction.modifier("bound_ctrl", 0))
    if not bound and valid is not None:
        allowed &= valid.astype(bool)

    def lanes(g: Group) -> np.ndarray | bool:
        if g.full:
            return allowed
        return g.mask & allowed if bound else g.mask & allowed & g.exec.take(pattern, axis=1)

    return lanes
