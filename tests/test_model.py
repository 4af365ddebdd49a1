"""The time model: what it promises about any Counts, and what its file promises about the published rows."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxfp4lab import fit, model
from mxfp4lab.records import Counts, LaunchCounts, Trial
from mxfp4lab.shapes import Shape

SHAPE = Shape(16, 2112, 7168)


def a_launch(**changes) -> LaunchCounts:
    """A launch amid the fitted rows."""
    usual = {
        "name": "gemm", "workgroups": 119, "waves_per_workgroup": 4, "valu_per_wave": 1597.0, "mfma_per_wave": 16.0,
        "mfma16_per_wave": 16.0, "load_bytes_per_workgroup": 102400.0, "vgprs": 122, "lds_bytes": 3072,
    }  # fmt: skip
    return LaunchCounts(**{**usual, **changes})


def us(*launches: LaunchCounts, regime: str = "harness", split_k: int = 1) -> float:
    return model.predict_counts(Counts(SHAPE, launches, split_k), regime=regime).predicted_us


launches = st.builds(
    a_launch,
    workgroups=st.integers(1, 5000),
    waves_per_workgroup=st.sampled_from([1, 2, 4, 8, 16]),
    valu_per_wave=st.floats(0, 60000),
    mfma_per_wave=st.floats(0, 2000),
    scratch_per_wave=st.floats(0, 2000),
    load_bytes_per_workgroup=st.floats(1, 4e6),
)
regimes = st.sampled_from(model.REGIMES)


@given(launches, regimes, st.integers(1, 4096), st.sampled_from([1, 2, 7, 14]))
@settings(max_examples=150, deadline=None)
def test_terms_sum_to_the_prediction_and_every_number_is_sane(launch, regime, m, split_k):
    counts = Counts(Shape(m, 2112, 7168), (launch,), split_k, split_k * m * 2112 * 4 if split_k > 1 else 0)
    p = model.predict_counts(counts, counts.shape, regime)
    assert tuple(p.terms) == model.TERM_NAMES
    assert math.fsum(p.terms.values()) == p.predicted_us
    assert all(value >= 0 and math.isfinite(value) for value in p.terms.values())
    low, high = p.interval
    assert p.terms["launch floor"] <= low <= p.predicted_us <= high
    json.dumps(p.to_dict(), allow_nan=False)


@given(
    launches,
    regimes,
    st.floats(1.0, 3.0),
    st.sampled_from(("valu_per_wave", "mfma_per_wave", "scratch_per_wave", "load_bytes_per_workgroup", "workgroups")),
)
@settings(max_examples=300, deadline=None)  # fmt: skip
def test_more_work_is_never_faster(launch, regime, factor, name):
    more = replace(launch, **{name: type(getattr(launch, name))(getattr(launch, name) * factor + 1)})
    assert us(more, regime=regime) >= us(launch, regime=regime) - 1e-9


@given(launches, st.floats(1.0, 1.02))
@settings(max_examples=100, deadline=None)
def test_a_little_more_work_costs_a_little(launch, factor):
    """Not a look-up of rows: the prediction is continuous in the counts."""
    more = replace(launch, valu_per_wave=launch.valu_per_wave * factor)
    assert us(more) <= us(launch) * factor + 1e-9


def test_nothing_to_do_costs_the_floor_and_no_less_than_a_measured_no_op():
    nothing = a_launch(valu_per_wave=0.0, mfma_per_wave=0.0, mfma16_per_wave=0.0, load_bytes_per_workgroup=0.0)
    assert us(nothing) == 5.8
    assert us(nothing, nothing) == 5.8 + model.stored_model().parameters.launch_us


def test_what_nobody_has_timed_widens_by_a_launch_and_is_named():
    launch = a_launch()
    plain = model.predict_counts(Counts(SHAPE, (launch,)))
    inside = model.predict_counts(Counts(SHAPE, (launch,), split_k=7))
    assert inside.terms["sum in the launch"] == model.stored_model().parameters.launch_us and inside.extrapolated
    assert "nobody has published" in inside.outside[-1]
    waiting = model.predict_counts(Counts(SHAPE, (replace(launch, waits_for_peers=1),)))
    assert waiting.predicted_us == pytest.approx(plain.predicted_us + model.HANDSHAKE_US)
    growth = model.stored_model().parameters.launch_us
    assert waiting.interval[1] - plain.interval[1] >= growth + model.HANDSHAKE_US
    assert waiting.interval[0] <= plain.interval[0] + 1e-9  # it may be free
    assert any("workgroups that wait" in text for text in waiting.outside)


def test_spills_are_a_band_down_to_none_since_they_depend_on_the_compiler():
    dry, wet = (model.predict_counts(Counts(SHAPE, (a_launch(scratch_per_wave=n),))) for n in (0.0, 120.0))
    assert wet.interval[0] == pytest.approx(dry.interval[0])
    assert wet.interval[1] > wet.predicted_us + wet.terms["spills"]


def test_an_interval_of_a_kernel_never_seen_is_wider_than_of_the_one_that_was_fitted():
    counts = Counts(SHAPE, (a_launch(),))
    fitted, other = (model.predict_counts(counts, kernel=kernel).interval for kernel in ("fitted", "other"))
    assert other[0] < fitted[0] < fitted[1] < other[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: model.predict_counts(c, regime="warm"), "regime='warm'; allowed: harness, device"),
        (lambda c: model.predict_counts(c, kernel="mine"), "kernel='mine'; allowed: other, fitted"),
        (lambda c: model.predict_counts(c, Shape(1, 32, 64)), "shape=1x32x64 does not match the counts"),
        (lambda c: model.predict_counts(Counts(SHAPE, ())), "at least one launch"),
        (lambda c: model.predict_counts(Counts(SHAPE, (a_launch(valu_per_wave=math.nan),))), "valu_per_wave=nan"),
        (lambda c: model.predict_counts(Counts(SHAPE, (a_launch(workgroups=-1),))), "workgroups=-1"),
        (lambda c: model.predict_counts(7), "counts: a int"),
        (lambda c: model.predict(None, arch="gfx942"), "arch='gfx942'"),
        (lambda c: model.model_from_document({"schema": 1}), "schema=1; allowed: 2"),
        (lambda c: model.model_from_document({"schema": 2, "parameters": {}}), "missing or malformed"),
        (lambda c: fit.counts_from_row({"m": "x"}), "could not convert string to float"),
        (lambda c: fit.rows_from_file("/nowhere.csv"), "No such file"),
        (lambda c: fit.check_box([]), "nothing to check"),
        (lambda c: fit.add_trials([]), "nothing to add"),
    ],
)
def test_a_bad_request_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call(Counts(SHAPE, (a_launch(),)))


@pytest.fixture(scope="module")
def document():
    return model.load_document()


def test_the_stored_parameters_are_what_the_files_give(document):
    p = fit.fit_all(fit.harness_rows(), fit.device_rows())
    for name, value in p.to_dict().items():
        assert value == pytest.approx(document["parameters"][name]["value"], rel=1e-3), name


def test_promises_hold_on_rows_that_were_left_out(document):
    schemes = document["cross_validation"]
    for name in ("harness, a shape left out", "harness, a config family left out"):
        found = schemes[name]
        assert found["rows"] == 29 and found["median"] <= 0.06 and found["disasters_missed"] == 0
        assert min(found["spearman"].values()) >= 0.7
    for found in schemes.values():
        if "covered" in found:
            assert 0.73 <= found["covered"] <= 0.87
    assert schemes["device, matrices left out"]["median"] <= 0.065


def test_a_left_out_shape_is_predicted_by_a_fit_that_has_not_seen_it(document):
    """Recomputed for one shape: changing that shape's published times changes nothing of its predictions."""
    rows = fit.harness_rows()
    wrong = [replace(row, us=row.us * 3) if row.shape == SHAPE else row for row in rows]
    told = fit.left_out(wrong, lambda row: row.shape, fit.prior_parameters())
    for row, (predicted, _), stored in zip(rows, told, document["residuals"]["harness"], strict=True):
        if row.shape == SHAPE:
            assert predicted == pytest.approx(stored["shape_left_out_us"], rel=1e-4)


