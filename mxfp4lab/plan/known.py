"""The configs that the known public submissions ran with, as configs of ours.

Facts from their sources, stored in data/submission_configs.json; the mapping of names to variants stands here.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mxfp4lab.config import GemmConfig, config_errors
from mxfp4lab.paths import data_path
from mxfp4lab.plan.launches import ceil_div
from mxfp4lab.shapes import Shape, parse_shape


@dataclass(frozen=True)
class KnownConfig:
    """A submission's config on a shape.

    Attributes:
        variant: the variant of ours that does what the submission does.
        config: its config, unstated fields at our defaults.
        label: which submission.
    """

    variant: str
    config: GemmConfig
    label: str


@functools.cache
def _source() -> dict[str, Any]:
    return json.loads(data_path("submission_configs.json").read_text())


def known_configs(shape: Shape | str) -> list[KnownConfig]:
    """Every known submission's configs for a shape, invalid ones (for this shape or our kernels) left out.

    Raises:
        ValueError: bad shape.
    """
    shape = parse_shape(shape)
    found: list[KnownConfig] = []
    for title, table in _source().items():
        label = title.split(" ")[0]
        found += [KnownConfig(variant, config, label) for variant, config in _configs(label, table, shape)]
    return [known for known in found if not config_errors(known.config, shape, "gfx950", known.variant)]


def _configs(label: str, table: dict[str, Any], shape: Shape) -> Iterator[tuple[str, GemmConfig]]:
    """(variant, config) of one submission."""
    if label.startswith("752099"):  # one config a shape, else its default
        fields = table.get(f"{shape.m},{shape.n},{shape.k}", table["default"]) | {"cache_modifier": ".cg"}
        if "fused" in label:
            yield "fused_preshuffled", GemmConfig(**fields, convert="hw_bf16")
        else:
            yield "prequant_preshuffled", GemmConfig(**fields, convert="hw_bf16", group_m=4)
    elif label.startswith("610679") and shape.k > 4096:
        yield "constexpr_preshuffled", GemmConfig(**table["K>4096"], convert="hw_f32", cache_modifier=".cg")
    elif label.startswith("705642_v10d"):
        yield from _row_major_space(table, shape)
    elif label.startswith("705642_v3"):
        rows = min(1 << (shape.m - 1).bit_length(), 32)
        yield "quant_shuffle_asm", GemmConfig(quant_block_m=rows, convert="sw_aiter")


def _row_major_space(space: dict[str, Any], shape: Shape) -> Iterator[tuple[str, GemmConfig]]:
    """705642 v10d: the whole space that it times on the box, by its own rules."""
    modes = ["fused"] if shape.m <= 32 else ["fused", "prequant"] if shape.m < 128 else ["prequant"]
    tiles = itertools.product(modes, space["block_n"], space["block_k"], space["num_warps"])
    for mode, block_n, block_k, num_warps in tiles:
        for block_m in [16] if mode == "fused" else [rows for rows in (32, 64, 128) if rows <= shape.m]:
            programs = ceil_div(shape.m, block_m) * ceil_div(shape.n, block_n)
            most = min(shape.k // block_k, 2 * max(1, 256 // programs)) if programs < 200 else 1
            splits = [1, *(split for split in (2, 4, 8) if split <= most)]
            for split_k, nonkdim in itertools.product(splits, [16] if block_m == 16 else [16, 32]):
                yield f"{mode}_rowmajor", GemmConfig(
                    block_m=block_m, block_n=block_n, block_k=block_k, split_k=split_k, num_warps=num_warps,
                    matrix_instr_nonkdim=nonkdim, convert="sw_aiter",
                    quant_block_k=min(256, 1 << (shape.k.bit_length() - 1)), reduce_block_m=1, reduce_block_n=256,
                )  # fmt: skip
