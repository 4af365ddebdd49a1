"""Scalar instructions, lane masks, 64-bit and packed arithmetic, lane movement."""

from __future__ import annotations

import numpy as np
import pytest
from gfx950_machine import Machine

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
EDGES = [0, 1, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x00100006, 0xFFFF0000, 0x12345678, 0xFFFFFF80]


def s32(x):
    return x - (1 << 32) if x >> 31 else x


SCALAR = {  # mnemonic: (result bits, source bits, truth -> (value, scc or None))
    "s_add_u32": (32, (32, 32), lambda a, b: (a + b, a + b > M32)),
    "s_sub_u32": (32, (32, 32), lambda a, b: (a - b, b > a)),
    "s_pack_lh_b32_b16": (32, (32, 32), lambda a, b: (a & 0xFFFF | b & 0xFFFF0000, None)),
    "s_brev_b32": (32, (32,), lambda a: (int(f"{a:032b}"[::-1], 2), None)),
    "s_bcnt1_i32_b64": (32, (64,), lambda a: (bin(a).count("1"), a != 0)),
    "s_ff1_i32_b32": (32, (32,), lambda a: ((a & -a).bit_length() - 1 if a else -1, None)),
    "s_ff1_i32_b64": (32, (64,), lambda a: ((a & -a).bit_length() - 1 if a else -1, None)),
    "s_flbit_i32_b32": (32, (32,), lambda a: (32 - a.bit_length() if a else -1, None)),
    "s_flbit_i32_b64": (32, (64,), lambda a: (64 - a.bit_length() if a else -1, None)),
    "s_flbit_i32": (
        32,
        (32,),
        lambda a: (32 - (a ^ (0xFFFFFFFF if a >> 31 else 0)).bit_length() if 0 < a < 0xFFFFFFFF else -1, None),
    ),
}


@pytest.mark.parametrize("mnemonic", sorted(SCALAR))
def test_scalar_instruction(mnemonic):
    bits, sources, truth = SCALAR[mnemonic]
    rng = np.random.default_rng(len(mnemonic))
    machine = Machine(60)
    operands, values = [], []
    for i, width in enumerate(sources):
        n = 8 + 4 * i
        words = rng.integers(0, 1 << 32, (2, 60), dtype=np.uint32)
        words[0, : len(EDGES)] = rng.permutation(np.array(EDGES, np.uint32))
        words[1, ::5] = 0
        machine.s(n)[:], machine.s(n + 1)[:] = words
        operands.append(f"s{n}" if width == 32 else f"s[{n}:{n + 1}]")
        values.append([int(lo) | (int(hi) << 32 if width == 64 else 0) for lo, hi in words.T])
    machine.group.scc[:] = rng.random(60) < 0.5
    before = machine.group.scc.copy()
    machine.execute(f"{mnemonic} {'s4' if bits == 32 else 's[4:5]'}, " + ", ".join(operands))
    for wave, row in enumerate(zip(*values, strict=True)):
        value, scc = truth(*row)
        got = int(machine.s(4)[wave]) if bits == 32 else int(machine.pair(4)[wave])
        assert got == value & ((1 << bits) - 1), (wave, [hex(x) for x in row])
        assert bool(machine.group.scc[wave]) == (before[wave] if scc is None else bool(scc))


def test_carry_chains():
    machine = Machine(3)
    machine.s(4)[:], machine.s(5)[:] = [M32, M32, 3], [0, M32, 5]
    machine.s(6)[:], machine.s(7)[:] = [1, 1, 4], [0, 0, 6]
    machine.execute("s_add_u32 s8, s4, s6", "s_addc_u32 s9, s5, s7", "s_cselect_b32 s10, 1, 0")
    assert [int(x) for x in machine.pair(8)] == [(1 << 32), 0, (11 << 32) + 7]
    assert list(machine.s(10)) == [0, 1, 0]
    machine.execute("s_sub_u32 s8, s4, s6", "s_subb_u32 s9, s5, s7")
    assert [int(x) for x in machine.pair(8)] == [M32 - 1, (M32 << 32) + M32 - 1, ((5 << 32) + 3 - (6 << 32) - 4) & M64]


def test_immediates_compare_and_select():
    machine = Machine(2)
    machine.s(4)[:] = [5, M32]
    machine.execute(
        "s_addk_i32 s4, 0xfffe", "s_movk_i32 s5, 0x8000", "s_cmpk_lt_i32 s4, 0xffff", "s_cselect_b32 s6, s4, 7"
    )
    assert list(machine.s(4, np.int32)) == [3, -3] and list(machine.s(5, np.int32)) == [-0x8000] * 2
    assert list(machine.s(6, np.int32)) == [7, -3]
    machine.execute("s_cmp_eq_u32 s4, 3", "s_cselect_b32 s6, 9, s6")
    machine.execute("s_bitcmp1_b32 s4, 31", "s_cselect_b64 s[8:9], -1, 0")
    assert list(machine.s(6, np.int32)) == [9, -3] and [int(x) for x in machine.pair(8)] == [0, M64]


