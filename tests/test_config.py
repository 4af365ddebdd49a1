"""Configs: identity, parsing, old records, and one statement of validity."""

import dataclasses

import pytest

from mxfp4lab.config import (
    CHOICES,
    DEFAULTS,
    RETIRED,
    VARIANTS,
    GemmConfig,
    config_errors,
    effective_split,
    live_axes,
    runs_on,
)
from mxfp4lab.plan import build_plan
from mxfp4lab.shapes import Shape

SHAPE = Shape(64, 7168, 2048)
WIDE = Shape(16384, 65536, 8192)


def with_(**fields):
    return dataclasses.replace(GemmConfig(), **fields)


def test_id_is_of_the_changes_alone():
    assert GemmConfig().config_id == GemmConfig(block_m=16).config_id
    assert len(GemmConfig().config_id) == 12
    ids = {with_(block_n=n, split_k=s).config_id for n in (32, 64, 128) for s in (1, 2, 7)}
    assert len(ids) == 9


def test_round_trip_through_a_dict():
    config = with_(block_m=32, convert="hw_bf16", split_k=7, cache_modifier=".cg")
    assert GemmConfig.from_dict(config.to_dict()) == config
    assert GemmConfig.from_dict(config.changes()) == config
    assert config.changes() == {"block_m": 32, "convert": "hw_bf16", "split_k": 7, "cache_modifier": ".cg"}


def test_old_records_load_keep_their_id_and_are_not_built_where_an_axis_is_gone():
    # As it was written when all axes existed: 7d2470d8542c is the id that the record holds.
    tile = {"block_m": 4, "block_n": 32, "block_k": 512, "convert": "sw_bits", "quant_block_m": 4, "reduce_block_m": 4}
    whole = GemmConfig.from_dict({**DEFAULTS, **RETIRED, **tile})
    assert whole == GemmConfig(**tile) and whole.retired == () and whole.config_id == "7d2470d8542c"
    flat = GemmConfig.from_dict({**whole.to_dict(), **RETIRED, "reduce_form": "flat"})
    assert flat.config_id != whole.config_id and flat.changes() == {**tile, "reduce_form": "flat"}
    assert GemmConfig.from_dict(flat.to_dict()) == flat
    (error,) = config_errors(flat, SHAPE, "sm_90", "fused_preshuffled")
    assert "reduce_form='flat'" in error
    with pytest.raises(ValueError, match="reduce_form='flat' is of an earlier version"):
        build_plan("fused_preshuffled", flat, SHAPE, "sm_90")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"block_q": 3}, "block_q"),
        ({"block_m": "16"}, "block_m='16'"),
        ({"block_m": True}, "block_m=True"),
        ({"split_k": 2.0}, "split_k=2.0"),
        ({"masks": 1}, "masks=1 must be str"),
        ([1, 2], "mapping"),
    ],
)
def test_bad_dicts_are_refused_by_name(values, text):
    with pytest.raises(ValueError, match=text.replace("[", r"\[")):
        GemmConfig.from_dict(values)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"block_m": 2}, "block_m"),
        ({"block_m": 12}, "block_m"),
        ({"block_k": 64}, "block_k"),
        ({"num_warps": 1}, "num_warps"),
        ({"num_warps": 32}, "num_warps"),
        ({"split_k": 3}, "split_k"),
        ({"waves_per_eu": 9}, "waves_per_eu"),
        ({"matrix_instr_nonkdim": 8}, "matrix_instr_nonkdim"),
        ({"matrix_instr_nonkdim": 32}, "matrix_instr_nonkdim"),
        ({"block_n": 16, "block_m": 32, "matrix_instr_nonkdim": 32}, "block_n"),
        ({"group_m": 0}, "group_m"),
        ({"convert": "fast"}, "convert"),
        ({"quant_block_k": 32}, "quant_block_k"),
        ({"reduce_block_n": 8}, "reduce_block_n"),
        ({"block_n": 64.0}, "block_n"),
        ({"block_m": True}, "block_m"),
    ],
)
def test_each_clause_names_field_value_and_what_is_allowed(fields, name):
    errors = config_errors(with_(**fields), SHAPE)
    assert any(error.startswith(f"{name}={fields.get(name)!r}") for error in errors), errors
    assert all("must be" in error or "at most" in error for error in errors)


def test_smallest_tiles_follow_the_instruction_and_the_shuffle():
    assert not config_errors(with_(block_m=32, block_n=32, block_k=64, matrix_instr_nonkdim=32), SHAPE)
    assert config_errors(with_(block_m=32, block_n=32, block_k=64), SHAPE)
    assert not config_errors(with_(block_k=128, block_n=16), SHAPE, variant="fused_rowmajor")
    assert len(config_errors(with_(block_k=128, block_n=16), SHAPE, variant="fused_preshuffled")) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"convert": "hw_bf16"},
        {"convert": "sw_bits", "waves_per_eu": 2},
        {"convert": "sw_bits", "matrix_instr_nonkdim": 32, "block_m": 32},
        {"convert": "sw_bits", "xcd_remap": 8},
    ],
)
def test_cuda_refuses_what_is_amd_s(fields):
    errors = config_errors(with_(**fields), SHAPE, "sm_90")
    assert len(errors) == 1 and "sm_90" in errors[0]
    assert not config_errors(with_(convert="sw_bits"), SHAPE, "sm_90", "fused_preshuffled")
    assert not config_errors(with_(convert="sw_bits", block_k=64, num_warps=1), SHAPE, "sm_90", "fused_rowmajor")


