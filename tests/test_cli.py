"""The command line: quick help, one JSON object, one line for a bad request, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mxfp4lab import cli
from mxfp4lab.plan import build_plan

ROOT = Path(__file__).resolve().parents[1]
PLAN = ["--variant", "fused_preshuffled", "--shape", "4,2880,512"]


def run(capfd: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    code = cli.run(arguments)
    out, err = capfd.readouterr()
    return code, out, err


def run_json(capfd: pytest.CaptureFixture, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = run(capfd, *arguments, "--json")
    assert out.count("\n") == 1, "one object and nothing else"
    return code, json.loads(out)


@pytest.mark.parametrize("command", ["", "compile", "emulate", "predict", "tune", "check"])
def test_help_answers_before_torch_could_be_loaded(command: str) -> None:
    code = f"""
import sys
from mxfp4lab.cli import run
code = run({[command, "--help"] if command else ["--help"]!r})
heavy = sorted(set(sys.modules) & {{"torch", "triton", "numpy", "pandas", "matplotlib"}})
assert not heavy, heavy
sys.exit(code)
"""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout and done.stderr == ""
    assert time.perf_counter() - start < 5  # half a second where nothing else runs


BAD = [
    ([], "the following arguments are required"),
    (["nonsense"], "invalid choice: 'nonsense'"),
    (["compile"], "required: --variant, --shape"),
    (["compile", "--variant", "nonsense", "--shape", "4,2880,512"], "variant='nonsense' is unknown"),
    (["compile", "--variant", "fused_rowmajor", "--shape", "4,2880"], "accepted forms"),
    (["compile", "--variant", "fused_rowmajor", "--shape", "4,2881,512"], "multiple of 32"),
    (["compile", "--variant", "fused_rowmajor", "--shape", "4,2880,500"], "multiple of 64"),
    (["compile", "--variant", "fused_rowmajor", "--shape", "0,2880,512"], "at least 1"),
    (["compile", "--variant", "fused_rowmajor", "--shape", "9999999999,2880,512"], "larger than"),
    (["compile", *PLAN, "--config", "{block_m: 16}"], "is not JSON"),
    (["compile", *PLAN, "--config", "[" * 100], "is not JSON"),
    (["compile", *PLAN, "--config", "[16]"], "is not a mapping"),
    (["compile", *PLAN, "--config", '{"blok_m": 16}'], "unknown field 'blok_m'"),
    (["compile", *PLAN, "--config", '{"block_m": "16"}'], "block_m='16' must be int"),
    (["compile", *PLAN, "--config", '{"block_m": 16.0}'], "block_m=16.0 must be int"),
    (["compile", *PLAN, "--config", '{"block_m": 3}'], "block_m=3: must be one of 4, 8, 16"),
    (["compile", *PLAN, "--config", '{"block_k": 128}'], "block_k=128"),
    (["compile", *PLAN, "--config", "x" * 20_000], "at most 10000"),
    (["compile", *PLAN, "--arch", "gfx90"], "arch='gfx90'"),
    (["compile", *PLAN, "--bogus"], "unrecognized arguments: --bogus"),
    (["emulate", *PLAN, "--seed", "-1"], "seed='-1'"),
    (["emulate", *PLAN, "--seed", "1.5"], "seed='1.5'"),
    (["emulate", *PLAN, "--seed", str(2**63)], "allowed: a whole number from 0"),
    (["predict", *PLAN, "--regime", "loop"], "regime='loop'; allowed: harness, device"),
    (["tune", "--shape", "4,2880,512", "--budget", "many"], "budget='many'"),
    (["tune", "--shape", "4,2880,512", "--budget", "0"], "budget='0'"),
    (["tune", "--shape", "4,2880,512", "--variants", "nonsense"], "variants='nonsense'"),
    (["tune", "--shape", "4,2880,512", "--variants", "hybrid"], "`export --candidates`"),
    (["compile", "--variant", "hybrid", "--shape", "4,2880,512"], "`export --candidates`"),
    (["tune", "--shape", "4,2880,512", "--workers", "none"], "workers='none'"),
    (["tune", "--shape", "4,2880,512", "--workers", "1000000"], "workers='1000000'"),
    (["tune", "--shape", "4,2880,512", "--verify", "0"], "verify='0'"),
    (["tune", "--shape", "4,2880,512", "--out", __file__], "a file is in the way"),
    (["tune", "--shape", "4,2880,512", "--backend", "tpu"], "backend='tpu'"),
    (["tune", "--shape", "4,2880,512", "--out", "/proc/nowhere"], "cannot write /proc/nowhere"),
    (["check", "/nonexistent/submission.py"], "no such file"),
    (["emulate", "--variant", "hopper", "--shape", "4,2880,512"], "variant='hopper' runs on sm_90 only, not on gfx950"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(a)[:60] for a, _ in BAD])
def test_a_bad_request_is_one_line_and_exit_code_2(capfd, arguments: list[str], said: str) -> None:
    code, out, err = run(capfd, *arguments)
    assert code == 2 and out == ""
    assert said in err and err.count("\n") == 1 and err.startswith(("mxfp4lab: ", "check: "))
    assert "Traceback" not in err


def test_compile_says_resources_and_mix(capfd) -> None:
    code, data = run_json(capfd, "compile", *PLAN, "--config", '{"block_m": 16, "split_k": 2}')
    assert code == 0 and data["config"]["split_k"] == 2 and data["variant"] == "fused_preshuffled"
    assert data["resources"]["vgprs"] > 0 and data["resources"]["spilled_vgprs"] == 0
    assert data["mix"]["valu"] > 0 and sum(data["mfma"].values()) > 0 and data["hazards"] == []
    assert [kernel["name"] for kernel in data["kernels"]] == ["gemm_tiles", "reduce_tiles"]
    assert data["toolchain"]["triton"] and len(data["kernel_hash"]) == 16


def test_compile_for_people_names_every_kernel(capfd) -> None:
    code, out, _ = run(capfd, "compile", *PLAN)
    assert code == 0 and "gemm_tiles" in out and "no spills" in out and "v_mfma_scale_f32_16x16x128_f8f6f4" in out


def test_emulate_gives_the_reference_bits(capfd) -> None:
    code, data = run_json(capfd, "emulate", *PLAN)
    assert code == 0 and data["passed"] is True and data["bf16_identical_fraction"] == 1.0
    assert data["max_abs_err"] == 0.0 and data["evidence"] == "emulated" and data["seed"] == 4565
    assert data["lane_instructions"] > 1_000_000 and data["emulate_s"] > 0
    assert "latency_us" not in data and "us" not in " ".join(data)


def test_emulate_checks_orders_too_and_a_finding_is_a_failure(capfd, monkeypatch) -> None:
    code, data = run_json(capfd, "emulate", *PLAN, "--checks")
    assert code == 0 and data["checks"] is True and data["findings"] == [] and data["bf16_identical_fraction"] == 1.0
    plan = build_plan("fused_preshuffled", None, "4,2880,512")
    short = next(buffer for buffer in plan.buffers if buffer.name == "c")
    cut = replace(plan, buffers=tuple(replace(b, shape=(4, 2879)) if b is short else b for b in plan.buffers))
    monkeypatch.setattr("mxfp4lab.cli.emulate.plan_from", lambda args: cut)
    monkeypatch.setattr("mxfp4lab.task.check_output", lambda c, reference: SimpleNamespace(
        passed=True, bf16_identical_fraction=1.0, max_abs_err=0.0, message=""))  # fmt: skip
    code, data = run_json(capfd, "emulate", *PLAN, "--checks")
    assert code == 1 and data["passed"] is False and "past its end" in data["findings"][0]


def test_predict_says_that_it_is_modelled(capfd) -> None:
    code, data = run_json(capfd, "predict", *PLAN)
    low, high = data["interval"]
    assert code == 0 and data["evidence"] == "modelled" and low <= data["predicted_us"] <= high
    assert data["predicted_us"] == pytest.approx(sum(data["terms"].values()))
    assert data["counts"]["evidence"] == "emulated" and data["model_version"]


def test_tune_from_a_shell_resumes_and_answers_in_json(capfd, tmp_path: Path) -> None:
    options = ["tune", "--shape", "4,2880,512", "--budget", "4", "--verify", "1", "--out", str(tmp_path)]
    options += ["--variants", "fused_preshuffled,prequant_rowmajor"]
    code, data = run_json(capfd, *options)
    assert code == 0 and data["pick"]["kind"] == "pick" and data["pick"]["bf16_identical"] == 1.0
    assert data["funnel"]["left"]["tried"] == 4
    code, again = run_json(capfd, *options)
    assert again["pick"]["config"] == data["pick"]["config"]
    assert again["funnel"]["reused"] == 5 and len(list(tmp_path.glob("runs/*/trials-main.jsonl"))) == 2


@pytest.mark.parametrize(("kind", "code"), [("lds", 1), ("crash", 1), ("request", 2)])
def test_a_kernel_that_does_not_compile_was_tried_and_failed(capfd, monkeypatch, kind: str, code: int) -> None:
    from mxfp4lab.gfx950 import CompileError

    def refuse(*_: Any, **__: Any) -> None:
        raise CompileError("gemm_fused: needs 548864 B of LDS; gfx950 has 163840 B", kind)

    monkeypatch.setattr("mxfp4lab.gfx950.toolchain.compile.compile_plan", refuse)
    ended, out, err = run(capfd, "compile", *PLAN)
    assert (ended, out) == (code, "") and err == "mxfp4lab: gemm_fused: needs 548864 B of LDS; gfx950 has 163840 B\n"


def test_a_bad_request_of_check_is_answered_before_torch_could_be_loaded() -> None:
    code = """
