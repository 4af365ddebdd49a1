"""Where a Triton kernel's text lies: its module parsed with comments kept, and what its names refer to."""

from __future__ import annotations

import functools
import inspect
import linecache
from dataclasses import dataclass
from typing import Any

import libcst as cst


@dataclass(frozen=True)
class Source:
    """A function of a module.

    Attributes:
        key: (file, name): the same function found twice has one key.
        node: its definition; module: the parsed file; position: index of the definition in it.
        globals: what its free names refer to.
    """

    key: tuple[str, str]
    node: cst.FunctionDef
    module: cst.Module
    position: int
    globals: dict[str, Any]


def source_of(function: Any) -> Source:
    """The definition of a `@triton.jit` function.

    Raises:
        ValueError: if its text cannot be found.
    """
    plain = function.fn
    file = inspect.getsourcefile(plain) or plain.__code__.co_filename
    module = _parse(file)
    for position, statement in enumerate(module.body):
        if isinstance(statement, cst.FunctionDef) and statement.name.value == plain.__name__:
            return Source((file, plain.__name__), statement, module, position, plain.__globals__)
    raise ValueError(f"kernel {plain.__name__!r}: its definition is not at the top level of {file}")


@functools.lru_cache(maxsize=64)
def _parse(file: str) -> cst.Module:
    lines = linecache.getlines(file)
    if not lines:
        raise ValueError(f"the source of a kernel is needed to export it, and {file} cannot be read")
    return cst.parse_module("".join(lines))


def is_kernel(value: Any) -> bool:
    """Is it a `@triton.jit` function?"""
    return hasattr(value, "fn") and hasattr(value, "params") and hasattr(value, "cache_key")


def constexpr_parameters(function: Any) -> set[str]:
    """Parameters annotated `tl.constexpr`."""
    return {parameter.name for parameter in function.params if parameter.is_constexpr}


def assignment_of(source: Source, name: str) -> cst.CSTNode | None:
    """The top-level statement that binds a name in the function's module: an assignment or an import."""
    for statement in source.module.body:
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for part in statement.body:
            if isinstance(part, cst.Assign) and any(
                isinstance(t.target, cst.Name) and t.target.value == name for t in part.targets
            ):
                return statement
            if isinstance(part, cst.AnnAssign) and isinstance(part.target, cst.Name) and part.target.value == name:
                return statement
            if isinstance(part, (cst.ImportFrom, cst.Import)) and not isinstance(part.names, cst.ImportStar):
                for alias in part.names:
                    bound = alias.asname.name if alias.asname else alias.name
                    if isinstance(bound, cst.Name) and bound.value == name:
                        return statement.with_changes(body=[part.with_changes(
                            names=[alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)],
                            **({"lpar": None, "rpar": None} if isinstance(part, cst.ImportFrom) else {}),
                        )])  # fmt: skip
    return None
