"""A kernel that only quantizes, the way the sliced GEMM does it: what its waves multiply, made visible."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mxfp4lab.kernels.waves import index, operand_layout, quantize_blocks


@gluon.jit
def quantize_like_sliced(a_ptr, a_q_ptr, a_scale_ptr, K: gl.constexpr, AMAX: gl.constexpr):
    """16 rows by 128 columns a program of one wave; scales row-major."""
    pairs: gl.constexpr = operand_layout(1, 16, 16, 64)
    scales: gl.constexpr = operand_layout(1, 16, 1, 4)
    row = gl.program_id(0) * 16 + index(1, 16, pairs)
    pair = gl.program_id(1) * 64 + index(2, 64, pairs)
    tile = gl.amd.cdna4.buffer_load(a_ptr.to(gl.pointer_type(gl.int32), bitcast=True), row * (K // 2) + pair)
    a_q, a_scale = quantize_blocks(tile, AMAX, True, 1, 16, 128)
    a_q = gl.convert_layout(a_q, pairs)
    a_scale = gl.convert_layout(a_scale, scales)
    gl.amd.cdna4.buffer_store(a_q, a_q_ptr, row * (K // 2) + pair)
    scale_row = gl.program_id(0) * 16 + index(1, 16, scales)
    scale_column = gl.program_id(1) * 4 + index(2, 4, scales)
    gl.amd.cdna4.buffer_store(a_scale, a_scale_ptr, scale_row * (K // 32) + scale_column)
