"""What a check found, as data and as text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from mxfp4lab.check.launches import KernelUse
from mxfp4lab.paths import shown_path

PRESENTED_FINDINGS = 20


@dataclass
class CaseReport:
    """One case.

    Attributes:
        spec: the case line.
        status: "pass" or "fail".
        message: what a pass has to say; error: why it failed, one line.
        warnings: what the task accepts and a careful author would not.
        calls: calls of custom_kernel made for it.
        launches, lane_instructions: of all those calls (emulator only).
        launches_per_call: kernel launches of each call.
        bf16_identical_fraction, max_abs_err: of the last output that could be compared.
        stats: runs, mean, std, err, best, worst in nanoseconds, measured on a real GPU; empty on the emulator.
    """

    spec: str
    status: str = "fail"
    message: str = ""
    error: str = ""
    warnings: list[str] = field(default_factory=list)
    calls: int = 0
    launches: int = 0
    lane_instructions: int = 0
    launches_per_call: list[int] = field(default_factory=list)
    bf16_identical_fraction: float | None = None
    max_abs_err: float | None = None
    stats: dict[str, float] = field(default_factory=dict)


@dataclass
class CheckReport:
    """A whole check.

    Attributes:
        passed: every case passed and nothing else was wrong.
        exit_code: the task's code: 0, 112 a case failed, 111 no log, 113 bad case file, 2 bad request.
        evidence: "emulated" or "measured".
        device: what ran the launches.
        against: whose arithmetic judged the outputs.
        confined: by which means the process was kept from what; "" where the machine offers none.
        printed, printed_bytes: the first 64 KiB of its output, and how much there was.
        refusals: lines that the task's server would refuse.
        log: the lines of the task's log.
    """

    path: str
    mode: str
    backend: str
    evidence: str
    device: str = ""
    against: str = ""
    passed: bool = False
    exit_code: int = 112
    cases: list[CaseReport] = field(default_factory=list)
    kernels: list[KernelUse] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    confined: str = ""
    printed: str = ""
    printed_bytes: int = 0
    refusals: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values: what `--json` prints."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("cases", "kernels")}
        return values | {"cases": [asdict(case) for case in self.cases], "kernels": [k.to_dict() for k in self.kernels]}

    def summary(self) -> str:
        """One line per case and a verdict."""
        lines = [f"{shown_path(self.path)}: mode {self.mode}, {self.device} ({self.evidence}){self._unprotected()}"]
        together = self._failed_together()
        if together:
            lines.append(f"  fail  {together}")
        for case in [] if together else self.cases:
            said = case.error if case.status == "fail" else case.message
            lines.append(f"  {case.status}  {case.spec}" + (f"  {said}" if said else ""))
            if case.stats:
                mean, best, worst = (case.stats[name] / 1e3 for name in ("mean", "best", "worst"))
                runs = int(case.stats["runs"])
                lines.append(
                    f"        {mean:.2f} us mean of {runs} runs, best {best:.2f}, worst {worst:.2f} (measured)"
                )
            elif case.launches:
                each = ", ".join(str(n) for n in case.launches_per_call)
                executed = f"{case.lane_instructions / 1e6:.1f} M lane-instructions (emulated, no time)"
                lines.append(f"        {case.calls} call{'s' * (case.calls > 1)}, launches per call {each}; {executed}")
            lines += [f"        warning: {w}" for w in case.warnings]
        lines += [f"  warning: {w}" for w in self.warnings]
        lines += [f"  note: {n}" for n in self.notes]
        lines += [f"  the task's server refuses this file: {r}" for r in self.refusals]
        if self.printed_bytes:
            lines.append(
                f"  it printed {self.printed_bytes} bytes"
                + (f", the first {len(self.printed)} kept" if self.printed_bytes > len(self.printed) else "")
            )
        if self.error:
            lines.append(f"  {self.error}")
        lines.append(f"check: {'pass' if self.passed else 'fail'}{self._unprotected()}")
        return "\n".join(lines)

    __str__ = __repr__ = summary  # type: ignore[assignment]

    def _unprotected(self) -> str:
        return "" if self.confined else "; no write protection here"

    def _failed_together(self) -> str:
        """One line in place of many equal ones, where no case came as far as a call; else ""."""
        errors = {case.error for case in self.cases}
        if len(self.cases) < 2 or len(errors) > 1 or any(case.calls or case.status == "pass" for case in self.cases):
            return ""
        return f"all {len(self.cases)} cases: {errors.pop()}"

    def _repr_html_(self) -> str:
        from mxfp4lab import display as look

        verdict = look.badge("pass" if self.passed else "fail", "good" if self.passed else "bad")
        kind = look.badge(self.evidence, self.evidence)
        rows = []
        together = self._failed_together()
        if together:
            rows.append((f"all {len(self.cases)}", look.badge("fail", "bad"), "", "", self.cases[0].error))
        for case in [] if together else self.cases:
            tone = "good" if case.status == "pass" else "bad"
            said = case.error or case.message
            time = f"{case.stats['mean'] / 1e3:.2f} us" if case.stats else ""
            rows.append((case.spec, look.badge(case.status, tone), time, case.launches or "", said))
        remarks = [*self.warnings, *(w for case in self.cases for w in case.warnings), *self.notes]
        remarks += [f"refused by the task's server: {r}" for r in self.refusals] + ([self.error] if self.error else [])
        facts = [
            ("file", shown_path(self.path)),
            ("mode", f"{self.mode}, {self.device}"),
            *(("remark", r) for r in remarks),
        ]
        table = look.table(("case", "verdict", "time", "launches", "what it says"), rows)
        return look.card("Check", f'<div style="margin-bottom:6px">{verdict} {kind}</div>' + look.facts(facts) + table)

    def kernel_report(self) -> str:
        """Every kernel that was launched: resources, spills, hazards, matrix instructions, findings."""
        if self.evidence == "measured":
            return "kernels and findings are listed where they are emulated: --backend emulator"
        if not self.kernels:
            return "no Triton kernel was launched"
        lines = []
        for use in self.kernels:
            compiled, resources = use.compiled, use.compiled.resources
            lines.append(f"{compiled.name}  ({use.launches} launches, {use.replayed} replayed from equal ones)")
            lines.append("  options     " + ", ".join(f"{k} {v}" for k, v in use.options.items()))
            if use.constants:
                lines.append("  constants   " + ", ".join(f"{k}={v}" for k, v in use.constants.items()))
            for grid, count in use.grids.items():
                lines.append(f"  grid        {grid[0]} x {grid[1]} x {grid[2]} workgroups, {count} launches")
            if resources:
                r = resources
                registers = f"{r.vgprs} VGPRs, {r.agprs} AGPRs, {r.sgprs} SGPRs"
                lines.append(
                    f"  resources   {registers}, {r.lds_bytes} B LDS, {r.occupancy_waves_per_simd} waves per SIMD"
                )
                spilled = f"{r.spilled_vgprs} VGPRs, {r.spilled_sgprs} SGPRs, {r.scratch_bytes} B scratch"
                lines.append(
                    f"  spills      {spilled if r.spilled_vgprs or r.spilled_sgprs or r.scratch_bytes else 'none'}"
                )
            mfma = ", ".join(f"{n} x {name}" for name, n in compiled.mfma.items()) or "none"
            lines.append(f"  matrix      {mfma}")
            lines.append("  mix         " + ", ".join(f"{n} {name}" for name, n in compiled.mix.items()))
            lines.append("  hazards     " + ("; ".join(str(h) for h in compiled.hazards) or "none"))
            lines.append("  findings    " + ("none" if not use.findings else ""))
            lines += [f"    {finding}" for finding in use.findings[:PRESENTED_FINDINGS]]
        return "\n".join(lines)
