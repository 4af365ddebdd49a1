"""Notebooks 01 and 02 run by papermill in smoke form, from another directory, and leave their findings."""

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from mxfp4lab.paths import REPO_ROOT

NOTEBOOKS = {"01_shuffle": REPO_ROOT / "notebooks/01_shuffle.ipynb", "02_quant": REPO_ROOT / "notebooks/02_quant.ipynb"}


def papermill(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-W", "ignore", "-m", "papermill", *arguments, "--no-progress-bar"]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)


def run(name: str, folder: Path, *parameters: str) -> dict:
    done = papermill(str(NOTEBOOKS[name]), "out.ipynb", "-p", "out", str(folder / "kept"), *parameters, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "kept" / name / "findings.json").read_text())


def test_the_shuffle_notebook_in_smoke_form(tmp_path):
    found = run("01_shuffle", tmp_path, "-p", "smoke", "true", "-p", "row", "3")
    assert found["facts"]["positions_that_disagree"] == 0
    assert found["facts"]["scales_already_in_their_lane"] == {"16x16x128": 256, "32x32x64": 64}
    assert found["facts"]["padding_bytes"]["A 4x512"] == [4032, 4096]
    assert {v["claim"]: v["holds"] for v in found["verdicts"]} == {
        "the row-group stride is 32 * K/32": False,
        "padding with 127 is harmless": False,
        "M < 32 needs no padding": False,
    }
    for figure in found["figures"]:
        assert (tmp_path / "kept/01_shuffle" / figure["file"]).stat().st_size > 10_000
        assert len(figure["caption"]) > 40


def test_the_quantization_notebook_in_smoke_form(tmp_path):
    found = run("02_quant", tmp_path, "-p", "smoke", "true")
    assert all(found["facts"]["proof"].values())
    assert found["facts"]["case_1_bytes"][3] == 170
    assert found["facts"]["refused_outputs"]["1 tie"] == 3845
    assert found["facts"]["sum_bits"]["counter-example"] > 24
    verdicts = {v["claim"]: v["holds"] for v in found["verdicts"]}
    assert verdicts["the hw convert differs in 97.6 % of bytes"] is False
    assert verdicts["the interpreter can serve as reference"] is False
    assert verdicts["padding with 127 is harmless"] is False


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_misspelt_parameter_stops_the_run(tmp_path, name):
    done = papermill(str(NOTEBOOKS[name]), "out.ipynb", "-p", "smok", "true", cwd=tmp_path)
    assert done.returncode != 0
    assert "smok" in done.stderr
    assert "smoke" in done.stderr


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_parameter_shows_in_papermills_help(tmp_path, name):
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    cell = next(c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    names = [line.split(" = ")[0] for line in cell.source.splitlines() if " = " in line]
    done = papermill("--help-notebook", str(NOTEBOOKS[name]), cwd=tmp_path)
    assert len(names) >= 4
    for parameter in names:
        assert f"{parameter}:" in done.stdout, done.stdout


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_committed_without_outputs_and_thin(name):
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    assert notebook.metadata.kernelspec.name == "python3"
    headings = [c for c in notebook.cells if c.cell_type == "markdown" and c.source.startswith("# ")]
    assert len(headings) == 1
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
            assert len(cell.source.splitlines()) <= 16
