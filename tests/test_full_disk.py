"""A full disk and a read-only folder, made by mounts that only the command under test sees.

Every place that is written gives one sentence that names it and says what to do; what is recorded stays.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tune_fakes import identities

from mxfp4lab import records

ROOT = Path(__file__).resolve().parents[1]
PLAN = ["--variant", "fused_rowmajor", "--shape", "8,64,512"]
UNSHARE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]


@functools.cache
def refusal() -> str:
    """Why this machine cannot mount anything in a namespace; "" where it can."""
    if shutil.which("unshare") is None:
        return "there is no unshare(1) here"
    done = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    return f"this user may not mount here: {done.stderr.strip()}" if done.returncode else ""


def full(folder: Path, kib: int = 64, left: int | None = None) -> str:
    """A disk of that size over a folder, of which `left` KiB are free."""
    folder.mkdir(exist_ok=True)
    mount = f"mount -t tmpfs -o size={kib}k,mode=1777 tmpfs {shlex.quote(str(folder))}"
    taken = "" if left is None else f" && head -c {kib - left}K /dev/zero > {shlex.quote(str(folder / 'taken'))}"
    return mount + taken


def read_only(path: Path) -> str:
    """A folder or file as it is, read-only."""
    place = shlex.quote(str(path))
    return f"mount --bind {place} {place} && mount -o remount,bind,ro {place}"


def run(mounts: list[str], command: list[str], after: str = "true", **environment: str) -> subprocess.CompletedProcess:
    """Run a command behind mounts, and `after` it, still behind them."""
    if refusal():
        pytest.skip(refusal())
    script = " && ".join(mounts) + f" || exit 99; {shlex.join(command)}; code=$?; {after}; exit $code"
    done = subprocess.run([*UNSHARE, "sh", "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=240,
                          env={**os.environ, **environment})  # fmt: skip
    assert done.returncode != 99, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


def lab(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mxfp4lab", *arguments]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


MOUNTS = [(lambda folder: full(folder, 64, 0), "No space left on device"), (read_only, "Read-only file system")]
BOTH = pytest.mark.parametrize(("mount", "reason"), MOUNTS, ids=["full", "read-only"])


@BOTH
def test_the_compile_cache(mount, reason: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    done = run([mount(folder)], lab("compile", *PLAN), MXFP4LAB_CACHE=str(folder))
    assert done.returncode == 0 and "gemm_tiles" in done.stdout
    assert f"{folder}/compile cannot be written ({reason}): kernels are compiled anew" in done.stderr


@pytest.mark.slow
@BOTH
def test_home(mount, reason: str, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    done = run([mount(folder)], ["env", "-u", "MXFP4LAB_CACHE", "-u", "XDG_CACHE_HOME", *lab("emulate", *PLAN)],
               HOME=str(folder))  # fmt: skip
    assert done.returncode == 0 and "100.0000% of bf16 identical" in done.stdout
    assert f"{folder}/.cache/mxfp4lab/compile cannot be written ({reason})" in done.stderr


@BOTH
def test_the_outputs_folder(mount, reason: str, tmp_path: Path) -> None:
    folder = tmp_path / "outputs"
    folder.mkdir()
    done = run([mount(folder)], lab("tune", "--shape", "4,2880,512", "--budget", "1", "--out", str(folder)))
    assert (done.returncode, done.stdout) == (2, "")
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"mxfp4lab: cannot write {folder}/runs/") and reason in line
    assert "free some space or choose another folder and run it again" in line


@BOTH
def test_an_export_leaves_the_file_before(mount, reason: str, tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    target = folder / "submission.py"
    target.write_text("# before\n")
    kept = tmp_path / "kept"
    shutil.copy(target, kept)
    if mount is not read_only:
        mount_and_fill = full(folder, 64) + f" && cp {kept} {target} && head -c 60K /dev/zero > {folder / 'taken'}"
    else:
        mount_and_fill = mount(folder)
    done = run([mount_and_fill], lab("export", *PLAN, str(target)), after=f"cat {target}; ls -A {folder} | wc -l")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and str(target) in done.stderr and reason in done.stderr
    assert done.stdout.splitlines() == ["# before", "1" if mount is read_only else "2"], "and no part of a file"


@BOTH
def test_figures_and_summaries(mount, reason: str, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    folder.mkdir()
    code = f"""
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
from mxfp4lab.notebook.results import write_summary
from mxfp4lab.plots import save
folder = {str(folder)!r}
for attempt in (lambda: save(plt.figure(), folder, "x"), lambda: write_summary(folder, {{"a": "x" * 9000}})):
    try:
        attempt()
    except ValueError as error:
        print(type(error).__name__, error)
