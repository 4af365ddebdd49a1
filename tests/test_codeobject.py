"""Code objects decode to what their assembly says, and damaged ones are refused in one line."""

import contextlib
import dataclasses
import random
import struct
import sys
import time
from pathlib import Path

import pytest
import toolchain_kernels as kernels

from mxfp4lab.config import config_errors
from mxfp4lab.gfx950 import (
    CompileError,
    IsaError,
    compile_kernel,
    load_code_object,
    open_code_object,
    parse_amdgcn,
    read_code_object,
)
from mxfp4lab.gfx950.isa.elf import unpack_msgpack
from mxfp4lab.plan import VARIANTS, build_plan, default_config
from mxfp4lab.shapes import parse_shape
from mxfp4lab.workers import compile_many

pytest.importorskip("tinygrad.renderer.amd", reason="decoding code objects needs the extra [codeobject]")

FORMS = [line for line in (Path(__file__).parent / "data" / "gfx950_forms.s").read_text().splitlines()
         if line and not line.startswith(";")]  # fmt: skip
KERNEL = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
.text
.globl k
.p2align 8
.type k,@function
k:
{body}
s_endpgm
.section .rodata,"a",@progbits
.p2align 6
.amdhsa_kernel k
.amdhsa_next_free_vgpr 32
.amdhsa_next_free_sgpr 16
.amdhsa_accum_offset 32
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 0
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 32
    .max_flat_workgroup_size: 64
...
.end_amdgpu_metadata
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A small kernel, and the cache folder for this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXFP4LAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield compile_kernel(kernels.copy_doubled, {"x": "*fp32", "y": "*fp32", "n": "i32"}, {"BLOCK": 256})


def assemble(text):
    """Assemble with the assembler in Triton; relocatable output is enough for sections, not for symbols."""
    try:
        from triton.backends.amd.compiler import assemble_amdgcn
    except ImportError:  # Triton before 3.9
        from triton._C.libtriton import amd, llvm

        llvm.init_targets()
        return amd.assemble_amdgcn(text, "gfx950", "")
    return assemble_amdgcn(text, "gfx950", "")


def section(data, wanted):
    table, count, names = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 60)
    entries = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * index) for index in range(count)]
    for entry in entries:
        start = entries[names][4] + entry[0]
        if data[start : data.index(b"\0", start)].decode() == wanted:
            return data[entry[4] : entry[4] + entry[5]]
    raise AssertionError(f"no section {wanted}")


def same(decoded, written):
    """Equal in all that decides execution; inline assembly may leave the encoding to the assembler, labels differ."""

    def key(item, encoding):
        return (
            item.mnemonic,
            encoding,
            tuple(o for o in item.operands if o.kind != "label"),
            item.modifiers,
            item.target,
        )

    return key(decoded, decoded.encoding if written.encoding else "") == key(written, written.encoding)


def test_every_form_is_read_back_as_written(capfd):
    from mxfp4lab.gfx950.isa.codeobject import decode_reachable

    code = section(assemble(KERNEL.format(body="\n".join(FORMS))), ".text")
    decoded, _ = decode_reachable(code, 0x1000, 0x1000, {})
    written, _ = parse_amdgcn(KERNEL.format(body="\n".join(FORMS)))
    assert len(decoded) == len(written) == len(FORMS) + 1
    wrong = [(item.text, other.text) for item, other in zip(decoded, written, strict=True) if not same(item, other)]
    assert wrong == []


@pytest.mark.parametrize("shape", ["16x2112x7168", pytest.param("256x3072x1536", marks=pytest.mark.slow)])
def test_our_kernels_decode_to_their_text(shape, compiled):
    named = [name for name, spec in VARIANTS.items() if not spec.needs_aiter]
    size = parse_shape(shape)
    named = [name for name in named if not config_errors(default_config(name, size), size, "gfx950", name)]
    assert len(named) >= 6
    plans = [build_plan(name, None, shape) for name in named]
    seen = {}
    for result in compile_many(plans):
        assert result.error is None
        seen.update({kernel.kernel_hash: kernel for kernel in result.compiled.kernels})
    assert len(seen) >= 5
    for kernel in seen.values():
        program, descriptor = read_code_object(kernel.binary, lds_bytes=kernel.lds_bytes)
        text = kernel.program
        assert (program.name, program.entry, len(program)) == (text.name, text.entry, len(text))
        wrong = [(item.text, other.text) for item, other in zip(program, text, strict=True) if not same(item, other)]
        assert wrong == [], kernel.name
        assert dataclasses.replace(descriptor, block_threads=kernel.descriptor.block_threads) == kernel.descriptor
        assert descriptor.mode == kernel.descriptor.mode


def test_a_loaded_code_object_tells_what_a_compiled_kernel_tells(compiled, tmp_path):
    path = tmp_path / "copy.hsaco"
    path.write_bytes(compiled.binary)
    loaded = load_code_object(path, lds_bytes=compiled.lds_bytes)
    assert (loaded.name, loaded.num_warps, loaded.resources) == (compiled.name, compiled.num_warps, compiled.resources)
    assert (loaded.mix, loaded.mfma, loaded.hazards) == (compiled.mix, compiled.mfma, compiled.hazards)
    assert [kind for _, kind in loaded.signature] == ["global_buffer", "global_buffer", "by_value"] + (
        ["global_buffer"] * (len(loaded.signature) - 3))  # fmt: skip
    assert open_code_object(path).kernels() == ("copy_doubled",)
    assert any("buffer_load_dword " in item.text for item in loaded.program)


