"""The variant for Hopper: its plans, its compiled code, and the arithmetic that its kernels rest on (no GPU here)."""

import pytest
import torch

from mxfp4lab.config import GemmConfig, config_errors
from mxfp4lab.formats import E2M1_VALUES, dequantize_mxfp4, quantize_mxfp4
from mxfp4lab.gfx950 import compile_plan
from mxfp4lab.plan import build_plan, default_config
from mxfp4lab.shapes import BENCHMARK_SHAPES, TEST_SHAPES

SHAPES = [case.shape for case in (*TEST_SHAPES, *BENCHMARK_SHAPES)]


def _bf16(words: torch.Tensor) -> torch.Tensor:
    return words.to(torch.int16).view(torch.bfloat16)


def test_two_multiply_adds_in_bf16_round_to_the_mxfp4_grid():
    generator = torch.Generator().manual_seed(0)
    base = torch.randint(5, 240, (20000, 1), generator=generator)
    exponent = (base - torch.randint(0, 6, (20000, 32), generator=generator)).clamp(min=0)
    sign = torch.randint(0, 2, (20000, 32), generator=generator)
    mantissa = torch.randint(0, 128, (20000, 32), generator=generator)
    words = (sign << 15) | (exponent << 7) | mantissa
    x = _bf16(words - ((words >> 15) << 16))
    amax = (words & 0x7FFF).amax(1, keepdim=True)
    scale = _bf16(torch.clamp(((amax + 0x20) & 0xFF80) - 0x100, min=0x40)).double()
    p = torch.maximum(_bf16(words & 0x7F80).double(), scale)
    # A fused multiply-add rounds once: float64 holds the exact value, which is then rounded to bf16.
    once = (p * 96 + x.double()).float().to(torch.bfloat16)
    value = (once.double() - p * 96).float()
    assert torch.equal(value, dequantize_mxfp4(*quantize_mxfp4(x)))


def test_a_shifted_nibble_is_its_value_times_two_to_minus_126():
    codes = torch.arange(16)
    words = ((codes & 8) << 12) | ((codes & 7) << 6)
    value = _bf16(words - ((words >> 15) << 16)).double() * 2.0**126
    assert value.tolist() == [*E2M1_VALUES, *(-magnitude for magnitude in E2M1_VALUES)]


@pytest.mark.parametrize("byte", [27, 100, 127, 160])
def test_the_factor_of_a_scale_byte_is_a_normal_bf16_and_products_are_exact(byte):
    factor = _bf16(torch.tensor([(byte * 0x80 + 0x2F00)])).double()
    assert factor.item() == 2.0 ** (126 + byte - 127 - 32)
    decoded = torch.tensor(E2M1_VALUES, dtype=torch.float64) * 2.0**-126 * factor
    assert torch.equal(decoded.to(torch.bfloat16).double(), decoded)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_default_plans_are_valid_on_sm_90_and_only_there(shape):
    config = default_config("hopper", shape, "sm_90")
    assert config_errors(config, shape, "sm_90", "hopper") == []
    assert "gfx950" in config_errors(config, shape, "gfx950", "hopper")[0]
    plan = build_plan("hopper", config, shape, "sm_90")
    names = {buffer.name for buffer in plan.buffers}
    assert all(value.buffer in names for launch in plan.launches for _, value in launch.args)
    assert len(plan.launches) == (1 if config.a_mode == "fused" else 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_n": 128}, "block_n=128: must be 64, 128 or 256 with 4, 8 or 16 warps"),
        ({"block_k": 128}, "block_k=128: must be at least 256"),
        ({"group_m": 4}, "group_m=4: must be 1 for hopper"),
        ({"convert": "hw_f32"}, "convert='hw_f32': must be 'sw_bits'"),
    ],
)
def test_what_the_kernels_cannot_do_is_refused_by_name(change, message):
    config = GemmConfig(**{"convert": "sw_bits", **change})
    assert any(error.startswith(message) for error in config_errors(config, SHAPES[0], "sm_90", "hopper"))


def test_partial_results_have_a_counter_per_tile_that_starts_at_zero():
    config = GemmConfig(convert="sw_bits", split_k=4)
    plan = build_plan("hopper", config, (16, 2112, 7168), "sm_90")
    assert plan.buffer("count").shape == (33,) and plan.buffer("count").fill == 0
    assert plan.buffer("partial").shape == (33, 4, 64, 16)


@pytest.mark.parametrize("a_mode", ["fused", "prequant"])
def test_decoded_b_goes_to_wgmma_from_registers(a_mode):
    config = GemmConfig(block_m=32, convert="sw_bits", a_mode=a_mode)
    gemm = compile_plan(build_plan("hopper", config, (32, 4096, 512), "sm_90")).kernels[-1]
    wgmma = [line for line in gemm.asm.splitlines() if "wgmma.mma_async" in line]
    assert wgmma and all("m64n32k16" in line for line in wgmma)
    # A in registers is four of them in braces; from shared memory it would be one descriptor.
    assert all(line.count("{") == 2 for line in wgmma)
    assert gemm.resources.spilled_vgprs == 0
