"""Plans of the variant `hopper`: [quantize], and a GEMM that splits K and adds its partial results in one launch."""

from __future__ import annotations

from typing import Any

from mxfp4lab.config import VARIANT_TRAITS, GemmConfig, effective_split, resolved_a_mode
from mxfp4lab.kernels import hopper
from mxfp4lab.plan.data import Buffer, Plan, Ref
from mxfp4lab.plan.launches import ceil_div, input_buffers, launch
from mxfp4lab.shapes import Shape


def build_hopper(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """One launch where A is quantized in the GEMM, two where it is quantized first."""
    m, n, k = shape.m, shape.n, shape.k
    split = effective_split(config, shape)
    fused = resolved_a_mode(config, shape, VARIANT_TRAITS[variant]) == "fused"
    tiles_n, tiles_m = ceil_div(n, config.block_n), ceil_div(m, config.block_m)
    sizes = {"M": m, "N": n, "K": k}
    buffers = list(input_buffers(shape))
    launches = []
    options: dict[str, Any] = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if not fused:
        buffers.append(Buffer("a_value", (m, k), "bf16", "workspace"))
        block_k = min(config.quant_block_k, max(64, 1 << (k.bit_length() - 1)))
        grid = (ceil_div(m, config.quant_block_m), ceil_div(k, block_k), 1)
        launches.append(
            launch(
                hopper.hopper_quantize,
                grid,
                [("a_ptr", Ref("a")), ("out_ptr", Ref("a_value"))],
                sizes,
                {"BLOCK_M": config.quant_block_m, "BLOCK_K": block_k},
                {"num_warps": config.quant_num_warps},
            )
        )
        # The GEMM may start while the quantize kernel runs; it waits before it reads A.
        options["launch_pdl"] = True
    partial, count = Ref("c"), Ref("c")  # never read where K is not split
    if split > 1:
        tiles = tiles_n * tiles_m
        buffers += [
            Buffer("partial", (tiles, split, config.block_n, config.block_m), "f32", "workspace"),
            Buffer("count", (tiles,), "i32", "workspace", fill=0),
        ]
        partial, count = Ref("partial"), Ref("count")
    buffers.append(Buffer("c", (m, n), "bf16", "output"))
    constants = {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "SPLIT_K": split,
        "NUM_STAGES": config.num_stages,
        "QUANTIZE_A": fused,
    }
    pointers = [
        ("a_ptr", Ref("a" if fused else "a_value")),
        ("b_ptr", Ref("b_q")),
        ("b_scale_ptr", Ref("b_scale_sh")),
        ("c_ptr", Ref("c")),
        ("partial_ptr", partial),
        ("count_ptr", count),
    ]
    launches.append(launch(hopper.hopper_gemm, (tiles_n, split, tiles_m), pointers, sizes, constants, options))
    return Plan(variant, config, shape, arch, tuple(buffers), tuple(launches))


def default_hopper(shape: Shape) -> GemmConfig:
    """Sensible on an H200: about one program per SM; A quantized in the GEMM while it is short."""
    single = shape.k == 512 and shape.m <= 32  # K in one step: nothing to pipeline, and many small programs
    block_m = 16 if single else min(128, max(16, 1 << (shape.m - 1).bit_length()))
    tiles = ceil_div(shape.m, block_m) * ceil_div(shape.n, 64)
    steps = ceil_div(shape.k, 256)
    split = next((s for s in (7, 4, 2) if shape.m <= 32 and steps >= 8 and steps % s == 0 and tiles * s <= 264), 1)
    stages = 1 if single else 4 if block_m == 64 else 3
    return GemmConfig(
        block_m=block_m,
        block_n=64,
        block_k=512 if single else 256,
        split_k=split,
        num_stages=stages,
        convert="sw_bits",
        a_mode="fused" if shape.m <= 32 else "prequant",
        quant_block_m=4,
        quant_block_k=512,
    )
