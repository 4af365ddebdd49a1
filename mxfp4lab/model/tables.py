"""The model's evidence as pandas tables, for notebooks and reports: each row says what kind of evidence it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mxfp4lab.model.predict import Prediction, load_document, predict_counts
from mxfp4lab.model.published import TIMES_FILE, PublishedRow, device_rows, read_rows
from mxfp4lab.records import Counts, LaunchCounts
from mxfp4lab.shapes import Shape

if TYPE_CHECKING:
    import pandas

# Public harness times of one kernel doing all the work of C, by what it is; a name's rows hold all its shapes.
BEST_PUBLISHED = {
    "v45 + exact reduce kernel (upper ends of ranges)": "specialised Triton",
    "v114 + XCD remap (benchmark)": "aiter's fused kernel, tuned; M ≥ 64 two launches",
    "#591 best (preshuffle / fast HIP reduce / quant+ASM)": "the same, HIP reduce; M ≥ 64 quantize + prebuilt",
}


def cross_validation_table(document: Mapping[str, Any] | None = None) -> pandas.DataFrame:
    """One row per scheme: errors on rows not seen, rank correlations, disasters."""
    import pandas as pd

    document = document or load_document()
    records = []
    for scheme, reached in document["cross_validation"].items():
        record = {"rows": scheme, "n": reached["rows"]}
        record |= {f"{key} |error|": f"{reached[key]:.1%}" for key in ("median", "p90", "max")}
        record |= {f"Spearman {shape}": f"{value:.2f}" for shape, value in reached.get("spearman", {}).items()}
        if "disasters_missed" in reached:
            record["disasters missed"] = str(len(reached["disasters_missed"]))
            record["good called disasters"] = str(len(reached["good_called_disasters"]))
        records.append(record)
    return pd.DataFrame(records).fillna("").set_index("rows")


def parameter_table(document: Mapping[str, Any] | None = None) -> pandas.DataFrame:
    """Fitted values, how far they move when rows are left out, what was expected and why."""
    import pandas as pd

    document = document or load_document()
    records = [
        {
            "parameter": name,
            "value": f"{entry['value']:.3g}",
            "spread": f"{entry['spread']:.2g}",
            "expected": f"{entry['expected']:g} ± {entry['width']:g}",
            "bounds": f"{entry['low']:g} .. {entry['high']:g}",
            "where that comes from": entry["why"],
        }
        for name, entry in document["parameters"].items()
    ]
    return pd.DataFrame(records).set_index("parameter")


def residual_rows(regime: str = "harness", document: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Rows as the figures want them; `predicted_us` is by a fit that has not seen the row's shape (or matrix)."""
    document = document or load_document()
    unseen = "shape_left_out_us" if regime == "harness" else "left_out_us"
    return [{**row, "predicted_us": row[unseen]} for row in document["residuals"][regime]]


def prediction_table(named: Iterable[tuple[str, Shape, Prediction]]) -> pandas.DataFrame:
    """Predictions of plans, with what dominates each; evidence `modelled`."""
    import pandas as pd

    records = []
    for label, shape, p in named:
        main = sorted(((v, k) for k, v in p.terms.items() if k != "launch floor"), reverse=True)[:3]
        records.append(
            {
                "shape": str(shape),
                "config": label,
                "predicted us": f"{p.predicted_us:.2f}",
                "interval": f"{p.interval[0]:.1f} .. {p.interval[1]:.1f}",
                "above the floor": ", ".join(f"{k} {v:.2f}" for v, k in main if v > 0.05),
                "outside the fitted rows": "; ".join(text.split(":")[0] for text in p.outside),
                "evidence": "modelled",
            }
        )
    return pd.DataFrame(records).set_index(["shape", "config"])


def best_published(shape: Shape) -> dict[str, float]:
    """Public harness times of the best kernels on a shape, by what they are (benchmark mode, measured by others)."""
    found = {}
    for row in read_rows(TIMES_FILE):
        kind = BEST_PUBLISHED.get(row["implementation"])
        if (
            kind
            and row["regime"] == "harness_benchmark"
            and (row["m"], row["n"], row["k"]) == tuple(str(size) for size in shape.as_tuple)
        ):
            found[kind] = float(row["us"])
    return found


