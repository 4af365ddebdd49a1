"""Traffic of a launch, per instruction: bytes, memory segments touched, LDS bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mxfp4lab.gfx950.machine.memory import Access
from mxfp4lab.gfx950.machine.state import LANES
from mxfp4lab.hardware import LDS_BANKS


@dataclass
class Traffic:
    """Sums over every execution of one instruction.

    Attributes:
        space, kind: as in `Access`.
        waves: wave executions.
        bytes: bytes that active lanes moved.
        segments64, segments128: aligned segments touched, summed per wave execution (global memory and scalar loads).
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
    """A hook that adds up traffic: `by_instruction` by (instruction index, space)."""

    by_instruction: dict[tuple[int, str], Traffic] = field(default_factory=dict)

    def __call__(self, access: Access) -> None:
        key = (access.instruction.index, access.space)
        traffic = self.by_instruction.setdefault(key, Traffic(access.space, access.kind))
        traffic.waves += access.group.n
        mask = access.mask
        if mask is None:
            mask = np.ones(access.offsets.shape, bool)
        if access.space == "scalar" and access.group.wm is not None:
            mask = access.group.wm[:, None]
        traffic.bytes += int(np.count_nonzero(mask)) * access.nbytes
        if access.space in ("global", "scalar"):
            traffic.segments64 += _segments(access, mask, 64)
            traffic.segments128 += _segments(access, mask, 128)
        elif access.space == "lds":
            cycles, ideal = _bank_passes(access, mask)
            traffic.lds_cycles += cycles
            traffic.lds_ideal += ideal

    def total(self, space: str, kind: str | None = None, what: str = "bytes") -> int:
        """Sum of one field over instructions of a space, and of a kind where given."""
        found = [t for t in self.by_instruction.values() if t.space == space and kind in (None, t.kind)]
        return sum(getattr(traffic, what) for traffic in found)


def _segments(access: Access, mask: np.ndarray, size: int) -> int:
    """Distinct aligned segments of `size` bytes per wave, summed."""
    row, lane = np.nonzero(mask)
    first = access.offsets[row, lane]
    ends = np.concatenate((first, first + access.nbytes - 1)) // size
    return np.unique(np.stack((np.tile(row, 2), ends)), axis=1).shape[1]


def _bank_passes(access: Access, mask: np.ndarray) -> tuple[int, int]:
    """LDS passes that an access needs, and would need without conflicts, summed over waves.

    A pass delivers one dword per bank (64 banks of 4 bytes); lanes that read the same dword share it. Wide accesses
    are served in groups of lanes that move 256 bytes at most: 64 lanes of 4, 32 of 8, 16 of 16 bytes. How the
    hardware groups lanes is not documented for gfx950; consecutive lanes are assumed.
    """
    dwords = max(access.nbytes // 4, 1)
    row, lane = np.nonzero(mask)
    _, turn = np.unique(row * LANES + lane * dwords // LDS_BANKS, return_inverse=True)
    words = (access.offsets[row, lane] >> 2)[:, None] + np.arange(dwords)
    turns, words = np.unique(np.stack((np.repeat(turn, dwords), words.reshape(-1))), axis=1)
    delivered = np.zeros((turn.max(initial=-1) + 1, LDS_BANKS), int)
    np.add.at(delivered, (turns, words % LDS_BANKS), 1)
    return int(delivered.max(axis=1, initial=0).sum()), len(delivered)
