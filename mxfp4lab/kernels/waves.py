"""What one wave of the sliced kernels does: loads, quantizes, puts in order and stores, within the MFMA's own layouts.

Axes of all tiles: wave, row or column, k.
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


@gluon.jit
def words_to_bytes(word):
    """``[...]`` int32 to ``[..., 2, 2]`` uint8, low byte first; the registers stay as they are."""
    halves = gl.join(word, word >> 16)
    return gl.join(halves, halves >> 8).to(gl.uint8)


@gluon.jit
def quantize_blocks(
    pairs, AMAX: gl.constexpr, MOVABLE: gl.constexpr, WAVES: gl.constexpr, ROWS: gl.constexpr, STEP_K: gl.constexpr
):
    """``[WAVES, ROWS, STEP_K // 2]`` int32, two bf16 each, to e2m1 bytes of that shape and scales per 32 elements.

    Unless MOVABLE, the compiler keeps every load that stands before the conversion before it.
    """
    tree = gl.reshape(pairs, (WAVES, ROWS, STEP_K // 32, 2, 2, 2, 2))
    e, o = gl.split(tree)
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
    if AMAX == "packed_max":
        w0, w1, w2, w3, byte, _ = gl.inline_asm_elementwise(
            BLOCK_BY_PACKED_MAX,
            BLOCK_CONSTRAINTS_PACKED,
            [p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, 0xE0],
            dtype=(gl.int32, gl.int32, gl.int32, gl.int32, gl.int32, gl.int32),
            is_pure=MOVABLE,
            pack=1,
        )
    else:
        w0, w1, w2, w3, byte, _ = gl.inline_asm_elementwise(
            BLOCK_BY_MAX3,
            BLOCK_CONSTRAINTS,
            [p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15],
            dtype=(gl.int32, gl.int32, gl.int32, gl.int32, gl.int32, gl.int32),
            is_pure=MOVABLE,
            pack=1,
        )
    words = gl.join(gl.join(w0, w2), gl.join(w1, w3))
    return gl.reshape(words_to_bytes(words), (WAVES, ROWS, STEP_K // 2)), byte.to(gl.uint8)


@gluon.jit
def load_a_part(
    ptr,
    offset,
    row,
    rows: gl.constexpr,
    index,
    END: gl.constexpr,
    FIRST: gl.constexpr,
    LENGTH: gl.constexpr,
    MASK_ROWS: gl.constexpr,
):
    """As ``load_part``, for A; rows past the end are not read and read as zero."""
    if MASK_ROWS and FIRST + LENGTH > END:
        return gl.amd.cdna4.buffer_load(ptr, offset + FIRST, mask=(row < rows) & (index < END - FIRST))
    elif MASK_ROWS:
        return gl.amd.cdna4.buffer_load(ptr, offset + FIRST, mask=row < rows)
    elif FIRST + LENGTH > END:
        return gl.amd.cdna4.buffer_load(ptr, offset + FIRST, mask=index < END - FIRST)
    else:
        return gl.amd.cdna4.buffer_load(ptr, offset + FIRST)


@gluon.jit
def load_part(
    ptr,
    offset,
    index,
    END: gl.constexpr,
    FIRST: gl.constexpr,
    STRIDE: gl.constexpr,
    LENGTH: gl.constexpr,
    CACHE: gl.constexpr,
):
    """One round of K steps: ``index`` counts along K within the round, which is LENGTH long and starts at FIRST.

    Only a round that reaches past END is masked. A masked lane's offset is put past the end of the buffer's range,
    where the hardware reads zero: asking for ``other=0`` would only add a select per register.
    """
    if FIRST + LENGTH > END:
        return gl.amd.cdna4.buffer_load(ptr, offset + FIRST * STRIDE, mask=index < END - FIRST, cache=CACHE)
    else:
        return gl.amd.cdna4.buffer_load(ptr, offset + FIRST * STRIDE, cache=CACHE)


@gluon.jit
def load_scale_words(
    ptr,
    offset,
    column,
    shift,
    K: gl.constexpr,
    FIRST: gl.constexpr,
    LENGTH: gl.constexpr,
    STEP_K: gl.constexpr,
    WAVES: gl.constexpr,
    BLOCK_N: gl.constexpr,
):
    """Scales ``[WAVES, BLOCK_N, STEP_K // 32]`` from dwords that hold columns c and c + 4 of rows r and r + 16.

    ``shift`` brings down the half that a tile of 16 rows or a step of 128 needs.
    """
    word = load_part(ptr, offset, column, K // 32, FIRST, 8, LENGTH, "") >> shift
    return words_to_scales(word, STEP_K, WAVES, BLOCK_N)


@gluon.jit
def words_to_scales(word, STEP_K: gl.constexpr, WAVES: gl.constexpr, ROWS: gl.constexpr):
    """``[WAVES, ROWS // 32, 64]`` dwords of the e8m0 shuffle, shifted, to ``[WAVES, ROWS, STEP_K // 32]`` bytes."""
    if ROWS == 16 and STEP_K == 128:
        byte = gl.reshape(word.to(gl.uint8), (WAVES, 4, 16))
        return gl.permute(byte, (0, 2, 1))
    elif ROWS == 16:
        steps = gl.reshape(gl.join(word, word >> 16).to(gl.uint8), (WAVES, 4, 16, 2))
        return gl.reshape(gl.permute(steps, (0, 2, 3, 1)), (WAVES, 16, 8))
    elif STEP_K == 128:
        rows = gl.join(word, word >> 8).to(gl.uint8)
        rows = gl.reshape(rows, (WAVES, ROWS // 32, 4, 16, 2))
        return gl.reshape(gl.permute(rows, (0, 1, 4, 3, 2)), (WAVES, ROWS, 4))
    else:
        both = gl.reshape(words_to_bytes(word), (WAVES, ROWS // 32, 4, 16, 2, 2))
        return gl.reshape(gl.permute(both, (0, 1, 5, 3, 4, 2)), (WAVES, ROWS, 8))


@gluon.jit
def lane_order(acc, WAVES: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """The tiles of the waves as they lie in registers: [row tile, column tile, column / 4, row, column % 4], flat."""
    acc = gl.reshape(acc, (WAVES, BLOCK_M // 16, 16, BLOCK_N // 16, 4, 4))
    return gl.reshape(gl.permute(acc, (0, 1, 3, 4, 2, 5)), (WAVES, BLOCK_M * BLOCK_N))


@gluon.jit
def store_tile(
    out_ptr,
    value,
    place,
    first_row,
    first_column,
    M: gl.constexpr,
    N: gl.constexpr,
    BLOCK_N: gl.constexpr,
    MASK: gl.constexpr,
):
    """``value`` in lane order to its place in ``[M, N]``."""
    tile = place // 256
    row = first_row + (tile // (BLOCK_N // 16)) * 16 + (place // 4) % 16
    column = first_column + (tile % (BLOCK_N // 16)) * 16 + (place // 64) % 4 * 4 + place % 4
    if MASK:
        gl.amd.cdna4.buffer_store(value, out_ptr, row * N + column, mask=(row < M) & (column < N))
    else:
        gl.amd.cdna4.buffer_store(value, out_ptr, row * N + column)
