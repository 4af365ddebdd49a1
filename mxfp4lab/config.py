"""The axes of the search, what each variant reads of them, and the one statement of which settings are valid.

A `GemmConfig` says how a variant is run on a shape; the variant says what is run. Nothing here compiles: what only the
compiler can tell (registers, spills, the last word on LDS) is judged after compilation.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mxfp4lab.hardware import COMPUTE_UNITS, LDS_BYTES, MAX_WORKGROUP_THREADS, SM90_SHARED_BYTES, WAVE_LANES, XCDS
from mxfp4lab.shapes import Shape, parse_shape

CONFIG_SCHEMA = 1

RETIRED: dict[str, Any] = {
    "split_order": "outer", "specialize": "auto", "scale_load": "auto", "row_tail": "wrap", "masks": "needed",
    "accumulate": "in_place", "assume": "on", "offset_bits": 0, "reduce_form": "loop",
}  # fmt: skip
"""Axes of earlier versions and their defaults, as records still hold them; data/ideas.csv says what they were worth."""

MAX_WAVES = MAX_WORKGROUP_THREADS // WAVE_LANES
PER_XCD = COMPUTE_UNITS // XCDS


def axis(default: Any, *allowed: Any) -> Any:
    """A field, its default, and its values: those given, or all of a range."""
    values = allowed[0] if isinstance(allowed[0], range) else allowed
    return dataclasses.field(default=default, metadata={"values": values})


def powers(default: int, low: int, high: int) -> Any:
    """A field of powers of two: tl.arange takes no other."""
    return axis(default, *(1 << bit for bit in range(high.bit_length()) if low <= 1 << bit))


@dataclass(frozen=True)
class GemmConfig:
    """One point of the search space. Sizes count logical elements (K never packed bytes).

    Attributes:
        block_m, block_n, block_k: the tile of C and the step along K of one workgroup (sliced: of one wave).
        split_k: slices of K, each summed by its own workgroup; clamped to the number of K tiles.
        num_warps: waves of 64 lanes per workgroup (32 lanes on CUDA).
        num_stages: depth of Triton's software pipeline over the K loop.
        waves_per_eu: waves per SIMD that the register allocator must leave room for; 0 leaves it to the compiler.
        matrix_instr_nonkdim: 16 for MFMA 16x16x128, 32 for 32x32x64.
        cache_modifier: of the loads of B and its scales.
        group_m: row tiles that are visited before the next column tile.
        xcd_remap: number of XCDs over which programs are regrouped; 0 leaves the hardware's round robin.
        convert: bf16 to MXFP4, see ``kernels.convert``.
        quant_block_m, quant_block_k, quant_num_warps: the quantize kernel; cooperative: quant_block_k is a part of A.
        reduce_block_m, reduce_block_n, reduce_num_warps: the reduce kernel, where K is split.
        a_mode: where A is quantized, for the variant that leaves it open ("auto": by the rows of A).
        load_order: every load before the first conversion, or wherever the compiler likes.
        amax: how a lane finds the largest magnitude of its block, see ``kernels.block``.
        tiles_n: neighbouring tiles of C per workgroup, block_n columns each.
        split_sum: parts of a split K summed by a second launch, or by the last workgroup to arrive.
        a_path: A read by the lanes that multiply it, or row by row and passed through LDS.
        retired: (name, value) of `RETIRED` axes that an old record holds away from their default: shown, never built.
    """

    block_m: int = powers(16, 4, 256)  # below 4 rows dot_scaled has no layout; above 256 nothing fits in registers
    block_n: int = powers(64, 16, 512)
    block_k: int = powers(256, 64, 1024)
    split_k: int = axis(1, 1, 2, 4, 7, 8, 14, 16, 32)  # 7 and 14 divide the 28 K tiles of K = 7168 evenly
    num_warps: int = powers(4, 1, MAX_WAVES)
    num_stages: int = axis(2, range(1, 5))
    waves_per_eu: int = axis(0, range(9))  # a SIMD holds 8
    matrix_instr_nonkdim: int = axis(16, 16, 32)
    cache_modifier: str = axis("", "", ".ca", ".cg", ".cv")
    group_m: int = axis(1, range(1, 65))
    xcd_remap: int = axis(0, 0, 2, 4, 8)  # 8 XCDs; the others are partition modes of the same chip
    convert: str = axis("hw_f32", "hw_f32", "hw_bf16", "sw_bits", "sw_aiter")
    quant_block_m: int = powers(16, 1, 256)
    quant_block_k: int = powers(256, 64, 4096)  # with one scale block a tile of scales would have a single column
    quant_num_warps: int = powers(4, 1, MAX_WAVES)
    reduce_block_m: int = powers(16, 1, 256)
    reduce_block_n: int = powers(64, 16, 1024)
    reduce_num_warps: int = powers(4, 1, MAX_WAVES)
    a_mode: str = axis("auto", "auto", "fused", "prequant")
    load_order: str = axis("loads_first", "loads_first", "convert_first")
    amax: str = axis("max3", "max3", "packed_max")
    tiles_n: int = axis(1, range(1, 9))
    split_sum: str = axis("launch", "launch", "inside")
    a_path: str = axis("direct", "direct", "staged")
    retired: tuple[tuple[str, Any], ...] = ()

    @property
    def config_id(self) -> str:
        """12 hex digits of what differs from the defaults: an axis more or less leaves the ids of old configs alone."""
        text = json.dumps({"schema": CONFIG_SCHEMA, **self.changes()}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def columns(self) -> int:
        """Columns of C of one workgroup."""
        return self.block_n * self.tiles_n

    def to_dict(self) -> dict[str, Any]:
        """All fields, in the order of their definition, and what an old record holds besides."""
        return {**{name: getattr(self, name) for name in DEFAULTS}, **dict(self.retired)}

    def changes(self) -> dict[str, Any]:
        """Only the fields that differ from the defaults."""
        return {name: value for name, value in self.to_dict().items() if DEFAULTS.get(name) != value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GemmConfig:
        """A config from some of its fields; the others keep their defaults. Retired axes are read as well.

        Raises:
            ValueError: not a mapping, an unknown field, or a value of the wrong type.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"config: {values!r} is not a mapping of field names to values")
        known = DEFAULTS | RETIRED
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"config: unknown field {', '.join(map(repr, unknown))}; known: {', '.join(DEFAULTS)}")
        for name, value in values.items():
            wanted = type(known[name])
            if type(value) is not wanted:
                raise ValueError(f"config: {name}={value!r} must be {wanted.__name__}, not {type(value).__name__}")
        retired = tuple((name, values[name]) for name in RETIRED if values.get(name, RETIRED[name]) != RETIRED[name])
        return cls(**{name: value for name, value in values.items() if name in DEFAULTS}, retired=retired)


