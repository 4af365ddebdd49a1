"""The conversion of one block, step by step, for people to follow."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mxfp4lab.formats import BLOCK, E2M1_VALUES, E8M0_BIAS, encode_e2m1, quantize_mxfp4


@dataclass(frozen=True)
class ScaleStep:
    """How a block gets its scale byte (EVEN mode).

    Attributes:
        amax: largest magnitude.
        bits: its float32 bits.
        rounded_bits: `(bits + 0x200000) & 0xFF800000`: the power of two, one more from mantissa 1.75 on.
        exponent: the shared exponent, `log2(rounded) - 2` within -127..127.
        byte: `exponent + 127`.
    """

    amax: float
    bits: int
    rounded_bits: int
    exponent: int
    byte: int


@dataclass(frozen=True)
class ElementStep:
    """How one element gets its nibble.

    Attributes:
        k: index within the block.
        x: the value.
        scaled: `|x| * 2^-exponent`, what e2m1 has to represent.
        below, above: the e2m1 magnitudes on either side (equal where `scaled` is one of them, or saturates).
        tie: whether `scaled` is exactly halfway.
        nibble: code with ties to even.
        old_nibble: code with ties away from zero (aiter before PR 975).
        value: what the nibble stands for, `decode(nibble) * 2^exponent`.
    """

    k: int
    x: float
    scaled: float
    below: float
    above: float
    tie: bool
    nibble: int
    old_nibble: int
    value: float


def scale_step(block: torch.Tensor) -> ScaleStep:
    """The scale of one block.

    Args:
        block: up to 32 finite values, float32 or bfloat16.
    """
    amax = block.float().abs().max()
    bits = int(amax.view(torch.int32))
    byte = int(quantize_mxfp4(_filled(block))[1][0])
    return ScaleStep(float(amax), bits, (bits + 0x200000) & 0xFF800000, byte - E8M0_BIAS, byte)


def element_steps(block: torch.Tensor) -> tuple[ElementStep, ...]:
    """The nibbles of one block, element by element.

    Args:
        block: up to 32 finite values, float32 or bfloat16.
    """
    exponent = scale_step(block).exponent
    values = block.float()
    scaled = (values.double().abs() * 2.0**-exponent).float()  # exact: a power of two
    signs = torch.signbit(values).to(torch.uint8) * 8
    new, old = encode_e2m1(scaled, "even") | signs, encode_e2m1(scaled, "half_away") | signs
    steps = []
    for k in range(values.numel()):
        s = float(scaled[k])
        below = max(v for v in E2M1_VALUES if v <= s)
        above = min((v for v in E2M1_VALUES if v >= s), default=E2M1_VALUES[-1])
        magnitude = E2M1_VALUES[int(new[k]) & 7]
        sign = -1.0 if signs[k] else 1.0
        steps.append(
            ElementStep(
                k, float(values[k]), s, below, above, below < s < above and s == (below + above) / 2,
                int(new[k]), int(old[k]), sign * magnitude * 2.0**exponent,
            )
        )  # fmt: skip
    return tuple(steps)


def packed_bytes(block: torch.Tensor, rounding: str = "even") -> list[int]:
    """The 16 bytes of one block."""
    return quantize_mxfp4(_filled(block), rounding=rounding)[0].tolist()


def _filled(block: torch.Tensor) -> torch.Tensor:
    if block.dim() != 1 or not 0 < block.numel() <= BLOCK:
        raise ValueError(f"block has shape {tuple(block.shape)}; it must be 1 to {BLOCK} values")
    return torch.nn.functional.pad(block.float(), (0, BLOCK - block.numel()))
