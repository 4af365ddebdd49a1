"""04_tune.ipynb through papermill, as a user runs it: from another folder, with right and wrong parameters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from mxfp4lab import records
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
    assert (tmp_path / "results" / "submission.py").read_text().startswith("#!POPCORN")
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
    assert text == (folder / "results" / "submission.py").read_text()


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
    for name in ("shape", "variants", "budget", "backend", "workers", "seed", "candidates", "out", "smoke"):
        assert f"\n  {name}: " in done.stdout, name
    assert "Unknown type" not in done.stdout


def test_the_notebook_is_thin_and_holds_no_outputs() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert book.metadata.kernelspec.name == "python3" and (book.nbformat, book.nbformat_minor) == (4, 5)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert all(len(cell.source.splitlines()) <= 16 for cell in code)
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in code) == 1
