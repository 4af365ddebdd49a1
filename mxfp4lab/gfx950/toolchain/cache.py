"""Compiled kernels on disk: one file per key, safe against other versions, torn writes, foreign files, full disks.

A file is a digest and a JSON object. Nothing in it is executed or unpickled.
What does not check out in every respect is treated as absent, and the kernel is compiled again. A cache that cannot
be written is said once, and work goes on.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950.toolchain.compiled import Compiled, analysis_version
from mxfp4lab.gfx950.toolchain.errors import REPEATABLE_KINDS, CompileError

FORMAT = 3
MAX_ENTRY_BYTES = 256 << 20
_warned: set[str] = set()


def cache_folder() -> Path:
    """Where entries live: $MXFP4LAB_CACHE, else ~/.cache/mxfp4lab (below it, `compile/`)."""
    return Path(os.environ.get("MXFP4LAB_CACHE") or Path("~/.cache/mxfp4lab").expanduser()) / "compile"


def entry_path(key: str) -> Path:
    """File of a key (64 hex digits), in one of 256 folders."""
    return cache_folder() / key[:2] / f"{key}.kernel"


def load(key: str) -> Compiled | CompileError | None:
    """The kernel stored under `key`, the error with which it refused to compile, or None if there is no sound entry."""
    path = entry_path(key)
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size <= MAX_ENTRY_BYTES:  # no pipe, which would hold us up
            return decode_entry(path.read_bytes(), key)
    return None


def decode_entry(data: bytes, key: str) -> Compiled | CompileError | None:
    """Read an entry; None unless digest, format and key are right and the fields are those of today's `Compiled`."""
    digest, _, body = data.partition(b"\n")
    if digest != hashlib.sha256(body).hexdigest().encode():
        return None
    try:
        entry = json.loads(body)
        if entry["format"] != FORMAT or entry["key"] != key:
            return None
        if "error" in entry:
            return CompileError(*map(str, entry["error"]))
        analysis = entry["kernel"].pop("analysis")
        found = Compiled(**entry["kernel"], from_cache=True)
        found.binary = base64.b64decode(found.binary)
        found.signature = tuple((str(name), str(kind)) for name, kind in found.signature)
        if entry["analysis_version"] == analysis_version():
            found.analysis = analysis
        return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def encode_entry(result: Compiled | CompileError, key: str) -> bytes:
    """One entry: the digest of what follows, and a JSON object."""
    entry: dict[str, Any] = {"format": FORMAT, "key": key}
    if isinstance(result, CompileError):
        entry["error"] = [str(result), result.kind, result.detail]
    else:
        binary = base64.b64encode(result.binary).decode()
        kernel = result.__getstate__() | {"binary": binary, "analysis": result.analysis}
        del kernel["from_cache"]
        entry |= {"analysis_version": analysis_version(), "kernel": kernel}
    body = json.dumps(entry, sort_keys=True).encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def store(result: Compiled | CompileError, key: str) -> bool:
    """Write an entry under a temporary name, then rename it. Errors that might not repeat are not stored.

    Returns:
        Whether the entry is on disk now; a failure is warned of once per reason.
    """
    if isinstance(result, CompileError) and result.kind not in REPEATABLE_KINDS:
        return False
    path, temporary = entry_path(key), None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".tmp", delete=False) as file:
            temporary = file.name
            file.write(encode_entry(result, key))
        os.replace(temporary, path)
        return True
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        reason = error.strerror or type(error).__name__
        if reason not in _warned:
            _warned.add(reason)
            warnings.warn(f"compile cache {cache_folder()} cannot be written ({reason}): kernels are compiled anew",
                          stacklevel=2)  # fmt: skip
        return False
