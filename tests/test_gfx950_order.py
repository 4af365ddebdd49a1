"""Data races between workgroups: each thing that puts two of them in order is missed when it is gone."""

from __future__ import annotations

import functools
import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gfx950_machine import launch

from mxfp4lab.config import GemmConfig
from mxfp4lab.emulate import emulate_plan
from mxfp4lab.gfx950 import Program, compile_plan
from mxfp4lab.gfx950.machine.errors import DataRace
from mxfp4lab.plan import build_plan, default_config
from mxfp4lab.shapes import Shape
from mxfp4lab.task import generate_input, input_dict, reference_output

# Two workgroups of two waves: the first stores and raises a flag, the second looks at it and reads the other wave's
# half.
HANDOVER = """
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\ts_load_dwordx2 s[8:9], s[0:1], 0x10
\tv_lshlrev_b32_e32 v1, 2, v0
\tv_mov_b32_e32 v6, 0
\tv_mov_b32_e32 v7, 1
\ts_cmp_lg_u32 s2, 0
\ts_cbranch_scc1 .Lreader
\tv_add_u32_e32 v2, 7, v0
\tglobal_store_dword v1, v2, s[4:5]
\t{wait}
\t{barrier}
\t{back}
\t{back_wait}
\tv_cmp_gt_u32_e32 vcc, 1, v0
\ts_and_saveexec_b64 s[10:11], vcc
\ts_cbranch_execz .Lend
\t{flag}
\ts_branch .Lend
.Lreader:
\t{look}
\t{look_wait}
\tv_readfirstlane_b32 s12, v3
\ts_cmp_eq_u32 s12, 0
\ts_cbranch_scc1 .Lreader
\t{inv}
\tv_xor_b32_e32 v4, 0x100, v1
\tglobal_load_dword v5, v4, s[4:5]
\ts_waitcnt vmcnt(0)
\tglobal_store_dword v1, v5, s[6:7]
.Lend:"""
NOTHING = "s_nop 0"
NEAR = {
    "wait": "s_waitcnt vmcnt(0)",
    "barrier": "s_barrier",
    "back": NOTHING,
    "back_wait": NOTHING,
    "flag": "global_store_dword v6, v7, s[8:9]",
    "look": "global_load_dword v3, v6, s[8:9] sc0",
    "look_wait": "s_waitcnt vmcnt(0)",
    "inv": NOTHING,
}
FAR = NEAR | {
    "back": "buffer_wbl2 sc1",
    "back_wait": "s_waitcnt vmcnt(0)",
    "flag": "global_store_dword v6, v7, s[8:9] sc1",
    "look": "global_load_dword v3, v6, s[8:9] sc1",
    "inv": "buffer_inv sc1",
}
ATOMIC = {
    "flag": "global_atomic_add v6, v7, s[8:9]",
    "look": "global_atomic_or v3, v6, v6, s[8:9] sc0",
}


def handover(body: str = HANDOVER, xcds: int = 1, **lines) -> list:
    data, out, flag = np.zeros(128, np.int32), np.zeros(128, np.int32), np.zeros(4, np.int32)
    body = body.format(**lines)
    result = launch(body, data, out, flag, grid=2, threads=128, races=True, xcd=lambda ids: ids % xcds)
    np.testing.assert_array_equal(out, (np.arange(128) ^ 64) + 7)  # the emulator's memory is always in order
    return result.findings


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ({}, None),
        (ATOMIC, None),
        ({"wait": NOTHING}, "the store was not waited for"),
        ({"wait": "s_waitcnt vmcnt(1)"}, "the store was not waited for"),
        ({"wait": "s_waitcnt lgkmcnt(0)"}, "the store was not waited for"),
        ({"wait": "s_barrier", "barrier": "s_waitcnt vmcnt(0)"}, "no barrier lay behind the storing wave's wait"),
        ({"barrier": NOTHING}, "no barrier lay behind the storing wave's wait"),
        ({"barrier": NOTHING} | ATOMIC, "no barrier lay behind the storing wave's wait"),
        ({"look_wait": NOTHING}, "no flag of the storing workgroup was seen and waited for"),
        ({"look": "global_load_dword v3, v6, s[8:9]"}, "no flag of the storing workgroup was seen and waited for"),
    ],
)
def test_a_flag_within_an_xcd(lines, missing):
    findings = handover(**NEAR | lines)
    assert bool(findings) == bool(missing)
    if missing:
        assert all(isinstance(f, DataRace) for f in findings)
        assert all(f.missing.startswith(missing) for f in findings if "s[4:5]" in f.instruction.text)
        first = findings[-1]
        assert first.kind == "load" and first.writer[0] == 0 and first.other[0] == 1
        assert first.first.text in str(first) and first.second.text in str(first) and first.missing in str(first)
        assert pickle.loads(pickle.dumps(first)).missing == first.missing


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        (FAR, None),
        (FAR | ATOMIC, None),
        (NEAR, "no buffer_wbl2 sc1, or a flag without device scope"),
        (FAR | {"back": NOTHING}, "no buffer_wbl2 sc1"),
        (FAR | {"back": "buffer_wbl2 sc0"}, "no buffer_wbl2 sc1"),
        (FAR | {"back_wait": NOTHING}, "no buffer_wbl2 sc1"),
        (FAR | {"inv": NOTHING}, "no buffer_inv sc1 behind the flag"),
        (FAR | {"flag": NEAR["flag"]}, "no buffer_wbl2 sc1, or a flag without device scope"),
        (FAR | {"look": NEAR["look"]}, "no buffer_wbl2 sc1, or a flag without device scope"),
        (FAR | {"wait": NOTHING}, "no barrier lay behind the storing wave's wait"),
    ],
)
def test_a_flag_from_xcd_to_xcd(lines, missing):
    findings = handover(xcds=2, **lines)
    assert bool(findings) == bool(missing)
    assert all(f.missing.startswith(missing) for f in findings)
    if missing:
        assert handover(xcds=1, **lines | {"wait": NEAR["wait"]}) == []


