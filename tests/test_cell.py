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
from mxfp4lab.config import GemmConfig
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


def test_the_latest_definition_counts_and_session_values_are_written_out() -> None:
    earlier = ["def f(x):\n    return 1", "def f(x):\n    return 2", "config = tune()"]
    cell = "import torch\ndef custom_kernel(data):\n    return torch.empty(f(1), config.block_m, scale)"
    text = submission_from_cell(cell, None, earlier, {"config": GemmConfig(block_m=32), "scale": 3})
    assert "return 2" in text and "return 1" not in text
    assert "config = SimpleNamespace(block_m=32)" in text and "from types import SimpleNamespace" in text
    assert "scale = 3" in text and "tune" not in text


def test_functions_of_the_lab_are_carried_along(tmp_path: Path) -> None:
    cell = textwrap.dedent("""
        from mxfp4lab.formats import quantize_mxfp4, dequantize_mxfp4
        from mxfp4lab.layouts import e8m0_unshuffle
        import torch

        def custom_kernel(data):
            a, _, b_q, _, b_scale_sh = data
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
    cell = "from mxfp4lab.kernels.quantize import quantize_rows as q\ndef custom_kernel(data):\n    q[(1,)](data)\n"
    text = submission_from_cell(cell, None)
    assert "def quantize_rows(" in text and "def load_tile(" in text and "q = quantize_rows" in text
    assert "import triton.language as tl" in text and "from ." not in text
    ast.parse(text)


REFUSED = [
    ("x = 1\n", "cell line 1: the cell defines no custom_kernel"),
    ("def custom_kernel(data):\n    return nowhere(data)\n", "cell line 2: name 'nowhere' is defined neither"),
    ("def custom_kernel(data):\n    return (\n", "cell line 2: '(' was never closed"),
    ("%time\ndef custom_kernel(data):\n    return 1\n", "cell line 1: '%time' is IPython's"),
    (
        "import mxfp4lab.formats as f\ndef custom_kernel(data):\n    return f\n",
        "cell line 1: `import mxfp4lab.formats`: write",
    ),
    ("from mxfp4lab import formats\ndef custom_kernel(data):\n    return formats\n", "formats is a module of the lab"),
    (
        "from mxfp4lab.formats import nope\ndef custom_kernel(data):\n    return nope\n",
        "cell line 1: mxfp4lab.formats has no nope",
    ),
    (
        "import torch\nC = {}\ndef custom_kernel(data):\n    C[1] = data[0] * 2\n    return C[1] + 1\n",
        "cell line 4: C keeps a value",
    ),
    ("def custom_kernel(data):\n    return thing\n", "cell line 2: thing is a object without source"),
]


@pytest.mark.parametrize(("cell", "said"), REFUSED)
def test_a_cell_that_cannot_become_a_file_is_refused_by_line(cell: str, said: str) -> None:
    with pytest.raises(CellError) as refusal:
        submission_from_cell(cell, None, (), {"thing": object()})
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
    code = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext mxfp4lab.notebook.submission")
for text in {EARLIER[:3]!r}:
    shell.run_cell(text, store_history=True)
done = shell.run_cell("%%submission {tmp_path}/s.py --shape 8,64,256\\n" + {CELL!r}, store_history=True)
print(done.result)
html = done.result._repr_html_()
assert "Submission" in html and "pass" in html and "emulated" in html
bad = shell.run_cell("%%submission {tmp_path}/t.py\\n\\nx = 1", store_history=True)
assert "defines no custom_kernel" in str(bad.error_in_exec), bad.error_in_exec
"""
    code = code.replace("unrelated = open('/nowhere')", "unrelated = 0")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "check: pass" in done.stdout and (tmp_path / "s.py").exists() and not (tmp_path / "t.py").exists()
