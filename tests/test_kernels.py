"""Kernels as gfx950 machine code: converts on every finite bf16, every variant on shapes with every kind of tail."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from quantize_kernels import quantize_like_sliced

from mxfp4lab.config import GemmConfig
from mxfp4lab.emulate import emulate_plan
from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.gfx950 import compile_kernel, compile_plan, run
from mxfp4lab.kernels import quantize
from mxfp4lab.kernels.waves import BLOCK_CONVERTS
from mxfp4lab.layouts import e8m0_shuffle
from mxfp4lab.plan import VARIANTS, build_plan, serves
from mxfp4lab.plan.launches import quantizer
from mxfp4lab.shapes import Shape, parse_shape
from mxfp4lab.task import INPUT_NAMES, generate_input, reference_gemm

TRITON_VARIANTS = [name for name, spec in VARIANTS.items() if not (spec.needs_aiter or spec.hopper)]
CONVERTS = ("sw_aiter", "sw_bits", "hw_f32", "hw_bf16")
K = 4096


@functools.cache
def every_bf16() -> torch.Tensor:
    """[256, 4096] bf16: in block i, element 0 is the i-th finite magnitude, then values around every rounding point."""
    magnitudes = np.arange(0x7F80, dtype=np.uint16)
    blocks = np.zeros((len(magnitudes), 32), np.uint16)
    rng = np.random.default_rng(7)
    blocks[:, 0] = magnitudes
    # Smaller than the first by up to 2^5 in steps of half a mantissa, ties included, both signs; a few far below.
    lower = np.maximum(magnitudes[:, None].astype(int) - rng.integers(0, 0x280, (len(magnitudes), 28)), 0)
    blocks[:, 1:29] = lower
    blocks[:, 29:] = rng.integers(0, np.maximum(magnitudes, 1)[:, None].repeat(3, 1) + 1)
    blocks |= rng.integers(0, 2, blocks.shape).astype(np.uint16) << 15
    blocks = rng.permuted(blocks, axis=1)  # the largest anywhere, in a high or a low half
    rows = np.zeros((256 * K // 32, 32), np.uint16)
    rows[: len(blocks)] = blocks
    rows[len(blocks) :] = blocks[: len(rows) - len(blocks)]
    return torch.from_numpy(rows.reshape(256, K).view(np.int16)).view(torch.bfloat16)


@functools.cache
def expected() -> tuple[torch.Tensor, torch.Tensor]:
    return quantize_mxfp4(every_bf16())


def assert_same_bytes(a_q: torch.Tensor, a_scale: torch.Tensor, flushed: bool = False) -> None:
    """`flushed`: blocks of scale byte 254 are zeros of either sign."""
    packed, scale = expected()
    assert torch.equal(a_scale, scale)
    if flushed:
        top = (scale == 254).repeat_interleave(16, 1)
        assert top.any()
        packed = torch.where(top, packed & 0x88, packed)
    assert torch.equal(a_q, packed)


@pytest.mark.parametrize("convert", CONVERTS)
def test_converts_agree_on_every_finite_bf16(convert):
    tile = {"BLOCK_M": 16, "BLOCK_K": 512, "MASK_M": False, "MASK_K": False, "scale_rows": None}
    constants = quantizer(GemmConfig(convert=convert)) | tile
    signature = {"a_ptr": "*bf16", "a_q_ptr": "*u8", "a_scale_ptr": "*u8", "M": "i32", "K": "i32"}
    compiled = compile_kernel(quantize.quantize_rows, signature, constants, {"num_warps": 4})
    a_q, a_scale = torch.full((256, K // 2), 99, dtype=torch.uint8), torch.full((256, K // 32), 99, dtype=torch.uint8)
    run(compiled, (16, K // 512, 1), every_bf16(), a_q, a_scale, 256, K)
    assert_same_bytes(a_q, a_scale, flushed=convert == "sw_aiter")
    assert compiled.mix.get("convert", 0) > 0 if convert.startswith("hw") else True
    assert not compiled.hazards


@pytest.mark.parametrize("amax", ["max3", "packed_max"])
def test_the_sliced_convert_agrees_on_every_finite_bf16(amax):
    signature = {"a_ptr": "*bf16", "a_q_ptr": "*u8", "a_scale_ptr": "*u8"}
    compiled = compile_kernel(quantize_like_sliced, signature, {"K": K, "AMAX": BLOCK_CONVERTS[amax]}, {"num_warps": 1})
    a_q, a_scale = torch.full((256, K // 2), 99, dtype=torch.uint8), torch.full((256, K // 32), 99, dtype=torch.uint8)
    run(compiled, (16, K // 128, 1), every_bf16(), a_q, a_scale)
    assert_same_bytes(a_q, a_scale)
    assert not compiled.hazards


@pytest.mark.parametrize("convert", CONVERTS)
def test_zero_blocks_and_the_top_of_the_range(convert):
    a = torch.zeros(4, 64, dtype=torch.bfloat16)
    a[1] = -0.0
    a.view(torch.int16)[2, :] = 0x7F60  # 1.75 * 2^127: byte 254
    a.view(torch.int16)[3, :] = 0x7F5F
    plan = build_plan("prequant_rowmajor", GemmConfig(convert=convert), Shape(4, 32, 64))
    compiled = compile_plan(plan).kernels[0]
    a_q, a_scale = torch.empty(4, 32, dtype=torch.uint8), torch.empty(4, 2, dtype=torch.uint8)
    run(compiled, plan.launches[0].grid, a, a_q, a_scale, 4, 64)
    assert a_scale.tolist() == [[0, 0], [0, 0], [254, 254], [252, 252]]
    assert (a_q[0] == 0).all() and (a_q[1] == 0x88).all()
    packed = quantize_mxfp4(a)[0]
    if convert == "sw_aiter":  # 2^-127 is flushed, as in aiter's own op on this GPU
        packed[2] &= 0x88
    assert torch.equal(a_q, packed)


def test_masked_k_does_not_enter_the_largest_magnitude():
    """K = 64 with a tile of 256: what lies behind the row belongs to the next row, and is 1e30."""
    a = torch.full((2, 64), 1e30, dtype=torch.bfloat16)
    a[0] = 1.0
    plan = build_plan("prequant_rowmajor", GemmConfig(quant_block_m=1), Shape(2, 32, 64))
    a_q, a_scale = torch.empty(2, 32, dtype=torch.uint8), torch.empty(2, 2, dtype=torch.uint8)
    run(compile_plan(plan).kernels[0], plan.launches[0].grid, a, a_q, a_scale, 2, 64)
    assert a_scale[0].tolist() == [125, 125]


@functools.cache
def inputs_of(shape: Shape) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The task's inputs, with 0xFF (NaN) in the padding of B's scales: nobody may multiply it; and the reference."""
    data = dict(zip(INPUT_NAMES, generate_input(shape, 11), strict=True))
    rows, columns = shape.n, shape.k // 32
    valid = e8m0_shuffle(torch.ones(rows, columns, dtype=torch.uint8)).reshape(data["b_scale_sh"].shape).bool()
    reference = reference_gemm(data["a"], data["b_q"], data["b_scale_sh"])
    data["b_scale_sh"] = torch.where(valid, data["b_scale_sh"], torch.full_like(data["b_scale_sh"], 255))
    return data, reference


