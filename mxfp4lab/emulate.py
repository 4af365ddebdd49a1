"""Whole plans on the emulator: run every launch on the plan's buffers, or count one workgroup of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from mxfp4lab.display import Grid, Shown, badge
from mxfp4lab.gfx950 import (
    Access,
    CompiledPlan,
    EmulationError,
    Memory,
    Pointer,
    RunResult,
    compile_plan,
    launch,
)
from mxfp4lab.records import Counts, LaunchCounts

SHOWN_FINDINGS = 10
# Memory that nobody initialised holds NaN in bf16, f32 and e8m0: whatever depends on it shows.
UNINITIALISED = 0xFF


@dataclass
class Emulation(Shown):
    """A plan that was executed.

    Attributes:
        c: [M, N] torch tensor, the rows of the output buffer that are C.
        buffers: every buffer of the plan afterwards, by name, as torch tensors.
        launches: one result per launch of the last call.
        emulate_s: wall seconds of all launches (of the emulator, not of a GPU).
        lane_instructions: over all launches.
        findings: what was recorded instead of raised.
    """

    c: torch.Tensor
    buffers: dict[str, torch.Tensor]
    launches: list[RunResult]
    emulate_s: float
    lane_instructions: int
    findings: list[EmulationError]

    @property
    def title(self) -> str:
        return f"Emulated: C {list(self.c.shape)}, no time"

    def lines(self) -> Iterator[Any]:
        """The launches, and each finding once."""
        headers = ("kernel", "workgroups", "waves each", "wave instructions", "lane instructions", "findings")
        rows = [
            [r.name, r.workgroups, r.waves_per_workgroup, r.wave_instructions, r.lane_instructions, len(r.findings)]
            for r in self.launches
        ]
        yield Grid(headers, rows)
        yield "evidence", badge("emulated", "emulated")
        said = list(dict.fromkeys(map(str, self.findings)))
        yield "findings", badge(len(said), "bad") if said else badge("none", "good")
        yield from said[:SHOWN_FINDINGS]
        if len(said) > SHOWN_FINDINGS:
            yield f"and {len(said) - SHOWN_FINDINGS} more"


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
        modes: options of `gfx950.launch`: count, races.

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
    from mxfp4lab.plan import TORCH_NAMES

    compiled = _compiled(plan)
    plan = compiled.plan
    dtypes = {spec.name: getattr(torch, TORCH_NAMES[spec.dtype]) for spec in plan.buffers}
    tensors = {spec.name: torch.empty(spec.shape, dtype=dtypes[spec.name]) for spec in plan.buffers}
    memory = Memory(on_out_of_bounds)
    for spec in plan.buffers:
        _fill(tensors[spec.name], spec, inputs)
        memory.add(spec.name, _bytes(tensors[spec.name]))
    every: list[RunResult] = []
    for call in range(calls):
        for spec, buffer in zip(plan.buffers, memory.buffers, strict=True):
            if call and spec.role == "output":
                _fill(tensors[spec.name], spec, inputs)
                buffer.bytes[: spec.nbytes] = _bytes(tensors[spec.name])
        for position, (entry, kernel) in enumerate(zip(plan.launches, compiled.kernels, strict=True)):
            chosen = workgroups.get(position) if isinstance(workgroups, Mapping) else workgroups
            every.append(_launch(entry, kernel, memory, workgroups=chosen, **modes))
    for buffer in memory.buffers:
        buffer.sync()
    return Emulation(
        tensors[plan.output][: plan.output_rows], tensors, every[-len(plan.launches) :],
        sum(result.seconds for result in every), sum(result.lane_instructions for result in every),
        [finding for result in every for finding in result.findings],
    )  # fmt: skip


def count_plan(plan: Any) -> Counts:
    """Dynamic counts of one workgroup of every launch of a plan, on zeros: milliseconds to tenths of a second.

    The workgroup is the first one; control flow that depends on data takes the way of zeros. Where workgroups wait for
    each other, the others have done their part before: what it waits then is round trips, not other people's work.

    Args:
        plan: a `Plan` (compiled here) or a `CompiledPlan`.

    Returns:
        `records.Counts`, evidence `emulated`: the machine code was executed.
    """
    compiled = _compiled(plan)
    plan = compiled.plan
    launches = tuple(_launch_counts(*found) for found in _one_workgroup_each(compiled))
    split = int(getattr(plan.config, "split_k", 1) or 1)
    partial = sum(spec.nbytes for spec in plan.buffers if spec.role == "workspace" and spec.dtype == "f32")
    return Counts(plan.shape, launches, split, partial if len(launches) > 1 and split > 1 else 0)


def bank_conflicts(plan: Any) -> list[tuple[str, int, int]]:
    """LDS passes of one workgroup of every launch, on zeros: (kernel, passes, passes without bank conflicts).

    A pass delivers one dword from each of the 64 banks (`machine.counts` says what is assumed).
    """
    found = [(entry.name, result.counts) for entry, _, result, _ in _one_workgroup_each(_compiled(plan), count=True)]
    return [(name, *(c.total("lds", what=what) for what in ("lds_cycles", "lds_ideal"))) for name, c in found]


def _one_workgroup_each(compiled: CompiledPlan, **modes: Any) -> Iterator[tuple[Any, Any, RunResult, _Segments]]:
    """Run workgroup 0 of every launch on zeros: (launch, kernel, result, segments touched)."""
    memory = Memory()
    for spec in compiled.plan.buffers:
        memory.add(spec.name, np.zeros(-(-max(spec.nbytes, 1) // 16) * 16, np.uint8))
    for entry, kernel in zip(compiled.plan.launches, compiled.kernels, strict=True):
        if getattr(entry, "peer_stride", 0):
            _launch(entry, kernel, memory, workgroups=range(0, entry.grid[0], entry.peer_stride))
        segments = _Segments()
        memory.observer.hooks.append(segments)
        result = _launch(entry, kernel, memory, workgroups=[0], **modes)
        memory.observer.hooks.remove(segments)
        yield entry, kernel, result, segments


def _launch_counts(entry: Any, kernel: Any, result: RunResult, segments: _Segments) -> LaunchCounts:
    """`valu_per_wave` holds scaled conversions too (they issue on the same unit); `scalar_per_wave` is scalar ALU,
    scalar loads and branches, without waits and no-ops. `load_bytes_per_workgroup` counts every 64-byte segment that
    the workgroup touches once, however many of its waves read it.
    """
    waves = result.waves_per_workgroup

    def per_wave(*names: str) -> float:
        return sum(result.by_class.get(name, 0) for name in names) / waves

    def of_size(size: str) -> float:
        return sum(n for at, n in result.executed.items() if size in kernel.program[at].mnemonic) / waves

    resources = asdict(kernel.resources)
    del resources["spilled_sgprs"]
    return LaunchCounts(
        name=entry.name,
        workgroups=math.prod(entry.grid),
        waves_per_workgroup=waves,
        valu_per_wave=per_wave("valu", "convert"),
        mfma16_per_wave=of_size("16x16x128"),
        mfma32_per_wave=of_size("32x32x64"),
        scalar_per_wave=per_wave("salu", "smem", "branch"),
        barriers_per_wave=per_wave("barrier"),
        mfma_per_wave=per_wave("mfma"),
        convert_per_wave=per_wave("convert"),
        vmem_per_wave=per_wave("vmem"),
        lds_per_wave=per_wave("lds"),
        scratch_per_wave=per_wave("scratch"),
        load_bytes_per_workgroup=segments.bytes("load"),
        store_bytes_per_workgroup=segments.bytes("store"),
        **resources,
        waits_for_peers=int(bool(getattr(entry, "peer_stride", 0))),
    )


class _Segments:
    """A hook that marks the 64-byte segments of each buffer that loads and stores touch."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], np.ndarray] = {}

    def __call__(self, access: Access) -> None:
        buffer = access.buffer
        if buffer is None or buffer.name in ("kernel arguments", "dispatch packet"):
            return
        key = (buffer.name, "load" if access.kind == "load" else "store")
        marks = self._marks.setdefault(key, np.zeros(buffer.nbytes // 64 + 1, bool))
        offsets = access.offsets if access.mask is None else access.offsets[access.mask]
        marks[offsets >> 6] = True
        marks[(offsets + access.nbytes - 1) >> 6] = True

    def bytes(self, kind: str) -> float:
        """64 per segment touched by accesses of that kind."""
        return 64.0 * sum(int(np.count_nonzero(marks)) for (_, k), marks in self._marks.items() if k == kind)


def _compiled(plan: Any) -> CompiledPlan:
    return plan if hasattr(plan, "kernels") else compile_plan(plan, "gfx950")


def _launch(entry: Any, kernel: Any, memory: Memory, **modes: Any) -> RunResult:
    """One launch of a plan; pointers go by buffer name."""
    bases = {buffer.name: buffer.base for buffer in memory.buffers}

    def value(given: Any) -> Any:
        return Pointer(bases[given.buffer]) if hasattr(given, "buffer") else given

    if hasattr(entry, "code_object"):
        layout = [(offset, size) for offset, size, _ in entry.args]
        arguments = [value(given) for _, _, given in entry.args]
        return launch(kernel, entry.grid, arguments, memory, layout=layout, block=entry.block, **modes)
    given = dict(entry.args)
    missing = [name for name, _ in kernel.signature if name not in given]
    if missing:
        raise ValueError(f"plan: launch {entry.name} has no value for {missing}")
    return launch(kernel, entry.grid, [value(given[name]) for name, _ in kernel.signature], memory, **modes)


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    return tensor.view(-1).view(torch.uint8).numpy()


def _fill(tensor: torch.Tensor, spec: Any, inputs: Mapping[str, Any]) -> None:
    """What a buffer holds before a launch."""
    if spec.role == "input":
        _bytes(tensor)[...] = _given(inputs, spec)
    elif spec.fill is not None:
        tensor.fill_(spec.fill)
    else:
        _bytes(tensor)[...] = UNINITIALISED


def _given(inputs: Mapping[str, Any], spec: Any) -> np.ndarray:
    """The bytes that the caller gives for an input buffer."""
    if spec.name not in inputs:
        raise ValueError(f"inputs: {spec.name!r} is missing; given: {sorted(inputs)}")
    value = inputs[spec.name]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    elif not isinstance(value, torch.Tensor) or value.is_meta or value.layout != torch.strided:
        what = type(value).__name__
        raise ValueError(f"inputs: {spec.name!r} is a {what} without plain contents; allowed: tensors")
    elif spec.dtype == "bf16" and value.is_floating_point() and value.dtype != torch.bfloat16:
        raise ValueError(f"inputs: {spec.name!r} is {value.dtype}; the plan's buffer holds bf16")
    else:
        raw = value.detach().cpu().contiguous().view(torch.uint8).reshape(-1).numpy()
    if raw.nbytes != spec.nbytes:
        raise ValueError(f"inputs: {spec.name!r} has {raw.nbytes} bytes; the plan's buffer has {spec.nbytes}")
    return raw
