"""Collects from source what a piece of code needs: definitions of earlier cells and of the lab, never pickles.

A name is taken, in this order, from the code itself, from the cells before it (the latest definition counts), and from
modules of the lab (followed through their imports: nothing of the lab is imported in the end). A plain value that the
session holds is written out as a literal; any other name without source is refused, with the line that uses it.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
import symtable
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

LAB = __name__.split(".")[0]
MAX_LITERAL = 20_000  # characters


class CellError(ValueError):
    """The code cannot become a file; the message names the line of the cell."""


@dataclasses.dataclass(frozen=True)
class _Module:
    """A text with its top-level bindings."""

    label: str
    lines: tuple[str, ...]
    bindings: Mapping[str, ast.stmt]
    package: str = ""

    def text(self, node: ast.stmt) -> str:
        """A statement with its decorators and the comments right above it."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        while first > 1 and self.lines[first - 2].startswith("#"):
            first -= 1
        return "\n".join(self.lines[first - 1 : node.end_lineno])


def gather(cell: str, earlier: Sequence[str] = (), session: Mapping[str, Any] | None = None) -> str:
    """The code with everything that it needs before it.

    Args:
        cell: source of the cell.
        earlier: sources of the cells that ran before, in order; lines of magics in them are ignored.
        session: names and values of the running session, where there is one.

    Returns:
        One module's text: imports, then definitions (what is needed stands first), then the cell.

    Raises:
        CellError: naming the line of the cell that asks for something without source.
    """
    return _Gatherer(cell, earlier, session or {}).text()


