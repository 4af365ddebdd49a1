"""The one statement of which configs are valid: a pure predicate, one comment per clause."""

from __future__ import annotations

import math
from collections.abc import Callable

from mxfp4lab.config.gemm import CHOICES, DEFAULTS, SPLITS, GemmConfig
from mxfp4lab.config.traits import (
    VARIANT_TRAITS,
    VariantTraits,
    effective_split,
    is_power_of_two,
    needed_offset_bits,
    resolved_scale_load,
    runs_on,
)
from mxfp4lab.shapes import Shape, parse_shape


def config_errors(
    config: GemmConfig, shape: Shape | str, arch: str = "gfx950", variant: str | None = None
) -> list[str]:
    """Why this config cannot run on this shape; empty if it can.

    Every message names the parameter, its value and what is allowed. Compilation may still refuse a config (LDS above
    163840 bytes, for one): that is the compiler's to say.

    Args:
        config: the config.
        shape: the GEMM's shape.
        arch: "gfx950" or a CUDA target as "sm_90".
        variant: a name of ``VARIANT_TRAITS``; without it only what holds for every variant is judged.

    Raises:
        ValueError: an unknown variant or architecture.
    """
    shape = parse_shape(shape)
    if not isinstance(config, GemmConfig):
        raise ValueError(f"config={config!r} is no GemmConfig; GemmConfig.from_dict makes one of a mapping")
    if variant is not None and (not isinstance(variant, str) or variant not in VARIANT_TRAITS):
        raise ValueError(f"variant={variant!r} is unknown; known: {', '.join(VARIANT_TRAITS)}")
    if not isinstance(arch, str) or (arch != "gfx950" and not arch.startswith("sm_")):
        raise ValueError(f"arch={arch!r} is unknown; known: gfx950, sm_90 and other sm_NN")
    errors: list[str] = []

    def refuse(name: str, allowed: str) -> None:
        errors.append(f"{name}={getattr(config, name)!r}: {allowed}")

    _check_values(config, refuse)
    if errors:  # the clauses below compute with the values
        return errors
    if variant is not None and not runs_on(variant, arch):  # no config helps: wgmma, MFMA or a prebuilt code object
        own = "gfx950" if runs_on(variant, "gfx950") else "sm_90"
        return [f"variant={variant!r} runs on {own} only, not on {arch}"]
    _check_tiles(config, shape, refuse)
    _check_target(config, arch, refuse, variant is not None and VARIANT_TRAITS[variant].sliced)
    if variant is not None:
        traits = VARIANT_TRAITS[variant]
        _check_variant(config, traits, variant, refuse)
        if traits.hopper:
            _check_hopper(config, shape, refuse)
        if traits.sliced:
            _check_sliced(config, shape, refuse)
            if traits.cooperative:
                _check_cooperative(config, shape, refuse)
        else:
            for name in ("amax", "tiles_n", "split_sum", "a_path"):
                if getattr(config, name) != DEFAULTS[name]:
                    refuse(name, f"must be {DEFAULTS[name]!r} for {variant}: only sliced variants choose")
    return errors


Refuse = Callable[[str, str], None]


