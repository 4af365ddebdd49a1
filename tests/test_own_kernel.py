"""Kernels of your own: plans around them, their pages, and notebook 06 run whole."""

import faulthandler
import inspect
import json
import linecache
import os
import re
import subprocess
import sys
import time

import nbformat
import pytest
import triton
import triton.language as tl
from toolchain_kernels import copy_doubled, double

from mxfp4lab.emulate import count_plan, emulate_plan
from mxfp4lab.gfx950 import CompileError, compile_plan
from mxfp4lab.gfx950.toolchain import compile as compiling
from mxfp4lab.gfx950.toolchain.errors import captured_stderr
from mxfp4lab.model import predict
from mxfp4lab.notebook.isa_view import isa_view
from mxfp4lab.notebook.submission import SubmissionRefused, submission
from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.plan import build_plan
from mxfp4lab.plan.own import own_launch, own_plan
from mxfp4lab.shapes import Shape
from mxfp4lab.task import check_output, input_dict, reference_gemm

NOTEBOOK = REPO_ROOT / "notebooks/06_your_kernel.ipynb"
SHAPE = Shape(8, 64, 256)


def copying(**changes):
    return own_launch(copy_doubled, 2, **({"x": "a", "y": "c", "n": 512, "BLOCK": 256} | changes))


def test_a_plan_around_a_kernel_runs_on_the_tasks_inputs():
    inputs = input_dict(SHAPE, 3)
    done = emulate_plan(own_plan(SHAPE, copying()), inputs)
    assert done.c.reshape(-1).equal(2 * inputs["a"].reshape(-1)[:512])


def test_what_a_plan_needs_is_said_by_name():
    for what, request in {
        r"'b_shuffel' is no buffer \(did you mean 'b_shuffle'\?\)": lambda: own_plan(SHAPE, copying(x="b_shuffel")),
        "none is given the output buffer 'c'": lambda: own_plan(SHAPE, copying(y="b")),
        "at least one is needed": lambda: own_plan(SHAPE),
        "no parameter 'BLOK'": lambda: own_launch(copy_doubled, 1, x="a", y="c", n=1, BLOCK=1, BLOK=2),
        "needs a value for n, BLOCK": lambda: own_launch(copy_doubled, 1, x="a", y="c"),
        r"grid=\(1, 0\)": lambda: own_launch(copy_doubled, (1, 0), x="a", y="c", n=1, BLOCK=1),
        "n=list": lambda: copying(n=[1]),
        "num_warps=32 is 2048 threads; allowed: at most 16": lambda: copying(num_warps=32),
        "workspaces: 'a' is taken": lambda: own_plan(SHAPE, copying(), workspaces={"a": ((4,), "f32")}),
        "workspaces: w=": lambda: own_plan(SHAPE, copying(), workspaces={"w": ((4,), "f64")}),
    }.items():
        with pytest.raises(ValueError, match=what):
            request()


def test_options_and_workspaces_reach_the_plan():
    launch = copying(y="w", num_warps=2)
    plan = own_plan(SHAPE, launch, copying(x="w"), workspaces={"w": (512, "bf16")}, name="twice")
    assert plan.launches[0].options == (("num_warps", 2),)
    assert plan.buffer("w").nbytes == 1024 and plan.variant == "twice"
    inputs = input_dict(SHAPE, 3)
    done = emulate_plan(plan, inputs, races=True)
    assert done.c.reshape(-1).equal(4 * inputs["a"].reshape(-1)[:512]) and not done.findings


def test_every_object_says_in_text_what_its_html_says():
    plan = build_plan("prequant_rowmajor", None, Shape(4, 2880, 512))
    compiled, inputs = compile_plan(plan), input_dict(plan.shape, 1)
    done = emulate_plan(compiled, inputs, workgroups=[0])
    verdict = check_output(done.c, reference_gemm(inputs["a"], inputs["b_q"], inputs["b_scale_sh"]))
    for shown in (plan, compiled, done, verdict, predict(compiled), isa_view(compiled), count_plan(compiled)):
        html, text = shown._repr_html_(), str(shown)
        seen = re.sub(r"<[^>]*>", " ", html).replace("&lt;", "<").replace("&gt;", ">").replace("&#x27;", "'")
        numbers = set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", text))
        assert len(numbers) > 3
        missing = {n for n in numbers if not re.search(rf"(?<![\w.]){re.escape(n)}(?![\w.])", seen)}
        assert not missing, (type(shown).__name__, missing)


