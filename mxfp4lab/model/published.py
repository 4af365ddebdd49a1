"""Published MI355X times as rows with Counts: what the model is fitted on and judged by.

Three files under `data/`: `mi355x_published_times.csv` (every public time found, with its regime and use),
`mi355x_fused_counts.csv` (per-wave counts of the harness rows' machine code) and `aiter_gemm_counts.csv` (the same for
the device rows: aiter's prebuilt kernels, executed by the emulator).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950 import ROUND_TRIP_CYCLES
from mxfp4lab.paths import data_path
from mxfp4lab.records import Counts, LaunchCounts
from mxfp4lab.shapes import Shape

TIMES_FILE = "mi355x_published_times.csv"
COUNTS_FILE = "mi355x_fused_counts.csv"
PREBUILT_FILE = "aiter_gemm_counts.csv"

_SCALE_BYTES = 1 / 32  # e8m0, one byte for 32 elements
_REDUCE_TILE = (16, 64)
_WAITS_PER_TRIP = 1.5
_PROLOGUE_TRIPS = 0.5  # instructions around the loop, in trips: 177 of 355 between split_k 7 and 2 of 16x2112x7168


@dataclass(frozen=True)
class PublishedRow:
    """A published time and the counts behind it.

    Attributes:
        shape: the GEMM.
        us: the published time.
        counts: what the machine code does.
        regime: `"harness"` or `"device"`.
        label: one line that says which config it is.
        config: the config's fields as published.
        source: `"fused"` (aiter's fused Triton kernel), `"prebuilt"` (aiter's prebuilt GEMM) or `"box"` (a trial).
        floor_us: what an empty kernel took beside it, in the same regime; None for published rows, which share one.
    """

    shape: Shape
    us: float
    counts: Counts
    regime: str
    label: str
    config: Mapping[str, Any]
    source: str
    floor_us: float | None = None

    @property
    def tie_key(self) -> tuple:
        """Equal for rows whose counted work is equal: no model that reads counts can tell them apart."""
        main = self.counts.launches[0]
        return (
            self.shape,
            main.workgroups,
            main.waves_per_workgroup,
            main.valu_per_wave,
            main.mfma_per_wave,
            main.vmem_per_wave,
            main.lds_per_wave,
            main.scratch_per_wave,
            main.spilled_vgprs,
            main.barriers_per_wave,
        )


def reduce_counts(shape: Shape, split_k: int, *, waves: int = 4) -> LaunchCounts:
    """The launch that sums `split_k` fp32 partials into bf16 on aiter's 16 x 64 tile.

    The published counts hold the GEMM alone. The same reduction compiled for gfx950 (`kernels/reduce.py`, 4 warps) has
    42 VALU and 12 memory instructions for 2 partials, 100 and 33 for 7; in between a straight line.
    """
    rows, columns = _REDUCE_TILE
    tile = rows * columns
    per_lane = tile / (waves * 64)
    return LaunchCounts(
        name="reduce",
        workgroups=-(-shape.m // rows) * -(-shape.n // columns),
        waves_per_workgroup=waves,
        valu_per_wave=19.0 + 11.6 * split_k,
        vmem_per_wave=per_lane * (split_k + 1),
        load_bytes_per_workgroup=float(split_k * tile * 4),
        store_bytes_per_workgroup=float(tile * 2),
        vgprs=64,
        occupancy_waves_per_simd=8,
    )


def counts_from_row(row: Mapping[str, Any]) -> Counts:
    """Counts of a row in the form of `mi355x_fused_counts.csv`.

    Bytes follow from the tile: a workgroup reads `block_m` rows of A in bf16 and `block_n` rows of B with their scales,
    over its share of K. The round trips that it waits out are not among the columns and follow from the loop: one that
    is not pipelined (`num_stages` 1) waits for A, then for B (kernels of ours with the same configs, followed wait by
    wait: 1.0 to 1.95 a trip); a pipelined one waits for what the issue of a trip does not cover.

    Raises:
        ValueError: if a column is missing, or is not a number.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"row: a {type(row).__name__}; allowed: a mapping of columns to values")
    number = _numbers(row)
    shape = Shape(*(int(number[name]) for name in ("m", "n", "k")))
    split_k = int(number["split_k"])
    k_part = shape.k / split_k
    trips = -(-shape.k // int(split_k * number["block_k"]))
    wide = number["matrix_instr_nonkdim"] == 32
    read = k_part * (number["block_m"] * 2 + number["block_n"] * (0.5 + _SCALE_BYTES))
    if number["num_stages"] == 1:
        waits = _WAITS_PER_TRIP * trips - 1.0
    else:
        cycles = number["valu_per_wave"] * 4 + number["mfma_per_wave"] * (32 if wide else 16)
        trip = cycles / (trips + _PROLOGUE_TRIPS)
        waits = (trips - 1) * max(0.0, 1.0 - trip / ROUND_TRIP_CYCLES)
    main = LaunchCounts(
        name="gemm",
        workgroups=int(number["workgroups"]),
        waves_per_workgroup=int(number["num_warps"]),
        valu_per_wave=number["valu_per_wave"],
        mfma_per_wave=number["mfma_per_wave"],
        mfma16_per_wave=0.0 if wide else number["mfma_per_wave"],
        mfma32_per_wave=number["mfma_per_wave"] if wide else 0.0,
        vmem_per_wave=number["vmem_per_wave"],
        lds_per_wave=number["lds_per_wave"],
        scratch_per_wave=number["scratch_per_wave"],
        scalar_per_wave=number["scalar_per_wave"],
        barriers_per_wave=number["barriers_per_wave"],
        exposed_waits_per_wave=waits,
        load_bytes_per_workgroup=read,
        store_bytes_per_workgroup=number["block_m"] * number["block_n"] * (4 if split_k > 1 else 2),
        vgprs=int(number["vgprs"]),
        spilled_vgprs=int(number["spilled_vgprs"]),
        lds_bytes=int(number["lds_bytes"]),
    )
    if split_k == 1:
        return Counts(shape=shape, launches=(main,))
    launches = (main, reduce_counts(shape, split_k))
    return Counts(shape=shape, launches=launches, split_k=split_k, partial_bytes=split_k * shape.m * shape.n * 4)


_COUNT_COLUMNS = (
    *("m", "n", "k", "block_m", "block_n", "block_k", "split_k", "num_warps", "num_stages", "matrix_instr_nonkdim"),
    *("workgroups", "valu_per_wave", "mfma_per_wave", "vmem_per_wave", "lds_per_wave", "scratch_per_wave"),
    *("scalar_per_wave", "barriers_per_wave", "vgprs", "spilled_vgprs", "lds_bytes"),
)
_CONFIG_COLUMNS = (
    *("block_m", "block_n", "block_k", "split_k", "num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim"),
)


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    missing = [name for name in _COUNT_COLUMNS if row.get(name) in (None, "")]
    if missing:
        raise ValueError(f"row: columns {missing} are missing; allowed: the columns of data/{COUNTS_FILE}")
    try:
        return {name: float(row[name]) for name in _COUNT_COLUMNS}
    except (TypeError, ValueError) as error:
        raise ValueError(f"row: {error}; allowed: numbers in the columns of data/{COUNTS_FILE}") from None


def counted_prebuilt(row: Mapping[str, str]) -> Counts:
    """Counts of a row of `aiter_gemm_counts.csv`.

    Raises:
        ValueError: if a count is missing or not a number.
    """
    shape = Shape(int(row["m"]), int(row["n"]), int(row["k"]))
    values: dict[str, Any] = {"name": f"f4gemm_{row['kernel']}"}
    for field in fields(LaunchCounts):
        if field.name == "name":
            continue
        try:
            number = float(row[field.name])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{PREBUILT_FILE}: {field.name}={row.get(field.name)!r} of {shape} is no number") from None
        values[field.name] = int(number) if field.type == "int" else number
    return Counts(shape=shape, launches=(LaunchCounts(**values),))


def read_rows(name: str) -> list[dict[str, str]]:
    with data_path(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rows_from_file(path: Path | str) -> list[PublishedRow]:
    """Harness rows of a csv file in the form of `mi355x_fused_counts.csv`: counts, config and a measured `harness_us`.

    Raises:
        ValueError: if the file is missing, or a row lacks a column or holds what is no number; names the line.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(file))
    except OSError as error:
        raise ValueError(f"path={str(path)!r}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"path={str(path)!r} is no csv file: {error}") from None
    if not found:
        raise ValueError(f"path={str(path)!r} holds no row; allowed: a header as in data/{COUNTS_FILE}, then rows")
    rows = []
    for line, row in enumerate(found, 2):
        try:
            rows.append(_harness_row(row))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"path={str(path)!r}, line {line}: {error}") from None
    return rows


def _harness_row(row: Mapping[str, str]) -> PublishedRow:
    counts = counts_from_row(row)
    config: dict[str, Any] = {name: int(row[name]) for name in _CONFIG_COLUMNS}
    config["cache_modifier"] = row["cache_modifier"]
    label = row["notes"].removeprefix("benchmark mode; ")
    return PublishedRow(counts.shape, float(row["harness_us"]), counts, "harness", label, config, "fused")


@lru_cache(maxsize=1)
def harness_rows() -> tuple[PublishedRow, ...]:
    """The 29 harness rows with counts, all of aiter's fused kernel, in file order."""
    return tuple(rows_from_file(data_path(COUNTS_FILE)))


@lru_cache(maxsize=1)
def device_rows() -> tuple[PublishedRow, ...]:
    """The 354 device rows of aiter's prebuilt GEMM, in file order."""
    rows = []
    for row in read_rows(PREBUILT_FILE):
        counts = counted_prebuilt(row)
        tile_m, tile_n = map(int, row["kernel"].split("x"))
        config = {"block_m": tile_m, "block_n": tile_n, "split_k": 1 << int(row["log2_k_split"])}
        us = float(row["device_us"])
        rows.append(PublishedRow(counts.shape, us, counts, "device", row["kernel"], config, "prebuilt"))
    return tuple(rows)


def with_time(row: PublishedRow, us: float) -> PublishedRow:
    """The same row with another time, for tests and for adding noise."""
    return replace(row, us=us)