def _check_values(config: GemmConfig, refuse: Refuse) -> None:
    """Each field alone: its type, its set or its range."""
    for name, default in DEFAULTS.items():
        if type(getattr(config, name)) is not type(default):
            refuse(name, f"must be {type(default).__name__}")
            return
    for name, allowed in CHOICES.items():
        if getattr(config, name) not in allowed:
            refuse(name, "must be one of " + ", ".join(map(repr, allowed)))
    # tl.arange takes powers of two only. Below 4 rows dot_scaled has no layout; above 256 nothing fits in registers.
    _power_of_two(config, "block_m", 4, 256, refuse)
    _power_of_two(config, "block_n", 16, 512, refuse)
    _power_of_two(config, "block_k", 64, 1024, refuse)
    _power_of_two(config, "quant_block_m", 1, 256, refuse)
    # One scale block is 32 elements; with one alone a tile of scales would have a single column.
    _power_of_two(config, "quant_block_k", 64, 4096, refuse)
    _power_of_two(config, "reduce_block_m", 1, 256, refuse)
    _power_of_two(config, "reduce_block_n", 16, 1024, refuse)
    # 16 waves of 64 lanes are the 1024 threads a workgroup may have.
    for name in ("num_warps", "quant_num_warps", "reduce_num_warps"):
        _power_of_two(config, name, 1, 16, refuse)
    # 7 and 14 divide the 28 K tiles of K = 7168 evenly where powers of two above 4 do not.
    if config.split_k not in SPLITS:
        refuse("split_k", "must be one of " + ", ".join(map(str, SPLITS)))
    if not 1 <= config.num_stages <= 4:
        refuse("num_stages", "must be 1 to 4")
    if not 0 <= config.waves_per_eu <= 8:
        refuse("waves_per_eu", "must be 0 (the compiler decides) to 8, the waves a SIMD holds")
    if config.matrix_instr_nonkdim not in (16, 32):
        refuse("matrix_instr_nonkdim", "must be 16 (MFMA 16x16x128) or 32 (32x32x64)")
    if not 1 <= config.group_m <= 64:
        refuse("group_m", "must be 1 to 64")
    # MI355X has 8 XCDs; other counts are the partition modes of the same chip.
    if config.xcd_remap not in (0, 2, 4, 8):
        refuse("xcd_remap", "must be 0 (off), 2, 4 or 8")
    if config.offset_bits not in (0, 32, 64):
        refuse("offset_bits", "must be 0 (as the buffers need it), 32 or 64")


def _power_of_two(config: GemmConfig, name: str, low: int, high: int, refuse: Refuse) -> None:
    value = getattr(config, name)
    if not (is_power_of_two(value) and low <= value <= high):
        refuse(name, f"must be a power of two from {low} to {high}")


def _check_tiles(config: GemmConfig, shape: Shape, refuse: Refuse) -> None:
    """Fields against each other and against the shape, on every target."""
    # Triton refuses a tensor of more than 2^20 elements; the bf16 tile of A and the packed tile of B are the largest.
    if config.block_n * config.block_k // 2 > 2**20 or config.quant_block_m * config.quant_block_k > 2**20:
        refuse("block_k", "the tile must hold at most 2^20 elements")
    # A reduce that loads every partial result at once holds them all in registers.
    if config.reduce_form == "block" and config.reduce_block_m * config.reduce_block_n * config.split_k > 2**16:
        refuse("reduce_block_n", "reduce_form 'block' keeps split_k tiles in registers: at most 65536 elements in all")
    if config.offset_bits == 32 and needed_offset_bits(config, shape) == 64:
        refuse("offset_bits", f"must be 0 or 64 on {shape}: an offset reaches 2^31")


def _check_target(config: GemmConfig, arch: str, refuse: Refuse, sliced: bool) -> None:
    """What one architecture has and the other lacks."""
    if arch == "gfx950":
        # dot_scaled becomes a scaled MFMA only from two waves up; with one Triton silently emits bf16 MFMA. Sliced
        # variants name the instruction themselves.
        if config.num_warps < 2 and not sliced:
            refuse("num_warps", "must be 2 to 16 on gfx950: one wave gets bf16 MFMA instead of scaled MFMA")
        # The same happens when a K tile is shorter than one instruction.
        least_k = 128 if config.matrix_instr_nonkdim == 16 else 64
        if config.block_k < least_k:
            refuse("block_k", f"must be at least {least_k} with matrix_instr_nonkdim {config.matrix_instr_nonkdim}")
        # A tile narrower than the instruction has no layout.
        if config.block_n < config.matrix_instr_nonkdim:
            refuse("block_n", f"must be at least matrix_instr_nonkdim ({config.matrix_instr_nonkdim})")
        if config.matrix_instr_nonkdim == 32 and config.block_m < 32:
            refuse("matrix_instr_nonkdim", f"must be 16 with block_m {config.block_m}: half the rows would be padding")
        return
    # v_cvt_scalef32_pk_fp4_* exists on gfx950 only; software gives the same bits.
    if config.convert.startswith("hw_"):
        refuse("convert", f"must be 'sw_bits' or 'sw_aiter' on {arch}: the instruction is gfx950's")
    # Register allocation per SIMD, MFMA shape and XCDs are AMD's.
    if config.waves_per_eu != 0:
        refuse("waves_per_eu", f"must be 0 on {arch}: an AMD knob")
    if config.matrix_instr_nonkdim != 16:
        refuse("matrix_instr_nonkdim", f"must be 16 (the default, unused) on {arch}: an AMD knob")
    if config.xcd_remap != 0:
        refuse("xcd_remap", f"must be 0 on {arch}: it has no XCDs")


