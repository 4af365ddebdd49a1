"""The axes of the search, and the one statement of which settings are valid.

A `GemmConfig` says how a variant is run on a shape; the variant says what is run. Nothing here compiles: what only the
compiler can tell (LDS, registers, spills) is judged after compilation.
"""

from mxfp4lab.config.gemm import CHOICES, CONFIG_SCHEMA, DEFAULTS, SPLITS, GemmConfig
from mxfp4lab.config.rules import config_errors
from mxfp4lab.config.traits import (
    VARIANT_TRAITS,
    VariantTraits,
    effective_split,
    is_power_of_two,
    needed_offset_bits,
    resolved_a_mode,
    resolved_scale_load,
    resolved_specialize,
    runs_on,
)

__all__ = [
    "CHOICES",
    "CONFIG_SCHEMA",
    "DEFAULTS",
    "SPLITS",
    "VARIANT_TRAITS",
    "GemmConfig",
    "VariantTraits",
    "config_errors",
    "effective_split",
    "is_power_of_two",
    "needed_offset_bits",
    "resolved_a_mode",
    "resolved_scale_load",
    "resolved_specialize",
    "runs_on",
]
