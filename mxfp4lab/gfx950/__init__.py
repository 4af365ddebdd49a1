"""The emulator: executes gfx950 machine code on numpy, all waves of a launch in lockstep.

Data flows one way here too: `state` (registers) and `memory` (buffers, the one hook); `operands` and `crosslane` fetch;
`floats` and `convert` compute; `valu`, `packed`, `wide`, `lanes`, `salu`, `smem`, `vmem`, `atomics`, `scratch`, `lds`
and `mfma` say what each instruction means; `decode` turns a program into closures; `executor` runs the waves of a set
of workgroups; `checks`, `counts`, `races`, `clocks`, `order`, `poison` and `taint` look on; `runs` launches a kernel,
`plans` a plan.
"""

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
