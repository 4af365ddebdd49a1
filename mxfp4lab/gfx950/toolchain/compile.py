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
from mxfp4lab.gfx950.toolchain.compiled import Compiled, CompiledPlan
from mxfp4lab.gfx950.toolchain.errors import CompileError, explain
from mxfp4lab.gfx950.toolchain.knobs import current_knobs, knob_environment, toolchain_versions
from mxfp4lab.gfx950.toolchain.resources import LDS_BYTES_PER_CU
from mxfp4lab.gfx950.toolchain.specialize import (
    DTYPE_NAMES,
    MAX_BUFFER_BYTES,
    Pointer,
    Specialization,
    source_attributes,
    specialize,
)

LDS_LIMITS: dict[str, int] = {"gfx950": LDS_BYTES_PER_CU, "gfx942": 65536, "sm_90": 232448}
APART_TIMEOUT_S = 300.0  # of a compilation in a forked process
_FALSE_WORDS = ("0", "false", "off", "no", "n", "f")


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
        """16 hex digits: the kernel whatever compiles it."""
        return _digest(self._identity())[:16]

    @functools.cached_property
    def key(self) -> str:
        """64 hex digits: the kernel, the knobs and the toolchain.

        The source's path counts too: the listing names it, and another checkout's lines are not this one's.
        """
        path = unwrap(self.jit_fn).fn.__code__.co_filename
        return _digest([*self._identity(), path, self.knobs, toolchain_versions(), _triton_environment()])

    def _identity(self) -> list[Any]:
        chosen = self.specialization
        constants = {name: _constant_key(value) for name, value in chosen.constants.items()}
        return [self.jit_fn.__name__, _source_key(self.jit_fn), chosen.signature, constants, chosen.attributes,
                self.options, self.arch]  # fmt: skip


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
    constants = dict(constants or {})
    resolved, values, attributes = {}, {}, {}
    for parameter in jit_fn.params:
        name = parameter.name
        if name in constants or (parameter.is_constexpr and parameter.has_default):
            resolved[name] = "constexpr"
            values[name] = constants.pop(name, parameter.default)
        elif name in signature and not parameter.is_constexpr:
            resolved[name] = kind = signature[name]
            pointer = kind.startswith("*")
            divisible = pointer if aligned is None else name in aligned
            small = pointer and small_pointers and arch.startswith("gfx") and _buffer_ops(current_knobs(knobs))
            if divisible or small:
                attributes[name] = "D" * divisible + "S" * small
        else:
            where = "constants" if parameter.is_constexpr else "signature"
            raise CompileError(f"{where}: {jit_fn.__name__} needs {name!r}", "request")
    unknown = sorted((set(constants) | set(signature) | set(aligned or ())) - set(resolved))
    if unknown:
        raise CompileError(f"signature: {jit_fn.__name__} has no parameter {unknown[0]!r}", "request")
    return compile_job(make_job(jit_fn, Specialization(resolved, values, attributes), options, arch, knobs), use_cache)


def compile_launch(
    launch: Any, buffers: Sequence[Any], arch: str = "gfx950", *, knobs: Mapping[str, str | None] | None = None,
    use_cache: bool = True,
) -> Compiled:  # fmt: skip
    """Compile one launch of a plan for the very arguments that it passes.

    Args:
        launch: a `TritonLaunch` (or a `CodeObjectLaunch`, which is loaded instead).
        buffers: the plan's buffers, which give pointers their types.
        arch, knobs, use_cache: as in `compile_kernel`.

    Raises:
        CompileError: as `compile_kernel`.
    """
    if not hasattr(launch, "fn"):
        from mxfp4lab.gfx950.toolchain.codeobject import load_launch

        return load_launch(launch, arch)
    return compile_job(launch_job(launch, buffers, arch, knobs), use_cache)


def compile_plan(
    plan: Any, arch: str | None = None, *, knobs: Mapping[str, str | None] | None = None, use_cache: bool = True
) -> CompiledPlan:
    """Compile every launch of a plan, in this process; `compile_many` spreads plans over cores.

    Raises:
        CompileError: the first launch that fails.
    """
    if not hasattr(plan, "launches"):
        raise CompileError(f"plan: a {type(plan).__name__}; allowed: a Plan, as build_plan makes it", "request")
    arch = arch or getattr(plan, "arch", "gfx950")
    kernels = tuple(compile_launch(launch, plan.buffers, arch, knobs=knobs, use_cache=use_cache)
                    for launch in plan.launches)  # fmt: skip
    return CompiledPlan(plan, kernels)


def launch_job(
    launch: Any, buffers: Sequence[Any], arch: str, knobs: Mapping[str, str | None] | None = None
) -> KernelJob:
    """The job that a Triton launch stands for: arguments specialised as the JIT would."""
    jit_fn = unwrap(launch.fn)
    values = current_knobs(knobs)
    by_name = {buffer.name: buffer for buffer in buffers}
    arguments: dict[str, Any] = dict(launch.constants)
    for name, value in launch.args:
        if hasattr(value, "buffer"):
            if value.buffer not in by_name:
                raise CompileError(f"args: {launch.name} names a buffer the plan lacks: {value.buffer!r}", "request")
            buffer = by_name[value.buffer]
            dtype = DTYPE_NAMES.get(buffer.dtype, buffer.dtype)
            arguments[name] = Pointer(dtype, small=buffer.nbytes <= MAX_BUFFER_BYTES)
        else:
            arguments[name] = value
    try:
        chosen = specialize(jit_fn, arguments, arch, _buffer_ops(values), dict(launch.constants))
    except ValueError as error:
        raise CompileError(f"{launch.name}: {error}", "request") from None
    return make_job(jit_fn, chosen, dict(launch.options), arch, knobs)


