"""How taint passes through an instruction that does not touch memory: a result is tainted where a source is.

Rules beside "the greatest of the sources": selections take the taint of what they select, lane movement moves it, a
matrix product spreads it along rows and columns, partial writes keep what was there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mxfp4lab.gfx950.isa import Instruction, Operand, classify
from mxfp4lab.gfx950.machine.crosslane import dpp_pattern
from mxfp4lab.gfx950.machine.mfma import PLAIN, SCALED, UNSCALED_FP4, _from_result
from mxfp4lab.gfx950.machine.salu import COMPARES, OPS
from mxfp4lab.gfx950.machine.state import LANES, Group, unpack_mask

if TYPE_CHECKING:
    from mxfp4lab.gfx950.machine.poison import Taint

Update = Callable[[], None]
Rule = Callable[[Group, "Taint"], Update]
_TWO_RESULTS = ("_co_u32", "v_div_scale_f32", "v_mad_u64_u32", "v_mad_i64_i32")
_PARTIAL = ("v_fmac_", "v_cvt_scalef32_pk_fp4_", "v_dot2c_")


def propagation(instruction: Instruction, accum: int) -> Rule:
    """A function that is called before the instruction runs and returns what to do after it has run."""
    name = instruction.mnemonic
    kind = classify(name)
    if kind == "mfma":
        return _matrix(instruction, accum)
    if kind == "salu":
        return _scalar(instruction)
    special = {
        "v_readfirstlane_b32": _read_first_lane, "v_readlane_b32": _read_lane, "v_cndmask_b32": _select,
        "v_permlane16_swap_b32": _swap_rows, "v_permlane32_swap_b32": _swap_rows, "ds_bpermute_b32": _gather_lanes,
    }.get(name)  # fmt: skip
    return special(instruction, accum) if special else _vector(instruction, accum)


def _planes(operand: Operand, accum: int) -> slice:
    n = operand.index + (accum if operand.kind == "agpr" else 0)
    return slice(n, n + operand.width)


def _fetch(g: Group, taint: Taint, operand: Operand, accum: int) -> np.ndarray | int:
    """Taint of a source: [w, 64], [w, 1] or 0."""
    span = slice(g.first, g.last)
    if operand.kind in ("vgpr", "agpr"):
        return taint.v[_planes(operand, accum), span].max(axis=0)
    if operand.kind == "sgpr" and operand.index != 126:
        return taint.s[operand.index : operand.index + operand.width, span].max(axis=0)[:, None]
    return 0


def _put(g: Group, taint: Taint, operand: Operand, accum: int, value: np.ndarray | int, mask) -> None:
    """Taint of a destination; a scalar one takes the greatest over its wave's active lanes."""
    span = slice(g.first, g.last)
    if operand.kind in ("vgpr", "agpr"):
        np.copyto(taint.v[_planes(operand, accum), span], value, where=True if mask is None else mask)
        return
    if np.ndim(value):
        value = np.broadcast_to(value, (g.w, LANES))
        value = (value if g.full else np.where(g.mask, value, 0)).max(axis=1)
    rows = taint.s[operand.index : operand.index + operand.width, span]
    np.copyto(rows, value, where=True if g.wm is None else g.wm)


def _active(g: Group) -> np.ndarray | None:
    return None if g.full else g.mask


def _vector(instruction: Instruction, accum: int) -> Rule:
    name = instruction.mnemonic
    results = 2 if name.endswith(_TWO_RESULTS[0]) or name in _TWO_RESULTS else 1
    operands = instruction.operands
    targets, sources = operands[:results], list(operands[results:])
    if name == "v_div_fmas_f32":
        sources.append(Operand("sgpr", 106, 2))
    if name == "v_swap_b32":
        targets = operands
        sources = list(operands)
    partial = name.startswith(_PARTIAL) or instruction.modifier("dst_unused") == "UNUSED_PRESERVE"
    partial = partial or name == "v_writelane_b32" or bool(instruction.modifier("op_sel"))
    pattern = dpp_pattern(instruction)[0] if instruction.encoding == "dpp" else None

    def rule(g: Group, taint: Taint) -> Update:
        total: np.ndarray | int = 0
        for position, operand in enumerate(sources):
            found = _fetch(g, taint, operand, accum)
            if pattern is not None and position == 0 and np.ndim(found):
                found = np.broadcast_to(found, (g.w, LANES)).take(pattern, axis=1)
            total = np.maximum(total, found)
        if partial or pattern is not None:
            total = np.maximum(total, _fetch(g, taint, targets[0], accum))
        mask = _active(g)

        def update() -> None:
            for operand in targets:
                _put(g, taint, operand, accum, total, mask)

        return update

    return rule


