"""One worker process: every way in which a GPU can end a process is an outcome, and the next task runs."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mxfp4lab.workers.pools import LocalPool, Task, one_device, open_pool
from mxfp4lab.workers.process import Outcome, Worker

TASKS = "tests.gpu_tasks"
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def worker():
    with Worker("test") as made:
        yield made


def test_tasks_share_a_process_and_it_ends_with_close():
    with Worker() as worker:
        first = worker.run(f"{TASKS}:echo", {"value": [1, "two"]})
        second = worker.run(f"{TASKS}:echo")
    assert (first.status, first.value["value"], first.fresh, second.fresh) == ("ok", [1, "two"], True, False)
    assert first.value["pid"] == second.value["pid"] != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(first.value["pid"], 0)


@pytest.mark.parametrize(
    ("task", "arguments", "status", "said"),
    [
        ("fault", {}, "worker_died", "SIGSEGV"),
        ("fault", {"number": int(signal.SIGBUS)}, "worker_died", "SIGBUS"),
        ("abort", {}, "worker_died", "SIGABRT"),
        ("leave", {}, "worker_died", "code 3: RuntimeError: driver shutting down"),
        ("raises", {"message": "\nplain\nfailure"}, "runtime_error", "RuntimeError: plain"),
        ("nothing_of_this_name", {}, "runtime_error", "AttributeError"),
        ("eat_memory", {}, "runtime_error", "MemoryError"),
    ],
)
def test_a_fault_is_an_outcome_and_the_next_task_runs(worker, task, arguments, status, said):
    outcome = worker.run(f"{TASKS}:{task}", arguments, timeout_s=30)
    assert outcome.status == status and said in outcome.reason
    assert worker.run(f"{TASKS}:echo", {"value": 1}).value["value"] == 1


def test_a_hang_is_killed_after_its_time(worker):
    worker.run(f"{TASKS}:echo")
    began = time.monotonic()
    outcome = worker.run(f"{TASKS}:hang", timeout_s=0.3)
    assert outcome.status == "timeout" and "0.3 s" in outcome.reason
    assert time.monotonic() - began < 5
    assert worker.run(f"{TASKS}:echo").status == "ok"


def test_a_process_whose_gpu_raised_is_not_used_again(worker):
    before = worker.run(f"{TASKS}:echo").value["pid"]
    outcome = worker.run(f"{TASKS}:raises")
    assert outcome.status == "runtime_error" and "illegal memory access" in outcome.reason
    assert worker.run(f"{TASKS}:echo").value["pid"] != before


def test_a_child_that_dies_between_tasks_costs_nothing(worker):
    pid = worker.run(f"{TASKS}:echo").value["pid"]
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    again = worker.run(f"{TASKS}:echo", {"value": 7})
    assert (again.status, again.value["value"], again.fresh) == ("ok", 7, True)


def test_the_environment_of_a_worker_is_its_own():
    with Worker("one", {"CUDA_VISIBLE_DEVICES": "3"}) as worker:
        assert worker.run("os:getenv", {"key": "CUDA_VISIBLE_DEVICES"}).value == "3"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") != "3"


def test_a_worker_ends_when_its_parent_is_killed():
    code = textwrap.dedent("""
        import os, signal
        from mxfp4lab.workers.process import Worker
        worker = Worker()
        print(worker.run("tests.gpu_tasks:echo").value["pid"], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    child = int(ended.stdout)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived its parent")


def test_a_pool_does_every_task_once_and_survives_faults():
    pool = LocalPool("cpu", 2)
    tasks = [Task(f"{TASKS}:slow_square", {"value": n}) for n in range(6)]
    tasks.insert(2, Task(f"{TASKS}:fault"))
    try:
        done = sorted(pool.run_all(tasks), key=lambda result: result.index)
    finally:
        pool.close()
    assert [result.index for result in done] == list(range(7))
    assert [result.outcome.value for result in done if result.outcome.status == "ok"] == [0, 1, 4, 9, 16, 25]
    assert done[2].outcome.status == "worker_died"
    assert {result.worker for result in done} <= {"cpu0", "cpu1"}


def test_leaving_a_pool_early_ends_what_still_runs():
    pool = LocalPool("cpu", 2)
    began = time.monotonic()
    results = pool.run_all([Task(f"{TASKS}:echo"), Task(f"{TASKS}:hang"), Task(f"{TASKS}:hang")])
    assert next(results).outcome.status == "ok"
    results.close()
    pool.close()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"executor": "slurm"}, "executor='slurm' is unknown; allowed: local, ray"),
        ({"resource": "tpu"}, "resource='tpu' is unknown; allowed: gpu, cpu"),
        ({"resource": "cpu", "count": 0}, "count=0 must be a whole number from 1"),
    ],
)
def test_a_bad_request_for_a_pool_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        open_pool(**arguments)


def test_devices_of_different_names_are_not_mixed():
    ok = {"gpu0": Outcome("ok", {"name": "MI355X", "arch": "gfx950"}), "gpu1": Outcome("ok", {"name": "MI355X",
          "arch": "gfx950"})}  # fmt: skip
    assert one_device(ok) == ("MI355X", "gfx950")
    ok["gpu1"] = Outcome("ok", {"name": "H200", "arch": "sm_90"})
    with pytest.raises(ValueError, match=r"devices differ .*MI355X: gpu0; H200: gpu1"):
        one_device(ok)
    with pytest.raises(ValueError, match="worker gpu1 cannot use its GPU: no device"):
        one_device({**ok, "gpu1": Outcome("runtime_error", reason="no device")})
