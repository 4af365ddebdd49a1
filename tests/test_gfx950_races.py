"""The LDS race check: each barrier of a real kernel is missed when it is gone; while it is there nothing is said."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gfx950_kernels import fused
from gfx950_machine import launch
from test_gfx950_kernels import problem

from mxfp4lab.gfx950 import Program, run
from mxfp4lab.gfx950.machine.errors import LdsRace

SHAPE = (16, 64, 1024)
EXCHANGE = """
\ts_load_dwordx2 s[6:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\t{write}
\ts_waitcnt lgkmcnt(0)
\t{between}
\tv_xor_b32_e32 v3, 0x1fc, v1
\tds_read_b32 v2, v3
\ts_waitcnt lgkmcnt(0)
\tglobal_store_dword v1, v2, s[6:7]"""


def without(compiled, position: int):
    """The kernel with one instruction replaced by a no-op."""
    instructions = list(compiled.program)
    instructions[position] = replace(instructions[position], mnemonic="s_nop", operands=(), modifiers=())
    program = Program(compiled.name, tuple(instructions), compiled.program.labels, compiled.program.entry)
    return SimpleNamespace(program=program, descriptor=compiled.descriptor)


def run_fused(compiled, **options):
    m, n, k = SHAPE
    a, b_q, b_s, _, _, c = problem(m, n, k)
    out = torch.zeros_like(c)
    result = run(compiled, (1, 1, 1), a, b_q, b_s, out, m, n, k, **options)
    return result, torch.equal(out, c)


def test_a_correct_kernel_has_no_findings_and_each_missing_barrier_has():
    compiled = fused()
    result, right = run_fused(compiled, races=True)
    assert right and not result.findings
    barriers = [i for i, instruction in enumerate(compiled.program) if instruction.mnemonic == "s_barrier"]
    assert len(barriers) > 4
    for position in barriers:
        result, _ = run_fused(without(compiled, position), races=True)
        assert result.findings, position
        finding = result.findings[0]
        assert isinstance(finding, LdsRace)
        assert finding.first.mnemonic.startswith("ds_") and finding.second.mnemonic.startswith("ds_")
        # the barrier lies between the two, or the loop goes round through it
        assert (
            finding.first.index < position
            or finding.second.index > position
            or finding.first.index > finding.second.index
        )
        assert finding.first.text in str(finding) and finding.second.text in str(finding)


@pytest.mark.parametrize(
    ("between", "races"),
    [("s_barrier", False), ("s_nop 0", True)],
)
def test_write_then_read(between, races):
    y = np.zeros(128, np.int32)
    body = EXCHANGE.format(write="ds_write_b32 v1, v0", between=between)
    result = launch(body, y, threads=128, lds=512, races=True)
    assert bool(result.findings) == races
    if races:
        finding = result.findings[0]
        assert (finding.first.mnemonic, finding.second.mnemonic) == ("ds_write_b32", "ds_read_b32")
        assert finding.workgroup == 0 and finding.wave in (0, 1) and "no barrier after wave" in str(finding)


def test_read_then_write_and_write_then_write():
    body = """
\tv_lshlrev_b32_e32 v1, 2, v0
\tv_and_b32_e32 v1, 0xfc, v1
\tds_read_b32 v2, v1
\t{between}
\tds_write_b32 v1, v0"""
    for between, expected in (
        ("s_barrier", {("ds_write_b32", "ds_write_b32")}),
        ("s_nop 0", {("ds_read_b32", "ds_write_b32"), ("ds_write_b32", "ds_write_b32")}),
    ):
        result = launch(body.format(between=between), np.zeros(4), threads=128, lds=256, races=True)
        assert {(f.first.mnemonic, f.second.mnemonic) for f in result.findings} == expected


def test_what_is_no_race():
    same_value = (
        "\tv_lshlrev_b32_e32 v1, 2, v0\n\tv_and_b32_e32 v1, 0xfc, v1\n\tds_write_b32 v1, v1\n\tds_read_b32 v2, v1"
    )
    own_bytes = (
        "\tv_lshlrev_b32_e32 v1, 2, v0\n\tds_write_b32 v1, v0\n\tds_read_b32 v2, v1\n\tds_write_b8 v1, v2 offset:1"
    )
    adders = "\tv_mov_b32_e32 v1, 0\n\tds_add_u32 v1, v0\n\tds_add_rtn_u32 v2, v1, v0"
    for body in (same_value, own_bytes, adders):
        assert not launch(body, np.zeros(4), grid=3, threads=256, lds=1024, races=True).findings


@pytest.mark.parametrize(
    ("wait", "barrier", "found"),
    [
        ("s_waitcnt vmcnt(0)", "s_barrier", False),
        ("s_nop 0", "s_barrier", True),
        ("s_waitcnt vmcnt(1)", "s_barrier", True),
        ("s_waitcnt vmcnt(0)", "s_nop 0", True),
    ],
)
def test_loads_to_lds_are_in_flight_until_waited_for(wait, barrier, found):
    x, y = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    body = f"""
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\tv_readfirstlane_b32 s8, v1
\ts_mov_b32 m0, s8
\tv_mov_b32_e32 v5, s5
\tv_add_co_u32_e32 v4, vcc, s4, v1
\tv_addc_co_u32_e32 v5, vcc, 0, v5, vcc
\tglobal_load_lds_dword v[4:5], off
\t{wait}
\t{barrier}
\tv_xor_b32_e32 v3, 0x1fc, v1
\tds_read_b32 v2, v3
\ts_waitcnt lgkmcnt(0)
\tglobal_store_dword v1, v2, s[6:7]"""
    result = launch(body, x, y, threads=128, lds=512, races=True)
    np.testing.assert_array_equal(y, np.arange(128) ^ 127)
    assert bool(result.findings) == found
    if found and barrier == "s_barrier":
        assert "in flight" in str(result.findings[0])


def test_a_load_that_reads_nothing_still_counts_for_waits():
    """Eight waves for five rows: the idle ones load past a buffer's range, and wait for that all the same."""
    from mxfp4lab.config import GemmConfig
    from mxfp4lab.emulate import emulate_plan
    from mxfp4lab.plan import build_plan
    from mxfp4lab.shapes import Shape
    from mxfp4lab.task import input_dict

    shape = Shape(5, 96, 320)
    config = GemmConfig(block_m=8, block_n=32, num_warps=8, convert="hw_bf16", quant_block_m=8)
    plan = build_plan("prequant_rowmajor", config, shape)
    assert emulate_plan(plan, input_dict(shape, 1), races=True).findings == []
