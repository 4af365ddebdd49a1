"""`export_submission`: picks in, one self-contained file out."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mxfp4lab.config import GemmConfig, config_errors
from mxfp4lab.export.lint import lint_source
from mxfp4lab.export.recipe import PROBE_SHAPES, Pick, build_recipe
from mxfp4lab.export.render import render
from mxfp4lab.gfx950 import CompileError, compile_plan
from mxfp4lab.plan import VARIANTS, build_plan, default_config
from mxfp4lab.shapes import Shape, parse_shape

MAX_CANDIDATES = 16
DEMANDING_SHAPES = (Shape(8, 2112, 7168), Shape(33, 160, 192), Shape(16, 512, 16384))
_FORMS = ("amax", "cache_modifier", "load_order", "a_path")
_PLAIN = re.compile(r'[^"\\\x00-\x1f\x7f\u2028\u2029]*')
Choice = Pick | tuple[str, GemmConfig | Mapping[str, object] | None]


def export_submission(
    picks: Mapping[object, Choice | Sequence[Choice]],
    path: str | Path | None,
    *,
    candidates: int = 1,
    default: Choice | None = None,
    evidence: str = "",
    arch: str = "gfx950",
    knobs: Mapping[str, str] | None = None,
) -> str:
    """Render a submission file.

    Args:
        picks: shape (anything `parse_shape` accepts) -> (variant, config), or several of them, the preferred first. A
            config may be a `GemmConfig`, a dict of its fields, or None for the variant's default.
        path: where to write it; None only returns the text.
        candidates: how many per shape to carry; with more than one the file times them at its first, untimed call.
        default: serves every other shape; without it the first pick's variant with its default config.
        evidence: one or two sentences for the file's docstring: where the configs come from.
        arch: the target that the configs are for.
        knobs: environment variables that must be set before Triton is imported.

    Returns:
        The text of the file.

    Raises:
        ValueError: no picks, a bad shape, variant, config or count, a variant that is no Triton variant, or a file that
            the lint refuses (with its lines).
    """
    if not isinstance(picks, (Mapping, type(None))):
        raise ValueError(f"picks: a {type(picks).__name__}; allowed: a mapping of shapes to (variant, config)")
    if not isinstance(evidence, str):
        raise ValueError(f"evidence={evidence!r} must be text")
    if not picks:
        raise ValueError("picks: at least one shape is needed")
    if isinstance(candidates, bool) or not isinstance(candidates, int) or not 1 <= candidates <= MAX_CANDIDATES:
        raise ValueError(f"candidates={candidates!r} must be an integer from 1 to {MAX_CANDIDATES}")
    chosen: dict[Shape, list[Pick]] = {}
    for key, value in picks.items():
        shape = parse_shape(key)
        several: Sequence[Any] = value if isinstance(value, list) else [value]
        rows = list(dict.fromkeys(_pick(choice, shape, arch) for choice in several))[:candidates]
        if not rows:
            raise ValueError(f"picks: {shape} has no config")
        chosen[shape] = rows
    fallback = (
        _default_pick(next(iter(chosen.values()))[0], arch)
        if default is None
        else _pick(default, PROBE_SHAPES[6], arch)
    )
    _require_plain(knobs or {}, evidence)
    recipe = build_recipe(chosen, fallback, arch)
    text = render(recipe, _about(chosen, fallback, evidence), knobs, arch)
    refused = [finding for finding in lint_source(text) if finding.severity == "error"]
    if refused:
        raise ValueError("the exported file is refused: " + "; ".join(map(str, refused)))
    if path is not None:
        write_file(Path(path), text)
    return text


def _require_plain(knobs: Mapping[str, str], evidence: str) -> None:
    """Text that comes out of records and notebooks stands in the file as text: it must not be able to end a string."""
    for name, value in knobs.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)) or not _PLAIN.fullmatch(str(value)):
            raise ValueError(f"knobs: {name}={value!r}; allowed: a variable's name, and printable text without quotes")
    for line in evidence.splitlines():
        if not _PLAIN.fullmatch(line):
            raise ValueError(f"evidence: {line[:80]!r}; allowed: printable text without double quotes and backslashes")


def _pick(choice: Choice, shape: Shape, arch: str) -> Pick:
    if not isinstance(choice, Pick) and not (isinstance(choice, tuple) and len(choice) == 2):
        raise ValueError(f"picks: {choice!r} is no (variant, config)")
    variant, config = (choice.variant, choice.config) if isinstance(choice, Pick) else choice
    if variant not in VARIANTS:
        raise ValueError(f"variant={variant!r} is unknown; known: {', '.join(VARIANTS)}")
    if config is None:
        config = default_config(variant, shape, arch)
    elif not isinstance(config, GemmConfig):
        config = GemmConfig.from_dict(config)
    errors = config_errors(config, shape, arch, variant)
    if errors:
        raise ValueError(f"{variant} on {shape}: " + "; ".join(errors))
    return Pick(variant, config)


def _default_pick(pick: Pick, arch: str) -> Pick:
    """What serves any other shape: the pick's variant if it fits shapes long in K and shapes with tails, else another.

    16 rows, K in one piece, one set of launches, no spilled register; and the pick's forms of the arithmetic, of loads
    and of masks where they fit, so that the file holds one form and not two.
    """
    others = [name for name, spec in VARIANTS.items() if not spec.needs_aiter and not spec.traits.hopper]
    others.sort(key=lambda name: VARIANTS[name].traits.sliced is not VARIANTS[pick.variant].traits.sliced)
    forms = {name: getattr(pick.config, name) for name in _FORMS}
    for variant in dict.fromkeys([pick.variant, *others]):
        config = default_config(variant, Shape(16, 4096, 4096), arch)
        config = replace(config, block_m=16, split_k=1, convert=pick.config.convert)
        if VARIANTS[variant].traits.a_mode == "open":
            config = replace(config, a_mode="fused")
        same = [replace(config, **forms)] if variant == pick.variant else []
        for candidate in [*same, config]:
            # A kernel that keeps all of K at once fits short K only: its form that works step by step fits any.
            in_steps = replace(candidate, a_path="direct", load_order="convert_first", num_warps=8)
            for form in (candidate, in_steps):
                if VARIANTS[variant].needs_aiter or _fits(variant, form, arch):
                    return Pick(variant, form)
    raise ValueError("no variant has a config that serves any other shape")


def _fits(variant: str, config: GemmConfig, arch: str) -> bool:
    """Does the config compile, and without spills, for the shapes that ask most of a default?"""
    for shape in DEMANDING_SHAPES:
        if config_errors(config, shape, arch, variant):
            return False
        try:
            compiled = compile_plan(build_plan(variant, config, shape, arch), arch)
        except CompileError:
            return False
        if any(kernel.resources and kernel.resources.spilled_vgprs for kernel in compiled.kernels):
            return False
    return True


def _about(chosen: Mapping[Shape, list[Pick]], fallback: Pick, evidence: str) -> str:
    variants = list(dict.fromkeys(pick.variant for picks in chosen.values() for pick in picks))
    lines = ["MXFP4 GEMM: A is quantized to MXFP4 (1x32 blocks, e8m0 scales) and multiplied with the packed B."]
    lines += ["", *(f"{name}: {VARIANTS[name].about}." for name in variants)]
    if fallback.variant not in variants:
        lines.append(f"{fallback.variant}, for any other shape: {VARIANTS[fallback.variant].about}.")
    if evidence:
        lines += ["", *(textwrap.fill(line, 118) for line in evidence.splitlines())]
    return "\n".join(lines)


def write_file(path: Path, text: str) -> None:
    """Write beside the target and move into place: an interrupted export leaves no half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            part.write_text(text)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # a NUL in the name is a ValueError
        said = getattr(error, "strerror", None) or error
        raise ValueError(f"path={str(path)!r} cannot be written: {said}") from None
