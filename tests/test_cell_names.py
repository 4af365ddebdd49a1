"""What a cell's names stand for in its file: the notebook's state at that moment, or a refusal with the cell's line."""

from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mxfp4lab.check import check_submission
from mxfp4lab.check.cases import Log
from mxfp4lab.config import GemmConfig
from mxfp4lab.export.cell import CellError, submission_from_cell
from mxfp4lab.export.gather import gather

ENTRY = "def custom_kernel(data):\n    return "


def made(cell: str, earlier: list[str] | None = None, session: dict | None = None) -> str:
    return gather(cell, earlier or [], session)


def value_of(cell_value: str, earlier: list[str], session: dict | None = None) -> object:
    """What `custom_kernel` hands back when the file runs alone."""
    names: dict = {"__name__": "submission"}
    sys.modules["submission"] = type(sys)("submission")  # dataclasses look their module up
    try:
        exec(compile(made(ENTRY + cell_value, earlier, session), "submission.py", "exec"), names)
        return names["custom_kernel"](None)
    finally:
        del sys.modules["submission"]


# the state of the notebook --------------------------------------------------------------------------------------------

HISTORIES = [
    ("table", ["table = {}", "for m in (1, 2):\n    table[m] = m * 10"], {1: 10, 2: 20}),
    ("sizes", ["sizes = [1]", "sizes.append(2)\nsizes += [3]", "sizes[0] = 7"], [7, 2, 3]),
    ("n", ["n = 1", "n = n + 1", "n *= 5"], 10),
    ("n", ["n = 1", "n *= 5", "n = 3"], 3),
    ("(a, b)", ["a, b = 1, 2", "b = 5"], (1, 5)),
    ("a + b", ["a, b = 1, 2"], 3),
    ("x", ["try:\n    import no_such_module\n    x = 1\nexcept ImportError:\n    x = 2"], 2),
    ("low()", ["def low():\n    return limit", "limit = 1", "limit = 4"], 4),
    ("total", ["scale = 2\ndef f(x):\n    return x * scale", "total = f(5)", "scale = 3"], 10),
    ("total()", ["scale = 2\ndef f(x):\n    return x * scale", "a = f(5)", "scale = 3",
                 "def total():\n    return (a, f(5))"], (10, 15)),
    ("f()", ["n = 1", "def f(x=n):\n    return x", "n = 2"], 1),
    ("f()", ["def f():\n    return g()", "def g():\n    return f.depth", "f.depth = 3"], 3),
    ("round(2)", ["def round(x):\n    return x + 100"], 102),
    ("f.label", ["def f():\n    pass", "f.label = 'mine'"], "mine"),
    ("value", ["if 1 > 0:\n    value = 'yes'\nelse:\n    value = 'no'"], "yes"),
    ("last", ["with open('/dev/null') as f:\n    last = len(f.read())"], 0),
    ("max(sizes)", ["sizes = [3, 4]", "print(sizes)", "shown = sizes.copy()"], 4),
]  # fmt: skip


@pytest.mark.parametrize(("value", "earlier", "expected"), HISTORIES)
def test_a_name_means_what_it_meant_when_the_cell_ran(value: str, earlier: list[str], expected: object) -> None:
    assert value_of(value, earlier) == expected


def test_a_statement_that_binds_several_names_comes_once() -> None:
    text = made(ENTRY + "a + b", ["# Both.\na, b = 1, 2"])
    assert text.count("a, b = 1, 2") == 1 and text.count("# Both.") == 1


def test_what_only_looks_at_a_name_stays_behind() -> None:
    text = made(ENTRY + "sizes", ["sizes = [1]", "sizes.index(1)\nprint(sizes)", "report = sizes.copy()"])
    assert "index" not in text and "print" not in text and "report" not in text


# values of a session --------------------------------------------------------------------------------------------------


class Mode(enum.Enum):
    FAST = 1


class Tile(NamedTuple):
    n: int
    mode: Mode = Mode.FAST


@dataclasses.dataclass(frozen=True)
class Plan:
    tile: Tile
    m: int = 16
    seen: list = dataclasses.field(default_factory=list, init=False)

    def rows(self) -> int:
        return 2 * self.m


