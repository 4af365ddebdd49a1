"""Predicted MI355X times: of Counts from any source, or of a Plan (counted first).

A prediction is `modelled` evidence: never a time. It carries the model's version, an interval, and where the time goes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mxfp4lab import display
from mxfp4lab.model.features import LaunchFeatures, plan_features
from mxfp4lab.model.fit import MODEL_FILE, SCHEMA, range_values
from mxfp4lab.model.formula import REGIMES, TERM_NAMES, Parameters, plan_terms
from mxfp4lab.paths import data_path
from mxfp4lab.records import Counts
from mxfp4lab.shapes import Shape

# How an interval widens. All are relative to the prediction and add in quadrature.
PER_DOUBLING = 0.06  # for every doubling (or halving) of a feature beyond the rows that were fitted, features summed
OF_SPILLS = 0.30  # the spill term's own uncertainty: published spills scatter by that much around it
OF_MEMORY = 0.35  # of waits and operand reads: small beside issue in every fitted row, so little is known of them
OF_INSIDE = 0.80  # the in-launch reduction is not fitted at all

_MEMORY_TERMS = ("operand reads", "memory bandwidth", "memory latency")


@dataclass(frozen=True)
class Prediction:
    """A modelled MI355X time.

    Attributes:
        predicted_us: the prediction; the sum of `terms`.
        interval: (low, high): about 80 % of unseen published rows within the fitted range fall inside theirs.
        terms: where the time goes, microseconds by name.
        model_version: of the parameters.
        extrapolated: some feature lies outside what was fitted, or a mechanism was never fitted.
        regime: `"harness"` or `"device"`.
        outside: the features outside the fitted range, as `name: value (low .. high)`.
    """

    predicted_us: float
    interval: tuple[float, float]
    terms: Mapping[str, float]
    model_version: str
    extrapolated: bool
    regime: str = "harness"
    outside: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "evidence": "modelled",
            "predicted_us": self.predicted_us,
            "interval": list(self.interval),
            "terms": dict(self.terms),
            "model_version": self.model_version,
            "regime": self.regime,
            "extrapolated": self.extrapolated,
            "outside": list(self.outside),
        }

    def lines(self) -> list[tuple[str, Any]]:
        """(name, value) for people; the HTML and the plain form both show these."""
        low, high = self.interval
        return [
            ("predicted", f"{self.predicted_us:.2f} us modelled, {low:.2f} to {high:.2f}; not a measurement"),
            ("regime", self.regime),
            ("model", self.model_version),
            ("outside the fitted range", "; ".join(self.outside) or "nothing"),
        ]

    def __str__(self) -> str:
        parts = sorted(self.terms.items(), key=lambda item: -item[1])
        spent = ", ".join(f"{name} {value:.2f}" for name, value in parts if value > 0)
        return display.text_facts("Prediction", [*self.lines(), ("of it, us", spent)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = display.facts(self.lines()) + display.bars(self.terms, "us", "modelled")
        marks = [display.badge("modelled", "modelled")]
        if self.extrapolated:
            marks.append(display.badge("extrapolated", "warn"))
        return display.card("Prediction", f'{body}<div style="margin-top:6px">{" ".join(marks)}</div>')


@dataclass(frozen=True)
class TimeModel:
    """Fitted parameters with what is needed to state an interval."""

    version: str
    parameters: Parameters
    relative_error: Mapping[str, float]
    ranges: Mapping[str, Mapping[str, tuple[float, float]]]

    def predict_counts(self, counts: Counts, shape: Shape | None = None, regime: str = "harness") -> Prediction:
        """See the function of the same name."""
        if regime not in REGIMES:
            raise ValueError(f"regime={regime!r}; allowed: {', '.join(REGIMES)}")
        if shape is not None and shape != counts.shape:
            raise ValueError(f"shape={shape} does not match the counts, which are of {counts.shape}")
        features, inside = plan_features(counts)
        terms = plan_terms(features, inside, self.parameters, regime)
        predicted = math.fsum(terms[name] for name in TERM_NAMES)
        doublings, outside = self._outside(features, regime)
        if inside:
            outside = (*outside, "split-K summed inside the launch: not fitted")
        width = math.hypot(
            self.relative_error[regime],
            PER_DOUBLING * doublings,
            OF_SPILLS * terms["spills"] / predicted,
            OF_MEMORY * sum(terms[name] for name in _MEMORY_TERMS) / predicted,
            OF_INSIDE * terms["split-K inside"] / predicted,
        )
        low = max(predicted / (1.0 + width), min(terms["launch floor"], predicted))
        return Prediction(
            predicted_us=predicted,
            interval=(low, predicted * (1.0 + width)),
            terms=terms,
            model_version=self.version,
            extrapolated=bool(outside),
            regime=regime,
            outside=outside,
        )

    def _outside(self, features: list[LaunchFeatures], regime: str) -> tuple[float, tuple[str, ...]]:
        """Doublings beyond the fitted range, summed over features, and the features as text.

        A feature that no fitted row has (range 0 .. 0, such as the VALU of rows known by their tile alone) is left out.
        """
        doublings, outside = 0.0, []
        for name, value in range_values(features).items():
            low, high = self.ranges[regime][name]
            if high <= 0.0 or low <= value <= high:
                continue
            if value > high:
                doublings += math.log2(value / high)
            else:
                doublings += math.log2(low / max(value, low / 16))
            outside.append(f"{name}: {value:.4g} ({low:.4g} .. {high:.4g})")
        return doublings, tuple(outside)


def model_from_document(document: Mapping[str, Any]) -> TimeModel:
    """A model from the document that `fit.refit` returns and `data/model_*.json` holds.

    Raises:
        ValueError: if the document has another schema or misses a parameter.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f"model document: a {type(document).__name__}; allowed: an object with schema {SCHEMA}")
    if document.get("schema") != SCHEMA:
        raise ValueError(f"model document: schema={document.get('schema')!r}; allowed: {SCHEMA}")
    try:
        values = {name: float(document["parameters"][name]["value"]) for name in Parameters.names()}
        return TimeModel(
            version=document["model_version"],
            parameters=Parameters(**values),
            relative_error={regime: float(document["relative_error"][regime]) for regime in REGIMES},
            ranges={
                regime: {name: (float(pair[0]), float(pair[1])) for name, pair in document["range"][regime].items()}
                for regime in REGIMES
            },
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"model document: {error!r} is missing or malformed") from None


