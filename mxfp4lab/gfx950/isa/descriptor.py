"""What the hardware is told about a kernel before its first instruction: registers, arguments, LDS, scratch.

Read from `.amdhsa_` directives and the metadata of ISA text, or from a code object's kernel descriptor; both give the
same form. Source: LLVM, User Guide for the AMDGPU Backend, "Kernel Descriptor" and "Initial Kernel Execution State".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from mxfp4lab.gfx950.isa.instruction import IsaError

# User SGPRs in the order in which the hardware assigns them, and the registers of each.
USER_SGPRS: dict[str, int] = {
    "private_segment_buffer": 4, "dispatch_ptr": 2, "queue_ptr": 2, "kernarg_segment_ptr": 2, "dispatch_id": 2,
    "flat_scratch_init": 2, "private_segment_size": 1,
}  # fmt: skip
MAX_SEGMENT_BYTES = 1 << 20  # of arguments; the hardware's kernels have some hundreds


@dataclass(frozen=True)
class KernelArg:
    """One slot of the kernel-argument segment: byte `offset`, `size` in bytes, the metadata's `value_kind`."""

    name: str
    offset: int
    size: int
    kind: str

    @property
    def hidden(self) -> bool:
        """Whether the launcher, not the caller, fills this slot."""
        return self.kind.startswith("hidden_")


@dataclass(frozen=True)
class KernelDescriptor:
    """Launch-relevant facts of one kernel.

    Attributes:
        name: the kernel's symbol.
        kernarg_bytes: size of the kernel-argument segment.
        args: its slots, hidden ones included.
        user_sgprs: SGPRs set from the descriptor before the workgroup ids.
        user_sgpr_layout: (name, first sgpr, count) of each user SGPR group; "kernarg_preload" for preloaded arguments.
        preload_offset: first preloaded dword of the argument segment.
        preload_length: preloaded dwords.
        workgroup_ids: whether the x, y, z workgroup ids follow the user SGPRs.
        workitem_ids: 0, 1 or 2: v0 packs x, x|y<<10 or x|y<<10|z<<20.
        lds_bytes: LDS in bytes (Triton allocates it at launch: the compiler's metadata has the real figure).
        scratch_bytes: private segment in bytes per lane.
        vgprs, agprs: architectural and accumulation registers per lane.
        accum_offset: number of the first accumulation register in the unified file.
        sgprs: scalar registers, vcc and friends not counted.
        spilled_vgprs, spilled_sgprs: spill counts the compiler reports.
        block_threads: work-items per workgroup.
        mode: float mode bits (round and denormal fields), ieee and dx10_clamp as the directives give them.
    """

    name: str
    kernarg_bytes: int = 0
    args: tuple[KernelArg, ...] = ()
    user_sgprs: int = 0
    user_sgpr_layout: tuple[tuple[str, int, int], ...] = ()
    preload_offset: int = 0
    preload_length: int = 0
    workgroup_ids: tuple[bool, bool, bool] = (True, False, False)
    workitem_ids: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0
    vgprs: int = 0
    agprs: int = 0
    accum_offset: int = 0
    sgprs: int = 0
    spilled_vgprs: int = 0
    spilled_sgprs: int = 0
    block_threads: int = 0
    mode: dict[str, int] = field(default_factory=dict, compare=False)


