"""Records: what a trial may hold, how it survives torn and foreign files, and how fast many rows are read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxfp4lab import records
from mxfp4lab.records import Counts, Evidence, LaunchCounts, RecordsError, Status, Trial, TrialLog
from mxfp4lab.shapes import Shape

SHAPE = Shape(64, 7168, 2048)


def trial(**changes: object) -> Trial:
    fields = {
        "run_id": "r1",
        "shape": SHAPE,
        "variant": "fused_preshuffled",
        "config": {"block_m": 16, "block_n": 128},
        "config_id": "0123456789ab",
        "arch": "gfx950",
        "evidence": Evidence.modelled,
        "status": Status.ok,
        "kernel_hash": "feed",
        "toolchain": {"triton": "3.9.0"},
        "started_at": "2026-11-29T16:00:00Z",
        "worker": "main",
    }
    return Trial(**{**fields, **changes})


def counts(shape: Shape = SHAPE) -> Counts:
    launch = LaunchCounts(name="gemm", workgroups=56, waves_per_workgroup=4, valu_per_wave=298.25, vgprs=96)
    return Counts(shape=shape, launches=(launch, replace(launch, name="reduce")), split_k=2, partial_bytes=1 << 20)


def test_a_trial_comes_back_from_its_line_unchanged() -> None:
    before = trial(predicted_us=7.25, model_version="m1", counts=counts(), resources={"gemm": {"vgprs": 96}})
    assert Trial.from_dict(json.loads(before.to_line())) == before
    assert json.loads(before.to_line())["counts"]["evidence"] == "emulated"


def test_a_trial_says_the_same_in_text_and_html() -> None:
    shown = trial(predicted_us=7.25, model_version="m1", reason="<b>", resources={"gemm": {"vgprs": 96}}, seed=3)
    html = shown._repr_html_()
    for fact in ("7.25", "modelled", "64x7168x2048", "block_n=128", "gemm=(vgprs=96)", "m1"):
        assert fact in str(shown) and fact in html
    assert "<b>" in str(shown) and "<b>" not in html


text = st.text(max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    variant=text,
    reason=st.text(max_size=40),
    config=st.dictionaries(text, st.one_of(st.integers(), st.booleans(), text), max_size=4),
    fraction=st.one_of(st.none(), st.floats(0, 1)),
    seed=st.one_of(st.none(), st.integers(0, 2**63)),
    status=st.sampled_from(list(Status)),
)
def test_any_trial_round_trips(variant, reason, config, fraction, seed, status) -> None:
    before = trial(
        variant=variant, reason=reason, config=config, bf16_identical=fraction, seed=seed, status=status,
        evidence=Evidence.emulated,
    )  # fmt: skip
    line = before.to_line()
    assert line.endswith("\n") and "\n" not in line[:-1]
    after = Trial.from_dict(json.loads(line))
    assert after == before and after.identity == before.identity


def test_two_kinds_of_time_cannot_be_mixed() -> None:
    with pytest.raises(ValueError, match="latency_us belongs to measured"):
        trial(latency_us=3.0)
    with pytest.raises(ValueError, match="predicted_us belongs to modelled"):
        trial(evidence=Evidence.measured, predicted_us=3.0, model_version="m")
    with pytest.raises(ValueError, match="needs a model_version"):
        trial(predicted_us=3.0)
    with pytest.raises(ValueError, match="latency_us: nan"):
        trial(evidence=Evidence.measured, latency_us=float("nan"))


@pytest.mark.parametrize(
    "change",
    [
        {"shape": Shape(64, 7168, 4096)},
        {"variant": "reference"},
        {"config": {"block_m": 32}},
        {"kernel_hash": "beef"},
        {"knobs": {"OPTIMIZE_EPILOGUE": "1"}},
        {"arch": "sm_90"},
        {"device": "MI355X"},
        {"toolchain": {"triton": "3.7.0"}},
        {"evidence": Evidence.emulated},
        {"regime": "kernel"},
        {"seed": 7},
        {"generator_device": "cuda"},
        {"model_version": "m2"},
    ],
)
def test_identity_changes_with_every_part_of_it(change: dict) -> None:
    assert trial(**change).identity != trial().identity


def test_identity_ignores_when_where_and_how_it_ended() -> None:
    other = trial(run_id="r2", worker="gpu1", started_at="later", status=Status.screened, reason="spills")
    assert other.identity == trial().identity


def test_append_is_on_disk_at_once_and_reads_back(tmp_path: Path) -> None:
    with TrialLog(tmp_path, "w0") as log:
        log.append(trial())
        found, warnings = records.read_trials(log.path)
        assert found == [trial()] and warnings == []


def test_torn_last_line_is_skipped_with_a_warning_and_not_glued_to_the_next(tmp_path: Path) -> None:
    with TrialLog(tmp_path, "w0") as log:
        log.append(trial(seed=1))
        log.append(trial(seed=2))
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:-30])
    found, warnings = records.read_trials(log.path)
    assert [t.seed for t in found] == [1]
    assert len(warnings) == 1 and "torn last line" in warnings[0]
    with TrialLog(tmp_path, "w0") as log:
        log.append(trial(seed=3))
    found, warnings = records.read_trials(log.path)
    assert [t.seed for t in found] == [1, 3]


def test_every_cut_of_a_file_keeps_all_whole_rows(tmp_path: Path) -> None:
    lines = [trial(seed=seed, counts=counts()).to_line().encode() for seed in range(3)]
    whole = b"".join(lines)
    path = tmp_path / "trials-x.jsonl"
    for cut in range(0, len(whole), 37):
        path.write_bytes(whole[:cut])
        found, _ = records.read_trials(path)
        complete = sum(cut >= sum(map(len, lines[: i + 1])) for i in range(3))
        # A row that lacks only its newline is whole JSON, and counts.
        assert len(found) in (complete, complete + 1)


FOREIGN = [
    (b'{"name": "pytest", "passed": 3}\n', "not a trial"),
    (b"[1, 2, 3]\n", "not a trial"),
    (b"null\n", "not a trial"),
    (b"\x00\xff\xfe garbage\n", "not JSON"),
    (b'{"schema": 99, "shape": {}}\n', "schema 99"),
    (b'{"schema": true}\n', "schema True"),
    (b"[" * 100_000 + b"\n", "not JSON"),
    (trial().to_line().replace('"modelled"', '"guessed"').encode(), "not a trial"),
    (trial().to_line().replace('"m":64', '"m":"64"').encode(), "not a trial"),
    (trial().to_line().replace('"schema":1', '"schema":1,"secret":1').encode(), "unknown field 'secret'"),
    (trial(seed=1).to_line().replace('"seed":1', '"seed":1.5').encode(), "1.5 is not int"),
    (trial().to_line().replace('"block_n":128', '"block_n":1e999').encode(), "not JSON"),
    (trial(reason="x").to_line().replace('"x"', '"\\ud800"').encode(), "not JSON"),
    (trial(evidence="measured", latency_us=1.0).to_line().replace("1.0", "NaN").encode(), "not JSON"),
]


@pytest.mark.parametrize(("line", "why"), FOREIGN)
def test_foreign_lines_are_skipped_by_name(tmp_path: Path, line: bytes, why: str) -> None:
    path = tmp_path / "trials-x.jsonl"
    path.write_bytes(trial(seed=1).to_line().encode() + line + trial(seed=2).to_line().encode())
    found, warnings = records.read_trials(path)
    assert [t.seed for t in found] == [1, 2]
    assert len(warnings) == 1 and why in warnings[0]


def test_a_foreign_file_answers_with_few_warnings(tmp_path: Path) -> None:
    path = tmp_path / "trials-x.jsonl"
    path.write_text("".join(f'{{"schema": 1, "field{i}": 0}}\n' for i in range(500)))
    found, warnings = records.read_trials(path)
    assert found == [] and 1 <= len(warnings) <= 9


def test_repeated_rows_count_once_and_the_last_wins(tmp_path: Path) -> None:
    with TrialLog(tmp_path, "a") as log:
        log.append(trial(status=Status.screened, reason="spills"))
        log.append(trial())
    found, warnings = records.read_trials(log.path)
    assert [t.status for t in found] == [Status.ok] and "1 repeated row," in warnings[0]


def test_all_runs_are_read_and_a_missing_folder_is_empty(tmp_path: Path) -> None:
    assert records.read_all_trials(tmp_path) == ({}, [])
    for run, seed in (("a", 1), ("b", 2)):
        with TrialLog(tmp_path / "runs" / run, "w") as log:
            log.append(trial(seed=seed))
            log.append(trial(seed=seed, shape=Shape(4, 2880, 512)))
    found, _ = records.read_all_trials(tmp_path, SHAPE)
    assert sorted(t.seed for t in found.values()) == [1, 2]
    assert len(records.read_all_trials(tmp_path)[0]) == 4


def test_a_full_disk_is_one_clear_line_and_loses_nothing(tmp_path: Path) -> None:
    code = f"""
