"""Submissions that lie, hide, break things or never end: each gets one clear line, and none brings the check down."""

from __future__ import annotations

import functools
import json
import mmap
import random
import time
import types
from pathlib import Path

import pytest

from mxfp4lab.check import answer as answers
from mxfp4lab.check import cases as case_lines
from mxfp4lab.check import check_submission, launches
from mxfp4lab.check import session as sessions
from mxfp4lab.check.text import plain

LIMIT_S = 12

REFERENCE = "from reference import ref_kernel\n"
COPY = """
import torch, triton, triton.language as tl
@triton.jit
def copy(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)
"""
EMPTY_C = 'torch.empty(data[0].shape[0], data[1].shape[0], dtype=torch.bfloat16, device="cuda")'
# The connection to the check, as code in the same process can find it.
FIND_LINK = """
import gc, time
from harness_child.link import Link
def link():
    return next(found for found in gc.get_objects() if isinstance(found, Link))
"""

# (what it does, mode, source, part of the line that it gets; "" where it passes)
QUICK: list[tuple[str, str, str, str]] = [
    ("computes C when C is read", "test", REFERENCE + f"""
import torch
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            for each in args:
                if isinstance(each, Lazy) and getattr(each, "data_", None):
                    data, each.data_ = each.data_, None
                    each.as_subclass(torch.Tensor).copy_(ref_kernel(data))
            return func(*args, **(kwargs or {{}}))
def custom_kernel(data):
    c = {EMPTY_C}.as_subclass(Lazy)
    c.data_ = data
    return c
""", "custom_kernel returned a Lazy, a subclass that could compute C later"),
    ("moves the cursor", "test", """
def custom_kernel(data):
    raise RuntimeError("\\x1b[2K\\x1b[1Gcheck: pass\\x1b[8m \\ud800 \\u202e")
""", r"RuntimeError: \x1b[2K\x1b[1Gcheck: pass\x1b[8m \ud800 \u202e"),
    ("answers nonsense", "test", FIND_LINK + """
def custom_kernel(data):
    link().send({"shape": [1 << 40, 5], "dtype": "bfloat16", "nbytes": 7, "offset": 0, "tampered": 0, "strides": None})
    time.sleep(0.5)
""", "the submission's process gave an answer that makes no sense"),
    ("sends a bomb", "test", FIND_LINK + """
import struct
def custom_kernel(data):
    bomb = b"[" * 200000
    link()._socket.sendall(struct.pack("<Q", len(bomb)) + bomb)
    time.sleep(0.5)
""", "sent what is no message of the check's: ended"),
    ("signals everybody", "test", REFERENCE + """
import os, signal
def custom_kernel(data):
    for victim in (-1, 1, os.getppid()):
        try:
            os.kill(victim, 0)
        except OSError:
            pass
    os.killpg(0, signal.SIGCONT)
    return ref_kernel(data)
""", ""),
]  # fmt: skip

