"""`%%submission file.py [--check] [--shape M,N,K]`: this cell, with what it uses, as a submission file.

Registered by `notebook.start`, or by `%load_ext mxfp4lab.notebook`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import shlex
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mxfp4lab import display as look
from mxfp4lab.notebook.card import shown_path
from mxfp4lab.notebook.session import cell_history, ipython
from mxfp4lab.paths import REPO_ROOT

_USAGE = "%%submission outputs/submission.py [--check] [--shape M,N,K] [--mode test] [--backend auto] [--no-run]"


class SubmissionCard:
    """What became of a cell: the file, its lint, whether it imports, and the verdict of a check."""

    def __init__(self, path: Path, text: str, warnings: Sequence[str], started: str, report: Any = None) -> None:
        self.path, self.source, self.warnings, self.started, self.report = path, text, tuple(warnings), started, report

    @property
    def passed(self) -> bool:
        """It imports, and the check, if there was one, passed."""
        return not self.started and (self.report is None or self.report.passed)

    def lines(self) -> list[tuple[str, Any]]:
        """(name, value), for the HTML and the plain form."""
        found = [
            ("file", f"{shown_path(self.path)}, {len(self.source.splitlines())} lines, needs nothing of this package"),
            ("lint", "; ".join(self.warnings) or "no findings"),
            ("imported in a fresh process", self.started or "yes"),
        ]
        if self.report is None:
            return [*found, ("check", "not asked for (--check)")]
        for case in self.report.cases:
            said = case.error if case.status == "fail" else case.message
            found.append((case.status, f"{case.spec}: {said}"))
        if self.report.error:
            found.append(("error", self.report.error))
        judged = f"{self.report.device}, mode {self.report.mode}, {self.report.evidence}, {self.report.seconds:.1f} s"
        return [*found, ("check", f"{'pass' if self.report.passed else 'fail'} ({judged})")]

    def __str__(self) -> str:
        return look.text_facts("Submission" if self.passed else "Submission: does not pass", self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        word = look.badge("passes" if self.passed else "does not pass", "good" if self.passed else "bad")
        if self.passed and self.report is None:
            word = look.badge("written", "quiet")
        body = look.facts(self.lines()) + f'<div style="margin-top:6px">{word}</div>'
        code = (
            '<details style="margin-top:6px"><summary>the file</summary>'
            f'<pre style="max-height:420px;overflow:auto">{look.escape(self.source)}</pre></details>'
        )
        return str(look.card("Submission", body + code))


def submission(line: str, body: str, shell: Any = None) -> SubmissionCard:
    """Turn a cell into a file; the cell then runs in the notebook too, so that later cells can use its names.

    Args:
        line: the magic's arguments.
        body: the cell below it.
        shell: the IPython shell; the running one without it.

    Raises:
        ValueError: bad arguments, or what `export.cell.submission_from_cell` raises: with the cell's line.
    """
    from mxfp4lab.export.cell import submission_from_cell
    from mxfp4lab.export.lint import lint_source

    shell = shell or ipython()
    asked = _arguments(line)
    earlier = [_below_magic(source) for source in cell_history()[1 : shell.execution_count]]
    path = asked.file if asked.file.is_absolute() else REPO_ROOT / asked.file
    # The magic's line stays as a comment, so that messages count lines as the notebook shows them.
    text = submission_from_cell(f"#\n{body}", path, earlier, shell.user_ns)
    warnings = [f"{f.rule}: {f.message}" for f in lint_source(text)]
    report, started = None, ""
    if asked.check:
        from mxfp4lab.harness import check_submission

        report = check_submission(path, mode=asked.mode, backend=asked.backend, shapes=asked.shape)
    else:
        started = _import_fresh(text)
    card = SubmissionCard(path, text, warnings, started, report)
    if not asked.no_run and card.passed:
        with _task_module():
            shell.run_cell(body, store_history=False).raise_error()
    return card


def register(shell: Any = None) -> bool:
    """Give the running IPython shell the `%%submission` magic; False where there is none."""
    shell = shell or ipython()
    if shell is None:
        return False
    shell.register_magic_function(
        lambda line, cell: submission(line, cell, shell), magic_kind="cell", magic_name="submission"
    )
    return True


def _below_magic(source: str) -> str:
    """An earlier `%%submission` cell without its first line, which stays as a comment."""
    first, _, rest = source.partition("\n")
    return f"#\n{rest}" if first.startswith("%%submission") else source


class _Refusal(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(f"%%submission: {message}; usage: {_USAGE}")


def _arguments(line: str) -> argparse.Namespace:
    from mxfp4lab.shapes import parse_shape

    parser = _Refusal(prog="%%submission", add_help=False)
    parser.add_argument("file", type=Path)
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--mode", default="test")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--no-run", action="store_true")
    try:
        words = shlex.split(line)
    except ValueError as problem:
        raise ValueError(f"%%submission: {problem}; usage: {_USAGE}") from None
    asked = parser.parse_args(words)
    if asked.file.suffix != ".py":
        raise ValueError(f"%%submission: {str(asked.file)!r}: the file to write is a .py file; usage: {_USAGE}")
    asked.shape = [parse_shape(shape) for shape in asked.shape]
    return asked


def _import_fresh(text: str) -> str:
    """Import the file as the task does, in a process of its own; "" or why it failed."""
    from mxfp4lab.harness.launches import LaunchService
    from mxfp4lab.harness.session import Limits, Session, SubmissionEnded

    try:
        with Session(text.encode(), gpu=False, limits=Limits(120.0), serve=LaunchService()):
            return ""
    except SubmissionEnded as error:
        return str(error)


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
