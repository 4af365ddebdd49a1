"""A cell as a submission: names gathered from source, refusals with the cell's line, the magic, the command."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest

from mxfp4lab.check import check_submission
from mxfp4lab.check.cases import Log
from mxfp4lab.export.cell import CellError, export_cell, submission_from_cell

KERNEL = """
@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # Twice as much.
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(out_ptr + place, x + x, mask=place < n)
"""
EARLIER = [
    "import torch\nimport triton\nimport triton.language as tl\n%matplotlib inline",
    KERNEL,
    "BLOCK = 64\nunrelated = open('/nowhere')\n\n\ndef grid(n):\n    return (triton.cdiv(n, BLOCK),)",
    "this is no python",
]
CELL = textwrap.dedent("""
    from reference import ref_kernel
    from task import input_t, output_t


    def custom_kernel(data: input_t) -> output_t:
        half = (ref_kernel(data).float() * 0.5).to(torch.bfloat16)
        out = torch.empty_like(half)
        double[grid(half.numel())](half, out, half.numel(), BLOCK=BLOCK)
        return out
""")


def test_what_a_cell_uses_comes_along_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    text = submission_from_cell(CELL, path, EARLIER)
    assert text.startswith("#!POPCORN leaderboard amd-mxfp4-mm\n#!POPCORN gpu MI355X\n")
    assert "# Twice as much." in text and "unrelated" not in text and "matplotlib" not in text
    assert text.index("def double") < text.index("def custom_kernel") and text.index("BLOCK = 64") < text.index(
        "def grid"
    )
    report = check_submission(path, "test", "emulator", ["8,64,256"], log=Log())
    assert report.passed, report.summary()
    assert report.kernels[0].compiled.name == "double"


ENTRY = "def custom_kernel(data):\n    return "


def value_of(expression: str, earlier: list[str]) -> object:
    """What `custom_kernel` hands back when the file runs alone."""
    names: dict = {"__name__": "submission"}
    exec(compile(submission_from_cell(ENTRY + expression, None, earlier), "submission.py", "exec"), names)
    return names["custom_kernel"](None)


HISTORIES = [
    ("n", ["n = 1", "n = 3"], 3),
    ("(a, b)", ["a, b = 1, 2", "b = 5"], (1, 5)),
    ("a + b", ["# Both.\na, b = 1, 2"], 3),
    ("low()", ["def low():\n    return limit", "limit = 1", "limit = 4"], 4),
    ("f()", ["def f(x=1):\n    return 1", "def f(x=1):\n    return 2"], 2),
    ("round(2)", ["def round(x):\n    return x + 100"], 102),
    ("max(sizes)", ["sizes = [3, 4]", "print(sizes)", "shown = sizes.copy()"], 4),
    ("last", ["%time x = 1\n!ls\nlast = 2"], 2),
    ("ASM", ['ASM = """\n%r1 = add;\n!x\n"""'], "\n%r1 = add;\n!x\n"),
    ("size(3)", ["import functools as ft", "def double(x):\n    return 2 * x", "size = ft.partial(double)"], 6),
    ("Tile(4).rows()", ["class Tile:\n    def __init__(self, n):\n        self.n = n\n    def rows(self):\n        "
                        "return WIDE * self.n", "WIDE = 2"], 8),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "earlier", "expected"), HISTORIES)
def test_earlier_cells_are_one_module(expression: str, earlier: list[str], expected: object) -> None:
    assert value_of(expression, earlier) == expected


CHANGED = [
    ("table", ["table = {}", "for m in (1, 2):\n    table[m] = m * 10"], "its value changes"),
    ("sizes", ["sizes = [1]", "sizes.append(2)"], "its value changes"),
    ("n", ["n = 1", "n *= 5"], "its value changes"),
    ("n", ["n = 1", "n = n + 1"], "builds on itself"),
    ("value", ["if 1 > 0:\n    value = 'yes'"], "made in a loop or a branch"),
    ("x", ["try:\n    x = 1\nexcept ImportError:\n    x = 2"], "made in a loop or a branch"),
    ("f.label", ["def f():\n    pass", "f.label = 'mine'"], "its value changes"),
    ("total", ["scale = 2\ndef f(x):\n    return x * scale", "total = f(5)", "scale = 3"], "bound anew"),
    ("f()", ["n = 1", "def f(x=n):\n    return x", "n = 2"], "bound anew"),
    ("x", ["from math import *"], "import it by name"),
    ("config.block_m", ["config = search()"], "it uses search: nothing defines it"),
    ("helper()", ["def helper():\n    return missing"], "it uses missing"),
]


@pytest.mark.parametrize(("expression", "earlier", "why"), CHANGED)
def test_what_is_no_constant_is_to_be_defined_in_the_cell(expression: str, earlier: list[str], why: str) -> None:
    with pytest.raises(CellError, match=r"cell line 2: define \w+ in the cell: ") as refusal:
        submission_from_cell(ENTRY + expression, None, earlier)
    assert why in str(refusal.value)


def test_functions_of_the_lab_are_carried_along(tmp_path: Path) -> None:
    cell = textwrap.dedent("""
        from mxfp4lab.formats import quantize_mxfp4, dequantize_mxfp4
        from mxfp4lab.layouts import e8m0_unshuffle
        import torch

        def custom_kernel(data):
            a, _, b_q, _, b_scale_sh = data
            b_q, b_scale_sh = b_q.view(torch.uint8), b_scale_sh.view(torch.uint8)
            scale = e8m0_unshuffle(b_scale_sh, b_q.shape[0], b_q.shape[1] // 16)
            return (dequantize_mxfp4(*quantize_mxfp4(a)) @ dequantize_mxfp4(b_q, scale).T).to(torch.bfloat16)
    """)
    path = tmp_path / "submission.py"
    text = submission_from_cell(cell, path)
    assert "mxfp4lab" not in text
    assert text.count("def quantize_mxfp4(") == 1
    report = check_submission(path, "test", "emulator", ["8,64,256"], log=Log())
    assert report.passed, report.summary()


def test_kernels_of_the_lab_are_carried_along() -> None:
    cell = "from mxfp4lab.kernels.plain import gemm_any_shape as gemm\n" + ENTRY + "gemm[(1,)](data)\n"
    text = submission_from_cell(cell, None)
    assert "def gemm_any_shape(" in text and "def e2m1_by_bits(" in text and "gemm = gemm_any_shape" in text
    assert "import triton.language as tl" in text and "from ." not in text
    ast.parse(text)


def test_one_thing_imported_in_two_ways_is_one_thing() -> None:
    cell = "from mxfp4lab.kernels.plain import gemm_any_shape\n" + ENTRY + "gemm_any_shape[(1,)](tl.int32, np)"
    text = submission_from_cell(cell, None, ["from triton import language as tl\nimport numpy as np"])
    assert text.count("import numpy as np") == 1 and text.count(" as tl") == 1


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
    head = '#!POPCORN leaderboard amd-mxfp4-mm\n#!POPCORN gpu MI355X\n"""My kernel."""\n\nimport torch\n'
    assert text.startswith(head)
    assert "LIMIT = 3\n\n# --- launch -------------------\n\ndef custom_kernel" in text
    assert text.count("#!POPCORN") == 2 and text.endswith("return torch.empty(LIMIT)   # mine\n")


def test_what_the_lint_refuses_is_named_by_cell_and_line() -> None:
    earlier = ["import torch", "def keep(x):\n    return x  # downstream"]
    with pytest.raises(CellError, match="cell 2 line 2: contains"):
        submission_from_cell(ENTRY + "keep(data[0])", None, earlier)


REFUSED = [
    ("x = 1\n", "cell line 1: the cell defines no custom_kernel"),
    (ENTRY + "nowhere(data)\n", "cell line 2: define nowhere in the cell: nothing defines it"),
    ("def custom_kernel(data):\n    return (\n", "cell line 2: '(' was never closed"),
    ("%time\n" + ENTRY + "1\n", "cell line 1: '%time' is IPython's"),
    ("import mxfp4lab.formats as f\n" + ENTRY + "f\n", "cell line 1: define mxfp4lab.formats in the cell: write `from"),
    ("from mxfp4lab import formats\n" + ENTRY + "formats\n", "it is a module of the lab: write `from mxfp4lab.formats"),
    ("from mxfp4lab.formats import nope\n" + ENTRY + "nope\n", "cell line 1: define nope in the cell: nothing defines"),
    ("from mxfp4lab.formats import quantize_mxfp4\nBLOCK = 64\n" + ENTRY + "quantize_mxfp4(BLOCK)", "two things"),
    (
        "from mxfp4lab.plan import default_config\n" + ENTRY + "default_config('fused_rowmajor', '4,32,64')",
        "cell line 1",
    ),
]


@pytest.mark.parametrize(("cell", "said"), REFUSED)
def test_a_cell_that_cannot_become_a_file_is_refused_by_line(cell: str, said: str) -> None:
    with pytest.raises(CellError) as refusal:
        submission_from_cell(cell, None)
    assert said in str(refusal.value)


def notebook(path: Path, cells: list[tuple[str, list[str]]]) -> Path:
    made = [nbformat.v4.new_code_cell(source, metadata={"tags": tags}) for source, tags in cells]
    path.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=made)))
    return path


def test_a_tagged_cell_is_exported_from_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    from mxfp4lab import cli

    book = notebook(
        tmp_path / "out.ipynb", [*((text, []) for text in EARLIER), (f"%%submission s.py --check\n{CELL}", ["winner"])]
    )
    target = tmp_path / "submission.py"
    assert cli.run(["export", str(book), str(target), "--cell", "winner", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["lines"] == len(target.read_text().splitlines())
    assert "def double(" in target.read_text()
    with pytest.raises(ValueError, match="no code cell tagged 'best'; tags in it: winner"):
        export_cell(book, "best", target)
    two = notebook(tmp_path / "two.ipynb", [("x = 1", ["winner"]), ("x = 2", ["winner"])])
    with pytest.raises(ValueError, match="2 code cell tagged"):
        export_cell(two, "winner", target)
    (tmp_path / "bad.ipynb").write_text("{}")
    with pytest.raises(ValueError, match="is no notebook"):
        export_cell(tmp_path / "bad.ipynb", "winner", target)


def test_the_magic_in_a_real_shell(tmp_path: Path) -> None:
    """Cells run one after another in IPython; the magic's card says what became of the last one."""
    folder = tmp_path / "my work"  # a blank in the path, as a person's folder may have
    folder.mkdir()
    code = f"""
import sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext mxfp4lab.notebook.submission")
for text in {EARLIER[:3]!r}:
    shell.run_cell(text, store_history=True)
done = shell.run_cell("%%submission {folder}/s.py --shape 8,64,256\\n" + {CELL!r}, store_history=True)
print(done.result)
html = done.result._repr_html_()
assert "Submission" in html and "pass" in html and "emulated" in html
bad = shell.run_cell("%%submission {folder}/t.py\\n\\nx = 1", store_history=True)
assert "defines no custom_kernel" in str(bad.error_in_exec), bad.error_in_exec
"""
    code = code.replace("unrelated = open('/nowhere')", "unrelated = 0")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "check: pass" in done.stdout and (folder / "s.py").exists() and not (folder / "t.py").exists()
