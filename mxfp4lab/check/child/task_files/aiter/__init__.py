"""A stand-in for AMD's aiter where there is no MI355X: the modules that submissions import, as old and new releases
have them, doing what AMD's do. The GEMM is AMD's own machine code, emulated, where amd-aiter is installed; all else,
and the GEMM elsewhere, gives the results of the task's reference. Every call that computes is noted in the report.

One table says which names each module has; they are looked up when they are asked for, so that Triton is imported only
by what needs it.
"""

import importlib
import sys
import types

_FP4_GEMM = "gemm_afp4wfp4 get_splitk _gemm_afp4wfp4_reduce_kernel _gemm_afp4_wfp4_reduce_kernel"
_BF16_GEMM = "gemm_a16wfp4 gemm_a16wfp4_preshuffle get_splitk"
_QUANT = "dynamic_mxfp4_quant _mxfp4_quant_op"
_MODULES = {
    "dtypes": "fp4x2 fp8_e8m0 fp8 bf16 fp16 fp32 u8 i8 i32 d_dtypes",
    "ops.gemm_op_a4w4": "gemm_a4w4 gemm_a4w4_asm get_GEMM_config",
    "ops.quant": "QuantType get_triton_quant get_hip_quant get_torch_quant",
    "ops.shuffle": "shuffle_weight shuffle_scale",
    "utility.dtypes": "fp4x2 fp8_e8m0 fp8 bf16 fp16 fp32 u8 i8 i32 d_dtypes",
    "utility.fp4_utils": "e8m0_shuffle dynamic_mxfp4_quant mxfp4_to_f32 e8m0_to_f32",
    "ops.triton.quant": _QUANT,
    "ops.triton.quant.quant": _QUANT,
    "ops.triton._triton_kernels.quant": "_mxfp4_quant_op",
    "ops.triton._triton_kernels.quant.quant": "_mxfp4_quant_op",
    "ops.triton.gemm_a16wfp4": _BF16_GEMM,
    "ops.triton.gemm.basic.gemm_a16wfp4": _BF16_GEMM,
    "ops.triton.gemm_afp4wfp4": _FP4_GEMM,
    "ops.triton.gemm.basic.gemm_afp4wfp4": _FP4_GEMM,
    "ops.triton.gluon.gemm_afp4wfp4": _FP4_GEMM,
    "ops.triton._triton_kernels.gemm_afp4wfp4": _FP4_GEMM,
    "ops.triton._triton_kernels.gemm.basic.gemm_afp4wfp4": _FP4_GEMM,
    "ops.triton.utils._triton.arch_info": "get_arch get_device get_num_xcds is_fp4_avail",
    "ops.triton.utils.device_info": "get_num_xcds",
    "ops.triton.utils._triton.pid_preprocessing": "remap_xcd pid_grid",
    "ops.triton.utils.pid_preprocessing": "remap_xcd pid_grid",
    "ops.triton.utils.common_utils": "serialize_dict deserialize_str",
    "ops.triton.utils.core": "AITER_TRITON_CONFIGS_PATH",
}
_TOP = "QuantType dtypes gemm_a4w4 gemm_a4w4_asm get_GEMM_config get_triton_quant get_hip_quant shuffle_weight"
_TRITON = {"_mxfp4_quant_op", "_gemm_afp4wfp4_reduce_kernel", "_gemm_afp4_wfp4_reduce_kernel", "remap_xcd", "pid_grid"}


class _Module(types.ModuleType):
    """A module whose names come from where they are computed."""

    def __init__(self, name, names):
        super().__init__(name)
        self.__path__ = []  # every one may hold others
        self.__all__ = names.split()

    def __getattr__(self, name):
        if name not in self.__all__:
            raise AttributeError(f"module {self.__name__!r} of this stand-in has no {name}: {', '.join(self.__all__)}")
        return _found(name)


def _found(name):
    return getattr(importlib.import_module("._kernels" if name in _TRITON else "._compute", __name__), name)


def _plant():
    for path in _MODULES:
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            full = ".".join([__name__, *parts[:depth]])
            if full not in sys.modules:
                sys.modules[full] = _Module(full, _MODULES.get(".".join(parts[:depth]), ""))
                parent, _, own = full.rpartition(".")
                setattr(sys.modules[parent], own, sys.modules[full])


def __getattr__(name):
    if name not in _TOP.split():
        raise AttributeError(f"this stand-in for aiter has no {name}; it offers {_TOP.replace(' ', ', ')}")
    return _found(name)


_plant()
