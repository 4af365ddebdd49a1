"""mxfp4lab: a workbook to understand, prove, tune and export MXFP4 GEMMs for AMD MI355X (gfx950).

The names that people type are found here, each imported when it is asked for: nothing heavy is loaded before.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"

_WHERE = {
    "Shape": "shapes", "parse_shape": "shapes",
    "quantize_mxfp4": "formats", "dequantize_mxfp4": "formats",
    "e8m0_shuffle": "layouts", "shuffle_weight": "layouts",
    "generate_input": "task", "reference_output": "task", "check_output": "task",
    "GemmConfig": "config", "build_plan": "plan", "default_config": "plan",
    "compile_plan": "gfx950", "emulate_plan": "emulate", "count_plan": "emulate", "predict": "model",
    "tune_shape": "tune", "check_submission": "check", "export_submission": "export",
}  # fmt: skip
__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    """Import the room of a public name."""
    if name not in _WHERE:
        raise AttributeError(f"module 'mxfp4lab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mxfp4lab.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