def test_a_config_holds_what_its_variant_reads():
    away = {
        name: next(v for v in values if v != DEFAULTS[name])
        for name, values in CHOICES.items()
        if not name.startswith(("quant_", "reduce_"))
    }
    for variant, traits in VARIANTS.items():
        assert set(traits.axes) <= set(DEFAULTS)
        arch = "gfx950" if runs_on(variant, "gfx950") else "sm_90"
        for name in set(away) - set(traits.axes):
            errors = config_errors(with_(**{name: away[name]}), SHAPE, arch, variant)
            assert any(error.startswith(f"{name}={away[name]!r}: must be") for error in errors), (variant, name)


def test_axes_of_kernels_that_do_not_run_are_not_live():
    traits = VARIANTS["fused_rowmajor"]
    assert "reduce_block_m" not in live_axes(GemmConfig(), SHAPE, traits)
    assert "reduce_block_m" in live_axes(with_(split_k=2), SHAPE, traits)
    assert "quant_block_m" in live_axes(GemmConfig(), SHAPE, VARIANTS["prequant_rowmajor"])
    assert "quant_block_k" in live_axes(GemmConfig(), SHAPE, VARIANTS["cooperative_preshuffled"])
    hopper = VARIANTS["hopper"]
    assert "quant_block_m" not in live_axes(with_(a_mode="fused"), SHAPE, hopper)
    assert "quant_block_m" in live_axes(with_(a_mode="prequant"), SHAPE, hopper)


def test_sliced_variants_have_the_layouts_of_one_instruction():
    sliced = with_(convert="hw_bf16", amax="packed_max")
    assert not config_errors(sliced, SHAPE, variant="sliced_preshuffled")
    assert config_errors(sliced, SHAPE, "sm_90", "sliced_preshuffled")
    for fields in ({"block_m": 8}, {"block_k": 512}, {"block_n": 512}, {"convert": "hw_f32"}, {"split_sum": "inside"}):
        assert config_errors(dataclasses.replace(sliced, **fields), SHAPE, variant="sliced_preshuffled"), fields


@pytest.mark.parametrize(
    ("variant", "fields"),
    [
        ("sliced_preshuffled", {"block_m": 64, "block_n": 256, "num_warps": 4}),
        ("sliced_preshuffled", {"block_m": 64, "num_warps": 16, "a_path": "staged", "block_n": 16}),
        ("prequant_preshuffled", {"block_m": 256, "block_k": 1024, "num_warps": 16}),
        ("prequant_rowmajor", {"block_m": 256, "block_k": 512, "num_stages": 3, "num_warps": 16}),
    ],
)
def test_what_lds_cannot_hold_is_refused_before_anything_compiles(variant, fields):
    (error,) = config_errors(with_(convert="hw_bf16", **fields), SHAPE, variant=variant)
    assert "bytes of LDS or more; at most 163840" in error


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="fused_rowmajor"):
        config_errors(GemmConfig(), SHAPE, variant="fused")
    with pytest.raises(ValueError, match="`export --candidates`"):
        config_errors(GemmConfig(), SHAPE, variant="hybrid")
    with pytest.raises(ValueError, match="gfx950"):
        config_errors(GemmConfig(), SHAPE, "gfx942")
    with pytest.raises(ValueError, match="k"):
        config_errors(GemmConfig(), "64,7168,2040")


@pytest.mark.parametrize(
    ("k", "block_k", "split_k", "expected"),
    [(7168, 256, 7, 7), (7168, 512, 14, 14), (7168, 256, 8, 7), (512, 256, 8, 2), (192, 256, 4, 1), (1536, 256, 4, 3)],
)
def test_split_is_clamped_so_that_no_slice_is_empty(k, block_k, split_k, expected):
    split = effective_split(with_(block_k=block_k, split_k=split_k), Shape(16, 64, k))
    tiles = -(-k // block_k)
    per_split = -(-tiles // split)
    assert split == expected
    covered = [tile for part in range(split) for tile in range(part * per_split, min((part + 1) * per_split, tiles))]
    assert covered == list(range(tiles))
    assert all(part * per_split < tiles for part in range(split))


def test_offsets_beyond_32_bits_are_refused():
    assert config_errors(GemmConfig(), WIDE) == []
    (error,) = config_errors(with_(split_k=4), WIDE)
    assert error.startswith("split_k=4: must be smaller")
