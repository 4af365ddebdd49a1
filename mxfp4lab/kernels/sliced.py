"""GEMM whose waves share a tile of C and divide K: quantization, scales and MFMA stay inside a wave until the last sum.

Written in Gluon, Triton's dialect with explicit layouts, for gfx950. The layouts are the MFMA's own, so that nothing
is moved between lanes: lane l of a wave holds row ``l % 16`` of A and column ``l % 16`` of B at k =
``32 * (l // 16) .. + 31`` of every 128, which for A is one scale block, for B one 16-byte piece of the (16, 16) tile
shuffle, and for B's scales one byte of a dword of the e8m0 shuffle. Wave w takes the K steps w, w + WAVES,
w + 2 WAVES, ...; every wave quantizes only the A that it multiplies. At the end the fp32 tiles of the waves meet in LDS
and are added in the order of the waves.

Axes of all tiles: wave, row or column, k.
"""

# ruff: noqa: RUF005 (the JIT adds tuples, it does not unpack them)

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .lane_layouts import index0, index1, index2, operand_layout, row_layout, scale_word_layout
from .waves import (
    lane_order,
    load_a_part,
    load_part,
    load_scale_words,
    mfma_scaled,
    quantize_blocks,
    store_tile,
    workgroup_barrier,
)


@gluon.jit
def sliced_body(
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
    INSIDE: gl.constexpr,
    XCDS: gl.constexpr,
    STAGED: gl.constexpr,
    AMAX: gl.constexpr,
    MOVABLE: gl.constexpr,
    CACHE: gl.constexpr,
):
    """One workgroup: a BLOCK_M x BLOCK_N tile of C. Its waves divide K and meet in LDS at the end.

    Lane l of a wave holds row ``l % 16`` of A and column ``l % 16`` of B at k = ``32 * (l // 16) .. + 31`` of every
    128: of A one scale block, of B one 16-byte piece of the (16, 16) tile shuffle, of B's scales one byte of a dword of
    the e8m0 shuffle. So nothing moves between lanes, and a wave quantizes only the A that it multiplies.

    A round is one step of STEP_K for every wave. With SPLIT_K > 1 this is one of SPLIT_K parts of K, and a round is a
    step for every wave of every part. With TILES > 1 it makes TILES tiles beside each other, and quantizes A once for
    all of them. With INSIDE the last workgroup of a tile to arrive adds the parts in their order: ``partial_ptr`` holds
    them, ``arrived_ptr`` counts arrivals per tile, starts at zero and is left at zero.

    A's MFMA layout has every lane read 16 bytes of another row: a cache line per lane and access. With STAGED A is
    read row by row, sixteen lanes to 256 bytes, and passes through LDS, swizzled so that no two lanes share a bank.
    """
    ROUND: gl.constexpr = WAVES * SPLIT_K * STEP_K
    ROUNDS: gl.constexpr = (K + ROUND - 1) // ROUND
    WIDTH: gl.constexpr = TILES * BLOCK_N
    TILES_M: gl.constexpr = (M + BLOCK_M - 1) // BLOCK_M
    TILES_N: gl.constexpr = (N + WIDTH - 1) // WIDTH
    SCALE_COLUMNS: gl.constexpr = (K // 32 + 7) // 8 * 8
    mma: gl.constexpr = gl.amd.AMDMFMALayout(
        version=4, instr_shape=[16, 16, 128], transposed=True, warps_per_cta=[WAVES, 1, 1]
    )
    a_layout: gl.constexpr = gl.DotOperandLayout(0, mma, 16)
    b_layout: gl.constexpr = gl.DotOperandLayout(1, mma, 16)
    pair_layout: gl.constexpr = operand_layout(WAVES, BLOCK_M, 16, STEP_K // 2)
    a_scale_layout: gl.constexpr = operand_layout(WAVES, BLOCK_M, 1, STEP_K // 32)
    b_scale_layout: gl.constexpr = operand_layout(WAVES, BLOCK_N, 1, STEP_K // 32)
    # Whole groups of 256 k only, or a padded column, whose content is anybody's, would be multiplied. A wave keeps its
    # half of the dwords from round to round: one wave alone with steps of 128 would need the other in every second.
    BY_WORD: gl.constexpr = K % 256 == 0 and (ROUND % 256 == 0 or ROUNDS == 1)
    GROUPS: gl.constexpr = max(BLOCK_N // 32, 1)

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
    first_wave = part * WAVES

    if STAGED:
        read_layout: gl.constexpr = row_layout(WAVES, BLOCK_M, STEP_K // 2)
    else:
        read_layout: gl.constexpr = pair_layout
    a_row = pid_m * BLOCK_M + index1(BLOCK_M, read_layout)
    a_pair = (first_wave + index0(WAVES, read_layout)) * (STEP_K // 2) + index2(STEP_K // 2, read_layout)
    a_offset = a_row * (K // 2) + a_pair

    b_byte = (first_wave + index0(WAVES, b_layout)) * (STEP_K // 2) + index1(STEP_K // 2, b_layout)
    b_column = index2(BLOCK_N, b_layout)
    b_offsets = ()
    for tile in gl.static_range(TILES):
        b_group = (pid_n * TILES + tile) * (BLOCK_N // 16) + b_column // 16
        if N % WIDTH != 0:
            b_group = gl.minimum(b_group, N // 16 - 1)
        b_offsets = b_offsets + (b_group * (8 * K) + (b_byte // 16) * 256 + (b_column % 16) * 16 + b_byte % 16,)

    s_offsets = ()
    s_shifts = ()
    if BY_WORD:
        word_layout: gl.constexpr = scale_word_layout(WAVES, GROUPS)
        s_step = (first_wave + index0(WAVES, word_layout)) * (STEP_K // 128)
        s_column = s_step * 4 + index2(64, word_layout) // 16
        for tile in gl.static_range(TILES):
            if BLOCK_N == 16:
                s_group = (pid_n * TILES + tile) // 2 + index1(1, word_layout)
                s_shifts = s_shifts + (s_step % 2 * 16 + (pid_n * TILES + tile) % 2 * 8,)
            else:
                s_group = (pid_n * TILES + tile) * GROUPS + index1(GROUPS, word_layout)
                s_shifts = s_shifts + (s_step % 2 * 16,)
            if N % WIDTH != 0:
                s_group = gl.minimum(s_group, N // 32 - 1)
            s_offsets = s_offsets + (s_group * (8 * SCALE_COLUMNS) + s_step // 2 * 64 + index2(64, word_layout),)
    else:
        s_column = (first_wave + index0(WAVES, b_scale_layout)) * (STEP_K // 32) + index2(STEP_K // 32, b_scale_layout)
        for tile in gl.static_range(TILES):
            s_row = (pid_n * TILES + tile) * BLOCK_N + index1(BLOCK_N, b_scale_layout)
            if N % WIDTH != 0:
                s_row = gl.minimum(s_row, N - 1)
            s_offsets = s_offsets + ((s_row // 32) * (32 * SCALE_COLUMNS) + (s_row % 16) * 4 + (s_row // 16) % 2,)

    # All loads first: what a wave needs is known from the start, and the latency of the last covers the others.
    a_tiles = ()
    b_tiles = ()
    s_tiles = ()
    for step in gl.static_range(ROUNDS):
        a_tiles = a_tiles + (
            load_a_part(
                a_ptr.to(gl.pointer_type(gl.int32), bitcast=True),
                a_offset,
                a_row,
                M,
                a_pair,
                K // 2,
                step * (ROUND // 2),
                ROUND // 2,
                M % BLOCK_M != 0,
            ),
        )
        for tile in gl.static_range(TILES):
            b_tiles = b_tiles + (
                load_part(b_ptr, b_offsets[tile], b_byte, K // 2, step * (ROUND // 2), 16, ROUND // 2, CACHE),
            )
            if BY_WORD:
                scales = load_scale_words(
                    b_scale_ptr.to(gl.pointer_type(gl.int32), bitcast=True),
                    s_offsets[tile],
                    s_column,
                    s_shifts[tile],
                    K,
                    step * (ROUND // 32),
                    ROUND // 32,
                    STEP_K,
                    WAVES,
                    BLOCK_N,
                )
                s_tiles = s_tiles + (gl.convert_layout(scales, b_scale_layout),)
            else:
                column = s_column + step * (ROUND // 32)
                offset = s_offsets[tile] + (column // 8) * 256 + (column % 4) * 64 + (column // 4) % 2 * 2
                s_tiles = s_tiles + (
                    load_part(b_scale_ptr, offset, s_column, K // 32, step * (ROUND // 32), 0, ROUND // 32, ""),
                )

    if STAGED:
        staged_layout: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 16, order=[2, 1, 0])
        staged = ()
        for step in gl.static_range(ROUNDS):
            staged = staged + (
                gl.allocate_shared_memory(gl.int32, [WAVES, BLOCK_M, STEP_K // 2], staged_layout, a_tiles[step]),
            )

    accs = ()
    for tile in gl.static_range(TILES):
        accs = accs + (gl.zeros([WAVES, BLOCK_M, BLOCK_N], gl.float32, mma),)
    for step in gl.static_range(ROUNDS):
        if STAGED:
            a_tile = staged[step].load(pair_layout)
        else:
            a_tile = a_tiles[step]
        a_q, a_scale = quantize_blocks(a_tile, AMAX, MOVABLE, WAVES, BLOCK_M, STEP_K)
        a_q = gl.convert_layout(a_q, a_layout)
        a_scale = gl.convert_layout(a_scale, a_scale_layout)
        new_accs = ()
        for tile in gl.static_range(TILES):
            new_accs = new_accs + (
                mfma_scaled(
                    a_q, a_scale, "e2m1", b_tiles[step * TILES + tile], s_tiles[step * TILES + tile], "e2m1", accs[tile]
                ),
            )
        accs = new_accs

    # The waves' tiles meet in LDS, each as it lies in registers: no two lanes of an access share a bank.
    SIZE: gl.constexpr = BLOCK_M * BLOCK_N
    sum_layout: gl.constexpr = gl.BlockedLayout(
        [WAVES, min(max(SIZE // (64 * WAVES), 1), 4)], [1, 64], [1, WAVES], [1, 0]
    )
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[1, 0])
    memories = ()
    for tile in gl.static_range(TILES):
        memories = memories + (
            gl.allocate_shared_memory(
                gl.float32, [WAVES, SIZE], shared, lane_order(accs[tile], WAVES, BLOCK_M, BLOCK_N)
            ),
        )
    place = gl.arange(0, SIZE, gl.SliceLayout(0, sum_layout))
    MASK: gl.constexpr = M % BLOCK_M != 0 or N % WIDTH != 0
    if not INSIDE:
        for tile in gl.static_range(TILES):
            total = gl.sum(memories[tile].load(sum_layout), axis=0)
            if SPLIT_K == 1:
                store_tile(
                    out_ptr,
                    total.to(gl.bfloat16),
                    place,
                    pid_m * BLOCK_M,
                    (pid_n * TILES + tile) * BLOCK_N,
                    M,
                    N,
                    BLOCK_N,
                    MASK,
                )
            else:
                store_tile(
                    out_ptr + part * (M * N),
                    total,
                    place,
                    pid_m * BLOCK_M,
                    (pid_n * TILES + tile) * BLOCK_N,
                    M,
                    N,
                    BLOCK_N,
                    MASK,
                )
    else:
        where = pid_n * TILES_M + pid_m
        own = place + (where * SPLIT_K + part) * (TILES * SIZE)
        for tile in gl.static_range(TILES):
            total = gl.sum(memories[tile].load(sum_layout), axis=0)
            gl.amd.cdna4.buffer_store(total, partial_ptr, own + tile * SIZE)
        # A barrier alone waits for no store: each wave waits for its own, then one lane's atomic releases all of them
        # to the other XCDs and acquires theirs.
        gl.inline_asm_elementwise("s_waitcnt vmcnt(0)", "=v,0", [where], dtype=gl.int32, is_pure=False, pack=1)
        workgroup_barrier()
        arrived = gl.atomic_add(arrived_ptr + where, 1, sem="acq_rel", scope="gpu")
        if arrived == SPLIT_K - 1:
            for tile in gl.static_range(TILES):
                total = gl.zeros([SIZE], gl.float32, gl.SliceLayout(0, sum_layout))
                for other in gl.static_range(SPLIT_K):
                    total += gl.amd.cdna4.buffer_load(
                        partial_ptr, place + (where * SPLIT_K + other) * (TILES * SIZE) + tile * SIZE
                    )
                store_tile(
                    out_ptr,
                    total.to(gl.bfloat16),
                    place,
                    pid_m * BLOCK_M,
                    (pid_n * TILES + tile) * BLOCK_N,
                    M,
                    N,
                    BLOCK_N,
                    MASK,
                )
            gl.store(arrived_ptr + where, 0)  # for the next call


@gluon.jit
def gemm_sliced(
    a_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
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
    """C in one launch. With SPLIT_K > 1 it is fp32 ``[SPLIT_K, M, N]``, for a reduce kernel to add."""
    sliced_body(
        a_ptr,
        b_ptr,
        b_scale_ptr,
        out_ptr,
        None,
        None,
        M,
        N,
        K,
        BLOCK_M,
        BLOCK_N,
        TILES,
        STEP_K,
        WAVES,
        SPLIT_K,
        False,
        XCDS,
        STAGED,
        AMAX,
        MOVABLE,
        CACHE,
    )


@gluon.jit
def gemm_sliced_summed(
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
    """C in one launch, K split: the last of SPLIT_K workgroups adds their fp32 partial results."""
    sliced_body(
        a_ptr,
        b_ptr,
        b_scale_ptr,
        out_ptr,
        partial_ptr,
        arrived_ptr,
        M,
        N,
        K,
        BLOCK_M,
        BLOCK_N,
        TILES,
        STEP_K,
        WAVES,
        SPLIT_K,
        True,
        XCDS,
        STAGED,
        AMAX,
        MOVABLE,
        CACHE,
    )