import sys
from mxfp4lab.cli import run
assert run(["check", "nofile.py"]) == run(["check", "nofile.py", "--mode", "nonsense"]) == 2
assert not set(sys.modules) & {"torch", "triton", "numpy"}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 2 and "no such file" in done.stderr


def test_a_submission_without_custom_kernel_is_told_so_once(capfd, tmp_path: Path) -> None:
    file = tmp_path / "submission.py"
    file.write_text("import torch\n")
    code, out, _ = run(capfd, "check", str(file), "--backend", "emulator")
    assert code == 112 and out.count("defines no custom_kernel") == 1 and "all 4 cases" in out


def test_a_bug_of_ours_is_one_line_too(capfd, monkeypatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "compile", (__name__, "broken"))
    code, out, err = run(capfd, "compile")
    assert code == cli.EXIT_BUG and out == "" and err.count("\n") == 1 and "ZeroDivisionError" in err


def add_arguments(parser: Any) -> None:
    """So that this module can stand in for a command with a bug."""


def main(args: Any) -> int:
    return 1 // 0


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m mxfp4lab --help | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == ""


def test_check_says_at_a_terminal_which_case_runs_and_leaves_no_trace_of_it(
    capsys, monkeypatch, tmp_path: Path
) -> None:
    file = tmp_path / "submission.py"
    file.write_text("import torch\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert cli.run(["check", str(file), "--backend", "emulator"]) == 112
    out, err = capsys.readouterr()
    assert "check: case 4 of 4: m: 256; n: 2880; k: 512; seed: 78" in err and err.endswith("\r\x1b[K")
    assert "case 4 of 4" not in out
