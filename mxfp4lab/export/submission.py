"""`export_submission`: plans in, one self-contained file out.

The file is the kernels' own source, copied with what it uses, the plans' own numbers per shape, and the launcher.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import triton

from mxfp4lab import __version__
from mxfp4lab.config import GemmConfig
from mxfp4lab.export.closure import Closure, free_names, lab_source, sorted_imports
from mxfp4lab.export.lint import lint_source
from mxfp4lab.export.picks import StoredPick, as_pick
from mxfp4lab.plan import TORCH_NAMES, VARIANTS, CodeObjectLaunch, Plan, Ref, TritonLaunch, build_plan
from mxfp4lab.records import git_state
from mxfp4lab.shapes import Shape, parse_shape

MAX_CANDIDATES = 16
WIDTH = 116
HEADER = "#!POPCORN leaderboard amd-mxfp4-mm\n#!POPCORN gpu MI355X\n"
OTHER_GPU_HEADER = "#!POPCORN leaderboard amd-mxfp4-mm\n# Written for {arch}: the leaderboard's own GPU is MI355X.\n"
LAUNCHER, PROBING = "mxfp4lab.export.launcher", "mxfp4lab.export.probing"
PLAN_FORM = (
    "# A plan: the sizes of C's memory; workspaces as (name, sizes, dtype, first value), kept from call to call; then",
    "# launches as (kernel, grid, arguments, constants).",
)
Choice = tuple[str, GemmConfig | Mapping[str, object] | None]

ENTRY = '''\
READY = {}


def custom_kernel(data):
    """C = quantize(A) @ dequantize(B).T in bf16; data is (A, B, B_q, B_shuffle, B_scale_sh)."""
    shape = (data[0].shape[0], data[1].shape[0], data[0].shape[1])
    # What a compiled kernel relies on: the shape, and how its tensors are aligned.
    key = (shape, *[tensor.data_ptr() % 16 for tensor in data])
    if key not in READY:
        READY[key] = @FIRST@ or prepared(any_shape(*shape), data)
    return READY[key](data)
'''


def export_submission(
    picks: Mapping[object, Choice | Sequence[Choice]] | Iterable[Any],
    path: str | Path | None,
    *,
    candidates: int | None = None,
    evidence: str = "",
    arch: str = "gfx950",
    knobs: Mapping[str, str] | None = None,
    command: str = "",
) -> str:
    """Write a submission file.

    Args:
        picks: picks of a search (a `tune.Pick`, its dict, or what `read_picks` gives), whose target, knobs, evidence
            and caveats come along; or shape (anything `parse_shape` accepts) -> (variant, config), or several of them,
            the preferred first. A config may be a `GemmConfig`, a dict of its fields, or None for the default.
        path: where to write it; None only returns the text.
        candidates: how many plans per shape the file carries; with more than one it times them at its first, untimed
            call. None carries three where a pick is modelled (`StoredPick.candidates`), one where it is measured or the
            config was given.
        evidence: for the file's header, where configs are given: what they rest on.
        arch, knobs: where configs are given: their target, and environment variables set before Triton is imported.
        command: the command that makes the file again; without it one is composed.

    Returns:
        The text of the file.

    Raises:
        ValueError: no picks, a bad shape, variant, config or count, picks of several targets, or a file that the lint
            refuses (with its lines).
    """
    if not isinstance(evidence, str):
        raise ValueError(f"evidence={evidence!r} must be text")
    if candidates is not None and (
        isinstance(candidates, bool) or not isinstance(candidates, int) or not 1 <= candidates <= MAX_CANDIDATES
    ):
        raise ValueError(f"candidates={candidates!r} must be an integer from 1 to {MAX_CANDIDATES}")
    chosen = _picks(picks, arch, knobs, evidence)
    first = chosen[0]
    for pick in chosen:
        if pick.arch != first.arch or pick.knobs != first.knobs:
            raise ValueError(f"the picks of {first.shape} and {pick.shape} were made under different knobs or targets")
    plans = {}
    for pick in chosen:
        made = [build_plan(variant, config, pick.shape, pick.arch) for variant, config in pick.candidates(candidates)]
        plans[pick.shape] = list({(plan.variant, plan.config): plan for plan in made}.values())
    head = _header(chosen, plans, command or _command(chosen))
    text = submission_text(head, plans, check_knobs(first.knobs))
    refused = [finding for finding in lint_source(text) if finding.severity == "error"]
    if refused:
        raise ValueError("the exported file is refused: " + "; ".join(map(str, refused)))
    if path is not None:
        write_file(Path(path), text)
    return text


def _picks(given: Any, arch: str, knobs: Mapping[str, str] | None, evidence: str) -> list[StoredPick]:
    if isinstance(given, Mapping) and not {"variant", "shape"} <= given.keys():
        found = []
        for key, value in given.items():
            shape, choices = parse_shape(key), []
            for choice in value if isinstance(value, list) else [value]:
                if not isinstance(choice, tuple) or len(choice) != 2:
                    raise ValueError(f"picks: {choice!r} is no (variant, config)")
                plan = build_plan(choice[0], _config(choice[1]), shape, arch)
                choices.append((plan.variant, plan.config))
            if not choices:
                raise ValueError(f"picks: {shape} has no config")

            found.append(StoredPick(shape, tuple(choices), evidence, arch=arch, knobs=dict(knobs or {})))
    elif isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ValueError(
            f"picks: a {type(given).__name__}; allowed: picks, or a mapping of shapes to (variant, config)"
        )
    else:
        found = [as_pick(pick) for pick in ([given] if isinstance(given, Mapping) else given)]
    if not found:
        raise ValueError("picks: at least one shape is needed")
    return list({pick.shape: pick for pick in found}.values())


def _config(value: Any) -> GemmConfig | None:
    return value if value is None or isinstance(value, GemmConfig) else GemmConfig.from_dict(value)


# the file -------------------------------------------------------------------------------------------------------------


def submission_text(head: str, plans: Mapping[Shape, Sequence[Plan]], knobs: Mapping[str, str]) -> str:
    """The file of some plans; with several plans for any shape it chooses at its first call."""
    several = any(len(made) > 1 for made in plans.values())
    said = "# (M, N, K): its plans" + (", of which the first call takes the fastest." if several else ".")
    table = [said, *PLAN_FORM, "PLANS = {", *table_lines(plans), "}  # fmt: skip"]
    first = "fastest(shape, data)" if several else "next(usable(shape, data), None)"
    return file_text(head, plans, knobs, "\n".join(table), ENTRY.replace("@FIRST@", first))


def file_text(
    head: str, plans: Mapping[Shape, Sequence[Plan]], knobs: Mapping[str, str], table: str, entry: str
) -> str:  # fmt: skip
    """A file out of its parts, between which stand imports and what they and the plans' kernels use.

    Args:
        head: comments.
        knobs: environment variables.
        table: assignments that name kernels and plans.
        entry: `custom_kernel`.
    """
    closure = Closure(given=("PLANS", "PROBED", "PROBE", "READY", "TEST_SHAPES"))
    for launch in (launch for made in plans.values() for plan in made for launch in plan.launches):
        if isinstance(launch, CodeObjectLaunch):
            closure.add(lab_source(LAUNCHER), "gemm_a4w4_asm")
        else:
            for function in (launch.fn, *(value for _, value in launch.constants if hasattr(value, "fn"))):
                closure.add(lab_source(function.fn.__module__), function.fn.__name__)
    for name in free_names(entry):
        for module in (LAUNCHER, PROBING):
            if name in lab_source(module).bindings:
                closure.add(lab_source(module), name)
                break
    optional = closure.optional_imports()
    if "tl.constexpr(" in table:
        closure.imports["tl"] = "import triton.language as tl"
    lines = closure.import_lines()
    if knobs:
        settings = [f"os.environ.setdefault({_quoted(name)}, {_quoted(value)})" for name, value in knobs.items()]
        closure.imports.pop("os", None)
        lines = ["import os", "", *settings, "", *closure.import_lines()]
    parts = [head + "\n".join(lines), *_guarded(optional), closure.text(), table, entry]
    return "\n\n\n".join(filter(None, [part.rstrip() for part in parts])) + "\n"


def _guarded(optional: Mapping[str, str]) -> list[str]:
    """Imports that not every Triton can answer: without them the file still serves every shape, by plain Triton."""
    if not optional:
        return []
    lines = ["try:", *(f"    {line}" for line in sorted_imports(set(optional.values())))]
    lines += ["except ImportError as error:", f"    {' = '.join(optional)} = Absent(error)"]
    absent = Closure()
    absent.add(lab_source(LAUNCHER), "Absent")
    return [absent.text(), "\n".join(lines)]


def table_lines(
    plans: Mapping[Shape, Sequence[Plan]], label: Callable[[Plan], str] = lambda plan: ""
) -> list[str]:  # fmt: skip
    """The rows of a table of plans; `label` is what stands before a plan inside its brackets."""
    lines = []
    for shape, made in plans.items():
        before = f"    ({shape.m}, {shape.n}, {shape.k}): ["
        for plan in made:
            lines.append(f"{before}({label(plan)}")
            lines += textwrap.wrap(
                plan_line(plan), WIDTH, initial_indent="        # ", subsequent_indent="        #   "
            )
            lines += _plan_lines(plan, " " * 8)
            before = "    ), "
        lines.append("    )],")
    return lines


def plan_line(plan: Plan) -> str:
    """What a plan is, in a line that `records import` reads back: the variant and its config's changes as JSON."""
    return f"{plan.variant} {json.dumps(plan.config.changes(), separators=(', ', ': '))}"


