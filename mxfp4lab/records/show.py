"""A trial in words: the lines that its plain and its HTML form share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxfp4lab import display

if TYPE_CHECKING:
    from mxfp4lab.records.trial import Counts, Trial

COUNT_HEADERS = (
    "kernel", "workgroups", "waves each", "VALU", "MFMA", "convert", "memory", "LDS", "scalar", "barriers",
    "KiB read", "KiB written", "VGPRs", "spilled", "waves per SIMD",
)  # fmt: skip


def counts_title(counts: Counts) -> str:
    """What a card of counts is headed with."""
    split = f", split-K {counts.split_k}" if counts.split_k > 1 else ""
    return f"Counts of {counts.shape}{split}"


def count_rows(counts: Counts) -> list[list[object]]:
    """A row per launch, under `COUNT_HEADERS`."""
    return [
        [
            c.name, c.workgroups, c.waves_per_workgroup, *map(_count, (
                c.valu_per_wave, c.mfma_per_wave, c.convert_per_wave, c.vmem_per_wave, c.lds_per_wave,
                c.scalar_per_wave, c.barriers_per_wave,
            )),
            round(c.load_bytes_per_workgroup / 1024, 1), round(c.store_bytes_per_workgroup / 1024, 1),
            c.vgprs, c.spilled_vgprs, c.occupancy_waves_per_simd,
        ]
        for c in counts.launches
    ]  # fmt: skip


def _count(value: float) -> int | float:
    """Whole where every wave executes as much."""
    return int(value) if value == int(value) else round(value, 1)


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
