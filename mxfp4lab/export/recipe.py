"""What an exported file has to hold: which kernels run, on which buffers, with which formulas and which table rows.

Everything is read off plans. The picks' configs (and changed copies of them) are planned on many shapes; a number that
stays the same for a config becomes an entry of the table, a number that follows the shape becomes a formula.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mxfp4lab.config import DEFAULTS, GemmConfig, config_errors
from mxfp4lab.export.formulas import Formula, Observation, always_equal, find_formula
from mxfp4lab.plan import CodeObjectLaunch, Plan, Ref, TritonLaunch, build_plan
from mxfp4lab.shapes import Shape

# Sizes with and without tails against every tile size, M, N and K independently of each other, few rows and many.
PROBE_SHAPES = tuple(Shape(*s) for s in (
    (1, 32, 64), (3, 96, 320), (4, 2880, 512), (8, 2112, 7168), (16, 3072, 1536), (33, 160, 192), (64, 7168, 2048),
    (100, 1056, 1088), (129, 544, 4160), (256, 2880, 512), (300, 416, 2112), (512, 4096, 8192), (1000, 1312, 960),
    (128, 2048, 576), (256, 1120, 832), (200, 1024, 1024), (515, 4096, 704), (260, 2080, 2048),
    (512, 416, 1024),
))  # fmt: skip
_COUNTS = ("split_k", "num_warps", "num_stages", "waves_per_eu")
PREBUILT = "gemm_a4w4_asm"
_WORDS = ("quantize", "shuffle", "gemm", "reduce")
_VARIED = tuple(name for name in GemmConfig.__dataclass_fields__ if "block" in name or name.startswith("tiles"))


@dataclass(frozen=True)
class Pick:
    """A variant and a config for one shape."""

    variant: str
    config: GemmConfig


@dataclass
class Step:
    """One launch of a structure.

    Attributes:
        fn: the Triton kernel, None for aiter's call; name: its entry point; label: the table's name for its row.
        args: (parameter, buffer name or formula) in order.
        formulas: constexpr parameters that follow the shape.
        literals: constexpr parameters and compiler options that a table row holds; options: which of them are options.
        grid: one formula per dimension.
    """

    fn: Any
    name: str
    label: str
    args: list[tuple[str, str | Formula]]
    formulas: dict[str, Formula] = field(default_factory=dict)
    literals: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    grid: list[Formula] = field(default_factory=list)


@dataclass
class Workspace:
    """A buffer between launches: its formula dimensions are in terms of step `owner`'s constants."""

    name: str
    dtype: str
    fill: int | None
    owner: int
    dims: list[Formula]


@dataclass
class Structure:
    """A sequence of launches that one or more table rows use."""

    steps: list[Step]
    workspaces: list[Workspace]
    output: str
    output_dims: list[Formula]
    output_owner: int
    output_padded: bool

    @property
    def inputs(self) -> list[str]:
        """Names of the task's tensors that it reads, in the task's order."""
        own = {w.name for w in self.workspaces} | {self.output}
        used = {value for step in self.steps for _, value in step.args if isinstance(value, str)} - own
        return [name for name in ("a", "b", "b_q", "b_shuffle", "b_scale_sh") if name in used]


@dataclass
class Row:
    """A line of the table: a structure and, per step, the values of its literals."""

    shape: Shape | None
    pick: Pick
    structure: int
    values: list[dict[str, Any]]


@dataclass
class Recipe:
    """All structures, and the rows: one per shape, further candidates per shape, one for any other shape."""

    structures: list[Structure]
    rows: dict[Shape, list[Row]]
    default: Row

    def all_rows(self) -> list[Row]:
        """Every row, the default last."""
        return [*itertools.chain.from_iterable(self.rows.values()), self.default]


def signature(plan: Plan) -> tuple:
    """What two plans must share to be run by the same code."""
    launches = tuple((_entry(launch), tuple(_references(launch))) for launch in plan.launches)
    # aiter's own call clears C where it splits K, so that a fill of the output is not the caller's business.
    buffers = tuple((b.name, b.dtype, b.fill if b.role == "workspace" else None)
                    for b in plan.buffers if b.role != "input")  # fmt: skip
    return launches, buffers, plan.output


