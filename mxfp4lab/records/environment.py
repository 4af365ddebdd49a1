"""What a run stood on: versions, git state, and the environment variables that change results.

Everything here is read without importing torch or triton, so that it costs milliseconds.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

_RECORDED_PREFIXES = ("TRITON_", "AMDGCN_", "HIP_", "HSA_", "ROCR_", "CUDA_", "PYTORCH_", "MXFP4LAB_", "LLVM_")
_RECORDED_NAMES = ("OPTIMIZE_EPILOGUE", "POPCORN_SEED", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_PACKAGES = (
    "torch",
    "triton",
    "pytorch-triton-rocm",
    "numpy",
    "pandas",
    "matplotlib",
    "amd-aiter",
    "papermill",
    "ipykernel",
    "ray",
)


def environment(device: str = "", knobs: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Everything about this process and machine that a reader of the records may ask for, as plain JSON values.

    Args:
        device: name of the GPU that the run measures on; ``""`` where it has none.
        knobs: the toolchain's knobs as the run sees them, defaults included (`toolchain.current_knobs`).
    """
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if (name.startswith(_RECORDED_PREFIXES) or name in _RECORDED_NAMES) and not _looks_secret(name)
    }
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "device": device,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "packages": packages,
        "rocm_version": _first_line("/opt/rocm/.info/version"),
        "cuda_version": _loaded_torch("cuda"),
        "hip_version": _loaded_torch("hip"),
        "knobs": dict(knobs or {}),
        "variables": variables,
        "git": git_state(),
    }


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """Commit, branch and whether tracked files differ, of the repository that holds the package; None outside one."""
    folder = folder or Path(__file__).resolve().parents[2]
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "dirty": bool(changed),
    }


def _git(folder: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _loaded_torch(attribute: str) -> str | None:
    """A version out of torch.version, only where torch is loaded anyway: importing it costs seconds."""
    torch = sys.modules.get("torch")
    version = getattr(getattr(torch, "version", None), attribute, None)
    return None if version is None else str(version)


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.readline().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _looks_secret(name: str) -> bool:
    return any(word in name.upper() for word in ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "API_KEY"))
