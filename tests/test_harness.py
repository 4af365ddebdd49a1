"""`check`: the task's protocol, its codes and log, and what a submission's process may do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from mxfp4lab.check import cases as case_lines
from mxfp4lab.check import check_submission
from mxfp4lab.check.child.link import Packer
from mxfp4lab.check.protocol import statistics
from mxfp4lab.shapes import Shape

SUBMISSIONS = Path(__file__).parent / "submissions"
SMALL = ["8,64,256"]
TWO = ["8,64,256", "16,64,256"]


def check(name: str, mode: str = "test", shapes: list[str] = SMALL, **options):
    options.setdefault("time_limit_s", 20)
    return check_submission(SUBMISSIONS / f"{name}.py", mode, "emulator", shapes, log=case_lines.Log(), **options)


# (file, mode, part of the line that it gets). Those marked slow run in `make test-all`.
BAD = [
    ("empty", "test", "submission.py defines no custom_kernel"),
    ("syntax_error", "test", "submission.py line 5: SyntaxError: '(' was never closed"),
    ("raises", "test", "submission.py line 6: RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    ("imports_mxfp4lab", "test", "submission.py line 1: ModuleNotFoundError: No module named 'mxfp4lab'"),
    ("exits_hard", "test", "the submission ended its process (exit code 0)"),
    ("wrong_dtype", "test", "dtype torch.float32 where torch.bfloat16 is expected"),
    ("view_of_input", "test", "the output is a view of input B"),
    ("changes_input", "test", "custom_kernel changed its input A"),
    ("replaces_event", "test", "the submission replaced torch.cuda.Event.elapsed_time"),
    ("deletes_files", "test", "submission.py line 7: "),
    ("cached_by_shape", "leaderboard", "returned again for new inputs: results are cached by pointer, id or shape"),
    ("cached_by_pointer", "leaderboard", "returned again for new inputs: results are cached by pointer, id or shape"),
    ("cached_quantized_a", "leaderboard", "quantized A is cached by pointer, id or shape"),
    ("same_buffer", "benchmark", "a buffer was handed out twice"),
]
MORE_BAD = [
    ("missing_kernel", "test", "submission.py defines no custom_kernel"),
    ("raises_at_import", "test", "submission.py line 1: ModuleNotFoundError: No module named 'a_package_that"),
    ("exits", "test", "submission.py line 5: the submission called exit(0)"),
    ("crashes", "test", "the submission's process died by SIGSEGV"),
    ("hip_source", "test", "submission.py line 3: Refused: HIP C++ cannot be compiled here"),
    ("no_tensor", "test", "custom_kernel returned a list, not a tensor"),
    ("wrong_shape", "test", "shape (64, 8) where (8, 64) is expected"),
    ("wrong_values", "test", "elements outside |C - ref| <= 0.01 + 0.01*|ref|"),
    ("on_the_cpu", "test", "custom_kernel returned a tensor on cpu, not on the GPU"),
    ("replaces_clock", "test", "the submission replaced time.perf_counter_ns"),
    ("writes_elsewhere", "test", "submission.py line 3: "),
]


def expect_failure(name: str, mode: str, line: str, **options) -> None:
    report = check(name, mode, **options)
    if name in ("deletes_files", "writes_elsewhere"):
        if not report.confined:
            pytest.skip("this machine can keep no process from writing: test_confinement has what then happens")
        assert "Read-only file system" in report.cases[0].error or "Permission denied" in report.cases[0].error
    assert not report.passed
    assert report.exit_code == 112
    assert line in report.cases[0].error
    assert "\n" not in report.cases[0].error
    assert report.log[-1] == "check: fail"


@pytest.mark.parametrize(("name", "mode", "line"), BAD)
def test_a_bad_submission_gets_one_clear_line(name: str, mode: str, line: str) -> None:
    expect_failure(name, mode, line)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode", "line"), MORE_BAD)
def test_more_bad_submissions_get_one_clear_line(name: str, mode: str, line: str) -> None:
    expect_failure(name, mode, line)


def test_an_endless_loop_is_ended_at_the_time_limit() -> None:
    expect_failure("infinite_loop", "test", "over its time limit of 2 s: ended", time_limit_s=2)


@pytest.mark.slow
def test_an_endless_import_is_ended_at_the_time_limit() -> None:
    expect_failure("infinite_loop_at_import", "test", "over its time limit of 2 s: ended", time_limit_s=2)


@pytest.mark.slow
def test_memory_is_limited_and_the_line_says_so() -> None:
    expect_failure("uses_memory", "test", "limit of its process: 3072 MiB", memory_limit_bytes=3 << 30)


def test_import_only_loads_the_file() -> None:
    assert check("triton_kernel", "import").passed
    report = check("syntax_error", "import")
    assert report.exit_code == 112 and "SyntaxError" in report.cases[0].error
    assert report.log == ["check: fail"]


def test_a_process_left_behind_is_ended_and_told(tmp_path: Path) -> None:
    report = check("forks")
    assert report.cases[0].status == "pass"
    assert not report.passed and report.exit_code == 112
    assert "left 1 process(es) behind: ended" in report.error


def test_what_a_submission_prints_is_counted_and_cut(tmp_path: Path) -> None:
    report = check("prints_much")
    assert report.passed
    assert report.printed_bytes >= 300 << 20
    assert len(report.printed) == 64 << 10


def test_c_that_is_not_contiguous_passes_with_a_warning() -> None:
    report = check("not_contiguous")
    assert report.passed and report.exit_code == 0
    assert "not contiguous (strides (72, 1))" in report.cases[0].warnings[0]


def test_b_kept_for_the_same_tensor_passes_where_every_call_is_right() -> None:
    assert check("cached_b", "leaderboard").passed


def test_cached_results_pass_where_inputs_never_change() -> None:
    assert check("cached_by_shape", "test").passed  # why leaderboard mode exists


def test_the_tasks_template_runs_on_a_labelled_stand_in_for_aiter() -> None:
    report = check("aiter_template", shapes=TWO)
    assert report.passed
    assert report.cases[0].bf16_identical_fraction == 1.0
    # AMD's machine code where amd-aiter is installed, else the reference: the report says which.
    assert any(note.startswith("aiter's GEMM is ") for note in report.notes)
    first, second = (case.message for case in report.cases)
    assert report.log == [
        "test-count: 2",
        "test.0.spec: m: 8; n: 64; k: 256; seed: 42", "test.0.status: pass", f"test.0.message: {first}",
        "test.1.spec: m: 16; n: 64; k: 256; seed: 42", "test.1.status: pass", f"test.1.message: {second}",
        "check: pass",
    ]  # fmt: skip


def test_timed_modes_on_the_emulator_count_and_name_no_time() -> None:
    report = check("triton_kernel", "benchmark")
    assert report.passed
    assert report.cases[0].calls == 3 and report.cases[0].launches_per_call == [1, 1, 1]
    keys = [line.split(":")[0] for line in report.log]
    assert keys == [
        "benchmark-count", "benchmark.0.spec", "benchmark.0.runs", "benchmark.0.launches",
        "benchmark.0.lane-instructions", "benchmark.0.evidence", "check",
    ]  # fmt: skip
    assert "benchmark.0.evidence: emulated" in report.log
    assert report.cases[0].stats == {}


def test_every_way_to_launch_reaches_the_emulator() -> None:
    """`kernel[grid]`, heuristics, autotune, warmup and a compiled kernel's own launcher, on tensors made on "cuda"."""
    report = check("triton_launch_forms")
    assert report.passed, report.summary()
    launched = {(use.compiled.name, use.constants["BLOCK"]): use.launches for use in report.kernels}
    assert {name for name, _ in launched} == {"scale_heuristic", "scale_plain", "scale_tuned"}
    tuned = [times for (name, _), times in launched.items() if name == "scale_tuned"]
    assert len(tuned) == 2 and min(tuned) > 3, "every config of autotune is benchmarked, and gives a C of its own"
    assert any("not timed" in note for note in report.notes)


