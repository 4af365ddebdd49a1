"""What the C++ half of the compiler prints: kept from the terminal, and kept for whoever asks why it died."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

kept_in: str | None = None  # a process that compiles for another sets it: what is printed must survive its death


@contextlib.contextmanager
def captured_stderr() -> Iterator[Any]:
    """Send file descriptor 2 to a file for the block: the C++ half of Triton prints its diagnostics there."""
    with open(kept_in, "w+b") if kept_in else tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)

        def said() -> str:
            file.seek(0)
            return file.read(1 << 20).decode("utf-8", "replace")

        try:
            yield said
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def last_words(diagnostics: str) -> str:
    """Of what a compiler printed before it died the line that says why, else its last."""
    lines = [line.strip() for line in diagnostics.splitlines() if line.strip()]
    marked = [line for line in lines if "LLVM ERROR" in line or "Assertion" in line or "error:" in line]
    return (marked or lines[-1:] or ["it said nothing"])[0][:300]
