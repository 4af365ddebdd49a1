"""The lint of submissions: what it refuses with the line, and what it must leave alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from mxfp4lab.export import lint_source

SUBMISSIONS = Path(__file__).parent / "submissions"
HEAD = "#!POPCORN leaderboard amd-mxfp4-mm\n#!POPCORN gpu MI355X\nimport torch\n"
WORD = "str" + "eam"
KERNEL = "def custom_kernel(data):\n    return torch.empty(1)\n"


def lint(body: str) -> list[tuple[int, str]]:
    """(line of `body`, rule) of every error."""
    return [(f.line - 3, f.rule) for f in lint_source(HEAD + textwrap.dedent(body)) if f.severity == "error"]


@pytest.mark.parametrize("line", [f"# the up{WORD} fix", f"q = torch.cuda.S{WORD[1:]}()", f"name = '{WORD.upper()}'"])
def test_the_refused_word_anywhere(line: str) -> None:
    assert lint(line + "\n" + KERNEL) == [(1, "word")]


REFUSED = [
    ("import mxfp4lab", "lab-import"),
    ("from mxfp4lab.formats import quantize_mxfp4", "lab-import"),
    ("import importlib\nm = importlib.import_module('mxfp4lab.plan')", "lab-import"),
    ("get_ipython().run_line_magic('time', '')", "ipython"),
    ("display(1)", "ipython"),
    ("from IPython.display import HTML", "ipython"),
    ("# In[3]:", "ipython"),
    ("%matplotlib inline", "ipython"),
    ("!pip install x", "ipython"),
    ("%%time\nx = 1", "ipython"),
]


@pytest.mark.parametrize(("line", "rule"), REFUSED)
def test_other_refusals(line: str, rule: str) -> None:
    found = lint(line + "\n" + KERNEL)
    assert rule in [r for _, r in found]
    assert found[0][0] in (1, 2)


HONEST = [
    "task = {}\ntask['m'] = 1\n\n\nclass Task:\n    pass\n\n\ntask = Task()\ntask.m = 2\n" + KERNEL,
    "names = [getattr(torch, n) for n in ('float32', 'bfloat16')]\n" + KERNEL,
    "# %% launch\n" + KERNEL,
    "def display(x):\n    return x\n\n\ndisplay(1)\n" + KERNEL,
    'ASM = """\n%r1 = add;\n!x\n"""\n' + KERNEL,
    "R = {}\n" + KERNEL.replace("torch.empty(1)", "R.setdefault(data[0].data_ptr(), 1)"),  # judged by running
]


@pytest.mark.parametrize("body", HONEST)
def test_honest_files_are_left_alone(body: str) -> None:
    assert lint(body) == []


CALLABLES = [
    "class Gemm:\n    def __call__(self, data):\n        return data\n\n\ncustom_kernel = Gemm()\n",
    "custom_kernel = lambda data: data[0]\n",
    "def make():\n    def run(data):\n        return data[0]\n    return run\n\n\ncustom_kernel = make()\n",
    "custom_kernel: object = print\n",
    "from task import kernel as custom_kernel\n",
    "if torch.version.hip:\n    def custom_kernel(data):\n        return 1\nelse:\n    custom_kernel = max\n",
    "class custom_kernel:\n    pass\n",
]


@pytest.mark.parametrize("body", CALLABLES)
def test_an_entry_may_be_any_callable(body: str) -> None:
    assert lint(body) == []


@pytest.mark.parametrize(
    ("body", "line"), [("x = 1\n", -3), ("custom_kernel = 3\n", 1), ("kernel = custom_kernel\n", -3)]
)
def test_a_file_without_an_entry_is_refused(body: str, line: int) -> None:
    assert lint(body) == [(line, "entry")]


@pytest.mark.parametrize("name", ["aiter_template", "triton_kernel", "triton_launch_forms", "not_contiguous"])
def test_sample_submissions_that_are_honest(name: str) -> None:
    source = (SUBMISSIONS / f"{name}.py").read_text()
    assert [str(f) for f in lint_source(source) if f.severity == "error"] == []


def test_warnings_do_not_refuse() -> None:
    findings = lint_source("import aiter\nf = aiter.gemm_a4w4_asm\n" + KERNEL)
    assert {(f.line, f.rule) for f in findings} == {(1, "header"), (2, "asm-name")}
    assert all(f.severity == "warning" for f in findings)


@pytest.mark.parametrize(("head", "said"), [
    ("#!POPCORN leaderboard amd-mixed-mla\n#!POPCORN gpu MI355X\n", "line 1: written for leaderboard amd-mixed-mla"),
    ("#!POPCORN leaderboard amd-mxfp4-mm\n#!POPCORN gpu MI300\n", "line 2: written for gpu MI300"),
    ("#!POPCORN gpus MI300 MI355X\n", "no line '#!POPCORN leaderboard amd-mxfp4-mm'"),
])  # fmt: skip
def test_a_header_for_another_board_or_gpu_is_a_warning(head: str, said: str) -> None:
    (finding,) = [f for f in lint_source(head + "import torch\n" + KERNEL) if f.rule == "header"]
    assert finding.severity == "warning" and said in str(finding)


def test_files_that_are_no_python_get_a_line() -> None:
    assert [str(f) for f in lint_source(HEAD + "def f(:\n")] == ["line 4: is no Python: invalid syntax [syntax]"]
    assert "is no Python" in str(lint_source(HEAD + "x = 1\0\n")[0])
    assert [f.rule for f in lint_source("") if f.severity == "error"] == ["entry"]
