"""Data that nobody waited for: a register that a load still has to fill is used.

The emulator loads at once; on hardware the register holds its old contents until an s_waitcnt says otherwise. Vector
memory operations complete in the order of their issue, LDS operations too; scalar loads in any order, so that only
lgkmcnt(0) waits for them, and lgkmcnt(n) waits for the LDS operations that n later ones follow.

What is outstanding behind a block depends on what is before it and on its instructions alone. So each block keeps
the answers: following the waves of a launch costs a look-up per block.
"""

from __future__ import annotations

from mxfp4lab.gfx950.isa import Instruction, Program
from mxfp4lab.gfx950.isa.table import roles
from mxfp4lab.gfx950.isa.waits import MOST, awaited, counter
from mxfp4lab.gfx950.machine.errors import UnwaitedData

Registers = frozenset  # of (kind, number)
Access = tuple[int, Registers]  # the instruction, and what it has still to write: nothing for a store
# Outstanding accesses of a wave, oldest first: vector memory, LDS, scalar memory.
State = tuple[tuple[Access, ...], tuple[Access, ...], tuple[Access, ...]]
NOTHING: State = ((), (), ())
_VMEM, _LDS, _SCALAR = range(3)


def _registers(operands) -> Registers:
    return frozenset((o.kind, o.index + i) for o in operands for i in range(o.width))


class Pending:
    """Follows outstanding accesses through the blocks of a program.

    Attributes:
        states: what may be outstanding, by the number that stands for it; 0 is nothing.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.states: list[State] = [NOTHING]
        self._numbers: dict[State, int] = {NOTHING: 0}
        self._facts: dict[int, tuple] = {}
        self._found: set[tuple[int, int]] = set()

    def after(self, first: int, end: int, number: int, who: tuple[int, int], findings: list) -> int:
        """The state behind instructions [first, end), given the one before; adds new findings.

        Args:
            who: wave and workgroup, for the finding.
        """
        queues = [list(queue) for queue in self.states[number]]
        for position in range(first, end):
            self._step(position, queues, who, findings)
        state = tuple(map(tuple, queues))
        if state not in self._numbers:
            self._numbers[state] = len(self.states)
            self.states.append(state)
        return self._numbers[state]

    def _facts_of(self, instruction: Instruction) -> tuple:
        facts = self._facts.get(instruction.index)
        if facts is None:
            written, read = (_registers(operands) for operands in roles(instruction))
            lds = instruction.mnemonic.startswith("ds_")
            queues = {"vmcnt": (_VMEM,), "lgkmcnt": (_LDS if lds else _SCALAR,), "both": (_VMEM, _SCALAR), "": ()}
            facts = written, read, queues[counter(instruction)], awaited(instruction)
            self._facts[instruction.index] = facts
        return facts

    def _step(self, position: int, queues: list[list[Access]], who: tuple[int, int], findings: list) -> None:
        instruction = self.program[position]
        written, read, into, allowed = self._facts_of(instruction)
        if "vmcnt" in allowed:
            del queues[_VMEM][: max(0, len(queues[_VMEM]) - allowed["vmcnt"])]
        if "lgkmcnt" in allowed:
            del queues[_LDS][: max(0, len(queues[_LDS]) - allowed["lgkmcnt"])]
            if not allowed["lgkmcnt"]:
                queues[_SCALAR].clear()
        used = read | written
        for which, queue in enumerate(queues) if used else ():
            # Two loads of one kind to a register arrive in order: overwriting is no use then.
            touched = read if which in into and which != _SCALAR else used
            for producer, registers in queue:
                hit = registers & touched
                if hit and (producer, position) not in self._found:
                    self._found.add((producer, position))
                    kind, n = min(hit)
                    verb = "reads" if hit & read else "overwrites"
                    wait = "vmcnt" if which == _VMEM else "lgkmcnt"
                    findings.append(
                        UnwaitedData(self.program[producer], instruction, f"{verb} {kind[0]}{n}", wait, *who)
                    )
        for which in into:
            queues[which].append((position, written))
            del queues[which][: -MOST["vmcnt" if which == _VMEM else "lgkmcnt"]]  # a full counter holds back the next
        for queue in queues:  # what has nothing to write matters only behind what has
            while queue and not queue[0][1]:
                del queue[0]
