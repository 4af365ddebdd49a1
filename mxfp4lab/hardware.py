"""The two targets' hardware numbers, each stated once; nothing here is fitted or measured.

Sources for gfx950 (MI355X, CDNA4): AMD's MI355X data sheet and ROCm's GPU specifications (CUs, SIMDs, clock, HBM, LDS),
the CDNA4 ISA (threads of a workgroup, LDS banks), the CDNA4 matrix-core article (MFMA cycles), AMD's CDNA3 white paper
(L2 and Infinity Fabric widths, kept by CDNA4), ROCm's Origami (bandwidth share). For sm_90 (H200): NVIDIA's Hopper
tuning guide and H200 data sheet.
"""

from __future__ import annotations

COMPUTE_UNITS = 256
XCDS = 8  # each with an L2 of its own
SIMDS_PER_CU = 4
WAVE_LANES = 64
MAX_WAVES_PER_SIMD = 8
MAX_WORKGROUP_THREADS = 1024
VGPRS_PER_LANE = 512  # architectural and accumulation registers of one SIMD, shared by its waves
VGPR_GRANULE = 8
LDS_BYTES = 163840  # 160 KiB a compute unit, also the most that one workgroup may have
LDS_BANKS = 64  # of 4 bytes
L2_BYTES = XCDS * 4 * 2**20

CLOCK_HZ = 2.4e9
VALU_CYCLES = 4  # a wave64 on a 16-lane SIMD
MFMA_CYCLES = {"16x16x128": 16, "32x32x64": 32}  # FP4

HBM_BYTES_PER_S = 8.0e12
FABRIC_BYTES_PER_S = 17.2e12  # Infinity Cache to the L2s of all XCDs
L1_BYTES_PER_CYCLE = 64  # L2 to one CU
LDS_CYCLES = 8  # of the CU's LDS for a wave's access of 16 bytes a lane (128 bytes a cycle), without bank conflicts

SM90_SMS = 132
SM90_WARP_LANES = 32
SM90_SHARED_BYTES = 232448  # 227 KiB, the most that one program may have
SM90_HBM_BYTES_PER_S = 4.8e12


def bandwidth_share(workgroups: float) -> float:
    """Fraction of MI355X's memory bandwidth that `workgroups` active workgroups reach together.

    `-1.3e-5 n^2 + 0.00707 n + 0.0274` (ROCm Origami), for n clamped to 1 .. 256: 0.18 at 23, 0.56 at 90, 0.98 at 256.
    """
    n = min(max(workgroups, 1.0), float(COMPUTE_UNITS))
    return -1.3e-5 * n * n + 0.00707 * n + 0.0274
