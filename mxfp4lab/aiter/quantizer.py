"""aiter's own quantize kernel as a function, and which rounding a quantizer has: asked of its answers, never its name.

Two quantizers inside one library disagreed for months, and one of them returns scale byte 127 for every block with a
negative exponent on NVIDIA GPUs. So every candidate answers a few known blocks first. aiter's kernel is compiled for
gfx950 and emulated, or launched on a real GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mxfp4lab.aiter.install import AiterError, AiterInstall, load_file
from mxfp4lab.formats import quantize_mxfp4

Quantizer = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

# The block of ROCm/aiter issue 974: byte 3 is 170 with ties to even, 171 as the op was before PR 975.
ISSUE_974 = (
    0.3463, -0.0499, 0.3794, -2.3764, 0.3960, 0.5989, -0.6250, -0.4239, -0.6192, 0.2761, -0.3746, 0.1462, 0.5216,
    -0.5194, -0.8497, -0.8237, 0.5145, 0.3508, 0.0298, -0.3462, 0.3917, 0.1096, 1.4494, 1.7009, -0.5473, -2.0851,
    1.8099, 0.3587, 1.4622, -2.3143, 0.3412, -0.8931,
)  # fmt: skip
MIDPOINTS = (6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -0.0)


@dataclass(frozen=True)
class Verdict:
    """What a quantizer answered to the known blocks.

    Attributes:
        name: of the quantizer, with its version and how it was run.
        rounding: "even", "half_away" or "unknown".
        rounding_name: in words: "ties to even (since PR 975)", "ties away from zero (before PR 975)", or what differs.
        scales_ok: whether scale bytes are right for negative exponents.
        usable: whether it may stand for the task's reference: scales right and ties to even.
        reason: one line.
    """

    name: str
    rounding: str
    rounding_name: str
    scales_ok: bool
    usable: bool
    reason: str


def probe_blocks() -> torch.Tensor:
    """[8, 32] float32: the published block, midpoints at three exponents, and blocks with negative exponents."""

    def block(*values: float) -> torch.Tensor:
        return torch.tensor([*values, *[0.0] * (32 - len(values))], dtype=torch.float32)

    midpoints = block(*MIDPOINTS)
    return torch.stack(
        (
            block(*ISSUE_974),
            midpoints,
            midpoints * 2.0**-40,
            midpoints * 2.0**40,
            block(6 * 2.0**-100, 2.0**-100),
            block(1.0),
            block(0.03, -0.01, 0.007),
            block(1.75, 1.7421875),
        )
    )


def judge(name: str, quantize: Quantizer) -> Verdict:
    """Ask a quantizer the known blocks.

    Args:
        name: shown to people.
        quantize: [M, 32] float32 -> packed [M, 16] uint8, scale [M, 1] uint8.

    Returns:
        The verdict; an answer that fits no known rounding is "unknown", with the first byte that differs.
    """
    x = probe_blocks()
    packed, scale = (t.cpu().view(torch.uint8) for t in quantize(x))
    scale = scale.reshape(x.shape[0], -1)
    expected_scale = quantize_mxfp4(x)[1]
    scales_ok = scale.shape == expected_scale.shape and bool((scale == expected_scale).all())
    answers = {rounding: quantize_mxfp4(x, rounding=rounding)[0] for rounding in ("even", "half_away")}
    rounding = next((r for r, answer in answers.items() if torch.equal(packed, answer)), "unknown")
    words = {"even": "ties to even (since PR 975)", "half_away": "ties away from zero (before PR 975)"}
    if rounding == "unknown":
        row, byte = (int(i) for i in (packed != answers["even"]).nonzero()[0])
        words["unknown"] = f"unknown: block {row}, byte {byte} is {int(packed[row, byte])}"
    if not scales_ok:
        row = int((scale != expected_scale).nonzero()[0, 0])
        got, want = int(scale[row, 0]), int(expected_scale[row, 0])
        reason = f"refused: scale byte {got} where {want} is right"
        if got == 127 and want < 127:
            reason += " (a negative exponent went through float -> uint8, which saturates on this device)"
    elif rounding == "even":
        reason = "may stand for the task's reference"
    elif rounding == "half_away":
        reason = "its packing and scales are right, its ties are not the task's"
    else:
        reason = "refused: its nibbles fit no known rounding"
    return Verdict(name, rounding, words[rounding], scales_ok, scales_ok and rounding == "even", reason)


BLOCK_SIZE_M = 32
BLOCK_SIZE_N = 128

_STRIDES = (
    "stride_x_m_in", "stride_x_n_in", "stride_x_fp4_m_in", "stride_x_fp4_n_in", "stride_bs_m_in", "stride_bs_n_in",
)  # fmt: skip
_POINTERS = ("x_ptr", "x_fp4_ptr", "bs_ptr")
_CONSTANTS = {
    "BLOCK_SIZE_M": BLOCK_SIZE_M,
    "BLOCK_SIZE_N": BLOCK_SIZE_N,
    "NUM_ITER": 1,
    "NUM_STAGES": 1,
    "MXFP4_QUANT_BLOCK_SIZE": 32,
    "EVEN_M_N": False,
    "SCALING_MODE": 0,
}
_TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}


# files that have held the kernel, newest release first
_FILES = (
    "ops/triton/_triton_kernels/quant/quant.py", "ops/triton/_triton_kernels/quant.py", "ops/triton/quant/quant.py",
    "ops/triton/quant.py",
)  # fmt: skip


def _kernel(install: AiterInstall) -> Any:
    """aiter's `_dynamic_mxfp4_quant_kernel`.

    Raises:
        AiterError: no file of this aiter holds it.
    """
    for file in _FILES:
        if (install.package / file).is_file():
            found = getattr(load_file(install, file), "_dynamic_mxfp4_quant_kernel", None)
            if found is not None:
                return found
    raise AiterError(f"_dynamic_mxfp4_quant_kernel is in none of {', '.join(_FILES)} of {install}")


def compile_quantizer(install: AiterInstall, dtype: torch.dtype = torch.float32, arch: str = "gfx950") -> Any:
    """Compile aiter's `_dynamic_mxfp4_quant_kernel` for `arch`, no GPU needed.

    Args:
        install: from `find_aiter`.
        dtype: of x, float32 or bfloat16.
        arch: target of the compilation.

    Returns:
        A `toolchain.Compiled`.

    Raises:
        AiterError: if the kernel is missing, has parameters this code does not know, or does not compile.
    """
    from mxfp4lab.gfx950 import CompileError, compile_kernel

    if dtype not in _TYPES:
        raise AiterError(f"dtype={dtype} must be float32 or bfloat16")
    kernel = _kernel(install)
    while hasattr(kernel, "fn") and not hasattr(kernel, "params"):
        kernel = kernel.fn  # inside triton.heuristics
    names = tuple(kernel.arg_names)
    expected = (*_POINTERS, *_STRIDES, "M", "N", *_CONSTANTS)
    if set(names) != set(expected):
        extra, missing = sorted(set(names) - set(expected)), sorted(set(expected) - set(names))
        raise AiterError(f"_dynamic_mxfp4_quant_kernel of {install} has new parameters {extra} and lacks {missing}")
    signature = dict.fromkeys((*_STRIDES, "M", "N"), "i32")
    signature |= {"x_ptr": _TYPES[dtype], "x_fp4_ptr": "*u8", "bs_ptr": "*u8"}
    signature = {name: signature[name] for name in names if name in signature}
    try:
        return compile_kernel(kernel, signature, _CONSTANTS, {"num_warps": 4}, arch)
    except CompileError as error:
        raise AiterError(f"aiter's quantize kernel does not compile for {arch}: {error}") from error


def emulated_quantizer(install: AiterInstall, dtype: torch.dtype = torch.float32) -> Quantizer:
    """aiter's quantize kernel as gfx950 machine code, executed by the emulator.

    Returns:
        A function of x [M, K] (`dtype`, on the CPU) giving packed [M, K // 2] and scale [M, ceil(K / 32)] uint8.

    Raises:
        AiterError: as `compile_quantizer`.
    """
    from mxfp4lab.gfx950 import run

    compiled = compile_quantizer(install, dtype)

    def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.to(dtype).contiguous()
        m, k = x.shape
        packed = torch.zeros((m, k // 2), dtype=torch.uint8)
        scale = torch.zeros((m, -(-k // 32)), dtype=torch.uint8)
        values = {"x_ptr": x, "x_fp4_ptr": packed, "bs_ptr": scale, "M": m, "N": k}
        values |= dict(zip(_STRIDES, (*x.stride(), *packed.stride(), *scale.stride()), strict=True))
        grid = (-(-m // BLOCK_SIZE_M), -(-k // BLOCK_SIZE_N), 1)
        run(compiled, grid, *(values[name] for name, _ in compiled.signature))
        return packed, scale

    return quantize


def gpu_quantizer(install: AiterInstall) -> Quantizer:
    """aiter's quantize kernel launched on the GPU of this machine, loaded by file (aiter itself need not import there).

    Raises:
        AiterError: if there is no GPU, or the kernel is missing.
    """
    if not torch.cuda.is_available():
        raise AiterError("this machine has no GPU that torch can use; emulated_quantizer needs none")
    kernel = _kernel(install)

    def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.cuda().contiguous()
        m, k = x.shape
        packed = torch.zeros((m, k // 2), dtype=torch.uint8, device=x.device)
        scale = torch.zeros((m, -(-k // 32)), dtype=torch.uint8, device=x.device)
        # EVEN_M_N is left to the kernel's own heuristics
        constants = {name: value for name, value in _CONSTANTS.items() if name != "EVEN_M_N"}
        grid = (-(-m // BLOCK_SIZE_M), -(-k // BLOCK_SIZE_N))
        strides = (*x.stride(), *packed.stride(), *scale.stride())
        kernel[grid](x, packed, scale, *strides, M=m, N=k, **constants, num_warps=4)
        return packed.cpu(), scale.cpu()

    return quantize


def probe_aiter(install: AiterInstall, backend: str = "auto") -> Verdict:
    """Name the rounding of an aiter's quantize op by asking it.

    Args:
        install: from `find_aiter`.
        backend: "emulator", "gpu", or "auto" (the GPU where there is one).

    Raises:
        AiterError: if it cannot be run.
        ValueError: on an unknown backend.
    """
    if backend not in ("auto", "emulator", "gpu"):
        raise ValueError(f"backend={backend!r} must be one of 'auto', 'emulator', 'gpu'")
    on_gpu = backend == "gpu" or (backend == "auto" and torch.cuda.is_available())
    if on_gpu:
        return judge(f"_mxfp4_quant_op of {install} on {torch.cuda.get_device_name()}", gpu_quantizer(install))
    return judge(f"_mxfp4_quant_op of {install} as gfx950 machine code, emulated", emulated_quantizer(install))
