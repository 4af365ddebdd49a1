"""Vector instructions against truths computed with Python integers, exact fractions and the math module."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from gfx950_machine import Machine

from mxfp4lab.gfx950 import UnknownInstruction

M32 = 0xFFFFFFFF
EDGES = [0, 1, 2, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, 0xFFFFFF,
         0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]  # fmt: skip


def words(seed: int) -> np.ndarray:
    """[2, 64] uint32: edge values first, then random ones."""
    values = np.random.default_rng(seed).integers(0, 1 << 32, 128, dtype=np.uint32)
    values[: len(EDGES)] = np.random.default_rng(seed + 100).permutation(np.array(EDGES, np.uint32))
    return values.reshape(2, 64)


def s32(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def leading(x: int) -> int:
    return 32 - x.bit_length() if x else -1


def perm(a: int, b: int, c: int) -> int:
    data = b.to_bytes(4, "little") + a.to_bytes(4, "little")
    out = 0
    for i in range(4):
        pick = c >> 8 * i & 255
        if pick < 8:
            byte = data[pick]
        elif pick < 12:
            byte = 255 if data[2 * (pick - 8) + 1] >> 7 else 0
        else:
            byte = 0 if pick == 12 else 255
        out |= byte << 8 * i
    return out


INTEGERS = {  # what AMD's pseudo-code (test_gfx950_pcode) has no plain words for: truth over unsigned words
    "v_bcnt_u32_b32": lambda a, b: bin(a).count("1") + b,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32": leading,
    "v_ffbl_b32": lambda a: (a & -a).bit_length() - 1 if a else -1,
    "v_ffbh_i32": lambda a: leading(a if not a >> 31 else a ^ M32),
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: ((a + b) & M32) << (c & 31),
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) | c,
    "v_alignbit_b32": lambda a, b, c: ((a << 32 | b) >> (c & 31)) & M32,
    "v_perm_b32": perm,
    "v_med3_i32": lambda a, b, c: sorted((s32(a), s32(b), s32(c)))[1],
    "v_min3_u32": lambda a, b, c: min(a, b, c),
    "v_max3_i32": lambda a, b, c: max(s32(a), s32(b), s32(c)),
}  # fmt: skip


@pytest.mark.parametrize("mnemonic", sorted(INTEGERS))
def test_integer_instruction(mnemonic):
    truth = INTEGERS[mnemonic]
    count = truth.__code__.co_argcount if hasattr(truth, "__code__") else 2
    machine = Machine()
    sources = [words(i) for i in range(count)]
    if mnemonic == "v_perm_b32":  # selectors that mean something, and some that do not
        sources[2] = np.random.default_rng(9).integers(0, 15, (2, 64, 4), dtype=np.uint8).view(np.uint32)[..., 0]
    for i, value in enumerate(sources):
        machine.v(i + 1)[:] = value
    machine.execute(f"{mnemonic} v10, " + ", ".join(f"v{i + 1}" for i in range(count)))
    expected = [truth(*(int(x) for x in row)) & M32 for row in zip(*(s.flat for s in sources), strict=True)]
    np.testing.assert_array_equal(machine.v(10).ravel(), np.array(expected, np.uint32))


def test_perm_with_one_selector_for_all_lanes():
    machine = Machine(3)
    machine.v(1)[:], machine.v(2)[:] = words(1)[:1], words(2)[:1]
    for selector in (0x07060504, 0x0C0C0004, 0x0D080B03, 0x0A090102, 0xFF0C0000):
        machine.s(4)[:] = selector
        machine.execute(
            "v_perm_b32 v3, v1, v2, s4", f"v_perm_b32 v4, v1, v2, {selector:#x}", "v_perm_b32 v5, s4, v2, s4"
        )
        pairs = zip(machine.v(1).flat, machine.v(2).flat, strict=True)
        expected = np.array([perm(int(a), int(b), selector) for a, b in pairs], np.uint32).reshape(3, 64)
        np.testing.assert_array_equal(machine.v(3), expected)
        np.testing.assert_array_equal(machine.v(4), expected)
        assert int(machine.v(5)[0, 3]) == perm(selector, int(machine.v(2)[0, 3]), selector)
    machine.s(4)[:] = [0x07060504, 0x03020100, 0x00000000]  # another one for each wave
    machine.execute("v_perm_b32 v3, v1, v2, s4")
    np.testing.assert_array_equal(machine.v(3)[:2], [machine.v(1)[0], machine.v(2)[1]])


def test_bitop3_all_tables():
    a, b, c = np.uint32(0xF0F0F0F0), np.uint32(0xCCCCCCCC), np.uint32(0xAAAAAAAA)
    for table in range(256):
        machine = Machine(1)
        for n, value in ((1, a), (2, b), (3, c)):
            machine.v(n)[:] = value
        machine.execute(f"v_bitop3_b32 v4, v1, v2, v3 bitop3:{table}")
        assert int(machine.v(4)[0, 5]) & 0xFF == table


def floats(seed: int) -> np.ndarray:
    """[2, 64] float32 over the whole range: denormals, zeros of both signs, infinities, ordinary numbers."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
    near = rng.standard_normal(128).astype(np.float32) * np.exp2(rng.integers(-4, 4, 128)).astype(np.float32)
    values = np.where(np.arange(128) % 2 == 0, bits.view(np.float32), near)
    special = [0.0, -0.0, np.inf, -np.inf, 1.0, -1.0, 1.5, 2.0**-126, 2.0**-149, -(2.0**-149), 3.4028235e38]
    values[: len(special)] = rng.permutation(np.array(special, np.float32))
    return np.where(np.isnan(values), np.float32(1.25), values).astype(np.float32).reshape(2, 64)


