"""Hazards for which no one inserts a wait inside inline assembly."""

import pytest
import toolchain_kernels as kernels

from mxfp4lab.gfx950 import compile_kernel, find_hazards, parse_amdgcn

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
    "first, second",
    [
        (BYTE, "v_add_u32_e32 v3, v0, v4"),
        (HIGH, "v_add_u32_e32 v3, v4, v0"),
        (BYTE, HIGH),
        (HIGH, "v_mov_b32_e32 v0, 0"),
        (HIGH, "v_xor_b32_e32 v0, v0, v3"),
        (BYTE, "v_mfma_f32_16x16x32_bf16 v[4:7], v[0:3], v[8:11], v[4:7]"),
        ("v_cvt_scalef32_pk_fp4_bf16 v0, v1, 1.0", "v_lshl_or_b32 v2, v0, 8, v3"),
        ("v_cvt_scalef32_sr_pk_fp4_f32 v0, v[2:3], v4, v5", "v_mov_b32_e32 v1, v0"),
        ("v_cvt_scalef32_pk_fp8_f32 v0, v1, v2, 1.0 op_sel:[0,0,0,1]", "v_mov_b32_e32 v3, v0"),
        (f"v_or_b32_sdwa v0, v1, v2 dst_sel:BYTE_1 {SDWA}", "v_mov_b32_e32 v3, v0"),
        (
            "v_add_u16_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD",
            "v_mov_b32_dpp v3, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
        ),
        ("v_mad_u16 v0, v1, v2, v3 op_sel:[0,0,0,1]", "v_mov_b32_e32 v4, v0"),
        (
            "v_cvt_f16_f32_sdwa v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD",
            "v_mov_b64_e32 v[4:5], v[0:1]",
        ),
    ],
)
def test_partial_writes_are_not_forwarded(first, second):
    (found,) = hazards("s_nop 0", first, second)
    kind = "dpp" if "_dpp" in second else "matrix" if second.startswith("v_mfma") else "forward"
    assert (found.kind, found.index, found.register) == (kind, 2, "v0")
    wait = "s_nop 0" if kind == "forward" else "s_nop 1"  # DPP and matrix operands need one more
    assert first.split()[0] in found.message and wait in found.message
    assert hazards(first, wait, second) == []
    if kind == "forward":
        assert hazards(first, "v_mov_b32_e32 v20, 0", second) == []


@pytest.mark.parametrize(
    "kind, waits, first, second, register",
    [
        ("transcendental", 1, "v_exp_f32_e32 v1, v2", "v_mul_f32_e32 v3, v1, v4", "v1"),
        ("transcendental", 1, "v_rcp_iflag_f32_e32 v1, v2", "v_cvt_u32_f32_e32 v3, v1", "v1"),
        ("lane", 1, "v_mov_b32_e32 v1, v2", "v_readfirstlane_b32 s4, v1", "v1"),
        ("lane", 1, "v_mov_b32_e32 v1, v2", "v_readlane_b32 s4, v1, 5", "v1"),
        ("swap", 2, "v_mov_b32_e32 v1, v2", "v_permlane32_swap_b32_e32 v3, v1", "v1"),
        ("swap", 2, "v_mov_b32_e32 v1, v2", "v_permlane16_swap_b32_e32 v1, v3", "v1"),
        ("dpp", 2, "v_max_f32_e32 v1, v2, v3", "v_mov_b32_dpp v4, v1 row_shr:1 row_mask:0xf bank_mask:0xf", "v1"),
        ("scalar", 2, "v_cmp_gt_f32_e32 vcc, v1, v2", "v_cndmask_b32_e32 v3, v1, v2, vcc", "vcc"),
        ("scalar", 2, "v_cmp_gt_f32_e64 s[4:5], v1, v2", "v_cndmask_b32_e64 v3, v1, v2, s[4:5]", "s[4:5]"),
        ("scalar", 2, "v_readfirstlane_b32 s4, v1", "v_add_u32_e32 v2, s4, v3", "s4"),
        ("exec", 4, "v_cmpx_eq_u32_e32 vcc, v8, v9", "v_permlane16_swap_b32_e32 v1, v2", "exec"),
        ("exec", 4, "v_cmpx_eq_u32_e32 v8, v9", "v_permlane32_swap_b32_e32 v1, v2", "exec"),
        ("exec", 4, "v_cmpx_eq_u32_e32 vcc, v8, v9", "v_readfirstlane_b32 s4, v1", "exec"),
        (
            "exec",
            5,
            "v_cmpx_eq_u32_e32 vcc, v8, v9",
            "v_mov_b32_dpp v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf",
            "exec",
        ),
        ("address", 5, "v_readfirstlane_b32 s8, v1", "buffer_load_dword v2, v3, s[4:7], s8 offen", "s8"),
        ("address", 5, "v_readfirstlane_b32 s8, v1", "global_load_dword v2, v3, s[8:9]", "s8"),
        ("address", 5, "v_readfirstlane_b32 s8, v1", "global_store_dword v2, v3, s[8:9]", "s8"),
        ("lane select", 4, "v_readfirstlane_b32 s8, v1", "v_readlane_b32 s9, v2, s8", "s8"),
        ("lane select", 4, "v_readfirstlane_b32 s8, v1", "v_writelane_b32 v2, s9, s8", "s8"),
        ("division", 4, "v_cmp_eq_u32_e32 vcc, v8, v9", "v_div_fmas_f32 v1, v2, v3, v4", "vcc"),
        ("m0", 1, "s_mov_b32 m0, s8", "buffer_load_dword v3, s[4:7], 0 offen lds", "m0"),
        (
            "mode",
            2,
            "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 3",
            "s_getreg_b32 s8, hwreg(HW_REG_MODE, 0, 4)",
            "hwreg(HW_REG_MODE,0,4)",
        ),
        (
            "store",
            2,
            "buffer_store_dwordx4 v[4:7], v0, s[4:7], 0 offen",
            "v_pk_mul_f32 v[4:5], v[8:9], v[10:11]",
            "v[4:7]",
        ),
        ("store", 1, "buffer_store_dwordx4 v[4:7], v0, s[4:7], s8 offen", "v_mov_b32_e32 v5, v9", "v[4:7]"),
        ("store", 2, "global_store_dwordx3 v26, v[4:6], s[20:21]", "v_mov_b32_e32 v4, 0", "v[4:6]"),
        ("scalar", 2, "v_add_co_u32_e32 v1, vcc, v2, v3", "v_addc_co_u32_e32 v4, vcc, v5, v6, vcc", "vcc"),
    ],
)
def test_results_that_arrive_later(kind, waits, first, second, register):
    (found,) = hazards(first, second)
    assert (found.kind, found.index, found.register) == (kind, 1, register)
    assert f"put {waits} independent" in found.message and f"s_nop {waits - 1}" in found.message
    for spent in range(waits):
        between = [f"v_mov_b32_e32 v2{i}, 0" for i in range(spent)]
        assert [hazard.kind for hazard in hazards(first, *between, second)] == [kind]
    assert hazards(first, f"s_nop {waits - 1}", second) == []
    assert hazards(first, *["v_mov_b32_e32 v20, 0"] * waits, second) == []


