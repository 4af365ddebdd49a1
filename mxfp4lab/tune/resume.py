"""What earlier runs already know: found again by what decides a result, not by file or run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mxfp4lab.records import Status, Trial, content_hash
from mxfp4lab.tune.space import Candidate


@dataclass(frozen=True)
class Bench:
    """What every trial of a run has in common and its result depends on."""

    arch: str
    knobs: Mapping[str, str]
    toolchain: Mapping[str, str]
    seed: int
    generator_device: str
    device: str = ""


@dataclass
class Known:
    """Earlier rows of one candidate on one bench."""

    compiled: Trial | None = None  # invalid, compile_error, screened, or ok with resources and counts
    screened: Trial | None = None  # under whatever thresholds
    predicted: dict[str, Trial] = field(default_factory=dict)  # by model version
    emulated: Trial | None = None
    measured: dict[str, Trial] = field(default_factory=dict)  # by regime


# These say something about the machine or the moment, not about the config: a re-run tries again.
_TRY_AGAIN = {Status.timeout, Status.worker_died, Status.skipped}


class Memory:
    """Index of trials by candidate."""

    def __init__(self, bench: Bench, trials: Iterable[Trial] = ()) -> None:
        self._bench = bench
        self._common = self._bench_key(bench.arch, bench.knobs, bench.toolchain)
        self._known: dict[str, Known] = {}
        for trial in trials:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        """File one row; rows of another bench, and rows to be tried again, are passed over."""
        if trial.status in _TRY_AGAIN:
            return
        if self._bench_key(trial.arch, trial.knobs, trial.toolchain) != self._common:
            return
        known = self._known.setdefault(self._key(trial.variant, trial.config, trial.kernel_hash), Known())
        if trial.evidence == "modelled":
            known.screened = trial if trial.status is Status.screened else known.screened
            known.compiled = trial if trial.counts is not None or known.compiled is None else known.compiled
            if trial.predicted_us is not None:
                known.predicted[trial.model_version] = trial
        elif trial.seed == self._bench.seed and trial.generator_device == self._bench.generator_device:
            if trial.evidence == "emulated":
                known.emulated = trial
            elif trial.device == self._bench.device:
                known.measured[trial.regime] = trial

    def of(self, candidate: Candidate) -> Known:
        """What is known of a candidate; empty where nothing is."""
        key = self._key(candidate.variant, candidate.config.to_dict(), candidate.kernel_hash)
        return self._known.get(key, Known())

    def of_refused(self, variant: str, config: Mapping[str, Any]) -> Known:
        """What is known of a config that is not valid and so has no kernel."""
        return self._known.get(self._key(variant, config, ""), Known())

    @staticmethod
    def _key(variant: str, config: Mapping[str, Any], kernel_hash: str) -> str:
        return content_hash([variant, dict(config), kernel_hash])

    @staticmethod
    def _bench_key(arch: str, knobs: Mapping[str, str], toolchain: Mapping[str, str]) -> str:
        return content_hash([arch, dict(knobs), dict(toolchain)])
