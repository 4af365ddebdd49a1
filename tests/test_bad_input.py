"""Hostile input, one row each: what is done, what is answered, and within which time.

Every answer is one line of ours: a ValueError (of the standard library's own class or of one of ours), or the command
line's single line on standard error with exit code 2. Rows that other test files hold are not repeated here: shapes
(test_shapes), notebook parameters (test_notebook), plain command lines (test_cli), submissions (test_harness), rows of
records (test_records), damaged cache entries (test_toolchain_cache), picks (test_export).
"""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mxfp4lab import cli, fit, model
from mxfp4lab.check import check_submission
from mxfp4lab.check.cases import read_cases
from mxfp4lab.config import GemmConfig, config_errors
from mxfp4lab.counters import read_counters
from mxfp4lab.emulate import emulate_plan
from mxfp4lab.export import export_submission, lint_source, read_picks
from mxfp4lab.formats import decode_e2m1, decode_e8m0, dequantize_mxfp4, pack_fp4, quantize_mxfp4
from mxfp4lab.gfx950 import compile_kernel, compile_plan, load_code_object, parse_amdgcn, run
from mxfp4lab.gfx950.toolchain import cache as compile_cache
from mxfp4lab.kernels import convert, quantize
from mxfp4lab.layouts import e8m0_offset, e8m0_position, e8m0_shuffle, e8m0_unshuffle, shuffle_weight, weight_offset
from mxfp4lab.plan import build_plan
from mxfp4lab.records import Counts, Trial, TrialLog, read_all_trials, read_trials, write_run_json
from mxfp4lab.shapes import Shape, parse_shape
from mxfp4lab.task import check_output, generate_input, input_dict, input_from, reference_gemm
from mxfp4lab.tune import tune_shape
from mxfp4lab.workers import compile_many

ROOT = Path(__file__).resolve().parents[1]
EMPTY = str(ROOT / "tests" / "submissions" / "empty.py")
SHAPE = Shape(8, 64, 512)
TEXT = "8,64,512"
PLAN = ["--variant", "fused_rowmajor", "--shape", TEXT]
SLOW_S = 20  # on a machine that does other things; the rows below take well under a second each


@functools.cache
def inputs() -> dict[str, torch.Tensor]:
    return input_dict(SHAPE, 1)


@functools.cache
def compiled() -> Any:
    return compile_plan(build_plan("fused_rowmajor", None, SHAPE))


def a() -> torch.Tensor:
    return inputs()["a"]


def counts_dict(**changes: Any) -> dict[str, Any]:
    launch = {"name": "x", "workgroups": 1, "waves_per_workgroup": 1}
    return {"shape": {"m": 8, "n": 64, "k": 512}, "launches": [launch], "split_k": 1, "partial_bytes": 0} | changes


def on_emulator(**changes: Any) -> Any:
    return emulate_plan(compiled(), {**inputs(), **changes})


def launch(*grid: Any, last: Any = 512, **options: Any) -> Any:
    byte = torch.zeros(64, dtype=torch.uint8)
    return run(compiled().kernels[0], grid, a(), byte, byte, byte, 8, 64, last, **options)


def planned(**fields: Any) -> Any:
    return build_plan("fused_rowmajor", GemmConfig(**fields), SHAPE)


def exported(picks: Any, **options: Any) -> str:
    return export_submission(picks, None, **options)


def quantizer(options: dict[str, Any], arch: str = "gfx950") -> Any:
    signature = {"a_ptr": "*bf16", "a_q_ptr": "*u8", "a_scale_ptr": "*u8", "M": "i32", "K": "i32"}
    constants = {
        "QUANTIZE": convert.quantize_sw_bits,
        "A_PACK": 1,
        "BLOCK_M": 16,
        "BLOCK_K": 256,
        "MASK_M": True,
        "MASK_K": True,
        "scale_rows": None,
    }
    return compile_kernel(quantize.quantize_rows, signature, constants, options, arch)


PICK = {TEXT: ("fused_rowmajor", None)}
U8 = torch.zeros(4, 16, dtype=torch.uint8)