import resource, signal
from pathlib import Path
from tests.test_records import trial
from mxfp4lab.records import RecordsError, TrialLog
log = TrialLog(Path({str(tmp_path)!r}), "w")
log.append(trial(seed=1))
resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size + 50,) * 2)
try:
    log.append(trial(seed=2))
except RecordsError as error:
    print(error)
"""
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert "cannot write" in done.stdout and done.stdout.count("\n") == 1
    found, _ = records.read_trials(tmp_path / "trials-w.jsonl")
    assert [t.seed for t in found] == [1]


def test_kill_9_while_writing_loses_at_most_the_row_in_flight(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from tests.test_records import trial
from mxfp4lab.records import TrialLog
log = TrialLog(Path({str(tmp_path)!r}), "w")
for seed in range(10**9):
    log.append(trial(seed=seed))
    print(seed, flush=True)
"""
    root = Path(__file__).resolve().parents[1]
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root)
    for _ in range(200):
        said = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    child.wait()
    rest = [int(line) for line in child.stdout.read().split("\n")[:-1]]
    child.stdout.close()
    said = max([said, *rest])
    found, _ = records.read_trials(tmp_path / "trials-w.jsonl")
    assert [t.seed for t in found][: said + 1] == list(range(said + 1))


def test_a_log_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordsError, match="cannot write"):
        TrialLog(tmp_path / "file" / "run")
    with pytest.raises(ValueError, match=r"worker: '\.\./x'"):
        TrialLog(tmp_path, "../x")


