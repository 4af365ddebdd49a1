"""How each variant is built, its default configs, and the way from (variant, config, shape) to a plan."""

from __future__ import annotations

from collections.abc import Callable

from mxfp4lab.config import GemmConfig, check_variant, config_errors
from mxfp4lab.hardware import COMPUTE_UNITS, SM90_SMS
from mxfp4lab.plan.data import Plan
from mxfp4lab.plan.launches import (
    PER_XCD,
    XCDS,
    build_cooperative,
    build_gemm,
    build_hopper,
    build_sliced,
    ceil_div,
)
from mxfp4lab.shapes import Shape, parse_shape

COOPERATIVE_TILES = ((16, 1), (32, 1), (16, 3), (64, 1), (32, 3), (16, 7), (128, 1), (64, 3))
"""(columns, tiles beside each other) worth looking at: 16 to 192 columns a workgroup."""


def _with_aiter(name: str) -> Callable[[GemmConfig, Shape, str, str], Plan]:
    """A builder of `aiter.gemm`, which stands on plans and is imported when one is built."""

    def build(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
        from mxfp4lab.aiter import gemm

        return getattr(gemm, name)(config, shape, arch, variant)

    return build


def default_config(variant: str, shape: Shape | str, arch: str = "gfx950") -> GemmConfig:
    """A config that is sensible for the shape, valid for the variant, and not tuned.

    Raises:
        ValueError: unknown variant or bad shape.
    """
    return MADE_BY[check_variant(variant)][1](parse_shape(shape), arch)


def serves(variant: str, shape: Shape | str, arch: str = "gfx950") -> bool:
    """Whether a variant is written for the target and has a config for the shape: a cooperative one has not for all."""
    return not config_errors(default_config(variant, shape, arch), parse_shape(shape), arch, variant)


def build_plan(variant: str, config: GemmConfig | None, shape: Shape | str, arch: str = "gfx950") -> Plan:
    """The plan of a variant on a shape.

    Args:
        variant: a name of ``VARIANTS``.
        config: None takes the variant's default for the shape.

    Raises:
        ValueError: unknown variant, bad shape, or an invalid config, with every reason.
    """
    build, default = MADE_BY[check_variant(variant)]
    shape = parse_shape(shape)
    config = default(shape, arch) if config is None else config
    errors = config_errors(config, shape, arch, variant)
    if errors:
        raise ValueError(f"{variant} on {shape}: " + "; ".join(errors))
    return build(config, shape, arch, variant)


def _rows(shape: Shape) -> int:
    """M rounded up to a power of two."""
    return 1 << (shape.m - 1).bit_length()


def _default_prebuilt(shape: Shape, arch: str) -> GemmConfig:
    """Only the quantizer is ours."""
    return GemmConfig(convert="hw_bf16", quant_block_m=min(16, _rows(shape)))


def _default_portable(shape: Shape, arch: str) -> GemmConfig:
    """No more rows than M has (from 4 up); the widest column tile that still gives about one workgroup per two CUs."""
    block_m = 32 if shape.m >= 128 else max(4, min(16, _rows(shape)))
    tiles_m = ceil_div(shape.m, block_m)
    block_n = next((n for n in (128, 64) if tiles_m * ceil_div(shape.n, n) >= COMPUTE_UNITS // 2), 32)
    tiles = tiles_m * ceil_div(shape.n, block_n)
    split_k = 1
    if shape.k >= 2048:  # a split costs a second launch: only where a long K would leave most CUs idle
        split_k = next((s for s in (7, 4, 2) if tiles * s <= 2 * COMPUTE_UNITS and shape.k % (s * 256) == 0), 1)
    return GemmConfig(
        block_m=block_m, block_n=block_n, split_k=split_k, convert="hw_bf16" if arch == "gfx950" else "sw_bits",
        quant_block_m=min(16, _rows(shape)), reduce_block_m=min(16, _rows(shape)),
    )  # fmt: skip


def _default_sliced(shape: Shape, arch: str) -> GemmConfig:
    """The tile that asks each CU for the fewest bytes at no more than one workgroup per CU; four waves if they can.

    A workgroup reads ``2 K block_m`` bytes of A and ``17/32 K columns`` of B. A wave keeps all of its operands in
    registers, so a long K takes more waves, and a very long one leaves the order of loads to the compiler.
    """
    # A long K is split, at the price of a second launch, only where whole tiles would leave most CUs idle.
    split = 7 if shape.k >= 4096 and ceil_div(shape.m, 16) * ceil_div(shape.n, 64) <= COMPUTE_UNITS // 2 else 1
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
            choices.append(
                (ceil_div(workgroups, COMPUTE_UNITS) * read * (1 + block_m / 1024), block_m, block_n, tiles_n)
            )
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
        block_m=block_m, block_n=block_n, tiles_n=tiles_n, block_k=block_k, num_warps=waves, split_k=split,
        convert="hw_bf16", cache_modifier=".cg", load_order=load_order, a_path="staged" if staged else "direct",
        reduce_block_m=1 if split > 1 else 16, reduce_block_n=256 if split > 1 else 64,
    )  # fmt: skip


def smallest_part(shape: Shape, block_m: int) -> int:
    """Columns of the smallest parts of A that an XCD's workgroups can share out, one each; 0 where none can be."""
    return next((k for k in (128, 256, 512) if shape.k % k == 0 and block_m // 16 * (shape.k // k) <= PER_XCD), 0)


def _default_cooperative(shape: Shape, arch: str) -> GemmConfig:
    """The tile that asks a workgroup for the fewest bytes, its part of A included.

    Where no tile serves the shape (`config_errors` says why), the smallest is returned.
    """
    choices = []
    for block_m in (16, 32, 64):
        tiles_m = ceil_div(shape.m, block_m)
        part_k = smallest_part(shape, block_m)
        if tiles_m > XCDS or not part_k or (block_m > 16 and block_m >= 2 * shape.m):
            continue
        for block_n, tiles_n in COOPERATIVE_TILES:
            columns = block_n * tiles_n
            an_xcd = ceil_div(ceil_div(shape.n, columns), XCDS // tiles_m)
            if an_xcd <= PER_XCD and block_m * columns <= 4096:
                read = 17 / 32 * (block_m + columns) * shape.k + 2 * 16 * part_k
                choices.append((read, block_m, block_n, tiles_n, part_k))
    _, block_m, block_n, tiles_n, part_k = min(choices, default=(0, 16, 16, 1, 256))
    # A wave has work of its own in every round, and what it holds of A and B fits its registers.
    waves, block_k = 4, 128
    for waves, block_k in ((4, 256), (4, 128), (8, 256), (8, 128), (16, 128)):
        rounds = ceil_div(shape.k, waves * block_k)
        held = rounds * block_k // 128 * (block_m + block_n * tiles_n) // 4 + block_m * block_n * tiles_n // 64
        if rounds * waves * block_k == shape.k and held <= 160:
            break
    return GemmConfig(
        block_m=block_m, block_n=block_n, tiles_n=tiles_n, block_k=block_k, num_warps=waves, quant_block_k=part_k,
        convert="hw_bf16", cache_modifier=".cg",
    )  # fmt: skip


def _default_hopper(shape: Shape, arch: str) -> GemmConfig:
    """Sensible on an H200: about one program per SM; A quantized in the GEMM while it is short."""
    single = shape.k == 512 and shape.m <= 32  # K in one step: nothing to pipeline, and many small programs
    block_m = 16 if single else min(128, max(16, _rows(shape)))
    tiles = ceil_div(shape.m, block_m) * ceil_div(shape.n, 64)
    steps = ceil_div(shape.k, 256)
    split = next(
        (s for s in (7, 4, 2) if shape.m <= 32 and steps >= 8 and steps % s == 0 and tiles * s <= 2 * SM90_SMS), 1
    )
    return GemmConfig(
        block_m=block_m, block_n=64, block_k=512 if single else 256, split_k=split,
        num_stages=1 if single else 4 if block_m == 64 else 3, convert="sw_bits",
        a_mode="fused" if shape.m <= 32 else "prequant", quant_block_m=4, quant_block_k=512,
    )  # fmt: skip


Build = Callable[[GemmConfig, Shape, str, str], Plan]
Default = Callable[[Shape, str], GemmConfig]
MADE_BY: dict[str, tuple[Build, Default]] = {
    "reference": (_with_aiter("build_reference"), _default_prebuilt),
    "quant_shuffle_asm": (_with_aiter("build_quant_shuffle"), _default_prebuilt),
    "fused_rowmajor": (build_gemm, _default_portable),
    "prequant_rowmajor": (build_gemm, _default_portable),
    "fused_preshuffled": (build_gemm, _default_portable),
    "prequant_preshuffled": (build_gemm, _default_portable),
    "constexpr_preshuffled": (build_gemm, _default_portable),
    "sliced_preshuffled": (build_sliced, _default_sliced),
    "cooperative_preshuffled": (build_cooperative, _default_cooperative),
    "hopper": (build_hopper, _default_hopper),
}
"""How each is built, valid or not, and its default config."""
