"""04_tune.ipynb through papermill, as a user runs it: from another folder, with right and wrong parameters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from test_tune_interrupt import group_members, wait_for_rows

from mxfp4lab import records
from mxfp4lab.export import export_submission
from mxfp4lab.notebook import tuned
from mxfp4lab.tune import PICK_MIME

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "notebooks" / "04_tune.ipynb"


def papermill(folder: Path, *parameters: str) -> subprocess.CompletedProcess:
    arguments = [sys.executable, "-m", "papermill", str(NOTEBOOK), "out.ipynb", "--no-progress-bar", "--log-output"]
    for name, value in zip(parameters[::2], parameters[1::2], strict=True):
        arguments += ["-p", name, value]
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=500)


def outputs(folder: Path) -> list[dict[str, Any]]:
    cells = nbformat.read(folder / "out.ipynb", as_version=4).cells
    return [output for cell in cells for output in cell.get("outputs", [])]


def test_a_smoke_run_leaves_pick_records_figures_and_a_checked_submission(tmp_path: Path) -> None:
    done = papermill(tmp_path, "shape", "4,2880,512", "smoke", "true", "out", str(tmp_path / "results"))
    assert done.returncode == 0, done.stderr[-3000:]
    (bundle,) = [o["data"][PICK_MIME] for o in outputs(tmp_path) if PICK_MIME in o.get("data", {})]
    (pick,) = bundle["picks"]
    assert bundle["schema"] == 1 and pick["kind"] == "pick" and pick["evidence"] == "modelled"
    assert pick["shape"] == {"m": 4, "n": 2880, "k": 512} and pick["bf16_identical"] == 1.0
    assert pick["toolchain"]["triton"] and pick["variant"] and pick["config"]["block_m"]
    (run,) = (tmp_path / "results" / "runs").iterdir()
    names = {path.name for path in run.iterdir()}
    assert {"run.json", "trials-main.jsonl", "summary.json", "ranking.svg", "ranking.png", "landscape.svg"} <= names
    assert records.read_trials(run / "trials-main.jsonl")[1] == []
    summary = json.loads((run / "summary.json").read_text())
    assert summary["check_passed"] is True and summary["pick"] == pick
    assert summary["smoke"] is True
    assert (tmp_path / "results" / "submission_4x2880x512_smoke.py").read_text().startswith("#!POPCORN")
    assert not list((tmp_path / "results").glob("submission.py")), "a smoke run has hardly searched"
    html = "".join(o["data"].get("text/html", "") for o in outputs(tmp_path) if "data" in o)
    for part in ("04 Tune", "Funnel", "Ranking", "modelled"):
        assert part in html
    assert len((done.stderr + done.stdout).splitlines()) < 200
    assert_exports(tmp_path, pick)


def assert_exports(folder: Path, pick: dict[str, Any]) -> None:
    """The executed file alone, carried elsewhere, gives the submission back."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (folder / "out.ipynb").rename(elsewhere / "carried.ipynb")
    command = [sys.executable, "-m", "mxfp4lab", "export", "carried.ipynb", "submission.py", "--json"]
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    text = (elsewhere / "submission.py").read_text()
    assert text == (folder / "results" / "submission_4x2880x512_smoke.py").read_text()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "shpae",
            "64,7168,2048",
            "unknown parameter 'shpae' (did you mean 'shape'?); this notebook has: shape, variants",
        ),
        ("shape", "64,7168", "accepted forms"),
        ("smoke", "maybe", "parameter smoke='maybe'"),
    ],
)
def test_a_wrong_parameter_stops_the_run_with_one_sentence(tmp_path: Path, name: str, value: str, said: str) -> None:
    done = papermill(tmp_path, name, value)
    assert done.returncode != 0
    assert f"ParameterError: {said}" in done.stderr or said in done.stderr
    assert "mxfp4lab/notebook/parameters.py" not in done.stderr, "no traceback through our own code"
    assert not (tmp_path / "results").exists()


def test_every_parameter_shows_in_papermills_help() -> None:
    done = subprocess.run([sys.executable, "-m", "papermill", "--help-notebook", str(NOTEBOOK)], capture_output=True,
                          text=True, timeout=60)  # fmt: skip
    for name in ("shape", "variants", "budget", "backend", "workers", "seed", "out", "smoke"):
        assert f"\n  {name}: " in done.stdout, name
    assert "Unknown type" not in done.stdout


def test_the_notebook_holds_no_outputs_and_its_cells_are_short() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert book.metadata.kernelspec.name == "python3" and (book.nbformat, book.nbformat_minor) == (4, 5)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert all(len(cell.source.splitlines()) <= 20 for cell in code)
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in code) == 1


