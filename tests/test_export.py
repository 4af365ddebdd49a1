"""Export: the file and its round trip through `check`, candidates and fallbacks, picks read back from notebooks."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from mxfp4lab import cli
from mxfp4lab.check import check_submission
from mxfp4lab.check.cases import Log
from mxfp4lab.export import export_submission, lint_source, read_picks, server_refusals
from mxfp4lab.gfx950 import compile_plan
from mxfp4lab.kernels import gemm
from mxfp4lab.plan import VARIANTS, build_plan, default_config
from mxfp4lab.shapes import BENCHMARK_SHAPES, TASK_SHAPES, TEST_SHAPES, Shape

PLAIN = [name for name, spec in VARIANTS.items() if not spec.needs_aiter]
TRITON = [name for name in PLAIN if not VARIANTS[name].hopper]
QUICK = ("fused_preshuffled", "sliced_preshuffled")
QUICK_FIRST = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TRITON]
SMALL, OTHER = Shape(8, 96, 512), Shape(5, 160, 448)
MODES = ("test", "benchmark", "leaderboard")


@functools.cache
def six(variant: str) -> str:
    arch = "sm_90" if VARIANTS[variant].hopper else "gfx950"
    return export_submission(dict.fromkeys(TASK_SHAPES, (variant, None)), None, arch=arch)


def check(path: Path, shapes: list[Shape], mode: str = "test"):
    report = check_submission(path, mode, "emulator", shapes, log=Log())
    assert report.passed, report.summary()
    return report


# the file -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", PLAIN)
def test_a_file_for_all_task_shapes_is_plain(variant: str) -> None:
    text = six(variant)
    assert [f for f in lint_source(text) if f.severity == "error"] == []
    tree = ast.parse(text)
    roots = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    roots |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert roots <= {"sys", "torch", "triton"}
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert defined - used == {"custom_kernel"}, "every function of the file is used"
    for shape in TASK_SHAPES:
        assert f"    ({shape.m}, {shape.n}, {shape.k}): [(" in text
    assert re.search(r"mxfp4lab \d+\.\d+\.\d+( \(commit [0-9a-f]{12})?", text) and "Triton 3." in text
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E4,E5,E7,E9,F,W,I,UP"]
    command += ["--line-length", "120", "--stdin-filename", "submission.py", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_file_has_the_kernels_as_they_stand() -> None:
    text = six("fused_preshuffled")
    launch = build_plan("fused_preshuffled", None, TASK_SHAPES[0]).launches[0]
    assert launch.fn.src.strip() in text
    assert text == export_submission(dict.fromkeys(TASK_SHAPES, ("fused_preshuffled", None)), None)


@pytest.mark.parametrize("path", sorted(Path(gemm.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_kernel_holds_a_word_that_the_server_refuses(path: Path) -> None:
    """What stands in a docstring here stands in the exported file."""
    assert server_refusals(path.read_text()) == []


@pytest.mark.parametrize("variant", QUICK_FIRST)
def test_the_exported_file_gives_the_references_bits(variant: str, tmp_path: Path) -> None:
    """On a shape of its table and on one that plain Triton serves; its code is the plan's code."""
    path = tmp_path / "submission.py"
    export_submission({SMALL: (variant, None)}, path)
    report = check(path, [SMALL, OTHER], "leaderboard")
    assert [case.bf16_identical_fraction for case in report.cases] == [1.0, 1.0]
    exported = {use.compiled.name: use.compiled for use in reversed(report.kernels)}
    for kernel in compile_plan(build_plan(variant, None, SMALL)).kernels:
        # Not the whole mix: from equal IR, Triton's LLVM stage may hoist an address this time and not the next.
        for kind in ("mfma", "convert", "vmem", "lds", "barrier", "scratch"):
            assert exported[kernel.name].mix.get(kind, 0) == kernel.mix.get(kind, 0), kind
        assert exported[kernel.name].mfma == kernel.mfma
        assert exported[kernel.name].resources.lds_bytes == kernel.resources.lds_bytes


