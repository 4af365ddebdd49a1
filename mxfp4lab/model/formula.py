"""The time formula: features of each launch and a handful of parameters in, named terms in microseconds out.

    time = floor + sum over launches (second launch, body, spills, partials)
    body = the longest of  sqrt(issue^2 + read^2)                  of a CU with all its workgroups,
                           rounds (waits + sqrt(issue^2 + rest^2))  of one workgroup alone; rest: read beyond the waits,
                           lds                                      of a CU: hidden unless it alone decides

`issue` is what the busiest SIMD has to issue: 4 cycles a VALU instruction, 16 or 32 an FP4 MFMA, for every wave that
it works through. `read` is the time to bring the operands in: what one CU can pull (a rate, fitted; it stands for
memory latency over the bytes that a CU keeps in flight) or what the chip can deliver to this many workgroups,
whichever is longer. They overlap: the root of the squares lies between full overlap (the larger) and none (the sum).
`waits` are the round trips that the machine code itself does not cover: operands arrive, the workgroup issues nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from mxfp4lab.model import hardware as hw
from mxfp4lab.model.features import LaunchFeatures

REGIMES = ("harness", "device")

TERM_NAMES = (
    "launch floor",
    "VALU issue",
    "MFMA issue",
    "shared SIMD",
    "tail",
    "LDS",
    "operand reads",
    "memory bandwidth",
    "memory latency",
    "spills",
    "quantize launch",
    "second launch",
    "reduce",
    "partials",
    "split-K inside",
)

# Neighbouring scratch accesses overlap: twice as many cost 2^0.8 times as much. Fixed; the published spills (2 to 116
# registers) lie between 0.7 and 1.
SPILL_POWER = 0.8


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is fitted.

    Attributes:
        launch_floor_us: an event pair around a launch that does nothing (harness).
        second_launch_us: end of one launch to the first useful instruction of the next (harness).
        issue_factor: issue time over `4 VALU + 16 or 32 MFMA` cycles; at least 1.
        sharing: what each further wave on a SIMD adds, in units of its own issue time; 0 hidden, 1 serial.
        read_us_per_mb: time a CU needs to pull 1e6 bytes from cold memory (harness).
        wait_us: one memory round trip that nothing covers.
        spill_us: one scratch access of a wave with one spilled register.
        device_floor_us: profiler's time of a kernel with nothing to do (device).
        device_read_us_per_mb: as read_us_per_mb, in the profiler's loop over rotating inputs (device).
        device_resident_mb: operands that stay in L2 between that loop's rotations (device).
    """

    launch_floor_us: float
    second_launch_us: float
    issue_factor: float
    sharing: float
    read_us_per_mb: float
    wait_us: float
    spill_us: float
    device_floor_us: float
    device_read_us_per_mb: float
    device_resident_mb: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls))


def _from_memory(f: LaunchFeatures, p: Parameters, regime: str) -> float:
    """Fraction of the operand bytes that L2 does not already hold: 1 in the harness, which overwrites every cache."""
    if regime == "harness":
        return 1.0
    ratio = (f.unique_mb / p.device_resident_mb) ** 2
    return ratio / (1.0 + ratio)


def launch_terms(f: LaunchFeatures, p: Parameters, regime: str) -> dict[str, float]:
    """Terms of one launch in microseconds, without floors: their sum is the launch's own time."""
    wave = p.issue_factor * (f.valu_us + f.mfma_us)
    shared = wave * p.sharing * (f.waves_per_simd_mean - 1.0)
    tail = wave * p.sharing * (f.waves_per_simd - f.waves_per_simd_mean)
    issue = wave + shared + tail

    memory = _from_memory(f, p, regime)
    rate = p.read_us_per_mb if regime == "harness" else p.device_read_us_per_mb
    # Workgroups that run together miss together; only later ones find in L2 what others brought there. A CU holds 8 at
    # most (8 waves a SIMD, 4 waves each), and fewer at a time shall not look better.
    together = -(-f.workgroups_per_cu // hw.MAX_WAVES_PER_SIMD)
    first_time = memory * max(1.0 / together, min(1.0, f.fabric_mb / max(f.read_mb_all, 1e-12)))
    from_l2 = f.read_mb * 1e6 / hw.L1_BYTES_PER_CYCLE / hw.CLOCK_HZ * 1e6
    pulled = rate * first_time * f.read_mb + from_l2 * (1.0 - first_time)
    delivered = memory * max(
        f.unique_mb * 1e6 / (hw.HBM_BYTES_PER_S * f.share) * 1e6,
        f.fabric_mb * 1e6 / hw.FABRIC_BYTES_PER_S * 1e6,
    )
    read = max(pulled, delivered)

    # One workgroup cannot be faster than its own chain of waits and issue; a CU not than all that it has to issue and
    # read. Workgroups that a CU holds together fill each other's waits.
    waits = p.wait_us * f.waits * memory
    alone = wave * (1.0 + p.sharing * (f.workgroup_waves_per_simd - 1.0))
    rest = max(read / f.workgroups_per_cu - waits, 0.0)
    chain = f.rounds * (waits + math.hypot(alone, rest))
    body = max(chain, math.hypot(issue, read))
    lds = max(f.lds_us - body, 0.0)
    latency = min(waits * f.rounds, body - issue)
    operands = body - issue - latency

    written = f.write_mb * 1e6 / (hw.HBM_BYTES_PER_S * f.share) * 1e6
    spills = p.spill_us * f.spill**SPILL_POWER * f.rounds
    spills += f.spill_overflow_mb * 1e6 / hw.HBM_BYTES_PER_S * 1e6
    return {
        "VALU issue": p.issue_factor * f.valu_us,
        "MFMA issue": p.issue_factor * f.mfma_us,
        "shared SIMD": shared,
        "tail": tail,
        "LDS": lds,
        "operand reads": operands if pulled >= delivered else 0.0,
        "memory bandwidth": 0.0 if pulled >= delivered else operands,
        "memory latency": latency,
        "spills": spills,
        "partials": written,
    }


def plan_terms(features: Sequence[LaunchFeatures], inside: bool, p: Parameters, regime: str) -> dict[str, float]:
    """Terms of a whole plan in microseconds; every name of TERM_NAMES is present, the sum is the prediction.

    Args:
        features: one per launch, in launch order.
        inside: split-K partials are summed inside the main launch.
        p: the model's parameters.
        regime: `"harness"` (events around the call, cold caches) or `"device"` (profiler, kernels alone).
    """
    total = dict.fromkeys(TERM_NAMES, 0.0)
    if regime == "harness":
        total["launch floor"] = p.launch_floor_us
        total["second launch"] = p.second_launch_us * (len(features) - 1)
    else:
        total["launch floor"] = p.device_floor_us * len(features)
    for f in features:
        terms = launch_terms(f, p, regime)
        if f.role == "main":
            for name, value in terms.items():
                total[name] += value
        else:
            whole = "quantize launch" if f.role == "before" else "reduce"
            total["partials"] += terms.pop("partials")
            total[whole] += sum(terms.values())
    if inside:
        # Write through to memory, a device-wide atomic, read back: no published row can be fitted. The two public
        # attempts on 16x2112x7168 were slower than a second launch (fp32 atomics 17.7 us, locks 26.8 us, against
        # 13.5 us), so it is priced like one with two round trips: no gain is promised before it is measured.
        main = next(f for f in features if f.role == "main")
        read_back = main.write_mb * 1e6 / (hw.HBM_BYTES_PER_S * main.share) * 1e6
        total["split-K inside"] = p.second_launch_us + 2.0 * p.wait_us + read_back
    return total
