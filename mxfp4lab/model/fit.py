"""Fits the model's parameters to rows with published (or measured) times, and stores the result.

Least squares on the logarithm of predicted over published time, robust to single wild rows (soft L1), with bounds, and
with what is known beforehand as further residuals: each parameter has a value expected from physics or from other
public evidence, and a width. With 29 rows of 4 shapes that keeps a parameter where it belongs when a fold cannot tell.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab.model import formula
from mxfp4lab.model.features import LaunchFeatures, plan_features
from mxfp4lab.model.formula import Parameters
from mxfp4lab.model.published import COUNTS_FILE, PREBUILT_FILE, PublishedRow, device_rows, harness_rows
from mxfp4lab.paths import REPO_ROOT, data_path

MODEL_VERSION = "mi355x-3"
MODEL_FILE = f"model_{MODEL_VERSION}.json"
SCHEMA = 1


@dataclass(frozen=True)
class Prior:
    """What is known of a parameter before any row is seen: expected value, width, bounds, and where that comes from."""

    expected: float
    width: float
    low: float
    high: float
    why: str


PRIORS: dict[str, Prior] = {
    "launch_floor_us": Prior(5.8, 0.2, 5.8, 6.5, "a submission that does nothing measures 5.8; a free fit wants 5.3"),
    "second_launch_us": Prior(3.0, 0.6, 1.5, 6.0, "public two-launch times less their stages: 2.4 to 3.6"),
    "issue_factor": Prior(1.0, 0.1, 1.0, 1.5, "4 cycles a VALU instruction at 2.4 GHz; cannot be faster"),
    "sharing": Prior(0.9, 0.2, 0.0, 1.0, "waves of one SIMD share its issue slot"),
    "read_us_per_mb": Prior(17.5, 2.0, 8.0, 40.0, "Origami's slope of 57 GB/s a CU, and the device rows' fit"),
    "wait_us": Prior(0.65, 0.15, 0.3, 1.5, "HBM round trips of this family of devices: 0.6 to 0.8 us"),
    "spill_us": Prior(0.4, 0.2, 0.02, 2.0, "a round trip to L2 for a store and its reload, partly overlapped"),
    "device_floor_us": Prior(4.0, 1.0, 2.0, 6.0, "device rows of the smallest shapes take 3.5 to 4.4"),
    "device_read_us_per_mb": Prior(17.5, 4.0, 5.0, 40.0, "Origami's slope of 57 GB/s a CU"),
    "device_resident_mb": Prior(2.0, 1.0, 0.5, 8.0, "operands far below one XCD's 4 MiB of L2 stay warm"),
}

HARNESS_PARAMETERS = tuple(name for name in PRIORS if not name.startswith("device_"))
DEVICE_PARAMETERS = tuple(name for name in PRIORS if name.startswith("device_"))
ROW_ERROR = 0.06  # published run-to-run noise is about 0.05


def prior_parameters() -> Parameters:
    return Parameters(**{name: prior.expected for name, prior in PRIORS.items()})


@dataclass(frozen=True)
class Prepared:
    """A row with its features, computed once for all folds."""

    row: PublishedRow
    features: Sequence[LaunchFeatures]
    inside: bool

    def predict(self, parameters: Parameters) -> float:
        """Predicted microseconds; above the row's own floor, where an empty kernel was timed beside it."""
        terms = formula.plan_terms(self.features, self.inside, parameters, self.row.regime)
        if self.row.floor_us is not None and self.row.regime == "harness":
            terms["launch floor"] = self.row.floor_us
        return sum(terms.values())


def prepare(rows: Iterable[PublishedRow]) -> list[Prepared]:
    return [Prepared(row, *plan_features(row.counts)) for row in rows]