"""
    done = run([mount(folder)], python(code))
    first, second = done.stdout.splitlines()
    for line, name in ((first, "x.svg"), (second, "summary.json")):
        assert line.startswith(f"NotWritten {folder / name} cannot be written: {reason}; free some space")


def test_a_records_file_that_is_read_only(tmp_path: Path) -> None:
    path = tmp_path / "trials-main.jsonl"
    path.write_text("")
    code = f"""
from mxfp4lab.records import RecordsError, TrialLog
try:
    TrialLog({str(tmp_path)!r})
except RecordsError as error:
    print(error)
"""
    done = run([read_only(path)], python(code))
    assert done.stdout.startswith(f"cannot write {path}: Read-only file system; free some space or choose")
    assert done.stdout.count("\n") == 1


FULL_MIDWAY = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tune_fakes import Tools, search
from mxfp4lab.records import RecordsError
out = Path({out!r})
try:
    search(out, Tools(seed=1))
    print("done")
except RecordsError as error:
    print(error)
"""


def test_a_disk_that_fills_up_during_a_search_costs_no_row(tmp_path: Path) -> None:
    """The rows before stay; with space the next run does the rest, and together they are one whole run."""
    out, kept, whole = tmp_path / "out", tmp_path / "kept", tmp_path / "whole"
    code = FULL_MIDWAY.format(tests=str(ROOT / "tests"), out=str(out))
    done = run([full(out, 32)], python(code), after=f"cp -r {out} {kept}")
    assert done.returncode == 0, done.stderr
    line = done.stdout.strip()
    assert line.startswith(f"cannot write {out}/runs/") and "free some space" in line
    before = identities(kept)
    assert before, "some rows were written before it was full"
    for folder in (kept, whole):
        subprocess.run(python(FULL_MIDWAY.format(tests=str(ROOT / "tests"), out=str(folder))), check=True, cwd=ROOT,
                       stdout=subprocess.DEVNULL)  # fmt: skip
    assert max(Counter(identities(kept)).values()) == 1
    assert set(before) <= set(identities(kept)) == set(identities(whole))
    warnings = [line for path in records.find_trial_files(kept) for line in records.read_trials(path)[1]]
    assert all("torn last line" in line for line in warnings)


def test_no_room_to_compile_is_no_property_of_a_config(tmp_path: Path) -> None:
    """TMPDIR is full: one sentence, and no row says that a config does not compile."""
    folder, out = tmp_path / "tmp", tmp_path / "out"
    environment = {"TMPDIR": str(folder), "MXFP4LAB_CACHE": str(tmp_path / "cache")}
    done = run([full(folder)], lab("compile", *PLAN, "--json"), **environment)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"No space left on device in {folder}; let TMPDIR name a folder with some space" in done.stderr
    arguments = ["--budget", "4", "--verify", "1", "--workers", "2", "--variants", "fused_rowmajor"]
    done = run([full(folder)], lab("tune", "--shape", "8,64,512", *arguments, "--out", str(out)), **environment)
    assert done.returncode == 2 and "let TMPDIR name a folder" in done.stderr.splitlines()[-1]
    rows = [trial for path in records.find_trial_files(out) for trial in records.read_trials(path)[0]]
    assert not [trial for trial in rows if str(trial.status) in ("compile_error", "worker_died")]


CHECK = lab("check", str(ROOT / "tests/submissions/triton_kernel.py"), "--shape", "8,64,256")


def test_the_checks_scratch_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    done = run([full(folder)], CHECK, TMPDIR=str(folder))
    assert (done.returncode, done.stdout) == (2, "")
    said = f"check: the check's scratch folder cannot be written ({folder}: No space left on device); let TMPDIR name"
    assert done.stderr.startswith(said) and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_scratch_folder_with_no_room_for_a_kernel(tmp_path: Path) -> None:
    """As far as anybody can see the submission's fault, in one line."""
    folder = tmp_path / "tmp"
    own = sum(-(-file.stat().st_size // 4096) for file in (ROOT / "mxfp4lab/check/child").rglob("*.py"))
    done = run([full(folder, 4 * own + 40)], CHECK, TMPDIR=str(folder))
    assert done.returncode == 112 and done.stderr == "", done
    assert "No space left on device" in done.stdout or "No usable temporary directory" in done.stdout


@pytest.mark.slow
def test_a_scratch_folder_that_is_read_only(tmp_path: Path) -> None:
    """Python itself passes over it: the check runs elsewhere."""
    folder = tmp_path / "other"
    folder.mkdir()
    done = run([read_only(folder)], CHECK, TMPDIR=str(folder))
    assert done.returncode == 0 and "check: pass" in done.stdout
