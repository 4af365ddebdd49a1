"""Compiling for gfx950 without a GPU: the same code as the JIT's, what is read from it, and how it refuses."""

import re

import pytest
import toolchain_kernels as kernels
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

from mxfp4lab.gfx950 import CompileError, compile_job, compile_kernel, make_job, occupancy, run, triton_source
from mxfp4lab.gfx950.toolchain.specialize import Pointer, specialize

TARGETS = {"gfx950": GPUTarget("hip", "gfx950", 64), "sm_90": GPUTarget("cuda", 90, 32)}
DOT = {
    "signature": {"a": "*u8", "b": "*u8", "scale": "*u8", "c": "*bf16", "k": "i32"},
    "constants": {"BM": 16, "BN": 64, "BK": 256},
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MXFP4LAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def no_driver(monkeypatch):
    """Any use of a GPU driver fails the test."""

    class Forbidden:
        def __getattr__(self, name):
            raise AssertionError(f"the offline path asked the driver for {name}")

    monkeypatch.setattr(triton.runtime.driver, "_active", Forbidden(), raising=False)
    monkeypatch.setattr(triton.runtime.driver, "_default", Forbidden(), raising=False)


def jit_view(fn, arch, arguments):
    """What Triton's own binder makes of real arguments: its specialisation, and the source that it would compile."""
    backend = make_backend(TARGETS[arch])
    bound, specialization, options = create_function_from_signature(fn.signature, fn.params, backend)(**arguments)
    options, signature, constants, attributes = fn._pack_args(backend, {}, bound, specialization, options)
    return signature, constants, attributes, ASTSource(fn, signature, constants, attributes)


def as_pointers(arguments):
    names = {torch.uint8: "u8", torch.bfloat16: "bf16", torch.float32: "fp32"}

    def pointer(value):
        if isinstance(value, tuple):
            return tuple(map(pointer, value))
        return Pointer(names[value.dtype], aligned=value.data_ptr() % 16 == 0) if torch.is_tensor(value) else value

    return {name: pointer(value) for name, value in arguments.items()}


BYTES = torch.zeros(256, dtype=torch.uint8)
HALVES = torch.zeros(256, dtype=torch.bfloat16)


def same_as_the_jit(fn, arch, arguments):
    """Our specialisation of the arguments is the binder's, in the form that Triton's source takes."""
    signature, constants, attributes, _ = jit_view(fn, arch, arguments)
    job = make_job(fn, specialize(fn, as_pointers(arguments), arch), {}, arch)
    ours = triton_source(job)
    assert (ours.signature, ours.constants) == (signature, constants)
    assert ours.attrs == {path: value for path, value in attributes.items() if value}
    return job


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("n, m, f, flag, h, w", [
    (1, 1, 0.5, True, 1.0, 16), (32, 2**31 - 16, 1.0, False, 1, -32), (0, -16, 2.0, True, 3, 1),
    (17, 5, 0.0, False, 2.5, 7), (2**31, 16, 0.5, True, 1.0, 1), (-(2**31), 8, 0.5, True, 1.0, 2),
    (2**63, 8, 0.5, True, 1.0, 2), (-(2**31) - 1, 8, 0.5, True, 1.0, 2),
])  # fmt: skip
@pytest.mark.parametrize("tensor", [BYTES, BYTES[3:]])
def test_arguments_are_specialised_as_the_jit_does(arch, n, m, f, flag, h, w, tensor):
    same_as_the_jit(kernels.every_kind, arch, {
        "a": tensor, "b": HALVES, "n": n, "m": m, "f": f, "flag": flag, "nothing": None, "h": h, "w": w, "q": HALVES,
        "BLOCK": 32,
    })  # fmt: skip


@pytest.mark.parametrize("n, k", [(1, 1), (16, 16), (3, 48)])
def test_do_not_specialize_is_respected(n, k):
    same_as_the_jit(kernels.half_specialized, "gfx950", {"a": BYTES, "b": BYTES, "n": n, "k": k, "BLOCK": 32})


@pytest.mark.parametrize("n", [1, 64, 7])
def test_a_tuple_is_specialised_entry_by_entry_and_launched_flat(n):
    x, y = torch.arange(64, dtype=torch.float32), torch.zeros(64)
    job = same_as_the_jit(kernels.add_to_many, "gfx950", {"inputs": (x, (y, n)), "BLOCK": 64})
    assert [name for name, _ in job.specialization.runtime_signature()] == ["inputs[0]", "inputs[1][0]"] + (
        ["inputs[1][1]"] * (n != 1))  # fmt: skip
    typed = compile_kernel(kernels.add_to_many, {"inputs": ("*fp32", ("*fp32", "i32"))}, {"BLOCK": 64})
    assert [name for name, _ in typed.signature] == ["inputs[0]", "inputs[1][0]", "inputs[1][1]"]
    run(typed, (1,), (x, (y, n)))
    assert y.equal(x + n)


@pytest.mark.parametrize("k", [1024, 1])
def test_offline_code_is_the_code_of_the_jit(k, no_driver, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # Triton's own cache does not ask which file a kernel is in
    arguments = dict(a=BYTES, b=BYTES, scale=BYTES, c=HALVES, k=k, **DOT["constants"])
    source = jit_view(kernels.scaled_dot, "gfx950", arguments)[3]
    options = {"num_warps": 4, "matrix_instr_nonkdim": 16}
    on_box = triton.compile(source, target=TARGETS["gfx950"], options=options)
    chosen = specialize(kernels.scaled_dot, as_pointers(arguments), "gfx950")
    ours = compile_job(make_job(kernels.scaled_dot, chosen, options, "gfx950"))
    assert ours.asm == on_box.asm["amdgcn"]
    assert ours.binary == on_box.asm["hsaco"]
    assert [name for name, _ in ours.signature] == ["a", "b", "scale", "c"] + ["k"] * (k != 1)


def test_resources_and_mix_agree_with_the_compilers_text(no_driver):
    compiled = compile_kernel(kernels.scaled_dot, **DOT, options={"num_warps": 4, "matrix_instr_nonkdim": 16})

    def said(name):
        return int(re.search(rf"; {name}: (\d+)", compiled.asm).group(1))

    resources = compiled.resources
    assert 0 <= resources.vgprs - said("NumVgprs") < 4  # the text gives the allocation where there are AGPRs too
    assert resources.agprs == said("NumAgprs")
    assert resources.sgprs + 6 == said("TotalNumSgprs")
    assert resources.lds_bytes > 0
    assert occupancy(resources.vgprs, resources.agprs, resources.sgprs, 0, 4) == said("Occupancy")
    assert compiled.mfma == {"v_mfma_scale_f32_16x16x128_f8f6f4": compiled.asm.count("\tv_mfma_scale_f32_16x16x128")}
    assert sum(compiled.mix.values()) == len(compiled.program)
    assert compiled.mix["lds"] == len(re.findall(r"^\tds_", compiled.asm, re.MULTILINE))
    assert compiled.hazards == ()
    assert compiled.descriptor.block_threads == 256
    assert compiled.knobs["TRITON_DEFAULT_FP_FUSION"] == "1"


def test_a_kernel_shows_itself_as_a_card():
    compiled = compile_kernel(kernels.copy_doubled, {"x": "*fp32", "y": "*fp32", "n": "i32"}, {"BLOCK": 256})
    text = str(compiled)
    assert text.startswith("copy_doubled on gfx950\n") and f"{compiled.resources.vgprs} VGPRs" in text
    assert "no spills" in text and "hazards" in text and compiled.asm not in repr(compiled)
    assert "copy_doubled on gfx950" in compiled._repr_html_()


@pytest.mark.parametrize("options, spills", [({"num_warps": 4}, False), ({"num_warps": 4, "waves_per_eu": 8}, True)])
def test_spills_are_seen(options, spills):
    compiled = compile_kernel(
        kernels.accumulate_dot, {"a": "*bf16", "b": "*bf16", "c": "*fp32"}, {"BM": 128, "BN": 128, "BK": 64}, options
    )
    resources = compiled.resources
    assert (resources.spilled_vgprs > 0) is spills
    assert (resources.scratch_bytes > 0) is spills
    assert (compiled.mix.get("scratch", 0) > 0) is spills


@pytest.mark.parametrize("vgprs, agprs, sgprs, lds, waves, expected", [
    (64, 0, 20, 0, 4, 8), (65, 0, 20, 0, 4, 7), (128, 0, 20, 0, 4, 4), (129, 0, 20, 0, 4, 3), (256, 256, 20, 0, 4, 1),
    (32, 32, 20, 0, 4, 8), (61, 4, 20, 0, 4, 7), (64, 0, 96, 0, 4, 7), (64, 0, 20, 163840, 4, 1),
    (64, 0, 20, 163841, 4, 0), (64, 0, 20, 81920, 4, 2), (64, 0, 20, 40960, 4, 4), (64, 0, 20, 40960, 1, 1),
    (168, 0, 20, 0, 8, 2), (1, 0, 1, 0, 1, 8),
])  # fmt: skip
def test_occupancy(vgprs, agprs, sgprs, lds, waves, expected):
    assert occupancy(vgprs, agprs, sgprs, lds, waves) == expected


def test_too_few_warps_fall_back_to_bf16_and_show_it():
    compiled = compile_kernel(kernels.scaled_dot, **DOT, options={"num_warps": 1, "matrix_instr_nonkdim": 16})
    assert compiled.mfma
    assert not any("mfma_scale" in name for name in compiled.mfma)


def test_knobs_are_part_of_the_key_and_do_not_leak(monkeypatch):
    monkeypatch.delenv("AMDGCN_USE_BUFFER_OPS", raising=False)
    default = compile_kernel(**COPY)
    without = compile_kernel(**COPY, knobs={"AMDGCN_USE_BUFFER_OPS": "0"})
    assert "buffer_load" in default.asm and "buffer_load" not in without.asm
    assert without.knobs["AMDGCN_USE_BUFFER_OPS"] == "0" and not without.from_cache
    assert compile_kernel(**COPY).from_cache and "AMDGCN_USE_BUFFER_OPS" not in default.knobs
    assert default.kernel_hash != without.kernel_hash or default.knobs != without.knobs
    monkeypatch.setenv("AMDGCN_USE_BUFFER_OPS", "0")
    assert compile_kernel(**COPY).asm == without.asm
    with pytest.raises(ValueError, match="AMDGCN_USE_BUFFER_OP'"):
        compile_kernel(**COPY, knobs={"AMDGCN_USE_BUFFER_OP": "0"})


def test_sm_90_compiles_and_names_its_registers(no_driver):
    compiled = compile_kernel(
        kernels.copy_doubled, {"x": "*fp32", "y": "*fp32", "n": "i32"}, {"BLOCK": 256}, {}, "sm_90"
    )
    assert ".target sm_90" in compiled.asm and compiled.binary[:4] == b"\x7fELF"
    assert (compiled.mix == {} and compiled.resources is None) or compiled.resources.vgprs > 0
    with pytest.raises(ValueError, match="sm_90"):
        compiled.program  # noqa: B018


COPY = {"jit_fn": kernels.copy_doubled, "signature": {"x": "*fp32", "y": "*fp32", "n": "i32"},
        "constants": {"BLOCK": 64}}  # fmt: skip
PAIR = {"jit_fn": kernels.convert_pair, "signature": {"x": "*fp32", "y": "*i32"}}
BIG = {"jit_fn": kernels.accumulate_dot, "signature": {"a": "*bf16", "b": "*bf16", "c": "*fp32"},
       "constants": {"BM": 256, "BN": 256, "BK": 128}, "options": {"num_stages": 3}}  # fmt: skip


def broken(fn):
    return {"jit_fn": fn, "signature": {"x": "*i32"}, "constants": {"BLOCK": 64}}


@pytest.mark.parametrize("request_, kind, words", [
    (broken(kernels.wrong_name), "source", ["wrong_name", "not_defined"]),
    (broken(kernels.wrong_shapes), "source", ["tl.store", "64", "128"]),
    (COPY | {"signature": {"x": "*fp32", "y": "*fp32"}}, "request", ["'n'"]),
    (COPY | {"constants": {}}, "request", ["'BLOCK'"]),
    (COPY | {"constants": {}, "signature": COPY["signature"] | {"BLOCK": "i32"}}, "request", ["'BLOCK'"]),
    (COPY | {"signature": COPY["signature"] | {"z": "i32"}}, "request", ["'z'"]),
    (COPY | {"aligned": ["z"]}, "request", ["'z'", "x, y, n"]),
    (COPY | {"options": {"num_warp": 4}}, "request", ["num_warp", "num_warps"]),
    (COPY | {"arch": "mi355x"}, "request", ["mi355x", "gfx950"]),
    ({"jit_fn": len, "signature": {}}, "request", ["triton.jit"]),
    (COPY | {"options": {"num_warps": 32}}, "request",
     ["num_warps=32", "copy_doubled", "2048 threads", "at most 16"]),
    (BIG, "lds", ["B of LDS", "163840"]),
    (PAIR | {"arch": "gfx942", "constants": {"BLOCK": 256, "ASM": "v_cvt_scalef32_pk_fp4_f32 $0, $1, $1, 1.0"}},
     "assemble", ["gfx942", "v_cvt_scalef32_pk_fp4_f32", "software"]),
    (PAIR | {"constants": {"BLOCK": 256, "ASM": "v_no_such $0, $1"}}, "assemble", ["convert_pair"]),
])  # fmt: skip
def test_a_refusal_is_one_clear_line(request_, kind, words, capfd):
    for _ in range(2):  # the second time some come from the cache
        with pytest.raises(CompileError) as caught:
            compile_kernel(**request_)
        assert caught.value.kind == kind
        assert "\n" not in str(caught.value) and all(word in str(caught.value) for word in words), str(caught.value)
    assert capfd.readouterr().err == ""


def test_the_interpreter_is_refused(monkeypatch):
    class InterpretedFunction:
        pass

    with pytest.raises(CompileError, match="TRITON_INTERPRET"):
        compile_kernel(InterpretedFunction(), {})
