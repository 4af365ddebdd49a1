"""Matrix instructions: D = A B + C per wave.

Every instruction forms its sum in float32 where that is exact, else in float64, and rounds to float32 once, when it
adds C: the correctly rounded result unless a sum spans more than float64's 53 bits. Silicon may add in another order;
the two agree wherever the sums are exact in float32, as they are for the task's inputs. Sums of int8 are exact and wrap
at 32 bits. EXEC is ignored, as the hardware does.

Layouts (rows R = 16 or 32, k per instruction K): a lane holds row (A) or column (B) `lane % R` and the `R K / 64`
consecutive k from `R K / 64 * (lane // R)`; 32 fp8 are two runs of 16 instead, from `16 (lane // R)` and K / 2 behind.
Scales are of 32 consecutive k all the same. D: for R = 16 register r of a lane is row `4 (lane // 16) + r`, column
`lane % 16`; for R = 32 row `8 (r // 4) + 4 (lane // 32) + r % 4`, column `lane % 32`.
Source: AMD CDNA4 ISA, "Matrix arithmetic instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.isa.numbers import E2M1_PAIRS, E4M3, E5M2
from mxfp4lab.gfx950.isa.row import Matrix, Row
from mxfp4lab.gfx950.isa.table import register_bits
from mxfp4lab.gfx950.machine.alu import check_modifiers
from mxfp4lab.gfx950.machine.operands import Decoder, Step, constant_bits, plane, refuse
from mxfp4lab.gfx950.machine.state import LANES, Group

# Two bytes of four e2m1 -> four float32 as one 16-byte item, so that a look-up moves all of them.
_BYTES = np.arange(1 << 16)
_QUADS = np.concatenate((E2M1_PAIRS[_BYTES & 255], E2M1_PAIRS[_BYTES >> 8]), axis=1).view(np.complex128)[:, 0]
# Products of e2m1 are multiples of 1/4 up to 36: a sum of 128 of them, scaled by up to 2^9 apart, fits 24 bits.
_EXACT_SPREAD = 9
_SCALE_BYTE = (("op_sel", (0, 0, 0)), ("op_sel_hi", (1, 1, 1)))  # bits of the chosen byte's number, and defaults
_MOST_SCALE = 252  # 6 * 2^(252 - 127) is the greatest scaled e2m1 below float32's overflow
_POWER64 = np.ldexp(np.float64(1), np.arange(256) - 127)
_POWER64[255] = np.nan  # e8m0 255 is NaN
with np.errstate(all="ignore"):
    _POWER32 = _POWER64.astype(np.float32)


def _fp4(words: np.ndarray) -> np.ndarray:
    return _QUADS.take(words.view(np.uint16).astype(np.intp), mode="clip").view(np.float32)


def _bf16(words: np.ndarray) -> np.ndarray:
    return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


# Element type: (bits, function from uint32 words to numbers, low bits first)
_KINDS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "fp4": (4, _fp4), "fp8": (8, lambda words: E4M3[words.view(np.uint8)]),
    "bf8": (8, lambda words: E5M2[words.view(np.uint8)]), "bf16": (16, _bf16),
    "i8": (8, lambda words: words.view(np.int8).astype(np.float64)),
    "f16": (16, lambda words: words.view(np.float16).astype(np.float64)),
    "f32": (32, lambda words: words.view(np.float32).astype(np.float64)),
}  # fmt: skip
_FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")  # by cbsz (of A) and blgp (of B)


def build_matrix(instruction: Instruction, row: Row, decoder: Decoder) -> Step:
    """Closure of a matrix instruction."""
    matrix: Matrix = row.does
    if len(instruction.operands) != len(row.results) + len(row.sources):
        raise refuse(instruction, f"{len(instruction.operands)} operands")
    check_modifiers(
        instruction, ("cbsz", "blgp", *(("op_sel", "op_sel_hi") * matrix.scaled)) if not matrix.kinds else ()
    )
    kinds = matrix.kinds or tuple(_format(instruction, name) for name in ("cbsz", "blgp"))
    rows, results = matrix.rows, matrix.rows**2 // LANES
    side = decoder.sharing.side if decoder.sharing is not None else _side
    sides = [side(instruction, i, kind, matrix, decoder) for i, kind in enumerate(kinds)]
    number = np.int32 if "i8" in kinds else np.float32
    d, c = plane(instruction, 0, decoder, results), instruction.operands[3]
    if c.kind == "const":
        fixed = np.array(constant_bits(c, 32, instruction), np.uint32).view(number)
        addend = lambda g: fixed  # noqa: E731
    else:
        n = plane(instruction, 3, decoder, results)
        addend = lambda g: g.V[n : n + results].view(number)  # noqa: E731

    def run(g: Group) -> None:
        planes = _from_result(_product(g, *sides), rows)
        if number is np.int32:
            planes = planes.astype(np.int64)
        total = planes + addend(g)
        if number is np.int32:
            total = total.astype(np.int32)  # wraps
        where = True if g.wm is None else g.wm[None, :, None]
        np.copyto(g.V[d : d + results].view(number), total, where=where, casting="unsafe")

    return run


def _format(instruction: Instruction, modifier: str) -> str:
    value = instruction.modifier(modifier, 0)
    name = _FORMATS[value] if value in range(5) else "?"
    if name not in _KINDS:
        raise refuse(instruction, f"{modifier}:{value} ({name}; fp8, bf8 and fp4 are known)")
    return name


def _side(instruction: Instruction, which: int, kind: str, matrix: Matrix, decoder: Decoder) -> Side:
    bits, to_numbers = _KINDS[kind]
    width = matrix.rows * matrix.k * bits // LANES // 32
    operand = instruction.operands[1 + which]
    # An f8f6f4 operand in fp4 occupies four registers; some printers name eight, of which the last four are not read.
    n = plane(instruction, 1 + which, decoder, 8 if kind == "fp4" and operand.width == 8 else width)
    scale = _scale_bytes(instruction, which, decoder) if matrix.scaled else None
    return Side(matrix.rows, kind, to_numbers, lambda g: g.V[n : n + width], scale)


def _scale_bytes(instruction: Instruction, which: int, decoder: Decoder):
    """Closure of the e8m0 byte per lane, [w, 64] intp: op_sel + 2 op_sel_hi choose the byte of the scale register.

    An inline constant gives its bits 30:23, as if it were a float (1.0 is 127).
    """
    low, high = (instruction.modifier(name, default) for name, default in _SCALE_BYTE)
    byte = low[which] + 2 * high[which]
    operand = instruction.operands[4 + which]
    if operand.kind == "const":
        fixed = np.full((1, LANES), constant_bits(operand, 32, instruction) >> 23 & 255, np.intp)
        return lambda g: np.broadcast_to(fixed, (g.w, LANES))
    n = plane(instruction, 4 + which, decoder)
    return lambda g: g.U[n].view(np.uint8)[:, byte::4].astype(np.intp)


def _to_rows(planes: np.ndarray, rows: int) -> np.ndarray:
    """Register planes [r, w, 64] -> [w, rows, 64 // rows, r]: each row's data by k group, registers in order."""
    r, w, _ = planes.shape
    return np.ascontiguousarray(planes.reshape(r, w, LANES // rows, rows).transpose(1, 3, 2, 0))


def _from_result(result: np.ndarray, rows: int) -> np.ndarray:
    """[w, rows, rows] -> register planes [rows * rows // 64, w, 64]."""
    w = len(result)
    if rows == 16:  # row 4 (lane // 16) + r
        return result.reshape(w, 4, 4, 16).transpose(2, 0, 1, 3).reshape(4, w, LANES)
    return result.reshape(w, 4, 2, 4, 32).transpose(1, 3, 0, 2, 4).reshape(16, w, LANES)


class Side:
    """One operand of a product, decoded and scaled: A or B of one instruction, or of several that read the same.

    Args:
        rows: 16 or 32.
        kind: element type; of fp4 products alone float32 may hold the sum.
        to_numbers: uint32 words -> numbers.
        planes: closure giving the register planes.
        scale: closure giving the scale bytes, or None where there is no scale.
    """

    def __init__(self, rows: int, kind: str, to_numbers, planes, scale) -> None:
        self.rows, self.kind, self.to_numbers, self.planes, self.scale = rows, kind, to_numbers, planes, scale
        self.uses, self.left = 1, 0
        self._kept: Any = None

    def __call__(self, g: Group):
        """(numbers [w, rows, k], least scale, greatest scale, widest range of scales along one row's k)."""
        if self.left > 0:
            self.left -= 1
            result = self._kept
            if not self.left:
                self._kept = None
            return result
        result = self._compute(g)
        self.left = self.uses - 1
        if self.left:
            self._kept = result
        return result

    def _numbers(self, g: Group) -> np.ndarray:
        """[w, rows, groups, k of a group]."""
        matrix = self.to_numbers(_to_rows(self.planes(g), self.rows))
        if matrix.shape[-1] == 32 and self.kind in ("fp8", "bf8"):  # see Layouts
            matrix = matrix.reshape(*matrix.shape[:3], 2, 16).transpose(0, 1, 3, 2, 4)
            matrix = np.ascontiguousarray(matrix).reshape(g.w, self.rows, -1, 32)
        return matrix

    def _compute(self, g: Group):
        matrix = self._numbers(g)
        shape = (g.w, self.rows, -1)
        if self.scale is None:
            return matrix.reshape(shape), 127, 127, 0
        scale = self.scale(g).reshape(g.w, LANES // self.rows, self.rows)
        top, bottom = scale.max(axis=1), scale.min(axis=1)
        matrix *= _POWER32.take(scale.transpose(0, 2, 1)[..., None])
        return matrix.reshape(shape), int(bottom.min()), int(top.max()), int((top - bottom).max())

    def wide(self, g: Group) -> np.ndarray:
        """The operand in float64, whatever its scales."""
        matrix = self._numbers(g).astype(np.float64)
        if self.scale is not None:
            scale = self.scale(g).reshape(g.w, LANES // self.rows, self.rows)
            matrix *= _POWER64.take(scale.transpose(0, 2, 1)[..., None])
        return matrix.reshape(g.w, self.rows, -1)


def _product(g: Group, a: Side, b: Side) -> np.ndarray:
    """[w, rows, rows] sums of products; float32 where exact in it, else float64."""
    x, low_a, high_a, range_a = a(g)
    y, low_b, high_b, range_b = b(g)
    narrow = (a.kind == b.kind == "fp4" and range_a + range_b <= _EXACT_SPREAD and max(high_a, high_b) <= _MOST_SCALE
              and low_a + low_b > 254 - 100 and high_a + high_b < 254 + 100)  # fmt: skip
    if not narrow and not x.dtype == y.dtype == np.float64:
        x, y = a.wide(g), b.wide(g)
    return np.matmul(x, y.transpose(0, 2, 1))


class Sharing:
    """Operands that several matrix instructions of one block read while nobody writes their registers.

    A GEMM multiplies each fragment of A with several of B: decoding it once is most of the work saved.
    """

    def __init__(self) -> None:
        self.live: dict[tuple, tuple[Side, int]] = {}

    def side(self, instruction: Instruction, which: int, kind: str, matrix: Matrix, decoder: Decoder) -> Side:
        """The side that an earlier instruction made of the same registers, or a new one."""
        operands = instruction.operands[1 + which : 2 + which] + instruction.operands[4 + which : 5 + which]
        selected = tuple(instruction.modifier(name, default)[which] for name, default in _SCALE_BYTE)
        key = *((o.kind, o.index, o.width, o.value) for o in operands), selected, matrix.rows, kind
        known = self.live.get(key)
        if known is not None:
            known[0].uses += 1
            return known[0]
        new = _side(instruction, which, kind, matrix, decoder)
        self.live[key] = new, register_bits(o for o in operands if o.kind != "const")
        return new

    def written(self, registers: int) -> None:
        """Forget what a write to registers, as `register_bits`, changes."""
        if any(read & registers for _, read in self.live.values()):
            self.live = {key: entry for key, entry in self.live.items() if not entry[1] & registers}
