"""Limits that a submission's process puts on itself before it loads the submission.

Linux Landlock (5.13 and later, no privileges needed) takes away writing outside a scratch folder, and, where the
kernel is new enough, TCP and signals to other processes. `apart` does the like by namespaces. It is no sandbox against
malice: reading files stays possible.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_PR_SET_NO_NEW_PRIVS = 38
_RULE_PATH_BENEATH = 1

# linux/landlock.h: rights that change a file system, by the interface version that brought them
_WRITE_FILE = 1 << 1
_WRITES_V1 = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))  # remove_dir, remove_file, make_* of seven kinds
_REFER_V2 = 1 << 13
_TRUNCATE_V3 = 1 << 14
_NET_TCP_V4 = 0b11  # bind, connect
_SCOPES_V6 = 0b11  # abstract unix sockets, signals


def limit_resources(data_bytes: int | None) -> None:
    """No core files, bounded files, and bounded private memory (the kernel's RLIMIT_DATA).

    Args:
        data_bytes: bound on private writable memory; None leaves it alone (a GPU runtime maps far more than it uses).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, 4 << 30)
    if data_bytes is not None:
        _lower(resource.RLIMIT_DATA, data_bytes)


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def landlock_version() -> int:
    """The version of Landlock's interface; 0 where the kernel has none."""
    if not sys.platform.startswith("linux"):
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def forbid_writes(writable: list[str], devices: list[str], network: bool) -> str:
    """Take away writing anywhere but below some folders, for this process and all it starts, for good.

    Args:
        writable: folders below which everything stays allowed.
        devices: folders whose existing files may be written (GPU device files).
        network: keep TCP.

    Returns:
        What is confined, in words; "" where this kernel cannot confine.
    """
    version = landlock_version()
    if not version:
        return ""
    libc = ctypes.CDLL(None, use_errno=True)
    files = _WRITES_V1 | (_REFER_V2 if version >= 2 else 0) | (_TRUNCATE_V3 if version >= 3 else 0)
    net = _NET_TCP_V4 if version >= 4 and not network else 0
    scopes = _SCOPES_V6 if version >= 6 else 0
    attributes = struct.pack("<QQQ", files, net, scopes)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        return ""
    try:
        for path in writable:
            _allow(libc, ruleset, path, files)
        for path in devices:
            _allow(libc, ruleset, path, _WRITE_FILE | (_TRUNCATE_V3 if version >= 3 else 0))
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)):
            return ""
    finally:
        os.close(ruleset)
    return (
        "Landlock: no writes outside its folder"
        + (", no TCP" if net else "")
        + (", no signals to others" if scopes else "")
    )


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    with contextlib.suppress(OSError):  # a folder that does not exist needs no permission
        descriptor = os.open(path, os.O_PATH)
        rule = struct.pack("<Qi", rights, descriptor)
        libc.syscall(_ADD_RULE, ruleset, ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint32(0))
        os.close(descriptor)
