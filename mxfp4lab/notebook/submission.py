"""`%%submission FILE [--shape M,N,K] [--mode MODE] [--check]`: the cell becomes a self-contained submission file.

The cell may use names of earlier cells and of the lab; their source is gathered (`export.gather`), the file is linted
and imported in a fresh process, and with --check run under the task's protocol. First
`%load_ext mxfp4lab.notebook.submission`.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from mxfp4lab import display as look


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(f"%%submission: {message}")


class SubmissionCard:
    """What became of a cell: the file, its lint, and what a check found.

    Args:
        path: the file; lines: how many it has.
        warnings: what the lint has to say without refusing.
        report: of the check.
    """

    def __init__(self, path: str, lines: int, warnings: list[str], report: Any) -> None:
        self.path, self.lines, self.warnings, self.report = path, lines, warnings, report

    def __str__(self) -> str:
        head = [f"{self.path}: {self.lines} lines", *(f"  warning: {w}" for w in self.warnings)]
        return "\n".join([*head, str(self.report)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [("file", f"{self.path}, {self.lines} lines")] + [("warning", w) for w in self.warnings]
        return look.card("Submission", look.facts(rows)) + self.report._repr_html_()


def submission(line: str, cell: str) -> SubmissionCard:
    """The magic.

    Raises:
        ValueError: bad options, or a cell that cannot become a file (with the cell's line).
    """
    from IPython import get_ipython

    from mxfp4lab.export.cell import submission_from_cell
    from mxfp4lab.export.lint import lint_source
    from mxfp4lab.harness import check_submission

    options = _options(line)
    shell = get_ipython()
    earlier = [
        text for text in shell.history_manager.input_hist_raw[1:] if not text.lstrip().startswith("%%submission")
    ]
    text = submission_from_cell(f"\n{cell}", options.path, earlier, shell.user_ns)
    warnings = [str(finding) for finding in lint_source(text) if finding.severity == "warning"]
    if options.check or options.shape:
        report = check_submission(options.path, options.mode, options.backend, options.shape)
    else:
        report = check_submission(options.path, "import", options.backend)
    return SubmissionCard(options.path, len(text.splitlines()), warnings, report)


def _options(line: str) -> argparse.Namespace:
    parser = _Parser(prog="%%submission", add_help=False)
    parser.add_argument("path")
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--mode", default="test")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args(shlex.split(line))


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext mxfp4lab.notebook.submission`."""
    shell.register_magic_function(submission, "cell", "submission")
