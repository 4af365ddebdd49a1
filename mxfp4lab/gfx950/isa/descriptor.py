"""What the hardware is told about a kernel before its first instruction: registers, arguments, LDS, scratch.

Read from `.amdhsa_` directives and the metadata of ISA text, or from a code object's kernel descriptor; both give the
same form. Source: LLVM, User Guide for the AMDGPU Backend, "Kernel Descriptor" and "Initial Kernel Execution State".
"""

from __future__ import annotations

from dataclasses import dataclass, field

# User SGPRs in the order in which the hardware assigns them: (name, registers).
USER_SGPR_ORDER: tuple[tuple[str, int], ...] = (
    ("private_segment_buffer", 4),
    ("dispatch_ptr", 2),
    ("queue_ptr", 2),
    ("kernarg_segment_ptr", 2),
    ("dispatch_id", 2),
    ("flat_scratch_init", 2),
    ("private_segment_size", 1),
)


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
        kernarg_ptr_sgpr: first of the two SGPRs that hold the argument segment's address, or -1.
        preload_sgpr: first SGPR of preloaded arguments, or -1.
        preload_offset: first preloaded dword of the argument segment.
        preload_length: preloaded dwords.
        workgroup_ids: whether the x, y, z workgroup ids follow the user SGPRs.
        workgroup_info: whether a workgroup-info SGPR follows the ids.
        workitem_ids: 0, 1 or 2: v0 packs x, x|y<<10 or x|y<<10|z<<20.
        lds_bytes: LDS in bytes (Triton allocates it at launch: the compiler's metadata has the real figure).
        scratch_bytes: private segment in bytes per lane.
        vgprs, agprs: architectural and accumulation registers per lane.
        accum_offset: number of the first accumulation register in the unified file.
        sgprs: scalar registers, vcc and friends not counted.
        spilled_vgprs, spilled_sgprs: spill counts the compiler reports.
        block_threads: work-items per workgroup.
        wavefront: lanes per wave (64).
        mode: float mode bits (round and denormal fields), ieee and dx10_clamp as the directives give them.
    """

    name: str
    kernarg_bytes: int = 0
    args: tuple[KernelArg, ...] = ()
    user_sgprs: int = 0
    user_sgpr_layout: tuple[tuple[str, int, int], ...] = ()
    kernarg_ptr_sgpr: int = -1
    preload_sgpr: int = -1
    preload_offset: int = 0
    preload_length: int = 0
    workgroup_ids: tuple[bool, bool, bool] = (True, False, False)
    workgroup_info: bool = False
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
    wavefront: int = 64
    mode: dict[str, int] = field(default_factory=dict, compare=False)


def layout_user_sgprs(enabled: dict[str, int], preload_length: int) -> tuple[tuple[str, int, int], ...]:
    """Assign user SGPRs in hardware order.

    Args:
        enabled: name from `USER_SGPR_ORDER` -> 0 or 1.
        preload_length: dwords of preloaded kernel arguments, which come last.

    Returns:
        (name, first sgpr, count) per enabled group.
    """
    layout, next_sgpr = [], 0
    for name, count in USER_SGPR_ORDER:
        if enabled.get(name):
            layout.append((name, next_sgpr, count))
            next_sgpr += count
    if preload_length:
        layout.append(("kernarg_preload", next_sgpr, preload_length))
    return tuple(layout)


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
    enabled = {key: fields.get(f"user_sgpr_{key}", 0) for key, _ in USER_SGPR_ORDER}
    preload = fields.get("user_sgpr_kernarg_preload_length", 0)
    layout = layout_user_sgprs(enabled, preload)
    place = {key: first for key, first, _ in layout}
    counted = max((first + count for _, first, count in layout), default=0)
    vgprs, accum = fields.get("next_free_vgpr", 0), fields.get("accum_offset", 0)
    agprs = metadata.get("agpr_count", 0)
    return KernelDescriptor(
        name=name,
        kernarg_bytes=fields.get("kernarg_size", metadata.get("kernarg_segment_size", 0)),
        args=args,
        user_sgprs=max(fields.get("user_sgpr_count", 0), counted),
        user_sgpr_layout=layout,
        kernarg_ptr_sgpr=place.get("kernarg_segment_ptr", -1),
        preload_sgpr=place.get("kernarg_preload", -1),
        preload_offset=fields.get("user_sgpr_kernarg_preload_offset", 0),
        preload_length=preload,
        workgroup_ids=tuple(bool(fields.get(f"system_sgpr_workgroup_id_{axis}", axis == "x")) for axis in "xyz"),
        workgroup_info=bool(fields.get("system_sgpr_workgroup_info", 0)),
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
        wavefront=metadata.get("wavefront_size", 64),
        mode={key: fields[key] for key in sorted(fields) if key.startswith(("float_", "dx10_", "ieee_", "fp16_"))},
    )
