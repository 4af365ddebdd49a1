"""The emulator: executes gfx950 machine code on numpy, all waves of a launch in lockstep."""

from mxfp4lab.gfx950.arguments import Pointer
from mxfp4lab.gfx950.errors import (
    BarrierMismatch,
    Deadlock,
    EmulationError,
    LdsOutOfRange,
    OutOfBounds,
    UnknownInstruction,
)
from mxfp4lab.gfx950.memory import Access, Memory
from mxfp4lab.gfx950.plans import Emulation, count_plan, emulate_plan
from mxfp4lab.gfx950.runs import RunResult, launch, run
from mxfp4lab.toolchain.codeobject import load_code_object

__all__ = [
    "Access", "BarrierMismatch", "Deadlock", "Emulation", "EmulationError",
    "LdsOutOfRange", "Memory", "OutOfBounds", "Pointer", "RunResult",
    "UnknownInstruction", "count_plan", "emulate_plan", "launch", "load_code_object", "run",
]  # fmt: skip