def assert_exact(variant: str, config: GemmConfig | None, shape: Shape, **modes: bool) -> None:
    data, reference = inputs_of(shape)
    plan = build_plan(variant, config, shape)
    result = emulate_plan(plan, data, **modes)
    assert not result.findings
    c = result.c[: shape.m]
    assert torch.equal(c.view(torch.int16), reference.view(torch.int16)), (variant, config)


TAILS = [Shape(1, 32, 64), Shape(3, 96, 192), Shape(17, 160, 1664), Shape(33, 2080, 512)]


@pytest.mark.parametrize("variant", TRITON_VARIANTS)
@pytest.mark.parametrize("shape", TAILS, ids=str)
def test_tails_are_exact_and_nothing_is_read_outside_or_before_it_is_written(variant, shape):
    if not serves(variant, shape):
        pytest.skip(f"{variant} has no config for {shape}")
    checks = {"races": True} if shape.n <= 160 else {}  # they take their time
    assert_exact(variant, None, shape, **checks)


BASE = GemmConfig(block_n=64, convert="hw_bf16")
AXES = [
    {"split_k": 7, "reduce_block_m": 1, "reduce_block_n": 256},
    {"block_m": 4, "block_n": 128},
    {"block_m": 32, "matrix_instr_nonkdim": 32, "num_warps": 8},
    {"block_m": 8, "num_stages": 3},
    {"xcd_remap": 8, "group_m": 3},
    {"cache_modifier": ".cg", "waves_per_eu": 2},
    {"block_n": 256, "block_k": 512},
]