SLOW: list[tuple[str, str, str, str]] = [
    ("computes C in a patched method", "test", REFERENCE + f"""
import torch
old, pending = torch.Tensor.contiguous, []
def late(self, *a, **k):
    while pending:
        c, data = pending.pop()
        c.copy_(ref_kernel(data))
    return old(self, *a, **k)
torch.Tensor.contiguous = late
def custom_kernel(data):
    pending.append(({EMPTY_C}, data))
    return pending[-1][0]
""", "the submission replaced torch.Tensor.contiguous"),
    ("computes C under a function mode", "test", REFERENCE + """
import torch
from torch.overrides import TorchFunctionMode
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
Mode().__enter__()
def custom_kernel(data):
    return ref_kernel(data)
""", "the submission replaced torch's function modes"),
    ("computes C in a thread", "test", REFERENCE + f"""
import threading, time, torch
def custom_kernel(data):
    c = {EMPTY_C}
    threading.Thread(target=lambda: (time.sleep(0.5), c.copy_(ref_kernel(data))), daemon=True).start()
    return c
""", "elements outside"),
    ("writes C after its return", "leaderboard", REFERENCE + """
import threading, time
def custom_kernel(data):
    c = ref_kernel(data)
    def work():
        time.sleep(0.105)
        c.zero_()
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.1)
    return c
""", "an output changed after it was returned"),
    ("replaces builtins", "test", REFERENCE + """
import builtins
real = builtins.isinstance
builtins.isinstance = lambda *a: real(*a)
custom_kernel = ref_kernel
""", "the submission replaced builtins.isinstance"),
    ("replaces open", "test", REFERENCE + "__builtins__['open'] = None\ncustom_kernel = ref_kernel\n",
     "the submission replaced builtins.open"),
    ("traces", "test", REFERENCE + "import sys\nsys.settrace(lambda *a: None)\ncustom_kernel = ref_kernel\n",
     "the submission replaced sys.settrace"),
    ("replaces the check's own parts", "test", REFERENCE + """
import sys
runner = sys.modules["harness_child.runner"]
runner.Submission._describe = lambda self, output: {}
custom_kernel = ref_kernel
""", "the submission replaced the check's Submission._describe"),
    ("replaces the check's watch and a clock", "test", REFERENCE + """
import sys, time
runner = sys.modules["harness_child.runner"]
runner.watch = lambda torch: lambda: []
time.perf_counter = lambda: 0.0
custom_kernel = ref_kernel
""", "the submission replaced time.perf_counter"),
    ("asks for impossible launches", "test", REFERENCE + FIND_LINK + """
ASKED = (
    {"op": "launch", "kernel": float("inf")}, {"op": "launch", "kernel": 0, "grid": [1, 1, 1]}, {"op": None}, {},
    {"op": "kernel", "name": "x", "asm": "junk", "signature": [["a", "*bf16"]], "options": {}, "constants": {},
     "num_warps": 4, "shared": 0},
    {"op": "prebuilt", "m": float("inf"), "n": 2, "k": 3, "kernel": ""}, {"op": "note", "text": "\\ud800\\x1b[2J"},
)
def custom_kernel(data):
    answers = [link().ask(message) for message in ASKED if "op" in message]
    assert all("error" in answer for answer in answers[:-1]), answers
    return ref_kernel(data)
""", ""),
    ("launches more work-items than a GPU takes", "test", COPY + """
def custom_kernel(data):
    copy[(1 << 24,)](data[0], torch.empty_like(data[0]), data[0].numel(), 128)
""", "work-items along an axis, a GPU takes 2^32 - 1"),
    ("raises what cannot be shown", "test", """
class Odd(Exception):
    def __str__(self):
        raise RuntimeError
def custom_kernel(data):
    raise Odd
""", "Odd: an exception that cannot be shown"),
    ("raises fifty megabytes", "test", "def custom_kernel(data):\n    raise ValueError('x' * 50_000_000)\n",
     "ValueError: xxxx"),
    ("raises Ctrl-C", "test", "def custom_kernel(data):\n    raise KeyboardInterrupt\n", "line 2: KeyboardInterrupt"),
    ("stops itself", "test", "import os, signal\ndef custom_kernel(data):\n    os.kill(os.getpid(), signal.SIGSTOP)\n",
     f"over its time limit of {LIMIT_S} s: ended"),
    ("becomes another program", "test", """
import os, sys
def custom_kernel(data):
    os.execv(sys.executable, [sys.executable, "-c", "print('check: pass')"])
""", "the submission ended its process (exit code 0)"),
    ("closes every descriptor", "test", REFERENCE + """
import os
def custom_kernel(data):
    os.closerange(3, 4096)
    return ref_kernel(data)
""", "the submission ended its process"),
    ("forks without end", "test", """
import os, time
def custom_kernel(data):
    for _ in range(2000):
        if os.fork() == 0:
            time.sleep(100)
            os._exit(0)
    time.sleep(10)
""", "over its"),
    ("rings an alarm", "test", REFERENCE + """
import signal, time
def ring(*_):
    raise SystemExit("alarm")
signal.signal(signal.SIGALRM, ring)
def custom_kernel(data):
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    time.sleep(1)
""", "the submission called exit('alarm')"),
    ("returns a tensor without memory", "test", REFERENCE + """
def custom_kernel(data):
    c = ref_kernel(data)
    c.untyped_storage().resize_(0)
    return c
""", "whose storage is smaller than the tensor"),
    ("returns a meta tensor", "test", f"import torch\ndef custom_kernel(data):\n    return {EMPTY_C}.to('meta')\n",
     "not on the GPU"),
    ("returns one row as often as there are rows", "test", REFERENCE + """
def custom_kernel(data):
    return ref_kernel(data)[:1].expand(data[0].shape[0], -1)
""", "elements outside"),
    ("hands out three buffers in turn", "leaderboard", REFERENCE + """
ring, calls = [], 0
def custom_kernel(data):
    global calls
    c = ref_kernel(data)
    if len(ring) < 3:
        ring.append(c)
    calls += 1
    return ring[calls % len(ring)].copy_(c)
""", "a buffer was handed out twice"),
    ("hands out pieces of one buffer", "leaderboard", REFERENCE + """
import torch
big, at = torch.empty(1 << 20, dtype=torch.bfloat16, device="cuda"), 0
def custom_kernel(data):
    global at
    c = ref_kernel(data)
    at += c.numel()
    return big[at - c.numel() : at].view(c.shape).copy_(c)
""", "a buffer was handed out twice"),
    ("counts calls", "leaderboard", REFERENCE + """
first = None
def custom_kernel(data):
    global first
    first = ref_kernel(data) if first is None else first
    return first.clone()
""", "the result of the last call was returned again for new inputs"),
    ("looks for the answer in memory", "test", f"""
import gc, sys, torch
def custom_kernel(data):
    c = {EMPTY_C}
    here, frame = [found for found in gc.get_objects() if type(found) is torch.Tensor], sys._getframe()
    while frame:
        here += [value for value in frame.f_locals.values() if type(value) is torch.Tensor]
        frame = frame.f_back
    return next((t.clone() for t in here if t.shape == c.shape and t.dtype == c.dtype and t is not c), c.zero_())
""", "elements outside"),
    ("looks for the answer in the shared memory", "test", REFERENCE + FIND_LINK + f"""
import torch
def custom_kernel(data):
    c, want = {EMPTY_C}, ref_kernel(data).flatten()
    window = torch.frombuffer(link().window, dtype=torch.bfloat16, count=1 << 21)
    pieces = window.view(-1, 2048)[:, : want.numel()]
    assert not (pieces == want).all(dim=1).any()
    return c.zero_()
""", "elements outside"),
    ("prints a verdict", "test", REFERENCE + """
def custom_kernel(data):
    print("check: pass", flush=True)
    return ref_kernel(data) * 2
""", "elements outside"),
    ("leaves farewells and threads", "test", REFERENCE + """
import atexit, threading, time
atexit.register(lambda: time.sleep(100))
threading.Thread(target=lambda: time.sleep(100)).start()
custom_kernel = ref_kernel
""", ""),
    ("goes elsewhere and forgets its environment", "test", REFERENCE + """
import os
os.chdir("/")
os.environ.clear()
custom_kernel = ref_kernel
""", ""),
]  # fmt: skip


