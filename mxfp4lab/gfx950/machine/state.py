"""Architectural state of a chunk of waves, and the view of it that a group of waves at one pc executes on.

Waves are numbered wave-in-workgroup first (`wave = wave_in_group * workgroups + workgroup`), so that waves which branch
apart by their number form a contiguous range. A vector register is one contiguous `[waves, 64]` uint32 plane; scalar
registers are kept as 64-bit pairs, `[64, waves]` uint64, whose halves are strided views. LDS and scratch start as 0xff
bytes: what nobody wrote is NaN to a float and to a scale, and -6 to an e2m1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxfp4lab.hardware import WAVE_LANES, XCDS

LANES = WAVE_LANES
ALL_LANES = np.uint64(0xFFFFFFFFFFFFFFFF)
EXEC_PAIR, VCC_PAIR, M0 = 63, 53, 124


def unpack_mask(pairs: np.ndarray) -> np.ndarray:
    """[w] uint64 lane masks -> [w, 64] bool."""
    bits = np.unpackbits(np.ascontiguousarray(pairs).view(np.uint8), bitorder="little")
    return bits.reshape(len(pairs), LANES).view(bool)


def pack_mask(lanes: np.ndarray) -> np.ndarray:
    """[w, 64] bool -> [w] uint64."""
    return np.packbits(lanes, bitorder="little").view(np.uint64)


def typed_views(raw: np.ndarray) -> dict[int, np.ndarray]:
    """A uint8 array of whole 16-byte words by the size of what is moved: 1, 2, 4, 8 or 16 bytes."""
    kinds = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
    return {size: raw.view(kind) for size, kind in kinds.items()}


class Chunk:
    """Registers, LDS and scratch of a set of workgroups that execute together.

    Args:
        workgroups: linear workgroup ids, [n].
        waves_per_group: waves per workgroup.
        vgprs: planes of the vector file, accumulation registers included.
        lds_bytes: LDS per workgroup.
        scratch_bytes: private memory per lane.
        xcd: the XCD of each workgroup, [n]; by default as the hardware deals them out: in turn to eight.
    """

    def __init__(
        self,
        workgroups: np.ndarray,
        waves_per_group: int,
        vgprs: int,
        lds_bytes: int,
        scratch_bytes: int,
        xcd: np.ndarray | None = None,
    ):
        self.workgroups = workgroups
        self.waves_per_group = waves_per_group
        self.lds_bytes, self.scratch_bytes = lds_bytes, scratch_bytes
        n = len(workgroups)
        self.waves = n * waves_per_group
        self.wave_in_group = np.repeat(np.arange(waves_per_group), n)
        self.local_group = np.tile(np.arange(n), waves_per_group)
        self.xcd = (workgroups % XCDS if xcd is None else xcd)[self.local_group]
        self.vfile = np.zeros((vgprs, self.waves, LANES), np.uint32)
        self.sfile = np.zeros((64, self.waves), np.uint64)
        self.sfile[EXEC_PAIR] = ALL_LANES
        self.scc = np.zeros(self.waves, bool)
        self.ovfl = np.zeros(self.waves, bool)  # mode bit FP16_OVFL: conversions to fp8 saturate
        self.lds_row = -(-(lds_bytes + 16) // 16) * 16
        self.lds = np.full(n * self.lds_row, 0xFF, np.uint8)
        scratch_row = -(-scratch_bytes // 16) * 16
        self.scratch = np.full(max(self.waves * LANES * scratch_row, 16), 0xFF, np.uint8)
        self.lds_views, self.scratch_views = typed_views(self.lds), typed_views(self.scratch)
        self.lds_base = (self.local_group * self.lds_row)[:, None]
        self.scratch_base = np.arange(self.waves * LANES).reshape(self.waves, LANES) * scratch_row
        self._views: dict[tuple[int, int], dict[str, Any]] = {}

    def views(self, first: int, last: int) -> dict[str, Any]:
        """Views of waves first..last-1 by type, made once: lists indexed by register number."""
        found = self._views.get((first, last))
        if found is None:
            if len(self._views) > 256:
                self._views.clear()
            planes, pairs = self.vfile[:, first:last], self.sfile[:, first:last]
            halves = self.sfile.view(np.uint32).reshape(64, self.waves, 2)[:, first:last]
            scalars = [halves[n >> 1, :, n & 1] for n in range(128)]
            found = self._views[first, last] = {
                "V": planes, "U": list(planes), "I": list(planes.view(np.int32)), "F": list(planes.view(np.float32)),
                "Q": list(pairs), "QI": list(pairs.view(np.int64)),
                "S": scalars, "SI": [view.view(np.int32) for view in scalars],
                "scc": self.scc[first:last], "ovfl": self.ovfl[first:last],
                "lds_base": self.lds_base[first:last], "scratch_base": self.scratch_base[first:last],
            }  # fmt: skip
        return found

    def describe(self, wave: int) -> tuple[int, int]:
        """(wave within its workgroup, linear workgroup id) of a wave of this chunk."""
        return int(self.wave_in_group[wave]), int(self.workgroups[self.local_group[wave]])


class Group:
    """Waves of a chunk that stand at one pc. Everything an instruction's closure needs hangs on it.

    Attributes:
        waves: sorted wave numbers; n of them, within the range first..last of w.
        wm: None where the range is exactly the waves, else [w] bool.
        full: every lane of every wave of the range is on: results go straight into the registers.
        exec: [w, 64] bool lane masks; None where full.
        mask: `exec` restricted to the group's waves: where results may be written.
        V, U, I, F: the vector file of the range, [registers, w, 64] uint32, and planes by type; Q, QI, S, SI: scalar
            pairs and words; scc, ovfl: bits.
    """

    V: np.ndarray
    U: list[np.ndarray]
    F: list[np.ndarray]
    Q: list[np.ndarray]
    S: list[np.ndarray]
    scc: np.ndarray
    ovfl: np.ndarray

    def __init__(self, chunk: Chunk, pc: int, waves: np.ndarray) -> None:
        self.chunk, self.pc, self.waves = chunk, pc, waves
        self.n = len(waves)
        self.first, self.last = int(waves[0]), int(waves[-1]) + 1
        self.w = self.last - self.first
        self.wm = None
        if self.w != self.n:
            self.wm = np.zeros(self.w, bool)
            self.wm[waves - self.first] = True
        vars(self).update(chunk.views(self.first, self.last))
        self.refresh_exec()

    def refresh_exec(self) -> None:
        """Re-read the lane masks after EXEC changed."""
        pairs = self.Q[EXEC_PAIR]
        self.full = self.wm is None and pairs.min() == ALL_LANES
        if self.full:
            self.exec = self.mask = None
        else:
            self.exec = unpack_mask(pairs)
            self.mask = self.exec if self.wm is None else self.exec & self.wm[:, None]

    def first_lane(self, lanes: np.ndarray) -> tuple[int, int, int, int]:
        """(row, lane, wave, workgroup) of the first of some [w, 64] lanes, lowest workgroup and wave first."""
        rows = np.flatnonzero(lanes.any(axis=1))
        row = min((int(r) for r in rows), key=lambda r: self.chunk.describe(self.first + r)[::-1])
        return row, int(lanes[row].argmax()), *self.chunk.describe(self.first + row)

    def lanes(self) -> np.ndarray:
        """[w, 64] bool of active lanes, of the group's waves only."""
        return np.ones((self.w, LANES), bool) if self.full else self.mask

    def any(self, condition: np.ndarray) -> bool:
        """Whether a [w] condition holds for one of the group's own waves."""
        return bool(np.count_nonzero(condition if self.wm is None else condition & self.wm))

    def put_lanes(self, n: int, value: np.ndarray) -> None:
        """Write a word to vector register plane n where lanes are on."""
        np.copyto(self.U[n], value, where=True if self.full else self.mask)

    def put_scalar(self, n: int, value: np.ndarray) -> None:
        """Write SGPR n of every wave of the group."""
        np.copyto(self.S[n], value, where=True if self.wm is None else self.wm, casting="unsafe")
        if n >> 1 == EXEC_PAIR:
            self.refresh_exec()

    def put_pair(self, pair: int, value: np.ndarray) -> None:
        """Write the 64-bit pair 2*pair, 2*pair+1."""
        np.copyto(self.Q[pair], value, where=True if self.wm is None else self.wm, casting="unsafe")
        if pair == EXEC_PAIR:
            self.refresh_exec()

    def put_bit(self, name: str, value: np.ndarray) -> None:
        """Write `scc` or `ovfl`."""
        np.copyto(getattr(self, name), value, where=True if self.wm is None else self.wm)

    def put_mask(self, pair: int, lanes: np.ndarray) -> None:
        """Write a [w, 64] bool as a lane mask; lanes that are off give 0."""
        if np.shape(lanes) != (self.w, LANES):
            lanes = np.broadcast_to(lanes, (self.w, LANES))
        if not self.full:
            lanes = lanes & self.exec
        self.put_pair(pair, pack_mask(lanes))
