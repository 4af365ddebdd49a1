"""The variants, their default configs, and the way from (variant, config, shape) to a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mxfp4lab.config import VARIANT_TRAITS, GemmConfig, VariantTraits, config_errors
from mxfp4lab.plan.cooperative import build_cooperative, default_cooperative
from mxfp4lab.plan.data import Plan
from mxfp4lab.plan.hopper import build_hopper, default_hopper
from mxfp4lab.plan.launches import build_gemm, build_sliced, ceil_div
from mxfp4lab.plan.prebuilt import build_quant_shuffle, build_reference
from mxfp4lab.shapes import Shape, parse_shape


@dataclass(frozen=True)
class VariantSpec:
    """A way to compute C.

    Attributes:
        about: one line for people.
        builder: (config, shape, arch, traits) to a plan.
        traits: what it fixes.
    """

    name: str
    about: str
    builder: Callable[[GemmConfig, Shape, str, str], Plan]
    traits: VariantTraits

    @property
    def needs_aiter(self) -> bool:
        """Whether its GEMM is aiter's prebuilt code object."""
        return self.traits.needs_aiter

    def serves(self, shape: Shape | str, arch: str = "gfx950") -> bool:
        """Whether it is written for the target and has a config for the shape: a cooperative one has not for all."""
        return not config_errors(self.default_config(shape, arch), parse_shape(shape), arch, self.name)

    def default_config(self, shape: Shape | str, arch: str = "gfx950") -> GemmConfig:
        """A sensible config for the shape."""
        return default_config(self.name, shape, arch)


ABOUT: dict[str, str] = {
    "reference": "the task's: quantize A, shuffle its scales, aiter's prebuilt GEMM",
    "quant_shuffle_asm": "one kernel quantizes A and shuffles its scales, then aiter's prebuilt GEMM",
    "fused_rowmajor": "A quantized inside the GEMM, B row-major, scales read in place",
    "prequant_rowmajor": "A quantized once by its own kernel, B row-major, scales read in place",
    "hybrid": "fused or prequant over row-major B, chosen per shape",
    "fused_preshuffled": "A quantized inside the GEMM, B and scales un-permuted in registers",
    "prequant_preshuffled": "A quantized once by its own kernel, B and scales un-permuted in registers",
    "constexpr_preshuffled": "as fused_preshuffled, every size a compile-time constant",
    "sliced_preshuffled": "the waves of a workgroup divide K, each quantizes what it multiplies",
    "cooperative_preshuffled": "one launch; the workgroups of an XCD quantize A once and share it through their L2",
    "hopper": "NVIDIA sm_90 only: the same bits by exact bf16 arithmetic on wgmma; wants |A| < 2^120",
}

BUILDERS: dict[str, Callable[[GemmConfig, Shape, str, str], Plan]] = {
    "reference": build_reference,
    "quant_shuffle_asm": build_quant_shuffle,
    "sliced_preshuffled": build_sliced,
    "cooperative_preshuffled": build_cooperative,
    "hopper": build_hopper,
}
VARIANTS: dict[str, VariantSpec] = {
    name: VariantSpec(name, about, BUILDERS.get(name, build_gemm), VARIANT_TRAITS[name])
    for name, about in ABOUT.items()
}


def default_config(variant: str, shape: Shape | str, arch: str = "gfx950") -> GemmConfig:
    """A config that is sensible for the shape, valid for the variant, and not tuned.

    Rules of thumb: no more rows than M has (from 4 up); the widest column tile that still gives about one workgroup
    per two CUs; a long K is split while the tiles leave CUs idle; the cheapest convert of the target.

    Raises:
        ValueError: unknown variant or bad shape.
    """
    if not isinstance(variant, str) or variant not in VARIANTS:
        raise ValueError(f"variant={variant!r} is unknown; known: {', '.join(VARIANTS)}")
    shape = parse_shape(shape)
    rows = 1 << (shape.m - 1).bit_length()
    if VARIANT_TRAITS[variant].hopper:
        return default_hopper(shape)
    if VARIANT_TRAITS[variant].needs_aiter:  # only the quantizer is ours
        return GemmConfig(convert="hw_bf16", quant_block_m=min(16, rows))
    block_m = 32 if shape.m >= 128 else max(4, min(16, rows))
    tiles_m = ceil_div(shape.m, block_m)
    if VARIANT_TRAITS[variant].cooperative:
        return default_cooperative(shape)
    if VARIANT_TRAITS[variant].sliced:
        return _default_sliced(shape)
    block_n = next((n for n in (128, 64) if tiles_m * ceil_div(shape.n, n) >= 128), 32)
    tiles = tiles_m * ceil_div(shape.n, block_n)
    split_k = 1
    if shape.k >= 2048:  # a split costs a second launch: only where a long K would leave most CUs idle
        split_k = next((s for s in (7, 4, 2) if tiles * s <= 512 and shape.k % (s * 256) == 0), 1)
    return GemmConfig(
        block_m=block_m,
        block_n=block_n,
        split_k=split_k,
        convert="hw_bf16" if arch == "gfx950" else "sw_bits",
        quant_block_m=min(16, rows),
        reduce_block_m=min(16, rows),
    )


