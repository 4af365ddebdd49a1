"""MXFP4 numbers: e2m1 elements, e8m0 block scales, and the quantizer that the task's reference uses.

OCP Microscaling Formats (MX) v1.0, sections 5.3.3 (FP4 E2M1), 5.4.1 (E8M0) and 6.3 (conversion). A block is 32
consecutive elements along K that share one scale byte; two elements share one byte, the even one in the low nibble.

Everything here is torch on any device, vectorised, and exact: no step depends on how a library rounds, because
elements are encoded by comparing float bits as integers and scales come from exponent fields.
"""

from __future__ import annotations

import math

import torch

BLOCK = 32
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E8M0_BIAS = 127
E8M0_NAN = 255

SCALE_MODES = ("even", "floor", "round_up", "ceil")
ROUNDINGS = ("even", "half_away")
NONFINITE = ("raise", "saturate")
FP32_BITS = 24  # significand of an fp32 accumulator

_EXACT_INPUTS = (torch.float32, torch.bfloat16, torch.float16)
_CHUNK = 1 << 20  # elements handled at once on a CPU: the temporaries of one chunk stay in its caches

# Float bits of the seven midpoints 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0. A magnitude's code is the number of
# thresholds at or below its bits. Away from zero: the midpoint itself counts. Nearest-even: it counts only where
# the upper code is even, otherwise the threshold is the next float.
_MIDPOINTS = (0x3E800000, 0x3F400000, 0x3FA00000, 0x3FE00000, 0x40200000, 0x40600000, 0x40A00000)
_THRESHOLDS = {
    "half_away": _MIDPOINTS,
    "even": tuple(bits + (code % 2) for code, bits in enumerate(_MIDPOINTS, start=1)),
}


def _require(name: str, value: object, allowed: tuple) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")


def _float_bits(x: torch.Tensor) -> torch.Tensor:
    """The bits of `x` as int32 after the (exact) conversion to float32."""
    if x.dtype not in _EXACT_INPUTS:
        # float64 would be rounded twice (to float32, then to e2m1), and integers have no exponent to read.
        raise ValueError(f"x has dtype {x.dtype}; allowed: float32, bfloat16, float16 (float64 would round twice)")
    return x.to(torch.float32).contiguous().view(torch.int32)


def encode_e2m1(x: torch.Tensor, rounding: str = "even") -> torch.Tensor:
    """Round each value to the nearest e2m1 code, saturating at 6; the sign of zero is kept.

    Args:
        x: any shape, float32, bfloat16 or float16.
        rounding: "even" = ties to the even code (OCP MX v1.0, aiter since PR 975, the gfx950 instruction);
            "half_away" = ties away from zero (aiter before PR 975).

    Returns:
        uint8 codes 0..15 of `x`'s shape, `sign << 3 | exponent << 1 | mantissa`. NaN gives 7 with its own sign.

    Raises:
        ValueError: on an unknown rounding or a dtype whose conversion to float32 is not exact.
    """
    _require("rounding", rounding, ROUNDINGS)
    bits = _float_bits(x)
    thresholds = torch.tensor(_THRESHOLDS[rounding], dtype=torch.int32, device=bits.device)
    code = torch.bucketize(bits & 0x7FFFFFFF, thresholds, out_int32=True, right=True)
    return (code | ((bits >> 28) & 8)).to(torch.uint8)


def decode_e2m1(code: torch.Tensor) -> torch.Tensor:
    """The float32 values of e2m1 codes (uint8, 0..15): 0 .5 1 1.5 2 3 4 6 and their negatives, -0 included.

    Raises:
        ValueError: if a code is above 15 or not uint8.
    """
    _require_uint8("code", code)
    if code.numel() and int(code.max()) > 15:
        raise ValueError(f"code has value {int(code.max())}; an e2m1 code is 0..15 (unpack_fp4 splits packed bytes)")
    table = torch.tensor(E2M1_VALUES + tuple(-v for v in E2M1_VALUES), dtype=torch.float32, device=code.device)
    return table[code.long()]


