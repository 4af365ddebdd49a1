"""A predicted MI355X time from what a plan's machine code does; a prediction is `modelled` evidence, never a time.

    t = t_floor + t_launch (L - 1) + t_untimed + sum over the L launches of  W (4 V + 16 M16 + 32 M32) / f + r B + s S^p

t in us. Of a launch: V, M16, M32 the VALU and FP4 matrix instructions (16x16x128, 32x32x64) that one wave executes, and
their issue cycles; W the waves that the busiest SIMD works through; f = 2400 cycles a us; B the MB (1e6 bytes) that the
workgroups of the busiest CU ask for; S the scratch accesses of one wave. Issue is physics; t_launch, r, s, p are fitted
to published times (`fit`), t_floor is the published time of a submission that does nothing. In regime "device" (a
profiler's time of kernels alone, in a warm loop) there is a floor for each launch instead, and B counts as far as the
operands do not stay in L2: u^2 / (u^2 + u0^2) of it, u the operands' MB.

t_untimed is what nobody has published a time of: workgroups that wait for each other (two round trips through memory)
and a split K summed inside the launch (taken as dear as the launch that it saves). Every term grows with what is
counted, so more instructions or bytes never predict less time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from mxfp4lab import display
from mxfp4lab import hardware as hw
from mxfp4lab.paths import data_path
from mxfp4lab.records import Counts, LaunchCounts
from mxfp4lab.shapes import Shape

MODEL_VERSION = "mi355x-4"
MODEL_FILE = f"model_{MODEL_VERSION}.json"
SCHEMA = 2
REGIMES = ("harness", "device")
KERNELS = ("other", "fitted")
UNTIMED = ("workgroups that wait", "sum in the launch")
TERM_NAMES = (
    "launch floor", "second launch", "VALU issue", "MFMA issue", "operand reads", "spills", *UNTIMED,
)  # fmt: skip

LAUNCH_FLOOR_US = 5.8  # an event pair around a submission that does nothing, in the task's harness (public results log)
HANDSHAKE_US = 1.3  # two round trips to HBM of 0.65 us; round trips of this family of devices take 0.6 to 0.8


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is fitted.

    Attributes:
        launch_us: from the end of one launch to the first useful instruction of the next (harness).
        read_us_per_mb: time that a CU needs to pull 1e6 bytes from cold memory (harness).
        spill_us: one scratch access of a wave.
        spill_power: S accesses cost as much as S^power single ones, since neighbours overlap.
        device_floor_us: profiler's time of a kernel with nothing to do (device).
        device_read_us_per_mb: as read_us_per_mb, in the profiler's loop (device).
        device_resident_mb: operands of this size are half resident in L2 between the loop's rotations (device).
    """

    launch_us: float
    read_us_per_mb: float
    spill_us: float
    spill_power: float
    device_floor_us: float
    device_read_us_per_mb: float
    device_resident_mb: float

    def to_dict(self) -> dict[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Work:
    """One launch as the formula sees it: V, M16, M32 in microseconds of issue, W, B, S.

    Attributes:
        valu_us, mfma_us: issue time of one wave alone on its SIMD.
        waves: that the busiest SIMD works through; at least 1.
        read_mb: bytes that the busiest CU's workgroups ask for, 1e6.
        operand_mb: bytes of the operands that the launch can find in L2, 1e6.
        scratch: scratch accesses of one wave.
    """

    valu_us: float
    mfma_us: float
    waves: float
    read_mb: float
    operand_mb: float
    scratch: float


@lru_cache(maxsize=4096)  # a fit asks for the same launches at every step
def work_of(launch: LaunchCounts, shape: Shape) -> Work:
    """The quantities of one launch.

    Raises:
        ValueError: a count is negative or not finite.
    """
    for name, value in launch.to_dict().items():
        if name != "name" and (not math.isfinite(value) or value < 0):
            raise ValueError(f"counts: launch {launch.name!r}: {name}={value!r}; allowed: a finite number >= 0")
    workgroups = max(1, launch.workgroups)
    per_cu = -(-workgroups // hw.COMPUTE_UNITS)
    mfma16 = max(launch.mfma_per_wave - launch.mfma32_per_wave, 0.0)
    cycles = mfma16 * hw.MFMA_CYCLES["16x16x128"] + launch.mfma32_per_wave * hw.MFMA_CYCLES["32x32x64"]
    operands = (shape.m + shape.n) * shape.k * (1 / 2 + 1 / 32)
    return Work(
        valu_us=launch.valu_per_wave * hw.VALU_CYCLES / hw.CLOCK_HZ * 1e6,
        mfma_us=cycles / hw.CLOCK_HZ * 1e6,
        waves=max(1.0, per_cu * launch.waves_per_workgroup / hw.SIMDS_PER_CU),
        read_mb=launch.load_bytes_per_workgroup * per_cu / 1e6,
        operand_mb=min(operands, launch.load_bytes_per_workgroup * workgroups) / 1e6,
        scratch=launch.scratch_per_wave,
    )


def plan_terms(counts: Counts, p: Parameters, regime: str) -> dict[str, float]:
    """Terms of a plan in microseconds, by `TERM_NAMES`; their sum is the prediction.

    Raises:
        ValueError: there is no launch, or a count is negative or not finite.
    """
    if not counts.launches:
        raise ValueError("counts: launches=() is empty; allowed: at least one launch")
    terms = dict.fromkeys(TERM_NAMES, 0.0)
    launches = len(counts.launches)
    if regime == "harness":
        terms["launch floor"], terms["second launch"] = LAUNCH_FLOOR_US, p.launch_us * (launches - 1)
    else:
        terms["launch floor"] = p.device_floor_us * launches
    for launch in counts.launches:
        work = work_of(launch, counts.shape)
        rate = p.read_us_per_mb
        if regime == "device":
            operands = (work.operand_mb / p.device_resident_mb) ** 2
            rate = p.device_read_us_per_mb * operands / (1.0 + operands)
        terms["VALU issue"] += work.waves * work.valu_us
        terms["MFMA issue"] += work.waves * work.mfma_us
        terms["operand reads"] += rate * work.read_mb
        terms["spills"] += p.spill_us * work.scratch**p.spill_power
        if launch.waits_for_peers:
            terms["workgroups that wait"] += HANDSHAKE_US
    if counts.split_k > 1 and main_launch(counts) == launches - 1:  # no launch behind the GEMM that could sum
        terms["sum in the launch"] = p.launch_us
    return terms


def main_launch(counts: Counts) -> int:
    """Position of the launch with most matrix work; without any, the first."""
    return max(range(len(counts.launches)), key=lambda i: (counts.launches[i].mfma_per_wave, -i))


@dataclass(frozen=True)
class Prediction(display.Shown):
    """A modelled MI355X time.

    Attributes:
        predicted_us: the prediction; the sum of `terms`.
        interval: (low, high), see `TimeModel.predict_counts`.
        terms: where the time goes, microseconds by name.
        model_version: of the parameters.
        extrapolated: a quantity lies outside what was fitted, or a mechanism was never timed.
        regime: "harness" or "device".
        outside: what lies outside, as "name: value (low .. high)".
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

    title = "Prediction"

    def lines(self) -> list[Any]:
        """What a person sees; see `display.Shown`."""
        low, high = self.interval
        spent = sorted(((name, us) for name, us in self.terms.items() if us > 0), key=lambda item: -item[1])
        return [
            ("predicted", f"{self.predicted_us:.2f} us modelled, {low:.2f} to {high:.2f}; not a measurement"),
            ("regime", self.regime),
            ("model", self.model_version),
            ("outside the fitted range", "; ".join(self.outside) or "nothing"),
            display.Grid(("term", "us, modelled"), spent),
        ]


@dataclass(frozen=True)
class TimeModel:
    """Fitted parameters with what is needed to state an interval.

    Attributes:
        widths: per regime, by `KERNELS`: |log(published / predicted)| that 80 % of rows not seen stay below.
        ranges: per regime: the fitted rows' smallest and largest value of each quantity of the main launch.
    """

    version: str
    parameters: Parameters
    widths: Mapping[str, Mapping[str, float]]
    ranges: Mapping[str, Mapping[str, tuple[float, float]]]

    def predict_counts(
        self, counts: Counts, shape: Shape | None = None, regime: str = "harness", kernel: str = "other"
    ) -> Prediction:
        """Prediction and interval of what `counts` says is executed.

        The interval is the prediction times e^-w to e^w, where 80 % of published rows that a fit had not seen lie: of
        the kernel that the model is fitted on (`kernel` "fitted"), or of a kernel that it has never seen ("other": any
        plan of ours). Before that it is widened by what is not known at all: spills depend on the compiler's version,
        so they may be absent or twice as dear; what nobody has timed may be free, or cost a launch more.

        Raises:
            ValueError: unknown regime or kernel, a shape that is not the counts', or a count that makes no sense.
        """
        if regime not in REGIMES:
            raise ValueError(f"regime={regime!r}; allowed: {', '.join(REGIMES)}")
        if kernel not in KERNELS:
            raise ValueError(f"kernel={kernel!r}; allowed: {', '.join(KERNELS)}")
        if shape is not None and shape != counts.shape:
            raise ValueError(f"shape={shape} does not match the counts, which are of {counts.shape}")
        terms = plan_terms(counts, self.parameters, regime)
        predicted = math.fsum(terms.values())
        untimed = math.fsum(terms[name] for name in UNTIMED)
        least = predicted - terms["spills"] - untimed
        most = predicted + terms["spills"] + (self.parameters.launch_us if untimed else 0.0)
        width = math.exp(self.widths[regime][kernel])
        outside = self._outside(counts, regime)
        for name in UNTIMED:
            if terms[name]:
                outside.append(f"{name}: nobody has published a time of that")
        return Prediction(
            predicted_us=predicted,
            interval=(max(least / width, min(terms["launch floor"], predicted)), most * width),
            terms=terms,
            model_version=self.version,
            extrapolated=bool(outside),
            regime=regime,
            outside=tuple(outside),
        )

    def _outside(self, counts: Counts, regime: str) -> list[str]:
        found = []
        for name, value in ranged_values(counts).items():
            low, high = self.ranges[regime][name]
            if not low <= value <= high:
                found.append(f"{name}: {value:.4g} ({low:.4g} .. {high:.4g})")
        return found


def ranged_values(counts: Counts) -> dict[str, float]:
    """The quantities whose fitted range a prediction is held against: of the main launch, and the launches."""
    main = counts.launches[main_launch(counts)]
    work = work_of(main, counts.shape)
    return {
        "launches": float(len(counts.launches)), "workgroups": float(main.workgroups), "VALU": main.valu_per_wave,
        "MFMA": main.mfma_per_wave, "waves a SIMD": work.waves, "MB a CU": work.read_mb, "scratch": work.scratch,
    }  # fmt: skip


def model_from_document(document: Mapping[str, Any]) -> TimeModel:
    """A model from the document that `fit.refit` returns and `data/model_*.json` holds.

    Raises:
        ValueError: the document has another schema or misses a parameter.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f"model document: a {type(document).__name__}; allowed: an object with schema {SCHEMA}")
    if document.get("schema") != SCHEMA:
        raise ValueError(f"model document: schema={document.get('schema')!r}; allowed: {SCHEMA}")
    try:
        values = {f.name: float(document["parameters"][f.name]["value"]) for f in fields(Parameters)}
        return TimeModel(
            version=document["model_version"],
            parameters=Parameters(**values),
            widths={r: {k: float(document["widths"][r][k]) for k in KERNELS} for r in REGIMES},
            ranges={
                r: {name: (float(low), float(high)) for name, (low, high) in document["ranges"][r].items()}
                for r in REGIMES
            },
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"model document: {error!r} is missing or malformed") from None


def load_document(path: Path | None = None) -> dict[str, Any]:
    """The stored model document, with residuals and cross-validation.

    Raises:
        ValueError: the file is missing or is not JSON.
    """
    path = path or data_path(MODEL_FILE)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"path={str(path)!r}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"path={str(path)!r}: not a model file: {error}") from None


@lru_cache(maxsize=1)
def stored_model() -> TimeModel:
    """The model under `data/`, read once."""
    return model_from_document(load_document())


def predict_counts(
    counts: Counts, shape: Shape | None = None, regime: str = "harness", kernel: str = "other"
) -> Prediction:
    """Predicted MI355X time by the stored model; well under a millisecond.

    Args:
        counts: per-wave counts, resources and workgroups of every launch, from any source.
        shape: checked against the counts' own, if given.
        regime: "harness": an event pair around the call, every cache overwritten before it (the task's protocol);
            "device": a profiler's time of the kernels alone in a warm loop over rotating inputs.
        kernel: whose errors the interval goes by, see `TimeModel.predict_counts`.

    Raises:
        ValueError: as `TimeModel.predict_counts`.
    """
    if not hasattr(counts, "launches"):
        raise ValueError(f"counts: a {type(counts).__name__}; allowed: records.Counts, as count_plan gives them")
    return stored_model().predict_counts(counts, shape, regime, kernel)


def predict(plan: Any, arch: str = "gfx950", regime: str = "harness") -> Prediction:
    """Predicted MI355X time of a Plan or a CompiledPlan: counts one workgroup of each launch, then `predict_counts`.

    Raises:
        ValueError: `arch` is not gfx950, or as `predict_counts`.
    """
    if arch != "gfx950":
        raise ValueError(f"arch={arch!r}: the model knows MI355X alone; allowed: 'gfx950'")
    from mxfp4lab.emulate import count_plan

    return predict_counts(count_plan(plan), regime=regime)
