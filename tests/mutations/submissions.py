"""Faults of a submission file around its kernels: an exported file with one line changed, linted and run by `check`."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from mxfp4lab.check import cases as case_lines
from mxfp4lab.check import check_submission
from mxfp4lab.config import GemmConfig
from mxfp4lab.export import export_submission, lint_source
from mxfp4lab.shapes import Shape
from tests.mutations.detect import Verdict
from tests.mutations.fault import Mutation

SHAPE = Shape(8, 64, 512)
TIME_LIMIT_S = 60


@functools.cache
def exported() -> str:
    """A file as the lab writes it: GEMM with K split in two, and the sum."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "submission.py"
        config = GemmConfig(block_k=128, split_k=2, convert="hw_bf16")
        export_submission({SHAPE: ("fused_rowmajor", config)}, path)
        return path.read_text()


def judge(old: str, new: str) -> Verdict:
    """What lint and `check` say of the exported file with `old` changed to `new`."""
    source = exported()
    if old not in source:
        raise ValueError(f"the exported file does not hold {old!r}")
    source = source.replace(old, new)
    verdict = Verdict()
    errors = [str(finding) for finding in lint_source(source) if finding.severity == "error"]
    if errors:
        verdict.object("lint", errors[0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "submission.py"
        path.write_text(source)
        report = check_submission(path, "leaderboard", "emulator", [SHAPE], time_limit_s=TIME_LIMIT_S,
                                  log=case_lines.Log())  # fmt: skip
    if not report.passed:
        verdict.object("check", report.error or next(case.error for case in report.cases if case.error))
    return verdict


def _fault(name: str, about: str, caught_by: str, old: str, new: str) -> Mutation:
    return Mutation(name, about, "", caught_by, judge=lambda: judge(old, new), control=lambda: judge("\n", "\n"))


RETURN = "    return READY[key](data)\n"
EMPTY = "        c = torch.empty(c_sizes, dtype=torch.bfloat16, device=device)\n"

SUBMISSION_MUTATIONS: tuple[Mutation, ...] = (
    _fault("first_result_again", "the first result is returned for every later call of the shape", "check", RETURN,
           "    if shape not in RESULTS:\n        RESULTS[shape] = READY[key](data)\n    return RESULTS[shape]\n\n\n"
           "RESULTS = {}\n"),
    _fault("one_output_for_all_calls", "C is a workspace", "check", EMPTY, "        c = memory[\"c\"]\n"),
    _fault("c_in_fp32", "C of another dtype, which the task itself does not look at", "check", EMPTY,
           EMPTY.replace("bfloat16", "float32")),
    _fault("c_as_n_by_m", "C transposed", "check", RETURN, "    return READY[key](data).t()\n"),
    _fault("reduce_forgotten", "the sum is not launched", "check", "*launches = plan", "*launches = plan[:3]"),
    _fault("workspace_of_half_the_splits", "partial results of one split overwrite what lies behind", "check",
           '("partial", (2, 8, 64)', '("partial", (1, 8, 64)'),
    _fault("scales_as_they_lie", "B's packed bytes where its scales belong", "check",
           '"b_q", "b_scale_sh", "partial"', '"b_q", "b_q", "partial"'),
)  # fmt: skip
