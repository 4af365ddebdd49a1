"""MI355X (gfx950) numbers that the time model takes as given. Only what is not fitted stands here.

Sources: AMD's MI355X data sheet and ROCm GPU specifications (CUs, SIMDs, clock, HBM), the CDNA4 matrix-core article
(MFMA cycles), AMD's CDNA3 white paper (L2 and Infinity Fabric widths, kept by CDNA4), and ROCm's Origami
(bandwidth against the number of active workgroups).
"""

from __future__ import annotations

COMPUTE_UNITS = 256
XCDS = 8
SIMDS_PER_CU = 4
WAVE_LANES = 64
MAX_WAVES_PER_SIMD = 8
VGPRS_PER_LANE = 512  # architectural and accumulation registers of one SIMD, shared by its waves
VGPR_GRANULE = 8
LDS_BYTES_PER_CU = 163840
L2_BYTES = XCDS * 4 * 2**20

CLOCK_HZ = 2.4e9
VALU_CYCLES = 4  # a wave64 on a 16-lane SIMD
MFMA_CYCLES = {"16x16x128": 16, "32x32x64": 32}  # FP4

HBM_BYTES_PER_S = 8.0e12
FABRIC_BYTES_PER_S = 17.2e12  # Infinity Cache to the L2s of all XCDs
L1_BYTES_PER_CYCLE = 64  # L2 to one CU
LDS_CYCLES = 8  # of the CU's LDS for a wave's access of 16 bytes a lane (128 bytes a cycle), without bank conflicts


def cycles_to_us(cycles: float) -> float:
    return cycles / CLOCK_HZ * 1e6


def bandwidth_share(workgroups: float) -> float:
    """Fraction of the memory bandwidth that `workgroups` active workgroups reach together.

    `-1.3e-5 n^2 + 0.00707 n + 0.0274` (ROCm Origami), for n clamped to 1 .. 256: 0.18 at 23, 0.56 at 90, 0.98 at 256.
    """
    n = min(max(workgroups, 1.0), float(COMPUTE_UNITS))
    return -1.3e-5 * n * n + 0.00707 * n + 0.0274


def occupancy_waves_per_simd(vgprs: int, agprs: int) -> int:
    """Waves that fit a SIMD's register file, 1 .. 8; 8 where the register count is unknown (0)."""
    registers = -(-(vgprs + agprs) // VGPR_GRANULE) * VGPR_GRANULE
    if registers <= 0:
        return MAX_WAVES_PER_SIMD
    return max(1, min(MAX_WAVES_PER_SIMD, VGPRS_PER_LANE // registers))