def load_document(path: Path | None = None) -> dict[str, Any]:
    """The stored model document, with residuals and cross-validation.

    Raises:
        ValueError: if the file is missing or is not JSON.
    """
    path = path or data_path(MODEL_FILE)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"path={str(path)!r}: no such model file") from None
    except OSError as error:
        raise ValueError(f"path={str(path)!r}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"path={str(path)!r}: not a model file: {error}") from None


@lru_cache(maxsize=1)
def stored_model() -> TimeModel:
    """The model under `data/`, read once."""
    return model_from_document(load_document())


def predict_counts(counts: Counts, shape: Shape | None = None, regime: str = "harness") -> Prediction:
    """Predicted MI355X time of what `counts` says is executed; well under a millisecond.

    Args:
        counts: per-wave counts, resources and workgroups of every launch, from any source.
        shape: checked against the counts' own, if given.
        regime: `"harness"`: an event pair around the call, every cache overwritten before it (the task's protocol);
            `"device"`: a profiler's time of the kernels alone in a warm loop over rotating inputs.

    Raises:
        ValueError: if the regime is unknown, the shape is not that of the counts, or a count is negative or not finite.
    """
    if not hasattr(counts, "launches"):
        raise ValueError(f"counts: a {type(counts).__name__}; allowed: records.Counts, as gfx950.count_plan gives them")
    return stored_model().predict_counts(counts, shape, regime)


def predict(plan: Any, arch: str = "gfx950", regime: str = "harness") -> Prediction:
    """Predicted MI355X time of a Plan or a CompiledPlan: counts one workgroup of each launch, then `predict_counts`.

    Raises:
        ValueError: if `arch` is not gfx950, or as `predict_counts`.
    """
    if arch != "gfx950":
        raise ValueError(f"arch={arch!r}: the model knows MI355X alone; allowed: 'gfx950'")
    from mxfp4lab.emulate import count_plan

    return predict_counts(count_plan(plan), regime=regime)
