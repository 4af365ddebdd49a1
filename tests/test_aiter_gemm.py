"""AMD's own GEMM: machine code that nobody here wrote or compiled, against the reference."""

import dataclasses
from pathlib import Path

import pytest
import torch

from mxfp4lab import cli, fit
from mxfp4lab.aiter.gemm import (
    ARGUMENTS,
    SLOT_BYTES,
    WHOLE_COLUMNS_ONLY,
    aiter_output,
    build_gemm_stage,
    choose_gemm,
    gemm_launch,
    prebuilt_kernels,
    run_prebuilt_gemm,
    split_count,
)
from mxfp4lab.aiter.install import AiterError, find_aiter
from mxfp4lab.check.check import check_submission
from mxfp4lab.config import GemmConfig
from mxfp4lab.emulate import count_plan, emulate_plan
from mxfp4lab.formats import dequantize_mxfp4, quantize_mxfp4
from mxfp4lab.gfx950 import CompileError, OutOfBounds, load_code_object, load_launch, plan_hash
from mxfp4lab.layouts import e8m0_position, e8m0_shuffle, e8m0_unshuffle
from mxfp4lab.plan import build_plan
from mxfp4lab.shapes import BENCHMARK_SHAPES, TEST_SHAPES, Shape
from mxfp4lab.task import INPUT_NAMES, check_output, generate_input, input_dict, reference_output
from mxfp4lab.workers import compile_many

pytestmark = pytest.mark.aiter
pytest.importorskip("tinygrad.renderer.amd", reason="decoding code objects needs the extra [codeobject]")
try:
    KERNELS = prebuilt_kernels(find_aiter())
except AiterError as error:
    pytest.skip(str(error), allow_module_level=True)
PRESHUFFLED = [kernel for kernel in KERNELS if kernel.preshuffled]
CASES = TEST_SHAPES + BENCHMARK_SHAPES


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXFP4LAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def loaded():
    """Every code object, decoded once."""
    return {kernel: load_code_object(kernel.path) for kernel in KERNELS}


def operands(shape, seed=0, pad=0):
    a, _, _, b_shuffle, b_scale_sh = generate_input(shape, seed)
    a_q, a_scale = quantize_mxfp4(a)
    return a_q, e8m0_shuffle(a_scale, pad_value=pad), b_shuffle, b_scale_sh


def identical(c, reference):
    return torch.equal(c.view(torch.int16), reference.view(torch.int16))


def test_there_are_34_preshuffled_kernels_and_all_35_decode(loaded):
    assert (len(PRESHUFFLED), len(KERNELS)) == (34, 35)
    for kernel, compiled in loaded.items():
        assert compiled.name == kernel.symbol and compiled.num_warps == 4
        resources = compiled.resources
        assert (resources.vgprs, resources.agprs, resources.lds_bytes) == (256, 256, 163840)
        assert resources.spilled_vgprs == resources.scratch_bytes == 0 and resources.occupancy_waves_per_simd == 1
        assert set(compiled.mfma) == {"v_mfma_scale_f32_16x16x128_f8f6f4"} and compiled.hazards == ()
        assert (
            compiled.descriptor.user_sgpr_layout == (("kernarg_segment_ptr", 0, 2),)
            and compiled.descriptor.user_sgprs == 2
        )
        assert compiled.descriptor.workgroup_ids == (True, True, True)


def test_the_argument_layout_is_what_the_code_objects_say(loaded):
    ours = {name: (place * SLOT_BYTES, size) for place, (name, size) in enumerate(ARGUMENTS)}
    theirs = {"d": "D", "c": "C", "a": "A", "b": "B", "alpha": "alpha", "beta": "beta", "stride_d0": "strideD0",
              "stride_c0": "strideC0", "stride_a0": "strideA0", "stride_b0": "strideB0", "m": "Mdim", "n": "Ndim",
              "k": "Kdim", "a_scale": "ScaleA", "b_scale": "ScaleB", "stride_a_scale0": "strideScaleA0",
              "stride_b_scale0": "strideScaleB0"}  # fmt: skip
    for kernel in PRESHUFFLED:
        compiled = loaded[kernel]
        said = {arg.name: (arg.offset, arg.size) for arg in compiled.descriptor.args if arg.name != "pad"}
        assert {name: ours[name] for name in theirs} == {name: said[other] for name, other in theirs.items()}
        assert compiled.descriptor.kernarg_bytes >= ours["log2_k_split"][0] + 4