def fit_parameters(rows: Sequence[Prepared], names: Sequence[str], start: Parameters) -> Parameters:
    """The parameters `names` that fit `rows` best; the others stay as in `start`.

    Minimises `sum softL1(log(predicted / published) / ROW_ERROR) + sum ((value - expected) / width)^2` within the
    bounds of PRIORS. Deterministic.

    Raises:
        ValueError: if a time is not positive.
    """
    import numpy as np
    from scipy.optimize import least_squares

    for prepared in rows:
        if not prepared.row.us > 0:
            raise ValueError(f"us={prepared.row.us!r} of {prepared.row.shape} {prepared.row.label}; allowed: > 0")
    fixed = start.to_dict()
    priors = [PRIORS[name] for name in names]
    log_us = np.log([prepared.row.us for prepared in rows])

    def parameters(x) -> Parameters:
        return Parameters(**{**fixed, **dict(zip(names, map(float, x), strict=True))})

    def residuals(x):
        p = parameters(x)
        miss = (np.log([prepared.predict(p) for prepared in rows]) - log_us) / ROW_ERROR if len(rows) else np.zeros(0)
        # scipy's own soft L1 would soften the priors too
        robust = np.sign(miss) * np.sqrt(2.0 * (np.sqrt(1.0 + miss**2) - 1.0))
        known = [(value - prior.expected) / prior.width for value, prior in zip(x, priors, strict=True)]
        return np.concatenate([robust, known])

    low, high = [p.low for p in priors], [p.high for p in priors]
    x0 = [min(max(p.expected, p.low + 1e-3), p.high - 1e-3) for p in priors]
    solution = least_squares(residuals, x0, bounds=(low, high), xtol=1e-10, ftol=1e-10, gtol=1e-10)
    return parameters(solution.x)


def fit_all(harness: Sequence[Prepared], device: Sequence[Prepared]) -> Parameters:
    """Both regimes: the harness parameters first, then the device ones given the shared issue, wait and spill terms."""
    parameters = fit_parameters(harness, HARNESS_PARAMETERS, prior_parameters())
    return fit_parameters(device, DEVICE_PARAMETERS, parameters)


def _file_hash(name: str) -> str:
    return hashlib.sha256(data_path(name).read_bytes()).hexdigest()[:16]


def _rounded(value: Any, digits: int = 6) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item, digits) for item in value]
    return value


def refit() -> dict[str, Any]:
    """The whole model document, computed anew from the csv files under `data/`. Writes nothing; about ten seconds."""
    from mxfp4lab.model.crossval import cross_validate

    harness, device = prepare(harness_rows()), prepare(device_rows())
    parameters = fit_all(harness, device)
    validation = cross_validate(harness, device, parameters)
    document = {
        "schema": SCHEMA,
        "model_version": MODEL_VERSION,
        "fitted_on": {name: _file_hash(name) for name in (COUNTS_FILE, PREBUILT_FILE)},
        "rows": {"harness": len(harness), "device": len(device)},
        "parameters": {
            name: {
                "value": value,
                "spread": validation.spread[name],
                "at_bound": _at_bound(name, value),
                **{k: getattr(PRIORS[name], k) for k in ("expected", "width", "low", "high", "why")},
            }
            for name, value in parameters.to_dict().items()
        },
        "fixed": {"spill_power": formula.SPILL_POWER},
        "range": {"harness": fitted_range(harness), "device": fitted_range(device)},
        "relative_error": validation.relative_error,
        "cross_validation": validation.summary,
        "residuals": validation.residuals,
    }
    return _rounded(document)


def _at_bound(name: str, value: float) -> bool:
    prior = PRIORS[name]
    return min(value - prior.low, prior.high - value) < 1e-3 * (prior.high - prior.low)


RANGE_FEATURES = ("valu", "mfma", "workgroups", "read_mb", "waves_per_simd", "spill")


def range_values(features: Sequence[LaunchFeatures]) -> dict[str, float]:
    """The quantities whose fitted range decides how far an interval widens: of the main launch, and the launches."""
    main = next(f for f in features if f.role == "main")
    return {"launches": float(len(features)), **{name: float(getattr(main, name)) for name in RANGE_FEATURES}}


def fitted_range(rows: Sequence[Prepared]) -> dict[str, list[float]]:
    values = [range_values(prepared.features) for prepared in rows]
    return {name: [min(v[name] for v in values), max(v[name] for v in values)] for name in values[0]}


def write_model(document: Mapping[str, Any], path: Path | None = None) -> Path:
    """Writes the model document as JSON (sorted by nothing, indented: a diff is readable)."""
    path = path or REPO_ROOT / "data" / MODEL_FILE
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path
