"""aiter's own Triton kernels on a GPU that aiter does not know: loaded file by file, without AMD's launch options.

On ROCm aiter is imported and called as its users do. `import aiter` needs ROCm, its Triton files do not: elsewhere
they are executed by themselves (`oracle.modules`), told that the device is an MI350X, so that they take the config
that aiter ships for gfx950, and AMD's launch options are dropped. Only their time counts there. aiter's quantizer
converts a negative exponent to uint8 in a way that an NVIDIA GPU saturates (scale byte 127), so C is another product.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from mxfp4lab.aiter.install import AiterInstall
from mxfp4lab.aiter.modules import load_file
from mxfp4lab.layouts import e8m0_shuffle, e8m0_unshuffle
from mxfp4lab.shapes import Shape

SHIPPED_FOR = "MI350X"
AMD_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
FUSED_FILE = "ops/triton/gemm_afp4wfp4_pre_quant_atomic.py"
GEMM_FILE = "ops/triton/gemm_afp4wfp4.py"
QUANT_FILE = "ops/triton/quant.py"
ELSEWHERE = f"loaded by file with the config shipped for {SHIPPED_FOR}; its quantizer's scales are wrong on this GPU"


class WithoutAmdOptions:
    """A Triton kernel that ignores AMD's launch options, which another target's compiler refuses."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self.fn = getattr(kernel, "fn", kernel)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launch = self._kernel[grid]

        def call(*args: Any, **keywords: Any) -> Any:
            return launch(*args, **{name: value for name, value in keywords.items() if name not in AMD_OPTIONS})

        return call


def load_elsewhere(install: AiterInstall, file: str) -> types.ModuleType:
    """One of aiter's wrapper files, made to run on a GPU that is not AMD's.

    Raises:
        AiterError: the file is missing or does not load.
    """
    module = load_file(install, file)
    about = getattr(module, "arch_info", None)
    if about is not None:
        about.get_device = lambda: SHIPPED_FOR
        about.is_fp4_avail = lambda: True
    for name, value in list(vars(module).items()):
        is_kernel = "_kernel" in name and hasattr(value, "__getitem__")
        if is_kernel and not isinstance(value, WithoutAmdOptions):
            setattr(module, name, WithoutAmdOptions(value))
    return module


def fused(install: AiterInstall, shape: Shape, inputs: Mapping[str, Any]) -> tuple[str, Callable[[], Any]]:
    """(about, call) of the kernel that quantizes A inside the GEMM and adds its splits of K atomically in bf16."""
    run = load_elsewhere(install, FUSED_FILE).gemm_afp4wfp4_pre_quant
    scale = _row_scale(shape, inputs)
    a, b_q = inputs["a"], inputs["b_q"]
    return f"aiter's Triton gemm_afp4wfp4_pre_quant, {ELSEWHERE}", lambda: run(a, b_q, scale)


def two_step(install: AiterInstall, shape: Shape, inputs: Mapping[str, Any]) -> tuple[str, Callable[[], Any]]:
    """(about, call) of aiter's quantize kernel and its FP4 GEMM on row-major B."""
    quantize = load_elsewhere(install, QUANT_FILE).dynamic_mxfp4_quant
    run = load_elsewhere(install, GEMM_FILE).gemm_afp4wfp4
    scale = _row_scale(shape, inputs)
    a, b_q = inputs["a"], inputs["b_q"]

    def call() -> Any:
        a_q, a_scale = quantize(a)
        return run(a_q, b_q, a_scale, scale)

    return f"aiter's Triton dynamic_mxfp4_quant and gemm_afp4wfp4, {ELSEWHERE}", call


def preshuffled(install: AiterInstall, shape: Shape, inputs: Mapping[str, Any]) -> tuple[str, Callable[[], Any]]:
    """(about, call) of aiter's quantize kernel and its FP4 GEMM on shuffled B; scales of A shuffled by torch."""
    quantize = load_elsewhere(install, QUANT_FILE).dynamic_mxfp4_quant
    run = load_elsewhere(install, GEMM_FILE).gemm_afp4wfp4_preshuffled_weight_scales
    a, n = inputs["a"], shape.n
    b = inputs["b_shuffle"].view(n // 16, shape.k // 2 * 16)
    padded = inputs["b_scale_sh"]
    scale = padded.reshape(padded.shape[0] // 32, -1)

    def call() -> Any:
        a_q, a_scale = quantize(a)
        if shape.m >= 32:
            shuffled = e8m0_shuffle(a_scale.contiguous())
            a_scale = shuffled.reshape(shuffled.shape[0] // 32, -1)
        return run(a_q, b, a_scale, scale, use_aot=False)

    about = f"aiter's Triton dynamic_mxfp4_quant and gemm_afp4wfp4_preshuffled_weight_scales, {ELSEWHERE}"
    return about + ("; A's scales shuffled by torch" if shape.m >= 32 else ""), call


def _row_scale(shape: Shape, inputs: Mapping[str, Any]) -> Any:
    """B's scales in rows, prepared outside the timed call as aiter's users do."""
    return e8m0_unshuffle(inputs["b_scale_sh"], shape.n, shape.k // 32).contiguous()
