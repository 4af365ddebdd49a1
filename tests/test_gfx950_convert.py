"""Conversions against torch and the format models; matrix instructions against plain loops over their layout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gfx950_machine import Machine, launch

from mxfp4lab import formats
from mxfp4lab.gfx950.isa.numbers import e2m1_codes

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def all_bf16() -> np.ndarray:
    """Every bf16 value as float32, [1024, 64]."""
    return (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32).reshape(1024, 64)


def test_bf16_rounding_is_torch_s():
    machine = Machine(1024)
    bits = np.random.default_rng(0).integers(0, 1 << 32, (1024, 64), dtype=np.uint32)
    bits[:, :8] = bits[:, :8] & 0xFFFF0000 | 0x8000  # ties
    x, y = bits.view(np.float32), all_bf16()
    machine.v(1)[:], machine.v(2, np.float32)[:] = bits, y
    machine.execute("v_cvt_pk_bf16_f32 v3, v1, v2")
    got = machine.v(3).view(np.uint16).reshape(1024, 64, 2)
    for half, value in ((0, x), (1, y)):
        expected = torch.from_numpy(value).bfloat16().view(torch.int16).numpy().view(np.uint16)
        number = ~np.isnan(value)
        np.testing.assert_array_equal(got[..., half][number], expected[number])
        back = (got[..., half].astype(np.uint32) << 16).view(np.float32)
        assert np.isnan(back[~number]).all()


def test_half_precision_conversions_are_torch_s():
    machine = Machine(1024)
    bits = np.random.default_rng(1).integers(0, 1 << 32, (1024, 64), dtype=np.uint32)
    x = np.where(np.isnan(bits.view(np.float32)), np.float32(0), bits.view(np.float32))
    x[:, ::2] = np.random.default_rng(2).standard_normal((1024, 32)) * 3
    machine.v(1, np.float32)[:] = x
    machine.v(2)[:] = 0xFFFFFFFF
    machine.execute("v_cvt_f16_f32_e32 v2, v1", "v_cvt_pkrtz_f16_f32 v3, v1, v1", "v_cvt_f32_f16_e32 v4, v2")
    expected = torch.from_numpy(x).half()
    np.testing.assert_array_equal(machine.v(2), expected.view(torch.int16).numpy().view(np.uint16).astype(np.uint32))
    np.testing.assert_array_equal(machine.v(4, np.float32), expected.float().numpy())
    towards_zero = machine.v(3).astype(np.uint16).view(np.float16).astype(np.float32)
    assert (np.abs(towards_zero) <= np.abs(x)).all() and np.isfinite(towards_zero[np.isfinite(x)]).all()


@pytest.mark.parametrize("exponent", [0, 1, 100, 126, 127, 128, 140, 253, 254])
def test_scaled_fp4_is_the_format_model_for_every_bf16(exponent):
    x = all_bf16()
    x = np.where(np.isfinite(x), x, np.float32(0))
    pairs = x.reshape(-1, 2)
    scale = np.uint32(exponent << 23).view(np.float32)
    machine = Machine(512)
    machine.v(1, np.float32)[:], machine.v(2, np.float32)[:] = (pairs[:, i].reshape(512, 64) for i in (0, 1))
    machine.v(3, np.float32)[:] = scale
    machine.v(4)[:] = machine.v(5)[:] = 0xAABBCCDD
    machine.v(6)[:] = (
        x.view(np.uint32).reshape(512, 64, 2)[..., 0] >> 16 | x.view(np.uint32).reshape(512, 64, 2)[..., 1]
    )
    machine.execute(
        "v_cvt_scalef32_pk_fp4_f32 v4, v1, v2, v3",
        "v_cvt_scalef32_pk_fp4_f32 v5, v1, v2, v3 op_sel:[0,0,1,1]",
        "v_cvt_scalef32_pk_fp4_bf16 v7, v6, v3 op_sel:[0,0,1,0]",
    )
    divisor = np.ldexp(1.0, exponent - 127)
    codes = nearest_codes(x.astype(np.float64) / divisor, np.signbit(x)).reshape(512, 64, 2)
    byte = codes[..., 0] | codes[..., 1] << 4
    np.testing.assert_array_equal(machine.v(4), 0xAABBCC00 | byte)
    np.testing.assert_array_equal(machine.v(5), 0x00BBCCDD | byte << 24)
    np.testing.assert_array_equal(machine.v(7), byte << 8)


def nearest_codes(values: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """e2m1 codes by comparing with the midpoints; a tie goes to the even code."""
    size = np.abs(values)
    code = np.zeros(values.shape, np.uint32)
    for i, middle in enumerate((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)):
        code += (size > middle) if i % 2 == 0 else (size >= middle)
    return code | negative.astype(np.uint32) << 3


def test_scaled_fp4_near_every_midpoint():
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 7.0], np.float32)
    bits = middles.view(np.uint32)[:, None] + np.arange(-3, 4, dtype=np.int64)[None, :]
    x = bits.astype(np.uint32).view(np.float32).ravel()
    x = np.concatenate((x, -x, [np.inf, -np.inf, 1e30])).astype(np.float32)
    got = e2m1_codes(x, np.float32(1))
    np.testing.assert_array_equal(
        got, nearest_codes(np.nan_to_num(x.astype(np.float64), posinf=9e9, neginf=-9e9), x < 0)
    )


def test_scaled_fp4_agrees_with_the_models_of_formats():
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(4)) * 3
    scale = torch.exp2(torch.randint(-3, 3, (64, 32), generator=torch.Generator().manual_seed(5)).float())
    machine = Machine(32)
    pairs = x.reshape(32, 64, 2).numpy()
    machine.v(1, np.float32)[:], machine.v(2, np.float32)[:] = pairs[..., 0], pairs[..., 1]
    machine.v(3, np.float32)[:] = scale.reshape(32, 64).numpy()
    machine.execute("v_cvt_scalef32_pk_fp4_f32 v4, v1, v2, v3")
    model = formats.cvt_scalef32_pk_fp4_f32(
        torch.from_numpy(pairs[..., 0].copy()), torch.from_numpy(pairs[..., 1].copy()), scale.reshape(32, 64)
    )
    np.testing.assert_array_equal(machine.v(4), model.numpy().astype(np.uint32))


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
def test_fp4_to_float(kind):
    machine = Machine(4)
    machine.v(1)[:] = np.arange(256).reshape(4, 64) << 8 | 0xFF0000FF
    machine.v(2, np.float32)[:] = 8.0
    machine.execute(f"v_cvt_scalef32_pk_{kind}_fp4 {'v[4:5]' if kind == 'f32' else 'v4'}, v1, v2 op_sel:[1,0,0]")
    codes = np.arange(256).reshape(4, 64)
    low, high = E2M1[codes & 15] * 8, E2M1[codes >> 4] * 8
    if kind == "f32":
        np.testing.assert_array_equal(machine.v(4, np.float32), low)
        np.testing.assert_array_equal(machine.v(5, np.float32), high)
        return
    word = machine.v(4)
    if kind == "bf16":
        got = (word << 16).view(np.float32), (word & 0xFFFF0000).view(np.float32)
    else:
        got = tuple(word.view(np.float16).reshape(4, 64, 2)[..., i] for i in (0, 1))
    np.testing.assert_array_equal(got[0], low)
    np.testing.assert_array_equal(got[1], high)


def scaled_product(machine: Machine, rows: int, k: int, a: int, b: int, a_scale, b_scale) -> np.ndarray:
    """[waves, rows, rows] in float64 by loops over lanes, from the layout as the ISA states it."""
    waves = machine.chunk.waves
    matrices = []
    for base, scales in ((a, a_scale), (b, b_scale)):
        matrix = np.zeros((waves, rows, k))
        for lane in range(64):
            for i in range(32):
                byte = machine.v(base + i // 8)[:, lane] >> (8 * (i // 2 % 4)) & 0xFF
                code = byte >> (4 * (i % 2)) & 15
                matrix[:, lane % rows, 32 * (lane // rows) + i] = E2M1[code] * np.ldexp(1.0, scales[:, lane] - 127)
        matrices.append(matrix)
    return np.einsum("wik,wjk->wij", *matrices)


def result_matrix(machine: Machine, rows: int, d: int) -> np.ndarray:
    """[waves, rows, rows] from the result registers."""
    out = np.zeros((machine.chunk.waves, rows, rows), np.float32)
    for lane in range(64):
        for r in range(rows * rows // 64):
            row = 4 * (lane // 16) + r if rows == 16 else 8 * (r // 4) + 4 * (lane // 32) + r % 4
            out[:, row, lane % rows] = machine.v(d + r, np.float32)[:, lane]
    return out


@pytest.mark.parametrize(("rows", "k"), [(16, 128), (32, 64)])
@pytest.mark.parametrize(
    ("spread", "select"), [(2, (0, 0)), (3, (1, 2)), (30, (3, 1)), (60, (2, 3))]
)  # a wide spread of scales leaves float32
def test_scaled_mfma(rows, k, spread, select):
    rng = np.random.default_rng(rows + spread)
    machine = Machine(3)
    for n in range(1, 9):
        machine.v(n)[:] = rng.integers(0, 1 << 32, (3, 64), dtype=np.uint32)
    scales = rng.integers(127 - spread, 127 + spread, (2, 3, 64))
    for n, value, byte in ((9, scales[0], select[0]), (10, scales[1], select[1])):
        others = rng.integers(0, 1 << 32, (3, 64), dtype=np.uint32)
        machine.v(n)[:] = others & ~np.uint32(255 << 8 * byte) | value.astype(np.uint32) << np.uint32(8 * byte)
    results = rows * rows // 64
    for r in range(results):
        machine.v(16 + r, np.float32)[:] = rng.standard_normal((3, 64))
    c = result_matrix(machine, rows, 16)
    machine.exec(1)  # EXEC does not matter to a matrix instruction
    sel = f"op_sel:[{select[0] & 1},{select[1] & 1},0] op_sel_hi:[{select[0] >> 1},{select[1] >> 1},0]"
    d = f"v[16:{15 + results}]"
    machine.execute(f"v_mfma_scale_f32_{rows}x{rows}x{k}_f8f6f4 {d}, v[1:4], v[5:8], {d}, v9, v10 {sel} cbsz:4 blgp:4")
    exact = (scaled_product(machine, rows, k, 1, 5, *scales) + c).astype(np.float32)
    if spread < 60:
        np.testing.assert_array_equal(result_matrix(machine, rows, 16), exact)
    else:  # beyond float64's own 53 bits the last bit of float32 may differ
        np.testing.assert_array_max_ulp(result_matrix(machine, rows, 16), exact, 1)


def test_scale_of_255_is_nan_and_scale_0_is_tiny():
    machine = Machine(1)
    for n in range(1, 9):
        machine.v(n)[:] = 0x22222222  # 1.0
    machine.v(9)[:], machine.v(10)[:] = 127, 127
    machine.v(9)[0, 3] = 255
    machine.v(9)[0, 4] = 0
    machine.execute(
        "v_mfma_scale_f32_16x16x128_f8f6f4 v[16:19], v[1:4], v[5:8], 0, v9, v10 op_sel_hi:[0,0,0] cbsz:4 blgp:4"
    )
    result = result_matrix(machine, 16, 16)[0]
    assert np.isnan(result[3]).all() and (result[5] == 128).all() and (result[4] == 96).all()
    machine.v(9)[:] = 0
    machine.execute(
        "v_mfma_scale_f32_16x16x128_f8f6f4 v[16:19], v[1:4], v[5:8], 0, v9, v10 op_sel_hi:[0,0,0] cbsz:4 blgp:4"
    )
    assert (result_matrix(machine, 16, 16) == np.ldexp(128.0, -127)).all()


@pytest.mark.parametrize(
    ("name", "rows", "k", "kind"),
    [
        ("v_mfma_f32_16x16x32_bf16", 16, 32, "bf16"),
        ("v_mfma_f32_32x32x16_bf16", 32, 16, "bf16"),
        ("v_mfma_f32_16x16x16_f16", 16, 16, "f16"),
        ("v_mfma_f32_32x32x8_f16", 32, 8, "f16"),
        ("v_mfma_f32_16x16x4_f32", 16, 4, "f32"),
        ("v_mfma_f32_32x32x2_f32", 32, 2, "f32"),
    ],
)
def test_plain_mfma(name, rows, k, kind):
    rng = np.random.default_rng(k)
    machine = Machine(2)
    per_lane = rows * k // 64
    values = rng.integers(-8, 9, (2, 2, 64, per_lane)).astype(np.float32)  # exact in every type
    registers = max(per_lane // (1 if kind == "f32" else 2), 1)
    for which in range(2):
        if kind == "f32":
            raw = values[which].view(np.uint32)
        elif kind == "f16":
            raw = values[which].astype(np.float16).view(np.uint32)
        else:
            raw = np.ascontiguousarray((values[which].view(np.uint32) >> 16).astype(np.uint16)).view(np.uint32)
        for r in range(registers):
            machine.v(1 + 8 * which + r)[:] = raw[..., r]
    last = rows * rows // 64 - 1
    span = [f"v{n}" if registers == 1 else f"v[{n}:{n + registers - 1}]" for n in (1, 9)]
    machine.execute(f"{name} v[20:{20 + last}], {span[0]}, {span[1]}, 1.0")
    a, b = (np.zeros((2, rows, k)) for _ in range(2))
    for which, matrix in enumerate((a, b)):
        for lane in range(64):
            for i in range(per_lane):
                matrix[:, lane % rows, per_lane * (lane // rows) + i] = values[which][:, lane, i]
    np.testing.assert_array_equal(result_matrix(machine, rows, 20), np.einsum("wik,wjk->wij", a, b) + 1)


def test_shared_operands_are_decoded_again_once_their_registers_change():
    mfma = "v_mfma_scale_f32_16x16x128_f8f6f4 {d}, v[{a}:{a3}], v[{b}:{b3}], {d}, v{s}, v{t} "
    mfma += "op_sel_hi:[{h},0,0] cbsz:4 blgp:4"
    rng = np.random.default_rng(8)
    lines = []
    for _ in range(60):
        a, b = rng.choice([8, 12, 16, 20], 2, replace=False)
        d = rng.choice([32, 36])
        choice = rng.integers(0, 8)
        if choice == 0:
            lines.append(f"v_xor_b32_e32 v{rng.integers(8, 26)}, v3, v{rng.integers(8, 26)}")
        elif choice == 1:
            lines.append(f"v_swap_b32 v{rng.integers(8, 24)}, v{rng.integers(8, 24)}")
        elif choice == 2:
            lines.append(f"v_and_b32_e32 v{24 + rng.integers(0, 2)}, 0x7f7f7f7f, v{rng.integers(3, 8)}")
        else:
            lines.append(
                mfma.format(d=f"v[{d}:{d + 3}]", a=a, a3=a + 3, b=b, b3=b + 3, s=24, t=25, h=rng.integers(0, 2))
            )
    machine = Machine(2)
    start = rng.integers(0, 1 << 32, (26, 128), dtype=np.uint32)
    start[24:] = rng.integers(0x7C, 0x80, (2, 128, 4), dtype=np.uint8).view(np.uint32)[..., 0]
    for n in range(3, 26):
        machine.v(n)[:] = start[n].reshape(2, 64)
    machine.execute(*lines)  # one instruction at a time: nothing is shared
    x, y = np.ascontiguousarray(start[3:]), np.zeros((8, 128), np.uint32)
    body = ["s_load_dwordx4 s[4:7], s[0:1], 0x0", "v_lshlrev_b32_e32 v1, 2, v0"]
    for n in range(3, 26):
        body.append(f"global_load_dword v{n}, v1, s[4:5]")
        body.append("v_add_u32_e32 v1, 0x200, v1")
    body += [*(f"v_mov_b32_e32 v{n}, 0" for n in range(32, 40)), *lines, "v_lshlrev_b32_e32 v1, 2, v0"]
    for n in range(32, 40):
        body.append(f"global_store_dword v1, v{n}, s[6:7]")
        body.append("v_add_u32_e32 v1, 0x200, v1")
    launch("\n".join("\t" + line for line in body), x, y, threads=128)
    np.testing.assert_array_equal(y.reshape(8, 2, 64), np.stack([machine.v(n) for n in range(32, 40)]))


def test_rows_of_very_different_scale_stay_exact():
    rng = np.random.default_rng(9)
    machine = Machine(1)
    for n in range(1, 9):
        machine.v(n)[:] = rng.integers(0, 1 << 32, (1, 64), dtype=np.uint32)
    row = rng.integers(-40, 40, (2, 16))  # along k a row's scales are close, from row to row they are not
    scales = 127 + np.tile(row, (1, 4)).reshape(2, 1, 64) + rng.integers(0, 4, (2, 1, 64))
    machine.v(9)[:], machine.v(10)[:] = scales[0], scales[1]
    machine.execute(
        "v_mfma_scale_f32_16x16x128_f8f6f4 v[16:19], v[1:4], v[5:8], 0, v9, v10 op_sel_hi:[0,0,0] cbsz:4 blgp:4"
    )
    exact = scaled_product(machine, 16, 128, 1, 5, *scales)
    np.testing.assert_array_equal(result_matrix(machine, 16, 16), exact.astype(np.float32))
    assert (exact.astype(np.float32) == exact).all()
