"""What a search sees of a GPU, and many shapes over many workers: rows whatever happens, nothing done twice."""

import json

import pytest

from mxfp4lab.cli import run
from mxfp4lab.gpu.executors import COMPARE, MEASURE, GpuExecutor, open_executor
from mxfp4lab.plan import build_plan
from mxfp4lab.records import Status, read_all_trials
from mxfp4lab.tune import Executor, tune
from mxfp4lab.tune import open_executor as tune_executor
from mxfp4lab.tune import sweep as sweeping
from mxfp4lab.tune.sweep import sweep
from mxfp4lab.workers.pools import DESCRIBE, LocalPool, Task
from mxfp4lab.workers.process import Outcome

PLANS = [build_plan(variant, None, (32, 4096, 512), "sm_90") for variant in ("hopper", "fused_rowmajor")]


class FakeWorker:
    """A worker that answers from a table."""

    name = "gpu0"

    def __init__(self, **answers):
        self.answers = {DESCRIBE: Outcome("ok", {"name": "NVIDIA H200", "arch": "sm_90"}), **answers}
        self.asked, self.closed = [], False

    def run(self, task, arguments=None, timeout_s=0.0):
        self.asked.append((task, arguments))
        return self.answers[task]

    def close(self, kill=False):
        self.closed = True


def test_an_executor_is_what_a_search_asks_for():
    executor = GpuExecutor(FakeWorker(), seed=7)
    assert isinstance(executor, Executor)
    assert (executor.device, executor.arch, executor.regime) == ("NVIDIA H200", "sm_90", "leaderboard")


def test_a_measurement_is_handed_on_as_a_trial_s_fields():
    answer = {"status": "ok", "latency_us": 6.5, "verified": "gpu", "bf16_identical": 1.0}
    worker = FakeWorker(**{MEASURE: Outcome("ok", answer)})
    assert GpuExecutor(worker, seed=7).measure(PLANS[0], None) == answer
    _, arguments = worker.asked[-1]
    assert json.loads(json.dumps(arguments)) == arguments  # it crosses a process boundary
    assert (arguments["variant"], arguments["shape"], arguments["seed"]) == ("hopper", "32x4096x512", 7)


@pytest.mark.parametrize("status", ["runtime_error", "timeout", "worker_died"])
def test_a_failure_of_the_worker_is_the_trial_s_status(status):
    executor = GpuExecutor(FakeWorker(**{MEASURE: Outcome(status, reason="said why")}), seed=7)
    fields = executor.measure(PLANS[0], None)
    assert (Status(fields["status"]), fields["reason"]) == (Status(status), "said why")


def test_finalists_are_compared_and_a_tie_is_no_winner():
    said = {"timings": {"0": {"p50_us": 7.0}, "1": {"p50_us": 6.9}}, "verdict": {"kind": "tie", "order": [0, 1]}}
    comparison = GpuExecutor(FakeWorker(**{COMPARE: Outcome("ok", said)}), seed=7).compare(PLANS)
    assert (comparison.order, comparison.separate, comparison.latency_us) == ((0, 1), False, (7.0, 6.9))


class Timed(FakeWorker):
    """A worker whose GPU likes small row tiles, and whose finalists never tie."""

    def run(self, task, arguments=None, timeout_s=0.0):
        self.asked.append((task, arguments))
        if task == MEASURE:
            us = 6.0 + arguments["config"]["block_m"] / 16 + arguments["config"]["num_stages"]
            return Outcome("ok", {"status": "ok", "latency_us": us, "verified": "gpu", "bf16_identical": 1.0,
                                  "regime": "leaderboard", "detail": {}})  # fmt: skip
        if task == COMPARE:
            us = [6.0 + plan["config"]["block_m"] / 16 + plan["config"]["num_stages"] for plan in arguments["plans"]]
            order = sorted(range(len(us)), key=us.__getitem__)
            return Outcome("ok", {"timings": {str(n): {"p50_us": t} for n, t in enumerate(us)},
                                  "verdict": {"kind": "winner", "order": order}})  # fmt: skip
        return super().run(task, arguments, timeout_s)


def test_a_search_on_a_gpu_ends_with_a_measured_winner_and_resumes(tmp_path):
    for attempt in range(2):
        worker = Timed()
        result = tune("32,4096,512", variants=["hopper"], budget=6, out=tmp_path, workers=1,
                      executor=GpuExecutor(worker, seed=457))  # fmt: skip
        pick = result.pick
        assert (pick.evidence, pick.device, pick.arch) == ("measured", "NVIDIA H200", "sm_90")
        assert pick.latency_us == min(entry.latency_us for entry in result.ranked()) and pick.verified == "gpu"
        measured = sum(task == MEASURE for task, _ in worker.asked)
        assert measured == (6 if attempt == 0 else 0) and worker.closed
    rows, _ = read_all_trials(tmp_path)
    assert sum(row.regime == "leaderboard" and row.resources is not None for row in rows.values()) == 6


def test_a_comparison_that_fails_leaves_the_first_times():
    worker = FakeWorker(**{MEASURE: Outcome("ok", {"status": "ok", "latency_us": 6.5}),
                           COMPARE: Outcome("timeout", reason="no answer within 600 s")})  # fmt: skip
    executor = GpuExecutor(worker, seed=7)
    executor.measure(PLANS[1], None)
    comparison = executor.compare(PLANS)
    assert (comparison.order, comparison.separate, comparison.latency_us) == ((1,), False, (None, 6.5))
    assert "timeout" in comparison.detail["failed"]


