"""Whole plans on the emulator: run every launch on the plan's buffers, or count one workgroup of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mxfp4lab import display
from mxfp4lab.gfx950 import Access, EmulationError, Memory, Pointer, RunResult, launch
from mxfp4lab.gfx950.machine.memory import Buffer

if TYPE_CHECKING:
    from mxfp4lab.records import Counts, LaunchCounts

DTYPES = {"bf16": np.uint16, "u8": np.uint8, "f32": np.float32, "i32": np.int32}
EMULATION_HEADERS = ("kernel", "workgroups", "waves each", "wave instructions", "lane instructions", "findings")
SHOWN_FINDINGS = 10
# Memory that nobody initialised holds NaN in bf16, f32 and e8m0: whatever depends on it shows.
UNINITIALISED = 0xFF


@dataclass
class Emulation:
    """A plan that was executed.

    Attributes:
        c: [M, N] torch tensor, the rows of the output buffer that are C.
        buffers: every buffer of the plan afterwards, by name, as torch tensors.
        launches: one result per launch of the last call.
        emulate_s: wall seconds of all launches (of the emulator, not of a GPU).
        lane_instructions: over all launches.
        findings: what was recorded instead of raised.
    """

    c: Any
    buffers: dict[str, Any]
    launches: list[RunResult]
    emulate_s: float
    lane_instructions: int
    findings: list[EmulationError] = field(default_factory=list)

    def rows(self) -> list[list[Any]]:
        """A row per launch, under `EMULATION_HEADERS`."""
        return [
            [r.name, r.workgroups, r.waves_per_workgroup, r.wave_instructions, r.lane_instructions, len(r.findings)]
            for r in self.launches
        ]

    def _said(self) -> list[str]:
        """Findings in words, each once."""
        shown = list(dict.fromkeys(map(str, self.findings)))
        more = len(shown) - SHOWN_FINDINGS
        return shown[:SHOWN_FINDINGS] + ([f"and {more} more"] if more > 0 else [])

    def __str__(self) -> str:
        table = display.text_table(EMULATION_HEADERS, self.rows())
        findings = "\n".join(["findings: none"] if not self.findings else ["findings:", *self._said()])
        return f"Emulated: C {list(self.c.shape)}, no time\n{table}\n{findings}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        word = display.badge("no findings", "good")
        if self.findings:
            word = display.badge(f"{len(self.findings)} findings", "bad")
        marks = f"{display.badge('emulated', 'emulated')} {word}"
        marks += "".join(f"<div>{display.escape(text)}</div>" for text in self._said())
        body = display.table(EMULATION_HEADERS, self.rows())
        title = f"Emulated: C {list(self.c.shape)}, no time"
        return display.card(title, f'{body}<div style="margin-top:6px">{marks}</div>')


def emulate_plan(
    plan: Any,
    inputs: Mapping[str, Any],
    workgroups: Iterable[int] | Mapping[int, Iterable[int]] | None = None,
    *,
    calls: int = 1,
    on_out_of_bounds: str = "raise",
    **modes: Any,
) -> Emulation:
    """Execute a plan's machine code on the CPU.

    Args:
        plan: a `Plan` (compiled here) or a `CompiledPlan`.
        inputs: tensors by buffer name; they are not written to.
        workgroups: linear ids to run of every launch, or of the launches named by position; all by default.
        calls: how often the launches run in a row on the same workspaces, as repeated calls of a submission do.
        on_out_of_bounds: "raise" or "record" (see `Memory`).
        modes: count, poison, races: as in `run`.

    Returns:
        The result; C of the last call.

    Raises:
        ValueError: an input is missing or has another size than its buffer.
        EmulationError: the machine code did what the emulator refuses to go on from.
    """
    if isinstance(calls, bool) or not isinstance(calls, int) or calls < 1:
        raise ValueError(f"calls={calls!r}: allowed: a whole number from 1")
    if not isinstance(inputs, Mapping):
        raise ValueError(f"inputs: a {type(inputs).__name__}; allowed: a mapping of buffer names to tensors")
    compiled = _compiled(plan)
    plan = compiled.plan
    memory = Memory(on_out_of_bounds)
    buffers = {b.name: _place(memory, b, inputs) for b in plan.buffers}
    results: list[RunResult] = []
    seconds, lanes = 0.0, 0
    for call in range(calls):
        if call:
            for spec in plan.buffers:
                if spec.role == "output":
                    _fill(buffers[spec.name].bytes, spec)
        results = []
        for position, (entry, kernel) in enumerate(zip(plan.launches, compiled.kernels, strict=True)):
            chosen = workgroups.get(position) if isinstance(workgroups, Mapping) else workgroups
            result = _launch(entry, kernel, buffers, memory, workgroups=chosen, **modes)
            results.append(result)
            seconds += result.seconds
            lanes += result.lane_instructions
    tensors = {b.name: _tensor(buffers[b.name], b) for b in plan.buffers}
    findings = [finding for result in results for finding in result.findings]
    return Emulation(tensors[plan.output][: plan.output_rows], tensors, results, seconds, lanes, findings)


def count_plan(plan: Any) -> Counts:
    """Dynamic counts of one workgroup of every launch of a plan, on zeros: milliseconds to tenths of a second.

    The workgroup is the first one; control flow that depends on data takes the way of zeros. Where workgroups wait for
    each other, the others have done their part before: what it waits then is round trips, not other people's work.

    Args:
        plan: a `Plan` (compiled here) or a `CompiledPlan`.

    Returns:
        `records.Counts`, evidence `emulated`: the machine code was executed.
    """
    from mxfp4lab.records import Counts

    compiled = _compiled(plan)
    plan = compiled.plan
    memory = Memory()
    buffers = {b.name: memory.add(b.name, np.zeros(_padded(b), np.uint8)) for b in plan.buffers}
    launches = []
    for entry, kernel in zip(plan.launches, compiled.kernels, strict=True):
        if getattr(entry, "peer_stride", 0):
            _launch(entry, kernel, buffers, memory, workgroups=range(0, entry.grid[0], entry.peer_stride))
        traffic = SegmentCounter()
        memory.observer.hooks.append(traffic)
        trace: list[tuple[int, int]] = []
        result = _launch(entry, kernel, buffers, memory, workgroups=[0], trace=trace)
        memory.observer.hooks.remove(traffic)
        launches.append(launch_counts(entry, kernel, result, traffic, trace))
    config = plan.config
    partial = sum(b.nbytes for b in plan.buffers if b.role == "workspace" and b.dtype == "f32")
    split = int(getattr(config, "split_k", 1) or 1)
    return Counts(plan.shape, tuple(launches), split, partial if len(plan.launches) > 1 and split > 1 else 0)


def launch_counts(entry: Any, kernel: Any, result: RunResult, traffic: SegmentCounter, trace) -> LaunchCounts:
    """`records.LaunchCounts` of a launch of which one workgroup ran.

    `valu_per_wave` holds scaled conversions too (they issue on the same unit); `scalar_per_wave` is scalar ALU, scalar
    loads and branches, without waits and no-ops. `load_bytes_per_workgroup` counts every 64-byte segment that the
    workgroup touches once, however many of its waves read it.
    """
    from mxfp4lab.gfx950 import exposed_waits
    from mxfp4lab.records import LaunchCounts

    waves = result.workgroups * result.waves_per_workgroup
    program = kernel.program
    resources = kernel.resources
    by_class = result.by_class
    mfma = {"16x16x128": 0, "32x32x64": 0}
    for position, times in result.executed.items():
        for size in mfma:
            if size in program[position].mnemonic:
                mfma[size] += times

    def per_wave(*names: str) -> float:
        return sum(by_class.get(name, 0) for name in names) / waves

    ordered = (position for first, end in trace for position in range(first, end))
    grid = entry.grid
    return LaunchCounts(
        name=entry.name,
        workgroups=grid[0] * grid[1] * grid[2],
        waves_per_workgroup=result.waves_per_workgroup,
        valu_per_wave=per_wave("valu", "convert"),
        mfma_per_wave=per_wave("mfma"),
        mfma16_per_wave=mfma["16x16x128"] / waves,
        mfma32_per_wave=mfma["32x32x64"] / waves,
        convert_per_wave=per_wave("convert"),
        vmem_per_wave=per_wave("vmem"),
        lds_per_wave=per_wave("lds"),
        scratch_per_wave=per_wave("scratch"),
        scalar_per_wave=per_wave("salu", "smem", "branch"),
        barriers_per_wave=per_wave("barrier"),
        exposed_waits_per_wave=exposed_waits(program, ordered),
        load_bytes_per_workgroup=traffic.bytes("load") / result.workgroups,
        store_bytes_per_workgroup=traffic.bytes("store") / result.workgroups,
        vgprs=resources.vgprs,
        agprs=resources.agprs,
        sgprs=resources.sgprs,
        spilled_vgprs=resources.spilled_vgprs,
        scratch_bytes=resources.scratch_bytes,
        lds_bytes=resources.lds_bytes,
        occupancy_waves_per_simd=resources.occupancy_waves_per_simd,
        waits_for_peers=int(bool(getattr(entry, "peer_stride", 0))),
    )


class SegmentCounter:
    """A hook that marks the 64-byte segments of each buffer that loads and stores touch."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], np.ndarray] = {}

    def __call__(self, access: Access) -> None:
        if (
            access.buffer is None
            or access.space not in ("global", "scalar")
            or access.buffer.name in ("kernel arguments", "dispatch packet")
        ):
            return
        kind = "load" if access.kind == "load" else "store"
        key = (access.buffer.name, kind)
        if key not in self._marks:
            self._marks[key] = np.zeros(access.buffer.nbytes // 64 + 1, bool)
        offsets = access.offsets if access.mask is None else access.offsets[access.mask]
        marks = self._marks[key]
        marks[offsets >> 6] = True
        marks[(offsets + access.nbytes - 1) >> 6] = True

    def bytes(self, kind: str) -> int:
        """64 per segment touched by accesses of that kind."""
        return 64 * sum(int(np.count_nonzero(m)) for (_, k), m in self._marks.items() if k == kind)


def _compiled(plan: Any) -> Any:
    if hasattr(plan, "kernels"):
        return plan
    from mxfp4lab.gfx950 import compile_plan

    return compile_plan(plan, "gfx950")


def _launch(entry: Any, kernel: Any, buffers: Mapping[str, Buffer], memory: Memory, **modes: Any) -> RunResult:
    """One launch of a plan; pointers go by buffer name."""

    def value(given: Any) -> Any:
        return Pointer(buffers[given.buffer].base) if hasattr(given, "buffer") else given

    if hasattr(entry, "code_object"):
        layout = [(offset, size) for offset, size, _ in entry.args]
        arguments = [value(given) for _, _, given in entry.args]
        return launch(kernel, entry.grid, arguments, memory, layout=layout, block=entry.block, **modes)
    given = dict(entry.args)
    missing = [name for name, _ in kernel.signature if name not in given]
    if missing:
        raise ValueError(f"plan: launch {entry.name} has no value for {missing}")
    return launch(kernel, entry.grid, [value(given[name]) for name, _ in kernel.signature], memory, **modes)


def _padded(spec: Any) -> int:
    return -(-max(spec.nbytes, 1) // 16) * 16


def _place(memory: Memory, spec: Any, inputs: Mapping[str, Any]) -> Buffer:
    if spec.role != "input":
        data = np.empty(spec.nbytes, np.uint8)
        buffer = memory.add(spec.name, data, initialised=spec.fill is not None)
        _fill(buffer.bytes, spec)
        return buffer
    if spec.name not in inputs:
        raise ValueError(f"inputs: {spec.name!r} is missing; given: {sorted(inputs)}")
    raw = _raw_bytes(inputs[spec.name], spec)
    if raw.nbytes != spec.nbytes:
        raise ValueError(f"inputs: {spec.name!r} has {raw.nbytes} bytes; the plan's buffer has {spec.nbytes}")
    return memory.add(spec.name, raw.copy())


def _raw_bytes(value: Any, spec: Any) -> np.ndarray:
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    import torch

    if not isinstance(value, torch.Tensor) or value.is_meta or value.layout != torch.strided:
        raise ValueError(f"inputs: {spec.name!r} is a {type(value).__name__} without plain contents; allowed: tensors")
    if spec.dtype == "bf16" and value.is_floating_point() and value.dtype != torch.bfloat16:
        raise ValueError(f"inputs: {spec.name!r} is {value.dtype}; the plan's buffer holds bf16")
    return value.detach().cpu().contiguous().view(torch.uint8).reshape(-1).numpy()


def _fill(data: np.ndarray, spec: Any) -> None:
    if spec.fill is None:
        data[...] = UNINITIALISED
    elif spec.fill == 0:
        data[...] = 0
    else:
        if spec.dtype == "bf16":
            element = np.array(np.float32(spec.fill)).view(np.uint32) >> np.uint32(16)
        else:
            element = np.array(spec.fill)
        whole = np.full(spec.elements, element, DTYPES[spec.dtype]).view(np.uint8)
        data[: whole.nbytes] = whole


def _tensor(buffer: Buffer, spec: Any) -> Any:
    import torch

    dtype = {"bf16": torch.bfloat16, "u8": torch.uint8, "f32": torch.float32, "i32": torch.int32}[spec.dtype]
    raw = torch.from_numpy(buffer.bytes[: spec.nbytes])
    return raw.view(dtype).reshape(spec.shape)