def test_tensors_on_a_gpu_that_is_not_there_behave_like_it() -> None:
    report = check("torch_forms")
    assert report.passed, report.summary() + report.printed


def test_an_access_outside_a_tensor_is_a_finding_and_a_failure() -> None:
    report = check("triton_out_of_bounds")
    assert not report.passed
    assert "x_ptr" in report.cases[0].error and "copy_too_far" in report.cases[0].error
    text = report.kernel_report()
    assert "copy_too_far" in text and "VGPRs" in text and "spills      none" in text
    assert report.kernels[0].findings
    assert json.loads(json.dumps(report.to_dict()))["kernels"][0]["findings"]


def test_uninitialised_memory_does_not_pass_for_zeros() -> None:
    report = check("triton_reads_uninitialised")
    assert not report.passed and "elements outside" in report.cases[0].error


def test_the_report_of_a_passing_file_shows_resources_and_counts() -> None:
    report = check("triton_kernel")
    assert report.passed
    use = report.kernels[0]
    assert use.compiled.resources.vgprs > 0 and use.findings == []
    assert use.grids == {(4, 1, 1): 1}
    assert report.cases[0].lane_instructions == use.lane_instructions > 0
    assert "gfx950 emulator (emulated)" in report.summary()


# cases, seeds, log ----------------------------------------------------------------------------------------------------


