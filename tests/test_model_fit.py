"""The fit: what cross-validation must reach, that the stored file is what a fresh fit gives, and rows of one's own."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace

import pytest

from mxfp4lab import model
from mxfp4lab.model import box, regret
from mxfp4lab.model.crossval import CONFIG_SHAPES, disasters, left_out, spearman
from mxfp4lab.model.fit import HARNESS_PARAMETERS, PRIORS, fit_parameters, prepare, prior_parameters
from mxfp4lab.model.published import COUNTS_FILE, with_time
from mxfp4lab.paths import data_path
from mxfp4lab.records import Evidence, Status, Trial, TrialLog, read_trials
from mxfp4lab.shapes import Shape

SCHEMES = ("harness leave one shape out", "harness leave one config out")


@pytest.fixture(scope="module")
def fresh() -> dict:
    return json.loads(json.dumps(model.refit()))


@pytest.fixture(scope="module")
def stored() -> dict:
    return model.load_document()


def assert_close(a, b, where="document"):
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_close(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_close(x, y, f"{where}[{i}]")
    elif isinstance(a, float) and isinstance(b, int | float):
        assert a == pytest.approx(b, rel=2e-3, abs=1e-4), where
    else:
        assert a == b, where


def test_the_stored_model_is_what_a_fresh_fit_gives(fresh, stored):
    assert_close(fresh, stored)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_harness_rows_not_seen(fresh, scheme):
    reached = fresh["cross_validation"][scheme]
    assert reached["rows"] == (29 if "shape" in scheme else 24)
    assert reached["median"] <= 0.06
    assert set(reached["spearman"]) == {str(shape) for shape in CONFIG_SHAPES}
    assert min(reached["spearman"].values()) >= 0.8
    assert reached["disasters_missed"] == []
    assert reached["good_called_disasters"] == []


@pytest.mark.parametrize("scheme", ["device fitted", "device leave matrices out"])
def test_device_rows(fresh, scheme):
    reached = fresh["cross_validation"][scheme]
    assert reached["rows"] == 354
    assert reached["median"] <= 0.07
    assert reached["p90"] <= 0.20


def test_the_device_rows_beat_a_straight_line_in_k(fresh):
    import numpy as np

    rows = model.device_rows()
    k, us = np.array([r.shape.k for r in rows], float), np.array([r.us for r in rows])
    weight = 1 / us
    line, *_ = np.linalg.lstsq(np.stack([np.ones_like(k), k], 1) * weight[:, None], us * weight, rcond=None)
    straight = np.median(np.abs((line[0] + line[1] * k) / us - 1))
    assert fresh["cross_validation"]["device leave matrices out"]["median"] < 0.75 * straight


def test_parameters_are_within_bounds_stable_and_few(fresh):
    for name, entry in fresh["parameters"].items():
        assert entry["low"] <= entry["value"] <= entry["high"], name
        assert entry["spread"] <= 0.15 * max(entry["value"], 0.1), name
        assert entry["why"]
    assert fresh["parameters"]["launch_floor_us"]["value"] >= 5.8
    assert len(HARNESS_PARAMETERS) <= 8


def test_the_targets_do_not_hang_on_what_was_expected_beforehand(monkeypatch):
    """With every expectation four times as vague, shapes left out are still predicted."""
    vaguer(monkeypatch, 4)
    rows = prepare(model.harness_rows())
    predicted, _ = left_out(rows, lambda p: p.row.shape, HARNESS_PARAMETERS, prior_parameters())
    assert statistics.median(abs(v / p.row.us - 1) for p, v in zip(rows, predicted, strict=True)) <= 0.07
    assert disasters(rows, predicted) == {"disasters_missed": [], "good_called_disasters": []}


def test_intervals_hold_most_rows_that_were_fitted():
    for rows, regime in ((model.harness_rows(), "harness"), (model.device_rows(), "device")):
        predictions = [model.predict_counts(row.counts, regime=regime) for row in rows]
        inside = [p.interval[0] <= row.us <= p.interval[1] for p, row in zip(predictions, rows, strict=True)]
        assert statistics.fmean(inside) >= 0.75, regime


def vaguer(monkeypatch, times: float) -> None:
    for name in HARNESS_PARAMETERS:
        monkeypatch.setitem(PRIORS, name, replace(PRIORS[name], width=PRIORS[name].width * times))


def test_a_fit_finds_the_parameters_that_made_the_rows(monkeypatch):
    vaguer(monkeypatch, 10)
    truth = replace(prior_parameters(), second_launch_us=4.2, issue_factor=1.2, spill_us=0.6, sharing=0.8)
    rows = prepare(model.harness_rows())
    made = prepare([with_time(p.row, p.predict(truth)) for p in rows])
    found = fit_parameters(made, HARNESS_PARAMETERS, prior_parameters())
    for name in ("second_launch_us", "issue_factor", "spill_us", "sharing"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=0.06), name


def test_a_time_that_is_not_positive_is_refused():
    rows = prepare([with_time(model.harness_rows()[0], 0.0)])
    with pytest.raises(ValueError, match=r"us=0\.0 of 256x3072x1536"):
        fit_parameters(rows, HARNESS_PARAMETERS, prior_parameters())


def test_rows_of_any_file_in_the_published_form_can_be_judged(tmp_path):
    source = data_path(COUNTS_FILE).read_text().splitlines()
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([source[0], *source[14:26]]) + "\n")
    rows = model.rows_from_file(path)
    assert rows == list(model.harness_rows()[13:25])
    assert "holds" in box.check_box(rows).verdict
    path.write_text("\n".join([source[0], source[1], source[2].replace("384", "many")]) + "\n")
    with pytest.raises(ValueError, match=r"rows.csv', line 3: .*many"):
        model.rows_from_file(path)
    with pytest.raises(ValueError, match=r"none\.csv"):
        model.rows_from_file(tmp_path / "none.csv")


def test_rows_with_equal_counts_are_one_rank():
    rows = prepare([r for r in model.harness_rows() if r.shape == Shape(32, 4096, 512)])
    # rows 1 and 2 have the same counts and different published times: swapping their predictions changes nothing
    assert spearman(rows, [9.0, 8.4, 8.6, 8.7]) == spearman(rows, [9.0, 8.6, 8.4, 8.7])


@pytest.mark.parametrize("shape", CONFIG_SHAPES, ids=str)
def test_the_models_order_beats_chance(shape):
    rows = [row for row in model.harness_rows() if row.shape == shape]
    us = [row.us for row in rows]
    curve = regret.regret_curve(us, [model.predict_counts(row.counts).predicted_us for row in rows])
    chance = regret.random_curve(us)
    assert curve == sorted(curve, reverse=True) and curve[-1] == 1.0
    assert curve[0] <= 1.10 and curve[0] < chance[0]
    assert regret.tried_until(curve) <= 3


def test_the_random_curve_is_an_expectation():
    assert regret.random_curve([2.0, 1.0]) == pytest.approx([1.5, 1.0])
    three = regret.random_curve([1.0, 2.0, 4.0])
    assert three == pytest.approx([7 / 3, (1 + 1 + 2) / 3, 1.0])
    with pytest.raises(ValueError, match="lengths 1, 0"):
        regret.regret_curve([1.0], [])


# -- rows of a box at hand ----------------------------------------------------------------------------------------


def a_trial(row: model.PublishedRow, us: float, **changes) -> Trial:
    fields = {
        "run_id": "r", "shape": row.shape, "variant": "fused_preshuffled", "config": dict(row.config), "config_id": "c",
        "arch": "gfx950", "device": "AMD Instinct MI355X", "evidence": Evidence.measured, "status": Status.ok,
        "regime": "harness", "latency_us": us, "counts": row.counts,
    }  # fmt: skip
    return Trial(**{**fields, **changes})


def test_measured_trials_become_rows_and_the_rest_is_named(tmp_path):
    rows = model.harness_rows()
    trials = [
        a_trial(rows[0], 17.0),
        a_trial(rows[1], 17.5, counts=None),
        a_trial(rows[2], 30.0, arch="sm_90"),
        a_trial(rows[3], 30.0, regime="graph"),
        a_trial(rows[4], 30.0, latency_us=None, evidence=Evidence.emulated),
        a_trial(rows[5], 30.0, latency_us=None, status=Status.timeout),
    ]
    with TrialLog(tmp_path, "w") as log:
        for trial in trials:
            log.append(trial)
    read, _ = read_trials(next(tmp_path.glob("trials-*.jsonl")))
    usable, skipped = box.rows_from_trials(read)
    assert [row.us for row in usable] == [17.0]
    assert skipped == {
        "no counts": 1, "arch is sm_90": 1, "regime is graph": 1, "evidence is emulated": 1, "status is timeout": 1,
    }  # fmt: skip


def test_counts_and_floor_are_found_where_the_box_left_them():
    """A GPU's trial carries no counts: the modelled trial of the same code does. The empty kernel's time is its own."""
    row = model.harness_rows()[0]
    modelled = a_trial(
        row, 0.0, evidence=Evidence.modelled, latency_us=None, predicted_us=17.0, model_version="m", regime="harness",
        kernel_hash="k",
    )  # fmt: skip
    measured = a_trial(
        row, 15.2, counts=None, regime="leaderboard", kernel_hash="k", detail={"timing": {"floor_us": 4.0}}
    )
    other = a_trial(row, 15.2, counts=None, regime="leaderboard", kernel_hash="another")
    (found,), skipped = box.rows_from_trials([modelled, measured, other])
    assert (found.us, found.floor_us, found.regime, found.counts) == (15.2, 4.0, "harness", row.counts)
    assert skipped == {"evidence is modelled": 1, "no counts": 1}


def test_another_floor_is_no_disagreement():
    """A box whose event pairs cost 1.8 us less: the same model above the floor."""
    floor = model.stored_model().parameters.launch_floor_us
    rows = [replace(row, us=row.us - 1.8, floor_us=floor - 1.8) for row in times_of(1.0)]
    check = box.check_box(rows)
    assert "holds" in check.verdict and check.median_error < 1e-6 and check.inside == 1.0
    without = box.check_box([replace(row, floor_us=None) for row in rows])
    assert without.median_error > 0.08
    moved = model.model_from_document(box.add_trials(rows)).parameters
    assert moved.launch_floor_us == pytest.approx(floor, abs=0.05)


def times_of(factor: float) -> list[model.PublishedRow]:
    rows = [a_trial(row, model.predict_counts(row.counts).predicted_us * factor) for row in model.harness_rows()]
    return box.rows_from_trials(rows)[0]


def test_the_verdict_on_a_box():
    assert "holds" in box.check_box(times_of(1.02)).verdict
    slower = box.check_box(times_of(1.4))
    assert slower.scale == pytest.approx(1.4) and "refit" in slower.verdict and slower.inside < 0.3
    rows = times_of(1.0)
    reversed_times = [with_time(row, other.us * 2) for row, other in zip(rows, reversed(rows), strict=True)]
    assert "does not hold" in box.check_box(reversed_times).verdict
    assert "too few" in box.check_box(rows[:3]).verdict
    with pytest.raises(ValueError, match=r"rows=\[\]"):
        box.check_box([])


def test_adding_rows_moves_the_fit_towards_them_and_leaves_the_stored_model_alone(stored):
    slower = times_of(1.25)
    document = box.add_trials(slower)
    refitted = model.model_from_document(json.loads(json.dumps(document)))
    before = box.check_box(slower)
    after = box.check_box(slower, refitted)
    assert after.median_error < before.median_error
    assert refitted.version.startswith(model.MODEL_VERSION + "+box.")
    assert document["rows"]["harness"] == 2 * len(slower)
    assert model.load_document() == stored
    p = refitted.predict_counts(slower[0].counts)
    assert math.fsum(p.terms.values()) == p.predicted_us and p.model_version == refitted.version


def test_a_model_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no such model file"):
        model.load_document(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text("{")
    with pytest.raises(ValueError, match="not a model file"):
        model.load_document(tmp_path / "torn.json")
    with pytest.raises(ValueError, match="schema=9"):
        model.model_from_document({"schema": 9})
