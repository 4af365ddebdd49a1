"""What the emulator raises. Every error names the instruction; access errors name the place and the lane too."""

from __future__ import annotations

from mxfp4lab.gfx950.isa import Instruction


class EmulationError(RuntimeError):
    """A kernel did something that the emulator refuses to continue from.

    Attributes:
        kernel: name of the kernel, filled in by the launch.
        instruction: the instruction at fault, if one is.
    """

    def __init__(self, message: str, instruction: Instruction | None = None) -> None:
        self.kernel = ""
        self.instruction = instruction
        self.message = message
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

    def __init__(self, instruction: Instruction, *, buffer: str, byte_offset: int, buffer_bytes: int, address: int,
                 access_bytes: int, kind: str, lane: int, wave: int, workgroup: int) -> None:  # fmt: skip
        self.buffer, self.byte_offset, self.buffer_bytes = buffer, byte_offset, buffer_bytes
        self.address, self.access_bytes, self.kind = address, access_bytes, kind
        self.lane, self.wave, self.workgroup = lane, wave, workgroup
        if buffer and byte_offset >= 0:
            beyond = byte_offset + access_bytes - buffer_bytes
            place = f"buffer {buffer!r} at byte {byte_offset}, {beyond} bytes past its end ({buffer_bytes} bytes)"
        elif buffer:
            place = f"buffer {buffer!r} at byte {byte_offset}, before its start"
        else:
            place = f"address {address:#x}, near no buffer"
        super().__init__(
            f"out of bounds: {kind} of {access_bytes} bytes from {place}; "
            f"lane {lane} of wave {wave}, workgroup {workgroup}",
            instruction,
        )


class LdsOutOfRange(EmulationError):
    """An LDS access past the workgroup's allocation.

    Attributes:
        byte_address: first byte accessed; access_bytes: its size; lds_bytes: the allocation.
        kind, lane, wave, workgroup: as in `OutOfBounds`.
    """

    def __init__(self, instruction: Instruction, *, byte_address: int, access_bytes: int, lds_bytes: int, kind: str,
                 lane: int, wave: int, workgroup: int) -> None:  # fmt: skip
        self.byte_address, self.access_bytes, self.lds_bytes = byte_address, access_bytes, lds_bytes
        self.kind, self.lane, self.wave, self.workgroup = kind, lane, wave, workgroup
        super().__init__(
            f"LDS out of range: {kind} of {access_bytes} bytes at {byte_address}; "
            f"the kernel has {lds_bytes} bytes of LDS; "
            f"lane {lane} of wave {wave}, workgroup {workgroup}",
            instruction,
        )


class LdsRace(EmulationError):
    """Two waves of a workgroup touch an LDS byte with no barrier between, and one of them changes it.

    Attributes:
        byte_address: the byte within the workgroup's LDS.
        first, second: the two instructions, in the order in which they were executed here.
        waves: bit mask of the waves that touched it before, and the wave that touches it now.
        workgroup: linear workgroup id.
    """

    def __init__(self, what: str, first: Instruction, second: Instruction, *, byte_address: int, others: int, wave: int,
                 workgroup: int) -> None:  # fmt: skip
        self.first, self.second, self.byte_address = first, second, byte_address
        self.waves, self.workgroup = (others, wave), workgroup
        names = [str(i) for i in range(32) if others >> i & 1]
        super().__init__(
            f"LDS race: {what} byte {byte_address} by wave {wave} of workgroup {workgroup}, with no barrier after wave "
            f"{', '.join(names)} at {first.where()}",
            second,
        )


class DataRace(EmulationError):
    """Two waves touch a byte of global memory, one of them stores another value, and nothing puts them in order.

    Attributes:
        kind: "load" or "store": what comes second.
        first, second: the two instructions, in the order in which they were executed here.
        buffer, byte_offset: the first such byte.
        writer, other: (workgroup, wave within it) of the store, and of what comes second.
        missing: what would have put them in order.
    """

    def __init__(self, kind: str, first: Instruction, second: Instruction, missing: str, *, buffer: str,
                 byte_offset: int, writer: tuple[int, int], other: tuple[int, int]) -> None:  # fmt: skip
        self.kind, self.first, self.second, self.missing = kind, first, second, missing
        self.buffer, self.byte_offset, self.writer, self.other = buffer, byte_offset, writer, other
        super().__init__(
            f"data race: {kind} of byte {byte_offset} of {buffer!r} by wave {other[1]} of workgroup {other[0]}, stored "
            f"by wave {writer[1]} of workgroup {writer[0]} at {first.where()}: {missing}",
            second,
        )


class UnwaitedData(EmulationError):
    """A register that a load still has to fill is used: no s_waitcnt says that its data has arrived.

    Attributes:
        first, second: the load, and the instruction that uses what it loads.
        wave, workgroup: who did so first.
    """

    def __init__(self, first: Instruction, second: Instruction, use: str, wait: str, wave: int,
                 workgroup: int) -> None:  # fmt: skip
        self.first, self.second, self.wave, self.workgroup = first, second, wave, workgroup
        super().__init__(
            f"not waited for: wave {wave} of workgroup {workgroup} {use} before {wait} says that the data of "
            f"{first.where()} has arrived",
            second,
        )


class BarrierMismatch(EmulationError):
    """A barrier that some waves of a workgroup wait at while the others have ended."""


class Deadlock(EmulationError):
    """Waves that spin for ever: no workgroup changes memory, passes a barrier or ends any more."""
