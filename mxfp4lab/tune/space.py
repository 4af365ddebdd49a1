"""Which configs are looked at on a shape: a product of tile axes, known submissions' own, neighbours of the best.

Nothing here knows times. Two configs that stand for the same machine code on the shape (a split that is clamped, an
axis that the variant does not read) are one candidate, by the hash of their plan.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mxfp4lab import hardware
from mxfp4lab.config import (
    CHOICES,
    DEFAULTS,
    VARIANTS,
    GemmConfig,
    config_errors,
    effective_split,
    resolved_a_mode,
    runs_on,
)
from mxfp4lab.gfx950 import plan_hash
from mxfp4lab.plan import COOPERATIVE_TILES, Plan, build_plan, default_config, known_configs, smallest_part
from mxfp4lab.shapes import Shape

MAX_FIRST_OF_A_SPACE = 8
"""Of a space that a submission searched on its box, this many are looked at before ours take turns."""
MAX_ACCUMULATOR_VGPRS = 64
"""Registers a lane spends on the C tile: beyond this nothing is left for operands, and published configs stop there."""
MAX_WORKGROUPS_PER_CU = 4

# Axes that one workgroup's counts do not see: only a clock can choose along them.
CLOCK_AXES: dict[str, tuple] = {"cache_modifier": ("", ".cg"), "xcd_remap": (0, 8), "group_m": (1, 4, 8)}
# Axes that change the machine code of a workgroup, tried around the best, most influential first.
CODE_AXES: dict[str, tuple] = {
    "convert": ("hw_f32", "hw_bf16", "sw_bits"),
    "num_stages": (1, 2, 3),
    "waves_per_eu": (0, 1, 2, 3, 4),
    "num_warps": (2, 4, 8, 16),
    "matrix_instr_nonkdim": (16, 32),
    "block_m": (4, 8, 16, 32, 64, 128),
    "block_n": (32, 64, 128, 256),
    "block_k": (128, 256, 512, 1024),
    "split_k": (1, 2, 4, 7, 8, 14, 16),
    "tiles_n": (1, 2, 3, 4, 7),
    "quant_block_m": (4, 8, 16, 32),
    "quant_block_k": (64, 128, 256, 512),
    "quant_num_warps": (1, 2, 4),
    "reduce_block_m": (1, 4, 16, 32),
    "reduce_block_n": (64, 128, 256),
    "reduce_num_warps": (1, 2, 4),
}
# What the product of tiles has tried, or the plan chooses.
FIXED_AXES = ("a_mode",)
# Any other axis is searched over all of its values: a new one needs no entry here.
CODE_AXES |= {name: values for name, values in CHOICES.items() if name not in {*CODE_AXES, *CLOCK_AXES, *FIXED_AXES}}


@dataclass(frozen=True)
class Candidate:
    """One config worth looking at.

    Attributes:
        origins: known submissions that use it; empty for our own.
        prior_us: only for the order of work, see `prior_us`.
        kernel_hash: of the plan; two candidates with equal hashes are the same machine code.
        distance: axes on which it differs from its variant's default for the shape; of equal times the nearer one is
            preferred, since the default may know what a model does not see.
    """

    variant: str
    config: GemmConfig
    origins: tuple[str, ...]
    prior_us: float
    plan: Plan
    kernel_hash: str
    distance: int = 0


Proposal = tuple[str, GemmConfig, tuple[str, ...]]
"""(variant, config, origins)"""


@dataclass(frozen=True)
class Space:
    """What was enumerated on a shape.

    Attributes:
        enumerated: proposals before anything is judged.
        candidates: valid and distinct, in the order in which they are to be looked at.
        refused: (variant, config, every reason) of invalid ones.
        duplicates: valid ones whose machine code another candidate stands for.
    """

    enumerated: int
    candidates: tuple[Candidate, ...]
    refused: tuple[tuple[str, GemmConfig, str], ...]
    duplicates: int


def searchable_variants(arch: str = "gfx950") -> tuple[str, ...]:
    """What a search takes unless told otherwise: every variant written for the target that has a tile of ours."""
    return tuple(name for name in VARIANTS if runs_on(name, arch) and not VARIANTS[name].needs_aiter)


def not_searched(arch: str = "gfx950") -> dict[str, str]:
    """The other variants, and why each is left out."""
    other = "sm_90" if arch == "gfx950" else "gfx950"
    return {
        name: "aiter's prebuilt GEMM has nothing to tune" if runs_on(name, arch) else f"runs on {other} only"
        for name in VARIANTS
        if name not in searchable_variants(arch)
    }


def enumerate_space(
    shape: Shape, variants: Sequence[str], arch: str = "gfx950", extra: Iterable[tuple[str, GemmConfig]] = ()
) -> Space:
    """Every config worth considering on the shape: `extra` first, then submissions' own, then variants by turns.

    Args:
        variants: names of ``VARIANTS`` that are written for the target.
        extra: (variant, config) pairs to look at besides.
    """
    pairs: dict[tuple[str, GemmConfig], list[str]] = {}
    for known in known_configs(shape):
        if known.variant in variants:
            pairs.setdefault((known.variant, for_arch(known.config, arch)), []).append(known.label)
    asked = list(extra)
    for pair in asked:
        pairs.setdefault(pair, [])
    for variant in variants:
        base = default_config(variant, shape, arch)
        for config in (base, *_tile_product(shape, variant, base, arch)):
            pairs.setdefault((variant, config), [])
    space = judge(shape, ((v, c, tuple(origins)) for (v, c), origins in pairs.items()), arch)
    ordered = sorted(_take_turns(space.candidates, arch), key=lambda c: (c.variant, c.config) not in asked)
    return replace(space, candidates=tuple(ordered))


def judge(
    shape: Shape, proposals: Iterable[Proposal], arch: str, seen: Iterable[str] = (), planned: dict | None = None
) -> Space:
    """Split proposals into candidates, in their order, refused ones and duplicates.

    Args:
        seen: kernel hashes of candidates that are known already.
        planned: (variant, config) -> plan and hash, or None and the reasons; kept by the caller between calls.
    """
    planned = {} if planned is None else planned
    seen = set(seen)
    fresh: dict[str, Candidate] = {}
    defaults: dict[str, GemmConfig] = {}
    refused = []
    total = duplicates = 0
    for variant, config, origins in proposals:
        total += 1
        if (variant, config) not in planned:
            planned[variant, config] = _plan(variant, config, shape, arch)
        plan, digest = planned[variant, config]
        if plan is None:
            refused.append((variant, config, digest))
        elif digest in seen or digest in fresh:
            duplicates += 1
            # A known submission's config keeps its mark, also where another config came first.
            if digest in fresh and origins:
                first = fresh[digest]
                fresh[digest] = replace(first, origins=tuple(dict.fromkeys([*first.origins, *origins])))
        else:
            base = defaults.setdefault(variant, default_config(variant, shape, arch))
            distance = sum(getattr(config, name) != getattr(base, name) for name in DEFAULTS)
            prior = prior_us(variant, config, shape)
            fresh[digest] = Candidate(variant, config, origins, prior, plan, digest, distance)
    return Space(total, tuple(fresh.values()), tuple(refused), duplicates)


def _plan(variant: str, config: GemmConfig, shape: Shape, arch: str) -> tuple[Plan | None, str]:
    """A plan and its hash, or None and why there is none."""
    reasons = config_errors(config, shape, arch, variant)
    if reasons:
        return None, "; ".join(reasons)
    try:
        plan = build_plan(variant, config, shape, arch)
        return plan, plan_hash(plan, arch)
    except ValueError as error:
        return None, str(error)


def neighbours(shape: Shape, variant: str, config: GemmConfig, arch: str, clock: bool) -> Iterator[Proposal]:
    """Valid configs that differ from one in a single axis, most influential axes first.

    Args:
        clock: also along the axes that only a clock can judge.
    """
    for name, values in {**CODE_AXES, **(CLOCK_AXES if clock else {})}.items():
        for value in values:
            if value != getattr(config, name):
                proposal = replace(config, **{name: value})
                if not config_errors(proposal, shape, arch, variant):
                    yield variant, proposal, ()


def for_arch(config: GemmConfig, arch: str) -> GemmConfig:
    """The same config without what another target lacks: hardware converts and AMD's own knobs."""
    if arch == "gfx950":
        return config
    convert = "sw_bits" if config.convert.startswith("hw_") else config.convert
    return replace(config, convert=convert, waves_per_eu=0, matrix_instr_nonkdim=16, xcd_remap=0)


