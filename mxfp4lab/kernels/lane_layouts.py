"""Which lane holds what: the layouts of the sliced GEMM, as bases of registers, lanes and waves.

Axes of all tiles: wave, row or column, k. A basis says how far one more bit of the register, lane or wave number moves.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def bases(start, stop, axis):
    """Unit steps ``start, 2 start, .. < stop`` along one of the three axes."""
    result = []
    while start < stop:
        result.append([start if axis == position else 0 for position in range(3)])
        start *= 2
    return result


@gluon.constexpr_function
def operand_layout(waves, rows, unit, length):
    """A lane holds ``unit`` neighbours along k of its row, four lanes make one MFMA step, further steps follow.

    ``unit`` is 16 for A in pairs, 16 for packed bytes, 1 for scales.
    """
    return gl.DistributedLinearLayout(
        reg_bases=bases(1, unit, 2) + bases(4 * unit, length, 2) + bases(16, rows, 1),
        lane_bases=bases(1, 16, 1) + bases(unit, 4 * unit, 2),
        warp_bases=bases(1, waves, 0),
        block_bases=[],
        shape=[waves, rows, length],
    )


@gluon.constexpr_function
def shared_layout(steps, waves, unit, length):
    """As ``operand_layout`` of 16 rows, a step of 128 to a wave; waves beyond the last step repeat others' work."""
    return gl.DistributedLinearLayout(
        reg_bases=bases(1, unit, 2) + bases(waves, steps, 0),
        lane_bases=bases(1, 16, 1) + bases(unit, length, 2),
        warp_bases=bases(1, min(waves, steps), 0) + [[0, 0, 0]] * (max(waves // steps, 1).bit_length() - 1),
        block_bases=[],
        shape=[steps, 16, length],
    )


@gluon.constexpr_function
def row_layout(waves, rows, length):
    """Sixteen lanes read 256 neighbouring bytes of one row of A (pairs of bf16), the next sixteen those of the next."""
    return gl.DistributedLinearLayout(
        reg_bases=bases(1, 4, 2) + bases(4, 16, 1) + bases(64, length, 2) + bases(16, rows, 1),
        lane_bases=bases(4, 64, 2) + bases(1, 4, 1),
        warp_bases=bases(1, waves, 0),
        block_bases=[],
        shape=[waves, rows, length],
    )


@gluon.constexpr_function
def scale_word_layout(waves, groups):
    """A lane holds the dword of its row and scale column, for every group of 32 rows."""
    return gl.DistributedLinearLayout(
        reg_bases=bases(1, groups, 1),
        lane_bases=bases(1, 64, 2),
        warp_bases=bases(1, waves, 0),
        block_bases=[],
        shape=[waves, groups, 64],
    )


@gluon.jit
def index0(SIZE: gl.constexpr, LAYOUT: gl.constexpr):
    """0 .. SIZE - 1 along the first of three axes."""
    index = gl.arange(0, SIZE, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))
    return gl.expand_dims(gl.expand_dims(index, 1), 2)


@gluon.jit
def index1(SIZE: gl.constexpr, LAYOUT: gl.constexpr):
    """0 .. SIZE - 1 along the second of three axes."""
    index = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))
    return gl.expand_dims(gl.expand_dims(index, 0), 2)


@gluon.jit
def index2(SIZE: gl.constexpr, LAYOUT: gl.constexpr):
    """0 .. SIZE - 1 along the last of three axes."""
    index = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))
    return gl.expand_dims(gl.expand_dims(index, 0), 1)
