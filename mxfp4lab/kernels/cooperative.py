"""GEMM whose workgroups quantize A together: once on every XCD, within the launch that multiplies.

A workgroup that quantizes for itself reads its rows of A as bf16, 2 bytes an element where B has 17/32, and so do all
the others. Here the workgroups of an XCD, which share an L2, each quantize one part of the rows that the XCD
multiplies, put it where that L2 keeps it, raise a flag, and read the rest as packed e2m1 when its flags are up. B and
its scales are on their way meanwhile.

Layouts and the division of K among the waves are those of ``sliced``.
"""

# ruff: noqa: RUF005 (the JIT adds tuples, it does not unpack them)

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .waves import (
    bases,
    index,
    linear,
    load_packed,
    load_scale_words,
    mfma_layout,
    mfma_scaled,
    quantize_blocks,
    scales_of_words,
    stage_for_sum,
    store_tile,
    sum_layout,
    workgroup_barrier,
)

XCDS = gl.constexpr(8)  # each with an L2 of its own
PER_XCD = gl.constexpr(32)  # compute units, a workgroup each
PATIENCE = gl.constexpr(200)  # looks at the flags, a round trip to L2 each, before a workgroup helps itself


@gluon.constexpr_function
def shared_layout(steps, waves, unit, length):
    """As ``operand_layout`` of 16 rows, a step of 128 to a wave; waves beyond the last step repeat others' work."""
    spare = [[0, 0, 0]] * (max(waves // steps, 1).bit_length() - 1)
    return linear(
        [steps, 16, length],
        bases(1, unit, 2) + bases(waves, steps, 0),
        bases(1, 16, 1) + bases(unit, length, 2),
        bases(1, min(waves, steps), 0) + spare,
    )


@gluon.jit
def load_part_of_a(a_ptr, part, first_row, PARTS, M, K, PART_K, WAVES):
    """16 rows x PART_K of A as ``[steps of 128, 16, 64]`` int32, two bf16 each, a block of 32 to a lane.

    A part past the last is not read, nor are rows past the last; they are zero.
    """
    STEPS: gl.constexpr = PART_K // 128
    layout: gl.constexpr = shared_layout(STEPS, WAVES, 16, 64)
    row = first_row + part // (K // PART_K) * 16 + index(1, 16, layout)
    step = part % (K // PART_K) * STEPS + index(0, STEPS, layout)
    offset = row * (K // 2) + step * 64 + index(2, 64, layout)
    pairs = a_ptr.to(gl.pointer_type(gl.int32), bitcast=True)
    ROWS: gl.constexpr = PARTS // (K // PART_K) * 16  # of a row tile, the last of which may end past M
    if PARTS < PER_XCD or M % ROWS != 0:
        return gl.amd.cdna4.buffer_load(pairs, offset, mask=(row < M) & (part < PARTS))
    else:
        return gl.amd.cdna4.buffer_load(pairs, offset)


@gluon.jit
def quantize_part(pairs, a_q_ptr, a_scale_ptr, part, K, PART_K, WAVES, AMAX):
    """A part to its place in a row tile's e2m1, (16, 16) tile shuffle, and scales, e8m0 shuffle."""
    STEPS: gl.constexpr = PART_K // 128
    byte_layout: gl.constexpr = shared_layout(STEPS, WAVES, 16, 64)
    scale_layout: gl.constexpr = shared_layout(STEPS, WAVES, 1, 4)
    row = part // (K // PART_K) * 16
    step = part % (K // PART_K) * STEPS
    a_q, a_scale = quantize_blocks(pairs, AMAX, False, STEPS, 16, 128)

    byte = (step + index(0, STEPS, byte_layout)) * 64 + index(2, 64, byte_layout)
    offset = row * (K // 2) + (byte // 16) * 256 + index(1, 16, byte_layout) * 16 + byte % 16
    gl.amd.cdna4.buffer_store(gl.convert_layout(a_q, byte_layout), a_q_ptr, offset)
    column = (step + index(0, STEPS, scale_layout)) * 4 + index(2, 4, scale_layout)
    offset = row // 32 * K + row // 16 % 2 + index(1, 16, scale_layout) * 4
    offset += (column // 8) * 256 + (column % 4) * 64 + (column // 4) % 2 * 2
    gl.amd.cdna4.buffer_store(gl.convert_layout(a_scale, scale_layout), a_scale_ptr, offset)


@gluon.jit
def number_of_call(begun_ptr):
    """Which call of 256 workgroups this is, from 1: the same for all that have not added themselves yet.

    A shift, since it rounds down on both sides of zero: ``begun_ptr`` passes 2^31 after 8 million calls, a minute of
    them, and where a division rounds up, a call would share its number with the one before. Numbers return after 2^24
    calls; a flag that nobody has written since would count then, where its writer has moved to another XCD that once.
    """
    return (gl.load(begun_ptr) >> 8) + 1


@gluon.jit
def stores_are_done(value):
    """Wait until every wave of the workgroup has its stores acknowledged; ``value`` unchanged, for order's sake."""
    value = gl.inline_asm_elementwise(
        "s_waitcnt vmcnt(0)", "=v,0,~{memory}", [value], dtype=gl.int32, is_pure=False, pack=1
    )
    workgroup_barrier()
    return value


@gluon.jit
def flags_missing(flags_ptr, call, PARTS: gl.constexpr, WAVES: gl.constexpr):
    """How often one of PARTS flags did not hold ``call`` when one of the waves looked: the same number for all waves.

    Every wave looks for itself, past the vector cache (sc0 nt), which would show what it has seen once for ever.
    """
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [WAVES], [0])
    flag = gl.minimum(gl.arange(0, 64 * WAVES, layout) % 64, PARTS - 1)
    seen = gl.inline_asm_elementwise(
        "global_load_dword $0, $1, off sc0 nt\ns_waitcnt vmcnt(0)",
        "=v,v,~{memory}",
        [(flags_ptr + flag).to(gl.int64, bitcast=True)],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )
    return gl.sum((seen != call).to(gl.int32), axis=0)


@gluon.jit
def behind_all_loads(word):
    """``word`` unchanged; what uses it is scheduled behind every load that stands before this."""
    return gl.inline_asm_elementwise("", "=v,0,~{memory}", [word], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def gemm_cooperative(
    a_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    a_q_ptr,
    a_scale_ptr,
    flags_ptr,
    begun_ptr,
    M: gl.constexpr,
    N: gl.constexpr,
    K: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    TILES: gl.constexpr,
    STEP_K: gl.constexpr,
    PART_K: gl.constexpr,
    WAVES: gl.constexpr,
    AMAX: gl.constexpr,
    CACHE: gl.constexpr,
):
    """C in one launch of 256 workgroups.

    An XCD multiplies one row tile, of which there are at most 8, and a range of column tiles, TILES x BLOCK_N wide.
    The workgroups of an XCD, which share an L2, each quantize one part of its rows, put it where that L2 keeps it,
    raise a flag, and read the rest as packed e2m1 when its flags are up; those beyond the last column tile only help
    to quantize. What makes it safe:

    - Nobody depends on anybody: a workgroup that has looked at its flags PATIENCE times quantizes all parts itself. So
      a workgroup that never runs, or runs on another XCD than expected, costs time and nothing else.
    - Parts and flags are kept per XCD by the number that the hardware gives (HW_REG_XCC_ID), not by the program's
      number, and per row tile: whoever writes a part writes the same bytes.
    - A flag is up if it holds the number of this call. ``begun_ptr`` counts workgroups over all calls, 256 a call, so
      that a workgroup, which adds itself after it has read, finds ``256 x calls so far`` and up to 255 more.

    The order that the flags need is that of one L2: a wave waits for its stores to be acknowledged there (vmcnt), the
    barrier collects the waves, one lane then writes the flag. Flags are read past the vector cache; packed A may pass
    through it, for no cache line of a row tile was read before its flags were up. Two launches that run at the same
    time need workspaces of their own.

    ``a_q_ptr`` ``[8, R, K // 2]`` u8 and ``a_scale_ptr`` ``[8, R, K // 32]`` u8, R: M up to whole 256s: a copy of A per
    XCD, row tile by row tile, shuffled as B is; a row tile has 32 rows of scales at least.
    ``flags_ptr`` ``[8, 8, 32]`` int32: per XCD, row tile and part; ``begun_ptr`` int32. Both are zero before the first
    call.
    """
    WIDTH: gl.constexpr = TILES * BLOCK_N
    ROUND: gl.constexpr = WAVES * STEP_K
    ROUNDS: gl.constexpr = (K + ROUND - 1) // ROUND
    TILES_M: gl.constexpr = (M + BLOCK_M - 1) // BLOCK_M
    TILES_N: gl.constexpr = (N + WIDTH - 1) // WIDTH
    TILES_AN_XCD: gl.constexpr = (TILES_N + XCDS // TILES_M - 1) // (XCDS // TILES_M)
    PARTS: gl.constexpr = BLOCK_M // 16 * (K // PART_K)
    ROWS: gl.constexpr = (M + 255) // 256 * 256
    LIMIT: gl.constexpr = N if N % WIDTH != 0 else 0
    mma: gl.constexpr = mfma_layout(WAVES)
    a_layout: gl.constexpr = gl.DotOperandLayout(0, mma, 16)
    b_layout: gl.constexpr = gl.DotOperandLayout(1, mma, 16)

    pid = gl.program_id(0)
    rank = pid // XCDS
    pid_m = pid % XCDS % TILES_M
    pid_n = pid % XCDS // TILES_M * TILES_AN_XCD + rank
    xcc = gl.inline_asm_elementwise(
        "s_getreg_b32 $0, hwreg(HW_REG_XCC_ID)", "=s,s", [pid], dtype=gl.int32, is_pure=True, pack=1
    )
    xcc = xcc & (XCDS - 1)
    a_q_ptr += (xcc * ROWS + pid_m * BLOCK_M) * (K // 2)
    a_scale_ptr += (xcc * ROWS + pid_m * max(BLOCK_M, 32)) * (K // 32)
    flags_ptr += (xcc * 8 + pid_m) * PER_XCD

    # The own part first: others wait for it.
    pairs = load_part_of_a(a_ptr, rank, pid_m * BLOCK_M, PARTS, M, K, PART_K, WAVES)
    if rank >= TILES_AN_XCD or pid_n >= TILES_N:
        if rank < PARTS:
            quantize_part(pairs, a_q_ptr, a_scale_ptr, rank, K, PART_K, WAVES, AMAX)
            call = number_of_call(begun_ptr)
            gl.store(flags_ptr + rank, stores_are_done(call))
        gl.atomic_add(begun_ptr, 1, sem="relaxed", scope="gpu")
    else:
        # B now: it takes longest, and arrives while A is quantized.
        b_tiles = ()
        b_scales = ()
        for step in gl.static_range(ROUNDS):
            for i in gl.static_range(TILES):
                tile = pid_n * TILES + i
                b = load_packed(b_ptr, tile, 0, step, LIMIT, K, BLOCK_N, STEP_K, WAVES, ROUND, b_layout, 1, CACHE)
                b_tiles = b_tiles + (b,)
                word = load_scale_words(b_scale_ptr, tile, 0, step, LIMIT, K, BLOCK_N, STEP_K, WAVES, ROUND)
                b_scales = b_scales + (scales_of_words(word, tile, 0, BLOCK_N, STEP_K, WAVES),)

        call = number_of_call(begun_ptr)
        if rank < PARTS:
            quantize_part(pairs, a_q_ptr, a_scale_ptr, rank, K, PART_K, WAVES, AMAX)
            gl.store(flags_ptr + rank, stores_are_done(call))
        looks = 0
        missing = flags_missing(flags_ptr, call, PARTS, WAVES)
        while (missing > 0) & (looks < PATIENCE):
            missing = flags_missing(flags_ptr, call, PARTS, WAVES)
            looks += 1
        if missing > 0:
            for part in range(PARTS):
                pairs = load_part_of_a(a_ptr, part, pid_m * BLOCK_M, PARTS, M, K, PART_K, WAVES)
                quantize_part(pairs, a_q_ptr, a_scale_ptr, part, K, PART_K, WAVES, AMAX)
            missing = stores_are_done(missing)
        gl.atomic_add(begun_ptr, 1, sem="relaxed", scope="gpu")

        a_tiles = ()
        a_words = ()
        for step in gl.static_range(ROUNDS):
            a = load_packed(a_q_ptr, 0, 0, step, 0, K, BLOCK_M, STEP_K, WAVES, ROUND, a_layout, 2, "")
            a_tiles = a_tiles + (a,)
            a_words = a_words + (load_scale_words(a_scale_ptr, 0, 0, step, 0, K, BLOCK_M, STEP_K, WAVES, ROUND),)
        a_scales = ()
        for step in gl.static_range(ROUNDS):
            word = behind_all_loads(a_words[step])
            a_scales = a_scales + (scales_of_words(word, 0, 0, BLOCK_M, STEP_K, WAVES),)

        memories = ()
        for i in gl.static_range(TILES):
            total = gl.zeros([WAVES, BLOCK_M, BLOCK_N], gl.float32, mma)
            for step in gl.static_range(ROUNDS):
                b, b_scale = b_tiles[step * TILES + i], b_scales[step * TILES + i]
                total = mfma_scaled(a_tiles[step], a_scales[step], "e2m1", b, b_scale, "e2m1", total)
            memories = memories + (stage_for_sum(total, WAVES, BLOCK_M, BLOCK_N),)
        layout: gl.constexpr = sum_layout(WAVES, BLOCK_M * BLOCK_N)
        place = gl.arange(0, BLOCK_M * BLOCK_N, gl.SliceLayout(0, layout))
        MASK: gl.constexpr = M % BLOCK_M != 0 or N % WIDTH != 0
        for i in gl.static_range(TILES):
            total = gl.sum(memories[i].load(layout), axis=0)
            store_tile(out_ptr, total, place, pid_m, pid_n * TILES + i, M, N, BLOCK_M, BLOCK_N, MASK)
