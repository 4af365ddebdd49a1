"""Fits the time model to published rows, says how far to trust it on rows not seen, and holds it against a box's own.

Rows: `data/mi355x_fused_counts.csv` (29 harness times of aiter's fused kernel, with counts of its machine code),
`data/aiter_gemm_counts.csv` (354 device times of aiter's prebuilt GEMM) and `data/other_kernel_rows.json` (12 harness
times of the prebuilt GEMM, alone and behind a quantize launch: a kernel that no harness fit sees). All harness rows
come from one public results log, so errors are those of one source.

Least squares of log(predicted / published), robust to single wild rows (soft L1), with what other evidence says of each
parameter as one more row. Nothing else is chosen by looking at the rows.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mxfp4lab import model
from mxfp4lab.model import MODEL_FILE, MODEL_VERSION, REGIMES, Parameters, TimeModel, plan_terms, ranged_values
from mxfp4lab.paths import REPO_ROOT, data_path
from mxfp4lab.records import Counts, Evidence, LaunchCounts, Status, Trial
from mxfp4lab.shapes import Shape

COUNTS_FILE, PREBUILT_FILE, OTHER_FILE = "mi355x_fused_counts.csv", "aiter_gemm_counts.csv", "other_kernel_rows.json"
ROW_ERROR = 0.05  # published times of one config repeat within about this
COVERAGE = 0.8  # what an interval promises
DEVICE_FOLDS = 10


@dataclass(frozen=True)
class Prior:
    """What is known of a parameter before any row is seen: expected value, width, bounds, and where that comes from."""

    expected: float
    width: float
    low: float
    high: float
    why: str


PRIORS = {
    "launch_us": Prior(3.0, 1.0, 1.0, 6.0, "public two-launch times less their stages: 2.4 to 3.6"),
    "read_us_per_mb": Prior(17.5, 6.0, 4.0, 60.0, "ROCm Origami: 57 GB/s for each further CU"),
    "spill_us": Prior(0.4, 0.3, 0.01, 3.0, "a round trip to L2 for a store and its reload, partly overlapped"),
    "spill_power": Prior(0.8, 0.2, 0.3, 1.3, "between accesses that all overlap (0.5 and less) and none (1)"),
    "device_floor_us": Prior(4.0, 1.0, 2.0, 6.0, "device rows of the smallest shapes take 3.5 to 4.4"),
    "device_read_us_per_mb": Prior(17.5, 6.0, 4.0, 60.0, "ROCm Origami: 57 GB/s for each further CU"),
    "device_resident_mb": Prior(2.0, 1.0, 0.5, 8.0, "operands far below one XCD's 4 MiB of L2 stay warm"),
}
PARAMETERS = {regime: tuple(n for n in PRIORS if n.startswith("device_") == (regime == "device")) for regime in REGIMES}


@dataclass(frozen=True)
class Row:
    """A time and the counts behind it.

    Attributes:
        us: published, or measured on a box.
        regime: of `model.REGIMES`.
        label: one line that says which config it is.
        config: its fields as published.
        family: of configs that are variations of one; rows of a family are left out together.
        floor_us: what an empty kernel took beside it; None for published rows, which share one.
    """

    shape: Shape
    us: float
    counts: Counts
    regime: str
    label: str
    config: Mapping[str, Any]
    family: str
    floor_us: float | None = None

    def predicted(self, p: Parameters) -> float:
        """Microseconds; above the row's own floor, where an empty kernel was timed beside it."""
        terms = plan_terms(self.counts, p, self.regime)
        if self.floor_us is not None and self.regime == "harness":
            terms["launch floor"] = self.floor_us
        return sum(terms.values())


