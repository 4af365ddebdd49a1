"""``counters``: a profiler's counter file, set beside emulated counts (rocprofv3) or the compiled kernel (ncu)."""

from __future__ import annotations

import argparse
from typing import Any

from mxfp4lab.cli.common import add_json_argument, answer, parse_config, quiet_stdout


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
        from mxfp4lab.counters import read_counters, report

        plan = None
        if args.variant is not None:
            from mxfp4lab.plan import build_plan

            kernels = read_counters(args.file)
            arch = "sm_90" if kernels and kernels[0].tool == "ncu" else "gfx950"
            plan = build_plan(args.variant, parse_config(args.config), args.shape, arch)
        found = report(args.file, plan)
    data = {"evidence": "measured", "file": args.file, "kernels": [_kernel(kernel) for kernel in found.kernels],
            "comparison": [{**vars(row), "ratio": row.ratio} for row in found.rows]}  # fmt: skip
    answer(args, data, str(found))
    return 0


def _kernel(kernel: Any) -> dict[str, Any]:
    from mxfp4lab.counters import stalls

    return {**vars(kernel), "counters": dict(kernel.counters), "stalls": stalls(kernel)}  # fmt: skip
