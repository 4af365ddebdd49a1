"""aiter's own quantize kernel as a function: compiled for gfx950 and emulated, or launched on a real GPU."""

from __future__ import annotations

from typing import Any

import torch

from mxfp4lab.aiter.install import AiterError, AiterInstall
from mxfp4lab.aiter.modules import load_part
from mxfp4lab.aiter.verdict import Quantizer, Verdict, judge

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
    kernel = load_part(install, "quant_kernel")
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
    kernel = load_part(install, "quant_kernel")

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