def test_run_json_is_written_once(tmp_path: Path) -> None:
    path = records.write_run_json(tmp_path / "r", {"parameters": {"shape": "64x7168x2048"}})
    assert json.loads(path.read_text())["parameters"] == {"shape": "64x7168x2048"}
    with pytest.raises(RecordsError, match="described once"):
        records.write_run_json(tmp_path / "r", {})
    assert os.listdir(tmp_path / "r") == ["run.json"]


def test_run_ids_of_one_second_differ() -> None:
    assert len({records.new_run_id("tune") for _ in range(50)}) > 40


def test_environment_names_what_changes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTIMIZE_EPILOGUE", "1")
    monkeypatch.setenv("HIP_API_TOKEN", "hush")
    found = records.environment("MI355X", {"TRITON_DEFAULT_FP_FUSION": "1"})
    assert found["device"] == "MI355X" and "triton" in found["packages"]
    assert found["variables"]["OPTIMIZE_EPILOGUE"] == "1" and found["knobs"] == {"TRITON_DEFAULT_FP_FUSION": "1"}
    assert "hush" not in json.dumps(found)


def test_many_rows_of_other_shapes_are_passed_over_quickly(tmp_path: Path) -> None:
    """A tenth of a million rows; a million takes ten times as long (about 2 s)."""
    path = tmp_path / "runs" / "old" / "trials-w.jsonl"
    path.parent.mkdir(parents=True)
    other = trial(shape=Shape(4, 2880, 512), counts=counts(Shape(4, 2880, 512))).to_line()
    path.write_text(other * 100_000 + trial(seed=5).to_line())
    start = time.process_time()
    found, _ = records.read_all_trials(tmp_path, SHAPE)
    assert [t.seed for t in found.values()] == [5]
    assert time.process_time() - start < 5.0