def pack_fp4(code: torch.Tensor) -> torch.Tensor:
    """Pack codes `[..., K]` uint8 into bytes `[..., K // 2]`, even k in the low nibble.

    Raises:
        ValueError: if K is odd or a code is not uint8.
    """
    _require_uint8("code", code)
    if code.shape[-1] % 2:
        raise ValueError(f"code has last dimension {code.shape[-1]}; it must be even (two codes per byte)")
    return (code[..., 0::2] & 15) | (code[..., 1::2] << 4)


def unpack_fp4(packed: torch.Tensor) -> torch.Tensor:
    """The inverse of `pack_fp4`: bytes `[..., K // 2]` uint8 to codes `[..., K]` uint8.

    Raises:
        ValueError: if `packed` is not uint8.
    """
    _require_uint8("packed", packed)
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)


def decode_e8m0(scale: torch.Tensor) -> torch.Tensor:
    """`2^(byte - 127)` as float32; byte 0 is 2^-127 (a subnormal, not zero), byte 255 is NaN (OCP MX v1.0, 5.4.1).

    Raises:
        ValueError: if `scale` is not uint8.
    """
    _require_uint8("scale", scale)
    bits = scale.to(torch.int32) << 23
    bits = torch.where(scale == 0, 0x00400000, bits)
    bits = torch.where(scale == E8M0_NAN, 0x7FC00000, bits)
    return bits.to(torch.int32).view(torch.float32)


def block_exponent(amax: torch.Tensor, scale_mode: str = "even") -> torch.Tensor:
    """The shared exponent `e` of blocks whose largest magnitudes are `amax`: each block is stored as `x * 2^-e`.

    With `amax = 1.f * 2^E` (emax of e2m1 is 2):
      even      E - 2, and one more from mantissa 1.75 on: the carry of `(bits + 0x200000) & 0xFF800000`
                (aiter `_mxfp4_quant_op`, the task's mode)
      floor     floor(log2 amax) - 2       (OCP MX v1.0, 6.3)
      round_up  ceil(log2(amax / 6))       no element saturates
      ceil      ceil(log2 amax) - 2
    clamped to [-127, 127]. amax = 0 gives -127. In mode "even" an amax >= 1.75 * 2^127 carries into the infinity
    pattern; aiter's op then clamps to 127, not 126, and so does this. (The op's nibbles there are zeros: it multiplies
    by exp2(-127), a denormal that the hardware flushes. Here, as by the convert instruction, they are rounded.)

    Args:
        amax: any shape, float32, non-negative.
        scale_mode: one of `SCALE_MODES`.

    Returns:
        int32 exponents of `amax`'s shape.
    """
    _require("scale_mode", scale_mode, SCALE_MODES)
    bits = amax.contiguous().view(torch.int32)
    carry = {"even": 0x200000, "floor": 0, "round_up": 0x3FFFFF, "ceil": 0x7FFFFF}[scale_mode]
    # round_up: log2(1.f / 1.5) is positive exactly from the first mantissa above 1.5 = 0x400000 on.
    # Subnormal amax: field 0 or 1 after the carry, both far below the clamp, as their true exponents are.
    field = (bits.clamp(max=0x7F800000) + carry) >> 23
    exponent = (field - (E8M0_BIAS + 2)).clamp(min=-E8M0_BIAS)
    infinite = field == 255 if scale_mode == "even" else bits >= 0x7F800000
    return torch.where(infinite, E8M0_BIAS, exponent)


