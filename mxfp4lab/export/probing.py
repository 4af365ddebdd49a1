"""What a probe does on the box: `probe` copies it into the file beside the plans that it times.

Every line is `mxfp4lab-probe {JSON} CHECKSUM`; the checksums of later lines begin at the header's, so that lines of
another report, torn and edited ones are told from its own.
"""

import json
import os
import time
import zlib

import torch
import triton

from mxfp4lab.export.launcher import prepared
from mxfp4lab.kernels.null import null_kernel

PROBE: dict = {}
"""id, seed, seconds and knobs of a probe; a file has its own."""

PROBED: dict = {}
"""(M, N, K) -> list of (config_id, kernel_hash, and then a plan); a file has its own."""

REPEATS = 30
OVERWRITE_BYTES = 2 << 30  # past every cache, and long enough to hide the host's part of a call


def told(content, checksum=0):
    """Print one line of the report, at once; its checksum."""
    text = json.dumps(content, separators=(",", ":"))
    checksum = zlib.crc32(text.encode(), checksum)
    print(f"mxfp4lab-probe {text} {checksum:08x}", flush=True)
    return checksum


def probe():
    """Time every plan of `PROBED` with cold caches, one pair of events a call, and check its C; a line for each."""
    from reference import generate_input, ref_kernel

    started = time.perf_counter()
    card = torch.cuda.get_device_properties(0)
    arch = getattr(card, "gcnArchName", f"sm_{card.major}{card.minor}").split(":")[0]
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    versions |= {"rocm": torch.version.hip} if torch.version.hip else {"cuda": torch.version.cuda}
    knobs = {name: os.environ.get(name, value) for name, value in PROBE["knobs"].items()}
    head = {"probe": PROBE["id"], "device": card.name, "arch": arch, **versions, "knobs": knobs, "seed": PROBE["seed"],
            "overwrite": OVERWRITE_BYTES, "configs": sum(map(len, PROBED.values())),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}  # fmt: skip
    checksum = told(head)
    overwrite = torch.empty(OVERWRITE_BYTES // 4, dtype=torch.float32, device="cuda")
    for (m, n, k), rows in PROBED.items():
        data = generate_input(m=m, n=n, k=k, seed=PROBE["seed"])
        expected = ref_kernel(data)
        for config_id, kernel_hash, *plan in rows:
            if time.perf_counter() - started > PROBE["seconds"]:
                return
            line = {"config": config_id, "kernel": kernel_hash, "shape": f"{m}x{n}x{k}"}
            try:
                line |= judged(prepared(plan, data), plan, data, expected, overwrite)
            except Exception as error:  # a plan that this toolchain cannot build is a row
                line["failed"] = f"{type(error).__name__}: {error}".splitlines()[0][:48]
            told(line, checksum)


def judged(run, plan, data, expected, overwrite):
    """Share of C's bf16 equal to the reference's, whether the task accepts it, and times: p20, p50, p80 in us."""
    c = run(data)
    same = round(float((c == expected).float().mean()), 6)
    if bool((torch.abs(c - expected) > 1e-2 + 1e-2 * torch.abs(expected)).any()):
        return {"same": same, "failed": "C is wrong"}
    times = {"own": [], "null": []}
    calls = {"own": lambda: run(data), "null": lambda: null_kernel[(1,)](c)}
    calls["null"]()
    for _ in range(REPEATS):
        for name, call in calls.items():
            overwrite.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) * 1e3)
        if len({*times["own"], *times["null"]}) == 1 and len(times["own"]) == 2:
            # A clock that stands still is an emulator's: counts, and no times.
            workgroups = sum(launch[1][0] * (*launch[1], 1, 1)[1] * (*launch[1], 1, 1)[2] for launch in plan[2:])
            return {"same": same, "counts": {"launches": len(plan) - 2, "workgroups": workgroups}}
    own, null = sorted(times["own"]), sorted(times["null"])
    spread = [round(own[int(REPEATS * share)], 2) for share in (0.2, 0.5, 0.8)]
    return {"same": same, "us": spread, "n": REPEATS, "null": round(null[REPEATS // 2], 2)}
