"""The axes of the search as one frozen value, its identity, and its way from and to a dict."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONFIG_SCHEMA = 1

CHOICES: dict[str, tuple[str, ...]] = {
    "split_order": ("outer", "inner"),
    "convert": ("hw_f32", "hw_bf16", "sw_bits", "sw_aiter"),
    "cache_modifier": ("", ".ca", ".cg", ".cv"),
    "a_mode": ("auto", "fused", "prequant"),
    "specialize": ("auto", "runtime", "constexpr"),
    "scale_load": ("auto", "in_place", "by_tile"),
    "row_tail": ("wrap", "mask"),
    "masks": ("needed", "always"),
    "accumulate": ("in_place", "add"),
    "load_order": ("loads_first", "convert_first"),
    "assume": ("on", "off"),
    "reduce_form": ("loop", "block", "flat"),
    "amax": ("max3", "packed_max"),
    "split_sum": ("launch", "inside"),
    "a_path": ("direct", "staged"),
}
"""Axes that are words, and their values; the first is the plain choice."""

SPLITS = (1, 2, 4, 7, 8, 14, 16, 32)


@dataclass(frozen=True)
class GemmConfig:
    """One point of the search space. Sizes count logical elements (K never packed bytes).

    Attributes:
        block_m, block_n, block_k: the tile of C and the step along K of one workgroup.
        split_k: slices of K, each summed by its own workgroup; clamped to the number of K tiles.
        split_order: whether the slices of one tile are far apart in program order ("outer") or neighbours ("inner").
        num_warps: waves of 64 lanes per workgroup (32 lanes on CUDA).
        num_stages: depth of Triton's software pipeline over the K loop.
        waves_per_eu: waves per SIMD that the register allocator must leave room for; 0 leaves it to the compiler.
        matrix_instr_nonkdim: 16 for MFMA 16x16x128, 32 for 32x32x64.
        cache_modifier: of the loads of B and its scales.
        group_m: row tiles that are visited before the next column tile.
        xcd_remap: number of XCDs over which programs are regrouped; 0 leaves the hardware's round robin.
        convert: bf16 to MXFP4, see ``kernels.convert``.
        quant_block_m, quant_block_k, quant_num_warps: the quantize kernel, where the variant has one.
        reduce_block_m, reduce_block_n, reduce_num_warps, reduce_form: the reduce kernel, where K is split.
        a_mode: where A is quantized, for variants that leave it open ("auto": the variant's own rule).
        specialize: M, N, K as run-time arguments or compile-time constants ("auto": as the variant does it).
        scale_load: shuffled scales of B byte by byte in place, or in whole pieces un-permuted in registers.
        row_tail: rows of B past N wrapped onto rows that exist, or masked.
        masks: masks only where the shape has a tail ("needed"), or on every load and store.
        accumulate: acc as an operand of the dot, or added behind it.
        load_order: B's loads issued before A's conversion, or behind it (sliced: or wherever the compiler likes).
        assume: tell the compiler the signs of sizes and program numbers.
        offset_bits: width of addresses' offsets; 0 takes 32 where the buffers allow it.
        amax: how a lane finds the largest magnitude of its block, see ``kernels.block`` (sliced only).
        tiles_n: neighbouring tiles of C per workgroup, block_n columns each (sliced only).
        a_path: A read by the lanes that multiply it, or row by row and passed through LDS (sliced only).
        split_sum: parts of a split K summed by a second launch, or by the last workgroup to arrive (sliced only).
    """

    block_m: int = 16
    block_n: int = 64
    block_k: int = 256
    split_k: int = 1
    split_order: str = "outer"
    num_warps: int = 4
    num_stages: int = 2
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 16
    cache_modifier: str = ""
    group_m: int = 1
    xcd_remap: int = 0
    convert: str = "hw_f32"
    quant_block_m: int = 16
    quant_block_k: int = 256
    quant_num_warps: int = 4
    reduce_block_m: int = 16
    reduce_block_n: int = 64
    reduce_num_warps: int = 4
    reduce_form: str = "loop"
    a_mode: str = "auto"
    specialize: str = "auto"
    scale_load: str = "auto"
    row_tail: str = "wrap"
    masks: str = "needed"
    accumulate: str = "in_place"
    load_order: str = "loads_first"
    assume: str = "on"
    offset_bits: int = 0
    amax: str = "max3"
    tiles_n: int = 1
    split_sum: str = "launch"
    a_path: str = "direct"

    @property
    def config_id(self) -> str:
        """12 hex digits of what differs from the defaults: a new axis leaves the ids of old configs alone."""
        changed = {name: value for name, value in self.to_dict().items() if value != DEFAULTS[name]}
        text = json.dumps({"schema": CONFIG_SCHEMA, **changed}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """All fields, in the order of their definition."""
        return {name: getattr(self, name) for name in DEFAULTS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GemmConfig:
        """A config from some of its fields; the others keep their defaults.

        Raises:
            ValueError: not a mapping, an unknown field, or a value of the wrong type.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"config: {values!r} is not a mapping of field names to values")
        unknown = sorted(set(values) - set(DEFAULTS))
        if unknown:
            raise ValueError(f"config: unknown field {', '.join(map(repr, unknown))}; known: {', '.join(DEFAULTS)}")
        for name, value in values.items():
            wanted = type(DEFAULTS[name])
            if type(value) is not wanted:
                raise ValueError(f"config: {name}={value!r} must be {wanted.__name__}, not {type(value).__name__}")
        return cls(**values)

    def changes(self) -> dict[str, Any]:
        """Only the fields that differ from the defaults."""
        return {name: value for name, value in self.to_dict().items() if value != DEFAULTS[name]}


DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(GemmConfig)}
