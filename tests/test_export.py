"""Export: formulas, folding, the file, its round trip through `check`, and picks read back from notebooks."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import folding_kernels
import nbformat
import pytest

from mxfp4lab.check import check_submission
from mxfp4lab.check.cases import Log
from mxfp4lab.config import GemmConfig, config_errors
from mxfp4lab.export import export_submission, lint_source, read_picks
from mxfp4lab.export.fold import Folder
from mxfp4lab.export.formulas import Observation, find_formula
from mxfp4lab.export.layout import formatted, function_text
from mxfp4lab.export.recipe import PROBE_SHAPES, Pick, build_recipe, signature, verify_row
from mxfp4lab.plan import VARIANTS, build_plan, default_config
from mxfp4lab.shapes import TASK_SHAPES, TEST_SHAPES, Shape

TRITON_VARIANTS = [name for name, spec in VARIANTS.items() if not spec.needs_aiter and not spec.traits.hopper]
QUICK = ("fused_preshuffled", "prequant_rowmajor", "sliced_preshuffled")
QUICK_FIRST = [v if v in QUICK else pytest.param(v, marks=pytest.mark.slow) for v in TRITON_VARIANTS]
AITER_VARIANTS = [name for name, spec in VARIANTS.items() if spec.needs_aiter]
SMALL = Shape(8, 96, 512)


def check(path: Path, shapes: list[Shape], mode: str = "test"):
    return check_submission(path, mode, "emulator", shapes, log=Log())


# formulas -------------------------------------------------------------------------------------------------------------


def observations(value, constants: list[dict]) -> list[Observation]:
    sizes = [{"M": m, "N": n, "K": k} for m, n, k in ((1, 32, 64), (33, 96, 448), (64, 7168, 2048), (300, 2880, 512))]
    return [Observation(s, c, value(s, c)) for s in sizes for c in constants]


TILES = [{"BLOCK_M": 16, "BLOCK_N": 64, "SPLIT_K": 2}, {"BLOCK_M": 32, "BLOCK_N": 32, "SPLIT_K": 7}]


@pytest.mark.parametrize(("value", "text"), [
    (lambda s, c: s["N"], "N"),
    (lambda s, c: 3, "3"),
    (lambda s, c: s["K"] // 32, "K // 32"),
    (lambda s, c: s["M"] % c["BLOCK_M"] != 0, "M % {BLOCK_M} != 0"),
    (lambda s, c: -(-s["M"] // c["BLOCK_M"]), "triton.cdiv(M, {BLOCK_M})"),
    (lambda s, c: -(-s["M"] // c["BLOCK_M"]) * -(-s["N"] // c["BLOCK_N"]) * c["SPLIT_K"],
     "triton.cdiv(M, {BLOCK_M}) * triton.cdiv(N, {BLOCK_N}) * {SPLIT_K}"),
    (lambda s, c: -(-s["M"] // 256) * 256, "triton.cdiv(M, 256) * 256"),
    (lambda s, c: -(-s["M"] * s["N"] // (c["BLOCK_M"] * c["BLOCK_N"])), "triton.cdiv(M * N, {BLOCK_M} * {BLOCK_N})"),
])  # fmt: skip
def test_the_formula_behind_numbers_is_found(value, text: str) -> None:
    formula = find_formula(observations(value, TILES))
    assert formula is not None and formula.text == text


def test_a_number_without_a_formula_has_none() -> None:
    assert find_formula(observations(lambda s, c: s["M"] ** 2 + 1, TILES)) is None
    assert find_formula(observations(lambda s, c: s["M"] in (1, 64), TILES)) is None
    assert find_formula(observations(lambda s, c: "text", TILES)) is None


# folding --------------------------------------------------------------------------------------------------------------


def folded(environments: list[dict]) -> str:
    folder = Folder([(folding_kernels.entry, environments)])
    return formatted("\n\n".join(function_text(item.node) for item in folder.functions()))


def test_branches_that_no_config_takes_are_gone_and_comments_stay() -> None:
    base = {"BLOCK": 64, "MODE": "plus", "BITS": 32, "SPLIT": 1}
    text = folded([base | {"MASK": True}, base | {"MASK": False}])
    assert re.findall(r"def (\w+)\(([^)]*)\)", text) == [
        ("shifted", "x"), ("entry", "x_ptr, out_ptr, n, BLOCK: tl.constexpr, MASK: tl.constexpr")
    ]  # fmt: skip
    assert "# Seven is added." in text and "# The mask is for the last program." in text
    assert '"""One program: BLOCK elements.\n\n    Without a scale.\n    """' in text
    for gone in ("UNUSED", "SCALED", "other=1.0", "same(", "to(tl.int64)", "part", "unread", "wide", "SPLIT", "MODE"):
        assert gone not in text, gone
    assert "if MASK:" in text and "else:" in text


def test_constants_that_differ_stay_parameters() -> None:
    base = {"BLOCK": 64, "BITS": 64, "MASK": True}
    text = folded([base | {"MODE": "plus", "SPLIT": 1}, base | {"MODE": "none", "SPLIT": 4}])
    assert 'if MODE == "plus":' in text and "UNUSED" not in text
    assert "y * 2 if TWICE else y" in text
    assert "place = same(" in text and "return x.to(tl.int64)" in text
    assert "if MASK" not in text and "mask=place < n, other=0.0" in text
    ast.parse(text)


def test_a_split_of_one_everywhere_leaves_no_trace() -> None:
    text = folded([{"BLOCK": 64, "MODE": "none", "BITS": 32, "SPLIT": 1, "MASK": False}])
    assert "program_id(1)" not in text and "SPLIT" not in text and "shifted" not in text


def test_an_exported_file_is_laid_out_as_ruff_does_it() -> None:
    text = "import torch\nimport os\ndef f(a,b,):\n    return g(" + ", ".join(f"arg_{i}" for i in range(30)) + ")\n"
    laid_out = formatted(text + "TABLE = dict(a=1,   b=2)  # fmt: skip\n")
    assert laid_out.startswith("import os\n\nimport torch\n\n\ndef f(a, b):\n    return g(\n        arg_0,\n")
    assert "dict(a=1,   b=2)" in laid_out
    with pytest.raises(ValueError, match="ruff, which lays out exported files, failed"):
        formatted("def f(:\n")


UNSEEN = [Shape(*s) for s in ((2, 64, 128), (48, 1280, 2304), (96, 352, 512), (320, 3072, 448), (600, 512, 1536))]


@pytest.mark.parametrize("variant", ["fused_rowmajor", "sliced_preshuffled", "prequant_preshuffled"])
def test_formulas_hold_on_shapes_that_the_search_for_them_did_not_see(variant: str) -> None:
    """Every number of a launch follows from the file's formulas wherever a row's kernels are the ones planned."""
    assert not set(UNSEEN) & {*PROBE_SHAPES, *TASK_SHAPES}
    picks = {shape: [Pick(variant, default_config(variant, shape))] for shape in TASK_SHAPES}
    default = replace(default_config(variant, TASK_SHAPES[0]), split_k=1)
    if VARIANTS[variant].traits.a_mode == "open":
        default = replace(default, a_mode="fused")
    recipe, held = build_recipe(picks, Pick(variant, default)), 0
    for row in recipe.all_rows():
        own = signature(build_plan(variant, row.pick.config, row.shape or PROBE_SHAPES[0]))
        for shape in UNSEEN:
            if config_errors(row.pick.config, shape, "gfx950", variant):
                continue
            made = build_plan(variant, row.pick.config, shape)
            clamped = [v for v in row.values if v.get("SPLIT_K", 1) != row.pick.config.split_k]
            if signature(made) == own and not clamped and effective_split_is_whole(made, row.pick.config):
                verify_row(recipe, row, made)
                held += 1
    assert held >= 10


def effective_split_is_whole(plan, config: GemmConfig) -> bool:
    """A split that the shape clamps is the one number that a row knows for its own shape only."""
    return all(dict(launch.constants).get("SPLIT_K", config.split_k) == config.split_k
               for launch in plan.launches if hasattr(launch, "constants"))  # fmt: skip


# the recipe and the file ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", QUICK_FIRST)
def test_a_file_for_all_task_shapes_reads_like_written_by_hand(variant: str, tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    text = export_submission(dict.fromkeys(TASK_SHAPES, (variant, None)), path, evidence="Defaults.")
    assert path.read_text() == text
    assert text.startswith("#!POPCORN leaderboard amd-mxfp4-mm\n#!POPCORN gpu MI355X\n")
    assert [f for f in lint_source(text) if f.severity == "error"] == []
    tree = ast.parse(text)
    roots = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    roots |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert roots <= {"torch", "triton", "task", "functools"}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert defined - used == {"custom_kernel"}, "every function of the file is used"
    assert max(map(len, text.splitlines())) <= 130
    for shape in TASK_SHAPES:
        assert f"    ({shape.m}, {shape.n}, {shape.k}): (" in text
    assert 'CONVERT == "sw_aiter"' not in text


@pytest.mark.parametrize("variant", QUICK_FIRST)
def test_the_exported_file_gives_the_references_bits(variant: str, tmp_path: Path) -> None:
    """On a shape of its table and on one that only the default serves; its code is the plan's code."""
    from mxfp4lab.gfx950 import compile_plan
    from mxfp4lab.plan import build_plan

    path, other = tmp_path / "submission.py", Shape(5, 160, 448)
    export_submission({SMALL: (variant, None)}, path)
    report = check(path, [SMALL, other])
    assert report.passed, report.summary()
    assert [case.bf16_identical_fraction for case in report.cases] == [1.0, 1.0]
    planned = compile_plan(build_plan(variant, default_config(variant, SMALL), SMALL)).kernels
    exported = {use.compiled.name: use.compiled for use in reversed(report.kernels)}
    for kernel in planned:
        # Not the whole mix: from equal IR, Triton's LLVM stage may hoist an address this time and not the next.
        ours, theirs = exported[kernel.name], kernel
        for kind in ("mfma", "convert", "vmem", "lds", "barrier", "scratch"):
            assert ours.mix.get(kind, 0) == theirs.mix.get(kind, 0), f"folding changed what is executed: {kind}"
        assert ours.mfma == theirs.mfma and ours.resources.lds_bytes == theirs.resources.lds_bytes