def _entry(launch: TritonLaunch | CodeObjectLaunch) -> str:
    """The function that issues a launch: the kernel, or aiter's call for its prebuilt GEMM."""
    return launch.name if isinstance(launch, TritonLaunch) else PREBUILT


def _references(launch: TritonLaunch | CodeObjectLaunch) -> list[tuple[object, str | None]]:
    """(parameter, buffer) of every argument; a number has no buffer."""
    if isinstance(launch, TritonLaunch):
        return [(name, value.buffer if isinstance(value, Ref) else None) for name, value in launch.args]
    return [(offset, value.buffer) for offset, _, value in launch.args if isinstance(value, Ref)]


def constants_of(launch: TritonLaunch | CodeObjectLaunch) -> dict[str, Any]:
    """Constexprs and compiler options of a launch; aiter's call chooses its own."""
    if not isinstance(launch, TritonLaunch):
        return {}
    return dict(launch.constants) | dict(launch.options)


def build_recipe(candidates: Mapping[Shape, Sequence[Pick]], default: Pick, arch: str = "gfx950") -> Recipe:
    """Work out structures, formulas and rows.

    Args:
        candidates: per shape its picks, the preferred one first.
        default: serves every other shape; must give plans of one structure on all of `PROBE_SHAPES`.
        arch: the target of the plans.

    Raises:
        ValueError: a default whose structure depends on the shape, or a number that no formula explains.
    """

    def plan(variant: str, config: GemmConfig, shape: Shape) -> Plan:
        return build_plan(variant, config, shape, arch)

    chosen = [
        (shape, pick, plan(pick.variant, pick.config, shape)) for shape, picks in candidates.items() for pick in picks
    ]
    evidence = _Evidence(plan, arch)
    for _, pick, made in chosen:
        evidence.add(pick, made)
    defaults = [plan(default.variant, default.config, shape) for shape in PROBE_SHAPES
                if not config_errors(default.config, shape, arch, default.variant)]  # fmt: skip
    if len({signature(p) for p in defaults}) != 1:
        raise ValueError(f"default {default.variant}: its launches depend on the shape; fix them in the config")
    evidence.add(default, defaults[0])
    recipe = Recipe([], {}, None)  # type: ignore[arg-type]
    known: dict[tuple, int] = {}

    def row(shape: Shape | None, pick: Pick, made: Plan) -> Row:
        key = signature(made)
        if key not in known:
            recipe.structures.append(evidence.structure(key, made))
            known[key] = len(recipe.structures) - 1
        structure = recipe.structures[known[key]]
        values = [{name: constants_of(launch)[name] for name in step.literals}
                  for step, launch in zip(structure.steps, made.launches, strict=True)]  # fmt: skip
        return Row(shape, pick, known[key], values)

    for shape, pick, made in chosen:
        recipe.rows.setdefault(shape, []).append(row(shape, pick, made))
    recipe.default = row(None, default, defaults[0])
    _check(recipe, chosen, default, defaults)
    return recipe


