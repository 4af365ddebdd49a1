"""Matrix instructions: D = A B + C per wave.

Every instruction forms its sum in float32 where that is exact, else in float64, and rounds to float32 once, when it
adds C: the correctly rounded result unless a sum spans more than float64's 53 bits. Silicon may add in another order;
the two agree wherever the sums are exact in float32, as they are for the task's inputs. EXEC is ignored, as the
hardware does.

Layouts (rows R = 16 or 32, k per instruction K): a lane holds row (A) or column (B) `lane % R` and the `R K / 64`
consecutive k from `R K / 64 * (lane // R)`. D: for R = 16 register r of a lane is row `4 (lane // 16) + r`, column
`lane % 16`; for R = 32 row `8 (r // 4) + 4 (lane // 32) + r % 4`, column `lane % 32`.
Source: AMD CDNA4 ISA, "Matrix arithmetic instructions".
"""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.convert import E2M1_PAIRS
from mxfp4lab.gfx950.machine.errors import UnknownInstruction
from mxfp4lab.gfx950.machine.operands import constant_bits, slot
from mxfp4lab.gfx950.machine.state import LANES, Group
from mxfp4lab.gfx950.machine.vector import Decoder, Step, check_modifiers, destination, expect

# Two bytes of four e2m1 -> four float32 as one 16-byte item, so that a look-up moves all of them.
_BYTES = np.arange(1 << 16)
_QUADS = np.concatenate((E2M1_PAIRS[_BYTES & 255], E2M1_PAIRS[_BYTES >> 8]), axis=1).view(np.complex128)[:, 0]
# Products of e2m1 are multiples of 1/4 up to 36: a sum of 128 of them, scaled by up to 2^9 apart, fits 24 bits.
_EXACT_SPREAD = 9

# mnemonic: (rows, k, element type)
PLAIN = {
    "v_mfma_f32_16x16x32_bf16": (16, 32, "bf16"), "v_mfma_f32_32x32x16_bf16": (32, 16, "bf16"),
    "v_mfma_f32_16x16x16_bf16": (16, 16, "bf16"), "v_mfma_f32_32x32x8_bf16": (32, 8, "bf16"),
    "v_mfma_f32_16x16x16_bf16_1k": (16, 16, "bf16"), "v_mfma_f32_32x32x8_bf16_1k": (32, 8, "bf16"),
    "v_mfma_f32_16x16x16bf16_1k": (16, 16, "bf16"), "v_mfma_f32_32x32x8bf16_1k": (32, 8, "bf16"),
    "v_mfma_f32_16x16x32_f16": (16, 32, "f16"), "v_mfma_f32_32x32x16_f16": (32, 16, "f16"),
    "v_mfma_f32_16x16x16_f16": (16, 16, "f16"), "v_mfma_f32_32x32x8_f16": (32, 8, "f16"),
    "v_mfma_f32_16x16x16f16": (16, 16, "f16"), "v_mfma_f32_32x32x8f16": (32, 8, "f16"),
    "v_mfma_f32_16x16x4_f32": (16, 4, "f32"), "v_mfma_f32_32x32x2_f32": (32, 2, "f32"),
    "v_mfma_f32_16x16x4f32": (16, 4, "f32"), "v_mfma_f32_32x32x2f32": (32, 2, "f32"),
}  # fmt: skip
SCALED = {"v_mfma_scale_f32_16x16x128_f8f6f4": (16, 128), "v_mfma_scale_f32_32x32x64_f8f6f4": (32, 64)}
UNSCALED_FP4 = {"v_mfma_f32_16x16x128_f8f6f4": (16, 128), "v_mfma_f32_32x32x64_f8f6f4": (32, 64)}


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


