"""gfx950 machine code as data: the instruction form, its readers, classes and static checks."""

from mxfp4lab.isa.classes import CLASSES, classify
from mxfp4lab.isa.descriptor import KernelArg, KernelDescriptor, build_descriptor
from mxfp4lab.isa.instruction import Instruction, IsaError, Operand, Program
from mxfp4lab.isa.text import parse_amdgcn

__all__ = [
    "CLASSES", "Instruction", "IsaError", "KernelArg", "KernelDescriptor", "Operand", "Program",
    "build_descriptor", "classify", "parse_amdgcn",
]  # fmt: skip