CHOICES: dict[str, Sequence[Any]] = {
    field.name: field.metadata["values"] for field in dataclasses.fields(GemmConfig) if field.metadata
}
DEFAULTS: dict[str, Any] = {name: getattr(GemmConfig, name) for name in CHOICES}

_QUANTIZE = ("quant_block_m", "quant_block_k", "quant_num_warps")
_REDUCE = ("reduce_block_m", "reduce_block_n", "reduce_num_warps")
_TILE = ("block_m", "block_n", "block_k", "num_warps", "waves_per_eu", "cache_modifier", "convert")
_PORTABLE = (*_TILE, "split_k", "num_stages", "matrix_instr_nonkdim", "group_m", "xcd_remap", *_REDUCE)
_SLICED = (*_TILE, "tiles_n", "amax")


@dataclass(frozen=True)
class Variant:
    """A way to compute C: what it fixes, and which axes it leaves to the config; `plan` builds it.

    Attributes:
        about: one line for people.
        a_mode: where A is quantized: "fused", "prequant", or "open" (the config or a rule decides per shape).
        b_layout: "rowmajor" or "preshuffled".
        axes: the fields of a config that it reads.
        arches: targets that it is written for; None: every one.
        constexpr: whether M, N and K are compile-time constants.
        needs_aiter: whether its GEMM is aiter's prebuilt code object.
        sliced: whether the waves of a workgroup divide K among them.
        cooperative: whether the workgroups of an XCD quantize A together (a sliced variant).
        hopper: whether it multiplies exact bf16 values with Hopper's wgmma.
        caveat: what a modelled time of it leaves open, "" if nothing.
    """

    about: str
    a_mode: str
    b_layout: str
    axes: tuple[str, ...]
    arches: tuple[str, ...] | None = None
    constexpr: bool = False
    needs_aiter: bool = False
    sliced: bool = False
    cooperative: bool = False
    hopper: bool = False
    caveat: str = ""


