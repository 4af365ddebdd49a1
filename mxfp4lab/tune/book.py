"""What is known of a shape's configs and what becomes known: rows read from earlier runs, and written by this one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mxfp4lab.config import GemmConfig
from mxfp4lab.records import (
    Evidence,
    Status,
    Trial,
    TrialLog,
    environment,
    new_run_id,
    read_all_trials,
    write_run_json,
)
from mxfp4lab.shapes import Shape

# These say something about the machine or the moment, not about the config: a re-run tries again.
TRY_AGAIN = (Status.timeout, Status.worker_died, Status.skipped)


@dataclass
class Book:
    """The rows of one run of one shape's search, and of earlier runs on the same bench.

    A config is found again by its id and its kernel's hash, whatever run or file it stands in.

    Attributes:
        out: folder that holds ``runs/``.
        arch, device, knobs, toolchain, seed: the bench: what every trial has in common and its result depends on.
    """

    shape: Shape
    out: Path
    arch: str
    device: str
    knobs: Mapping[str, str]
    toolchain: Mapping[str, str]
    seed: int

    def __post_init__(self) -> None:
        self.run_id = new_run_id(f"tune-{self.shape}")
        self.folder = self.out / "runs" / self.run_id
        self._rows: dict[tuple[str, str, str], list[Trial]] = {}
        self._lock = threading.Lock()  # with GPUs, what is compiled and what is measured come from two threads
        self._log: TrialLog | None = None

    def open(self, parameters: Mapping[str, Any]) -> list[str]:
        """Read earlier runs and begin this one's files.

        Returns:
            what was skipped in earlier files, a line per kind.
        """
        earlier, warnings = read_all_trials(self.out, self.shape)
        for trial in earlier.values():
            self._add(trial)
        self._log = TrialLog(self.folder)
        write_run_json(self.folder, {
            "run_id": self.run_id, "kind": "tune", "started_at": _now(), "parameters": dict(parameters),
            "arch": self.arch, "toolchain": dict(self.toolchain), "environment": environment(self.device, self.knobs),
        })  # fmt: skip
        return warnings

    def close(self) -> None:
        """Close this run's file."""
        if self._log is not None:
            self._log.close()

    def of(self, variant: str, config: GemmConfig, kernel_hash: str = "") -> list[Trial]:
        """What is known of a config, oldest first. An invalid one has no kernel, and "" for its hash."""
        return self._rows.get((variant, config.config_id, kernel_hash), [])

    def write(self, variant: str, config: GemmConfig, evidence: Evidence = Evidence.modelled, **fields: Any) -> Trial:
        """Write a row, and know it from now on."""
        if evidence is not Evidence.modelled:
            fields |= {"seed": self.seed, "generator_device": "cpu"}
        if evidence is Evidence.measured:
            fields["device"] = self.device
        trial = Trial(
            run_id=self.run_id, shape=self.shape, variant=variant, config=config.to_dict(), config_id=config.config_id,
            arch=self.arch, knobs=self.knobs, toolchain=self.toolchain, evidence=evidence, started_at=_now(),
            **{"worker": "main", **fields},
        )  # fmt: skip
        assert self._log is not None
        with self._lock:
            self._log.append(trial)
            self._add(trial)
        return trial

    def _add(self, trial: Trial) -> None:
        """File a row; rows of another bench or other inputs, and rows to be tried again, are passed over."""
        bench = (trial.arch, trial.knobs, trial.toolchain) == (self.arch, self.knobs, self.toolchain)
        inputs = trial.evidence is Evidence.modelled or (trial.seed, trial.generator_device) == (self.seed, "cpu")
        device = trial.evidence is not Evidence.measured or trial.device == self.device
        if trial.status not in TRY_AGAIN and bench and inputs and device:
            self._rows.setdefault((trial.variant, trial.config_id, trial.kernel_hash), []).append(trial)


def newest(rows: Sequence[Trial], **fields: Any) -> Trial | None:
    """The newest of rows whose fields have these values."""
    return next((row for row in reversed(rows) if all(getattr(row, key) == of for key, of in fields.items())), None)


def compiled_row(rows: Sequence[Trial]) -> Trial | None:
    """What compiling a config gave: of its modelled rows the one that says most, of equals the newest."""
    modelled = [row for row in reversed(rows) if row.evidence is Evidence.modelled]
    return max(modelled, default=None, key=lambda row: bool(row.resources) + 2 * (row.counts is not None))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
