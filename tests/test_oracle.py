"""aiter found, recognised, loaded by file and judged: on small fake trees of three releases, and on the real wheel."""

import sys
from pathlib import Path

import pytest

from mxfp4lab.aiter import prebuilt
from mxfp4lab.aiter.install import PARTS, AiterError, find_aiter
from mxfp4lab.aiter.modules import import_part, import_parts, load_file, load_part
from mxfp4lab.aiter.prebuilt import (
    ASM_PARAMETERS,
    GemmChoice,
    aiter_choice,
    call_gemm_a4w4_asm,
    heuristic_kernel,
    padded_rows,
    prebuilt_kernels,
)
from mxfp4lab.aiter.verdict import judge, require_usable
from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.shapes import Shape

BOOM = "raise RuntimeError('an initialiser ran')\n"
OP = "from ..helpers import REPR\ndef _mxfp4_quant_op(x): return ('op', REPR, x)\n_dynamic_mxfp4_quant_kernel = None\n"
OP_DEF = OP.replace("_dynamic_mxfp4_quant_kernel = None", "def _dynamic_mxfp4_quant_kernel(x): return x")
GEMM = (
    "def gemm_a4w4(A): return A\n"
    "def gemm_a4w4_asm(A, B, A_scale, B_scale, out, kernelName, bias=None, alpha=1.0, beta=0.0, bpreshuffle=True,\n"
    "                  log2_k_split=None): return out\n"
)
FP4_UTILS = "def e8m0_shuffle(scale): return scale\n"
SHUFFLE = "def shuffle_weight(x): return x\n"

# Three releases: everything in single modules; kernels split off; quant made packages, helpers moved and renamed.
LAYOUTS = {
    "one module": {
        "ops/triton/helpers.py": "REPR = 1\n",
        "ops/triton/quant.py": OP_DEF.replace("..helpers", ".helpers")
        + "def dynamic_mxfp4_quant(x): return 'old', x\n",
        "utility/fp4_utils.py": FP4_UTILS,
        "ops/shuffle.py": SHUFFLE,
        "ops/gemm_op_a4w4.py": GEMM + "def get_CKGEMM_config(M, N, K): return None\n",
    },
    "kernels apart": {
        "ops/triton/helpers.py": "REPR = 2\n",
        "ops/triton/_triton_kernels/quant.py": OP_DEF,
        "ops/triton/quant.py": "def dynamic_mxfp4_quant(x): return 'mid', x\n",
        "utility/fp4_utils.py": FP4_UTILS,
        "ops/shuffle.py": SHUFFLE,
        "ops/gemm_op_a4w4.py": GEMM + "def get_GEMM_config(M, N, K): return None\n",
    },
    "packages": {
        "ops/triton/_triton_kernels/helpers.py": "REPR = 3\n",
        "ops/triton/_triton_kernels/quant/__init__.py": BOOM,
        "ops/triton/_triton_kernels/quant/quant.py": OP_DEF,
        "ops/triton/quant/__init__.py": "from .quant import dynamic_mxfp4_quant\n",
        "ops/triton/quant/quant.py": "def dynamic_mxfp4_quant(x): return 'new', x\n",
        "utility/fp4_utils.py": "def f32_to_mxfp4(x): return x\n",
        "ops/shuffle.py": SHUFFLE + "def shuffle_scale(src): return src\n",
        "ops/gemm_op_a4w4.py": GEMM + "def get_GEMM_config(M, N, K): return None\n",
    },
}
WHERE = {
    "one module": ("aiter.ops.triton.quant", "aiter.utility.fp4_utils.e8m0_shuffle", "get_CKGEMM_config", "old"),
    "kernels apart": ("aiter.ops.triton._triton_kernels.quant", "aiter.utility.fp4_utils.e8m0_shuffle",
                      "get_GEMM_config", "mid"),
    "packages": ("aiter.ops.triton._triton_kernels.quant.quant", "aiter.ops.shuffle.shuffle_scale",
                 "get_GEMM_config", "new"),
}  # fmt: skip


