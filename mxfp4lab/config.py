"""The axes of the search, and the one statement of which settings are valid.

A :class:`GemmConfig` says how a variant is run on a shape; the variant says what is run. Nothing here compiles: what
only the compiler can tell (LDS, registers, spills) is judged after compilation.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mxfp4lab.shapes import Shape, parse_shape

CONFIG_SCHEMA = 1

CHOICES: dict[str, tuple[str, ...]] = {
    "split_order": ("outer", "inner"),
    "convert": ("hw_f32", "hw_bf16", "sw_bits", "sw_aiter"),
    "cache_modifier": ("", ".ca", ".cg", ".cv"),
    "a_mode": ("auto", "fused", "prequant"),
    "specialize": ("auto", "runtime", "constexpr"),
    "scale_load": ("auto", "in_place", "by_tile"),
    "row_tail": ("wrap", "mask"),
    "masks": ("needed", "always"),
    "accumulate": ("in_place", "add"),
    "load_order": ("loads_first", "convert_first"),
    "assume": ("on", "off"),
    "reduce_form": ("loop", "block", "flat"),
    "amax": ("max3", "packed_max"),
    "split_sum": ("launch", "inside"),
    "a_path": ("direct", "staged"),
}
"""Axes that are words, and their values; the first is the plain choice."""

SPLITS = (1, 2, 4, 7, 8, 14, 16, 32)


@dataclass(frozen=True)
class GemmConfig:
    """One point of the search space. Sizes count logical elements (K never packed bytes).

    Attributes:
        block_m, block_n, block_k: the tile of C and the step along K of one workgroup.
        split_k: slices of K, each summed by its own workgroup; clamped to the number of K tiles.
        split_order: whether the slices of one tile are far apart in program order ("outer") or neighbours ("inner").
        num_warps: waves of 64 lanes per workgroup (32 lanes on CUDA).
        num_stages: depth of Triton's software pipeline over the K loop.
        waves_per_eu: waves per SIMD that the register allocator must leave room for; 0 leaves it to the compiler.
        matrix_instr_nonkdim: 16 for MFMA 16x16x128, 32 for 32x32x64.
        cache_modifier: of the loads of B and its scales.
        group_m: row tiles that are visited before the next column tile.
        xcd_remap: number of XCDs over which programs are regrouped; 0 leaves the hardware's round robin.
        convert: bf16 to MXFP4, see ``kernels.convert``.
        quant_block_m, quant_block_k, quant_num_warps: the quantize kernel, where the variant has one.
        reduce_block_m, reduce_block_n, reduce_num_warps, reduce_form: the reduce kernel, where K is split.
        a_mode: where A is quantized, for variants that leave it open ("auto": the variant's own rule).
        specialize: M, N, K as run-time arguments or compile-time constants ("auto": as the variant does it).
        scale_load: shuffled scales of B byte by byte in place, or in whole pieces un-permuted in registers.
        row_tail: rows of B past N wrapped onto rows that exist, or masked.
        masks: masks only where the shape has a tail ("needed"), or on every load and store.
        accumulate: acc as an operand of the dot, or added behind it.
        load_order: B's loads issued before A's conversion, or behind it (sliced: or wherever the compiler likes).
        assume: tell the compiler the signs of sizes and program numbers.
        offset_bits: width of addresses' offsets; 0 takes 32 where the buffers allow it.
        amax: how a lane finds the largest magnitude of its block, see ``kernels.block`` (sliced only).
        tiles_n: neighbouring tiles of C per workgroup, block_n columns each (sliced only).
        a_path: A read by the lanes that multiply it, or row by row and passed through LDS (sliced only).
        split_sum: parts of a split K summed by a second launch, or by the last workgroup to arrive (sliced only).
    """

    block_m: int = 16
    block_n: int = 64
    block_k: int = 256
    split_k: int = 1
    split_order: str = "outer"
    num_warps: int = 4
    num_stages: int = 2
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 16
    cache_modifier: str = ""
    group_m: int = 1
    xcd_remap: int = 0
    convert: str = "hw_f32"
    quant_block_m: int = 16
    quant_block_k: int = 256
    quant_num_warps: int = 4
    reduce_block_m: int = 16
    reduce_block_n: int = 64
    reduce_num_warps: int = 4
    reduce_form: str = "loop"
    a_mode: str = "auto"
    specialize: str = "auto"
    scale_load: str = "auto"
    row_tail: str = "wrap"
    masks: str = "needed"
    accumulate: str = "in_place"
    load_order: str = "loads_first"
    assume: str = "on"
    offset_bits: int = 0
    amax: str = "max3"
    tiles_n: int = 1
    split_sum: str = "launch"
    a_path: str = "direct"

    @property
    def config_id(self) -> str:
        """12 hex digits of what differs from the defaults: a new axis leaves the ids of old configs alone."""
        changed = {name: value for name, value in self.to_dict().items() if value != DEFAULTS[name]}
        text = json.dumps({"schema": CONFIG_SCHEMA, **changed}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """All fields, in the order of their definition."""
        return {name: getattr(self, name) for name in DEFAULTS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GemmConfig:
        """A config from some of its fields; the others keep their defaults.

        Raises:
            ValueError: not a mapping, an unknown field, or a value of the wrong type.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"config: {values!r} is not a mapping of field names to values")
        unknown = sorted(set(values) - set(DEFAULTS))
        if unknown:
            raise ValueError(f"config: unknown field {', '.join(map(repr, unknown))}; known: {', '.join(DEFAULTS)}")
        for name, value in values.items():
            wanted = type(DEFAULTS[name])
            if type(value) is not wanted:
                raise ValueError(f"config: {name}={value!r} must be {wanted.__name__}, not {type(value).__name__}")
        return cls(**values)

    def changes(self) -> dict[str, Any]:
        """Only the fields that differ from the defaults."""
        return {name: value for name, value in self.to_dict().items() if value != DEFAULTS[name]}


DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(GemmConfig)}


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
        hopper: whether it multiplies exact bf16 values with Hopper's wgmma (sm_90 only).
    """

    a_mode: str
    b_layout: str
    specialize: str = "runtime"
    scale_load: str = "in_place"
    needs_aiter: bool = False
    sliced: bool = False
    hopper: bool = False


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
    "hopper": VariantTraits("open", "rowmajor", "constexpr", "by_tile", hopper=True),
}


def runs_on(variant: str, arch: str) -> bool:
    """Whether a variant is written for a target: prebuilt and MFMA kernels are gfx950's, wgmma is sm_90's."""
    traits = VARIANT_TRAITS[variant]
    if traits.hopper:
        return arch == "sm_90"
    return arch == "gfx950" or not (traits.needs_aiter or traits.sliced)


def resolved_a_mode(config: GemmConfig, shape: Shape, traits: VariantTraits) -> str:
    """"fused" or "prequant"; an open choice left open goes by rows: short A is cheap to quantize in every tile."""
    if traits.a_mode != "open":
        return traits.a_mode
    if config.a_mode != "auto":
        return config.a_mode
    return "fused" if shape.m <= (32 if traits.hopper else 64) else "prequant"


def resolved_scale_load(config: GemmConfig, traits: VariantTraits) -> str:
    """"in_place" or "by_tile"."""
    return traits.scale_load if config.scale_load == "auto" else config.scale_load


def resolved_specialize(config: GemmConfig, traits: VariantTraits) -> str:
    """"runtime" or "constexpr"."""
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
    _check_tiles(config, shape, refuse)
    _check_target(config, arch, refuse)
    if variant is not None:
        traits = VARIANT_TRAITS[variant]
        _check_variant(config, traits, variant, refuse)
        if traits.hopper:
            _check_hopper(config, shape, arch, refuse)
        if traits.sliced:
            _check_sliced(config, shape, arch, refuse)
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


def _check_target(config: GemmConfig, arch: str, refuse: Refuse) -> None:
    """What one architecture has and the other lacks."""
    if arch == "gfx950":
        # dot_scaled becomes a scaled MFMA only from two waves up; with one Triton silently emits bf16 MFMA.
        if config.num_warps < 2:
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


def _check_sliced(config: GemmConfig, shape: Shape, arch: str, refuse: Refuse) -> None:
    """Variants whose waves divide K: layouts are the MFMA's, and most other axes do not exist."""
    if arch != "gfx950":
        refuse("block_k", f"no value works on {arch}: sliced variants are written for gfx950's MFMA")
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
            ("matrix_instr_nonkdim", "the layouts are those of 16x16x128"), ("num_stages", "there is no pipeline"),
            ("accumulate", "always in place"), ("scale_load", "by dword where it can be"),
            ("assume", "sizes are known"), ("row_tail", "rows past the end repeat the last"),
            ("masks", "only where needed"),
            ("offset_bits", "buffer addressing"), ("split_order", "parts lie far apart")):
        if getattr(config, name) != DEFAULTS[name]:
            refuse(name, f"must be {DEFAULTS[name]!r} in sliced variants: {reason}")
    if config.specialize == "runtime":
        refuse("specialize", "must be 'auto' or 'constexpr' in sliced variants")


def _check_hopper(config: GemmConfig, shape: Shape, arch: str, refuse: Refuse) -> None:
    """The variant for wgmma: decoded B is its register operand, and most of AMD's axes do not exist."""
    if arch != "sm_90":
        refuse("convert", f"no value works on {arch}: hopper is written for sm_90's wgmma and bf16 arithmetic")
    # wgmma's M axis is 64 rows of B per four warps; other pairs decode rows twice or leave warps idle.
    if config.num_warps not in (4, 8, 16) or config.block_n != 16 * config.num_warps:
        refuse("block_n", "must be 64, 128 or 256 with 4, 8 or 16 warps in hopper: 64 rows of B per warp group")
    if config.block_m < 16:
        refuse("block_m", "must be 16 to 256 in hopper")
    if needed_offset_bits(config, shape) == 64:
        refuse("offset_bits", f"no value works on {shape} in hopper: its offsets are 32 bits wide")
    for name, reason in (
            ("group_m", "row tiles are the slowest axis of the grid"), ("cache_modifier", "loads are async copies"),
            ("accumulate", "always in place"), ("load_order", "the pipeline decides"), ("scale_load", "by tile"),
            ("assume", "sizes are known"), ("row_tail", "always masked"), ("masks", "only where needed"),
            ("offset_bits", "32"), ("split_order", "splits are the second axis of the grid"),
            ("reduce_form", "the last program of a tile adds"), ("reduce_block_m", "it adds its own tile"),
            ("reduce_block_n", "it adds its own tile"), ("reduce_num_warps", "it adds its own tile")):
        if getattr(config, name) != DEFAULTS[name]:
            refuse(name, f"must be {DEFAULTS[name]!r} in hopper: {reason}")
    if config.specialize == "runtime":
        refuse("specialize", "must be 'auto' or 'constexpr' in hopper")
