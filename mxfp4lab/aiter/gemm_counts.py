"""Dynamic counts of aiter's prebuilt GEMMs on the published device-regime rows.

`python -m mxfp4lab.aiter.gemm_counts` writes the table (it needs an installed amd-aiter; about a minute). One
workgroup of each row's kernel is executed on the row's shape. The table joins the published time with what the machine
code does; the time model is fitted and judged on it.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mxfp4lab.aiter.install import AiterError
from mxfp4lab.paths import data_path
from mxfp4lab.shapes import Shape

TIMES, COUNTS = "mi355x_published_times.csv", "aiter_gemm_counts.csv"
K_STEP = 256  # elements of K that one trip of the kernels' loop takes


def published_rows() -> list[dict[str, Any]]:
    """The rows that are to be counted: kernel, log2 split, shape and published time, in the table's order."""
    rows = []
    with data_path(TIMES).open(newline="") as file:
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
    """Counts of one workgroup of a prebuilt GEMM on a shape: `k_trips` and the fields of `LaunchCounts`."""
    from mxfp4lab.emulate import count_plan
    from mxfp4lab.plan.prebuilt import build_gemm_stage

    plan = build_gemm_stage(shape, kernel, log2_k_split)
    (counts,) = count_plan(plan).launches
    shares = plan.launches[0].grid[2]
    fields = dataclasses.asdict(counts)
    del fields["name"], fields["waits_for_peers"]
    return {"k_trips": -(-shape.k // (shares * K_STEP)), **fields}


def counted_rows() -> Iterator[dict[str, Any]]:
    """One table row per published row."""
    for row in published_rows():
        shape = row["shape"]
        yield {"m": shape.m, "n": shape.n, "k": shape.k, "kernel": row["kernel"], "log2_k_split": row["log2_k_split"],
               "device_us": row["device_us"], **count_row(row["kernel"], row["log2_k_split"], shape)}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Write the table; exit code 2 without an aiter to take the code objects from."""
    parser = argparse.ArgumentParser(prog="python -m mxfp4lab.aiter.gemm_counts", description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help=f"file to write; data/{COUNTS} without it")
    chosen = parser.parse_args(arguments)
    out = chosen.out or data_path(TIMES).with_name(COUNTS)
    try:
        rows = list(counted_rows())
    except AiterError as error:
        print(error, file=sys.stderr)
        return 2
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.10g}" if isinstance(value, float) else value for name, value in row.items()}
                         for row in rows)  # fmt: skip
    print(f"{len(rows)} rows in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
