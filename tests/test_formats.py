"""MXFP4 numbers against golden vectors of aiter's op, published cases, an independent library, and exact arithmetic."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mxfp4lab.formats import (
    E2M1_VALUES,
    ROUNDINGS,
    SCALE_MODES,
    block_exponent,
    cvt_scalef32_pk_fp4_f32,
    decode_e2m1,
    decode_e8m0,
    dequantize_mxfp4,
    encode_e2m1,
    pack_fp4,
    quantize_mxfp4,
    unpack_fp4,
)
from mxfp4lab.paths import data_path

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)
GOLDEN_SETS = ("bf16_all_sorted", "extremes", "randn_bf16", "ties")

CASE_1 = (
    "0.3463,-0.0499,0.3794,-2.3764,0.3960,0.5989,-0.6250,-0.4239,-0.6192,0.2761,-0.3746,0.1462,0.5216,-0.5194,-0.8497,"
    "-0.8237,0.5145,0.3508,0.0298,-0.3462,0.3917,0.1096,1.4494,1.7009,-0.5473,-2.0851,1.8099,0.3587,1.4622,-2.3143,"
    "0.3412,-0.8931"
)
CASE_1_BYTES = [129, 226, 34, 170, 26, 25, 162, 187, 18, 144, 2, 85, 234, 22, 229, 193]


def floats(*bits: int) -> torch.Tensor:
    return torch.from_numpy(np.array(bits, dtype=np.uint32).view(np.float32).copy())


def case_1() -> torch.Tensor:
    return torch.tensor([float(v) for v in CASE_1.split(",")])


def block(*values: float) -> torch.Tensor:
    """32 values: the given ones, then zeros."""
    return torch.tensor([*values, *[0.0] * (32 - len(values))], dtype=torch.float32)


def quantized(x: torch.Tensor, **modes) -> tuple[list[int], list[int]]:
    """Codes and scale bytes as lists."""
    packed, scale = quantize_mxfp4(x, **modes)
    return unpack_fp4(packed).tolist(), scale.tolist()


@pytest.fixture(scope="module")
def golden():
    return np.load(data_path("golden/golden_mxfp4_quant_op.npz"), allow_pickle=False)


@pytest.mark.parametrize("name", GOLDEN_SETS)
@pytest.mark.parametrize(("rounding", "key"), [("even", "packed_post975"), ("half_away", "packed_pre975")])
def test_every_portable_golden_row_is_reproduced(golden, name, rounding, key):
    portable = golden[f"{name}.portable"]
    x = torch.from_numpy(golden[f"{name}.x_bits"].view(np.float32)[portable])
    packed, scale = quantize_mxfp4(x, rounding=rounding)
    assert portable.sum() == {"bf16_all_sorted": 1968, "extremes": 7, "randn_bf16": 2048, "ties": 60}[name]
    np.testing.assert_array_equal(packed.numpy(), golden[f"{name}.{key}"][portable])
    np.testing.assert_array_equal(scale.numpy()[:, 0], golden[f"{name}.scale"][portable])


def test_rows_on_which_platforms_differ_are_few_and_all_extreme(golden):
    """Scales agree there too wherever x is finite; nibbles differ only where the op's 2^-e or x is subnormal."""
    for name in ("bf16_all_sorted", "extremes"):
        x = torch.from_numpy(golden[f"{name}.x_bits"].view(np.float32).copy())
        finite = x.isfinite().all(dim=1)
        packed, scale = quantize_mxfp4(x[finite])
        keep = finite.numpy()
        np.testing.assert_array_equal(scale.numpy()[:, 0], golden[f"{name}.scale"][keep])
        differ = (packed.numpy() != golden[f"{name}.packed_post975"][keep]).any(axis=1)
        amax = x[finite].abs().amax(dim=1)[torch.from_numpy(differ)]
        assert ((amax < 2.0**-120) | (amax >= 2.0**126)).all()
        assert differ.sum() <= 5


# ---- published cases ------------------------------------------------------------------------------------------------


def test_case_1_rounding_of_the_published_block():
    packed, scale = quantize_mxfp4(case_1())
    assert scale.tolist() == [126]
    assert packed.tolist() == CASE_1_BYTES
    old, _ = quantize_mxfp4(case_1(), rounding="half_away")
    assert old.tolist()[3] == 171  # pre-975 rounding
    as_bf16, _ = quantize_mxfp4(case_1().bfloat16())
    assert as_bf16.tolist()[5] == 26


def test_case_1_fp32_pair_just_above_the_midpoint():
    low, high = floats(0x3F000000), floats(0x3F000003)
    byte = cvt_scalef32_pk_fp4_f32(low, high, decode_e8m0(torch.tensor([128], dtype=torch.uint8)))
    assert byte.tolist() == [0x10]


