"""Hardware counters beside what was known without the GPU: rocprofv3's CSV beside emulated counts, ncu's beside the
compiled kernel.

rocprofv3 (``rocprofv3 --pmc SQ_WAVES SQ_INSTS_VALU ... --output-format csv -- python ...``) writes one row per dispatch
and counter to ``*_counter_collection.csv``. ncu (``ncu --csv --page raw`` or ``--page details``) writes one row per
kernel, or one per metric. Formats as the tools' public documentation shows them. The rocprofv3 half has been tested on
sample files only, not on an MI355X; the ncu half on files from an H200.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mxfp4lab import display
from mxfp4lab.paths import read_bounded
from mxfp4lab.records import Counts, LaunchCounts

ROCPROF_COLUMNS = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value")
MAX_FILE_BYTES = 256 << 20

# ncu prints large values in larger units; times become ns, sizes bytes, frequencies Hz.
_UNITS = {
    "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9, "kbyte": 1e3, "mbyte": 1e6,
    "gbyte": 1e9, "kbyte/block": 1e3, "byte/block": 1.0, "mhz": 1e6, "ghz": 1e9,
}  # fmt: skip


@dataclass(frozen=True)
class KernelCounters:
    """One kernel of a profile at one grid size.

    Attributes:
        tool: "rocprofv3" or "ncu".
        name: the kernel's name.
        programs: workgroups of a dispatch; None if the tool does not say.
        dispatches: how many of it were profiled; every number is the median over them.
        counters: counter or metric name -> value.
        duration_us: where the tool says it.
    """

    tool: str
    name: str
    programs: int | None
    dispatches: int
    counters: Mapping[str, float]
    duration_us: float | None = None


@dataclass(frozen=True)
class Comparison:
    """One quantity, measured and expected.

    Attributes:
        kernel, quantity: what it is.
        hardware: from the profile.
        expected: emulated, or read from the compiled kernel; None where nothing is known.
        source: where `expected` comes from: "emulated" or "compiled".
    """

    kernel: str
    quantity: str
    hardware: float
    expected: float | None
    source: str

    @property
    def ratio(self) -> float | None:
        """hardware / expected, where that is a number."""
        return self.hardware / self.expected if self.expected else None


@dataclass(frozen=True)
class CounterReport:
    """A profile, and what was expected of it: for a notebook's cell or a terminal.

    Attributes:
        kernels: of the profile.
        rows: their counters beside what was known without the GPU; empty without a plan.
    """

    kernels: tuple[KernelCounters, ...]
    rows: tuple[Comparison, ...] = ()

    def _tables(self) -> list[tuple[tuple[str, ...], list[tuple[object, ...]]]]:
        kernels: list[tuple[object, ...]] = []
        for kernel in self.kernels:
            top = ", ".join(f"{name} {value:.2f}" for name, value in list(stalls(kernel).items())[:5])
            programs = "" if kernel.programs is None else kernel.programs
            duration = "" if kernel.duration_us is None else f"{kernel.duration_us:.2f}"
            kernels.append((base_name(kernel.name), programs, kernel.dispatches, duration, len(kernel.counters), top))
        rows: list[tuple[object, ...]] = [
            (row.kernel, row.quantity, f"{row.hardware:.6g}", "" if row.expected is None else f"{row.expected:.6g}",
             "" if row.ratio is None else f"{row.ratio:.3f}", row.source)
            for row in self.rows
        ]  # fmt: skip
        tables = [(("kernel", "programs", "dispatches", "us (profiled)", "counters", "stalls per issue"), kernels)]
        if rows:
            tables.append((("kernel", "quantity", "hardware", "expected", "ratio", "from"), rows))
        return tables

    def __str__(self) -> str:
        return "\n\n".join(display.text_table(headers, rows) for headers, rows in self._tables())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = '<div style="height:8px"></div>'.join(display.table(headers, rows) for headers, rows in self._tables())
        return display.card("Hardware counters", display.badge("measured", "measured") + body)


def report(path: Path | str, plan: Any = None) -> CounterReport:
    """Read a counter file and set it beside a plan: ``report("rocprof.csv", build_plan(...))`` in a notebook.

    Args:
        path: of rocprofv3's or ncu's file.
        plan: what was profiled: for gfx950 its workgroups are emulated and counted, for sm_90 its kernels are
            compiled; None only reads the file.

    Raises:
        ValueError: no counter file, or a plan for the other vendor's GPU.
    """
    kernels = read_counters(path)
    if plan is None:
        return CounterReport(tuple(kernels))
    from mxfp4lab.emulate import count_plan
    from mxfp4lab.gfx950 import compile_plan

    tool = kernels[0].tool if kernels else ""
    if (tool == "ncu") != plan.arch.startswith("sm_"):
        raise ValueError(f"{path} was written by {tool}, and the plan is for {plan.arch}: they do not belong together")
    compiled = compile_plan(plan)
    rows = beside_emulation(kernels, count_plan(compiled)) if tool != "ncu" else beside_compiled(kernels, compiled)
    return CounterReport(tuple(kernels), tuple(rows))


def read_counters(path: Path | str) -> list[KernelCounters]:
    """Read a counter file of either tool, kernels in the order of their first dispatch.

    Raises:
        ValueError: not a readable file, too large, or of neither format; the message says what was looked for.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB: profile fewer dispatches")
        text = read_bounded(path, MAX_FILE_BYTES, errors="replace")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    return parse_counters(text, str(path))


