"""Which configs are looked at on a shape: a product of tile axes, known submissions' own, neighbours of the best.

Nothing here knows times. The order of candidates is a cheap prior; two configs that stand for the same machine code
on the shape (a split that is clamped, for one) are one candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mxfp4lab.config import (
    CHOICES,
    VARIANT_TRAITS,
    GemmConfig,
    check_variant,
    config_errors,
    live_axes,
    runs_on,
)
from mxfp4lab.gfx950 import plan_hash
from mxfp4lab.plan import VARIANTS, Plan, build_plan, known_configs
from mxfp4lab.shapes import Shape
from mxfp4lab.tune.prior import prior_us
from mxfp4lab.tune.product import tile_product

MAX_FIRST_OF_A_SPACE = 8

# Axes that one workgroup's counts do not see: only a clock can choose along them.
CLOCK_AXES: dict[str, tuple] = {
    "cache_modifier": ("", ".cg"),
    "xcd_remap": (0, 8),
    "group_m": (1, 4, 8),
}
# Axes that 03_variants shows one by one: never better at their other values, or chosen by the plan.
FIXED_AXES = ("a_mode",)
# Axes that change the machine code of a workgroup, tried around the best of the product.
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
    "load_order": ("loads_first", "convert_first"),
    "tiles_n": (1, 2, 3, 4, 7),
    "quant_block_m": (4, 8, 16, 32),
    "quant_block_k": (64, 128, 256, 512),
    "quant_num_warps": (1, 2, 4),
    "reduce_block_m": (1, 4, 16, 32),
    "reduce_block_n": (64, 128, 256),
    "reduce_num_warps": (1, 2, 4),
}
# An axis of words that is named nowhere above is searched over all of its values: a new one needs no entry here.
CODE_AXES |= {name: values for name, values in CHOICES.items() if name not in {*CODE_AXES, *CLOCK_AXES, *FIXED_AXES}}


@dataclass(frozen=True)
class Candidate:
    """One config worth looking at.

    Attributes:
        origins: known submissions that use it; empty for our own.
        prior_us: only for the order of work, see `prior`.
        plan: built from variant and config.
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


@dataclass(frozen=True)
class Refused:
    """A config that cannot run on the shape, with every reason."""

    variant: str
    config: GemmConfig
    origins: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Space:
    """What was enumerated on a shape.

    Attributes:
        enumerated: (variant, config) pairs before anything is judged.
        candidates: valid and distinct, most promising first, variants taking turns.
        refused: invalid ones.
        duplicates: valid ones whose machine code another candidate stands for.
    """

    enumerated: int
    candidates: tuple[Candidate, ...]
    refused: tuple[Refused, ...]
    duplicates: int


def searchable_variants(arch: str = "gfx950") -> tuple[str, ...]:
    """What a search takes unless told otherwise: every variant written for the target whose kernels are all ours.

    Prebuilt GEMMs have no tile to tune; they are looked at where they are asked for.
    """
    return tuple(name for name in VARIANTS if runs_on(name, arch) and not VARIANT_TRAITS[name].needs_aiter)


def enumerate_space(
    shape: Shape,
    variants: Sequence[str],
    arch: str = "gfx950",
    extra: Iterable[tuple[str, GemmConfig]] = (),
) -> Space:
    """Every config worth considering on the shape.

    Args:
        variants: names of ``VARIANTS``.
        extra: (variant, config) pairs to look at besides, and first.

    Raises:
        ValueError: unknown variant.
    """
    for variant in variants:
        if not runs_on(check_variant(variant), arch):
            raise ValueError(f"variant={variant!r} is not written for {arch}; that are {', '.join(_written_for(arch))}")
    pairs: dict[tuple[str, GemmConfig], list[str]] = {}
    for known in known_configs(shape):
        if known.variant in variants:
            pairs.setdefault((known.variant, for_arch(known.config, arch)), []).append(known.label)
    asked = list(extra)
    for pair in asked:
        pairs.setdefault(pair, [])
    for variant in variants:
        pairs.setdefault((variant, VARIANTS[variant].default_config(shape, arch)), [])
        for config in tile_product(shape, variant, arch):
            pairs.setdefault((variant, config), [])
    space = judge(shape, ((v, c, tuple(origins)) for (v, c), origins in pairs.items()), arch)
    first = {c.kernel_hash for c in judge(shape, ((v, c, ()) for v, c in asked), arch).candidates}
    ordered = sorted(space.candidates, key=lambda candidate: candidate.kernel_hash not in first)  # a stable sort
    return replace(space, candidates=tuple(ordered))


