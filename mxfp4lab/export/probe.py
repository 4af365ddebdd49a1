"""`python -m mxfp4lab probe`: a submission that times configs on a box behind a queue, and prints what it measured.

The server's report of a run in test mode holds the program's output, cut at 16,000 characters; a run ends after 420 s.
`records import` reads the report back.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxfp4lab.shapes import TEST_SHAPES, Shape, parse_shape

if TYPE_CHECKING:
    from mxfp4lab.plan import Plan

NO_ID = "0" * 12
MAX_CHARACTERS = 14_000
LINE_CHARACTERS = 200
HEADER_CHARACTERS = 800
MAX_SECONDS = 250
SECONDS_PER_CONFIG = 3  # compiled and timed; what a slow compiler leaves out at the end is not in the report

BEGIN = """\
    if not READY and shape in TEST_SHAPES:  # the first call in test mode: no timed mode has these shapes
        probe()
"""


def write_probe(
    path: str | Path | None, shapes: Sequence[Any], configs: int = 24, seconds: int = MAX_SECONDS,
    out: str | Path = "outputs", arch: str = "gfx950",
) -> str:  # fmt: skip
    """Write a probe file: right in every test case, an ordinary submission in timed modes.

    Args:
        path: the file; None only returns the text.
        shapes: what is timed.
        configs: how many per shape, the best of recorded searches first, then variants' defaults and known submissions.
        seconds: after which no further config is begun.
        out: folder of records; the probe is kept in its `probes/`, where `records import` reads its configs.
        arch: the target.

    Raises:
        ValueError: a bad argument, or more than a report holds.
    """
    from mxfp4lab.export.submission import write_file

    sizes = list(dict.fromkeys(parse_shape(shape) for shape in shapes))
    if not sizes:
        raise ValueError("shape: at least one is needed")
    plans = {shape: chosen_plans(shape, configs, out, arch) for shape in sizes}
    count = sum(map(len, plans.values()))
    room = (MAX_CHARACTERS - HEADER_CHARACTERS) // LINE_CHARACTERS
    if count > room:
        raise ValueError(f"{count} configs in all: a report of {MAX_CHARACTERS} characters holds at most {room}")
    if (needed := count * SECONDS_PER_CONFIG) > seconds:
        raise ValueError(f"{count} configs need about {needed} s, seconds={seconds}: fewer, or up to {MAX_SECONDS} s")
    text = probe_text(plans, seconds)
    identity = probe_id(text)
    text = text.replace(f'"id": "{NO_ID}"', f'"id": "{identity}"')
    if path is not None:
        write_file(Path(path), text)
        write_file(Path(out) / "probes" / f"{identity}.py", text)
    return text


def probe_id(text: str) -> str:
    """12 hex digits of a probe's text: what its report is filed under."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def chosen_plans(shape: Shape, count: int, out: str | Path, arch: str) -> list[Plan]:
    """Plans worth a line: recorded ones by predicted time, then every variant's default and known configs."""
    from mxfp4lab.config import GemmConfig
    from mxfp4lab.gfx950 import plan_hash
    from mxfp4lab.plan import VARIANTS, build_plan, known_configs, serves
    from mxfp4lab.records import Status, read_all_trials

    trials, _ = read_all_trials(out, shape)
    ranked = [t for t in trials.values() if t.status is Status.ok and t.predicted_us is not None and t.arch == arch]
    ranked.sort(key=lambda trial: trial.predicted_us)
    wanted: list[tuple[str, GemmConfig | None]] = []
    for trial in ranked:
        try:
            wanted.append((trial.variant, GemmConfig.from_dict(trial.config)))
        except ValueError:
            continue  # a field that an earlier version had
    wanted += [(name, None) for name, spec in VARIANTS.items() if not spec.needs_aiter and serves(name, shape, arch)]
    wanted += [(known.variant, known.config) for known in known_configs(shape)] if arch == "gfx950" else []
    plans: dict[str, Plan] = {}
    for variant, config in wanted:
        if len(plans) == count:
            break
        try:
            plan = build_plan(variant, config, shape, arch)
        except ValueError:
            continue  # valid for an earlier version's kernels
        if not VARIANTS[variant].needs_aiter:
            plans.setdefault(plan_hash(plan), plan)
    return list(plans.values())


def probe_text(plans: dict[Shape, list[Plan]], seconds: int) -> str:
    """The probe as a file, its id left open."""
    from mxfp4lab.export.submission import ENTRY, HEADER, PLAN_FORM, file_text, table_lines
    from mxfp4lab.gfx950 import current_knobs, plan_hash
    from mxfp4lab.shapes import task_seed

    knobs = dict(current_knobs())
    probe = {"id": NO_ID, "seed": task_seed(next(iter(plans))) or 0, "seconds": seconds, "knobs": knobs}
    tests = ", ".join(str(case.shape.as_tuple) for case in TEST_SHAPES)
    rows = table_lines(plans, lambda plan: f'"{plan.config.config_id}", "{plan_hash(plan)}",')
    table = [f"PROBE = {json.dumps(probe)}", f"TEST_SHAPES = ({tests})  # the task's", "", *PLAN_FORM,
             "# (M, N, K): rows of config_id and kernel_hash, then a plan.", "PROBED = {", *rows,
             "}  # fmt: skip", "PLANS = {shape: [rows[0][2:]] for shape, rows in PROBED.items()}"]  # fmt: skip
    entry = ENTRY.replace("@FIRST@", "next(usable(shape, data), None)")
    before, found, after = entry.partition("    # What a compiled")
    head = HEADER + "#\n# A probe of mxfp4lab: in test mode it times the plans below and prints a line for each.\n\n"
    return file_text(head, plans, knobs, "\n".join(table), before + BEGIN + found + after)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `probe`."""
    from mxfp4lab.cli.common import add_json_argument

    parser.add_argument("path", metavar="FILE", help="the probe to write, e.g. probe.py; submit it in mode test")
    parser.add_argument("--shape", action="append", required=True, metavar="M,N,K", help="timed; may be repeated")
    parser.add_argument("--configs", default="24", help="configs per shape, 1 to 66 (default: %(default)s)")
    parser.add_argument("--seconds", default=str(MAX_SECONDS), help="budget of timing (default and most: %(default)s)")
    parser.add_argument("--out", default="outputs", help="folder of records, from the repository or absolute")
    parser.add_argument("--arch", default="gfx950", help="gfx950 or sm_90 (default: %(default)s)")
    add_json_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Run `probe`.

    Raises:
        ValueError: a bad request; one line.
    """
    from mxfp4lab.cli.common import answer, whole_number
    from mxfp4lab.notebook import kinds

    if not args.path.endswith(".py"):
        raise ValueError(f"{args.path!r}: a probe is a .py file")
    out = kinds.folder().read("out", args.out)
    configs = whole_number("configs", args.configs, 1, 66)
    seconds = whole_number("seconds", args.seconds, 1, MAX_SECONDS)
    text = write_probe(args.path, args.shape, configs, seconds, out, args.arch)
    lines = len(text.splitlines())
    said = f"{args.path}: {lines} lines; submit it in mode test, then: python -m mxfp4lab records import report.txt"
    answer(args, {"path": args.path, "lines": lines}, said)
    return 0
