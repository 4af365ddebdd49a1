"""From the counts of one launch to the quantities that the time formula uses, each with its unit in its name.

Everything is per launch and free of fitted numbers: a feature is physics or bookkeeping, a parameter is a fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mxfp4lab.model import hardware as hw
from mxfp4lab.records import Counts, LaunchCounts

# Where a Counts record does not say how many bytes a workgroup reads: 16 bytes a lane and access, of which about 0.8
# are loads of tiles (the rest are narrower, or stores). On the published rows that gives their bytes within 15 %.
_BYTES_PER_ACCESS = 0.8 * 16 * hw.WAVE_LANES
# An access occupies the CU's memory pipeline like one of 8 bytes a lane at least. The public logs saw 1.4 us between a
# reduce tile of 16x64, read by 4-byte accesses, and one of 16x16 (v077, v093 on 16x2112x7168): that would take 16
# bytes. AMD's GEMM, whose masked lanes cost nothing, allows 9 at most.
_LEAST_PER_ACCESS = 0.8 * 8 * hw.WAVE_LANES


@dataclass(frozen=True, slots=True)
class LaunchFeatures:
    """One launch as the time formula sees it.

    Attributes:
        role: `"main"` (the launch with matrix instructions), `"before"` it or `"after"` it.
        valu_us, mfma_us: issue time of one wave alone on its SIMD.
        waves_per_simd: waves that the busiest SIMD works through, all rounds together; at least 1.
        waves_per_simd_mean: the same if the work were spread evenly over the busy CUs (below the former by the tail).
        workgroup_waves_per_simd: waves of one workgroup on a SIMD; at least 1.
        workgroups_per_cu: workgroups that the busiest CU works through.
        rounds: times that a CU has to refill, from what registers and LDS let it hold at once.
        read_mb: bytes that the busiest CU asks for in all rounds, narrow accesses as 8 bytes a lane, 1e6.
        read_mb_all: bytes that all workgroups together ask for, 1e6.
        lds_us: time that the busiest CU's LDS is occupied, every access taken as a wide one without conflicts.
        unique_mb: bytes that must come from memory at least once, 1e6.
        fabric_mb: bytes that the XCDs' L2s together have to fetch, 1e6.
        write_mb: bytes of fp32 partial results that this launch writes, 1e6.
        share: fraction of HBM bandwidth that this many workgroups reach.
        waits: memory round trips beyond the first that a wave has nothing to cover with.
        spill: `sqrt(scratch accesses x spilled registers)` of one wave.
        spill_overflow_mb: scratch traffic that the L2s cannot hold, 1e6.
    """

    role: str
    valu_us: float
    mfma_us: float
    waves_per_simd: float
    waves_per_simd_mean: float
    workgroup_waves_per_simd: float
    workgroups_per_cu: int
    rounds: int
    read_mb: float
    read_mb_all: float
    lds_us: float
    unique_mb: float
    fabric_mb: float
    write_mb: float
    share: float
    waits: float
    spill: float
    spill_overflow_mb: float
    valu: float
    mfma: float
    workgroups: int


def _resident_workgroups(launch: LaunchCounts) -> int:
    """Workgroups of this launch that one CU holds at once (registers, LDS, wave slots)."""
    waves = max(1, launch.waves_per_workgroup)
    per_simd = launch.occupancy_waves_per_simd or hw.occupancy_waves_per_simd(launch.vgprs, launch.agprs)
    by_registers = per_simd * hw.SIMDS_PER_CU // waves
    by_lds = hw.LDS_BYTES_PER_CU // launch.lds_bytes if launch.lds_bytes > 0 else by_registers
    return max(1, min(by_registers, by_lds))


def _spill_overflow_mb(launch: LaunchCounts, resident: int) -> float:
    """Scratch traffic beyond what the L2s hold: waves resident on the chip, 256 bytes a spilled register and wave."""
    waves = max(1, launch.waves_per_workgroup)
    held = min(launch.workgroups, resident * hw.COMPUTE_UNITS) * waves * launch.spilled_vgprs * 4 * hw.WAVE_LANES
    if held <= hw.L2_BYTES:
        return 0.0
    traffic = launch.workgroups * waves * launch.scratch_per_wave * 4 * hw.WAVE_LANES
    return traffic * (1.0 - hw.L2_BYTES / held) / 1e6


def launch_features(launch: LaunchCounts, role: str, unique_bytes: float, partial_bytes: float) -> LaunchFeatures:
    """Features of one launch.

    Args:
        launch: its counts.
        role: `"main"`, `"before"` or `"after"`.
        unique_bytes: bytes of its inputs, each counted once.
        partial_bytes: split-K workspace that it writes, 0 if none.
    """
    waves = max(1, launch.waves_per_workgroup)
    workgroups = max(1, launch.workgroups)
    per_cu = -(-workgroups // hw.COMPUTE_UNITS)
    simd_waves = waves / hw.SIMDS_PER_CU
    resident = _resident_workgroups(launch)
    mfma32 = launch.mfma32_per_wave
    mfma16 = max(launch.mfma_per_wave - mfma32, 0.0)
    mfma_cycles = mfma16 * hw.MFMA_CYCLES["16x16x128"] + mfma32 * hw.MFMA_CYCLES["32x32x64"]
    accesses = launch.vmem_per_wave * waves
    read = launch.load_bytes_per_workgroup or accesses * _BYTES_PER_ACCESS
    unique = min(unique_bytes, read * workgroups)
    return LaunchFeatures(
        role=role,
        valu_us=hw.cycles_to_us(launch.valu_per_wave * hw.VALU_CYCLES),
        mfma_us=hw.cycles_to_us(mfma_cycles),
        waves_per_simd=max(1.0, per_cu * simd_waves),
        waves_per_simd_mean=max(1.0, max(1.0, workgroups / hw.COMPUTE_UNITS) * simd_waves),
        workgroup_waves_per_simd=max(1.0, simd_waves),
        workgroups_per_cu=per_cu,
        rounds=-(-per_cu // resident),
        read_mb=max(read, accesses * _LEAST_PER_ACCESS) * per_cu / 1e6,
        read_mb_all=read * workgroups / 1e6,
        lds_us=hw.cycles_to_us(launch.lds_per_wave * waves * per_cu * hw.LDS_CYCLES),
        unique_mb=unique / 1e6,
        fabric_mb=min(read * workgroups, unique * hw.XCDS) / 1e6,
        write_mb=partial_bytes / 1e6,
        share=hw.bandwidth_share(workgroups),
        waits=launch.exposed_waits_per_wave,
        spill=math.sqrt(launch.scratch_per_wave * max(launch.spilled_vgprs, 1)),
        spill_overflow_mb=_spill_overflow_mb(launch, resident),
        valu=launch.valu_per_wave,
        mfma=launch.mfma_per_wave,
        workgroups=workgroups,
    )


def _roles(launches: Sequence[LaunchCounts]) -> list[str]:
    """The launch with most matrix work is the main one; without any, the first."""
    main = max(range(len(launches)), key=lambda i: (launches[i].mfma_per_wave, -i))
    return ["before" if i < main else "main" if i == main else "after" for i in range(len(launches))]


def plan_features(counts: Counts) -> tuple[list[LaunchFeatures], bool]:
    """Features of every launch, and whether split-K partials are summed inside the main launch.

    A `before` launch reads A in bf16; an `after` launch reads the split-K partials that the main launch wrote. The
    main launch is charged for A at its packed size: counts do not tell bf16 from packed, and beside B it is little.

    Raises:
        ValueError: if there is no launch, or a count is negative or not finite.
    """
    if not counts.launches:
        raise ValueError("counts: launches=() is empty; allowed: at least one launch")
    for launch in counts.launches:
        for name, value in launch.to_dict().items():
            if name != "name" and (not math.isfinite(value) or value < 0):
                raise ValueError(f"counts: launch {launch.name!r}: {name}={value!r}; allowed: a finite number >= 0")
    shape = counts.shape
    roles = _roles(counts.launches)
    unique = {
        "before": shape.m * shape.k * 2,
        "main": (shape.m + shape.n) * shape.k * (0.5 + 1 / 32),
        "after": counts.partial_bytes,
    }
    features = []
    for launch, role in zip(counts.launches, roles, strict=True):
        written = counts.partial_bytes if role == "main" and counts.split_k > 1 else 0
        features.append(launch_features(launch, role, unique[role], written))
    inside = counts.split_k > 1 and "after" not in roles
    return features, inside
