"""The plan: which kernels run on which buffers, with which grid and constants. Pure data, nothing is compiled or run.

One plan is compiled, emulated, executed, timed, predicted and exported by rooms that do not know each other. Only this
package knows what a variant is made of.
"""

from mxfp4lab.config import VARIANTS, Variant
from mxfp4lab.plan.data import TORCH_NAMES, Buffer, CodeObjectLaunch, Plan, Ref, TritonLaunch
from mxfp4lab.plan.known import KnownConfig, known_configs
from mxfp4lab.plan.launches import quantize_launch
from mxfp4lab.plan.variants import COOPERATIVE_TILES, build_plan, default_config, serves, smallest_part

__all__ = [
    "COOPERATIVE_TILES",
    "TORCH_NAMES",
    "VARIANTS",
    "Buffer",
    "CodeObjectLaunch",
    "KnownConfig",
    "Plan",
    "Ref",
    "TritonLaunch",
    "Variant",
    "build_plan",
    "default_config",
    "known_configs",
    "quantize_launch",
    "serves",
    "smallest_part",
]
