"""``sweep``: several shapes searched at once over all GPUs of this machine or of a Ray cluster, or over CPU workers."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from mxfp4lab.cli.common import add_json_argument, answer, quiet_stdout, whole_number
from mxfp4lab.shapes import TASK_SHAPES, parse_shape

BACKENDS = {"gpu": "gpu", "emulator": "cpu"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", action="append", default=[], metavar="M,N,K",
                        help="may be repeated; without it the task's six")  # fmt: skip
    parser.add_argument("--variants", default="all", help="comma-separated names, or all (default: %(default)s)")
    parser.add_argument("--budget", default="40", help="configs per shape (default: %(default)s)")
    parser.add_argument("--backend", default="gpu", help="gpu (measured) or emulator (modelled) (default: %(default)s)")
    parser.add_argument("--executor", default="local", help="local, or ray (pip install 'mxfp4lab[ray]')")
    parser.add_argument("--address", default=None, help="of a Ray cluster: auto for the one this machine belongs to")
    parser.add_argument("--workers", default=None, help="at most this many; without it all GPUs, or one per core")
    parser.add_argument("--comparators", action="store_true", help="time torch.mm and aiter beside the finalists")
    parser.add_argument("--out", default="outputs", help="folder for records, from the repository or absolute")
    add_json_argument(parser)


def main(args: argparse.Namespace) -> int:
    shapes = [parse_shape(text) for text in args.shape] or list(TASK_SHAPES)
    budget = whole_number("budget", args.budget, 1, 100_000)
    workers = None if args.workers is None else whole_number("workers", args.workers, 1, 1024)
    if args.backend not in BACKENDS:
        raise ValueError(f"backend={args.backend!r} is unknown; allowed: {', '.join(BACKENDS)}")
    from mxfp4lab.paths import REPO_ROOT
    from mxfp4lab.tune.sweep import sweep
    from mxfp4lab.workers.pools import open_pool

    variants = None if args.variants == "all" else tuple(name.strip() for name in args.variants.split(","))
    pool = open_pool(args.executor, BACKENDS[args.backend], workers, args.address)
    try:
        with quiet_stdout(args.json):
            result = sweep(shapes, pool, variants=variants, budget=budget, comparators=args.comparators,
                           out=REPO_ROOT / args.out, progress=_Lines())  # fmt: skip
    finally:
        pool.close()
    answer(args, _data(result), _text(result))
    return 0 if all(state.best is not None for state in result.shapes.values()) else 1


class _Lines:
    """A line on standard error every few seconds."""

    def __init__(self, every_s: float = 5.0) -> None:
        self._every, self._last = every_s, 0.0

    def __call__(self, done: int, total: int, trial: Any) -> None:
        now = time.monotonic()
        if done == total or now - self._last > self._every:
            self._last = now
            print(f"{done}/{total} {trial.shape} {trial.variant} {trial.status}", file=sys.stderr, flush=True)


def _data(result: Any) -> dict[str, Any]:
    shapes = {}
    for shape, state in result.shapes.items():
        best = state.best
        shapes[str(shape)] = {
            "trials": len(state.trials), "ok": len(state.ranked()), "comparison": state.comparison,
            "best": None if best is None else best.to_dict(),
        }  # fmt: skip
    return {"run_id": result.run_id, "folder": str(result.folder), "device": result.device, "resumed": result.resumed,
            "shapes": shapes}  # fmt: skip


def _text(result: Any) -> str:
    from mxfp4lab import display
    from mxfp4lab.paths import shown_path

    rows = []
    for shape, state in result.shapes.items():
        best = state.best
        if best is None:
            rows.append((shape, len(state.trials), "nothing was ok", "", "", ""))
            continue
        us = best.latency_us if best.latency_us is not None else best.predicted_us
        kind = state.comparison.get("verdict", {}).get("kind", "pick" if best.latency_us is None else "winner")
        rows.append((shape, len(state.trials), best.variant, best.config_id, f"{us:.2f}", f"{best.evidence}, {kind}"))
    head = ("shape", "trials", "best variant", "config", "us", "evidence")
    where = f"{result.device or 'no GPU: modelled times'}; {result.resumed} trials came from earlier runs"
    return f"{display.text_table(head, rows)}\n{where}\nrecords: {shown_path(result.folder)}"