def _check_variant(config: GemmConfig, traits: VariantTraits, variant: str, refuse: Refuse) -> None:
    """What a variant fixes, and what its kernels need."""
    if traits.a_mode != "open" and config.a_mode not in ("auto", traits.a_mode):
        refuse("a_mode", f"must be 'auto' or {traits.a_mode!r}: {variant} fixes it")
    if traits.needs_aiter or traits.sliced:
        return  # a prebuilt GEMM has no tile of ours; a sliced one has rules of its own
    if resolved_scale_load(config, traits) == "by_tile":
        # The e8m0 shuffle interleaves 8 columns (256 elements of K) and 32 rows: a tile holds whole pieces.
        if config.block_k < 256:
            refuse("block_k", "must be at least 256 where shuffled scales are loaded by tile (scale_load)")
        if config.block_n < 32:
            refuse("block_n", "must be at least 32 where shuffled scales are loaded by tile (scale_load)")


def _check_sliced(config: GemmConfig, shape: Shape, refuse: Refuse) -> None:
    """Variants whose waves divide K: layouts are the MFMA's, and most other axes do not exist."""
    # Whole MFMA tiles of 16 rows per wave; more than 64 rows do not fit in registers beside the loads.
    if config.block_m not in (16, 32, 64):
        refuse("block_m", "must be 16, 32 or 64 in sliced variants")
    if config.block_n > 256:
        refuse("block_n", "must be 16 to 256 in sliced variants")
    if not 1 <= config.tiles_n <= 8 or config.tiles_n * config.block_n > 256:
        refuse("tiles_n", "must be 1 to 8, and tiles_n x block_n at most 256 columns")
    # Buffer instructions reach 2^31 - 2 bytes and read zero beyond, without a trace.
    split = effective_split(config, shape, config.num_warps)
    if 2 * (shape.m + 64) * shape.k >= 2**31 or 4 * (shape.m + 64) * (shape.n + 256) >= 2**31:
        refuse("block_m", f"no value works on {shape}: A or C is larger than buffer addressing reaches")
    elif 4 * split * (shape.m + 64) * (shape.n + 256) >= 2**31:
        refuse("split_k", f"must be smaller on {shape}: partial results beyond 2^31 bytes are out of reach")
    if config.split_sum == "inside" and split == 1:
        refuse("split_sum", "must be 'launch' where K is not split")
    # One MFMA step, or the two whose scales share a dword.
    if config.block_k not in (128, 256):
        refuse("block_k", "must be 128 or 256 in sliced variants: the K step of one wave")
    # A lane owns whole scale blocks, two bf16 a register: only this convert takes them so.
    if config.convert != "hw_bf16":
        refuse("convert", "must be 'hw_bf16' in sliced variants")
    # What would not change the kernel must not make a second config of it.
    for name, reason in (
        ("group_m", "row tiles are always neighbours"),
        ("matrix_instr_nonkdim", "the layouts are those of 16x16x128"),
        ("num_stages", "there is no pipeline"),
        ("accumulate", "always in place"),
        ("scale_load", "by dword where it can be"),
        ("assume", "sizes are known"),
        ("row_tail", "rows past the end repeat the last"),
        ("masks", "only where needed"),
        ("offset_bits", "buffer addressing"),
        ("split_order", "parts lie far apart"),
    ):
        if getattr(config, name) != DEFAULTS[name]:
            refuse(name, f"must be {DEFAULTS[name]!r} in sliced variants: {reason}")
    if config.specialize == "runtime":
        refuse("specialize", "must be 'auto' or 'constexpr' in sliced variants")


