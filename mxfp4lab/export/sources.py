"""Where a Triton kernel's text lies: its module parsed with comments kept, and what its names refer to."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import libcst as cst

from mxfp4lab.export.walk import names


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


@dataclass(frozen=True)
class Definition:
    """A statement that a file needs besides its kernels.

    Attributes:
        name: what it binds; kind: "import", "constant" or "function"; node: the statement.
        module: the file that it stands in, parsed.
    """

    name: str
    kind: str
    node: cst.CSTNode
    module: cst.Module

    def needs(self, name: str) -> bool:
        """Does the statement mention a name?"""
        return name != self.name and name in names(self.node)


def in_order(found: Iterable[Definition]) -> list[Definition]:
    """Definitions file by file, the file whose definitions others need first, and as each file has them."""
    items = list(found)
    files: list[cst.Module] = []

    def visit(module: cst.Module) -> None:
        if any(module is other for other in files):
            return
        own = [d for d in items if d.module is module]
        for other in items:
            if other.module is not module and any(d.needs(other.name) for d in own):
                visit(other.module)
        files.append(module)

    for item in items:
        visit(item.module)
    place = {id(statement): i for module in files for i, statement in enumerate(module.body)}
    return sorted(items, key=lambda d: ([f is d.module for f in files].index(True), place.get(id(d.node), 0)))


def definitions_of(module: cst.Module, namespace: dict[str, Any], name: str) -> list[Definition]:
    """The statement that binds a name at the top level of a module, after those that it needs itself.

    A name that was imported from a module of this package is followed there.

    Raises:
        ValueError: if it was imported under another name.
    """
    found: list[Definition] = []
    _follow(module, namespace, name, found, set())
    return found


def _follow(module: cst.Module, namespace: dict[str, Any], name: str, found: list[Definition], seen: set) -> None:
    key = (id(module), name)
    if key in seen:
        return
    seen.add(key)
    statement = _binding(module, name)
    if statement is None:
        return
    part = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else statement
    if isinstance(part, (cst.ImportFrom, cst.Import)):
        alias = next(a for a in part.names if _bound(a) == name)  # type: ignore[union-attr]
        origin = _package_module(part, namespace) if isinstance(part, cst.ImportFrom) else None
        if origin is not None:
            if alias.asname is not None:
                raise ValueError(f"kernel constant {name!r} is imported under another name")
            _follow(_parse(inspect.getsourcefile(origin) or ""), vars(origin), name, found, seen)
            return
        alone = part.with_changes(names=[alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)])
        if isinstance(alone, cst.ImportFrom):
            alone = alone.with_changes(lpar=None, rpar=None)
        found.append(Definition(name, "import", statement.with_changes(body=[alone]), module))
        return
    for other in dict.fromkeys(names(part)):
        if other != name and other not in ("tl", "triton", "torch") and other in namespace:
            _follow(module, namespace, other, found, seen)
    kind = "constant" if isinstance(statement, cst.SimpleStatementLine) else "function"
    found.append(Definition(name, kind, statement, module))


def _binding(module: cst.Module, name: str) -> cst.BaseStatement | None:
    """The top-level statement that binds a name: an assignment, an import or a definition."""
    for statement in module.body:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)) and statement.name.value == name:
            return statement
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for part in statement.body:
            targets = [t.target for t in part.targets] if isinstance(part, cst.Assign) else []
            targets += [part.target] if isinstance(part, cst.AnnAssign) else []
            if any(isinstance(t, cst.Name) and t.value == name for t in targets):
                return statement
            named = isinstance(part, (cst.ImportFrom, cst.Import)) and not isinstance(part.names, cst.ImportStar)
            if named and any(_bound(alias) == name for alias in part.names):  # type: ignore[union-attr]
                return statement
    return None


def _bound(alias: cst.ImportAlias) -> str:
    bound = alias.asname.name if alias.asname else alias.name
    return bound.value if isinstance(bound, cst.Name) else ""


def _package_module(statement: cst.ImportFrom, namespace: dict[str, Any]) -> Any:
    """The loaded module behind a relative import, or one of this package; None for any other."""
    written = "" if statement.module is None else cst.Module([]).code_for_node(statement.module)
    dots = len(statement.relative)
    if dots:
        package = str(namespace.get("__package__") or "").split(".")
        written = ".".join([*package[: len(package) - dots + 1], *([written] if written else [])])
    own = written.split(".")[0] == __name__.split(".")[0]
    return sys.modules.get(written) if dots or own else None
