"""What the emulator raises. Every error names the instruction; access errors name the place and the lane too."""

from __future__ import annotations

from typing import Any

from mxfp4lab.gfx950.isa import Instruction

_WHO = "; lane {lane} of wave {wave}, workgroup {workgroup}"


class EmulationError(RuntimeError):
    """A kernel did something that the emulator refuses to continue from.

    Attributes:
        kernel: name of the kernel, filled in by the launch.
        instruction: the instruction at fault, if one is.
    """

    def __init__(self, message: str, instruction: Instruction | None = None, **fields: Any) -> None:
        self.kernel, self.instruction, self.message = "", instruction, message
        vars(self).update(fields)
        super().__init__(message)

    def __str__(self) -> str:
        where = f"; {self.instruction.where()}" if self.instruction is not None else ""
        kernel = f"{self.kernel}: " if self.kernel else ""
        return f"{kernel}{self.message}{where}"

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence alone: the frames of the emulator are not the kernel's."""
        return [f"{type(self).__name__}: {self}"]

    def __reduce__(self):  # survives a process boundary with its fields
        return _restore, (type(self), self.__dict__)


def _restore(kind: type[EmulationError], fields: dict) -> EmulationError:
    error = kind.__new__(kind)
    RuntimeError.__init__(error, fields.get("message", ""))
    error.__dict__.update(fields)
    return error


class UnknownInstruction(EmulationError):
    """An instruction, operand form or modifier that the emulator does not know. Never skipped, never guessed."""

    def __init__(self, instruction: Instruction, reason: str = "unknown instruction") -> None:
        super().__init__(f"{reason}: {instruction.mnemonic}", instruction)


class OutOfBounds(EmulationError):
    """A global memory access outside every buffer.

    Attributes:
        buffer: nearest buffer's name, or "" where the address is near none.
        byte_offset: offset of the first byte accessed from that buffer's start (negative: before it).
        buffer_bytes: the buffer's size.
        address: virtual address.
        access_bytes: bytes of the access.
        kind: "load", "store" or "atomic".
        lane, wave, workgroup: who did it (wave within its workgroup, linear workgroup id).
    """

    def __init__(self, instruction: Instruction, **at: Any) -> None:
        at["beyond"] = at["byte_offset"] + at["access_bytes"] - at["buffer_bytes"]
        if not at["buffer"]:
            place = "address {address:#x}, near no buffer"
        elif at["byte_offset"] < 0:
            place = "buffer {buffer!r} at byte {byte_offset}, before its start"
        else:
            place = "buffer {buffer!r} at byte {byte_offset}, {beyond} bytes past its end ({buffer_bytes} bytes)"
        message = "out of bounds: {kind} of {access_bytes} bytes from " + place + _WHO
        super().__init__(message.format(**at), instruction, **at)


class LdsOutOfRange(EmulationError):
    """An LDS access past the workgroup's allocation.

    Attributes:
        byte_address: first byte accessed; access_bytes: its size; lds_bytes: the allocation.
        kind, lane, wave, workgroup: as in `OutOfBounds`.
    """

    def __init__(self, instruction: Instruction, **at: Any) -> None:
        message = "LDS out of range: {kind} of {access_bytes} bytes at {byte_address}; the kernel has {lds_bytes} bytes"
        super().__init__((message + " of LDS" + _WHO).format(**at), instruction, **at)


class LdsRace(EmulationError):
    """Two waves of a workgroup touch an LDS byte with no barrier between, and one of them changes it.

    Attributes:
        first, second: the two instructions, in the order in which they were executed here.
        byte_address: the byte within the workgroup's LDS.
        others, wave: bit mask of the waves that touched it before, and the wave that touches it now.
        workgroup: linear workgroup id.
    """

    def __init__(self, what: str, first: Instruction, second: Instruction, **at: Any) -> None:
        before = ", ".join(str(i) for i in range(32) if at["others"] >> i & 1)
        super().__init__(
            f"LDS race: {what} byte {at['byte_address']} by wave {at['wave']} of workgroup {at['workgroup']}, with no "
            f"barrier after wave {before} at {first.where()}",
            second, first=first, second=second, **at,
        )  # fmt: skip


class DataRace(EmulationError):
    """Two waves touch a byte of global memory, one of them stores another value, and nothing puts them in order.

    Attributes:
        kind: "load" or "store": what comes second.
        first, second: the two instructions, in the order in which they were executed here.
        missing: what would have put them in order.
        buffer, byte_offset: the first such byte.
        writer, other: (workgroup, wave within it) of the store, and of what comes second.
    """

    def __init__(self, kind: str, first: Instruction, second: Instruction, missing: str, **at: Any) -> None:
        (group, wave), (stored_group, stored_wave) = at["other"], at["writer"]
        super().__init__(
            f"data race: {kind} of byte {at['byte_offset']} of {at['buffer']!r} by wave {wave} of workgroup {group}, "
            f"stored by wave {stored_wave} of workgroup {stored_group} at {first.where()}: {missing}",
            second, kind=kind, first=first, second=second, missing=missing, **at,
        )  # fmt: skip


class UnwaitedData(EmulationError):
    """A register that a load still has to fill is used: no s_waitcnt says that its data has arrived.

    Attributes:
        first, second: the load, and the instruction that uses what it loads.
        wave, workgroup: who did so first.
    """

    def __init__(self, first: Instruction, second: Instruction, use: str, wait: str, wave: int,
                 workgroup: int) -> None:  # fmt: skip
        super().__init__(
            f"not waited for: wave {wave} of workgroup {workgroup} {use} before {wait} says that the data of "
            f"{first.where()} has arrived",
            second, first=first, second=second, wave=wave, workgroup=workgroup,
        )  # fmt: skip


class BarrierMismatch(EmulationError):
    """A barrier that some waves of a workgroup wait at while the others have ended."""


class Deadlock(EmulationError):
    """Waves that spin for ever: no workgroup changes memory, passes a barrier or ends any more."""