def _check_cooperative(config: GemmConfig, shape: Shape, refuse: Refuse) -> None:
    """256 workgroups on 8 XCDs: an XCD has one row tile, at most 32 parts of A and at most 32 column tiles."""
    tiles_m = -(-shape.m // config.block_m)
    if tiles_m > 8:
        refuse("block_m", f"must be larger: {tiles_m} row tiles of M={shape.m}, each of which takes an XCD of 8")
        return
    if shape.k % 256:
        refuse("block_k", f"no value works on {shape}: K must be a multiple of 256, whole dwords of shuffled scales")
    # A wave keeps its half of the dwords of scales from step to step.
    if config.num_warps == 1 and config.block_k == 128:
        refuse("num_warps", "must be 2 to 16 with block_k 128 where an XCD shares A, or block_k 256")
    # A part is 16 rows, one scale block to a lane.
    if config.quant_block_m != DEFAULTS["quant_block_m"]:
        refuse("quant_block_m", "must be 16 in cooperative variants: the rows of a part of A")
    if config.quant_block_k < 128 or shape.k % config.quant_block_k:
        refuse("quant_block_k", f"must be 128 or more and divide K={shape.k}: a part of A is whole steps")
    elif (parts := config.block_m // 16 * (shape.k // config.quant_block_k)) > 32:
        refuse("quant_block_k", f"must be larger: {parts} parts of A, one to each of an XCD's 32 workgroups at most")
    width = max(config.block_n * config.tiles_n, 1)
    tiles = math.ceil(math.ceil(shape.n / width) / (8 // tiles_m))
    if tiles > 32:
        refuse("tiles_n", f"must be larger: {tiles} column tiles an XCD, which has 32 workgroups")
    # At the end the fp32 tiles of all waves lie side by side in LDS.
    if (lds_bytes := 4 * config.num_warps * config.block_m * width) > 163840:
        refuse("num_warps", f"must be smaller: the waves' tiles of C take {lds_bytes} bytes of LDS, of 163840")
    for name, reason in (
        ("split_k", "a workgroup takes all of K"),
        ("xcd_remap", "tiles go to XCDs by their own rule"),
        ("a_path", "A is read packed"),
        ("load_order", "loads come first"),
    ):
        if getattr(config, name) != DEFAULTS[name]:
            refuse(name, f"must be {DEFAULTS[name]!r} in cooperative variants: {reason}")


def _check_hopper(config: GemmConfig, shape: Shape, refuse: Refuse) -> None:
    """The variant for wgmma: decoded B is its register operand, and most of AMD's axes do not exist."""
    # wgmma's M axis is 64 rows of B per four warps; other pairs decode rows twice or leave warps idle.
    if config.num_warps not in (4, 8, 16) or config.block_n != 16 * config.num_warps:
        refuse("block_n", "must be 64, 128 or 256 with 4, 8 or 16 warps in hopper: 64 rows of B per warp group")
    if config.block_m < 16:
        refuse("block_m", "must be 16 to 256 in hopper")
    if needed_offset_bits(config, shape) == 64:
        refuse("offset_bits", f"no value works on {shape} in hopper: its offsets are 32 bits wide")
    for name, reason in (
        ("group_m", "row tiles are the slowest axis of the grid"),
        ("cache_modifier", "loads are async copies"),
        ("accumulate", "always in place"),
        ("load_order", "the pipeline decides"),
        ("scale_load", "by tile"),
        ("assume", "sizes are known"),
        ("row_tail", "always masked"),
        ("masks", "only where needed"),
        ("offset_bits", "32"),
        ("split_order", "splits are the second axis of the grid"),
        ("reduce_form", "the last program of a tile adds"),
        ("reduce_block_m", "it adds its own tile"),
        ("reduce_block_n", "it adds its own tile"),
        ("reduce_num_warps", "it adds its own tile"),
    ):
        if getattr(config, name) != DEFAULTS[name]:
            refuse(name, f"must be {DEFAULTS[name]!r} in hopper: {reason}")
    if config.specialize == "runtime":
        refuse("specialize", "must be 'auto' or 'constexpr' in hopper")