def counts_from_row(row: Mapping[str, Any]) -> Counts:
    """Counts of a row in the form of `mi355x_fused_counts.csv`.

    Bytes follow from the tile: a workgroup reads `block_m` rows of A in bf16 and `block_n` rows of B with their scales,
    over its share of K. The counts hold the GEMM alone; a split K is followed by a launch that sums fp32 partials on a
    16 x 64 tile: compiled for gfx950 with 4 waves, 42 VALU instructions for 2 partials, 100 for 7, a line in between.

    Raises:
        ValueError: a column is missing, or is not a number.
    """
    try:
        number = {name: float(value) for name, value in row.items() if name not in ("cache_modifier", "notes")}
        m, n, k = (int(number[name]) for name in "mnk")
        split_k, block_m, block_n = (int(number[name]) for name in ("split_k", "block_m", "block_n"))
        wide = number["matrix_instr_nonkdim"] == 32
        main = LaunchCounts(
            name="gemm",
            workgroups=int(number["workgroups"]),
            waves_per_workgroup=int(number["num_warps"]),
            mfma16_per_wave=0.0 if wide else number["mfma_per_wave"],
            mfma32_per_wave=number["mfma_per_wave"] if wide else 0.0,
            load_bytes_per_workgroup=k / split_k * (block_m * 2 + block_n * (1 / 2 + 1 / 32)),
            store_bytes_per_workgroup=block_m * block_n * (4 if split_k > 1 else 2),
            **{f"{name}_per_wave": number[f"{name}_per_wave"]
               for name in ("valu", "mfma", "vmem", "lds", "scratch", "scalar", "barriers")},
            **{name: int(number[name]) for name in ("vgprs", "spilled_vgprs", "lds_bytes")},
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"row: {error}; allowed: numbers in the columns of data/{COUNTS_FILE}") from None
    shape = Shape(m, n, k)
    if split_k == 1:
        return Counts(shape=shape, launches=(main,))
    tile = 16 * 64
    reduce = LaunchCounts(
        name="reduce",
        workgroups=-(-m // 16) * -(-n // 64),
        waves_per_workgroup=4,
        valu_per_wave=19.0 + 11.6 * split_k,
        load_bytes_per_workgroup=float(split_k * tile * 4),
        store_bytes_per_workgroup=float(tile * 2),
    )
    return Counts(shape=shape, launches=(main, reduce), split_k=split_k, partial_bytes=split_k * m * n * 4)


def rows_from_file(path: Path | str) -> list[Row]:
    """Harness rows of a csv file in the form of `mi355x_fused_counts.csv`: counts, config and a measured `harness_us`.

    Raises:
        ValueError: the file is missing, or a row lacks a column or holds what is no number; names the line.
    """
    rows = []
    for line, row in enumerate(_read_csv(path), 2):
        try:
            counts = counts_from_row(row)
            names = ("block_m", "block_n", "block_k", "split_k", "num_warps", "num_stages", "waves_per_eu")
            config: dict[str, Any] = {name: int(row[name]) for name in (*names, "matrix_instr_nonkdim")}
            config["cache_modifier"] = row["cache_modifier"]
            family = [config[name] for name in (*names[:2], *names[3:6], "matrix_instr_nonkdim")]
            label = row["notes"].removeprefix("benchmark mode; ")
            us = float(row["harness_us"])
            rows.append(Row(counts.shape, us, counts, "harness", label, config, f"{counts.shape} {family}"))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"path={str(path)!r}, line {line}: {error}") from None
    return rows


@lru_cache(maxsize=1)
def harness_rows() -> tuple[Row, ...]:
    """The 29 harness rows of aiter's fused kernel, in file order."""
    return tuple(rows_from_file(data_path(COUNTS_FILE)))


