"""Tables, figures, ablations and levers of the time model; one real plan from source to prediction."""

from __future__ import annotations

import math

import matplotlib
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mxfp4lab import model
from mxfp4lab.model import ablation, plans, regret, tables
from mxfp4lab.plots import model as pictures
from mxfp4lab.records import LaunchCounts
from mxfp4lab.shapes import TASK_SHAPES, Shape


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    figure.canvas.draw()  # lays everything out: what cannot be drawn fails here
    plt.close(figure)


def test_every_scheme_parameter_and_stage_has_its_row():
    document = model.load_document()
    assert list(tables.cross_validation_table().index) == list(document["cross_validation"])
    assert list(tables.parameter_table().index) == list(model.Parameters.names())
    stages = tables.prebuilt_stage_table()
    assert len(stages) == 6
    assert list(tables.refit_table(document, document).index) == list(model.Parameters.names())


def test_a_kernel_never_fitted_is_of_the_right_size():
    """aiter's prebuilt GEMM between an event pair: five of six shapes within 10 %, all within 25 %."""
    table = tables.prebuilt_stage_table()
    error = (table["predicted us"] / table["published us"] - 1).abs()
    assert (error <= 0.10).sum() >= 5
    assert error.max() <= 0.25


def test_published_kernels_are_found_for_the_tasks_shapes_alone():
    assert all(len(tables.best_published(shape)) == 3 for shape in TASK_SHAPES)
    assert tables.best_published(Shape(4, 2880, 512))["specialised Triton"] == 6.2
    assert tables.best_published(Shape(1, 32, 64)) == {}


def test_ablations_differ_in_one_field_and_agree_in_direction_where_it_matters():
    found = ablation.ablations()
    assert {"waves_per_eu", "split_k", "num_warps", "block_k", "num_stages"} <= {a.field for a in found}
    assert all(a.published_ratio >= 1.0 and a.before != a.after for a in found)
    large = [a for a in found if a.published_ratio >= 1.2]
    assert len(large) >= 8
    assert all(a.predicted_ratio > 1.05 for a in large)


def test_levers_never_cost_and_find_what_dominates():
    rows = model.harness_rows()
    spilled = max(rows, key=lambda row: row.counts.launches[0].spilled_vgprs)
    split = next(row for row in rows if row.counts.split_k == 7 and not row.counts.launches[0].spilled_vgprs)
    for row in rows:
        assert all(value >= 0 for value in ablation.levers(row.counts).values())
    of_spilled, of_split = ablation.levers(spilled.counts), ablation.levers(split.counts)
    assert max(of_spilled, key=of_spilled.get) == "no spills"
    assert max(of_split, key=of_split.get) == "no other launch"


def test_figures_draw(ax):
    rows = tables.residual_rows("harness")
    pictures.predicted_against_published(ax, rows, tables.residual_rows("device"))
    assert len(ax.get_legend().get_texts()) == 6
    assert ax.get_xlim() == ax.get_ylim()


def test_residual_figures_draw(ax):
    pictures.residuals(ax, tables.residual_rows("harness"), 0.08)
    assert len(ax.get_yticklabels()) == 29


def test_residuals_by_matrix_draw(ax):
    pictures.residuals_by_matrix(ax, tables.residual_rows("device"))
    matrices = {row["shape"].split("x", 1)[1] for row in tables.residual_rows("device")}
    assert len(ax.get_xticklabels()) == len(matrices)


def test_stacked_terms_end_at_the_prediction(ax):
    rows = model.harness_rows()[:5]
    predictions = [model.predict_counts(row.counts) for row in rows]
    pictures.terms_stacked(
        ax, [row.label for row in rows], [p.terms for p in predictions], [row.us for row in rows],
        [p.interval for p in predictions],
    )  # fmt: skip
    ends = {}
    for bar in ax.patches:
        y = round(bar.get_y() + bar.get_height() / 2)
        ends[y] = max(ends.get(y, 0.0), bar.get_x() + bar.get_width())
    for i, p in enumerate(predictions):
        assert ends[i] == pytest.approx(p.predicted_us, abs=0.02)


def test_every_term_has_a_colour_of_its_own():
    assert tuple(pictures.TERM_COLOURS) == model.TERM_NAMES
    assert len(set(pictures.TERM_COLOURS.values())) == len(model.TERM_NAMES)


def test_regret_ablations_and_levers_draw(ax):
    rows = [row for row in model.harness_rows() if row.shape.m == 16]
    us = [row.us for row in rows]
    ranked = regret.regret_curve(us, [model.predict_counts(row.counts).predicted_us for row in rows])
    pictures.regret(ax, {"16x2112x7168": (ranked, regret.random_curve(us))})


def test_dumbbells_and_lever_map_draw():
    figure, (left, right) = plt.subplots(1, 2)
    changes = [
        {"name": a.change, "field": a.field, "published_ratio": a.published_ratio, "predicted_ratio": a.predicted_ratio}
        for a in ablation.ablations()
    ]
    pictures.ablation_dumbbells(left, changes)
    pictures.lever_map(right, {row.label: ablation.levers(row.counts) for row in model.harness_rows()[:3]})
    figure.canvas.draw()
    plt.close(figure)


def test_a_plan_from_source_to_prediction():
    """Compiled, one workgroup executed and counted, predicted: between the floor and what nobody would run."""
    shape = Shape(32, 2880, 512)
    wanted = plans.candidates([shape], ["fused_preshuffled"], known=False)
    seen = []
    counted, failed = plans.count_and_predict(wanted, lambda done, total: seen.append((done, total)))
    assert not failed and seen == [(1, 1)]
    (plan,) = counted
    p = plan.prediction
    assert math.fsum(p.terms.values()) == p.predicted_us
    assert 5.8 <= p.predicted_us <= 12.0
    assert plan.counts.launches[0].valu_per_wave < 491
    assert p.extrapolated and any(text.startswith("valu") for text in p.outside)
    assert len(tables.prediction_table([(plan.candidate.label, shape, p)])) == 1


def test_known_submissions_are_among_the_candidates():
    labels = {c.label for c in plans.candidates([Shape(16, 2112, 7168)], ["fused_preshuffled"])}
    assert "fused_preshuffled, as 752099" in labels and "constexpr_preshuffled, as 610679" in labels


def test_submissions_of_two_launches_never_fitted_are_of_the_right_size():
    """A quantize kernel and aiter's prebuilt GEMM, six published shapes: within 10 %, inside their intervals."""
    quantizer = LaunchCounts(
        name="quantize", workgroups=32, waves_per_workgroup=4, valu_per_wave=150.0, vmem_per_wave=6.0,
        load_bytes_per_workgroup=8192.0,
    )  # fmt: skip
    table = tables.two_launch_table(dict.fromkeys(TASK_SHAPES, quantizer))
    assert len(table) == 6
    error = (table["predicted us"] / table["published us"] - 1).abs()
    assert error.max() <= 0.10 and error.median() <= 0.06
    assert (table["inside the interval"] == "yes").all()
