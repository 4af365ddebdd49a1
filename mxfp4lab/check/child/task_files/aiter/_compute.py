"""The arithmetic behind the stand-in, from the task's reference."""

import enum
import json
import os

import reference
import torch

note = lambda text: None  # noqa: E731 - replaced by the process that runs the submission
prebuilt = lambda request, tensors: {"error": "nothing executes machine code here"}  # noqa: E731 - likewise

fp4x2 = getattr(torch, "float4_e2m1fn_x2", torch.uint8)
fp8_e8m0 = getattr(torch, "float8_e8m0fnu", torch.uint8)
fp8 = torch.float8_e4m3fn
bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
u8, i8, i32 = torch.uint8, torch.int8, torch.int32
d_dtypes = {"fp4x2": fp4x2, "fp8_e8m0": fp8_e8m0, "fp8": fp8, "bf16": bf16, "fp16": fp16, "fp32": fp32, "i8": i8}
mxfp4_to_f32 = reference.dequantize_mxfp4
AITER_TRITON_CONFIGS_PATH = os.path.join(os.environ.get("HOME", "."), "aiter_configs")
os.makedirs(os.path.join(AITER_TRITON_CONFIGS_PATH, "gemm"), exist_ok=True)


class QuantType(enum.IntEnum):
    """How many elements share a scale."""

    No = 0
    per_Tensor = 1
    per_Token = 2
    per_1x32 = 3
    per_1x128 = 4
    per_128x128 = 5


def get_triton_quant(kind):
    """The function that quantizes 1x32 blocks to MXFP4.

    Raises:
        ValueError: for another kind: the task needs no other.
    """
    if kind != QuantType.per_1x32:
        raise ValueError(f"get_triton_quant({kind!r}): this stand-in for aiter offers QuantType.per_1x32 only")

    def quantize_1x32(x, scale=None, quant_dtype=None, shuffle=False, **_):
        packed, scales = dynamic_mxfp4_quant(x, shuffle=shuffle)
        return packed.view(fp4x2), scales.view(fp8_e8m0)

    return quantize_1x32


get_hip_quant = get_torch_quant = get_triton_quant


def dynamic_mxfp4_quant(x, scaling_mode="even", shuffle=False, **_):
    """(packed uint8 [R, K // 2], scale uint8 [R, K // 32], padded and shuffled on demand).

    Raises:
        ValueError: for a scaling mode other than the task's.
    """
    if scaling_mode != "even":
        raise ValueError(f"scaling_mode={scaling_mode!r}: this stand-in for aiter offers 'even' only")
    note("aiter's quantization is computed by the torch reference, not by AMD's kernel")
    packed, scale = reference.quantize_mxfp4(x)
    return packed, reference.shuffle_scales(scale, pad_value=0) if shuffle else scale


def e8m0_shuffle(scale):
    """Padded and shuffled scales, in the dtype that came in."""
    return reference.shuffle_scales(scale.view(torch.uint8), pad_value=0).view(scale.dtype)


shuffle_scale = e8m0_shuffle


def e8m0_to_f32(scale):
    """2^(byte - 127)."""
    return torch.ldexp(torch.ones((), device=scale.device), scale.view(torch.uint8).float() - 127)


def shuffle_weight(x, layout=(16, 16), use_int4=False, **_):
    """Bytes of [N, K // 2] in (16, 16) tiles."""
    return reference.shuffle_weights(x.view(torch.uint8)).view(x.dtype)


def _plain_scales(scale, rows, cols):
    return reference.unshuffle_scales(scale)[:rows, :cols]


