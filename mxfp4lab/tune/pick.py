"""The config that a search recommends: a pick where its time is modelled, a winner where it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mxfp4lab import display
from mxfp4lab.config import VARIANT_TRAITS, GemmConfig
from mxfp4lab.records import Evidence
from mxfp4lab.shapes import Shape
from mxfp4lab.tune.screens import main_kernel

PICK_SCHEMA = 1
PICK_MIME = "application/vnd.mxfp4lab.pick+json"
"""A notebook's results cell shows its pick under this type, so that the file alone is enough to export from."""


def resources_in_words(kernel: Mapping[str, Any], arch: str) -> str:
    """What a kernel occupies, in the words of its target."""
    spills = display.spills_in_words(kernel.get("spilled_vgprs", 0))[0]
    registers, lds = kernel.get("vgprs", "?"), kernel.get("lds_bytes", 0)
    waves = kernel.get("occupancy_waves_per_simd", "?")
    if arch == "gfx950":
        return f"{registers} VGPRs, {spills}, {lds} B of LDS, {waves} waves a SIMD"
    return f"{registers} registers a thread, {spills}, {lds} B of shared memory, {waves} warps a scheduler"


@dataclass(frozen=True)
class Pick:
    """The config that a search recommends for a shape, with the evidence for it.

    Without a GPU this is a pick: its time is modelled, its results were checked by executing the machine code. With
    one it is a winner: measured, and compared with the other finalists (``tie`` says that it could not be told apart).

    Attributes:
        interval: of the prediction, or p20 and p80 of the measured time.
        floor_us: an empty kernel in the run that measured it.
    """

    shape: Shape
    variant: str
    config: GemmConfig
    arch: str
    evidence: Evidence
    verified: str
    bf16_identical: float
    toolchain: Mapping[str, str]
    knobs: Mapping[str, str]
    run_id: str
    predicted_us: float | None = None
    interval: tuple[float, float] | None = None
    model_version: str = ""
    extrapolated: bool = False
    latency_us: float | None = None
    regime: str = ""
    device: str = ""
    tie: bool = False
    floor_us: float | None = None
    origins: tuple[str, ...] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    alternatives: tuple[tuple[str, GemmConfig], ...] = ()

    @property
    def word(self) -> str:
        """``winner`` for a measured result, ``pick`` for a modelled one."""
        return "winner" if self.evidence is Evidence.measured else "pick"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: everything that an export needs, with the evidence beside it."""
        return {
            "schema": PICK_SCHEMA,
            "kind": self.word,
            "shape": {"m": self.shape.m, "n": self.shape.n, "k": self.shape.k},
            "variant": self.variant,
            "config": self.config.to_dict(),
            "config_id": self.config.config_id,
            "arch": self.arch,
            "evidence": str(self.evidence),
            "predicted_us": self.predicted_us,
            "interval": list(self.interval) if self.interval else None,
            "model_version": self.model_version,
            "extrapolated": self.extrapolated,
            "latency_us": self.latency_us,
            "floor_us": self.floor_us,
            "regime": self.regime,
            "device": self.device,
            "tie": self.tie,
            "verified": self.verified,
            "bf16_identical": self.bf16_identical,
            "toolchain": dict(self.toolchain),
            "knobs": dict(self.knobs),
            "run_id": self.run_id,
            "alternatives": [
                {"variant": variant, "config": config.to_dict(), "config_id": config.config_id}
                for variant, config in self.alternatives
            ],
        }

    def choices(self) -> list[tuple[str, GemmConfig]]:
        """(variant, config) of this pick and then of its alternatives: what an export takes for a shape."""
        return [(self.variant, self.config), *self.alternatives]

    def sentence(self) -> str:
        """One sentence for the head of an exported file: what the config rests on."""
        if self.latency_us is not None:
            return f"{self.shape}: {self.latency_us:.2f} us measured ({self.regime}, {self.device})."
        return (
            f"{self.shape}: picked by a model ({self.model_version}: {self.predicted_us:.2f} us, not measured); "
            f"its gfx950 code was executed: {self.bf16_identical:.2%} of C's bf16 equal the reference."
            + (f" Mind: {caveat}." if (caveat := self._caveat()) else "")
        )

    def _caveat(self) -> str:
        """What a modelled time of the variant leaves open."""
        known = VARIANT_TRAITS.get(self.variant)
        return known.caveat if known and self.latency_us is None else ""

    def lines(self) -> list[tuple[str, Any]]:
        """(name, value) for people; the HTML and the plain form both show these."""
        kernel = main_kernel(self.facts)
        if self.latency_us is not None:
            time = f"{self.latency_us:.2f} us measured ({self.regime}, {self.device})"
            if self.interval is not None:
                time += f", p20 to p80 {self.interval[0]:.2f} to {self.interval[1]:.2f}"
            if self.floor_us is not None:
                time += f"; an empty kernel {self.floor_us:.2f}"
            if self.tie:
                time += "; a tie: the spread of another finalist overlaps, the simpler config is preferred"
        else:
            low, high = self.interval or (self.predicted_us, self.predicted_us)
            time = (
                f"{self.predicted_us:.2f} us modelled, {low:.2f} to {high:.2f} "
                f"({self.regime}, model {self.model_version}); not a measurement"
                + (", and outside what the model was fitted on" if self.extrapolated else "")
            )
        config = ", ".join(f"{name}={value}" for name, value in self.config.changes().items()) or "all defaults"
        return [
            ("shape", self.shape),
            ("variant", self.variant),
            ("config", f"{self.config.config_id}: {config}"),
            ("predicted" if "modelled" in time else "measured", time),
            *([("mind", caveat)] if (caveat := self._caveat()) else []),
            ("C", f"{self.bf16_identical:.4%} of bf16 identical to the reference, {self.verified}"),
            (
                "registers",
                resources_in_words(kernel, self.arch),
            ),
            ("also used by", ", ".join(self.origins) or "no known submission"),
        ]

    def __str__(self) -> str:
        return display.text_facts(self.word, self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tone = display.badge(self.evidence, str(self.evidence))
        checked = display.badge(f"verified: {self.verified}", "good" if self.verified != "none" else "bad")
        return display.card(
            self.word.capitalize(), display.facts(self.lines()) + f'<div style="margin-top:6px">{tone} {checked}</div>'
        )