CLASSES = [
    "import enum, dataclasses\nfrom typing import NamedTuple",
    "class Mode(enum.Enum):\n    FAST = 1\n\nclass Tile(NamedTuple):\n    n: int\n    mode: Mode = Mode.FAST",
    "@dataclasses.dataclass(frozen=True)\nclass Plan:\n    tile: Tile\n    m: int = 16\n    seen: list = "
    "dataclasses.field(default_factory=list, init=False)\n    def rows(self):\n        return 2 * self.m",
    "best = search(everything)",
]


def test_records_of_the_notebooks_classes_keep_their_methods() -> None:
    session = {"best": Plan(Tile(64), 32), "Plan": Plan, "Tile": Tile, "Mode": Mode}
    text = made(ENTRY + "best.rows()", CLASSES, session)
    assert "best = Plan(tile=Tile(n=64, mode=Mode.FAST), m=32)" in text and "search" not in text
    assert value_of("(best.rows(), best.tile.n, best.tile.mode is Mode.FAST)", CLASSES, session) == (64, 64, True)


def test_records_of_the_lab_become_their_fields() -> None:
    assert value_of("config.block_m", ["config = tune()"], {"config": GemmConfig(block_m=32)}) == 32


def test_of_a_record_of_the_lab_the_file_holds_what_it_asks_for() -> None:
    session = {"config": GemmConfig(block_m=32)}
    text = made(ENTRY + "rows() + config.block_n", ["def rows():\n    return config.block_m"], session)
    assert "config = SimpleNamespace(block_m=32, block_n=64)\n" in text
    whole = made(ENTRY + "vars(config)", [], session)
    assert "block_m=32, " in whole and "a_path='direct'" in whole


@pytest.mark.parametrize(("value", "expected"), [
    (np.float32(0.5), 0.5), (np.int64(7), 7), (float("-inf"), float("-inf")), ({1: (2,)}, {1: (2,)}), ({3, 1}, {1, 3}),
    (b"\x00", b"\x00"), (None, None), (True, True),
])  # fmt: skip
def test_values_are_written_as_python_reads_them(value: object, expected: object) -> None:
    got = value_of("value", ["value = measure()"], {"value": value})
    assert got == expected and type(got) is type(expected)


def test_a_changed_value_is_the_sessions() -> None:
    earlier = ["best = []", "best.append(open('/nowhere'))"]
    assert value_of("best", earlier, {"best": [4]}) == [4]


# refusals -------------------------------------------------------------------------------------------------------------

REFUSED = [
    (ENTRY + "x", ["from math import *"], "cell line 2: name 'x' is defined neither in this cell nor in an earlier "
     "one; if it comes from `from math import *`, import it by name"),
    ("from mxfp4lab.formats import quantize_mxfp4\n\nBLOCK = 64\n" + ENTRY + "quantize_mxfp4(BLOCK)", [],
     "BLOCK would mean two things in one file"),
    (ENTRY + "quantize_mxfp4(E8M0_BIAS)", ["from mxfp4lab.formats import quantize_mxfp4\nE8M0_BIAS = 1"],
     "cell line 2: E8M0_BIAS would mean two things in one file"),
    ("import math as torch\nfrom mxfp4lab.formats import quantize_mxfp4\n" + ENTRY + "quantize_mxfp4(torch.pi)", [],
     "torch would mean two things in one file"),
    ("\n\n" + ENTRY + "config.block_m",
     ["from mxfp4lab.plan import default_config\nconfig = default_config('fused_rowmajor', '4,32,64')"],
     "cell line 4: default_config of mxfp4lab.plan cannot be carried along"),
    (ENTRY + "helper()", ["def helper():\n    return missing"], "cell line 2: name 'missing' is defined neither"),
    (ENTRY + "best", ["best = Plan(open('/dev/null'))"], "cell line 2: name 'Plan' is defined neither"),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "earlier", "said"), REFUSED)
def test_what_cannot_be_said_in_one_file_is_refused_by_line(cell: str, earlier: list[str], said: str) -> None:
    with pytest.raises(CellError) as refusal:
        made(cell, earlier)
    assert said in str(refusal.value) and str(refusal.value).startswith("cell line ")