@pytest.mark.parametrize("make, words", [
    (lambda data: b"", "no ELF file"),
    (lambda data: b"#!/bin/sh\n" * 20, "no ELF file"),
    (lambda data: data[:18] + struct.pack("<H", 62) + data[20:], "machine 62"),
    (lambda data: data[:4] + b"\x01" + data[5:], "64-bit"),
    (lambda data: data[:48] + struct.pack("<I", 0x54C) + data[52:], "only gfx950"),
    (lambda data: data[: len(data) // 2], "code object"),
    (lambda data: data.replace(b"AMDGPU\0\0", b"OTHERS\0\0"), "no kernel metadata"),
    (lambda data: data.replace(b"amdhsa.kernels", b"amdhsa.kernelz"), "no kernel metadata"),
])  # fmt: skip
def test_what_is_no_code_object_is_refused_in_one_line(compiled, make, words, tmp_path):
    path = tmp_path / "given.co"
    path.write_bytes(make(compiled.binary))
    with pytest.raises(CompileError) as caught:
        load_code_object(path)
    assert words in str(caught.value) and "\n" not in str(caught.value) and "given.co" in str(caught.value)
    assert caught.value.kind == "request"


def test_a_missing_file_and_a_missing_kernel(compiled, tmp_path):
    with pytest.raises(CompileError, match=r"none\.co: No such file"):
        load_code_object(tmp_path / "none.co")
    with pytest.raises(CompileError, match="no kernel 'other'; it has copy_doubled"):
        load_code_object(compiled.binary, name="other")


def test_damage_never_gives_another_exception(compiled):
    rng = random.Random(7)
    data = compiled.binary
    for trial in range(300):
        bad = bytearray(data[: rng.randrange(len(data))] if trial % 3 == 0 else data)
        for _ in range(rng.randrange(1, 40)):
            if bad:
                bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            read_code_object(bytes(bad))
        except IsaError as error:
            assert "\n" not in str(error)


@pytest.mark.torture
def test_two_minutes_of_damage(compiled):
    """As above on many objects, AMD's among them where aiter is installed; each answer within seconds."""
    from mxfp4lab.aiter.install import AiterError, find_aiter

    objects = [compiled.binary]
    with contextlib.suppress(AiterError):
        objects += [path.read_bytes() for path in sorted(find_aiter().code_object_folder().glob("*.co"))[::6]]
    rng, stop, tried = random.Random(11), time.monotonic() + 120, 0
    while time.monotonic() < stop:
        data = rng.choice(objects)
        bad = bytearray(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
        first = rng.randrange(max(1, len(bad)))
        area = range(first, min(len(bad), first + rng.choice([1, 8, 64, 4096])))
        for place in area:
            bad[place] = rng.randrange(256)
        started = time.monotonic()
        try:
            read_code_object(bytes(bad))
        except IsaError as error:
            assert "\n" not in str(error)
        assert time.monotonic() - started < 30
        tried += 1
    assert tried > 100


def test_padding_and_data_are_not_decoded_and_indirect_jumps_are_refused():
    from mxfp4lab.gfx950.isa.codeobject import decode_reachable

    body = "s_branch there\n.long 0xffffffff, 0xffffffff\nthere:\ns_cbranch_scc1 there\nv_mov_b32_e32 v1, v2"
    code = section(assemble(KERNEL.format(body=body)), ".text")
    decoded, labels = decode_reachable(code, 0, 0, {"there": 12, "elsewhere": 4})
    assert [item.mnemonic for item in decoded] == ["s_branch", "s_cbranch_scc1", "v_mov_b32", "s_endpgm"]
    assert [item.target for item in decoded] == [1, 1, None, None] and labels == {"there": 1}
    for jump, words in (
        ("s_setpc_b64 s[0:1]", "run time"),
        ("s_branch 0x100", "outside"),
        (".long 0xffffffff", "cannot decode"),
    ):
        with pytest.raises(IsaError, match=words):
            decode_reachable(section(assemble(KERNEL.format(body=jump)), ".text"), 0, 0, {})


def test_without_the_decoder_the_message_says_how_to_get_it(compiled, monkeypatch):
    monkeypatch.setitem(sys.modules, "tinygrad.renderer.amd", None)
    with pytest.raises(CompileError, match=r"tinygrad==0\.14\.0.*mxfp4lab\[codeobject\]"):
        load_code_object(compiled.binary)


@pytest.mark.parametrize("data, value", [
    (b"\x83\xa1a\x01\xa1b\xff\xa1c\x92\xc2\xc3", {"a": 1, "b": -1, "c": [False, True]}),
    (b"\xd9\x03abc", "abc"), (b"\xcd\x01\x00", 256), (b"\xd1\xff\x00", -256), (b"\xc0", None),
    (b"\xdc\x00\x02\x01\x02", [1, 2]), (b"\xde\x00\x01\xa1k\xcf" + b"\0" * 7 + b"\x05", {"k": 5}),
])  # fmt: skip
def test_msgpack(data, value):
    assert unpack_msgpack(data) == value


@pytest.mark.parametrize("data", [b"\xc1", b"\xa5ab", b"\x01\x02", b"\xdb\xff\xff\xff\xff", b"\x91" * 40 + b"\x01"])
def test_msgpack_refuses(data):
    with pytest.raises(IsaError):
        unpack_msgpack(data)