def plan_hash(plan: Any, arch: str | None = None) -> str:
    """16 hex digits over the kernels of a plan, without compiling them: the `kernel_hash` of a trial."""
    arch = arch or getattr(plan, "arch", "gfx950")
    hashes = []
    for launch in plan.launches:
        if hasattr(launch, "fn"):
            hashes.append(launch_job(launch, plan.buffers, arch).kernel_hash)
        else:
            from mxfp4lab.gfx950.toolchain.codeobject import launch_hash

            hashes.append(launch_hash(launch))
    return _digest(hashes)[:16]


def make_job(
    jit_fn: Any, specialization: Specialization, options: Mapping[str, Any] | None, arch: str,
    knobs: Mapping[str, str | None] | None = None,
) -> KernelJob:  # fmt: skip
    """Check options and target and make a job.

    Raises:
        CompileError: unknown target or option ("request").
    """
    options = {name: value for name, value in (options or {}).items() if value is not None}
    values = current_knobs(knobs)
    known = _option_names(arch)
    unknown = sorted(set(options) - known)
    if unknown:
        raise CompileError(
            f"options: unknown name {unknown[0]!r} for {arch}; allowed: {', '.join(sorted(known))}", "request"
        )
    return KernelJob(jit_fn, specialization, tuple(sorted(options.items())), arch, tuple(values.items()))


def compile_job(job: KernelJob, use_cache: bool = True) -> Compiled:
    """Take a job from the cache or compile it; a kernel typed into a notebook cell is compiled in a forked process.

    Raises:
        CompileError: also one that the cache remembers.
    """
    if use_cache:
        found = cache.load(job.key)
        if isinstance(found, CompileError):
            raise found
        if found is not None:
            return found
    try:
        compiled = _compile_apart(job) if _is_typed(job) else _compile_now(job)
    except CompileError as error:
        if use_cache:
            cache.store(error, job.key)
        raise
    if use_cache:
        cache.store(compiled, job.key)
    return compiled


def unwrap(jit_fn: Any) -> Any:
    """The `JITFunction` inside heuristics and autotuner wrappers.

    Raises:
        CompileError: there is none, or Triton's interpreter has replaced it.
    """
    seen = jit_fn
    while not hasattr(seen, "params") and hasattr(seen, "fn"):
        seen = seen.fn
    if type(seen).__name__ == "InterpretedFunction":
        raise CompileError("TRITON_INTERPRET=1: kernels are interpreted and cannot be compiled; unset it", "request")
    if not hasattr(seen, "params") or not hasattr(seen, "cache_key"):
        raise CompileError(f"jit_fn: {type(jit_fn).__name__} is no @triton.jit function", "request")
    return seen


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


def source_class(jit_fn: Any) -> Any:
    """Triton's or Gluon's front end, by the decorator of the kernel."""
    if getattr(jit_fn, "is_gluon", lambda: False)():
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource
    from triton.compiler import ASTSource

    return ASTSource


def _run_triton(job: KernelJob) -> Any:
    """Triton's compiled kernel of a job, with the job's knobs and nothing of it left on disk.

    Raises:
        CompileError: what Triton raised, in one line.
    """
    import triton

    chosen, jit_fn = job.specialization, job.jit_fn
    parameters = {parameter.name: index for index, parameter in enumerate(jit_fn.params)}
    # A cache folder of its own: Triton's trusts what it finds, and a torn file there would be believed.
    with (
        tempfile.TemporaryDirectory(prefix="mxfp4lab-") as folder,
        knob_environment(dict(job.knobs), {"TRITON_CACHE_DIR": folder}),
        diagnostics.captured_stderr() as said,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            source = source_class(jit_fn)(
                fn=jit_fn, signature=dict(chosen.signature),
                constexprs={(parameters[name],): value for name, value in chosen.constants.items()},
                attrs=source_attributes(jit_fn, chosen.attributes),
            )  # fmt: skip
            return triton.compile(source, target=gpu_target(job.arch), options=dict(job.options))
        except Exception as error:
            failure = explain(error, said(), jit_fn.__name__, job.arch)
    raise failure  # outside the handler: Triton's traceback would keep its modules alive as long as the error


def _is_typed(job: KernelJob) -> bool:
    """Whether the kernel stands in no file: a notebook cell, where a compiler that aborts would take the notebook."""
    return not os.path.isfile(unwrap(job.jit_fn).fn.__code__.co_filename)


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


def _buffer_ops(knobs: Mapping[str, str]) -> bool:
    return knobs.get("AMDGCN_USE_BUFFER_OPS", "1").lower() not in _FALSE_WORDS


def _source_key(jit_fn: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jit_fn.cache_key  # covers the helpers it calls and the globals it reads


def _constant_key(value: Any) -> list[str]:
    if hasattr(value, "cache_key"):
        return ["jit", value.cache_key]
    return [type(value).__name__, str(value)]


def _triton_environment() -> dict[str, str]:
    from triton._C.libtriton import get_cache_invalidating_env_vars

    return dict(get_cache_invalidating_env_vars().items())


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
