"""Every variant's plan executed on the task's inputs: C bit by bit, counts, repeated calls, bad input."""

from __future__ import annotations

import functools

import pytest
import torch

from mxfp4lab.emulate import bank_conflicts, count_plan, emulate_plan
from mxfp4lab.gfx950 import compile_plan
from mxfp4lab.plan import VARIANTS, build_plan, default_config
from mxfp4lab.shapes import BENCHMARK_SHAPES, TEST_SHAPES, parse_shape, task_seed
from mxfp4lab.task import INPUT_NAMES, generate_input, reference_output

OWN = sorted(name for name, spec in VARIANTS.items() if not spec.needs_aiter and "hopper" not in name)
SMALL = "20x288x1024"
ALL_SHAPES = [str(case.shape) for case in (*TEST_SHAPES, *BENCHMARK_SHAPES)]


@functools.cache
def inputs_of(text: str):
    shape = parse_shape(text)
    data = generate_input(shape, task_seed(shape))
    return dict(zip(INPUT_NAMES, data, strict=True)), reference_output(data)


@functools.cache
def compiled_of(variant: str, text: str):
    shape = parse_shape(text)
    return compile_plan(build_plan(variant, default_config(variant, shape), shape))


@pytest.mark.parametrize("variant", OWN)
@pytest.mark.parametrize("text", ["4x2880x512", "32x4096x512"])
def test_every_variant_is_bit_exact_on_task_shapes(variant, text):
    inputs, reference = inputs_of(text)
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    result = emulate_plan(compiled_of(variant, text), inputs)
    assert torch.equal(result.c.view(torch.int16), reference.view(torch.int16))
    assert all(torch.equal(before[n].view(torch.uint8), inputs[n].view(torch.uint8)) for n in inputs)
    assert result.lane_instructions == sum(r.lane_instructions for r in result.launches)


@pytest.mark.slow
@pytest.mark.parametrize("variant", OWN)
@pytest.mark.parametrize("text", ALL_SHAPES)
def test_every_variant_is_bit_exact_on_every_shape(variant, text):
    inputs, reference = inputs_of(text)
    result = emulate_plan(compiled_of(variant, text), inputs)
    assert torch.equal(result.c.view(torch.int16), reference.view(torch.int16))
    assert result.emulate_s < 60  # far above what it takes (see `make bench`); a hang is a failure


def test_repeated_calls_on_the_same_workspaces_give_the_same():
    inputs, reference = inputs_of("4x2880x512")
    for variant in OWN:
        result = emulate_plan(compiled_of(variant, "4x2880x512"), inputs, calls=2)
        assert torch.equal(result.c.view(torch.int16), reference.view(torch.int16)), variant


def test_counts_of_one_workgroup_are_those_of_the_whole_launch():
    text = "32x4096x512"
    compiled = compiled_of("fused_preshuffled", text)
    counts = count_plan(compiled)
    whole = emulate_plan(compiled, inputs_of(text)[0])
    for launch, entry, ran in zip(counts.launches, compiled.plan.launches, whole.launches, strict=True):
        waves = ran.workgroups * ran.waves_per_workgroup
        assert launch.name == entry.name and launch.workgroups == ran.workgroups
        assert launch.mfma_per_wave == ran.by_class.get("mfma", 0) / waves
        assert launch.vmem_per_wave == ran.by_class.get("vmem", 0) / waves
        assert launch.vgprs and launch.occupancy_waves_per_simd
        assert launch.load_bytes_per_workgroup > 0 < launch.store_bytes_per_workgroup
    main = (
        counts.launches[-1]
        if len(counts.launches) == 1
        else max(counts.launches, key=lambda entry: entry.mfma_per_wave)
    )
    assert main.mfma16_per_wave + main.mfma32_per_wave == main.mfma_per_wave > 0 < main.valu_per_wave


def test_bank_conflicts_are_counted_per_launch():
    compiled = compiled_of("fused_preshuffled", "32x4096x512")
    found = bank_conflicts(compiled)
    assert [name for name, _, _ in found] == [launch.name for launch in compiled.plan.launches]
    lds = [launch.lds_per_wave for launch in count_plan(compiled).launches]
    assert all(
        passes >= ideal and (ideal > 0) == (used > 0) for (_, passes, ideal), used in zip(found, lds, strict=True)
    )
    assert any(ideal for _, _, ideal in found)


def test_uninitialised_memory_shows_as_nan():
    inputs, reference = inputs_of("4x2880x512")
    compiled = compiled_of("fused_preshuffled", "4x2880x512")
    last = len(compiled.plan.launches) - 1
    result = emulate_plan(compiled, inputs, workgroups={last: [0]})
    assert torch.isnan(result.c.float()).any()
    correct = ~torch.isnan(result.c.float())
    assert correct.any() and torch.equal(result.c[correct], reference[correct])


def test_wrong_inputs_are_refused():
    inputs, _ = inputs_of("4x2880x512")
    compiled = compiled_of("fused_preshuffled", "4x2880x512")
    with pytest.raises(ValueError, match="'a' is missing"):
        emulate_plan(compiled, {name: t for name, t in inputs.items() if name != "a"})
    with pytest.raises(ValueError, match="'a' has 2048 bytes"):
        emulate_plan(compiled, inputs | {"a": inputs["a"][:2]})