def build_mfma(instruction: Instruction, decoder: Decoder) -> Step:
    """Closure of a scaled FP4, bf16, f16 or f32 MFMA."""
    name = instruction.mnemonic
    scaled = name in SCALED
    fp4 = scaled or name in UNSCALED_FP4
    rows, k = (SCALED if scaled else UNSCALED_FP4)[name] if fp4 else PLAIN[name][:2]
    expect(instruction, 6 if scaled else 4)
    if fp4:
        check_modifiers(instruction, ("cbsz", "blgp", "op_sel", "op_sel_hi"))
        formats = {0: "fp8", 1: "bf8", 2: "fp6", 3: "bf6", 4: "fp4"}
        for key in ("cbsz", "blgp"):
            if instruction.modifier(key, 0) != 4:
                given = instruction.modifier(key, 0)
                raise UnknownInstruction(
                    instruction, f"{key}:{given} ({formats.get(given, '?')}; only fp4 is known) in"
                )
        if not scaled and (instruction.modifier("op_sel") or instruction.modifier("op_sel_hi")):
            raise UnknownInstruction(instruction, "op_sel in")
        width = 4
    else:
        check_modifiers(instruction)
        kind = PLAIN[name][2]
        width = rows * k // LANES // (1 if kind == "f32" else 2)
    results = rows * rows // LANES
    d = destination(instruction, decoder, width=results)
    a, b = (_planes(instruction, i, width, decoder) for i in (1, 2))
    add = _addend(instruction, results, decoder)
    if fp4:
        scales = [_scale_bytes(instruction, i, decoder) if scaled else None for i in (0, 1)]
        sides = [Side(rows, planes, scale) for planes, scale in zip((a, b), scales, strict=True)]
        if decoder.sharing is not None:
            sides = [decoder.sharing.side(instruction, i, side) for i, side in enumerate(sides)]
        product = lambda g: _product_fp4(g, *sides)  # noqa: E731
    else:
        to_float = _TO_FLOAT[kind]
        product = lambda g: _product(rows, to_float(_to_rows(a(g), rows)), to_float(_to_rows(b(g), rows)))  # noqa: E731

    def run(g: Group) -> None:
        planes = _from_result(product(g), rows)
        total = add(g, planes)
        target = g.chunk.vfile[d : d + results, g.first : g.last].view(np.float32)
        if g.wm is None:
            np.copyto(target, total, casting="unsafe")
        else:
            np.copyto(target, total, where=g.wm[None, :, None], casting="unsafe")

    return run


def _planes(instruction: Instruction, position: int, width: int, decoder: Decoder):
    operand = instruction.operands[position]
    # An f8f6f4 operand in fp4 occupies four registers; some printers name eight, of which the last four are not read.
    if operand.kind not in ("vgpr", "agpr") or operand.width not in (width, 8 if width == 4 else width):
        raise UnknownInstruction(instruction, f"operand {operand} in")
    n = slot(operand, decoder.accum)
    return lambda g: g.chunk.vfile[n : n + width, g.first : g.last]


def _addend(instruction: Instruction, results: int, decoder: Decoder):
    """Closure(g, product planes) -> sum with C, rounded to float32 once."""
    operand = instruction.operands[3]
    if operand.neg or operand.abs:
        raise UnknownInstruction(instruction, f"operand {operand} in")
    if operand.kind == "const":
        value = np.array(constant_bits(operand, 32, instruction), np.uint32).view(np.float32)
        return lambda g, planes: planes + value
    if operand.kind not in ("vgpr", "agpr") or operand.width != results:
        raise UnknownInstruction(instruction, f"operand {operand} in")
    n = slot(operand, decoder.accum)
    return lambda g, planes: planes + g.chunk.vfile[n : n + results, g.first : g.last].view(np.float32)


def _scale_bytes(instruction: Instruction, which: int, decoder: Decoder):
    """Closure of the e8m0 byte per lane, [w, 64] intp: op_sel + 2 op_sel_hi choose the byte of the scale register."""
    low = instruction.modifier("op_sel", (0, 0, 0))
    high = instruction.modifier("op_sel_hi", (1, 1, 1))
    byte = low[which] + 2 * high[which]
    operand = instruction.operands[4 + which]
    if operand.kind == "const":
        value = constant_bits(operand, 32, instruction) >> 8 * byte & 255
        fixed = np.full((1, LANES), value, np.intp)
        return lambda g: np.broadcast_to(fixed, (g.w, LANES))
    if operand.kind not in ("vgpr", "agpr") or operand.width != 1:
        raise UnknownInstruction(instruction, f"operand {operand} in")
    n = slot(operand, decoder.accum)
    return lambda g: g.U[n].view(np.uint8)[:, byte::4].astype(np.intp)


