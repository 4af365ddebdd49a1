"""``tune``: the search of 04_tune.ipynb from a shell. Run it again and it goes on where it stopped."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from mxfp4lab.cli.common import add_json_argument, add_seed_argument, answer, quiet_stdout, seed_from, whole_number
from mxfp4lab.shapes import parse_shape


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", required=True, metavar="M,N,K", help="GEMM shape, e.g. 64,7168,2048")
    parser.add_argument("--variants", default="all", help="comma-separated names, or all (default: %(default)s)")
    parser.add_argument(
        "--budget", default="160", help="configs to look at, or seconds as 90s, or all (default: %(default)s)"
    )
    parser.add_argument("--backend", default="auto", help="auto, emulator or gpu (default: %(default)s)")
    parser.add_argument("--workers", default=None, help="processes that compile; one per core without it")
    parser.add_argument("--out", default="outputs", help="folder for records, from the repository or absolute")
    parser.add_argument(
        "--max-spills", default=None, help="spilled registers a kernel may have; without it 16 on gfx950, any elsewhere"
    )
    parser.add_argument("--verify", default="3", help="how many of the best are executed whole (default: %(default)s)")
    add_seed_argument(parser)
    add_json_argument(parser)


def main(args: argparse.Namespace) -> int:
    shape = parse_shape(args.shape)
    from mxfp4lab.notebook import Progress, kinds
    from mxfp4lab.plan import VARIANTS
    from mxfp4lab.tune import max_workers, tune

    variants = kinds.names(VARIANTS).read("variants", args.variants)
    with quiet_stdout(args.json):
        result = tune(
            shape,
            variants=variants,
            budget=args.budget,
            backend=args.backend,
            workers=None if args.workers is None else whole_number("workers", args.workers, 1, max_workers()),
            seed=seed_from(args, shape),
            out=kinds.folder().read("out", args.out),
            max_spills=None if args.max_spills is None else whole_number("max-spills", args.max_spills, 0, 10_000),
            verify=whole_number("verify", args.verify, 1, 1000),
            progress=Progress(out=sys.stderr),
        )
    for warning in result.warnings:
        print(f"mxfp4lab: {warning}", file=sys.stderr)
    answer(args, _data(result), result.summary())
    return 0 if result.pick is not None else 1


def _data(result: Any) -> dict[str, Any]:
    ranking = json.loads(result.ranking.head(20).to_json(orient="records"))
    return {
        "shape": {"m": result.shape.m, "n": result.shape.n, "k": result.shape.k},
        "backend": result.backend,
        "arch": result.arch,
        "run_id": result.run_id,
        "records": str(result.folder),
        "funnel": result.funnel.to_dict(),
        "pick": result.pick.to_dict() if result.pick is not None else None,
        "why_no_pick": "" if result.pick is not None else result.why_no_pick(),
        "ranking": ranking,
        "warnings": result.warnings,
        "seconds": round(result.seconds, 3),
    }
