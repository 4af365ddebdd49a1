"""What each variant fixes, and what follows from a config, a shape and a variant together."""

from __future__ import annotations

from dataclasses import dataclass

from mxfp4lab.config.gemm import GemmConfig
from mxfp4lab.shapes import Shape


@dataclass(frozen=True)
class VariantTraits:
    """What a variant fixes; axes it leaves open are the config's.

    Attributes:
        a_mode: "fused", "prequant", or "open" (the config or a rule decides per shape).
        b_layout: "rowmajor" or "preshuffled".
        specialize: how M, N, K are passed unless the config says otherwise.
        scale_load: how B's scales are loaded unless the config says otherwise.
        needs_aiter: whether its GEMM is aiter's prebuilt code object.
        sliced: whether the waves of a workgroup divide K among them (Gluon, gfx950 only).
        cooperative: whether the workgroups of an XCD quantize A together (a sliced variant).
        hopper: whether it multiplies exact bf16 values with Hopper's wgmma (sm_90 only).
        caveat: what a modelled time of it leaves open, "" if nothing.
    """

    a_mode: str
    b_layout: str
    specialize: str = "runtime"
    scale_load: str = "in_place"
    needs_aiter: bool = False
    sliced: bool = False
    cooperative: bool = False
    hopper: bool = False
    caveat: str = ""


VARIANT_TRAITS: dict[str, VariantTraits] = {
    "reference": VariantTraits("prequant", "preshuffled", needs_aiter=True),
    "quant_shuffle_asm": VariantTraits("prequant", "preshuffled", needs_aiter=True),
    "fused_rowmajor": VariantTraits("fused", "rowmajor"),
    "prequant_rowmajor": VariantTraits("prequant", "rowmajor"),
    "hybrid": VariantTraits("open", "rowmajor"),
    "fused_preshuffled": VariantTraits("fused", "preshuffled", scale_load="by_tile"),
    "prequant_preshuffled": VariantTraits("prequant", "preshuffled", scale_load="by_tile"),
    "constexpr_preshuffled": VariantTraits("fused", "preshuffled", "constexpr", "by_tile"),
    "sliced_preshuffled": VariantTraits("fused", "preshuffled", "constexpr", sliced=True),
    "cooperative_preshuffled": VariantTraits(
        "fused",
        "preshuffled",
        "constexpr",
        sliced=True,
        cooperative=True,
        caveat="workgroups wait for each other, of which no published time exists: beyond the round trips that nothing "
        "covers, the model takes that as free",
    ),
    "hopper": VariantTraits("open", "rowmajor", "constexpr", "by_tile", hopper=True),
}


def runs_on(variant: str, arch: str) -> bool:
    """Whether a variant is written for a target: prebuilt and MFMA kernels are gfx950's, wgmma is sm_90's."""
    traits = VARIANT_TRAITS[variant]
    if traits.hopper:
        return arch == "sm_90"
    return arch == "gfx950" or not (traits.needs_aiter or traits.sliced)


def resolved_a_mode(config: GemmConfig, shape: Shape, traits: VariantTraits) -> str:
    """ "fused" or "prequant"; an open choice left open goes by rows: short A is cheap to quantize in every tile."""
    if traits.a_mode != "open":
        return traits.a_mode
    if config.a_mode != "auto":
        return config.a_mode
    return "fused" if shape.m <= (32 if traits.hopper else 64) else "prequant"


def resolved_scale_load(config: GemmConfig, traits: VariantTraits) -> str:
    """ "in_place" or "by_tile"."""
    return traits.scale_load if config.scale_load == "auto" else config.scale_load


def resolved_specialize(config: GemmConfig, traits: VariantTraits) -> str:
    """ "runtime" or "constexpr"."""
    return traits.specialize if config.specialize == "auto" else config.specialize


def effective_split(config: GemmConfig, shape: Shape, waves: int = 1) -> int:
    """Slices of K that hold work: at most one per K tile, and none is empty.

    ``tiles = ceil(K / (block_k * waves))``, ``per = ceil(tiles / min(split_k, tiles))``, ``ceil(tiles / per)``.

    Args:
        waves: waves that divide a slice among them; 1 where they share its K tiles.
    """
    tiles = -(-shape.k // (config.block_k * waves))
    per_split = -(-tiles // min(config.split_k, tiles))
    return -(-tiles // per_split)


def needed_offset_bits(config: GemmConfig, shape: Shape) -> int:
    """32 where every element offset of every buffer, one tile past its end included, stays below 2^31; else 64."""
    rows, columns = shape.m + config.block_m, shape.n + max(config.block_n, 256)
    deep = shape.k + max(config.block_k, config.quant_block_k)
    largest = max(rows * deep, columns * deep // 2, effective_split(config, shape) * rows * columns)
    return 32 if largest < 2**31 else 64


def is_power_of_two(value: int) -> bool:
    """Whether value is 1, 2, 4, ..."""
    return value > 0 and value & (value - 1) == 0
