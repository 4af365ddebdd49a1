"""Hardware counters beside what was known without the GPU: rocprofv3's CSV beside emulated counts, ncu's beside the
compiled kernel.

rocprofv3 (``rocprofv3 --pmc SQ_WAVES SQ_INSTS_VALU ... --output-format csv -- python ...``) writes one row per dispatch
and counter to ``*_counter_collection.csv``. ncu (``ncu --csv --page raw`` or ``--page details``) writes one row per
kernel, or one per metric. Formats as the tools' public documentation shows them. The rocprofv3 half has been tested on
sample files only, not on an MI355X; the ncu half on files from an H200.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from mxfp4lab import display
from mxfp4lab.paths import read_bounded
from mxfp4lab.records import Counts, LaunchCounts

ROCPROF_COLUMNS = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value")
ROCPROF_RESOURCES = (
    "Grid_Size", "Workgroup_Size", "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count",
)  # fmt: skip
MAX_FILE_BYTES = 256 << 20
ROCPROF_COUNTERS = (
    "SQ_WAVES SQ_INSTS_VALU SQ_INSTS_MFMA SQ_INSTS_VMEM SQ_INSTS_LDS SQ_INSTS_SALU SQ_INSTS_SMEM SQ_LDS_BANK_CONFLICT"
)
"""What to ask rocprofv3 for: eight SQ counters, one pass."""


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
        resources: registers, LDS and grid as the tool says them.
    """

    tool: str
    name: str
    programs: int | None
    dispatches: int
    counters: Mapping[str, float]
    duration_us: float | None = None
    resources: Mapping[str, float] = field(default_factory=dict)


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
        if self.expected is None or not self.expected:
            return None
        return self.hardware / self.expected


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
    # ncu prints progress lines beside its CSV, which begins with a quote.
    rows = list(csv.reader(io.StringIO("\n".join(line for line in text.splitlines() if line.startswith('"')))))
    if not rows:
        rows = list(csv.reader(io.StringIO(text)))
    rows = [row for row in rows if row]
    header = rows[0] if rows else []
    if set(ROCPROF_COLUMNS) <= set(header):
        # Only the header and names are quoted by rocprofv3: its rows begin with a number.
        return _rocprof(list(csv.DictReader(io.StringIO(text[text.index('"') if '"' in header[0] else 0 :]))))
    if {"Kernel Name", "Metric Name", "Metric Value"} <= set(header):
        return _ncu_details([dict(zip(header, row, strict=False)) for row in rows[1:]])
    if "Kernel Name" in header and any("__" in name for name in header):
        return _ncu_raw(header, rows[1:])
    raise ValueError(
        f"{where} is no counter file: neither rocprofv3's (columns {', '.join(ROCPROF_COLUMNS)}) nor ncu's "
        "(--csv --page raw or details)"
    )


@dataclass(frozen=True)
class CounterReport:
    """A profile, and what was expected of it: for a notebook's cell or a terminal.

    Attributes:
        kernels: of the profile.
        rows: their counters beside what was known without the GPU; empty without a plan.
    """

    kernels: tuple[KernelCounters, ...]
    rows: tuple[Comparison, ...] = ()

    KERNELS = ("kernel", "programs", "dispatches", "us (profiled)", "counters", "stalls per issue")
    ROWS = ("kernel", "quantity", "hardware", "expected", "ratio", "from")
    SHOWN_STALLS = 5

    def kernel_cells(self) -> list[tuple[object, ...]]:
        """A row per profiled kernel, as `KERNELS` heads it."""
        cells = []
        for kernel in self.kernels:
            top = ", ".join(f"{name} {value:.2f}" for name, value in list(stalls(kernel).items())[: self.SHOWN_STALLS])
            programs = "" if kernel.programs is None else kernel.programs
            duration = "" if kernel.duration_us is None else f"{kernel.duration_us:.2f}"
            cells.append((base_name(kernel.name), programs, kernel.dispatches, duration, len(kernel.counters), top))
        return cells

    def row_cells(self) -> list[tuple[object, ...]]:
        """A row per compared quantity, as `ROWS` heads it."""
        return [
            (row.kernel, row.quantity, f"{row.hardware:.6g}", "" if row.expected is None else f"{row.expected:.6g}",
             "" if row.ratio is None else f"{row.ratio:.3f}", row.source)
            for row in self.rows
        ]  # fmt: skip

    def __str__(self) -> str:
        tables = [display.text_table(self.KERNELS, self.kernel_cells())]
        if self.rows:
            tables.append(display.text_table(self.ROWS, self.row_cells()))
        return "\n\n".join(tables)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = display.table(self.KERNELS, self.kernel_cells())
        if self.rows:
            body += '<div style="height:8px"></div>' + display.table(self.ROWS, self.row_cells())
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
    from mxfp4lab.gfx950 import compile_plan

    tool = kernels[0].tool if kernels else ""
    if (tool == "ncu") != plan.arch.startswith("sm_"):
        raise ValueError(f"{path} was written by {tool}, and the plan is for {plan.arch}: they do not belong together")
    compiled = compile_plan(plan)
    if tool == "rocprofv3":
        from mxfp4lab.emulate import count_plan

        return CounterReport(tuple(kernels), tuple(beside_emulation(kernels, count_plan(compiled))))
    return CounterReport(tuple(kernels), tuple(beside_compiled(kernels, _expected(compiled))))


