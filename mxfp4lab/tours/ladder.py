"""What each idea buys: variants and configs one idea apart, counted and predicted.

A step says what is changed; :func:`measure` compiles it for gfx950, executes one workgroup of every launch in the
emulator and asks the time model. Counts are emulated, times modelled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mxfp4lab.config import GemmConfig, config_errors
from mxfp4lab.emulate import count_plan
from mxfp4lab.gfx950 import compile_plan
from mxfp4lab.model import Prediction, predict_counts
from mxfp4lab.plan import VARIANTS, build_plan, default_config
from mxfp4lab.records import Counts, LaunchCounts
from mxfp4lab.shapes import Shape


@dataclass(frozen=True)
class Step:
    """One way to compute C.

    Attributes:
        idea: what is new against the step before, in a few words.
        variant, config: the plan.
    """

    idea: str
    variant: str
    config: GemmConfig


@dataclass(frozen=True)
class Measured:
    """A step with what its machine code does.

    Attributes:
        step: the step.
        counts: one workgroup of every launch, emulated.
        prediction: modelled time in the harness regime.
        buffers_bytes: bytes of workspaces that the plan needs.
        seconds_compile: to compile every launch.
    """

    step: Step
    counts: Counts
    prediction: Prediction
    buffers_bytes: int

    @property
    def main(self) -> LaunchCounts:
        """The launch with the matrix instructions."""
        return max(self.counts.launches, key=lambda launch: launch.mfma_per_wave)

    @property
    def valu_per_mfma(self) -> float:
        """VALU instructions of a wave for each of its MFMA of 16x16x128 (a 32x32x64 does the work of two)."""
        main = self.main
        return main.valu_per_wave / max(main.mfma16_per_wave + 2 * main.mfma32_per_wave, 1)

    @property
    def total_valu(self) -> float:
        """VALU instructions of all waves of all launches."""
        return sum(c.valu_per_wave * c.waves_per_workgroup * c.workgroups for c in self.counts.launches)

    def mix(self) -> dict[str, float]:
        """Dynamic instructions of one wave of the main launch, by class."""
        main = self.main
        return {
            "MFMA": main.mfma_per_wave,
            "convert": main.convert_per_wave,
            "other VALU": main.valu_per_wave - main.convert_per_wave,
            "memory": main.vmem_per_wave + main.scratch_per_wave,
            "LDS": main.lds_per_wave,
            "scalar": main.scalar_per_wave,
        }

    def row(self) -> list[Any]:
        """Cells for a table with ``HEADERS``."""
        main, (low, high) = self.main, self.prediction.interval
        return [
            self.step.idea,
            self.step.variant,
            len(self.counts.launches),
            f"{main.workgroups} x {main.waves_per_workgroup}",
            f"{main.valu_per_wave:.0f}",
            f"{main.mfma_per_wave:.0f}",
            f"{self.valu_per_mfma:.1f}",
            f"{self.total_valu / 1e6:.2f}",
            main.vgprs + main.agprs,
            main.spilled_vgprs,
            f"{main.lds_bytes / 1024:.0f}",
            f"{self.prediction.predicted_us:.2f}",
            f"{low:.1f} - {high:.1f}",
        ]


HEADERS = (
    "idea",
    "variant",
    "launches",
    "workgroups x waves",
    "VALU / wave",
    "MFMA / wave",
    "VALU / MFMA",
    "VALU in all, 1e6",
    "registers",
    "spilled",
    "LDS KiB",
    "modelled us",
    "its interval",
)


def measure(step: Step, shape: Shape, knobs: Mapping[str, str | None] | None = None) -> Measured:
    """Compile, count and predict a step.

    Args:
        knobs: environment knobs for this compilation alone.

    Raises:
        ValueError: the config is invalid on this shape, or does not compile.
    """
    plan = build_plan(step.variant, step.config, shape)
    counts = count_plan(compile_plan(plan, knobs=knobs) if knobs else plan)
    workspace = sum(buffer.nbytes for buffer in plan.buffers if buffer.role == "workspace")
    return Measured(step, counts, predict_counts(counts), workspace)


def ladder(shape: Shape) -> list[Step]:
    """From aiter's own path over a fused kernel to the best plan here, one idea a step; the first two need aiter."""
    block_m = 4 if shape.m <= 4 else 8 if shape.m <= 8 else 16
    split = 7 if shape.k >= 4096 else 1
    base = GemmConfig(
        block_m=block_m, block_n=128 if shape.n >= 4096 else 64, block_k=256, split_k=split, convert="sw_aiter"
    )
    best = dataclasses.replace(default_config("sliced_preshuffled", shape), amax="packed_max")
    # The tile of the steps before, as far as whole MFMA tiles of rows allow, and waves that divide K among them.
    plain = dataclasses.replace(
        best, amax="max3", load_order="convert_first", tiles_n=1, block_m=16, block_n=base.block_n, a_path="direct"
    )
    first = dataclasses.replace(plain, load_order="loads_first")
    packed = dataclasses.replace(first, amax="packed_max")
    hw = dataclasses.replace(base, convert="hw_bf16")
    steps = [
        Step("aiter: quantize, shuffle, prebuilt GEMM", "reference", default_config("reference", shape)),
        Step("quantize and shuffle in one kernel", "quant_shuffle_asm", default_config("quant_shuffle_asm", shape)),
        Step("quantize inside the GEMM, arithmetic as published", "fused_rowmajor", base),
        Step("scale and element from exponent bits", "fused_rowmajor", dataclasses.replace(base, convert="sw_bits")),
        Step("convert by instruction, f32 source", "fused_rowmajor", dataclasses.replace(base, convert="hw_f32")),
        Step("convert by instruction, packed bf16 source", "fused_rowmajor", hw),
        Step("B in the tile shuffle, un-permuted in registers", "fused_preshuffled", hw),
        Step("sizes are compile-time constants", "constexpr_preshuffled", hw),
        Step("waves divide K, everything in MFMA layout", "sliced_preshuffled", plain),
        Step("all loads before the first conversion", "sliced_preshuffled", first),
        Step("largest magnitude by packed f16 maxima", "sliced_preshuffled", packed),
        Step("A read row by row, through LDS", "sliced_preshuffled", dataclasses.replace(packed, a_path="staged")),
    ]
    if best != steps[-1].config:
        steps.append(Step("a tile that fills the CUs", "sliced_preshuffled", best))
    together = dataclasses.replace(default_config("cooperative_preshuffled", shape), amax="packed_max")
    steps.append(Step("A quantized once on every XCD", "cooperative_preshuffled", together))
    return [step for step in steps if not config_errors(step.config, shape, "gfx950", step.variant)]