def _plan_lines(plan: Plan, blank: str) -> list[str]:
    spaces = [
        f'("{b.name}", {b.shape}, torch.{TORCH_NAMES[b.dtype]}, {b.fill})'
        for b in plan.buffers
        if b.role == "workspace"
    ]
    tail = "," if len(spaces) == 1 else ""
    lines = _filled(f"{plan.buffer(plan.output).shape}, ({', '.join(spaces)}{tail}),", blank)
    for launch in plan.launches:
        lines += _filled(f"({_launch(plan, launch)}),", blank)
    return lines


def _launch(plan: Plan, launch: TritonLaunch | CodeObjectLaunch) -> str:
    if isinstance(launch, CodeObjectLaunch):
        shape = plan.shape
        operands = '"a_q", "b_shuffle", "a_scale_sh", "b_scale_sh", "c"'
        return f"gemm_a4w4_asm, ({shape.m}, {shape.n}, {shape.k}), ({operands}), {{}}"
    arguments = ", ".join(_value(v) for _, v in launch.args)
    constexprs = {parameter.name for parameter in launch.fn.params if parameter.is_constexpr}
    constants = [
        f"{name}={_value(v) if name in constexprs or v is None else f'tl.constexpr({v})'}"
        for name, v in launch.constants
    ]
    constants += [f"{name}={_value(v)}" for name, v in launch.options if (name, v) != ("waves_per_eu", 0)]
    grid = launch.grid[: max((i for i, n in enumerate(launch.grid, 1) if n > 1), default=1)]
    return f"{launch.fn.fn.__name__}, {grid}, ({arguments}), dict({', '.join(constants)})"


