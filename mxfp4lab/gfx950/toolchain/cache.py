"""Compiled kernels on disk: one file per key, safe against other versions, torn writes, foreign files, full disks.

A file is a digest, one line of JSON, the assembly text and the code object. Nothing in it is executed or unpickled.
What does not check out in every respect is treated as absent, and the kernel is compiled again. A cache that cannot
be written is said once, and work goes on.
"""

from __future__ import annotations

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

FORMAT = 2
MAX_ENTRY_BYTES = 256 << 20
_warned: set[str] = set()


def cache_folder() -> Path:
    """Where entries live: $MXFP4LAB_CACHE, else ~/.cache/mxfp4lab (below it, `compile/`)."""
    root = os.environ.get("MXFP4LAB_CACHE")
    return (Path(root) if root else Path("~/.cache/mxfp4lab").expanduser()) / "compile"


def entry_path(key: str) -> Path:
    """File of a key (64 hex digits), in one of 256 folders."""
    return cache_folder() / key[:2] / f"{key}.kernel"


def load(key: str) -> Compiled | CompileError | None:
    """The kernel stored under `key`, the error with which it refused to compile, or None if there is no sound entry."""
    try:
        path = entry_path(key)
        if not path.is_file():  # nor a pipe, which would hold us up
            return None
        with open(path, "rb") as file:
            data = file.read(MAX_ENTRY_BYTES + 1)
    except OSError:
        return None
    return decode_entry(data, key)


def decode_entry(data: bytes, key: str) -> Compiled | CompileError | None:
    """Read an entry; None unless digest, format, key and the type of every field are as `encode_entry` writes them."""
    digest, _, body = data.partition(b"\n")
    if digest.decode("ascii", "replace") != hashlib.sha256(body).hexdigest():
        return None
    line, _, payload = body.partition(b"\n")
    try:
        header = json.loads(line)
        if header["format"] != FORMAT or header["key"] != key:
            return None
        if "error" in header:
            return CompileError(str(header["error"]), str(header["kind"]), payload.decode("utf-8", "replace"))
        asm_bytes = int(header["asm_bytes"])
        fields = header["fields"]
        compiled = Compiled(
            name=str(fields["name"]), arch=str(fields["arch"]),
            asm=payload[:asm_bytes].decode("utf-8"), binary=payload[asm_bytes:],
            signature=tuple((str(name), str(kind)) for name, kind in fields["signature"]),
            constants=_text_map(fields["constants"]), num_warps=int(fields["num_warps"]),
            lds_bytes=int(fields["lds_bytes"]), kernel_hash=str(fields["kernel_hash"]),
            toolchain=_text_map(fields["toolchain"]), knobs=_text_map(fields["knobs"]),
            compile_s=float(fields["compile_s"]), metadata=dict(fields["metadata"]), from_cache=True,
        )  # fmt: skip
        if header.get("analysis_version") == analysis_version():
            compiled.analysis = dict(header["analysis"])
        return compiled
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def encode_entry(result: Compiled | CompileError, key: str) -> bytes:
    """One entry: the digest of what follows, a JSON line, the assembly, the code object."""
    header: dict[str, Any] = {"format": FORMAT, "key": key}
    if isinstance(result, CompileError):
        payload = result.detail.encode("utf-8")
        header.update(error=str(result), kind=result.kind)
    else:
        asm = result.asm.encode("utf-8")
        payload = asm + result.binary
        names = ("name", "arch", "signature", "constants", "num_warps", "lds_bytes", "kernel_hash", "toolchain",
                 "knobs", "compile_s", "metadata")  # fmt: skip
        header.update(asm_bytes=len(asm), fields={name: getattr(result, name) for name in names},
                      analysis_version=analysis_version(), analysis=result._analysed())  # fmt: skip
    body = json.dumps(header, sort_keys=True).encode() + b"\n" + payload
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def store(result: Compiled | CompileError, key: str) -> bool:
    """Write an entry under a temporary name, then rename it. Errors that might not repeat are not stored.

    Returns:
        Whether the entry is on disk now; a failure is warned of once per reason.
    """
    if isinstance(result, CompileError) and result.kind not in REPEATABLE_KINDS:
        return False
    path = entry_path(key)
    temporary = None
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


def _text_map(value: Any) -> dict[str, str]:
    return {str(name): str(item) for name, item in value.items()}