def test_a_case_line_is_read_as_the_task_writes_it() -> None:
    case = case_lines.parse_case("m: 64; n: 7168; k: 2048; seed: 687")
    assert case.shape == Shape(64, 7168, 2048) and case.seed == 687


@pytest.mark.parametrize("line", [
    "m: 64; n: 7168; k: 2048", "m: 64; n: 7168; k: 2048; seed: x", "64,7168,2048", "m: 64; n: 7169; k: 2048; seed: 1",
    "m: 0; n: 32; k: 64; seed: 1", "m: 1; n: 32; k: 64; seed: -1", "m 1; n: 32; k: 64; seed: 1",
])  # fmt: skip
def test_a_bad_case_line_is_refused_by_name(line: str) -> None:
    with pytest.raises(case_lines.BadCases, match="invalid test case"):
        case_lines.parse_case(line)


def test_the_tasks_cases_and_seeds() -> None:
    assert [str(c.shape) for c in case_lines.task_cases("test")] == [
        "8x2112x7168",
        "16x3072x1536",
        "64x3072x1536",
        "256x2880x512",
    ]
    assert len(case_lines.task_cases("benchmark")) == 6
    assert case_lines.task_cases("test", [Shape(64, 7168, 2048)])[0].seed == 687
    assert case_lines.task_cases("test", [Shape(3, 64, 256)])[0].seed == 42


def test_the_secret_seed_is_combined_as_the_task_does() -> None:
    assert case_lines.combine(687, 12345) == 687 + (687 + 12345) * (687 + 12345 + 1) // 2
    case = case_lines.Case(Shape(8, 64, 256), 5, "m: 8; n: 64; k: 256; seed: 5")
    secret = case_lines.with_secret([case], 7)[0]
    assert secret.seed == 5 + 12 * 13 // 2 and secret.spec == case.spec


def test_the_secret_seed_changes_the_inputs_and_not_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPCORN_SEED", "99")
    report = check("aiter_template")
    assert report.passed and "test.0.spec: m: 8; n: 64; k: 256; seed: 42" in report.log
    monkeypatch.setenv("POPCORN_SEED", "abc")
    with pytest.raises(ValueError, match="POPCORN_SEED='abc' must be an integer"):
        check("aiter_template")


def test_log_lines_go_to_the_descriptor_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "log", "w") as file:
        monkeypatch.setenv("POPCORN_FD", str(file.fileno()))
        log = case_lines.Log.from_environment()
        log.write("test.0.error", "two\nlines")
    assert (tmp_path / "log").read_text() == "test.0.error: two\\nlines\n"
    assert log.lines == ["test.0.error: two\\nlines"]


