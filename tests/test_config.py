"""Configs: identity, parsing, and one statement of validity."""

import dataclasses

import pytest

from mxfp4lab.config import (
    CHOICES,
    DEFAULTS,
    VARIANT_TRAITS,
    GemmConfig,
    config_errors,
    effective_split,
    needed_offset_bits,
)
from mxfp4lab.shapes import Shape

SHAPE = Shape(64, 7168, 2048)


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


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"block_q": 3}, "block_q"),
        ({"block_m": "16"}, "block_m='16'"),
        ({"block_m": True}, "block_m=True"),
        ({"split_k": 2.0}, "split_k=2.0"),
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
        ({"block_n": 48}, "block_n"),
        ({"block_k": 32}, "block_k"),
        ({"block_k": 64}, "block_k"),
        ({"num_warps": 1}, "num_warps"),
        ({"num_warps": 3}, "num_warps"),
        ({"split_k": 3}, "split_k"),
        ({"split_k": 0}, "split_k"),
        ({"num_stages": 0}, "num_stages"),
        ({"waves_per_eu": 9}, "waves_per_eu"),
        ({"matrix_instr_nonkdim": 8}, "matrix_instr_nonkdim"),
        ({"matrix_instr_nonkdim": 32}, "matrix_instr_nonkdim"),
        ({"block_n": 16, "block_m": 32, "matrix_instr_nonkdim": 32}, "block_n"),
        ({"group_m": 0}, "group_m"),
        ({"xcd_remap": 3}, "xcd_remap"),
        ({"convert": "fast"}, "convert"),
        ({"cache_modifier": ".wt"}, "cache_modifier"),
        ({"quant_block_k": 32}, "quant_block_k"),
        ({"reduce_block_n": 8}, "reduce_block_n"),
        ({"offset_bits": 16}, "offset_bits"),
        ({"block_n": 64.0}, "block_n"),
        ({"block_m": True}, "block_m"),
        ({"split_order": "middle"}, "split_order"),
    ],
)
def test_each_clause_names_field_value_and_what_is_allowed(fields, name):
    errors = config_errors(with_(**fields), SHAPE)
    assert any(error.startswith(f"{name}={fields.get(name)!r}") for error in errors), errors
    assert all("must be" in error or "at most" in error for error in errors)


def test_smallest_k_tile_follows_the_instruction():
    assert not config_errors(with_(block_m=32, block_n=32, block_k=64, matrix_instr_nonkdim=32), SHAPE)
    assert config_errors(with_(block_m=32, block_n=32, block_k=64), SHAPE)
    assert not config_errors(with_(block_k=128), SHAPE, variant="fused_rowmajor")


def test_shuffled_scales_by_tile_need_whole_pieces():
    assert config_errors(with_(block_k=128), SHAPE, variant="fused_preshuffled")
    assert config_errors(with_(block_n=16), SHAPE, variant="fused_preshuffled")
    in_place = with_(block_k=128, block_n=16, scale_load="in_place")
    assert not config_errors(in_place, SHAPE, variant="fused_preshuffled")


@pytest.mark.parametrize(
    "fields",
    [
        {"convert": "hw_f32"},
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


def test_variants_fix_what_they_fix():
    assert config_errors(with_(a_mode="prequant"), SHAPE, variant="fused_rowmajor")
    assert not config_errors(with_(a_mode="prequant"), SHAPE, variant="hybrid")
    assert config_errors(with_(amax="packed_max"), SHAPE, variant="fused_rowmajor")
    sliced = with_(convert="hw_bf16", amax="packed_max")
    assert not config_errors(sliced, SHAPE, variant="sliced_preshuffled")
    assert config_errors(sliced, SHAPE, "sm_90", "sliced_preshuffled")
    for fields in (
        {"block_m": 8},
        {"block_k": 512},
        {"block_n": 512},
        {"group_m": 2},
        {"convert": "hw_f32"},
        {"num_stages": 3},
        {"specialize": "runtime"},
    ):
        assert config_errors(dataclasses.replace(sliced, **fields), SHAPE, variant="sliced_preshuffled"), fields


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="fused_rowmajor"):
        config_errors(GemmConfig(), SHAPE, variant="fused")
    with pytest.raises(ValueError, match="gfx950"):
        config_errors(GemmConfig(), SHAPE, "gfx942")
    with pytest.raises(ValueError, match="k"):
        config_errors(GemmConfig(), "64,7168,2040")


@pytest.mark.parametrize(
    ("k", "block_k", "split_k", "expected"),
    [
        (7168, 256, 7, 7),
        (7168, 512, 14, 14),
        (7168, 256, 8, 7),
        (512, 256, 8, 2),
        (192, 256, 4, 1),
        (1664, 256, 4, 4),
        (1536, 256, 4, 3),
        (2048, 512, 32, 4),
    ],
)
def test_split_is_clamped_so_that_no_slice_is_empty(k, block_k, split_k, expected):
    split = effective_split(with_(block_k=block_k, split_k=split_k), Shape(16, 64, k))
    tiles = -(-k // block_k)
    per_split = -(-tiles // split)
    assert split == expected
    covered = [tile for part in range(split) for tile in range(part * per_split, min((part + 1) * per_split, tiles))]
    assert covered == list(range(tiles))
    assert all(part * per_split < tiles for part in range(split))


def test_wide_offsets_where_a_buffer_needs_them():
    assert needed_offset_bits(GemmConfig(), SHAPE) == 32
    large = Shape(1 << 15, 1 << 15, 1 << 14)
    assert needed_offset_bits(with_(split_k=4), large) == 64
    assert config_errors(with_(split_k=4, offset_bits=32), large)
    assert not config_errors(with_(split_k=4, offset_bits=64), large)


def test_every_word_axis_lists_its_default_first_or_says_auto():
    for name, values in CHOICES.items():
        assert DEFAULTS[name] in values
        for value in values:
            assert isinstance(value, str)
    assert set(CHOICES) <= set(DEFAULTS)
    assert {traits.b_layout for traits in VARIANT_TRAITS.values()} == {"rowmajor", "preshuffled"}
