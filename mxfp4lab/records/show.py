"""A trial in words: the lines that its plain and its HTML form share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxfp4lab import display

if TYPE_CHECKING:
    from mxfp4lab.records.trial import Trial


def trial_lines(trial: Trial) -> list[tuple[str, str]]:
    """(name, value), most telling first; what a trial does not have is left out."""
    config = ", ".join(f"{name}={value}" for name, value in trial.config.items())
    lines = [
        ("evidence", f"{trial.evidence}"),
        ("status", f"{trial.status}{f': {trial.reason}' if trial.reason else ''}"),
        ("shape", str(trial.shape)),
        ("variant", trial.variant),
        ("config", f"{trial.config_id}: {config}"),
    ]
    if trial.latency_us is not None:
        lines.append(("latency", f"{trial.latency_us:.2f} us, {trial.regime}, {trial.device}"))
    if trial.predicted_us is not None:
        lines.append(("predicted", f"{trial.predicted_us:.2f} us, {trial.regime}, model {trial.model_version}"))
    if trial.bf16_identical is not None:
        lines.append(("C", f"{trial.bf16_identical:.4%} of bf16 identical to the reference ({trial.verified})"))
    for name, facts in (trial.resources or {}).items():
        spills, _ = display.spills_in_words(int(facts.get("spilled_vgprs") or 0))
        lines.append((name, f"{facts.get('vgprs', '?')} VGPRs, {spills}, {facts.get('lds_bytes', 0)} B of LDS"))
    toolchain = ", ".join(f"{name} {version}" for name, version in trial.toolchain.items())
    knobs = ", ".join(f"{name}={value}" for name, value in trial.knobs.items())
    lines += [("arch", trial.arch), ("toolchain", toolchain), ("knobs", knobs)]
    if trial.seed is not None:
        lines.append(("inputs", f"seed {trial.seed}, generator on {trial.generator_device}"))
    lines.append(("recorded", f"{trial.started_at}, run {trial.run_id}, worker {trial.worker}"))
    return [(name, value) for name, value in lines if value]