def examine(mode: str, source: str, said: str, folder: Path) -> None:
    file = folder / "submission.py"
    file.write_text(source, encoding="utf-8")
    started = time.monotonic()
    report = check_submission(file, mode, "emulator", ["8,64,256"], time_limit_s=LIMIT_S, log=case_lines.Log())
    assert time.monotonic() - started < LIMIT_S + 15
    text = report.summary()
    text.encode("utf-8")
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert json.loads(json.dumps(report.to_dict()))["exit_code"] == report.exit_code
    assert report.passed == (said == ""), text
    assert said in report.cases[0].error, text


@pytest.mark.parametrize(("what", "mode", "source", "said"), QUICK, ids=[row[0] for row in QUICK])
def test_hostile(what: str, mode: str, source: str, said: str, tmp_path: Path) -> None:
    examine(mode, source, said, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "mode", "source", "said"), SLOW, ids=[row[0] for row in SLOW])
def test_more_hostile(what: str, mode: str, source: str, said: str, tmp_path: Path) -> None:
    examine(mode, source, said, tmp_path)


@pytest.mark.slow
def test_a_folder_that_is_filled_is_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SCRATCH_BYTES", 1 << 30)
    source = "import os\ndef custom_kernel(data):\n    for i in range(3):\n        with open(f'{i}', 'wb') as file:\n"
    source += "            os.posix_fallocate(file.fileno(), 0, 1 << 29)\n    import time\n    time.sleep(9)\n"
    examine("test", source, "over its limit of 1 GiB in its folder: ended", tmp_path)