@pytest.mark.slow
@pytest.mark.parametrize("variant", TRITON)
def test_the_exported_file_passes_every_mode_on_the_ten_shapes(variant: str, tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(six(variant))
    for mode in MODES:
        report = check(path, [case.shape for case in (*TEST_SHAPES, *BENCHMARK_SHAPES)], mode)
        assert {case.bf16_identical_fraction for case in report.cases} == {1.0}


@pytest.mark.aiter
@pytest.mark.parametrize("variant", [name for name in VARIANTS if VARIANTS[name].needs_aiter])
def test_variants_that_end_in_aiters_gemm_call_it(variant: str, tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    text = export_submission({SMALL: (variant, None)}, path)
    assert "import aiter" in text and "aiter.gemm_a4w4_asm(" in text
    assert any("aiter's GEMM" in note for note in check(path, [SMALL]).notes)


def test_hopper_exports_for_its_own_target() -> None:
    text = six("hopper")
    assert "launch_pdl=True" in text and "#!POPCORN gpu" not in text
    assert "# Written for sm_90: the leaderboard's own GPU is MI355X." in text
    assert "    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait\nexcept ImportError" in text


def test_knobs_are_set_before_triton_is_imported() -> None:
    text = export_submission({SMALL: ("fused_rowmajor", None)}, None, knobs={"AMDGCN_USE_BUFFER_OPS": "0"})
    assert text.index('os.environ.setdefault("AMDGCN_USE_BUFFER_OPS", "0")') < text.index("import triton")


def test_the_file_imports_where_there_is_no_gpu(tmp_path: Path) -> None:
    export_submission({SMALL: ("sliced_preshuffled", None)}, tmp_path / "submission.py")
    code = "import submission; assert submission.custom_kernel and 'mxfp4lab' not in __import__('sys').modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


MISALIGNED = '''

whole = custom_kernel


def custom_kernel(data):
    """The same on A two bytes further, where a kernel compiled for 16 may not go."""
    a = torch.empty(data[0].numel() + 1, dtype=data[0].dtype, device=data[0].device)[1:].view(data[0].shape)
    a.copy_(data[0])
    assert torch.equal(whole(data), whole((a, *data[1:])))
    return whole((a, *data[1:]))
'''


def test_tensors_that_are_aligned_otherwise_get_kernels_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    path.write_text(export_submission({SMALL: ("fused_rowmajor", None)}, None) + MISALIGNED)
    report = check(path, [SMALL])
    assert len({use.compiled.kernel_hash or id(use) for use in report.kernels}) == 2, "two kernels, by alignment"


# what does not run on the box -----------------------------------------------------------------------------------------


def test_without_gluon_plain_triton_serves_the_shape(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    text = export_submission({SMALL: ("sliced_preshuffled", None)}, None)
    path.write_text(text.replace("from triton.experimental import gluon", "from triton.not_yet import gluon"))
    report = check(path, [SMALL], "leaderboard")
    (line,) = [line for line in report.printed.splitlines() if "a plan does not run here" in line]
    assert line.startswith("(8, 96, 512)") and "triton.not_yet" in line
    assert {use.compiled.name for use in report.kernels} == {"gemm_any_shape"}


def test_a_plan_that_does_not_compile_costs_speed_alone(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    text = export_submission({SMALL: ("fused_preshuffled", None)}, None)
    path.write_text(re.sub(r"BLOCK_N=\d+", "BLOCK_N=33", text, count=1))
    assert check(path, [SMALL]).printed.count("a plan does not run here") == 1


CHOICES = [("fused_preshuffled", None), ("prequant_rowmajor", None), ("fused_preshuffled", {"block_n": 32})]


def test_candidates_are_timed_at_the_first_call_and_a_broken_one_drops_out(tmp_path: Path) -> None:
    path = tmp_path / "submission.py"
    text = export_submission({SMALL: CHOICES}, None, candidates=3)
    assert text.count("        # fused_preshuffled") == 2 and "FLUSH_BYTES = 512 << 20" in text
    text = text.replace("512 << 20", "1 << 20").replace("REPEATS = 7", "REPEATS = 2")  # no cache is warm here
    path.write_text(text)
    report = check(path, [SMALL], "leaderboard")
    assert report.cases[0].launches_per_call == [1] * 25, "chosen before the first counted call"
    path.write_text(re.sub(r"BLOCK_N=\d+", "BLOCK_N=33", text, count=1))
    assert check(path, [SMALL]).printed.count("a plan does not run here") == 1
    path.write_text(re.sub(r"BLOCK_N=\d+", "BLOCK_N=33", text))
    report = check(path, [SMALL, OTHER])
    assert report.printed.count("a plan does not run here") == 3
    assert {use.compiled.name for use in report.kernels} >= {"gemm_any_shape"}


def test_a_candidate_with_another_c_is_not_taken(tmp_path: Path) -> None:
    """The second is told to be faster, and reads B in the wrong order."""
    path = tmp_path / "submission.py"
    text = export_submission({SMALL: CHOICES[:2]}, None, candidates=2).replace("512 << 20", "1 << 20")
    text = text.replace(
        "def cold_ms(", "TOLD = [2.0, 1.0]\n\n\ndef cold_ms(run, data):\n    return TOLD.pop(0)\n\n\ndef cold("
    )
    before, table = text.split("\nPLANS = {")
    assert '"b_q"' in table
    path.write_text(before + "\nPLANS = {" + table.replace('"b_q"', '"b_shuffle"'))
    assert {use.compiled.name for use in check(path, [SMALL]).kernels} > {"quantize_rows"}, "it was tried"


# picks ----------------------------------------------------------------------------------------------------------------


def pick_of(size: Shape, variant: str = "fused_preshuffled", others=("prequant_rowmajor",), **changes) -> dict:
    config = default_config(variant, size).to_dict()
    found = {"schema": 1, "kind": "pick", "shape": {"m": size.m, "n": size.n, "k": size.k}, "variant": variant,
             "config": config, "evidence": "modelled", "predicted_us": 6.5, "interval": [6.0, 7.0],
             "model_version": "m-1", "latency_us": None, "bf16_identical": 1.0, "knobs": {}, "arch": "gfx950",
             "alternatives": [{"variant": v, "config": default_config(v, size).to_dict()} for v in others]}  # fmt: skip
    return found | changes


def notebook_with(*bundles: object) -> str:
    outputs = [nbformat.v4.new_output("display_data", data={"application/vnd.mxfp4lab.pick+json": b, "text/plain": "p"})
               for b in bundles]  # fmt: skip
    cell = nbformat.v4.new_code_cell("show(pick)", outputs=outputs)
    return nbformat.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# x"), cell]))


def test_a_pick_comes_back_from_an_executed_notebook_alone(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    notebook, target, other = tmp_path / "out.ipynb", tmp_path / "submission.py", Shape(16, 2112, 7168)
    notebook.write_text(notebook_with({"picks": [pick_of(SMALL)]}, {"picks": [pick_of(other)]}))
    assert cli.run(["export", str(notebook), str(target)]) == 0
    assert "tuned for 8x96x512, 16x2112x7168" in capfd.readouterr().out
    text = target.read_text()
    assert "(8, 96, 512): [" in text and "def fastest(" in text, "modelled: timed on the box"
    assert "8x96x512: fused_preshuffled, picked by a model (m-1: 6.50 us, 6.00 to 7.00, not measured)" in text
    assert "python -m mxfp4lab export out.ipynb submission.py" in text
    assert cli.run(["export", str(notebook), str(target), "--candidates", "1", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["shapes"] == ["8x96x512", "16x2112x7168"]
    assert "def fastest(" not in target.read_text()


def test_the_caveat_is_in_every_way_of_exporting(tmp_path: Path) -> None:
    shape, variant = Shape(64, 7168, 2048), "cooperative_preshuffled"
    pick, file = pick_of(shape, variant), tmp_path / "summary.json"
    file.write_text(json.dumps({"pick": pick}))
    ways = [export_submission(read_picks(file), None), export_submission([pick], None),
            export_submission({shape: (variant, None)}, None), export_submission({shape: (variant, None)}, None,
                                                                                 evidence="By hand.")]  # fmt: skip
    for text in ways:
        assert " ".join(VARIANTS[variant].caveat.split()) in re.sub(r"\n#\s*|\s+", " ", text.split('"""')[0])


def variants_in(text: str) -> list[str]:
    return re.findall(r"^        # (\w+) \{", text, re.M)


def test_a_modelled_pick_is_timed_beside_another_kind_and_a_known_submission() -> None:
    shape = Shape(64, 7168, 2048)
    pick = pick_of(shape, "cooperative_preshuffled", ("sliced_preshuffled", "prequant_rowmajor"))
    text = export_submission([pick], None)
    assert variants_in(text) == ["cooperative_preshuffled", "sliced_preshuffled", "fused_preshuffled"]
    far = dict(pick, alternatives=[dict(a, interval=[9.0, 9.5]) for a in pick["alternatives"]])
    assert variants_in(export_submission([far], None))[:2] == ["cooperative_preshuffled", "fused_preshuffled"]
    assert variants_in(export_submission([pick], None, candidates=1)) == ["cooperative_preshuffled"]
    measured = dict(pick, latency_us=6.1, evidence="measured", regime="leaderboard", device="AMD Instinct MI355X")
    text = export_submission([measured], None)
    assert variants_in(text) == ["cooperative_preshuffled"]
    assert "6.10 us, 6.00 to 7.00 measured (leaderboard, AMD Instinct MI355X)" in text
    assert len(variants_in(export_submission([measured], None, candidates=3))) == 3


def test_picks_are_read_from_summaries_and_plain_json(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    for content in ({"pick": pick_of(SMALL), "funnel": {}}, pick_of(SMALL), {"picks": [pick_of(SMALL)] * 2}):
        file.write_text(json.dumps(content))
        (pick,) = read_picks(file)
        assert pick.shape == SMALL
        assert [variant for variant, _ in pick.choices] == ["fused_preshuffled", "prequant_rowmajor"]


BAD_FILES = [
    ("", "is no notebook and no other JSON"),
    ("[1, 2]", "holds no JSON object"),
    ("{}", "holds no pick"),
    (notebook_with(), "has the notebook been executed to its end"),
    (notebook_with({"picks": []}), "has the notebook been executed to its end"),
    (notebook_with("not json"), "has the notebook been executed to its end"),
    (json.dumps({"picks": [3]}), "pick 0 is no object"),
    (json.dumps(pick_of(SMALL, schema=2)), "has schema 2"),
    (json.dumps(pick_of(SMALL, shape={"m": 1})), "accepted forms"),
    (json.dumps(pick_of(SMALL, config={"nonsense": 1})), "unknown field"),
    (json.dumps(pick_of(SMALL, config=[1])), "config is no object"),
    (json.dumps(pick_of(SMALL, alternatives=3)), "alternatives is no list"),
    (json.dumps(pick_of(SMALL, knobs={"a": 1})), "knobs is no object of strings"),
    ("[" * 100000, "is no notebook"),
]


@pytest.mark.parametrize(("content", "said"), BAD_FILES)
def test_a_file_without_a_usable_pick_is_named(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "out.ipynb"
    file.write_text(content)
    with pytest.raises(ValueError, match=re.escape(said)):
        read_picks(file)


FUSED = ("fused_rowmajor", None)
BAD_REQUESTS = [
    (lambda: export_submission({}, None), "picks: at least one shape"),
    (lambda: export_submission({"1,2": FUSED}, None), "accepted forms"),
    (lambda: export_submission({SMALL: ("nonsense", None)}, None), "variant='nonsense' is unknown"),
    (lambda: export_submission({SMALL: ("fused_rowmajor", {"block": 1})}, None), "block"),
    (lambda: export_submission({SMALL: ("fused_rowmajor", {"block_m": 3})}, None), "block_m=3"),
    (lambda: export_submission({SMALL: FUSED}, None, candidates=0), "candidates=0 must be"),
    (lambda: export_submission({SMALL: FUSED}, None, candidates=True), "candidates=True must be"),
    (lambda: export_submission({SMALL: []}, None), "has no config"),
    (lambda: export_submission({SMALL: FUSED}, "/proc/nowhere/s.py"), "cannot be written"),
    (lambda: export_submission({SMALL: FUSED}, None, evidence="a str" "eam of"), "line 10"),
    (lambda: export_submission([pick_of(SMALL), pick_of(OTHER, knobs={"A": "1"})], None), "different knobs"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), BAD_REQUESTS)
def test_a_bad_request_names_what_is_wrong(call, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


def test_text_out_of_records_cannot_become_code() -> None:
    text = export_submission({SMALL: FUSED}, None, evidence='"""\nimport socket\n\r\u2028import socket')
    assert "socket" not in {a.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import) for a in n.names}


def test_bad_command_lines_get_one_line(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
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
    file, target = tmp_path / "s.py", tmp_path / "t.py"
    file.write_text("def custom_kernel(data):\n    return data[0]  # up" + "stream\n")
    assert cli.run(["export", "--lint", str(file), "--json"]) == 1
    data = json.loads(capfd.readouterr().out)
    assert data["refused"] and {"line": 2, "rule": "word"}.items() <= data["findings"][-1].items()
    assert cli.run(["export", "--variant", "fused_rowmajor", "--shape", "8,96,512", str(target)]) == 0
    assert cli.run(["export", "--lint", str(target)]) == 0
    made = target.read_text()
    assert "again by:\n#   python -m mxfp4lab export t.py --variant fused_rowmajor --shape 8,96,512\n" in made
