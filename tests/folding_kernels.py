"""Kernels whose folding `test_export` looks at: every construct that the exporter has to follow."""

import triton
import triton.language as tl

# Why seven: nobody knows.
SEVEN = tl.constexpr(7)
UNUSED = tl.constexpr(8)


@triton.jit
def same(x, BITS: tl.constexpr):
    """The index in the width that addresses need."""
    if BITS == 64:
        return x.to(tl.int64)
    else:
        return x


@triton.jit
def shifted(x, MODE: tl.constexpr, TWICE: tl.constexpr):
    """x plus seven, or x."""
    if MODE == "plus":
        # Seven is added.
        y = x + SEVEN
    elif MODE == "minus":
        y = x - UNUSED
    else:
        y = x
    return y * 2 if TWICE else y


@triton.jit
def body(
    x_ptr,
    scale_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    MODE: tl.constexpr,
    MASK: tl.constexpr,
    SCALED: tl.constexpr,
    BITS: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """One program: BLOCK elements."""
    place = same(tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), BITS)
    wide = place
    if SPLIT == 1:
        part = 0
    else:
        part = tl.program_id(1)
    # The mask is for the last program.
    if MASK and not SCALED:
        x = tl.load(x_ptr + wide, mask=place < n, other=0.0)
    elif MASK:
        x = tl.load(x_ptr + wide, mask=place < n, other=1.0)
    else:
        x = tl.load(x_ptr + wide)
    if SCALED:
        x = x * tl.load(scale_ptr)
    x = shifted(x, MODE, SPLIT > 1)
    unread = x + part * 0  # noqa: F841
    tl.store(out_ptr + wide, x, mask=place < n)


@triton.jit
def entry(
    x_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    MODE: tl.constexpr,
    MASK: tl.constexpr,
    BITS: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Without a scale."""
    body(x_ptr, None, out_ptr, n, BLOCK, MODE, MASK, False, BITS, SPLIT)
