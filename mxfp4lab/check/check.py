"""`python -m mxfp4lab check`: one submission file, one mode, one verdict with the task's exit code."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxfp4lab.check import cases as case_lines
from mxfp4lab.shapes import Shape, parse_shape

if TYPE_CHECKING:
    from mxfp4lab.check.launches import LaunchService
    from mxfp4lab.check.report import CheckReport
    from mxfp4lab.check.session import Limits

BACKENDS = ("auto", "emulator", "gpu")
AGAINST = ("math", "aiter")
MAX_FILE_BYTES = 8 << 20


def check_submission(
    path: str | Path,
    mode: str = "test",
    backend: str = "auto",
    shapes: Iterable[Shape | str] = (),
    *,
    cases_file: str | Path | None = None,
    against: str = "math",
    time_limit_s: float | None = None,
    memory_limit_bytes: int = 12 << 30,
    races: bool = False,
    log: case_lines.Log | None = None,
) -> CheckReport:
    """Run a submission file under the task's protocol, in a process of its own.

    Args:
        path: the file.
        mode: "test", "benchmark" or "leaderboard"; "import" only loads the file.
        backend: "emulator" executes its kernels' gfx950 code on the CPU and counts; "gpu" runs and times it; "auto"
            takes the GPU where torch sees one.
        shapes: only these, with the task's seeds; without them the task's cases for the mode.
        cases_file: case lines to use instead.
        against: "math" judges by exact arithmetic with nearest-even rounding (what current aiter gives), "aiter" by
            AMD's own prebuilt GEMM out of an installed amd-aiter, emulated, on A quantized as current aiter does.
        time_limit_s: of the submission's own seconds; None takes the task's limit for the mode.
        memory_limit_bytes: resident memory of its processes.
        races: on the emulator also look for races in LDS and between workgroups (slower); what is found fails the
            case, like any finding.
        log: where log lines go; None takes POPCORN_FD's descriptor.

    Returns:
        A report; whatever the submission does is in it, with the task's exit code.

    Raises:
        ValueError: for a bad request: no such file, unknown mode or backend, bad shape, no GPU where one is asked for.
    """
    _require("mode", mode, case_lines.MODES)
    _require("backend", backend, BACKENDS)
    _require("against", against, AGAINST)
    limit = case_lines.TIME_LIMITS_S[mode] if time_limit_s is None else time_limit_s
    for name, value in (("time_limit_s", limit), ("memory_limit_bytes", memory_limit_bytes)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"{name}={value!r} must be a finite number")
    if not limit > 0:
        raise ValueError(f"time_limit_s={time_limit_s!r} must be positive")
    if memory_limit_bytes < 1 << 30:
        raise ValueError(
            f"memory_limit_bytes={memory_limit_bytes!r} must be at least {1 << 30}: torch alone needs that"
        )
    source = _read(path)
    chosen = [parse_shape(shape) for shape in shapes]
    if cases_file is not None and chosen:
        raise ValueError("shape and cases exclude each other: a case file names its shapes")
    lines = case_lines.read_cases(cases_file) if cases_file is not None else case_lines.task_cases(mode, chosen)
    todo = case_lines.with_secret(lines, case_lines.secret_seed())
    log = case_lines.Log.from_environment() if log is None else log
    from mxfp4lab.check.launches import LaunchService  # torch comes with it: a bad request is answered before
    from mxfp4lab.check.session import Limits

    launches = LaunchService(races)
    limits = Limits(limit, int(memory_limit_bytes))
    return _run(str(path), source, mode, _resolve_backend(backend), todo, against, limits, launches, log)


def _require(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(allowed)}")


def _read(path: str | Path) -> bytes:
    if not isinstance(path, (str, Path)):
        raise ValueError(f"submission={path!r} is no path")
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"submission={str(path)!r}: no such file")
    if file.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"submission={str(path)!r} has {file.stat().st_size} bytes; at most {MAX_FILE_BYTES} are read")
    return file.read_bytes()


def _resolve_backend(backend: str) -> str:
    if backend == "emulator":
        return backend
    import torch

    if torch.cuda.is_available():
        return "gpu"
    if backend == "gpu":
        raise ValueError("backend='gpu': torch sees no GPU here; use emulator or auto")
    return "emulator"


def _run(
    path: str,
    source: bytes,
    mode: str,
    backend: str,
    cases: list[case_lines.Case],
    against: str,
    limits: Limits,
    launches: LaunchService,
    log: case_lines.Log,
) -> CheckReport:
    from mxfp4lab.check.protocol import Run
    from mxfp4lab.check.report import CheckReport
    from mxfp4lab.check.session import Session, SubmissionEnded
    from mxfp4lab.export.lint import header_warnings, server_refusals

    started = time.perf_counter()
    gpu = backend == "gpu"
    reference, judge = _judge(against)
    report = CheckReport(path, mode, backend, "measured" if gpu else "emulated", against=judge)
    text = source.decode("utf-8", "replace")
    report.refusals = [str(refusal) for refusal in server_refusals(text)]
    report.warnings += [str(warning) for warning in header_warnings(text)]
    flush, report.device = _device(gpu)
    session = Session(source, gpu=gpu, limits=limits, serve=launches)
    try:
        with session:
            launches.window = session.link.window
            run = Run(session, None if gpu else launches, log, "cuda" if gpu else "cpu", reference, flush)
            report.passed = getattr(run, "imports" if mode == "import" else mode)(cases)
            report.cases = run.reports
    except SubmissionEnded as error:  # it did not even start
        report.error = str(error)
        log.write("check", "fail")
        report.passed = False
    report.confined = session.confined
    report.printed, report.printed_bytes = session.printed.text, session.printed.total
    report.kernels, report.notes = launches.kernels, launches.notes
    if session.leftovers:
        report.error = f"the submission left {session.leftovers} process(es) behind: ended"
        report.passed = False
    report.exit_code = case_lines.EXIT_PASS if report.passed else case_lines.EXIT_FAIL
    report.log = log.lines
    report.seconds = time.perf_counter() - started
    return report


def _judge(against: str) -> tuple[Callable[[tuple[Any, ...]], Any], str]:
    """What computes the C that outputs are judged by, and how to call it.

    Raises:
        ValueError: aiter is asked for and is not here, or its code objects cannot be read.
    """
    if against == "math":
        from mxfp4lab.task import reference_output

        return reference_output, "exact arithmetic, ties to even"
    from mxfp4lab.aiter.gemm import aiter_output, require_prebuilt_gemm

    return aiter_output, require_prebuilt_gemm()


def _device(gpu: bool) -> tuple[int, str]:
    """Bytes of the cache overwrite, and the device's name."""
    if not gpu:
        return 0, "gfx950 emulator"
    from mxfp4lab.gpu.device import device_info, overwrite_bytes

    info = device_info(0)
    flush = overwrite_bytes(info)
    return flush, f"{info.name}, cache overwrite {flush / 2**30:.2g} GiB"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `check`."""
    from mxfp4lab.cli.common import add_json_argument

    parser.add_argument("submission", help="the submission file")
    parser.add_argument("--mode", default="test", help="test, benchmark, leaderboard, or import (default: %(default)s)")
    parser.add_argument("--backend", default="auto", help="auto, emulator or gpu (default: %(default)s)")
    parser.add_argument(
        "--shape", action="append", default=[], metavar="M,N,K", help="only this shape; may be repeated"
    )
    parser.add_argument("--cases", metavar="FILE", help="a file of case lines `m: ..; n: ..; k: ..; seed: ..`")
    parser.add_argument(
        "--against", default="math", help="math (exact, ties to even) or aiter (its prebuilt GEMM, emulated)"
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="list each kernel launched: resources, spills, hazards, findings (races too)",
    )
    parser.add_argument("--time-limit", type=float, metavar="S", help="seconds of its own that the submission may take")
    parser.add_argument(
        "--memory-limit", type=float, default=12.0, metavar="GIB", help="memory of its processes (default: %(default)s)"
    )
    add_json_argument(parser)


class _LineOfProgress(case_lines.Log):
    """The task's log, and for a person at a terminal one line that says which case is running."""

    _CLEAR = "\r\x1b[K"

    def write(self, key: str, value: object) -> None:
        super().write(key, value)
        if key.endswith("-count"):
            self._count = value
        if key.endswith(".spec"):
            case = int(key.split(".")[1]) + 1
            print(f"{self._CLEAR}check: case {case} of {self._count}: {value}", end="", file=sys.stderr, flush=True)
        elif key == "check":
            print(self._CLEAR, end="", file=sys.stderr, flush=True)