def test_the_machine_code_folds_around_the_loop_and_can_be_searched():
    compiled = compile_plan(build_plan("prequant_rowmajor", None, Shape(4, 2880, 512)))
    view = isa_view(compiled)
    names = [name for name, _ in view.sections()]
    assert names[0] == "prologue" and names[1].startswith("K loop") and names[2] == "epilogue"
    assert sum(len(lines) for _, lines in view.sections()) == len(compiled.kernels[1].program.instructions)
    html = view._repr_html_()
    assert html.count("<details") == 3 and html.count("<details open") == 1
    assert "tl.dot_scaled(" in html and "gemm.py:" in str(view)
    found = [line.text for _, lines in isa_view(compiled, find="v_mfma").sections() for line in lines]
    assert any("v_mfma" in text for text in found) and len(found) < len(compiled.kernels[1].program.instructions)


@pytest.mark.parametrize(
    "line, said", [("a.py --chek", "--chek"), ("a.txt", "'a.txt' is no .py file"), ("", "path"), ("'a.py", "quotation")]
)
def test_a_mistyped_magic_says_how_it_is_used(line, said):
    with pytest.raises(SubmissionRefused, match=said) as error:
        submission(line, "x = 1")
    assert "usage: %%submission FILE.py" in str(error.value)


@pytest.mark.slow
def test_the_notebook_compiles_checks_and_exports_its_own_kernel(tmp_path):
    command = [sys.executable, "-W", "ignore", "-m", "papermill", str(NOTEBOOK), "out.ipynb", "--no-progress-bar"]
    command += ["-p", "out", str(tmp_path / "kept"), "-p", "smoke", "true"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads((tmp_path / "kept/06_your_kernel/findings.json").read_text())["facts"]
    assert facts["bf16_identical"] == 1.0 and facts["careless_findings"] > 0 and facts["check_passed"] is True
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    shown = "".join(str(o.get("data", "")) for cell in notebook.cells for o in cell.get("outputs", []))
    assert "past its end" in shown, "the overrun"
    assert "cell:" in shown and "(cell, line " in shown, "lines of the cell itself"
    again = [sys.executable, "-m", "mxfp4lab", "export", "out.ipynb", "again.py", "--cell", "winner"]
    subprocess.run(again, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "again.py").read_text() == (tmp_path / "kept/06_your_kernel.py").read_text()


def typed_kernel():
    """A kernel as a notebook cell makes it: its source is in no file."""
    source = inspect.getsource(copy_doubled.fn).replace("copy_doubled", "typed")
    linecache.cache["<cell>"] = (len(source), None, source.splitlines(keepends=True), "<cell>")
    names = {"triton": triton, "tl": tl, "double": double, "__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), names)
    return own_plan(SHAPE, own_launch(names["typed"], 2, x="a", y="c", n=512, BLOCK=256))


def test_a_typed_kernel_is_compiled_in_a_fork_and_its_code_is_the_files(monkeypatch):
    here = os.getpid()
    real = compiling._run_triton
    monkeypatch.setattr(compiling, "_run_triton", lambda job: real(job) if os.getpid() != here else pytest.fail("here"))
    (typed,) = compile_plan(typed_kernel(), use_cache=False).kernels
    monkeypatch.undo()
    (filed,) = compile_plan(own_plan(SHAPE, copying()), use_cache=False).kernels
    assert [i.text for i in typed.program.instructions] == [i.text for i in filed.program.instructions]
    assert typed.resources == filed.resources and not typed.from_cache


def test_a_compiler_that_dies_or_hangs_on_a_typed_kernel_costs_an_error(monkeypatch):
    def die(job):
        faulthandler.disable()  # pytest's would print the stacks of a death that is meant
        with captured_stderr():
            os.write(2, b"LLVM ERROR: Cannot select\nStack dump:\n")
            os.abort()

    monkeypatch.setattr(compiling, "_run_triton", die)
    with pytest.raises(CompileError, match=r"typed: the compiler died \(SIGABRT\): LLVM ERROR: Cannot select") as found:
        compile_plan(typed_kernel(), use_cache=False)
    assert found.value.kind == "crash"
    monkeypatch.setattr(compiling, "_run_triton", lambda job: time.sleep(60))
    monkeypatch.setattr(compiling, "APART_TIMEOUT_S", 0.2)
    with pytest.raises(CompileError, match="typed: compilation took over"):
        compile_plan(typed_kernel(), use_cache=False)


def test_a_notebook_shows_the_sentence_of_a_wrong_kernel_and_not_the_labs_own_frames():
    from mxfp4lab.gfx950 import OutOfBounds

    launch = own_launch(copy_doubled, 9, x="a", y="c", n=9 * 256, BLOCK=256)
    for error, request in ((OutOfBounds, lambda: emulate_plan(own_plan(SHAPE, launch), input_dict(SHAPE, 3))),
                           (CompileError, lambda: compile_plan(own_plan(SHAPE, copying(BLOCK=3))))):  # fmt: skip
        with pytest.raises(error) as caught:
            request()
        (line,) = caught.value._render_traceback_()
        assert line == f"{error.__name__}: {caught.value}" and "copy_doubled" in line