def test_saveexec_and_what_follows():
    machine = Machine(2)
    machine.pair(10)[:] = [0b1100, 0]
    machine.exec(0b1010)
    machine.execute("s_and_saveexec_b64 s[4:5], s[10:11]")
    assert [int(x) for x in machine.pair(126)] == [0b1000, 0] and [int(x) for x in machine.pair(4)] == [0b1010] * 2
    assert list(machine.group.scc) == [True, False]
    machine.v(1)[:] = 0
    machine.execute("v_mov_b32_e32 v1, 1", "s_or_b64 exec, exec, s[4:5]", "v_mov_b32_e32 v2, 2")
    assert np.flatnonzero(machine.v(1)[0]).tolist() == [3] and not machine.v(1)[1].any()
    assert np.flatnonzero(machine.v(2)[1]).tolist() == [1, 3]


def test_vector_carry_and_64_bit():
    rng = np.random.default_rng(2)
    machine = Machine(2)
    a, b = (rng.integers(0, 1 << 64, (2, 64), dtype=np.uint64) for _ in range(2))
    for n, x in ((2, a), (4, b)):
        machine.v(n)[:], machine.v(n + 1)[:] = x & np.uint64(M32), x >> np.uint64(32)
    machine.s(20)[:], machine.s(21)[:] = 7, 1
    machine.execute(
        "v_add_co_u32_e32 v6, vcc, v2, v4",
        "v_addc_co_u32_e32 v7, vcc, v3, v5, vcc",
        "v_lshl_add_u64 v[8:9], v[2:3], 0, v[4:5]",
        "v_lshl_add_u64 v[10:11], v[2:3], 4, v[4:5]",
        "v_lshlrev_b64 v[12:13], v2, v[4:5]",
        "v_ashrrev_i64 v[14:15], 9, v[2:3]",
        "v_mad_u64_u32 v[16:17], s[4:5], v2, v4, v[2:3]",
        "v_mad_i64_i32 v[18:19], s[6:7], v2, v4, v[2:3]",
        "v_lshl_add_u64 v[22:23], s[20:21], 0, v[2:3]",
        "v_mov_b64_e32 v[24:25], v[4:5]",
    )

    def wide(n):
        return machine.v(n).astype(np.uint64) | machine.v(n + 1).astype(np.uint64) << np.uint64(32)

    np.testing.assert_array_equal(wide(6), a + b)
    np.testing.assert_array_equal(machine.mask(), a + b < a)
    np.testing.assert_array_equal(wide(8), a + b)
    np.testing.assert_array_equal(wide(10), (a << np.uint64(4)) + b)
    np.testing.assert_array_equal(wide(12), b << (a & np.uint64(63)))
    np.testing.assert_array_equal(wide(14).view(np.int64), a.view(np.int64) >> np.int64(9))
    low = np.uint64(M32)
    np.testing.assert_array_equal(wide(16), (a & low) * (b & low) + a)
    expected = [(s32(int(x) & M32) * s32(int(y) & M32) + int(x)) & M64 for x, y in zip(a.flat, b.flat, strict=True)]
    np.testing.assert_array_equal(wide(18).ravel(), np.array(expected, np.uint64))
    np.testing.assert_array_equal(wide(22), a + np.uint64((1 << 32) + 7))
    np.testing.assert_array_equal(wide(24), b)


def test_compares_write_masks_of_active_lanes_and_cndmask_reads_them():
    machine = Machine(2)
    x = np.random.default_rng(3).standard_normal((2, 64)).astype(np.float32)
    x[0, :3] = [np.nan, 0.0, -0.0]
    machine.v(1, np.float32)[:] = x
    machine.execute(
        "v_cmp_gt_f32_e32 vcc, 0, v1",
        "v_cmp_nlt_f32_e64 s[4:5], v1, 0",
        "v_cmp_class_f32_e64 s[6:7], v1, 3",
        "v_cmp_o_f32_e64 s[8:9], v1, v1",
    )
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(machine.mask(), x < 0)
        np.testing.assert_array_equal(machine.mask(4), ~(x < 0))
    np.testing.assert_array_equal(machine.mask(6), np.isnan(x))
    np.testing.assert_array_equal(machine.mask(8), ~np.isnan(x))
    machine.execute("v_cndmask_b32_e32 v2, 5, v1, vcc", "v_cndmask_b32_e64 v3, -v1, v1, s[4:5]")
    np.testing.assert_array_equal(machine.v(2), np.where(x < 0, x.view(np.uint32), 5))
    machine.execute("v_cmp_lt_u32_e64 s[10:11], 3, s12")
    assert not machine.mask(10).any()