def parse_counters(text: str, where: str = "the file") -> list[KernelCounters]:
    """`read_counters` on text."""
    # ncu prints progress lines before its CSV, which begins with a quote, as rocprofv3's header does.
    start = 0 if text.startswith('"') else text.find('\n"') + 1
    try:
        frame = pd.read_csv(io.StringIO(text[start:]), thousands=",", on_bad_lines="skip", low_memory=False)
    except (pd.errors.EmptyDataError, pd.errors.ParserError):
        frame = pd.DataFrame()
    if set(ROCPROF_COLUMNS) <= set(frame.columns):
        return _kernels("rocprofv3", _rocprof(frame))
    if {"Kernel Name", "Metric Name", "Metric Value"} <= set(frame.columns):
        return _kernels("ncu", _ncu_details(frame))
    if "Kernel Name" in frame.columns and any("__" in name for name in frame.columns):
        return _kernels("ncu", _ncu_raw(frame))
    raise ValueError(
        f"{where} is no counter file: neither rocprofv3's (columns {', '.join(ROCPROF_COLUMNS)}) nor ncu's "
        "(--csv --page raw or details)"
    )


def _rocprof(frame: pd.DataFrame) -> pd.DataFrame:
    def column(name: str) -> pd.Series:
        return pd.to_numeric(frame[name], errors="coerce") if name in frame else pd.Series(math.nan, frame.index)

    took = (column("End_Timestamp") - column("Start_Timestamp")) / 1e3
    return pd.DataFrame({
        "kernel": frame["Kernel_Name"], "programs": (column("Grid_Size") / column("Workgroup_Size")).round(),
        "dispatch": frame["Dispatch_Id"], "counter": frame["Counter_Name"], "value": column("Counter_Value"),
        "duration_us": took.where(took > 0),
    })  # fmt: skip


def _ncu_details(frame: pd.DataFrame) -> pd.DataFrame:
    units = frame["Metric Unit"] if "Metric Unit" in frame else pd.Series("", frame.index)
    return pd.DataFrame({
        "kernel": frame["Kernel Name"], "programs": frame["Grid Size"].map(_programs), "dispatch": frame["ID"],
        "counter": frame["Metric Name"], "value": _numbers(frame["Metric Value"]) * units.map(_scale),
        "duration_us": math.nan,
    })  # fmt: skip


def _ncu_raw(frame: pd.DataFrame) -> pd.DataFrame:
    metrics = [name for name in frame.columns if "__" in name]
    units = dict.fromkeys(metrics, "")
    if len(frame) and pd.isna(frame["Kernel Name"].iloc[0]):  # the row below the header holds units
        units, frame = frame.iloc[0].to_dict(), frame.iloc[1:]
    long = frame.assign(dispatch=range(len(frame))).melt(["Kernel Name", "Grid Size", "dispatch"], metrics, "counter")
    long["value"] = _numbers(long["value"]) * long["counter"].map(lambda name: _scale(units[name]))
    long["programs"] = long["Grid Size"].map(_programs)
    return long.rename(columns={"Kernel Name": "kernel"}).assign(duration_us=math.nan)


def _kernels(tool: str, rows: pd.DataFrame) -> list[KernelCounters]:
    """Kernels of rows (kernel, programs, dispatch, counter, value, duration_us), medians over dispatches."""
    found = []
    rows = rows.dropna(subset="value")
    for (name, programs), part in rows.groupby(["kernel", "programs"], sort=False, dropna=False):
        # A counter that comes once per hardware instance is summed.
        totals = part.groupby(["dispatch", "counter"], sort=False)["value"].sum()
        counters = {str(key): float(value) for key, value in totals.groupby("counter", sort=False).median().items()}
        duration = part.groupby("dispatch")["duration_us"].first().median()
        if pd.isna(duration):
            duration = counters.get("gpu__time_duration.sum", math.nan) / 1e3
        found.append(KernelCounters(
            tool, str(name), None if pd.isna(programs) else int(programs), part["dispatch"].nunique(), counters,
            None if pd.isna(duration) else float(duration),
        ))  # fmt: skip
    return found


def _numbers(values: pd.Series) -> pd.Series:
    """Numbers as the tools print them, thousands separated by commas; NaN for anything else."""
    return pd.to_numeric(values.astype(str).str.replace(",", ""), errors="coerce")