def main(args: argparse.Namespace) -> int:
    """Run `check` for parsed arguments; returns the exit code: 0, 112, 111, 113 or 2.

    The codes are the task's, with one difference: its script ends a failed ranked run with 0, this one with 112.
    """
    from mxfp4lab.cli.common import answer

    try:
        report = check_submission(
            args.submission,
            args.mode,
            args.backend,
            args.shape,
            cases_file=args.cases,
            against=args.against,
            time_limit_s=args.time_limit,
            memory_limit_bytes=args.memory_limit * 2**30,
            races=args.report,
            log=_LineOfProgress.from_environment() if sys.stderr.isatty() and not args.json else None,
        )
    except case_lines.BadCases as error:
        return _refuse(args, error, case_lines.EXIT_BAD_CASES)
    except case_lines.NoLog as error:
        return _refuse(args, error, case_lines.EXIT_NO_LOG)
    except ValueError as error:
        return _refuse(args, error, case_lines.EXIT_BAD_REQUEST)
    text = report.summary() + (f"\n{report.kernel_report()}" if args.report else "")
    answer(args, report.to_dict(), text)
    return report.exit_code


def _refuse(args: argparse.Namespace, error: Exception, code: int) -> int:
    if args.json:
        print(json.dumps({"error": str(error), "exit_code": code}))
    else:
        print(f"check: {error}", file=sys.stderr)
    return code
