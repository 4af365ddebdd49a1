"""The task's three modes, driven from outside the submission's process.

Inputs are generated and outputs judged here, where the submission cannot reach: a file that replaces `torch.allclose`
or a clock changes nothing. On the emulator the timed modes make two repeats and count; on a real GPU they measure.

What this check asks beyond the task's own: C is bf16, not a view of an input, in memory of its own on every call; the
inputs stay as they were; clocks and events stay what they were; no result outlives its call.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from mxfp4lab.check.answer import Failed, Given, duration, listed, sensible
from mxfp4lab.check.cases import Case, Log
from mxfp4lab.check.launches import LaunchService
from mxfp4lab.check.report import CaseReport
from mxfp4lab.check.session import Session, SubmissionEnded
from mxfp4lab.check.text import plain
from mxfp4lab.task import check_output, generate_input, reference_output

EMULATED_REPEATS = 2
MANY_CALLS = 24  # of the cheapest case in leaderboard mode: some faults show at the eleventh call
SEED_STEP = 13  # of the leaderboard's fresh inputs


@dataclass(frozen=True)
class StopRule:
    """When a timed mode stops repeating (the task's numbers)."""

    max_repeats: int
    max_kernel_ns: float
    max_wall_s: float = 120.0


BENCHMARK = StopRule(1000, 50e9)
LEADERBOARD = StopRule(100, 30e9)
WARM_UP = StopRule(100, 1e8)


@dataclass
class Call:
    """What a call was given and what it gave, kept to name a stale result."""

    data: tuple[torch.Tensor, ...]
    output: torch.Tensor


@dataclass
class Run:
    """One check in progress.

    Args:
        session: the submission's process.
        launches: what serves it; None on a real GPU.
        log: the task's log.
        device: where inputs are generated: their values depend on it.
        reference: C of the task's inputs, by which outputs are judged.
        flush_bytes: cache overwrite before a timed call on a GPU.
    """

    session: Session
    launches: LaunchService | None
    log: Log
    device: str = "cpu"
    reference: Callable[[tuple[torch.Tensor, ...]], torch.Tensor] = reference_output
    flush_bytes: int = 0
    reports: list[CaseReport] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    _seen: list[str] = field(default_factory=list)
    # The last calls, the warm-up's too: enough to name what a stale result was made of.
    _earlier: deque[Call] = field(default_factory=lambda: deque(maxlen=8))

    @property
    def emulated(self) -> bool:
        return self.launches is not None

    # the three modes ------------------------------------------------------------------------------------------------

    def imports(self, cases: Sequence[Case]) -> bool:
        """Only the import: the file loads in a fresh process and defines `custom_kernel`."""
        report = CaseReport("import")
        report.error = self._load()
        report.status = "fail" if report.error else "pass"
        self.reports = [report]
        return self._verdict()

    def test(self, cases: Sequence[Case]) -> bool:
        """One checked call per case, on clones; a failed case does not stop the others."""
        self.log.write("test-count", len(cases))
        self.reports = [CaseReport(case.spec) for case in cases]
        loaded = self._load()
        for index, (case, report) in enumerate(zip(cases, self.reports, strict=True)):
            self.log.write(f"test.{index}.spec", case.spec)
            try:
                if loaded:
                    raise Failed(loaded)
                report.message = self._checked_call(report, self._inputs(case, case.seed), "fresh")
                report.status = "pass"
            except (Failed, SubmissionEnded) as error:
                report.error = str(error)
                if isinstance(error, SubmissionEnded):
                    loaded = f"not run: {error}"
            self.log.write(f"test.{index}.status", report.status)
            if report.status == "fail":
                self.log.write(f"test.{index}.error", report.error)
            elif report.message:
                self.log.write(f"test.{index}.message", report.message)
        return self._verdict()

    def benchmark(self, cases: Sequence[Case]) -> bool:
        """Per case one checked call, then timed calls on the same tensors; stops at the first failure."""
        return self._timed("benchmark", cases)

    def leaderboard(self, cases: Sequence[Case]) -> bool:
        """As benchmark, with new inputs for every timed call and every output checked."""
        return self._timed("leaderboard", cases)

    def _timed(self, mode: str, cases: Sequence[Case]) -> bool:
        self.reports, self.cases = [CaseReport(case.spec) for case in cases], list(cases)
        broken = self._load()
        if not broken:
            broken = self._warm_up(cases[0])
        self.log.write("benchmark-count", len(cases))
        for index, (case, report) in enumerate(zip(cases, self.reports, strict=True)):
            self.log.write(f"benchmark.{index}.spec", case.spec)
            try:
                if broken:
                    raise Failed(broken)
                if mode == "benchmark":
                    self._benchmark_case(case, report)
                else:
                    self._leaderboard_case(case, report)
                report.status = "pass"
            except (Failed, SubmissionEnded) as error:
                report.error = str(error)
                self.log.write(f"benchmark.{index}.status", "fail")
                self.log.write(f"benchmark.{index}.error", report.error)
                del self.reports[index + 1 :]
                break
            for key, value in report.stats.items():
                self.log.write(f"benchmark.{index}.{key}", int(value) if key == "runs" else value)
            if self.emulated:  # counts instead of nanoseconds: there is no time here
                self.log.write(f"benchmark.{index}.runs", EMULATED_REPEATS)
                self.log.write(f"benchmark.{index}.launches", report.launches)
                self.log.write(f"benchmark.{index}.lane-instructions", report.lane_instructions)
                self.log.write(f"benchmark.{index}.evidence", "emulated")
        return self._verdict()

    def _warm_up(self, case: Case) -> str:
        """The task's warm-up on its first case; its failure shows again, with a line, in that case."""
        scrap = CaseReport(case.spec)
        try:
            self._checked_call(scrap, self._inputs(case, case.seed), "fresh")
            if not self.emulated:
                self._time(WARM_UP)
        except (Failed, SubmissionEnded) as error:
            return str(error)
        return ""

    def _benchmark_case(self, case: Case, report: CaseReport) -> None:
        data = self._inputs(case, case.seed)
        report.message = self._checked_call(report, data, "fresh")
        if not self.emulated:
            report.stats = statistics(self._time(BENCHMARK))
            return
        for _ in range(EMULATED_REPEATS):
            self._checked_call(report, data, "same")
        if self.launches.launches and not report.launches_per_call[-1]:
            raise Failed(
                "a timed call launched no kernel and returned the result of an earlier call: results are cached"
            )

    def _leaderboard_case(self, case: Case, report: CaseReport) -> None:
        report.message = self._checked_call(report, self._inputs(case, case.seed), "fresh")
        durations: list[float] = []
        seed = case.seed
        repeats = LEADERBOARD.max_repeats
        if self.emulated:
            cheapest = min(self.cases, key=lambda other: math.prod(other.shape.as_tuple))
            repeats = MANY_CALLS if case is cheapest else EMULATED_REPEATS
        for repeat in range(repeats):
            seed = (seed + SEED_STEP) % 2**63
            report.message = self._checked_call(report, self._inputs(case, seed), "fresh", durations)
            if not self.emulated and repeat > 1 and self._enough(durations, LEADERBOARD):
                break
        if durations:
            report.stats = statistics(durations)

    # one call -------------------------------------------------------------------------------------------------------

    def _load(self) -> str:
        """Import the submission; the reason where that fails."""
        try:
            answer = self.session.request("load")
        except SubmissionEnded as error:
            return str(error)
        return self._explained(plain(answer.get("error", "")))

    def _inputs(self, case: Case, seed: int) -> tuple[torch.Tensor, ...]:
        return tuple(t.cpu() for t in generate_input(case.shape, seed, self.device, task_dtypes=True))

    def _checked_call(
        self,
        report: CaseReport,
        data: tuple[torch.Tensor, ...],
        how: str,
        durations: list[float] | None = None,
    ) -> str:
        """Call, look at everything, compare with the reference; returns what a pass has to say.

        Raises:
            Failed: with the line for the log.
        """
        launched, executed = (self.launches.launches, self.launches.lane_instructions) if self.launches else (0, 0)
        answer = self.session.request(
            "call", how=how, inputs=self.session.give(data), timed=durations is not None, flush_bytes=self.flush_bytes
        )
        report.calls += 1
        if self.launches:
            report.launches_per_call.append(self.launches.launches - launched)
            report.launches += self.launches.launches - launched
            report.lane_instructions += self.launches.lane_instructions - executed
        if "error" in answer:
            raise Failed(self._explained(plain(answer["error"])))
        self._refuse_findings(report)
        given = Given.read(answer, self.session)
        output = given.output
        verdict = check_output(output, self.reference(data))
        report.bf16_identical_fraction, report.max_abs_err = verdict.bf16_identical_fraction, verdict.max_abs_err
        if not verdict.passed:
            raise Failed(self._stale(output, data) or verdict.message)
        if given.reused:
            raise Failed(
                "the output lies in the same memory as an earlier output: a buffer was handed out twice (stricter than "
                "the task)"
            )
        report.warnings += [said for said in given.warnings if said not in report.warnings]
        if durations is not None and given.nanoseconds is not None:
            durations.append(given.nanoseconds)
        self._earlier.append(Call(data, output))
        return verdict.message

    def _explained(self, said: str) -> str:
        """An error with what is not obvious from it."""
        if "allocate memory" in said or said.endswith("MemoryError"):
            return f"{said} (limit of its process: {self.session.limits.memory_bytes >> 20} MiB)"
        return said

    def _refuse_findings(self, report: CaseReport) -> None:
        """An access outside a tensor is a fault, also where this time it did no harm."""
        if self.launches is None:
            return
        found = [f"{use.compiled.name}: {finding}" for use in self.launches.kernels for finding in use.findings]
        new = [line for line in found if line not in self._seen]
        self._seen += new
        if new:
            more = f" (and {len(new) - 1} more)" if len(new) > 1 else ""
            raise Failed(f"{new[0]}{more} (stricter than the task where C is right)")

    def _stale(self, output: torch.Tensor, data: tuple[torch.Tensor, ...]) -> str:
        """What an earlier call left in a wrong output, in words; "" where nothing did."""
        for back, call in enumerate(reversed(self._earlier), 1):
            if output.shape != call.output.shape or output.dtype != call.output.dtype:
                continue
            when = "the last call" if back == 1 else f"{back} calls ago"
            if torch.equal(output, call.output):
                said = f"the result of {when} was returned again for new inputs"
                return f"{said}: results are cached by pointer, id or shape"
            if torch.equal(output, self.reference((call.data[0], *data[1:]))):
                return f"computed with the A of {when}: quantized A is cached by pointer, id or shape"
            if torch.equal(output, self.reference((data[0], *call.data[1:]))):
                return f"computed with the B of {when}: B is cached by pointer, id or shape"
        return ""

    def _time(self, rule: StopRule) -> list[float]:
        answer = self.session.request(
            "time",
            max_repeats=rule.max_repeats,
            max_kernel_ns=rule.max_kernel_ns,
            max_wall_s=rule.max_wall_s,
            flush_bytes=self.flush_bytes,
        )
        if "error" in answer:
            raise Failed(plain(answer["error"]))
        with sensible():
            if answer.get("tampered"):
                raise Failed(f"the submission replaced {listed(answer['tampered'])}")
            return [duration(ns) for ns in answer["durations"][: rule.max_repeats]]

    @staticmethod
    def _enough(durations: list[float], rule: StopRule) -> bool:
        stats = statistics(durations)
        return stats["err"] / stats["mean"] < 1e-3 or sum(durations) > rule.max_kernel_ns

    def _settle(self) -> None:
        """The last output must still be what it was when it was returned."""
        if not self.reports or self.reports[-1].status != "pass":
            return
        try:
            answer = self.session.request("settle")
            if answer.get("outlived"):
                raise Failed("an output changed after it was returned: work goes on behind the call")
        except (Failed, SubmissionEnded) as error:
            self.reports[-1].status, self.reports[-1].error = "fail", str(error)

    def _verdict(self) -> bool:
        self._settle()
        passed = bool(self.reports) and all(report.status == "pass" for report in self.reports)
        self.log.write("check", "pass" if passed else "fail")
        return passed


def statistics(durations: Sequence[float]) -> dict[str, float]:
    """runs, mean, std, err (of the mean), best and worst, as the task computes them, in the unit of `durations`."""
    runs = len(durations)
    mean = sum(durations) / runs
    std = math.sqrt(sum((d - mean) ** 2 for d in durations) / (runs - 1)) if runs > 1 else 0.0
    return {
        "runs": float(runs),
        "mean": mean,
        "std": std,
        "err": std / math.sqrt(runs),
        "best": min(durations),
        "worst": max(durations),
    }