def round_f32(x: Fraction) -> float:
    """The float32 nearest to an exact value, ties to even."""
    if x == 0:
        return 0.0
    size, sign = abs(x), -1 if x < 0 else 1
    exponent = max(math.frexp(float(size))[1] if size < Fraction(2) ** 1000 else 999, -125)
    while size >= Fraction(2) ** exponent:
        exponent += 1
    while exponent > -125 and size < Fraction(2) ** (exponent - 1):
        exponent -= 1
    unit = Fraction(2) ** (exponent - 24)
    steps = size / unit
    whole = steps.numerator // steps.denominator
    rest = steps - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    value = whole * unit
    return sign * (float(value) if value < Fraction(2) ** 128 else math.inf)


def exact(function, *arguments: np.ndarray) -> np.ndarray:
    """Correctly rounded truth where all arguments are finite; NaN elsewhere."""
    out = []
    for row in zip(*(a.flat for a in arguments), strict=True):
        if all(math.isfinite(x) for x in row):
            out.append(round_f32(function(*(Fraction(float(x)) for x in row))))
        else:
            out.append(math.nan)
    return np.array(out, np.float32).reshape(arguments[0].shape)


@pytest.mark.parametrize(
    ("mnemonic", "truth"),
    [("v_add_f32", lambda a, b: a + b), ("v_sub_f32", lambda a, b: a - b), ("v_mul_f32", lambda a, b: a * b),
     ("v_fma_f32", lambda a, b, c: a * b + c)],
)  # fmt: skip
def test_float_arithmetic_rounds_once(mnemonic, truth):
    count = truth.__code__.co_argcount
    for seed in range(6):
        machine = Machine()
        sources = [floats(10 * seed + i) for i in range(count)]
        for i, value in enumerate(sources):
            machine.v(i + 1, np.float32)[:] = value
        machine.execute(f"{mnemonic} v10, " + ", ".join(f"v{i + 1}" for i in range(count)))
        expected = exact(truth, *sources)
        compared = ~np.isnan(expected)
        assert compared.sum() > 100
        np.testing.assert_array_equal(machine.v(10, np.float32)[compared], expected[compared])


def test_fma_where_double_rounding_would_show():
    # a * b + c lies just above a tie of float32, by less than float64 can hold beside it.
    machine = Machine(1)
    a, b, c = np.float32(1 + 2.0**-12), np.float32(1 + 2.0**-12), np.float32(2.0**-60)
    for n, value in ((1, a), (2, b), (3, c)):
        machine.v(n, np.float32)[:] = value
    machine.v(4, np.float32)[:] = -c
    machine.execute("v_fma_f32 v10, v1, v2, v3", "v_fma_f32 v11, v1, v2, v4")
    above = exact(lambda x, y, z: x * y + z, *(np.full((1, 1), v) for v in (a, b, c)))[0, 0]
    below = exact(lambda x, y, z: x * y - z, *(np.full((1, 1), v) for v in (a, b, c)))[0, 0]
    assert above != below
    assert machine.v(10, np.float32)[0, 0] == above and machine.v(11, np.float32)[0, 0] == below