def test_cmpx_writes_exec():
    machine = Machine(1)
    machine.v(1)[:] = np.arange(64)
    machine.execute("v_cmpx_gt_u32_e32 vcc, 8, v1", "v_mov_b32_e32 v2, 1")
    assert np.flatnonzero(machine.v(2)[0]).tolist() == list(range(8)) == np.flatnonzero(machine.mask()[0]).tolist()


@pytest.mark.parametrize(
    ("control", "source", "valid"),
    [
        ("quad_perm:[3,2,0,0]", lambda i: i // 4 * 4 + [3, 2, 0, 0][i % 4], lambda i: True),
        ("row_shl:3", lambda i: i + 3, lambda i: i % 16 + 3 < 16),
        ("row_shr:1", lambda i: i - 1, lambda i: i % 16 >= 1),
        ("row_ror:5", lambda i: i // 16 * 16 + (i - 5) % 16, lambda i: True),
        ("row_mirror", lambda i: i ^ 15, lambda i: True),
        ("row_half_mirror", lambda i: i ^ 7, lambda i: True),
        ("row_bcast:15", lambda i: i // 16 * 16 - 1, lambda i: i > 15),
        ("row_bcast:31", lambda i: 31, lambda i: i > 31),
        ("row_newbcast:4", lambda i: i // 16 * 16 + 4, lambda i: True),
        ("wave_shr:1", lambda i: i - 1, lambda i: i > 0),
    ],
)
@pytest.mark.parametrize("bound", [False, True])
def test_dpp(control, source, valid, bound):
    machine = Machine(2)
    machine.v(1)[:] = np.arange(100, 228).reshape(2, 64)
    machine.v(2)[:] = 7
    off = (5, 20)  # a source lane that is off counts as invalid
    machine.exec(M64 & ~sum(1 << i for i in off))
    machine.execute(
        f"v_add_u32_dpp v2, v1, v1 {control} row_mask:0xd bank_mask:0xf" + (" bound_ctrl:1" if bound else "")
    )
    for wave in range(2):
        for i in range(64):
            good = valid(i) and source(i) not in off
            written = i not in off and i // 16 != 1 and (good or bound)
            own = 100 + 64 * wave + i
            moved = 100 + 64 * wave + source(i) if good else 0
            assert int(machine.v(2)[wave, i]) == (moved + own if written else 7), (control, i)


def test_sdwa_selects_extends_and_preserves():
    machine = Machine(1)
    machine.v(1)[:], machine.v(2)[:], machine.v(3)[:] = 0x80C1F245, 0x01020304, 0xAABBCCDD
    machine.v(4)[:] = machine.v(5)[:] = machine.v(6)[:] = 0xAABBCCDD
    machine.execute(
        "v_or_b32_sdwa v3, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1",
        "v_add_u32_sdwa v4, sext(v1), v2 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:DWORD",
        "v_mov_b32_sdwa v5, sext(v1) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1",
        "v_mov_b32_sdwa v6, v1 dst_sel:WORD_1 dst_unused:UNUSED_SEXT src0_sel:WORD_1",
        "v_mov_b32_sdwa v7, v1 dst_sel:BYTE_3 dst_unused:UNUSED_PAD src0_sel:BYTE_0",
    )
    got = [int(machine.v(n)[0, 0]) for n in range(3, 8)]
    byte = (0xFFFFFFC1 + 0x01020304) & 0xFF
    assert got == [0xF2 | 0x0102, 0xAA00CCDD | byte << 16, 0xFFFF80C1, 0x80C10000, 0x45000000]


def test_sixteen_bit_results_zero_the_high_half_or_keep_it():
    machine = Machine(1)
    machine.v(1)[:], machine.v(2)[:], machine.v(3)[:], machine.v(4)[:] = 0x0003FFFF, 0x00050002, 0xAAAA5555, 0xAAAA5555
    machine.execute(
        "v_add_u16_e32 v3, v1, v2",
        "v_bitop3_b16 v4, v1, v2, v2 bitop3:0xc op_sel:[1,0,0,1]",
        "v_lshlrev_b16_e32 v5, 4, v1",
        "v_add_u16_e64 v6, v1, v2 clamp",
    )
    assert [int(machine.v(n)[0, 0]) for n in (3, 4, 5, 6)] == [1, (~3 & 2) << 16 | 0x5555, 0xFFF0, 0xFFFF]


def test_packed_halves():
    machine = Machine(1)
    machine.v(1)[:], machine.v(2)[:] = 0x7FFF0001, 0x00018002
    machine.execute(
        "v_pk_add_u16 v3, v1, v2",
        "v_pk_sub_i16 v4, v1, v2 clamp",
        "v_pk_add_u16 v5, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]",
        "v_pk_lshrrev_b16 v6, 1, v2 op_sel_hi:[0,1]",
        "v_pk_sub_u16 v7, v2, v1 clamp",
    )
    assert [int(machine.v(n)[0, 0]) for n in range(3, 8)] == [
        0x80008003,
        0x7FFE7FFF,
        0x00020001,
        0x00004001,
        0x00008001,
    ]


def test_packed_floats():
    machine = Machine(1)
    for n, value in ((2, 1.5), (3, -2.0), (4, 10.0), (5, 100.0)):
        machine.v(n, np.float32)[:] = value
    machine.s(8, np.float32)[:], machine.s(9, np.float32)[:] = 0.5, 0.25
    machine.execute(
        "v_pk_mul_f32 v[6:7], v[2:3], v[4:5]",
        "v_pk_add_f32 v[10:11], v[2:3], s[8:9] op_sel_hi:[1,0] neg_lo:[1,0]",
        "v_pk_fma_f32 v[12:13], v[2:3], v[4:5], v[2:3] op_sel:[1,0,0]",
        "v_pk_mov_b32 v[14:15], v[2:3], v[4:5] op_sel:[1,0]",
    )
    got = [float(machine.v(n, np.float32)[0, 0]) for n in (6, 7, 10, 11, 12, 13, 14, 15)]
    assert got == [15.0, -200.0, -1.0, -1.5, -18.5, -202.0, -2.0, 10.0]


def test_lanes_to_scalars_and_back():
    machine = Machine(2)
    machine.v(1)[:] = np.arange(128).reshape(2, 64)
    machine.s(8)[:] = [3, 70]  # the lane number is taken modulo 64
    machine.exec(np.arange(128).reshape(2, 64) % 64 >= np.array([[5], [64]]))
    machine.execute(
        "v_readfirstlane_b32 s4, v1",
        "v_readlane_b32 s5, v1, s8",
        "v_writelane_b32 v2, s5, 9",
        "v_mbcnt_lo_u32_b32 v3, exec_lo, 0",
        "v_mbcnt_hi_u32_b32 v4, exec_hi, v3",
    )
    assert list(machine.s(4)) == [5, 64] and list(machine.s(5)) == [3, 70]
    assert machine.v(2)[0, 9] == 3 and machine.v(2)[1, 9] == 70 and np.count_nonzero(machine.v(2)) == 2
    assert machine.v(4)[0, 63] == 58


def test_permutes_and_swaps():
    machine = Machine(1, lds=64)
    lane = np.arange(64)
    machine.v(1)[:], machine.v(2)[:] = lane + 100, lane + 200
    machine.v(3)[:] = (lane * 7 % 64) * 4
    machine.execute(
        "ds_bpermute_b32 v4, v3, v1",
        "ds_swizzle_b32 v6, v1 offset:0x801f",
        "ds_swizzle_b32 v11, v1 offset:0x801b",
        "ds_bpermute_b32 v12, v3, v1 offset:8",
    )
    np.testing.assert_array_equal(machine.v(4)[0], lane * 7 % 64 + 100)
    np.testing.assert_array_equal(machine.v(6)[0], lane // 4 * 4 + np.array([3, 3, 1, 0])[lane % 4] + 100)
    np.testing.assert_array_equal(machine.v(11)[0], lane // 4 * 4 + 3 - lane % 4 + 100)
    np.testing.assert_array_equal(machine.v(12)[0], (lane * 7 + 2) % 64 + 100)
    a, b = lane + 100, lane + 200
    machine.execute("v_permlane16_swap_b32_e32 v1, v2")
    upper = lane // 16 % 2 == 1
    np.testing.assert_array_equal(machine.v(1)[0], np.where(upper, b[(lane - 16) % 64], a))
    np.testing.assert_array_equal(machine.v(2)[0], np.where(~upper, a[(lane + 16) % 64], b))
    machine.v(1)[:], machine.v(2)[:] = a, b
    machine.execute("v_permlane32_swap_b32_e32 v1, v2", "v_swap_b32 v7, v1")
    np.testing.assert_array_equal(machine.v(7)[0], np.where(lane >= 32, b[(lane - 32) % 64], a))
    np.testing.assert_array_equal(machine.v(2)[0], np.where(lane < 32, a[(lane + 32) % 64], b))
