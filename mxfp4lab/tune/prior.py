"""How promising a config looks before anything is compiled: only the order of work, never shown as a time.

A few closed forms over the config, calibrated by eye to counted instructions of our kernels. What is ranked and
reported comes from machine code; a bad guess here costs budget, not correctness.
"""

from __future__ import annotations

import math

from mxfp4lab.config import VARIANT_TRAITS, GemmConfig, effective_split, resolved_a_mode
from mxfp4lab.shapes import Shape

# gfx950: 256 CUs of 4 SIMDs, 64 lanes a wave, 4 cycles a VALU instruction, 16 a 16x16x128 MFMA, 2.4 GHz.
_CUS, _SIMDS, _LANES, _VALU_CYCLES, _MFMA_CYCLES, _CYCLES_PER_US = 256, 4, 64, 4, 16, 2400.0
_LAUNCH_US = 4.7  # a further launch, by published times
_VALU_PER_CONVERTED = {"hw_f32": 1.2, "hw_bf16": 1.0, "sw_bits": 6.0, "sw_aiter": 9.0}
_STEP_VALU = 60.0  # addresses, waits and scales of one step along K
_TILE_VALU = 200.0  # prologue and epilogue


def prior_us(variant: str, config: GemmConfig, shape: Shape) -> float:
    """A rough time in us: VALU and MFMA issue of one wave, times the waves that share a SIMD, plus launches."""
    traits = VARIANT_TRAITS[variant]
    if traits.needs_aiter:
        return 0.0  # nothing to choose: look at it first
    waves = config.num_warps if traits.sliced else 1  # waves that divide K, not the tile
    split = effective_split(config, shape, waves)
    fused = resolved_a_mode(config, shape, traits) == "fused"
    lanes = _LANES * config.num_warps // waves
    steps = math.ceil(math.ceil(shape.k / (config.block_k * waves)) / split)
    # Waves that share rows each convert what they multiply; a wave with a part of K of its own converts it once.
    copies = max(1, config.num_warps * 16 // max(config.block_m, 16)) if fused and waves == 1 else int(fused)
    converted = config.block_m * config.block_k * copies / lanes
    if traits.cooperative:  # a part of A, once
        converted = 16 * config.quant_block_k / (lanes * waves) / steps
    columns = config.block_n * (config.tiles_n if traits.sliced else 1)
    packed_words = columns * config.block_k / 8 / lanes
    valu = steps * (converted * _VALU_PER_CONVERTED[config.convert] + packed_words + _STEP_VALU) + _TILE_VALU
    if waves > 1:
        valu += config.block_m * columns / _LANES  # the tiles of the waves meet in LDS
    tile_mfma = max(config.block_m, 16) * columns * config.block_k / (16 * 16 * 128)
    mfma = steps * tile_mfma * waves / config.num_warps
    workgroups = -(-shape.m // config.block_m) * -(-shape.n // columns) * split
    shared = max(1.0, -(-workgroups // _CUS) * config.num_warps / _SIMDS)
    # Accumulators and the B tile in flight, in registers of a lane; beyond what a lane has they spill.
    registers = config.block_m * columns / lanes + packed_words * config.num_stages + converted / 2
    spill = 1.0 + max(0.0, registers - 200.0) / 100.0
    issue = (valu * _VALU_CYCLES + mfma * _MFMA_CYCLES) / _CYCLES_PER_US
    launches = (split > 1 and config.split_sum == "launch") + (not fused)
    return issue * shared * spill + launches * _LAUNCH_US