@pytest.mark.parametrize(
    "form",
    ["v_fmac_f32_e32 v1, v2, v3", "v_fma_f32 v1, v2, v3, v1", "v_fmamk_f32 v1, v2, 0x40490fdb, v3",
     "v_fmaak_f32 v1, v2, v3, 0x40490fdb"],
)  # fmt: skip
def test_fma_forms(form):
    machine = Machine(1)
    old, x, y, literal = np.float32(5), np.float32(1.1), np.float32(2.3), np.uint32(0x40490FDB).view(np.float32)
    machine.v(1, np.float32)[:], machine.v(2, np.float32)[:], machine.v(3, np.float32)[:] = old, x, y
    machine.execute(form)
    terms = {"v_fmamk": (x, literal, y), "v_fmaak": (x, y, literal)}.get(form[:7], (x, y, old))
    expected = exact(lambda a, b, c: a * b + c, *(np.full((1, 1), t) for t in terms))[0, 0]
    assert machine.v(1, np.float32)[0, 9] == expected


@pytest.mark.parametrize(
    ("a", "b", "largest", "least"),
    [(0.0, -0.0, 0.0, -0.0), (-0.0, 0.0, 0.0, -0.0), (math.nan, 2.0, 2.0, 2.0), (-3.0, math.nan, -3.0, -3.0),
     (1.0, 2.0, 2.0, 1.0), (-math.inf, 5.0, 5.0, -math.inf), (-0.0, -0.0, -0.0, -0.0), (0.0, 5.0, 5.0, 0.0),
     (-0.0, -5.0, -0.0, -5.0)],
)  # fmt: skip
def test_min_max_of_zeros_and_nan(a, b, largest, least):
    machine = Machine(1)
    machine.v(1, np.float32)[:], machine.v(2, np.float32)[:] = a, b
    machine.execute("v_max_f32_e32 v3, v1, v2", "v_min_f32_e32 v4, v1, v2", "v_max_f32_e32 v1, v1, v2")
    for n, expected in ((3, largest), (4, least), (1, largest)):
        assert struct.pack("<f", machine.v(n, np.float32)[0, 0]) == struct.pack("<f", expected)


def test_transcendentals_exact_where_promised_and_within_an_ulp_elsewhere():
    machine = Machine(1)
    whole = np.arange(-126, 127).astype(np.float32)
    for start in range(0, len(whole) - 64, 63):
        part = whole[start : start + 64]
        machine.v(1, np.float32)[:] = part
        machine.execute("v_exp_f32_e32 v2, v1", "v_log_f32_e32 v3, v2")
        np.testing.assert_array_equal(machine.v(2, np.float32)[0], np.ldexp(np.float32(1), part.astype(int)))
        np.testing.assert_array_equal(machine.v(3, np.float32)[0], part)
    x = np.abs(floats(3)[:1])
    x = np.where((x > 1e-30) & (x < 1e30), x, np.float32(1.7))
    machine.v(1, np.float32)[:] = x
    for name, truth in (("exp", lambda v: 2.0**v), ("log", math.log2), ("rcp", lambda v: 1 / v), ("sqrt", math.sqrt),
                        ("rsq", lambda v: 1 / math.sqrt(v))):  # fmt: skip
        values = x if name != "exp" else np.log2(x)
        machine.v(1, np.float32)[:] = values
        machine.execute(f"v_{name}_f32_e32 v2, v1")
        expected = np.array([truth(float(v)) for v in values.flat])
        error = np.abs(machine.v(2, np.float32).ravel() - expected) / np.spacing(np.abs(expected).astype(np.float32))
        assert error.max() <= 0.51, name
    machine.v(1, np.float32)[:] = 0
    machine.v(1, np.float32)[0, :4] = [0, -1, np.inf, -0.0]
    machine.execute("v_log_f32_e32 v2, v1", "v_rcp_f32_e32 v3, v1", "v_exp_f32_e32 v4, v1")
    np.testing.assert_array_equal(machine.v(2, np.float32)[0, :4], [-np.inf, np.nan, np.inf, -np.inf])
    np.testing.assert_array_equal(machine.v(3, np.float32)[0, :4], [np.inf, -1, 0, -np.inf])
    np.testing.assert_array_equal(machine.v(4, np.float32)[0, :4], [1, 0.5, np.inf, 1])


def test_float_to_integer_saturates():
    machine = Machine(1)
    machine.v(1, np.float32)[0, :8] = [-1.9, 2.9, 3e9, 5e9, -3e9, np.nan, np.inf, -np.inf]
    machine.execute("v_cvt_i32_f32_e32 v2, v1", "v_cvt_u32_f32_e32 v3, v1")
    np.testing.assert_array_equal(
        machine.v(2, np.int32)[0, :8], [-1, 2, 2**31 - 1, 2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31)]
    )
    np.testing.assert_array_equal(machine.v(3)[0, :8], [0, 2, 3000000000, M32, 0, 0, M32, 0])


