"""What is known of a shape's configs and what becomes known: rows read from earlier runs, and written by this one."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
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
class Known:
    """Rows of one config on one bench."""

    compiled: Trial | None = None  # invalid, compile_error, screened, or ok with resources and counts
    screened: Trial | None = None  # under whatever thresholds
    predicted: dict[str, Trial] = field(default_factory=dict)  # by model version
    emulated: Trial | None = None
    measured: dict[str, Trial] = field(default_factory=dict)  # by regime


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
        self._known: dict[tuple[str, str, str], Known] = {}
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

    def of(self, variant: str, config: GemmConfig, kernel_hash: str = "") -> Known:
        """What is known of a config; empty where nothing is. An invalid one has no kernel, and "" for its hash."""
        return self._known.setdefault((variant, config.config_id, kernel_hash), Known())

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
        """File a row; rows of another bench, and rows to be tried again, are passed over."""
        bench = (trial.arch, trial.knobs, trial.toolchain) == (self.arch, self.knobs, self.toolchain)
        if trial.status in TRY_AGAIN or not bench:
            return
        known = self._known.setdefault((trial.variant, trial.config_id, trial.kernel_hash), Known())
        if trial.evidence is Evidence.modelled:
            known.screened = trial if trial.status is Status.screened else known.screened
            if known.compiled is None or _completeness(trial) >= _completeness(known.compiled):
                known.compiled = trial
            if trial.predicted_us is not None:
                known.predicted[trial.model_version] = trial
        elif (trial.seed, trial.generator_device) == (self.seed, "cpu"):
            if trial.evidence is Evidence.emulated:
                known.emulated = trial
            elif trial.device == self.device:
                known.measured[trial.regime] = trial


def _completeness(trial: Trial) -> int:
    return bool(trial.resources) + 2 * (trial.counts is not None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
