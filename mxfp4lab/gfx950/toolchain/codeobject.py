"""Code objects that somebody else compiled: load them, and the ones that a plan's launches name."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950.isa import IsaError, read_code_object
from mxfp4lab.gfx950.isa.elf import open_code_object
from mxfp4lab.gfx950.toolchain.compiled import Compiled
from mxfp4lab.gfx950.toolchain.errors import CompileError
from mxfp4lab.hardware import WAVE_LANES


def load_code_object(
    source: str | Path | bytes, name: str | None = None, lds_bytes: int | None = None, block_threads: int | None = None
) -> Compiled:
    """Load one kernel of a code object for gfx950 (.co, .hsaco): resources, mix, hazards and program as of ours.

    Args:
        source: path or contents.
        name: the kernel; may be left out where the file has one.
        lds_bytes: LDS that a launch allocates; without it what the kernel descriptor fixes.
        block_threads: threads of a workgroup; without it the most that the metadata allows.

    Raises:
        CompileError: kind "request": not a code object for gfx950, damaged, without that kernel, or the decoder's
            package is missing.
    """
    try:
        data = open_code_object(source).data
        program, descriptor = read_code_object(source, name, lds_bytes)
    except IsaError as error:
        raise CompileError(str(error), "request") from None
    explicit = [argument for argument in descriptor.args if not argument.hidden]
    compiled = Compiled(
        name=descriptor.name, arch="gfx950", asm="", binary=data,
        signature=tuple((entry.name or f"arg{place}", entry.kind) for place, entry in enumerate(explicit)),
        num_warps=-(-(block_threads or descriptor.block_threads or WAVE_LANES) // WAVE_LANES),
        lds_bytes=descriptor.lds_bytes, kernel_hash=_hash(data, descriptor.name),
    )  # fmt: skip
    compiled.use_decoded(program, descriptor)
    return compiled


def load_launch(launch: Any, arch: str = "gfx950") -> Compiled:
    """The kernel of a launch of the file `code_object`; one object per file and kernel in a process.

    Raises:
        CompileError: as `load_code_object`, or the target is not gfx950.
    """
    if arch != "gfx950":
        raise CompileError(f"{launch.name}: a code object for gfx950 does not run on {arch}", "request")
    try:
        stamp = Path(launch.code_object).stat()
    except OSError as error:
        raise CompileError(f"{launch.code_object}: {error.strerror}", "request") from None
    return _load(str(launch.code_object), launch.name, launch.block, stamp.st_size, stamp.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _load(path: str, name: str, block: int, size: int, changed_ns: int) -> Compiled:
    return load_code_object(path, name, block_threads=block)


def launch_hash(launch: Any) -> str:
    """16 hex digits for the kernel of a launch of a code object: its `kernel_hash`, without decoding it.

    Raises:
        CompileError: the file is not there.
    """
    try:
        return _hash(Path(launch.code_object).read_bytes(), launch.name)
    except OSError as error:
        raise CompileError(f"{launch.code_object}: {error.strerror}", "request") from None


def _hash(data: bytes, name: str) -> str:
    return hashlib.sha256(data + name.encode()).hexdigest()[:16]
