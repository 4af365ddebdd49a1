"""One launch of a submission's kernel on the emulator."""

from __future__ import annotations

import time

import numpy as np

from mxfp4lab.gfx950 import Compiled, EmulationError, Memory, Pointer, launch

Argument = tuple[str, int | float | tuple[int, int]]


def execute(
    compiled: Compiled,
    grid: tuple[int, int, int],
    arguments: list[Argument],
    buffers: list[np.ndarray],
    names: dict[int, str],
    layout: tuple[tuple[int, int], ...] | None = None,
    races: bool = False,
    seconds: float = float("inf"),
) -> tuple[int, tuple[str, ...]]:
    """Run a launch in place.

    Every tensor's storage is a buffer of exactly its size, so an access past its end is found whatever lies behind it
    on a GPU. Such an access is noted and the launch goes on (a load gives 0, a store is dropped): one run shows all.

    Args:
        arguments: (name, value) in signature order; a pointer is (buffer index, byte offset).
        buffers: uint8 bytes of each storage, written in place.
        names: what to call each buffer.
        layout: (offset, size) of each argument, where the kernel does not say.
        races: also look for accesses of two waves, to LDS or memory, that nothing puts in order.
        seconds: after which the launch is given up.

    Returns:
        lane-instructions executed, and the findings.

    Raises:
        ValueError: if the emulator refuses to go on: an unknown instruction, LDS out of range, a deadlock.
    """
    memory = Memory("record")
    memory.deadline = time.monotonic() + seconds
    placed = [memory.add(names.get(i, f"buffer {i}"), data) for i, data in enumerate(buffers)]
    values = [Pointer(placed[v[0]].base + v[1]) if isinstance(v, tuple) else v for _, v in arguments]
    try:
        result = launch(compiled, grid, values, memory, layout=layout, races=races)
    except EmulationError as error:
        raise ValueError(str(error)) from None
    finally:
        for buffer in placed:
            buffer.sync()
    return result.lane_instructions, tuple(dict.fromkeys(str(finding) for finding in result.findings))