def test_a_byte_that_two_workgroups_store():
    body = """
\ts_load_dwordx2 s[4:5], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\t{value}
\tglobal_store_dword v1, v2, s[4:5]"""

    def findings(value: str, grid: int) -> list:
        return launch(body.format(value=value), np.zeros(64, np.int32), grid=grid, races=True).findings

    assert findings("v_mov_b32_e32 v2, s2", 1) == []
    assert findings("v_add_u32_e32 v2, 1, v0", 3) == []  # the same value
    (found,) = findings("v_mov_b32_e32 v2, s2", 3)
    assert found.kind == "store" and found.writer == (0, 0) and found.other == (1, 0) and found.byte_offset == 0


def test_what_stores_of_one_value_leave_to_rely_on():
    """Both workgroups store the same; the second may read it after its own store, another wave only with a barrier."""
    body = """
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\tglobal_store_dword v1, v1, s[4:5]
\ts_waitcnt vmcnt(0)
\t{between}
\tv_xor_b32_e32 v4, {lane}, v1
\tglobal_load_dword v5, v4, s[4:5]
\ts_waitcnt vmcnt(0)
\tglobal_store_dword v1, v5, s[6:7]"""
    for between, lane, found in (
        ("s_barrier", "0x100", False),
        (NOTHING, "0x100", True),
        (NOTHING, "0x80", False),
    ):
        arrays = np.zeros(128, np.int32), np.zeros(128, np.int32)
        lines = body.format(between=between, lane=lane)
        assert bool(launch(lines, *arrays, grid=3, threads=128, races=True).findings) == found


def test_sums_of_atomics_are_data_and_counters_may_be_read():
    body = """
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\tv_mov_b32_e32 v2, 0
\t{add} v1, v2, s[4:5]
\ts_waitcnt vmcnt(0)
\tglobal_load_dword v5, v1, s[4:5]
\ts_waitcnt vmcnt(0)
\tglobal_store_dword v1, v2, s[6:7]"""
    for add, found in (("global_atomic_add_f32", True), ("global_atomic_add", False)):
        arrays = np.zeros(64, np.int32), np.zeros(64, np.int32)
        assert bool(launch(body.format(add=add), *arrays, grid=2, races=True).findings) == found


# Real kernels ---------------------------------------------------------------------------------------------------------

SHAPE = Shape(20, 288, 1024)
INSIDE = Shape(16, 64, 1024)


@functools.cache
def together():
    """The cooperative kernel with parts that every wave has a share of."""
    config = default_config("cooperative_preshuffled", SHAPE).to_dict() | {"quant_block_k": 512}
    return compile_plan(build_plan("cooperative_preshuffled", GemmConfig(**config), SHAPE))


@functools.cache
def summed_inside():
    config = GemmConfig(block_m=16, block_n=32, block_k=128, num_warps=2, convert="hw_bf16", split_k=4,
                        split_sum="inside")  # fmt: skip
    return compile_plan(build_plan("sliced_preshuffled", config, INSIDE))


def with_program(plan, change):
    """A compiled plan, its first kernel's instructions changed; `change` maps an instruction to another."""
    (kernel,) = plan.kernels
    program = kernel.program
    changed = tuple(change(instruction) for instruction in program)
    assert changed != program.instructions, "the machine code holds nothing to change"
    program = Program(program.name, changed, program.labels, program.entry)
    fields = {name: getattr(kernel, name) for name in ("name", "descriptor", "resources", "signature")}
    return SimpleNamespace(plan=plan.plan, kernels=(SimpleNamespace(program=program, **fields),))


