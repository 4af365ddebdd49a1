"""Registers, LDS and occupancy of a kernel on gfx950, and registers of an sm_90 cubin."""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mxfp4lab.hardware import LDS_BYTES, MAX_WAVES_PER_SIMD, SIMDS_PER_CU, VGPR_GRANULE, VGPRS_PER_LANE

# gfx950 (LLVM's GCNSubtarget for gfx90a and later):
ARCH_VGPR_GRANULE = 4  # accumulation registers start at a multiple of 4
LDS_GRANULE = 1280  # LLVM: 320 dwords on gfx950
WAVE_SGPRS_EXTRA = 6  # vcc, flat_scratch and xnack_mask sit behind the kernel's own SGPRs
# sm_90 (CUDA C++ programming guide, table "Technical specifications per compute capability"):
SM90_REGISTERS_PER_PARTITION = 16384
SM90_WARPS_PER_PARTITION = 16
SM90_SHARED_BYTES = 233472
SM90_SHARED_RESERVED = 1024  # per block, by the driver


@dataclass(frozen=True)
class Resources:
    """What one kernel occupies.

    Attributes:
        vgprs, agprs: architectural and accumulation registers per lane (sm_90: registers per thread, 0).
        sgprs: scalar registers per wave.
        spilled_vgprs, spilled_sgprs: registers the compiler moved to scratch (sm_90: 4-byte words of local memory, 0).
        scratch_bytes: private memory per lane.
        lds_bytes: LDS (shared memory) per workgroup.
        occupancy_waves_per_simd: waves that fit on one SIMD at once, from registers, LDS and workgroup size.
    """

    vgprs: int
    agprs: int
    sgprs: int
    spilled_vgprs: int
    spilled_sgprs: int
    scratch_bytes: int
    lds_bytes: int
    occupancy_waves_per_simd: int


def occupancy(vgprs: int, agprs: int, sgprs: int, lds_bytes: int, waves_per_workgroup: int) -> int:
    """Waves per SIMD that gfx950 can hold at once.

    min over three limits: 512 // ceil8(ceil4(vgprs) + agprs) with the unified register file; 8, or 7 above 100 scalar
    registers; and the workgroups that fit in 160 KiB of LDS, spread over four SIMDs. 0 if a workgroup does not fit.

    Args:
        vgprs, agprs: registers per lane.
        sgprs: scalar registers per wave, without vcc and its like.
        lds_bytes: per workgroup.
        waves_per_workgroup: waves of 64 lanes.
    """
    unified = _ceil(vgprs, ARCH_VGPR_GRANULE) + agprs if agprs else vgprs
    by_vgprs = min(MAX_WAVES_PER_SIMD, VGPRS_PER_LANE // max(_ceil(unified, VGPR_GRANULE), VGPR_GRANULE))
    by_sgprs = MAX_WAVES_PER_SIMD if sgprs + WAVE_SGPRS_EXTRA <= 100 else MAX_WAVES_PER_SIMD - 1
    waves = min(by_vgprs, by_sgprs)
    # A workgroup's waves are resident together: whole workgroups only, spread over the SIMDs.
    groups = waves * SIMDS_PER_CU // waves_per_workgroup
    if waves_per_workgroup < SIMDS_PER_CU:
        groups = waves * (SIMDS_PER_CU // waves_per_workgroup)
    if lds_bytes:
        groups = min(groups, LDS_BYTES // _ceil(lds_bytes, LDS_GRANULE) if lds_bytes <= LDS_BYTES else 0)
    return min(waves, math.ceil(groups * waves_per_workgroup / SIMDS_PER_CU))


def _ceil(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def cubin_resources(cubin: bytes, shared_bytes: int, num_warps: int) -> Resources | None:
    """Registers and local memory of an NVIDIA kernel, by the cuobjdump that Triton brings; None where there is none.

    The local-memory stack stands for the spills (4 bytes each). Occupancy counts warps per SM partition, of which an SM
    has four, like SIMDs.
    """
    from triton import knobs

    with tempfile.TemporaryDirectory(prefix="mxfp4lab-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            run = subprocess.run([knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)],
                                 capture_output=True, text=True, timeout=60)  # fmt: skip
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            return None
    used = re.search(r"REG:(\d+) STACK:(\d+)", run.stdout)
    if not used:
        return None
    registers, stack = int(used.group(1)), int(used.group(2))
    warps = min(SM90_WARPS_PER_PARTITION, SM90_REGISTERS_PER_PARTITION // (32 * _ceil(max(registers, 1), 8)))
    groups = warps * 4 // num_warps
    if shared_bytes:
        groups = min(groups, SM90_SHARED_BYTES // (shared_bytes + SM90_SHARED_RESERVED))
    waves = min(warps, math.ceil(groups * num_warps / 4))
    return Resources(registers, 0, 0, stack // 4, 0, stack, shared_bytes, waves)
