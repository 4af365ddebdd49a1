"""The two targets' hardware numbers, each stated once; nothing here is fitted or measured.

Sources for gfx950 (MI355X, CDNA4): AMD's MI355X data sheet and ROCm's GPU specifications (CUs, SIMDs, clock, LDS), the
CDNA4 ISA (threads of a workgroup, LDS banks), the CDNA4 matrix-core article (MFMA cycles). For sm_90 (H200): NVIDIA's
Hopper tuning guide and H200 data sheet.
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

CLOCK_HZ = 2.4e9
VALU_CYCLES = 4  # a wave64 on a 16-lane SIMD
MFMA_CYCLES = {"16x16x128": 16, "32x32x64": 32}  # FP4

SM90_SMS = 132
SM90_SHARED_BYTES = 232448  # 227 KiB, the most that one program may have
