"""Self-contained submission files: from plans, from a notebook's cell, and probes that measure on a box behind a queue.

`closure` copies source, `submission` writes the file, `launcher` is what it launches with, `picks` are read back from
notebooks and runs, `cell` is `%%submission`, `probe` times configs inside a submission and `report` reads its output,
`lint` says what can be told from a file's text.
"""

from __future__ import annotations

from typing import Any

_WHERE = {
    "export_submission": "submission", "lint_source": "lint", "server_refusals": "lint", "read_picks": "picks",
    "write_probe": "probe", "import_report": "report",
}  # fmt: skip
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    """Import the room's parts when they are asked for: the command line answers `--help` without torch."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