@pytest.mark.parametrize("fields", AXES, ids=lambda fields: "-".join(fields))
def test_axes_do_not_change_a_bit(fields):
    config = dataclasses.replace(BASE, **fields)
    for variant in ("fused_rowmajor", "prequant_preshuffled", "constexpr_preshuffled"):
        assert_exact(variant, config, Shape(17, 160, 1664))


SLICED = GemmConfig(block_n=64, block_k=128, convert="hw_bf16", cache_modifier=".cg")
SLICED_AXES = [
    {},
    {"a_path": "staged"},
    {"a_path": "staged", "block_k": 256, "num_warps": 8, "block_m": 32},
    {"amax": "packed_max", "split_k": 2},
    {"block_k": 256, "num_warps": 2, "xcd_remap": 8},
    {"block_n": 32, "tiles_n": 3},
    {"block_m": 32, "block_n": 16, "num_warps": 16},
    {"block_m": 64, "load_order": "convert_first"},
]


@pytest.mark.parametrize("fields", SLICED_AXES, ids=lambda fields: "-".join(fields) or "base")
def test_sliced_axes_do_not_change_a_bit(fields):
    assert_exact("sliced_preshuffled", dataclasses.replace(SLICED, **fields), Shape(33, 160, 1664))


def test_a_split_summed_in_one_launch_is_exact_and_leaves_its_counters_at_zero():
    config = dataclasses.replace(SLICED, split_k=4, split_sum="inside", num_warps=2, tiles_n=2, block_n=32)
    shape = Shape(33, 160, 1664)
    data, reference = inputs_of(shape)
    plan = build_plan("sliced_preshuffled", config, shape)
    assert len(plan.launches) == 1
    result = emulate_plan(plan, data, calls=2)
    assert torch.equal(result.c.view(torch.int16), reference.view(torch.int16))
    assert (result.buffers["arrived"] == 0).all()


@pytest.mark.parametrize("variant", TRITON_VARIANTS)
def test_every_variant_multiplies_with_scaled_mfma_alone(variant):
    for text in ("16x2112x7168", "256x3072x1536"):
        shape = parse_shape(text)
        kernels = compile_plan(build_plan(variant, None, shape)).kernels
        kinds = {kind for kernel in kernels for kind in kernel.mfma}
        assert kinds and all(kind.startswith("v_mfma_scale_") for kind in kinds)
        assert not any(kernel.hazards or kernel.resources.spilled_vgprs for kernel in kernels)


def test_a_sliced_block_costs_at_most_a_third_of_the_published_kernel_s_valu():
    """16x128x256: aiter's fused kernel has 795 VALU instructions for 8 MFMA of a wave (Triton 3.9)."""
    config = GemmConfig(block_n=128, block_k=256, num_warps=2, convert="hw_bf16")
    kernel = compile_plan(build_plan("sliced_preshuffled", config, Shape(16, 128, 512))).kernels[0]
    assert sum(kernel.mfma.values()) == 16
    assert kernel.mix["valu"] + kernel.mix["convert"] <= 265


@pytest.mark.parametrize("variant", [name for name in TRITON_VARIANTS if not VARIANTS[name].sliced])
def test_the_same_kernels_compile_for_cuda(variant):
    kernels = compile_plan(build_plan(variant, None, "17,160,1664", "sm_90"), "sm_90").kernels
    assert all(kernel.binary for kernel in kernels)


@pytest.mark.slow
@pytest.mark.parametrize("variant", TRITON_VARIANTS)
def test_task_shapes_are_exact(variant):
    from mxfp4lab.shapes import BENCHMARK_SHAPES, TEST_SHAPES

    for case in (*BENCHMARK_SHAPES, *TEST_SHAPES):
        assert_exact(variant, None, case.shape)
