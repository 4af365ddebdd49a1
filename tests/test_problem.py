"""The task's inputs, reference and acceptance, against arithmetic done by hand."""

import math
from fractions import Fraction

import pytest
import torch

from mxfp4lab.formats import decode_e2m1, dequantize_mxfp4, pack_fp4, quantize_mxfp4, sum_bits, unpack_fp4
from mxfp4lab.layouts import e8m0_unshuffle, shuffle_weight
from mxfp4lab.shapes import BENCHMARK_SHAPES, TEST_SHAPES, Shape
from mxfp4lab.task import (
    INPUT_NAMES,
    check_output,
    generate_input,
    input_dict,
    input_from,
    input_sum_bits,
    matmul_dequantized,
    reference_gemm,
    reference_output,
)

BF16 = torch.bfloat16


def small_input(m=5, n=32, k=192, seed=11):
    return generate_input((m, n, k), seed)


def test_inputs_have_the_tasks_form_and_order():
    a, b, b_q, b_shuffle, b_scale_sh = generate_input("8,2112,7168", 124)
    assert (a.shape, a.dtype) == ((8, 7168), BF16)
    assert (b.shape, b.dtype) == ((2112, 7168), BF16)
    assert (b_q.shape, b_q.dtype) == ((2112, 3584), torch.uint8)
    assert b_shuffle.equal(shuffle_weight(b_q))
    assert b_scale_sh.shape == (2304, 224)
    expected_q, expected_scale = quantize_mxfp4(b)
    assert b_q.equal(expected_q)
    assert e8m0_unshuffle(b_scale_sh, 2112, 224).equal(expected_scale)
    generator = torch.Generator().manual_seed(124)  # one generator, A first
    assert a.equal(torch.randn((8, 7168), dtype=BF16, generator=generator))
    assert b.equal(torch.randn((2112, 7168), dtype=BF16, generator=generator))


def test_padding_of_the_scales_is_zero():
    data = small_input(n=32, k=192)
    whole = e8m0_unshuffle(data[4])
    assert whole.shape == (256, 8)
    assert (whole[32:] == 0).all()
    assert (whole[:, 6:] == 0).all()


def test_a_seed_decides_every_byte_and_names_bind_in_order():
    first, again, other = small_input(), small_input(), small_input(seed=12)
    assert all(x.equal(y) for x, y in zip(first, again, strict=True))
    assert not first[0].equal(other[0])
    named = input_dict((5, 32, 192), 11)
    assert tuple(named) == INPUT_NAMES
    assert all(named[name].equal(x) for name, x in zip(INPUT_NAMES, first, strict=True))


def test_task_dtypes_are_views_of_the_same_bytes():
    plain = small_input()
    typed = generate_input((5, 32, 192), 11, task_dtypes=True)
    assert [t.dtype for t in typed] == [
        BF16, BF16, torch.float4_e2m1fn_x2, torch.float4_e2m1fn_x2, torch.float8_e8m0fnu,
    ]  # fmt: skip
    for x, y in zip(plain[2:], typed[2:], strict=True):
        assert x.equal(y.view(torch.uint8))
    assert reference_output(typed).equal(reference_output(plain))


