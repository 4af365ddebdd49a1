"""Data that nobody waited for: a register that a load still has to fill is used.

The emulator loads at once; on hardware the register holds its old contents until an s_waitcnt says otherwise. Vector
memory operations complete in the order of their issue, LDS operations too; scalar loads in any order, so that only
lgkmcnt(0) waits for them, and lgkmcnt(n) waits for the LDS operations that n later ones follow.

What is outstanding behind a block depends on what is before it and on its instructions alone. So each block keeps
the answers: following the waves of a launch costs a look-up per block.
"""

from __future__ import annotations

from mxfp4lab.gfx950.isa import Instruction, Program
from mxfp4lab.gfx950.isa.table import first_register, uses
from mxfp4lab.gfx950.isa.waits import MOST, awaited, counter
from mxfp4lab.gfx950.machine.errors import UnwaitedData

Access = tuple[int, int]  # the instruction, and the registers that it has still to write: none for a store
# Outstanding accesses of a wave, oldest first: vector memory, LDS, scalar memory.
State = tuple[tuple[Access, ...], tuple[Access, ...], tuple[Access, ...]]
NOTHING: State = ((), (), ())
_VMEM, _LDS, _SCALAR = range(3)
_COUNTERS = ("vmcnt", "lgkmcnt", "lgkmcnt")


class Pending:
    """Follows outstanding accesses through the blocks of a program.

    Attributes:
        states: what may be outstanding, by the number that stands for it; 0 is nothing.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.states: list[State] = [NOTHING]
        self._numbers: dict[State, int] = {NOTHING: 0}
        self._counted: dict[int, tuple] = {}
        self._found: set[tuple[int, int]] = set()

    def after(self, first: int, end: int, number: int, who: tuple[int, int], findings: list) -> int:
        """The state behind instructions [first, end), given the one before; adds new findings.

        Args:
            who: wave and workgroup, for the finding.
        """
        queues = [list(queue) for queue in self.states[number]]
        for position in range(first, end):
            instruction = self.program[position]
            written, read = uses(self.program, position)
            into, allowed = self._counting(instruction)
            if allowed:
                self._wait(queues, allowed)
            for which, queue in enumerate(queues):
                if queue:
                    # Two loads of one kind to a register arrive in order: overwriting is no use then.
                    touched = read if which in into and which != _SCALAR else read | written
                    for producer, registers in queue:
                        if registers & touched and (producer, position) not in self._found:
                            self._found.add((producer, position))
                            use = "reads" if registers & read else "overwrites"
                            use = f"{use} {first_register(registers & touched)}"
                            findings.append(
                                UnwaitedData(self.program[producer], instruction, use, _COUNTERS[which], *who)
                            )
            for which in into:
                queue = queues[which]
                if written or queue:  # what has nothing to write matters only behind what has
                    queue.append((position, written))
                    del queue[: -MOST[_COUNTERS[which]]]  # a full counter holds back the next
        state = tuple(map(tuple, queues))
        if state not in self._numbers:
            self._numbers[state] = len(self.states)
            self.states.append(state)
        return self._numbers[state]

    def _counting(self, instruction: Instruction) -> tuple[tuple[int, ...], dict[str, int]]:
        """(queues that it goes to, what it waits for)."""
        found = self._counted.get(instruction.index)
        if found is None:
            lds = instruction.mnemonic.startswith("ds_")
            queues = {"vmcnt": (_VMEM,), "lgkmcnt": (_LDS if lds else _SCALAR,), "both": (_VMEM, _SCALAR), "": ()}
            found = self._counted[instruction.index] = queues[counter(instruction)], awaited(instruction)
        return found

    def _wait(self, queues: list[list[Access]], allowed: dict[str, int]) -> None:
        if "vmcnt" in allowed:
            del queues[_VMEM][: max(0, len(queues[_VMEM]) - allowed["vmcnt"])]
        if "lgkmcnt" in allowed:
            del queues[_LDS][: max(0, len(queues[_LDS]) - allowed["lgkmcnt"])]
            if not allowed["lgkmcnt"]:
                queues[_SCALAR].clear()
        for queue in queues:
            while queue and not queue[0][1]:
                del queue[0]
