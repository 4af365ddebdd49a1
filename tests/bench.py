"""Speeds of this machine, as ratios and rates in one run: `make bench`. Nothing here decides a test.

Three tables: the emulator (every Triton variant on every task shape), the compiler (cold and from the cache), the
time model (one prediction from its counts). Each figure is the best of a few repeats; peak memory is the process's.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

from mxfp4lab import task as problem
from mxfp4lab.config import runs_on
from mxfp4lab.emulate import count_plan, emulate_plan
from mxfp4lab.gfx950 import compile_plan
from mxfp4lab.model import predict_counts
from mxfp4lab.plan import VARIANTS, build_plan, default_config
from mxfp4lab.shapes import TASK_SHAPES, parse_shape, task_seed


def best_of(repeats: int, call: Callable[[], object]) -> tuple[float, object]:
    """The shortest of `repeats` calls in seconds, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - start)
    return best, result


def peak_gib() -> float:
    """Peak resident memory of this process, GiB (monotonic: the largest so far)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def bench_emulator(shapes, variants, repeats: int) -> None:
    """Seconds and lane-instructions per second of whole launches, address, LDS and unknown-instruction checks on."""
    print(
        f"{'shape':16s} {'variant':24s} {'compile s':>9s} {'emulate s':>9s} {'M lane-instr/s':>14s} {'bf16 equal':>10s}"
        f" {'count ms':>8s} {'predict ms':>10s} {'peak GiB':>8s}"
    )
    for shape in shapes:
        data = problem.input_dict(shape, task_seed(shape))
        reference = problem.reference_output(tuple(data[name] for name in problem.INPUT_NAMES))
        for variant in variants:
            plan = build_plan(variant, default_config(variant, shape), shape)
            compile_s, compiled = best_of(1, partial(compile_plan, plan))
            emulate_s, emulation = best_of(repeats, partial(emulate_plan, compiled, data))
            check = problem.check_output(emulation.c, reference)
            count_s, counts = best_of(repeats, partial(count_plan, compiled))
            predict_s, _ = best_of(20, partial(predict_counts, counts, shape))
            rate = emulation.lane_instructions / emulate_s / 1e6
            print(
                f"{shape!s:16s} {variant:24s} {compile_s:9.2f} {emulate_s:9.2f} {rate:14.0f}"
                f" {check.bf16_identical_fraction:10.4%} {count_s * 1e3:8.0f} {predict_s * 1e3:10.2f}"
                f" {peak_gib():8.2f}",
                flush=True,
            )


def bench_compiler() -> None:
    """One plan compiled cold into an empty cache, then read back."""
    shape = TASK_SHAPES[0]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MXFP4LAB_CACHE"] = folder
        plan = build_plan("fused_preshuffled", default_config("fused_preshuffled", shape), shape)
        cold, _ = best_of(1, partial(compile_plan, plan))
        warm, _ = best_of(3, partial(compile_plan, plan))
    print(
        f"\ncompile {plan.variant} {shape}: cold {cold:.2f} s, from the cache {warm * 1e3:.0f} ms ({cold / warm:.0f}x)"
    )


def main() -> int:
    """Prints the tables; --shape and --variant narrow them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", type=parse_shape, help="one shape instead of the task's six")
    parser.add_argument("--variant", help="one variant instead of all that run on gfx950")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    shapes = [options.shape] if options.shape else TASK_SHAPES
    variants = (
        [options.variant]
        if options.variant
        else [name for name, spec in VARIANTS.items() if runs_on(name, "gfx950") and not spec.needs_aiter]
    )
    bench_emulator(shapes, variants, options.repeats)
    bench_compiler()
    return 0


if __name__ == "__main__":
    sys.exit(main())
