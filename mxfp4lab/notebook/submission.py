"""`%%submission FILE [--shape M,N,K] [--mode MODE] [--check]`: the cell becomes a self-contained submission file.

The cell may use names of earlier cells and of the lab; their source is copied (`export.cell`), the file is linted and
imported in a fresh process, and with --check run under the task's protocol. First
`%load_ext mxfp4lab.notebook.submission`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import re
import shlex
import sys
import types
from collections.abc import Iterator
from typing import Any

from mxfp4lab import display as look
from mxfp4lab.paths import REPO_ROOT, shown_path

USAGE = "%%submission FILE.py [--shape M,N,K] [--mode MODE] [--backend BACKEND] [--check]"


class SubmissionRefused(ValueError):
    """The magic cannot do what it is asked for; IPython shows the sentence alone."""

    def _render_traceback_(self) -> list[str]:
        return [f"SubmissionRefused: {self}"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(f"%%submission: {message}; usage: {USAGE}")


class SubmissionCard:
    """What became of a cell: the file, its lint, and what a check found.

    Args:
        path: the file; source: its text.
        warnings: what the lint has to say without refusing, and whether the cell could not run in the notebook.
        report: of the check.
    """

    def __init__(self, path: str, source: str, warnings: list[str], report: Any) -> None:
        self.path, self.source, self.warnings, self.report = path, source, warnings, report

    def __str__(self) -> str:
        head = [f"{self.path}: {len(self.source.splitlines())} lines", *(f"  warning: {w}" for w in self.warnings)]
        return "\n".join([*head, str(self.report)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [("file", f"{self.path}, {len(self.source.splitlines())} lines")]
        rows += [("warning", w) for w in self.warnings]
        text = f'<pre style="max-height:420px;overflow:auto">{look.escape(self.source)}</pre>'
        return look.card("Submission", look.facts(rows) + look.details("the file", text)) + self.report._repr_html_()


def submission(line: str, cell: str) -> SubmissionCard:
    """The magic.

    Raises:
        SubmissionRefused: bad options, or a cell that cannot become a file (with the cell's line).
    """
    try:
        return _submission(line, cell)
    except ValueError as error:
        raise SubmissionRefused(str(error)) from None


def _submission(line: str, cell: str) -> SubmissionCard:
    from IPython import get_ipython

    from mxfp4lab.check import check_submission
    from mxfp4lab.export.cell import below_magic, submission_from_cell
    from mxfp4lab.export.lint import lint_source

    options = _options(line)
    path = REPO_ROOT / options.path  # a relative path starts there, as every folder parameter's; an absolute one stays
    shell = get_ipython()
    earlier = [below_magic(text) for text in shell.history_manager.input_hist_raw[1 : shell.execution_count]]
    text = submission_from_cell(f"\n{cell}", path, earlier)
    warnings = [str(finding) for finding in lint_source(text) if finding.severity == "warning"]
    if options.check or options.shape:
        report = check_submission(path, options.mode, options.backend, options.shape)
    else:
        report = check_submission(path, "import", options.backend)
    warnings += _run_here(shell, cell)
    return SubmissionCard(shown_path(path), text, warnings, report)


def _run_here(shell: Any, cell: str) -> list[str]:
    """Run the cell in the notebook too, so that later cells can use its names; what failed, in words."""
    outer = shell.displayhook.exec_result  # of the magic's own cell; a cell run inside forgets it
    with _task_module():
        done = shell.run_cell(cell, store_history=False, silent=True)
    shell.displayhook.exec_result = outer
    error = done.error_before_exec or done.error_in_exec
    return [f"its names are not in this notebook: {type(error).__name__}: {error}"] if error else []


@contextlib.contextmanager
def _task_module() -> Iterator[None]:
    """`from task import input_t, output_t` works in the notebook while the cell runs."""
    if "task" in sys.modules or importlib.util.find_spec("task") is not None:
        yield
        return
    module = types.ModuleType("task")
    module.input_t = module.output_t = object  # type: ignore[attr-defined]
    sys.modules["task"] = module
    try:
        yield
    finally:
        del sys.modules["task"]


def _options(line: str) -> argparse.Namespace:
    parser = _Parser(prog="%%submission", add_help=False)
    parser.add_argument("path")
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--mode", default="test")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--check", action="store_true")
    # Up to its .py the line is the path: IPython has put values into it, and a folder's name may hold blanks.
    bare = re.match(r"([^'\"]*?\.py)(?=\s|$)", line.strip())
    try:
        words = [bare[1], *shlex.split(line.strip()[bare.end() :])] if bare else shlex.split(line)
    except ValueError as problem:
        raise ValueError(f"%%submission: {problem}; usage: {USAGE}") from None
    options = parser.parse_args(words)
    if not options.path.endswith(".py"):
        raise ValueError(f"%%submission: {options.path!r} is no .py file; usage: {USAGE}")
    return options


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext mxfp4lab.notebook.submission`."""
    shell.register_magic_function(submission, "cell", "submission")
