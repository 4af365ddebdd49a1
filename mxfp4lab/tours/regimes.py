"""What a published time contains: one kernel as the different regimes read it.

harness  event pair around a call, caches overwritten before (the task's protocol); a call that does nothing: 5.8 us
stage    event pair around one kernel of several, steady state
device   a profiler's time of the kernel alone, rotating inputs
loop     the same inputs back to back, warm, divided by the number of calls
"""

from __future__ import annotations

import csv

from mxfp4lab.paths import data_path
from mxfp4lab.shapes import Shape

REGIMES = ("stage", "device", "loop")

# aiter's prebuilt GEMM, tile 32x128, A quantized before: the one kernel that was timed in several ways.
_ROWS = {
    "stage": "stage: gemm_a4w4 ASM (v005)",
    "device": "BpreShuffle_32x128",
    "loop": "aiter ASM f4gemm 32x128",
}


def one_kernel(shape: Shape) -> dict[str, float]:
    """Regime to published microseconds of aiter's prebuilt GEMM on a shape; the least where there are several rows."""
    found: dict[str, float] = {}
    with data_path("mi355x_published_times.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if (row["m"], row["n"], row["k"]) != tuple(str(size) for size in shape.as_tuple):
                continue
            for regime, name in _ROWS.items():
                if row["regime"] == regime and name in row["implementation"]:
                    found[regime] = min(float(row["us"]), found.get(regime, float("inf")))
    return found
