"""The arithmetic behind the stand-in, from the task's reference."""

import reference
import torch

note = lambda text: None  # noqa: E731 - replaced by the process that runs the submission
prebuilt = lambda request, tensors: {"error": "nothing executes machine code here"}  # noqa: E731 - likewise


def quantize(x, shuffle=False):
    """(packed [R, K // 2], scale) of the task's quantization; the scale shuffled and padded on demand."""
    note("aiter's quantization is computed by the torch reference, not by AMD's kernel")
    packed, scale = reference.quantize_mxfp4(x)
    return packed, reference.shuffle_scales(scale, pad_value=0) if shuffle else scale


def rows_of(scale, rows, cols):
    """Plain [rows, cols] scales from shuffled ones."""
    return reference.unshuffle_scales(scale)[:rows, :cols]


def gemm(a_q, b, a_scale_sh, b_scale_sh, preshuffled, dtype, rows=None):
    """C [rows, N] of shuffled operands, in float32, rounded once; rows past A's are zero."""
    a_q, b = a_q.view(torch.uint8), b.view(torch.uint8)
    m, groups = a_q.shape[0], a_q.shape[1] // 16
    b_q = reference.unshuffle_weights(b) if preshuffled else b
    a = reference.dequantize_mxfp4(a_q, rows_of(a_scale_sh, m, groups))
    c = (a @ reference.dequantize_mxfp4(b_q, rows_of(b_scale_sh, b.shape[0], groups)).T).to(dtype)
    return c if rows is None or rows <= m else torch.nn.functional.pad(c, (0, 0, 0, rows - m))


def gemm_into(out, a_q, b, a_scale_sh, b_scale_sh, preshuffled, kernel="", log2_k_split=None, alpha=1.0, beta=0.0):
    """C into `out` [at least M rows padded to 32, N]: AMD's machine code where the check can execute it."""
    m, n, k = a_q.shape[0], b.shape[0], 2 * a_q.shape[1]
    plain = out.dtype == torch.bfloat16 and preshuffled and alpha == 1.0 and beta in (0, 0.0, None)
    if plain and out.is_contiguous() and out.shape[0] >= -(-m // 32) * 32:
        names = ("a_q", "b_shuffle", "a_scale_sh", "b_scale_sh", "c")
        tensors = dict(zip(names, (a_q, b, a_scale_sh, b_scale_sh, out), strict=True))
        request = {"m": m, "n": n, "k": k, "kernel": kernel or "", "log2_k_split": log2_k_split if kernel else None}
        answer = prebuilt(request, tensors)
        if "error" not in answer:
            note(f"aiter's GEMM is AMD's own machine code, emulated: {answer['name']}")
            return out
        note(f"aiter's GEMM is computed by the torch reference: {answer['error']}")
    else:
        note("aiter's GEMM is computed by the torch reference, not by AMD's machine code")
    out.copy_(gemm(a_q, b, a_scale_sh, b_scale_sh, preshuffled, out.dtype, rows=out.shape[0]))
    return out


def gemm_plain(a_q, b_q, a_scale, b_scale, dtype):
    """C of row-major operands with row-major scales."""
    note("aiter's GEMM is computed by the torch reference, not by AMD's kernel")
    k_groups = a_q.shape[1] // 16
    a = reference.dequantize_mxfp4(a_q, a_scale[: a_q.shape[0], :k_groups])
    return (a @ reference.dequantize_mxfp4(b_q, b_scale[: b_q.shape[0], :k_groups]).T).to(dtype)
