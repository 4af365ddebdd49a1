"""Traffic of a launch, per instruction: bytes, memory segments touched, LDS bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mxfp4lab.gfx950.isa import Program
from mxfp4lab.gfx950.machine.memory import Access
from mxfp4lab.gfx950.machine.state import LANES

BANKS = 64  # 4 bytes each


@dataclass
class Traffic:
    """Sums over every execution of one instruction.

    Attributes:
        space, kind: as in `Access`.
        waves: wave executions.
        bytes: bytes that active lanes moved.
        segments64, segments128: aligned segments touched, summed per wave execution (global memory only).
        lds_cycles: bank passes: per wave, the most different dwords that one bank had to deliver (LDS only).
        lds_ideal: passes that the bytes would need without conflicts.
    """

    space: str
    kind: str
    waves: int = 0
    bytes: int = 0
    segments64: int = 0
    segments128: int = 0
    lds_cycles: int = 0
    lds_ideal: int = 0


@dataclass
class AccessCounter:
    """A hook that adds up traffic by instruction index.

    Attributes:
        program: whose instructions are counted.
        by_instruction: (instruction index, space) -> traffic.
    """

    program: Program
    by_instruction: dict[tuple[int, str], Traffic] = field(default_factory=dict)
    of_launch: bool = True

    def __call__(self, access: Access) -> None:
        key = (access.instruction.index, access.space)
        traffic = self.by_instruction.get(key)
        if traffic is None:
            traffic = self.by_instruction[key] = Traffic(access.space, access.kind)
        offsets, mask = access.offsets, access.mask
        traffic.waves += access.group.n
        if access.space == "scalar":
            traffic.bytes += access.group.n * access.nbytes
            traffic.segments64 += access.group.n
            traffic.segments128 += access.group.n
            return
        if mask is None:
            mask = np.ones(offsets.shape, bool)
        traffic.bytes += int(np.count_nonzero(mask)) * access.nbytes
        if access.space == "global":
            traffic.segments64 += _segments(offsets, mask, access.nbytes, 6)
            traffic.segments128 += _segments(offsets, mask, access.nbytes, 7)
        elif access.space == "lds":
            cycles, ideal = bank_passes(offsets, mask, access.nbytes)
            traffic.lds_cycles += cycles
            traffic.lds_ideal += ideal

    def total(self, space: str, kind: str | None = None, what: str = "bytes") -> int:
        """Sum of one field over instructions of a space, and of a kind where given."""
        return sum(
            getattr(t, what)
            for t in self.by_instruction.values()
            if t.space == space and (kind is None or t.kind == kind)
        )


def _segments(offsets: np.ndarray, mask: np.ndarray, nbytes: int, shift: int) -> int:
    """Distinct aligned segments per wave, summed."""
    first, last = offsets >> shift, (offsets + nbytes - 1) >> shift
    total = 0
    for row in range(len(offsets)):
        on = mask[row]
        if on.any():
            total += len(np.unique(np.concatenate((first[row, on], last[row, on]))))
    return total


def bank_passes(offsets: np.ndarray, mask: np.ndarray, nbytes: int) -> tuple[int, int]:
    """LDS passes that accesses need, and would need without conflicts, summed over waves.

    A pass delivers one dword per bank (64 banks of 4 bytes); lanes that read the same dword share it. Wide accesses
    are served in groups of lanes that move 256 bytes at most: 64 lanes of 4, 32 of 8, 16 of 16 bytes. How the
    hardware groups lanes is not documented for gfx950; consecutive lanes are assumed.
    """
    dwords = max(nbytes // 4, 1)
    lanes = min(LANES, max(1, BANKS // dwords))
    cycles = ideal = 0
    for row in range(len(offsets)):
        for start in range(0, LANES, lanes):
            on = mask[row, start : start + lanes]
            if not on.any():
                continue
            words = (offsets[row, start : start + lanes][on] >> 2)[:, None] + np.arange(dwords)
            words = np.unique(words)
            cycles += int(np.bincount(words % BANKS).max())
            ideal += 1
    return cycles, ideal