def plant(root: Path, files: dict[str, str], initialiser: str = "") -> Path:
    """Write a fake package `aiter` under `root`, with an initialiser in every package that has none."""
    for name, text in files.items():
        path = root / "aiter" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in {p.parent for p in (root / "aiter").rglob("*.py")} | {root / "aiter", root / "aiter" / "ops"}:
        if not (folder / "__init__.py").exists():
            (folder / "__init__.py").write_text(initialiser)
    (root / "aiter" / "_version.py").write_text("__version__ = '9.9'\n")
    return root


@pytest.fixture(autouse=True)
def _no_aiter_left_behind():
    before, path = {n for n in sys.modules if n.split(".")[0] == "aiter"}, list(sys.path)
    yield
    for name in [n for n in sys.modules if n.split(".")[0] == "aiter" and n not in before]:
        del sys.modules[name]
    sys.path[:] = path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_part_is_located_in_three_releases(tmp_path, layout):
    install = find_aiter(plant(tmp_path, LAYOUTS[layout], BOOM))
    quant_module, scale_shuffle, config_name, _ = WHERE[layout]
    assert (install.version, install.origin) == ("9.9", "tree")
    assert all(part.found for part in install.parts())
    assert install.part("quant_op").module == quant_module
    shuffle = install.part("e8m0_shuffle")
    assert f"{shuffle.module}.{shuffle.name}" == scale_shuffle
    assert install.part("get_GEMM_config").name == config_name
    assert (
        "def _mxfp4_quant_op"
        in install.part("quant_op").path.read_text().splitlines()[install.part("quant_op").line - 1]
    )


