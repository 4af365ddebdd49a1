"""The launches that plans are made of, and the builders of every variant whose kernels are all ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mxfp4lab.config import VARIANTS, GemmConfig, effective_split, resolved_a_mode
from mxfp4lab.kernels import convert, cooperative, gemm, hopper, quantize, reduce, sliced, tiles, waves
from mxfp4lab.plan.data import Buffer, Plan, Ref, TritonLaunch
from mxfp4lab.shapes import Shape

XCDS, PER_XCD = cooperative.XCDS.value, cooperative.PER_XCD.value


def ceil_div(x: int, y: int) -> int:
    """x / y rounded up."""
    return -(-x // y)


def padded_scale_shape(rows: int, k: int) -> tuple[int, int]:
    """Shape of shuffled scales: rows padded to 256, columns (K / 32) to 8."""
    return ceil_div(rows, 256) * 256, ceil_div(k // 32, 8) * 8


def input_buffers(shape: Shape) -> tuple[Buffer, ...]:
    """The task's five inputs."""
    m, n, k = shape.m, shape.n, shape.k
    return (
        Buffer("a", (m, k), "bf16", "input"),
        Buffer("b", (n, k), "bf16", "input"),
        Buffer("b_q", (n, k // 2), "u8", "input"),
        Buffer("b_shuffle", (n, k // 2), "u8", "input"),
        Buffer("b_scale_sh", padded_scale_shape(n, k), "u8", "input"),
    )


def launch(
    fn: Any, grid: tuple[int, ...], given: Mapping[str, Any], options: Mapping[str, int], folded: bool = False
) -> TritonLaunch:
    """A launch of a kernel of ours.

    Args:
        grid: programs along x, or along x, y, z.
        given: every parameter by its name: a buffer's name for a pointer, a number, or None for what does not exist.
        folded: numbers are compile-time constants also where the kernel would take them at run time.
    """
    if not hasattr(fn, "params"):
        raise ValueError("TRITON_INTERPRET=1: kernels are interpreted and cannot be compiled; unset it")
    args, constants = [], []
    for parameter in fn.params:
        value = given[parameter.name]
        if not parameter.is_constexpr and isinstance(value, str):
            args.append((parameter.name, Ref(value)))
        elif parameter.is_constexpr or folded or value is None:
            constants.append((parameter.name, value))
        else:
            args.append((parameter.name, value))
    x, y, z = (*grid, 1, 1)[:3]
    return TritonLaunch(fn.__name__, fn, (x, y, z), tuple(args), tuple(constants), tuple(sorted(options.items())))


def quantizer(config: GemmConfig) -> dict[str, Any]:
    """What a kernel that quantizes is given: the function, and how many bf16 it takes as one word."""
    return {"QUANTIZE": convert.QUANTIZERS[config.convert], "A_PACK": 2 if config.convert == "hw_bf16" else 1}


def build_gemm(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """Plan of the portable variants: [quantize], GEMM, [reduce]."""
    traits = VARIANTS[variant]
    m, n, k = shape.m, shape.n, shape.k
    split = effective_split(config, shape)
    shuffled = traits.b_layout == "preshuffled"
    buffers, launches = [*input_buffers(shape)], []
    a, a_scale = "a", None
    if traits.a_mode == "prequant":
        a, a_scale = "a_q", "a_scale"
        buffers += [Buffer(a, (m, k // 2), "u8", "workspace"), Buffer(a_scale, (m, k // 32), "u8", "workspace")]
        launches.append(quantize_launch(config, shape))
    if split > 1:
        buffers.append(Buffer("partial", (split, m, n), "f32", "workspace"))
    given = {
        "a_ptr": a, "b_ptr": "b_shuffle" if shuffled else "b_q", "b_scale_ptr": "b_scale_sh",
        "out_ptr": "partial" if split > 1 else "c", "M": m, "N": n, "K": k, "a_scale_ptr": a_scale,
        "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": config.block_k, "SPLIT_K": split,
        "GROUP_M": config.group_m,
        "XCDS": config.xcd_remap, "LOAD_B": tiles.load_b_preshuffled if shuffled else tiles.load_b_rowmajor,
        **(quantizer(config) if a_scale is None else {"QUANTIZE": None, "A_PACK": 2}),
        "MASK_M": m % config.block_m != 0, "MASK_N": n % config.block_n != 0, "MASK_K": k % config.block_k != 0,
        "CACHE": config.cache_modifier, "NUM_STAGES": config.num_stages,
    }  # fmt: skip
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if arch == "gfx950":
        options |= {"waves_per_eu": config.waves_per_eu, "matrix_instr_nonkdim": config.matrix_instr_nonkdim}
    programs = ceil_div(m, config.block_m) * ceil_div(n, config.block_n) * split
    launches.append(launch(gemm.gemm_tiles, (programs,), given, options, folded=traits.constexpr))
    if split > 1:
        launches.append(reduce_launch(config, shape, split))
    buffers.append(Buffer("c", (m, n), "bf16", "output"))
    return Plan(variant, config, shape, arch, tuple(buffers), tuple(launches))


def build_sliced(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """Plan of a GEMM whose waves divide K among them: GEMM, [reduce]."""
    m, n = shape.m, shape.n
    split = effective_split(config, shape, config.num_warps)
    inside = split > 1 and config.split_sum == "inside"
    tiles = ceil_div(m, config.block_m) * ceil_div(n, config.columns)
    given = _wave_constants(config, shape) | {
        "out_ptr": "c" if split == 1 or inside else "partial", "partial_ptr": "partial" if inside else None,
        "arrived_ptr": "arrived" if inside else None, "SPLIT_K": split, "XCDS": config.xcd_remap,
        "STAGED": config.a_path == "staged", "MOVABLE": config.load_order == "convert_first",
    }  # fmt: skip
    buffers = [*input_buffers(shape)]
    if split > 1:
        sizes = (tiles, split, config.block_m * config.columns) if inside else (split, m, n)
        buffers.append(Buffer("partial", sizes, "f32", "workspace"))
    if inside:
        buffers.append(Buffer("arrived", (tiles,), "i32", "workspace", fill=0))
    buffers.append(Buffer("c", (m, n), "bf16", "output"))
    options = {"num_warps": config.num_warps, "waves_per_eu": config.waves_per_eu}
    launches = [launch(sliced.gemm_sliced, (tiles * split,), given, options)]
    if split > 1 and not inside:
        launches.append(reduce_launch(config, shape, split))
    return Plan(variant, config, shape, arch, tuple(buffers), tuple(launches))


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
    given = _wave_constants(config, shape) | {
        "out_ptr": "c", "a_q_ptr": "a_q", "a_scale_ptr": "a_scale", "flags_ptr": "flags", "begun_ptr": "begun",
        "PART_K": config.quant_block_k,
    }  # fmt: skip
    options = {"num_warps": config.num_warps, "waves_per_eu": config.waves_per_eu}
    made = launch(cooperative.gemm_cooperative, (XCDS * PER_XCD,), given, options)
    return Plan(variant, config, shape, arch, buffers, (replace(made, peer_stride=XCDS),))


def _wave_constants(config: GemmConfig, shape: Shape) -> dict[str, Any]:
    """What the two kernels whose waves divide K have in common."""
    return {
        "a_ptr": "a", "b_ptr": "b_shuffle", "b_scale_ptr": "b_scale_sh", "M": shape.m, "N": shape.n, "K": shape.k,
        "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "TILES": config.tiles_n, "STEP_K": config.block_k,
        "WAVES": config.num_warps, "AMAX": waves.BLOCK_CONVERTS[config.amax], "CACHE": config.cache_modifier,
    }  # fmt: skip


def build_hopper(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """One launch where A is quantized in the GEMM, two where it is quantized first; a split is added within it."""
    m, n, k = shape.m, shape.n, shape.k
    split = effective_split(config, shape)
    fused = resolved_a_mode(config, shape, VARIANTS[variant]) == "fused"
    tiles_n, tiles_m = ceil_div(n, config.block_n), ceil_div(m, config.block_m)
    buffers, launches = [*input_buffers(shape)], []
    options: dict[str, int] = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if not fused:
        buffers.append(Buffer("a_value", (m, k), "bf16", "workspace"))
        block_k = min(config.quant_block_k, max(64, 1 << (k.bit_length() - 1)))
        grid = (ceil_div(m, config.quant_block_m), ceil_div(k, block_k))
        given = {
            "a_ptr": "a",
            "out_ptr": "a_value",
            "M": m,
            "K": k,
            "BLOCK_M": config.quant_block_m,
            "BLOCK_K": block_k,
        }
        launches.append(launch(hopper.hopper_quantize, grid, given, {"num_warps": config.quant_num_warps}))
        # The GEMM may start while the quantize kernel runs; it waits before it reads A.
        options["launch_pdl"] = True
    if split > 1:
        sizes = (tiles_n * tiles_m, split, config.block_n, config.block_m)
        buffers.append(Buffer("partial", sizes, "f32", "workspace"))
        buffers.append(Buffer("count", (tiles_n * tiles_m,), "i32", "workspace", fill=0))
    buffers.append(Buffer("c", (m, n), "bf16", "output"))
    given = {
        "a_ptr": "a" if fused else "a_value", "b_ptr": "b_q", "b_scale_ptr": "b_scale_sh", "c_ptr": "c",
        "partial_ptr": "partial" if split > 1 else "c", "count_ptr": "count" if split > 1 else "c",  # c: never read
        "M": m, "N": n, "K": k, "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": config.block_k,
        "SPLIT_K": split, "NUM_STAGES": config.num_stages, "QUANTIZE_A": fused,
    }  # fmt: skip
    launches.append(launch(hopper.hopper_gemm, (tiles_n, split, tiles_m), given, options))
    return Plan(variant, config, shape, arch, tuple(buffers), tuple(launches))


def quantize_launch(config: GemmConfig, shape: Shape, shuffled: bool = False) -> TritonLaunch:
    """A to e2m1 and scales: row-major, or at their shuffled offsets with the padding written as zeros."""
    m, k, block_m, block_k = shape.m, shape.k, config.quant_block_m, config.quant_block_k
    rows, columns = padded_scale_shape(m, k) if shuffled else (m, k // 32)
    given = {
        "a_ptr": "a", "a_q_ptr": "a_q", "a_scale_ptr": "a_scale_sh" if shuffled else "a_scale", "M": m, "K": k,
        "scale_rows": rows if shuffled else None, **quantizer(config), "BLOCK_M": block_m, "BLOCK_K": block_k,
        "MASK_M": shuffled or m % block_m != 0, "MASK_K": columns * 32 != k or k % block_k != 0,
    }  # fmt: skip
    grid = (ceil_div(rows, block_m), ceil_div(columns * 32, block_k))
    return launch(quantize.quantize_rows, grid, given, {"num_warps": config.quant_num_warps})


def reduce_launch(config: GemmConfig, shape: Shape, split: int) -> TritonLaunch:
    """Partial results to C."""
    block_m, block_n = config.reduce_block_m, config.reduce_block_n
    given = {"partial_ptr": "partial", "c_ptr": "c", "M": shape.m, "N": shape.n, "SPLIT_K": split, "BLOCK_M": block_m,
                 "BLOCK_N": block_n}  # fmt: skip
    grid = (ceil_div(shape.m, block_m), ceil_div(shape.n, block_n))
    return launch(reduce.reduce_tiles, grid, given, {"num_warps": config.reduce_num_warps})
