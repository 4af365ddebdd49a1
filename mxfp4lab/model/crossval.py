"""How well the model does on rows that it has not seen, and how far its parameters move when rows are left out.

Harness rows: each shape is left out in turn; within the two shapes with many configs, each config is left out in turn.
Device rows: ten folds over the (N, K) pairs, so that no fold sees a matrix that it is judged on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mxfp4lab.model.fit import (
    DEVICE_PARAMETERS,
    HARNESS_PARAMETERS,
    Prepared,
    fit_parameters,
    prior_parameters,
)
from mxfp4lab.model.formula import Parameters
from mxfp4lab.shapes import Shape

CONFIG_SHAPES = (Shape(256, 3072, 1536), Shape(16, 2112, 7168))
DEVICE_FOLDS = 10
DISASTER, FLAGGED, GOOD = 1.5, 1.3, 1.1


@dataclass(frozen=True)
class Validation:
    """Predictions of rows not seen, their summary, and the parameters' spread over the folds.

    Attributes:
        summary: per scheme: rows, median, 90th percentile and largest |relative error|; Spearman within the shapes with
            many configs; disasters missed and good configs called disasters.
        spread: standard deviation of each parameter over the folds.
        relative_error: per regime: the |relative error| that 80 % of the unseen rows stay below.
        residuals: one entry per row: published, fitted and unseen prediction.
    """

    summary: dict[str, Any]
    spread: dict[str, float]
    relative_error: dict[str, float]
    residuals: dict[str, list[dict[str, Any]]]


def left_out(
    rows: Sequence[Prepared],
    key: Callable[[Prepared], Any],
    names: Sequence[str],
    start: Parameters,
    judged: Callable[[Prepared], bool] = lambda prepared: True,
) -> tuple[list[float | None], list[Parameters]]:
    """Predictions of each judged row by a fit without the rows that share its key, and the fits."""
    fits: dict[Any, Parameters] = {}
    predictions: list[float | None] = []
    for prepared in rows:
        if not judged(prepared):
            predictions.append(None)
            continue
        group = key(prepared)
        if group not in fits:
            fits[group] = fit_parameters([other for other in rows if key(other) != group], names, start)
        predictions.append(prepared.predict(fits[group]))
    return predictions, list(fits.values())


def spearman(rows: Sequence[Prepared], predicted: Sequence[float]) -> float:
    """Rank correlation of predicted and published times; rows with equal counts are one row with their mean times."""
    from scipy.stats import spearmanr

    groups: dict[Any, list[tuple[float, float]]] = {}
    for prepared, value in zip(rows, predicted, strict=True):
        groups.setdefault(prepared.row.tie_key, []).append((prepared.row.us, value))
    means = [tuple(map(statistics.fmean, zip(*pairs, strict=True))) for pairs in groups.values()]
    published, modelled = zip(*means, strict=True)
    return float(spearmanr(published, modelled).statistic)


def disasters(rows: Sequence[Prepared], predicted: Sequence[float]) -> dict[str, list[str]]:
    """Published disasters that the model does not flag, and good configs that it does, per shape.

    A disaster takes at least 1.5 times its shape's best published time; it is flagged if predicted at least 1.3 times
    the shape's best predicted time. A good config takes at most 1.1 times the best.
    """
    missed, accused = [], []
    for shape in {prepared.row.shape for prepared in rows}:
        mine = [(p.row, value) for p, value in zip(rows, predicted, strict=True) if p.row.shape == shape]
        best, best_predicted = min(row.us for row, _ in mine), min(value for _, value in mine)
        for row, value in mine:
            flagged = value >= FLAGGED * best_predicted
            if row.us >= DISASTER * best and not flagged:
                missed.append(f"{shape}: {row.label}")
            if row.us <= GOOD * best and flagged:
                accused.append(f"{shape}: {row.label}")
    return {"disasters_missed": sorted(missed), "good_called_disasters": sorted(accused)}


def errors(rows: Sequence[Prepared], predicted: Sequence[float]) -> dict[str, float]:
    miss = sorted(abs(value / p.row.us - 1.0) for p, value in zip(rows, predicted, strict=True))
    return {
        "rows": len(miss),
        "median": statistics.median(miss),
        "p90": quantile(miss, 0.9),
        "max": miss[-1],
    }


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between the order statistics of a sorted sequence."""
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def _harness_summary(rows: Sequence[Prepared], predicted: Sequence[float | None]) -> dict[str, Any]:
    seen = [(p, value) for p, value in zip(rows, predicted, strict=True) if value is not None]
    judged, values = [p for p, _ in seen], [value for _, value in seen]
    summary: dict[str, Any] = errors(judged, values)
    summary["spearman"] = {}
    for shape in CONFIG_SHAPES:
        pairs = [(p, value) for p, value in seen if p.row.shape == shape]
        summary["spearman"][str(shape)] = spearman([p for p, _ in pairs], [value for _, value in pairs])
    return {**summary, **disasters(judged, values)}


def device_fold(prepared: Prepared) -> int:
    """Fold of a device row: the same for all rows of one weight matrix, spread evenly by a fixed hash."""
    return (prepared.row.shape.n // 64 * 7919 + prepared.row.shape.k // 64 * 104729) % DEVICE_FOLDS


def cross_validate(harness: Sequence[Prepared], device: Sequence[Prepared], fitted: Parameters) -> Validation:
    """Both regimes; see the module's first lines for the schemes."""
    start = prior_parameters()
    by_shape, shape_fits = left_out(harness, lambda p: p.row.shape, HARNESS_PARAMETERS, start)
    by_config, config_fits = left_out(
        harness, lambda p: id(p), HARNESS_PARAMETERS, start, judged=lambda p: p.row.shape in CONFIG_SHAPES
    )
    by_matrix, matrix_fits = left_out(device, device_fold, DEVICE_PARAMETERS, fitted)

    fitted_harness = [p.predict(fitted) for p in harness]
    fitted_device = [p.predict(fitted) for p in device]
    spread = {name: _deviation(shape_fits + config_fits, name) for name in HARNESS_PARAMETERS}
    spread |= {name: _deviation(matrix_fits, name) for name in DEVICE_PARAMETERS}
    unseen = sorted(abs(value / p.row.us - 1) for p, value in zip(harness, by_shape, strict=True))
    unseen_device = sorted(abs(value / p.row.us - 1) for p, value in zip(device, by_matrix, strict=True))
    return Validation(
        summary={
            "harness fitted": _harness_summary(harness, fitted_harness),
            "harness leave one shape out": _harness_summary(harness, by_shape),
            "harness leave one config out": _harness_summary(harness, by_config),
            "device fitted": errors(device, fitted_device),
            "device leave matrices out": errors(device, by_matrix),
        },
        spread=spread,
        relative_error={"harness": quantile(unseen, 0.8), "device": quantile(unseen_device, 0.8)},
        residuals={
            "harness": [
                {"shape": str(p.row.shape), "label": p.row.label, "published_us": p.row.us, "fitted_us": fit,
                 "shape_left_out_us": shape, "config_left_out_us": config}
                for p, fit, shape, config in zip(harness, fitted_harness, by_shape, by_config, strict=True)
            ],
            "device": [
                {"shape": str(p.row.shape), "label": p.row.label, "published_us": p.row.us, "fitted_us": fit,
                 "left_out_us": value}
                for p, fit, value in zip(device, fitted_device, by_matrix, strict=True)
            ],
        },
    )  # fmt: skip


def _deviation(fits: Sequence[Parameters], name: str) -> float:
    return statistics.pstdev(getattr(fit, name) for fit in fits)