def _take_turns(candidates: Iterable[Candidate], arch: str) -> Iterator[Candidate]:
    """Variants by turns, each in the order of its prior, so that no variant's misjudged prior starves another."""
    home = arch == "gfx950"
    # The prior and the submissions speak of an MI355X: elsewhere the variant's default for the target goes first.
    ordered = sorted(candidates, key=lambda c: (not home and c.distance > 0, c.prior_us, c.config.config_id))
    lines: dict[str, list[Candidate]] = {}
    for candidate in sorted(ordered, key=lambda c: list(VARIANTS).index(c.variant)):
        lines.setdefault(candidate.variant, []).append(candidate)
    # Whatever the prior says, a submission's own choice goes first, and of a space that a submission searched the
    # most promising few.
    known = [c for c in ordered if c.origins and home]
    own = [c for c in known if any("_space" not in origin for origin in c.origins)]
    own += [c for c in known if c not in own][:MAX_FIRST_OF_A_SPACE]
    yield from own
    taken = {c.kernel_hash for c in own}
    for rank in range(max(map(len, lines.values()), default=0)):
        for line in lines.values():
            if rank < len(line) and line[rank].kernel_hash not in taken:
                yield line[rank]


# -- the product of tile axes -----------------------------------------------------------------------------------------

_SPLITS = (1, 2, 4, 7, 8, 14)
_WIDTHS = ((16, 1), (32, 1), (64, 1), (32, 3), (16, 7), (128, 1), (64, 3), (256, 1))  # columns, tiles side by side
_NARROW = tuple((size, 1) for size in (32, 64, 128, 256))


