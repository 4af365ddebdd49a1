"""The poison check: values from memory that nobody wrote, followed to where they matter."""

from __future__ import annotations

from dataclasses import replace

import gfx950_kernels as kernels
import numpy as np
import pytest
from gfx950_kernels import build
from gfx950_machine import kernel
from test_gfx950_plans import OWN, compiled_of, inputs_of

from mxfp4lab.emulate import emulate_plan
from mxfp4lab.gfx950 import Memory, Pointer, launch
from mxfp4lab.gfx950.machine.errors import UninitialisedRead

START = "\ts_load_dwordx4 s[4:7], s[0:1], 0x0\n\tv_lshlrev_b32_e32 v1, 2, v0\n"
STORE = "\tglobal_store_dword v1, v2, s[6:7]"


def poisoned(body: str, *, written: int = 0, lds: int = 0, threads: int = 64):
    """Run on x (256 bytes, only its first `written` bytes written) and y (written); the findings."""
    memory = Memory()
    x = memory.add("x", np.zeros(256, np.uint8), initialised=False)
    y = memory.add("y", np.zeros(1024, np.uint8))
    if written:
        x.unwritten = np.arange(256) >= written
    compiled = kernel(body, threads=threads, lds=lds)
    return launch(compiled, (1,), [Pointer(x.base), Pointer(y.base)], memory, poison=True).findings


@pytest.mark.parametrize(
    ("body", "what", "lane"),
    [
        ("\tglobal_load_dword v2, v1, s[4:5]\n" + STORE, "memory (buffer 'y')", 25),
        (
            "\tglobal_load_dword v2, v1, s[4:5]\n\tv_add_u32_e32 v3, 1, v2\n\tv_mul_lo_u32 v2, v3, v0\n" + STORE,
            "memory",
            25,
        ),
        (
            "\tglobal_load_dword v3, v1, s[4:5]\n\tv_and_b32_e32 v3, 0xfc, v3\n\tglobal_load_dword v2, v3, s[6:7]",
            "an address",
            25,
        ),
        ("\tglobal_load_ubyte v2, v0, s[4:5] offset:64\n" + STORE, "memory", 36),
        ("\tglobal_load_dword v3, v1, s[4:5]\n\tds_write_b32 v1, v3\n\tds_read_b32 v2, v1\n" + STORE, "memory", 25),
        (
            "\tglobal_load_dword v3, v1, s[4:5]\n\tv_mov_b32_dpp v2, v3 row_ror:1 row_mask:0xf bank_mask:0xf\n" + STORE,
            "memory",
            16,
        ),
        (
            "\tv_cmp_gt_u32_e32 vcc, 30, v0\n\tglobal_load_dword v3, v1, s[4:5]\n\tv_cndmask_b32_e32 v2, v0, v3, vcc\n"
            + STORE,
            "memory",
            25,
        ),
        (
            "\tglobal_load_dword v3, v1, s[4:5]\n\tv_readlane_b32 s8, v3, 40\n\ts_add_i32 s8, s8, 1\n"
            "\ts_cmp_eq_u32 s8, 0\n\ts_cbranch_scc1 .OUT\n.OUT:",
            "a branch",
            0,
        ),
        (
            "\tglobal_load_dword v3, v1, s[4:5]\n\tv_readlane_b32 s8, v3, 40\n\tv_mov_b32_e32 v2, s8\n" + STORE,
            "memory",
            0,
        ),
        ("\ts_load_dword s8, s[4:5], 0x80\n\tv_mov_b32_e32 v2, s8\n" + STORE, "memory", 0),
        ("\tglobal_load_lds_dword v[4:5], off\n\tds_read_b32 v2, v1\n" + STORE, "memory", 25),
    ],
)
def test_an_unwritten_byte_is_reported_where_it_matters(body, what, lane):
    setup = (
        "\tv_mov_b32_e32 v5, s5\n\tv_add_co_u32_e32 v4, vcc, s4, v1\n\tv_addc_co_u32_e32 v5, vcc, 0, v5, vcc\n"
        "\ts_mov_b32 m0, 0\n"
    )
    findings = poisoned(START + setup + body, written=100, lds=256)
    assert findings, body
    finding = findings[0]
    assert isinstance(finding, UninitialisedRead) and finding.buffer == "x" and finding.byte_offset >= 100
    assert what in str(finding) and "_load_" in finding.source.mnemonic and finding.lane == lane
    assert not poisoned(START + setup + body, written=256, lds=256)


@pytest.mark.parametrize(
    "body",
    [
        "\tglobal_load_dword v2, v1, s[4:5]",  # loaded and dropped
        "\tv_cmp_gt_u32_e32 vcc, 25, v0\n\tglobal_load_dword v3, v1, s[4:5]\n\tv_cndmask_b32_e32 v2, v0, v3, vcc\n"
        + STORE,
        "\ts_mov_b64 exec, 0x1ffffff\n\tglobal_load_dword v2, v1, s[4:5]\n" + STORE,
        "\tglobal_load_dword v2, v1, s[4:5]\n\tv_mov_b32_e32 v2, 7\n" + STORE,
        "\tglobal_load_dword v2, v1, s[4:5]\n\ts_mov_b64 exec, 0x1ffffff\n" + STORE,
        "\tglobal_store_dword v1, v0, s[4:5]\n\tglobal_load_dword v2, v1, s[4:5]\n" + STORE,
        "\tds_write_b32 v1, v0\n\tds_read_b32 v2, v1\n" + STORE,
    ],
)
def test_what_is_harmless(body):
    assert not poisoned(START + body, written=100, lds=256)


