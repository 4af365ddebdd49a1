"""Same request, same bytes: inputs, emulated memory, compiled code, records up to times, whatever runs beside."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mxfp4lab.config import GemmConfig
from mxfp4lab.emulate import count_plan, emulate_plan
from mxfp4lab.gfx950 import compile_plan
from mxfp4lab.gfx950.machine import runs
from mxfp4lab.plan import build_plan
from mxfp4lab.records import find_trial_files, read_trials
from mxfp4lab.shapes import Shape
from mxfp4lab.task import generate_input, input_dict, reference_output
from mxfp4lab.tune import tune_shape
from mxfp4lab.workers import compile_many

ROOT = Path(__file__).resolve().parents[1]
SHAPE = Shape(20, 96, 1408)
SPLIT = GemmConfig(block_m=16, block_n=64, block_k=128, split_k=4, convert="hw_bf16", reduce_block_m=8)
INSIDE = GemmConfig(block_m=16, block_n=32, block_k=128, num_warps=2, split_k=4, split_sum="inside", convert="hw_bf16")
PLANS = {"split": ("fused_rowmajor", SPLIT, SHAPE), "inside": ("sliced_preshuffled", INSIDE, Shape(16, 64, 1024))}


def digest(*tensors: torch.Tensor) -> str:
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def emulated(name: str) -> str:
    """Digest of C and of every workspace after a run."""
    variant, config, shape = PLANS[name]
    result = emulate_plan(build_plan(variant, config, shape), input_dict(shape, 5))
    return digest(result.c, *(result.buffers[key] for key in sorted(result.buffers)))


def test_inputs_and_reference_do_not_depend_on_threads() -> None:
    found = set()
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            data = generate_input(SHAPE, 5)
            found.add(digest(*data, reference_output(data)))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


@pytest.mark.parametrize("name", PLANS)
def test_emulated_memory_is_the_same_however_workgroups_are_dealt(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {emulated(name), emulated(name)}
    for waves in (1, 7, 10_000):
        monkeypatch.setattr(runs, "WAVES_PER_CHUNK", waves)
        found.add(emulated(name))
    assert len(found) == 1


def test_counts_are_the_same_twice() -> None:
    plan = build_plan("fused_rowmajor", SPLIT, SHAPE)
    assert count_plan(plan).to_dict() == count_plan(plan).to_dict()


def test_another_process_gives_the_same_bytes() -> None:
    code = ("from tests.test_determinism import emulated, digest, SHAPE, generate_input\n"
            "print(emulated('split'), digest(*generate_input(SHAPE, 5)))")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [emulated("split"), digest(*generate_input(SHAPE, 5))]


def test_what_is_computed_does_not_depend_on_who_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, and in workers of a pool, from nothing both times: one kernel hash, the same bytes of C.

    The code itself may differ: from equal IR, Triton 3.9's LLVM stage now and then hoists an address or picks another
    register (seen on this kernel, also between two compilations of one process). The cache keeps the first.
    """
    plan = build_plan("fused_rowmajor", SPLIT, SHAPE)
    seen = []
    for name, workers in (("here", None), ("pool", 2)):
        monkeypatch.setenv("MXFP4LAB_CACHE", str(tmp_path / name))
        if workers is None:
            compiled = compile_plan(plan)
        else:
            (result,) = compile_many([plan], workers)
            compiled = result.compiled
        assert not any(kernel.from_cache for kernel in compiled.kernels)
        hashes = [kernel.kernel_hash for kernel in compiled.kernels]
        seen.append((hashes, digest(emulate_plan(compiled, input_dict(SHAPE, 5)).c)))
    assert seen[0] == seen[1]


# What two runs of one request may differ in.
OF_THE_RUN = {"run_id", "started_at", "worker", "detail"}


def rows_of(folder: Path) -> list[str]:
    """Every row of the records below a folder, without times and names of the run, in a fixed order."""
    rows = []
    for path in find_trial_files(folder):
        trials, warnings = read_trials(path)
        assert warnings == []
        for trial in trials:
            row: dict[str, Any] = {key: value for key, value in trial.to_dict().items() if key not in OF_THE_RUN}
            rows.append(json.dumps(row, sort_keys=True))
    return sorted(rows)


def test_a_search_records_the_same_rows_with_one_worker_and_with_two(tmp_path: Path) -> None:
    shape, picks = Shape(8, 96, 512), []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        result = tune_shape(shape, variants=["fused_rowmajor"], budget=3, backend="emulator", workers=workers,
                      verify=1, out=out)  # fmt: skip
        picks.append((result.pick.variant, result.pick.config, result.pick.predicted_us))
    assert picks[0] == picks[1]
    first, second = rows_of(tmp_path / "1"), rows_of(tmp_path / "2")
    assert len(first) >= 3 and first == second
