"""The forwarding hazard that no one inserts a wait for inside inline assembly."""

import pytest
import toolchain_kernels as kernels

from mxfp4lab.isa import parse_amdgcn
from mxfp4lab.isa.hazards import find_hazards
from mxfp4lab.toolchain import compile_kernel

SDWA = "dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD"
BYTE = "v_cvt_scalef32_pk_fp4_f32 v0, v1, v2, 1.0"
HIGH = BYTE + " op_sel:[0,0,0,1]"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MXFP4LAB_CACHE", str(tmp_path / "cache"))


def hazards(*lines):
    text = "\n".join(
        [
            '.amdgcn_target "amdgcn-amd-amdhsa--gfx950"',
            ".text",
            "k:",
            *lines,
            "s_endpgm",
            ".amdhsa_kernel k",
            ".amdhsa_next_free_vgpr 32",
            ".amdhsa_next_free_sgpr 16",
            ".amdhsa_accum_offset 32",
            ".end_amdhsa_kernel",
            ".amdgpu_metadata",
            "---",
            "amdhsa.kernels:",
            "  - .name: k",
            "    .symbol: k.kd",
            "    .max_flat_workgroup_size: 64",
            "...",
            ".end_amdgpu_metadata",
        ]
    )
    return find_hazards(parse_amdgcn(text)[0])


@pytest.mark.parametrize(
    "first, second, kind",
    [
        (BYTE, "v_add_u32_e32 v3, v0, v4", "read"),
        (HIGH, "v_add_u32_e32 v3, v4, v0", "read"),
        (BYTE, HIGH, "write"),
        (HIGH, "v_mov_b32_e32 v0, 0", "write"),
        (HIGH, "v_xor_b32_e32 v0, v0, v3", "read"),
        (
            BYTE,
            "v_mfma_f32_16x16x32_bf16 v[4:7], v[0:3], v[8:11], v[4:7]",
            "read",
        ),
        ("v_cvt_scalef32_pk_fp4_bf16 v0, v1, 1.0", "v_lshl_or_b32 v2, v0, 8, v3", "read"),
        ("v_cvt_scalef32_sr_pk_fp4_f32 v0, v[2:3], v4, v5", "v_mov_b32_e32 v1, v0", "read"),
        ("v_cvt_scalef32_pk_fp8_f32 v0, v1, v2, 1.0 op_sel:[0,0,0,1]", "v_mov_b32_e32 v3, v0", "read"),
        (
            f"v_or_b32_sdwa v0, v1, v2 dst_sel:BYTE_1 {SDWA}",
            "v_mov_b32_e32 v3, v0",
            "read",
        ),
        (
            "v_add_u16_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD",
            "v_mov_b32_dpp v3, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
            "read",
        ),
        ("v_mad_u16 v0, v1, v2, v3 op_sel:[0,0,0,1]", "v_mov_b32_e32 v4, v0", "read"),
        (
            "v_cvt_f16_f32_sdwa v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD",
            "v_mov_b64_e32 v[4:5], v[0:1]",
            "read",
        ),
    ],
)
def test_planted_hazards_are_found(first, second, kind):
    (found,) = hazards("s_nop 0", first, second)
    assert (found.kind, found.index, found.register) == (kind, 2, "v0")
    assert first.split()[0] in found.message and "s_nop" in found.message
    waits = ("s_nop 0",) if second.startswith("v_mfma") else ()  # a matrix operand needs one more
    assert hazards(first, "s_nop 0", *waits, second) == []
    assert hazards(first, "v_mov_b32_e32 v20, 0", *waits, second) == []


@pytest.mark.parametrize(
    "first, second",
    [
        (BYTE, "v_add_u32_e32 v3, v5, v4"),  # another register
        (BYTE, "global_store_dword v[4:5], v0, off"),  # stores are not forwarded to
        (BYTE, "ds_write_b32 v4, v0"),
        (BYTE, "s_mov_b32 s0, 0"),
        ("v_cvt_scalef32_pk_fp8_f32 v0, v1, v2, 1.0", "v_mov_b32_e32 v3, v0"),  # lower half: no shift into place
        (
            "v_cvt_scalef32_pk_f32_fp4 v[0:1], v2, 1.0 op_sel:[1,0,0]",
            "v_mov_b32_e32 v3, v0",
        ),  # op_sel chooses the source
        ("v_mad_u16 v0, v1, v2, v3 op_sel:[1,1,1,0]", "v_mov_b32_e32 v4, v0"),
        ("v_pk_add_f16 v0, v1, v2 op_sel:[0,1] op_sel_hi:[1,1]", "v_mov_b32_e32 v4, v0"),
        (
            "v_or_b32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD",
            "v_mov_b32_e32 v3, v0",
        ),
        ("v_add_u32_e32 v0, v1, v2", "v_mov_b32_e32 v3, v0"),
    ],
)
def test_what_needs_no_wait(first, second):
    assert hazards(first, second) == []


def test_a_label_between_changes_nothing():
    assert len(hazards(BYTE, ".LBB0_1:", "v_mov_b32_e32 v3, v0", "s_cbranch_scc1 .LBB0_1")) == 1


def test_inline_assembly_of_a_real_kernel():
    def compiled(asm):
        return compile_kernel(kernels.convert_pair, {"x": "*fp32", "y": "*i32"}, {"BLOCK": 256, "ASM": asm})

    two = "v_cvt_scalef32_pk_fp4_f32 $0, $1, $1, 1.0\n{}v_cvt_scalef32_pk_fp4_f32 $0, $1, $1, 2.0 op_sel:[0,0,1,0]"
    bad = compiled(two.format(""))
    assert [hazard.kind for hazard in bad.hazards] == ["write"]
    assert compiled(two.format("s_nop 0\n")).hazards == ()
    assert len(compiled("v_cvt_scalef32_pk_fp4_f32 $0, $1, $1, 1.0\nv_or_b32 $0, $0, $1").hazards) == 1


def test_the_compilers_own_schedule_is_clean_and_needs_its_waits():
    compiled = compile_kernel(kernels.to_fp8_xor, {"x": "*fp32", "y": "*u8"}, {"BLOCK": 1024})
    assert compiled.hazards == ()
    lines = compiled.asm.split("\n")
    waits = [index for index, line in enumerate(lines) if line.strip().startswith("s_nop")]
    assert waits, "this kernel no longer makes the compiler wait: choose another"
    without = "\n".join(line for index, line in enumerate(lines) if index not in waits)
    assert len(find_hazards(parse_amdgcn(without)[0])) == len(waits)


MFMA = "v_mfma_scale_f32_16x16x128_f8f6f4 v[8:11], v[0:3], v[4:7], 0, v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4"


@pytest.mark.parametrize(("between", "expected"), [
    ((), 1), (("s_nop 0",), 1), (("s_nop 1",), 0), (("s_nop 0", "s_nop 0"), 0), (("v_mov_b32 v20, 0",), 1),
    (("v_mov_b32 v20, 0", "s_mov_b32 s3, 0"), 0),
])
@pytest.mark.parametrize("register", ["v3", "v5", "v12", "v13"])
def test_an_mfma_needs_two_wait_states_behind_the_writer_of_an_operand(register, between, expected):
    found = hazards(f"v_mov_b32 {register}, 0", *between, MFMA)
    assert [hazard.kind for hazard in found] == ["matrix"] * expected


def test_an_mfma_does_not_wait_for_registers_that_it_only_writes():
    assert hazards("v_mov_b32 v9, 0", MFMA) == []
    assert hazards("buffer_load_dword v3, v20, s[0:3], 0 offen", MFMA) == []