# (id, what is done, part of the answer)
API: list[tuple[str, Callable[[], Any], str]] = [
    ("shape of 200000 characters", lambda: parse_shape("8," * 100_000), "is not a shape m,n,k"),
    ("shape as bytes", lambda: parse_shape(b"8,64,512"), "is not a shape m,n,k"),
    ("shape as an array", lambda: parse_shape(np.array([8, 64, 512])), "is not a shape m,n,k"),
    ("shape with a NUL", lambda: parse_shape("8,64\0,512"), "is not a shape m,n,k"),
    ("inputs on a device of another kind", lambda: generate_input(SHAPE, 1, device="tpu"), "device='tpu'"),
    ("inputs on device 3.5", lambda: generate_input(SHAPE, 1, device=3.5), "device=3.5"),
    ("inputs of a seed of text", lambda: generate_input(SHAPE, "1"), "seed='1' must be an integer"),
    ("inputs from numpy arrays", lambda: input_from(np.zeros((8, 512)), np.zeros((64, 512))), "a is a ndarray"),
    ("reference of None", lambda: reference_gemm(None, None, None), "a is a NoneType"),
    ("reference with float scales", lambda: reference_gemm(a(), inputs()["b_q"], inputs()["b_scale_sh"].float()),
     "one byte an element, not torch.float32"),
    ("reference of infinite A", lambda: reference_gemm(a() / 0, inputs()["b_q"], inputs()["b_scale_sh"]),
     "NaN or infinite values"),
    ("reference with B scales of too few rows",
     lambda: reference_gemm(a(), inputs()["b_q"], inputs()["b_scale_sh"][:32]), "rows=64"),
    ("a result judged by None", lambda: check_output(a(), None), "ref is a NoneType"),
    ("quantize a list", lambda: quantize_mxfp4([[1.0] * 32]), "x is a list"),
    ("quantize a numpy array", lambda: quantize_mxfp4(np.zeros((2, 32))), "x is a ndarray"),
    ("quantize a sparse tensor", lambda: quantize_mxfp4(a().to_sparse()), "torch.sparse_coo tensor"),
    ("quantize a tensor without contents", lambda: quantize_mxfp4(a().to("meta")), "on meta"),
    ("quantize complex numbers", lambda: quantize_mxfp4(torch.zeros(2, 32, dtype=torch.complex64)), "complex64"),
    ("quantize odd K", lambda: quantize_mxfp4(torch.zeros(2, 33)), "must be even"),
    ("quantize with a list for a mode", lambda: quantize_mxfp4(a(), scale_mode=["even"]), "scale_mode=['even']"),
    ("dequantize to a name", lambda: dequantize_mxfp4(U8, U8[:, :1], "f32"), "dtype='f32'"),
    ("pack floats", lambda: pack_fp4(torch.zeros(2, 2)), "uint8"),
    ("decode floats as e2m1", lambda: decode_e2m1(torch.tensor([2.0])), "uint8"),
    ("decode floats as e8m0", lambda: decode_e8m0(torch.tensor([2.0])), "uint8"),
    ("shuffle with padding 300", lambda: e8m0_shuffle(U8, 300), "pad_value=300 must be a byte"),
    ("unshuffle more rows than there are",
     lambda: e8m0_unshuffle(torch.zeros(256, 8, dtype=torch.uint8), 1000, 8), "rows=1000"),
    ("offset of text", lambda: e8m0_offset("0", 0, 8), "row='0' must be an integer"),
    ("offset of a float", lambda: e8m0_offset(0.5, 0, 8), "row=0.5 must be an integer"),
    ("offset of row -1", lambda: e8m0_offset(-1, 0, 8), "row=-1 must be at least 0"),
    ("offsets of floats in an array", lambda: weight_offset(np.array([0.0]), 0, 32), "array of float64"),
    ("position of -1", lambda: e8m0_position(-1, 8), "offset=-1"),
    ("offset in 7 columns", lambda: e8m0_offset(0, 0, 7), "padded_cols=7"),
    ("15 rows of weights", lambda: shuffle_weight(torch.zeros(15, 32, dtype=torch.uint8)), "15"),
    ("config: text for a number", lambda: planned(block_m="16"), "block_m='16'"),
    ("config: None for a number", lambda: planned(block_m=None), "block_m=None"),
    ("config: True for a number", lambda: planned(split_k=True), "split_k=True"),
    ("config: 2^40 columns", lambda: planned(block_n=2**40), "block_n=1099511627776"),
    ("config: NaN", lambda: planned(block_k=float("nan")), "block_k=nan"),
    ("config: list for a word", lambda: planned(cache_modifier=[".cg"]), "cache_modifier=['.cg']"),
    ("config: a dict is none", lambda: build_plan("fused_rowmajor", {"block_m": 16}, SHAPE), "is no GemmConfig"),
    ("config: None is none", lambda: config_errors(None, SHAPE), "config=None is no GemmConfig"),
    ("variant as a list", lambda: build_plan(["fused_rowmajor"], None, SHAPE), "is unknown; known"),
    ("arch None", lambda: build_plan("fused_rowmajor", None, SHAPE, None), "arch=None is unknown"),
    ("arch of another AMD GPU", lambda: build_plan("fused_rowmajor", None, SHAPE, "gfx942"), "arch='gfx942'"),
    ("compile None", lambda: compile_plan(None), "plan: a NoneType"),
    ("compile a list of None", lambda: list(compile_many([None])), "plans[0]: a NoneType"),
    ("compile a plain function", lambda: compile_kernel(lambda x: x, {}), "is no @triton.jit function"),
    ("compile with an unknown option", lambda: quantizer({"zzz": 1}), "'zzz'"),
    ("compile for x86", lambda: quantizer({}, "x86"), "'x86' is no target"),
    ("compile without a signature", lambda: compile_kernel(quantize.quantize_rows, {}, {}), "value for 'a_ptr'"),
    ("compile with an unknown knob", lambda: compile_plan(compiled().plan, knobs={"NOPE": "1"}), "NOPE"),
    ("emulate None", lambda: emulate_plan(None, {}), "plan: a NoneType"),
    ("emulate without inputs", lambda: emulate_plan(compiled(), {}), "'a' is missing"),
    ("emulate with a list of inputs", lambda: emulate_plan(compiled(), [1]), "inputs: a list"),
    ("emulate half of A", lambda: on_emulator(a=a()[:4]), "'a' has 4096 bytes"),
    ("emulate A in fp16", lambda: on_emulator(a=a().half()), "torch.float16; the plan's buffer holds bf16"),
    ("emulate A without contents", lambda: on_emulator(a=a().to("meta")), "without plain contents"),
    ("emulate A as text", lambda: on_emulator(a="abc"), "'a' is a str"),
    ("emulate no call", lambda: emulate_plan(compiled(), inputs(), calls=0), "calls=0"),
    ("emulate workgroup -1", lambda: emulate_plan(compiled(), inputs(), [-1]), "workgroups: [-1]"),
    ("launch an empty grid", lambda: launch(0, 1, 1), "grid: (0, 1, 1)"),
    ("launch without arguments", lambda: run(compiled().kernels[0], (1,)), "args"),
    ("launch with 2^70 for K", lambda: launch(1, last=2**70), "does not fit 4 bytes"),
    ("launch with a float for K", lambda: launch(1, last=512.5), "512.5 where the kernel takes i32"),
    ("launch with text for K", lambda: launch(1, last="512"), "a str; allowed"),
    ("launch 63 work-items", lambda: launch(1, block=63), "63 work-items"),
    ("launch with LDS of -1 bytes", lambda: launch(1, lds_bytes=-1), "lds_bytes: -1"),
    ("launch on Python objects", lambda: run(compiled().kernels[0], (1,), np.array([object()])), "Python objects"),
    ("assembly that is bytes", lambda: parse_amdgcn(b"s_endpgm"), "text"),
    ("code object None", lambda: load_code_object(None), "None is no path"),
    ("predict None", lambda: model.predict_counts(None), "counts: a NoneType"),
    ("a model that is None", lambda: model.model_from_document(None), "model document: a NoneType"),
    ("a model without parameters", lambda: model.model_from_document({"schema": 1}), "model document"),
    ("a row of counts that is text", lambda: fit.counts_from_row("x"), "row: 'str'"),
    ("counts of None", lambda: Counts.from_dict(None), "Counts: NoneType where an object is expected"),
    ("counts with NaN", lambda: Counts.from_dict(counts_dict(split_k=float("nan"))), "split_k: nan is not int"),
    ("counts with 3 for launches", lambda: Counts.from_dict(counts_dict(launches=3)), "3 is not a list"),
    ("a trial that is a list", lambda: Trial.from_dict([]), "list"),
    ("tune with text for variants", lambda: tune_shape(SHAPE, variants="hybrid"), "variants='hybrid'; allowed: a list"),
    ("tune with 3 for variants", lambda: tune_shape(SHAPE, variants=3), "variants=3; allowed: a list"),
    ("tune with a billion workers", lambda: tune_shape(SHAPE, workers=10**9), "workers=1000000000; allowed"),
    ("tune with budget NaN", lambda: tune_shape(SHAPE, budget=float("nan")), "budget=nan"),
    ("export a list", lambda: exported([1]), "picks: a pick is no object"),
    ("export the number 3", lambda: exported({TEXT: 3}), "3 is no (variant, config)"),
    ("export evidence that is no text", lambda: exported(PICK, evidence=3), "evidence=3"),
    ("export a knob that ends its string", lambda: exported(PICK, knobs={"A": 'x"); import socket; print("'}),
     "knobs: A="),
    ("export a knob whose name is code", lambda: exported(PICK, knobs={'A", "x"); import socket; ("': "1"}), "knobs: "),
    ("lint None", lambda: lint_source(None), "source: a NoneType"),
    ("check None", lambda: check_submission(None), "submission=None is no path"),
    ("check an endless device", lambda: check_submission("/dev/zero"), "no such file"),
    ("check with a time limit of NaN", lambda: check_submission(EMPTY, time_limit_s=float("nan")), "time_limit_s=nan"),
    ("check with a time limit of text", lambda: check_submission(EMPTY, time_limit_s="10"), "time_limit_s='10'"),
    ("check with endless memory", lambda: check_submission(EMPTY, memory_limit_bytes=float("inf")), "finite"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), [row[1:] for row in API], ids=[row[0] for row in API])
