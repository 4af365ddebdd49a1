"""What one wave of the Gluon kernels does: loads, quantizes, puts in order and stores, within the MFMA's own layouts.

Lane l of a wave holds row ``l % 16`` of A and column ``l % 16`` of B at k = ``32 * (l // 16) .. + 31`` of every 128: of
A one scale block, of B one 16-byte piece of the (16, 16) tile shuffle, of scales one byte of a dword of the e8m0
shuffle. Wave w takes step ``first_wave + w`` of STEP_K of every round, which is ROUND long.

Axes of all tiles: wave, row or column, k. A layout's basis says how far one more bit of the register, lane or wave
number moves. Parameters in capitals are compile-time constants; LIMIT is how many rows exist, 0 where no tile passes
the last.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .block import BLOCK_BY_MAX3, BLOCK_BY_PACKED_MAX, BLOCK_CONSTRAINTS, BLOCK_CONSTRAINTS_PACKED


def batched_mfma_scaled():
    """Gluon's scaled MFMA, for operands with a batch axis."""
    if triton.__version__.startswith("3.6."):
        # It lowers them, but its front end insists on scales with two axes; 3.7 and later look at the last two only.
        from triton.language.semantic import TritonSemantic

        TritonSemantic.verify_scaled_shape = lambda *_: None
    return gl.amd.cdna4.mfma_scaled


mfma_scaled = batched_mfma_scaled()
# The barrier's name since 3.7, and before.
workgroup_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


@gluon.constexpr_function
def mfma_layout(waves):
    """MFMA 16x16x128, a tile to each wave."""
    return gl.amd.AMDMFMALayout(version=4, instr_shape=[16, 16, 128], transposed=True, warps_per_cta=[waves, 1, 1])


@gluon.constexpr_function
def bases(start, stop, axis):
    """Unit steps ``start, 2 start, .. < stop`` along one of the three axes."""
    result = []
    while start < stop:
        result.append([start if axis == position else 0 for position in range(3)])
        start *= 2
    return result


@gluon.constexpr_function
def linear(shape, registers, lanes, waves):
    return gl.DistributedLinearLayout(
        reg_bases=registers, lane_bases=lanes, warp_bases=waves, block_bases=[], shape=shape
    )


@gluon.constexpr_function
def operand_layout(waves, rows, unit, length):
    """A lane holds ``unit`` neighbours along k of its row, four lanes make one MFMA step, further steps follow.

    ``unit`` is 16 for A in pairs, 16 for packed bytes, 1 for scales.
    """
    registers = bases(1, unit, 2) + bases(4 * unit, length, 2) + bases(16, rows, 1)
    return linear([waves, rows, length], registers, bases(1, 16, 1) + bases(unit, 4 * unit, 2), bases(1, waves, 0))


@gluon.constexpr_function
def scale_word_layout(waves, groups):
    """A lane holds the dword of its row and scale column, for every group of 32 rows."""
    return linear([waves, groups, 64], bases(1, groups, 1), bases(1, 64, 2), bases(1, waves, 0))


@gluon.jit
def index(AXIS: gl.constexpr, SIZE: gl.constexpr, LAYOUT: gl.constexpr):
    """0 .. SIZE - 1 along one of three axes."""
    FIRST: gl.constexpr = 1 if AXIS == 0 else 0
    SECOND: gl.constexpr = 1 if AXIS == 2 else 2
    along = gl.arange(0, SIZE, gl.SliceLayout(FIRST, gl.SliceLayout(SECOND, LAYOUT)))
    return gl.expand_dims(gl.expand_dims(along, FIRST), SECOND)


@gluon.jit
def words_to_bytes(word):
    """``[...]`` int32 to ``[..., 2, 2]`` uint8, low byte first; the registers stay as they are."""
    halves = gl.join(word, word >> 16)
    return gl.join(halves, halves >> 8).to(gl.uint8)


@gluon.jit
def block_by_max3(block, MOVABLE):
    """16 registers of a block to four words, the scale byte and scratch: any bf16 (``block``)."""
    return gl.inline_asm_elementwise(
        BLOCK_BY_MAX3, BLOCK_CONSTRAINTS, block, dtype=(gl.int32,) * 6, is_pure=MOVABLE, pack=1
    )


