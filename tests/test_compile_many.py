"""Many plans on all cores: shared kernels once, and a compiler that dies, hangs or refuses costs one row."""

import importlib.util
import linecache
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import toolchain_kernels as kernels

from mxfp4lab.gfx950 import compile_plan, launch_job, plan_hash
from mxfp4lab.plan import Buffer, Ref, TritonLaunch
from mxfp4lab.workers import compile_many
from mxfp4lab.workers.compiling import NotPortableError, encode_job

USER_KERNELS = """
import os, sys, time
import triton
import triton.language as tl

if __name__.startswith("mxfp4lab_kernels_"):  # the name under which a worker loads the file
    {in_worker}


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(y + index, tl.load(x + index, mask=index < n), mask=index < n)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MXFP4LAB_CACHE", str(tmp_path / "cache"))


def plan(*blocks, fn=kernels.copy_doubled, n=64):
    """A plan of one launch per block size; BLOCK must be a power of two to compile."""
    buffers = (Buffer("x", (64,), "f32", "input"), Buffer("c", (64,), "f32", "output"))
    launches = tuple(TritonLaunch(fn.__name__, fn, (1, 1, 1), (("x", Ref("x")), ("y", Ref("c")), ("n", n)),
                                  (("BLOCK", block),), (("num_warps", 4),)) for block in blocks)  # fmt: skip
    return SimpleNamespace(arch="gfx950", buffers=buffers, launches=launches)


def load_user_file(tmp_path, in_worker):
    path = tmp_path / "users_kernels.py"
    path.write_text(USER_KERNELS.format(in_worker=in_worker))
    spec = importlib.util.spec_from_file_location("users_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.copy


def outcome(results):
    return {result.index: "ok" if result.error is None else result.error.kind for result in results}


def test_each_kernel_is_compiled_once_and_failures_are_rows():
    said = []
    plans = [plan(64, 128), plan(128, 96), plan(64), plan(256), plan(128, 64)]
    results = list(compile_many(plans, workers=2, on_done=lambda result: said.append(result.index)))
    assert outcome(results) == {0: "ok", 1: "source", 2: "ok", 3: "ok", 4: "ok"}
    assert said == [result.index for result in results]
    by_index = {result.index: result for result in results}
    assert "power of 2" in str(by_index[1].error)
    assert by_index[0].compiled.kernels[0] is by_index[2].compiled.kernels[0]
    assert by_index[4].compiled.plan is plans[4]
    alone = compile_plan(plans[4])
    assert [kernel.asm for kernel in alone.kernels] == [kernel.asm for kernel in by_index[4].compiled.kernels]
    assert all(kernel.from_cache for kernel in alone.kernels)


def test_a_warm_cache_starts_no_process(monkeypatch):
    plans = [plan(64, 128), plan(256)]
    assert set(outcome(compile_many(plans, workers=1)).values()) == {"ok"}
    monkeypatch.setattr("subprocess.Popen", lambda *a, **k: pytest.fail("a process was started"))
    assert set(outcome(compile_many(plans)).values()) == {"ok"}


def test_knobs_reach_the_workers():
    (result,) = compile_many([plan(64)], knobs={"AMDGCN_USE_BUFFER_OPS": "0"})
    assert "buffer_load" not in result.compiled.kernels[0].asm
    assert result.compiled.kernels[0].knobs["AMDGCN_USE_BUFFER_OPS"] == "0"


def test_kernels_of_a_users_file_are_found_by_path(tmp_path):
    fn = load_user_file(tmp_path, "pass")
    (result,) = compile_many([plan(64, fn=fn)])
    assert result.error is None and result.compiled.kernels[0].name == "copy"


@pytest.mark.parametrize(
    "in_worker, kind, words",
    [
        ("print('LLVM ERROR: out of registers', file=sys.stderr, flush=True); os.abort()", "crash", "out of registers"),
        ("sys.exit(7)", "crash", "code 7"),
        ("time.sleep(60)", "timeout", "over 6"),
    ],
)
def test_a_worker_that_dies_or_hangs_costs_one_row(tmp_path, in_worker, kind, words):
    bad = load_user_file(tmp_path, in_worker)
    list(compile_many([plan(64), plan(128)]))  # from the cache below: no limit catches them
    limit = 6 if kind == "timeout" else 120
    results = list(compile_many([plan(64, fn=bad), plan(64), plan(128)], workers=1, timeout_s=limit))
    assert outcome(results) == {0: kind, 1: "ok", 2: "ok"}
    assert words in str(next(result.error for result in results if result.index == 0))


def test_a_kernel_from_a_notebook_cell_is_compiled_here():
    source = USER_KERNELS.format(in_worker="pass")
    name = "<cell 1>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), space)
    with pytest.raises(NotPortableError):
        encode_job(launch_job(plan(64, fn=space["copy"]).launches[0], plan(64).buffers, "gfx950"))
    (result,) = compile_many([plan(64, fn=space["copy"])])
    assert result.error is None and result.compiled.kernels[0].mix["vmem"] >= 2


def test_workers_do_not_need_a_guarded_main(tmp_path):
    script = tmp_path / "script.py"
    folders = [os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))]
    script.write_text(
        f"import sys; sys.path[:0] = {folders}\n"
        "from test_compile_many import plan, outcome\n"
        "from mxfp4lab.workers import compile_many\n"
        "print(outcome(compile_many([plan(64), plan(128)], workers=2)))\n"
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert run.stdout.strip() in ("{0: 'ok', 1: 'ok'}", "{1: 'ok', 0: 'ok'}"), run.stderr


def test_the_hash_of_a_plan_needs_no_compilation(monkeypatch):
    monkeypatch.setattr("triton.compile", lambda *a, **k: pytest.fail("compiled"))
    assert plan_hash(plan(64)) == plan_hash(plan(64))
    assert (
        len(
            {
                plan_hash(plan(64)),
                plan_hash(plan(128)),
                plan_hash(plan(64, 128)),
                plan_hash(plan(64, n=1)),
                plan_hash(plan(64, n=65)),
            }
        )
        == 5
    )
    assert plan_hash(plan(64, n=80)) == plan_hash(plan(64))  # both are divisible by 16: the same machine code


def test_an_argument_without_a_buffer_is_a_row():
    broken = plan(64)
    broken.buffers = broken.buffers[:1]
    (result,) = compile_many([broken])
    assert result.error.kind == "request" and "'c'" in str(result.error)
