"""Writes `other_kernel_rows.json`: published harness times of a kernel that the time model is not fitted on.

Two versions of a contestant's submission of two launches: a Triton kernel quantizes A and writes its scales shuffled,
then aiter's prebuilt GEMM of 32 x 128 tiles. Counts are of our quantize kernel and of the GEMM's code object, executed
by the emulator. Needs an installed amd-aiter; about ten seconds: `python data/make_other_kernel_rows.py`.
"""

import csv
import dataclasses
import json
from pathlib import Path

from mxfp4lab.aiter.gemm import build_gemm_stage
from mxfp4lab.emulate import count_plan
from mxfp4lab.plan import build_plan
from mxfp4lab.shapes import Shape

HERE = Path(__file__).parent
PUBLISHED = (
    "v016 two-phase: Triton fused quant+shuffle kernel, then aiter ASM gemm_a4w4, ASM 32x128 forced",
    "v021 quant blocks 32x64 NW=2, ASM 32x128",
)


def main() -> None:
    rows = []
    with (HERE / "mi355x_published_times.csv").open(newline="") as file:
        found = [row for row in csv.DictReader(file) if row["implementation"] in PUBLISHED]
    for row in found:
        shape = Shape(int(row["m"]), int(row["n"]), int(row["k"]))
        gemm = count_plan(build_gemm_stage(shape, "32x128", 0))
        quantize = count_plan(build_plan("quant_shuffle_asm", None, shape)).launches[0]
        counts = dataclasses.replace(gemm, launches=(quantize, *gemm.launches))
        label = f"{row['implementation'].split()[0]} {shape}"
        rows.append({"label": label, "us": float(row["us"]), "regime": row["regime"], "source": row["source"],
                     "counts": counts.to_dict()})  # fmt: skip
    (HERE / "other_kernel_rows.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
