"""gfx950 machine code as data: the instruction form, its readers, classes and static checks."""

from mxfp4lab.gfx950.isa.classes import CLASSES, classify
from mxfp4lab.gfx950.isa.codeobject import read_code_object
from mxfp4lab.gfx950.isa.descriptor import KernelArg, KernelDescriptor, build_descriptor
from mxfp4lab.gfx950.isa.hazards import Hazard, find_hazards
from mxfp4lab.gfx950.isa.instruction import Instruction, IsaError, Operand, Program
from mxfp4lab.gfx950.isa.text import parse_amdgcn

__all__ = [
    "CLASSES", "Hazard", "Instruction", "IsaError", "KernelArg", "KernelDescriptor", "Operand", "Program",
    "build_descriptor", "classify", "find_hazards", "parse_amdgcn", "read_code_object",
]  # fmt: skip
