"""Padding of shuffled scales on the emulator: our kernels let nothing of it through, whatever byte stands there."""

import pytest

from mxfp4lab.emulate import emulate_plan
from mxfp4lab.formats import quantize_mxfp4
from mxfp4lab.layouts import e8m0_shuffle
from mxfp4lab.plan import build_plan, default_config
from mxfp4lab.shapes import Shape
from mxfp4lab.task import check_output, input_dict, reference_gemm


@pytest.mark.parametrize("variant", ["fused_rowmajor", "fused_preshuffled", "sliced_preshuffled"])
@pytest.mark.parametrize("pad", [127, 255])
def test_our_kernels_do_not_let_padding_through(variant, pad):
    shape = Shape(20, 128, 1664)  # 52 scale columns, padded to 56
    inputs = input_dict(shape, 0)
    reference = reference_gemm(inputs["a"], inputs["b_q"], inputs["b_scale_sh"])
    inputs["b_scale_sh"] = e8m0_shuffle(quantize_mxfp4(inputs["b"])[1], pad)
    plan = build_plan(variant, default_config(variant, shape), shape)
    needed = {buffer.name for buffer in plan.buffers if buffer.role == "input"}
    done = emulate_plan(plan, {name: inputs[name] for name in needed})
    assert check_output(done.c, reference).bf16_identical_fraction == 1.0
