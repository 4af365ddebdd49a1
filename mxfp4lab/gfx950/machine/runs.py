"""Launch a compiled kernel on the emulator: initial registers, checks, chunks of workgroups, results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mxfp4lab.gfx950.isa import KernelDescriptor, Program, classify
from mxfp4lab.gfx950.machine.arguments import bind_arguments, dispatch_packet, kernel_arguments
from mxfp4lab.gfx950.machine.asserts import failure, without_calls
from mxfp4lab.gfx950.machine.counts import AccessCounter
from mxfp4lab.gfx950.machine.decode import decode
from mxfp4lab.gfx950.machine.errors import EmulationError
from mxfp4lab.gfx950.machine.executor import MAX_BLOCKS, Executor
from mxfp4lab.gfx950.machine.memory import Access, Buffer, Memory
from mxfp4lab.gfx950.machine.operands import Decoder
from mxfp4lab.gfx950.machine.order import OrderWatch
from mxfp4lab.gfx950.machine.races import RaceWatch
from mxfp4lab.gfx950.machine.state import LANES, Chunk
from mxfp4lab.hardware import LDS_BYTES, MAX_WORKGROUP_THREADS

WAVES_PER_CHUNK = 192  # enough that numpy's call overhead is small, few enough that registers stay in cache
# Blocks that a chunk runs without a store or an end of a wave before another is let through: it may spin on what a
# workgroup does that has not started, or be deep in a loop.
FIRST_PATIENCE, PATIENCE = 300, 20_000
LOOKS = 16  # the same for loads past a cache: fewer than a kernel takes before it helps itself
MOST_WAITING_BYTES = 1 << 30  # registers of chunks that have started and not ended; beyond, patience is long
VECTOR_CLASSES = ("valu", "mfma", "convert", "vmem", "lds", "scratch")


@dataclass
class RunResult:
    """What a launch did.

    Attributes:
        name: the kernel.
        lane_instructions: 64 per vector instruction and wave, 1 per scalar instruction and wave.
        wave_instructions: instructions executed, summed over waves.
        seconds: wall time of the emulation (of the emulator, never of a GPU).
        workgroups: workgroups run.
        waves_per_workgroup: waves of each.
        executed: times that waves executed each instruction, by instruction position.
        by_class: wave instructions by class of `isa.classify`.
        findings: out-of-bounds, race and wait findings where they are recorded instead of raised.
        counts: bytes, segments and bank conflicts where counting was on, else None.
    """

    name: str
    lane_instructions: int = 0
    wave_instructions: int = 0
    seconds: float = 0.0
    workgroups: int = 0
    waves_per_workgroup: int = 0
    executed: dict[int, int] = field(default_factory=dict)
    by_class: dict[str, int] = field(default_factory=dict)
    findings: list[EmulationError] = field(default_factory=list)
    counts: AccessCounter | None = None


def run(
    compiled: Any,
    grid: Sequence[int],
    *args: Any,
    names: Sequence[str] | None = None,
    reachable: Sequence[Any] = (),
    hooks: Sequence[Callable[[Access], None]] = (),
    on_out_of_bounds: str = "raise",
    **options: Any,
) -> RunResult:
    """Execute a kernel; arrays among the arguments are read and written in place, also where they overlap.

    Args:
        compiled: object with `program` and `descriptor` (isa), and optionally `signature`, `num_warps`, `resources`.
        grid: workgroups along x, y, z.
        args: numpy arrays, torch CPU tensors, ints, floats or None (a null pointer), in signature order; tuples of
            them where the kernel takes a tuple.
        names: buffer names for messages; by default those of the signature.
        reachable: arrays that are no arguments, whose addresses (`data_ptr()`) stand in a table of pointers.
        hooks: called with every `Access`.
        on_out_of_bounds: "raise", or "record" to note findings and go on (loads give 0, stores are dropped).
        options: of `launch`.

    Returns:
        The result.

    Raises:
        ValueError: the arguments do not fit the kernel.
        EmulationError: the kernel did what the emulator refuses to go on from.
    """
    memory = Memory(on_out_of_bounds)
    memory.observer.hooks.extend(hooks)
    names = names or [name for name, _ in getattr(compiled, "signature", ())]
    bound, buffers = bind_arguments(memory, (*args, *reachable), names)
    try:
        return launch(compiled, grid, bound[: len(bound) - len(reachable)], memory, **options)
    finally:
        for buffer in buffers:
            if buffer.source.flags.writeable:
                buffer.sync()


def launch(
    compiled: Any,
    grid: Sequence[int],
    args: Sequence[Any],
    memory: Memory,
    *,
    workgroups: Iterable[int] | None = None,
    lds_bytes: int | None = None,
    block: int | None = None,
    layout: Sequence[tuple[int, int]] | None = None,
    count: bool = False,
    races: bool = False,
    max_blocks: int = MAX_BLOCKS,
    xcd: Callable[[np.ndarray], np.ndarray] | None = None,
) -> RunResult:
    """`run` on a memory that is already filled; pointers among `args` are addresses.

    Args:
        compiled, grid: as of `run`.
        args: numbers and pointers, tuples laid flat.
        memory: what pointers point into.
        workgroups: linear ids of the workgroups to run; all by default.
        lds_bytes: LDS per workgroup; by default what the descriptor says.
        block: work-items per workgroup; by default what the descriptor says.
        layout: (offset, size) of each argument in the argument segment, where the descriptor has none.
        count: also count bytes, segments and bank conflicts (`RunResult.counts`).
        races: report accesses of two waves to one byte, of LDS or of a buffer, that nothing puts in order.
        max_blocks: give up after so many blocks of straight-line code of one set of workgroups.
        xcd: linear workgroup ids to the XCD that each runs on; by default they are dealt out in turn to eight.
    """
    program, descriptor = without_calls(compiled.program), compiled.descriptor
    sizes = _grid(grid)
    ids = _workgroup_ids(workgroups, sizes)
    threads = block or descriptor.block_threads or LANES * getattr(compiled, "num_warps", 0)
    if not 0 < threads <= MAX_WORKGROUP_THREADS or threads % LANES:
        raise ValueError(
            f"block: {threads} work-items of {program.name}; allowed: a multiple of 64 up to {MAX_WORKGROUP_THREADS}"
        )
    waves = threads // LANES
    if lds_bytes is None:
        lds_bytes = getattr(getattr(compiled, "resources", None), "lds_bytes", descriptor.lds_bytes)
    if not 0 <= lds_bytes <= LDS_BYTES:
        raise ValueError(f"lds_bytes: {lds_bytes}; allowed: 0 to {LDS_BYTES}")
    kinds = [kind for _, kind in getattr(compiled, "signature", ())]
    segment = kernel_arguments(descriptor, args, kinds, layout, sizes, threads, lds_bytes)
    vgprs, agprs = _register_counts(program, descriptor)
    watches: list[Any] = [RaceWatch(program), OrderWatch(program)] if races else []
    asserts = program is not compiled.program
    counter = AccessCounter() if count else None

    def wrap(instruction, step):
        for watch in watches:
            step = watch.wrap(instruction, step)
        return failure(instruction, step) if asserts else step

    result = RunResult(program.name, workgroups=len(ids), waves_per_workgroup=waves, counts=counter)
    old_findings, old_hooks, old_buffers = len(memory.findings), len(memory.observer.hooks), len(memory.buffers)
    started = time.perf_counter()
    try:
        arguments = memory.add("kernel arguments", segment)
        packet = memory.add("dispatch packet", dispatch_packet(sizes, threads, descriptor, lds_bytes, arguments.base))
        memory.observer.hooks += [counter] * count + watches
        flush = descriptor.mode.get("float_denorm_mode_32", 3) == 0
        with np.errstate(all="ignore"):
            blocks = decode(program, Decoder(vgprs, lds_bytes, flush, memory, wrap if watches or asserts else None))

            def start(group: np.ndarray) -> Executor:
                places = None if xcd is None else np.asarray(xcd(group), np.uint32)
                chunk = Chunk(group, waves, vgprs + agprs, lds_bytes, descriptor.scratch_bytes, places)
                _initial_registers(chunk, descriptor, sizes, arguments, packet)
                executor = Executor(program, blocks, chunk, memory, max_blocks)
                for watch in watches:
                    watch.start(chunk)
                executor.barrier_hooks += [watch.barrier for watch in watches if hasattr(watch, "barrier")]
                return executor

            per_chunk = max(1, WAVES_PER_CHUNK // waves)
            _run_chunks([ids[i : i + per_chunk] for i in range(0, len(ids), per_chunk)], start, memory)
    except EmulationError as error:
        error.kernel = error.kernel or program.name
        if error.instruction is not None and error.instruction.mnemonic == "s_sendmsg":
            error.message = "tl.device_print has the host print, and the emulator has none: take it out to emulate"
        raise
    finally:
        del memory.observer.hooks[old_hooks:], memory.buffers[old_buffers:]
    result.seconds = time.perf_counter() - started
    _tally(result, program, blocks)
    result.findings = memory.findings[old_findings:] + [finding for watch in watches for finding in watch.findings]
    return result


def _run_chunks(pending: list[np.ndarray], start: Callable[[np.ndarray], Executor], memory: Memory) -> None:
    """Run chunks of workgroups, given by their ids, one after the other; those that wait for others run in turn."""
    waiting: list[Executor] = []
    rounds = 0
    while pending or waiting:
        if pending:
            executor = start(pending.pop(0))
            held = sum(other.chunk.vfile.nbytes for other in waiting)
            first = pending and held < MOST_WAITING_BYTES
            if not executor.run(*((FIRST_PATIENCE, LOOKS) if first else (PATIENCE,))):
                waiting.append(executor)
            continue
        # Every chunk has started; those left spin on what another one of them must do.
        before = memory.progress
        left = [executor for executor in waiting if not executor.run(PATIENCE << rounds, 0 if rounds else LOOKS)]
        idle = len(left) == len(waiting) and memory.progress == before
        rounds = rounds + 1 if idle else 0
        if rounds > 4:
            raise left[0].deadlock()
        waiting = left


def _grid(grid: Sequence[int]) -> tuple[int, int, int]:
    sizes = tuple(int(n) for n in grid) + (1,) * (3 - len(grid))
    if len(sizes) != 3 or any(not 1 <= n < 1 << 31 for n in sizes) or sizes[0] * sizes[1] * sizes[2] > 1 << 24:
        raise ValueError(f"grid: {tuple(grid)}; allowed: one to three positive sizes, at most 2^24 workgroups in all")
    return sizes


def _workgroup_ids(workgroups: Iterable[int] | None, sizes: tuple[int, int, int]) -> np.ndarray:
    total = sizes[0] * sizes[1] * sizes[2]
    ids = np.arange(total) if workgroups is None else np.array(list(workgroups), np.int64)
    if not ids.size or ids.min() < 0 or ids.max() >= total:
        raise ValueError(f"workgroups: {ids[:8].tolist()}; allowed: linear ids 0 to {total - 1}, at least one")
    return ids


def _register_counts(program: Program, descriptor: KernelDescriptor) -> tuple[int, int]:
    """(vector, accumulation) registers to allocate: what the descriptor says and what the code names."""
    highest = {"vgpr": descriptor.vgprs, "agpr": descriptor.agprs}
    for instruction in program:
        for operand in instruction.operands:
            if operand.kind in highest:
                highest[operand.kind] = max(highest[operand.kind], operand.index + operand.width)
    return max(highest["vgpr"], 1), highest["agpr"]


def _initial_registers(
    chunk: Chunk, descriptor: KernelDescriptor, grid: tuple[int, int, int], arguments: Buffer, packet: Buffer
) -> None:
    """Registers as the hardware leaves them at a wave's first instruction."""
    words = chunk.sfile.view(np.uint32).reshape(64, chunk.waves, 2)

    def put(n: int, value) -> None:
        words[n >> 1, :, n & 1] = value

    def put_pair(n: int, value: int) -> None:
        put(n, value & 0xFFFFFFFF)
        put(n + 1, value >> 32)

    segment = arguments.bytes.view(np.uint32)
    for name, first, length in descriptor.user_sgpr_layout:
        if name == "kernarg_segment_ptr":
            put_pair(first, arguments.base)
        elif name == "dispatch_ptr":
            put_pair(first, packet.base)
        elif name == "kernarg_preload":
            for i in range(length):
                put(first + i, segment[descriptor.preload_offset + i])
    ids = chunk.workgroups[chunk.local_group]
    place = (ids % grid[0], ids // grid[0] % grid[1], ids // (grid[0] * grid[1]))
    at = descriptor.user_sgprs
    for enabled, value in zip(descriptor.workgroup_ids, place, strict=True):
        if enabled:
            put(at, value)
            at += 1
    # v0 packs x | y << 10 | z << 20; blocks are one-dimensional, so y and z are 0
    chunk.vfile[0] = chunk.wave_in_group[:, None] * LANES + np.arange(LANES)


def _tally(result: RunResult, program: Program, blocks: dict) -> None:
    for block in blocks.values():
        if not block.hits:
            continue
        for position in range(block.first, block.end):
            result.executed[position] = block.hits
            name = classify(program[position].mnemonic)
            result.by_class[name] = result.by_class.get(name, 0) + block.hits
    result.wave_instructions = sum(result.by_class.values())
    vector = sum(result.by_class.get(name, 0) for name in VECTOR_CLASSES)
    result.lane_instructions = LANES * vector + result.wave_instructions - vector