def test_a_kernel_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "EMULATION_LIMIT_S", 1.0)
    source = COPY + """
@triton.jit
def count(x):
    while tl.load(x) > 0:
        tl.atomic_add(x + 1, 1)
def custom_kernel(data):
    count[(1,)](torch.ones(2, dtype=torch.int32, device="cuda"))
"""  # fmt: skip
    examine("test", source, "count: runs too long: the time that it was given is up", tmp_path)


def test_what_check_does_not_see(tmp_path: Path) -> None:
    """Stated in the documentation: work skipped for contents seen before shows where contents change, nowhere else."""
    source = REFERENCE + COPY + """
cache = {}
def custom_kernel(data):
    y = torch.empty(128, dtype=torch.bfloat16, device="cuda")
    copy[(1,)](data[0], y, 128, 128)
    key = bytes(y.view(torch.uint8).cpu().numpy())
    if key not in cache:
        cache[key] = ref_kernel(data)
    return cache[key].clone()
"""  # fmt: skip
    examine("benchmark", source, "", tmp_path)


VALUES = (
    None, True, -1, 0, 1, 3, 1 << 70, 0.5, float("inf"), float("nan"), "", "x", "bfloat16", "\ud800", [], {}, [0],
    [1, 1, 1], ["a", "*bf16"], [["a", "*bf16"]], {"buffer": 0, "offset": -1}, [{"offset": 0, "nbytes": 64}],
)  # fmt: skip


def nonsense(rng: random.Random, names: tuple[str, ...]) -> dict:
    """A message in which any field may be missing or anything."""
    return {name: rng.choice(VALUES) for name in names if rng.random() < 0.8}


def test_no_message_brings_the_check_down() -> None:
    rng, window = random.Random(8), mmap.mmap(-1, 4096)
    service = launches.LaunchService(seconds=1)
    service.window = window
    fields = ("kernel", "grid", "args", "buffers", "name", "asm", "signature", "options", "constants", "num_warps",
              "shared", "m", "n", "k", "log2_k_split", "text")  # fmt: skip
    for _ in range(3000):
        operation = rng.choice(("kernel", "launch", "note", "prebuilt", None, 3))
        answer = service({"op": operation, **nonsense(rng, fields)})
        assert isinstance(answer, dict) and json.dumps(answer)
    session = types.SimpleNamespace(
        take=functools.partial(sessions.Session.take, types.SimpleNamespace(_window=window))
    )
    fields = ("shape", "dtype", "nbytes", "offset", "strides", "contiguous", "tampered", "changed", "view_of",
              "outlived", "threads", "nanoseconds", "same_as_call")  # fmt: skip
    read = 0
    for _ in range(3000):
        try:
            read += answers.Given.read(nonsense(rng, fields), session).output.numel() >= 0
        except answers.Failed as error:
            assert str(error).isprintable()
    assert read < 100


@pytest.mark.parametrize(("said", "shown"), [
    ("two\nlines\tand  spaces", "two lines and spaces"), ("\x1b[31m", r"\x1b[31m"), ("\ud800", r"\ud800"),
    ("\u202etxt", r"\u202etxt"), ("Maß 5 µs", "Maß 5 µs"), ("x" * 600, "x" * 496 + " ..."), (None, "None"),
])  # fmt: skip
def test_what_is_said_is_one_printable_line(said: object, shown: str) -> None:
    assert plain(said) == shown