def test_repeats_and_variations_of_a_config_are_one_family():
    families = {}
    for row in fit.harness_rows():
        families.setdefault(row.family, []).append(row.label)
    assert len(families) < 20
    repeated = next(labels for labels in families.values() if "KS7 BSK256" in labels)
    assert len(repeated) >= 4  # its repeat, the one without cache modifier, other waves_per_eu


def a_trial(us: float, counts: Counts | None, **changes) -> Trial:
    fields = {
        "shape": SHAPE, "variant": "fused_preshuffled", "config": {}, "config_id": "x", "kernel_hash": "h",
        "arch": "gfx950", "device": "MI355X", "evidence": "measured", "regime": "leaderboard", "status": "ok",
        "latency_us": us, "counts": counts, "run_id": "r", "started_at": "2026-01-01T00:00:00+00:00", "worker": "w",
        "detail": {"timing": {"floor_us": 6.8}},
    }  # fmt: skip
    return Trial(**{**fields, **changes})


def test_trials_of_a_box_become_rows_and_a_refit_of_its_own(document):
    counts = [Counts(SHAPE, (a_launch(valu_per_wave=v),)) for v in (500.0, 900.0, 1300.0, 1700.0, 2100.0)]
    box = [a_trial(us(c.launches[0]) + 1.0, c, kernel_hash=str(i)) for i, c in enumerate(counts)]
    rows, skipped = fit.rows_from_trials([*box, a_trial(9.0, None), a_trial(9.0, counts[0], arch="sm_90")])
    assert len(rows) == 5 and skipped == {"no counts": 1, "arch is sm_90": 1}
    found = fit.check_box(rows)  # its floor is 1 us above the published one, and is taken as it is
    assert found["median_error"] < 1e-6 and "holds here" in found["verdict"]
    assert "too few" in fit.check_box(rows[:2])["verdict"]
    again = fit.add_trials(rows)
    assert again["model_version"].startswith("mi355x-4+box.") and "residuals" not in again
    assert model.model_from_document(again).predict_counts(counts[0]).predicted_us > 0
    assert document == model.load_document()
