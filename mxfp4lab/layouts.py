"""The two byte shuffles of aiter's FP4 GEMM: as a view and permute, as an inverse, and as a closed-form offset.

e8m0 shuffle (aiter `fp4_utils.e8m0_shuffle`): block scales of a [rows, K / 32] matrix, padded to multiples of 256
rows and 8 columns, so that one dword holds what one lane of a 32-row MFMA tile needs for 256 elements of K.

Weight shuffle (aiter `shuffle_weight`, layout (16, 16)): packed FP4 bytes [N, K / 2] in tiles of 16 rows by 16
bytes, so that 16 lanes read 16 consecutive 16-byte pieces.

The three forms of each map are equal; the closed forms take Python integers, numpy arrays and torch tensors alike,
and every function refuses what it cannot map with a `ValueError` that names it.
"""

from __future__ import annotations

import numpy as np
import torch

SCALE_ROW_PAD, SCALE_COL_PAD = 256, 8
SCALE_TILE_ROWS = 32
WEIGHT_TILE_ROWS = 16
WEIGHT_TILE_BYTES = 32  # two 16-byte pieces: 64 elements of K


def padded_scale_shape(rows: int, cols: int) -> tuple[int, int]:
    """`(rows, cols)` rounded up to multiples of 256 and 8: the shape of the shuffled scales."""
    for name, value in (("rows", rows), ("cols", cols)):
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    return -(-rows // SCALE_ROW_PAD) * SCALE_ROW_PAD, -(-cols // SCALE_COL_PAD) * SCALE_COL_PAD


def e8m0_offset(row, col, padded_cols: int):
    """Flat byte offset of scale (row, col) after the shuffle.

    `(r/32)*32*n8 + (c/8)*256 + (c%4)*64 + (r%16)*4 + ((c/4)%2)*2 + (r/16)%2` with n8 = `padded_cols`.

    Args:
        row, col: integers, or integer arrays or tensors that broadcast.
        padded_cols: columns after padding, a multiple of 8.

    Returns:
        The offset(s), of the type that `row` and `col` broadcast to.
    """
    _check(padded_cols=padded_cols, row=row, col=col)
    return (
        (row // 32) * (32 * padded_cols)
        + (col // 8) * 256
        + (col % 4) * 64
        + (row % 16) * 4
        + ((col // 4) % 2) * 2
        + (row // 16) % 2
    )


def e8m0_position(offset, padded_cols: int):
    """The inverse of `e8m0_offset`: which (row, col) sits at a flat byte offset."""
    _check(padded_cols=padded_cols, offset=offset)
    group, rest = offset // (32 * padded_cols), offset % (32 * padded_cols)
    row = group * 32 + (rest % 2) * 16 + (rest // 4) % 16
    col = (rest // 256) * 8 + ((rest // 2) % 2) * 4 + (rest // 64) % 4
    return row, col


def e8m0_shuffle(scale: torch.Tensor, pad_value: int = 0) -> torch.Tensor:
    """Pad to multiples of (256, 8) and shuffle: `view(m/32, 2, 16, n/8, 2, 4).permute(0, 3, 5, 2, 4, 1)`.

    aiter leaves its padding uninitialised. Here it is defined: byte 0 by default, which decodes to 2^-127, so that
    a padded column multiplies its (zero) elements by the smallest scale there is and contributes nothing.

    Args:
        scale: [rows, K / 32] uint8.
        pad_value: the byte written to padding, 0..255.

    Returns:
        [ceil256(rows), ceil8(K / 32)] uint8, contiguous; flat position `e8m0_offset(r, c, ceil8(K / 32))` holds
        scale (r, c).
    """
    _check_bytes("scale", scale)
    if not 0 <= pad_value <= 255:
        raise ValueError(f"pad_value={pad_value} must be a byte, 0..255")
    rows, cols = scale.shape
    m, n = padded_scale_shape(rows, cols)
    padded = torch.full((m, n), pad_value, dtype=torch.uint8, device=scale.device)
    padded[:rows, :cols] = scale
    return padded.view(m // 32, 2, 16, n // 8, 2, 4).permute(0, 3, 5, 2, 4, 1).reshape(m, n)


def e8m0_unshuffle(shuffled: torch.Tensor, rows: int | None = None, cols: int | None = None) -> torch.Tensor:
    """Undo `e8m0_shuffle` of a [multiple of 32, multiple of 8] tensor; `rows`, `cols` say how much to keep (all)."""
    _check_bytes("shuffled", shuffled)
    m, n = shuffled.shape
    if m % SCALE_TILE_ROWS or n % SCALE_COL_PAD or not m or not n:
        raise ValueError(f"shuffled has shape {(m, n)}; it must be multiples of ({SCALE_TILE_ROWS}, {SCALE_COL_PAD})")
    rows, cols = m if rows is None else rows, n if cols is None else cols
    if not 0 < rows <= m or not 0 < cols <= n:
        raise ValueError(f"rows={rows}, cols={cols} must lie within the padded shape {(m, n)}")
    plain = shuffled.reshape(m // 32, n // 8, 4, 16, 2, 2).permute(0, 5, 3, 1, 4, 2).reshape(m, n)
    return plain[:rows, :cols].contiguous()


def weight_offset(row, byte_col, k_bytes: int):
    """Flat byte offset of packed byte (row, byte_col) of B after the (16, 16) shuffle.

    `(r/16)*16*kb + (c/16)*256 + (r%16)*16 + c%16` with kb = `k_bytes` = K / 2, a multiple of 32.
    """
    _check(k_bytes=k_bytes, row=row, byte_col=byte_col)
    return (row // 16) * (16 * k_bytes) + (byte_col // 16) * 256 + (row % 16) * 16 + byte_col % 16


def weight_position(offset, k_bytes: int):
    """The inverse of `weight_offset`: which (row, byte_col) sits at a flat byte offset."""
    _check(k_bytes=k_bytes, offset=offset)
    group, rest = offset // (16 * k_bytes), offset % (16 * k_bytes)
    return group * 16 + (rest // 16) % 16, (rest // 256) * 16 + rest % 16


def shuffle_weight(b_q: torch.Tensor) -> torch.Tensor:
    """The (16, 16) tile shuffle of packed FP4 weights: `view(N/16, 16, K/64, 2, 16).permute(0, 2, 3, 1, 4)`.

    Args:
        b_q: [N, K // 2] uint8, N a multiple of 16, K of 64.

    Returns:
        [N, K // 2] uint8, contiguous.
    """
    n, k_bytes = _weight_shape("b_q", b_q)
    return b_q.reshape(n // 16, 16, k_bytes // 32, 2, 16).permute(0, 2, 3, 1, 4).reshape(n, k_bytes)


def unshuffle_weight(b_shuffle: torch.Tensor) -> torch.Tensor:
    """Undo `shuffle_weight`: [N, K // 2] uint8 to [N, K // 2] uint8."""
    n, k_bytes = _weight_shape("b_shuffle", b_shuffle)
    return b_shuffle.reshape(n // 16, k_bytes // 32, 2, 16, 16).permute(0, 3, 1, 2, 4).reshape(n, k_bytes)


def _weight_shape(name: str, tensor: torch.Tensor) -> tuple[int, int]:
    _check_bytes(name, tensor)
    n, k_bytes = tensor.shape
    if n < WEIGHT_TILE_ROWS or n % WEIGHT_TILE_ROWS:
        raise ValueError(f"{name} has {n} rows; N must be a positive multiple of {WEIGHT_TILE_ROWS}")
    _check(k_bytes=k_bytes)
    return n, k_bytes


def _check(**values: object) -> None:
    """The size by its multiple; indices: integers from 0, or arrays or tensors of integers."""
    for name, value in values.items():
        if name in ("padded_cols", "k_bytes"):
            multiple = SCALE_COL_PAD if name == "padded_cols" else WEIGHT_TILE_BYTES
            what = "padded_cols" if name == "padded_cols" else "k_bytes (K / 2)"
            if value < multiple or value % multiple:  # type: ignore[operator]
                why = "; the row-group stride counts padded columns, not K / 32" if name == "padded_cols" else ""
                raise ValueError(f"{what}={value} must be a positive multiple of {multiple}{why}")
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            if value < 0:
                raise ValueError(f"{name}={value} must be at least 0")
        elif isinstance(value, np.ndarray):
            if value.dtype.kind not in "iu":
                raise ValueError(f"{name} is an array of {value.dtype}; it must hold integers")
        elif not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
            raise ValueError(f"{name}={value!r} must be an integer, or an array or a tensor of integers")


def _check_bytes(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype != torch.uint8 or tensor.dim() != 2:
        raise ValueError(f"{name} is {tensor.dtype} with shape {tuple(tensor.shape)}; it must be 2-d uint8")