@pytest.mark.parametrize(
    "first, second",
    [
        ("v_exp_f32_e32 v1, v2", "v_log_f32_e32 v3, v1"),  # the same unit
        ("v_exp_f32_e32 v1, v2", "v_mul_f32_e32 v3, v5, v4"),
        ("v_cmp_gt_f32_e32 vcc, v1, v2", "s_and_saveexec_b64 s[4:5], vcc"),  # the scalar unit waits by itself
        ("s_mov_b64 vcc, 0", "v_cndmask_b32_e32 v3, v1, v2, vcc"),
        ("v_mov_b32_e32 v1, v2", "v_mov_b32_dpp v1, v4 row_shr:1 row_mask:0xf bank_mask:0xf"),
        ("global_load_dword v1, v[2:3], off", "v_permlane32_swap_b32_e32 v3, v1"),  # s_waitcnt's business
        ("buffer_store_dwordx2 v[4:5], v0, s[4:7], 0 offen", "v_mov_b32_e32 v4, 0"),  # 8 bytes are read at once
        ("global_store_dwordx4 v26, v[4:7], s[20:21]", "v_mov_b32_e32 v26, 0"),  # the address is
        ("s_mov_b32 s8, 0", "buffer_load_dword v2, v3, s[4:7], s8 offen"),
        ("s_mov_b32 m0, s8", "buffer_load_dword v3, v2, s[4:7], 0 offen"),
    ],
)
def test_results_that_are_waited_for_elsewhere(first, second):
    assert hazards(first, second) == []


def test_what_stands_above_a_jump_is_not_before_it():
    assert hazards("v_exp_f32_e32 v1, v2", "s_branch .LBB0_1", ".LBB0_1:", "v_mul_f32_e32 v3, v1, v4") == []


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
    assert [hazard.kind for hazard in bad.hazards] == ["forward"]
    assert compiled(two.format("s_nop 0\n")).hazards == ()
    assert len(compiled("v_cvt_scalef32_pk_fp4_f32 $0, $1, $1, 1.0\nv_or_b32 $0, $0, $1").hazards) == 1


@pytest.mark.parametrize("kernel, signature", [("to_fp8_xor", "*u8"), ("row_sums", "*fp32")])
def test_the_compilers_own_schedule_is_clean_and_needs_its_waits(kernel, signature):
    compiled = compile_kernel(getattr(kernels, kernel), {"x": "*fp32", "y": signature}, {"BLOCK": 1024})
    assert compiled.hazards == ()
    lines = compiled.asm.split("\n")
    waits = [index for index, line in enumerate(lines) if line.strip().startswith("s_nop")]
    assert waits, "this kernel no longer makes the compiler wait: choose another"
    noticed = 0
    for gone in waits:
        without = "\n".join(line for index, line in enumerate(lines) if index != gone)
        noticed += bool(find_hazards(parse_amdgcn(without)[0]))
    assert noticed >= len(waits) - 1  # one of row_sums' stands behind a load, which is waited for already


MFMA = "v_mfma_scale_f32_16x16x128_f8f6f4 v[8:11], v[0:3], v[4:7], 0, v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4"


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        ((), 1),
        (("s_nop 0",), 1),
        (("s_nop 1",), 0),
        (("s_nop 0", "s_nop 0"), 0),
        (("v_mov_b32 v20, 0",), 1),
        (("v_mov_b32 v20, 0", "s_mov_b32 s3, 0"), 0),
    ],
)
@pytest.mark.parametrize("register", ["v3", "v5", "v12", "v13"])
def test_an_mfma_needs_two_wait_states_behind_the_writer_of_an_operand(register, between, expected):
    found = hazards(f"v_mov_b32 {register}, 0", *between, MFMA)
    assert [hazard.kind for hazard in found] == ["matrix"] * expected


def test_an_mfma_does_not_wait_for_registers_that_it_only_writes():
    assert hazards("v_mov_b32 v9, 0", MFMA) == []
    assert hazards("buffer_load_dword v3, v20, s[0:3], 0 offen", MFMA) == []