def aiter_modules() -> set[str]:
    """What is imported under aiter's own name; other tests of the process may have left stand-ins there."""
    return {name for name in sys.modules if name.split(".")[0] == "aiter"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kernel_file_loads_although_every_initialiser_raises(tmp_path, layout):
    install = find_aiter(plant(tmp_path, LAYOUTS[layout], BOOM))
    before = aiter_modules()
    op = load_part(install, "quant_op")
    assert op("x") == ("op", list(LAYOUTS).index(layout) + 1, "x")
    assert aiter_modules() == before
    assert load_part(install, "quant_op") is op


def test_two_trees_are_not_mixed_up(tmp_path):
    ops = [
        load_part(find_aiter(plant(tmp_path / str(i), files)), "quant_op") for i, files in enumerate(LAYOUTS.values())
    ]
    assert [op(None)[1] for op in ops] == [1, 2, 3]


def test_an_initialiser_runs_only_for_a_name_that_no_file_gives(tmp_path):
    files = {
        "ops/triton/marks.py": "SEEN = []\n",
        "ops/triton/kinds/__init__.py": (
            "from ..marks import SEEN\nSEEN.append('kinds')\nfrom .inner import LEVEL\nEXTRA = 5\n"
        ),
        "ops/triton/kinds/inner.py": "LEVEL = 7\n",
        "ops/triton/a.py": "from .kinds.inner import LEVEL\nfrom .marks import SEEN\nfrom .kinds import inner\n",
        "ops/triton/b.py": "from .kinds import EXTRA, LEVEL\nfrom .marks import SEEN\n",
        "ops/triton/c.py": "from aiter import nothing\n",
    }
    install = find_aiter(plant(tmp_path, files))
    (install.package / "__init__.py").write_text(BOOM)
    quiet = load_file(install, "ops/triton/a.py")
    assert (quiet.LEVEL, quiet.SEEN) == (7, [])
    asks = load_file(install, "ops/triton/b.py")
    assert (asks.EXTRA, asks.LEVEL, asks.SEEN) == (5, 7, ["kinds"])
    with pytest.raises(AiterError, match=r"c\.py of .* does not load here: ImportError"):
        load_file(install, "ops/triton/c.py")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_import_as_on_a_gpu_box_and_a_missing_one_costs_one_row(tmp_path, layout):
    root = plant(tmp_path, LAYOUTS[layout] if layout != "packages" else {
        **LAYOUTS[layout], "ops/triton/_triton_kernels/quant/__init__.py": ""})  # fmt: skip
    (root / "aiter/ops/shuffle.py").write_text("import not_there\ndef shuffle_weight(x): return x\n")
    install = find_aiter(root)
    values, problems = import_parts(install, tuple(PARTS))
    assert values["dynamic_mxfp4_quant"]("x") == (WHERE[layout][3], "x")
    assert set(values) | set(problems) == set(PARTS)
    assert "No module named 'not_there'" in problems["shuffle_weight"].problem
    if layout == "packages":  # the scale shuffle lived in the broken file and nowhere else
        assert "shuffle_scale is in none of" in problems["e8m0_shuffle"].problem
    else:
        assert set(problems) == {"shuffle_weight"}


def test_another_aiter_that_is_imported_already_is_not_taken_for_this_one(tmp_path):
    first, second = (plant(tmp_path / name, LAYOUTS["kernels apart"]) for name in "ab")
    import_part(find_aiter(first), "gemm_a4w4")
    with pytest.raises(AiterError, match=r"is imported from .*a/aiter already, not from .*b/aiter"):
        import_part(find_aiter(second), "gemm_a4w4")


def test_the_impostor_is_recognised_by_what_it_contains(tmp_path, monkeypatch):
    package = tmp_path / "aiter"
    package.mkdir()
    for name in ("__init__.py", "join_aiters.py", "map_aiter.py"):
        (package / name).write_text("")
    says = r"is not ROCm's: it contains an asyncio library \(join_aiters.py, map_aiter.py\).*--no-deps amd-aiter"
    with pytest.raises(AiterError, match=says):
        find_aiter(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AiterError, match=says):
        find_aiter("installed")


@pytest.mark.parametrize(("make", "says"), [(False, "is not a folder"), (True, "holds no package `aiter`")])
def test_other_folders_are_refused(tmp_path, make, says):
    folder = tmp_path / "x"
    if make:
        folder.mkdir()
    with pytest.raises(AiterError, match=says):
        find_aiter(folder)


def test_no_aiter_at_all(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        AiterError, match=r"no aiter is installed; `make setup AITER=1`.*`pip install --no-deps amd-aiter`"
    ):
        find_aiter()


# ---- verdicts -------------------------------------------------------------------------------------------------------


def test_roundings_are_named():
    even = judge("ours", quantize_mxfp4)
    assert (even.rounding, even.usable) == ("even", True)
    require_usable(even)
    away = judge("old", lambda x: quantize_mxfp4(x, rounding="half_away"))
    assert (away.rounding, away.usable, away.scales_ok) == ("half_away", False, True)
    assert away.rounding_name == "ties away from zero (before PR 975)"
    with pytest.raises(AiterError, match="old cannot serve as the reference: ties away from zero"):
        require_usable(away)


def test_case_5_an_oracle_that_answers_127_for_negative_exponents_is_refused():
    def saturating(x):
        packed, scale = quantize_mxfp4(x)
        return packed, scale.clamp(min=127)

    verdict = judge("on another GPU", saturating)
    assert (verdict.rounding, verdict.scales_ok, verdict.usable) == ("even", False, False)
    assert "scale byte 127 where 126 is right (a negative exponent went through float -> uint8" in verdict.reason
    with pytest.raises(AiterError, match="refused: scale byte 127"):
        require_usable(verdict)


def test_garbage_is_unknown_with_its_first_byte():
    def stuck(x):
        packed, scale = quantize_mxfp4(x)
        return packed | 0x77, scale

    verdict = judge("interpreter", stuck)
    assert (verdict.rounding, verdict.usable) == ("unknown", False)
    assert verdict.rounding_name.startswith("unknown: block 0, byte 0 is 247")


# ---- the prebuilt GEMM ----------------------------------------------------------------------------------------------

KERNEL_TABLE = (
    "tile_m,tile_n,splitK,bpreshuffle,knl_name,co_name\n"
    "64,128,0,1,_ZN5aiter41f4gemm_bf16_per1x32Fp4_BpreShuffle_64x128E,b.co\n"
    "32,128,0,1,_ZN5aiter41f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128E,a.co\n"
    "128,512,1,1,_ZN5aiter42f4gemm_bf16_per1x32Fp4_BpreShuffle_128x512E,c.co\n"
    "256,256,0,0,_ZN5aiter44f4gemm_bf16_per1x32Fp4_noBpreShuffle_256x256E,d.co\n"
)
TUNED = (
    "cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
    "256,16,2112,7168,21,2,12.8,_ZN5aiter41f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128E,1,1,0\n"
    "256,64,7168,2048,0,0,9.0,a4w4_blockscale_256x64x128,1,1,0\n"
    "80,32,4096,512,0,0,9.0,a4w4_blockscale_256x64x128,1,1,0\n"
)


@pytest.fixture
def with_prebuilt(tmp_path):
    root = plant(tmp_path, LAYOUTS["kernels apart"])
    folder = root / "aiter_meta/hsa/gfx950/f4gemm"
    folder.mkdir(parents=True)
    (folder / "f4gemm.csv").write_text(KERNEL_TABLE)
    for name in "abcd":
        (folder / f"{name}.co").write_bytes(b"\x7fELF")
    (root / "aiter/configs").mkdir()
    (root / "aiter/configs/a4w4_blockscale_tuned_gemm.csv").write_text(TUNED)
    return find_aiter(root)


def test_prebuilt_kernels_are_read_from_their_table(with_prebuilt):
    kernels = prebuilt_kernels(with_prebuilt)
    assert [k.short_name for k in kernels] == [
        "BpreShuffle_32x128", "BpreShuffle_64x128", "BpreShuffle_128x512", "noBpreShuffle_256x256",
    ]  # fmt: skip
    assert [(k.tile_m, k.tile_n, k.split_k, k.preshuffled) for k in kernels][2:] == [
        (128, 512, True, True), (256, 256, False, False),
    ]  # fmt: skip
    with pytest.raises(AiterError, match="without prebuilt f4gemm code objects for gfx942"):
        prebuilt_kernels(with_prebuilt, "gfx942")
    kernels[0].path.unlink()
    with pytest.raises(AiterError, match=r"lists a\.co, which is not in"):
        prebuilt_kernels(with_prebuilt)


def test_a_tuned_row_is_found_under_padded_rows_and_a_miss_is_said_aloud(with_prebuilt):
    hit = aiter_choice(with_prebuilt, Shape(13, 2112, 7168))
    assert (hit.tuned, hit.prebuilt, hit.log2_k_split) == (True, True, 2)
    assert hit.reason.startswith("tuned for 16x2112x7168 on 256 CUs")
    other = aiter_choice(with_prebuilt, Shape(64, 7168, 2048))
    assert (other.tuned, other.prebuilt) == (True, False)
    miss = aiter_choice(with_prebuilt, Shape(32, 4096, 512))
    assert (miss.kernel_name, miss.tuned, miss.log2_k_split) == ("", False, 0)
    assert "no tuned row for 32x4096x512 on 256 CUs; N, K is tuned for [80] CUs only" in miss.reason
    assert aiter_choice(with_prebuilt, Shape(32, 4096, 512), cu_count=80).tuned


@pytest.mark.parametrize(
    ("m", "n", "granularity", "padded"),
    [(13, 64, None, 13), (13, 64, 0, 16), (257, 64, 0, 288), (1025, 64, 0, 1088), (4097, 64, 0, 4224),
     (13, 64, 1, 16), (1, 64, 1, 1), (65, 64, 1, 128), (9000, 8192, 1, 8192), (9000, 64, 1, 16384)],
)  # fmt: skip
def test_padded_rows(m, n, granularity, padded):
    assert padded_rows(m, n, granularity) == padded


def test_heuristic_takes_fewest_rounds_then_fewest_idle_cus(with_prebuilt):
    kernels = prebuilt_kernels(with_prebuilt)
    assert heuristic_kernel(kernels, Shape(64, 7168, 2048))[0].short_name == "BpreShuffle_32x128"
    assert heuristic_kernel(kernels, Shape(512, 16384, 2048), cu_count=1024)[0].short_name == "BpreShuffle_64x128"
    assert heuristic_kernel(kernels, Shape(64, 7168, 2048), log2_k_split=2)[0].short_name == "BpreShuffle_128x512"
    kernel, log = heuristic_kernel(kernels, Shape(1, 1024, 2048), log2_k_split=None)
    assert (kernel.short_name, log) == ("BpreShuffle_128x512", 4)
    with pytest.raises(AiterError, match="no tile width divides n=2880"):
        heuristic_kernel(kernels, Shape(4, 2880, 512))
    assert heuristic_kernel(kernels, Shape(4, 2880, 512), any_width=True)[0].short_name == "BpreShuffle_32x128"


CHOICE = GemmChoice("_ZN5aiterE", 2, True, True, "")


def test_asm_arguments_arrive_in_the_order_of_the_signature():
    seen = {}

    def recorder(A, B, A_scale, B_scale, out, kernelName, bias=None, alpha=1.0, beta=0.0, bpreshuffle=True,
                 log2_k_split=None):  # fmt: skip
        seen.update(locals())
        return out

    expected = dict(zip(ASM_PARAMETERS, ("aq", "bsh", "ascale", "bscale", "out", "_ZN5aiterE", None, 1.0, 0.0, True, 2),
                        strict=True))  # fmt: skip
    assert call_gemm_a4w4_asm(recorder, "aq", "bsh", "ascale", "bscale", "out", CHOICE) == "out"
    seen.pop("seen", None)
    assert seen == expected

    positions = []
    call_gemm_a4w4_asm(lambda *args: positions.extend(args), "aq", "bsh", "ascale", "bscale", "out", CHOICE)
    assert positions == list(expected.values())


def test_asm_with_another_signature_is_refused_before_it_runs():
    def changed(A, A_scale, B, B_scale, out):
        raise AssertionError("must not run")

    with pytest.raises(AiterError, match="gemm_a4w4_asm has parameters A, A_scale, B"):
        call_gemm_a4w4_asm(changed, *"abcde", CHOICE)


# ---- the wheel ------------------------------------------------------------------------------------------------------


@pytest.fixture
def wheel():
    try:
        return find_aiter()
    except AiterError as error:
        pytest.skip(str(error))


@pytest.mark.aiter
def test_the_wheel_has_every_part_and_its_kernels_load_by_file(wheel):
    before = aiter_modules()
    assert all(part.found for part in wheel.parts())
    assert load_part(wheel, "quant_op").__name__ == "_mxfp4_quant_op"
    gemm = load_file(wheel, "ops/triton/_triton_kernels/gemm_afp4wfp4.py")
    assert hasattr(gemm, "_gemm_afp4_wfp4_kernel_preshuffled_weight_scales")
    assert aiter_modules() == before


@pytest.mark.aiter
def test_the_wheel_brings_prebuilt_gemms(wheel):
    kernels = prebuilt_kernels(wheel)
    assert len(kernels) == 35
    assert sum(k.split_k for k in kernels) > 0
    assert all(k.path.read_bytes()[:4] == b"\x7fELF" for k in kernels)
    assert aiter_choice(wheel, Shape(8, 2112, 7168)).kernel_name.endswith("BpreShuffle_32x128E")
    assert not aiter_choice(wheel, Shape(4, 2880, 512)).tuned
    assert prebuilt.OUTPUT_ROW_PAD == 32
