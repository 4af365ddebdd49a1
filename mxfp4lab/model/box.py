"""Measured trials of a machine at hand as further rows: does the model hold there, and a refit with them.

A trial is usable if it was measured on gfx950 under the task's protocol and it, or another trial of the same machine
code on the same shape, carries Counts. Where an empty kernel was timed beside it, what lies above that floor is
compared: a box's event pairs need not cost what the published ones did. A refit never replaces the stored model: it is
a document of its own, with a version that says which rows went in.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mxfp4lab.model.crossval import quantile, spearman
from mxfp4lab.model.fit import MODEL_VERSION, PRIORS, fit_all, fitted_range, prepare
from mxfp4lab.model.formula import REGIMES
from mxfp4lab.model.predict import Prediction, TimeModel, load_document, stored_model
from mxfp4lab.model.published import PublishedRow, device_rows, harness_rows
from mxfp4lab.records import Evidence, Status, Trial

ENOUGH_ROWS = 5  # below, a verdict is not given
HOLDS_WITHIN = 0.10  # median |relative error|, twice the published run-to-run noise


# names that trials give to the model's regimes
REGIME_OF = {"leaderboard": "harness", "harness": "harness", "device": "device"}


def rows_from_trials(trials: Iterable[Trial]) -> tuple[list[PublishedRow], dict[str, int]]:
    """The usable trials as rows, and why the others are not: reason -> number."""
    trials = list(trials)
    counted = {_code(trial): trial.counts for trial in trials if trial.counts is not None and trial.arch == "gfx950"}
    rows: list[PublishedRow] = []
    skipped: dict[str, int] = {}
    for trial in trials:
        counts = trial.counts or (counted.get(_code(trial)) if trial.kernel_hash else None)
        reason = _unusable(trial) or ("no counts" if counts is None else "")
        if reason:
            skipped[reason] = skipped.get(reason, 0) + 1
            continue
        rows.append(
            PublishedRow(
                shape=trial.shape,
                us=float(trial.latency_us),
                counts=counts,
                regime=REGIME_OF[trial.regime],
                label=f"{trial.variant} {trial.config_id} on {trial.device}",
                config=dict(trial.config),
                source="box",
                floor_us=_floor(trial),
            )
        )
    return rows, skipped


def _code(trial: Trial) -> tuple:
    """What makes two trials run the same machine code on the same shape."""
    return trial.shape, trial.variant, trial.config_id, trial.kernel_hash


def _floor(trial: Trial) -> float | None:
    """An empty kernel's time, where the trial's timing states it."""
    timing = trial.detail.get("timing")
    floor = timing.get("floor_us") if isinstance(timing, Mapping) else None
    return float(floor) if isinstance(floor, int | float) and 0 < floor < trial.latency_us else None


def _unusable(trial: Trial) -> str:
    if trial.evidence is not Evidence.measured:
        return f"evidence is {trial.evidence}"
    if trial.status is not Status.ok or not trial.latency_us:
        return f"status is {trial.status}"
    if trial.arch != "gfx950":
        return f"arch is {trial.arch}"
    if trial.regime not in REGIME_OF:
        return f"regime is {trial.regime or 'not stated'}"
    return ""


@dataclass(frozen=True)
class BoxCheck:
    """Whether the model holds for rows of a machine at hand.

    Attributes:
        rows: how many were compared.
        median_error: median |predicted / measured - 1|.
        scale: median measured / predicted; away from 1 the machine is evenly slower or faster, and ranks still hold.
        inside: fraction of rows inside their interval.
        spearman: rank correlation over all rows.
        verdict: one sentence.
    """

    rows: int
    median_error: float
    scale: float
    inside: float
    spearman: float
    verdict: str


def check_box(rows: Sequence[PublishedRow], model: TimeModel | None = None) -> BoxCheck:
    """Compares a model (the stored one, if none is given) with rows of a machine at hand.

    Raises:
        ValueError: if there are no rows.
    """
    if not rows:
        raise ValueError("rows=[]: nothing to check; allowed: at least one measured gfx950 row with counts")
    model = model or stored_model()
    predictions = [model.predict_counts(row.counts, regime=row.regime) for row in rows]
    shifts = [_shift(row, p) for row, p in zip(rows, predictions, strict=True)]
    predicted = [p.predicted_us + shift for p, shift in zip(predictions, shifts, strict=True)]
    error = statistics.median(abs(p / row.us - 1.0) for p, row in zip(predicted, rows, strict=True))
    scale = statistics.median(row.us / p for p, row in zip(predicted, rows, strict=True))
    inside = statistics.fmean(
        p.interval[0] + shift <= row.us <= p.interval[1] + shift
        for p, row, shift in zip(predictions, rows, shifts, strict=True)
    )
    ranks = spearman(prepare(rows), predicted) if len({row.tie_key for row in rows}) > 1 else float("nan")
    return BoxCheck(len(rows), error, scale, inside, ranks, _verdict(len(rows), error, scale, ranks))


def _shift(row: PublishedRow, p: Prediction) -> float:
    """The row's own floor less the model's, where an empty kernel was timed beside the row."""
    if row.floor_us is None or row.regime != "harness":
        return 0.0
    return row.floor_us - p.terms["launch floor"]


def _verdict(rows: int, error: float, scale: float, ranks: float) -> str:
    if rows < ENOUGH_ROWS:
        return f"{rows} rows are too few to say; at least {ENOUGH_ROWS} are needed"
    if error <= HOLDS_WITHIN:
        return f"the model holds here: median error {error:.0%}"
    if ranks >= 0.8:
        return f"times here are {scale:.2f} times the model's, but it ranks configs well (Spearman {ranks:.2f}): refit"
    return f"the model does not hold here (median error {error:.0%}, Spearman {ranks:.2f}): measure rather than rank"


def add_trials(rows: Sequence[PublishedRow]) -> dict[str, Any]:
    """A model document fitted on the published rows and on `rows` together; nothing is written.

    Its version is the stored model's with a hash of the added rows. The interval's width is that of the stored model,
    or wider if the added rows scatter more around the new fit.

    Raises:
        ValueError: if there are no rows, or one is of an unknown regime.
    """
    if not rows:
        raise ValueError("rows=[]: nothing to add; allowed: at least one measured gfx950 row with counts")
    for row in rows:
        if row.regime not in REGIMES:
            raise ValueError(f"regime={row.regime!r} of {row.label}; allowed: {', '.join(REGIMES)}")
    harness = prepare([*harness_rows(), *(row for row in rows if row.regime == "harness")])
    device = prepare([*device_rows(), *(row for row in rows if row.regime == "device")])
    parameters = fit_all(harness, device)
    document = load_document()
    for name, value in parameters.to_dict().items():
        entry = document["parameters"][name]
        moved = abs(value - entry["value"])
        entry.update(value=value, spread=max(entry["spread"], moved), expected=PRIORS[name].expected)
    for regime, prepared in (("harness", harness), ("device", device)):
        added = sorted(abs(p.predict(parameters) / p.row.us - 1) for p in prepared if p.row.source == "box")
        if added:
            error = document["relative_error"]
            error[regime] = max(error[regime], quantile(added, 0.8))
        document["range"][regime] = fitted_range(prepared)
        document["rows"][regime] = len(prepared)
    digest = hashlib.sha256(repr([(r.shape, r.us, r.label) for r in rows]).encode()).hexdigest()[:8]
    document["model_version"] = f"{MODEL_VERSION}+box.{digest}"
    # what was computed for the stored fit alone would mislead beside the new one
    document.pop("residuals", None)
    document.pop("cross_validation", None)
    return document
