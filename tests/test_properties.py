"""What holds for every config: an accepted one compiles and computes C, a refused one has a reason that shows.

Configs are drawn from all axes by a fixed seed; each goes through the compiler, every screen, every check of the
emulator, and is compared with the reference bit by bit.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from collections.abc import Iterator, Sequence

import pytest

from mxfp4lab.config import CHOICES, GemmConfig, config_errors
from mxfp4lab.plan import VARIANTS, Plan, default_config
from mxfp4lab.plan.variants import MADE_BY
from mxfp4lab.shapes import Shape
from mxfp4lab.workers import compile_many
from tests.mutations.cases import inputs_of
from tests.mutations.detect import Verdict, examine_plan

TRITON_VARIANTS = tuple(name for name, spec in VARIANTS.items() if not (spec.needs_aiter or spec.hopper))
SHAPES = (Shape(5, 96, 320), Shape(20, 64, 512), Shape(33, 160, 1024), Shape(64, 128, 448))
AXES: dict[str, Sequence] = {
    **CHOICES,
    "block_m": (4, 8, 16, 32, 64), "block_n": (16, 32, 64, 128), "block_k": (64, 128, 256, 512),
    "split_k": (1, 2, 4, 7), "num_warps": (1, 2, 4, 8), "num_stages": (1, 2, 3), "waves_per_eu": (0, 1, 2),
    "matrix_instr_nonkdim": (16, 32), "group_m": (1, 2, 4), "xcd_remap": (0, 8), "quant_block_m": (1, 4, 16),
    "quant_block_k": (64, 128, 256), "quant_num_warps": (1, 2, 4), "reduce_block_m": (1, 8, 16),
    "reduce_block_n": (32, 64, 256), "reduce_num_warps": (1, 2, 4), "tiles_n": (1, 2, 3),
}  # fmt: skip

# Refusals that are not of a config that fails: a setting that the variant does not look at (two configs would be one
# kernel), one that only wastes what it names.
OF_NO_EFFECT = re.compile(
    "which does not read it|in (sliced|cooperative) variants|half the rows would be padding|"
    "where K is not split|workgroups at most"
)


def draws(seed: int, count: int) -> Iterator[tuple[str, Shape, GemmConfig]]:
    """A variant, a shape, and the variant's default config with one to four axes changed."""
    rng = random.Random(seed)
    for _ in range(count):
        variant, shape = rng.choice(TRITON_VARIANTS), rng.choice(SHAPES)
        changed = {name: rng.choice(AXES[name]) for name in rng.sample(sorted(AXES), rng.randint(1, 4))}
        yield variant, shape, dataclasses.replace(default_config(variant, shape), **changed)


def verdicts(trials: list[tuple[str, Shape, GemmConfig]]) -> Iterator[Verdict]:
    """What every check says of each, whatever `config_errors` says; compiled apart, for a bad config may kill LLVM."""
    plans: list[Plan | None] = []
    for variant, shape, config in trials:
        try:
            plans.append(MADE_BY[variant][0](config, shape, "gfx950", variant))
        except (ValueError, ArithmeticError, LookupError):
            plans.append(None)
    failed = {
        id(result.plan): result.error
        for result in compile_many([plan for plan in plans if plan is not None], 1)
        if result.error is not None
    }
    for (_, shape, _), plan in zip(trials, plans, strict=True):
        verdict = Verdict()
        if plan is None or id(plan) in failed:
            verdict.object("compile", str(failed.get(id(plan), "no plan can be made")))
            yield verdict
        else:
            yield examine_plan(plan, *inputs_of(shape, "task"))


def hold(seed: int, count: int) -> tuple[int, int]:
    """Try that many draws; (accepted, refused for a fault that showed)."""
    accepted = refused = 0
    trials, reasons = [], []
    for variant, shape, config in draws(seed, count):
        errors = config_errors(config, shape, variant=variant)
        if errors and all(OF_NO_EFFECT.search(error) for error in errors):
            continue
        trials.append((variant, shape, config))
        reasons.append(errors)
    for (variant, shape, config), errors, verdict in zip(trials, reasons, verdicts(trials), strict=True):
        what = (variant, str(shape), config.changes(), errors, verdict.said)
        if errors:
            assert verdict.said or any(OF_NO_EFFECT.search(error) for error in errors), ("refused, and works", *what)
            refused += 1
        else:
            # The compiler may know a limit that no formula tells (LDS, registers); a wrong C it may not be.
            spills = "spilled" in verdict.said.get("screen", "")
            assert set(verdict.said) <= {"compile", *(["screen"] if spills else [])}, ("accepted, and fails", *what)
            accepted += 1
    return accepted, refused


def test_accepted_configs_compute_and_refused_ones_do_not() -> None:
    accepted, refused = hold(seed=25, count=16)
    assert accepted >= 3 and refused >= 2


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 12))
def test_hundreds_of_configs(seed: int) -> None:
    accepted, _ = hold(seed, count=60)
    assert accepted >= 20


@pytest.mark.parametrize("name", ["block_m", "block_n", "block_k", "num_warps", "num_stages", "split_k", "group_m"])
def test_numbers_out_of_every_range_are_refused_by_name(name: str) -> None:
    for value in (0, -1, 3 << 40):
        errors = config_errors(GemmConfig(**{name: value}), Shape(16, 64, 512), variant="fused_rowmajor")
        assert errors and errors[0].startswith(f"{name}={value}"), errors


@functools.cache
def _known() -> list[str]:
    return sorted(AXES)


def test_the_draws_reach_every_axis() -> None:
    touched = {name for _, _, config in draws(3, 400) for name in config.changes()}
    assert set(_known()) <= touched
