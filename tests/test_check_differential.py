"""Submissions whose verdict on a real GPU is known: `check` on the emulator gives the same one.

`submissions/differential/verdicts.csv` holds what the task's own script said of each file on an NVIDIA H200 (torch
2.11, Triton 3.6). Most are run in one process here, one after the other; those that need the protocol around them, or
seconds of work, are checked one by one.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from mxfp4lab.check import cases as case_lines
from mxfp4lab.check import check_submission

FOLDER = Path(__file__).parent / "submissions" / "differential"
ROWS = {row["file"]: row for row in csv.DictReader((FOLDER / "verdicts.csv").open())}
CASE = "m: 8; n: 128; k: 256; seed: 42\n"
# What a failure says, where it is not the GPU's own sentence.
SAID = {
    "b09_packed_converted_to_uint8": "device-side assert triggered",
    "b24_byte_matmul": "not implemented for 'int64'",
    "b27_fp8_elementwise": "not implemented for 'float8_e4m3fn'",
    "b29_histogram_of_bf16": "not implemented for 'bfloat16'",
    "a10_index_copy_cpu_index": "expected to be in the same device",
    "c16_pinned_not_awaited": "elements outside",
    "c21_loop_over_queue_without_copy_back": "elements outside",
    "e02_autotune_atomic_not_reset": "autotune chooses gemm_split",
    "e04_autotune_second_choice_wrong": "autotune chooses gemm_even: BLOCK_K: 512",
    "e50_benchmarked_call_accumulates": "elements outside",
}
SLOW = {name for name in ROWS if name.startswith(("c16", "c21", "d07", "e0", "e50", "l0", "d27"))}
TOGETHER = sorted(set(ROWS) - SLOW)

BATCH = """
import json, types
import torch
from task import input_t, output_t

def custom_kernel(data):
    kept = None
    for name in NAMES:
        path = f"{FOLDER}/{name}.py"
        module = types.ModuleType(name)
        module.__file__ = path
        try:
            import linecache, sys
            sys.modules[name] = module
            exec(compile(open(path).read(), path, "exec"), vars(module))
            c = module.custom_kernel(tuple(t.clone() for t in data))
            a, b = module.operands(data)
            expected = (a @ b.T).bfloat16()
            kept = expected if kept is None else kept
            right = c.is_cuda and torch.allclose(c.float(), expected.float(), rtol=1e-2, atol=1e-2)
            said = "" if right else "elements outside"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}" or "failed"
            torch.cuda.Event.order.link.refused = None  # so that the next file has its own verdict
        print("VERDICT", json.dumps([name, said]), flush=True)
    return kept
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each of `TOGETHER` ended with; "" for a right C."""
    folder = tmp_path_factory.mktemp("differential")
    (folder / "batch.py").write_text(f"NAMES = {TOGETHER!r}\nFOLDER = {str(FOLDER)!r}\n{BATCH}")
    (folder / "cases.txt").write_text(CASE)
    report = check_submission(
        folder / "batch.py", "test", "emulator", cases_file=folder / "cases.txt", log=case_lines.Log(), time_limit_s=100
    )
    lines = [line.split(" ", 1)[1] for line in report.printed.splitlines() if line.startswith("VERDICT ")]
    found = dict(map(json.loads, lines))
    assert set(found) == set(TOGETHER), report.summary()
    return found


def judge(name: str, line: str) -> None:
    """Fail unless the line is what the file's verdict on the GPU asks for."""
    if ROWS[name]["gpu_verdict"] == "pass":
        assert line == ""
    else:
        expected = SAID.get(name) or ROWS[name]["gpu_line"].split(": ", 1)[1][:60]
        assert expected in line


@pytest.mark.parametrize("name", TOGETHER)
def test_verdict_is_the_gpus(name: str, said: dict[str, str]) -> None:
    judge(name, said[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SLOW))
def test_verdict_under_the_protocol_is_the_gpus(name: str, tmp_path: Path) -> None:
    (tmp_path / "cases.txt").write_text(CASE)
    report = check_submission(
        FOLDER / f"{name}.py", ROWS[name]["mode"], "emulator", cases_file=tmp_path / "cases.txt", log=case_lines.Log(),
        time_limit_s=100,
    )  # fmt: skip
    assert report.passed == (ROWS[name]["gpu_verdict"] == "pass"), report.summary()
    if not name.startswith("l0"):  # a wrong C: which of its elements are named depends on the inputs
        judge(name, report.cases[0].error)
