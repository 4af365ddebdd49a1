"""Control flow: divergence of lanes and waves, barriers, workgroups that wait for each other, launch state, counts."""

from __future__ import annotations

import numpy as np
import pytest
from gfx950_machine import kernel, launch

from mxfp4lab.gfx950 import BarrierMismatch, Deadlock, EmulationError, UnknownInstruction, run

POINTERS = "\ts_load_dwordx4 s[4:7], s[0:1], 0x0\n\tv_lshlrev_b32_e32 v1, 2, v0\n"
STORE = "\tglobal_store_dword v1, v2, s[6:7]"


def test_lanes_loop_a_different_number_of_times():
    x, y = np.random.default_rng(0).integers(0, 50, 256).astype(np.int32), np.zeros(256, np.int32)
    body = (
        POINTERS
        + f"""
\tglobal_load_dword v3, v1, s[4:5]
\tv_mov_b32_e32 v2, 0
\ts_mov_b64 s[8:9], 0
.LOOP:
\tv_cmp_ge_i32_e32 vcc, 0, v3
\ts_or_b64 s[8:9], vcc, s[8:9]
\ts_andn2_b64 exec, exec, s[8:9]
\ts_cbranch_execz .DONE
\tv_add_u32_e32 v2, v2, v3
\tv_add_u32_e32 v3, -1, v3
\ts_branch .LOOP
.DONE:
\ts_mov_b64 exec, -1
{STORE}"""
    )
    result = launch(body, x, y, threads=256)
    np.testing.assert_array_equal(y, x * (x + 1) // 2)
    loop = next(i for i, n in result.executed.items() if n == max(result.executed.values()))
    most = [int(x[64 * w : 64 * w + 64].max()) + 1 for w in range(4)]
    assert result.executed[loop] == sum(most)  # each wave leaves when its last lane is done


def test_waves_branch_apart_and_meet_again():
    y = np.zeros(3 * 256, np.int32)
    body = """
\ts_load_dwordx2 s[6:7], s[0:1], 0x0
\tv_readfirstlane_b32 s8, v0
\ts_lshr_b32 s8, s8, 6
\ts_lshl_b32 s9, s2, 10
\tv_lshlrev_b32_e32 v1, 2, v0
\tv_add_u32_e32 v1, s9, v1
\ts_mov_b32 s10, 0
\ts_add_i32 s11, s8, s2
\ts_cmp_eq_u32 s8, 2
\ts_cbranch_scc1 .TWO
.AGAIN:
\ts_add_i32 s10, s10, 5
\ts_sub_i32 s11, s11, 1
\ts_cmp_ge_i32 s11, 0
\ts_cbranch_scc1 .AGAIN
\ts_branch .MEET
.TWO:
\ts_movk_i32 s10, 0x64
.MEET:
\tv_mov_b32_e32 v2, s10
\tglobal_store_dword v1, v2, s[6:7]"""
    result = launch(body, y, grid=3, threads=256)
    wave, group = np.meshgrid(np.arange(4), np.arange(3))
    expected = np.where(wave == 2, 100, 5 * (wave + group + 1))
    np.testing.assert_array_equal(y.reshape(3, 4, 64)[..., 0], expected)
    store = result.executed[max(result.executed) - 1]
    assert store == 12 and result.wave_instructions == sum(result.executed.values())


def test_barrier_orders_lds_between_waves():
    y = np.zeros(256, np.int32)
    body = """
\ts_load_dwordx2 s[6:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\tv_readfirstlane_b32 s8, v0
\ts_cmp_lg_u32 s8, 0
\ts_cbranch_scc1 .WRITE
\ts_movk_i32 s9, 0x32
.DELAY:
\ts_sub_i32 s9, s9, 1
\ts_cmp_lg_u32 s9, 0
\ts_cbranch_scc1 .DELAY
.WRITE:
\tds_write_b32 v1, v0
\ts_waitcnt lgkmcnt(0)
\ts_barrier
\tv_xor_b32_e32 v3, 0x3fc, v1
\tds_read_b32 v2, v3
\ts_waitcnt lgkmcnt(0)
\tglobal_store_dword v1, v2, s[6:7]"""
    launch(body, y, threads=256, lds=1024)
    np.testing.assert_array_equal(y, np.arange(256) ^ 255)


def test_barrier_not_reached_by_every_wave():
    body = """
\tv_readfirstlane_b32 s8, v0
\ts_cmp_eq_u32 s8, 64
\ts_cbranch_scc1 .OUT
\ts_nop 0
\ts_barrier
.OUT:
\ts_nop 0"""
    with pytest.raises(
        BarrierMismatch, match=r"workgroup 0, waves \[0, 2, 3\] wait and waves \[1\] have ended.*s_barrier"
    ):
        launch(body, np.zeros(4), threads=256)
    launch(body, np.zeros(4), threads=64)  # one wave alone


def test_waves_may_reach_different_barriers():
    body = """
\tv_readfirstlane_b32 s8, v0
\ts_cmp_eq_u32 s8, 0
\ts_cbranch_scc1 .OTHER
\ts_barrier
\ts_branch .OUT
.OTHER:
\ts_barrier
.OUT:
\ts_nop 0"""
    launch(body, np.zeros(4), threads=128)


TICKET = (
    POINTERS
    + """
\ts_sub_i32 s8, {last}, s2
\tv_mov_b32_e32 v3, 0
\tv_mov_b32_e32 v4, s8
.WAIT:
\tglobal_load_dword v5, v3, s[4:5]
\ts_waitcnt vmcnt(0)
\tv_readfirstlane_b32 s9, v5
\ts_cmp_lg_u32 s9, s8
\ts_cbranch_scc1 .WAIT
\tglobal_load_dword v2, v1, s[6:7]
\tv_mul_lo_u32 v2, v2, 3
\tv_add_u32_e32 v2, s2, v2
\tglobal_store_dword v1, v2, s[6:7]
\tv_mov_b32_e32 v6, 1
\ts_mov_b64 exec, 1
\tglobal_atomic_add v3, v6, s[4:5]"""
)


@pytest.mark.parametrize("chunk", [192, 4])  # within one chunk of workgroups, and over several
def test_workgroups_that_wait_for_later_ones(chunk, monkeypatch):
    monkeypatch.setattr("mxfp4lab.gfx950.machine.runs.WAVES_PER_CHUNK", chunk)
    count = 14
    turn, y = np.zeros(1, np.uint32), np.zeros(64, np.uint32)
    launch(TICKET.format(last=count - 1), turn, y, grid=count)
    expected = 0
    for workgroup in reversed(range(count)):
        expected = (expected * 3 + workgroup) & 0xFFFFFFFF
    assert (y == expected).all() and turn[0] == count


def test_a_wait_that_never_ends_is_reported():
    with pytest.raises(Deadlock, match="deadlock: wave 0 of workgroup 0"):
        launch(TICKET.format(last=7), np.zeros(1, np.uint32), np.zeros(64, np.uint32), grid=2)


def test_launch_state_hidden_arguments_and_linear_ids():
    y = np.zeros((2, 3, 4, 8), np.uint32)
    k = kernel(
        """
\ts_load_dwordx2 s[6:7], s[0:1], 0x0
\ts_load_dwordx4 s[8:11], s[0:1], 0x8
\tv_mov_b32_e32 v1, 0
\ts_waitcnt lgkmcnt(0)
\ts_mul_i32 s12, s4, 12
\ts_lshl_b32 s13, s3, 2
\ts_add_i32 s12, s12, s13
\ts_add_i32 s12, s12, s2
\ts_lshl_b32 s12, s12, 5
\tv_mov_b32_e32 v1, s12
\tv_mov_b32_e32 v2, s2
\tv_mov_b32_e32 v3, s3
\tv_mov_b32_e32 v4, s4
\tv_mov_b32_e32 v5, s8
\tglobal_store_dwordx4 v1, v[2:5], s[6:7]
\tv_mov_b32_e32 v2, s9
\tv_mov_b32_e32 v3, s10
\tv_mov_b32_e32 v4, s11
\tglobal_store_dwordx3 v1, v[2:4], s[6:7] offset:16""",
        pointers=1,
    )
    from dataclasses import replace

    from mxfp4lab.gfx950 import KernelArg

    hidden = [
        ("hidden_block_count_x", 8, 4),
        ("hidden_block_count_y", 12, 4),
        ("hidden_block_count_z", 16, 4),
        ("hidden_group_size_x", 20, 2),
        ("hidden_grid_dims", 22, 2),
    ]
    extra = tuple(KernelArg("", offset, size, kind) for kind, offset, size in hidden)
    k.descriptor = replace(
        k.descriptor, args=k.descriptor.args + extra, workgroup_ids=(True, True, True), kernarg_bytes=24
    )
    result = run(k, (4, 3, 2), y, workgroups=range(1, 24))
    z, yy, x = np.meshgrid(np.arange(2), np.arange(3), np.arange(4), indexing="ij")
    for i, axis in enumerate((x, yy, z)):
        np.testing.assert_array_equal(y.reshape(24, 8)[1:, i], axis.ravel()[1:])
    assert not y[0, 0, 0].any() and (y.reshape(24, 8)[1:, 3:7] == [4, 3, 2, 64 | 3 << 16]).all()
    assert result.workgroups == 23


def test_unreached_code_is_not_refused_and_reached_code_is():
    body = "\ts_branch .END\n\tv_frobnicate v0\n.END:\n\ts_nop 0"
    launch(body, np.zeros(4))
    with pytest.raises(UnknownInstruction, match="v_frobnicate"):
        launch("\ts_cbranch_scc0 .END\n\tv_frobnicate v0\n.END:\n\ts_nop 0", np.zeros(4))


def test_running_past_the_end_and_odd_blocks():
    k = kernel("\ts_nop 0")
    k.program.instructions = k.program.instructions[:-1]
    with pytest.raises(EmulationError, match="past the end"):
        run(k, (1,), np.zeros(4), np.zeros(4))
    with pytest.raises(ValueError, match="block"):
        run(kernel("\ts_nop 0", threads=100), (1,), np.zeros(4), np.zeros(4))
    with pytest.raises(ValueError, match="lds_bytes"):
        run(kernel("\ts_nop 0"), (1,), np.zeros(4), np.zeros(4), lds_bytes=163841)


def test_counts_by_class_and_lane_instructions():
    body = "\tv_mov_b32_e32 v1, 0\n\ts_mov_b32 s4, 0\n\ts_nop 0\n\tds_read_b32 v2, v1\n\ts_barrier"
    result = launch(body, np.zeros(4), grid=3, threads=128, lds=16)
    assert result.by_class == {"valu": 6, "salu": 6, "nop": 6, "lds": 6, "barrier": 6, "branch": 6}
    assert result.wave_instructions == 36 and result.lane_instructions == 12 * 64 + 24


def test_two_runs_are_identical():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 50, 256).astype(np.int32)
    body = (
        POINTERS
        + "\tglobal_load_dword v2, v1, s[4:5]\n\tv_mov_b32_e32 v3, 0\n\tglobal_atomic_add v2, v3, v2, s[6:7] sc0\n"
        "\tglobal_store_dword v1, v2, s[6:7] offset:16"
    )
    runs = []
    for _ in range(2):
        y = np.zeros(300, np.int32)
        launch(body, x, y, threads=256)
        runs.append(y.tobytes())
    assert runs[0] == runs[1]