@lru_cache(maxsize=1)
def device_rows() -> tuple[Row, ...]:
    """The 354 device rows of aiter's prebuilt GEMM, in file order; a family is a fold of weight matrices."""
    rows = []
    for row in _read_csv(data_path(PREBUILT_FILE)):
        shape = Shape(int(row["m"]), int(row["n"]), int(row["k"]))
        values = {name: float(value) for name, value in row.items()
                  if name in LaunchCounts.__dataclass_fields__}  # fmt: skip
        whole = {name: int(value) if LaunchCounts.__dataclass_fields__[name].type == "int" else value
                 for name, value in values.items()}  # fmt: skip
        counts = Counts(shape=shape, launches=(LaunchCounts(name=f"f4gemm_{row['kernel']}", **whole),))
        fold = (shape.n // 64 * 7919 + shape.k // 64 * 104729) % DEVICE_FOLDS  # all rows of one matrix in one fold
        rows.append(Row(shape, float(row["device_us"]), counts, "device", row["kernel"], {}, str(fold)))
    return tuple(rows)


@lru_cache(maxsize=1)
def other_rows() -> tuple[Row, ...]:
    """The 12 harness rows of a kernel that the fit never sees: aiter's prebuilt GEMM, emulated and counted."""
    found = []
    for row in json.loads(data_path(OTHER_FILE).read_text(encoding="utf-8")):
        counts = Counts.from_dict(row["counts"])
        found.append(Row(counts.shape, row["us"], counts, "harness", row["label"], {}, row["label"]))
    return tuple(found)


def _read_csv(path: Path | str) -> list[dict[str, str]]:
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(file))
    except OSError as error:
        raise ValueError(f"path={str(path)!r}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"path={str(path)!r} is no csv file: {error}") from None
    if not found:
        raise ValueError(f"path={str(path)!r} holds no row; allowed: a header as in data/{COUNTS_FILE}, then rows")
    return found


def prior_parameters() -> Parameters:
    """Every parameter where other evidence expects it."""
    return Parameters(**{name: prior.expected for name, prior in PRIORS.items()})


def fit_parameters(rows: Sequence[Row], regime: str, start: Parameters) -> Parameters:
    """The regime's parameters that fit `rows` best; the others stay as in `start`. Deterministic.

    Raises:
        ValueError: a time is not positive.
    """
    from scipy.optimize import least_squares

    for row in rows:
        if not row.us > 0:
            raise ValueError(f"us={row.us!r} of {row.shape} {row.label}; allowed: > 0")
    names = PARAMETERS[regime]
    priors = [PRIORS[name] for name in names]
    log_us = np.log([row.us for row in rows])

    def parameters(x: Iterable[float]) -> Parameters:
        return Parameters(**{**start.to_dict(), **dict(zip(names, map(float, x), strict=True))})

    def residuals(x: Any) -> Any:
        p = parameters(x)
        miss = (np.log([row.predicted(p) for row in rows]) - log_us) / ROW_ERROR if len(rows) else np.zeros(0)
        # scipy's own soft L1 would soften the priors too
        robust = np.sign(miss) * np.sqrt(2.0 * (np.sqrt(1.0 + miss**2) - 1.0))
        known = [(value - prior.expected) / prior.width for value, prior in zip(x, priors, strict=True)]
        return np.concatenate([robust, known])

    bounds = [p.low for p in priors], [p.high for p in priors]
    solution = least_squares(residuals, [p.expected for p in priors], bounds=bounds, xtol=1e-10, ftol=1e-10)
    return parameters(solution.x)


def fit_all(harness: Sequence[Row], device: Sequence[Row]) -> Parameters:
    """Both regimes: the harness parameters, then the device ones given spills as there."""
    return fit_parameters(device, "device", fit_parameters(harness, "harness", prior_parameters()))


def left_out(rows: Sequence[Row], key: Callable[[Row], Any], start: Parameters) -> list[tuple[float, Parameters]]:
    """Per row: its prediction by a fit without the rows that share its key, and that fit."""
    fits: dict[Any, Parameters] = {}
    found = []
    for row in rows:
        if key(row) not in fits:
            others = [other for other in rows if key(other) != key(row)]
            fits[key(row)] = fit_parameters(others, row.regime, start)
        found.append((row.predicted(fits[key(row)]), fits[key(row)]))
    return found


def width(rows: Sequence[Row], predicted: Sequence[float]) -> float:
    """|log(published / predicted)| that 80 % of rows without spills stay below."""
    miss = [abs(math.log(row.us / us)) for row, us in zip(rows, predicted, strict=True)
            if not any(launch.scratch_per_wave for launch in row.counts.launches)]  # fmt: skip
    return float(np.quantile(miss, COVERAGE))


def covered(rows: Sequence[Row], key: Callable[[Row], Any], start: Parameters) -> float:
    """Share of rows inside intervals that know nothing of them: fit and width from the rows with other keys."""
    inside = []
    for group in dict.fromkeys(map(key, rows)):
        known = [row for row in rows if key(row) != group]
        regime = known[0].regime
        p = fit_parameters(known, regime, start)
        unseen = [us for us, _ in left_out(known, key, start)]
        widths = {regime: {"fitted": width(known, unseen), "other": 0.0}}
        trial = TimeModel("", p, widths, {regime: fitted_range(known)})
        for row in rows:
            if key(row) == group:
                low, high = trial.predict_counts(row.counts, regime=regime, kernel="fitted").interval
                inside.append(low <= row.us <= high)
    return float(np.mean(inside))


def errors(rows: Sequence[Row], predicted: Sequence[float]) -> dict[str, Any]:
    """Number of rows; median, 90th percentile and largest |relative error|; rank correlation of shapes with six rows.

    A disaster takes at least 1.5 times its shape's best published time; it is missed if predicted below 1.3 times the
    shape's best predicted time.
    """
    from scipy.stats import spearmanr

    us, told = np.array([row.us for row in rows]), np.asarray(predicted)
    miss = np.abs(told / us - 1.0)
    found: dict[str, Any] = {"rows": len(rows), "median": float(np.median(miss)), "p90": float(np.quantile(miss, 0.9)),
                             "max": float(miss.max())}  # fmt: skip
    if rows[0].regime == "harness":
        found["spearman"], found["disasters"], found["disasters_missed"] = {}, 0, 0
        for shape in dict.fromkeys(row.shape for row in rows):
            mine = np.array([row.shape == shape for row in rows])
            if mine.sum() >= 6:
                found["spearman"][str(shape)] = float(spearmanr(us[mine], told[mine]).statistic)
            disaster = us[mine] >= 1.5 * us[mine].min()
            found["disasters"] += int(disaster.sum())
            found["disasters_missed"] += int((disaster & (told[mine] < 1.3 * told[mine].min())).sum())
    return found


def fitted_range(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each quantity of `model.ranged_values`."""
    values = [ranged_values(row.counts) for row in rows]
    return {name: (min(v[name] for v in values), max(v[name] for v in values)) for name in values[0]}


def refit() -> dict[str, Any]:
    """The whole model document, computed anew from the files under `data/`. Writes nothing."""
    harness, device, other = harness_rows(), device_rows(), other_rows()
    start = prior_parameters()
    fitted = fit_all(harness, device)
    by_shape = left_out(harness, lambda row: row.shape, start)
    by_family = left_out(harness, lambda row: row.family, start)
    by_matrix = left_out(device, lambda row: row.family, fitted)
    unseen = {"shape": [us for us, _ in by_shape], "family": [us for us, _ in by_family]}
    matrix = [us for us, _ in by_matrix]
    others = [row.predicted(fitted) for row in other]
    device_width = width(device, matrix)
    fits = {"harness": [p for _, p in (*by_shape, *by_family)], "device": [p for _, p in by_matrix]}
    document = {
        "schema": model.SCHEMA,
        "model_version": MODEL_VERSION,
        "fitted_on": {name: hashlib.sha256(data_path(name).read_bytes()).hexdigest()[:16]
                      for name in (COUNTS_FILE, PREBUILT_FILE, OTHER_FILE)},
        "given": {"launch_floor_us": model.LAUNCH_FLOOR_US, "handshake_us": model.HANDSHAKE_US},
        "parameters": {
            name: {"value": value, "least": min(getattr(p, name) for p in fits[_regime(name)]),
                   "most": max(getattr(p, name) for p in fits[_regime(name)]), **vars(PRIORS[name])}
            for name, value in fitted.to_dict().items()
        },
        "ranges": {"harness": fitted_range(harness), "device": fitted_range(device)},
        "widths": {
            "harness": {"fitted": width(harness, unseen["shape"]), "other": width(other, others)},
            "device": {"fitted": device_width, "other": device_width},
        },
        "cross_validation": {
            "harness, fitted": errors(harness, [row.predicted(fitted) for row in harness]),
            "harness, a shape left out": {**errors(harness, unseen["shape"]),
                                          "covered": covered(harness, lambda row: row.shape, start)},
            "harness, a config family left out": {**errors(harness, unseen["family"]),
                                                  "covered": covered(harness, lambda row: row.family, start)},
            "harness, another kernel": errors(other, others),
            "device, matrices left out": {**errors(device, matrix),
                                          "covered": covered(device, lambda row: row.family, fitted)},
        },
        "residuals": {
            "harness": [_residual(row, shape_left_out_us=a, family_left_out_us=b)
                        for row, a, b in zip(harness, unseen["shape"], unseen["family"], strict=True)],
            "other": [_residual(row, left_out_us=us) for row, us in zip(other, others, strict=True)],
            "device": [_residual(row, left_out_us=us) for row, us in zip(device, matrix, strict=True)],
        },
    }  # fmt: skip
    return _rounded(document)


def _regime(name: str) -> str:
    return "device" if name.startswith("device_") else "harness"


def _residual(row: Row, **left_out_us: float) -> dict[str, Any]:
    return {"shape": str(row.shape), "label": row.label, "published_us": row.us, **left_out_us}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def write_model(document: Mapping[str, Any], path: Path | None = None) -> Path:
    """Writes the model document as JSON (indented: a diff is readable)."""
    path = path or REPO_ROOT / "data" / MODEL_FILE
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


REGIME_OF = {"leaderboard": "harness", "harness": "harness", "device": "device"}  # names that trials give to regimes
ENOUGH_ROWS = 5  # below, a verdict is not given
HOLDS_WITHIN = 0.10  # median |relative error|, twice the published run-to-run noise


def rows_from_trials(trials: Iterable[Trial]) -> tuple[list[Row], dict[str, int]]:
    """Measured gfx950 trials as rows, and why the others are none: reason -> number.

    A trial's counts are its own, or those of another trial of the same machine code on the same shape. Where an empty
    kernel was timed beside it, what lies above that floor is compared: a box's event pairs need not cost what the
    published ones did.
    """
    trials = list(trials)
    counted = {_code(trial): trial.counts for trial in trials if trial.counts is not None and trial.arch == "gfx950"}
    rows: list[Row] = []
    skipped: dict[str, int] = {}
    for trial in trials:
        counts = trial.counts or (counted.get(_code(trial)) if trial.kernel_hash else None)
        reason = (
            f"evidence is {trial.evidence}" if trial.evidence is not Evidence.measured
            else f"status is {trial.status}" if trial.status is not Status.ok or not trial.latency_us
            else f"arch is {trial.arch}" if trial.arch != "gfx950"
            else f"regime is {trial.regime or 'not stated'}" if trial.regime not in REGIME_OF
            else "no counts" if counts is None else ""
        )  # fmt: skip
        if reason:
            skipped[reason] = skipped.get(reason, 0) + 1
            continue
        timing = trial.detail.get("timing")
        floor = timing.get("floor_us") if isinstance(timing, Mapping) else None
        floor = float(floor) if isinstance(floor, int | float) and 0 < floor < trial.latency_us else None
        label = f"{trial.variant} {trial.config_id} on {trial.device}"
        us, regime = float(trial.latency_us), REGIME_OF[trial.regime]
        rows.append(Row(trial.shape, us, counts, regime, label, dict(trial.config), "box", floor))
    return rows, skipped


def _code(trial: Trial) -> tuple:
    """What makes two trials run the same machine code on the same shape."""
    return trial.shape, trial.variant, trial.config_id, trial.kernel_hash


def check_box(rows: Sequence[Row]) -> dict[str, Any]:
    """Whether the stored model holds for rows of a machine at hand: rows, median error, scale, spearman, verdict.

    Raises:
        ValueError: there are no rows.
    """
    from scipy.stats import spearmanr

    if not rows:
        raise ValueError("rows=[]: nothing to check; allowed: at least one measured gfx950 row with counts")
    us = np.array([row.us for row in rows])
    told = np.array([row.predicted(model.stored_model().parameters) for row in rows])
    error, scale = float(np.median(np.abs(told / us - 1.0))), float(np.median(us / told))
    ranks = float(spearmanr(us, told).statistic) if len(set(told)) > 1 else math.nan
    if len(rows) < ENOUGH_ROWS:
        verdict = f"{len(rows)} rows are too few to say; at least {ENOUGH_ROWS} are needed"
    elif error <= HOLDS_WITHIN:
        verdict = f"the model holds here: median error {error:.0%}"
    elif ranks >= 0.8:
        verdict = f"times here are {scale:.2f} times the model's, but its ranks hold (Spearman {ranks:.2f}): refit"
    else:
        verdict = f"the model does not hold here (median error {error:.0%}, Spearman {ranks:.2f}): measure, do not rank"
    return {"rows": len(rows), "median_error": error, "scale": scale, "spearman": ranks, "verdict": verdict}


def add_trials(rows: Sequence[Row]) -> dict[str, Any]:
    """A model document fitted on the published rows and on `rows` together; nothing is written.

    Its version is the stored model's with a hash of the added rows. Intervals are as wide as the stored model's, or
    wider if the added rows scatter more around the new fit.

    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError("rows=[]: nothing to add; allowed: at least one measured gfx950 row with counts")
    published = {"harness": harness_rows(), "device": device_rows()}
    joined = {regime: [*published[regime], *(row for row in rows if row.regime == regime)] for regime in REGIMES}
    parameters = fit_all(joined["harness"], joined["device"])
    document = model.load_document()
    for name, value in parameters.to_dict().items():
        document["parameters"][name]["value"] = value
    for regime, every in joined.items():
        added = [abs(math.log(row.predicted(parameters) / row.us)) for row in rows if row.regime == regime]
        if added:
            widths = document["widths"][regime]
            widths["other"] = max(widths["other"], float(np.quantile(added, COVERAGE)))
        document["ranges"][regime] = fitted_range(every)
    digest = hashlib.sha256(repr([(r.shape, r.us, r.label) for r in rows]).encode()).hexdigest()[:8]
    document["model_version"] = f"{MODEL_VERSION}+box.{digest}"
    # what was computed for the stored fit alone would mislead beside the new one
    del document["residuals"], document["cross_validation"]
    return document
