"""Plans and inputs on which faults show: every kind of tail, split, layout and convert, on small shapes.

Inputs are as the task makes them, with NaN (255) where B's scales are padded: nobody may multiply it. ``extremes`` are
blocks at the ends of bf16's range and on every rounding point.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from mxfp4lab.config import GemmConfig
from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.layouts import e8m0_shuffle, shuffle_weight
from mxfp4lab.plan import Plan, build_plan
from mxfp4lab.shapes import Shape
from mxfp4lab.task import INPUT_NAMES, generate_input, reference_gemm

SEED = 11
TIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


@dataclass(frozen=True)
class Case:
    """A variant, a shape and a config.

    Attributes:
        inputs: "task", "extremes", or "padding_127": B's scales padded with 1.0.
        calls: calls in a row on the same workspaces.
        modes: more of the emulator.
        earlier: workspaces hold what an earlier call with another A has left: by name what they are filled with.
    """

    variant: str
    shape: Shape
    config: dict = field(default_factory=dict)
    inputs: str = "task"
    calls: int = 1
    modes: dict = field(default_factory=dict)
    earlier: dict = field(default_factory=dict)

    def plan(self) -> Plan:
        """The plan, without a fault."""
        plan = build_plan(self.variant, GemmConfig(**self.config), self.shape)
        return replace(plan, buffers=tuple(replace(b, fill=self.earlier.get(b.name, b.fill)) for b in plan.buffers))


def _tails(**config) -> dict:
    return {"block_m": 16, "block_n": 64, "block_k": 256, "convert": "hw_bf16", **config}


def _together(**config) -> dict:
    return {"block_m": 16, "block_n": 16, "block_k": 256, "convert": "hw_bf16", "quant_block_k": 128, **config}


# M, N and K have a rest; K / 32 = 10 scale columns are stored as 16.
TAILS = Shape(20, 96, 320)
# 11 tiles of 128: a split by 4 takes 3, 3, 3 and 2 of them, a split by 7 takes two in each of six.
SPLIT = Shape(20, 96, 1408)
EXTREMES = Shape(64, 32, 512)
TOGETHER = Shape(20, 288, 1024)  # two row tiles, 18 column tiles, 8 parts of A each

CASES: dict[str, Case] = {
    "tails_rowmajor": Case("fused_rowmajor", TAILS, _tails()),
    "tails_software": Case("fused_rowmajor", TAILS, _tails(convert="sw_bits")),
    "tails_f32": Case("fused_rowmajor", TAILS, _tails(convert="hw_f32")),
    "tails_aiter": Case("fused_rowmajor", TAILS, _tails(convert="sw_aiter")),
    "tails_preshuffled": Case("fused_preshuffled", TAILS, _tails()),
    "tails_prequant": Case("prequant_rowmajor", TAILS, _tails()),
    "split": Case("fused_rowmajor", SPLIT, _tails(block_k=128, split_k=4, reduce_block_m=8)),
    "whole": Case("fused_rowmajor", Shape(32, 64, 512), _tails()),
    "m_tail": Case("fused_rowmajor", Shape(20, 64, 256), _tails()),
    "padding_127": Case("fused_preshuffled", TAILS, _tails(), "padding_127"),
    "groups": Case("fused_rowmajor", Shape(80, 96, 256), _tails(group_m=2, xcd_remap=8)),
    "extremes_software": Case("prequant_rowmajor", EXTREMES, _tails(convert="sw_bits"), "extremes"),
    "extremes_f32": Case("prequant_rowmajor", EXTREMES, _tails(convert="hw_f32"), "extremes"),
    "extremes_bf16": Case("prequant_rowmajor", EXTREMES, _tails(convert="hw_bf16"), "extremes"),
    "extremes_aiter": Case("prequant_rowmajor", EXTREMES, _tails(convert="sw_aiter"), "extremes"),
    "sliced": Case("sliced_preshuffled", TAILS, _tails(block_n=32, num_warps=2, block_k=128)),
    "sliced_words": Case("sliced_preshuffled", Shape(20, 96, 1024), _tails(block_n=64, num_warps=4, block_k=128)),
    "sliced_inside": Case("sliced_preshuffled", Shape(16, 64, 1024),
                          _tails(block_n=32, num_warps=2, block_k=128, split_k=4, split_sum="inside"), calls=2),
    "async": Case("fused_preshuffled", Shape(20, 64, 1024),
                  {"block_m": 16, "block_n": 64, "block_k": 256, "convert": "hw_bf16", "num_stages": 2}),
    "async_deep": Case("constexpr_preshuffled", Shape(20, 64, 1024),
                       {"block_m": 16, "block_n": 64, "block_k": 256, "convert": "hw_bf16", "num_stages": 3}),
    "sliced_tiles": Case("sliced_preshuffled", Shape(20, 96, 1024),
                         _tails(block_n=32, num_warps=4, block_k=128, tiles_n=2)),
    "sliced_staged": Case("sliced_preshuffled", Shape(20, 96, 1024),
                          _tails(block_n=32, num_warps=2, block_k=128, a_path="staged")),
    "sliced_inside_tall": Case("sliced_preshuffled", Shape(40, 64, 1024),
                               _tails(block_n=32, num_warps=2, block_k=128, split_k=4, split_sum="inside"), calls=2),
    "sliced_one_wave": Case("sliced_preshuffled", Shape(20, 96, 1024), _tails(block_n=32, num_warps=1, block_k=128)),
    "sliced_extremes": Case("sliced_preshuffled", EXTREMES, _tails(block_n=32, num_warps=2, block_k=128),
                            "extremes"),
    "sliced_extremes_packed": Case("sliced_preshuffled", EXTREMES,
                                   _tails(block_n=32, num_warps=2, block_k=128, amax="packed_max"), "extremes"),
    "cooperative": Case("cooperative_preshuffled", TOGETHER, _together(), calls=2),
    "cooperative_wide": Case("cooperative_preshuffled", TOGETHER, _together(quant_block_k=512)),
    "cooperative_later": Case("cooperative_preshuffled", TOGETHER, _together(),
                              earlier={"flags": 1, "begun": 256, "a_q": 0}),
    "cooperative_moved": Case("cooperative_preshuffled", TOGETHER, _together(),
                              modes={"xcd": lambda workgroups: workgroups // 32}),
}  # fmt: skip


@functools.cache
def inputs_of(shape: Shape, kind: str) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The five inputs by name, and the C that they give."""
    data = dict(zip(INPUT_NAMES, generate_input(shape, SEED), strict=True))
    if kind == "extremes":
        data |= _extremes(shape)
    columns = shape.k // 32
    valid = e8m0_shuffle(torch.ones(shape.n, columns, dtype=torch.uint8)).reshape(data["b_scale_sh"].shape).bool()
    reference = reference_gemm(data["a"], data["b_q"], data["b_scale_sh"])
    padding = torch.full_like(data["b_scale_sh"], 127 if kind == "padding_127" else 255)
    data["b_scale_sh"] = torch.where(valid, data["b_scale_sh"], padding)
    return data, reference