def build_descriptor(name: str, fields: dict[str, int], metadata: dict[str, int], args: tuple[KernelArg, ...],
                     lds_bytes: int | None = None) -> KernelDescriptor:  # fmt: skip
    """Make a descriptor from the fields of an `.amdhsa_kernel` block and the kernel's metadata.

    Args:
        name: the kernel's symbol.
        fields: directive name without `.amdhsa_` -> value; a code object's reader fills the same names.
        metadata: the metadata map's integer entries, names without the leading dot.
        args: slots of the argument segment.
        lds_bytes: overrides the fixed group segment size (the size that a launch allocates).
    """
    preload = fields.get("user_sgpr_kernarg_preload_length", 0)
    groups = [(key, count) for key, count in USER_SGPRS.items() if fields.get(f"user_sgpr_{key}", 0)]
    groups += [("kernarg_preload", preload)] if preload else []
    layout, taken = [], 0
    for key, count in groups:
        layout.append((key, taken, count))
        taken += count
    vgprs, accum = fields.get("next_free_vgpr", 0), fields.get("accum_offset", 0)
    agprs = metadata.get("agpr_count", 0)
    return KernelDescriptor(
        name=name,
        kernarg_bytes=fields.get("kernarg_size", metadata.get("kernarg_segment_size", 0)),
        args=args,
        user_sgprs=max(fields.get("user_sgpr_count", 0), taken),
        user_sgpr_layout=tuple(layout),
        preload_offset=fields.get("user_sgpr_kernarg_preload_offset", 0),
        preload_length=preload,
        workgroup_ids=tuple(bool(fields.get(f"system_sgpr_workgroup_id_{axis}", axis == "x")) for axis in "xyz"),
        workitem_ids=fields.get("system_vgpr_workitem_id", 0),
        lds_bytes=fields.get("group_segment_fixed_size", 0) if lds_bytes is None else lds_bytes,
        scratch_bytes=fields.get("private_segment_fixed_size", 0),
        vgprs=min(vgprs, accum) if agprs and accum else vgprs,
        agprs=agprs,
        accum_offset=accum,
        sgprs=fields.get("next_free_sgpr", metadata.get("sgpr_count", 0)),
        spilled_vgprs=metadata.get("vgpr_spill_count", 0),
        spilled_sgprs=metadata.get("sgpr_spill_count", 0),
        block_threads=metadata.get("max_flat_workgroup_size", 0),
        mode={key: fields[key] for key in sorted(fields) if key.startswith(("float_", "dx10_", "ieee_", "fp16_"))},
    )


def kernel_entries(metadata: Any) -> dict[str, Mapping[str, Any]]:
    """The maps of a module's kernels by name, out of its metadata map.

    Raises:
        IsaError: it has another form.
    """
    entries = metadata.get("amdhsa.kernels") if isinstance(metadata, Mapping) else None
    entries = [] if entries is None else entries
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise IsaError("metadata: amdhsa.kernels is no list of maps")
    return {str(entry.get(".name", "")): entry for entry in entries}


def read_entry(entry: Mapping[str, Any]) -> tuple[dict[str, int], tuple[KernelArg, ...]]:
    """A kernel's integer entries, names without the leading dot, and the slots of its argument segment.

    Raises:
        IsaError: an argument without offset or size.
    """
    numbers = {
        str(key).lstrip("."): value for key, value in entry.items() if type(value) is int and 0 <= value < 1 << 63
    }
    slots = entry.get(".args") or []
    if not isinstance(slots, list) or not all(isinstance(slot, Mapping) for slot in slots):
        raise IsaError("metadata: .args is no list of maps")
    args = []
    for position, slot in enumerate(slots):
        for key in (".offset", ".size"):
            if type(slot.get(key)) is not int or not 0 <= slot[key] < MAX_SEGMENT_BYTES:
                raise IsaError(f"metadata: argument {position}: {key} is {slot.get(key)!r}; expected an integer")
        kind = str(slot.get(".value_kind", "by_value"))
        args.append(KernelArg(str(slot.get(".name", "")), slot[".offset"], slot[".size"], kind))
    return numbers, tuple(args)


def parse_metadata(lines: list[tuple[int, str]], kernel: str) -> tuple[dict[str, int], tuple[KernelArg, ...]]:
    """Read the metadata map of `kernel`: its integer entries, and its arguments; nothing where it has no map.

    Args:
        lines: (line number, text) of the YAML document that LLVM writes.
        kernel: the kernel's symbol.

    Raises:
        IsaError: no YAML, or another form than LLVM's.
    """
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        found = yaml.load("\n".join(text for _, text in lines), Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        place = getattr(getattr(error, "problem_mark", None), "line", 0)
        problem = getattr(error, "problem", None) or str(error)
        raise IsaError(f"line {lines[min(place, len(lines) - 1)][0]}: metadata: {problem}") from None
    entries = kernel_entries(found or {})
    entry = entries.get(kernel) or entries.get("")
    return ({}, ()) if entry is None else read_entry(entry)