def _select(instruction: Instruction, accum: int) -> Rule:
    target, a, b = instruction.operands[:3]
    chooser = instruction.operands[3] if len(instruction.operands) > 3 else Operand("sgpr", 106, 2)

    def rule(g: Group, taint: Taint) -> Update:
        mask = unpack_mask(g.Q[chooser.index // 2])
        x, y = _fetch(g, taint, a, accum), _fetch(g, taint, b, accum)
        if instruction.encoding == "dpp" and np.ndim(x):
            x = np.broadcast_to(x, (g.w, LANES)).take(dpp_pattern(instruction)[0], axis=1)
        total = np.maximum(np.where(mask, y, x), _fetch(g, taint, chooser, accum))
        if instruction.encoding in ("dpp", "sdwa"):
            total = np.maximum(total, _fetch(g, taint, target, accum))
        on = _active(g)
        return lambda: _put(g, taint, target, accum, total, on)

    return rule


def _read_first_lane(instruction: Instruction, accum: int) -> Rule:
    target, source = instruction.operands

    def rule(g: Group, taint: Taint) -> Update:
        found = np.broadcast_to(_fetch(g, taint, source, accum), (g.w, LANES))
        lane = np.zeros(g.w, int) if g.full else g.exec.argmax(axis=1)
        value = found[np.arange(g.w), lane]
        return lambda: _put_scalar(g, taint, target.index, value)

    return rule


def _read_lane(instruction: Instruction, accum: int) -> Rule:
    target, source, lane = instruction.operands

    def rule(g: Group, taint: Taint) -> Update:
        found = np.broadcast_to(_fetch(g, taint, source, accum), (g.w, LANES))
        at = g.S[lane.index] & np.uint32(63) if lane.kind == "sgpr" else np.full(g.w, int(lane.value) & 63)
        value = found[np.arange(g.w), at]
        return lambda: _put_scalar(g, taint, target.index, value)

    return rule


def _put_scalar(g: Group, taint: Taint, n: int, value: np.ndarray) -> None:
    np.copyto(taint.s[n, g.first : g.last], value, where=True if g.wm is None else g.wm)


def _swap_rows(instruction: Instruction, accum: int) -> Rule:
    size = 16 if "16" in instruction.mnemonic else 32
    d, s = (_planes(operand, accum).start for operand in instruction.operands)

    def rule(g: Group, taint: Taint) -> Update:
        span = slice(g.first, g.last)
        old_d, old_s = (taint.v[n, span].reshape(g.w, LANES // (2 * size), 2, size).copy() for n in (d, s))
        new_d, new_s = old_d.copy(), old_s.copy()
        new_d[:, :, 1], new_s[:, :, 0] = old_s[:, :, 0], old_d[:, :, 1]
        mask = _active(g)

        def update() -> None:
            for n, value in ((d, new_d), (s, new_s)):
                np.copyto(taint.v[n, span], value.reshape(g.w, LANES), where=True if mask is None else mask)

        return update

    return rule


def _gather_lanes(instruction: Instruction, accum: int) -> Rule:
    target, address, data = instruction.operands
    offset = np.uint32(instruction.modifier("offset", 0))

    def rule(g: Group, taint: Taint) -> Update:
        lane = (g.U[_planes(address, accum).start] + offset) >> np.uint32(2) & np.uint32(63)
        found = np.take_along_axis(_fetch(g, taint, data, accum), lane.astype(np.intp), axis=1)
        found = np.maximum(found, _fetch(g, taint, address, accum))
        mask = _active(g)
        return lambda: _put(g, taint, target, accum, found, mask)

    return rule


def _matrix(instruction: Instruction, accum: int) -> Rule:
    name = instruction.mnemonic
    rows = (SCALED.get(name) or UNSCALED_FP4.get(name) or PLAIN[name][:2])[0]
    target, a, b, c = instruction.operands[:4]
    scales = instruction.operands[4:]

    def rule(g: Group, taint: Taint) -> Update:
        sides = []
        for operand, scale in zip((a, b), scales or (None, None), strict=True):
            found = np.broadcast_to(_fetch(g, taint, operand, accum), (g.w, LANES))
            if scale is not None:
                found = np.maximum(found, _fetch(g, taint, scale, accum))
            sides.append(found.reshape(g.w, LANES // rows, rows).max(axis=1))
        spread = np.maximum(sides[0][:, :, None], sides[1][:, None, :])
        total = _from_result(spread, rows)
        span = slice(g.first, g.last)
        if c.kind in ("vgpr", "agpr"):
            total = np.maximum(total, taint.v[_planes(c, accum), span])
        where = True if g.wm is None else g.wm[:, None]
        return lambda: np.copyto(taint.v[_planes(target, accum), span], total, where=where)

    return rule


def _scalar(instruction: Instruction) -> Rule:
    name, operands = instruction.mnemonic, instruction.operands
    compares = name in COMPARES
    reads_scc = name.startswith(("s_cselect", "s_cmov", "s_addc", "s_subb")) or any(
        operand.name == "src_scc" for operand in operands
    )
    sets_scc = (
        compares or name.startswith(("s_addc", "s_subb")) or "saveexec" in name or (name in OPS and OPS[name][3] != "")
    )
    in_place = name in OPS and "d" in OPS[name][1].split()
    sources = operands if compares or in_place or name.startswith("s_cmov") else operands[1:]

    def rule(g: Group, taint: Taint) -> Update:
        span = slice(g.first, g.last)
        total = np.zeros(g.w, np.int32)
        for operand in sources:
            if operand.kind == "sgpr":
                total = np.maximum(total, taint.s[operand.index : operand.index + operand.width, span].max(axis=0))
        if reads_scc:
            total = np.maximum(total, taint.scc[span])
        where = True if g.wm is None else g.wm

        def update() -> None:
            if sets_scc:
                np.copyto(taint.scc[span], total, where=where)
            if not compares:
                target = operands[0]
                np.copyto(taint.s[target.index : target.index + target.width, span], total, where=where)
            if "saveexec" in name:
                np.copyto(taint.s[126:128, span], total, where=where)

        return update

    return rule
