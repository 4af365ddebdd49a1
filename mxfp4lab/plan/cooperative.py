"""The plan whose workgroups quantize A together, and the tile it takes by default."""

from __future__ import annotations

from dataclasses import replace

from mxfp4lab.config import GemmConfig
from mxfp4lab.kernels import cooperative
from mxfp4lab.plan.data import Buffer, Plan, Ref
from mxfp4lab.plan.launches import ceil_div, input_buffers, launch, padded_scale_shape
from mxfp4lab.shapes import Shape

XCDS, PER_XCD = cooperative.XCDS.value, cooperative.PER_XCD.value
COOPERATIVE_TILES = ((16, 1), (32, 1), (16, 3), (64, 1), (32, 3), (16, 7), (128, 1), (64, 3))
"""(columns, tiles beside each other) worth looking at: 16 to 192 columns a workgroup."""


def build_cooperative(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """One launch of 256 workgroups; A's packed copies and flags are workspaces."""
    rows, columns = padded_scale_shape(shape.m, shape.k)
    buffers = (
        *input_buffers(shape),
        Buffer("a_q", (XCDS, rows, shape.k // 2), "u8", "workspace"),
        # Dwords of scales hold two row halves; where M ends in the first, the second is read and not used.
        Buffer("a_scale", (XCDS, rows, columns), "u8", "workspace", fill=0),
        Buffer("flags", (XCDS, XCDS, PER_XCD), "i32", "workspace", fill=0),
        Buffer("begun", (1,), "i32", "workspace", fill=0),
        Buffer("c", (shape.m, shape.n), "bf16", "output"),
    )
    pointers = [
        ("a_ptr", Ref("a")),
        ("b_ptr", Ref("b_shuffle")),
        ("b_scale_ptr", Ref("b_scale_sh")),
        ("out_ptr", Ref("c")),
        ("a_q_ptr", Ref("a_q")),
        ("a_scale_ptr", Ref("a_scale")),
        ("flags_ptr", Ref("flags")),
        ("begun_ptr", Ref("begun")),
    ]
    constants = {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "TILES": config.tiles_n,
        "STEP_K": config.block_k,
        "PART_K": config.quant_block_k,
        "WAVES": config.num_warps,
        "AMAX": config.amax,
        "CACHE": config.cache_modifier,
    }
    options = {"num_warps": config.num_warps, "waves_per_eu": config.waves_per_eu}
    sizes = {"M": shape.m, "N": shape.n, "K": shape.k}
    made = launch(cooperative.gemm_cooperative, (XCDS * PER_XCD, 1, 1), pointers, sizes, constants, options)
    return Plan(variant, config, shape, arch, buffers, (replace(made, peer_stride=XCDS),))


def smallest_part(shape: Shape, block_m: int) -> int:
    """Columns of the smallest parts of A that an XCD's workgroups can share out, one each; 0 where none can be."""
    return next((k for k in (128, 256, 512) if shape.k % k == 0 and block_m // 16 * (shape.k // k) <= PER_XCD), 0)


def default_cooperative(shape: Shape) -> GemmConfig:
    """The tile that asks a workgroup for the fewest bytes, its part of A included.

    Where no tile serves the shape (`config_errors` says why), the smallest is returned.
    """
    choices = []
    for block_m in (16, 32, 64):
        tiles_m = ceil_div(shape.m, block_m)
        part_k = smallest_part(shape, block_m)
        if tiles_m > XCDS or not part_k or (block_m > 16 and block_m >= 2 * shape.m):
            continue
        for block_n, tiles_n in COOPERATIVE_TILES:
            columns = block_n * tiles_n
            an_xcd = ceil_div(ceil_div(shape.n, columns), XCDS // tiles_m)
            if an_xcd <= PER_XCD and block_m * columns <= 4096:
                read = 17 / 32 * (block_m + columns) * shape.k + 2 * 16 * part_k
                choices.append((read, block_m, block_n, tiles_n, part_k))
    _, block_m, block_n, tiles_n, part_k = min(choices, default=(0, 16, 16, 1, 256))
    # A wave has work of its own in every round, and what it holds of A and B fits its registers.
    waves, block_k = 4, 128
    for waves, block_k in ((4, 256), (4, 128), (8, 256), (8, 128), (16, 128)):
        rounds = ceil_div(shape.k, waves * block_k)
        held = rounds * block_k // 128 * (block_m + block_n * tiles_n) // 4 + block_m * block_n * tiles_n // 64
        if rounds * waves * block_k == shape.k and held <= 160:
            break
    return GemmConfig(
        block_m=block_m,
        block_n=block_n,
        tiles_n=tiles_n,
        block_k=block_k,
        num_warps=waves,
        quant_block_k=part_k,
        convert="hw_bf16",
        cache_modifier=".cg",
    )