def quantize_mxfp4(
    x: torch.Tensor, *, scale_mode: str = "even", rounding: str = "even", nonfinite: str = "raise"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize along the last dimension to MXFP4: `x ~ decode_e2m1(code) * 2^(scale - 127)`.

    `e = block_exponent(max |x| of the block)`, `code = e2m1(x * 2^-e)`, scale byte `e + 127`. The defaults are the
    task's: aiter `dynamic_mxfp4_quant` since PR 975 (EVEN scale, ties to even). K may be any even number: a tail of
    fewer than 32 elements is a block of its own and nothing past the row enters its maximum.

    NaN and infinity have no e2m1 code, and four conventions are in use for them (NaN scale, saturate, propagate by
    accident, undefined). Here they are an error unless asked for: "saturate" treats each of them as the largest
    magnitude with its own sign, so its block gets scale byte 254 and its element code 7 or 15.

    Args:
        x: [..., K] float32, bfloat16 or float16.
        scale_mode: see `block_exponent`.
        rounding: see `encode_e2m1`.
        nonfinite: "raise" or "saturate".

    Returns:
        packed [..., K // 2] uint8 (two e2m1 per byte, low nibble first) and scale [..., ceil(K / 32)] uint8 (e8m0).

    Raises:
        ValueError: on an unknown mode, odd K, a 0-d input, a dtype that does not convert exactly to float32, or
            NaN/infinity under nonfinite="raise" (with their count).
    """
    _require("scale_mode", scale_mode, SCALE_MODES)
    _require("rounding", rounding, ROUNDINGS)
    _require("nonfinite", nonfinite, NONFINITE)
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x.is_meta:
        kind = f"{x.layout} tensor on {x.device}" if isinstance(x, torch.Tensor) else type(x).__name__
        raise ValueError(f"x is a {kind}; it must be a dense torch tensor with contents")
    if x.dim() == 0 or x.shape[-1] == 0 or x.shape[-1] % 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; its last dimension must be even and at least 2")
    if x.dtype not in _EXACT_INPUTS:
        _float_bits(x)
    k = x.shape[-1]
    rows = x.detach().reshape(-1, k)
    if nonfinite == "raise":
        bad = int((~rows.isfinite()).sum())
        if bad:
            raise ValueError(f'x holds {bad} NaN or infinite values; pass nonfinite="saturate" to clamp them to +-6')
    blocks = -(-k // BLOCK)
    packed = torch.empty((rows.shape[0], k // 2), dtype=torch.uint8, device=x.device)
    scale = torch.empty((rows.shape[0], blocks), dtype=torch.uint8, device=x.device)
    step = max(1, _CHUNK // k) if x.device.type == "cpu" else max(1, rows.shape[0])
    for start in range(0, rows.shape[0], step):
        part = slice(start, start + step)
        packed[part], scale[part] = _quantize_rows(rows[part], scale_mode, rounding)
    return packed.view(*x.shape[:-1], k // 2), scale.view(*x.shape[:-1], blocks)


def _quantize_rows(x: torch.Tensor, scale_mode: str, rounding: str) -> tuple[torch.Tensor, torch.Tensor]:
    rows, k = x.shape
    values = x.to(torch.float32)
    if k % BLOCK:
        values = torch.nn.functional.pad(values, (0, -k % BLOCK))  # zeros never raise a maximum of magnitudes
    values = values.reshape(rows, -1, BLOCK)
    # The maximum of the magnitudes' bits is the maximum magnitude, and NaN (above infinity) is not lost in it.
    amax_bits = (values.view(torch.int32) & 0x7FFFFFFF).amax(dim=-1)
    exponent = block_exponent(amax_bits.view(torch.float32), scale_mode)
    inverse = decode_e8m0((E8M0_BIAS - exponent).to(torch.uint8))  # 2^-e, every one of them a float32
    # Exact: a power of two, and a result that underflows is far below the first midpoint.
    code = encode_e2m1(values * inverse[..., None], rounding)
    return pack_fp4(code.reshape(rows, -1)[:, :k]), (exponent + E8M0_BIAS).to(torch.uint8)


def dequantize_mxfp4(packed: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """`decode_e2m1(code) * 2^(scale - 127)`; a block with scale byte 255 is NaN.

    Args:
        packed: [..., K // 2] uint8.
        scale: [..., >= ceil(K / 32)] uint8; further columns (the shuffle's padding) are ignored.
        dtype: float32 (exact except that scale bytes above 252 can overflow to infinity) or float64 (always exact).

    Returns:
        [..., K] of `dtype`.

    Raises:
        ValueError: on dtypes other than uint8, or too few scale columns.
    """
    _require_uint8("packed", packed)
    _require_uint8("scale", scale)
    _require("dtype", dtype, (torch.float32, torch.float64))
    k = 2 * packed.shape[-1]
    blocks = -(-k // BLOCK)
    if scale.shape[:-1] != packed.shape[:-1] or scale.shape[-1] < blocks:
        raise ValueError(
            f"scale has shape {tuple(scale.shape)}; packed {tuple(packed.shape)} needs "
            f"{(*packed.shape[:-1], blocks)} or more columns"
        )
    byte = torch.arange(256, device=packed.device, dtype=torch.uint8)
    pairs = decode_e2m1(unpack_fp4(byte[:, None])).to(dtype)  # [256, 2]: both values of every byte
    values = pairs[packed.int()].flatten(-2)  # [..., K]
    factor = decode_e8m0(scale[..., :blocks]).to(dtype).repeat_interleave(BLOCK, dim=-1)[..., :k]
    return values.mul_(factor)


def cvt_scalef32_pk_fp4_f32(src0: torch.Tensor, src1: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Model of gfx950 `v_cvt_scalef32_pk_fp4_f32`: one byte `{e2m1(src1 / s), e2m1(src0 / s)}`.

    Only the exponent field of `scale` is used (CDNA4 ISA: `exponent(S2.f32)`), so s = 2^(field - 127) whatever its
    mantissa and sign say; field 0, zero and subnormals, means 2^-127. Rounds to nearest even, saturates at 6. The
    instruction writes one byte of its destination register (op_sel picks it) and keeps the others.

    Args:
        src0, src1, scale: float32 tensors of one shape (or broadcastable); src0 goes into the low nibble.

    Returns:
        uint8 of the broadcast shape.

    Raises:
        ValueError: if an operand is not float32.
    """
    for name, operand in (("src0", src0), ("src1", src1), ("scale", scale)):
        if operand.dtype != torch.float32:
            raise ValueError(f"{name} has dtype {operand.dtype}; the instruction reads float32")
    field = (scale.contiguous().view(torch.int32) >> 23) & 0xFF
    # float64: dividing by 2^128 (field 255) or 2^-127 is exact there, and e2m1 cannot see the rounding to float32
    # afterwards: a float32 source divided by a power of two is a float32, or too large, or too small to matter.
    inverse = torch.exp2((E8M0_BIAS - field).to(torch.float64))
    low = encode_e2m1((src0.double() * inverse).float())
    high = encode_e2m1((src1.double() * inverse).float())
    return low | (high << 4)


def sum_bits(a_q: torch.Tensor, a_scale: torch.Tensor, b_q: torch.Tensor, b_scale: torch.Tensor) -> float:
    """Bits that the sums of `C = A @ B.T` need over their common granularity.

    `log2(max_ij sum_k |a_ik b_jk|) - g_A - g_B`, where every element of A is a multiple of 2^g_A and of B of 2^g_B.
    Every partial sum, in whatever order, is a multiple of 2^(g_A + g_B) and no larger than that maximum: where the
    result is at most `FP32_BITS`, fp32 represents all of them, no addition rounds, and no order changes a bit of C.

    Args:
        a_q: [M, K // 2] uint8, a_scale: [M, >= K / 32] uint8; b_q: [N, K // 2] uint8, b_scale: [N, >= K / 32] uint8.

    Returns:
        The bits; 0.0 where A or B is zero.
    """
    a = dequantize_mxfp4(a_q, a_scale, torch.float64).abs()
    b = dequantize_mxfp4(b_q, b_scale, torch.float64).abs()
    largest = float((a @ b.T).max())
    return math.log2(largest) - _granularity(a) - _granularity(b) if largest else 0.0


def _granularity(x: torch.Tensor) -> int:
    """The largest g such that every element of x (float64, not all zero) is an integer multiple of 2^g."""
    bits = x[x > 0].view(torch.int64)
    mantissa = (bits & ((1 << 52) - 1)) | (1 << 52)
    lowest = torch.log2((mantissa & -mantissa).double()).long()
    return int(((bits >> 52) - 1075 + lowest).min())


def _require_uint8(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype != torch.uint8:
        raise ValueError(f"{name} has dtype {tensor.dtype}; it must be uint8 (use .view(torch.uint8))")