def _expected(compiled: Any) -> dict[str, dict[str, float]]:
    """What `beside_compiled` takes, of a compiled plan."""
    expected = {}
    for launch, kernel in zip(compiled.plan.launches, compiled.kernels, strict=True):
        reads = {value.buffer for _, value in launch.args if hasattr(value, "buffer")}
        inputs = [buffer for buffer in compiled.plan.buffers if buffer.role == "input" and buffer.name in reads]
        expected[launch.name] = {
            "programs": float(math.prod(launch.grid)), "registers": float(kernel.resources.vgprs),
            "shared_bytes": float(kernel.lds_bytes),
            "least_read_bytes": float(sum(buffer.nbytes for buffer in inputs)),
        }  # fmt: skip
    return expected


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


def beside_compiled(kernels: Sequence[KernelCounters], expected: Mapping[str, Mapping[str, float]]) -> list[Comparison]:
    """An ncu profile beside what is known of the compiled kernels.

    Args:
        kernels: from `read_counters`.
        expected: kernel name -> {"programs", "registers", "shared_bytes", "least_read_bytes"}.
    """
    names = {
        "programs": "launch__grid_size", "registers": "launch__registers_per_thread",
        "shared_bytes": "launch__shared_mem_per_block_dynamic", "least_read_bytes": "dram__bytes_read.sum",
    }  # fmt: skip
    rows = []
    for name, known in expected.items():
        kernel = _of_launch(kernels, name, int(known["programs"]))
        for quantity, metric in names.items():
            if kernel is not None and quantity in known and metric in kernel.counters:
                rows.append(Comparison(name, quantity, kernel.counters[metric], known[quantity], "compiled"))
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


def _per_wave(kernel: KernelCounters, launch: LaunchCounts) -> list[Comparison]:
    values = kernel.counters
    waves = values.get("SQ_WAVES")
    rows = []
    if waves is not None:
        expected = float(launch.workgroups * launch.waves_per_workgroup)
        rows.append(Comparison(launch.name, "waves", waves, expected, "emulated"))
    # Counters of another pass come without SQ_WAVES; the plan knows how many waves there are.
    waves = waves or float(launch.workgroups * launch.waves_per_workgroup)

    def add(quantity: str, hardware: float | None, expected: float | None) -> None:
        if hardware is not None:
            rows.append(Comparison(launch.name, quantity, hardware / waves, expected, "emulated"))

    mfma = values.get("SQ_INSTS_MFMA", values.get("SQ_INSTS_VALU_MFMA"))
    valu = values.get("SQ_INSTS_VALU")
    if valu is not None and (mfma is not None or launch.mfma_per_wave == 0):
        add("VALU per wave", valu - (mfma or 0.0), launch.valu_per_wave)
    add("MFMA per wave", mfma, launch.mfma_per_wave)
    add("VMEM per wave", values.get("SQ_INSTS_VMEM"), launch.vmem_per_wave + launch.scratch_per_wave)
    add("LDS per wave", values.get("SQ_INSTS_LDS"), launch.lds_per_wave)
    if "SQ_INSTS_SALU" in values and "SQ_INSTS_SMEM" in values:
        add("scalar per wave", values["SQ_INSTS_SALU"] + values["SQ_INSTS_SMEM"], launch.scalar_per_wave)
    add("LDS conflict cycles per wave", values.get("SQ_LDS_BANK_CONFLICT"), None)
    return rows


