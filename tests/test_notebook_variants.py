"""03_variants runs by papermill in smoke form, from another directory, and leaves its findings."""

import json
import subprocess
import sys

from mxfp4lab.paths import REPO_ROOT


def test_the_variants_notebook_in_smoke_form(tmp_path):
    notebook = REPO_ROOT / "notebooks/03_variants.ipynb"
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "papermill",
            str(notebook),
            "out.ipynb",
            "--no-progress-bar",
            "-p",
            "out",
            str(tmp_path / "kept"),
            "-p",
            "smoke",
            "true",
            "-p",
            "shape",
            "4x2880x512",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "kept/03_variants/findings.json").read_text())
    assert found["facts"]["best_variant"] == {"4x2880x512": "sliced_preshuffled"}
    assert found["facts"]["geomean_us"]["ours"] < found["facts"]["geomean_us"]["theirs"]
    assert found["facts"]["loop_valu"]["hw_bf16"] < found["facts"]["loop_valu"]["sw_bits"] / 2
    assert [verdict["holds"] for verdict in found["verdicts"]] == [False]
    for figure in found["figures"]:
        assert (tmp_path / "kept/03_variants" / figure["file"]).stat().st_size > 10_000
        assert len(figure["caption"]) > 40
