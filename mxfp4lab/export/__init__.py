"""Renders a self-contained submission file, lints it, and reads a pick back from an executed notebook."""

from __future__ import annotations

from typing import Any

__all__ = ["export_submission", "lint_source", "read_picks"]

_WHERE = {"export_submission": "submission", "lint_source": "lint", "read_picks": "picks"}


def __getattr__(name: str) -> Any:
    """Import the room's parts when they are asked for: the command line answers `--help` without torch and libcst."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