def run_command(capfd: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    from mxfp4lab import cli

    code = cli.run(["check", *arguments])
    out, err = capfd.readouterr()
    return code, out, err


def test_exit_codes_of_bad_requests(
    tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = str(SUBMISSIONS / "aiter_template.py")
    bad_cases = tmp_path / "cases.txt"
    bad_cases.write_text("m: 1; n: 32\n")
    table = [
        (["missing.py"], 2, "no such file"),
        ([good, "--mode", "fast"], 2, "mode='fast' must be one of test, benchmark, leaderboard, import"),
        ([good, "--backend", "tpu"], 2, "backend='tpu' must be one of auto, emulator, gpu"),
        ([good, "--against", "numpy"], 2, "against='numpy' must be one of math, aiter"),
        ([good, "--shape", "1,2"], 2, "accepted forms"),
        ([good, "--time-limit", "0"], 2, "must be positive"),
        ([good, "--memory-limit", "0.1"], 2, "torch alone needs that"),
        ([good, "--cases", str(bad_cases)], 113, "invalid test case"),
        ([good, "--cases", str(tmp_path / "none")], 113, "could not open test file"),
    ]  # fmt: skip
    if not torch.cuda.is_available():
        table.append(([good, "--backend", "gpu"], 2, "torch sees no GPU here"))
    for arguments, code, said in table:
        got, out, err = run_command(capfd, *arguments)
        assert (got, out) == (code, ""), arguments
        assert said in err and err.count("\n") == 1, err
    monkeypatch.setenv("POPCORN_FD", "97")
    got, _, err = run_command(capfd, good)
    assert got == 111 and "POPCORN_FD='97' names no open descriptor" in err


def test_the_report_is_printed_on_request(capfd: pytest.CaptureFixture) -> None:
    file = str(SUBMISSIONS / "triton_out_of_bounds.py")
    code, out, _ = run_command(capfd, file, "--backend", "emulator", "--shape", SMALL[0], "--report")
    assert code == 112 and "check: fail" in out
    assert "copy_too_far  (1 launches" in out and "occupancy" not in out and "waves per SIMD" in out
    assert re.search(r"findings\s+.*\n\s+.*x_ptr", out)


def test_json_holds_no_nan(capfd: pytest.CaptureFixture) -> None:
    file = str(SUBMISSIONS / "wrong_shape.py")
    _, out, _ = run_command(capfd, file, "--backend", "emulator", "--shape", SMALL[0], "--json")
    assert json.loads(out, parse_constant=pytest.fail)["cases"][0]["max_abs_err"] is None


def test_json_is_one_object(capfd: pytest.CaptureFixture) -> None:
    code, out, _ = run_command(
        capfd, str(SUBMISSIONS / "aiter_template.py"), "--backend", "emulator", "--shape", SMALL[0], "--json"
    )
    data = json.loads(out)
    assert code == 0 and data["passed"] and data["exit_code"] == 0 and out.count("\n") == 1
    assert data["evidence"] == "emulated" and data["cases"][0]["status"] == "pass"


# small parts ----------------------------------------------------------------------------------------------------------


def test_statistics_are_the_tasks() -> None:
    stats = statistics([1.0, 2.0, 3.0, 6.0])
    assert stats["mean"] == 3.0 and stats["best"] == 1.0 and stats["worst"] == 6.0 and stats["runs"] == 4
    assert stats["std"] == pytest.approx((14 / 3) ** 0.5) and stats["err"] == pytest.approx(stats["std"] / 2)


def test_places_in_the_window_do_not_overlap() -> None:
    packer = Packer(1 << 20)
    places = [packer.place(size) for size in (1, 5000, 4096, 0, 7)]
    assert places == [0, 4096, 12288, 16384, 16384]
    with pytest.raises(ValueError, match="need more than"):
        packer.place(1 << 20)


def test_the_reference_beside_a_submission_is_the_labs() -> None:
    """The plain copy that a submission may import gives the lab's bits."""
    import importlib.util
    import sys

    from mxfp4lab.formats import quantize_mxfp4
    from mxfp4lab.layouts import e8m0_shuffle, shuffle_weight

    folder = Path(check_submission.__code__.co_filename).parent / "child" / "task_files"
    loaded = {}
    for name in ("utils", "reference"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        loaded[name] = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded[name]
        spec.loader.exec_module(loaded[name])
    for name in loaded:
        del sys.modules[name]
    reference = loaded["reference"]
    x = torch.randn((64, 320), generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    x[0, :32] = torch.tensor([6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5] * 4)
    x[1] = 0
    packed, scale = quantize_mxfp4(x)
    ours, our_scale = reference.quantize_mxfp4(x)
    assert torch.equal(ours, packed) and torch.equal(our_scale, scale)
    assert torch.equal(reference.shuffle_weights(packed), shuffle_weight(packed))
    assert torch.equal(reference.shuffle_scales(scale, pad_value=0), e8m0_shuffle(scale))
    assert torch.equal(reference.unshuffle_weights(reference.shuffle_weights(packed)), packed)
    assert torch.equal(reference.unshuffle_scales(reference.shuffle_scales(scale))[:64, :10], scale)