def test_what_the_lint_refuses_is_named_by_cell_and_line() -> None:
    earlier = ["import torch\nKEPT = {}", "def keep(x):\n    KEPT[0] = x * 2\n    return KEPT[0] + 1"]
    with pytest.raises(CellError, match="cell 2 line 2: KEPT keeps a value computed from the inputs"):
        submission_from_cell(ENTRY + "keep(data[0])", None, earlier)
    with pytest.raises(CellError, match="cell line 3: KEPT keeps a value"):
        submission_from_cell("\ndef custom_kernel(data):\n    KEPT[0] = data[0] * 2\n    return data", None, earlier)


def test_one_thing_imported_in_two_ways_is_one_thing() -> None:
    cell = "from mxfp4lab.kernels.reduce import reduce_tiles\n" + ENTRY + "reduce_tiles[(1,)](tl.int32, np, one)"
    text = made(cell, ["from triton import language as tl\nimport numpy as np", "import numpy as np\none = np.ones(1)"])
    assert text.count("import numpy as np") == 1 and "def reduce_tiles(" in text


# the file as a whole --------------------------------------------------------------------------------------------------


def test_the_cell_stands_as_it_was_written() -> None:
    cell = textwrap.dedent('''
        #!POPCORN leaderboard amd-mxfp4-mm
        #!POPCORN gpu MI355X
        """My kernel."""
        from task import input_t, output_t
        import torch; LIMIT = 3

        # --- launch -------------------

        def custom_kernel(data: input_t) -> output_t:
            return torch.empty(LIMIT)   # mine
    ''')
    text = submission_from_cell(cell, None)
    assert text.startswith(
        '#!POPCORN leaderboard amd-mxfp4-mm\n#!POPCORN gpu MI355X\n"""My kernel."""\n\nimport torch\n'
    )
    assert "LIMIT = 3\n\n# --- launch -------------------\n\ndef custom_kernel" in text
    assert text.count("#!POPCORN") == 2 and text.endswith("return torch.empty(LIMIT)   # mine\n")


def test_imports_are_sorted_and_annotations_postponed_where_a_cell_did_so() -> None:
    earlier = ["from __future__ import annotations\nimport os\ndef size(x: Later) -> Later:\n    return os.sep"]
    cell = "import torch\nimport abc\nfrom task import output_t, input_t\n" + ENTRY + "size(abc)"
    text = submission_from_cell(cell, None, earlier)
    assert "from __future__ import annotations\n\nimport abc\nimport os\n\nimport torch\nfrom task import" in text
    compile(text, "s.py", "exec")


SOURCE_OF_A_CLOSURE = """
import torch
import triton
from triton import language as tl
from dataclasses import dataclass
import functools as ft
# next cell
BLOCKS = {}
for width in (64, 128):
    BLOCKS[width] = width // 2
# next cell
@dataclass(frozen=True)
class Tile:
    n: int = BLOCKS[128]

    def grid(self, n):
        return (triton.cdiv(n, self.n),)
# next cell
def launcher(tile):
    def launch(kernel, *args):
        kernel[tile.grid(args[-1])](*args, BLOCK=tile.n)
    return launch
# next cell
@triton.jit
def copy(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)
"""
KERNEL_OF_A_CLOSURE = [text.strip() for text in SOURCE_OF_A_CLOSURE.split("# next cell")]
CELL_OF_A_CLOSURE = """
from reference import ref_kernel
from task import input_t, output_t

launch = launcher(Tile())

def counted(step=1):
    def wrap(function):
        @ft.wraps(function)
        def inner(*args, **kw):
            return function(*args, **kw)
        return inner
    return wrap

@counted(step=2)
def custom_kernel(data: input_t, *, run=launch) -> output_t:
    out = ref_kernel(data)
    result = torch.empty_like(out)
    run(copy, out, result, out.numel())
    return result
"""


def test_a_kernel_with_a_class_a_closure_and_a_decorator_runs(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    submission_from_cell(CELL_OF_A_CLOSURE, path, KERNEL_OF_A_CLOSURE)
    report = check_submission(path, "test", "emulator", ["8,64,256"], log=Log())
    assert report.passed, report.summary()
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F,I", path], capture_output=True
    )
    assert done.returncode == 0, done.stdout