def test_a_bad_argument_gets_one_sentence_of_ours(call: Callable[[], Any], said: str) -> None:
    compiled()  # not on this row's time
    started = time.perf_counter()
    with pytest.raises(ValueError) as caught:
        call()
    assert time.perf_counter() - started < SLOW_S
    error = caught.value
    assert type(error) is ValueError or type(error).__module__.startswith("mxfp4lab."), type(error)
    assert "mxfp4lab" in traceback.extract_tb(error.__traceback__)[-1].filename, "another library's sentence"
    message = str(error)
    assert said in message and "\n" not in message and len(message) < 1000, message


# Results that are no matrix of numbers are a verdict, never an exception.
RESULTS = [
    ("None", lambda: None, "not a tensor but NoneType"),
    ("a numpy array", lambda: np.zeros((8, 64)), "not a tensor but ndarray"),
    ("complex numbers", lambda: torch.zeros(8, 64, dtype=torch.complex64), "torch.complex64"),
    ("truth values", lambda: torch.zeros(8, 64, dtype=torch.bool), "torch.bool"),
    ("a sparse tensor", lambda: torch.zeros(8, 64).to_sparse(), "torch.sparse_coo"),
    ("a tensor without contents", lambda: torch.zeros(8, 64, device="meta"), "on meta"),
    ("an empty tensor", lambda: torch.zeros(0), "shape (0,)"),
    ("integers", lambda: torch.zeros(8, 64, dtype=torch.int32), "dtype torch.int32"),
]


