"""``predict``: a modelled MI355X time from the emulated counts of one workgroup of each launch."""

from __future__ import annotations

import argparse
from typing import Any

from mxfp4lab import display
from mxfp4lab.cli.common import add_plan_arguments, answer, describe, plan_from, quiet_stdout
from mxfp4lab.config import VARIANT_TRAITS

REGIMES = ("harness", "device")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_arguments(parser)
    parser.add_argument("--regime", default="harness", help="harness or device (default: %(default)s)")


def main(args: argparse.Namespace) -> int:
    if args.regime not in REGIMES:
        raise ValueError(f"regime={args.regime!r}; allowed: {', '.join(REGIMES)}")
    with quiet_stdout(args.json):
        plan = plan_from(args)
        from mxfp4lab.emulate import count_plan
        from mxfp4lab.gfx950 import compile_plan
        from mxfp4lab.model import predict_counts

        counts = count_plan(compile_plan(plan))
        prediction = predict_counts(counts, plan.shape, args.regime)
    data = {**describe(plan), **prediction.to_dict(), "counts": counts.to_dict()}
    answer(args, data, _text(data))
    return 0


def _text(data: dict[str, Any]) -> str:
    size = data["shape"]
    low, high = data["interval"]
    lines = [
        f"{data['variant']} on {size['m']}x{size['n']}x{size['k']}, config {data['config_id']}",
        f"{data['predicted_us']:.2f} us predicted (modelled, {data['regime']}, {data['model_version']}); "
        f"{low:.2f} to {high:.2f} holds for about 80 % of unseen published rows",
    ]
    if data.get("extrapolated"):
        lines.append("outside what the model was fitted on: " + "; ".join(data.get("outside") or ["see its terms"]))
    if caveat := VARIANT_TRAITS[data["variant"]].caveat:
        lines.append(f"mind: {caveat}")
    lines += ["", display.text_table(("term", "us"), [(n, float(v)) for n, v in data["terms"].items() if v])]
    rows = [
        (one["name"], one["workgroups"], one["waves_per_workgroup"], float(one["valu_per_wave"]),
         float(one["mfma_per_wave"]), float(one["vmem_per_wave"]), float(one["lds_per_wave"]),
         float(one["scratch_per_wave"]))
        for one in data["counts"]["launches"]
    ]  # fmt: skip
    headers = ("launch (emulated)", "workgroups", "waves", "VALU/wave", "MFMA", "VMEM", "LDS", "scratch")
    return "\n".join([*lines, "", display.text_table(headers, rows)])
