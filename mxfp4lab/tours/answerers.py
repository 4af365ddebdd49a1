"""Who turns blocks into MXFP4: libraries, kernels as machine code on the emulator, and a GPU where there is one.

An answerer takes x [rows, 32] (float32 or bfloat16, on the CPU) and gives packed [rows, 16] and scale [rows] uint8.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mxfp4lab.formats import BLOCK, E8M0_BIAS, quantize_mxfp4
from mxfp4lab.tours.proof import Answer, Answerer

# One tile of the quantize kernel: rows and columns of the matrix that blocks are laid out in
TILE_ROWS, TILE_COLUMNS = 8, 256
SOFTWARE_CONVERTS = ("sw_aiter", "sw_bits")
HARDWARE_CONVERTS = ("hw_f32", "hw_bf16")


def torch_answerer(rounding: str = "even") -> Answerer:
    """This project's own `quantize_mxfp4`."""

    def answer(x: torch.Tensor) -> Answer:
        packed, scale = quantize_mxfp4(x, rounding=rounding, nonfinite="saturate")
        return packed.numpy(), scale.numpy()[:, 0]

    return answer


def ml_dtypes_answerer() -> Answerer:
    """ml_dtypes' e2m1 conversion, scaled by numpy's `ldexp`; shares no code with this project.

    Raises:
        ImportError: if ml_dtypes is not installed.
    """
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
    """torchao's MX code (EVEN scale mode).

    Raises:
        ImportError: if torchao or its MX code does not import.
    """
    logging.disable(logging.WARNING)  # it reports at import every extension that this machine cannot load
    try:
        from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx
    finally:
        logging.disable(logging.NOTSET)

    def answer(x: torch.Tensor) -> Answer:
        scale, data = to_mx(x.float(), torch.float4_e2m1fn_x2, BLOCK, ScaleCalculationMode.EVEN)
        packed = data.view(torch.uint8).reshape(x.shape[0], BLOCK // 2)
        return packed.numpy(), scale.view(torch.uint8).reshape(-1).numpy()

    return answer


_CONSTANTS = {"BLOCK_M": TILE_ROWS, "BLOCK_K": TILE_COLUMNS, "MASK_M": True, "MASK_K": True, "scale_rows": None}


def _laid_out(x: torch.Tensor) -> torch.Tensor:
    """Blocks [rows, 32] side by side as [ceil(rows / 8), 256], zeros behind the last."""
    per_row = TILE_COLUMNS // BLOCK
    wide = torch.zeros((-(-x.shape[0] // per_row), TILE_COLUMNS), dtype=x.dtype, device=x.device)
    wide.view(-1, BLOCK)[: x.shape[0]] = x
    return wide


def _check_convert(convert: str, x: torch.Tensor) -> None:
    if convert == "hw_bf16" and x.dtype != torch.bfloat16:
        raise ValueError("hw_bf16 reads bf16 only")


def _kernel_values(wide: torch.Tensor) -> dict[str, Any]:
    m, k = wide.shape
    packed = torch.zeros((m, k // 2), dtype=torch.uint8, device=wide.device)
    scale = torch.zeros((m, k // BLOCK), dtype=torch.uint8, device=wide.device)
    return {"a_ptr": wide, "a_q_ptr": packed, "a_scale_ptr": scale, "M": m, "K": k}


def _unpacked(values: Mapping[str, Any], rows: int) -> Answer:
    packed, scale = (values[name].cpu() for name in ("a_q_ptr", "a_scale_ptr"))
    return packed.view(-1, BLOCK // 2)[:rows].numpy(), scale.view(-1)[:rows].numpy()


def kernel_answerer(convert: str) -> Answerer:
    """One of this project's converts as gfx950 machine code, executed by the emulator.

    Args:
        convert: "sw_aiter", "sw_bits", "hw_f32" or "hw_bf16" (bf16 blocks only).
    """
    from mxfp4lab.gfx950 import compile_kernel, run
    from mxfp4lab.kernels.quantize import quantize_rows

    def answer(x: torch.Tensor) -> Answer:
        _check_convert(convert, x)
        wide = _laid_out(x)
        pointer = "*bf16" if x.dtype == torch.bfloat16 else "*fp32"
        signature = {"a_ptr": pointer, "a_q_ptr": "*u8", "a_scale_ptr": "*u8", "M": "i32", "K": "i32"}
        kernel = compile_kernel(quantize_rows, signature, {"CONVERT": convert, **_CONSTANTS}, {"num_warps": 4})
        values = _kernel_values(wide)
        run(kernel, (-(-wide.shape[0] // TILE_ROWS), 1, 1), *(values[name] for name, _ in kernel.signature))
        return _unpacked(values, x.shape[0])

    return answer


def gpu_kernel_answerer(convert: str) -> Answerer:
    """One of this project's converts on the GPU of this machine (the hardware converts on gfx950 only)."""
    from mxfp4lab.kernels.quantize import quantize_rows

    def answer(x: torch.Tensor) -> Answer:
        _check_convert(convert, x)
        values = _kernel_values(_laid_out(x.cuda()))
        grid = (-(-values["M"] // TILE_ROWS), 1, 1)
        quantize_rows[grid](*values.values(), CONVERT=convert, **_CONSTANTS, num_warps=4)
        return _unpacked(values, x.shape[0])

    return answer


def gpu_answerers(install: Any = None) -> dict[str, Answerer]:
    """Everyone who can answer on the GPU of this machine: the converts it can run, and aiter's op where it imports.

    Args:
        install: from `oracle.install.find_aiter`, or None.

    Returns:
        name with the device -> answerer; empty without a GPU. The evidence of these answers is a real GPU.
    """
    if not torch.cuda.is_available():
        return {}
    device = torch.cuda.get_device_name()
    amd = getattr(torch.cuda.get_device_properties(0), "gcnArchName", "").startswith("gfx950")
    converts = SOFTWARE_CONVERTS + (HARDWARE_CONVERTS if amd else ())
    found = {f"{convert} on {device}": gpu_kernel_answerer(convert) for convert in converts}
    if install is not None:
        from mxfp4lab.aiter.install import AiterError
        from mxfp4lab.aiter.quantizer import gpu_quantizer

        with contextlib.suppress(AiterError):  # aiter does not import on this machine: one row less
            found[f"aiter on {device}"] = _from_quantizer(gpu_quantizer(install))
    return found


def aiter_answerer(install: Any, dtype: torch.dtype = torch.float32) -> Answerer:
    """An installed aiter's `_mxfp4_quant_op` as gfx950 machine code, executed by the emulator."""
    from mxfp4lab.aiter.quantizer import emulated_quantizer

    return _from_quantizer(emulated_quantizer(install, dtype))


def _from_quantizer(quantize: Any) -> Answerer:
    def answer(x: torch.Tensor) -> Answer:
        packed, scale = quantize(x)
        return packed.numpy(), scale.reshape(-1).numpy()

    return answer


def everybody(install: Any = None) -> tuple[dict[str, Answerer], dict[str, Answerer], dict[str, str]]:
    """All who can answer here: on bf16 input, on float32 input, and who cannot and why.

    Args:
        install: an aiter, from `oracle.install.find_aiter`, or None.
    """
    known = {"torch": torch_answerer(), "torch, before 975": torch_answerer("half_away")}
    missing = {}
    for name, make in (("ml_dtypes", ml_dtypes_answerer), ("torchao", torchao_answerer)):
        try:
            known[name] = make()
        except ImportError as error:
            missing[name] = str(error)
    on_f32 = known | {name: kernel_answerer(name) for name in ("sw_aiter", "sw_bits", "hw_f32")}
    on_bf16 = on_f32 | {"hw_bf16": kernel_answerer("hw_bf16")}
    if install is not None:
        on_bf16["aiter"] = aiter_answerer(install, torch.bfloat16)
        on_f32 = on_f32 | {"aiter": aiter_answerer(install)}
    return on_bf16 | gpu_answerers(install), on_f32, missing
