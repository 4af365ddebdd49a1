"""The product of tile sizes, split and waves that a search starts from, within what kernel and shape can use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mxfp4lab.config import VARIANT_TRAITS, GemmConfig, config_errors
from mxfp4lab.plan import COOPERATIVE_TILES, VARIANTS, smallest_part
from mxfp4lab.shapes import Shape

MAX_ACCUMULATOR_VGPRS = 64
"""Registers a lane spends on the C tile: beyond this nothing is left for operands, and published configs stop there."""

MAX_WORKGROUPS_PER_CU = 4
CUS = 256  # MI355X; the 132 SMs of an H200 ask for splits at much the same tile counts


def tile_product(shape: Shape, variant: str, arch: str) -> Iterator[GemmConfig]:
    """Configs of a variant over the axes that decide most; nothing for a variant without a tile of ours."""
    traits = VARIANT_TRAITS[variant]
    if traits.needs_aiter:
        return
    base = VARIANTS[variant].default_config(shape, arch)
    if traits.cooperative:
        yield from _cooperative(shape, base, variant, arch)
        return
    if traits.sliced:
        yield from _sliced(shape, base)
        return
    for mode in ("fused", "prequant") if traits.a_mode == "open" else ("auto",):
        fused = "fused" in (traits.a_mode, mode)
        yield from _wgmma(shape, base, mode) if traits.hopper else _shared_k(shape, base, mode, fused)


def _shared_k(shape: Shape, base: GemmConfig, mode: str, fused: bool) -> Iterator[GemmConfig]:
    """Kernels whose waves share the K tiles of a workgroup."""
    for block_m in _row_blocks(shape, fused):
        for block_n in (32, 64, 128, 256):
            for block_k in (256, 512):
                for num_warps in (4, 8):
                    if block_n > shape.n or block_m * block_n > MAX_ACCUMULATOR_VGPRS * 64 * num_warps:
                        continue
                    if block_k > max(256, shape.k):
                        continue
                    for split_k in _splits(shape, block_m, block_n, block_k):
                        yield replace(
                            base, a_mode=mode, block_m=block_m, block_n=block_n, block_k=block_k, split_k=split_k,
                            num_warps=num_warps,
                        )  # fmt: skip


def _sliced(shape: Shape, base: GemmConfig) -> Iterator[GemmConfig]:
    """Kernels whose waves divide K: every wave holds the whole tile of C, and needs steps of its own.

    A split of K is summed by the last workgroup to arrive: it saves the second launch.
    """
    for block_m in (16, 32, 64):
        for block_n, tiles_n in ((16, 1), (32, 1), (64, 1), (32, 3), (16, 7), (128, 1), (64, 3), (256, 1)):
            columns = block_n * tiles_n
            if block_m >= 2 * max(shape.m, 16) or block_m * columns > MAX_ACCUMULATOR_VGPRS * 64 or block_n > shape.n:
                continue
            for block_k in (128, 256):
                for num_warps in (4, 8, 16):
                    if block_k * num_warps > max(512, shape.k):
                        continue
                    for split_k in _splits(shape, block_m, columns, block_k * num_warps):
                        yield replace(
                            base, block_m=block_m, block_n=block_n, tiles_n=tiles_n, block_k=block_k,
                            num_warps=num_warps, split_k=split_k, split_sum="inside" if split_k > 1 else "launch",
                        )  # fmt: skip


def _cooperative(shape: Shape, base: GemmConfig, variant: str, arch: str) -> Iterator[GemmConfig]:
    """Kernels whose workgroups quantize A together: a tile and a part of A for each of 32 workgroups an XCD."""
    for block_m in (16, 32, 64):
        # Larger parts are neighbours of the best.
        part_k = smallest_part(shape, block_m)
        for block_n, tiles_n in COOPERATIVE_TILES:
            for block_k in (128, 256):
                for num_warps in (4, 8):
                    config = replace(
                        base, block_m=block_m, block_n=block_n, tiles_n=tiles_n, block_k=block_k, num_warps=num_warps,
                        quant_block_k=part_k,
                    )  # fmt: skip
                    waste = block_m >= 2 * max(shape.m, 16) or block_k * num_warps > max(512, shape.k)
                    waste |= block_m * block_n * tiles_n > MAX_ACCUMULATOR_VGPRS * 64
                    if not waste and not config_errors(config, shape, arch, variant):
                        yield config


def _wgmma(shape: Shape, base: GemmConfig, mode: str) -> Iterator[GemmConfig]:
    """Hopper's own variant: 64 rows of B for every four warps."""
    for block_m in (16, 32, 64, 128):
        for num_warps in (4, 8):
            for block_k in (256, 512):
                for num_stages in (1, 2, 3, 4):
                    if block_m >= 2 * max(shape.m, 16) or num_stages > max(1, shape.k // block_k):
                        continue
                    for split_k in _splits(shape, block_m, 16 * num_warps, block_k):
                        yield replace(
                            base, a_mode=mode, block_m=block_m, block_n=16 * num_warps, block_k=block_k,
                            num_warps=num_warps, num_stages=num_stages, split_k=split_k,
                        )  # fmt: skip


def _row_blocks(shape: Shape, fused: bool) -> list[int]:
    """Row tiles: none much larger than M, and for a fused A none so large that its conversion fills the registers."""
    if shape.m <= 16:
        least = 1 << (shape.m - 1).bit_length()
        return sorted({max(4, least), 16, *([8] if least <= 8 else [])})
    return [size for size in ((16, 32, 64) if fused else (16, 32, 64, 128)) if size < 2 * shape.m]


def _splits(shape: Shape, block_m: int, block_n: int, step_k: int) -> list[int]:
    """Splits of K that find idle compute units and leave every slice work."""
    tiles = -(-shape.m // block_m) * -(-shape.n // block_n)
    steps = -(-shape.k // step_k)
    return [
        split
        for split in (1, 2, 4, 7, 8, 14)
        if split == 1 or (split <= steps and tiles < CUS and tiles * split <= MAX_WORKGROUPS_PER_CU * CUS)
    ]