@pytest.mark.parametrize("kernel", PRESHUFFLED, ids=lambda kernel: kernel.short_name)
def test_every_kernel_gives_the_reference(kernel):
    whole = (kernel.tile_m, kernel.tile_n) in WHOLE_COLUMNS_ONLY
    shape = Shape(kernel.tile_m - 3, kernel.tile_n - (0 if whole else 32), 512)
    done = run_prebuilt_gemm(*operands(shape), kernel=kernel.short_name, before=7.0)
    assert identical(done.c, reference_output(generate_input(shape, 0)))
    assert (done.output[shape.m :] == 7.0).all()  # rows past M are left alone


@pytest.mark.parametrize("name", ["32x128", "96x256", "160x384", "256x256"])
def test_many_tiles_with_a_tail_each_way(name):
    kernel = next(kernel for kernel in PRESHUFFLED if kernel.short_name.endswith(f"_{name}"))
    tail = 0 if (kernel.tile_m, kernel.tile_n) in WHOLE_COLUMNS_ONLY else 32
    shape = Shape(kernel.tile_m + 5, 2 * kernel.tile_n - tail, 1024)
    assert identical(run_prebuilt_gemm(*operands(shape), kernel=name).c, reference_output(generate_input(shape, 0)))


@pytest.mark.parametrize("name", ["32x128", "160x256", "256x256"])
def test_no_race_and_no_uninitialised_read_is_reported(name):
    kernel = next(kernel for kernel in PRESHUFFLED if kernel.short_name.endswith(f"_{name}"))
    shape = Shape(kernel.tile_m - 3, kernel.tile_n, 768)
    names = ("a_q", "a_scale_sh", "b_shuffle", "b_scale_sh")
    inputs = dict(zip(names, operands(shape), strict=True))
    done = emulate_plan(build_gemm_stage(shape, name), inputs, races=True)
    assert done.findings == [] and identical(done.c, reference_output(generate_input(shape, 0)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.shape))
@pytest.mark.parametrize("variant", ["reference", "quant_shuffle_asm"])
def test_the_variants_are_exact_on_the_tasks_shapes(case, variant):
    inputs = input_dict(case.shape, case.seed)
    reference = reference_output(tuple(inputs[name] for name in INPUT_NAMES))
    done = emulate_plan(build_plan(variant, None, case.shape), inputs)
    assert done.c.shape == reference.shape and identical(done.c, reference)


@pytest.mark.parametrize("shape", [Shape(1, 64, 192), Shape(300, 96, 320), Shape(33, 160, 1664)], ids=str)
def test_the_variants_on_other_shapes(shape):
    """Padding in M and K; where the padded columns are read, an exact zero may come out as -0."""
    inputs = input_dict(shape, 3)
    reference = reference_output(tuple(inputs[name] for name in INPUT_NAMES))
    for variant in ("reference", "quant_shuffle_asm"):
        c = emulate_plan(build_plan(variant, None, shape), inputs).c
        differs = c.view(torch.int16) != reference.view(torch.int16)
        assert (c[differs] == 0).all() and (reference[differs] == 0).all()


def test_aiter_judges_by_its_own_code():
    data = generate_input(Shape(16, 256, 512), 5)
    assert identical(aiter_output(data), reference_output(data))
    old = aiter_output(data, rounding="half_away")
    assert not identical(old, reference_output(data)) and old.isfinite().all()
    assert not check_output(old, reference_output(data)).passed


def test_check_can_judge_by_amds_machine_code(capfd, monkeypatch):
    def check(name):
        path = Path(__file__).parent / "submissions" / name
        code = cli.run(["check", str(path), "--backend", "emulator", "--against", "aiter", "--shape", "16,256,512"])
        return code, *capfd.readouterr()

    code, out, _ = check("triton_kernel.py")
    assert code == 0 and "bf16 identical 100 %" in out

    def none_here(source=None):
        raise AiterError("no aiter is installed; `pip install --no-deps amd-aiter` gives AMD's kernels")

    monkeypatch.setattr("mxfp4lab.aiter.gemm.find_aiter", none_here)
    code, out, err = check("triton_kernel.py")
    assert (code, out) == (2, "") and "pip install --no-deps amd-aiter" in err and err.count("\n") == 1


def test_a_submission_that_calls_aiter_runs_amds_machine_code():
    path = Path(__file__).parent / "submissions" / "aiter_template.py"
    report = check_submission(path, backend="emulator", shapes=[Shape(16, 256, 512)])
    assert report.passed and report.cases[0].bf16_identical_fraction == 1.0
    assert "aiter's GEMM is AMD's own machine code, emulated: BpreShuffle_32x128" in report.notes
    (use,) = report.kernels
    assert use.compiled.name.endswith("BpreShuffle_32x128E") and use.findings == [] and use.lane_instructions > 0


