"""What Triton kernels of submissions call or launch of aiter's: quantization of a tile, program order, split sums."""

import triton
import triton.language as tl


@triton.jit
def _mxfp4_quant_op(x, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, MXFP4_QUANT_BLOCK_SIZE: tl.constexpr):
    """f32 [BLOCK_SIZE_M, BLOCK_SIZE_N] -> packed e2m1 [.., BLOCK_SIZE_N // 2] and e8m0 [.., BLOCK_SIZE_N // 32]."""
    groups: tl.constexpr = BLOCK_SIZE_N // MXFP4_QUANT_BLOCK_SIZE
    blocks = tl.reshape(x, (BLOCK_SIZE_M, groups, MXFP4_QUANT_BLOCK_SIZE))
    amax = tl.max(tl.abs(blocks), axis=2, keep_dims=True)
    exponent = (amax.to(tl.int32, bitcast=True) + 0x200000) >> 23
    byte = tl.where(exponent == 255, 254, tl.maximum(exponent, 2) - 2)
    # 2^-e has the exponent field 254 - byte; byte 254 needs a subnormal.
    inverse = tl.where(byte == 254, 0x00400000, (254 - byte) << 23).to(tl.float32, bitcast=True)
    # Times 2^-126 the subnormals of e2m1 fall on those of f32: one integer rounding does it.
    bits = (blocks * inverse * 1.1754943508222875e-38).to(tl.int32, bitcast=True)
    size = tl.minimum(((bits & 0x7FFFFFFF) + 0x1FFFFF + ((bits >> 22) & 1)) >> 22, 7)
    code = (((bits >> 28) & 8) | size).to(tl.uint8)
    low, high = tl.split(tl.reshape(code, (BLOCK_SIZE_M, groups, MXFP4_QUANT_BLOCK_SIZE // 2, 2)))
    packed = tl.reshape(low | (high << 4), (BLOCK_SIZE_M, BLOCK_SIZE_N // 2))
    return packed, tl.reshape(byte, (BLOCK_SIZE_M, groups)).to(tl.uint8)


@triton.jit
def _gemm_afp4wfp4_reduce_kernel(
    c_in_ptr, c_out_ptr, M, N, stride_c_in_k, stride_c_in_m, stride_c_in_n, stride_c_out_m, stride_c_out_n,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, ACTUAL_KSPLIT: tl.constexpr, MAX_KSPLIT: tl.constexpr,
):  # fmt: skip
    """fp32 partials [splits, M, N] -> their sum in C's dtype; a tile that overhangs wraps, as AMD's does."""
    rows = (tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    columns = (tl.program_id(1) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    splits = tl.arange(0, MAX_KSPLIT)[:, None, None]
    places = splits * stride_c_in_k + rows[None, :, None] * stride_c_in_m + columns[None, None, :] * stride_c_in_n
    total = tl.sum(tl.load(c_in_ptr + places, mask=splits < ACTUAL_KSPLIT, other=0.0), axis=0)
    c = c_out_ptr + rows[:, None] * stride_c_out_m + columns[None, :] * stride_c_out_n
    tl.store(c, total.to(c_out_ptr.type.element_ty))


_gemm_afp4_wfp4_reduce_kernel = _gemm_afp4wfp4_reduce_kernel


@triton.jit
def remap_xcd(pid, GRID_MN, NUM_XCDS: tl.constexpr = 8):
    """Renumber programs so that those of one XCD are neighbours; the first GRID_MN % NUM_XCDS XCDs have one more."""
    longer = GRID_MN % NUM_XCDS
    xcd = pid % NUM_XCDS
    return xcd * (GRID_MN // NUM_XCDS) + tl.minimum(xcd, longer) + pid // NUM_XCDS


@triton.jit
def pid_grid(pid, num_pid_m, num_pid_n, GROUP_SIZE_M: tl.constexpr = 1):
    """Tile (row, column) of a program, columns of GROUP_SIZE_M row tiles after one another."""
    if GROUP_SIZE_M == 1:
        return pid // num_pid_n, pid % num_pid_n
    per_group = GROUP_SIZE_M * num_pid_n
    first = (pid // per_group) * GROUP_SIZE_M
    rows = tl.minimum(num_pid_m - first, GROUP_SIZE_M)
    return first + (pid % per_group) % rows, (pid % per_group) // rows
