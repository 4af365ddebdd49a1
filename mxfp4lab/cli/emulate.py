"""``emulate``: the machine code of a variant executed on the CPU on the task's inputs, C compared bit by bit."""

from __future__ import annotations

import argparse
from typing import Any

from mxfp4lab import display
from mxfp4lab.cli.common import (
    add_plan_arguments,
    add_seed_argument,
    answer,
    describe,
    plan_from,
    quiet_stdout,
    seed_from,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_arguments(parser)
    add_seed_argument(parser)
    parser.add_argument(
        "--checks",
        action="store_true",
        help="also look for accesses of two waves that nothing puts in order, and list what is found instead of "
        "ending at the first access out of bounds; takes 1.5 to 9 times as long (six kernels measured)",
    )


def main(args: argparse.Namespace) -> int:
    with quiet_stdout(args.json):
        plan = plan_from(args)
        seed = seed_from(args, plan.shape)
        found = _emulate(plan, seed, args.checks)
    data = {**describe(plan), "evidence": "emulated", "seed": seed, "generator_device": "cpu", **found}
    answer(args, data, _text(data))
    return 0 if found["passed"] else 1


def _emulate(plan: Any, seed: int, checks: bool) -> dict[str, Any]:
    from mxfp4lab.emulate import emulate_plan
    from mxfp4lab.formats import FP32_BITS
    from mxfp4lab.gfx950 import EmulationError, compile_plan
    from mxfp4lab.task import INPUT_NAMES, check_output, generate_input, input_sum_bits, reference_output

    compiled = compile_plan(plan)
    inputs = generate_input(plan.shape, seed)
    reference = reference_output(inputs)
    named = dict(zip(INPUT_NAMES, inputs, strict=True))
    found = {
        "passed": False, "bf16_identical_fraction": None, "max_abs_err": None, "lane_instructions": None,
        "emulate_s": None, "sums_are_exact": input_sum_bits(inputs) <= FP32_BITS, "error": "", "launches": [],
        "checks": checks, "findings": [],
    }  # fmt: skip
    try:
        done = emulate_plan(compiled, named, races=checks, on_out_of_bounds="record" if checks else "raise")
    except EmulationError as error:
        return found | {"error": f"{type(error).__name__}: {error}"}
    verdict = check_output(done.c, reference)
    findings = list(dict.fromkeys(map(str, done.findings)))
    error = "" if verdict.passed else verdict.message
    return found | {
        "passed": bool(verdict.passed) and not findings,
        "bf16_identical_fraction": float(verdict.bf16_identical_fraction),
        "max_abs_err": float(verdict.max_abs_err),
        "lane_instructions": int(done.lane_instructions),
        "emulate_s": float(done.emulate_s),
        "error": error or (f"{len(findings)} findings" if findings else ""),
        "launches": [
            {"name": kernel.name, "lane_instructions": int(run.lane_instructions), "seconds": float(run.seconds)}
            for kernel, run in zip(compiled.kernels, done.launches, strict=True)
        ],
        "findings": findings,
    }


def _text(data: dict[str, Any]) -> str:
    size = data["shape"]
    head = f"{data['variant']} on {size['m']}x{size['n']}x{size['k']}, config {data['config_id']}, seed {data['seed']}"
    if data["bf16_identical_fraction"] is None:
        return f"{head}\nFAILED: {data['error']}"
    speed = data["lane_instructions"] / max(data["emulate_s"], 1e-9) / 1e6
    verdict = "passed" if data["passed"] else "FAILED"
    lines = [
        head,
        f"{verdict} (emulated): {data['bf16_identical_fraction']:.4%} of bf16 identical, "
        f"largest difference {data['max_abs_err']:.3g}",
        f"{data['lane_instructions'] / 1e6:.1f} M lane-instructions in {data['emulate_s']:.2f} s ({speed:.0f} M/s)",
        "sums are exact in fp32 here: every order gives the same bits"
        if data["sums_are_exact"]
        else "sums round in fp32 here: their order shows, and less than 100 % can be right",
        display.text_table(
            ("launch", "M lane-instructions", "s"),
            [(run["name"], run["lane_instructions"] / 1e6, run["seconds"]) for run in data["launches"]],
        ),
        *data["findings"],
    ]
    if data["checks"] and not data["findings"]:
        lines.append("findings: none")
    return "\n".join(lines + ([data["error"]] if data["error"] else []))
