"""The launches that plans are made of: quantize, GEMM, reduce."""

from __future__ import annotations

from typing import Any

from mxfp4lab.config import (
    VARIANT_TRAITS,
    GemmConfig,
    effective_split,
    needed_offset_bits,
    resolved_a_mode,
    resolved_scale_load,
    resolved_specialize,
)
from mxfp4lab.kernels import gemm, quantize, reduce, sliced
from mxfp4lab.plan.data import Buffer, Plan, Ref, TritonLaunch
from mxfp4lab.shapes import Shape


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


def build_gemm(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """Plan of the Triton variants: [quantize], GEMM, [reduce]."""
    traits = VARIANT_TRAITS[variant]
    m, n, k = shape.m, shape.n, shape.k
    split = effective_split(config, shape)
    fused = resolved_a_mode(config, shape, traits) == "fused"
    constexpr = resolved_specialize(config, traits) == "constexpr"
    offset_bits = config.offset_bits or needed_offset_bits(config, shape)
    always = config.masks == "always"
    buffers = list(input_buffers(shape))
    launches = []
    if not fused:
        buffers += [Buffer("a_q", (m, k // 2), "u8", "workspace"), Buffer("a_scale", (m, k // 32), "u8", "workspace")]
        launches.append(quantize_launch(config, shape, arch, constexpr, offset_bits))
    if split > 1:
        buffers.append(Buffer("partial", (split, m, n), "f32", "workspace"))
    buffers.append(Buffer("c", (m, n), "bf16", "output"))

    constants: dict[str, Any] = {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "SPLIT_K": split,
        "SPLIT_INNER": config.split_order == "inner",
        "GROUP_M": config.group_m,
        "XCDS": config.xcd_remap,
        "B_SHUFFLED": traits.b_layout == "preshuffled",
        "SCALES_BY_TILE": resolved_scale_load(config, traits) == "by_tile",
        "MASK_M": always or m % config.block_m != 0,
        "MASK_N": always or n % config.block_n != 0,
        "WRAP_N": config.row_tail == "wrap" and (always or n % config.block_n != 0),
        "MASK_K": always or k % config.block_k != 0,
        "ACCUMULATE": config.accumulate,
        "ASSUME": config.assume == "on" and not constexpr,
        "OFFSET_BITS": offset_bits,
        "CACHE": config.cache_modifier,
        "NUM_STAGES": config.num_stages,
    }
    b = Ref("b_shuffle" if traits.b_layout == "preshuffled" else "b_q")
    pointers: list[tuple[str, Ref]] = [("a_ptr", Ref("a"))]
    if fused:
        constants |= {"CONVERT": config.convert, "CONVERT_FIRST": config.load_order == "convert_first"}
        fn = gemm.gemm_fused_constexpr if constexpr else gemm.gemm_fused
    else:
        pointers = [("a_ptr", Ref("a_q")), ("a_scale_ptr", Ref("a_scale"))]
        fn = gemm.gemm_prequant_constexpr if constexpr else gemm.gemm_prequant
    pointers += [("b_ptr", b), ("b_scale_ptr", Ref("b_scale_sh")), ("out_ptr", Ref("partial" if split > 1 else "c"))]
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if arch == "gfx950":
        options |= {"waves_per_eu": config.waves_per_eu, "matrix_instr_nonkdim": config.matrix_instr_nonkdim}
    programs = ceil_div(m, config.block_m) * ceil_div(n, config.block_n) * split
    launches.append(launch(fn, (programs, 1, 1), pointers, {"M": m, "N": n, "K": k}, constants, options))
    if split > 1:
        launches.append(reduce_launch(config, shape, split, offset_bits))
    return Plan(variant, config, shape, arch, tuple(buffers), tuple(launches))


def build_sliced(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """Plan of GEMM launches whose waves divide K among them: GEMM, [reduce]."""
    split = effective_split(config, shape, waves=config.num_warps)
    inside = split > 1 and config.split_sum == "inside"
    constants = {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "TILES": config.tiles_n,
        "STEP_K": config.block_k,
        "WAVES": config.num_warps,
        "SPLIT_K": split,
        "XCDS": config.xcd_remap,
        "STAGED": config.a_path == "staged",
        "AMAX": config.amax,
        "MOVABLE": config.load_order == "convert_first",
        "CACHE": config.cache_modifier,
    }
    tiles = ceil_div(shape.m, config.block_m) * ceil_div(shape.n, config.block_n * config.tiles_n)
    buffers = list(input_buffers(shape))
    pointers = [
        ("a_ptr", Ref("a")),
        ("b_ptr", Ref("b_shuffle")),
        ("b_scale_ptr", Ref("b_scale_sh")),
        ("out_ptr", Ref("c")),
    ]
    if inside:
        elements = config.block_m * config.block_n * config.tiles_n
        buffers += [
            Buffer("partial", (tiles, split, elements), "f32", "workspace"),
            Buffer("arrived", (tiles,), "i32", "workspace", fill=0),
        ]
        pointers += [("partial_ptr", Ref("partial")), ("arrived_ptr", Ref("arrived"))]
    elif split > 1:
        buffers.append(Buffer("partial", (split, shape.m, shape.n), "f32", "workspace"))
        pointers[3] = ("out_ptr", Ref("partial"))
    buffers.append(Buffer("c", (shape.m, shape.n), "bf16", "output"))
    options = {"num_warps": config.num_warps, "waves_per_eu": config.waves_per_eu}
    sizes = {"M": shape.m, "N": shape.n, "K": shape.k}
    fn = sliced.gemm_sliced_summed if inside else sliced.gemm_sliced
    launches = [launch(fn, (tiles * split, 1, 1), pointers, sizes, constants, options)]
    if split > 1 and not inside:
        launches.append(reduce_launch(config, shape, split, needed_offset_bits(config, shape)))
    return Plan(variant, config, shape, arch, tuple(buffers), tuple(launches))


def quantize_launch(config: GemmConfig, shape: Shape, arch: str, constexpr: bool, offset_bits: int) -> TritonLaunch:
    """A to e2m1 and row-major scales."""
    constants = _quantize_constants(config, shape, offset_bits)
    pointers = [("a_ptr", Ref("a")), ("a_q_ptr", Ref("a_q")), ("a_scale_ptr", Ref("a_scale"))]
    grid = (ceil_div(shape.m, config.quant_block_m), ceil_div(shape.k, config.quant_block_k), 1)
    fn = quantize.quantize_rows_constexpr if constexpr else quantize.quantize_rows
    return launch(fn, grid, pointers, {"M": shape.m, "K": shape.k}, constants, {"num_warps": config.quant_num_warps})


def quantize_shuffle_launch(config: GemmConfig, shape: Shape, offset_bits: int) -> TritonLaunch:
    """A to e2m1, its scales at their shuffled offsets; the padding is written with zeros."""
    constants = _quantize_constants(config, shape, offset_bits)
    rows, columns = padded_scale_shape(shape.m, shape.k)
    # The grid covers the padding of the shuffled scales: whole groups of 256 rows, columns to a multiple of 8.
    constants["MASK_M"] = True
    constants["MASK_K"] = columns * 32 != shape.k or shape.k % config.quant_block_k != 0
    pointers = [("a_ptr", Ref("a")), ("a_q_ptr", Ref("a_q")), ("a_scale_ptr", Ref("a_scale_sh"))]
    grid = (ceil_div(rows, config.quant_block_m), ceil_div(columns * 32, config.quant_block_k), 1)
    sizes = {"M": shape.m, "K": shape.k, "scale_rows": rows}
    return launch(
        quantize.quantize_rows_shuffled, grid, pointers, sizes, constants, {"num_warps": config.quant_num_warps}
    )


def _quantize_constants(config: GemmConfig, shape: Shape, offset_bits: int) -> dict[str, Any]:
    always = config.masks == "always"
    return {
        "CONVERT": config.convert,
        "BLOCK_M": config.quant_block_m,
        "BLOCK_K": config.quant_block_k,
        "MASK_M": always or shape.m % config.quant_block_m != 0,
        "MASK_K": always or shape.k % config.quant_block_k != 0,
        "OFFSET_BITS": offset_bits,
    }


def reduce_launch(config: GemmConfig, shape: Shape, split: int, offset_bits: int) -> TritonLaunch:
    """Partial results to C."""
    m, n = shape.m, shape.n
    pointers = [("partial_ptr", Ref("partial")), ("c_ptr", Ref("c"))]
    options = {"num_warps": config.reduce_num_warps}
    if config.reduce_form == "flat":
        block = config.reduce_block_m * config.reduce_block_n
        constants = {"SPLIT_K": split, "BLOCK": block, "OFFSET_BITS": offset_bits}
        return launch(
            reduce.reduce_flat, (ceil_div(m * n, block), 1, 1), pointers, {"elements": m * n}, constants, options
        )
    constants = {
        "SPLIT_K": split,
        "BLOCK_S": 1 << (split - 1).bit_length(),
        "BLOCK_M": config.reduce_block_m,
        "BLOCK_N": config.reduce_block_n,
        "BLOCK_FORM": config.reduce_form == "block",
        "OFFSET_BITS": offset_bits,
    }
    grid = (ceil_div(m, config.reduce_block_m), ceil_div(n, config.reduce_block_n), 1)
    return launch(reduce.reduce_tiles, grid, pointers, {"M": m, "N": n}, constants, options)


def launch(
    fn: Any,
    grid: tuple[int, int, int],
    pointers: list[tuple[str, Ref]],
    sizes: dict[str, int],
    constants: dict[str, Any],
    options: dict[str, int | str],
) -> TritonLaunch:
    """A launch whose sizes go where the kernel wants them: run-time arguments or constants."""
    if not hasattr(fn, "params"):
        raise ValueError("TRITON_INTERPRET=1: kernels are interpreted and cannot be compiled; unset it")
    constexprs = {param.name for param in fn.params if param.is_constexpr}
    named: dict[str, Ref | int] = dict(pointers) | {key: value for key, value in sizes.items() if key not in constexprs}
    constants = {key: value for key, value in sizes.items() if key in constexprs} | constants
    args = tuple((param.name, named[param.name]) for param in fn.params if param.name in named)
    ordered = tuple((param.name, constants[param.name]) for param in fn.params if param.name in constants)
    return TritonLaunch(fn.__name__, fn, grid, args, ordered, tuple(sorted(options.items())))