def _extremes(shape: Shape) -> dict[str, torch.Tensor]:
    """A with one block per row that is not zero, B with scales that bring each back into range: every sum is exact.

    Large blocks stand in even columns of blocks, where B is small; small ones in odd columns, where B is large.
    """
    rng = np.random.default_rng(SEED)
    blocks = shape.k // 32
    a = np.zeros((shape.m, blocks, 32), np.uint16)
    magnitudes = [0x7F7F, 0x7F60, 0x7F5F, 0x7C80, 0x7C7F, 0x5F00, 0x4FE0, 0x4FDF,
                  0x0001, 0x0020, 0x007F, 0x0080, 0x00E0, 0x0100, 0x0160, 0x0BDF]  # fmt: skip
    for row in range(shape.m):
        magnitude = magnitudes[row % len(magnitudes)]
        small = row % len(magnitudes) >= 8
        block = np.maximum(magnitude - rng.integers(0, 0x280, 32), 0)
        if row >= 32:  # ties: multiples of the scale
            ties = torch.tensor(TIES * 4 + (6.0,) * 4) * 2.0 ** (-100 if small else 30)
            block = ties.to(torch.bfloat16).view(torch.int16).numpy().astype(np.uint16)
        signs = rng.integers(0, 2, 32)
        if row < 32:
            block[row // 2 % 32], signs[row // 2 % 32] = magnitude, row // 16 % 2
        a[row, row // 2 % blocks // 2 * 2 + small] = block.astype(np.uint16) | (signs.astype(np.uint16) << 15)
    b_q, _ = quantize_mxfp4(torch.randn(shape.n, shape.k, generator=torch.Generator().manual_seed(SEED)))
    b_scale = np.empty((shape.n, blocks), np.uint8)
    b_scale[:, 0::2] = rng.integers(60, 70, (shape.n, (blocks + 1) // 2))
    b_scale[:, 1::2] = rng.integers(185, 195, (shape.n, blocks // 2))
    return {
        "a": torch.from_numpy(a.reshape(shape.m, shape.k).view(np.int16)).view(torch.bfloat16),
        "b_q": b_q,
        "b_shuffle": shuffle_weight(b_q),
        "b_scale_sh": e8m0_shuffle(torch.from_numpy(b_scale)),
    }
