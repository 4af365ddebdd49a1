"""How an exported file is laid out: folded definitions as text, then the whole as `ruff format` writes it."""

from __future__ import annotations

import subprocess
import sys

import libcst as cst

from mxfp4lab.export.walk import names

WIDTH = 120
_RUFF = ["--isolated", "--quiet", "--line-length", str(WIDTH), "--stdin-filename", "submission.py"]
# A comma behind the last argument keeps a call broken: here arguments were dropped since somebody wrote it.
_COLLAPSE = ["--config", "format.skip-magic-trailing-comma=true"]


def formatted(text: str) -> str:
    """A file as ruff lays it out, imports sorted: 120 columns, and a call on one line where it fits.

    Raises:
        ValueError: if ruff is missing, or the text is no Python.
    """
    return _ruff(["format", *_COLLAPSE, *_RUFF, "-"], sorted_imports(text))


def sorted_imports(text: str) -> str:
    """A file with its imports sorted and nothing else changed."""
    return _ruff(["check", "--select", "I", "--fix-only", "--exit-zero", *_RUFF, "-"], text)


def _ruff(arguments: list[str], text: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise ValueError(f"ruff, which lays out exported files, failed (pip install ruff?): {said[-1]}")
    return done.stdout


def function_text(node: cst.FunctionDef) -> str:
    """A definition as text, with the comments above it."""
    kept = [line for line in node.leading_lines if line.comment is not None]
    return cst.Module([node.with_changes(leading_lines=kept)]).code.strip()


def statement_text(node: cst.CSTNode, blank: bool = False) -> str:
    """A top-level statement with the comments above it.

    Args:
        blank: keep a blank line that stood above.
    """
    lines = list(getattr(node, "leading_lines", []))
    kept = [line for line in lines if line.comment is not None]
    text = cst.Module([node.with_changes(leading_lines=kept)]).code.strip()
    return f"\n{text}" if blank and len(kept) < len(lines) else text


def names_in(node: cst.CSTNode) -> list[str]:
    """Every name that a piece of code mentions, in order, once."""
    return list(dict.fromkeys(names(node)))
