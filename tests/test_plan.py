"""Plans: pure data that fits together, for every variant and shape."""

import pytest

from mxfp4lab.config import GemmConfig, config_errors
from mxfp4lab.plan import VARIANTS, Ref, build_plan, default_config, known_configs, serves
from mxfp4lab.shapes import BENCHMARK_SHAPES, TEST_SHAPES, Shape

CASES = [case.shape for case in (*BENCHMARK_SHAPES, *TEST_SHAPES)]
TRITON_VARIANTS = [name for name, spec in VARIANTS.items() if not (spec.needs_aiter or spec.hopper)]
ODD = [Shape(1, 32, 64), Shape(3, 96, 192), Shape(17, 32, 1664), Shape(20, 256, 64)]


@pytest.mark.parametrize("variant", TRITON_VARIANTS)
@pytest.mark.parametrize("shape", CASES + ODD, ids=str)
def test_default_plans_fit_together(variant, shape):
    if not serves(variant, shape):
        pytest.skip(f"{variant} has no config for {shape}")
    plan = build_plan(variant, None, shape)
    names = [buffer.name for buffer in plan.buffers]
    assert len(set(names)) == len(names)
    assert plan.buffer(plan.output).role == "output" and plan.output_rows == shape.m
    for launch in plan.launches:
        declared = {param.name: param.is_constexpr for param in launch.fn.params}
        given = [name for name, _ in launch.args]
        fixed = [name for name, _ in launch.constants]
        assert sorted([*given, *fixed]) == sorted(declared)
        assert given == [name for name in declared if name in given] and not any(declared[name] for name in given)
        # Arguments can be passed by position: what does not exist stands behind them, and constants by name.
        assert given == list(declared)[: len(given)]
        assert all(value.buffer in names for _, value in launch.args if isinstance(value, Ref))
        assert all(size >= 1 for size in launch.grid)


@pytest.mark.parametrize("variant", TRITON_VARIANTS)
def test_defaults_are_valid_where_the_variant_runs(variant):
    for shape in CASES + [odd for odd in ODD if not VARIANTS[variant].cooperative]:
        for arch in ("gfx950",) if VARIANTS[variant].sliced else ("gfx950", "sm_90"):
            assert config_errors(default_config(variant, shape, arch), shape, arch, variant) == []


def test_a_split_adds_partials_and_a_reduce():
    plan = build_plan("fused_preshuffled", GemmConfig(split_k=8), "16,2112,7168")
    assert [launch.name for launch in plan.launches] == ["gemm_tiles", "reduce_tiles"]
    assert plan.buffer("partial").shape == (7, 16, 2112) and plan.buffer("partial").dtype == "f32"
    whole = build_plan("fused_preshuffled", GemmConfig(split_k=8), "16,2112,256")
    assert len(whole.launches) == 1


def test_prequant_has_its_own_kernel():
    plan = build_plan("prequant_rowmajor", None, "4,2880,512")
    assert [launch.name for launch in plan.launches] == ["quantize_rows", "gemm_tiles"]
    assert dict(plan.launches[1].args)["a_scale_ptr"] == Ref("a_scale")


def test_constexpr_plans_take_pointers_only():
    plan = build_plan("constexpr_preshuffled", None, "64,7168,2048")
    assert all(isinstance(value, Ref) for _, value in plan.launches[0].args)
    assert dict(plan.launches[0].constants)["K"] == 2048


def test_invalid_requests_are_refused_with_every_reason():
    with pytest.raises(ValueError, match=r"num_warps=1.*block_k=64"):
        build_plan("fused_rowmajor", GemmConfig(num_warps=1, block_k=64), "64,7168,2048")
    with pytest.raises(ValueError, match="known: "):
        build_plan("fused", None, "64,7168,2048")
    with pytest.raises(ValueError, match="k=2000"):
        build_plan("fused_rowmajor", None, "64,7168,2000")


def test_masks_follow_the_shape():
    constants = dict(build_plan("fused_rowmajor", GemmConfig(), "64,7168,2048").launches[0].constants)
    assert not any(constants[name] for name in ("MASK_M", "MASK_N", "MASK_K"))
    constants = dict(build_plan("fused_rowmajor", GemmConfig(), "20,96,192").launches[0].constants)
    assert all(constants[name] for name in ("MASK_M", "MASK_N", "MASK_K"))


@pytest.mark.parametrize("shape", CASES, ids=str)
def test_known_configs_are_valid_and_of_known_variants(shape):
    known = known_configs(shape)
    assert {entry.label.split("_")[0] for entry in known} >= {"752099", "705642"}
    for entry in known:
        assert config_errors(entry.config, shape, "gfx950", entry.variant) == []
    assert len({(entry.variant, entry.config) for entry in known}) == len(known)


def test_the_long_k_submission_is_among_the_known():
    labels = {entry.label for entry in known_configs("16,2112,7168")}
    assert any(label.startswith("610679") for label in labels)
    assert not any(entry.label.startswith("610679") for entry in known_configs("4,2880,512"))
