"""Why a kernel has no machine code: one clear line."""

from __future__ import annotations

import re
import tempfile

ERROR_KINDS: tuple[str, ...] = ("request", "source", "assemble", "lds", "timeout", "crash", "machine")
REPEATABLE_KINDS: tuple[str, ...] = ("source", "assemble", "lds")  # the same input fails the same way: may be cached


class CompileError(ValueError):
    """A kernel that cannot be compiled, or whose code object the device would refuse.

    Attributes:
        kind: "request" (cannot be asked for), "source" (the Triton front end or a pass refused it), "assemble" (the
            target has no such instruction), "lds" (more LDS than a workgroup may have), "timeout", "crash" (the
            compiler died, or the machine had no memory for it), "machine" (its files could not be written: that says
            nothing about the kernel, so nobody records it).
        detail: everything the compiler said, for a log.
    """

    def __init__(self, message: str, kind: str = "source", detail: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.detail = detail

    def __reduce__(self) -> tuple:
        return CompileError, (str(self), self.kind, self.detail)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence alone: the frames of the compiler's callers are not the kernel's."""
        return [f"CompileError: {self}"]


def explain(error: BaseException, diagnostics: str, kernel: str, arch: str) -> CompileError:
    """Turn what Triton raised, and what its C++ half printed, into one line.

    Args:
        error: the exception out of `triton.compile`.
        diagnostics: what the compiler wrote to standard error meanwhile.
        kernel: name of the kernel, for the message.
        arch: target, for the message.
    """
    detail = f"{diagnostics}\n{type(error).__name__}: {error}".strip()
    if isinstance(error, OSError):
        where = tempfile.tempdir or "every folder for temporary files"
        reason = f"{error.strerror or error} in {where}"
        advice = "let TMPDIR name a folder with some space"
        return CompileError(f"{kernel}: compilation failed: {reason}; {advice}", "machine", detail)
    if isinstance(error, MemoryError):  # may not repeat
        return CompileError(f"{kernel}: compilation failed: {error or type(error).__name__}", "crash", detail)
    refused = re.search(r"error: ([^\n]*not supported on this GPU[^\n]*)\n\s*([^\n]+)", diagnostics)
    if refused:
        instruction = refused.group(2).split()[0]
        hint = "; it exists on gfx950 only: choose a software convert" if "cvt_scalef32" in instruction else ""
        return CompileError(f"{kernel}: {arch} has no instruction {instruction}{hint}", "assemble", detail)
    found = re.search(r"(?:LLVM ERROR|fatal error|error): ([^\n]+)", diagnostics)
    if type(error).__name__ == "CompilationError":
        line = _front_end_line(str(error))
        return CompileError(f"{kernel}: {line}", "source", detail)
    text = found.group(1) if found else (str(error).strip().splitlines() or [type(error).__name__])[0]
    kind = "assemble" if re.search("assembl|invalid instruction|failed to link", detail) else "source"
    return CompileError(f"{kernel}: {arch} compilation failed: {text.strip()}", kind, detail)


def _front_end_line(message: str) -> str:
    """Triton's front end prints "at 2:32:", the source with a caret, then the reason: keep place, line and reason."""
    lines = [line for line in message.splitlines() if line.strip()]
    place = re.match(r"at (\d+):(\d+):", lines[0]) if lines else None
    carets = [i for i, line in enumerate(lines) if line.strip() == "^"]
    if not place or not carets:
        return " ".join(line.strip() for line in lines)[:400] or "compilation failed"
    source = lines[carets[-1] - 1].strip()
    reason = " ".join(line.strip() for line in lines[carets[-1] + 1 :]) or "compilation failed"
    return f"line {place.group(1)} of the kernel, `{source}`: {reason}"
