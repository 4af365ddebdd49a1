"""Copies definitions out of source text with what they use: statements as they stand, in an order that can be executed.

A `Source` is a module of the lab, or a notebook's earlier cells read as one module. Nothing is imported or run: a name
is looked up among the top-level statements of its source, and imports of the lab are followed to their files.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import symtable
import sys
from collections.abc import Iterator

from mxfp4lab.paths import REPO_ROOT

LAB = "mxfp4lab"
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
_CHANGING = {
    "append", "appendleft", "extend", "insert", "update", "setdefault", "add", "pop", "popitem", "remove", "discard",
    "clear", "sort", "reverse",
}  # fmt: skip


class NotCopied(ValueError):
    """A name has no definition that can be copied; the message says why."""


class Source:
    """A text as named top-level statements.

    Args:
        name: of the module, or "" for a notebook's cells.
        text: Python.
    """

    def __init__(self, name: str, text: str, package: str = "") -> None:
        self.name, self.package = name, package
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self.bindings = {bound: node for node in self.tree.body for bound in bound_by(node)}

    def text(self, node: ast.stmt) -> str:
        """A statement with its decorators and the comments right above it."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        while first > 1 and re.match(r"#(?!.*\b(noqa|ruff):)", self.lines[first - 2]):
            first -= 1
        return "\n".join(self.lines[first - 1 : node.end_lineno])

    def changed(self) -> dict[str, int]:
        """Names whose value is more than their last plain binding: changed in place, or bound in a loop or branch."""
        found: dict[str, int] = {}
        for node in self.tree.body:
            compound = not isinstance(node, (*DEFINITIONS, *IMPORTS, ast.Assign, ast.AnnAssign))
            for part in _outside_functions(node):
                name = ""
                if isinstance(part, (ast.Subscript, ast.Attribute)) and isinstance(part.ctx, (ast.Store, ast.Del)):
                    name = _root(part)
                elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                    name = _root(part.func) if part.func.attr in _CHANGING else ""
                elif compound and isinstance(part, ast.Name) and isinstance(part.ctx, (ast.Store, ast.Del)):
                    name = part.id
                elif compound and isinstance(part, (*DEFINITIONS, *IMPORTS)):
                    found |= dict.fromkeys(bound_by(part), node.lineno)
                if name:
                    found[name] = node.lineno
        return found


@functools.cache
def lab_source(module: str) -> Source:
    """A module of the lab, by name.

    Raises:
        NotCopied: there is no such file.
    """
    path = REPO_ROOT.joinpath(*module.split("."))
    file, package = (
        (path / "__init__.py", module) if path.is_dir() else (path.with_suffix(".py"), module.rpartition(".")[0])
    )
    if not file.is_file():
        raise NotCopied(f"{module} has no source file")
    return Source(module, file.read_text(encoding="utf-8"), package)