@pytest.mark.parametrize("k", [64, 192, 512, 1664])
@pytest.mark.parametrize("m", [1, 5, 33])
def test_reference_is_the_exact_sum_rounded_to_bf16(m, k):
    a, _, b_q, b_shuffle, b_scale_sh = data = generate_input((m, 32, k), 100 * m + k)
    c = reference_output(data)
    assert (c.shape, c.dtype) == ((m, 32), BF16)
    assert c.equal(reference_gemm(a, b_shuffle, b_scale_sh, shuffled=True))
    a_q, a_scale = quantize_mxfp4(a)
    b_scale = e8m0_unshuffle(b_scale_sh, 32, k // 32)
    for i, j in {(0, 0), (m - 1, 31), (m // 2, 7)}:
        total = Fraction(0)
        for block in range(k // 32):
            span = slice(16 * block, 16 * block + 16)
            products = decode_e2m1(unpack_fp4(a_q[i, span])) * decode_e2m1(unpack_fp4(b_q[j, span]))
            exponent = int(a_scale[i, block]) + int(b_scale[j, block]) - 254
            total += sum(Fraction(float(p)) for p in products) * Fraction(2) ** exponent
        assert float(c[i, j]) == float(torch.tensor(float(total)).to(BF16))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: generate_input((5, 33, 192), 1), "n=33 must be a multiple of 32"),
        (lambda: generate_input((5, 32, 96), 1), "k=96 must be a multiple of 64"),
        (lambda: generate_input((5, 32, 192), -1), "seed=-1"),
        (lambda: generate_input((5, 32, 192), 1.5), "seed=1.5"),
        (lambda: generate_input((5, 32, 192), True), "seed=True"),
        (lambda: input_from(torch.zeros(2, 64), torch.zeros(32, 64, dtype=BF16)), "a is torch.float32"),
        (lambda: input_from(torch.zeros(2, 64, dtype=BF16), torch.zeros(32, 128, dtype=BF16)), "must be equal"),
        (lambda: reference_gemm(small_input(k=64)[0], small_input()[2], small_input()[4]), "need [M, K] and [N, K"),
    ],
)
def test_bad_requests_are_refused_by_name(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value)


# ---- acceptance -----------------------------------------------------------------------------------------------------


def test_the_reference_itself_passes():
    ref = reference_output(small_input())
    check = check_output(ref.clone(), ref)
    assert check.passed
    assert check.task_accepts
    assert (check.bf16_identical_fraction, check.max_abs_err, check.mismatches) == (1.0, 0.0, 0)
    assert check.first_mismatch is None


def test_tolerance_is_evaluated_in_bf16_as_the_task_does():
    ref = torch.tensor([[100.0, 1.0]], dtype=BF16)
    # 0.01 + 0.01 * 100 = 1.01 is not a bf16: it becomes 1.0078125, and the difference of 101 and 100 is 1
    assert check_output(torch.tensor([[101.0, 1.0]], dtype=BF16), ref).passed
    assert not check_output(torch.tensor([[101.5, 1.0]], dtype=BF16), ref).passed
    # 1.0234375 - 1 = 0.0234375 > 0.02 = bf16 0.0200195; 1.015625 passes
    check = check_output(torch.tensor([[100.0, 1.0234375]], dtype=BF16), ref)
    assert (check.passed, check.mismatches, check.first_mismatch) == (False, 1, (0, 1))
    assert "first at (0, 1): 1.02344 where 1 is expected" in check.message
    assert check.bf16_identical_fraction == 0.5
    close = check_output(torch.tensor([[100.0, 1.015625]], dtype=BF16), ref)
    assert close.passed
    assert close.bf16_identical_fraction == 0.5
    assert close.max_abs_err == 0.015625


@pytest.mark.parametrize(
    ("c", "ref", "accepted"),
    [
        (math.nan, math.nan, True),
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (math.inf, 1.0, False),
        (3e38, math.inf, False),
        (-0.0, 0.0, True),
    ],
)
def test_nan_and_infinity_must_be_in_the_same_places(c, ref, accepted):
    check = check_output(torch.tensor([[c, 1.0]], dtype=BF16), torch.tensor([[ref, 1.0]], dtype=BF16))
    assert check.passed == check.task_accepts == accepted
    assert check.max_abs_err == 0.0
    assert check.bf16_identical_fraction == (1.0 if accepted and c != 0 else 0.5)


def test_shape_and_dtype_are_verdicts():
    ref = reference_output(small_input())
    wrong_shape = check_output(ref[:4], ref)
    assert not wrong_shape.passed
    assert not wrong_shape.task_accepts
    assert wrong_shape.message == "shape (4, 32) where (5, 32) is expected"
    as_float = check_output(ref.float(), ref)
    assert not as_float.passed
    assert as_float.task_accepts
    assert "the task itself does not check the dtype" in as_float.message
    assert not check_output(None, ref).passed


# ---- exactness and ties ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "bits"),
    [
        (BENCHMARK_SHAPES[0], 14.61),
        (BENCHMARK_SHAPES[2], 14.62),
        (TEST_SHAPES[3], 14.68),
        (TEST_SHAPES[1], 16.10),
    ],
    ids=str,
)
def test_task_sums_fit_an_fp32_accumulator(case, bits):
    data = generate_input(case.shape, case.seed)
    assert round(input_sum_bits(data), 2) == bits
    a_q, a_scale = quantize_mxfp4(data[0])
    n, k = case.shape.n, case.shape.k
    a, b = dequantize_mxfp4(a_q, a_scale), dequantize_mxfp4(data[2], e8m0_unshuffle(data[4], n, k // 32))
    shuffled_k = torch.randperm(k, generator=torch.Generator().manual_seed(0))
    in_another_order = (a[:, shuffled_k] @ b[:, shuffled_k].T).to(BF16)
    assert in_another_order.equal(reference_output(data))


def test_sum_bits_of_a_hand_made_sum():
    a, b = torch.zeros(1, 64), torch.zeros(1, 64)
    a[0, 0], a[0, 33] = 6.0, 2.0**-20  # block scales 2^0 and 2^-22: the small value is 4 * 2^-22
    b[0, 0], b[0, 33] = 6.0, 6.0
    bits = sum_bits(*quantize_mxfp4(a), *quantize_mxfp4(b))
    # A counts in 2^-20, B in 2^1; the largest sum is 36 + 6 * 2^-20
    assert bits == pytest.approx(math.log2(36 + 6 * 2.0**-20) + 20 - 1, abs=1e-12)
    assert sum_bits(*quantize_mxfp4(torch.zeros(1, 64)), *quantize_mxfp4(b)) == 0.0


@pytest.mark.parametrize("scale", [0, 1, 127, 254])
def test_sum_bits_count_from_the_smallest_step_at_every_scale(scale):
    packed = torch.tensor([[0x10] + [0] * 15], dtype=torch.uint8)  # one 0.5
    scales = torch.tensor([[scale]], dtype=torch.uint8)
    assert sum_bits(packed, scales, packed, torch.tensor([[127]], dtype=torch.uint8)) == 0.0
    six = torch.tensor([[0x71] + [0] * 15], dtype=torch.uint8)  # 0.5 and 6
    assert sum_bits(six, scales, six, scales) == pytest.approx(math.log2(36.25) + 2)


def test_wide_exponents_need_more_bits_than_fp32_has():
    a, b, *_ = generate_input((4, 32, 2048), 5)
    exponent = torch.randint(-12, 12, (4, 64), generator=torch.Generator().manual_seed(5)).float()
    wide = (a.float() * torch.exp2(exponent).repeat_interleave(32, dim=1)).bfloat16()
    assert input_sum_bits(input_from(wide, b)) > 24 > input_sum_bits(input_from(a, b))


def test_one_tie_rounded_the_old_way_breaks_thousands_of_outputs():
    a, _, b_q, _, b_scale_sh = data = generate_input(Shape(64, 7168, 2048), 687)
    reference = reference_output(data)
    (packed, scale), (old, _) = quantize_mxfp4(a), quantize_mxfp4(a, rounding="half_away")
    new_codes, old_codes = unpack_fp4(packed), unpack_fp4(old)
    ties = (new_codes != old_codes).flatten().nonzero()[:, 0]
    assert len(ties) == 843
    new_codes.view(-1)[ties[0]] = old_codes.view(-1)[ties[0]]
    b_scale = e8m0_unshuffle(b_scale_sh, 7168, 64)
    one = check_output(matmul_dequantized(pack_fp4(new_codes), scale, b_q, b_scale), reference)
    assert (one.passed, one.mismatches) == (False, 3845)
    every = reference_gemm(a, b_q, b_scale_sh, rounding="half_away")
    assert check_output(every, reference).mismatches == 373034