def _programs(grid: Any) -> float:
    """Workgroups in a grid that ncu prints as "(33, 4, 1)"."""
    sizes = re.findall(r"\d+", str(grid))
    return math.prod(map(int, sizes)) if len(sizes) == 3 else math.nan


def _scale(unit: Any) -> float:
    return _UNITS.get(str(unit).strip().lower(), 1.0)


def beside_emulation(kernels: Sequence[KernelCounters], counts: Counts) -> list[Comparison]:
    """Counters of a rocprofv3 profile beside the emulated counts of the same plan, per wave.

    ``SQ_INSTS_VALU`` includes matrix instructions, so they are taken off. What a plan launches and the profile lacks is
    left out; kernels that the plan does not launch too.
    """
    rows: list[Comparison] = []
    for launch in counts.launches:
        kernel = _of_launch(kernels, launch.name, launch.workgroups)
        if kernel is not None:
            rows += _per_wave(kernel, launch)
    return rows


def _per_wave(kernel: KernelCounters, launch: LaunchCounts) -> list[Comparison]:
    values = kernel.counters
    planned = float(launch.workgroups * launch.waves_per_workgroup)
    rows = []
    if "SQ_WAVES" in values:
        rows.append(Comparison(launch.name, "waves", values["SQ_WAVES"], planned, "emulated"))
    # Counters of another pass come without SQ_WAVES; the plan knows how many waves there are.
    waves = values.get("SQ_WAVES") or planned
    mfma = values.get("SQ_INSTS_MFMA", values.get("SQ_INSTS_VALU_MFMA"))
    valu = values.get("SQ_INSTS_VALU")
    if mfma is None and launch.mfma_per_wave:
        valu = None  # how many of them are matrix instructions is not known
    scalar = None
    if "SQ_INSTS_SALU" in values and "SQ_INSTS_SMEM" in values:
        scalar = values["SQ_INSTS_SALU"] + values["SQ_INSTS_SMEM"]
    expected: dict[str, tuple[float | None, float | None]] = {
        "VALU per wave": (None if valu is None else valu - (mfma or 0.0), launch.valu_per_wave),
        "MFMA per wave": (mfma, launch.mfma_per_wave),
        "VMEM per wave": (values.get("SQ_INSTS_VMEM"), launch.vmem_per_wave + launch.scratch_per_wave),
        "LDS per wave": (values.get("SQ_INSTS_LDS"), launch.lds_per_wave),
        "scalar per wave": (scalar, launch.scalar_per_wave),
        "LDS conflict cycles per wave": (values.get("SQ_LDS_BANK_CONFLICT"), None),
    }
    for quantity, (hardware, known) in expected.items():
        if hardware is not None:
            rows.append(Comparison(launch.name, quantity, hardware / waves, known, "emulated"))
    return rows


def beside_compiled(kernels: Sequence[KernelCounters], compiled: Any) -> list[Comparison]:
    """An ncu profile beside what is known of a `CompiledPlan`: grid, registers, shared memory, the least it reads."""
    rows = []
    for launch, kernel in zip(compiled.plan.launches, compiled.kernels, strict=True):
        programs = math.prod(launch.grid)
        profiled = _of_launch(kernels, launch.name, programs)
        if profiled is None:
            continue
        reads = {value.buffer for _, value in launch.args if hasattr(value, "buffer")}
        inputs = [b.nbytes for b in compiled.plan.buffers if b.role == "input" and b.name in reads]
        known = {
            "programs": ("launch__grid_size", programs),
            "registers": ("launch__registers_per_thread", kernel.resources.vgprs),
            "shared_bytes": ("launch__shared_mem_per_block_dynamic", kernel.lds_bytes),
            "least_read_bytes": ("dram__bytes_read.sum", sum(inputs)),
        }
        for quantity, (metric, expected) in known.items():
            if metric in profiled.counters:
                rows.append(Comparison(launch.name, quantity, profiled.counters[metric], float(expected), "compiled"))
    return rows


def base_name(name: str) -> str:
    """A kernel's bare name: without a signature, a template's arguments or a suffix such as ``.kd``."""
    return re.split(r"[(<]", name.strip().removesuffix(".kd"))[0].strip().split(" ")[-1]


def _of_launch(kernels: Sequence[KernelCounters], name: str, programs: int) -> KernelCounters | None:
    """The profiled kernel of that name, best with that many workgroups."""
    found = [kernel for kernel in kernels if base_name(kernel.name) == name]
    return next((kernel for kernel in found if kernel.programs == programs), found[0] if found else None)


def stalls(kernel: KernelCounters) -> dict[str, float]:
    """ncu's stall reasons: cycles a warp waits per issued instruction, largest first."""
    found = {}
    for metric, value in kernel.counters.items():
        match = re.fullmatch(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio", metric)
        if match and "not_issued" not in match.group(1):
            found[match.group(1)] = value
    return dict(sorted(found.items(), key=lambda item: -item[1]))
