"""A kernel to compile as a value: the function inside its wrappers, and everything else that decides its code."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mxfp4lab.gfx950.toolchain.errors import CompileError
from mxfp4lab.gfx950.toolchain.knobs import buffer_operations, current_knobs, knob_environment, toolchain_versions
from mxfp4lab.gfx950.toolchain.specialize import Specialization, launch_arguments, specialize
from mxfp4lab.hardware import MAX_WORKGROUP_THREADS

_ATTRIBUTES: dict[str, list[Any]] = {"D": ["tt.divisibility", 16], "S": ["tt.pointer_range", 32]}


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
        return digest(self._identity(meaning))[:16]

    @functools.cached_property
    def key(self) -> str:
        """64 hex digits: the kernel, its lines, the knobs and the toolchain.

        The source's path counts too: the listing names it, and another checkout's lines are not this one's.
        """
        from triton._C.libtriton import get_cache_invalidating_env_vars

        path, environment = self.jit_fn.fn.__code__.co_filename, dict(get_cache_invalidating_env_vars())
        identity = self._identity(lambda jit_fn: jit_fn.cache_key)  # with helpers and globals
        return digest([identity, path, self.knobs, toolchain_versions(), environment])

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
        allowed = ", ".join(sorted(known))
        raise CompileError(f"options: unknown name {unknown[0]!r} for {arch}; allowed: {allowed}", "request")
    warps = options.get("num_warps", 4)
    if isinstance(warps, int) and warps * lanes > MAX_WORKGROUP_THREADS:
        said = f"num_warps={warps} of {jit_fn.__name__}: {warps * lanes} threads on {arch}"
        most = f"at most {MAX_WORKGROUP_THREADS // lanes} ({MAX_WORKGROUP_THREADS} threads)"
        raise CompileError(f"{said}; allowed: {most}", "request")
    return KernelJob(jit_fn, specialization, tuple(sorted(options.items())), arch, tuple(current_knobs(knobs).items()))


def launch_job(
    launch: Any, buffers: Sequence[Any], arch: str, knobs: Mapping[str, str | None] | None = None
) -> KernelJob:
    """The job that a Triton launch of a plan stands for: arguments specialised as the JIT would.

    Raises:
        CompileError: as `specialize` and `make_job`, with the launch's name.
    """
    jit_fn = unwrap(launch.fn)
    try:
        arguments, buffer_ops = launch_arguments(launch, buffers), buffer_operations(current_knobs(knobs))
        chosen = specialize(jit_fn, arguments, arch, buffer_ops, dict(launch.constants))
    except ValueError as error:
        raise CompileError(f"{launch.name}: {error}", "request") from None
    return make_job(jit_fn, chosen, dict(launch.options), arch, knobs)


def triton_source(job: KernelJob) -> Any:
    """The source, of Triton's or Gluon's front end, that Triton compiles, or launches what was compiled from it."""
    chosen, jit_fn = job.specialization, job.jit_fn
    if getattr(jit_fn, "is_gluon", lambda: False)():
        from triton.experimental.gluon._runtime import GluonASTSource as Source
    else:
        from triton.compiler import ASTSource as Source
    places = {parameter.name: index for index, parameter in enumerate(jit_fn.params)}

    def path(name: str) -> tuple[int, ...]:
        """Parameter number, and place within a tuple: "p[0]" -> (number of p, 0)."""
        parameter, *within = re.findall(r"\w+", name)
        return places[parameter], *map(int, within)

    return Source(
        fn=jit_fn, signature=dict(chosen.signature),
        constexprs={path(name): value for name, value in chosen.constants.items()},
        attrs={path(name): [[*_ATTRIBUTES[flag]] for flag in flags] for name, flags in chosen.attributes.items()},
    )  # fmt: skip


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


@functools.lru_cache(maxsize=16)
def _option_names(arch: str) -> frozenset[str]:
    from triton.compiler import make_backend

    with knob_environment(current_knobs()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return frozenset(make_backend(gpu_target(arch)).parse_options({}).__dict__)


def digest(value: Any) -> str:
    """64 hex digits over the JSON of a value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


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


@functools.lru_cache(maxsize=512)
def meaning(jit_fn: Any) -> tuple[str, ...]:
    """The code of a kernel and of the helpers it calls, and the values of the globals they read.

    Comments, docstrings, layout, file and line are left out, and so is Triton's own library: an edit of those makes no
    other kernel.
    """
    found: set[str] = set()
    todo, seen = [jit_fn], {id(jit_fn)}
    while todo:
        function = todo.pop()
        tree = function.parse()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
        found.add(ast.unparse(tree))
        for name, value in _references(tree, function.fn):
            parts = vars(value).values() if getattr(value, "__triton_aggregate__", False) else (value,)
            helpers = [part for part in parts if hasattr(part, "cache_key") and hasattr(part, "fn")]
            todo += [helper for helper in helpers if id(helper) not in seen]
            seen.update(map(id, helpers))
            if not helpers and (text := _plain(value)) is not None:
                found.add(f"{name} = {text}")
    return tuple(sorted(found))


def _references(tree: ast.AST, function: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of what a function reads from outside of it, Triton's own left out."""
    closed = inspect.getclosurevars(function).nonlocals

    def look(node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            return closed.get(node.id, function.__globals__.get(node.id))
        if isinstance(node, ast.Attribute) and isinstance(module := look(node.value), ModuleType):
            return getattr(module, node.attr, None)
        return None

    for node in ast.walk(tree):
        value = look(node)
        tritons = str(getattr(value, "__module__", "")).startswith("triton.") and type(value).__name__ != "constexpr"
        if value is not None and not tritons:
            yield ast.unparse(node), value


def _plain(value: Any) -> str | None:
    """A constant as text; None for what is none."""
    if type(value).__name__ == "constexpr":
        value = value.value
    if isinstance(value, tuple):
        parts = [_plain(part) for part in value]
        return None if None in parts else f"({', '.join(parts)})"
    simple = isinstance(value, (bool, int, float, str)) or type(value).__name__ == "dtype"
    return repr(value) if simple else None
