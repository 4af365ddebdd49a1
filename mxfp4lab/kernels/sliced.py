"""GEMM whose waves share a tile of C and divide K: quantization, scales and MFMA stay inside a wave until the last sum.

Written in Gluon, Triton's dialect with explicit layouts, for gfx950. The layouts are the MFMA's own (``waves``), so
that nothing is moved between lanes, and every wave quantizes only the A that it multiplies. At the end the fp32 tiles
of the waves meet in LDS and are added in the order of the waves.
"""

# ruff: noqa: RUF005 (the JIT adds tuples, it does not unpack them)

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .waves import (
    bases,
    index,
    linear,
    load_packed,
    load_part,
    load_scale_words,
    mfma_layout,
    mfma_scaled,
    operand_layout,
    quantize_blocks,
    scales_of_words,
    stage_for_sum,
    store_tile,
    sum_layout,
    workgroup_barrier,
)


@gluon.constexpr_function
def row_layout(waves, rows, length):
    """Sixteen lanes read 256 neighbouring bytes of one row of A (pairs of bf16), the next sixteen those of the next."""
    registers = bases(1, 4, 2) + bases(4, 16, 1) + bases(64, length, 2) + bases(16, rows, 1)
    return linear([waves, rows, length], registers, bases(4, 64, 2) + bases(1, 4, 1), bases(1, waves, 0))