def _tile_product(shape: Shape, variant: str, base: GemmConfig, arch: str) -> Iterator[GemmConfig]:
    """Configs of a variant over the axes that decide most; nothing for a variant without a tile of ours."""
    traits = VARIANTS[variant]
    modes = ("fused", "prequant") if traits.a_mode == "open" else (base.a_mode,)
    rows, widths, steps, waves, stages, splits = (16, 32, 64), _WIDTHS, (128, 256), (4, 8), (base.num_stages,), _SPLITS
    if traits.needs_aiter:
        return
    if traits.cooperative:
        widths, splits = COOPERATIVE_TILES, (1,)
    elif traits.sliced:
        waves = (4, 8, 16)
    elif traits.hopper:
        rows, widths, steps, stages = (16, 32, 64, 128), _NARROW, (256, 512), (1, 2, 3, 4)
    else:
        # For a fused A no row tile so large that its conversion fills the registers.
        rows = (4, 8, 16, 32, 64) if traits.a_mode == "fused" else (4, 8, 16, 32, 64, 128)
        widths, steps = _NARROW, (256, 512)
    for mode, block_m, (block_n, tiles_n), block_k, num_warps, num_stages, split_k in itertools.product(
        modes, rows, widths, steps, waves, stages, splits
    ):
        config = replace(
            base, a_mode=mode, block_m=block_m, block_n=block_n, tiles_n=tiles_n, block_k=block_k, num_warps=num_warps,
            num_stages=num_stages, split_k=split_k,
        )  # fmt: skip
        if traits.sliced and split_k > 1:  # summed by the last workgroup to arrive: it saves the second launch
            config = replace(config, split_sum="inside")
        if traits.cooperative:  # larger parts are neighbours of the best
            config = replace(config, quant_block_k=smallest_part(shape, block_m))
        if traits.hopper:  # 64 rows of B for every four warps; a stage is a step of K
            fits = block_n == 16 * num_warps and num_stages <= max(1, shape.k // block_k)
        else:
            fits = block_n <= shape.n and not (traits.cooperative and config_errors(config, shape, arch, variant))
        if fits and _is_useful(config, shape, num_warps if traits.sliced else 1, traits.sliced or traits.hopper):
            yield config


def _is_useful(config: GemmConfig, shape: Shape, waves: int, whole_rows: bool) -> bool:
    """Whether a tile is not mostly padding, fits in registers, and a split finds idle compute units and work.

    Args:
        waves: that divide K, each holding the whole tile.
        whole_rows: the kernel has no row tile below 16.
    """
    columns, lanes = config.block_n * config.tiles_n, 64 * config.num_warps // waves
    least = 16 if whole_rows else max(4, 1 << (shape.m - 1).bit_length())
    padded = config.block_m >= 2 * max(shape.m, 16) or config.block_m < min(16, least)
    if padded or config.block_m * columns > MAX_ACCUMULATOR_VGPRS * lanes:
        return False
    if config.block_k * waves > max(512 if waves > 1 else 256, shape.k):
        return False
    steps = -(-shape.k // (config.block_k * waves))
    tiles, cus = -(-shape.m // config.block_m) * -(-shape.n // columns), hardware.COMPUTE_UNITS
    # An H200's 132 SMs ask for splits at much the same tile counts as the MI355X's compute units.
    idle = tiles < cus and tiles * config.split_k <= MAX_WORKGROUPS_PER_CU * cus
    return config.split_k == 1 or (config.split_k <= steps and idle)


_LAUNCH_US = 4.7  # a further launch, by published times
_VALU_PER_CONVERTED = {"hw_f32": 1.2, "hw_bf16": 1.0, "sw_bits": 6.0, "sw_aiter": 9.0}
_STEP_VALU = 60.0  # addresses, waits and scales of one step along K
_TILE_VALU = 200.0  # prologue and epilogue


def prior_us(variant: str, config: GemmConfig, shape: Shape) -> float:
    """How promising a config looks before anything is compiled: only the order of work, never shown as a time.

    VALU and MFMA issue of one wave, times the waves that share a SIMD, plus launches; calibrated by eye to counted
    instructions of our kernels. A bad guess here costs budget, not correctness.
    """
    traits = VARIANTS[variant]
    if traits.needs_aiter:
        return 0.0  # nothing to choose: look at it first
    waves = config.num_warps if traits.sliced else 1  # waves that divide K, not the tile
    split = effective_split(config, shape, waves)
    fused = resolved_a_mode(config, shape, traits) == "fused"
    lanes = hardware.WAVE_LANES * config.num_warps // waves
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
        valu += config.block_m * columns / hardware.WAVE_LANES  # the tiles of the waves meet in LDS
    mfma = steps * max(config.block_m, 16) * columns * config.block_k / (16 * 16 * 128) * waves / config.num_warps
    workgroups = -(-shape.m // config.block_m) * -(-shape.n // columns) * split
    shared = max(1.0, -(-workgroups // hardware.COMPUTE_UNITS) * config.num_warps / hardware.SIMDS_PER_CU)
    # Accumulators and the B tile in flight, in registers of a lane; beyond what a lane has they spill.
    registers = config.block_m * columns / lanes + packed_words * config.num_stages + converted / 2
    spill = 1.0 + max(0.0, registers - 200.0) / 100.0
    cycles = valu * hardware.VALU_CYCLES + mfma * hardware.MFMA_CYCLES["16x16x128"]
    launches = (split > 1 and config.split_sum == "launch") + (not fused)
    return cycles / hardware.CLOCK_HZ * 1e6 * shared * spill + launches * _LAUNCH_US
