"""``predict``: a modelled MI355X time from the emulated counts of one workgroup of each launch."""

from __future__ import annotations

import argparse

from mxfp4lab.cli.common import add_plan_arguments, answer, describe, plan_from, quiet_stdout
from mxfp4lab.model import REGIMES, predict_counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `predict`."""
    add_plan_arguments(parser)
    parser.add_argument("--regime", default="harness", help="harness or device (default: %(default)s)")


def main(args: argparse.Namespace) -> int:
    """Compile, count, predict."""
    if args.regime not in REGIMES:
        raise ValueError(f"regime={args.regime!r}; allowed: {', '.join(REGIMES)}")
    with quiet_stdout(args.json):
        plan = plan_from(args)
        from mxfp4lab.config import VARIANTS
        from mxfp4lab.emulate import count_plan
        from mxfp4lab.gfx950 import compile_plan

        counts = count_plan(compile_plan(plan))
        prediction = predict_counts(counts, plan.shape, args.regime)
    caveat = VARIANTS[plan.variant].caveat
    head = f"{plan.variant} on {plan.shape}, config {plan.config.config_id}"
    mind = [f"mind: {caveat}"] if caveat else []
    data = {**describe(plan), **prediction.to_dict(), "counts": counts.to_dict()}
    answer(args, data, "\n".join([head, str(prediction), *mind, str(counts)]))
    return 0