STAGE = "stage: gemm_a4w4 ASM (v005)"  # aiter's prebuilt GEMM alone between an event pair
TWO_LAUNCHES = "v021 quant blocks 32x64 NW=2, ASM 32x128"  # a Triton quantize-and-shuffle kernel, then that GEMM


def _nearest_prebuilt(shape: Shape) -> PublishedRow:
    """The counted device row of the 32x128 kernel that is nearest to a shape: K first, then M, then N."""
    counted = [row for row in device_rows() if row.label == "32x128"]
    return min(counted, key=lambda c: (abs(c.shape.k - shape.k), abs(c.shape.m - shape.m), abs(c.shape.n - shape.n)))


def _published(implementation: str) -> dict[Shape, float]:
    rows = [row for row in read_rows(TIMES_FILE) if row["implementation"] == implementation]
    return {Shape(int(row["m"]), int(row["n"]), int(row["k"])): float(row["us"]) for row in rows}


def _against(records: Iterable[tuple[Shape, float, Prediction, Shape]]) -> pandas.DataFrame:
    import pandas as pd

    rows = [
        {
            "shape": str(shape),
            "published us": us,
            "predicted us": round(p.predicted_us, 1),
            "predicted / published - 1": f"{p.predicted_us / us - 1:+.0%}",
            "inside the interval": "yes" if p.interval[0] <= us <= p.interval[1] else "no",
            "GEMM's counts of": str(near),
        }
        for shape, us, p, near in records
    ]
    return pd.DataFrame(rows).set_index("shape")


def prebuilt_stage_table() -> pandas.DataFrame:
    """Published event-timed calls of aiter's prebuilt GEMM alone against the harness model: a kernel it never saw."""
    records = []
    for shape, us in _published(STAGE).items():
        near = _nearest_prebuilt(shape)
        records.append((shape, us, predict_counts(near.counts), near.shape))
    return _against(records)


def two_launch_table(quantizers: Mapping[Shape, LaunchCounts]) -> pandas.DataFrame:
    """Published whole submissions of two launches against the model: quantize A, then aiter's prebuilt GEMM.

    Args:
        quantizers: counts of a kernel that quantizes A, by shape; any will do, it takes about 0.2 us.
    """
    records = []
    for shape, us in _published(TWO_LAUNCHES).items():
        if shape in quantizers:
            near = _nearest_prebuilt(shape)
            counts = Counts(shape=near.shape, launches=(quantizers[shape], near.counts.launches[0]))
            records.append((shape, us, predict_counts(counts), near.shape))
    return _against(records)


def submission_table(counted: Iterable[Any]) -> pandas.DataFrame:
    """The known submissions' configs (`plans.CountedPlan`) beside the best published times of their shapes."""
    import pandas as pd

    records = []
    for plan in counted:
        if ", as " not in plan.candidate.label:
            continue
        published = best_published(plan.candidate.shape)
        if not published:
            continue
        low, high = min(published.values()), max(published.values())
        p = plan.prediction
        spilled = sum(launch.spilled_vgprs for launch in plan.counts.launches)
        records.append(
            {
                "shape": str(plan.candidate.shape),
                "config": plan.candidate.label,
                "predicted us": f"{p.predicted_us:.1f}",
                "interval": f"{p.interval[0]:.1f} .. {p.interval[1]:.1f}",
                "best published us": f"{low:.1f} .. {high:.1f}",
                "predicted / nearest": f"{p.predicted_us / min(max(p.predicted_us, low), high):.2f}",
                "spilled registers": spilled,
            }
        )
    return pd.DataFrame(records).set_index(["shape", "config"]) if records else pd.DataFrame()


def refit_table(before: Mapping[str, Any], after: Mapping[str, Any]) -> pandas.DataFrame:
    """Parameters of two model documents side by side."""
    import pandas as pd

    rows = {
        name: {
            before["model_version"]: round(entry["value"], 3),
            f"{after['model_version']} (refit)": round(after["parameters"][name]["value"], 3),
        }
        for name, entry in before["parameters"].items()
    }
    return pd.DataFrame(rows).T.rename_axis("parameter")