@dataclass
class _Group:
    """What is gathered of one kernel at one grid size."""

    tool: str
    name: str
    programs: int | None
    counters: dict[str, dict[str, float]] = field(default_factory=dict)  # dispatch -> counter -> value
    durations: dict[str, float] = field(default_factory=dict)
    resources: dict[str, float] = field(default_factory=dict)

    def result(self) -> KernelCounters:
        dispatches = list(self.counters.values())
        names = dict.fromkeys(counter for found in dispatches for counter in found)
        counters = {counter: median(found[counter] for found in dispatches if counter in found) for counter in names}
        duration = median(self.durations.values()) if self.durations else None
        if duration is None and "gpu__time_duration.sum" in counters:
            duration = counters["gpu__time_duration.sum"] / 1e3  # ns after `_scale`
        return KernelCounters(self.tool, self.name, self.programs, len(dispatches), counters, duration, self.resources)


def _rocprof(rows: Iterable[Mapping[str, str]]) -> list[KernelCounters]:
    groups: dict[tuple[str, int | None], _Group] = {}
    for row in rows:
        value = _number(row.get("Counter_Value"))
        if value is None:
            continue
        sizes = {name: _number(row.get(name)) for name in ROCPROF_RESOURCES}
        items, group_size = sizes["Grid_Size"], sizes["Workgroup_Size"]
        programs = round(items / group_size) if items and group_size else None
        key = (row["Kernel_Name"], programs)
        group = groups.setdefault(key, _Group("rocprofv3", *key))
        group.resources |= {name: size for name, size in sizes.items() if size is not None}
        dispatch, counter = row["Dispatch_Id"], row["Counter_Name"]
        # One row per counter and dispatch; a counter that comes once per hardware instance is summed.
        found = group.counters.setdefault(dispatch, {})
        found[counter] = found.get(counter, 0.0) + value
        start, end = _number(row.get("Start_Timestamp")), _number(row.get("End_Timestamp"))
        if start is not None and end is not None and end > start:
            group.durations[dispatch] = (end - start) / 1e3
    return [group.result() for group in groups.values()]


def _ncu_details(rows: Iterable[Mapping[str, str]]) -> list[KernelCounters]:
    groups: dict[tuple[str, int | None], _Group] = {}
    for row in rows:
        value = _number(row.get("Metric Value"))
        if value is not None:
            key = (row["Kernel Name"], _programs(row.get("Grid Size")))
            found = groups.setdefault(key, _Group("ncu", *key)).counters.setdefault(row.get("ID", "0"), {})
            found[row["Metric Name"]] = value * _scale(row.get("Metric Unit", ""))
    return [group.result() for group in groups.values()]


def _ncu_raw(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[KernelCounters]:
    units = dict(zip(header, rows[0], strict=False)) if rows and not rows[0][0].strip() else {}
    groups: dict[tuple[str, int | None], _Group] = {}
    for row in rows[1:] if units else rows:
        fields = dict(zip(header, row, strict=False))
        key = (fields["Kernel Name"], _programs(fields.get("Grid Size")))
        group = groups.setdefault(key, _Group("ncu", *key))
        values = group.counters.setdefault(str(len(group.counters)), {})
        for name, text in fields.items():
            number = _number(text) if "__" in name else None
            if number is not None:
                values[name] = number * _scale(units.get(name, ""))
    return [group.result() for group in groups.values()]


def _programs(grid: str | None) -> int | None:
    """Workgroups in a grid that ncu prints as "(33, 4, 1)"."""
    sizes = re.findall(r"\d+", grid or "")
    return math.prod(map(int, sizes)) if len(sizes) == 3 else None


# ncu prints large values in larger units; times become ns, sizes bytes, frequencies Hz.
_UNITS = {
    "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9, "kbyte": 1e3, "mbyte": 1e6,
    "gbyte": 1e9, "kbyte/block": 1e3, "byte/block": 1.0, "mhz": 1e6, "ghz": 1e9,
}  # fmt: skip


def _scale(unit: str) -> float:
    return _UNITS.get(unit.strip().lower(), 1.0)


def _number(text: str | None) -> float | None:
    """A number as the tools print it: thousands separated by commas, maybe quoted; None for anything else."""
    if text is None:
        return None
    try:
        value = float(text.replace(",", "").strip())
    except ValueError:
        return None
    return value if math.isfinite(value) else None
