"""`check --report` as a page: what a submission launches, with what resources, spills, hazards and findings."""

from __future__ import annotations

from typing import Any

from mxfp4lab import display as look
from mxfp4lab.paths import shown_path

HEADERS = ("kernel", "launches", "grids", "VGPRs", "spills", "LDS", "waves per SIMD", "MFMA", "hazards", "findings")
SHOWN = 20


class ReportPage:
    """A `CheckReport` with its kernels; HTML in a notebook, `check --report`'s own text elsewhere."""

    def __init__(self, report: Any) -> None:
        self.report = report

    def rows(self) -> list[list[Any]]:
        """A row per kernel, under `HEADERS`."""
        rows = []
        for use in self.report.kernels:
            compiled, resources = use.compiled, use.compiled.resources
            grids = ", ".join(" x ".join(map(str, grid)) for grid in use.grids)
            spilled = resources.spilled_vgprs if resources else 0
            words, tone = look.spills_in_words(spilled)
            mfma = sum(compiled.mfma.values())
            rows.append([
                compiled.name, use.launches, grids, resources.vgprs if resources else "", look.badge(words, tone),
                resources.lds_bytes if resources else "", resources.occupancy_waves_per_simd if resources else "",
                mfma, _marked(len(compiled.hazards)), _marked(len(use.findings)),
            ])  # fmt: skip
        return rows

    def __str__(self) -> str:
        return f"{self.report.summary()}\n{self.report.kernel_report()}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from mxfp4lab.notebook.isa_view import IsaView

        report = self.report
        verdict = look.badge("pass" if report.passed else "fail", "good" if report.passed else "bad")
        kind = look.badge(report.evidence, report.evidence)
        cases = [
            (case.spec, look.badge(case.status, "good" if case.status == "pass" else "bad"), case.error or case.message)
            for case in report.cases
        ]
        notes = [("warning", w) for case in report.cases for w in case.warnings]
        notes += [("warning", w) for w in report.warnings] + [("note", n) for n in report.notes]
        notes += [("the task's server refuses this file", r) for r in report.refusals]
        notes += [("error", report.error)] if report.error else []
        body = f"<div>{verdict} {kind} {look.escape(report.device)}, mode {look.escape(report.mode)}</div>"
        body += look.table(("case", "verdict", "what it says"), cases)
        body += look.facts(notes) if notes else ""
        body += '<div style="font-weight:600;margin:10px 0 4px">Kernels</div>'
        body += look.table(HEADERS, self.rows()) if report.kernels else "no Triton kernel was launched"
        for use in report.kernels:
            said = [*(str(hazard) for hazard in use.compiled.hazards), *use.findings][:SHOWN]
            inside = look.facts([("options", ", ".join(f"{k} {v}" for k, v in use.options.items())),
                                 ("constants", ", ".join(f"{k}={v}" for k, v in use.constants.items()) or "none"),
                                 ("instructions", ", ".join(f"{n} {k}" for k, n in use.compiled.mix.items())),
                                 *(("finding", text) for text in said)])  # fmt: skip
            inside += IsaView(use.compiled, open_loop=False)._repr_html_()
            body += look.details(f"{use.compiled.name}: constants, findings, machine code", inside, opened=bool(said))
        return str(look.card(f"Check of {shown_path(report.path)}", body))


def _marked(count: int) -> Any:
    return look.badge(count, "bad") if count else look.badge("none", "good")
