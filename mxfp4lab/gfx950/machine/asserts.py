"""tl.device_assert: the first that fails ends the run with its source line.

Compiled code calls `__triton_assert_fail`, which has the host print the message, and then traps. The emulator has no
host to call: the call itself is the failure, and neither the function nor the trap is executed.
"""

from __future__ import annotations

import linecache
from dataclasses import replace

from mxfp4lab.gfx950.isa import Instruction, Program
from mxfp4lab.gfx950.machine.errors import EmulationError
from mxfp4lab.gfx950.machine.state import Group

FUNCTION = "__triton_assert_fail"
CALL = "s_swappc_b64"


class AssertionFailed(EmulationError):
    """A tl.device_assert does not hold for the lanes that came there.

    Attributes:
        lane, wave, workgroup: the first of them (wave within its workgroup, linear workgroup id).
    """

    def __init__(self, call: Instruction, lane: int, wave: int, workgroup: int) -> None:
        self.lane, self.wave, self.workgroup = lane, wave, workgroup
        line = linecache.getline(*call.source).strip() if call.source else ""
        said = f"`{line}`" if line else "device_assert"
        super().__init__(f"{said} fails for lane {lane} of wave {wave}, workgroup {workgroup}", call)


def without_calls(program: Program) -> Program:
    """The program with what leads to the function, calls it and traps behind it made to do nothing."""
    if not any(FUNCTION in label for label in program.labels):
        return program
    leads = ("s_getpc_b64", "s_trap", CALL)  # and the addresses of the function and of its message

    def kept(i: Instruction) -> Instruction:
        return replace(i, mnemonic="s_nop", operands=()) if i.mnemonic in leads or "@rel32@" in i.text else i

    return replace(program, instructions=tuple(map(kept, program)))


def failure(instruction: Instruction, step):
    """What an instruction of such a program does: a call ends the run, as the trap behind it does on a GPU."""
    if not instruction.text.startswith(CALL):
        return step

    def fails(group: Group) -> None:
        raise AssertionFailed(instruction, *group.first_lane(group.lanes())[1:])

    return fails
