"""Code objects that somebody else compiled: load them, and resolve the ones that a plan names."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

from mxfp4lab.aiter.install import AiterError, find_aiter
from mxfp4lab.gfx950.isa import IsaError
from mxfp4lab.gfx950.isa.codeobject import open_code_object, read_code_object
from mxfp4lab.gfx950.toolchain.compiled import Compiled
from mxfp4lab.gfx950.toolchain.errors import CompileError

WAVE = 64


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
    threads = block_threads or descriptor.block_threads or WAVE
    compiled = Compiled(
        name=descriptor.name, arch="gfx950", asm="", binary=data,
        signature=tuple((argument.name or f"arg{place}", argument.kind)
                        for place, argument in enumerate(descriptor.args) if not argument.hidden),
        num_warps=-(-threads // WAVE), lds_bytes=descriptor.lds_bytes,
        kernel_hash=hashlib.sha256(data + descriptor.name.encode()).hexdigest()[:16],
    )  # fmt: skip
    compiled.use_decoded(program, descriptor)
    return compiled


def resolve_code_object(code_object: str) -> Path:
    """The file behind a launch's `code_object`: a path, or "f4gemm/NAME.co" of an installed aiter.

    Raises:
        CompileError: kind "request", with how to get it.
    """
    path = Path(code_object)
    if path.is_absolute():
        return path
    try:
        folder = find_aiter().code_object_folder()
    except AiterError as error:
        raise CompileError(f"{code_object}: {error}", "request") from None
    if folder is None:
        raise CompileError(f"{code_object}: the installed aiter came without code objects for gfx950", "request")
    return folder.parent / code_object


def load_launch(launch: Any, arch: str = "gfx950") -> Compiled:
    """The kernel of a `CodeObjectLaunch`; one object per file and kernel in a process.

    Raises:
        CompileError: as `load_code_object`, or the target is not gfx950.
    """
    if arch != "gfx950":
        raise CompileError(f"{launch.name}: a code object for gfx950 does not run on {arch}", "request")
    path = resolve_code_object(launch.code_object)
    try:
        stamp = path.stat()
    except OSError as error:
        raise CompileError(f"{path}: {error.strerror}", "request") from None
    return _load(str(path), launch.name, launch.block, stamp.st_size, stamp.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _load(path: str, name: str, block: int, size: int, changed_ns: int) -> Compiled:
    return load_code_object(path, name, block_threads=block)


def launch_hash(launch: Any) -> str:
    """16 hex digits for the kernel of a `CodeObjectLaunch`: its `kernel_hash`, without decoding it.

    Raises:
        CompileError: the file is not there.
    """
    path = resolve_code_object(launch.code_object)
    try:
        return hashlib.sha256(path.read_bytes() + launch.name.encode()).hexdigest()[:16]
    except OSError as error:
        raise CompileError(f"{path}: {error.strerror}", "request") from None
