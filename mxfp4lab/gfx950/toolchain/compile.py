"""Compile Triton kernels for a GPU that is not there: no device, no driver, the code that the JIT would make."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950.toolchain import cache
from mxfp4lab.gfx950.toolchain.compiled import Compiled, CompiledPlan, code_object_hash, load_code_object
from mxfp4lab.gfx950.toolchain.errors import CompileError, captured_stderr, explain, run_apart
from mxfp4lab.gfx950.toolchain.jobs import KernelJob, digest, gpu_target, launch_job, make_job, triton_source, unwrap
from mxfp4lab.gfx950.toolchain.knobs import buffer_operations, current_knobs, knob_environment, toolchain_versions
from mxfp4lab.gfx950.toolchain.specialize import specialize, typed_arguments
from mxfp4lab.hardware import LDS_BYTES, SM90_SHARED_BYTES

LDS_LIMITS: dict[str, int] = {"gfx950": LDS_BYTES, "gfx942": 65536, "sm_90": SM90_SHARED_BYTES}
APART_TIMEOUT_S = 300.0  # of a compilation in a forked process


def compile_kernel(
    jit_fn: Any,
    signature: Mapping[str, Any],
    constants: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    arch: str = "gfx950",
    *,
    aligned: Collection[str] | None = None,
    small_pointers: bool = True,
    knobs: Mapping[str, str | None] | None = None,
    use_cache: bool = True,
) -> Compiled:
    """Compile one kernel by its signature.

    Args:
        jit_fn: a `@triton.jit` function (or one wrapped by `triton.heuristics` or `autotune`: the function inside).
        signature: run-time parameter -> Triton type ("*u8", "*bf16", "i32", "fp32"), or a tuple of types where the
            kernel takes a tuple; its entries are named "p[0]", "p[1]", ...
        constants: constexpr parameter -> value; defaults of the function fill the rest. A run-time parameter named here
            is folded into the code, as the JIT does with an int that is 1.
        options: num_warps, num_stages, waves_per_eu, matrix_instr_nonkdim, ...
        arch: "gfx950", another gfx target, or "sm_90".
        aligned: arguments known to be divisible by 16; without it every pointer, as the JIT finds for fresh tensors.
        small_pointers: every tensor's storage is at most 2^31 - 1 bytes (AMD: 32-bit buffer offsets).
        knobs: environment knobs for this compilation only.
        use_cache: whether to look into and write the disk cache.

    Raises:
        CompileError: one clear line; `kind` says what kind of failure.
    """
    jit_fn, constants = unwrap(jit_fn), constants or {}
    small = small_pointers and arch.startswith("gfx") and buffer_operations(current_knobs(knobs))
    arguments = {**typed_arguments(signature, aligned, small), **constants}
    chosen = specialize(jit_fn, arguments, arch, small, constants)
    return compile_job(make_job(jit_fn, chosen, options, arch, knobs), use_cache)


def compile_launch(
    launch: Any, buffers: Sequence[Any], arch: str = "gfx950", *, knobs: Mapping[str, str | None] | None = None,
    use_cache: bool = True,
) -> Compiled:  # fmt: skip
    """Compile one launch of a plan for the very arguments that it passes.

    Args:
        launch: with a kernel in `fn`, or with a prebuilt `code_object`, which is loaded instead.
        buffers: the plan's buffers, which give pointers their types.
        arch, knobs, use_cache: as in `compile_kernel`.

    Raises:
        CompileError: as `compile_kernel`.
    """
    if not hasattr(launch, "fn"):
        return load_launch(launch, arch)
    return compile_job(launch_job(launch, buffers, arch, knobs), use_cache)


def compile_plan(
    plan: Any, arch: str | None = None, *, knobs: Mapping[str, str | None] | None = None, use_cache: bool = True
) -> CompiledPlan:
    """Compile every launch of a plan - anything with `launches`, `buffers` and `arch` - in this process.

    Raises:
        CompileError: the first launch that fails.
    """
    if not hasattr(plan, "launches"):
        raise CompileError(f"plan: a {type(plan).__name__}; allowed: a Plan, as build_plan makes it", "request")
    arch = arch or getattr(plan, "arch", "gfx950")
    return CompiledPlan(
        plan, tuple(compile_launch(x, plan.buffers, arch, knobs=knobs, use_cache=use_cache) for x in plan.launches)
    )


def plan_hash(plan: Any, arch: str | None = None) -> str:
    """16 hex digits over the kernels of a plan, without compiling them: the `kernel_hash` of a trial.

    Raises:
        CompileError: a launch cannot be asked for, or its code object is not there.
    """
    arch, hashes = arch or getattr(plan, "arch", "gfx950"), []
    for launch in plan.launches:
        if hasattr(launch, "fn"):
            hashes.append(launch_job(launch, plan.buffers, arch).kernel_hash)
        else:
            try:
                hashes.append(code_object_hash(Path(launch.code_object).read_bytes(), launch.name))
            except OSError as error:
                raise CompileError(f"{launch.code_object}: {error.strerror}", "request") from None
    return digest(hashes)[:16]


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


def compile_job(job: KernelJob, use_cache: bool = True) -> Compiled:
    """Take a job from the cache or compile it; a kernel typed into a notebook cell is compiled in a forked process.

    Raises:
        CompileError: also one that the cache remembers.
    """
    found = cache.load(job.key) if use_cache else None
    if found is None:
        # A kernel that stands in no file was typed into a notebook, which a compiler that aborts would take along.
        typed = not os.path.isfile(job.jit_fn.fn.__code__.co_filename)
        found = _compile_apart(job) if typed else _outcome(job)
        if use_cache:
            cache.store(found, job.key)
    if isinstance(found, CompileError):
        raise found
    return found


def _compile_apart(job: KernelJob) -> Compiled | CompileError:
    try:
        entry = run_apart(job.jit_fn.__name__, lambda: cache.encode_entry(_outcome(job), job.key), APART_TIMEOUT_S)
    except CompileError as error:
        return error
    found = cache.decode_entry(entry, job.key)
    assert found is not None, "a fork of this process writes what this process reads"
    if isinstance(found, Compiled):
        found.from_cache = False
    return found


def _outcome(job: KernelJob) -> Compiled | CompileError:
    """What the compiler makes of a job in this process."""
    name, started = job.jit_fn.__name__, time.perf_counter()
    try:
        kernel = _run_triton(job)
    except CompileError as error:
        return error
    except OSError as error:  # no room for temporary files
        return explain(error, "", name, job.arch)
    metadata = kernel.metadata
    limit = LDS_LIMITS.get(job.arch)
    if limit is not None and metadata.shared > limit:
        memory = "LDS" if job.arch.startswith("gfx") else "shared memory"
        return CompileError(f"{name}: needs {metadata.shared} B of {memory}; {job.arch} has {limit} B", "lds")
    text, binary = ("ptx", "cubin") if job.arch.startswith("sm_") else ("amdgcn", "hsaco")
    return Compiled(
        name=metadata.name, arch=job.arch, asm=kernel.asm[text], binary=kernel.asm[binary],
        signature=job.specialization.runtime_signature(),
        constants={name: str(value) for name, value in job.specialization.constants.items()},
        num_warps=metadata.num_warps, lds_bytes=metadata.shared, kernel_hash=job.kernel_hash,
        toolchain=toolchain_versions(), knobs=dict(job.knobs), compile_s=time.perf_counter() - started,
        metadata=json.loads(json.dumps(metadata._asdict(), default=vars)),
    )  # fmt: skip


def _run_triton(job: KernelJob) -> Any:
    """Triton's compiled kernel of a job, with the job's knobs and nothing of it left on disk.

    Raises:
        CompileError: what Triton raised, in one line.
    """
    import triton

    # A cache folder of its own: Triton's trusts what it finds, and a torn file there would be believed.
    with (
        tempfile.TemporaryDirectory(prefix="mxfp4lab-") as folder,
        knob_environment(dict(job.knobs), {"TRITON_CACHE_DIR": folder}),
        captured_stderr() as said,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            return triton.compile(triton_source(job), target=gpu_target(job.arch), options=dict(job.options))
        except Exception as error:
            failure = explain(error, said(), job.jit_fn.__name__, job.arch)
    raise failure  # outside the handler: Triton's traceback would keep its modules alive as long as the error
