"""The task's inputs and its answer in plain torch: what `reference` offers to a submission that imports it.

The check itself generates its inputs and judges outputs in its own process; this module decides nothing.
"""

import torch
from utils import make_match_reference

SCALE_GROUP_SIZE = 32
_E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def quantize_mxfp4(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """bf16 [R, K] -> two e2m1 codes a byte [R, K // 2], low nibble first, and e8m0 bytes [R, K // 32].

    Scale by aiter's EVEN rule (carry at mantissa 1.75), values to nearest-even, saturating at 6.
    """
    rows, cols = x.shape
    blocks = x.float().view(rows, cols // SCALE_GROUP_SIZE, SCALE_GROUP_SIZE)
    bits = blocks.abs().amax(dim=-1).view(torch.int32) + 0x200000
    exponent = (((bits >> 23) & 0xFF) - 127 - 2).clamp(-127, 127)
    scaled = torch.ldexp(blocks, -exponent.unsqueeze(-1).float())
    size = scaled.abs()
    code = (size > 0.25).int() + (size >= 0.75).int() + (size > 1.25).int() + (size >= 1.75).int()
    code += (size > 2.5).int() + (size >= 3.5).int() + (size > 5.0).int()
    code = (code + 8 * torch.signbit(scaled).int()).to(torch.uint8).view(rows, cols)
    return code[:, 0::2] | (code[:, 1::2] << 4), (exponent + 127).to(torch.uint8)


def dequantize_mxfp4(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The float32 values of packed e2m1 with their e8m0 scales."""
    packed = packed.view(torch.uint8)
    table = torch.tensor(_E2M1 + [-v for v in _E2M1], dtype=torch.float32, device=packed.device)
    codes = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2).long()
    factor = torch.ldexp(torch.ones((), device=packed.device), scale.view(torch.uint8).float() - 127)
    return table[codes] * factor.repeat_interleave(SCALE_GROUP_SIZE, dim=-1)


def shuffle_weights(x: torch.Tensor, layout: tuple[int, int] = (16, 16)) -> torch.Tensor:
    """[N, K // 2] bytes in (16, 16) tiles, as gemm_a4w4 reads them."""
    n, cols = x.shape
    return x.view(n // 16, 16, cols // 32, 2, 16).permute(0, 2, 3, 1, 4).contiguous().view(n, cols)


def unshuffle_weights(x: torch.Tensor) -> torch.Tensor:
    """The inverse of `shuffle_weights`."""
    n, cols = x.shape
    return x.view(n // 16, cols // 32, 2, 16, 16).permute(0, 3, 1, 2, 4).contiguous().view(n, cols)


def shuffle_scales(scale: torch.Tensor, pad_value: int = 127) -> torch.Tensor:
    """[R, C] e8m0 bytes -> padded to 256 rows and 8 columns, in gemm_a4w4's order."""
    rows, cols = scale.shape
    padded = torch.full((-(-rows // 256) * 256, -(-cols // 8) * 8), pad_value, dtype=torch.uint8, device=scale.device)
    padded[:rows, :cols] = scale.view(torch.uint8)
    r, c = padded.shape
    return padded.view(r // 32, 2, 16, c // 8, 2, 4).permute(0, 3, 5, 2, 4, 1).contiguous().view(r, c)


def unshuffle_scales(scale: torch.Tensor) -> torch.Tensor:
    """The inverse of `shuffle_scales`, padding kept."""
    r, c = scale.shape
    return scale.view(torch.uint8).view(r // 32, c // 8, 4, 16, 2, 2).permute(0, 5, 3, 1, 4, 2).contiguous().view(r, c)


def generate_input(m: int, n: int, k: int, seed: int):
    """(A, B, B_q, B_shuffle, B_scale_sh) on the GPU from one seeded generator, A first."""
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    a = torch.randn((m, k), dtype=torch.bfloat16, device="cuda", generator=generator)
    b = torch.randn((n, k), dtype=torch.bfloat16, device="cuda", generator=generator)
    b_q, b_scale = quantize_mxfp4(b)
    return a, b, b_q, shuffle_weights(b_q), shuffle_scales(b_scale)


def ref_kernel(data):
    """quantize(A) @ dequantize(B_q).T in float32, rounded to bf16."""
    a, b, *_ = data
    b_packed, b_scale = quantize_mxfp4(b)
    return (dequantize_mxfp4(*quantize_mxfp4(a)) @ dequantize_mxfp4(b_packed, b_scale).T).to(torch.bfloat16)


check_implementation = make_match_reference(ref_kernel, rtol=1e-2, atol=1e-2)