def test_a_gpu_that_cannot_be_used_is_said_and_its_worker_ended():
    refusal = Outcome("runtime_error", reason="ValueError: device index 0: torch sees 0 GPU(s)")
    worker = FakeWorker(**{DESCRIBE: refusal})
    with pytest.raises(ValueError, match=r"worker gpu0 cannot use its GPU: .*0 GPU"):
        GpuExecutor(worker, seed=7)
    assert worker.closed


def test_without_a_gpu_there_is_no_executor():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match="no GPU: torch"):
        open_executor(seed=1)
    assert tune_executor("auto", seed=1) is None
    with pytest.raises(ValueError, match="backend='gpu': no GPU"):
        tune_executor("gpu", seed=1)


def _sweep(tmp_path, pool, monkeypatch, task="tests.gpu_tasks:predict", **arguments):
    monkeypatch.setattr(sweeping, "PREDICT", task)
    wanted = {"variants": ("fused_rowmajor",), "budget": 12, "out": tmp_path, **arguments}
    return sweep(["4x2880x512", (32, 4096, 512)], pool, **wanted)


def test_a_sweep_files_every_trial_and_names_the_best_of_each_shape(tmp_path, monkeypatch):
    pool = LocalPool("cpu", 2)
    try:
        result = _sweep(tmp_path, pool, monkeypatch)
    finally:
        pool.close()
    rows, warnings = read_all_trials(tmp_path)
    assert len(rows) == 24 and not warnings
    died = [row for row in rows.values() if row.status is Status.worker_died]
    assert died and all(row.config["block_k"] == 512 and "SIGSEGV" in row.reason for row in died)
    for state in result.shapes.values():
        assert len(state.trials) == 12
        assert state.best.predicted_us == min(row.predicted_us for row in state.trials if row.predicted_us is not None)
    summary = json.loads((result.folder / "summary.json").read_text())
    assert set(summary["shapes"]) == {"4x2880x512", "32x4096x512"}


def test_a_sweep_resumes_what_is_settled_and_tries_again_what_died(tmp_path, monkeypatch):
    pool = LocalPool("cpu", 2)
    try:
        first = _sweep(tmp_path, pool, monkeypatch)
        again = _sweep(tmp_path, pool, monkeypatch)
    finally:
        pool.close()
    died = sum(row.status is Status.worker_died for state in first.shapes.values() for row in state.trials)
    assert again.resumed == 24 - died
    for shape, state in first.shapes.items():
        assert again.shapes[shape].best.config_id == state.best.config_id


def test_the_command_searches_several_shapes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sweeping, "PREDICT", "tests.gpu_tasks:predict")
    command = ["sweep", "--backend", "emulator", "--workers", "1", "--budget", "4", "--variants", "fused_rowmajor",
               "--shape", "4x2880x512", "--shape", "32,4096,512", "--out", str(tmp_path)]  # fmt: skip
    assert run([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["shapes"]) == {"4x2880x512", "32x4096x512"} and said["device"] == ""
    assert said["shapes"]["4x2880x512"]["best"]["evidence"] == "modelled"
    assert run(command) == 0
    text = capsys.readouterr().out
    assert "modelled, pick" in text and "trials came from earlier runs" in text
    assert run(["sweep", "--backend", "abacus"]) == 2


@pytest.mark.parametrize("arguments", [{"budget": 0}, {"finalists": True}])
def test_a_senseless_sweep_is_refused_by_name(arguments, tmp_path):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        sweep(["4x2880x512"], FakePool(), out=tmp_path, **arguments)
    with pytest.raises(ValueError, match="shapes is empty"):
        sweep([], FakePool(), out=tmp_path)


class FakePool:
    device = arch = ""

    def run_all(self, tasks):
        return iter(())

    def close(self):
        pass


@pytest.fixture
def two_nodes():
    """A Ray cluster of two local nodes with one CPU each, and none on the head."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    for attempt in range(4):
        cluster = Cluster()
        try:
            cluster.add_node(num_cpus=0, include_dashboard=False)
            nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
            cluster.wait_for_nodes()
            break
        except Exception:  # a raylet waits 15 s for its helpers, which a busy machine may not grant
            cluster.shutdown()
            if attempt == 3:
                raise
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
def test_ray_finds_the_same_winner_as_local_with_compiled_and_counted_trials(tmp_path, two_nodes):
    from mxfp4lab.gpu.ray_pool import RayPool

    results = {}
    for name, pool in (("ray", RayPool("cpu")), ("local", LocalPool("cpu", 2))):
        try:
            results[name] = sweep(["4x2880x512"], pool, variants=("fused_rowmajor",), budget=4, out=tmp_path / name)
        finally:
            pool.close()
    (ray_state,), (local_state,) = (result.shapes.values() for result in results.values())
    assert ray_state.best.config_id == local_state.best.config_id
    assert [(t.config_id, t.predicted_us) for t in ray_state.ranked()] == [
        (t.config_id, t.predicted_us) for t in local_state.ranked()]  # fmt: skip
    assert {trial.worker for trial in ray_state.trials} == {"cpu0", "cpu1"}


@pytest.mark.slow
def test_a_node_that_dies_midway_loses_no_trial(two_nodes):
    from mxfp4lab.gpu.ray_pool import RayPool

    cluster, nodes = two_nodes
    pool = RayPool("cpu")
    tasks = [Task("tests.gpu_tasks:slow_square", {"value": n, "seconds": 0.5}) for n in range(8)]
    done = []
    try:
        for result in pool.run_all(tasks):
            done.append(result)
            if len(done) == 2:
                cluster.remove_node(nodes[0], allow_graceful=False)
    finally:
        pool.close()
    assert sorted(result.index for result in done) == list(range(8))
    assert all(result.outcome.value == result.index**2 for result in done)
    assert any(result.attempt > 1 for result in done)
