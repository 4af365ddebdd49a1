"""The kernel that runs a notebook: which cells ran, and whether a person is watching."""

from __future__ import annotations

import os
import sys
from typing import Any


def ipython() -> Any:
    """The running IPython shell, or None in a plain interpreter."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def cell_history() -> list[str]:
    """Sources of the cells that ran in this kernel, oldest first; empty in a plain interpreter."""
    return list(getattr(getattr(ipython(), "history_manager", None), "input_hist_raw", []))


def is_live() -> bool:
    """True where a front end shows a cell's output while it runs.

    JupyterLab sends bookkeeping of its own (``deletedCells``) with every cell; papermill and nbconvert do not.
    ``MXFP4LAB_LIVE`` = 0 or 1 overrules it.
    """
    said = os.environ.get("MXFP4LAB_LIVE", "")
    if said in ("0", "1"):
        return said == "1"
    kernel = getattr(ipython(), "kernel", None)
    if kernel is None:
        return False
    try:
        metadata = kernel.get_parent("shell").get("metadata", {})
    except Exception:  # another kernel than ipykernel, or none of its messages yet
        return False
    return "deletedCells" in metadata
