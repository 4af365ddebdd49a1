"""`python -m mxfp4lab export`: from an executed notebook (or a run's summary, or a config) to a submission file."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from pathlib import Path

from mxfp4lab.cli.common import add_json_argument, answer, parse_config, whole_number


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
    add_json_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Run `export`; 0 written (or clean), 1 refused by the lint with --lint.

    Raises:
        ValueError: a bad request; one line.
    """
    if args.lint:
        return _lint(args)
    needs = "--variant needs one file: the submission to write" if args.variant is not None else ""
    needs = "--cell needs a notebook and the file to write" if args.cell is not None else needs
    count = len(args.source)
    if count != 1 + (args.cell is not None) if needs else count < 2:
        needs = needs or "needs a notebook and the file to write: export out.ipynb submission.py"
        raise ValueError(f"export {needs}")
    *sources, target = args.source
    if not target.endswith(".py"):
        raise ValueError(f"{target!r}: the file to write is a .py file, and comes last")
    text, shapes = _written(args, sources, target)
    lines, tuned = len(text.splitlines()), f", tuned for {', '.join(shapes)}" if shapes else ""
    answer(args, {"path": target, "lines": lines, "shapes": shapes}, f"{target}: {lines} lines{tuned}")
    return 0


def _written(args: argparse.Namespace, sources: list[str], target: str) -> tuple[str, list[str]]:
    """The text of the file and the shapes that it has plans for."""
    if args.cell is not None:
        from mxfp4lab.export.cell import export_cell

        return export_cell(sources[0], args.cell, target), []
    from mxfp4lab.export.submission import export_submission
    from mxfp4lab.shapes import TASK_SHAPES, parse_shape

    command = _command(args)
    if args.variant is not None:
        config = parse_config(args.config)
        picks = dict.fromkeys(map(parse_shape, args.shape or TASK_SHAPES), (args.variant, config))
        evidence = "The given config." if config is not None else "Default configs, not tuned."
        return export_submission(picks, target, evidence=evidence, arch=args.arch, command=command), [*map(str, picks)]
    from mxfp4lab.export.picks import read_picks

    found = {pick.shape: pick for source in sources for pick in read_picks(source)}
    candidates = None if args.candidates is None else whole_number("candidates", args.candidates, 1, 16)
    if candidates is None and all(pick.run_id for pick in found.values()):
        command = ""  # the runs are named, as 04_tune does: the same picks give the same file
    return export_submission(found.values(), target, candidates=candidates, command=command), [*map(str, found)]


def _command(args: argparse.Namespace) -> str:
    """This command, to stand in the file's header."""
    words = [*(Path(name).name for name in args.source)]
    for name in ("candidates", "variant", "config", "arch"):
        value = getattr(args, name)
        words += [f"--{name}", value] if value not in (None, "gfx950") else []
    words += [word for shape in args.shape for word in ("--shape", shape)]
    return shlex.join(["python", "-m", "mxfp4lab", "export", *words])


def _lint(args: argparse.Namespace) -> int:
    from mxfp4lab.export.lint import lint_source

    if len(args.source) != 1:
        raise ValueError("export --lint needs one file: a submission")
    path = Path(args.source[0])
    if not path.is_file():
        raise ValueError(f"{args.source[0]!r}: no such file")
    findings = lint_source(path.read_text(encoding="utf-8", errors="replace"))
    refused = any(finding.severity == "error" for finding in findings)
    said = "\n".join(f"{f.severity}: {f}" for f in findings) or "no findings"
    answer(args, {"path": str(path), "refused": refused, "findings": [asdict(f) for f in findings]}, said)
    return 1 if refused else 0
