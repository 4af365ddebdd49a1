"""A quantized once on every XCD: right bits whoever runs where, in whatever order, and however often."""

import functools

import numpy as np
import pytest
import torch

from mxfp4lab.config import GemmConfig, config_errors
from mxfp4lab.emulate import count_plan, emulate_plan
from mxfp4lab.gfx950 import compile_plan, run
from mxfp4lab.model import predict_counts
from mxfp4lab.plan import build_plan, default_config, serves
from mxfp4lab.shapes import TASK_SHAPES, Shape
from mxfp4lab.task import generate_input, input_dict, reference_output
from tests.mutations.surroundings import edited

VARIANT = "cooperative_preshuffled"
SMALL = Shape(20, 288, 1024)  # a row tail, a column tail, two row tiles


@functools.cache
def compiled():
    return compile_plan(build_plan(VARIANT, None, SMALL))


def same(c, reference):
    return torch.equal(c.view(torch.int16), reference.view(torch.int16))


def scattered(ids):
    return np.random.default_rng(7).integers(0, 8, 256)[ids]


@pytest.mark.parametrize(
    "xcd",
    [None, lambda ids: ids // 32, lambda ids: ids * 0 + 5, lambda ids: (ids + 3) % 8, scattered],
    ids=["in turn", "in blocks", "one XCD", "from the fourth", "at random"],
)
def test_bits_do_not_depend_on_where_workgroups_run(xcd):
    data = input_dict(SMALL, 11)
    result = emulate_plan(compiled(), data, calls=2, races=True, xcd=xcd)
    assert same(result.c, reference_output(tuple(generate_input(SMALL, 11))))
    assert result.findings == []


def test_a_workgroup_that_nobody_helps_does_everything_itself():
    data = input_dict(SMALL, 12)
    reference = reference_output(tuple(generate_input(SMALL, 12)))
    alone = emulate_plan(compiled(), data, workgroups=[8])
    columns = dict(compiled().plan.launches[0].constants)
    width = columns["BLOCK_N"] * columns["TILES"]
    tile = alone.c[: columns["BLOCK_M"], width : 2 * width]
    assert same(tile.contiguous(), reference[: columns["BLOCK_M"], width : 2 * width].contiguous())
    assert torch.isnan(alone.c[:, 2 * width :].float()).all()


def calls_in_a_row(begun, seeds):
    """Per call with inputs of its own: workspaces, and flags as they were before; its C is the reference's."""
    plan, (kernel,) = compiled().plan, compiled().kernels
    given = dict(plan.launches[0].args)
    kept = {
        b.name: torch.full(b.shape, b.fill or 0, dtype={"u8": torch.uint8, "i32": torch.int32}[b.dtype])
        for b in plan.buffers
        if b.role == "workspace"
    }
    kept["begun"].fill_(begun)
    for seed in seeds:
        data, flags = input_dict(SMALL, seed), kept["flags"].clone()
        tensors = data | kept | {"c": torch.zeros(SMALL.m, SMALL.n, dtype=torch.bfloat16)}
        run(kernel, plan.launches[0].grid, *(tensors[given[name].buffer] for name, _ in kernel.signature))
        assert same(tensors["c"], reference_output(tuple(generate_input(SMALL, seed))))
        yield kept, flags


def test_a_call_never_uses_what_an_earlier_call_packed():
    begun = [kept["begun"].item() for kept, _ in calls_in_a_row(0, (1, 2, 3))]
    assert begun == [256, 512, 768]


@pytest.mark.parametrize("end", [2**31, 0], ids=["past the largest number", "past zero again"])
def test_calls_have_numbers_of_their_own_where_the_count_wraps(end):
    """All that raise a flag in a call raise the same, and none was up before."""
    raised = []
    for kept, before in calls_in_a_row(end - 512, (1, 2, 3, 4)):
        numbers = kept["flags"][kept["flags"] != before].unique().tolist()
        assert len(numbers) == 1
        raised += numbers
    assert len(set(raised)) == 4


def test_nothing_is_read_past_a_row_tile_that_ends_past_m():
    """48 rows in a tile of 64, a part of A for each of the 32 workgroups."""
    shape = Shape(48, 64, 1024)
    config = GemmConfig(block_m=64, block_n=32, block_k=128, num_warps=4, quant_block_k=128, convert="hw_bf16")
    result = emulate_plan(build_plan(VARIANT, config, shape), input_dict(shape, 14), races=True)
    assert same(result.c, reference_output(tuple(generate_input(shape, 14))))
    assert result.findings == []


def blind_first_wave(lines: list[str]) -> list[str]:
    """Machine code whose first wave never sees a flag: behind each look its lanes 0 to 63 get another value."""
    changed, register = [], ""
    for line in lines:
        changed.append(line)
        words = line.split()
        if line.startswith(".LBB0_0:"):
            changed.append("\tv_mov_b32_e32 v255, v0")
        elif words[:1] == ["global_load_dword"] and "sc0" in words:
            register = words[1].rstrip(",")
        elif register and line.strip() == "s_waitcnt vmcnt(0)":
            changed += ["\tv_cmp_gt_u32_e32 vcc, 64, v255", f"\tv_cndmask_b32_e64 {register}, {register}, -1, vcc"]
            register = ""
    assert len(changed) == len(lines) + 5  # the first look and that of the loop
    return changed


def test_waves_that_see_different_flags_decide_alike():
    """Else one wave would help itself, alone, and its barriers would meet those of the last sum."""
    data = input_dict(SMALL, 13)
    result = emulate_plan(edited(blind_first_wave)(compiled()), data, races=True)
    assert same(result.c, reference_output(tuple(generate_input(SMALL, 13))))
    assert result.findings == []


def test_a_part_is_read_once_on_an_xcd_and_the_wait_is_counted():
    shape = Shape(64, 7168, 2048)
    counts = count_plan(build_plan(VARIANT, None, shape))
    sliced = count_plan(build_plan("sliced_preshuffled", None, shape))
    (mine,), (other,) = counts.launches, sliced.launches
    constants = dict(build_plan(VARIANT, None, shape).launches[0].constants)
    rows, columns = constants["BLOCK_M"], constants["BLOCK_N"] * constants["TILES"]
    packed = (rows + columns) * shape.k * 17 // 32
    part = 16 * constants["PART_K"] * 2
    assert packed + part <= mine.load_bytes_per_workgroup <= packed + part + 1024
    assert mine.load_bytes_per_workgroup < 0.6 * other.load_bytes_per_workgroup
    assert predict_counts(counts).terms["workgroups that wait"] > 1.0


def test_registers_hold_all_operands_on_the_tasks_shapes():
    for shape in TASK_SHAPES:
        for kernel in compile_plan(build_plan(VARIANT, None, shape)).kernels:
            assert kernel.resources.spilled_vgprs == 0 and not kernel.hazards


def test_shapes_and_configs_that_do_not_fit_are_refused_with_the_reason():
    assert not serves(VARIANT, "1,32,64")
    assert not serves(VARIANT, "1040,4096,512")
    for shape in TASK_SHAPES:
        assert serves(VARIANT, shape)
    base = default_config(VARIANT, "64,7168,2048").to_dict()

    def errors(**changes):
        return "; ".join(config_errors(GemmConfig(**base | changes), "64,7168,2048", "gfx950", VARIANT))

    assert errors() == ""
    assert "has 32 workgroups" in errors(block_n=16)
    assert "parts of A" in errors(block_m=64)
    assert "9 row tiles" in "; ".join(config_errors(GemmConfig(**base), Shape(288, 7168, 2048), "gfx950", VARIANT))
    assert "split_k=2" in errors(split_k=2)
    assert "takes 1048576 bytes of LDS" in errors(num_warps=16, block_m=64, quant_block_k=256, block_n=256, tiles_n=1)