def _default_sliced(shape: Shape) -> GemmConfig:
    """The tile that asks each CU for the fewest bytes at no more than one workgroup per CU; four waves if they can.

    A workgroup reads ``2 K block_m`` bytes of A and ``17/32 K columns`` of B. A wave keeps all of its operands in
    registers, so a long K takes more waves, and a very long one leaves the order of loads to the compiler.
    """
    # A long K is split, at the price of a second launch, only where whole tiles would leave most CUs idle.
    split = 7 if shape.k >= 4096 and ceil_div(shape.m, 16) * ceil_div(shape.n, 64) <= 128 else 1
    choices = []
    for block_m in (16, 32, 64):
        if block_m > max(16, shape.m):
            break
        for block_n, tiles_n in ((16, 1), (32, 1), (64, 1), (32, 3), (16, 7), (128, 1), (64, 3), (256, 1)):
            if block_m * block_n * tiles_n > 4096:  # the waves' tiles of fp32 have to fit in LDS side by side
                continue
            workgroups = ceil_div(shape.m, block_m) * ceil_div(shape.n, block_n * tiles_n) * split
            read = 2 * block_m + 17 / 32 * block_n * tiles_n
            # Two workgroups on a CU read twice; small row tiles convert less per byte.
            choices.append((ceil_div(workgroups, 256) * read * (1 + block_m / 1024), block_m, block_n, tiles_n))
    _, block_m, block_n, tiles_n = min(choices)
    area = block_m * block_n * tiles_n
    load_order = "loads_first"
    # Sixteen waves leave each 128 registers, fewer leave 256; some are temporaries.
    for waves, registers in ((4, 230), (8, 230), (16, 110)):
        block_k = 256 if shape.k % (256 * waves * split) == 0 else 128
        rounds = ceil_div(shape.k, block_k * waves * split)
        operands = rounds * block_k // 128 * (block_m + block_n * tiles_n // 4)
        if operands + area // 64 <= registers and 4 * waves * area <= 131072:
            break
    else:
        waves, block_k, load_order = 8, 128, "convert_first"
    # A passes through LDS where it fits: a quarter of the cache lines per access, and no bank conflict.
    staged = 2 * block_m * rounds * block_k * waves <= 131072 and load_order == "loads_first"
    return GemmConfig(
        block_m=block_m,
        block_n=block_n,
        tiles_n=tiles_n,
        block_k=block_k,
        num_warps=waves,
        split_k=split,
        convert="hw_bf16",
        cache_modifier=".cg",
        load_order=load_order,
        a_path="staged" if staged else "direct",
        reduce_block_m=1 if split > 1 else 16,
        reduce_block_n=256 if split > 1 else 64,
    )


def build_plan(variant: str, config: GemmConfig | None, shape: Shape | str, arch: str = "gfx950") -> Plan:
    """The plan of a variant on a shape.

    Args:
        variant: a name of ``VARIANTS``.
        config: None takes the variant's default for the shape.

    Raises:
        ValueError: unknown variant, bad shape, or an invalid config, with every reason.
    """
    if not isinstance(variant, str) or variant not in VARIANTS:
        raise ValueError(f"variant={variant!r} is unknown; known: {', '.join(VARIANTS)}")
    shape = parse_shape(shape)
    if config is None:
        config = default_config(variant, shape, arch)
    errors = config_errors(config, shape, arch, variant)
    if errors:
        raise ValueError(f"{variant} on {shape}: " + "; ".join(errors))
    return VARIANTS[variant].builder(config, shape, arch, variant)
