"""The process above a submission's: sets it apart, waits for it, ends whatever it left, says how it ended.

It runs nothing of the submission. Processes that leave their group, session or parent are still found: orphans come
to it (PR_SET_CHILD_SUBREAPER), or, in a process namespace, the kernel ends them with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time

from . import apart, confine, runner

_PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 0.3  # for workers that see by themselves that their parent is gone


def main(config: dict) -> None:
    """Run the submission's process below this one; ends the process, never returns."""
    report = config["report_fd"]
    apart.die_with_parent()  # a check that is killed leaves nothing running
    confine.limit_resources(config["memory_bytes"])
    level, places = None, _places(config)
    # One means is enough beside a GPU driver, which shall notice as little as possible.
    landlock = "landlock" in config["means"] and confine.landlock_version() > 0
    if "namespaces" in config["means"] and not (config["gpu"] and landlock):
        level = apart.enter(places, thorough=not config["gpu"])
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if level is None or not level.pids:
        child = _start(config, level)
        _tell(report, _wait(child))
        os._exit(0)
    first = os.fork()
    if not first:  # the first process of the namespace: with it ends everything in there
        apart.die_with_parent()
        apart.mount_proc(places)
        child = _start(config, level)
        _tell(report, _wait(child))
        os._exit(0)
    _close(config)
    os.waitpid(first, 0)
    os._exit(0)


def _places(config: dict) -> apart.Places:
    # A CUDA driver writes the names of its threads below /proc and keeps semaphores in /dev/shm.
    more = ("/dev/shm", "/proc") if config["gpu"] else ()
    return apart.Places(
        (config["work_folder"], *(path for path in more if os.path.isdir(path))),
        tuple(config["protected"]),
        tuple(path for path in (sys.executable, config["task_folder"], *config["path"]) if os.path.exists(path)),
        config["work_folder"],
    )


def _start(config: dict, level: apart.Level | None) -> int:
    """Fork the submission's process; this one keeps none of its connections."""
    child = os.fork()
    if child:
        _close(config)
        return child
    try:
        os.close(config["report_fd"])
        os.setsid()  # what it sends to its group reaches nobody else
        if level is not None:
            apart.give_up_rights(level)
        apart.die_with_parent()
        runner.main(config, "" if level is None else str(level))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    os._exit(1)


def _close(config: dict) -> None:
    for name in ("socket_fd", "window_fd"):
        os.close(config[name])


def _wait(child: int) -> dict:
    """How the child ended, and how many processes it left behind: ended too."""
    while True:
        pid, status = os.wait()
        if pid == child:
            break
    return {"code": os.waitstatus_to_exitcode(status), "left": _end_others()}


def _tell(descriptor: int, report: dict) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, json.dumps(report).encode())


def _end_others() -> int:
    """End every process below this one; their number."""
    ended: set[int] = set()
    patience = time.monotonic() + GRACE_S
    give_up = patience + 5
    while time.monotonic() < give_up:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        others = descendants(os.getpid())
        if not others:
            break
        if time.monotonic() >= patience:
            for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none starts another meanwhile
                for pid in others:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            ended |= set(others)
        time.sleep(0.01)
    return len(ended)


def descendants(root: int) -> dict[int, int]:
    """pid -> resident bytes of every living process below `root`."""
    page, parents, resident = os.sysconf("SC_PAGE_SIZE"), {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        pid = int(entry)
        parents[pid] = int(fields[1])
        if fields[0] not in (b"Z", b"X"):
            resident[pid] = int(fields[21]) * page
    below, added = {root}, True
    while added:
        added = {pid for pid, parent in parents.items() if parent in below} - below
        below |= added
    return {pid: resident[pid] for pid in below - {root} if pid in resident}
