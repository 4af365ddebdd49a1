"""The lint of submissions: what it refuses with the line, and what it must leave alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from mxfp4lab.export import lint_source

SUBMISSIONS = Path(__file__).parent / "submissions"
HEAD = "#!POPCORN leaderboard amd-mxfp4-mm\n#!POPCORN gpu MI355X\nimport torch\n"
WORD = "str" + "eam"


def lint(body: str) -> list[tuple[int, str]]:
    """(line of `body`, rule) of every error."""
    return [(f.line - 3, f.rule) for f in lint_source(HEAD + textwrap.dedent(body)) if f.severity == "error"]


KERNEL = "def custom_kernel(data):\n    return torch.empty(1)\n"

SPELLINGS = [
    f"# the up{WORD} fix",
    f"q = torch.cuda.S{WORD[1:]}()",
    f"name = '{WORD.upper()}'",
    "q = getattr(torch.cuda, 'str' + 'eam')",
    "q = getattr(torch.cuda, 'cur' 'rent_str' + 'eam')()",
    "q = getattr(torch.cuda, '\\x73tream')",
    "q = getattr(torch.cuda, chr(83) + chr(116) + 'ream')()",
    "q = getattr(torch.cuda, ''.join(['str', 'eam']))",
    "q = getattr(torch.cuda, ''.join(chr(c) for c in (115, 116, 114, 101, 97, 109)))",
    "q = getattr(torch.cuda, ''.join(map(chr, [115, 116, 114, 101, 97, 109])))",
    "q = getattr(torch.cuda, 'maerts'[::-1])",
    "q = getattr(torch.cuda, 'sXream'.replace('X', 't'))",
    "q = getattr(torch.cuda, f'st{\"ream\"}')",
    "q = getattr(torch.cuda, 'st%sm' % 'rea')",
    "q = getattr(torch.cuda, 'st{}m'.format('rea'))",
    "q = getattr(torch.cuda, bytes([115, 116, 114, 101, 97, 109]).decode())",
    "q = getattr(torch.cuda, bytes.fromhex('73747265616d').decode())",
    "import base64\nq = getattr(torch.cuda, base64.b64decode('c3RyZWFt').decode())",
    "a = 'str'\nb = a + 'eam'",
    "q = torch.cuda.\u017ftream",  # the long s, which Python reads as s
]


@pytest.mark.parametrize("line", SPELLINGS)
def test_the_refused_word_in_any_spelling(line: str) -> None:
    found = lint(line + "\n" + KERNEL)
    assert found and found[0][0] == line.count("\n") + 1
    assert found[0][1] in ("word", "disguise")


COMPUTED = [
    "q = getattr(torch.cuda, open('/tmp/x').read())",
    "q = vars(torch.cuda)",
    "q = [x for x in dir(torch.cuda) if x.endswith('eam')]",
    "q = torch.cuda.__dict__['x' + suffix]",
    "eval('1 + 1')",
    "exec(open('x').read())",
    "q = __import__(name)",
]


@pytest.mark.parametrize("line", COMPUTED)
def test_names_that_cannot_be_read_are_refused(line: str) -> None:
    assert (1, "computed-name") in lint(line + "\n" + KERNEL)


KEPT = [
    ("results keyed by pointer", 4, "cached-result", """\
        R = {}
        def custom_kernel(data):
            if data[0].data_ptr() not in R:
                R[data[0].data_ptr()] = data[0] @ data[1].T
            return R[data[0].data_ptr()].clone()
        """),
    ("results keyed by id", 3, "keyed-by-pointer", """\
        R = {}
        def custom_kernel(data):
            if id(data[0]) in R:
                return R[id(data[0])].clone()
            return data[0] @ data[1].T
        """),
    ("results keyed by shape", 6, "cached-result", """\
        R = {}
        def custom_kernel(data):
            a, b, *rest = data
            key = tuple(a.shape)
            if key not in R:
                R[key] = a @ b.T
            return R[key].clone()
        """),
    ("quantized A in a global", 7, "cached-result", """\
        LAST = None
        def quantize(x):
            return x.to(torch.uint8), x.abs().amax()
        def custom_kernel(data):
            global LAST
            if LAST is None:
                LAST = quantize(data[0])
            return torch.mm(LAST[0], data[2])
        """),
    ("an input compared by identity", 4, "keyed-by-pointer", """\
        LAST = []
        def custom_kernel(data):
            a = data[0]
            if LAST and LAST[0] is a:
                return torch.empty(1)
            return a + 1
        """),
    ("a cached function of tensors", 6, "cached-result", """\
        import functools
        @functools.lru_cache
        def quantize(x):
            return x * 2
        def custom_kernel(data):
            return quantize(data[0]) + 1
        """),
    ("a mutable default", 2, "cached-result", """\
        def custom_kernel(data, memo={}):
            memo.setdefault(data[0].shape, data[0] * 2)
            return memo[data[0].shape] + 1
        """),
    ("an attribute of the function", 3, "cached-result", """\
        def custom_kernel(data):
            if not hasattr(custom_kernel, "c"):
                custom_kernel.c = data[0] @ data[1].T
            return custom_kernel.c + 0
        """),
    ("an output buffer per shape", 7, "reused-output", """\
        OUT = {}
        def custom_kernel(data):
            key = data[0].shape
            if key not in OUT:
                OUT[key] = torch.empty(key, device=data[0].device)
            OUT[key].copy_(data[0])
            return OUT[key]
        """),
    ("an output buffer handed through a function", 8, "reused-output", """\
        OUT = {}
        def buffer(m, n):
            if (m, n) not in OUT:
                OUT[m, n] = torch.empty((m, n), device="cuda")
            return OUT[m, n]
        def custom_kernel(data):
            c = buffer(*data[0].shape)
            return c[:4].view(2, -1)
        """),
    ("an output buffer that is stored after it is made", 6, "reused-output", """\
        OUT = []
        def custom_kernel(data):
            c = torch.empty(data[0].shape)
            if not OUT:
                OUT.append(c)
            return OUT[0]
        """),
    ("a workspace that a function out of a table hands out", 12, "reused-output", """\
        KEPT = {}
        def workspace(name, shape):
            if (name, shape) not in KEPT:
                KEPT[name, shape] = torch.empty(shape, device="cuda")
            return KEPT[name, shape]
        def run(data, size):
            c = workspace("c", data[0].shape)
            return c
        CONFIGS = {(1, 2): (run, 3)}
        def custom_kernel(data):
            call, *constants = CONFIGS.get(data[0].shape, CONFIGS[1, 2])
            return call(data, *constants)
        """),
    ("the same by a subscript", 6, "reused-output", """\
        OUT = {}
        def run(data):
            return OUT.setdefault(data[0].shape, torch.empty(3, device="cuda"))
        RUNS = [run]
        def custom_kernel(data):
            return RUNS[0](data)
        """),
]  # fmt: skip


@pytest.mark.parametrize(("what", "line", "rule", "body"), KEPT, ids=[row[0] for row in KEPT])
def test_what_outlives_a_call_is_refused(what: str, line: int, rule: str, body: str) -> None:
    assert (line, rule) in lint(body)


OUTSIDE = [
    ("g = torch.cuda.CUDAGraph()", "outside-call"),
    ("class Lazy(torch.Tensor):\n    pass", "outside-call"),
    ("torch.cuda.Event = None", "tampering"),
    ("import time\ntime.perf_counter = lambda: 0", "tampering"),
    ("setattr(torch.cuda, 'synchronize', None)", "tampering"),
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


@pytest.mark.parametrize(("line", "rule"), OUTSIDE)
def test_other_refusals(line: str, rule: str) -> None:
    found = lint(line + "\n" + KERNEL)
    assert rule in [r for _, r in found]
    assert found[0][0] in (1, 2)


def test_work_handed_to_a_thread_is_refused() -> None:
    body = """\
        import threading
        def work(a, out):
            out.copy_(a * 2)
        def custom_kernel(data):
            out = torch.empty_like(data[0])
            threading.Thread(target=work, args=(data[0], out)).start()
            return out
        """
    assert lint(body) == [(6, "outside-call")]


HONEST = [
    ("kernels compiled in parallel", """\
        import subprocess
        from concurrent.futures import ThreadPoolExecutor
        SHAPES = [(1, 2), (3, 4)]
        def build(m, n):
            return subprocess.run(["hipcc", str(m), str(n)])
        with ThreadPoolExecutor() as pool:
            BUILT = [pool.submit(build, m, n) for m, n in SHAPES]
        def custom_kernel(data):
            return data[0] * 2
        """),
    ("workspaces per shape", """\
        import triton
        SPACE = {}
        @triton.jit
        def kernel(a, b, c):
            pass
        def workspace(name, shape, device):
            key = (name, shape, device)
            if key not in SPACE:
                SPACE[key] = torch.empty(shape, dtype=torch.float32, device=device)
            return SPACE[key]
        def custom_kernel(data):
            a, b, *_ = data
            m, n = a.shape[0], b.shape[0]
            c = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
            partial = workspace("partial", (4, m, n), a.device)
            kernel[(m,)](a, b, partial)
            kernel[(m,)](partial, b, c)
            return c
        """),
    ("configs and a choice per shape", """\
        CONFIGS = {(1, 2, 3): dict(block=4)}
        CHOSEN = {}
        def run(data, config):
            return data[0] * config["block"]
        def choose(shape, data):
            best, best_ms = None, 1e9
            for config in CONFIGS.values():
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                c = run(data, config)
                end.record()
                if start.elapsed_time(end) < best_ms:
                    best, best_ms = config, start.elapsed_time(end)
            return best
        def custom_kernel(data):
            shape = tuple(data[0].shape)
            if shape not in CHOSEN:
                CHOSEN[shape] = choose(shape, data)
            return run(data, CHOSEN[shape])
        """),
    ("a class with workspaces", """\
        class Gemm:
            def __init__(self, m, n):
                self.partial = torch.empty((m, n), device="cuda")
            def __call__(self, a):
                return a + 1
        GEMM = {}
        def custom_kernel(data):
            key = data[0].shape
            if key not in GEMM:
                GEMM[key] = Gemm(*key)
            return GEMM[key](data[0])
        """),
    ("a cached function of sizes", """\
        import functools
        @functools.lru_cache(maxsize=None)
        def grid(m, n):
            return (m // 16 * n // 16,)
        def custom_kernel(data):
            m, k = data[0].shape
            return data[0].new_empty(grid(m, k))
        """),
    ("alignment of a pointer", """\
        def custom_kernel(data):
            assert data[0].data_ptr() % 16 == 0
            return data[0] * 2
        """),
    ("a literal getattr and a list of results", """\
        ARCH = getattr(torch.version, "hip", None)
        def custom_kernel(data):
            parts = []
            for tensor in data:
                parts.append(tensor * 2)
            return parts[0] + parts[1]
        """),
    ("functions and kernels out of tables, workspaces beside a fresh output", """\
        KEPT, KERNELS = {}, {}
        def workspace(name, shape):
            if (name, shape) not in KEPT:
                KEPT[name, shape] = torch.empty(shape, device="cuda")
            return KEPT[name, shape]
        @triton.jit
        def copy(a, b):
            pass
        def run(data, size):
            partial, c = workspace("partial", data[0].shape), torch.empty(data[0].shape, device="cuda")
            kernel = KERNELS["copy"]
            kernel[(1,)](data[0], partial)
            KERNELS["copy"][(1,)](partial, c)
            return c
        KERNELS["copy"] = copy
        CONFIGS = {(1, 2): (run, 3)}
        def custom_kernel(data):
            call, *constants = CONFIGS.get(data[0].shape, CONFIGS[1, 2])
            return call(data, *constants)
        """),
    ("a counter of calls", """\
        CALLS = 0
        SEEN = set()
        def custom_kernel(data):
            global CALLS
            CALLS += 1
            SEEN.add(tuple(data[0].shape))
            return data[0] + 1
        """),
]  # fmt: skip


@pytest.mark.parametrize("body", [row[1] for row in HONEST], ids=[row[0] for row in HONEST])
def test_honest_files_are_left_alone(body: str) -> None:
    assert lint(body) == []


@pytest.mark.parametrize("name", ["aiter_template", "triton_kernel", "triton_launch_forms", "not_contiguous"])
def test_sample_submissions_that_are_honest(name: str) -> None:
    source = (SUBMISSIONS / f"{name}.py").read_text()
    assert [str(f) for f in lint_source(source) if f.severity == "error"] == []


def test_warnings_do_not_refuse() -> None:
    findings = lint_source("import aiter\nf = aiter.gemm_a4w4_asm\nimport reference\n" + KERNEL)
    assert {(f.line, f.rule) for f in findings} == {(1, "header"), (2, "asm-name"), (3, "harness-import")}
    assert all(f.severity == "warning" for f in findings)


def test_files_that_are_no_python_get_a_line() -> None:
    assert [str(f) for f in lint_source(HEAD + "def f(:\n")] == ["line 4: is no Python: invalid syntax [syntax]"]
    assert "is no Python" in str(lint_source(HEAD + "x = 1\0\n")[0])
    assert [f.rule for f in lint_source("") if f.severity == "error"] == ["entry"]
