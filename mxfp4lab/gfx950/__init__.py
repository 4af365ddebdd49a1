"""A gfx950 machine that knows nothing of GEMMs: compile offline, read, execute, check.

`isa` is machine code as data (instruction form, readers, static checks), `toolchain` the offline compiler, `machine`
the emulator. Names are imported when they are asked for: a command line answers `--help` without loading any of them.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "isa": "Instruction IsaError KernelArg KernelDescriptor Operand Program classify find_hazards parse_amdgcn "
    "read_code_object",
    "isa.elf": "open_code_object",
    "toolchain.jobs": "gpu_target launch_job make_job triton_source unwrap",
    "toolchain.compile": "compile_job compile_kernel compile_launch compile_plan load_launch plan_hash",
    "toolchain.compiled": "Compiled CompiledPlan Resources load_code_object occupancy",
    "toolchain.errors": "CompileError",
    "toolchain.knobs": "current_knobs toolchain_versions",
    "machine.arguments": "Pointer",
    "machine.errors": "BarrierMismatch Deadlock EmulationError LdsOutOfRange OutOfBounds UnknownInstruction",
    "machine.memory": "Access Memory",
    "machine.runs": "RunResult launch run",
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names.split()}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Import the part that defines a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