class _Evidence:
    """Plans of the picks and of changed copies of them on many shapes, and what they show."""

    def __init__(self, plan: Callable[..., Plan], arch: str) -> None:
        self._plan, self._arch = plan, arch
        self._groups: dict[tuple, list[list[Plan]]] = {}  # signature -> groups of plans of one config
        self._done: set[tuple[str, str]] = set()
        self._explored: set[tuple[str, GemmConfig]] = set()  # picks that differ in sizes alone have one neighbourhood

    def add(self, pick: Pick, own: Plan) -> None:
        """Plan a pick, and its neighbours in the space of configs, on the probe shapes."""
        if (pick.variant, pick.config.config_id) in self._done:
            self._groups.setdefault(signature(own), []).append([own])
            return
        self._done.add((pick.variant, pick.config.config_id))
        sizes = {name: DEFAULTS[name] for name in (*_VARIED, *_COUNTS)} | {"split_k": min(pick.config.split_k, 2)}
        kind = (pick.variant, replace(pick.config, **sizes))
        neighbours = [] if kind in self._explored else _neighbours(pick.config)
        self._explored.add(kind)
        for config in [pick.config, *neighbours]:
            by_signature: dict[tuple, list[Plan]] = {}
            if config is pick.config:
                by_signature[signature(own)] = [own]
            for shape in PROBE_SHAPES:
                if not config_errors(config, shape, self._arch, pick.variant):
                    made = self._plan(pick.variant, config, shape)
                    by_signature.setdefault(signature(made), []).append(made)
            for key, plans in by_signature.items():
                self._groups.setdefault(key, []).append(plans)

    def structure(self, key: tuple, own: Plan) -> Structure:
        """Formulas and table columns of all plans that share a signature."""
        groups = self._groups[key]
        steps = []
        labels = _labels([_entry(launch) for launch in own.launches])
        for index, launch in enumerate(own.launches):
            if not isinstance(launch, TritonLaunch):
                steps.append(Step(None, PREBUILT, labels[index], [(str(o), b) for o, b in _references(launch) if b]))
                continue
            step = Step(launch.fn, launch.name, labels[index], [], options=[name for name, _ in launch.options])
            for name in constants_of(launch):
                self._column(step, groups, index, name)
            for position, (name, value) in enumerate(launch.args):
                if isinstance(value, Ref):
                    step.args.append((name, value.buffer))
                else:
                    number = self._formula(step, groups, index, lambda la, p=position: la.args[p][1], name)
                    step.args.append((name, number))
            step.grid = [self._formula(step, groups, index, lambda la, d=d: la.grid[d], f"grid {d}") for d in range(3)]
            steps.append(step)
        workspaces, output = [], None
        for buffer in own.buffers:
            if buffer.role == "input":
                continue
            users = [i for i, la in enumerate(own.launches) if any(b == buffer.name for _, b in _references(la))]
            owner, dims = self._dims(steps, groups, users, buffer.name, len(buffer.shape))
            if buffer.name == own.output:
                output = (owner, dims)
            else:
                workspaces.append(Workspace(buffer.name, buffer.dtype, buffer.fill, owner, dims))
        assert output is not None
        padded = any(p.buffer(p.output).shape[0] != p.shape.m for plans in groups for p in plans)
        return Structure(steps, workspaces, own.output, output[1], output[0], padded)

    def _observe(self, groups: list[list[Plan]], index: int, value: Callable) -> list[list[Observation]]:
        return [[Observation({"M": p.shape.m, "N": p.shape.n, "K": p.shape.k}, constants_of(p.launches[index]),
                             value(p.launches[index])) for p in plans] for plans in groups]  # fmt: skip

    def _formula(self, step: Step, groups: list[list[Plan]], index: int, value: Callable, what: str) -> Formula:
        seen = [o for group in self._observe(groups, index, value) for o in group]
        formula = find_formula(seen, names=step.literals)
        if formula is None:
            raise ValueError(
                f"{groups[0][0].launches[index].name}: no formula in M, N, K and the launch's constants gives {what}"
            )
        return formula

    def _column(self, step: Step, groups: list[list[Plan]], index: int, name: str) -> None:
        """Decide whether a constant is a table entry or follows the shape."""
        grouped = self._observe(groups, index, lambda la: constants_of(la)[name])
        seen = [o for group in grouped for o in group]
        if all(always_equal(group) for group in grouped):
            options = dict(groups[0][0].launches[index].options)
            varies = name not in options and not always_equal(seen)
            twin = find_formula(seen, names=list(options), thorough=False) if varies else None
            if twin is not None:  # the number of stages of the K loop is the compiler's num_stages
                step.formulas[name] = twin
            else:
                step.literals.append(name)
            return
        others = [replace(o, constants={k: v for k, v in o.constants.items() if k != name}) for o in seen]
        formula = find_formula(others, thorough=False)
        if formula is not None:
            step.formulas[name] = formula
        else:  # follows the shape in its own way (a clamped split): right in each row, checked for the default
            step.literals.append(name)

    def _dims(
        self, steps: list[Step], groups: list[list[Plan]], users: list[int], buffer: str, rank: int
    ) -> tuple[int, list[Formula]]:
        for index in users:
            dims = []
            for d in range(rank):
                seen = [Observation({"M": p.shape.m, "N": p.shape.n, "K": p.shape.k}, constants_of(p.launches[index]),
                                    p.buffer(buffer).shape[d]) for plans in groups for p in plans]  # fmt: skip
                dims.append(find_formula(seen, names=[]) or find_formula(seen, names=steps[index].literals))
            if all(dims):
                return index, dims  # type: ignore[return-value]
        raise ValueError(f"buffer {buffer!r}: no formula in M, N, K and a launch's constants gives its shape")


