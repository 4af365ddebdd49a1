"""What every gfx950 variant did on the task's ten shapes before the house was rebuilt: `python -m tests.golden [only]`.

`tests/data/golden_plans.json` holds, by variant and shape, the first 16 hex digits of sha256 over C's bytes, the counts
of one workgroup of every launch, and lane instructions of the whole. C's bits must never move; counts may where a
kernel is edited, and the difference is printed to be looked at.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch

from mxfp4lab import task
from mxfp4lab.emulate import count_plan, emulate_plan
from mxfp4lab.gfx950 import compile_plan
from mxfp4lab.plan import build_plan
from mxfp4lab.shapes import parse_shape, task_seed

FILE = Path(__file__).parent / "data" / "golden_plans.json"
GOLDEN = json.loads(FILE.read_text())


def measure(name: str) -> dict:
    """What a "variant shape" does today."""
    variant, text = name.split()
    shape = parse_shape(text)
    data = task.input_dict(shape, task_seed(shape))
    compiled = compile_plan(build_plan(variant, None, shape))
    done = emulate_plan(compiled, data)
    digest = hashlib.sha256(done.c.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
    return {
        "c": digest,
        "findings": [str(finding) for finding in done.findings],
        "lane_instructions": done.lane_instructions,
        "counts": count_plan(compiled).to_dict(),
    }


def differences(was: object, now: object, path: str = "") -> list[str]:
    """Leaves that differ, as "path: was -> now"."""
    if isinstance(was, dict) and isinstance(now, dict):
        return [
            line for key in sorted({*was, *now}) for line in differences(was.get(key), now.get(key), f"{path}.{key}")
        ]
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [
            line for i, pair in enumerate(zip(was, now, strict=True)) for line in differences(*pair, f"{path}[{i}]")
        ]
    return [] if was == now else [f"{path[1:]}: {was} -> {now}"]


if __name__ == "__main__":
    wrong = 0
    for name, was in GOLDEN.items():
        if len(sys.argv) < 2 or sys.argv[1] in name:
            now = json.loads(json.dumps(measure(name), default=str))
            lines = differences(was, now)
            wrong += was["c"] != now["c"]
            print(name, "same" if not lines else "; ".join(lines), flush=True)
    sys.exit(1 if wrong else 0)
