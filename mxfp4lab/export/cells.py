"""Notebook cells and modules of the lab as texts: what each statement binds or changes, and which names it reads."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import symtable
from collections.abc import Iterator, Mapping
from pathlib import Path

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
_CHANGING = {
    "append", "appendleft", "extend", "insert", "update", "setdefault", "add", "pop", "popitem", "remove", "discard",
    "clear", "sort", "reverse",
}  # fmt: skip
_COMPOUND = (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.If, ast.Try, ast.Match)


class CellError(ValueError):
    """The code cannot become a file; the message names the line of the cell."""


class NameClash(CellError):
    """A name would mean two things in one file."""


@dataclasses.dataclass(frozen=True)
class Module:
    """A text with its top-level statements.

    Attributes:
        label: what messages call it; tree: the parsed text; lines: its lines.
        bindings: name -> the last statement that binds it.
        package: where relative imports of it start.
    """

    label: str
    tree: ast.Module
    lines: tuple[str, ...]
    bindings: Mapping[str, ast.stmt]
    package: str = ""

    def text(self, node: ast.stmt) -> str:
        """A statement with its decorators and the comments right above it."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        while first > 1 and self.lines[first - 2].startswith("#"):
            first -= 1
        return "\n".join(self.lines[first - 1 : node.end_lineno])

    @property
    def postponed(self) -> bool:
        """Does it postpone the evaluation of annotations?"""
        return any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in self.tree.body)


def parse_cell(text: str) -> Module:
    """The cell's statements.

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
    return Module("cell", tree, tuple(lines), bindings(tree))


def parse_leniently(text: str, index: int) -> Module | None:
    """An earlier cell; magics in it become `pass`, and a cell that still is no Python offers nothing."""
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
    return Module(f"cell {index}", tree, tuple(lines), bindings(tree))


def lab_module(name: str, line: int) -> Module:
    """A module of the lab by its name.

    Raises:
        CellError: if its source cannot be read.
    """
    try:
        loaded = importlib.import_module(name)
        text = Path(inspect.getsourcefile(loaded) or "").read_text()
    except (ImportError, OSError, TypeError) as error:
        raise CellError(f"cell line {line}: {name} cannot be read: {error}") from None
    package = loaded.__name__ if hasattr(loaded, "__path__") else loaded.__name__.rpartition(".")[0]
    tree = ast.parse(text)
    return Module(name, tree, tuple(text.splitlines()), bindings(tree), package)


# what a statement binds, changes and reads ----------------------------------------------------------------------------


def bindings(tree: ast.Module) -> dict[str, ast.stmt]:
    """Name -> the last top-level statement that binds it; imports inside `if TYPE_CHECKING` count."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.If):
            found |= {k: v for k, v in bindings(ast.Module(node.body + node.orelse, [])).items()
                      if isinstance(v, IMPORTS)}  # fmt: skip
        found |= dict.fromkeys(bound_by(node), node)
    return found


def bound_by(node: ast.stmt) -> set[str]:
    """Names that a plain statement (no loop, no branch) binds."""
    if isinstance(node, DEFINITIONS):
        return {node.name}
    if isinstance(node, IMPORTS):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return set()


def changed_by(node: ast.stmt) -> set[str]:
    """Names whose values a statement changes without a new binding, or binds on some of its paths."""
    found: set[str] = set()
    for part in _own_nodes(node):
        if isinstance(part, (ast.Subscript, ast.Attribute)) and isinstance(part.ctx, (ast.Store, ast.Del)):
            found.add(_root(part))
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _CHANGING:
            found.add(_root(part.func))
        elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            found.add(part.target.id)
    if isinstance(node, _COMPOUND):
        found |= {
            part.id for part in _own_nodes(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        found |= {
            name for part in _own_nodes(node) if isinstance(part, (*DEFINITIONS, *IMPORTS)) for name in bound_by(part)
        }
    return found - {""}


def read_while_running(node: ast.stmt) -> set[str]:
    """Names that a statement may read when it runs, and not only when something that it defines is called.

    A call runs the body of what it calls: the caller of this asks for the same moment there.
    """
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    eager = [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    eager += [a.annotation for a in (*node.args.args, *node.args.kwonlyargs) if a.annotation is not None]
    return {n.id for part in [*eager, *([node.returns] if node.returns else [])] for n in ast.walk(part)
            if isinstance(n, ast.Name)}  # fmt: skip


def builds_on_itself(node: ast.stmt, name: str) -> bool:
    """Does an assignment read the name that it binds (`x = x + 1`)?"""
    value = getattr(node, "value", None)
    read = value is not None and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value))
    return isinstance(node, ast.AugAssign) or (isinstance(node, (ast.Assign, ast.AnnAssign)) and read)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """A statement's nodes, bodies of functions and classes apart."""
    yield node
    if not isinstance(node, (*DEFINITIONS, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _own_nodes(child)


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def free_names(text: str) -> dict[str, int]:
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


def fields_read(name: str, text: str) -> set[str]:
    """Attributes that code reads of a name; none if it does anything else with it."""
    tree = ast.parse(text)
    asked = [n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
             and n.value.id == name and isinstance(n.ctx, ast.Load)]  # fmt: skip
    mentions = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(tree))
    return set(asked) if len(asked) == mentions else set()


def only_annotations(text: str) -> set[str]:
    """Names that code reads in annotations alone."""
    future = "from __future__ import annotations\n"
    return set(free_names(text)) - set(free_names(future + text.replace(future, "")))


def import_text(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """One name's import as a statement."""
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import([alias]))
    return ast.unparse(ast.ImportFrom(node.module, [alias], node.level))


def import_meaning(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """What an imported name stands for: `import a.b as c` and `from a import b as c` are one."""
    if isinstance(node, ast.ImportFrom):
        return f"{node.module}.{alias.name}"
    return alias.name if alias.asname else alias.name.split(".")[0]


def absolute(node: ast.ImportFrom, module: Module) -> str:
    """The module that an import names, relative ones resolved."""
    if not node.level:
        return node.module or ""
    package = module.package.split(".")
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