def idle(plan, positions):
    nothing = {"mnemonic": "s_nop", "operands": (), "modifiers": ()}
    return with_program(plan, lambda i: replace(i, **nothing) if i.index in positions else i)


def last_before(program, mnemonic, position, text=""):
    return max(i for i in range(position) if program[i].mnemonic == mnemonic and text in program[i].text)


def findings(plan, shape=SHAPE, right=True, **options):
    result = emulate_plan(plan, input_dict(shape, 5), races=True, **options)
    if right:
        reference = reference_output(tuple(generate_input(shape, 5)))
        assert torch.equal(result.c.view(torch.int16), reference.view(torch.int16))
    return result.findings


def flag_stores(program):
    return [i for i, instruction in enumerate(program) if instruction.mnemonic == "global_store_dword"]


def test_the_cooperative_kernel_is_in_order_and_its_flags_are_looked_at():
    result = emulate_plan(together(), input_dict(SHAPE, 5), races=True, calls=2)
    assert result.findings == []
    program, executed = together().kernels[0].program, result.launches[0].executed
    stores = [i for i in executed if program[i].mnemonic == "buffer_store_byte"]
    # two parts on each of 8 XCDs, by four waves: nobody has done a part that is another's
    assert sum(executed[i] for i in stores) == 8 * 2 * 4


def test_the_cooperative_kernel_without_its_waits():
    program = together().kernels[0].program
    waits = {last_before(program, "s_waitcnt", last_before(program, "s_barrier", at), "vmcnt(0)")
             for at in flag_stores(program)}  # fmt: skip
    found = findings(idle(together(), waits))
    assert any(f.missing.startswith("the store was not waited for") and f.other[0] != f.writer[0] for f in found)
    assert {f.buffer for f in found} == {"a_q", "a_scale"}


def test_the_cooperative_kernel_without_its_barriers():
    program = together().kernels[0].program
    barriers = {last_before(program, "s_barrier", at) for at in flag_stores(program)}
    found = findings(idle(together(), barriers))
    assert any(f.missing.startswith("no barrier lay behind") and f.other[0] != f.writer[0] for f in found)


def test_the_cooperative_kernel_that_does_not_wait_for_its_looks():
    program = together().kernels[0].program
    looks = [i.index for i in program if i.mnemonic == "global_load_dword" and i.modifier("sc0")]
    behind = {min(i for i in range(at, len(program)) if program[i].mnemonic == "s_waitcnt") for at in looks}
    found = [f for f in findings(idle(together(), behind)) if isinstance(f, DataRace)]
    assert found and all(f.missing == "no flag of the storing workgroup was seen and waited for" for f in found)


def test_the_cooperative_kernel_that_looks_through_the_vector_cache():
    def plain(i):
        return replace(i, modifiers=()) if i.mnemonic == "global_load_dword" and i.modifier("sc0") else i

    assert "flags" in {f.buffer for f in findings(with_program(together(), plain))}


def test_a_workgroup_that_does_all_parts_itself_waits_for_all_its_waves():
    program = together().kernels[0].program
    alone = {"workgroups": [8], "right": False}
    assert findings(together(), **alone) == []
    fallback = min(i.index for i in program if i.mnemonic == "buffer_store_byte" and i.index < flag_stores(program)[-1]
                   and i.index > flag_stores(program)[0])  # fmt: skip
    barrier = min(i for i in range(fallback, len(program)) if program[i].mnemonic == "s_barrier")
    found = findings(idle(together(), {barrier}), **alone)
    assert found and all(f.writer[0] == f.other[0] == 8 for f in found)


@pytest.mark.parametrize("mnemonic", ["buffer_wbl2", "buffer_inv", "s_waitcnt"])
def test_the_sum_inside_without_what_orders_it(mnemonic):
    plan = summed_inside()
    program = plan.kernels[0].program
    assert findings(plan, INSIDE, calls=2) == []
    if mnemonic == "s_waitcnt":
        stores = last_before(program, "buffer_store_dwordx4", len(program))
        positions = {min(i for i in range(stores, len(program)) if program[i].mnemonic == "s_waitcnt")}
    else:
        positions = {i.index for i in program if i.mnemonic == mnemonic}
    found = findings(idle(plan, positions), INSIDE)
    expected = {
        "buffer_inv": "no buffer_inv sc1",
        "buffer_wbl2": "no buffer_wbl2 sc1",
        "s_waitcnt": "the store was not",
    }
    assert found and {f.buffer for f in found} == {"partial"}
    assert all(f.missing.startswith(expected[mnemonic]) for f in found)
    if mnemonic != "s_waitcnt":  # one L2 needs neither
        assert findings(idle(plan, positions), INSIDE, xcd=lambda ids: ids * 0) == []