@gluon.jit
def load_a(ptr, pid_m, first_wave, step, M, K, BLOCK_M, STEP_K, WAVES, ROUND, LAYOUT):
    """One round of A as pairs of bf16; rows past the end are not read and read as zero."""
    pair = (first_wave + index(0, WAVES, LAYOUT)) * (STEP_K // 2) + index(2, STEP_K // 2, LAYOUT)
    row = pid_m * BLOCK_M + index(1, BLOCK_M, LAYOUT)
    pairs = ptr.to(gl.pointer_type(gl.int32), bitcast=True)
    offset = row * (K // 2) + pair
    FIRST: gl.constexpr = step * (ROUND // 2)
    if M % BLOCK_M != 0 and FIRST + ROUND // 2 > K // 2:
        return gl.amd.cdna4.buffer_load(pairs, offset + FIRST, mask=(row < M) & (pair < K // 2 - FIRST))
    elif M % BLOCK_M != 0:
        return gl.amd.cdna4.buffer_load(pairs, offset + FIRST, mask=row < M)
    else:
        return load_part(pairs, offset, pair, K // 2, FIRST, 1, ROUND // 2, "")


@gluon.jit
def load_scale_bytes(ptr, tile, first_wave, step, LIMIT, K, ROWS, STEP_K, WAVES, ROUND):
    """Scales ``[WAVES, ROWS, STEP_K // 32]`` of one round, byte by byte: where a dword would hold a padded column."""
    LAYOUT: gl.constexpr = operand_layout(WAVES, ROWS, 1, STEP_K // 32)
    along = (first_wave + index(0, WAVES, LAYOUT)) * (STEP_K // 32) + index(2, STEP_K // 32, LAYOUT)
    row = tile * ROWS + index(1, ROWS, LAYOUT)
    if LIMIT > 0:
        row = gl.minimum(row, LIMIT - 1)
    column = along + step * (ROUND // 32)
    offset = (row // 32) * (32 * ((K // 32 + 7) // 8 * 8)) + (row % 16) * 4 + (row // 16) % 2
    offset += (column // 8) * 256 + (column % 4) * 64 + (column // 4) % 2 * 2
    return load_part(ptr, offset, along, K // 32, step * (ROUND // 32), 0, ROUND // 32, "")


@gluon.jit
def gemm_sliced(
    a_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    partial_ptr,
    arrived_ptr,
    M: gl.constexpr,
    N: gl.constexpr,
    K: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    TILES: gl.constexpr,
    STEP_K: gl.constexpr,
    WAVES: gl.constexpr,
    SPLIT_K: gl.constexpr,
    XCDS: gl.constexpr,
    STAGED: gl.constexpr,
    AMAX: gl.constexpr,
    MOVABLE: gl.constexpr,
    CACHE: gl.constexpr,
):
    """One workgroup: TILES tiles of BLOCK_M x BLOCK_N of C beside each other, A quantized once for all of them.

    A round is one step of STEP_K for every wave. With SPLIT_K > 1 this is one of SPLIT_K parts of K, and a round is a
    step for every wave of every part. ``out_ptr`` is then fp32 ``[SPLIT_K, M, N]``, for a reduce kernel to add; or,
    where ``arrived_ptr`` is given, C itself: the last workgroup of a tile to arrive adds the parts in their order.
    ``partial_ptr`` holds them, ``arrived_ptr`` counts arrivals per tile, starts at zero and is left at zero.

    A's MFMA layout has every lane read 16 bytes of another row: a cache line per lane and access. With STAGED A is
    read row by row, sixteen lanes to 256 bytes, and passes through LDS, swizzled so that no two lanes share a bank.
    """
    ROUND: gl.constexpr = WAVES * SPLIT_K * STEP_K
    ROUNDS: gl.constexpr = (K + ROUND - 1) // ROUND
    WIDTH: gl.constexpr = TILES * BLOCK_N
    TILES_M: gl.constexpr = (M + BLOCK_M - 1) // BLOCK_M
    TILES_N: gl.constexpr = (N + WIDTH - 1) // WIDTH
    LIMIT: gl.constexpr = N if N % WIDTH != 0 else 0
    mma: gl.constexpr = mfma_layout(WAVES)
    a_layout: gl.constexpr = gl.DotOperandLayout(0, mma, 16)
    b_layout: gl.constexpr = gl.DotOperandLayout(1, mma, 16)
    a_scale_layout: gl.constexpr = operand_layout(WAVES, BLOCK_M, 1, STEP_K // 32)
    pair_layout: gl.constexpr = operand_layout(WAVES, BLOCK_M, 16, STEP_K // 2)
    read_layout: gl.constexpr = row_layout(WAVES, BLOCK_M, STEP_K // 2) if STAGED else pair_layout
    # Whole groups of 256 k only, or a padded column, whose content is anybody's, would be multiplied. A wave keeps its
    # half of the dwords from round to round: one wave alone with steps of 128 would need the other in every second.
    BY_WORD: gl.constexpr = K % 256 == 0 and (ROUND % 256 == 0 or ROUNDS == 1)

    pid = gl.program_id(0)
    if XCDS > 1:
        PROGRAMS: gl.constexpr = TILES_M * TILES_N * SPLIT_K
        xcd = pid % XCDS
        pid = xcd * (PROGRAMS // XCDS) + gl.minimum(xcd, PROGRAMS % XCDS) + pid // XCDS
    pid_m = pid % TILES_M
    pid_n = pid // TILES_M
    if SPLIT_K > 1:
        part = pid_n // TILES_N
        pid_n = pid_n % TILES_N
    else:
        part = 0
    first = part * WAVES

    # All loads first: what a wave needs is known from the start, and the latency of the last covers the others.
    a_tiles = ()
    b_tiles = ()
    s_tiles = ()
    for step in gl.static_range(ROUNDS):
        a_tiles = a_tiles + (load_a(a_ptr, pid_m, first, step, M, K, BLOCK_M, STEP_K, WAVES, ROUND, read_layout),)
        for i in gl.static_range(TILES):
            tile = pid_n * TILES + i
            b = load_packed(b_ptr, tile, first, step, LIMIT, K, BLOCK_N, STEP_K, WAVES, ROUND, b_layout, 1, CACHE)
            b_tiles = b_tiles + (b,)
            if BY_WORD:
                word = load_scale_words(b_scale_ptr, tile, first, step, LIMIT, K, BLOCK_N, STEP_K, WAVES, ROUND)
                s_tiles = s_tiles + (scales_of_words(word, tile, first, BLOCK_N, STEP_K, WAVES),)
            else:
                scale = load_scale_bytes(b_scale_ptr, tile, first, step, LIMIT, K, BLOCK_N, STEP_K, WAVES, ROUND)
                s_tiles = s_tiles + (scale,)

    if STAGED:
        swizzled: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 16, order=[2, 1, 0])
        staged = ()
        for step in gl.static_range(ROUNDS):
            memory = gl.allocate_shared_memory(gl.int32, [WAVES, BLOCK_M, STEP_K // 2], swizzled, a_tiles[step])
            staged = staged + (memory,)

    accs = ()
    for _ in gl.static_range(TILES):
        accs = accs + (gl.zeros([WAVES, BLOCK_M, BLOCK_N], gl.float32, mma),)
    for step in gl.static_range(ROUNDS):
        if STAGED:
            a_tile = staged[step].load(pair_layout)
        else:
            a_tile = a_tiles[step]
        a_q, a_scale = quantize_blocks(a_tile, AMAX, MOVABLE, WAVES, BLOCK_M, STEP_K)
        a_q = gl.convert_layout(a_q, a_layout)
        a_scale = gl.convert_layout(a_scale, a_scale_layout)
        sums = ()
        for i in gl.static_range(TILES):
            b, b_scale = b_tiles[step * TILES + i], s_tiles[step * TILES + i]
            sums = sums + (mfma_scaled(a_q, a_scale, "e2m1", b, b_scale, "e2m1", accs[i]),)
        accs = sums

    memories = ()
    for i in gl.static_range(TILES):
        memories = memories + (stage_for_sum(accs[i], WAVES, BLOCK_M, BLOCK_N),)
    SIZE: gl.constexpr = BLOCK_M * BLOCK_N
    MASK: gl.constexpr = M % BLOCK_M != 0 or N % WIDTH != 0
    layout: gl.constexpr = sum_layout(WAVES, SIZE)
    place = gl.arange(0, SIZE, gl.SliceLayout(0, layout))
    if arrived_ptr is None:
        for i in gl.static_range(TILES):
            total = gl.sum(memories[i].load(layout), axis=0)
            tile = pid_n * TILES + i
            store_tile(out_ptr + part * (M * N), total, place, pid_m, tile, M, N, BLOCK_M, BLOCK_N, MASK)
    else:
        where = pid_n * TILES_M + pid_m
        own = place + (where * SPLIT_K + part) * (TILES * SIZE)
        for i in gl.static_range(TILES):
            total = gl.sum(memories[i].load(layout), axis=0)
            gl.amd.cdna4.buffer_store(total, partial_ptr, own + i * SIZE)
        # A barrier alone waits for no store: each wave waits for its own, then one lane's atomic releases all of them
        # to the other XCDs and acquires theirs.
        gl.inline_asm_elementwise("s_waitcnt vmcnt(0)", "=v,0", [where], dtype=gl.int32, is_pure=False, pack=1)
        workgroup_barrier()
        arrived = gl.atomic_add(arrived_ptr + where, 1, sem="acq_rel", scope="gpu")
        if arrived == SPLIT_K - 1:
            for i in gl.static_range(TILES):
                total = gl.zeros([SIZE], gl.float32, gl.SliceLayout(0, layout))
                for other in gl.static_range(SPLIT_K):
                    slot = place + (where * SPLIT_K + other) * (TILES * SIZE)
                    total += gl.amd.cdna4.buffer_load(partial_ptr, slot + i * SIZE)
                store_tile(out_ptr, total, place, pid_m, pid_n * TILES + i, M, N, BLOCK_M, BLOCK_N, MASK)
            gl.store(arrived_ptr + where, 0)  # for the next call