@pytest.mark.parametrize(("make", "said"), [row[1:] for row in RESULTS], ids=[row[0] for row in RESULTS])
def test_a_result_of_another_kind_is_a_verdict(make: Callable[[], Any], said: str) -> None:
    found = check_output(make(), torch.zeros(8, 64, dtype=torch.bfloat16))
    assert not found.passed and said in found.message


# Files ----------------------------------------------------------------------------------------------------------------

CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "random bytes": np.random.default_rng(5).bytes(5000),
    "UTF-16": '{"schema": 1}\n'.encode("utf-16"),
    "half an object": b'{"schema": 1, "picks": [',
    "deep nest": b"[" * 100_000,
    "NaN": b'{"schema": 1, "model_version": NaN}',
    "a pickle": b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.",
}
READERS: dict[str, Callable[[Path], Any]] = {
    "model": lambda path: model.model_from_document(model.load_document(path)),
    "published rows": fit.rows_from_file,
    "picks": read_picks,
    "counters": read_counters,
    "code object": load_code_object,
}


def place(folder: Path, content: str) -> Path:
    """A file of that content, or something that is no file."""
    path = folder / "it"
    if content == "a folder":
        path.mkdir()
    elif content == "a link to itself":
        path.symlink_to("it")
    elif content != "nothing":
        path.write_bytes(CONTENTS[content])
    return path


