"""03_variants runs by papermill in smoke form, from another directory; the ideas it shows have a verdict."""

import csv
import json
import subprocess
import sys

import nbformat

from mxfp4lab.paths import REPO_ROOT, data_path
from mxfp4lab.plan import build_plan, default_config
from mxfp4lab.shapes import TASK_SHAPES


def test_the_variants_notebook_in_smoke_form(tmp_path):
    command = [sys.executable, "-W", "ignore", "-m", "papermill", str(REPO_ROOT / "notebooks/03_variants.ipynb")]
    command += ["out.ipynb", "--no-progress-bar", "-p", "out", str(tmp_path / "kept"), "-p", "smoke", "true"]
    command += ["-p", "shape", "4x2880x512"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "kept/03_variants/findings.json").read_text())
    assert found["facts"]["best_variant"] == {"4x2880x512": "sliced_preshuffled"}
    assert found["facts"]["geomean_us"]["ours"] < found["facts"]["geomean_us"]["theirs"]
    assert found["facts"]["loop_valu"]["hw_bf16"] < found["facts"]["loop_valu"]["sw_bits"] / 2
    assert found["facts"]["ladder"][-1][1] < found["facts"]["ladder"][0][1] / 3  # VALU per MFMA
    assert [verdict["holds"] for verdict in found["verdicts"]] == [False]
    for figure in found["figures"]:
        assert (tmp_path / "kept/03_variants" / figure["file"]).stat().st_size > 10_000
        assert len(figure["caption"]) > 40
    shown = "".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "")
        for cell in nbformat.read(tmp_path / "out.ipynb", 4).cells
        for output in cell.get("outputs", [])
    )
    for loop in ("for tile_k in tl.range(", "for step in gl.static_range(ROUNDS):", "op_sel:[0,0,1,0]"):
        assert loop in shown


def test_ideas_have_a_parent_a_verdict_and_a_reason():
    with data_path("ideas.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["verdict"] for row in rows} == {"kept", "dropped", "axis"}
    assert all(all(row.values()) and None not in row for row in rows)


def test_defaults_of_the_sliced_variant_ask_at_most_one_workgroup_of_each_cu_on_the_task_s_shapes():
    for shape in TASK_SHAPES:
        plan = build_plan("sliced_preshuffled", default_config("sliced_preshuffled", shape), shape)
        assert plan.launches[0].grid[0] <= 256
