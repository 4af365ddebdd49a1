"""A compiler that fails: why a kernel has no machine code in one clear line, and what keeps its death from ours."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator

REPEATABLE_KINDS: tuple[str, ...] = ("source", "assemble", "lds")  # the same input fails the same way: may be cached
kept_in: str | None = None  # a process that compiles for another sets it: what is printed must survive its death


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
    """Turn what Triton raised, and what its C++ half printed to standard error meanwhile, into one line."""
    detail = f"{diagnostics}\n{type(error).__name__}: {error}".strip()
    if isinstance(error, OSError):
        where = tempfile.tempdir or "every folder for temporary files"
        said = f"{error.strerror or error} in {where}; let TMPDIR name a folder with some space"
        return CompileError(f"{kernel}: compilation failed: {said}", "machine", detail)
    if isinstance(error, MemoryError):  # may not repeat
        return CompileError(f"{kernel}: compilation failed: {error or type(error).__name__}", "crash", detail)
    refused = re.search(r"error: [^\n]*not supported on this GPU[^\n]*\n\s*([^\s]+)", diagnostics)
    if refused:
        instruction = refused[1]
        hint = "; it exists on gfx950 only: choose a software convert" if "cvt_scalef32" in instruction else ""
        return CompileError(f"{kernel}: {arch} has no instruction {instruction}{hint}", "assemble", detail)
    if type(error).__name__ == "CompilationError":
        return CompileError(f"{kernel}: {_front_end_line(str(error))}", "source", detail)
    found = re.search(r"(?:LLVM ERROR|fatal error|error): ([^\n]+)", diagnostics)
    text = found[1] if found else (str(error).strip().splitlines() or [type(error).__name__])[0]
    kind = "assemble" if re.search("assembl|invalid instruction|failed to link", detail) else "source"
    return CompileError(f"{kernel}: {arch} compilation failed: {text.strip()}", kind, detail)


def _front_end_line(message: str) -> str:
    """Triton's front end prints "at 2:32:", the source with a caret, then the reason: keep place, line and reason."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    place = re.match(r"at (\d+):(\d+):", lines[0]) if lines else None
    if not place or "^" not in lines:
        return " ".join(lines)[:400] or "compilation failed"
    caret = len(lines) - 1 - lines[::-1].index("^")
    reason = " ".join(lines[caret + 1 :]) or "compilation failed"
    return f"line {place[1]} of the kernel, `{lines[caret - 1]}`: {reason}"


@contextlib.contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
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


def run_apart(kernel: str, work: Callable[[], bytes], timeout_s: float) -> bytes:
    """Call `work` in a fork of this process and return its bytes: what kills the fork costs an answer, not the caller.

    For kernels that no fresh process can find by name, above all those typed into a notebook cell: LLVM may abort on
    one, and the notebook's state would be gone with it. `work` must not touch a GPU.

    Raises:
        CompileError: the fork took too long ("timeout") or ended without an answer ("crash").
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile(prefix="mxfp4lab-") as said:

        def answer() -> None:
            global kept_in
            code, kept_in = 70, said.name
            try:
                theirs.send_bytes(work())
                code = 0
            finally:
                os._exit(code)  # no handler, buffer or thread of the caller's may run a second time

        child = context.Process(target=answer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: none of theirs is needed
            child.start()
        theirs.close()
        try:
            if not ours.poll(timeout_s):
                raise CompileError(f"{kernel}: compilation took over {timeout_s:g} s", "timeout")
            return ours.recv_bytes()
        except EOFError:
            child.join()
            code = child.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit {code}"
            words = _last_words(said.read().decode("utf-8", "replace"))
            raise CompileError(f"{kernel}: the compiler died ({how}): {words}", "crash") from None
        finally:
            child.kill()
            child.join()
            ours.close()


def _last_words(diagnostics: str) -> str:
    """Of what a compiler printed before it died the line that says why, else its last."""
    lines = [line.strip() for line in diagnostics.splitlines() if line.strip()]
    marked = [line for line in lines if "LLVM ERROR" in line or "Assertion" in line or "error:" in line]
    return (marked or lines[-1:] or ["it said nothing"])[0][:300]
