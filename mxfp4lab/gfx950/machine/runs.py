"""Launch a compiled kernel on the emulator: kernel arguments, initial registers, chunks of workgroups, results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mxfp4lab.gfx950.isa import KernelDescriptor, classify
from mxfp4lab.gfx950.machine.arguments import bind_arguments, dispatch_packet, kernel_arguments
from mxfp4lab.gfx950.machine.checks import attach_checks
from mxfp4lab.gfx950.machine.decode import decode
from mxfp4lab.gfx950.machine.errors import EmulationError, OutOfBounds
from mxfp4lab.gfx950.machine.executor import MAX_BLOCKS, Executor
from mxfp4lab.gfx950.machine.memory import Access, Buffer, Memory
from mxfp4lab.gfx950.machine.state import LANES, Chunk
from mxfp4lab.gfx950.machine.vector import Decoder

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
        findings: out-of-bounds, race and poison findings where they are recorded instead of raised.
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
    counts: Any = None


def run(
    compiled: Any,
    grid: Sequence[int],
    *args: Any,
    workgroups: Iterable[int] | None = None,
    lds_bytes: int | None = None,
    block: int | None = None,
    layout: Sequence[tuple[int, int]] | None = None,
    names: Sequence[str] | None = None,
    count: bool = False,
    poison: bool = False,
    races: bool = False,
    hooks: Sequence[Callable[[Access], None]] = (),
    on_out_of_bounds: str = "raise",
    max_blocks: int = MAX_BLOCKS,
    xcd: Callable[[np.ndarray], np.ndarray] | None = None,
) -> RunResult:
    """Execute a kernel; arrays among the arguments are read and written in place.

    Args:
        compiled: object with `program` and `descriptor` (isa), and optionally `signature`, `num_warps`, `resources`.
        grid: workgroups along x, y, z.
        args: numpy arrays, torch CPU tensors, ints, floats or None (a null pointer), in signature order.
        workgroups: linear ids of the workgroups to run; all by default.
        lds_bytes: LDS per workgroup; by default what the descriptor says.
        block: work-items per workgroup; by default what the descriptor says.
        layout: (offset, size) of each argument in the argument segment, where the descriptor has none.
        names: buffer names for messages; by default those of the signature.
        count: also count bytes, segments and bank conflicts (`RunResult.counts`).
        poison: report reads of bytes that nobody wrote.
        races: report accesses of two waves to one byte, of LDS or of a buffer, that nothing puts in order.
        hooks: called with every `Access`.
        on_out_of_bounds: "raise", or "record" to note findings and go on (loads give 0, stores are dropped).
        max_blocks: give up after so many blocks of straight-line code of one set of workgroups.
        xcd: linear workgroup ids to the XCD that each runs on; by default they are dealt out in turn to eight.

    Returns:
        The result.

    Raises:
        ValueError: the arguments do not fit the kernel.
        EmulationError: the kernel did what the emulator refuses to go on from.
    """
    memory = Memory(on_out_of_bounds)
    memory.observer.hooks.extend(hooks)
    bound, buffers = bind_arguments(memory, args, names or argument_names(compiled))
    try:
        return launch(
            compiled, grid, bound, memory, workgroups=workgroups, lds_bytes=lds_bytes, block=block, layout=layout,
            count=count, poison=poison, races=races, max_blocks=max_blocks, xcd=xcd,
        )  # fmt: skip
    finally:
        for buffer in buffers:
            buffer.sync()


def argument_names(compiled: Any) -> list[str]:
    """Names of the runtime arguments, where the compiled kernel knows them."""
    return [
        entry[0] if isinstance(entry, (tuple, list)) else str(entry) for entry in getattr(compiled, "signature", ())
    ]


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
    poison: bool = False,
    races: bool = False,
    trace: list[tuple[int, int]] | None = None,
    max_blocks: int = MAX_BLOCKS,
    xcd: Callable[[np.ndarray], np.ndarray] | None = None,
) -> RunResult:
    """`run` on a memory that is already filled; pointers among `args` are addresses.

    Args:
        trace: takes the (first, end) instruction positions of the blocks that the first wave runs, in order.
    """
    program, descriptor = compiled.program, compiled.descriptor
    sizes = _grid(grid)
    ids = _workgroup_ids(workgroups, sizes)
    threads = block or descriptor.block_threads or 64 * getattr(compiled, "num_warps", 0)
    if not threads or threads % LANES:
        raise ValueError(f"block: {threads} work-items; allowed: a multiple of 64 up to 1024")
    lds = _lds_bytes(compiled, lds_bytes)
    if not 0 <= lds <= 163840:
        raise ValueError(f"lds_bytes: {lds}; allowed: 0 to 163840")
    signature = [e[1] if isinstance(e, (tuple, list)) else "" for e in getattr(compiled, "signature", ())]
    kernarg = kernel_arguments(descriptor, args, sizes, threads, lds, layout, signature)
    arguments = memory.add("kernel arguments", kernarg)
    packet = memory.add("dispatch packet", dispatch_packet(sizes, threads, descriptor, lds, arguments.base))

    vgprs, agprs = _register_counts(program, descriptor)
    flush = descriptor.mode.get("float_denorm_mode_32", 3) == 0
    started = time.perf_counter()
    result = RunResult(program.name, workgroups=len(ids), waves_per_workgroup=threads // LANES)
    old_findings = len(memory.findings)
    try:
        with np.errstate(all="ignore"):
            checks = attach_checks(memory, program, vgprs, count=count, poison=poison, races=races)
            decoder = Decoder(vgprs, lds, flush, memory, checks.wrap if checks.watches else None)
            blocks = decode(program, decoder)

            def start(group: np.ndarray) -> Executor:
                places = None if xcd is None else np.asarray(xcd(group), np.uint32)
                chunk = Chunk(group, threads // LANES, vgprs + agprs, lds, descriptor.scratch_bytes, places)
                _initial_registers(chunk, descriptor, sizes, threads, arguments, packet)
                executor = Executor(program, blocks, chunk, memory, max_blocks)
                executor.barrier_hooks.extend(checks.barrier_hooks)
                checks.start(chunk)
                return executor

            per_chunk = max(1, WAVES_PER_CHUNK // (threads // LANES))
            _run_chunks([ids[i : i + per_chunk] for i in range(0, len(ids), per_chunk)], start, memory, trace)
    except EmulationError as error:
        error.kernel = error.kernel or program.name
        raise
    finally:
        memory.observer.hooks[:] = [hook for hook in memory.observer.hooks if not getattr(hook, "of_launch", False)]
    result.seconds = time.perf_counter() - started
    _tally(result, program, blocks)
    result.findings = list(memory.findings[old_findings:]) + checks.findings
    result.counts = checks.counts
    return result


def _run_chunks(
    pending: list[np.ndarray],
    start: Callable[[np.ndarray], Executor],
    memory: Memory,
    trace: list[tuple[int, int]] | None,
) -> None:
    """Run chunks of workgroups, given by their ids, one after the other; those that wait for others run in turn.

    The first chunk leaves its first wave's blocks in `trace`.
    """
    waiting: list[Executor] = []
    rounds = 0
    while pending or waiting:
        if pending:
            executor = start(pending.pop(0))
            executor.trace, trace = trace, None
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


def _lds_bytes(compiled: Any, given: int | None) -> int:
    if given is not None:
        return int(given)
    resources = getattr(compiled, "resources", None)
    return int(getattr(resources, "lds_bytes", compiled.descriptor.lds_bytes))


def _register_counts(program, descriptor: KernelDescriptor) -> tuple[int, int]:
    """(vector, accumulation) registers to allocate: what the descriptor says and what the code names."""
    highest = {"vgpr": descriptor.vgprs, "agpr": descriptor.agprs}
    for instruction in program:
        for operand in instruction.operands:
            if operand.kind in highest:
                highest[operand.kind] = max(highest[operand.kind], operand.index + operand.width)
    return max(highest["vgpr"], 1), highest["agpr"]


def _initial_registers(
    chunk: Chunk, descriptor: KernelDescriptor, grid, threads, arguments: Buffer, packet: Buffer
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


def _tally(result: RunResult, program, blocks) -> None:
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


__all__ = ["OutOfBounds", "RunResult", "launch", "run"]
