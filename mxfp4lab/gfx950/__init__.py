"""The emulator: executes gfx950 machine code on numpy, all waves of a launch in lockstep."""

from mxfp4lab.gfx950.errors import (
    BarrierMismatch,
    Deadlock,
    EmulationError,
    LdsOutOfRange,
    OutOfBounds,
    UnknownInstruction,
)
from mxfp4lab.gfx950.launch import RunResult, launch, run
from mxfp4lab.gfx950.memory import Access, Memory

__all__ = [
    "Access", "BarrierMismatch", "Deadlock", "EmulationError", "LdsOutOfRange", "Memory", "OutOfBounds", "RunResult",
    "UnknownInstruction", "launch", "run",
]  # fmt: skip
