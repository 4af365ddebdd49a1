"""`make gpu` on stand-ins: what is searched, compared, kept and said."""

import json
from types import SimpleNamespace

import pytest

from mxfp4lab import workers
from mxfp4lab.cli import gpu as box
from mxfp4lab.cli import run
from mxfp4lab.config import runs_on
from mxfp4lab.gpu import COMPARE
from mxfp4lab.plan import VARIANTS
from mxfp4lab.records import read_trials
from mxfp4lab.shapes import TASK_SHAPES
from mxfp4lab.workers.pools import Done
from mxfp4lab.workers.process import Outcome

NOTHING = {"defaults": [], "exports": []}


class FakeGpus:
    """A pool whose GPUs measure 10 us plus the config's row tile, and never fail except where told."""

    device, arch = "NVIDIA H200", "sm_90"

    def __init__(self, wrong=()):
        self.wrong, self.asked = wrong, []

    def run_all(self, tasks):
        for index, task in enumerate(tasks):
            self.asked.append(task)
            yield Done(index, Outcome("ok", self._answer(task)), "gpu0")

    def _answer(self, task):
        if task.task == COMPARE:
            us = [10.0 + plan["config"]["block_m"] for plan in task.arguments["plans"]]
            order = sorted(range(len(us)), key=us.__getitem__)
            timings = {str(n): {"p50_us": t, "p20_us": t - 1, "p80_us": t + 1} for n, t in enumerate(us)}
            if task.arguments.get("comparators"):
                timings["mm_bf16"] = {"p50_us": 20.0, "p20_us": 19.0, "p80_us": 21.0}
            return {"timings": timings, "verdict": {"kind": "winner", "order": order, "message": ""}, "floor_us": 3.0,
                    "checks": dict.fromkeys(timings, 1.0)}  # fmt: skip
        if task.arguments["variant"] in self.wrong:
            return {"status": "incorrect", "reason": "9 elements", "verified": "gpu", "bf16_identical": 0.5}
        us = 10.0 + task.arguments["config"]["block_m"]
        return {"status": "ok", "reason": "", "verified": "gpu", "bf16_identical": 1.0, "latency_us": us,
                "regime": "leaderboard", "detail": {}}  # fmt: skip

    def close(self):
        pass


@pytest.mark.parametrize(
    ("device", "name"),
    [("NVIDIA H200", "h200"), ("AMD Instinct MI355X", "mi355x"), ("NVIDIA RTX 4090", "4090"), ("Odd Name", "odd-name")],
)
def test_a_device_s_records_have_a_folder_named_after_it(device, name):
    assert box.slug(device) == name


@pytest.fixture
def searched(tmp_path, monkeypatch):
    monkeypatch.setattr(box, "TASK_SHAPES", TASK_SHAPES[:2])
    pool = FakeGpus()
    kernel = SimpleNamespace(name="gemm", resources=None, mfma={}, num_warps=4, hazards=())
    # Kernels need not be compiled where nothing runs: every plan is "compiled" at once, to nothing.
    compiled = SimpleNamespace(kernels=(kernel,), plan=SimpleNamespace(arch="sm_90"))

    def compile_many(plans, workers):
        return (SimpleNamespace(index=number, error=None, compiled=compiled) for number in range(len(plans)))

    monkeypatch.setattr(workers, "compile_many", compile_many)
    return pool, box.search(pool, 10, 12, tmp_path)


def test_the_portable_variants_and_the_target_s_own_are_searched_and_the_best_kept(searched, tmp_path):
    pool, results = searched
    assert [result.shape for result in results] == [*TASK_SHAPES[:2]] * 2
    names = [{entry.candidate.variant for entry in result.entries} for result in results]
    assert names[2] == {"hopper"} and all(runs_on(name, "gfx950") for name in names[0]) and len(names[0]) > 3
    finals = box.compare_best(pool, results)
    assert list(finals) == [str(shape) for shape in TASK_SHAPES[:2]]
    for said in finals.values():
        variants = [entry["variant"] for entry in said["plans"]]
        assert len(variants) == len(set(variants)) and "hopper" in variants
    box.keep(tmp_path / "kept", results, finals, {"defaults": []})
    kept, warnings = read_trials(tmp_path / "kept" / "trials.jsonl")
    assert kept and not warnings
    for shape in TASK_SHAPES[:2]:
        mine = [trial for trial in kept if trial.shape == shape and trial.variant == "hopper"]
        assert 0 < len(mine) <= box.KEPT_PER_VARIANT
        (own,) = [result for result in results[2:] if result.shape == shape]
        assert min(trial.latency_us for trial in mine) == own.winner.latency_us
    assert json.loads((tmp_path / "kept" / "finals.json").read_text()) == finals
    text = box.report(finals, NOTHING)
    assert all(said["plans"][said["verdict"]["order"][0]]["variant"] in text for said in finals.values())
    assert "geometric mean" in text and "torch.mm bf16 us" in text


def test_a_wrong_default_is_reported_and_not_hidden():
    rows = box.check_defaults(FakeGpus(wrong=("fused_rowmajor",)))
    here = [name for name in VARIANTS if runs_on(name, "sm_90")]
    assert len(rows) == 10 * len(here)
    assert {row["variant"] for row in rows if not row["right"]} == {"fused_rowmajor"}
    assert f"{10 * (len(here) - 1)} of {len(rows)} default configs" in box.report({}, {**NOTHING, "defaults": rows})


def test_a_comparison_that_fails_is_a_row_of_the_report():
    text = box.report({"4x2880x512": {"plans": [], "failed": "no answer within 600 s"}}, NOTHING)
    assert "no answer within 600 s" in text and "geometric mean" not in text


def test_without_a_gpu_it_says_so_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(workers, "open_pool", lambda *_: (_ for _ in ()).throw(ValueError("no GPU: torch finds none")))
    assert run(["gpu"]) == 2
    assert capsys.readouterr().err == "mxfp4lab: no GPU: torch finds none\n"
