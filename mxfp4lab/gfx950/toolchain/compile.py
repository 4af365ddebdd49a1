"""Compile Triton kernels for a GPU that is not there: no device, no driver, the code that the JIT would make."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mxfp4lab.gfx950.toolchain import cache, diagnostics
from mxfp4lab.gfx950.toolchain.apart import DiedError, run_apart
from mxfp4lab.gfx950.toolchain.codeobject import launch_hash, load_launch
from mxfp4lab.gfx950.toolchain.compiled import Compiled, CompiledPlan
from mxfp4lab.gfx950.toolchain.errors import CompileError, explain
from mxfp4lab.gfx950.toolchain.knobs import buffer_operations, current_knobs, knob_environment, toolchain_versions
from mxfp4lab.gfx950.toolchain.source import meaning, source_class, unwrap
from mxfp4lab.gfx950.toolchain.specialize import (
    Specialization,
    source_attributes,
    specialize_launch,
    specialize_types,
)
from mxfp4lab.hardware import LDS_BYTES, MAX_WORKGROUP_THREADS, SM90_SHARED_BYTES

LDS_LIMITS: dict[str, int] = {"gfx950": LDS_BYTES, "gfx942": 65536, "sm_90": SM90_SHARED_BYTES}
APART_TIMEOUT_S = 300.0  # of a compilation in a forked process


@dataclass(frozen=True)
class KernelJob:
    """One kernel to compile: everything that decides its machine code, and the keys made from it."""

    jit_fn: Any
    specialization: Specialization
    options: tuple[tuple[str, Any], ...]
    arch: str
    knobs: tuple[tuple[str, str], ...]

    @functools.cached_property
    def kernel_hash(self) -> str:
        """16 hex digits: the kernel whatever compiles it; comments, docstrings and places in files do not count."""
        return _digest(self._identity(meaning))[:16]

    @functools.cached_property
    def key(self) -> str:
        """64 hex digits: the kernel, its lines, the knobs and the toolchain.

        The source's path counts too: the listing names it, and another checkout's lines are not this one's.
        """
        from triton._C.libtriton import get_cache_invalidating_env_vars

        path, environment = unwrap(self.jit_fn).fn.__code__.co_filename, dict(get_cache_invalidating_env_vars())
        identity = self._identity(lambda jit_fn: jit_fn.cache_key)  # with helpers and globals
        return _digest([identity, path, self.knobs, toolchain_versions(), environment])

    def _identity(self, source: Any) -> list[Any]:
        chosen = self.specialization
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            constants = {
                name: ["jit", source(value)] if hasattr(value, "cache_key") else [type(value).__name__, str(value)]
                for name, value in chosen.constants.items()
            }
            kernel = [self.jit_fn.__name__, source(self.jit_fn)]
        return [*kernel, chosen.signature, constants, chosen.attributes, self.options, self.arch]


def compile_kernel(
    jit_fn: Any,
    signature: Mapping[str, str],
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
        signature: run-time parameter -> Triton type ("*u8", "*bf16", "i32", "fp32").
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
    jit_fn = unwrap(jit_fn)
    small = small_pointers and arch.startswith("gfx") and buffer_operations(current_knobs(knobs))
    chosen = specialize_types(jit_fn, signature, constants or {}, aligned, small)
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


def launch_job(
    launch: Any, buffers: Sequence[Any], arch: str, knobs: Mapping[str, str | None] | None = None
) -> KernelJob:
    """The job that a Triton launch stands for: arguments specialised as the JIT would."""
    jit_fn = unwrap(launch.fn)
    try:
        chosen = specialize_launch(jit_fn, launch, buffers, arch, buffer_operations(current_knobs(knobs)))
    except ValueError as error:
        raise CompileError(f"{launch.name}: {error}", "request") from None
    return make_job(jit_fn, chosen, dict(launch.options), arch, knobs)


def plan_hash(plan: Any, arch: str | None = None) -> str:
    """16 hex digits over the kernels of a plan, without compiling them: the `kernel_hash` of a trial."""
    arch = arch or getattr(plan, "arch", "gfx950")
    hashes = [
        launch_job(launch, plan.buffers, arch).kernel_hash if hasattr(launch, "fn") else launch_hash(launch)
        for launch in plan.launches
    ]
    return _digest(hashes)[:16]


def make_job(
    jit_fn: Any, specialization: Specialization, options: Mapping[str, Any] | None, arch: str,
    knobs: Mapping[str, str | None] | None = None,
) -> KernelJob:  # fmt: skip
    """Check options and target and make a job.

    Raises:
        CompileError: unknown target or option, or more threads than a workgroup holds ("request").
    """
    options = {name: value for name, value in (options or {}).items() if value is not None}
    known, lanes = _option_names(arch), gpu_target(arch).warp_size
    unknown = sorted(set(options) - known)
    if unknown:
        raise CompileError(
            f"options: unknown name {unknown[0]!r} for {arch}; allowed: {', '.join(sorted(known))}", "request"
        )
    warps = options.get("num_warps", 4)
    if isinstance(warps, int) and warps * lanes > MAX_WORKGROUP_THREADS:
        most = f"at most {MAX_WORKGROUP_THREADS // lanes} ({MAX_WORKGROUP_THREADS} threads)"
        raise CompileError(
            f"num_warps={warps} of {jit_fn.__name__}: {warps * lanes} threads on {arch}; allowed: {most}", "request"
        )
    return KernelJob(jit_fn, specialization, tuple(sorted(options.items())), arch, tuple(current_knobs(knobs).items()))


def compile_job(job: KernelJob, use_cache: bool = True) -> Compiled:
    """Take a job from the cache or compile it; a kernel typed into a notebook cell is compiled in a forked process.

    Raises:
        CompileError: also one that the cache remembers.
    """
    found = cache.load(job.key) if use_cache else None
    if found is None:
        # A kernel that stands in no file was typed into a notebook, which a compiler that aborts would take along.
        typed = not os.path.isfile(unwrap(job.jit_fn).fn.__code__.co_filename)
        try:
            found = _compile_apart(job) if typed else _compile_now(job)
        except CompileError as error:
            found = error
        if use_cache:
            cache.store(found, job.key)
    if isinstance(found, CompileError):
        raise found
    return found


def gpu_target(arch: str) -> Any:
    """Triton's target for "gfx950" or "sm_90".

    Raises:
        CompileError: the name is neither a gfx nor an sm target.
    """
    from triton.backends.compiler import GPUTarget

    if arch.startswith("gfx") and arch[3:6].isalnum() and len(arch) >= 6:
        return GPUTarget("hip", arch, 64 if arch[3] == "9" else 32)
    if arch.startswith("sm_") and arch[3:].isdigit():
        return GPUTarget("cuda", int(arch[3:]), 32)
    raise CompileError(f"arch: {arch!r} is no target; allowed: gfx950 (or another gfx name), sm_90", "request")


def triton_source(job: KernelJob) -> Any:
    """The `ASTSource` that Triton compiles, or launches what was compiled from it."""
    chosen, jit_fn = job.specialization, job.jit_fn
    parameters = {parameter.name: index for index, parameter in enumerate(jit_fn.params)}
    return source_class(jit_fn)(
        fn=jit_fn, signature=dict(chosen.signature),
        constexprs={(parameters[name],): value for name, value in chosen.constants.items()},
        attrs=source_attributes(jit_fn, chosen.attributes),
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
        diagnostics.captured_stderr() as said,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            return triton.compile(triton_source(job), target=gpu_target(job.arch), options=dict(job.options))
        except Exception as error:
            failure = explain(error, said(), job.jit_fn.__name__, job.arch)
    raise failure  # outside the handler: Triton's traceback would keep its modules alive as long as the error


def _compile_apart(job: KernelJob) -> Compiled:
    with tempfile.NamedTemporaryFile(prefix="mxfp4lab-") as said:

        def work() -> bytes:
            diagnostics.kept_in = said.name
            try:
                return cache.encode_entry(_compile_now(job), job.key)
            except CompileError as error:
                return cache.encode_entry(error, job.key)

        try:
            result = cache.decode_entry(run_apart(work, APART_TIMEOUT_S), job.key)
        except TimeoutError:
            raise CompileError(
                f"{job.jit_fn.__name__}: compilation took over {APART_TIMEOUT_S:g} s", "timeout"
            ) from None
        except DiedError as error:
            words = diagnostics.last_words(said.read().decode("utf-8", "replace"))
            raise CompileError(f"{job.jit_fn.__name__}: the compiler died ({error}): {words}", "crash") from None
    if isinstance(result, CompileError):
        raise result
    assert result is not None, "a fork of this process writes what this process reads"
    result.from_cache = False
    return result


def _compile_now(job: KernelJob) -> Compiled:
    chosen, jit_fn = job.specialization, job.jit_fn
    started = time.perf_counter()
    try:
        kernel = _run_triton(job)
    except OSError as error:  # no room for temporary files
        raise explain(error, "", jit_fn.__name__, job.arch) from error
    metadata = kernel.metadata
    limit = LDS_LIMITS.get(job.arch)
    if limit is not None and metadata.shared > limit:
        memory = "LDS" if job.arch.startswith("gfx") else "shared memory"
        raise CompileError(f"{jit_fn.__name__}: needs {metadata.shared} B of {memory}; {job.arch} has {limit} B", "lds")
    text, binary = ("ptx", "cubin") if job.arch.startswith("sm_") else ("amdgcn", "hsaco")
    return Compiled(
        name=metadata.name, arch=job.arch, asm=kernel.asm[text], binary=kernel.asm[binary],
        signature=chosen.runtime_signature(),
        constants={name: str(value) for name, value in chosen.constants.items()},
        num_warps=metadata.num_warps, lds_bytes=metadata.shared, kernel_hash=job.kernel_hash,
        toolchain=toolchain_versions(), knobs=dict(job.knobs), compile_s=time.perf_counter() - started,
        metadata=json.loads(json.dumps(metadata._asdict(), default=vars)),
    )  # fmt: skip


@functools.lru_cache(maxsize=16)
def _option_names(arch: str) -> frozenset[str]:
    from triton.compiler import make_backend

    with knob_environment(current_knobs()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return frozenset(make_backend(gpu_target(arch)).parse_options({}).__dict__)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
