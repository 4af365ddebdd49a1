"""Collects from source what a piece of code needs: statements of earlier cells and of the lab, never pickles.

A name is taken, in this order, from the code itself, from the cells before it (the latest binding and what changed its
value since, in the order of the cells), and from modules of the lab (followed through their imports: nothing of the lab
is imported in the end). A plain value that the session holds is written out as a literal; any other name without source
is refused, with the line that uses it, as is a name that would mean two things in one file.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

from mxfp4lab.export.cells import (
    DEFINITIONS,
    IMPORTS,
    CellError,
    Module,
    NameClash,
    absolute,
    bound_by,
    builds_on_itself,
    changed_by,
    fields_read,
    free_names,
    import_meaning,
    import_text,
    lab_module,
    only_annotations,
    parse_cell,
    parse_leniently,
    read_while_running,
)
from mxfp4lab.export.literals import LAB, MAX_LITERAL, classes_of, is_lab_record, is_plain, literal

CELLS = "the notebook"


def gather(cell: str, earlier: Sequence[str] = (), session: Mapping[str, Any] | None = None) -> str:
    """The code with everything that it needs before it.

    Args:
        cell: source of the cell.
        earlier: sources of the cells that ran before, in order; lines of magics in them are ignored.
        session: names and values of the running session, where there is one.

    Returns:
        One module's text: the cell's own docstring, imports, what is needed of the lab, what is needed of the cells in
        their order, then the cell as it stands.

    Raises:
        CellError: naming the line of the cell that asks for something without source.
    """
    return _Gatherer(cell, earlier, session or {}).text()


class _Gatherer:
    def __init__(self, cell: str, earlier: Sequence[str], session: Mapping[str, Any]) -> None:
        self._session = session
        self._cell = parse_cell(cell)
        self._earlier = [m for m in (parse_leniently(text, i) for i, text in enumerate(earlier)) if m is not None]
        self._history = _history(self._earlier)
        self._imports: dict[str, None] = {}
        self._lab_parts: list[str] = []
        self._cell_parts: dict[int, str] = {}  # by the place of a statement among those of all cells
        self._done: set[tuple] = set()
        self._meaning: dict[str, str] = {}
        self._future = self._cell.postponed
        self._records: dict[str, tuple[int, str, Any]] = {}

    def text(self) -> str:
        for node in self._cell.tree.body:
            if isinstance(node, IMPORTS):
                self._own_import(node)
        for name, line in self._cell.bindings.items():
            self._claim(name, CELLS, getattr(line, "lineno", 1)) if not isinstance(line, IMPORTS) else None
        bound = set(self._cell.bindings)
        for name, line in free_names("\n".join(self._cell.lines)).items():
            if name not in bound:
                self._need(name, None, line)
        self._narrow_records()
        header, docstring, body = _without_imports(self._cell)
        imports = "\n".join([*(["from __future__ import annotations\n"] if self._future else []), *self._imports])
        parts = [*self._lab_parts, *(text for _, text in sorted(self._cell_parts.items()))]
        head = "\n".join(part for part in (header, docstring) if part)
        code = "\n\n\n".join(part for part in (imports, _joined(parts), body) if part.strip())
        return f"{head}\n\n{code}\n".lstrip("\n") if head else f"{code}\n"

    def _own_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
            if module.split(".")[0] == LAB:
                self._from_lab(node, alias, node.lineno)
            elif module != "__future__":
                self._import(node, alias, node.lineno)

    def _import(self, node: ast.Import | ast.ImportFrom, alias: ast.alias, line: int) -> None:
        if self._claim(alias.asname or alias.name.split(".")[0], import_meaning(node, alias), line):
            self._imports[import_text(node, alias)] = None

    def _claim(self, name: str, meaning: str, line: int) -> bool:
        """Give a name its meaning in the file; False if it has this one already.

        Raises:
            CellError: it has another.
        """
        before = self._meaning.setdefault(name, meaning)
        if before == meaning:
            return self._meaning[name] is meaning or "." in meaning or meaning == name
        raise NameClash(f"cell line {line}: {name} would mean two things in one file, that of {before} and that of "
                        f"{meaning}: call yours differently")  # fmt: skip

    # finding a name ---------------------------------------------------------------------------------------------------

    def _need(self, name: str, where: Module | None, line: int, before: int | None = None) -> None:
        """Bring in what a name means.

        Args:
            where: the lab's module that uses it; None for the cell and the cells before it.
            before: the place of the statement that reads it while it runs; None where the last binding counts.
        """
        statements = [] if where else self._made(name, before)
        key = (where.label if where else "", name, before, *(s.place for s in statements))
        if key in self._done or name in ("__file__", "__name__"):
            return
        self._done.add(key)
        if where is not None:
            node = where.bindings.get(name)
            if node is not None:
                self._take_from_lab(name, node, where, line)
            elif not hasattr(builtins, name):
                raise CellError(
                    f"cell line {line}: {name} of {where.label} has no definition that can be carried along"
                )
            return
        by_value = name in self._session and is_plain(self._session[name], self._is_own)
        by_value = by_value and statements == self._made(name, None)
        if statements and not (by_value and not any(isinstance(s.node, (*DEFINITIONS, *IMPORTS)) for s in statements)):
            self._take(name, statements, line, before)
        elif name in self._session and not (hasattr(builtins, name) and not statements):
            self._by_value(name, self._session[name], line)
        elif not hasattr(builtins, name):
            stars = [ast.unparse(n) for m in [*self._earlier, self._cell] for n in m.tree.body
                     if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]  # fmt: skip
            hint = f"; if it comes from `{stars[-1]}`, import it by name" if stars else ""
            raise CellError(
                f"cell line {line}: name {name!r} is defined neither in this cell nor in an earlier one{hint}"
            )

    def _made(self, name: str, before: int | None) -> list[_Statement]:
        """What made a name what it is: its last binding, and every change since."""
        events = self._history.get(name, [])
        past = [s for s in events if before is None or s.place < before] or events
        last = max((i for i, s in enumerate(past) if name in s.names), default=0)
        return past[last:]

    def _take(self, name: str, statements: list[_Statement], line: int, before: int | None) -> None:
        """The statements of earlier cells that made a name what it is."""
        for statement in statements:
            module, node = statement.module, statement.node
            if isinstance(node, IMPORTS):
                alias = next(a for a in node.names if name in (a.asname, a.name.split(".")[0]))
                origin = absolute(node, module) if isinstance(node, ast.ImportFrom) else alias.name
                if origin.split(".")[0] == LAB:
                    self._from_lab(node, alias, line)
                else:
                    self._import(node, alias, line)
                continue
            self._claim(name, CELLS, line)
            text, place = module.text(node), statement.place
            fresh = place not in self._cell_parts
            self._cell_parts[place] = text
            self._future = self._future or module.postponed
            hints = only_annotations(text) if module.postponed else set()
            now = read_while_running(node)
            for other in [*free_names(text), *(bound_by(node) | changed_by(node) if fresh else ())]:
                if other == name or (other in hints and other not in self._history):
                    continue
                if other in now:
                    self._need(other, None, line, place)
                if isinstance(node, DEFINITIONS):
                    self._need(other, None, line, before)

    def _take_from_lab(self, name: str, node: ast.stmt, module: Module, line: int) -> None:
        if isinstance(node, IMPORTS):
            alias = next(a for a in node.names if name in (a.asname, a.name.split(".")[0]))
            origin = absolute(node, module) if isinstance(node, ast.ImportFrom) else alias.name
            if origin.split(".")[0] == LAB:
                self._from_lab(node, alias, line, module)
            else:
                self._import(node, alias, line)
            return
        self._claim(name, module.label, line)
        text = module.text(node)
        for other in free_names(text):
            if other != name:
                self._need(other, module, line)
        if text not in self._lab_parts:  # a statement that binds several names is one
            self._lab_parts.append(text)

    def _from_lab(
        self, node: ast.Import | ast.ImportFrom, alias: ast.alias, line: int, module: Module | None = None
    ) -> None:
        if isinstance(node, ast.Import):
            better = f"write `from {alias.name} import NAME`, so that the definition can be carried along"
            raise CellError(f"cell line {line}: `import {alias.name}`: {better}")
        origin, bound = absolute(node, module) if module else node.module or "", alias.asname or alias.name
        source = lab_module(origin, line)
        if alias.name not in source.bindings:
            value = getattr(importlib.import_module(origin), alias.name, None)
            if isinstance(value, ModuleType):
                raise CellError(f"cell line {line}: {alias.name} is a module of the lab: write `from {value.__name__} "
                                "import NAME`")  # fmt: skip
            if value is not None and is_plain(value, self._is_own):
                self._lab_parts.append(f"{bound} = {literal(value)}")
                return
            raise CellError(f"cell line {line}: {origin} has no {alias.name} with source")
        self._future = self._future or source.postponed
        try:
            self._need(alias.name, source, line)
        except NameClash:
            raise
        except CellError as error:
            if module is not None:
                raise
            reason = str(error).partition(": ")[2]
            better = "write the value that you need of it, or use %%submission in the running notebook"
            said = f"cell line {line}: {alias.name} of {origin} cannot be carried along ({reason}); {better}"
            raise CellError(said) from None
        if bound != alias.name:
            self._claim(bound, f"{origin}.{alias.name}", line)
            self._lab_parts.append(f"{bound} = {alias.name}")

    # values of the session --------------------------------------------------------------------------------------------

    def _is_own(self, kind: type) -> bool:
        """Is a class defined in an earlier cell?"""
        return any(isinstance(s.node, ast.ClassDef) for s in self._history.get(kind.__name__, []))

    def _by_value(self, name: str, value: Any, line: int) -> None:
        if isinstance(value, ModuleType):
            if value.__name__.split(".")[0] == LAB:
                raise CellError(
                    f"cell line {line}: {name} is a module of the lab: write `from {value.__name__} import NAME`"
                )
            self._imports[f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")] = None
            return
        if not is_plain(value, self._is_own):
            raise CellError(
                f"cell line {line}: {name} is a {type(value).__name__} without source: define it in the cell"
            )
        # Of a record of the lab the file needs the fields that it asks for; which, is known when all of it is there.
        record = is_lab_record(value)
        text = literal(value)
        if len(text) > MAX_LITERAL:
            raise CellError(f"cell line {line}: {name} is a value of {len(text)} characters; at most {MAX_LITERAL}")
        if "SimpleNamespace" in text:
            self._imports["from types import SimpleNamespace"] = None
        self._claim(name, CELLS, line)
        for other in classes_of(value):
            self._need(other, None, line)
        # Where the notebook bound it last: behind the classes that it is made of.
        place = max([-1, *(s.place for s in self._history.get(name, []))])
        self._cell_parts[place] = "\n".join(filter(None, [self._cell_parts.get(place), f"{name} = {text}"]))
        if record:
            self._records[name] = (place, text, value)

    def _narrow_records(self) -> None:
        """Write of each of the lab's records only the fields that the cells read, if they read nothing else of it."""
        for name, (place, text, value) in self._records.items():
            rest = [part.replace(f"{name} = {text}", "") for part in self._cell_parts.values()]
            asked = fields_read(name, "\n".join([*rest, *self._cell.lines]))
            if asked and asked <= {field.name for field in fields(value)}:
                short = f"{name} = {literal(value, asked)}"
                self._cell_parts[place] = self._cell_parts[place].replace(f"{name} = {text}", short)


