"""A notebook cell as a submission: what it needs of earlier cells and of the lab is copied from source into one file.

Earlier cells are one module: last definitions, constants, imports. A value that they changed in place, made in a loop,
or that only the running session holds is refused: the cell is where it has to stand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from mxfp4lab.export.closure import IMPORTS, LAB, Closure, NotCopied, Source, free_names, sorted_imports
from mxfp4lab.export.lint import lint_source
from mxfp4lab.export.picks import read_json
from mxfp4lab.export.submission import HEADER, write_file


class CellError(ValueError):
    """The cell cannot become a file; the message names the line of the cell."""


def submission_from_cell(cell: str, path: str | Path | None, earlier: Sequence[str] = ()) -> str:
    """Turn a cell that defines `custom_kernel` into a self-contained file.

    Args:
        cell: source of the cell.
        path: where to write; None only returns the text.
        earlier: sources of the cells that ran before, in order; magics in them are passed over.

    Returns:
        The text of the file.

    Raises:
        CellError: naming the line of the cell: no `custom_kernel`, a name to be defined in the cell, or what the lint
            refuses.
    """
    source = _parsed(cell)
    if "custom_kernel" not in source.bindings:
        raise CellError("cell line 1: the cell defines no custom_kernel")
    closure = Closure(cells=Source("", "\n".join(filter(None, map(_without_magics, earlier)))))
    imports = [node for node in source.tree.body if isinstance(node, IMPORTS)]
    for node in imports:
        for alias in node.names:
            _add(closure, source, alias.asname or alias.name.split(".")[0], node.lineno, alias.name)
    for name, line in free_names(cell).items():
        if name not in source.bindings:
            _add(closure, closure.cells, name, line)
    for name, bound in source.bindings.items():
        if not isinstance(bound, IMPORTS):
            try:
                closure.claim(name, "the cell")
            except NotCopied as problem:
                raise CellError(f"cell line {bound.lineno}: {problem}: call yours differently") from None
    text = _joined(source, imports, closure)
    refused = [finding for finding in lint_source(text) if finding.severity == "error"]
    if refused:
        lines = text.splitlines()
        said = [
            f"{_place(lines[f.line - 1] if f.line else '', cell, earlier)}: {f.message} [{f.rule}]" for f in refused
        ]
        raise CellError("; ".join(said))
    if path is not None:
        write_file(Path(path), text)
    return text


def export_cell(notebook: str | Path, tag: str, path: str | Path) -> str:
    """Export the code cell with a tag out of a notebook file, with what it needs of the cells before it.

    Raises:
        ValueError: no notebook, no such cell or several, or what `submission_from_cell` refuses.
    """
    data = read_json(notebook)
    try:
        cells = [cell for cell in data["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
        tags = [cell.get("metadata", {}).get("tags", []) for cell in cells]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{str(notebook)!r} is no notebook: {type(error).__name__}: {error}") from None
    found = [i for i, cell_tags in enumerate(tags) if tag in cell_tags]
    if len(found) != 1:
        known = ", ".join(sorted({t for cell_tags in tags for t in cell_tags})) or "none"
        count = str(len(found)) if found else "no"
        raise ValueError(f"{str(notebook)!r} has {count} code cell tagged {tag!r}; tags in it: {known}")
    return submission_from_cell(below_magic(sources[found[0]]), path, [below_magic(s) for s in sources[: found[0]]])


def below_magic(source: str) -> str:
    """A cell with its `%%submission` line blanked: its names count, its lines keep their numbers."""
    first, _, rest = source.partition("\n")
    return f"\n{rest}" if first.lstrip().startswith("%%submission") else source


def _parsed(cell: str) -> Source:
    try:
        return Source("the cell", cell)
    except SyntaxError as error:
        line = cell.splitlines()[(error.lineno or 1) - 1].strip() if cell.strip() else ""
        said = f"{line[:60]!r} is IPython's, not Python's" if line.startswith(("%", "!")) else error.msg
        raise CellError(f"cell line {error.lineno}: {said}") from None


def _without_magics(text: str) -> str:
    """An earlier cell as Python: a line at which Python stops and which begins with % or ! becomes `pass`.

    Strings are left alone, whatever their lines begin with. A cell that still is no Python offers nothing.
    """
    lines = text.splitlines()
    for _ in lines:
        try:
            ast.parse("\n".join(lines))
            return "\n".join(lines)
        except SyntaxError as error:
            place = (error.lineno or 0) - 1
            line = lines[place] if 0 <= place < len(lines) else ""
            if not line.lstrip().startswith(("%", "!")):
                return ""
            lines[place] = line[: len(line) - len(line.lstrip())] + "pass"
    return ""


def _add(closure: Closure, source: Source, name: str, line: int, shown: str = "") -> None:
    try:
        closure.add(source, name)
    except NotCopied as problem:
        raise CellError(f"cell line {line}: define {shown or name} in the cell: {problem}") from None


def _end(node: ast.stmt) -> int:
    """The last line of a statement, which the parser always knows."""
    return node.end_lineno or node.lineno


def _joined(source: Source, imports: list[ast.Import | ast.ImportFrom], closure: Closure) -> str:
    """Header and docstring, imports, what was copied, then the cell as it stands without its imports."""
    lines, body = list(source.lines), source.tree.body
    head = [line for line in lines if line.startswith("#!POPCORN")]
    lines = ["" if line.startswith("#!POPCORN") else line for line in lines]
    docstring = ""
    if ast.get_docstring(source.tree) is not None:
        docstring = "\n".join(lines[body[0].lineno - 1 : _end(body[0])])
        lines[body[0].lineno - 1 : _end(body[0])] = [""] * (_end(body[0]) - body[0].lineno + 1)
    for node in imports:
        beside = [n for n in body if n is not node and n.lineno <= _end(node) and _end(n) >= node.lineno]
        lines[node.lineno - 1] = "; ".join(ast.unparse(n) for n in beside if not isinstance(n, IMPORTS))
        lines[node.lineno : _end(node)] = [""] * (_end(node) - node.lineno)
    rest = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip("\n")
    top = "\n\n".join(filter(None, [docstring, "\n".join(sorted_imports(set(closure.imports.values())))]))
    parts = [("\n".join(head) if head else HEADER.rstrip()) + "\n" + top, closure.text(), rest]
    return "\n\n\n".join(filter(None, parts)).rstrip() + "\n"


def _place(wanted: str, cell: str, earlier: Sequence[str]) -> str:
    """Where a line of the file was written: in the cell, in an earlier cell (by its number), or in neither."""
    if wanted.strip():
        for said, source in [("cell", cell), *((f"cell {i}", earlier[i - 1]) for i in range(len(earlier), 0, -1))]:
            if wanted in source.splitlines():
                return f"{said} line {source.splitlines().index(wanted) + 1}"
    return f"the file, from {LAB}" if wanted.strip() else "the file"
