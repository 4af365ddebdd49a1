"""Plans that end in aiter's prebuilt GEMM: A quantized and its scales shuffled by ours, then the code object."""

from __future__ import annotations

from mxfp4lab.config import GemmConfig
from mxfp4lab.kernels import quantize
from mxfp4lab.plan.aiter_gemm import choose_gemm, gemm_launch, output_rows, split_count
from mxfp4lab.plan.data import Buffer, Plan, Ref, TritonLaunch
from mxfp4lab.plan.launches import (
    ceil_div,
    input_buffers,
    padded_scale_shape,
    quantize_launch,
)
from mxfp4lab.shapes import Shape

SHUFFLE_ROWS, SHUFFLE_COLUMNS = 32, 32


def build_reference(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """The task's reference: quantize A, shuffle its scales, GEMM.

    The first two steps stand for aiter's `dynamic_mxfp4_quant` and `e8m0_shuffle`; they give the bits of the op that
    the task uses (ties to even), which no installable aiter has.
    """
    row_major = Buffer("a_scale", (shape.m, shape.k // 32), "u8", "workspace")
    launches = (quantize_launch(config, shape), shuffle_scales_launch(shape))
    return _with_gemm(config, shape, arch, variant, (row_major,), launches)


def build_quant_shuffle(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """One kernel quantizes A and writes its scales at their shuffled offsets; then the GEMM."""
    launches = (quantize_launch(config, shape, shuffled=True),)
    return _with_gemm(config, shape, arch, variant, (), launches)


def build_gemm_stage(shape: Shape, kernel: str | None = None, log2_k_split: int | None = None) -> Plan:
    """aiter's prebuilt GEMM alone, on A that is quantized already: what a profiler times as one kernel.

    Args:
        shape: the GEMM.
        kernel: a code object by name ("32x128"); without it the one for the shape (`choose_gemm`).
        log2_k_split: with `kernel`: log2 of the shares of K.

    Raises:
        AiterError: no aiter, no such kernel, or a shape that the kernel cannot do.
    """
    choice = choose_gemm(shape, kernel, log2_k_split)
    fill = 0 if split_count(shape, choice.log2_k_split) > 1 else None
    buffers = (
        Buffer("a_q", (shape.m, shape.k // 2), "u8", "input"),
        Buffer("a_scale_sh", padded_scale_shape(shape.m, shape.k), "u8", "input"),
        Buffer("b_shuffle", (shape.n, shape.k // 2), "u8", "input"),
        Buffer("b_scale_sh", padded_scale_shape(shape.n, shape.k), "u8", "input"),
        Buffer("c", (output_rows(shape.m), shape.n), "bf16", "output", fill),
    )
    return Plan("reference", GemmConfig(), shape, "gfx950", buffers, (gemm_launch(choice, shape),))


def shuffle_scales_launch(shape: Shape) -> TritonLaunch:
    """A's row-major scales to their shuffled places, padding included."""
    rows, columns = padded_scale_shape(shape.m, shape.k)
    constants = (("ROWS", shape.m), ("COLUMNS", shape.k // 32), ("PADDED_ROWS", rows), ("PADDED_COLUMNS", columns),
                 ("BLOCK_M", SHUFFLE_ROWS), ("BLOCK_C", SHUFFLE_COLUMNS))  # fmt: skip
    args = (("scale_ptr", Ref("a_scale")), ("shuffled_ptr", Ref("a_scale_sh")))
    grid = (ceil_div(rows, SHUFFLE_ROWS), ceil_div(columns, SHUFFLE_COLUMNS), 1)
    return TritonLaunch("shuffle_scales", quantize.shuffle_scales, grid, args, constants, (("num_warps", 4),))


def _with_gemm(
    config: GemmConfig, shape: Shape, arch: str, variant: str, buffers: tuple[Buffer, ...],
    launches: tuple[TritonLaunch, ...],
) -> Plan:  # fmt: skip
    if arch != "gfx950":
        raise ValueError(f"arch={arch!r}: {variant} ends in a code object for gfx950")
    choice = choose_gemm(shape)
    # A split adds its shares into C.
    fill = 0 if split_count(shape, choice.log2_k_split) > 1 else None
    everything = (
        *input_buffers(shape),
        Buffer("a_q", (shape.m, shape.k // 2), "u8", "workspace"),
        *buffers,
        Buffer("a_scale_sh", padded_scale_shape(shape.m, shape.k), "u8", "workspace"),
        Buffer("c", (output_rows(shape.m), shape.n), "bf16", "output", fill),
    )
    return Plan(variant, config, shape, arch, everything, (*launches, gemm_launch(choice, shape)))