def _value(value: Any) -> str:
    if isinstance(value, Ref):
        return f'"{value.buffer}"'
    if hasattr(value, "fn"):  # a kernel's function, as its convert is
        return value.fn.__name__
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    return json.dumps(str(text))


def _filled(text: str, blank: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=blank, subsequent_indent=f"{blank} ", break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


# the header -----------------------------------------------------------------------------------------------------------


def _header(chosen: Sequence[StoredPick], plans: Mapping[Shape, Sequence[Plan]], command: str) -> str:
    """Comment lines: nothing in them can end them."""
    arch = chosen[0].arch
    lines = ["MXFP4 GEMM: A is quantized to MXFP4 (1x32 blocks, e8m0 scales) and multiplied with the packed B."]
    used = list(dict.fromkeys(plan.variant for made in plans.values() for plan in made))
    lines += [f"{name}: {VARIANTS[name].about}." for name in used]
    state = git_state()
    commit = f" (commit {state['commit'][:12]}{', changed' if state['dirty'] else ''})" if state else ""
    lines += ["", f"Made for {arch} by mxfp4lab {__version__}{commit}, Triton {triton.__version__}; again by:"]
    lines += [f"  {command}", ""]
    said = [pick.evidence for pick in chosen if pick.evidence]
    if not said:
        said = ["The given configs: nothing here says how they were chosen."]
    for plan in (plan for made in plans.values() for plan in made):
        caveat = VARIANTS[plan.variant].caveat
        if caveat and not any(caveat in line for line in said):
            said.append(f"Mind, of {plan.variant}: {caveat}.")
    lines += list(dict.fromkeys(line for text in said for line in text.splitlines()))
    lines.append("Any other shape is served by plain Triton: right, not tuned.")
    filled = [part for line in lines for part in (textwrap.wrap(_printable(line), 116, subsequent_indent="  ") or [""])]
    head = HEADER if arch == "gfx950" else OTHER_GPU_HEADER.format(arch=arch)
    return head + "#\n" + "".join(f"# {line}".rstrip() + "\n" for line in filled) + "\n"


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else " " for c in line)


def _command(chosen: Sequence[StoredPick]) -> str:
    """The command that makes the file of recorded runs again, whatever it was called while it was checked; configs that
    were given stand in the table alone."""
    if not all(pick.run_id for pick in chosen):
        return "mxfp4lab.export.export_submission, with the plans of the table below"
    files = " ".join(f"outputs/runs/{run}/summary.json" for run in dict.fromkeys(pick.run_id for pick in chosen))
    return f"python -m mxfp4lab export {files} submission.py"


def write_file(path: Path, text: str) -> None:
    """Write beside the target and move into place: an interrupted export leaves no half a file.

    Raises:
        ValueError: the path cannot be written.
    """
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


def check_knobs(knobs: Mapping[str, str]) -> dict[str, str]:
    """Environment variables as a file sets them.

    Raises:
        ValueError: a name that is no variable's.
    """
    for name, value in knobs.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)) or not re.fullmatch(
            r'[^"\\\x00-\x1f\x7f]*', str(value)
        ):
            raise ValueError(f"knobs: {name}={value!r}; allowed: a variable's name, and printable text without quotes")
    return dict(knobs)