_HANDSHAKE = (
    "workgroups wait for each other, of which no published time exists: beyond the round trips that nothing covers, "
    "the model takes that as free"
)
_CDNA4 = ("gfx950",)
VARIANTS: dict[str, Variant] = {
    "reference": Variant(
        "the task's: quantize A, shuffle its scales, aiter's prebuilt GEMM",
        "prequant", "preshuffled", ("convert", *_QUANTIZE), _CDNA4, needs_aiter=True,
    ),
    "quant_shuffle_asm": Variant(
        "one kernel quantizes A and shuffles its scales, then aiter's prebuilt GEMM",
        "prequant", "preshuffled", ("convert", *_QUANTIZE), _CDNA4, needs_aiter=True,
    ),
    "fused_rowmajor": Variant(
        "A quantized inside the GEMM, B row-major, scales read in place", "fused", "rowmajor", _PORTABLE,
    ),
    "prequant_rowmajor": Variant(
        "A quantized once by its own kernel, B row-major, scales read in place",
        "prequant", "rowmajor", (*_PORTABLE, *_QUANTIZE),
    ),
    "fused_preshuffled": Variant(
        "A quantized inside the GEMM, B and scales un-permuted in registers", "fused", "preshuffled", _PORTABLE,
    ),
    "prequant_preshuffled": Variant(
        "A quantized once by its own kernel, B and scales un-permuted in registers",
        "prequant", "preshuffled", (*_PORTABLE, *_QUANTIZE),
    ),
    "constexpr_preshuffled": Variant(
        "as fused_preshuffled, every size a compile-time constant", "fused", "preshuffled", _PORTABLE, constexpr=True,
    ),
    "sliced_preshuffled": Variant(
        "the waves of a workgroup divide K, each quantizes what it multiplies",
        "fused", "preshuffled", (*_SLICED, "split_k", "split_sum", "a_path", "load_order", "xcd_remap", *_REDUCE),
        _CDNA4, constexpr=True, sliced=True,
    ),
    "cooperative_preshuffled": Variant(
        "one launch; the workgroups of an XCD quantize A once and share it through their L2",
        "fused", "preshuffled", (*_SLICED, "quant_block_k"), _CDNA4, constexpr=True, sliced=True, cooperative=True,
        caveat=_HANDSHAKE,
    ),
    "hopper": Variant(
        "NVIDIA sm_90 only: the same bits by exact bf16 arithmetic on wgmma; wants |A| < 2^120", "open", "rowmajor",
        ("block_m", "block_n", "block_k", "split_k", "num_warps", "num_stages", "convert", "a_mode", *_QUANTIZE),
        ("sm_90",), constexpr=True, hopper=True,
    ),
}  # fmt: skip


def check_variant(variant: object) -> str:
    """The name itself.

    Raises:
        ValueError: no variant has it.
    """
    if variant == "hybrid":
        raise ValueError(
            "variant='hybrid' is no variant any more: `export --candidates` carries fused_rowmajor and "
            "prequant_rowmajor in one file, which keeps the faster"
        )
    if not isinstance(variant, str) or variant not in VARIANTS:
        raise ValueError(f"variant={variant!r} is unknown; known: {', '.join(VARIANTS)}")
    return variant


def runs_on(variant: str, arch: str) -> bool:
    """Whether a variant is written for a target: prebuilt and MFMA kernels are gfx950's, wgmma is sm_90's."""
    arches = VARIANTS[variant].arches
    return arches is None or arch in arches


