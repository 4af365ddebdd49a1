"""Writes `aiter_gemm_counts.csv`: dynamic counts of aiter's prebuilt GEMMs on the published device-regime rows.

One workgroup of each row's kernel is executed on the row's shape. The table joins the published time with what the
machine code does; the time model is fitted and judged on it. Needs an installed amd-aiter; about a minute:
`python data/make_aiter_gemm_counts.py`.
"""

import csv
import dataclasses
import re
from pathlib import Path
from typing import Any

from mxfp4lab.aiter.gemm import build_gemm_stage
from mxfp4lab.emulate import count_plan
from mxfp4lab.shapes import Shape

HERE = Path(__file__).parent
TIMES, COUNTS = HERE / "mi355x_published_times.csv", HERE / "aiter_gemm_counts.csv"


def published_rows() -> list[dict[str, Any]]:
    """The rows that are to be counted: kernel, log2 split, shape and published time, in the table's order."""
    rows = []
    with TIMES.open(newline="") as file:
        for row in csv.DictReader(file):
            found = re.search(r"BpreShuffle_(\d+x\d+)", row["implementation"])
            if row["use"] != "fit_device" or not found:
                continue
            split = re.search(r"splitK=(\d+)", row["notes"])
            shape = Shape(int(row["m"]), int(row["n"]), int(row["k"]))
            rows.append({"kernel": found.group(1), "log2_k_split": int(split.group(1)) if split else 0, "shape": shape,
                         "device_us": float(row["us"])})  # fmt: skip
    return rows


def count_row(kernel: str, log2_k_split: int, shape: Shape) -> dict[str, Any]:
    """The fields of `LaunchCounts` of one workgroup of a prebuilt GEMM on a shape."""
    (counts,) = count_plan(build_gemm_stage(shape, kernel, log2_k_split)).launches
    fields = dataclasses.asdict(counts)
    fields.pop("name")
    return fields


def main() -> None:
    rows = []
    for row in published_rows():
        m, n, k = row["shape"].as_tuple
        rows.append({"m": m, "n": n, "k": k, **{name: row[name] for name in ("kernel", "log2_k_split", "device_us")},
                     **count_row(row["kernel"], row["log2_k_split"], row["shape"])})  # fmt: skip
    with COUNTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.10g}" if isinstance(value, float) else value for name, value in row.items()}
                         for row in rows)  # fmt: skip


if __name__ == "__main__":
    main()