@pytest.mark.parametrize("exponent", range(-118, 126))
def test_case_2_midpoints_go_to_even_for_both_signs_at_every_exponent(exponent):
    mids = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
    x = torch.tensor([6.0, *mids, *[-m for m in mids], -0.0, *[0.0] * 16]).double() * 2.0**exponent
    codes, scale = quantized(x.float())
    assert scale == [127 + exponent]
    assert codes[:16] == [7, 0, 2, 2, 4, 4, 6, 6, 8, 10, 10, 12, 12, 14, 14, 8]
    away, _ = quantized(x.float(), rounding="half_away")
    assert away[:15] == [7, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15]


def test_case_2_published_block():
    codes, scale = quantized(block(6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25))
    assert (scale, codes[:9]) == ([127], [7, 0, 2, 2, 4, 4, 6, 6, 8])


@pytest.mark.parametrize(
    ("amax", "even", "round_up", "floor"),
    [
        (1.0, 125, 125, 125),
        (1.5, 125, 125, 125),
        (1.7421875, 125, 126, 125),
        (1.75, 126, 126, 125),
        (3.484375, 126, 127, 126),
        (3.5, 127, 127, 126),
        (6, 127, 127, 127),
        (7, 128, 128, 127),
    ],
)
def test_case_4_scale_modes(amax, even, round_up, floor):
    for mode, byte in (("even", even), ("round_up", round_up), ("floor", floor)):
        assert quantized(block(amax), scale_mode=mode)[1] == [byte]
        assert quantized(block(0.0, -amax), scale_mode=mode)[1] == [byte]


@pytest.mark.parametrize(("amax", "byte"), [(1.0, 125), (1.0078125, 126), (1.5, 126), (2.0, 126), (6.0, 128)])
def test_ceil_mode(amax, byte):
    assert quantized(block(amax), scale_mode="ceil")[1] == [byte]


def test_case_5_negative_exponents():
    codes, scale = quantized(block(6 * 2.0**-100, 2.0**-100))
    assert (scale, codes[:2]) == ([27], [7, 2])
    assert quantized(block(1.0))[1] == [125]


@pytest.mark.parametrize("mode", SCALE_MODES)
def test_case_6_zero_tiny_and_subnormal_blocks(mode):
    assert quantized(torch.zeros(32), scale_mode=mode) == ([0] * 32, [0])
    assert quantized(torch.full((32,), -0.0), scale_mode=mode) == ([8] * 32, [0])
    for bits in (0x00000001, 0x00200000, 0x003FFFFF, 0x00400000, 0x00600000, 0x007FFFFF, 0x00800000):
        packed, scale = quantize_mxfp4(floats(*[bits] * 32), scale_mode=mode)
        assert scale.tolist() == [0]
        exact = Fraction(float(floats(bits))) * 2**127
        nearest = min(E2M1_VALUES, key=lambda v: (abs(Fraction(v) - exact), E2M1_VALUES.index(v) % 2))
        assert decode_e2m1(unpack_fp4(packed)).tolist() == [nearest] * 32


def test_case_7_scale_ends():
    decoded = decode_e8m0(torch.tensor([0, 1, 127, 254, 255], dtype=torch.uint8)).tolist()
    assert decoded[:4] == [5.877471754111438e-39, 2.0**-126, 1.0, 2.0**127]
    assert decoded[4] != decoded[4]