@pytest.mark.slow
@pytest.mark.parametrize("variant", TRITON_VARIANTS)
def test_the_exported_file_passes_the_tasks_test_mode(variant: str, tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    export_submission(dict.fromkeys(TASK_SHAPES, (variant, None)), path)
    report = check(path, [case.shape for case in TEST_SHAPES])
    assert report.passed, report.summary()
    assert all(case.bf16_identical_fraction == 1.0 for case in report.cases)


@pytest.mark.aiter
@pytest.mark.parametrize("variant", AITER_VARIANTS)
def test_variants_that_end_in_aiters_gemm_call_it(variant: str, tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    text = export_submission({SMALL: (variant, None)}, path)
    assert "import aiter" in text and "aiter.gemm_a4w4_asm(" in text
    report = check(path, [SMALL])
    assert report.passed, report.summary()
    assert any("aiter's GEMM" in note for note in report.notes)


def test_hopper_exports_for_its_own_target() -> None:
    text = export_submission({Shape(64, 7168, 2048): ("hopper", None)}, None, arch="sm_90")
    assert "launch_pdl=True" in text and "fill=0" not in text.split("def hopper")[0]
    ast.parse(text)


def test_candidates_are_timed_at_the_first_call_and_a_broken_one_drops_out(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    choices = [
        ("fused_preshuffled", None),
        ("prequant_rowmajor", None),
        ("fused_preshuffled", {"block_n": 32, "num_warps": 2}),
    ]
    text = export_submission({SMALL: choices}, path, candidates=3)
    assert text.count("        (\n            run_") + text.count("        (run_") == 3
    assert "FLUSH_BYTES = 512 << 20" in text
    text = text.replace("512 << 20", "1 << 20")  # the emulator's caches are never warm
    path.write_text(text)
    report = check(path, [SMALL], "leaderboard")
    assert report.passed, report.summary()
    assert report.cases[0].launches_per_call == [1, 1, 1, 1], "chosen before the first counted call"
    broken = text.replace("BLOCK_N=32", "BLOCK_N=33", 1)
    path.write_text(broken)
    report = check(path, [SMALL])
    assert report.passed, report.summary()
    assert "dropped out" in report.printed
    assert "run_gemm" in export_submission({SMALL: choices}, None, candidates=1)


def test_knobs_are_set_before_triton_is_imported() -> None:
    text = export_submission({SMALL: ("fused_rowmajor", None)}, None, knobs={"AMDGCN_USE_BUFFER_OPS": "0"})
    assert text.index('os.environ.setdefault("AMDGCN_USE_BUFFER_OPS", "0")') < text.index("import triton")


def test_the_file_imports_where_there_is_no_gpu(tmp_path: Path) -> None:
    export_submission({SMALL: ("fused_preshuffled", None)}, tmp_path / "submission.py")
    (tmp_path / "task.py").write_text("input_t = output_t = object\n")
    code = "import submission; assert submission.custom_kernel and 'mxfp4lab' not in __import__('sys').modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_two_exports_of_one_pick_are_the_same_file() -> None:
    picks = dict.fromkeys(TASK_SHAPES[:3], ("fused_rowmajor", None))
    assert export_submission(picks, None) == export_submission(picks, None)


HYBRID = Pick("fused_rowmajor", GemmConfig())
BAD_REQUESTS = [
    (lambda: export_submission({}, None), "picks: at least one shape"),
    (lambda: export_submission({"1,2": ("fused_rowmajor", None)}, None), "accepted forms"),
    (lambda: export_submission({SMALL: ("nonsense", None)}, None), "variant='nonsense' is unknown"),
    (lambda: export_submission({SMALL: ("fused_rowmajor", {"block": 1})}, None), "unknown field 'block'"),
    (lambda: export_submission({SMALL: ("fused_rowmajor", {"block_m": 3})}, None), "block_m=3"),
    (lambda: export_submission({SMALL: ("fused_rowmajor", None)}, None, candidates=0), "candidates=0 must be"),
    (lambda: export_submission({SMALL: ("fused_rowmajor", None)}, None, candidates=True), "candidates=True must be"),
    (lambda: export_submission({SMALL: []}, None), "has no config"),
    (lambda: export_submission({SMALL: ("fused_rowmajor", None)}, "/proc/nowhere/s.py"), "cannot be written"),
    (lambda: export_submission({SMALL: ("fused_rowmajor", None)}, None, evidence="a str" "eam of"), "line 7"),
    (lambda: build_recipe({SMALL: [HYBRID]}, HYBRID), "its launches depend on the shape"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), BAD_REQUESTS)
def test_a_bad_request_names_what_is_wrong(call, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


# picks out of files ---------------------------------------------------------------------------------------------------


def pick_of(size: Shape, variant: str = "fused_preshuffled", **changes) -> dict:
    config, other = default_config(variant, size), default_config("prequant_rowmajor", size)
    return {
        "schema": 1, "kind": "pick", "shape": {"m": size.m, "n": size.n, "k": size.k}, "variant": variant,
        "config": config.to_dict(), "evidence": "modelled", "predicted_us": 6.5, "model_version": "m-1",
        "latency_us": None, "bf16_identical": 1.0, "knobs": {}, "arch": "gfx950",
        "alternatives": [{"variant": "prequant_rowmajor", "config": other.to_dict()}],
    } | changes  # fmt: skip


def notebook_with(*bundles: object) -> str:
    outputs = [
        nbformat.v4.new_output("display_data", data={"application/vnd.mxfp4lab.pick+json": b, "text/plain": "pick"})
        for b in bundles
    ]
    cell = nbformat.v4.new_code_cell("show(pick)", outputs=outputs)
    return nbformat.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# x"), cell]))


def test_a_pick_comes_back_from_an_executed_notebook_alone(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    from mxfp4lab import cli

    notebook, target = tmp_path / "out.ipynb", tmp_path / "submission.py"
    other = Shape(16, 2112, 7168)
    notebook.write_text(
        notebook_with({"schema": 1, "picks": [pick_of(SMALL)]}, {"schema": 1, "picks": [pick_of(other)]})
    )
    assert cli.run(["export", str(notebook), str(target)]) == 0
    assert "tuned for 8x96x512, 16x2112x7168" in capfd.readouterr().out
    text = target.read_text()
    assert "(8, 96, 512): (" in text and "(16, 2112, 7168): (" in text
    assert "picked by a model (m-1: 6.50 us, not measured)" in text and "100.00% of C's bf16" in text
    assert cli.run(["export", str(notebook), str(target), "--candidates", "2", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["shapes"] == ["8x96x512", "16x2112x7168"]
    assert "def choose(" in target.read_text() and "run_quantize" in target.read_text()


def test_picks_are_read_from_summaries_and_plain_json(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    for content in (
        {"pick": pick_of(SMALL), "funnel": {}},
        pick_of(SMALL),
        {"picks": [pick_of(SMALL), pick_of(SMALL)]},
    ):
        file.write_text(json.dumps(content))
        (pick,) = read_picks(file)
        assert pick.shape == SMALL and [variant for variant, _ in pick.choices] == [
            "fused_preshuffled",
            "prequant_rowmajor",
        ]
    measured = pick_of(SMALL, latency_us=7.25, regime="harness", device="AMD Instinct MI355X")
    file.write_text(json.dumps(measured))
    assert read_picks(file)[0].evidence == "8x96x512: 7.25 us measured (harness, AMD Instinct MI355X)."


BAD_FILES = [
    ("", "is no JSON"),
    ("[1, 2]", "holds no JSON object"),
    ("{}", "holds no pick"),
    (notebook_with(), "has the notebook been executed to its end"),
    (notebook_with({"picks": []}), "has the notebook been executed to its end"),
    (notebook_with("not json"), "is no JSON"),
    (json.dumps({"picks": [3]}), "pick 0 is no object"),
    (json.dumps(pick_of(SMALL, schema=2)), "has schema 2"),
    (json.dumps(pick_of(SMALL, shape={"m": 1})), "accepted forms"),
    (json.dumps(pick_of(SMALL, config={"nonsense": 1})), "unknown field"),
    (json.dumps(pick_of(SMALL, config=[1])), "config is no object"),
    (json.dumps(pick_of(SMALL, alternatives=3)), "alternatives is no list"),
    (json.dumps(pick_of(SMALL, knobs={"a": 1})), "knobs is no object of strings"),
    ("[" * 100000, "is no JSON"),
]


@pytest.mark.parametrize(("content", "said"), BAD_FILES)
def test_a_file_without_a_usable_pick_is_named(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "out.ipynb"
    file.write_text(content)
    with pytest.raises(ValueError, match=re.escape(said)):
        read_picks(file)


def test_bad_command_lines_get_one_line(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    from mxfp4lab import cli

    table = [
        (["a.ipynb"], "export needs a notebook and the file to write"),
        (["none.ipynb", "s.py"], "no such file"),
        (["none.ipynb", "s.txt"], "is a .py file, and comes last"),
        (["--variant", "fused_rowmajor"], "needs one file"),
        (["--variant", "nope", str(tmp_path / "s.py")], "variant='nope' is unknown"),
        (["--variant", "fused_rowmajor", "--config", "{", str(tmp_path / "s.py")], "is not JSON"),
        (["--lint"], "needs one file"),
        (["--lint", "none.py"], "no such file"),
    ]
    for arguments, said in table:
        assert cli.run(["export", *arguments]) == 2
        out, err = capfd.readouterr()
        assert said in err and err.count("\n") == 1 and out == ""


def test_the_command_lints_any_file(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    from mxfp4lab import cli

    file = tmp_path / "s.py"
    file.write_text("def custom_kernel(data):\n    return data[0]  # up" + "stream\n")
    assert cli.run(["export", "--lint", str(file), "--json"]) == 1
    data = json.loads(capfd.readouterr().out)
    assert data["refused"] and {"line": 2, "rule": "word"}.items() <= data["findings"][-1].items()
    target = tmp_path / "t.py"
    assert cli.run(["export", "--variant", "fused_rowmajor", "--shape", "8,96,512", str(target)]) == 0
    assert cli.run(["export", "--lint", str(target)]) == 0
