"""What 03_variants shows: a ladder that is valid everywhere, listings with their source, reads past the end of B."""

import csv
import itertools

import pytest

from mxfp4lab.config import config_errors
from mxfp4lab.paths import data_path
from mxfp4lab.plan import default_config
from mxfp4lab.shapes import TASK_SHAPES, Shape
from mxfp4lab.tours import ladder, regimes
from mxfp4lab.tours import variant_tour as tour

SMALL = Shape(4, 2880, 512)


@pytest.mark.parametrize("shape", TASK_SHAPES, ids=str)
def test_every_rung_is_valid_and_one_idea_apart(shape):
    steps = ladder.ladder(shape)
    assert len({step.idea for step in steps}) == len(steps)
    for step in steps:
        assert config_errors(step.config, shape, "gfx950", step.variant) == []
    for before, after in itertools.pairwise(steps):
        assert (before.variant, before.config) != (after.variant, after.config)
    for _, plain, changed in ladder.small_ideas(shape):
        assert plain.config != changed.config
        assert config_errors(changed.config, shape, "gfx950", changed.variant) == []


def test_fewer_instructions_at_the_end_of_the_ladder():
    shape = Shape(64, 7168, 2048)
    steps = ladder.ladder(shape)
    first, last = (ladder.measure(step, shape) for step in (steps[2], steps[-1]))
    assert last.valu_per_mfma < first.valu_per_mfma / 3
    assert last.prediction.predicted_us < first.prediction.predicted_us
    assert sum(last.mix().values()) > last.main.mfma_per_wave == last.mix()["MFMA"]
    assert len(last.row()) == len(ladder.HEADERS)


def test_the_loop_is_found_and_each_line_has_its_source():
    lines = tour.loop_of(Shape(64, 7168, 2048), "hw_f32")
    assert sum("v_mfma_scale" in line.text for line in lines) == 4
    assert sum("tl." in line.source for line in lines) > len(lines) / 4
    rows = tour.source_rows(lines, 100)
    assert sum(row[0] for row in rows) == len(lines)
    assert sum(row[1] for row in rows) == tour.valu_of(lines)
    assert "v_cvt_scalef32_pk_fp4_f32" in tour.excerpt(lines, "v_cvt_scalef32")


def test_row_groups_wrapped_by_rows_read_past_b_and_by_groups_do_not():
    rows = {(shape, wrap): past for shape, wrap, past, _ in tour.group_wrap()}
    # The last tile of 128 columns holds 64 columns that do not exist: four groups of 16 rows.
    assert rows["16x2112x7168", "% N"] == 4 * 16 * 7168 // 2
    assert rows["256x2880x512", "% N"] == 4 * 16 * 512 // 2
    assert rows["16x2112x7168", "% (N // 16)"] == rows["256x2880x512", "% (N // 16)"] == 0


def test_ideas_have_a_verdict_and_a_reason():
    with data_path("ideas.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["verdict"] for row in rows} == {"kept", "dropped", "axis"}
    assert all(all(row.values()) and None not in row for row in rows)
    headers, shown = tour.dropped_ideas()
    assert len(shown) == sum(row["verdict"] != "kept" for row in rows) and len(headers) == len(shown[0])


def test_regimes_of_one_kernel_fall_from_stage_to_loop():
    times = regimes.one_kernel(Shape(256, 3072, 1536))
    assert list(times) and times["stage"] > times["device"] > times["loop"] > 0


def test_knobs_say_whether_the_machine_code_changes():
    rows = {row[0]: row[1] for row in tour.knob_rows(SMALL)}
    assert rows["HIP_FORCE_DEV_KERNARG=1"] == "same" and rows["AMDGCN_USE_BUFFER_OPS=0"] == "changed"


def test_defaults_of_the_sliced_variant_ask_at_most_one_workgroup_of_each_cu_on_the_task_s_shapes():
    for shape in TASK_SHAPES:
        config = default_config("sliced_preshuffled", shape)
        grid = ladder.build_plan("sliced_preshuffled", config, shape).launches[0].grid
        assert grid[0] <= 256