def gemm_a4w4(A, B, A_scale, B_scale, bias=None, dtype=torch.bfloat16, alpha=1.0, beta=0.0, bpreshuffle=True, **_):
    """C [M, N] = A @ B.T of MXFP4 operands with shuffled scales."""
    m, n = A.shape[0], B.shape[0]
    out = torch.empty((m + 31) // 32 * 32, n, dtype=dtype, device=A.device)
    return gemm_a4w4_asm(A, B, A_scale, B_scale, out, "", bias, alpha, beta, bpreshuffle)[:m]


def gemm_a4w4_asm(
    A, B, A_scale, B_scale, out, kernelName="", bias=None, alpha=1.0, beta=0.0, bpreshuffle=True, log2_k_split=None
):
    """AMD's direct call: fills `out` [M padded to 32, N] and returns it; an empty name leaves the choice to aiter."""
    m, n, k = A.shape[0], B.shape[0], 2 * A.shape[1]
    plain = out.dtype == torch.bfloat16 and bpreshuffle and alpha == 1.0 and beta in (0, 0.0, None) and bias is None
    if plain and out.is_contiguous() and out.shape[0] >= -(-m // 32) * 32:
        names = ("a_q", "b_shuffle", "a_scale_sh", "b_scale_sh", "c")
        tensors = dict(zip(names, (A, B, A_scale, B_scale, out), strict=True))
        split = log2_k_split if kernelName else None
        request = {"m": m, "n": n, "k": k, "kernel": kernelName or "", "log2_k_split": split}
        answer = prebuilt(request, tensors)
        if "error" not in answer:
            note(f"aiter's GEMM is AMD's own machine code, emulated: {answer['name']}")
            return out
        note(f"aiter's GEMM is computed by the torch reference: {answer['error']}")
    else:
        note("aiter's GEMM is computed by the torch reference, not by AMD's machine code")
    a_q, b_q, groups = A.view(torch.uint8), B.view(torch.uint8), k // 32
    b_q = reference.unshuffle_weights(b_q) if bpreshuffle else b_q
    c = alpha * _product(a_q, b_q, _plain_scales(A_scale, m, groups), _plain_scales(B_scale, n, groups))
    out[:m].copy_(c if bias is None else c + bias)
    return out


def get_GEMM_config(M, N, K):
    """The row of an installed aiter's table, where it names a prebuilt code object; else None: aiter's heuristic."""
    with open(os.path.join(os.path.dirname(__file__), "tuned.json")) as file:
        rows = {tuple(row[:3]): row[3:] for row in json.load(file)}
    step = 16 if M <= 256 else 32 if M <= 1024 else 64 if M <= 4096 else 128
    for rows_of_a in (M, -(-M // step) * step, 1 << (M - 1).bit_length()):
        if (rows_of_a, N, K) in rows:
            name, split = rows[rows_of_a, N, K]
            return {"kernelName": name, "splitK": split}
    return None


def _product(a_q, b_q, a_scale, b_scale):
    return reference.dequantize_mxfp4(a_q, a_scale) @ reference.dequantize_mxfp4(b_q, b_scale).T


def gemm_afp4wfp4(x, w, x_scales, w_scales, dtype=torch.bfloat16, y=None, config=None, **_):
    """C = x @ w.T, row-major operands and scales."""
    note("aiter's GEMM is computed by the torch reference, not by AMD's kernel")
    groups = x.shape[1] // 16
    c = _product(x, w, x_scales[: x.shape[0], :groups], w_scales[: w.shape[0], :groups]).to(dtype)
    return c if y is None else y.copy_(c)


def gemm_a16wfp4(x, w, w_scales, atomic_add=False, dtype=torch.bfloat16, y=None, config=None, **_):
    """C = quantize(x) @ w.T with row-major w and scales."""
    x_q, x_scale = dynamic_mxfp4_quant(x)
    return gemm_afp4wfp4(x_q, w, x_scale, w_scales, dtype, y)


def gemm_a16wfp4_preshuffle(x, w, w_scales, prequant=True, dtype=torch.bfloat16, y=None, config=None, **_):
    """C = quantize(x) @ w.T with w as [N // 16, 16 K // 2] tiles and shuffled scales as [N // 32, K]."""
    n, k_bytes = w.shape[0] * 16, w.shape[1] // 16
    w_q = reference.unshuffle_weights(w.contiguous().view(torch.uint8).view(n, k_bytes))
    scales = w_scales.contiguous().view(torch.uint8).view(n // 32, k_bytes // 128, 4, 16, 2, 2)
    plain = scales.permute(0, 5, 3, 1, 4, 2).contiguous().view(n, k_bytes // 16)
    return gemm_a16wfp4(x, w_q, plain, dtype=dtype, y=y)


def get_splitk(K, BLOCK_SIZE_K, NUM_KSPLIT):
    """(elements of K a split, block, splits): fewer splits, then a smaller block, until every split is even."""

    def share():
        return -(-2 * -(-K // NUM_KSPLIT) // BLOCK_SIZE_K) * BLOCK_SIZE_K

    while NUM_KSPLIT > 1 and BLOCK_SIZE_K > 16:
        if K % (share() // 2) or share() % BLOCK_SIZE_K:
            NUM_KSPLIT //= 2
        elif K % (BLOCK_SIZE_K // 2):
            BLOCK_SIZE_K //= 2
        else:
            break
    return share(), BLOCK_SIZE_K, NUM_KSPLIT


def get_arch():
    """The emulated one."""
    return "gfx950"


get_device = get_arch


def get_num_xcds():
    """XCDs of an MI355X."""
    return 8


def is_fp4_avail():
    """gfx950 multiplies FP4."""
    return True


serialize_dict, deserialize_str = json.dumps, json.loads
