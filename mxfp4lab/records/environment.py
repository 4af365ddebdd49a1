"""What a run stood on: versions, git state, and the environment variables that change results."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from mxfp4lab.paths import REPO_ROOT

_PREFIXES = ("TRITON_", "AMDGCN_", "HIP_", "HSA_", "ROCR_", "CUDA_", "PYTORCH_", "MXFP4LAB_", "LLVM_")
_NAMES = ("OPTIMIZE_EPILOGUE", "POPCORN_SEED", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "API_KEY")
_PACKAGES = (
    *("torch", "triton", "pytorch-triton-rocm", "amd-aiter", "numpy", "pandas", "matplotlib"),
    *("papermill", "ipykernel", "ray"),
)


def environment(device: str = "", knobs: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Everything about this process and machine that a reader of the records may ask for, as plain JSON values.

    It takes milliseconds: torch and triton are not imported for it.

    Args:
        device: name of the GPU that the run measures on; ``""`` where it has none.
        knobs: the toolchain's knobs as the run sees them, defaults included (`gfx950.current_knobs`).
    """
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    kept = [name for name in sorted(os.environ) if name.startswith(_PREFIXES) or name in _NAMES]
    torch_version = getattr(sys.modules.get("torch"), "version", None)
    rocm = Path("/opt/rocm/.info/version")
    return {
        "device": device,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "packages": packages,
        "rocm_version": rocm.read_text(errors="replace").strip() if rocm.is_file() else None,
        "cuda_version": getattr(torch_version, "cuda", None),
        "hip_version": getattr(torch_version, "hip", None),
        "knobs": dict(knobs or {}),
        "variables": {name: os.environ[name] for name in kept if not any(word in name.upper() for word in _SECRET)},
        "git": git_state(),
    }


def git_state(folder: Path = REPO_ROOT) -> dict[str, Any] | None:
    """Commit, branch and whether tracked files differ, of the repository that holds the package; None outside one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD"), "dirty": bool(changed)}


def _git(folder: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
