"""Kernels for NVIDIA Hopper (sm_90): the MXFP4 product in exact bf16 arithmetic.

Hopper has no FP4 units, so both operands become bf16 values that hold their MXFP4 value exactly, and the tensor cores
multiply those. An e2m1 number times a power of two has two significant bits, so nothing is rounded on the way:

- A is quantized and dequantized in one go. With ``p = 2**floor(log2|x|)``, but at least the block's scale, the e2m1
  grid around ``x`` has the step ``p / 2``, and ``(x + 96 p) - 96 p`` in bf16 rounds ``x`` to it, ties to even: two
  fused multiply-adds for two elements, no exponent arithmetic per element.
- B's nibble ``s ee m`` shifted to bits 15 and 8..6 is the bf16 number ``value * 2**-126`` (subnormals included), so
  two shifts, two masks and one multiply by ``2**126 * scale`` decode two elements.

The k axis is permuted inside chunks of 64 so that this needs no shuffling: position ``16 p + j`` of a chunk is element
``4 j + p``, which is nibble ``p`` of the 16-bit word ``j``. A sum does not care in which order its terms are listed, as
long as A and B list them alike.

Domain: finite ``|A| < 2**120``, B scales from ``2**-100`` (byte 27) to ``2**33`` (byte 160). Decoded B carries
``2**-32``, which the epilogue takes back in fp32, so that every e2m1 value times its scale is exact in bf16.

Tried on an H200 and left out: C instead of C^T tiles (decoded B then crosses shared memory), tiles of 128 k, K divided
among the warp groups of a program, B fetched while A is quantized; none was faster where it counts. What else was
tried, with times, stands beside the records (`data/recorded/h200/README.md`).
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _max_bf16x2(x, y):
    """Maximum of two words of two bf16 each, int32."""
    return tl.inline_asm_elementwise(
        "max.bf16x2 $0, $1, $2;", "=r,r,r", args=[x, y], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _abs_max_of_four(x):
    """Four bf16 in an int64 -> two candidates for max|x| as two bf16 in an int32."""
    return tl.inline_asm_elementwise(
        """{
        .reg .b32 u, v;
        mov.b64 {u, v}, $1;
        and.b32 u, u, 0x7FFF7FFF;
        and.b32 v, v, 0x7FFF7FFF;
        max.bf16x2 $0, u, v;
        }""",
        "=r,l",
        args=[x],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def _round_to_e2m1(x, scale):
    """Round four bf16 per int64 to the e2m1 grid of their block; split by k modulo 4.

    Args:
        x: [..] int64, four bf16 each, lowest k in the lowest bits.
        scale: [..] int32, the block's scale 2**e as bf16 in both halves.

    Returns:
        Four bf16 tensors of x's shape; tensor ``p`` holds element ``4 j + p``, dequantized.
    """
    return tl.inline_asm_elementwise(
        """{
        .reg .b32 u0, v0, u1, v1, p, t, big, neg;
        mov.b32 big, 0x42C042C0;
        mov.b32 neg, 0xC2C0C2C0;
        mov.b64 {u0, v0}, $4;
        mov.b64 {u1, v1}, $5;
        and.b32 p, u0, 0x7F807F80; max.bf16x2 p, p, $6; fma.rn.bf16x2 t, p, big, u0; fma.rn.bf16x2 u0, p, neg, t;
        and.b32 p, v0, 0x7F807F80; max.bf16x2 p, p, $6; fma.rn.bf16x2 t, p, big, v0; fma.rn.bf16x2 v0, p, neg, t;
        and.b32 p, u1, 0x7F807F80; max.bf16x2 p, p, $7; fma.rn.bf16x2 t, p, big, u1; fma.rn.bf16x2 u1, p, neg, t;
        and.b32 p, v1, 0x7F807F80; max.bf16x2 p, p, $7; fma.rn.bf16x2 t, p, big, v1; fma.rn.bf16x2 v1, p, neg, t;
        prmt.b32 $0, u0, u1, 0x5410;
        prmt.b32 $1, u0, u1, 0x7632;
        prmt.b32 $2, v0, v1, 0x5410;
        prmt.b32 $3, v0, v1, 0x7632;
        }""",
        "=&r,=&r,=&r,=&r,l,l,r,r",
        args=[x, scale],
        dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
        is_pure=True,
        pack=2,
    )


@triton.jit
def _decode_e2m1(word, factor):
    """Four e2m1 nibbles per uint16 times their scale.

    Args:
        word: [..] uint16, lowest k in the lowest nibble.
        factor: [..] bf16, ``2**126 * scale`` up to a power of two of the caller's choice.

    Returns:
        Four bf16 tensors of word's shape; tensor ``p`` holds element ``4 j + p``.
    """
    return tl.inline_asm_elementwise(
        """{
        .reg .b32 a, b;
        shl.b32 a, $4, 12; and.b32 a, a, 0x80008000;
        shl.b32 b, $4, 6;  and.b32 b, b, 0x01C001C0; or.b32 a, a, b;
        mul.rn.bf16x2 $0, a, $5;
        shl.b32 a, $4, 8;  and.b32 a, a, 0x80008000;
        shl.b32 b, $4, 2;  and.b32 b, b, 0x01C001C0; or.b32 a, a, b;
        mul.rn.bf16x2 $1, a, $5;
        shl.b32 a, $4, 4;  and.b32 a, a, 0x80008000;
        shr.u32 b, $4, 2;  and.b32 b, b, 0x01C001C0; or.b32 a, a, b;
        mul.rn.bf16x2 $2, a, $5;
        and.b32 a, $4, 0x80008000;
        shr.u32 b, $4, 6;  and.b32 b, b, 0x01C001C0; or.b32 a, a, b;
        mul.rn.bf16x2 $3, a, $5;
        }""",
        "=&r,=&r,=&r,=&r,r,r",
        args=[word, factor],
        dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
        is_pure=True,
        pack=2,
    )


@triton.jit
def _chunked(x0, x1, x2, x3, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """Four planes [ROWS, WORDS] -> [ROWS, 4 * WORDS] in the chunked k order (registers only)."""
    x = tl.join(tl.join(x0, x2), tl.join(x1, x3))  # [ROWS, WORDS, p / 2, p % 2]
    x = x.reshape([ROWS, WORDS // 16, 16, 4])
    return x.permute(0, 1, 3, 2).reshape([ROWS, 4 * WORDS])


@triton.jit
def _quantize_dequantize(x, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """[ROWS, WORDS] int64 of four bf16 -> [ROWS, 4 * WORDS] bf16 on the MXFP4 grid, chunked k order.

    The scale is aiter's EVEN mode: ``2**(floor(log2(amax rounded up at mantissa 1.75)) - 2)``, at least ``2**-127``.
    """
    high = _abs_max_of_four(x).reshape([ROWS, WORDS // 8, 8])
    high = tl.reduce(high, 2, _max_bf16x2)
    amax = tl.maximum(high & 0xFFFF, high >> 16)
    bits = tl.maximum(((amax + 0x20) & 0xFF80) - 0x100, 0x40)
    scale = bits | (bits << 16)
    scale = tl.broadcast_to(scale[:, :, None], [ROWS, WORDS // 8, 8]).reshape([ROWS, WORDS])
    x0, x1, x2, x3 = _round_to_e2m1(x, scale)
    return _chunked(x0, x1, x2, x3, ROWS, WORDS)


@triton.jit
def _factor_pair(words):
    """e8m0 bytes 0 and 2 of int32 words -> two bf16 tensors ``2**126 * 2**(byte - 127) * 2**-32``.

    A bf16 power of two is its exponent shifted by 7: both bytes of a word go through one multiply-add.
    """
    both = (words & 0x00FF00FF) * 0x80 + 0x2F002F00
    low = both.to(tl.int16).to(tl.bfloat16, bitcast=True)
    high = (both >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return low, high


@triton.jit
def _row_order(i):
    """Tile row -> row of B inside the tile: bits 3 and 4 change places.

    A word of the shuffled scales holds rows r and r + 16; with this order one thread's fragment holds both.
    """
    order = (i & ~24) | ((i & 8) << 1) | ((i & 16) >> 1)
    return tl.max_contiguous(tl.multiple_of(order, 8), 8)


@triton.jit
def _factors(words, ROWS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Words of shuffled scales [ROWS / 32, BLOCK_K / 4] int32 -> factors [ROWS, BLOCK_K / 4] bf16, one per 16-bit
    word of B, rows in `_row_order`. Byte ``2 i + h`` of word (c, r) is row ``16 h + r``, column ``4 i + c``.
    """
    w = words.reshape([ROWS // 32, BLOCK_K // 256, 4, 2, 8])
    f00, f10 = _factor_pair(w)
    f01, f11 = _factor_pair(w >> 8)
    f = tl.join(tl.join(f00, f10), tl.join(f01, f11))  # [group, chunk, c, r / 8, r % 8, i, h]
    f = f.permute(0, 3, 6, 4, 1, 5, 2).reshape([ROWS, BLOCK_K // 32])
    return tl.broadcast_to(f[:, :, None], [ROWS, BLOCK_K // 32, 8]).reshape([ROWS, BLOCK_K // 4])


@triton.jit
def hopper_quantize(
    a_ptr,
    out_ptr,
    M: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """A [M, K] bf16, finite and below 2**120 -> its MXFP4 values [M, K] bf16, k in the chunked order.

    Grid: (row blocks, k blocks).
    """
    gdc_launch_dependents()
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    first = tl.program_id(1) * BLOCK_K
    words = first // 4 + tl.arange(0, BLOCK_K // 4)
    cols = first + tl.arange(0, BLOCK_K)
    mask = (rows[:, None] < M) & (words[None, :] < K // 4)
    a_words = a_ptr.to(tl.pointer_type(tl.int64))
    x = tl.load(a_words + rows[:, None] * (K // 4) + words[None, :], mask=mask, other=0)
    value = _quantize_dequantize(x, BLOCK_M, BLOCK_K // 4)
    tl.store(out_ptr + rows[:, None] * K + cols[None, :], value, mask=(rows[:, None] < M) & (cols[None, :] < K))


@triton.jit
def hopper_gemm(
    a_ptr,
    b_ptr,
    b_scale_ptr,
    c_ptr,
    partial_ptr,
    count_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    QUANTIZE_A: tl.constexpr,
):
    """C = dequant(quant(A)) @ dequant(B)^T in one launch, split-K included.

    Args:
        a_ptr: QUANTIZE_A: A [M, K] bf16; else its MXFP4 values [M, K] bf16 in the chunked order, written by
            `hopper_quantize`, whose end is waited for under programmatic dependent launch.
        b_ptr: B_q [N, K / 2] uint8, row-major.
        b_scale_ptr: shuffled e8m0 scales, uint8.
        c_ptr: C [M, N] bf16.
        partial_ptr: [tiles, SPLIT_K, BLOCK_N, BLOCK_M] fp32 workspace, unused for SPLIT_K 1.
        count_ptr: [tiles] int32, zero before the first launch; every launch leaves it zero again.

    Domain: finite ``|A| < 2**120``; B scales from ``2**-100`` (byte 27) to ``2**33`` (byte 160).

    A tile of C^T is computed: rows of B are the M axis of wgmma, so that decoded B goes to the tensor cores from
    registers. The last program to arrive at a tile adds the partials in split order, so the result does not depend on
    arrival. Grid: (ceil(N / BLOCK_N), SPLIT_K, ceil(M / BLOCK_M)).
    """
    tile_n = tl.program_id(0)
    split = tl.program_id(1)
    tile_m = tl.program_id(2)
    rows_n = tile_n * BLOCK_N + _row_order(tl.arange(0, BLOCK_N))
    rows_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    groups = tile_n * (BLOCK_N // 32) + tl.arange(0, BLOCK_N // 32)
    words = tl.arange(0, BLOCK_K // 4)
    cols = tl.arange(0, BLOCK_K)
    SCALE_COLS: tl.constexpr = (K // 32 + 7) // 8 * 8
    STEPS: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    SPAN: tl.constexpr = (STEPS + SPLIT_K - 1) // SPLIT_K * BLOCK_K
    EVEN_M: tl.constexpr = M % BLOCK_M == 0
    EVEN_N: tl.constexpr = N % BLOCK_N == 0
    EVEN_K: tl.constexpr = SPAN * SPLIT_K == K
    start = split * SPAN

    # Wider elements than the buffers': four nibbles of B, four scales or four bf16 of A are handled as one.
    b_row = b_ptr.to(tl.pointer_type(tl.uint16)) + rows_n[:, None] * (K // 4) + words[None, :]
    scale_row = b_scale_ptr.to(tl.pointer_type(tl.int32)) + groups[:, None] * (SCALE_COLS * 8) + words[None, :]
    if QUANTIZE_A:
        a_row = a_ptr.to(tl.pointer_type(tl.int64)) + rows_m[:, None] * (K // 4) + words[None, :]
    else:
        a_row = a_ptr + rows_m[:, None] * K + cols[None, :]
        # Nothing of B is fetched before this wait: in a cache full of dirty lines that holds up what the quantize
        # kernel writes, and costs more than it hides (14.7 against 13.5 us on 64x7168x2048).
        gdc_wait()

    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for step in tl.range(0, SPAN, BLOCK_K, num_stages=NUM_STAGES):
        k = start + step
        word = k // 4 + words[None, :]
        if EVEN_K and EVEN_N:
            b = tl.load(b_row + k // 4)
        else:
            b = tl.load(b_row + k // 4, mask=(rows_n[:, None] < N) & (word < K // 4), other=0)
        if EVEN_K:
            scales = tl.load(scale_row + k // 4)
        else:
            scales = tl.load(scale_row + k // 4, mask=word < SCALE_COLS * 8, other=0)
        if QUANTIZE_A:
            if EVEN_K and EVEN_M:
                raw = tl.load(a_row + k // 4)
            else:
                raw = tl.load(a_row + k // 4, mask=(rows_m[:, None] < M) & (word < K // 4), other=0)
            a = _quantize_dequantize(raw, BLOCK_M, BLOCK_K // 4)
        else:
            if EVEN_K and EVEN_M:
                a = tl.load(a_row + k)
            else:
                a = tl.load(a_row + k, mask=(rows_m[:, None] < M) & (k + cols[None, :] < K), other=0.0)
        factor = _factors(scales, BLOCK_N, BLOCK_K)
        if not EVEN_K:  # padding of the scales may hold anything
            factor = tl.where(word < K // 4, factor, 0.0)
        b0, b1, b2, b3 = _decode_e2m1(b, factor)
        acc = tl.dot(_chunked(b0, b1, b2, b3, BLOCK_N, BLOCK_K // 4), a.T, acc)

    c_offsets = rows_m[None, :] * N + rows_n[:, None]
    c_mask = (rows_m[None, :] < M) & (rows_n[:, None] < N)
    if SPLIT_K == 1:
        tl.store(c_ptr + c_offsets, (acc * 4294967296.0).to(tl.bfloat16), mask=c_mask)
    else:
        tile = tile_m * tl.num_programs(0) + tile_n
        place = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        partial = partial_ptr + tile * (SPLIT_K * BLOCK_M * BLOCK_N) + place
        tl.store(partial + split * (BLOCK_M * BLOCK_N), acc)
        tl.debug_barrier()
        arrived = tl.atomic_add(count_ptr + tile, 1, sem="acq_rel", scope="gpu")
        if arrived == SPLIT_K - 1:
            total = tl.zeros_like(acc)
            for i in tl.static_range(SPLIT_K):
                total += tl.load(partial + i * (BLOCK_M * BLOCK_N), cache_modifier=".cg")
            tl.store(c_ptr + c_offsets, (total * 4294967296.0).to(tl.bfloat16), mask=c_mask)
            tl.store(count_ptr + tile, 0)