KINDS_OF_FILE = (*CONTENTS, "a folder", "a link to itself", "nothing")


@pytest.mark.parametrize("content", KINDS_OF_FILE)
@pytest.mark.parametrize("reader", READERS)
def test_a_file_of_another_kind_is_refused_by_name(reader: str, content: str, tmp_path: Path) -> None:
    path = place(tmp_path, content)
    started = time.perf_counter()
    with pytest.raises(ValueError) as caught:
        READERS[reader](path)
    assert time.perf_counter() - started < SLOW_S
    error = caught.value
    assert type(error) is ValueError or type(error).__module__.startswith("mxfp4lab."), type(error)
    assert "\n" not in str(error) and len(str(error)) < 1000


@pytest.mark.parametrize("content", KINDS_OF_FILE)
def test_a_records_file_of_another_kind_is_a_warning(content: str, tmp_path: Path) -> None:
    trials, warnings = read_trials(place(tmp_path, content), TEXT)
    assert trials == [] and len(warnings) <= 3 and bool(warnings) == (content != "empty")
    assert all("\n" not in warning for warning in warnings)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_records_that_would_never_end_are_passed_over(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "one" / "trials-main.jsonl"
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    trials, (warning,) = read_all_trials(tmp_path)
    assert trials == {} and str(path) in warning and warning.endswith("no regular file")


def test_a_pipe_that_nobody_writes_to_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of cases, of counters, an entry of the compile cache."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ValueError, match="holds no case"):
        read_cases(path)
    with pytest.raises(ValueError, match="is no counter file"):
        read_counters(path)
    monkeypatch.setenv("MXFP4LAB_CACHE", str(tmp_path))
    entry = compile_cache.entry_path("0" * 64)
    entry.parent.mkdir(parents=True)
    os.mkfifo(entry)
    assert compile_cache.load("0" * 64) is None


def test_nothing_is_executed_out_of_an_archive(tmp_path: Path) -> None:
    """The golden vectors are read without pickle: an object array in their place is refused, not loaded."""
    path = tmp_path / "golden.npz"
    np.savez(path, packed=np.array([print], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        np.load(path, allow_pickle=False)["packed"]
    sources = [path.read_text() for path in (ROOT / "mxfp4lab").rglob("*.py")]
    assert not any("pickle.load" in text or "allow_pickle=True" in text or "torch.load(" in text for text in sources)


@pytest.mark.parametrize("content", [{"a": float("nan")}, {"a": object()}, None, 3])
def test_a_run_is_described_by_json_alone(content: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no JSON object"):
        write_run_json(tmp_path, content)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("worker", ["../x", "", "a b", "x\0"])
def test_a_worker_is_no_path(worker: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="worker: "):
        TrialLog(tmp_path, worker)


# The command line -----------------------------------------------------------------------------------------------------

COMMANDS: list[tuple[list[str], str]] = [
    (["compile", "--variant", "fused_rowmajor", "--shape", "8,64\0,512"], "is not a shape"),
    (["compile", *PLAN, "--config", '{"block_m": NaN}'], "block_m=nan must be int"),
    (["compile", *PLAN, "--config", ""], "is not JSON"),
    (["compile", *PLAN, "--config", "null"], "is not a mapping"),
    (["compile", *PLAN, "--config", '{"block_m": 1' + "0" * 5000 + "}"], "is not JSON"),
    (["compile", *PLAN, "--config", '{"block_m": 16, "block_m": 7}'], "block_m=7"),
    (["emulate", *PLAN, "--seed", ""], "seed=''"),
    (["emulate", "--variant", "hopper", "--shape", TEXT], "variant='hopper' runs on sm_90 only, not on gfx950"),
    (["predict", *PLAN, "--config", '{"num_stages": 1000000000}'], "num_stages=1000000000"),
    (["tune", "--shape", TEXT, "--budget", "nan"], "budget='nan'"),
    (["tune", "--shape", TEXT, "--workers", "0"], "workers='0'"),
    (["tune", "--shape", TEXT, "--max-spills", "-1"], "max-spills='-1'"),
    (["tune", "--shape", TEXT, "--variants", ""], "no name given"),
    (["tune", "--shape", TEXT, "--variants", "hopper"], "is not written for gfx950"),
    (["tune", "--shape", TEXT, "--out", "a\0b"], "holds no NUL"),
    (["model", "x"], "unrecognized arguments: x"),
    (["counters", "/dev/null"], "is no counter file"),
    (["counters", "/"], "cannot read /"),
    (["counters", "/dev/zero"], "no end at all"),
    (["counters", "/dev/null", "--variant", "x"], "give both or neither"),
    (["check", "/"], "no such file"),
    (["check", "a\0b"], "no such file"),
    (["check", EMPTY, "--memory-limit", "nan"], "must be a finite number"),
    (["check", EMPTY, "--memory-limit", "inf"], "must be a finite number"),
    (["check", EMPTY, "--time-limit", "nan"], "must be a finite number"),
    (["check", EMPTY, "--cases", "/"], "could not open test file"),
    (["check", EMPTY, "--cases", "/dev/zero"], "no end at all"),
    (["export", "/", "s.py"], "'/'"),
    (["export", "--lint", "/"], "no such file"),
    (["export", "--cell", "x", EMPTY, "s.py"], "is no notebook"),
    (["export", "--variant", "fused_rowmajor", "--shape", TEXT, "/proc/nowhere/s.py"], "cannot be written"),
    (["export", *PLAN, "a\0.py"], "cannot be written"),
]


@pytest.mark.parametrize(("arguments", "said"), COMMANDS, ids=[" ".join(row[0])[:50] for row in COMMANDS])
def test_a_bad_command_is_one_line(arguments: list[str], said: str, capfd: pytest.CaptureFixture) -> None:
    started = time.perf_counter()
    code = cli.run(arguments)
    out, err = capfd.readouterr()
    assert time.perf_counter() - started < SLOW_S
    assert (code, out) in ((2, ""), (113, "")), (code, out)
    assert said in err and err.count("\n") == 1 and "bug of ours" not in err, err


def in_a_shell(*arguments: str, before: Callable[[], None] | None = None, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-m", "mxfp4lab", *arguments], capture_output=True, text=True, cwd=ROOT,
                          timeout=120, preexec_fn=before, env={**os.environ, **environment})  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_what_a_machine_may_do_to_a_compilation(tmp_path: Path) -> None:
    """A cache that is a file, a read-only one, a full disk: the first two compile, the third says so."""
    path = tmp_path / "file"
    path.write_text("")
    code, out, err = in_a_shell("compile", *PLAN, "--json", MXFP4LAB_CACHE=str(path))
    assert code == 0 and json.loads(out)["resources"] and "cannot be written (Not a directory)" in err
    assert "Traceback" not in err

    limit = 64 << 10  # bytes that any file may have: the code object and the cache's entry are larger
    full = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
    code, out, err = in_a_shell("compile", *PLAN, before=full, MXFP4LAB_CACHE=str(tmp_path / "cache"))
    assert "Traceback" not in err
    assert code == 0 or (code == 2 and out == "" and err.count("\n") <= 2), (code, err)
    assert not list(tmp_path.rglob("*.kernel")) and not list(tmp_path.rglob("*.tmp")), "half an entry"


def test_tritons_interpreter_is_refused_by_name() -> None:
    code, out, err = in_a_shell("compile", *PLAN, TRITON_INTERPRET="1")
    assert code == 2 and out == "" and "TRITON_INTERPRET=1" in err and err.count("\n") == 1


def test_the_table_is_long_enough() -> None:
    rows = len(API) + len(RESULTS) + len(READERS) * len(KINDS_OF_FILE) + len(KINDS_OF_FILE) + len(COMMANDS)
    assert rows >= 180