@gluon.jit
def block_by_packed_max(block, MOVABLE):
    """The same in fewer instructions, where no magnitude is beyond 2^121; else it takes a longer way."""
    return gl.inline_asm_elementwise(
        BLOCK_BY_PACKED_MAX,
        BLOCK_CONSTRAINTS_PACKED,
        block + (0xE0,),  # noqa: RUF005 (the JIT adds tuples, it does not unpack them)
        dtype=(gl.int32,) * 6,
        is_pure=MOVABLE,
        pack=1,
    )


BLOCK_CONVERTS = {"max3": block_by_max3, "packed_max": block_by_packed_max}
"""By the name that configs know: what a kernel is given as its AMAX."""


@gluon.jit
def quantize_blocks(pairs, AMAX, MOVABLE, WAVES, ROWS, STEP_K):
    """``[WAVES, ROWS, STEP_K // 2]`` int32, two bf16 each, to e2m1 bytes of that shape and scales per 32 elements.

    Unless MOVABLE, the compiler keeps every load that stands before the conversion before it.
    """
    e, o = gl.split(gl.reshape(pairs, (WAVES, ROWS, STEP_K // 32, 2, 2, 2, 2)))
    e0, e1 = gl.split(e)
    o0, o1 = gl.split(o)
    e00, e01 = gl.split(e0)
    e10, e11 = gl.split(e1)
    o00, o01 = gl.split(o0)
    o10, o11 = gl.split(o1)
    p0, p8 = gl.split(e00)
    p4, p12 = gl.split(e01)
    p2, p10 = gl.split(e10)
    p6, p14 = gl.split(e11)
    p1, p9 = gl.split(o00)
    p5, p13 = gl.split(o01)
    p3, p11 = gl.split(o10)
    p7, p15 = gl.split(o11)
    block = (p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15)
    w0, w1, w2, w3, byte, _ = AMAX(block, MOVABLE)
    packed = words_to_bytes(gl.join(gl.join(w0, w2), gl.join(w1, w3)))
    return gl.reshape(packed, (WAVES, ROWS, STEP_K // 2)), byte.to(gl.uint8)


@gluon.jit
def load_part(ptr, offset, along, END, FIRST, STRIDE, LENGTH, CACHE):
    """One round of K steps: ``along`` counts along K within the round, which is LENGTH long and starts at FIRST.

    Only a round that reaches past END is masked. A masked lane's offset is put past the end of the buffer's range,
    where the hardware reads zero: asking for ``other=0`` would only add a select per register.
    """
    if FIRST + LENGTH > END:
        return gl.amd.cdna4.buffer_load(ptr, offset + FIRST * STRIDE, mask=along < END - FIRST, cache=CACHE)
    else:
        return gl.amd.cdna4.buffer_load(ptr, offset + FIRST * STRIDE, cache=CACHE)


@gluon.jit
def load_packed(ptr, tile, first_wave, step, LIMIT, K, ROWS, STEP_K, WAVES, ROUND, LAYOUT, K_AXIS, CACHE):
    """One round of a tile of ROWS rows of packed e2m1 out of the (16, 16) tile shuffle, k along axis K_AXIS.

    Rows past the last group repeat it.
    """
    byte = (first_wave + index(0, WAVES, LAYOUT)) * (STEP_K // 2) + index(K_AXIS, STEP_K // 2, LAYOUT)
    row = index(3 - K_AXIS, ROWS, LAYOUT)
    group = tile * (ROWS // 16) + row // 16
    if LIMIT > 0:
        group = gl.minimum(group, LIMIT // 16 - 1)
    offset = group * (8 * K) + (byte // 16) * 256 + (row % 16) * 16 + byte % 16
    return load_part(ptr, offset, byte, K // 2, step * (ROUND // 2), 16, ROUND // 2, CACHE)


@gluon.jit
def load_scale_words(ptr, tile, first_wave, step, LIMIT, K, ROWS, STEP_K, WAVES, ROUND):
    """Scales of one round as dwords ``[WAVES, groups, 64]``, which hold columns c and c + 4 of rows r and r + 16."""
    GROUPS: gl.constexpr = max(ROWS // 32, 1)
    LAYOUT: gl.constexpr = scale_word_layout(WAVES, GROUPS)
    at = (first_wave + index(0, WAVES, LAYOUT)) * (STEP_K // 128)
    lane = index(2, 64, LAYOUT)
    if ROWS == 16:
        group = tile // 2 + index(1, 1, LAYOUT)
    else:
        group = tile * GROUPS + index(1, GROUPS, LAYOUT)
    if LIMIT > 0:
        group = gl.minimum(group, LIMIT // 32 - 1)
    offset = group * (8 * ((K // 32 + 7) // 8 * 8)) + at // 2 * 64 + lane
    words = ptr.to(gl.pointer_type(gl.int32), bitcast=True)
    return load_part(words, offset, at * 4 + lane // 16, K // 32, step * (ROUND // 32), 8, ROUND // 32, "")


@gluon.jit
def scales_of_words(word, tile, first_wave, ROWS, STEP_K, WAVES):
    """Scales ``[WAVES, ROWS, STEP_K // 32]``: of each dword the half that a tile of 16 rows or a step of 128 needs."""
    LAYOUT: gl.constexpr = scale_word_layout(WAVES, max(ROWS // 32, 1))
    shift = (first_wave + index(0, WAVES, LAYOUT)) * (STEP_K // 128) % 2 * 16
    if ROWS == 16:
        word = word >> (shift + tile % 2 * 8)
    else:
        word = word >> shift
    if ROWS == 16 and STEP_K == 128:
        scale = gl.permute(gl.reshape(word.to(gl.uint8), (WAVES, 4, 16)), (0, 2, 1))
    elif ROWS == 16:
        steps = gl.reshape(gl.join(word, word >> 16).to(gl.uint8), (WAVES, 4, 16, 2))
        scale = gl.reshape(gl.permute(steps, (0, 2, 3, 1)), (WAVES, 16, 8))
    elif STEP_K == 128:
        rows = gl.reshape(gl.join(word, word >> 8).to(gl.uint8), (WAVES, ROWS // 32, 4, 16, 2))
        scale = gl.reshape(gl.permute(rows, (0, 1, 4, 3, 2)), (WAVES, ROWS, 4))
    else:
        both = gl.reshape(words_to_bytes(word), (WAVES, ROWS // 32, 4, 16, 2, 2))
        scale = gl.reshape(gl.permute(both, (0, 1, 5, 3, 4, 2)), (WAVES, ROWS, 8))
    return gl.convert_layout(scale, operand_layout(WAVES, ROWS, 1, STEP_K // 32))


@gluon.jit
def stage_for_sum(acc, WAVES, BLOCK_M, BLOCK_N):
    """The waves' tiles side by side in LDS, each as it lies in registers: no two lanes of an access share a bank.

    That is [row tile, column tile, column / 4, row, column % 4], flat.
    """
    acc = gl.reshape(acc, (WAVES, BLOCK_M // 16, 16, BLOCK_N // 16, 4, 4))
    acc = gl.reshape(gl.permute(acc, (0, 1, 3, 4, 2, 5)), (WAVES, BLOCK_M * BLOCK_N))
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    return gl.allocate_shared_memory(gl.float32, [WAVES, BLOCK_M * BLOCK_N], shared, acc)


@gluon.constexpr_function
def sum_layout(waves, size):
    """A lane adds up to four neighbours of all waves' tiles."""
    return gl.BlockedLayout([waves, min(max(size // (64 * waves), 1), 4)], [1, 64], [1, waves], [1, 0])


@gluon.jit
def store_tile(out_ptr, value, place, pid_m, tile, M, N, BLOCK_M, BLOCK_N, MASK):
    """``value``, the elements at ``place`` of a tile as `stage_for_sum` orders them, to their places in ``[M, N]``."""
    block = place // 256
    row = pid_m * BLOCK_M + (block // (BLOCK_N // 16)) * 16 + (place // 4) % 16
    column = tile * BLOCK_N + (block % (BLOCK_N // 16)) * 16 + (place // 64) % 4 * 4 + place % 4
    value = value.to(out_ptr.dtype.element_ty)
    if MASK:
        gl.amd.cdna4.buffer_store(value, out_ptr, row * N + column, mask=(row < M) & (column < N))
    else:
        gl.amd.cdna4.buffer_store(value, out_ptr, row * N + column)
