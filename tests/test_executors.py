"""Many tasks over a Ray cluster, a search among them: nothing lost, nothing done twice."""

import json

import pytest

from mxfp4lab.cli import run
from mxfp4lab.records import read_all_trials
from mxfp4lab.tune import tune_shape
from mxfp4lab.workers import Task, open_pool


def test_the_command_searches_several_shapes(tmp_path, capsys):
    command = ["sweep", "--backend", "emulator", "--workers", "1", "--budget", "2", "--variants", "fused_rowmajor",
               "--shape", "8x96x512", "--shape", "8,64,512", "--verify", "1", "--out", str(tmp_path)]  # fmt: skip
    assert run([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["shapes"]
    assert set(said) == {"8x96x512", "8x64x512"}
    assert all(one["pick"]["evidence"] == "modelled" and one["pick"]["verified"] == "emulated" for one in said.values())
    before = len(read_all_trials(tmp_path)[0])
    assert run(command) == 0
    text = capsys.readouterr().out
    assert "modelled, pick" in text and "trials came from earlier runs" in text
    assert len(read_all_trials(tmp_path)[0]) == before, "a sweep resumes like any search"
    assert run(["sweep", "--backend", "abacus"]) == 2


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
def test_ray_finds_the_same_pick_as_this_machine(tmp_path, two_nodes):
    picks = []
    for name, pool in (("ray", open_pool("ray", "cpu")), ("here", None)):
        result = tune_shape("4x2880x512", variants=["fused_rowmajor"], budget=4, verify=1, backend="emulator",
                            out=tmp_path / name, pool=pool)  # fmt: skip
        picks.append((result.pick.config, [(e.candidate.config, e.predicted_us) for e in result.ranked()]))
        if pool is not None:
            pool.close()
    assert picks[0] == picks[1]


@pytest.mark.slow
def test_a_node_that_dies_midway_loses_no_trial(two_nodes):
    cluster, nodes = two_nodes
    pool = open_pool("ray", "cpu")
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
