"""A submission cannot write to the lab's files: each means alone, all together, and none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mxfp4lab.check import cases as case_lines
from mxfp4lab.check import check_submission
from mxfp4lab.check import session as sessions
from mxfp4lab.check.child import apart, confine
from mxfp4lab.check.child.supervise import descendants

ROWS = b'{"row": 1}\n{"row": 2}\n'

# Every way to change a file or a folder, and a child that leaves group, session, parent and environment to try later.
HOSTILE = """
import json, os, signal, subprocess, sys, time
from reference import ref_kernel

RUN, LATE = {run!r}, {late}
FILE = os.path.join(RUN, "trials-main.jsonl")


def put(path, mode):
    with open(path, mode) as file:
        file.write("x")


TRIES = {{
    "overwrite": lambda: put(FILE, "r+"), "append": lambda: put(FILE, "a"), "create": lambda: put(RUN + "/new", "w"),
    "truncate": lambda: os.truncate(FILE, 3), "rename": lambda: os.rename(FILE, FILE + ".old"),
    "replace": lambda: os.replace(__file__, FILE), "remove": lambda: os.unlink(FILE),
    "chmod": lambda: os.chmod(FILE, 0o777), "mkdir": lambda: os.mkdir(RUN + "/folder"),
    "link": lambda: os.link(FILE, RUN + "/link"), "symlink": lambda: os.symlink("/", RUN + "/root"),
    "remount": lambda: subprocess.run(["mount", "-o", "remount,rw", "/"], check=True, stderr=subprocess.DEVNULL),
    "unmount": lambda: subprocess.run(["umount", "-l", RUN], check=True, stderr=subprocess.DEVNULL),
    "by_parent": lambda: put("/proc/%d/root%s" % (os.getppid(), FILE), "a"),
    "by_first": lambda: put("/proc/1/root" + FILE, "a"),
    "signal": lambda: os.kill({lab}, signal.SIGCONT),
}}
ALLOWED = {allowed!r}
said = {{}}
for name, attempt in TRIES.items():
    if name in ALLOWED:
        continue
    try:
        attempt()
        said[name] = "worked"
    except (OSError, subprocess.CalledProcessError) as error:
        said[name] = type(error).__name__
print(json.dumps(said), flush=True)

if LATE and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        code = "import time\\ntime.sleep(%g)\\nopen(%r, 'a').write('late')" % (LATE, FILE)
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.execve(sys.executable, [sys.executable, "-c", code], {{}})
    os._exit(0)


def custom_kernel(data):
    return ref_kernel(data)
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with records, in which the lab works."""
    run = tmp_path / "outputs" / "runs" / "one"
    run.mkdir(parents=True)
    (run / "trials-main.jsonl").write_bytes(ROWS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attack(lab: Path, late: float = 0, allowed: tuple[str, ...] = ()):
    """The report on the hostile file, and what its tries came to."""
    file = lab / "submission.py"
    run = lab / "outputs" / "runs" / "one"
    file.write_text(HOSTILE.format(run=str(run), late=late, allowed=allowed, lab=os.getpid()))
    report = check_submission(file, "test", "emulator", ["8,64,256"], time_limit_s=30, log=case_lines.Log())
    assert report.printed, report.summary()
    return report, json.loads(report.printed.splitlines()[0])


def rows(lab: Path) -> bytes:
    return (lab / "outputs" / "runs" / "one" / "trials-main.jsonl").read_bytes()


def everything(lab: Path) -> list[str]:
    return sorted(str(path.relative_to(lab)) for path in (lab / "outputs").rglob("*"))


def need(means: str) -> None:
    """Skip where this machine's kernel lacks it."""
    if means == "landlock" and not confine.landlock_version():
        pytest.skip("this kernel has no Landlock")
    if means == "namespaces":
        folder = str(Path.cwd())
        places = apart.Places((folder,), ("/usr",), (), folder)
        if not any(apart._holds(apart.Level(user, False, False), places) for user in (False, True)):
            pytest.skip("this kernel refuses mount namespaces to this user")


