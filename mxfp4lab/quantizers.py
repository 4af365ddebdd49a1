"""Who turns blocks into MXFP4: libraries, kernels as machine code on the emulator, an aiter's op, a GPU.

An answerer takes x [rows, 32] (float32 or bfloat16, on the CPU) and gives packed [rows, 16] and scale [rows] uint8.
`proof` puts the same blocks to all of them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from mxfp4lab.formats import BLOCK, E8M0_BIAS, quantize_mxfp4
from mxfp4lab.kernels.convert import QUANTIZERS

Answer = tuple[np.ndarray, np.ndarray]
Answerer = Callable[[torch.Tensor], Answer]


def torch_answerer(rounding: str = "even") -> Answerer:
    """This project's own `quantize_mxfp4`."""
    return _from_quantizer(lambda x: quantize_mxfp4(x, rounding=rounding, nonfinite="saturate"))


def ml_dtypes_answerer() -> Answerer:
    """ml_dtypes' e2m1 conversion, scaled by numpy's `ldexp`: shares no code with this project (ImportError without)."""
    import ml_dtypes

    def answer(x: torch.Tensor) -> Answer:
        values = x.float().numpy()
        amax = np.abs(values).max(axis=1)
        mantissa, exponent = np.frexp(amax)  # amax = mantissa * 2^exponent, 0.5 <= mantissa < 1
        e = np.where(amax > 0, exponent - 1 + (mantissa >= 0.875) - 2, -127).clip(-127, 127)
        e = np.where(amax >= 1.75 * 2.0**127, 127, e).astype(np.int32)
        code = np.ldexp(values, -e[:, None]).astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15
        return code[:, 0::2] | (code[:, 1::2] << 4), (e + E8M0_BIAS).astype(np.uint8)

    return answer


def torchao_answerer() -> Answerer:
    """torchao's MX code in its EVEN scale mode (ImportError where it does not import)."""
    logging.disable(logging.WARNING)  # it reports at import every extension that this machine cannot load
    try:
        from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx
    finally:
        logging.disable(logging.NOTSET)

    def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale, data = to_mx(x.float(), torch.float4_e2m1fn_x2, BLOCK, ScaleCalculationMode.EVEN)
        return data.view(torch.uint8).reshape(x.shape[0], BLOCK // 2), scale.view(torch.uint8)

    return _from_quantizer(quantize)


@triton.jit
def quantize_blocks(x_ptr, packed_ptr, scale_ptr, QUANTIZE: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """One program: ROWS blocks of 32, each of WORDS elements of x's type (32 values, or 16 pairs of bf16)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x = tl.load(x_ptr + row[:, None] * WORDS + tl.arange(0, WORDS)[None, :])
    packed, scale = QUANTIZE(x, ROWS, 32)
    tl.store(packed_ptr + row[:, None] * 16 + tl.arange(0, 16)[None, :], packed)
    tl.store(scale_ptr + row[:, None] + tl.arange(0, 1)[None, :], scale)


def kernel_answerer(convert: str, *, gpu: bool = False) -> Answerer:
    """One of this project's converts as machine code: on the emulator (gfx950), or on the GPU of this machine.

    Args:
        convert: "sw_aiter", "sw_bits", "hw_f32" or "hw_bf16" (bf16 blocks only).
        gpu: launch it there; the hardware converts on gfx950 only.
    """
    from mxfp4lab.gfx950 import compile_kernel, run

    def answer(x: torch.Tensor) -> Answer:
        pairs = convert == "hw_bf16"
        if pairs and x.dtype != torch.bfloat16:
            raise ValueError("hw_bf16 reads bf16 only")
        programs = -(-x.shape[0] // 64)
        blocks = torch.zeros((64 * programs, BLOCK), dtype=x.dtype)
        blocks[: x.shape[0]] = x
        values = [blocks.view(torch.int32) if pairs else blocks, torch.zeros((64 * programs, 16), dtype=torch.uint8)]
        values.append(torch.zeros(64 * programs, dtype=torch.uint8))
        constants = {"QUANTIZE": QUANTIZERS[convert], "ROWS": 64, "WORDS": values[0].shape[1]}
        if gpu:
            values = [value.cuda() for value in values]
            quantize_blocks[(programs,)](*values, **constants)
        else:
            kind = {torch.int32: "*i32", torch.bfloat16: "*bf16", torch.float32: "*fp32"}[values[0].dtype]
            signature = {"x_ptr": kind, "packed_ptr": "*u8", "scale_ptr": "*u8"}
            run(compile_kernel(quantize_blocks, signature, constants, {"num_warps": 4}), (programs, 1, 1), *values)
        packed, scale = (value[: x.shape[0]].cpu().numpy() for value in values[1:])
        return packed, scale

    return answer


def aiter_answerer(install: Any, dtype: torch.dtype = torch.float32) -> Answerer:
    """An installed aiter's `_mxfp4_quant_op` as gfx950 machine code, executed by the emulator."""
    from mxfp4lab.aiter.quantizer import emulated_quantizer

    quantize = emulated_quantizer(install, dtype)

    def answer(x: torch.Tensor) -> Answer:
        wide = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[0] % 4)).view(-1, 4 * BLOCK)  # a tile has 128 columns
        packed, scale = quantize(wide)
        return packed.view(-1, BLOCK // 2)[: x.shape[0]].numpy(), scale.reshape(-1)[: x.shape[0]].numpy()

    return answer


def gpu_answerers(install: Any = None) -> dict[str, Answerer]:
    """The converts that this machine's GPU can run, and aiter's op there, named with the device; {} without a GPU."""
    if not torch.cuda.is_available():
        return {}
    from mxfp4lab.aiter.install import AiterError
    from mxfp4lab.aiter.quantizer import gpu_quantizer

    device = torch.cuda.get_device_name()
    amd = getattr(torch.cuda.get_device_properties(0), "gcnArchName", "").startswith("gfx950")
    converts = ("sw_aiter", "sw_bits", *(("hw_f32", "hw_bf16") if amd else ()))
    found = {f"{convert} on {device}": kernel_answerer(convert, gpu=True) for convert in converts}
    if install is not None:
        with contextlib.suppress(AiterError):  # aiter does not import on this machine: one row less
            found[f"aiter on {device}"] = _from_quantizer(gpu_quantizer(install))
    return found


def _from_quantizer(quantize: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]) -> Answerer:
    def answer(x: torch.Tensor) -> Answer:
        packed, scale = quantize(x)
        return packed.numpy(), scale.reshape(-1).numpy()

    return answer


def everybody(install: Any = None) -> tuple[dict[str, Answerer], dict[str, Answerer], dict[str, str]]:
    """All who can answer here: on bf16 input, on float32 input, and who cannot and why.

    Args:
        install: an aiter, from `aiter.find_aiter`, or None.
    """
    on_f32 = {"torch": torch_answerer(), "torch before 975": torch_answerer("half_away")}
    missing = {}
    for name, make in (("ml_dtypes", ml_dtypes_answerer), ("torchao", torchao_answerer)):
        try:
            on_f32[name] = make()
        except ImportError as error:
            missing[name] = str(error)
    on_f32 |= {name: kernel_answerer(name) for name in ("sw_aiter", "sw_bits", "hw_f32")}
    on_bf16 = on_f32 | {"hw_bf16": kernel_answerer("hw_bf16")}
    if install is not None:
        on_bf16["aiter"] = aiter_answerer(install, torch.bfloat16)
        on_f32["aiter"] = aiter_answerer(install)
    return on_bf16 | gpu_answerers(install), on_f32, missing
