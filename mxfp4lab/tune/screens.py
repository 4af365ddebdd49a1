"""What machine code must be like to be worth ranking: read from the compiled kernels, decided by stated thresholds.

A screen looks at recorded facts only, so that a re-run with other thresholds needs no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

LDS_LIMIT_BYTES = 163_840  # gfx950, per workgroup
DEFAULT_MAX_SPILLS = 16
"""Spilled VGPRs: in published MI355X times 2-4 cost about 1.1x, 8-16 about 1.3x, more 1.6x and up."""

SCREENS: dict[str, str] = {
    "hazard": "an instruction reads a result too early: its value cannot be trusted",
    "scaled mfma": "Triton fell back to bf16 matrix instructions",
    "lds": f"more LDS than the {LDS_LIMIT_BYTES} bytes of a workgroup",
    "spills": "too many registers spilled to memory",
}

Facts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """Which screen removed a config, and the sentence for its record."""

    screen: str
    reason: str


def kernel_facts(kernels: Sequence[Any]) -> Facts:
    """What screens, tables and records need of compiled kernels, as plain JSON values: kernel name -> facts."""
    facts: Facts = {}
    for kernel in kernels:
        resources = asdict(kernel.resources) if kernel.resources is not None else {}
        scaled = sum(count for name, count in kernel.mfma.items() if name.startswith("v_mfma_scale_"))
        facts[kernel.name] = {
            **resources,
            "num_warps": kernel.num_warps,
            "mfma_scaled": scaled,
            "mfma_other": sum(kernel.mfma.values()) - scaled,
            "hazards": len(kernel.hazards),
        }
    return facts


def screen(facts: Mapping[str, Mapping[str, Any]], arch: str, max_spills: int | None) -> Verdict | None:
    """The first screen that removes these kernels, or None.

    Args:
        facts: as `kernel_facts` gives them, or as a record holds them.
        arch: hazards and scaled MFMA are looked for on gfx950 only.
        max_spills: spilled registers allowed per kernel; None for any number.
    """
    for name, found in facts.items():
        if found.get("hazards"):
            return Verdict("hazard", f"{name}: {found['hazards']} read-too-early hazard(s) in the machine code")
    if arch == "gfx950":
        other = {name: found["mfma_other"] for name, found in facts.items() if found.get("mfma_other")}
        if other or not any(found.get("mfma_scaled") for found in facts.values()):
            said = ", ".join(f"{name} has {count} unscaled MFMA" for name, count in other.items())
            return Verdict("scaled mfma", said or "no scaled MFMA in any kernel")
    for name, found in facts.items():
        if arch == "gfx950" and found.get("lds_bytes", 0) > LDS_LIMIT_BYTES:
            return Verdict("lds", f"{name}: {found['lds_bytes']} bytes of LDS, limit {LDS_LIMIT_BYTES}")
    for name, found in facts.items():
        if max_spills is not None and found.get("spilled_vgprs", 0) > max_spills:
            what = "spilled VGPRs" if arch == "gfx950" else "spilled registers"
            return Verdict("spills", f"{name}: {found['spilled_vgprs']} {what}, allowed {max_spills}")
    return None


def main_kernel(facts: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Facts of the kernel with most matrix instructions: the one whose resources a table shows.

    Where matrix instructions are not counted (CUDA), the GEMM is told by its name.
    """
    if not facts:
        return {}
    name = max(facts, key=lambda n: (facts[n].get("mfma_scaled", 0) + facts[n].get("mfma_other", 0), "gemm" in n))
    return facts[name]
