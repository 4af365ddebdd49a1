"""Movement between lanes: DPP patterns, read/write lane, permutes, swaps, LDS-less permutation."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mxfp4lab.gfx950.isa import Instruction
from mxfp4lab.gfx950.machine.errors import UnknownInstruction

_LANE = np.arange(64)


def dpp_pattern(instruction: Instruction) -> tuple[np.ndarray, np.ndarray | None]:
    """Source lane of each lane for the instruction's DPP control.

    Returns:
        (pattern [64] intp, valid [64] uint32 of 0 and 1, or None where every lane has a source).

    Raises:
        UnknownInstruction: a control that CDNA4 does not have.
    """
    for name, value in instruction.modifiers:
        if name in _CONTROLS:
            try:
                return _pattern(name, value)
            except ValueError as error:
                raise UnknownInstruction(instruction, f"DPP control {name}:{value} ({error}) in") from None
    raise UnknownInstruction(instruction, "no known DPP control in")


def _row(step: int) -> tuple[np.ndarray, np.ndarray]:
    at = _LANE % 16 + step
    return _LANE // 16 * 16 + at.clip(0, 15), (at >= 0) & (at < 16)


_CONTROLS = {
    "row_shl": lambda n: _row(n),
    "row_shr": lambda n: _row(-n),
    "row_ror": lambda n: (_LANE // 16 * 16 + (_LANE - n) % 16, None),
    "row_mirror": lambda n: (_LANE ^ 15, None),
    "row_half_mirror": lambda n: (_LANE ^ 7, None),
    "row_newbcast": lambda n: (_LANE // 16 * 16 + n, None),
    "wave_shl": lambda n: ((_LANE + 1).clip(0, 63), _LANE < 63),
    "wave_rol": lambda n: ((_LANE + 1) % 64, None),
    "wave_shr": lambda n: ((_LANE - 1).clip(0, 63), _LANE > 0),
    "wave_ror": lambda n: ((_LANE - 1) % 64, None),
    "row_bcast": lambda n: (
        ((_LANE // 16 * 16 - 1).clip(0, 63), _LANE >= 16) if n == 15 else (np.full(64, 31), _LANE >= 32)
    ),
    "quad_perm": lambda p: (_LANE // 4 * 4 + np.array(p)[_LANE % 4], None),
}
_ALLOWED = {
    "row_shl": range(1, 16), "row_shr": range(1, 16), "row_ror": range(1, 16), "row_mirror": (1,),
    "row_half_mirror": (1,), "row_newbcast": range(16), "wave_shl": (1,), "wave_rol": (1,), "wave_shr": (1,),
    "wave_ror": (1,), "row_bcast": (15, 31),
}  # fmt: skip


@lru_cache(maxsize=256)
def _pattern(name: str, value: int | tuple[int, ...]) -> tuple[np.ndarray, np.ndarray | None]:
    if name == "quad_perm":
        if not isinstance(value, tuple) or len(value) != 4 or any(not 0 <= v < 4 for v in value):
            raise ValueError("four lanes 0 to 3 are allowed")
    elif value not in _ALLOWED[name]:
        raise ValueError(f"allowed: {list(_ALLOWED[name])}")
    pattern, valid = _CONTROLS[name](value)
    return np.ascontiguousarray(pattern, np.intp), None if valid is None else valid.astype(np.uint32)
