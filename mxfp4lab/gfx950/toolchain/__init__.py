"""Offline compilation: plans and kernels to gfx950 (or sm_90) machine code, with what can be read from it.

Nothing here needs a GPU or a driver. Triton is imported at the first compilation, not before.
"""

from mxfp4lab.gfx950.toolchain.codeobject import load_code_object
from mxfp4lab.gfx950.toolchain.compile import (
    KernelJob,
    compile_job,
    compile_kernel,
    compile_launch,
    compile_plan,
    launch_job,
    make_job,
    plan_hash,
)
from mxfp4lab.gfx950.toolchain.compiled import Compiled, CompiledPlan
from mxfp4lab.gfx950.toolchain.errors import CompileError
from mxfp4lab.gfx950.toolchain.knobs import KNOBS, current_knobs, toolchain_versions
from mxfp4lab.gfx950.toolchain.resources import Resources, occupancy

__all__ = [
    "KNOBS",
    "CompileError",
    "Compiled",
    "CompiledPlan",
    "KernelJob",
    "Resources",
    "compile_job",
    "compile_kernel",
    "compile_launch",
    "compile_plan",
    "current_knobs",
    "launch_job",
    "load_code_object",
    "make_job",
    "occupancy",
    "plan_hash",
    "toolchain_versions",
]