def test_what_is_written_is_kept_for_the_next_launch():
    unwritten = np.ones(256, bool)
    for line, left in (("global_store_dword v1, v0, s[4:5]", 0), ("global_load_dword v2, v1, s[4:5]", 0)):
        memory = Memory()
        x = memory.add("x", np.zeros(256, np.uint8), unwritten=unwritten)
        y = memory.add("y", np.zeros(1024, np.uint8))
        body = START + f"\t{line}\n" + STORE
        assert not launch(kernel(body), (1,), [Pointer(x.base), Pointer(y.base)], memory, poison=True).findings
        assert unwritten.sum() == left


def test_lds_and_scratch_start_poisoned():
    findings = poisoned(START + "\tds_read_b32 v2, v1\n" + STORE, lds=256)
    assert findings[0].buffer == "LDS" and findings[0].source.mnemonic == "ds_read_b32"
    assert poisoned(START + "\tds_write_b8 v1, v0\n\tds_read_b32 v2, v1\n" + STORE, lds=256)[0].byte_offset == 1
    two = "\tds_write2_b32 v1, v0, v0 offset1:64\n\tds_read2_b32 v[2:3], v1 offset1:65\n"
    assert not poisoned(START + two + STORE, lds=1024)
    assert poisoned(START + two + "\tv_mov_b32_e32 v2, v3\n" + STORE, lds=1024)[0].lane == 63
    memory = Memory()
    buffers = [memory.add(name, np.zeros(256, np.uint8)) for name in ("x", "y")]
    body = START + "\tscratch_store_dword off, v0, off offset:4\n\tscratch_load_dwordx2 v[2:3], off, off\n"
    for line, found in (("\tv_mov_b32_e32 v2, v3\n", False), ("", True)):
        compiled = kernel(body + line + STORE, scratch=16)
        pointers = [Pointer(b.base) for b in buffers]
        findings = launch(compiled, (1,), pointers, memory, poison=True).findings
        assert bool(findings) == found and all(f.buffer == "scratch" for f in findings)


def test_matrix_rows_and_columns():
    body = (
        START
        + """
\tv_mov_b32_e32 v3, 0
\tglobal_load_dword v2, v1, s[4:5]
\tv_mov_b32_e32 v4, 0
\tv_mov_b32_e32 v5, 0
\tv_mov_b32_e32 v6, 0
\tv_mov_b32_e32 v7, 0
\tv_mfma_f32_16x16x16_f16 v[8:11], v[2:3], v[4:5], 0
\tv_cmp_gt_u32_e32 vcc, {limit}, v0
\ts_and_saveexec_b64 s[8:9], vcc
\tv_mov_b32_e32 v2, v8
"""
        + STORE
    )
    # lanes 61 and up are poisoned: rows 13 to 15 of A, which are register 1 to 3 of lanes 48 and up
    assert not poisoned(body.format(limit=64), written=61 * 4)
    findings = poisoned(body.format(limit=64).replace("v2, v8", "v2, v9"), written=61 * 4)
    assert findings and findings[0].lane == 48
    assert not poisoned(body.format(limit=48).replace("v2, v8", "v2, v9"), written=61 * 4)


def test_a_split_that_nobody_wrote_is_found_in_the_reduction():
    compiled = build(
        kernels.reduce_splits,
        {"p_ptr": "*fp32", "c_ptr": "*bf16", "SIZE": "i32"},
        {"SPLIT": 4, "BLOCK": 256},
        num_warps=1,
    )
    memory = Memory()
    partial = memory.add("partials", np.zeros(4 * 256 * 4, np.uint8), initialised=False)
    partial.unwritten = np.arange(4096) // 1024 == 2
    out = memory.add("c", np.zeros(512, np.uint8))
    values = {"p_ptr": Pointer(partial.base), "c_ptr": Pointer(out.base), "SIZE": 256}
    findings = launch(compiled, (1,), list(values.values()), memory, poison=True).findings
    assert findings and findings[0].buffer == "partials" and 2048 <= findings[0].byte_offset < 3072
    partial.unwritten[:] = False
    assert not launch(compiled, (1,), list(values.values()), memory, poison=True).findings


@pytest.mark.parametrize("variant", OWN)
def test_our_plans_read_nothing_that_nobody_wrote_and_do_not_race(variant):
    for text in ("4x2880x512", "20x288x1024"):
        result = emulate_plan(compiled_of(variant, text), inputs_of(text)[0], poison=True, races=True)
        assert not result.findings, str(result.findings[0])


def test_a_launch_left_out_is_found_by_the_next():
    compiled = compiled_of("prequant_preshuffled", "4x2880x512")
    plan = replace(compiled.plan, launches=compiled.plan.launches[1:])
    result = emulate_plan(
        replace(compiled, plan=plan, kernels=compiled.kernels[1:]), inputs_of("4x2880x512")[0], poison=True
    )
    assert {finding.buffer for finding in result.findings} & {"a_q", "a_scale"}
