"""Killed, interrupted and doubled tuners: what is on disk afterwards, and that the next run only does the rest."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tune_fakes import identities

from mxfp4lab import records

ROOT = Path(__file__).resolve().parents[1]

# A search with stand-ins that takes about a second, so that kills land in every step of it.
SLOW_SEARCH = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from tune_fakes import Tools, search
tools = Tools(seed={seed})
count, verify = tools.count, tools.verify
tools.count = lambda compiled: (time.sleep(0.02), count(compiled))[1]
tools.verify = lambda *of: (time.sleep(0.1), verify(*of))[1]
print("begin", flush=True)
result = search(Path({out!r}), tools)
print("pick", result.pick.variant, result.pick.config.config_id, flush=True)
"""


def start_slow(out: Path, seed: int = 0) -> subprocess.Popen:
    code = SLOW_SEARCH.format(tests=str(ROOT / "tests"), seed=seed, out=str(out))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            cwd=ROOT)  # fmt: skip


def finish(process: subprocess.Popen) -> str:
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 0
    return out.strip().splitlines()[-1]


def test_killed_at_random_moments_and_run_again_is_one_whole_run(tmp_path: Path) -> None:
    whole = finish(start_slow(tmp_path / "whole"))
    moments = random.Random(7)
    killed_midway = 0
    for attempt in range(4):
        process = start_slow(tmp_path / "killed", seed=attempt)
        assert process.stdout.readline() == "begin\n"
        time.sleep(moments.uniform(0.1, 0.6))
        process.kill()
        process.communicate()
        killed_midway += process.returncode == -signal.SIGKILL
    assert finish(start_slow(tmp_path / "killed", seed=99)) == whole
    assert killed_midway >= 2
    found = identities(tmp_path / "killed")
    assert max(Counter(found).values()) == 1, "nothing was recorded, and so nothing done, twice"
    assert set(found) == set(identities(tmp_path / "whole"))


def test_two_tuners_on_one_folder_at_once_both_finish_complete(tmp_path: Path) -> None:
    both = [start_slow(tmp_path / "both", seed) for seed in (1, 2)]
    first, second = (finish(process) for process in both)
    assert first == second == finish(start_slow(tmp_path / "alone"))
    folders = sorted((tmp_path / "both" / "runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert json.loads((folder / "run.json").read_text())["kind"] == "tune"
        assert all(records.read_trials(path)[1] == [] for path in folder.glob("trials-*.jsonl"))
    assert set(identities(tmp_path / "both")) == set(identities(tmp_path / "alone"))
    done = len(identities(tmp_path / "both"))
    assert finish(start_slow(tmp_path / "both", 3)) == first
    assert len(identities(tmp_path / "both")) == done, "a third run finds everything"


def command(out: Path, cache: Path, budget: int) -> tuple[list[str], dict[str, str]]:
    arguments = ["tune", "--shape", "4,2880,512", "--budget", str(budget), "--verify", "1", "--workers", "2"]
    environment = {**os.environ, "MXFP4LAB_CACHE": str(cache)}
    return [sys.executable, "-m", "mxfp4lab", *arguments, "--out", str(out)], environment


def test_ctrl_c_is_one_line_and_leaves_no_process_behind(tmp_path: Path) -> None:
    arguments, environment = command(tmp_path / "out", tmp_path / "cache", 60)
    # A terminal's Ctrl-C reaches the whole foreground group, the compiling children too.
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                               env=environment, start_new_session=True)  # fmt: skip
    wait_for_rows(tmp_path / "out", 3)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=300)
    lines = [line for line in err.splitlines() if not line.startswith("[")]  # progress
    assert process.returncode == 130 and out == ""
    assert len(lines) == 1 and lines[0].startswith("mxfp4lab: interrupted after") and "run it again" in lines[0]
    assert not group_members(process.pid)
    assert len(identities(tmp_path / "out")) >= 3


def wait_for_rows(out: Path, count: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if sum(path.read_bytes().count(b"\n") for path in records.find_trial_files(out)) >= count:
            return
        time.sleep(0.05)
    raise AssertionError("the search wrote nothing within five minutes")


def group_members(group: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(folder.name))
    return found


@pytest.mark.torture
def test_twenty_kills_of_the_real_tuner(tmp_path: Path) -> None:
    """kill -9 at 20 random moments of a real search, then one run to the end, against one that was never disturbed."""
    cache = tmp_path / "cache"
    moments = random.Random(20)
    for _ in range(20):
        arguments, environment = command(tmp_path / "killed", cache, 40)
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
                                   env=environment, start_new_session=True)  # fmt: skip
        time.sleep(moments.uniform(0.3, 6.0))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for name in ("killed", "whole"):
        arguments, environment = command(tmp_path / name, cache, 40)
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
                       env=environment)  # fmt: skip
    found = identities(tmp_path / "killed")
    assert max(Counter(found).values()) == 1
    assert set(found) == set(identities(tmp_path / "whole"))


@pytest.mark.torture
def test_random_bytes_and_lines_never_break_the_reader(tmp_path: Path) -> None:
    """A minute of damaged files: what is whole is read, nothing raises."""
    from test_records import counts, trial

    noise = random.Random(1)
    line = trial(counts=counts(), predicted_us=3.0, model_version="m").to_line().encode()
    path = tmp_path / "trials-x.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        data = bytearray(line * noise.randrange(1, 4))
        for _ in range(noise.randrange(0, 12)):
            place = noise.randrange(len(data))
            kind = noise.randrange(4)
            if kind == 0:
                data[place] = noise.randrange(256)
            elif kind == 1:
                del data[place : place + noise.randrange(1, 40)]
            elif kind == 2:
                data[place:place] = noise.randbytes(noise.randrange(1, 20))
            else:
                data[place:place] = noise.choice([b"\n", b"NaN", b"null", b"[", b'"', b"1e999", b"\\ud800", b"{}"])
            if not data:
                break
        path.write_bytes(bytes(data) + line)
        found, _ = records.read_trials(path)
        assert any(t.to_line().encode() == line for t in found) or not bytes(data).endswith(b"\n")
