"""When the bits of C do not depend on the order of summation, and what one rounding decision costs.

Two computed facts carry every "100 % identical" of this project: the sums of the task's inputs fit the 24 bits of
an fp32 accumulator, so any split and any MFMA order gives the same C; and elements of A that lie exactly between
two e2m1 values decide thousands of elements of C each, so the rounding of ties is not a detail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from mxfp4lab.formats import (
    BLOCK,
    E8M0_BIAS,
    decode_e2m1,
    dequantize_mxfp4,
    encode_e2m1,
    pack_fp4,
    quantize_mxfp4,
    unpack_fp4,
)
from mxfp4lab.layouts import e8m0_unshuffle
from mxfp4lab.shapes import Shape
from mxfp4lab.task import OutputCheck, check_output, generate_input, input_from, matmul_dequantized, reference_output

FP32_BITS = 24  # significand of the accumulator


def granularity_exponent(packed: torch.Tensor, scale: torch.Tensor) -> int | None:
    """The largest g such that every element is an integer multiple of 2^g; None if all elements are zero.

    Args:
        packed: [..., K // 2] uint8; scale: [..., >= ceil(K / 32)] uint8.
    """
    half_units = (decode_e2m1(unpack_fp4(packed)).abs() * 2).to(torch.int32)  # e2m1 counts in halves
    lowest_bit = half_units & -half_units
    k = half_units.shape[-1]
    exponent = scale[..., : -(-k // BLOCK)].to(torch.int32).repeat_interleave(BLOCK, dim=-1)[..., :k] - E8M0_BIAS - 1
    exponent = exponent + (lowest_bit == 2).int() + 2 * (lowest_bit == 4).int() + 3 * (lowest_bit == 8).int()
    nonzero = half_units > 0
    return int(exponent[nonzero].min()) if bool(nonzero.any()) else None


def sum_bits(a_q: torch.Tensor, a_scale: torch.Tensor, b_q: torch.Tensor, b_scale: torch.Tensor) -> float:
    """Bits that the sums of `C = A @ B.T` need over their common granularity.

    `log2(max_ij sum_k |a_ik b_jk|) - g_A - g_B`, where every element of A is a multiple of 2^g_A and of B of 2^g_B.
    Every partial sum, in whatever order, is a multiple of 2^(g_A + g_B) and no larger than that maximum: where the
    result is at most 24, fp32 represents all of them and no addition rounds.

    Args:
        a_q: [M, K // 2] uint8, a_scale: [M, >= K / 32] uint8; b_q: [N, K // 2] uint8, b_scale: [N, >= K / 32] uint8.

    Returns:
        The bits; 0.0 where A or B is zero.
    """
    g_a, g_b = granularity_exponent(a_q, a_scale), granularity_exponent(b_q, b_scale)
    if g_a is None or g_b is None:
        return 0.0
    a = dequantize_mxfp4(a_q, a_scale, torch.float64).abs()
    b = dequantize_mxfp4(b_q, b_scale, torch.float64).abs()
    largest = float((a @ b.T).max())
    return math.log2(largest) - g_a - g_b if largest else 0.0


def input_sum_bits(data: Sequence[torch.Tensor]) -> float:
    """`sum_bits` of the task's input tuple: 14.6 to 18.2 on its ten shapes."""
    a, _, b_q, _, b_scale_sh = data
    a_q, a_scale = quantize_mxfp4(a)
    return sum_bits(a_q, a_scale, b_q, e8m0_unshuffle(b_scale_sh, b_q.shape[0], -(-a.shape[1] // BLOCK)))


def scaled_magnitude(x: torch.Tensor) -> torch.Tensor:
    """`|x| * 2^-e` per element, e the block's shared exponent (EVEN): what e2m1 rounding sees. [..., K] float64."""
    k = x.shape[-1]
    _, scale = quantize_mxfp4(x)
    exponent = scale.to(torch.float64).repeat_interleave(BLOCK, dim=-1)[..., :k] - E8M0_BIAS
    return x.to(torch.float64).abs() * torch.exp2(-exponent)


def tie_mask(x: torch.Tensor) -> torch.Tensor:
    """Elements that lie exactly halfway between two e2m1 values of their block: bool of x's shape."""
    magnitude = scaled_magnitude(x)
    mask = torch.zeros_like(magnitude, dtype=torch.bool)
    for midpoint in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0):
        mask |= magnitude == midpoint
    return mask


def rounding_differences(x: torch.Tensor) -> torch.Tensor:
    """Elements whose code the two roundings give differently: bool of x's shape.

    They are the ties whose upper code is odd, about half of `tie_mask`.
    """
    magnitude = scaled_magnitude(x).to(torch.float32)  # exact: a float32 times a power of two
    return encode_e2m1(magnitude, "even") != encode_e2m1(magnitude, "half_away")


def quantize_with_old_ties(x: torch.Tensor, elements: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize nearest-even, except that some of the differing ties are rounded the old way (away from zero).

    Args:
        x: [..., K] bf16 or float32.
        elements: which of `rounding_differences(x)`, counted in row-major order; for example `[0]` or `range(10)`.

    Returns:
        packed, scale as `quantize_mxfp4` gives them.

    Raises:
        ValueError: if an index is out of range.
    """
    packed, scale = quantize_mxfp4(x)
    old = unpack_fp4(quantize_mxfp4(x, rounding="half_away")[0]).flatten()
    code = unpack_fp4(packed).flatten()
    places = rounding_differences(x).flatten().nonzero()[:, 0]
    for i in elements:
        if not 0 <= i < len(places):
            raise ValueError(f"elements holds {i}; there are {len(places)} elements that the roundings differ on")
    chosen = places[list(elements)]
    code[chosen] = old[chosen]
    return pack_fp4(code.view(*x.shape)), scale


# ---- what notebook 02 shows -----------------------------------------------------------------------------------------


def spread_input(
    shape: Shape, binades: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The task's tuple with every block of A scaled by a random power of two: sums that fp32 cannot hold.

    Args:
        shape: the GEMM.
        binades: exponents are drawn from -binades/2 .. binades/2 - 1.
        seed: of the inputs and of the exponents.
    """
    a, b, *_ = generate_input(shape, seed)
    generator = torch.Generator().manual_seed(seed)
    exponent = torch.randint(-(binades // 2), binades // 2, (shape.m, shape.k // BLOCK), generator=generator)
    spread = torch.exp2(exponent.float()).repeat_interleave(BLOCK, dim=1)
    return input_from((a.float() * spread).bfloat16(), b)


def order_matters(data: Sequence[torch.Tensor]) -> tuple[bool, int]:
    """Whether fp32 sums of the first row of C depend on their order.

    Returns:
        (whether any fp32 sum taken forward differs from the one taken backward, how many bf16 outputs differ).
    """
    a, _, b_q, _, b_scale_sh = data
    x = dequantize_mxfp4(*quantize_mxfp4(a[:1]))
    y = dequantize_mxfp4(b_q, e8m0_unshuffle(b_scale_sh, b_q.shape[0], -(-a.shape[1] // BLOCK)))
    products = (x * y).numpy()  # numpy accumulates float32 one by one in float32; torch on a CPU does not
    forward, backward = (
        torch.from_numpy(np.add.accumulate(products[:, ::step], axis=1)[:, -1].copy()) for step in (1, -1)
    )
    return not torch.equal(forward, backward), int((forward.bfloat16() != backward.bfloat16()).sum())


def with_old_ties(data: Sequence[torch.Tensor], count: int) -> OutputCheck:
    """C when the first `count` differing ties of A are rounded as before PR 975, judged against the reference."""
    a, _, b_q, _, b_scale_sh = data
    b_scale = e8m0_unshuffle(b_scale_sh, b_q.shape[0], -(-a.shape[1] // BLOCK))
    c = matmul_dequantized(*quantize_with_old_ties(a, range(count)), b_q, b_scale)
    return check_output(c, reference_output(data))


def unquantized(data: Sequence[torch.Tensor]) -> OutputCheck:
    """C when A is not quantized at all (summed in float64), judged against the reference."""
    a, _, b_q, _, b_scale_sh = data
    b = dequantize_mxfp4(b_q, e8m0_unshuffle(b_scale_sh, b_q.shape[0], -(-a.shape[1] // BLOCK)), torch.float64)
    return check_output((a.double() @ b.T).float().bfloat16(), reference_output(data))