class Side:
    """One operand of an FP4 product, decoded and scaled: A or B of one instruction, or of several that read the same.

    Args:
        rows: 16 or 32.
        planes: closure giving the four register planes.
        scale: closure giving the scale bytes, or None where there is no scale.
    """

    def __init__(self, rows: int, planes, scale) -> None:
        self.rows, self.planes, self.scale = rows, planes, scale
        self.uses, self.left = 1, 0
        self._kept = None

    def __call__(self, g: Group):
        """(float32 [w, rows, k], least scale, greatest scale, widest range of scales along one row's k)."""
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

    def _compute(self, g: Group):
        matrix = _decode(_to_rows(self.planes(g), self.rows))  # [w, rows, groups, 32]
        shape = (g.w, self.rows, -1)
        if self.scale is None:
            return matrix.reshape(shape), 127, 127, 0
        scale = self.scale(g).reshape(g.w, LANES // self.rows, self.rows)
        top, bottom = scale.max(axis=1), scale.min(axis=1)
        matrix *= _POWER32.take(scale.transpose(0, 2, 1)[..., None])
        return matrix.reshape(shape), int(bottom.min()), int(top.max()), int((top - bottom).max())

    def wide(self, g: Group) -> np.ndarray:
        """The operand in float64, whatever its scales."""
        matrix = _decode(_to_rows(self.planes(g), self.rows))
        scale = self.scale(g).reshape(g.w, LANES // self.rows, self.rows)
        return (matrix * _POWER64.take(scale.transpose(0, 2, 1)[..., None])).reshape(g.w, self.rows, -1)


class Sharing:
    """Operands that several matrix instructions of one block read while nobody writes their registers.

    A GEMM multiplies each fragment of A with several of B: decoding it once is most of the work saved.
    """

    def __init__(self) -> None:
        self._live: dict[tuple, tuple[Side, frozenset]] = {}

    def side(self, instruction: Instruction, which: int, new: Side) -> Side:
        """The side that an earlier instruction made of the same registers, or the new one."""
        operands = [instruction.operands[1 + which], *instruction.operands[4 + which : 5 + which]]
        selected = tuple(
            instruction.modifier(name, default)[which] for name, default in (("op_sel", (0, 0)), ("op_sel_hi", (1, 1)))
        )
        key = (*((o.kind, o.index, o.width, o.value) for o in operands), selected, new.rows)
        known = self._live.get(key)
        if known is not None:
            known[0].uses += 1
            return known[0]
        self._live[key] = new, frozenset().union(*(_registers(o) for o in operands))
        return new

    def written(self, instruction: Instruction) -> None:
        """Forget what the instruction may overwrite: its first operand, of swaps the second too."""
        changed = frozenset().union(
            *(_registers(o) for o in instruction.operands[: 1 + ("swap" in instruction.mnemonic)])
        )
        if changed:
            self._live = {key: entry for key, entry in self._live.items() if not entry[1] & changed}


def _registers(operand) -> frozenset:
    if operand.kind not in ("vgpr", "agpr"):
        return frozenset()
    return frozenset((operand.kind, n) for n in range(operand.index, operand.index + operand.width))


def _product_fp4(g: Group, a: Side, b: Side) -> np.ndarray:
    """[w, rows, rows] sums of products; float32 where exact in it, else float64."""
    x, low_a, high_a, range_a = a(g)
    y, low_b, high_b, range_b = b(g)
    if range_a + range_b > _EXACT_SPREAD or low_a + low_b <= 254 - 100 or high_a + high_b >= 254 + 100:
        x, y = a.wide(g), b.wide(g)
    return np.matmul(x, y.transpose(0, 2, 1))


def _decode(words: np.ndarray) -> np.ndarray:
    """uint32 words of eight e2m1, low nibble first -> float32, eight times as long in the last axis."""
    return _QUADS.take(words.view(np.uint16).astype(np.intp), mode="clip").view(np.float32)


_POWER64 = np.ldexp(np.float64(1), np.arange(256) - 127)
_POWER64[255] = np.nan  # e8m0 255 is NaN
with np.errstate(all="ignore"):
    _POWER32 = _POWER64.astype(np.float32)


def _product(rows: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[w, rows, k] float64 each -> [w, rows, rows]: products of bf16, f16 or f32 are exact in float64."""
    return np.matmul(a.reshape(len(a), rows, -1), b.reshape(len(b), rows, -1).transpose(0, 2, 1))


def _bf16(words: np.ndarray) -> np.ndarray:
    halves = words.view(np.uint16).astype(np.uint32) << np.uint32(16)
    return halves.view(np.float32).astype(np.float64)


_TO_FLOAT = {
    "bf16": _bf16,
    "f16": lambda words: words.view(np.float16).astype(np.float64),
    "f32": lambda words: words.view(np.float32).astype(np.float64),
}
BUILDERS = dict.fromkeys((*PLAIN, *SCALED, *UNSCALED_FP4), build_mfma)
