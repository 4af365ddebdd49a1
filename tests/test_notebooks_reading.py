"""Notebooks 01, 02 and 06: run by papermill from another directory; all six as they are committed."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from mxfp4lab.paths import REPO_ROOT

NOTEBOOKS = {path.stem: path for path in sorted((REPO_ROOT / "notebooks").glob("*.ipynb"))}


def papermill(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-W", "ignore", "-m", "papermill", *arguments, "--no-progress-bar"]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)


def run(name: str, folder: Path, *parameters: str) -> dict:
    done = papermill(str(NOTEBOOKS[name]), "out.ipynb", "-p", "out", str(folder / "kept"), *parameters, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "kept" / name / "findings.json").read_text())


def cells_of(name: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(NOTEBOOKS[name], as_version=4).cells if cell.cell_type == "code"]


def test_the_shuffle_notebook_with_another_operand(tmp_path):
    found = run("01_shuffle", tmp_path, "-p", "smoke", "true", "-p", "row", "3", "-p", "k", "2048", "-p", "rows", "40")
    assert found["facts"]["scale_positions_compared"] == (256 + 512) * (8 + 16)
    assert found["facts"]["scales_in_their_lane"] == {"16": 64, "32": 16}
    assert found["facts"]["segments_per_wave_load"]["shuffled"] == 8
    assert [v["holds"] for v in found["verdicts"]] == [False, False, False]
    assert "56 of 64 scales lie past the first 64 bytes" in found["verdicts"][2]["because"]
    for figure in found["figures"]:
        assert (tmp_path / "kept/01_shuffle" / figure["file"]).stat().st_size > 10_000
        assert len(figure["caption"]) > 40


def test_the_quantization_notebook_in_smoke_form(tmp_path):
    found = run("02_quant", tmp_path, "-p", "smoke", "true")
    assert len(found["facts"]["proof"]) == 4 and all(found["facts"]["proof"].values())
    assert found["facts"]["case_1_bytes"][3] == 170
    assert found["facts"]["bytes_off_by_operand"]["2^e"] == 0.0 < found["facts"]["bytes_off_by_operand"]["2^-e"]
    assert found["facts"]["refused_outputs"]["1 tie"] == 3845
    assert found["facts"]["sum_bits"]["counter-example"] > 24
    assert found["facts"]["sums_that_differ"]["32x4096x512 of the task"] == 0
    assert not any(verdict["holds"] for verdict in found["verdicts"])


@pytest.mark.parametrize(
    ("name", "parameter", "value", "said"),
    [
        ("01_shuffle", "k", "1000", "a multiple of 64 from 64 to 16384"),
        ("01_shuffle", "smok", "true", "did you mean 'smoke'?"),
        ("02_quant", "aiter", "of", "did you mean 'off'?"),
        ("06_your_kernel", "out", "/proc/no", "parameter out: /proc/no cannot be written"),
    ],
)
def test_a_wrong_parameter_stops_the_run_in_its_first_cell(tmp_path, name, parameter, value, said):
    done = papermill(str(NOTEBOOKS[name]), "out.ipynb", "-p", parameter, value, cwd=tmp_path)
    assert done.returncode != 0
    assert said in done.stderr
    assert 'Exception encountered at "In [3]"' in done.stderr


def test_a_wrong_kernel_is_shown_before_it_stops_the_run(tmp_path):
    text = NOTEBOOKS["06_your_kernel"].read_text()
    wrong = tmp_path / "wrong.ipynb"
    wrong.write_text(text.replace("inside = (x < K) &", "inside = (x < K - 64) &"))
    assert wrong.read_text() != text
    done = papermill("wrong.ipynb", "out.ipynb", "-p", "out", str(tmp_path), "-p", "shape", "5,64,256", cwd=tmp_path)
    assert done.returncode != 0
    assert "AssertionError: the kernel is wrong on 5x64x256" in done.stderr and "first at (" in done.stderr
    assert (tmp_path / "06_your_kernel/error_map.png").exists()


def test_a_submission_that_fails_makes_the_run_fail(tmp_path):
    (tmp_path / "s.py").write_text(
        "import torch\n\n\ndef custom_kernel(data):\n    a, b = data[0], data[1]\n    return a @ b.T\n"
    )
    arguments = ("-p", "out", str(tmp_path), "-p", "shape", "32,64,256", "-p", "submission", str(tmp_path / "s.py"))
    done = papermill(str(NOTEBOOKS["06_your_kernel"]), "out.ipynb", *arguments, cwd=tmp_path)
    assert done.returncode != 0
    facts = json.loads((tmp_path / "06_your_kernel/findings.json").read_text())["facts"]
    assert facts["careless_findings"] == 0 and facts["bf16_identical"] == 1.0  # 32 rows: whole tiles, no overrun
    assert facts["check_passed"] is False and "check: fail" in done.stderr


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_parameter_shows_in_papermills_help(tmp_path, name):
    cell = next(c for c in cells_of(name) if "parameters" in c.metadata.get("tags", []))
    assignments = ast.parse(cell.source).body
    done = papermill("--help-notebook", str(NOTEBOOKS[name]), cwd=tmp_path)
    assert len(assignments) >= 3 and len(assignments) == len(cell.source.splitlines())
    for statement in assignments:
        target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
        ast.literal_eval(statement.value)  # a plain value, nothing derived
        assert f"{target.id}:" in done.stdout, done.stdout


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_committed_without_outputs_and_in_canonical_form(name):
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    assert dict(notebook.metadata.kernelspec) == {
        "display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3",
    }  # fmt: skip
    assert dict(notebook.metadata.language_info) == {"name": "python"}
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert len([c for c in notebook.cells if c.cell_type == "markdown" and c.source.startswith("# ")]) == 1
    for cell in cells_of(name):
        assert cell.outputs == [] and cell.execution_count is None
    verify = [sys.executable, "-m", "nbstripout", "--verify", str(NOTEBOOKS[name])]
    assert subprocess.run(verify, check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "lessons"),
    [
        ("01_shuffle", (".permute(0, 3, 5, 2, 4, 1)", "c % 4 * 64", "divmod(byte", "lane // 16", ".permute(0, 2, 3")),
        ("02_quant", ("+ 0x200000", "torch.searchsorted(grid", "below % 2 == 1", "v_cvt_scalef32_pk_fp4_f32 $0")),
        ("06_your_kernel", ("tl.dot_scaled(", "pictures.error_map(")),
    ],
)
def test_the_lesson_is_in_the_cell(name, lessons):
    code = "\n".join(cell.source for cell in cells_of(name))
    assert [lesson for lesson in lessons if lesson not in code] == []
    for cell in cells_of(name):
        assert cell.source.count("find.") + cell.source.count("notebook.start(") <= 3
