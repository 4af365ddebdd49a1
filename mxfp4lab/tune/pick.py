"""The config that a search recommends: a pick where its time is modelled, a winner where it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mxfp4lab.config import VARIANTS, GemmConfig
from mxfp4lab.display import Html, Shown, badge, spills_in_words
from mxfp4lab.records import PICK_SCHEMA, Evidence
from mxfp4lab.shapes import Shape
from mxfp4lab.tune.instruments import main_kernel


class NoPickError(ValueError):
    """A search that ends with nothing to recommend."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence alone."""
        return [f"NoPickError: {self}"]


@dataclass(frozen=True, repr=False)
class Pick(Shown):
    """The config that a search recommends for a shape, with the evidence for it.

    Without a GPU this is a pick: its time is modelled, its results were checked by executing the machine code. With
    one it is a winner: measured, and compared with the other finalists (``tie`` says that it could not be told apart).

    Attributes:
        interval: of the prediction, or p20 and p80 of the measured time.
        floor_us: an empty kernel in the run that measured it.
        alternatives: the best (variant, config, interval or None) of other kinds, best first.
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
    alternatives: tuple[tuple[str, GemmConfig, tuple[float, float] | None], ...] = ()

    @property
    def word(self) -> str:
        """``winner`` for a measured result, ``pick`` for a modelled one."""
        return "winner" if self.evidence is Evidence.measured else "pick"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: everything that an export needs, with the evidence beside it."""
        kept = {name: value for name, value in vars(self).items() if name not in ("facts", "origins")}
        return {
            "schema": PICK_SCHEMA,
            "kind": self.word,
            **kept,
            "shape": {"m": self.shape.m, "n": self.shape.n, "k": self.shape.k},
            "config": self.config.to_dict(),
            "config_id": self.config.config_id,
            "evidence": str(self.evidence),
            "interval": list(self.interval) if self.interval else None,
            "toolchain": dict(self.toolchain),
            "knobs": dict(self.knobs),
            "alternatives": [
                {"variant": variant, "config": config.to_dict(), "config_id": config.config_id, "interval": interval}
                for variant, config, interval in self.alternatives
            ],
        }

    def _caveat(self) -> str:
        """What a modelled time of the variant leaves open."""
        return VARIANTS[self.variant].caveat if self.latency_us is None else ""

    def _time(self) -> str:
        low, high = self.interval or (None, None)
        if self.latency_us is None:
            within = f", {low:.2f} to {high:.2f}" if low is not None else ""
            outside = ", and outside what the model was fitted on" if self.extrapolated else ""
            return (f"{self.predicted_us:.2f} us modelled{within} ({self.regime}, model {self.model_version}); "
                    f"not a measurement{outside}")  # fmt: skip
        time = f"{self.latency_us:.2f} us measured ({self.regime}, {self.device})"
        time += f", p20 to p80 {low:.2f} to {high:.2f}" if low is not None else ""
        time += f"; an empty kernel {self.floor_us:.2f}" if self.floor_us is not None else ""
        return time + ("; a tie: the spread of another finalist overlaps, the simpler config is preferred" * self.tie)

    @property
    def title(self) -> str:
        return self.word.capitalize()

    def lines(self) -> list[tuple[str, Any]]:
        """(name, value) for people."""
        config = ", ".join(f"{name}={value}" for name, value in self.config.changes().items()) or "all defaults"
        said = [
            ("evidence", Html(f"{badge(self.evidence, str(self.evidence))} "
                              f"{badge(f'verified: {self.verified}', 'good' if self.verified != 'none' else 'bad')}")),
            ("shape", self.shape),
            ("variant", self.variant),
            ("config", f"{self.config.config_id}: {config}"),
            ("predicted" if self.latency_us is None else "measured", self._time()),
            ("mind", self._caveat()),
            ("C", f"{self.bf16_identical:.4%} of bf16 identical to the reference, {self.verified}"),
            ("registers", resources_in_words(main_kernel(self.facts), self.arch)),
            ("also used by", ", ".join(self.origins) or "no known submission"),
        ]  # fmt: skip
        return [(name, value) for name, value in said if value]


def resources_in_words(kernel: Mapping[str, Any], arch: str) -> str:
    """What a kernel occupies, in the words of its target."""
    registers, lds, waves = "VGPRs", "LDS", "waves a SIMD"
    if arch != "gfx950":
        registers, lds, waves = "registers a thread", "shared memory", "warps a scheduler"
    return (
        f"{kernel.get('vgprs', '?')} {registers}, {spills_in_words(kernel.get('spilled_vgprs', 0))[0]}, "
        f"{kernel.get('lds_bytes', 0)} B of {lds}, {kernel.get('occupancy_waves_per_simd', '?')} {waves}"
    )