class Closure:
    """What some definitions need: imports, and the statements of the lab and of cells, dependencies first.

    Args:
        given: names that the file defines by itself.
        cells: a notebook's earlier cells.
    """

    def __init__(self, given: tuple[str, ...] = (), cells: Source | None = None) -> None:
        self.imports: dict[str, str] = {}
        """Bound name -> import statement."""
        self._parts: dict[tuple[str, int], str] = {}  # by source and line
        self._seen: set[tuple[tuple[str, int], int | None]] = set()
        self._meaning: dict[str, str] = dict.fromkeys(given, "the file")
        self.cells = cells or Source("", "")
        self._changed = self.cells.changed()

    def add(self, source: Source, name: str, before: int | None = None) -> None:
        """Bring in a name of a source, and what it needs.

        Args:
            before: for cells: the line of a statement that reads the name while it runs, so that a later binding is
                not what it saw.

        Raises:
            NotCopied: no definition, one that changes while the cells run, or one name for two things.
        """
        node = source.bindings.get(name)
        own = source is self.cells
        if node is None and own and name in self._changed:
            raise NotCopied("its value is made in a loop or a branch")
        if node is None:
            if hasattr(builtins, name) or self._meaning.get(name) == "the file":
                return
            stars = [
                ast.unparse(n) for n in source.tree.body if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"
            ]
            hint = f" (if it comes from `{stars[-1]}`, import it by name)" if stars else ""
            raise NotCopied(f"nothing defines it{f' in {source.name}' if source.name else ''}{hint}")
        if isinstance(node, IMPORTS):
            self._import(source, node, next(a for a in node.names if name in (a.asname, a.name.split(".")[0])))
            return
        if self._meaning.get(name) == "the file":
            return
        if own and name in self._changed:
            raise NotCopied("its value changes in an earlier cell")
        if own and before is not None and node.lineno > before:
            raise NotCopied("it was bound anew after it was read")
        self.claim(name, source.name or "the notebook")
        key = (source.name, node.lineno)
        if (key, before) in self._seen:
            return
        self._seen.add((key, before))
        text = source.text(node)
        at_once = set(read_at_once(node))
        for other in free_names(text):
            if other in bound_by(node):
                if not isinstance(node, DEFINITIONS):
                    raise NotCopied("its value builds on itself")
                continue
            try:
                self.add(source, other, (node.lineno if other in at_once else before) if own else None)
            except NotCopied as problem:
                raise NotCopied(f"it uses {other}: {problem}") from None
        self._parts.setdefault(key, text)  # behind what it needs

    def _import(self, source: Source, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> None:
        bound = alias.asname or alias.name.split(".")[0]
        if isinstance(node, ast.Import):
            if alias.name.split(".")[0] == LAB:
                raise NotCopied(f"write `from {alias.name} import NAME`, so that the definition can be copied")
            self.claim(bound, alias.name if alias.asname else bound)
            self.imports[bound] = ast.unparse(ast.Import([alias]))
            return
        origin = node.module or ""
        if node.level:
            parts = source.package.split(".")
            origin = ".".join(filter(None, [*parts[: len(parts) - node.level + 1], node.module]))
        if origin.split(".")[0] != LAB:
            self.claim(bound, f"{origin}.{alias.name}")
            self.imports[bound] = ast.unparse(ast.ImportFrom(origin, [alias], 0))
            return
        module = lab_source(origin)
        if alias.name not in module.bindings and REPO_ROOT.joinpath(*origin.split("."), f"{alias.name}.py").exists():
            raise NotCopied(f"it is a module of the lab: write `from {origin}.{alias.name} import NAME`")
        self.add(module, alias.name)
        if bound != alias.name and (module.name, -node.lineno) not in self._parts:
            self.claim(bound, f"{origin}.{alias.name}")
            self._parts[module.name, -node.lineno] = f"{bound} = {alias.name}"

    def claim(self, name: str, meaning: str) -> None:
        """Say what a name stands for in the file; refused if it stands for something else already."""
        before = self._meaning.setdefault(name, meaning)
        if before != meaning:
            raise NotCopied(f"{name} would mean two things in one file, that of {before} and that of {meaning}")

    def text(self) -> str:
        """The statements: two blank lines around definitions, none between short ones."""
        text, last = "", ""
        for part in self._parts.values():
            if text:
                short = "\n" not in part and "\n" not in last
                text += "\n" if short else "\n\n\n"
            text, last = text + part, part
        return text

    def import_lines(self) -> list[str]:
        """Import statements, sorted, without `optional_imports`."""
        return sorted_imports({line for line in self.imports.values() if not _optional(line)})

    def optional_imports(self) -> dict[str, str]:
        """Bound name -> import of what only some versions of Triton have: Gluon, and what is one target's own."""
        return {name: line for name, line in sorted(self.imports.items()) if _optional(line)}


def sorted_imports(lines: set[str]) -> list[str]:
    """Import statements in ruff's order, one `from` per module, the standard library apart."""
    names: dict[str, list[str]] = {}
    for line in lines:
        node = ast.parse(line).body[0]
        for alias in node.names:
            shown = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
            names.setdefault(
                f"from {node.module}" if isinstance(node, ast.ImportFrom) else f"import {shown}", []
            ).append(shown)
    blocks: list[list[str]] = [[], [], []]
    for head in sorted(names, key=lambda h: (h.startswith("from"), h.split()[1].lower())):
        first = head.split()[1].split(".")[0]
        block = 0 if first == "__future__" else 1 if first in sys.stdlib_module_names else 2
        blocks[block].append(f"{head} import {', '.join(sorted(names[head]))}" if head.startswith("from") else head)
    return "\n\n".join("\n".join(block) for block in blocks if block).splitlines()


def _optional(line: str) -> bool:
    return re.match(r"(from|import) triton\.(experimental|language\.extra)\b", line) is not None


def bound_by(node: ast.stmt) -> set[str]:
    """Names that a plain statement (no loop, no branch) binds."""
    if isinstance(node, DEFINITIONS):
        return {node.name}
    if isinstance(node, IMPORTS):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return set()


def read_at_once(node: ast.AST) -> Iterator[str]:
    """Names that a statement reads when it runs, not only when what it defines is called."""
    parts: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        parts = [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    elif isinstance(node, ast.Lambda):
        parts = [*node.args.defaults]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for part in parts:
        yield from read_at_once(part)


def free_names(text: str) -> dict[str, int]:
    """Global names that code reads, with the first line that does."""
    free: set[str] = set()

    def visit(table: symtable.SymbolTable, top: bool) -> None:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                free.add(symbol.get_name())
        for child in table.get_children():
            visit(child, False)

    visit(symtable.symtable(text, "text", "exec"), True)
    lines: dict[str, int] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and node.id in free:
            lines[node.id] = min(lines.get(node.id, node.lineno), node.lineno)
    return {name: lines[name] for name in sorted(lines, key=lambda n: (lines[n], n))}


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """A statement's nodes, bodies of functions and classes apart."""
    yield node
    if not isinstance(node, (*DEFINITIONS, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
