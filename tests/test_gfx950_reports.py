"""What went wrong for people who do this job, with the right values: division, denormals, scales, waits, fp8, int8."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from gfx950_machine import Machine, launch

from mxfp4lab.gfx950 import UnknownInstruction, compile_kernel, run
from mxfp4lab.gfx950.isa.numbers import E2M1, E4M3, E5M2
from mxfp4lab.gfx950.isa.waits import awaited
from mxfp4lab.gfx950.machine.errors import UnwaitedData


@triton.jit
def unary(x, y, F: tl.constexpr, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + o)
    if F == "exp2":
        v = tl.exp2(v)
    elif F == "sqrt":
        v = tl.sqrt(v)
    elif F == "rsqrt":
        v = tl.rsqrt(v)
    elif F == "sigmoid":
        v = tl.sigmoid(v)
    tl.store(y + o, v)


@triton.jit
def divide(x, z, y, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + o, tl.load(x + o) / tl.load(z + o))


def apply(function: str, values) -> np.ndarray:
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    x[: len(values)] = values
    run(compile_kernel(unary, {"x": "*fp32", "y": "*fp32"}, {"F": function, "N": 64}, {"num_warps": 1}), (1,), x, y)
    return y[: len(values)]


def test_quotients_are_ieee_s():
    rng = np.random.default_rng(1)
    n = 1 << 14
    bits = rng.integers(0, 1 << 32, (2, n), dtype=np.uint32)
    edges = np.array([0, 1, 2, 22, 23, 24, 103, 126, 127, 128, 200, 230, 252, 253, 254, 255], np.uint32)
    bits[:, n // 2 :] = rng.choice(edges, (2, n // 2)) << 23 | bits[:, n // 2 :] & 0x807FFFFF
    bits[:, : n // 4] &= np.array([[0xFFF80000], [0xFFE00000]], np.uint32)  # few bits: quotients in the middle
    x, z = (row.copy() for row in bits.view(np.float32))
    x[:4], z[:4] = [1, 5e-38, 2.0**60, 0], [2.0**127, 6, 2.0**-40, 0]
    y = np.zeros(n, np.float32)
    compiled = compile_kernel(divide, dict.fromkeys("xzy", "*fp32"), {"N": 1024}, {"num_warps": 4})
    run(compiled, (n // 1024,), x, z, y)
    with np.errstate(all="ignore"):
        expected = x / z
    np.testing.assert_array_equal(y, expected)
    assert (np.signbit(y) == np.signbit(expected))[~np.isnan(expected)].all()


def test_transcendentals_flush_denormals():
    np.testing.assert_array_equal(apply("exp2", [-127, -130, -149, -126]), [0, 0, 0, 2.0**-126])
    np.testing.assert_array_equal(apply("rsqrt", [2.0**-127, 1e-40]), [np.inf, np.inf])
    machine = Machine(1)
    machine.v(1, np.float32)[:] = 2.0**-127
    machine.v(2, np.float32)[:] = 2.0**127
    machine.execute("v_sqrt_f32_e32 v3, v1", "v_rcp_f32_e32 v4, v2", "v_log_f32_e32 v5, v1", "v_rcp_f32_e32 v6, v1")
    got = [float(machine.v(n, np.float32)[0, 0]) for n in range(3, 7)]
    assert got == [0, 0, -np.inf, np.inf]
    assert apply("sigmoid", [-88.0])[0] == pytest.approx(6.05e-39, rel=1e-2)


def scaled(machine: Machine, a: str, b: str) -> np.ndarray:
    machine.execute(f"v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[40:43], v[44:47], 0, {a}, {b} "
                    "op_sel_hi:[0,0,0] cbsz:4 blgp:4")  # fmt: skip
    return np.stack([machine.v(r, np.float32)[0] for r in range(4)])


@pytest.mark.parametrize("scales", [(254, 0), (0, 254), (253, 1), (252, 2), (254, 99), (100, 253), (253, 60)])
def test_scales_at_the_ends_whose_product_is_in_range(scales):
    machine = Machine(1)
    data = np.random.default_rng(0).integers(0, 1 << 32, (8, 1, 64), dtype=np.uint32)
    for n in range(8):
        machine.v(40 + n)[:] = data[n]
    machine.v(50)[:], machine.v(51)[:] = 127, 127
    plain = scaled(machine, "v50", "v51").astype(np.float64)
    machine.v(50)[:], machine.v(51)[:] = scales
    with np.errstate(over="ignore"):
        expected = (plain * 2.0 ** (sum(scales) - 254)).astype(np.float32)
    np.testing.assert_array_equal(scaled(machine, "v50", "v51"), expected)


def test_an_inline_constant_is_the_scale_of_its_exponent():
    machine = Machine(1)
    for n in range(40, 48):
        machine.v(n)[:] = 0x22222222  # 1.0
    machine.v(50)[:] = 127
    assert (scaled(machine, "1.0", "v50") == 128).all() and (scaled(machine, "v50", "2.0") == 256).all()


CARELESS = """
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\ts_waitcnt lgkmcnt(0)
{loads}
\t{wait}
\tv_add_u32_e32 v2, v2, v2
\ts_waitcnt vmcnt(0) lgkmcnt(0)
\tglobal_store_dword v1, v2, s[6:7]"""
LOAD = "\tglobal_load_dword v2, v1, s[4:5]"
LATER = "\n\tglobal_load_dword v3, v1, s[4:5]"


@pytest.mark.parametrize(
    ("loads", "wait", "found"),
    [
        (LOAD, "s_nop 0", True),
        (LOAD, "s_waitcnt vmcnt(0)", False),
        (LOAD, "s_waitcnt vmcnt(1)", True),
        (LOAD, "s_waitcnt 0x0f70", False),
        (LOAD + LATER, "s_waitcnt vmcnt(1)", False),
        (LOAD + LATER, "s_waitcnt vmcnt(2)", True),
        ("\ts_load_dword s8, s[4:5], 0x0\n\tv_mov_b32_e32 v2, s8", "s_nop 0", True),
        ("\ts_load_dword s8, s[4:5], 0x0\n\ts_load_dword s9, s[4:5], 0x0\n\ts_waitcnt lgkmcnt(1)\n"
         "\tv_mov_b32_e32 v2, s8", "s_nop 0", True),  # scalar loads come back in any order
        ("\tds_bpermute_b32 v2, v1, v0", "s_nop 0", True),
        ("\tds_bpermute_b32 v2, v1, v0\n\tds_bpermute_b32 v3, v1, v0", "s_waitcnt lgkmcnt(1)", False),
        (LOAD, "s_waitcnt lgkmcnt(0)", True),
        ("\tglobal_atomic_add v2, v1, v0, s[4:5] sc0", "s_waitcnt vmcnt(0)", False),
        (LOAD + "\n\tv_mov_b32_e32 v2, 0", "s_waitcnt vmcnt(0)", True),  # the load arrives behind the move
        (LOAD + "\n" + LOAD, "s_waitcnt vmcnt(0)", False),
    ],
)  # fmt: skip
def test_a_register_that_nobody_waited_for(loads, wait, found):
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    findings = launch(CARELESS.format(loads=loads, wait=wait), x, y, waits=True).findings
    assert bool(findings) == found
    for finding in findings:
        assert isinstance(finding, UnwaitedData) and finding.first.index < finding.second.index
        assert finding.first.text in str(finding) and finding.second.text in str(finding)


def test_waits_follow_loops_and_branches():
    body = """
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\ts_movk_i32 s8, 0x4
\ts_waitcnt lgkmcnt(0)
\tglobal_load_dword v2, v1, s[4:5]
.LOOP:
\ts_waitcnt vmcnt(0)
\tv_add_u32_e32 v3, v2, v3
\t{load}
\ts_sub_i32 s8, s8, 1
\ts_cmp_lg_u32 s8, 0
\ts_cbranch_scc1 .LOOP
\tv_add_u32_e32 v3, {used}, v3
\ts_waitcnt vmcnt(0)
\tglobal_store_dword v1, v3, s[6:7]"""
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    load = "global_load_dword v2, v1, s[4:5]"
    assert not launch(body.format(load=load, used="v1"), x, y, waits=True).findings
    (found,) = launch(body.format(load=load, used="v2"), x, y, waits=True).findings
    assert (found.first.index, found.second.index) == (7, 11)


def test_one_reading_of_s_waitcnt():
    machine = launch("\ts_waitcnt 0x0f70\n\ts_waitcnt 0xc07f\n\ts_waitcnt 0xcf7f", np.zeros(4))
    assert machine.findings == []
    from gfx950_machine import kernel

    program = kernel(LOAD + "\n\ts_waitcnt 0x0f70\n" + LOAD + "\n\ts_waitcnt 0x0f70").program
    assert [awaited(program[i]) for i in (1, 3)] == [{"vmcnt": 0}] * 2


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_conversions_to_and_from_fp8_are_torch_s(kind):
    dtype, table = (torch.float8_e4m3fn, E4M3) if kind == "fp8" else (torch.float8_e5m2, E5M2)
    codes = torch.arange(256, dtype=torch.uint8)
    np.testing.assert_array_equal(table, codes.view(dtype).float().numpy())
    x = np.concatenate((table[np.isfinite(table)], np.random.default_rng(0).standard_normal(4096) * 8)).astype(
        np.float32
    )
    x = np.concatenate((x, (x[:-1] + x[1:]) / 2))[:8064].reshape(-1, 64)
    machine = Machine(len(x))
    machine.v(1, np.float32)[:], machine.v(2, np.float32)[:] = x, -x
    machine.v(3)[:] = 0xAAAABBBB
    machine.execute(f"v_cvt_scalef32_pk_{kind}_f32 v3, v1, v2, 1.0 op_sel:[0,0,0,1]",
                    f"v_cvt_scalef32_pk_f32_{kind} v[4:5], v3, 2.0 op_sel:[1,0,0]")  # fmt: skip
    expected = torch.from_numpy(x).to(dtype)
    low = expected.view(torch.uint8).numpy().astype(np.uint32)
    np.testing.assert_array_equal(machine.v(3) & 0xFFFF, np.full(x.shape, 0xBBBB))
    np.testing.assert_array_equal(machine.v(3) >> 16, low | (low ^ 0x80) << 8)
    np.testing.assert_array_equal(machine.v(4, np.float32), 2 * expected.float().numpy())


def test_a_mode_bit_makes_fp8_saturate():
    machine = Machine(1)
    machine.v(1, np.float32)[:] = 1e6
    machine.execute("v_cvt_pk_fp8_f32 v2, v1, v1", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1",
                    "v_cvt_pk_fp8_f32 v3, v1, v1")  # fmt: skip
    assert int(machine.v(2)[0, 0]) & 0xFF == 0x7F and int(machine.v(3)[0, 0]) & 0xFF == 0x7E
    for place in ("2, 2", "4, 2", "0, 4"):  # rounding and denormals: the emulator's own mode does not change
        with pytest.raises(UnknownInstruction, match="HW_REG_MODE"):
            machine.execute(f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {place}), 3")


@triton.jit
def dot_scaled(a_ptr, as_ptr, b_ptr, bs_ptr, c_ptr, M: tl.constexpr, K: tl.constexpr, F: tl.constexpr):
    r = tl.arange(0, M)
    a = tl.load(a_ptr + r[:, None] * K + tl.arange(0, K)[None, :])
    a_scale = tl.load(as_ptr + r[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    b = tl.load(b_ptr + r[None, :] * (K // 2) + tl.arange(0, K // 2)[:, None])
    b_scale = tl.load(bs_ptr + r[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    tl.store(c_ptr + r[:, None] * M + r[None, :], tl.dot_scaled(a, a_scale, F, b, b_scale, "e2m1"))


@pytest.mark.parametrize(("kind", "size", "k"), [("e4m3", 16, 128), ("e5m2", 16, 256), ("e4m3", 32, 128)])
def test_fp8_times_fp4(kind, size, k):
    table = E4M3 if kind == "e4m3" else E5M2
    rng = np.random.default_rng(k)
    a = rng.choice(
        np.flatnonzero(np.isfinite(table) & (np.abs(table) <= 4) & (np.abs(table) >= 0.25)), (size, k)
    ).astype(np.uint8)
    b = rng.integers(0, 256, (size, k // 2), dtype=np.uint8)
    scales = rng.integers(126, 129, (2, size, k // 32), dtype=np.uint8)
    c = np.zeros((size, size), np.float32)
    pointers = {**dict.fromkeys(("a_ptr", "as_ptr", "b_ptr", "bs_ptr"), "*u8"), "c_ptr": "*fp32"}
    options = {"num_warps": 4, "matrix_instr_nonkdim": size}
    compiled = compile_kernel(dot_scaled, pointers, {"M": size, "K": k, "F": kind}, options)
    assert any("v_mfma_scale" in i.mnemonic for i in compiled.program)
    run(compiled, (1,), a, scales[0], b, scales[1], c)
    pairs = np.stack([E2M1[b & 15], E2M1[b >> 4]], -1).reshape(size, k)
    left, right = (np.ldexp(x.astype(np.float64), scale.repeat(32, 1).astype(int) - 127)
                   for x, scale in ((table[a], scales[0]), (pairs, scales[1])))  # fmt: skip
    np.testing.assert_array_equal(c, left @ right.T)  # few bits: exact in any order


@triton.jit
def dot_int8(a_ptr, b_ptr, c_ptr, M: tl.constexpr, K: tl.constexpr):
    r, k = tl.arange(0, M), tl.arange(0, K)
    a = tl.load(a_ptr + r[:, None] * K + k[None, :])
    b = tl.load(b_ptr + r[None, :] * K + k[:, None])
    tl.store(c_ptr + r[:, None] * M + r[None, :], tl.dot(a, b, out_dtype=tl.int32))


@pytest.mark.parametrize(("nonkdim", "k"), [(16, 32), (16, 128), (32, 64)])
def test_int8_dot(nonkdim, k):
    a, b = (np.random.default_rng(k + i).integers(-128, 128, (64, k)).astype(np.int8) for i in range(2))
    c = np.zeros((64, 64), np.int32)
    options = {"num_warps": 4, "matrix_instr_nonkdim": nonkdim}
    compiled = compile_kernel(dot_int8, {"a_ptr": "*i8", "b_ptr": "*i8", "c_ptr": "*i32"}, {"M": 64, "K": k}, options)
    assert any("v_mfma_i32" in i.mnemonic for i in compiled.program)
    run(compiled, (1,), a, b, c)
    np.testing.assert_array_equal(c, a.astype(int) @ b.astype(int).T)


@pytest.mark.parametrize("name", ["add_u32", "sub_u32", "and_b32", "or_b32", "xor_b32", "max_i32", "min_u32"])
def test_atomics_do_not_race_with_each_other(name):
    body = f"\tv_mov_b32_e32 v1, 0\n\tds_{name} v1, v0\n\tds_{name} v1, v0"
    assert not launch(body, np.zeros(4), threads=256, lds=1024, races=True).findings


def test_signed_bytes_go_to_lds_extended():
    data = np.arange(128, 192, dtype=np.uint8)
    x = np.zeros(64, np.uint32)
    body = """
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\ts_waitcnt lgkmcnt(0)
\ts_mov_b32 s8, s4
\ts_mov_b32 s9, s5
\ts_mov_b32 s10, 64
\ts_mov_b32 s11, 0x27000
\ts_mov_b32 m0, 0
\ts_nop 0
\tbuffer_load_sbyte v0, s[8:11], 0 offen lds
\ts_waitcnt vmcnt(0)
\tv_lshlrev_b32_e32 v1, 2, v0
\tds_read_b32 v2, v1
\ts_waitcnt lgkmcnt(0)
\tglobal_store_dword v1, v2, s[6:7]"""
    assert not launch(body, data, x, lds=256, waits=True).findings
    np.testing.assert_array_equal(x.view(np.int32), data.view(np.int8))


def test_swizzle_rotates_and_names_what_it_does_not_know():
    machine = Machine(1, lds=64)
    machine.v(1)[:] = np.arange(64)
    machine.execute("ds_swizzle_b32 v2, v1 offset:0xc020", "ds_swizzle_b32 v3, v1 offset:0xc438")
    lane = np.arange(64)
    np.testing.assert_array_equal(machine.v(2)[0], lane // 32 * 32 + (lane + 1) % 32)
    np.testing.assert_array_equal(machine.v(3)[0], lane // 32 * 32 + (lane % 32 & 24) + (lane - 1) % 8)
    with pytest.raises(UnknownInstruction, match="FFT"):
        machine.execute("ds_swizzle_b32 v2, v1 offset:0xe000")


def test_a_buffer_offset_that_wraps_is_refused_by_name():
    machine = Machine(1)
    buffer = machine.memory.add("x", np.zeros(256, np.uint8))
    for n, value in ((4, buffer.base & 0xFFFFFFFF), (5, buffer.base >> 32), (6, 256), (7, 0x27000)):
        machine.s(n)[:] = value
    machine.v(1)[:] = 0xFFFFFFFC
    with pytest.raises(UnknownInstruction, match="wraps past 2"):
        machine.execute("buffer_load_dword v2, v1, s[4:7], 0 offen offset:8")
