"""Linux namespaces: every file system read-only but the scratch folder, no network, no other process in sight.

For machines whose kernel has no Landlock, and beside it where it has. Root needs nothing; anybody else needs user
namespaces, which most kernels allow. A level that a machine refuses is tried in a throwaway process first, because
half of it could not be undone. Mount flags and calls: mount(2), mount_setattr(2), user_namespaces(7), capabilities(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_NEW_MOUNTS, _NEW_USER, _NEW_PIDS, _NEW_NETWORK = 0x20000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_NOATIME, _NODIRATIME, _RELATIME = 1024, 2048, 1 << 21
_OPTION_FLAGS = {
    "nosuid": _NOSUID, "nodev": _NODEV, "noexec": _NOEXEC, "noatime": _NOATIME, "nodiratime": _NODIRATIME,
    "relatime": _RELATIME,
}  # fmt: skip
_MOUNT_SETATTR = 442  # the same number on every architecture
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
# What root keeps: files of other owners stay readable, a GPU runtime may lock memory and set priorities.
_KEPT_BY_ROOT = (0, 1, 2, 3, 4, 5, 6, 7, 14, 15, 23)


@dataclass(frozen=True)
class Level:
    """Which namespaces a process gets beside its mounts.

    Attributes:
        user: a user namespace of its own, for who is not root.
        pids: it sees, and can signal, only what it started itself.
        network: none.
    """

    user: bool
    pids: bool
    network: bool

    def __str__(self) -> str:
        said = "read-only mounts: no writes outside its folder"
        return said + (", no network" if self.network else "") + (", no other process in sight" if self.pids else "")


@dataclass(frozen=True)
class Places:
    """Absolute paths: what stays writable, what must not be, what must stay readable, and where to work."""

    writable: tuple[str, ...]
    protected: tuple[str, ...]
    readable: tuple[str, ...]
    folder: str


def enter(places: Places, thorough: bool) -> Level | None:
    """Put this process into the strongest namespaces that the machine allows, and all it starts from here on.

    Where `pids` is set, that is true of the next child only, which must call `mount_proc`; the submission's own
    process must then give up its rights with `give_up_rights`.

    Args:
        places: see `Places`.
        thorough: also other processes and the network; without it only mounts change (all that a GPU driver notices).

    Returns:
        The level; None where the machine allows none, and nothing has changed.
    """
    if not sys.platform.startswith("linux"):
        return None
    wanted = ((True, True), (False, True), (False, False)) if thorough else ((False, False),)
    for user in (False, True) if os.geteuid() == 0 else (True,):
        for pids, network in wanted:
            level = Level(user, pids, network)
            if _holds(level, places):
                _unshare_and_mount(level, places)
                return level
    return None


def _holds(level: Level, places: Places) -> bool:
    """Does all of it work here? Tried in a process that ends afterwards."""

    def attempt() -> bool:
        _unshare_and_mount(level, places)
        return _ends_well(inside) if level.pids else inside()

    def inside() -> bool:
        if level.pids:
            mount_proc(places)
        give_up_rights(level)
        return _is_read_only(places)

    return _ends_well(attempt)


def _ends_well(function: Callable[[], bool]) -> bool:
    """Run in a child process; whether it answered True."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if function() else 1
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def _unshare_and_mount(level: Level, places: Places, attribute_call: bool = True) -> None:
    """New namespaces, and every mount read-only in them but those of the writable folders.

    Raises:
        OSError: if the kernel refuses.
    """
    libc, user, group = _libc(), os.geteuid(), os.getegid()
    flags = _NEW_MOUNTS | _NEW_USER * level.user | _NEW_PIDS * level.pids | _NEW_NETWORK * level.network
    _checked(libc.unshare(flags))
    if level.user:  # it stays who it is
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own /proc belongs to root
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount(libc, None, "/", _REC | _PRIVATE)  # nothing of what follows reaches the machine's own mounts
    for path in places.writable:
        _mount(libc, path, path, _BIND | _REC)
    if not (attribute_call and _set_read_only(libc, "/", True)):
        for path, options in _mounts():
            _remount(libc, path, options, _RDONLY)
    for path in places.writable:
        if not (attribute_call and _set_read_only(libc, path, False)):
            _remount(libc, path, dict(_mounts()).get(path, ()), 0)
    if "/proc" in places.writable:  # the machine's settings are no part of a driver's /proc/self
        with contextlib.suppress(OSError):
            _mount(libc, "/proc/sys", "/proc/sys", _BIND)
            _remount(libc, "/proc/sys", dict(_mounts()).get("/proc/sys", ()), _RDONLY)
    os.chdir(places.folder)  # by its path: the folder as it is mounted now


def mount_proc(places: Places) -> None:
    """A /proc of this process's own namespace; to be called as its first process.

    Raises:
        OSError: if the kernel refuses.
    """
    flags = _NOSUID | _NODEV | _NOEXEC | (0 if "/proc" in places.writable else _RDONLY)
    _mount(_libc(), "proc", "/proc", flags, kind="proc")


def give_up_rights(level: Level) -> None:
    """Keep this process, and all it starts, from changing mounts back; for good.

    Raises:
        OSError: if the kernel refuses.
    """
    libc, kept = _libc(), () if level.user else _KEPT_BY_ROOT
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        if capability not in kept:  # a number that the kernel does not know is refused: there is nothing to drop
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    words = [sum(1 << c for c in kept if c // 32 == word) for word in (0, 1)]
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    data = b"".join(struct.pack("<III", word, word, 0) for word in words)
    _checked(libc.capset(header, data))


def die_with_parent() -> None:
    """SIGKILL for this process as soon as the one that started it is gone; its own /proc stays readable."""
    if sys.platform.startswith("linux"):
        _libc().prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
        _libc().prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _is_read_only(places: Places) -> bool:
    """The writable folders can be written, nothing else can, and what is needed can be read."""
    if not os.statvfs("/").f_flag & os.ST_RDONLY:
        return False
    if any(os.access(path, os.W_OK) for path in places.protected):
        return False
    return os.access(places.folder, os.W_OK) and all(os.access(path, os.R_OK) for path in places.readable)


def _mounts() -> list[tuple[str, Sequence[str]]]:
    """(mount point, options) of every mount, as /proc/self/mountinfo lists them."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split()
            path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
            found.append((path, fields[5].split(",")))
    return found


def _set_read_only(libc: ctypes.CDLL, path: str, value: bool) -> bool:
    """One call for a whole tree of mounts (Linux 5.12); False where the kernel has none."""
    attributes = struct.pack("<QQQQ", _RDONLY if value else 0, 0 if value else _RDONLY, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    return not libc.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), ctypes.c_uint(_AT_RECURSIVE), attributes, size
    )


def _remount(libc: ctypes.CDLL, path: str, options: Sequence[str], read_only: int) -> None:
    """One mount with the options that it has, for none of them may be lost in a user namespace."""
    flags = sum(flag for name, flag in _OPTION_FLAGS.items() if name in options)
    _mount(libc, None, path, _REMOUNT | _BIND | flags | read_only)


def _mount(libc: ctypes.CDLL, source: str | None, target: str, flags: int, kind: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _checked(libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), None))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
