"""The records that the repository keeps: readable, measured, right, and summarised as their README says."""

import json
import math
import re

import pytest

from mxfp4lab.config import GemmConfig, config_errors
from mxfp4lab.counters import base_name, read_counters, stalls
from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.records import Evidence, Status, read_trials
from mxfp4lab.shapes import TASK_SHAPES, parse_shape

FOLDERS = sorted(path.parent for path in (REPO_ROOT / "data" / "recorded").glob("*/trials.jsonl"))


@pytest.fixture(params=FOLDERS, ids=lambda path: path.name)
def folder(request):
    return request.param


def test_every_row_is_a_measurement_on_one_device(folder):
    trials, warnings = read_trials(folder / "trials.jsonl")
    assert trials and not warnings
    assert {trial.evidence for trial in trials} == {Evidence.measured}
    assert len({trial.device for trial in trials}) == len({trial.arch for trial in trials}) == 1
    assert {trial.shape for trial in trials} == set(TASK_SHAPES)
    for trial in trials:
        if trial.status is Status.ok:
            assert trial.bf16_identical == 1.0 and trial.verified == "gpu" and trial.regime == "leaderboard"
            assert trial.latency_us > trial.detail["timing"]["floor_us"] > 0
        else:
            assert trial.reason and trial.latency_us is None
        config = GemmConfig.from_dict(dict(trial.config))
        assert config.config_id == trial.config_id
        errors = config_errors(config, trial.shape, trial.arch, trial.variant)
        # A row away from the default of an axis that is gone is shown and never built; others ran.
        assert bool(errors) == bool(config.retired) or (errors and trial.status is not Status.ok)


def test_the_readme_says_what_the_finals_hold(folder):
    finals = json.loads((folder / "finals.json").read_text())
    text = (folder / "README.md").read_text()
    assert {parse_shape(shape) for shape in finals} == set(TASK_SHAPES)
    ratios = []
    for shape, said in finals.items():
        best = said["verdict"]["order"][0]
        ours, mm = said["timings"][str(best)], said["timings"]["mm_bf16"]
        assert said["checks"][str(best)] == 1.0
        ratios.append(ours["p50_us"] / mm["p50_us"])
        row = next(line for line in text.splitlines() if line.startswith(f"| {shape} "))
        numbers = [float(number) for number in re.findall(r"\d+\.\d+", row)]
        assert numbers[0] == round(ours["p50_us"], 2) and numbers[3] == round(mm["p50_us"], 2)
        assert numbers[4] == pytest.approx(ratios[-1], abs=6e-4)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    assert f"{mean:.3f}" in text


def test_every_check_was_passed(folder):
    checks = json.loads((folder / "checks.json").read_text())
    assert len({row["shape"] for row in checks["defaults"]}) == 10
    assert all(row["right"] and row["bf16_identical"] == 1.0 for row in checks["defaults"])
    assert {row["mode"] for row in checks["exports"]} == {"test", "benchmark", "leaderboard"}
    assert all(row["right"] and len(row["cases"]) == 10 for row in checks["exports"])


def test_counters_name_the_kernels_and_their_stalls(folder):
    if not (folder / "ncu.csv").exists():
        pytest.skip("no counters were recorded on this device")
    kernels = read_counters(folder / "ncu.csv")
    ours = [kernel for kernel in kernels if base_name(kernel.name) == "hopper_gemm"]
    assert len(ours) == 4 and all(stalls(kernel)["selected"] == pytest.approx(1.0, abs=0.1) for kernel in ours)
