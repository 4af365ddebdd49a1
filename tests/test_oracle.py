"""aiter found, recognised, loaded by file and judged: on small fake trees of three releases, and on the real wheel."""

import sys
from pathlib import Path

import pytest

from mxfp4lab.aiter.gemm import choose_gemm, prebuilt_kernels, tuned_row
from mxfp4lab.aiter.install import AiterError, find_aiter, load_file
from mxfp4lab.aiter.quantizer import _kernel, judge
from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.shapes import Shape

BOOM = "raise RuntimeError('an initialiser ran')\n"
KERNEL = "from ..helpers import REPR\ndef _dynamic_mxfp4_quant_kernel(x): return ('kernel', REPR, x)\n"
ASYNCIO = ("__init__.py", "join_aiters.py", "map_aiter.py")

# Three releases: everything in single modules; kernels split off; quant made packages.
LAYOUTS = {
    "one module": {
        "ops/triton/helpers.py": "REPR = 1\n",
        "ops/triton/quant.py": KERNEL.replace("..helpers", ".helpers"),
    },
    "kernels apart": {
        "ops/triton/helpers.py": "REPR = 2\n",
        "ops/triton/_triton_kernels/quant.py": KERNEL,
        "ops/triton/quant.py": BOOM,
    },
    "packages": {
        "ops/triton/_triton_kernels/helpers.py": "REPR = 3\n",
        "ops/triton/_triton_kernels/quant/__init__.py": BOOM,
        "ops/triton/_triton_kernels/quant/quant.py": KERNEL,
        "ops/triton/quant/quant.py": BOOM,
    },
}


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


def aiter_modules() -> set[str]:
    """What is imported under aiter's own name; other tests of the process may have left stand-ins there."""
    return {name for name in sys.modules if name.split(".")[0] == "aiter"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kernel_file_loads_although_every_initialiser_raises(tmp_path, layout):
    install = find_aiter(plant(tmp_path, LAYOUTS[layout], BOOM))
    before = aiter_modules()
    op = _kernel(install)
    assert op("x") == ("kernel", list(LAYOUTS).index(layout) + 1, "x")
    assert aiter_modules() == before
    assert _kernel(install) is op


def test_two_trees_are_not_mixed_up(tmp_path):
    ops = [_kernel(find_aiter(plant(tmp_path / str(i), files))) for i, files in enumerate(LAYOUTS.values())]
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


def test_the_impostor_is_recognised_by_what_it_contains(tmp_path, monkeypatch):
    package = tmp_path / "aiter"
    package.mkdir()
    for name in ASYNCIO:
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
    away = judge("old", lambda x: quantize_mxfp4(x, rounding="half_away"))
    assert (away.rounding, away.usable, away.scales_ok) == ("half_away", False, True)
    assert away.rounding_name == "ties away from zero (before PR 975)"


def test_case_5_an_oracle_that_answers_127_for_negative_exponents_is_refused():
    def saturating(x):
        packed, scale = quantize_mxfp4(x)
        return packed, scale.clamp(min=127)

    verdict = judge("on another GPU", saturating)
    assert (verdict.rounding, verdict.scales_ok, verdict.usable) == ("even", False, False)
    assert "scale byte 127 where 126 is right (a negative exponent went through float -> uint8" in verdict.reason


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


@pytest.mark.parametrize(("m", "rounded"), [(16, 16), (13, 16), (9, 16)])
def test_a_tuned_row_is_found_under_padded_rows(with_prebuilt, m, rounded):
    row = tuned_row(with_prebuilt, Shape(m, 2112, 7168))
    assert (int(row["M"]), int(row["splitK"])) == (rounded, 2)
    chosen = choose_gemm(Shape(m, 2112, 7168), install=with_prebuilt)
    assert (chosen.kernel.short_name, chosen.log2_k_split) == ("BpreShuffle_32x128", 0)  # that kernel cannot split
    assert chosen.reason.startswith(f"tuned for {rounded}x2112x7168 on 256 CUs")


def test_a_miss_is_said_aloud_and_the_fewest_rounds_then_idle_cus_stand_in(with_prebuilt):
    miss = choose_gemm(Shape(32, 4096, 512), install=with_prebuilt)
    assert "no tuned row for 32x4096x512 on 256 CUs; N, K is tuned for [80] CUs only" in miss.reason
    assert miss.kernel.short_name == "BpreShuffle_32x128" and "stands in" in miss.reason
    other = choose_gemm(Shape(64, 7168, 2048), install=with_prebuilt)
    assert "Composable Kernel instance" in other.reason and "stands in" in other.reason
    large = choose_gemm(Shape(512, 16384, 2048), install=with_prebuilt, cu_count=1024)
    assert large.kernel.short_name == "BpreShuffle_64x128"


# ---- the wheel ------------------------------------------------------------------------------------------------------


@pytest.fixture
def wheel():
    try:
        return find_aiter()
    except AiterError as error:
        pytest.skip(str(error))


@pytest.mark.aiter
def test_the_wheels_kernels_load_by_file(wheel):
    before = aiter_modules()
    assert "x_fp4_ptr" in _kernel(wheel).fn.arg_names  # inside triton.heuristics
    gemm = load_file(wheel, "ops/triton/_triton_kernels/gemm_afp4wfp4.py")
    assert hasattr(gemm, "_gemm_afp4_wfp4_kernel_preshuffled_weight_scales")
    assert aiter_modules() == before


@pytest.mark.aiter
def test_the_wheel_brings_prebuilt_gemms(wheel):
    kernels = prebuilt_kernels(wheel)
    assert len(kernels) == 35
    assert sum(k.split_k for k in kernels) > 0
    assert all(k.path.read_bytes()[:4] == b"\x7fELF" for k in kernels)
    assert tuned_row(wheel, Shape(8, 2112, 7168))["kernelName"].endswith("BpreShuffle_32x128E")
    assert "no tuned row" in tuned_row(wheel, Shape(4, 2880, 512))
