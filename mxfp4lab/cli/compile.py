"""``compile``: a variant's gfx950 (or sm_90) machine code, what it occupies and what it consists of."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from mxfp4lab import display
from mxfp4lab.cli.common import add_plan_arguments, answer, describe, plan_from, quiet_stdout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_arguments(parser)
    parser.add_argument("--arch", default="gfx950", help="target: gfx950 or sm_90 (default: %(default)s)")
    parser.add_argument("--asm", action="store_true", help="print the assembly text too (into the object with --json)")


def main(args: argparse.Namespace) -> int:
    with quiet_stdout(args.json):
        plan = plan_from(args, args.arch)
        from mxfp4lab.gfx950 import compile_plan, current_knobs, plan_hash, toolchain_versions

        compiled = compile_plan(plan)
        kernels = [_kernel(kernel, args.asm) for kernel in compiled.kernels]
    main_kernel = max(kernels, key=lambda kernel: sum(kernel["mfma"].values()))
    data: dict[str, Any] = {
        **describe(plan),
        "kernel_hash": plan_hash(plan),
        "toolchain": toolchain_versions(),
        "knobs": current_knobs(),
        "kernel": main_kernel["name"],
        "resources": main_kernel["resources"],
        "mix": main_kernel["mix"],
        "mfma": main_kernel["mfma"],
        "hazards": [hazard for kernel in kernels for hazard in kernel["hazards"]],
        "kernels": kernels,
    }
    answer(args, data, _text(plan, kernels, args.asm))
    return 0


def _kernel(kernel: Any, with_asm: bool) -> dict[str, Any]:
    found = {
        "name": kernel.name,
        "num_warps": kernel.num_warps,
        "resources": asdict(kernel.resources) if kernel.resources is not None else {},
        "mix": kernel.mix,
        "mfma": kernel.mfma,
        "hazards": [str(hazard) for hazard in kernel.hazards],
        "kernel_hash": kernel.kernel_hash,
        "compile_s": round(kernel.compile_s, 3),
        "from_cache": kernel.from_cache,
    }
    return found | {"asm": kernel.asm} if with_asm else found


def _text(plan: Any, kernels: list[dict[str, Any]], with_asm: bool) -> str:
    lines = [f"{plan.variant} on {plan.shape} for {plan.arch}, config {plan.config.config_id}", ""]
    rows = []
    for kernel in kernels:
        found = kernel["resources"]
        rows.append(
            (
                kernel["name"],
                *(found.get(name, "") for name in ("vgprs", "agprs", "sgprs")),
                display.spills_in_words(found.get("spilled_vgprs", 0))[0],
                *(found.get(name, "") for name in ("scratch_bytes", "lds_bytes", "occupancy_waves_per_simd")),
                len(kernel["hazards"]),
                f"{kernel['compile_s']:.2f}{' (cached)' if kernel['from_cache'] else ''}",
            )
        )
    headers = (
        "kernel",
        "VGPRs",
        "AGPRs",
        "SGPRs",
        "spills",
        "scratch B",
        "LDS B",
        "waves/SIMD",
        "hazards",
        "compile s",
    )
    lines.append(display.text_table(headers, rows))
    for kernel in kernels:
        mix = ", ".join(f"{count} {name}" for name, count in sorted(kernel["mix"].items(), key=lambda item: -item[1]))
        mfma = ", ".join(f"{count} {name}" for name, count in kernel["mfma"].items())
        lines += ["", f"{kernel['name']}: {mix or 'instructions of this target are not read here'}"]
        if mfma:
            lines.append(f"  matrix instructions: {mfma}")
        lines += [f"  hazard: {hazard}" for hazard in kernel["hazards"]]
        if with_asm:
            lines += ["", kernel["asm"]]
    return "\n".join(lines)