class _Gatherer:
    def __init__(self, cell: str, earlier: Sequence[str], session: Mapping[str, Any]) -> None:
        self._session = session
        self._cell = parse_cell(cell)
        self._earlier = [m for m in (_parse_leniently(text, i) for i, text in enumerate(earlier)) if m is not None]
        self._imports: dict[str, None] = {}
        self._parts: list[str] = []
        self._done: set[tuple[str, str]] = set()
        self._future = False

    def text(self) -> str:
        tree = ast.parse("\n".join(self._cell.lines))
        body = []
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._own_import(node)
            else:
                body.append(node)
        bound = set(self._cell.bindings)
        for name, line in _free_names("\n".join(self._cell.lines)).items():
            if name not in bound:
                self._need(name, None, line)
        code = "\n\n".join(self._cell.text(node) for node in body)
        head = "from __future__ import annotations\n\n" if self._future else ""
        imports = "\n".join(sorted(self._imports, key=lambda text: (text.startswith("from "), text)))
        parts = [head + imports, *self._parts, code]
        return "\n\n\n".join(part for part in parts if part.strip()) + "\n"

    def _own_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
            if module.split(".")[0] == LAB:
                self._from_lab(node, alias, bound, node.lineno)
            else:
                self._imports[_import_text(node, alias)] = None

    # finding a name ---------------------------------------------------------------------------------------------------

    def _need(self, name: str, where: _Module | None, line: int) -> None:
        """Bring the definition of a name in, after what it needs itself.

        Args:
            where: the lab's module that uses it; None for the cell and the cells before it.
        """
        key = (where.label if where else "", name)
        if key in self._done or hasattr(builtins, name) or name in ("__file__", "__name__"):
            return
        self._done.add(key)
        sources = [where] if where else list(reversed(self._earlier))
        for module in sources:
            node = module.bindings.get(name)
            if node is not None:
                self._take(name, node, module, where, line)
                return
        if where is not None:
            raise CellError(f"cell line {line}: {name} of {where.label} has no definition that can be carried along")
        if name in self._session:
            self._by_value(name, self._session[name], line)
            return
        raise CellError(f"cell line {line}: name {name!r} is defined neither in this cell nor in an earlier one")

    def _take(self, name: str, node: ast.stmt, module: _Module, where: _Module | None, line: int) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            alias = next(a for a in node.names if (a.asname or a.name.split(".")[0]) == name)
            origin = _absolute(node, module) if isinstance(node, ast.ImportFrom) else alias.name
            if origin.split(".")[0] == LAB:
                self._from_lab(node, alias, name, line, module)
            else:
                self._imports[_import_text(node, alias)] = None
            return
        definition = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if where is None and not definition and name in self._session and self._is_plain(self._session[name]):
            self._by_value(name, self._session[name], line)
            return
        for other in _free_names(module.text(node)):
            if other != name:
                self._need(other, where, line)
        self._parts.append(module.text(node))

    def _from_lab(
        self, node: ast.Import | ast.ImportFrom, alias: ast.alias, bound: str, line: int, module: _Module | None = None
    ) -> None:
        if isinstance(node, ast.Import):
            better = f"write `from {alias.name} import NAME`, so that the definition can be carried along"
            raise CellError(f"cell line {line}: `import {alias.name}`: {better}")
        origin = _absolute(node, module) if module else node.module or ""
        source = _lab_module(origin, line)
        if alias.name not in source.bindings:
            value = getattr(importlib.import_module(origin), alias.name, None)
            if isinstance(value, ModuleType):
                raise CellError(f"cell line {line}: {alias.name} is a module of the lab: write `from {value.__name__} "
                                "import NAME`")  # fmt: skip
            if self._is_plain(value) and value is not None:
                self._parts.append(f"{bound} = {_literal(value)}")
                return
            raise CellError(f"cell line {line}: {origin} has no {alias.name} with source")
        self._future = self._future or any(text.startswith("from __future__") for text in source.lines)
        self._need(alias.name, source, line)
        if bound != alias.name:
            self._parts.append(f"{bound} = {alias.name}")

    # values of the session --------------------------------------------------------------------------------------------

    def _by_value(self, name: str, value: Any, line: int) -> None:
        if isinstance(value, ModuleType):
            if value.__name__.split(".")[0] == LAB:
                raise CellError(
                    f"cell line {line}: {name} is a module of the lab: write `from {value.__name__} import NAME`"
                )
            self._imports[f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")] = None
        elif self._is_plain(value):
            text = _literal(value)
            if len(text) > MAX_LITERAL:
                raise CellError(f"cell line {line}: {name} is a value of {len(text)} characters; at most {MAX_LITERAL}")
            if "SimpleNamespace" in text:
                self._imports["from types import SimpleNamespace"] = None
            self._parts.append(f"{name} = {text}")
        else:
            raise CellError(
                f"cell line {line}: {name} is a {type(value).__name__} without source: define it in the cell"
            )

    @classmethod
    def _is_plain(cls, value: Any, depth: int = 6) -> bool:
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return True
        if depth and isinstance(value, (list, tuple, set, frozenset)):
            return all(cls._is_plain(v, depth - 1) for v in value)
        if depth and isinstance(value, dict):
            return all(cls._is_plain(k, depth - 1) and cls._is_plain(v, depth - 1) for k, v in value.items())
        # A config, a shape: its fields are plain, and fields are all that a submission asks of it.
        return depth > 0 and dataclasses.is_dataclass(value) and not isinstance(value, type) and all(
            cls._is_plain(getattr(value, f.name), depth - 1) for f in dataclasses.fields(value))  # fmt: skip


def _literal(value: Any) -> str:
    if dataclasses.is_dataclass(value):
        fields = ", ".join(f"{f.name}={_literal(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return f"SimpleNamespace({fields})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_literal, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}([{', '.join(sorted(map(_literal, value)))}])"
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return repr(value)


def parse_cell(text: str) -> _Module:
    """The cell's bindings.

    Raises:
        CellError: a magic, or code that is no Python; the message names the line.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(("%", "!")):
            raise CellError(f"cell line {number}: {line.strip()[:60]!r} is IPython's, not Python's")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise CellError(f"cell line {error.lineno}: {error.msg}") from None
    return _Module("cell", tuple(lines), _bindings(tree))


def _parse_leniently(text: str, index: int) -> _Module | None:
    """An earlier cell; magics in it become comments, and a cell that still is no Python offers nothing."""
    if text.lstrip().startswith("%%"):
        return None
    lines = [
        "pass" if line.lstrip().startswith(("%", "!")) and not line[:1].isspace() else line
        for line in text.splitlines()
    ]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return None
    return _Module(f"cell {index}", tuple(lines), _bindings(tree))


def _bindings(tree: ast.Module) -> dict[str, ast.stmt]:
    """Name -> the last top-level statement that binds it; imports inside `if TYPE_CHECKING` count."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name.split(".")[0]: node for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                found |= {
                    n.id: node for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                }
        elif isinstance(node, ast.If):
            found |= {k: v for k, v in _bindings(ast.Module(node.body + node.orelse, [])).items()
                      if isinstance(v, (ast.Import, ast.ImportFrom))}  # fmt: skip
    return found


def _free_names(text: str) -> dict[str, int]:
    """Global names that code reads, with the first line that does."""
    free: set[str] = set()

    def visit(table: symtable.SymbolTable, top: bool) -> None:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                free.add(symbol.get_name())
        for child in table.get_children():
            visit(child, False)

    visit(symtable.symtable(text, "cell", "exec"), True)
    lines: dict[str, int] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and node.id in free:
            lines[node.id] = min(lines.get(node.id, node.lineno), node.lineno)
    return {name: lines[name] for name in sorted(lines, key=lambda n: (lines[n], n))}


def _import_text(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import([alias]))
    return ast.unparse(ast.ImportFrom(node.module, [alias], node.level))


def _absolute(node: ast.ImportFrom, module: _Module) -> str:
    if not node.level:
        return node.module or ""
    package = module.package.split(".")
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


def _lab_module(name: str, line: int) -> _Module:
    try:
        loaded = importlib.import_module(name)
        file = inspect.getsourcefile(loaded)
        text = Path(file or "").read_text()
    except (ImportError, OSError, TypeError) as error:
        raise CellError(f"cell line {line}: {name} cannot be read: {error}") from None
    package = loaded.__name__ if hasattr(loaded, "__path__") else loaded.__name__.rpartition(".")[0]
    return _Module(name, tuple(text.splitlines()), _bindings(ast.parse(text)), package)