@pytest.mark.parametrize("name", ["256x256", "128x512"])
@pytest.mark.parametrize("log2", [1, 2, 4])
def test_a_split_adds_bf16_shares_in_bf16(name, log2):
    """What a split does to the bits: each share is rounded to bf16 and so is each sum; the task would refuse it."""
    shape = Shape(8, 512, 2048)
    data = generate_input(shape, 0)
    split = run_prebuilt_gemm(*operands(shape), kernel=name, log2_k_split=log2, on_out_of_bounds="record")
    a_q, a_scale = quantize_mxfp4(data[0])
    b_scale = e8m0_unshuffle(data[4])[: shape.n, : shape.k // 32]
    a, b = dequantize_mxfp4(a_q, a_scale).double(), dequantize_mxfp4(data[2], b_scale).double()
    share = -(-(shape.k >> log2) // 256) * 256
    expected = torch.zeros(shape.m, shape.n, dtype=torch.bfloat16)
    for first in range(0, shape.k, share):
        part = (a[:, first : first + share] @ b[:, first : first + share].T).to(torch.bfloat16)
        expected = (expected.float() + part.float()).to(torch.bfloat16)
    assert split.launch.grid[2] == split_count(shape, log2) == shape.k // share
    assert identical(split.c, expected)
    check = check_output(split.c, reference_output(data))
    assert not check.passed and 0.3 < check.bf16_identical_fraction < 0.75


def test_a_split_adds_into_what_is_there():
    shape = Shape(8, 512, 1024)
    zeroed, dirty = (
        run_prebuilt_gemm(*operands(shape), kernel="128x512", log2_k_split=1, before=before).c for before in (0.0, 64.0)
    )
    assert not identical(zeroed, dirty) and (zeroed.float() + 64 - dirty.float()).abs().max() <= 1.0
    alone, same = (run_prebuilt_gemm(*operands(shape), kernel="128x512", before=before).c for before in (0.0, 64.0))
    assert identical(alone, same)


def test_amds_own_read_past_the_scales_is_reported():
    """Eight shares of K = 2048 with few rows: the last share fetches the scales of a step that does not exist."""
    shape = Shape(8, 512, 2048)
    with pytest.raises(OutOfBounds, match=r"load of 4 bytes from buffer 'a_scale_sh' .* past its end"):
        run_prebuilt_gemm(*operands(shape), kernel="256x256", log2_k_split=3)
    recorded = run_prebuilt_gemm(*operands(shape), kernel="256x256", log2_k_split=3, on_out_of_bounds="record")
    assert recorded.result.findings and recorded.c.isfinite().all()


def test_a_plan_with_a_split_zeroes_its_output():
    plan = build_gemm_stage(Shape(8, 512, 2048), "256x256", 2)
    assert plan.buffer("c").fill == 0 and plan.launches[0].grid == (2, 1, 4)
    assert build_gemm_stage(Shape(8, 512, 2048), "256x256").buffer("c").fill is None


@pytest.mark.parametrize("tile", sorted(WHOLE_COLUMNS_ONLY))
def test_four_kernels_write_past_column_n_and_are_refused_there(tile, monkeypatch):
    name = f"{tile[0]}x{tile[1]}"
    shape = Shape(tile[0], tile[1] - 32, 256)
    with pytest.raises(AiterError, match=rf"N = {shape.n} must be a multiple of {tile[1]}"):
        run_prebuilt_gemm(*operands(shape), kernel=name)
    monkeypatch.setattr("mxfp4lab.aiter.gemm.WHOLE_COLUMNS_ONLY", frozenset())
    c, reference = run_prebuilt_gemm(*operands(shape), kernel=name).c, reference_output(generate_input(shape, 0))
    wrong = (c.view(torch.int16) != reference.view(torch.int16)).any(0)
    assert wrong[:32].any() and not wrong[32:].any()  # the 32 columns past N landed at the start of the next row


def identical_with_padding(shape, pad):
    """Share of C's bf16 that AMD's kernel gets right where A's and B's scales are padded with a byte."""
    data = generate_input(shape, 0)
    (a_q, a_scale), (_, b_scale) = quantize_mxfp4(data[0]), quantize_mxfp4(data[1])
    scales = e8m0_shuffle(a_scale, pad), e8m0_shuffle(b_scale, pad)
    c = run_prebuilt_gemm(a_q, scales[0], data[3], scales[1], kernel="32x128").c
    return check_output(c, reference_output(data)).bf16_identical_fraction


@pytest.mark.parametrize("k", [192, 320, 1664])
def test_padded_columns_reach_c_where_k_is_no_multiple_of_256(k):
    assert identical_with_padding(Shape(20, 256, k), 0) > 0.999  # where sums cancel an exact zero may come out as -0
    assert identical_with_padding(Shape(20, 256, k), 255) < 0.5


@pytest.mark.parametrize("k", [512, 1536, 2048, 7168])
def test_no_padded_column_reaches_c_for_the_tasks_k(k):
    assert identical_with_padding(Shape(20, 128, k), 255) == 1.0


def test_one_padding_of_two_to_the_minus_127_is_enough():
    shape = Shape(20, 256, 1664)
    a_q, a_scale_sh, b_shuffle, b_scale_sh = operands(shape, pad=127)
    c, reference = (
        run_prebuilt_gemm(a_q, a_scale_sh, b_shuffle, b_scale_sh).c,
        reference_output(generate_input(shape, 0)),
    )
    assert (c.float() - reference.float()).abs().max() < 1e-30
    assert identical_with_padding(shape, 127) < 0.5


def test_which_kernel_is_chosen_and_why():
    tuned = choose_gemm(Shape(8, 2112, 7168))
    assert tuned.kernel.short_name == "BpreShuffle_32x128" and "tuned for 8x2112x7168" in tuned.reason
    untuned = choose_gemm(Shape(32, 2880, 512))
    assert "stands in" in untuned.reason and "no tuned row for 32x2880x512" in untuned.reason
    composable = choose_gemm(Shape(64, 7168, 2048))
    assert "Composable Kernel" in composable.reason and "stands in" in composable.reason
    for case in CASES:
        chosen = choose_gemm(case.shape)
        launch = gemm_launch(chosen, case.shape)
        assert launch.grid[0] * launch.grid[1] <= 256 and launch.block == 256 and chosen.log2_k_split == 0


@pytest.mark.parametrize("arguments, words", [
    (("48x128",), "known: 32x128"), (("32x128", 1), "cannot split K"), (("256x256", 5), "must be 0 to 4"),
    (("256x256", -1), "must be 0 to 4"),
])  # fmt: skip
def test_impossible_requests_name_what_is_allowed(arguments, words):
    with pytest.raises(AiterError, match=words):
        choose_gemm(Shape(32, 256, 512), *arguments)


def test_without_aiter_the_variants_say_how_to_get_it(monkeypatch):
    def none_here(source=None):
        raise AiterError("no aiter is installed; `pip install --no-deps amd-aiter` gives AMD's kernels")

    monkeypatch.setattr("mxfp4lab.aiter.gemm.find_aiter", none_here)
    with pytest.raises(ValueError, match="pip install --no-deps amd-aiter"):
        build_plan("quant_shuffle_asm", None, Shape(32, 256, 512))


def test_prebuilt_launches_go_through_the_same_doors():
    plan = build_plan("reference", None, Shape(32, 256, 512))
    (result,) = compile_many([plan])
    assert result.error is None and result.compiled.kernels[-1] is load_launch(plan.launches[-1])
    assert plan_hash(plan) == plan_hash(build_plan("reference", None, Shape(32, 256, 512)))
    with pytest.raises(CompileError, match="does not run on sm_90"):
        load_launch(plan.launches[-1], "sm_90")
    missing = dataclasses.replace(plan.launches[-1], code_object="f4gemm/none.co")
    with pytest.raises(CompileError, match="No such file"):
        load_launch(missing)
    counts = count_plan(plan)
    assert [launch.mfma_per_wave for launch in counts.launches] == [0, 0, 16]
    config = GemmConfig(convert="sw_bits")
    with pytest.raises(ValueError, match="runs on gfx950 only"):
        build_plan("reference", config, Shape(32, 256, 512), "sm_90")


def test_padded_rows_never_reach_c():
    shape = Shape(20, 128, 1664)
    a_q, a_scale_sh, b_shuffle, b_scale_sh = operands(shape)
    clean = run_prebuilt_gemm(a_q, a_scale_sh, b_shuffle, b_scale_sh).c
    padded_row = e8m0_position(torch.arange(a_scale_sh.numel()), 56)[0] >= shape.m
    for value in (1, 127, 255):
        dirty = torch.where(padded_row.view_as(a_scale_sh), torch.tensor(value, dtype=torch.uint8), a_scale_sh)
        assert identical(run_prebuilt_gemm(a_q, dirty, b_shuffle, b_scale_sh).c, clean)


def test_the_counts_table_is_what_the_machine_code_does():
    rows = fit.device_rows()
    assert len(rows) == 354
    for row in (rows[0], rows[100], rows[353]):
        (counted,) = count_plan(build_gemm_stage(row.shape, row.label)).launches
        (stored,) = row.counts.launches
        for name in ("workgroups", "valu_per_wave", "mfma_per_wave", "vmem_per_wave", "load_bytes_per_workgroup"):
            assert getattr(stored, name) == pytest.approx(getattr(counted, name), rel=1e-9), name