def _neighbours(config: GemmConfig) -> Iterator[GemmConfig]:
    """Copies with one or two tile sizes changed, so that no two constants are always equal."""
    for index, name in enumerate(_VARIED):
        other = _VARIED[(index + 1) % len(_VARIED)]
        for factor in (2, 0.5):
            changed = replace(config, **{name: max(int(getattr(config, name) * factor), 1)})
            yield changed
            yield replace(changed, **{other: int(getattr(config, other) * 2)})
    for split in (2, 4):
        yield replace(config, split_k=split)
    yield replace(config, num_stages=3 if config.num_stages != 3 else 2)
    yield replace(config, num_warps=8 if config.num_warps != 8 else 4)
    yield replace(config, num_warps=2 * config.num_warps, block_n=2 * config.block_n)  # some kernels tie them together


def _labels(names: list[str]) -> list[str]:
    """`gemm_fused` -> `gemm`; numbered where two launches would share a label."""
    short = [next((w for w in name.split("_") if w in _WORDS), name.split("_")[0]) for name in names]
    return [s if short.count(s) == 1 else f"{s}{short[: i + 1].count(s)}" for i, s in enumerate(short)]


def _check(recipe: Recipe, chosen: list[tuple[Shape, Pick, Plan]], default: Pick, defaults: list[Plan]) -> None:
    """Recompute every plan from the recipe: what the file will launch is what the plan says.

    Raises:
        ValueError: naming the number that differs.
    """
    rows = [row for shape_rows in recipe.rows.values() for row in shape_rows]
    for row, (_, _, made) in zip(rows, chosen, strict=True):
        verify_row(recipe, row, made)
    for made in defaults:
        verify_row(recipe, recipe.default, made)


def verify_row(recipe: Recipe, row: Row, made: Plan) -> None:
    """Compare what a row gives on a plan's shape with the plan."""
    sizes = {"M": made.shape.m, "N": made.shape.n, "K": made.shape.k}
    structure = recipe.structures[row.structure]
    who = f"{row.pick.variant} on {made.shape}"
    for step, launch, values in zip(structure.steps, made.launches, row.values, strict=True):
        constants = values | {name: f.value(sizes, values) for name, f in step.formulas.items()}
        if constants != constants_of(launch):
            wrong = {n for n in constants_of(launch) if constants.get(n) != constants_of(launch)[n]}
            raise ValueError(f"{who}: {launch.name}: {', '.join(sorted(wrong))} cannot be computed from the shape")
        if not isinstance(launch, TritonLaunch):
            continue
        if tuple(f.value(sizes, constants) for f in step.grid) != launch.grid:
            raise ValueError(f"{who}: {launch.name}: its grid cannot be computed from the shape")
        for (name, formula), (_, value) in zip(step.args, launch.args, strict=True):
            if isinstance(formula, Formula) and formula.value(sizes, constants) != value:
                raise ValueError(f"{who}: {launch.name}: argument {name} cannot be computed from the shape")
    for space in structure.workspaces:
        if tuple(f.value(sizes, row.values[space.owner]) for f in space.dims) != made.buffer(space.name).shape:
            raise ValueError(f"{who}: the shape of {space.name} cannot be computed")