def judge(
    shape: Shape,
    proposals: Iterable[tuple[str, GemmConfig, tuple[str, ...]]],
    arch: str,
    seen: Iterable[str] = (),
    planned: dict[tuple[str, GemmConfig], tuple[Plan | None, str]] | None = None,
) -> Space:
    """Split proposals into candidates, refused ones and duplicates.

    Args:
        proposals: (variant, config, origins).
        seen: kernel hashes of candidates that are known already.
        planned: (variant, config) -> plan and its hash, or None and the reasons; kept by the caller between calls.
    """
    planned = {} if planned is None else planned
    seen = set(seen)
    fresh: dict[str, Candidate] = {}
    defaults: dict[str, dict] = {}
    refused: list[Refused] = []
    total = duplicates = 0
    for variant, config, origins in proposals:
        total += 1
        if (variant, config) not in planned:
            planned[variant, config] = _plan(variant, config, shape, arch)
        plan, digest = planned[variant, config]
        if plan is None:
            refused.append(Refused(variant, config, origins, digest))
            continue
        if digest in seen or digest in fresh:
            duplicates += 1
            # A known submission's config keeps its mark, also where another config came first.
            if digest in fresh and origins:
                first = fresh[digest]
                fresh[digest] = replace(first, origins=tuple(dict.fromkeys([*first.origins, *origins])))
            continue
        if variant not in defaults:
            defaults[variant] = VARIANTS[variant].default_config(shape, arch).to_dict()
        distance = sum(value != defaults[variant][name] for name, value in config.to_dict().items())
        prior = prior_us(variant, config, shape)
        fresh[digest] = Candidate(variant, config, origins, prior, plan, digest, distance)
    return Space(total, tuple(_take_turns(fresh.values(), arch)), tuple(refused), duplicates)


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


def neighbours(
    shape: Shape, variant: str, config: GemmConfig, arch: str, clock: bool
) -> Iterator[tuple[str, GemmConfig, tuple[str, ...]]]:
    """Valid configs that differ from one in a single axis, most influential axes first.

    Args:
        clock: also along the axes that only a clock can judge.
    """
    axes = {**CODE_AXES, **CLOCK_AXES} if clock else CODE_AXES
    live = live_axes(config, shape, VARIANT_TRAITS[variant])
    for name, values in axes.items():
        if name not in live:
            continue
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


def _written_for(arch: str) -> list[str]:
    return [name for name in VARIANTS if runs_on(name, arch)]


def _take_turns(candidates: Iterable[Candidate], arch: str) -> Iterator[Candidate]:
    """Variants by turns, each in the order of its prior, so that no variant's misjudged prior starves another."""
    lines: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        lines.setdefault(candidate.variant, []).append(candidate)
    home = arch == "gfx950"
    for line in lines.values():
        # The prior and the submissions speak of an MI355X: elsewhere the variant's default for the target goes first.
        line.sort(key=lambda c: (not home and c.distance > 0, c.prior_us, c.config.config_id))
    # Whatever the prior says, a submission's own choice goes first, and of a space that a submission searched the
    # most promising few.
    known = [c for line in lines.values() for c in line if c.origins and home]
    own = [c for c in known if any("_space" not in origin for origin in c.origins)]
    searched = sorted((c for c in known if c not in own), key=lambda c: (c.prior_us, c.config.config_id))
    own += searched[:MAX_FIRST_OF_A_SPACE]
    yield from own
    taken = {c.kernel_hash for c in own}
    for rank in range(max(map(len, lines.values()), default=0)):
        for line in lines.values():
            if rank < len(line) and line[rank].kernel_hash not in taken:
                yield line[rank]
