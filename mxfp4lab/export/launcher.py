"""How an exported file launches its plans: `submission` copies from here what a file needs.

A plan in a file is a tuple: the shape of C's memory, workspaces as (name, sizes, dtype, first value or None), then
launches as (kernel, grid, arguments, constants). An argument is a tensor's name or a number.
"""

import sys
import time

import torch
import triton

from mxfp4lab.kernels.plain import gemm_any_shape

PLANS: dict = {}
"""(M, N, K) -> list of plans; a file has its own table."""

TENSORS = ("a", "b", "b_q", "b_shuffle", "b_scale_sh", "c")  # the task's five, and the result

REPEATS = 7
SECONDS_PER_SHAPE = 15  # compilation included: six shapes stay far from the task's time-outs
FLUSH_BYTES = 512 << 20  # twice the 256 MiB Infinity Cache


def prepared(plan, data):
    """The function that runs a plan. What is the same in every call is done here, once: kernels, memory, arguments."""
    c_sizes, spaces, *launches = plan
    rows, device, steps = data[0].shape[0], data[0].device, []
    memory = dict(zip(TENSORS, (data[0], data[1], *(packed.view(torch.uint8) for packed in data[2:])), strict=False))
    memory["c"] = torch.empty(c_sizes, dtype=torch.bfloat16, device=device)
    for name, sizes, dtype, first in spaces:
        memory[name] = torch.empty(sizes, dtype=dtype, device=device)
        if first is not None:
            memory[name].fill_(first)
    for kernel, grid, arguments, constants in launches:
        given = iter(arguments)
        names = [constants[name] if name in constants else next(given) for name in kernel.arg_names]
        values = [memory.get(name, name) for name in names]
        options = {name: value for name, value in constants.items() if name not in kernel.arg_names}
        compiled = kernel.warmup(*values, grid=grid, **options)
        places = [(place, TENSORS.index(name)) for place, name in enumerate(names) if name in TENSORS]
        steps.append((compiled[(*grid, 1, 1)[:3]], values, places))
        for place, _ in places:
            values[place] = None  # filled anew in every call

    def run(data):
        c = torch.empty(c_sizes, dtype=torch.bfloat16, device=device)
        tensors = (*data, c)
        for launch, values, places in steps:
            values = values.copy()
            for place, tensor in places:
                values[place] = tensors[tensor]
            launch(*values)
        return c if c_sizes[0] == rows else c[:rows]

    return run


def any_shape(m, n, k):
    """The plan of a shape that has none, or none that runs here: plain Triton, right, not tuned."""
    grid = (triton.cdiv(m, 16), triton.cdiv(n, 64))
    arguments = ("a", "b_q", "b_scale_sh", "c", m, n, k)
    return (m, n), (), (gemm_any_shape, grid, arguments, {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 256})


def usable(shape, data):
    """Functions that serve a shape: its plans, as far as they can be compiled here."""
    for plan in PLANS.get(shape, ()):
        try:
            yield prepared(plan, data)
        except Exception as error:  # an older Triton, another GPU: that costs speed, not the shape
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"{shape}: a plan does not run here: {said}", file=sys.stderr)


def fastest(shape, data):
    """Of the functions that serve a shape the fastest with cold caches that gives the first's C, or None.

    This runs once, inside the first call of the shape, which is checked and not timed.
    """
    best, best_ms, expected = None, float("inf"), None
    started = time.perf_counter()
    for run in usable(shape, data):
        c = run(data)
        expected = c if expected is None else expected
        if torch.equal(c, expected) and (ms := cold_ms(run, data)) < best_ms:
            best, best_ms = run, ms
        if time.perf_counter() - started > SECONDS_PER_SHAPE:
            break
    return best


def cold_ms(run, data):
    """Median time of a call whose tensors are in no cache, in milliseconds."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=data[0].device)
    times = []
    for _ in range(REPEATS):
        flush.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run(data)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[REPEATS // 2]


class AiterGemm:
    """aiter's prebuilt GEMM with a Triton kernel's face; which kernel, aiter's table says, asked once per shape."""

    arg_names = ("a_q", "b_shuffle", "a_scale_sh", "b_scale_sh", "c")

    def warmup(self, *operands, grid):
        """Look the shape up; without an entry aiter decides by itself."""
        import aiter
        from aiter.ops.gemm_op_a4w4 import get_GEMM_config

        config = get_GEMM_config(*grid) or {"kernelName": ""}
        prebuilt = "_ZN" in config["kernelName"]  # other names are not prebuilt kernels
        name, splits = (config["kernelName"], config["splitK"] or 0) if prebuilt else ("", 0)

        def launch(a_q, b_shuffle, a_scale_sh, b_scale_sh, c):
            aiter.gemm_a4w4_asm(
                a_q.view(aiter.dtypes.fp4x2), b_shuffle.view(aiter.dtypes.fp4x2),
                a_scale_sh.view(aiter.dtypes.fp8_e8m0), b_scale_sh.view(aiter.dtypes.fp8_e8m0),
                c, name, bpreshuffle=True, log2_k_split=splits,
            )  # fmt: skip

        return {grid: launch}


gemm_a4w4_asm = AiterGemm()


class Absent:
    """Stands for what this Triton lacks: kernels written with it cannot be launched, the file can be imported."""

    def __init__(self, error):
        self._error = error

    def __getattr__(self, name):
        return self

    def __call__(self, *_, **__):
        return self

    def warmup(self, *_, **__):
        raise self._error

    arg_names = ()
