"""What a plan is: buffers, launches, and nothing that runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mxfp4lab.config import GemmConfig
from mxfp4lab.display import Grid, Shown
from mxfp4lab.shapes import Shape

BYTES = {"bf16": 2, "u8": 1, "f32": 4, "i32": 4}
TORCH_NAMES = {"bf16": "bfloat16", "u8": "uint8", "f32": "float32", "i32": "int32"}


@dataclass(frozen=True)
class Buffer:
    """A tensor of the plan.

    Attributes:
        name: unique in the plan.
        shape: elements, row-major and contiguous.
        dtype: "bf16", "u8", "f32" or "i32".
        role: "input" (given), "workspace" (kept between calls) or "output" (new on every call).
        fill: None for uninitialised memory, else what every element holds before the first launch of the first call.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    fill: int | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.elements * BYTES[self.dtype]


@dataclass(frozen=True)
class Ref:
    """A pointer argument: the start of a buffer."""

    buffer: str


@dataclass(frozen=True)
class TritonLaunch:
    """One launch of a Triton kernel.

    Attributes:
        name: the entry point.
        fn: the ``triton.JITFunction``.
        grid: programs along x, y, z.
        args: (parameter, value) of run-time parameters in signature order.
        constants: (parameter, value) of compile-time constants; for a parameter that the kernel does not annotate so,
            Triton's own launcher takes a `tl.constexpr`.
        options: (option, value) for the compiler: num_warps, num_stages, waves_per_eu, matrix_instr_nonkdim.
        peer_stride: workgroups i, i + peer_stride, i + 2 peer_stride, ... wait for each other's results; 0: none does.
    """

    name: str
    fn: Any
    grid: tuple[int, int, int]
    args: tuple[tuple[str, Ref | int | float], ...]
    constants: tuple[tuple[str, Any], ...]
    options: tuple[tuple[str, int | str], ...]
    peer_stride: int = 0


@dataclass(frozen=True)
class CodeObjectLaunch:
    """One launch of a prebuilt code object.

    Attributes:
        name: the kernel's symbol.
        code_object: path of its file.
        grid: workgroups along x, y, z.
        block: threads of a workgroup.
        args: kernel argument segment as (byte offset, size in bytes, value).
    """

    name: str
    code_object: str
    grid: tuple[int, int, int]
    block: int
    args: tuple[tuple[int, int, Ref | int | float], ...]


@dataclass(frozen=True)
class Plan(Shown):
    """All that is needed to compute C from the task's five inputs.

    Attributes:
        output: the buffer that holds C; where it has more rows than M, C is its first M rows.
    """

    variant: str
    config: GemmConfig
    shape: Shape
    arch: str
    buffers: tuple[Buffer, ...]
    launches: tuple[TritonLaunch | CodeObjectLaunch, ...]
    output: str = "c"

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KeyError(name)

    @property
    def output_rows(self) -> int:
        """Rows of the output buffer that are C."""
        return self.shape.m

    @property
    def title(self) -> str:
        """What it is, in a line."""
        return f"Plan: {self.variant} on {self.shape}, {self.arch}, config {self.config.config_id}"

    def lines(self) -> Iterator[Grid]:
        """A table of launches and one of buffers."""
        rows = []
        for number, launch in enumerate(self.launches, 1):
            if isinstance(launch, CodeObjectLaunch):
                values = [value for _, _, value in launch.args]
                said = f"prebuilt code object, {launch.block} threads"
            else:
                values = [value for _, value in launch.args]
                said = ", ".join(
                    f"{name}={getattr(value, '__name__', value)}"
                    for name, value in (*launch.options, *launch.constants)
                )
            given = dict.fromkeys(value.buffer for value in values if isinstance(value, Ref))
            rows.append([number, launch.name, " x ".join(map(str, launch.grid)), ", ".join(given), said])
        yield Grid(("launch", "kernel", "grid", "buffers", "options and constants"), rows)
        buffers = [
            [b.name, b.role, " x ".join(map(str, b.shape)), b.dtype, b.nbytes,
             "given" if b.role == "input" else "uninitialised" if b.fill is None else str(b.fill)]
            for b in self.buffers
        ]  # fmt: skip
        yield Grid(("buffer", "role", "shape", "dtype", "bytes", "before the first call"), buffers)