@pytest.mark.parametrize("means", ["namespaces", "landlock", "both"])
def test_nothing_of_the_lab_can_be_written(means: str, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in sessions.MEANS if means == "both" else (means,):
        need(each)
    monkeypatch.setattr(sessions, "MEANS", sessions.MEANS if means == "both" else (means,))
    before = everything(lab)
    # Landlock has none for signals before its sixth version.
    report, said = attack(lab, late=0.5, allowed=("signal",) if means == "landlock" else ())
    if means == "landlock":  # it has no right for permissions
        assert said.pop("chmod") == "worked"
    assert set(said.values()) <= {"PermissionError", "OSError", "FileNotFoundError", "ProcessLookupError",
                                  "CalledProcessError", "NotADirectoryError"}, said  # fmt: skip
    assert len(said) >= 14
    assert "no writes outside its folder" in report.confined
    assert ("Landlock" in report.confined) == (means != "namespaces")
    assert ("read-only mounts" in report.confined) == (means != "landlock")
    assert report.cases[0].status == "pass"
    assert not report.passed and "left 1 process(es) behind: ended" in report.error
    time.sleep(0.8)
    assert (rows(lab), everything(lab)) == (ROWS, before)


def test_a_clean_submission_where_nothing_prevents(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MEANS", ())
    file = lab / "submission.py"
    file.write_text("from reference import ref_kernel as custom_kernel\n")
    report = check_submission(file, "test", "emulator", ["8,64,256"], log=case_lines.Log())
    assert report.passed and report.error == ""
    said = str(report).splitlines()
    assert "no write protection here" in said[0] and "no write protection here" in said[-1]


def test_means_cost_little(lab: Path) -> None:
    need("namespaces")
    places = apart.Places((str(lab),), ("/usr",), (), str(lab))
    started = time.perf_counter()
    child = os.fork()
    if not child:
        os._exit(0 if apart.enter(places, thorough=True) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert time.perf_counter() - started < 3  # a tenth of a second where nothing else runs


@pytest.mark.parametrize("one_call", [True, False], ids=["mount_setattr", "one by one"])
@pytest.mark.parametrize("pids", [True, False])
@pytest.mark.parametrize("user", [True, False])
def test_every_level_keeps_its_promise(
    user: bool, pids: bool, one_call: bool, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = apart._unshare_and_mount
    monkeypatch.setattr(apart, "_unshare_and_mount", lambda level, places: real(level, places, one_call))
    if not user and os.geteuid() != 0:
        pytest.skip("only root may do without a user namespace")
    level = apart.Level(user, pids, pids)
    places = apart.Places((str(lab),), (str(Path(__file__).parent), "/usr"), (sys.executable,), str(lab))
    if not apart._holds(level, places):
        need("namespaces")
        pytest.skip("this machine refuses this level")
    assert not apart._holds(level, apart.Places((str(lab),), (str(lab),), (), str(lab))), "what stays writable is told"


def test_a_file_that_ends_the_process_above_it_ends_itself(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a process namespace it can; nothing of it survives, and the check says what happened."""
    monkeypatch.setattr(sessions, "MEANS", ())
    file = lab / "submission.py"
    file.write_text(
        "import os, signal, subprocess\nsubprocess.Popen(['sleep', '4242'], start_new_session=True)\n"
        "os.kill(os.getppid(), signal.SIGKILL)\nimport time\ntime.sleep(60)\n"
    )
    started = time.monotonic()
    report = check_submission(file, "test", "emulator", ["8,64,256"], time_limit_s=30, log=case_lines.Log())
    assert time.monotonic() - started < 25
    assert not report.passed and "SIGKILL" in report.cases[0].error
    listed = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True).stdout.splitlines()
    assert not [line for line in listed if line.endswith("sleep 4242") and not line.startswith("Z")]


@pytest.mark.parametrize("means", [sessions.MEANS, ()], ids=["apart", "together"])
def test_a_check_that_is_killed_leaves_nothing_running(means: tuple[str, ...], lab: Path) -> None:
    file = lab / "submission.py"
    file.write_text("while True:\n    pass\n")
    code = (
        f"from mxfp4lab.check import check_submission, session\nsession.MEANS = {means!r}\n"
        f"check_submission({str(file)!r}, 'test', 'emulator', ['8,64,256'], time_limit_s=100)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "TMPDIR": str(lab)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=lab)
    deadline = time.monotonic() + 60
    below: set[int] = set()
    while len(below) < (3 if means and os.geteuid() == 0 else 2) and time.monotonic() < deadline:
        below |= set(descendants(process.pid))
        time.sleep(0.1)
    time.sleep(1)
    below |= set(descendants(process.pid))
    process.kill()
    process.wait()
    while any(running(pid) for pid in below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(below) >= 2 and not any(running(pid) for pid in below)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
