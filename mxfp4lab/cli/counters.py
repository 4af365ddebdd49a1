"""``counters``: a profiler's counter file, set beside emulated counts (rocprofv3) or the compiled kernel (ncu)."""

from __future__ import annotations

import argparse
from typing import Any

from mxfp4lab import display
from mxfp4lab.cli.common import add_json_argument, answer, parse_config, quiet_stdout

SHOWN_STALLS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="rocprofv3's *_counter_collection.csv, or ncu's --csv output")
    parser.add_argument("--variant", help="the plan that was profiled; with --shape")
    parser.add_argument("--shape", metavar="M,N,K", help="its shape, e.g. 64,7168,2048")
    parser.add_argument("--config", metavar="JSON", help="its config; without it the variant's default for the shape")
    add_json_argument(parser)


def main(args: argparse.Namespace) -> int:
    if (args.variant is None) != (args.shape is None):
        raise ValueError("variant and shape name a plan together: give both or neither")
    with quiet_stdout(args.json):
        from mxfp4lab.gpu.counters import read_counters

        kernels = read_counters(args.file)
        rows = _beside(args, kernels) if args.variant else []
    data = {"evidence": "measured", "file": args.file, "kernels": [_kernel(kernel) for kernel in kernels],
            "comparison": [{**vars(row), "ratio": row.ratio} for row in rows]}  # fmt: skip
    answer(args, data, _text(kernels, rows))
    return 0


def _beside(args: argparse.Namespace, kernels: list[Any]) -> list[Any]:
    from mxfp4lab.gpu.counters import beside_compiled, beside_emulation
    from mxfp4lab.plan import build_plan
    from mxfp4lab.toolchain import compile_plan

    arch = "sm_90" if kernels and kernels[0].tool == "ncu" else "gfx950"
    compiled = compile_plan(build_plan(args.variant, parse_config(args.config), args.shape, arch))
    if arch == "gfx950":
        from mxfp4lab.gfx950 import count_plan

        return beside_emulation(kernels, count_plan(compiled))
    expected = {}
    for launch, kernel in zip(compiled.plan.launches, compiled.kernels, strict=True):
        reads = {value.buffer for _, value in launch.args if hasattr(value, "buffer")}
        inputs = [buffer for buffer in compiled.plan.buffers if buffer.role == "input" and buffer.name in reads]
        expected[launch.name] = {
            "programs": float(launch.grid[0] * launch.grid[1] * launch.grid[2]),
            "registers": float(kernel.resources.vgprs), "shared_bytes": float(kernel.lds_bytes),
            "least_read_bytes": float(sum(buffer.nbytes for buffer in inputs)),
        }  # fmt: skip
    return beside_compiled(kernels, expected)


def _kernel(kernel: Any) -> dict[str, Any]:
    from mxfp4lab.gpu.counters import stalls

    return {**vars(kernel), "counters": dict(kernel.counters), "resources": dict(kernel.resources),
            "stalls": stalls(kernel)}  # fmt: skip


def _text(kernels: list[Any], rows: list[Any]) -> str:
    from mxfp4lab.gpu.counters import base_name, stalls

    summary = []
    for kernel in kernels:
        duration = "" if kernel.duration_us is None else f"{kernel.duration_us:.2f}"
        top = ", ".join(f"{name} {value:.2f}" for name, value in list(stalls(kernel).items())[:SHOWN_STALLS])
        programs = "" if kernel.programs is None else kernel.programs
        summary.append((base_name(kernel.name), programs, kernel.dispatches, duration, len(kernel.counters), top))
    head = ("kernel", "programs", "dispatches", "us (profiled)", "counters", "stalls per issue")
    text = [display.text_table(head, summary)]
    if rows:
        table = [
            (row.kernel, row.quantity, f"{row.hardware:.6g}", "" if row.expected is None else f"{row.expected:.6g}",
             "" if row.ratio is None else f"{row.ratio:.3f}", row.source)
            for row in rows
        ]  # fmt: skip
        text.append(display.text_table(("kernel", "quantity", "hardware", "expected", "ratio", "from"), table))
    return "\n\n".join(text)