# -- make tune --------------------------------------------------------------------------------------------------------


def make_tune(out: Path, *options: str, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "mxfp4lab", "tune", "--notebook", "--out", str(out), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                            start_new_session=True, env={**os.environ, **environment})  # fmt: skip


def test_a_wrong_shape_is_one_line_before_anything_is_touched(tmp_path: Path) -> None:
    kept = tmp_path / "04_tune_oops.ipynb"
    kept.write_text("mine")
    process = make_tune(tmp_path, "--shape", "oops")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2 and out == "" and err.count("\n") == 1 and "accepted forms" in err
    assert [path.name for path in tmp_path.iterdir()] == [kept.name] and kept.read_text() == "mine"


@pytest.mark.slow
def test_two_shapes_leave_a_file_each_and_one_of_both(tmp_path: Path) -> None:
    for shape in ("8,64,512", "8,96,512"):
        process = make_tune(tmp_path, "--shape", shape, "--budget", "2", "--variants", "fused_rowmajor")
        out, err = process.communicate(timeout=500)
        assert process.returncode == 0, err
        lines = out.splitlines()
        assert lines.index("Ranking") < lines.index("Pick") and "100.0000% of bf16 identical" in out
        assert len(lines) < 60 and all(line.startswith("8x") for line in err.splitlines())
    names = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".") and path.is_file()}
    assert names == {"04_tune_8x64x512.ipynb", "04_tune_8x96x512.ipynb", "submission_8x64x512.py",
                     "submission_8x96x512.py", "submission.py"}  # fmt: skip
    common = (tmp_path / "submission.py").read_text()
    assert "(8, 64, 512): " in common and "(8, 96, 512): " in common


def test_ctrl_c_leaves_one_sentence_and_what_was_recorded(tmp_path: Path) -> None:
    process = make_tune(tmp_path / "out", "--shape", "4,2880,512", "--workers", "2",
                        MXFP4LAB_CACHE=str(tmp_path / "cache"))  # fmt: skip
    wait_for_rows(tmp_path / "out", 3)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    said = [line for line in err.splitlines() if not line.startswith("4x2880x512: [")]
    assert process.returncode == 130 and out == "" and len(said) == 1, err
    assert said[0].startswith("mxfp4lab: interrupted: what was recorded stays in") and "run it again" in said[0]
    assert not group_members(process.pid)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["runs"]


def test_the_common_file_is_made_of_each_shapes_newest_checked_pick(tmp_path: Path) -> None:
    def ran(run_id: str, shape: str, block_n: int, **changes: Any) -> None:
        m, n, k = (int(size) for size in shape.split("x"))
        pick = {"schema": 1, "shape": {"m": m, "n": n, "k": k}, "variant": "fused_rowmajor", "arch": "gfx950",
                "evidence": "measured", "config": {"block_n": block_n},
                "knobs": {"OPTIMIZE_EPILOGUE": "1"}}  # fmt: skip
        summary = {"pick": {**pick, **changes.pop("pick", {})}, "check_passed": True, "smoke": False, **changes}
        (tmp_path / "runs" / run_id).mkdir(parents=True)
        (tmp_path / "runs" / run_id / "summary.json").write_text(json.dumps(summary))

    ran("20260101T000000-a", "8x64x512", 32)
    ran("20260102T000000-b", "8x64x512", 64)
    ran("20260103T000000-c", "8x64x512", 128, smoke=True)
    ran("20260104T000000-d", "8x64x512", 256, check_passed=False)
    ran("20260105T000000-e", "8x96x512", 32)
    ran("20260106T000000-f", "8x128x512", 32, pick={"arch": "sm_90"})
    ran("20260107T000000-g", "8x160x512", 32, pick={"config": {"no_such_axis": 1}})
    (tmp_path / "submission.py").write_text("not to be parsed (")
    shapes, left_out = tuned.write_common(tmp_path, "gfx950", {"OPTIMIZE_EPILOGUE": "1"})
    assert [str(shape) for shape in shapes] == ["8x64x512", "8x96x512"]
    assert len(left_out) == 2 and "another target" in "".join(left_out) and "no_such_axis" in "".join(left_out)
    text = (tmp_path / "submission.py").read_text()
    assert "(8, 64, 512): " in text and "(8, 96, 512): " in text and "not to be parsed" not in text
    expected = {"8x64x512": ("fused_rowmajor", {"block_n": 64}), "8x96x512": ("fused_rowmajor", {"block_n": 32})}
    assert text == export_submission(expected, None, knobs={"OPTIMIZE_EPILOGUE": "1"}), "of the newest one each"
