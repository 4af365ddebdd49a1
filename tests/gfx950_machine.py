"""A bare machine for instruction tests: set registers, execute lines of assembly, look at registers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from mxfp4lab.gfx950 import Memory, RunResult, parse_amdgcn, run
from mxfp4lab.gfx950.machine.decode import build_step
from mxfp4lab.gfx950.machine.errors import UnwaitedData
from mxfp4lab.gfx950.machine.operands import Decoder
from mxfp4lab.gfx950.machine.state import Chunk, Group, unpack_mask

SKELETON = """\t.text
k:
{body}
\ts_endpgm
\t.amdhsa_kernel k
\t\t.amdhsa_group_segment_fixed_size {lds}
\t\t.amdhsa_private_segment_fixed_size {scratch}
\t\t.amdhsa_kernarg_size {kernarg}
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t\t.amdhsa_next_free_vgpr 64
\t\t.amdhsa_next_free_sgpr 32
\t.end_amdhsa_kernel
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
{args}
    .max_flat_workgroup_size: {threads}
    .name:           k
...
\t.end_amdgpu_metadata
"""
_ARG = "      - .offset:         {offset}\n        .size:           8\n        .value_kind:     global_buffer"


def kernel(body: str, *, pointers: int = 2, threads: int = 64, lds: int = 0, scratch: int = 0) -> SimpleNamespace:
    """A kernel of the given instructions; s[0:1] holds the argument pointer, s2 the workgroup, v0 the thread."""
    args = "\n".join(_ARG.format(offset=8 * i) for i in range(pointers))
    text = SKELETON.format(body=body, lds=lds, scratch=scratch, kernarg=8 * pointers, args=args, threads=threads)
    program, descriptor = parse_amdgcn(text)
    return SimpleNamespace(program=program, descriptor=descriptor)


def launch(
    body: str, *arrays: np.ndarray, grid: int = 1, threads: int = 64, lds: int = 0, waits: bool = False, **options
) -> RunResult:
    """Run a kernel of the given instructions on the arrays.

    Most bodies leave out the waits that they do not test: findings about them are dropped unless `waits` asks for them.
    """
    result = run(kernel(body, pointers=len(arrays), threads=threads, lds=lds), (grid,), *arrays, **options)
    if not waits:
        result.findings = [finding for finding in result.findings if not isinstance(finding, UnwaitedData)]
    return result


class Machine:
    """Registers of `waves` waves of one workgroup each.

    Args:
        waves: how many.
        lds: LDS bytes.
        memory: global memory, or None for an empty one.
    """

    def __init__(self, waves: int = 2, lds: int = 0, memory: Memory | None = None, flush32: bool = False) -> None:
        self.chunk = Chunk(np.arange(waves), 1, 64 + 64, lds, 64)
        self.memory = memory or Memory()
        self.decoder = Decoder(64, lds, flush32, self.memory)
        self.group = Group(self.chunk, 0, np.arange(waves))

    def v(self, n: int, kind: type = np.uint32) -> np.ndarray:
        """Vector register n, [waves, 64]."""
        return self.chunk.vfile[n].view(kind)

    def a(self, n: int, kind: type = np.uint32) -> np.ndarray:
        """Accumulation register n."""
        return self.chunk.vfile[64 + n].view(kind)

    def s(self, n: int, kind: type = np.uint32) -> np.ndarray:
        """Scalar register n, [waves]."""
        return self.group.S[n].view(kind)

    def pair(self, n: int) -> np.ndarray:
        """64-bit scalar register pair n:n+1."""
        return self.group.Q[n // 2]

    def mask(self, n: int = 106) -> np.ndarray:
        """The pair as lane mask, [waves, 64] bool."""
        return unpack_mask(self.pair(n))

    def exec(self, lanes: np.ndarray | int) -> None:
        """Set EXEC from [waves, 64] bool or from an int."""
        if isinstance(lanes, int):
            self.pair(126)[:] = np.uint64(lanes)
        else:
            self.pair(126)[:] = np.packbits(lanes, axis=1, bitorder="little").view(np.uint64)[:, 0]
        self.group.refresh_exec()

    def execute(self, *lines: str) -> None:
        """Execute instructions that do not branch."""
        program = kernel("\n".join("\t" + line for line in lines)).program
        with np.errstate(all="ignore"):
            for instruction in program.instructions[:-1]:
                step = build_step(instruction, self.decoder)
                if step is not None:
                    step(self.group)
