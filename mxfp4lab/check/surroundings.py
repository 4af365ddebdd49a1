"""What a submission's process finds around it: a scratch folder, no secrets, no way to import the lab.

The environment carries a mark, by which its processes are found again wherever they went.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mxfp4lab import hardware
from mxfp4lab.paths import REPO_ROOT

_CHILD = Path(__file__).parent / "child"
_MARKER = "MXFP4LAB_CHECK_ID"
_KEPT_ENVIRONMENT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    "TORCH_NUM_THREADS",
)
_KEPT_PREFIXES = ("TRITON_", "AMDGCN_", "HIP_", "ROCM_", "ROCR_", "HSA_", "CUDA_", "NVIDIA_", "PYTORCH_", "AITER_")
_SECRET_WORDS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL")


@contextlib.contextmanager
def scratch_writes() -> Iterator[None]:
    """Around what lays out the scratch folder: one sentence where the disk is full.

    Raises:
        ValueError: naming the folder and what to do.
    """
    try:
        yield
    except OSError as error:  # copytree gathers its errors in a list of its own
        reason = error.strerror
        if reason is None:
            number = re.search(r"\[Errno (\d+)\]", str(error))
            reason = os.strerror(int(number[1])) if number else str(error)
        where = tempfile.gettempdir() if tempfile.tempdir else "no folder for temporary files"
        said = f"the check's scratch folder cannot be written ({where}: {reason}); let TMPDIR name another folder"
        raise ValueError(said) from None


def lay_out(folder: Path, source: bytes, *, gpu: bool) -> None:
    """The scratch folder: the task's modules with the file, what runs it, and the folder that it may write."""
    task, harness = folder / "task", folder / "harness"
    ignored = shutil.ignore_patterns("__pycache__", "aiter") if gpu else shutil.ignore_patterns("__pycache__")
    shutil.copytree(_CHILD / "task_files", task, ignore=ignored)
    shutil.copytree(_CHILD, harness / "harness_child", ignore=shutil.ignore_patterns("__pycache__", "task_files"))
    if not gpu:
        (task / "aiter" / "tuned.json").write_text(json.dumps(_tuned_rows()))
    (folder / "work" / "tmp").mkdir(parents=True)
    (task / "submission.py").write_bytes(source)
    (harness / "start.py").write_text(
        "import json, sys\nconfig = json.loads(sys.argv[1])\nsys.argv = ['submission.py']\n"
        "sys.path[:] = config['path']\nfrom harness_child import supervise\n"
        "if __name__ == '__main__':\n    supervise.main(config)\n"
    )


def _tuned_rows() -> list[list[object]]:
    """[M, N, K, kernel, split] of an installed aiter's table where it names a prebuilt code object; [] without one."""
    from mxfp4lab.aiter.gemm import tuned_rows
    from mxfp4lab.aiter.install import AiterError, find_aiter

    try:
        rows = tuned_rows(find_aiter())
    except AiterError:
        return []
    return [[*key[1:], row["kernelName"], int(row["splitK"] or 0)] for key, row in rows.items()
            if key[0] == hardware.COMPUTE_UNITS and row["kernelName"].startswith("_ZN")]  # fmt: skip


def clean_environment(work: Path, mark: str) -> dict[str, str]:
    """Variables without secrets, every cache in the folder that it may write, and the mark of this check."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in _KEPT_ENVIRONMENT or name.startswith(_KEPT_PREFIXES)) and not any(w in name for w in _SECRET_WORDS)
    }
    kept |= {
        "HOME": str(work),
        "TMPDIR": str(work / "tmp"),
        "XDG_CACHE_HOME": str(work / "cache"),
        _MARKER: mark,
        "TRITON_CACHE_DIR": str(work / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
    }
    kept.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    return kept


def import_path() -> list[str]:
    """This process's import path without the lab's checkout and the current folder.

    Where the lab is installed beside torch its folder stays: the submission's process refuses it by name.
    """
    away = {os.path.realpath(os.getcwd()), str(REPO_ROOT)}
    return [entry for entry in sys.path if entry and os.path.realpath(entry) not in away]


def bytes_below(folder: Path) -> int:
    """What files below a folder hold, as far as the first ten thousand tell."""
    total, seen, waiting = 0, 0, [folder]
    while waiting and seen < 10_000:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                else:
                    total += 512 * entry.stat(follow_symlinks=False).st_blocks
    return total


def marked_processes(mark: str) -> list[int]:
    """Processes whose environment carries the mark of this check."""
    wanted, found = f"{_MARKER}={mark}".encode(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{entry}/environ").read_bytes():
                    found.append(int(entry))
    return found