@dataclass(frozen=True)
class _Statement:
    """A top-level statement of an earlier cell.

    Attributes:
        place: its number among those of all cells; names: what it binds anew, whatever it was before.
    """

    module: Module
    node: ast.stmt
    place: int
    names: frozenset[str]


def _history(cells: Sequence[Module]) -> dict[str, list[_Statement]]:
    """Name -> every statement of the cells that binds it or changes its value, in their order."""
    found: dict[str, list[_Statement]] = {}
    for place, (module, node) in enumerate((m, n) for m in cells for n in m.tree.body):
        bound = bound_by(node)
        anew = frozenset(name for name in bound if not builds_on_itself(node, name))
        statement = _Statement(module, node, place, anew)
        for name in bound | changed_by(node):
            imported = name not in bound and any(isinstance(s.node, IMPORTS) for s in found.get(name, [])[-1:])
            if not imported:  # what is done to a module is no business of its name
                found.setdefault(name, []).append(statement)
    return found


def _without_imports(cell: Module) -> tuple[str, str, str]:
    """The cell's own header lines, its docstring, and the rest as it stands, its top-level imports taken out."""
    lines = list(cell.lines)
    body = cell.tree.body
    docstring = ""
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        docstring = "\n".join(lines[first.lineno - 1 : first.end_lineno])
        lines[first.lineno - 1 : first.end_lineno] = [""] * (first.end_lineno - first.lineno + 1)  # type: ignore[operator]
    for node in body:
        if isinstance(node, IMPORTS):
            beside = [n for n in body if n is not node and n.lineno <= node.end_lineno and n.end_lineno >= node.lineno]
            kept = [ast.unparse(n) for n in beside if not isinstance(n, IMPORTS)]
            lines[node.lineno - 1] = "; ".join(kept)
            lines[node.lineno : node.end_lineno] = [""] * (node.end_lineno - node.lineno)  # type: ignore[operator]
    header = [line for line in lines if line.startswith("#!POPCORN")]
    rest = [line for line in lines if not line.startswith("#!POPCORN")]
    while rest and rest[0].strip() in ("", "#"):
        rest.pop(0)
    return "\n".join(header), docstring, re.sub(r"\n{4,}", "\n\n\n", "\n".join(rest)).rstrip()


def _joined(parts: Sequence[str]) -> str:
    """Statements below each other: two blank lines around definitions, none between short constants."""
    text = ""
    for index, part in enumerate(parts):
        if index:
            short = all("\n" not in p and not p.startswith(("#", "@")) for p in (part, parts[index - 1]))
            defines = any(re.search(r"^(def|class|async def|@)", p, re.M) for p in (part, parts[index - 1]))
            text += "\n\n\n" if defines else "\n" if short else "\n\n"
        text += part
    return text
