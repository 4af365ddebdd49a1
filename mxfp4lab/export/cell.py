"""A notebook cell as a submission: what it needs is gathered from source, linted, and written as one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mxfp4lab.export.cells import CellError, parse_cell
from mxfp4lab.export.gather import gather
from mxfp4lab.export.layout import sorted_imports
from mxfp4lab.export.lint import lint_source
from mxfp4lab.export.render import HEADER
from mxfp4lab.export.submission import write_file

MAX_NOTEBOOK_BYTES = 512 << 20

__all__ = ["CellError", "export_cell", "submission_from_cell"]


def submission_from_cell(
    cell: str, path: str | Path | None, earlier: Sequence[str] = (), session: Mapping[str, Any] | None = None
) -> str:
    """Turn a cell that defines `custom_kernel` into a self-contained file.

    Args:
        cell: source of the cell.
        path: where to write; None only returns the text.
        earlier: sources of the cells that ran before.
        session: values of the running session.

    Returns:
        The text of the file.

    Raises:
        CellError: naming the line of the cell: no `custom_kernel`, a name without source, or what the lint refuses.
    """
    if "custom_kernel" not in parse_cell(cell).bindings:
        raise CellError("cell line 1: the cell defines no custom_kernel")
    body = gather(cell, earlier, session)
    text = sorted_imports(body if body.startswith("#!POPCORN") else HEADER + body)
    refused = [finding for finding in lint_source(text) if finding.severity == "error"]
    if refused:
        lines = text.splitlines()
        places = [_place(lines[f.line - 1] if f.line else "", cell, earlier, f.line) for f in refused]
        raise CellError("; ".join(f"{p}: {f.message} [{f.rule}]" for p, f in zip(places, refused, strict=True)))
    if path is not None:
        write_file(Path(path), text)
    return text


def export_cell(notebook: str | Path, tag: str, path: str | Path) -> str:
    """Export the code cell with a tag out of a notebook file, with what it needs of the cells before it.

    Raises:
        ValueError: no notebook, no such cell or several, or what `submission_from_cell` refuses.
    """
    file = Path(notebook)
    if not file.is_file():
        raise ValueError(f"{str(notebook)!r}: no such file")
    if file.stat().st_size > MAX_NOTEBOOK_BYTES:
        raise ValueError(f"{str(notebook)!r} has {file.stat().st_size} bytes; at most {MAX_NOTEBOOK_BYTES} are read")
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        cells = [cell for cell in data["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
        tags = [cell.get("metadata", {}).get("tags", []) for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{str(notebook)!r} is no notebook: {type(error).__name__}: {error}") from None
    found = [i for i, cell_tags in enumerate(tags) if tag in cell_tags]
    if len(found) != 1:
        known = sorted({t for cell_tags in tags for t in cell_tags})
        count = "no" if not found else str(len(found))
        raise ValueError(
            f"{str(notebook)!r} has {count} code cell tagged {tag!r}; tags in it: {', '.join(known) or 'none'}"
        )
    index = found[0]
    return submission_from_cell(_without_magic(sources[index]), path, [_without_magic(s) for s in sources[:index]])


def _without_magic(source: str) -> str:
    """The cell below a `%%submission` line, which stays as an empty comment so that lines keep their numbers."""
    first, _, rest = source.partition("\n")
    return f"#\n{rest}" if first.startswith("%%submission") else source


def _place(wanted: str, cell: str, earlier: Sequence[str], line: int) -> str:
    """Where a line of the file was written: in the cell, in an earlier cell (by its number), or in neither."""
    if wanted.strip():
        for said, source in [("cell", cell), *((f"cell {i}", earlier[i - 1]) for i in range(len(earlier), 0, -1))]:
            lines = source.splitlines()
            if wanted in lines:
                return f"{said} line {lines.index(wanted) + 1}"
    return f"line {line} of the file"