def test_case_8_top_of_the_range():
    assert quantized(block(float(floats(0x7F5F0000))))[1] == [252]
    for bits in range(0x7F600000, 0x7F800000, 0x10000):
        codes, scale = quantized(block(float(floats(bits)), 2.0**126))
        assert scale == [254]
        # 2^-127 of these: 1.75 .. 1.99 round to 2; 2^126 rounds to 0.5
        assert codes[:2] == [4, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_case_9_nonfinite_is_raised_or_flagged(bad):
    x = torch.stack((block(1.0, bad, 3.0, bad), block(1.0)))
    with pytest.raises(ValueError, match=r'x holds 2 NaN or infinite values; pass nonfinite="saturate"'):
        quantize_mxfp4(x)
    codes, scale = quantized(x, nonfinite="saturate")
    assert scale == [[254], [125]]
    assert codes[0][1] in (7, 15)
    assert (codes[0][1] == 15) == (bad == float("-inf"))
    assert codes[0][0] == codes[0][2] == 0
    assert codes[1] == quantized(block(1.0))[0]


def test_case_10_float64_is_refused_because_it_would_round_twice():
    tricky = torch.tensor([0.25 + 2.0**-30, 1.0] * 16, dtype=torch.float64)  # float32 would make it the midpoint
    with pytest.raises(ValueError, match="float64 would round twice"):
        quantize_mxfp4(tricky)
    with pytest.raises(ValueError, match="float64"):
        encode_e2m1(tricky)


def test_case_11_all_codes():
    codes = torch.arange(16, dtype=torch.uint8)
    values = decode_e2m1(codes)
    assert values.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    assert torch.signbit(values).tolist() == [False] * 8 + [True] * 8
    for rounding in ROUNDINGS:
        assert encode_e2m1(values, rounding).tolist() == codes.tolist()


def test_case_16_a_tail_block_sees_nothing_past_its_row():
    memory = torch.full((2, 96), 1e30)
    memory[:, :68] = 1.0
    packed, scale = quantize_mxfp4(memory[:, :68])
    assert packed.shape == (2, 34)
    assert scale.tolist() == [[125, 125, 125]] * 2


# ---- an independent library, and exact arithmetic -------------------------------------------------------------------


def test_every_bf16_encodes_as_ml_dtypes_does():
    x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    x = x[x.isfinite()]
    theirs = x.float().numpy().astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(encode_e2m1(x).numpy(), theirs)


def test_every_e8m0_byte_decodes_as_ml_dtypes_does():
    byte = torch.arange(256, dtype=torch.uint8)
    theirs = byte.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    np.testing.assert_array_equal(decode_e8m0(byte).numpy(), theirs)


def nearest_code(value: Fraction, rounding: str) -> int:
    """The code of a magnitude by exact arithmetic."""
    distances = [abs(Fraction(v) - value) for v in E2M1_VALUES]
    best = [i for i, d in enumerate(distances) if d == min(distances)]
    if len(best) == 1:
        return best[0]
    return max(best) if rounding == "half_away" else next(i for i in best if i % 2 == 0)


@PROPERTY
@given(
    bits=st.lists(st.integers(0, 0x7F7FFFFF), min_size=32, max_size=32),
    near=st.lists(st.integers(-3, 3), min_size=32, max_size=32),
    signs=st.integers(0, 2**32 - 1),
    spread=st.sampled_from(["any", "one binade", "midpoints"]),
    rounding=st.sampled_from(ROUNDINGS),
    mode=st.sampled_from(SCALE_MODES),
)
def test_a_block_is_the_exact_nearest_of_its_scale(bits, near, signs, spread, rounding, mode):
    if spread == "one binade":
        bits = [(bits[0] & 0x7F800000) | (b & 0x7FFFFF) for b in bits]
    elif spread == "midpoints":  # at and around every midpoint of every binade of the block
        base = max(min(bits[0] & 0x7F800000, 0x7E000000), 0x04000000)
        bits = [base - ((b % 4) << 23) + ((b >> 3) % 8 << 20) + d for b, d in zip(bits, near, strict=True)]
    signed = [b | (((signs >> i) & 1) << 31) for i, b in enumerate(bits)]
    x = floats(*signed)
    codes, scale = quantized(x, rounding=rounding, scale_mode=mode)
    unit = Fraction(2) ** (scale[0] - 127)
    for value, sign_bits, code in zip(x.tolist(), signed, codes, strict=True):
        assert code & 7 == nearest_code(abs(Fraction(value)) / unit, rounding)
        assert code >> 3 == sign_bits >> 31
    amax = Fraction(float(x.abs().max()))
    if scale[0] not in (0, 254):
        ratio = amax / unit
        low, high = {"even": (3.5, 7), "floor": (4, 8), "round_up": (3, 6), "ceil": (2, 4)}[mode]
        if mode in ("round_up", "ceil"):
            assert low < ratio <= high
        else:
            assert low <= ratio < high


@PROPERTY
@given(st.integers(1, 5), st.integers(1, 70), st.integers(0, 2**31 - 1))
def test_requantizing_what_was_dequantized_changes_no_value(rows, half_k, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 2 * half_k, generator=generator) * torch.exp2(
        torch.randint(-100, 100, (rows, 1), generator=generator).float()
    )
    packed, scale = quantize_mxfp4(x)
    assert packed.shape == (rows, half_k)
    assert scale.shape == (rows, -(-2 * half_k // 32))
    values = dequantize_mxfp4(packed, scale)
    again = dequantize_mxfp4(*quantize_mxfp4(values))
    assert torch.equal(values, again)
    assert torch.equal(values.double(), dequantize_mxfp4(packed, scale, torch.float64))


@PROPERTY
@given(st.lists(st.integers(0, 255), min_size=1, max_size=40))
def test_pack_and_unpack_are_inverse(data):
    packed = torch.tensor(data, dtype=torch.uint8)
    codes = unpack_fp4(packed)
    assert codes.tolist() == [nibble for byte in data for nibble in (byte & 15, byte >> 4)]
    assert torch.equal(pack_fp4(codes), packed)


@pytest.mark.parametrize("mode", SCALE_MODES)
def test_block_exponent_is_monotonic_over_every_bf16(mode):
    amax = torch.arange(0x7F80, dtype=torch.int16).view(torch.bfloat16).float()
    exponent = block_exponent(amax, mode)
    assert (exponent.diff() >= 0).all()
    assert exponent.min() == -127
    assert exponent.max() == {"even": 127, "floor": 125, "round_up": 126, "ceil": 126}[mode]


# ---- models of the instructions -------------------------------------------------------------------------------------


def test_the_instruction_model_agrees_with_the_quantizer_on_random_blocks():
    x = torch.randn(512, 32, generator=torch.Generator().manual_seed(3)).bfloat16()
    packed, scale = quantize_mxfp4(x)
    factor = decode_e8m0(scale).expand(-1, 16)
    assert torch.equal(cvt_scalef32_pk_fp4_f32(x[:, 0::2].float(), x[:, 1::2].float(), factor), packed)


def test_instruction_reads_only_the_exponent_of_its_scale():
    one, three = torch.tensor([1.0]), torch.tensor([3.0])
    expected = cvt_scalef32_pk_fp4_f32(one, three, torch.tensor([1.0]))
    assert expected.tolist() == [0x52]
    for scale in (1.0, 1.5, 1.99, -1.0):
        assert torch.equal(cvt_scalef32_pk_fp4_f32(one, three, torch.tensor([scale])), expected)


@pytest.mark.parametrize(
    ("scale", "low", "high", "byte"),
    [
        (0.0, 2.0**-127, -(2.0**-126), 0xC2),  # field 0 means 2^-127
        (2.0**-127, 2.0**-127, 2.0**-130, 0x02),
        (2.0**127, 3.0 * 2.0**126, 2.0**126, 0x13),
        (float("inf"), 3.0 * 2.0**126, 2.0**126, 0x02),  # field 255 means 2^128: 0.75 ties to 1, 0.25 to 0
        (1.0, 1e30, -float("inf"), 0xF7),
        (1.0, -0.0, 0.0, 0x08),
    ],
)
def test_instruction_at_the_ends(scale, low, high, byte):
    got = cvt_scalef32_pk_fp4_f32(torch.tensor([low]), torch.tensor([high]), torch.tensor([scale]))
    assert got.tolist() == [byte]


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: quantize_mxfp4(torch.ones(33)), "last dimension must be even"),
        (lambda: quantize_mxfp4(torch.tensor(1.0)), "last dimension must be even"),
        (lambda: quantize_mxfp4(torch.ones(0)), "last dimension must be even"),
        (lambda: quantize_mxfp4(torch.ones(32, dtype=torch.int32)), "dtype torch.int32"),
        (lambda: quantize_mxfp4(torch.ones(32), scale_mode="rceil"), "scale_mode='rceil' must be one of 'even'"),
        (lambda: quantize_mxfp4(torch.ones(32), rounding="up"), "rounding='up' must be one of"),
        (lambda: quantize_mxfp4(torch.ones(32), nonfinite="skip"), "nonfinite='skip' must be one of"),
        (lambda: decode_e2m1(torch.tensor([16], dtype=torch.uint8)), "code has value 16"),
        (lambda: decode_e2m1(torch.tensor([1])), "must be uint8"),
        (lambda: pack_fp4(torch.zeros(3, dtype=torch.uint8)), "must be even"),
        (lambda: decode_e8m0(torch.tensor([1.0])), "must be uint8"),
        (
            lambda: dequantize_mxfp4(torch.zeros(2, 32, dtype=torch.uint8), torch.zeros(2, 1, dtype=torch.uint8)),
            "or more columns",
        ),
        (lambda: cvt_scalef32_pk_fp4_f32(torch.ones(2).half(), torch.ones(2), torch.ones(2)), "reads float32"),
    ],
)
def test_bad_input_is_refused_by_name(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value)


def test_leading_dimensions_strides_and_empty_batches_are_kept():
    x = torch.randn(3, 4, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    packed, scale = quantize_mxfp4(x)
    assert packed.shape == (3, 4, 32)
    assert scale.shape == (3, 4, 2)
    turned = x.transpose(0, 1)
    assert torch.equal(quantize_mxfp4(turned)[0], packed.transpose(0, 1))
    assert quantize_mxfp4(x[:0])[1].shape == (0, 4, 2)
    assert quantize_mxfp4(x[0, 0])[0].shape == (32,)
