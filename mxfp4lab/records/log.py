"""Trials on disk: append-only JSON lines, read back with care.

Whatever a file holds (a torn last line after a kill, another program's JSON, another version's rows, the same row
twice), every good row before and after it counts, and what was skipped is said once per file and kind.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mxfp4lab.records.trial import SCHEMA, Trial
from mxfp4lab.shapes import Shape, parse_shape

MAX_LINE_BYTES = 4 << 20
"""A longer line is not one of ours (a trial with counts of three launches is about 3 kB)."""
MAX_KINDS = 8
"""Distinct reasons told per file; a foreign file of a million rows shall not answer with a million warnings."""
ADVICE = "free some space or choose another folder and run it again: what is written counts"


class RecordsError(ValueError):
    """Records cannot be written or read as a whole; the message is one line for the user."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence alone."""
        return [f"RecordsError: {self}"]


def new_run_id(kind: str, now: datetime | None = None) -> str:
    """``20261129T155959-tune-3fa2``: sorts by time; the random tail keeps two runs of one second apart."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", kind):
        raise ValueError(f"kind: {kind!r}; allowed: letters, digits, '_', '.', '-'")
    return f"{now or datetime.now(UTC):%Y%m%dT%H%M%S}-{kind}-{secrets.token_hex(2)}"


def write_run_json(run_folder: Path, content: Mapping[str, Any]) -> Path:
    """Write ``run.json`` once per run, whole or not at all.

    Raises:
        RecordsError: it is there already, or the folder cannot be written.
    """
    path = Path(run_folder) / "run.json"
    try:
        text = json.dumps({"schema": SCHEMA, **dict(content)}, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordsError(f"{path}: content is no JSON object: {error}") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            raise RecordsError(f"{path} exists: a run is described once")
        temporary = path.with_name(f".run.json.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise RecordsError(f"cannot write {path}: {error.strerror or error}; {ADVICE}") from None
    return path


class TrialLog:
    """Append trials to one worker's file; each is on its way to the disk when `append` returns.

    A line is handed to the operating system in one write on a descriptor opened for appending, so that killing the
    process at any moment leaves at most one torn line, the last.
    """

    def __init__(self, run_folder: Path, worker: str = "main") -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", worker):
            raise ValueError(f"worker: {worker!r}; allowed: letters, digits, '_', '.', '-'")
        self.path = Path(run_folder) / f"trials-{worker}.jsonl"
        self.worker = worker
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor: int | None = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise RecordsError(f"cannot write {self.path}: {error.strerror or error}; {ADVICE}") from None
        size = os.fstat(self._descriptor).st_size
        self._torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"

    def append(self, trial: Trial) -> None:
        """Write one row.

        Raises:
            RecordsError: the disk is full, the file too large, or the log closed; earlier rows are untouched.
        """
        if self._descriptor is None:
            raise RecordsError(f"{self.path} is closed")
        # After a torn line a newline first: the torn row stays lost, this one is not glued to it.
        data = (("\n" if self._torn else "") + trial.to_line()).encode()
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            raise RecordsError(f"cannot write {self.path}: {error.strerror or error}; {ADVICE}") from None
        self._torn = written != len(data)
        if self._torn:
            raise RecordsError(f"cannot write {self.path}: the disk took {written} of {len(data)} bytes; {ADVICE}")

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> TrialLog:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_trials(path: Path | str, shape: Shape | str | None = None) -> tuple[list[Trial], list[str]]:
    """Read one file of trials.

    Args:
        path: a ``trials-*.jsonl``.
        shape: keep only this shape's rows. Lines in our own spacing (no space after a colon) that do not hold this
            shape's text are passed over unread, which is what makes a resume over a million rows quick.

    Returns:
        (trials in file order, of equal identity the last, and warnings: one line per kind of thing skipped).
    """
    path = Path(path)
    shape = None if shape is None else parse_shape(shape)
    kept: dict[str, Trial] = {}
    skipped: dict[str, list[int]] = {}
    repeated = 0
    needle = b"" if shape is None else b'"m":%d,"n":%d,"k":%d' % shape.as_tuple
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device may never end
            return [], [f"{path}: passed over: no regular file"]
        with path.open("rb") as handle:
            for number, line in _lines(handle):
                if needle not in line and b'": ' not in line and len(line) <= MAX_LINE_BYTES:
                    trial, why = None, "" if line.endswith(b"\n") else "torn last line"  # unread, and not hidden
                else:
                    trial, why = _parse_line(line)
                if why:
                    kind = why if why in skipped or len(skipped) < MAX_KINDS else "other reasons"
                    skipped.setdefault(kind, []).append(number)
                if trial is None or (shape is not None and trial.shape != shape):
                    continue
                repeated += kept.pop(trial.identity, None) is not None  # the later row takes the later place
                kept[trial.identity] = trial
    except OSError as error:
        return list(kept.values()), [f"{path}: cannot read: {error.strerror or error}"]
    warnings = [_skip_text(path, why, lines) for why, lines in skipped.items()]
    if repeated:
        warnings.append(f"{path}: {repeated} repeated row{'s' * (repeated > 1)}, the last of each counts")
    return list(kept.values()), warnings


def find_trial_files(outputs: Path | str) -> list[Path]:
    """Every worker's file of every run under ``<outputs>/runs``, oldest run first."""
    return sorted(Path(outputs).glob("runs/*/trials-*.jsonl"))


def read_all_trials(outputs: Path | str, shape: Shape | None = None) -> tuple[dict[str, Trial], list[str]]:
    """Every trial of every run below a folder, identity -> the latest row; what a re-run need not do again."""
    trials: dict[str, Trial] = {}
    warnings: list[str] = []
    for path in find_trial_files(outputs):
        found, said = read_trials(path, shape)
        trials.update((trial.identity, trial) for trial in found)
        warnings += said
    return trials, warnings


def _lines(handle: Any) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := handle.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := handle.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
        yield number, line


def _parse_line(line: bytes) -> tuple[Trial | None, str]:
    if not line.strip():
        return None, ""
    if len(line) > MAX_LINE_BYTES:
        return None, f"line longer than {MAX_LINE_BYTES >> 20} MiB"
    try:
        data = _DECODER.decode(line.decode())
        if b"\\ud" in line:  # half a surrogate pair is JSON too, and cannot be shown
            json.dumps(data, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None, "not JSON" if line.endswith(b"\n") else "torn last line"
    try:
        return Trial.from_dict(data), ""
    except ValueError as error:
        return None, f"not a trial ({error})"


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # NaN, or 1e999: no number of ours
        raise ValueError(f"{text} in JSON")
    return number


_DECODER = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)


def _skip_text(path: Path, why: str, lines: list[int]) -> str:
    where = ", ".join(map(str, lines[:3])) + (", ..." if len(lines) > 3 else "")
    return f"{path}: skipped {len(lines)} line{'s' * (len(lines) > 1)} ({where}): {why}"