def climb(steps: list[Step], shape: Shape) -> tuple[list[Measured], list[str]]:
    """Measure steps in order; those that need an aiter that is not installed are left out, with the reason."""
    rungs, missing = [], []
    for step in steps:
        try:
            rungs.append(measure(step, shape))
        except ValueError as error:
            if not VARIANTS[step.variant].needs_aiter:
                raise
            missing.append(f"{step.variant}: {str(error).splitlines()[0]}")
    return rungs, missing


def columns(rungs: list[Measured]) -> tuple[list[str], list[float], list[tuple[float, float]], list[float]]:
    """Ideas, modelled microseconds, their intervals, VALU per MFMA: what `plots.variants.ladder_bars` draws."""
    ideas = [rung.step.idea for rung in rungs]
    times = [rung.prediction.predicted_us for rung in rungs]
    return ideas, times, [rung.prediction.interval for rung in rungs], [rung.valu_per_mfma for rung in rungs]


def climbed(rungs: list[Measured]) -> str:
    """From the step with most VALU instructions per MFMA to the last, in words."""
    first, last = max(rungs, key=lambda rung: rung.valu_per_mfma), rungs[-1]
    return (
        f"from {first.valu_per_mfma:.0f} to {last.valu_per_mfma:.1f} VALU per MFMA (emulated), "
        f"from {first.prediction.predicted_us:.2f} to {last.prediction.predicted_us:.2f} us (modelled)"
    )


def small_ideas(shape: Shape) -> list[tuple[str, Step, Step]]:
    """Pairs that differ in one axis of the fused kernel: (axis, without, with)."""
    base = GemmConfig(block_m=16, block_n=64, convert="hw_bf16", split_k=7 if shape.k >= 4096 else 1)
    changes: list[tuple[str, dict[str, Any]]] = [
        ("MFMA 16x16x128 | 32x32x64", {"matrix_instr_nonkdim": 32, "block_m": 32}),
        ("no XCD order | 8 XCDs", {"xcd_remap": 8}),
        ("column tiles first | four row tiles together", {"group_m": 4}),
        ("registers free | 4 waves per SIMD", {"waves_per_eu": 4}),
        ("two stages | three", {"num_stages": 3}),
    ]
    pairs = []
    for axis, change in changes:
        config = dataclasses.replace(base, **change)
        if not config_errors(config, shape, "gfx950", "fused_preshuffled"):
            pairs.append((axis, Step("plain", "fused_preshuffled", base), Step(axis, "fused_preshuffled", config)))
    return pairs