def resolved_a_mode(config: GemmConfig, shape: Shape, variant: Variant) -> str:
    """ "fused" or "prequant"; an open choice left open goes by rows: short A is cheap to quantize in every tile."""
    if variant.a_mode != "open":
        return variant.a_mode
    return config.a_mode if config.a_mode != "auto" else "fused" if shape.m <= 32 else "prequant"


def waves_along_k(config: GemmConfig, variant: Variant) -> int:
    """Waves that divide a slice of K among them; 1 where they share its K tiles."""
    return config.num_warps if variant.sliced else 1


def effective_split(config: GemmConfig, shape: Shape, waves: int = 1) -> int:
    """Slices of K that hold work: at most one per K tile, and none is empty.

    ``tiles = ceil(K / (block_k * waves))``, ``per = ceil(tiles / min(split_k, tiles))``, ``ceil(tiles / per)``.

    Args:
        waves: see `waves_along_k`.
    """
    tiles = -(-shape.k // (config.block_k * waves))
    per_split = -(-tiles // min(config.split_k, tiles))
    return -(-tiles // per_split)


def live_axes(config: GemmConfig, shape: Shape, variant: Variant) -> tuple[str, ...]:
    """The axes that matter here: those that the variant reads, less a quantize or reduce kernel's that does not run."""
    idle: tuple[str, ...] = ()
    if effective_split(config, shape, waves_along_k(config, variant)) == 1:
        idle += _REDUCE
    if resolved_a_mode(config, shape, variant) == "fused" and not variant.cooperative:
        idle += _QUANTIZE
    return tuple(name for name in variant.axes if name not in idle)


def config_errors(
    config: GemmConfig, shape: Shape | str, arch: str = "gfx950", variant: str | None = None
) -> list[str]:
    """Why this config cannot run on this shape; empty if it can.

    Every message names the parameter, its value and what is allowed. Compilation may still refuse a config: LDS is
    bounded from below here, and the compiler has the last word.

    Args:
        config: the config.
        shape: the GEMM's shape.
        arch: "gfx950" or a CUDA target as "sm_90".
        variant: a name of ``VARIANTS``; without it only what holds for every variant is judged.

    Raises:
        ValueError: an unknown variant or architecture.
    """
    shape = parse_shape(shape)
    if not isinstance(config, GemmConfig):
        raise ValueError(f"config={config!r} is no GemmConfig; GemmConfig.from_dict makes one of a mapping")
    traits = None if variant is None else VARIANTS[check_variant(variant)]
    if not isinstance(arch, str) or (arch != "gfx950" and not arch.startswith("sm_")):
        raise ValueError(f"arch={arch!r} is unknown; known: gfx950, sm_90 and other sm_NN")
    errors: list[str] = []

    def require(holds: bool, name: str, allowed: str) -> None:
        if not holds:
            errors.append(f"{name}={getattr(config, name)!r}: {allowed}")

    _check_values(config, require)
    if errors:  # the clauses below compute with the values
        return errors
    if variant is not None and not runs_on(variant, arch):  # no config helps: wgmma, MFMA or a prebuilt code object
        return [f"variant={variant!r} runs on {', '.join(VARIANTS[variant].arches or ())} only, not on {arch}"]
    _check_target(config, arch, require, traits is not None and traits.sliced)
    # Triton refuses a tensor of more than 2^20 elements.
    largest = max(config.block_n * config.block_k // 2, config.quant_block_m * config.quant_block_k)
    require(largest <= 2**20, "block_k", "the tile must hold at most 2^20 elements")
    split = effective_split(config, shape, 1 if traits is None else waves_along_k(config, traits))
    require(split * shape.m * shape.n < 2**31, "split_k", f"must be smaller on {shape}: partials beyond 2^31 elements")
    if traits is None:
        return errors
    for name, default in DEFAULTS.items():
        # The small kernels' axes say nothing where those do not run, and old records hold them.
        if name not in (*traits.axes, *_QUANTIZE, *_REDUCE):
            require(
                getattr(config, name) == default, name, f"must be {default!r} for {variant}, which does not read it"
            )
    if traits.cooperative:
        _check_cooperative(config, shape, require)
    if traits.sliced:
        _check_sliced(config, shape, split, require)
    elif traits.hopper:
        # wgmma's M axis is 64 rows of B per four warps; other pairs decode rows twice or leave warps idle.
        pairs = config.num_warps in (4, 8, 16) and config.block_n == 16 * config.num_warps
        require(pairs, "block_n", "must be 64, 128 or 256 with 4, 8 or 16 warps in hopper: 64 rows of B per warp group")
        require(config.block_m >= 16, "block_m", "must be 16 to 256 in hopper")
    if traits.hopper or (traits.b_layout == "preshuffled" and not traits.sliced and not traits.needs_aiter):
        # The e8m0 shuffle interleaves 8 columns (256 elements of K) and 32 rows: a tile holds whole pieces.
        require(config.block_k >= 256, "block_k", "must be at least 256 where shuffled scales are loaded by tile")
        require(config.block_n >= 32, "block_n", "must be at least 32 where shuffled scales are loaded by tile")
    if not errors and not traits.needs_aiter:
        needed, limit = least_lds(config, shape, traits, arch), LDS_BYTES if arch == "gfx950" else SM90_SHARED_BYTES
        require(needed <= limit, "block_k", f"the tile takes {needed} bytes of LDS or more; at most {limit}")
    return errors


Require = Callable[[bool, str, str], None]


def _check_values(config: GemmConfig, require: Require) -> None:
    """Each field alone."""
    for name, allowed in CHOICES.items():
        value, wanted = getattr(config, name), type(DEFAULTS[name])
        several = f"{allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else f"one of {str(allowed)[1:-1]}"
        if type(value) is wanted:
            require(value in allowed, name, f"must be {several}")
        else:
            require(False, name, f"must be {wanted.__name__}")
    gone = ", ".join(f"{name}={value!r}" for name, value in config.retired)
    require(not gone, "retired", f"must be empty: {gone} is of an earlier version, whose kernels are gone")


def _check_target(config: GemmConfig, arch: str, require: Require, sliced: bool) -> None:
    """What one architecture has and the other lacks."""
    size = config.matrix_instr_nonkdim
    if arch == "gfx950":
        # dot_scaled becomes a scaled MFMA only from two waves up; with one Triton silently emits bf16 MFMA. Sliced
        # variants name the instruction themselves.
        enough = config.num_warps >= 2 or sliced
        require(enough, "num_warps", "must be 2 or more on gfx950: one wave gets bf16 MFMA instead of scaled MFMA")
        # The same happens when a K tile is shorter than one instruction, and a narrower tile has no layout.
        least = 128 if size == 16 else 64
        require(config.block_k >= least, "block_k", f"must be at least {least} with matrix_instr_nonkdim {size}")
        require(config.block_n >= size, "block_n", f"must be at least matrix_instr_nonkdim ({size})")
        fills = size == 16 or config.block_m >= 32
        require(fills, "matrix_instr_nonkdim", "must be 16 with block_m below 32: half the rows would be padding")
        return
    # v_cvt_scalef32_pk_fp4_* exists on gfx950 only; software gives the same bits.
    require(config.convert[:2] == "sw", "convert", f"must be 'sw_bits' or 'sw_aiter' on {arch}: it is gfx950's")
    for name in ("waves_per_eu", "matrix_instr_nonkdim", "xcd_remap"):
        require(getattr(config, name) == DEFAULTS[name], name, f"must be {DEFAULTS[name]} on {arch}: an AMD knob")


def _check_sliced(config: GemmConfig, shape: Shape, split: int, require: Require) -> None:
    """Variants whose waves divide K: layouts are the MFMA's."""
    # Whole MFMA tiles of 16 rows per wave; more than 64 rows do not fit in registers beside the loads.
    require(config.block_m in (16, 32, 64), "block_m", "must be 16, 32 or 64 in sliced variants")
    require(config.block_n <= 256, "block_n", "must be 16 to 256 in sliced variants")
    require(config.columns <= 256 or config.tiles_n == 1, "tiles_n", "tiles_n x block_n must be at most 256 columns")
    # Buffer instructions reach 2^31 - 2 bytes and read zero beyond, without a trace.
    rows, columns = shape.m + 64, shape.n + 256
    reached = max(2 * rows * shape.k, 4 * rows * columns) < 2**31
    require(reached, "block_m", f"no value works on {shape}: A or C is larger than buffer addressing reaches")
    reached = not reached or 4 * split * rows * columns < 2**31
    require(reached, "split_k", f"must be smaller on {shape}: partial results beyond 2^31 bytes are out of reach")
    require(config.split_sum == "launch" or split > 1, "split_sum", "must be 'launch' where K is not split")
    # One MFMA step, or the two whose scales share a dword.
    require(config.block_k in (128, 256), "block_k", "must be 128 or 256 in sliced variants: the K step of one wave")
    # A lane owns whole scale blocks, two bf16 a register: only this convert takes them so.
    require(config.convert == "hw_bf16", "convert", "must be 'hw_bf16' in sliced variants")


def _check_cooperative(config: GemmConfig, shape: Shape, require: Require) -> None:
    """A workgroup on every compute unit: an XCD has one row tile, and no more parts of A or column tiles than units."""
    tiles_m = math.ceil(shape.m / config.block_m)
    require(tiles_m <= XCDS, "block_m", f"must be larger: {tiles_m} row tiles, each of which takes an XCD of {XCDS}")
    require(shape.k % 256 == 0, "block_k", f"no value works on {shape}: K is no multiple of 256")
    # A wave keeps its half of the dwords of scales from step to step.
    alone = config.num_warps == 1 and config.block_k == 128
    require(not alone, "num_warps", "must be 2 or more with block_k 128 where an XCD shares A")
    # A part is 16 rows, one scale block to a lane.
    require(config.quant_block_m == 16, "quant_block_m", "must be 16 in cooperative variants: the rows of a part of A")
    part = config.quant_block_k
    whole = part >= 128 and shape.k % part == 0
    require(whole, "quant_block_k", f"must be 128 or more and divide K={shape.k}: a part of A is whole steps")
    parts = config.block_m // 16 * (shape.k // part)
    fits = not whole or parts <= PER_XCD
    require(fits, "quant_block_k", f"must be larger: {parts} parts of A for {PER_XCD} workgroups an XCD")
    tiles = math.ceil(math.ceil(shape.n / config.columns) / max(XCDS // tiles_m, 1))
    require(tiles <= PER_XCD, "tiles_n", f"must be larger: {tiles} column tiles an XCD, which has {PER_XCD} workgroups")


def least_lds(config: GemmConfig, shape: Shape, variant: Variant, arch: str) -> int:
    """Bytes of LDS (CUDA: shared memory) that a workgroup needs at least; 0 where no bound is known.

    Read off kernels that Triton 3.9 compiled; what the compiler adds (scales, padding) is left out.
    """
    tiles_k = math.ceil(shape.k / config.block_k)
    stages = min(config.num_stages, tiles_k)
    copies = stages if resolved_a_mode(config, shape, variant) == "prequant" else 1
    if variant.sliced:  # the waves' fp32 tiles side by side, after A where it is staged
        waves = config.num_warps * effective_split(config, shape, config.num_warps)
        staged = 2 * config.block_m * config.block_k * config.num_warps * math.ceil(tiles_k / waves)
        return max(4 * config.num_warps * config.block_m * config.columns, staged if config.a_path == "staged" else 0)
    if variant.hopper:  # A as bf16 values, once a stage if it is loaded so
        return 2 * config.block_m * config.block_k * copies
    if arch != "gfx950":
        return 0
    # Packed A crosses LDS, once a stage if it is loaded so. B does where several waves multiply the same columns: waves
    # are laid out along N until a wave's rows are half as many as its columns, as Triton's backend does it.
    size, rows, columns = config.matrix_instr_nonkdim, 1, 1
    while rows * columns < config.num_warps:
        if config.block_m // (2 * size) // rows >= config.block_n // size // columns and rows < config.block_m // size:
            rows *= 2
        else:
            columns *= 2
    shared = config.block_n * stages if rows > 1 and stages > 1 else 0
    return (config.block_m * copies + shared) * config.block_k // 2