def test_source_and_output_modifiers():
    machine = Machine(1)
    machine.v(1, np.float32)[:], machine.v(2, np.float32)[:] = -1.5, 2.5
    machine.s(4, np.float32)[:] = 0.25
    machine.execute(
        "v_mul_f32_e64 v3, -v1, |v2|", "v_add_f32_e64 v4, |v1|, -s4", "v_add_f32_e64 v5, v1, v2 clamp",
        "v_mul_f32_e64 v6, v1, v2 clamp", "v_fma_f32 v7, -|v1|, 1.0, v2",
    )  # fmt: skip
    assert [float(machine.v(n, np.float32)[0, 0]) for n in range(3, 8)] == [3.75, 1.25, 1.0, 0.0, 1.0]


def test_integer_clamp_saturates():
    machine = Machine(1)
    machine.v(1)[:], machine.v(2)[:] = 0xFFFFFFF0, 0x20
    machine.execute("v_add_u32_e64 v3, v1, v2 clamp", "v_sub_u32_e64 v4, v2, v1 clamp", "v_add_u32_e64 v5, v1, v2")
    assert [int(machine.v(n)[0, 0]) for n in (3, 4, 5)] == [M32, 0, 0x10]


def test_exec_masks_every_kind_of_result():
    machine = Machine(2)
    lanes = np.random.default_rng(1).random((2, 64)) < 0.5
    machine.v(1)[:] = words(1)
    machine.v(3)[:] = machine.v(4)[:] = machine.v(5)[:] = 7
    machine.exec(lanes)
    machine.execute("v_mov_b32_e32 v3, v1", "v_add_u32_e32 v4, v1, v1", "v_lshlrev_b64 v[8:9], 3, v[1:2]",
                    "v_cmp_ge_u32_e64 s[10:11], v1, 0")  # fmt: skip
    np.testing.assert_array_equal(machine.v(3), np.where(lanes, words(1), 7))
    np.testing.assert_array_equal(machine.v(4), np.where(lanes, words(1) * np.uint32(2), 7))
    np.testing.assert_array_equal(machine.v(8), np.where(lanes, words(1) << np.uint32(3), 0))
    np.testing.assert_array_equal(machine.mask(10), lanes)


def test_flushed_denormals():
    for flush, expected in ((False, np.float32(2.0**-140)), (True, np.float32(0))):
        machine = Machine(1, flush32=flush)
        machine.v(1, np.float32)[:] = 2.0**-140
        machine.execute("v_add_f32_e32 v2, 0, v1", "v_mov_b32_e32 v3, v1")
        assert machine.v(2, np.float32)[0, 0] == expected
        assert machine.v(3, np.float32)[0, 0] == np.float32(2.0**-140)


@pytest.mark.parametrize(
    "line",
    ["v_frobnicate_b32 v0, v1", "v_add_u32_e32 v0, v1", "v_add_u32_e64 v0, -v1, v2", "v_mov_b32_e32 s0, v1",
     "v_add_f32_e64 v0, v1, v2 op_sel:[1,0,0]", "v_mul_lo_u32 v0, v1, v2 clamp", "ds_read_b32 v0, v1 gds",
     "global_load_dword v0, v1, v[2:3]", "v_lshlrev_b64 v[0:1], 1, v2", "buffer_load_dword v0, v1, s[4:7], 0 idxen",
     "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3], v20, v21 op_sel_hi:[0,0,0] cbsz:2 blgp:2",
     "v_mov_b32_dpp v0, v1 row_shl:16 row_mask:0xf bank_mask:0xf", "v_mov_b32_sdwa v0, v1 dst_sel:BYTE_9",
     "s_getreg_b32 s0, hwreg(HW_REG_HW_ID)", "v_cmp_lt_q32_e32 vcc, v0, v1", "s_add_u32 s0, s1, v2",
     "v_add_f32_e64 v0, v1, v2 mul:4",
     "v_add_u32_e32 v0, some_symbol, v1", "image_load v0, v1", "v_mfma_f32_4x4x1_16b_f32 a[0:3], v0, v1, a[0:3]"],
)  # fmt: skip
def test_what_is_not_known_is_named_and_never_skipped(line):
    machine = Machine(1, lds=64)
    with pytest.raises(UnknownInstruction) as caught:
        machine.execute(line)
    assert line.split()[0].split("_e32")[0].split("_e64")[0].split("_dpp")[0].split("_sdwa")[0] in str(caught.value)
