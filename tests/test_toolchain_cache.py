"""The compile cache believes nothing that does not check out, and compiling goes on without it."""

import errno
import hashlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import toolchain_kernels as kernels

from mxfp4lab.gfx950 import CompileError, compile_kernel
from mxfp4lab.gfx950.toolchain import cache
from mxfp4lab.gfx950.toolchain.jobs import meaning

REQUEST = {
    "jit_fn": kernels.copy_doubled,
    "signature": {"x": "*fp32", "y": "*fp32", "n": "i32"},
    "constants": {"BLOCK": 256},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MXFP4LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_warned", set())
    return tmp_path / "cache"


def only_entry(folder):
    (path,) = folder.rglob("*.kernel")
    return path


def test_a_second_compilation_is_read_from_disk(folder):
    first, second = compile_kernel(**REQUEST), compile_kernel(**REQUEST)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert replace(second, from_cache=False) == first and second.analysis == first.analysis
    assert len(second.program) == len(first.program)


def test_what_changes_the_code_changes_the_entry():
    compile_kernel(**REQUEST)
    for change in (
        {"constants": {"BLOCK": 512}},
        {"options": {"num_warps": 8}},
        {"options": {"waves_per_eu": 2}},
        {"aligned": ["x", "y", "n"]},
        {"aligned": ["x"]},
        {"small_pointers": False},
        {"signature": {"x": "*fp32", "y": "*fp32", "n": "i64"}},
        {"knobs": {"DISABLE_LLVM_OPT": "1"}},
    ):
        assert not compile_kernel(**{**REQUEST, **change}).from_cache, change
    assert compile_kernel(**REQUEST).from_cache


def loaded(path, text):
    """`copy_doubled` of a file of this text."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.copy_doubled


def test_an_edit_of_a_helper_compiles_again(tmp_path):
    source = Path(kernels.__file__).read_text()

    def load(text, name):
        return {**REQUEST, "jit_fn": loaded(tmp_path / f"{name}.py", text)}

    first = compile_kernel(**load(source, "one"))
    moved = compile_kernel(**load(source, "two"))  # the same kernel, but its listing names another file
    assert moved.kernel_hash == first.kernel_hash and not moved.from_cache
    assert "one.py" in first.asm and "two.py" in moved.asm and "one.py" not in moved.asm
    edited = compile_kernel(**load(source.replace("return x * 2", "return x * 3"), "three"))
    assert not edited.from_cache and edited.kernel_hash != first.kernel_hash and edited.asm != first.asm


def test_only_what_has_a_meaning_makes_another_kernel(tmp_path):
    source = Path(kernels.__file__).read_text()
    helper = "def double(x):\n"
    for name, text, same in (
        ("comment", source.replace(helper, helper + "    # twice\n"), True),
        ("docstring", source.replace(helper, helper + '    """Twice x."""\n'), True),
        ("lower", source.replace("@triton.jit\ndef double", "ONE = 1\n\n\n@triton.jit\ndef double"), True),
        ("layout", source.replace("x * 2", "(x\n            * 2)"), True),
        ("helper", source.replace("x * 2", "x * 3"), False),
        ("global", source.replace("x * 2", "x * N").replace(helper, helper, 1) + "\nN = tl.constexpr(2)\n", False),
    ):
        found = meaning(loaded(tmp_path / f"{name}.py", text))
        assert text != source and (found == meaning(kernels.copy_doubled)) is same, name
    other = text.replace("N = tl.constexpr(2)", "N = tl.constexpr(3)")
    assert found != meaning(loaded(tmp_path / "other.py", other))


def test_another_toolchain_compiles_again(monkeypatch):
    compile_kernel(**REQUEST)
    from mxfp4lab.gfx950.toolchain import jobs

    monkeypatch.setattr(jobs, "toolchain_versions", lambda: {"triton": "0.0"})
    assert not compile_kernel(**REQUEST).from_cache


def test_damaged_entries_are_compiled_again(folder):
    good = compile_kernel(**REQUEST)
    path = only_entry(folder)
    data = path.read_bytes()
    rng = random.Random(5)
    cut = [0, 1, 64, 65, 66, 200, len(data) // 2, len(data) - 1]
    damaged = [data[:n] for n in cut] + [data + b"x", b"\0" * 4096, b"{}\n", b"null\n[]\n", b"[" * 100_000]
    for _ in range(50):
        place = rng.randrange(len(data))
        damaged.append(data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :])
    for bad in damaged:
        assert cache.decode_entry(bad, path.stem) is None
    path.write_bytes(damaged[6])
    again = compile_kernel(**REQUEST)
    assert not again.from_cache and again.asm == good.asm
    assert path.read_bytes() != damaged[6] and compile_kernel(**REQUEST).from_cache


@pytest.mark.parametrize(
    "change",
    [{"format": 99}, {"key": "0" * 64}, {"kernel": None}, {"kernel": {}}, {"kernel": {"name": "x", "more": 1}}],
)
def test_sound_files_of_another_kind_are_absent(folder, change):
    compile_kernel(**REQUEST)
    path = only_entry(folder)
    _, body = path.read_bytes().split(b"\n", 1)
    body = json.dumps({**json.loads(body), **change}).encode()
    assert cache.decode_entry(hashlib.sha256(body).hexdigest().encode() + b"\n" + body, path.stem) is None


def test_an_analysis_by_older_code_is_done_again(folder, monkeypatch):
    compile_kernel(**REQUEST)
    monkeypatch.setattr(cache, "analysis_version", lambda: "other")
    found = compile_kernel(**REQUEST)
    assert found.from_cache and "analysis" not in vars(found) and found.mix["vmem"] > 0


def test_failures_are_remembered_only_if_they_repeat():
    request = {"jit_fn": kernels.wrong_name, "signature": {"x": "*i32"}, "constants": {"BLOCK": 64}}
    with pytest.raises(CompileError) as first:
        compile_kernel(**request)
    with pytest.raises(CompileError) as second:
        compile_kernel(**request)
    assert (str(first.value), first.value.kind) == (str(second.value), second.value.kind)
    assert "not_defined" in second.value.detail
    assert not cache.store(CompileError("slow", "timeout"), "1" * 64) and cache.load("1" * 64) is None


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_cache_that_cannot_be_written_warns_once(monkeypatch, reason):
    replace = os.replace

    def refuse(source, target):
        if str(target).endswith(".kernel"):
            raise OSError(reason, os.strerror(reason))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            assert not compile_kernel(**REQUEST).from_cache
    assert len([item for item in said if "cannot be written" in str(item.message)]) == 1


def test_a_file_in_the_folders_place(tmp_path, monkeypatch):
    (tmp_path / "plain").write_text("not a folder")
    monkeypatch.setenv("MXFP4LAB_CACHE", str(tmp_path / "plain"))
    with pytest.warns(UserWarning, match="cannot be written"):
        assert compile_kernel(**REQUEST).mix["vmem"] > 0


@pytest.mark.parametrize("limit", [0, 5000])
def test_no_room_for_files_at_all_is_one_line_per_kernel(tmp_path, limit):
    here = Path(__file__).parent
    script = f"""
import resource, sys
sys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]
import toolchain_kernels as kernels
from test_compile_many import plan
from mxfp4lab.gfx950 import CompileError, compile_kernel
from mxfp4lab.workers import compile_many
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    compile_kernel(kernels.copy_doubled, {{"x": "*fp32", "y": "*fp32", "n": "i32"}}, {{"BLOCK": 256}})
except CompileError as error:
    print(error.kind, "compilation failed" in str(error))
for result in compile_many([plan(64), plan(128)], workers=2):
    print(result.error.kind, "compilation failed" in str(result.error))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert run.stdout.split("\n") == ["machine True"] * 3 + [""], run.stderr
    assert "Traceback" not in run.stderr
