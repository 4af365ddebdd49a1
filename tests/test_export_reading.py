"""An exported file reads as if a person had written it for its shapes: properties of whole files."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mxfp4lab.export import export_submission
from mxfp4lab.export.lint import server_refusals
from mxfp4lab.kernels import convert, cooperative, gemm, hopper, quantize, reduce, sliced, tiles, waves
from mxfp4lab.plan import VARIANTS
from mxfp4lab.shapes import TASK_SHAPES, Shape

PLAIN = [name for name, spec in VARIANTS.items() if not spec.needs_aiter]
SLICED = [name for name in PLAIN if VARIANTS[name].traits.sliced]
SMALL = Shape(4, 2880, 512)
QUICK = ("fused_rowmajor", "sliced_preshuffled", "cooperative_preshuffled", "hopper")
FILES = [
    *[pytest.param(v, "all", id=v, marks=[] if v in QUICK else pytest.mark.slow) for v in PLAIN],
    *[pytest.param("sliced_preshuffled", str(s), id=f"sliced-{s}") for s in TASK_SHAPES[:2]],
    pytest.param("fused_preshuffled", str(SMALL), id=f"fused-{SMALL}"),
    pytest.param("several", "all", id="several"),
]


@functools.cache
def exported(variant: str, shapes: str) -> str:
    """The text of a file; "several" carries candidates of three variants."""
    if variant == "several":
        three = [(v, None) for v in ("sliced_preshuffled", "fused_preshuffled", "prequant_rowmajor")]
        return export_submission(dict.fromkeys(TASK_SHAPES[:2], three), None, candidates=3)
    arch = "sm_90" if VARIANTS[variant].traits.hopper else "gfx950"
    chosen = TASK_SHAPES if shapes == "all" else [shapes]
    return export_submission(dict.fromkeys(chosen, (variant, None)), None, arch=arch)


def functions(text: str) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]


def kernels_of_the_lab() -> dict[str, set[str]]:
    """Every kernel and helper of the lab, and the compile-time parameters that it takes."""
    modules = (convert, cooperative, gemm, hopper, quantize, reduce, sliced, tiles, waves)
    found: dict[str, set[str]] = {}
    for module in modules:
        for name, value in vars(module).items():
            if hasattr(value, "params"):
                found.setdefault(name, set()).update(p.name for p in value.params if p.is_constexpr)
    return found


@pytest.mark.parametrize(("variant", "shapes"), FILES)
def test_ruff_finds_nothing_to_say(variant: str, shapes: str) -> None:
    """No unused name or import, imports sorted, 120 columns, laid out as `ruff format` does it."""
    text = exported(variant, shapes)
    common = ["--isolated", "--line-length", "120", "--stdin-filename", "submission.py", "-"]
    for command in (["check", "--select", "E4,E5,E7,E9,F,W,I,UP"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *common], input=text, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("variant", "shapes"), FILES)
def test_nothing_is_written_that_a_person_would_fold(variant: str, shapes: str) -> None:
    text = exported(variant, shapes)
    code = re.sub(r'"""[\s\S]*?"""|#.*', "", text)
    for pattern in (r"static_range\(1\)", r"\* 1\b(?!\.)", r"\+ 0\b(?![.x])", r"// 1\b", r"\(\) \+", r"0 >= 0"):
        assert not re.search(pattern, code), pattern
    for function in functions(text):
        body = {n.id for statement in function.body for n in ast.walk(statement) if isinstance(n, ast.Name)}
        taken = {argument.arg for argument in function.args.args}
        assert taken <= body, f"{function.name} does not use {taken - body}"
        aliases = [n for n in ast.walk(function) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Name)
                   and n.value.id in taken and isinstance(n.targets[0], ast.Name)]  # fmt: skip
        assert not aliases, f"{function.name}: {[ast.unparse(n) for n in aliases]}"
    assert not re.search(r"^def run_\w+_[0-9a-d]\(", text, re.M), "functions told apart by a number"


@pytest.mark.parametrize(("variant", "shapes"), FILES)
def test_prose_speaks_of_what_is_there(variant: str, shapes: str) -> None:
    """Docstrings and comments name no parameter that was folded away and no helper that stayed behind."""
    text = exported(variant, shapes)
    lab, helpers = kernels_of_the_lab(), {f.name for f in functions(text)}
    known = {name for constants in lab.values() for name in constants if name.isupper() and len(name) > 1}
    assert {"TILES", "SPLIT_K", "STAGED", "GROUP_M"} <= known
    lines = text.splitlines()
    for function in functions(text):
        said = ast.get_docstring(function) or ""
        said += " ".join(
            line for line in lines[function.lineno - 1 : function.end_lineno] if line.strip().startswith("#")
        )
        bound = {a.arg for a in function.args.args}
        bound |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
        gone = {name for name in known - bound if re.search(rf"\b{name}\b", said)}
        assert not gone, f"{function.name} speaks of {gone}"
        quoted = set(re.findall(r"`(\w+)`", said)) & set(lab)
        assert quoted <= helpers, f"{function.name} speaks of {quoted - helpers}"


@pytest.mark.parametrize("shapes", ["all", str(SMALL)])
@pytest.mark.parametrize("variant", SLICED)
def test_gluon_kernels_come_without_a_way_for_other_gpus(variant: str, shapes: str) -> None:
    text = exported(variant, shapes)
    for word in ("on_this_gpu", "AMD_OPTIONS", "is_gfx950", "gcnArchName", "sw_bits", "waves_per_eu"):
        assert word not in text, word
    tree = ast.parse(text)
    assert not [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "triton.language.semantic"]
    (patch,) = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TritonSemantic" in ast.unparse(n)]
    assert "triton.__version__" in ast.unparse(patch.test)


@pytest.mark.parametrize("path", sorted(Path(gemm.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_kernel_holds_a_word_that_the_server_refuses(path: Path) -> None:
    """What stands in a docstring here stands in the exported file."""
    assert server_refusals(path.read_text()) == []


def test_plain_triton_keeps_a_way_for_other_gpus() -> None:
    text = exported("fused_preshuffled", str(SMALL))
    assert "**on_this_gpu(gemm)" in text and 'adapted["CONVERT"] = "sw_bits"' in text


@pytest.mark.parametrize(("variant", "shapes"), FILES)
def test_the_fallback_says_what_it_is(variant: str, shapes: str) -> None:
    text = exported(variant, shapes)
    assert "# Any other shape with N a multiple of 32 and K of 64: right, but not tuned.\nDEFAULT = " in text


@pytest.mark.aiter
@pytest.mark.parametrize("variant", [name for name, spec in VARIANTS.items() if spec.needs_aiter])
def test_aiters_gemm_runs_on_one_gpu_only(variant: str) -> None:
    text = export_submission(dict.fromkeys(TASK_SHAPES, (variant, None)), None)
    assert "on_this_gpu" not in text and "sw_bits" not in text and "CONVERT" not in text


def test_one_way_to_launch_needs_no_choice_of_function() -> None:
    text = exported("sliced_preshuffled", str(SMALL))
    assert f"    ({SMALL.m}, {SMALL.n}, {SMALL.k}): dict(BLOCK_M=16, " in text
    assert "return run_gemm(data, M, N, K, CONFIGS.get((M, N, K), DEFAULT))" in text


def test_a_file_for_another_target_says_so() -> None:
    head = exported("hopper", "all")[:200]
    assert "#!POPCORN gpu" not in head and "# Written for sm_90: the leaderboard's own GPU is MI355X." in head
    assert "count_ptr: not used without a split" in exported("hopper", "all")
