"""A kernel as Triton has it: the function inside its wrappers, its front end, and what of its source has a meaning."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from mxfp4lab.gfx950.toolchain.errors import CompileError


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


def source_class(jit_fn: Any) -> Any:
    """Triton's or Gluon's front end, by the decorator of the kernel."""
    if getattr(jit_fn, "is_gluon", lambda: False)():
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource
    from triton.compiler import ASTSource

    return ASTSource


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
