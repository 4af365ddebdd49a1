"""Which lane of a scaled MFMA consumes which byte: why the two shuffles are what they are.

CDNA4 ISA, `v_mfma_scale_f32_16x16x128_f8f6f4` and `_32x32x64_`, FP4 operands: a wave of 64 lanes holds one operand
tile, 32 consecutive elements of K (16 bytes, one scale block) per lane.

    16x16x128   lane = 16 * (block of K) + row      16 rows, 4 blocks
    32x32x64    lane = 32 * (block of K) + row      32 rows, 2 blocks

A lane reads its block's scale from its own lane of a VGPR; op_sel and op_sel_hi choose one of that register's four
bytes, the same byte for all 64 lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxfp4lab.layouts import e8m0_offset, weight_offset

LANES = 64
TILE_ROWS, TILE_BLOCKS = 32, 8  # the 256 bytes of scales that one dword per lane holds


@dataclass(frozen=True)
class MfmaForm:
    """One shape of the scaled MFMA: rows of an operand tile and scale blocks (of 32 elements) of K."""

    name: str
    rows: int
    blocks: int


MFMA_FORMS = {
    "16x16x128": MfmaForm("16x16x128", 16, 4),
    "32x32x64": MfmaForm("32x32x64", 32, 2),
}


@dataclass(frozen=True)
class ScaleUse:
    """The way of one scale byte of a 32-row, 8-block tile.

    Attributes:
        row, block: of the tile.
        offset: byte offset within the tile's 256 shuffled bytes.
        holder, byte: the lane that a dword-per-lane load puts it into, and which byte of that dword.
        lane: the lane of the MFMA that needs it.
        row_tile, k_step: which MFMA of the tile: there are (32 / rows) x (8 / blocks) of them.
    """

    row: int
    block: int
    offset: int
    holder: int
    byte: int
    lane: int
    row_tile: int
    k_step: int

    @property
    def in_place(self) -> bool:
        """Whether the byte is loaded into the very lane that consumes it."""
        return self.holder == self.lane


def mfma_form(name: str) -> MfmaForm:
    """The form of that name.

    Raises:
        ValueError: naming the known forms.
    """
    if name not in MFMA_FORMS:
        raise ValueError(f"form={name!r} must be one of {', '.join(MFMA_FORMS)}")
    return MFMA_FORMS[name]


def scale_uses(form: str) -> tuple[ScaleUse, ...]:
    """All 256 scale bytes of one shuffled tile under an MFMA form, in order of their offset.

    Raises:
        ValueError: on an unknown form.
    """
    chosen = mfma_form(form)
    uses = []
    for row in range(TILE_ROWS):
        for block in range(TILE_BLOCKS):
            offset = e8m0_offset(row, block, TILE_BLOCKS)
            lane = chosen.rows * (block % chosen.blocks) + row % chosen.rows
            uses.append(
                ScaleUse(row, block, offset, offset // 4, offset % 4, lane, row // chosen.rows, block // chosen.blocks)
            )
    return tuple(sorted(uses, key=lambda use: use.offset))


def bytes_per_mfma(form: str) -> dict[tuple[int, int], tuple[int, ...]]:
    """For each MFMA (row_tile, k_step) of a tile: which bytes of the holders' dwords it draws on.

    One byte means that a single op_sel serves all lanes; several mean that lanes must first be rearranged.

    Raises:
        ValueError: on an unknown form.
    """
    drawn: dict[tuple[int, int], set[int]] = {}
    for use in scale_uses(form):
        drawn.setdefault((use.row_tile, use.k_step), set()).add(use.byte)
    return {key: tuple(sorted(found)) for key, found in sorted(drawn.items())}


def weight_load_offset(lane: int, k_bytes: int, row_tile: int = 0, k_step: int = 0) -> int:
    """First byte of the 16 that a lane loads of shuffled B for one 16x16x128 MFMA.

    Lane l wants row l % 16 and bytes 16 * (l // 16) .. + 15 of the 64 that 128 elements take. In the shuffle these are
    1024 consecutive bytes over the wave, 16 per lane.

    Args:
        lane: 0..63.
        k_bytes: bytes of a row, K / 2.
        row_tile, k_step: which 16 rows and which 128 elements of K.
    """
    return weight_offset(16 * row_tile + lane % 16, 64 * k_step + 16 * (lane // 16), k_bytes)
