"""The command line: which command is meant, what it prints, and how it ends.

Every command is a module with ``add_arguments(parser)`` and ``main(args) -> exit code``; only the one that is asked for
is imported, so that ``--help`` answers before torch could be loaded. Exit codes: 0 done, 1 tried and failed (a wrong C,
a kernel that does not compile or needs too much LDS), 2 a bad request, 130 interrupted; what is refused is one line on
standard error. ``check`` has the task's own codes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence

from mxfp4lab import __version__

EXIT_OK, EXIT_FAILED, EXIT_BAD_REQUEST, EXIT_BUG, EXIT_INTERRUPTED = 0, 1, 2, 70, 130

COMMANDS: dict[str, tuple[str, str]] = {
    "compile": (
        "mxfp4lab.cli.compile",
        "compile a variant for gfx950 without a GPU: registers, spills, instruction mix",
    ),
    "emulate": ("mxfp4lab.cli.emulate", "execute its gfx950 code on the CPU and compare C with the reference"),
    "predict": ("mxfp4lab.cli.predict", "predict its MI355X time from emulated counts"),
    "tune": (
        "mxfp4lab.cli.tune",
        "search the configs of a shape; resumes what earlier runs did",
    ),
    "sweep": ("mxfp4lab.cli.sweep", "tune, of several shapes: the task's six unless told otherwise"),
    "export": ("mxfp4lab.export.command", "write a submission file from an executed notebook, a run or a config"),
    "probe": ("mxfp4lab.export.probe", "write a submission that times configs on a box behind a queue"),
    "records": ("mxfp4lab.export.report", "import what a probe or the server's benchmark printed"),
    "check": ("mxfp4lab.check.check", "run any submission file under the task's protocol"),
    "model": ("mxfp4lab.cli.model", "how good the time model is; --refit fits it again from the published rows"),
    "gpu": ("mxfp4lab.cli.gpu", "on a GPU box: measure every variant on the task's six shapes and keep the records"),
    "counters": ("mxfp4lab.cli.counters", "set a profiler's counters beside emulated counts"),
}


class _Parser(argparse.ArgumentParser):
    """argparse, with errors in one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(f"{message} (see {self.prog} --help)")


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    command = next((argument for argument in arguments if not argument.startswith("-")), None)
    try:
        if command is None or command not in COMMANDS or arguments[0] != command:
            _overview().parse_args(list(arguments))
            return EXIT_BAD_REQUEST  # not reached: the overview ends by itself
        return _run_command(command, list(arguments[1:]))
    except SystemExit as ending:  # argparse: help or a bad option
        return ending.code if isinstance(ending.code, int) else EXIT_BAD_REQUEST
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter shall not complain about it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_FAILED
    except KeyboardInterrupt as error:
        print(f"mxfp4lab: {error or 'interrupted'}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (ValueError, OSError) as error:
        _debug()
        return _refuse(_one_line(error), EXIT_FAILED if _was_tried(error) else EXIT_BAD_REQUEST, arguments)
    except Exception as error:
        _debug()
        said = f"{type(error).__name__}: {_one_line(error)}"
        return _refuse(f"a bug of ours: {said} (MXFP4LAB_DEBUG=1 shows where)", EXIT_BUG, arguments)


def _refuse(said: str, code: int, arguments: Sequence[str]) -> int:
    """One line on standard error; with --json the object that was asked for as well."""
    print(f"mxfp4lab: {said}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": said, "exit_code": code}))
    return code


def _run_command(command: str, arguments: list[str]) -> int:
    module_name, about = COMMANDS[command]
    module = importlib.import_module(module_name)
    parser = _Parser(prog=f"python -m mxfp4lab {command}", description=about)
    module.add_arguments(parser)
    args = parser.parse_args(arguments)
    code = module.main(args)
    sys.stdout.flush()
    return code


def _overview() -> _Parser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items())
    parser = _Parser(
        prog="python -m mxfp4lab",
        description="Understand, prove, tune and export MXFP4 GEMMs for AMD MI355X (gfx950), with or without the GPU.",
        epilog=f"commands:\n{listing}\n\nEvery command answers --help, and --json with one object on standard output.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mxfp4lab {__version__}")
    parser.add_argument("command", choices=list(COMMANDS), metavar="command", help="one of the commands below")
    return parser


def _was_tried(error: BaseException) -> bool:
    """Whether the request was sound and the compiler refused the kernel; a compile error's kind says so."""
    errors = sys.modules.get("mxfp4lab.gfx950.toolchain.errors")
    return errors is not None and isinstance(error, errors.CompileError) and error.kind not in ("request", "machine")


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _debug() -> None:
    if os.environ.get("MXFP4LAB_DEBUG"):
        traceback.print_exc()
