"""`python -m mxfp4lab export`: from an executed notebook (or a run's summary, or a config) to a submission file."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `export`."""
    parser.add_argument(
        "source", nargs="*", metavar="FILE",
        help="executed notebooks, summary.json files or picks as JSON; the last file is the submission to write",
    )  # fmt: skip
    parser.add_argument(
        "--candidates", metavar="N",
        help="plans per shape that the file times at its first call, 1 to 16 (default: 3 for a modelled pick, else 1)",
    )  # fmt: skip
    parser.add_argument("--variant", help="without a notebook: the variant")
    parser.add_argument("--shape", action="append", default=[], metavar="M,N,K", help="with --variant; may be repeated")
    parser.add_argument("--config", metavar="JSON", help="with --variant: '{\"block_m\": 16}'; else its default")
    parser.add_argument(
        "--arch", default="gfx950", help="with --variant: the target, gfx950 or sm_90 (default: gfx950)"
    )
    parser.add_argument("--cell", metavar="TAG", help="export the code cell with this tag of a notebook")
    parser.add_argument(
        "--lint", action="store_true", help="only lint the file: FILE is a submission; nothing is written"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else")


def main(args: argparse.Namespace) -> int:
    """Run `export`; 0 written (or clean), 1 refused by the lint with --lint.

    Raises:
        ValueError: a bad request; one line.
    """
    if args.lint:
        return _lint(args)
    if args.cell is not None:
        return _cell(args)
    if args.variant is not None:
        return _variant(args)
    if len(args.source) < 2:
        raise ValueError("export needs a notebook and the file to write: export out.ipynb submission.py")
    from mxfp4lab.cli.common import whole_number
    from mxfp4lab.export.picks import read_picks
    from mxfp4lab.export.submission import export_submission

    *sources, target = args.source
    _require_python(target)
    picks = {pick.shape: pick for source in sources for pick in read_picks(source)}
    candidates = None if args.candidates is None else whole_number("candidates", args.candidates, 1, 16)
    text = export_submission(picks.values(), target, candidates=candidates, command=_command(args))
    return _say(args, target, text, [str(shape) for shape in picks])


def _variant(args: argparse.Namespace) -> int:
    from mxfp4lab.cli.common import parse_config
    from mxfp4lab.export.submission import export_submission
    from mxfp4lab.shapes import TASK_SHAPES, parse_shape

    if len(args.source) != 1:
        raise ValueError("export --variant needs one file: the submission to write")
    _require_python(args.source[0])
    shapes = [parse_shape(shape) for shape in args.shape] or list(TASK_SHAPES)
    config = parse_config(args.config)
    picks = dict.fromkeys(shapes, (args.variant, config))
    evidence = "The given config." if config is not None else "Default configs, not tuned."
    text = export_submission(picks, args.source[0], evidence=evidence, arch=args.arch, command=_command(args))
    return _say(args, args.source[0], text, [str(shape) for shape in shapes])


def _command(args: argparse.Namespace) -> str:
    """This command, to stand in the file's header."""
    words = [*(Path(name).name for name in args.source)]
    for name in ("candidates", "variant", "config", "arch"):
        value = getattr(args, name)
        words += [f"--{name}", value] if value not in (None, "gfx950") else []
    words += [word for shape in args.shape for word in ("--shape", shape)]
    return shlex.join(["python", "-m", "mxfp4lab", "export", *words])


def _cell(args: argparse.Namespace) -> int:
    from mxfp4lab.export.cell import export_cell

    if len(args.source) != 2:
        raise ValueError("export --cell needs a notebook and the file to write")
    _require_python(args.source[1])
    text = export_cell(args.source[0], args.cell, args.source[1])
    return _say(args, args.source[1], text, [])


def _lint(args: argparse.Namespace) -> int:
    from mxfp4lab.export.lint import lint_source

    if len(args.source) != 1:
        raise ValueError("export --lint needs one file: a submission")
    path = Path(args.source[0])
    if not path.is_file():
        raise ValueError(f"{args.source[0]!r}: no such file")
    findings = lint_source(path.read_text(encoding="utf-8", errors="replace"))
    refused = any(finding.severity == "error" for finding in findings)
    if args.json:
        rows = [{"line": f.line, "rule": f.rule, "severity": f.severity, "message": f.message} for f in findings]
        print(json.dumps({"path": str(path), "refused": refused, "findings": rows}))
    else:
        print("\n".join(f"{f.severity}: {f}" for f in findings) or "no findings")
    return 1 if refused else 0


def _require_python(target: str) -> None:
    if not target.endswith(".py"):
        raise ValueError(f"{target!r}: the file to write is a .py file, and comes last")


def _say(args: argparse.Namespace, target: str, text: str, shapes: list[str]) -> int:
    lines = len(text.splitlines())
    if args.json:
        print(json.dumps({"path": str(target), "lines": lines, "shapes": shapes}))
    else:
        print(f"{target}: {lines} lines" + (f", tuned for {', '.join(shapes)}" if shapes else ""))
    return 0
