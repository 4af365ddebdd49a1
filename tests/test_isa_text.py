"""The text reader: operand forms, modifiers, branches, descriptor, and clear errors for text that is not a kernel."""

from __future__ import annotations

import contextlib
import random

import pytest

from mxfp4lab.gfx950 import IsaError, Operand, classify, parse_amdgcn

KERNEL = """
\t.amdgcn_target "amdgcn-amd-amdhsa-unknown-gfx950"
\t.text
\t.file\t1 "/tmp" "k.py"
k:                                      ; @k
; %bb.0:
\t.loc\t1 5 0 prologue_end              ; k.py:5:0
\ts_load_dwordx8 s[8:15], s[4:5], 0x0
\ts_waitcnt lgkmcnt(0)
\ts_branch .LBB0_0
\t.p2align\t8
.LBB0_0:
{body}
\ts_endpgm
\t.section\t.rodata,"a",@progbits
\t.amdhsa_kernel k
\t\t.amdhsa_group_segment_fixed_size 128
\t\t.amdhsa_private_segment_fixed_size 16
\t\t.amdhsa_kernarg_size 72
\t\t.amdhsa_user_sgpr_count 16
\t\t.amdhsa_user_sgpr_dispatch_ptr 1
\t\t.amdhsa_user_sgpr_queue_ptr 1
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_user_sgpr_dispatch_id 1
\t\t.amdhsa_user_sgpr_kernarg_preload_length 8
\t\t.amdhsa_user_sgpr_kernarg_preload_offset 0
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t\t.amdhsa_system_sgpr_workgroup_id_y 0
\t\t.amdhsa_system_vgpr_workitem_id 0
\t\t.amdhsa_next_free_vgpr 24
\t\t.amdhsa_next_free_sgpr 22
\t\t.amdhsa_accum_offset 16
\t.end_amdhsa_kernel
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     8
    .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         64
        .size:           4
        .value_kind:     hidden_block_count_x
    .max_flat_workgroup_size: 256
    .name:           k
    .vgpr_spill_count: 3
    .wavefront_size: 64
amdhsa.version:
  - 1
  - 2
...
\t.end_amdgpu_metadata
"""


def parse_body(body: str):
    program, _ = parse_amdgcn(KERNEL.format(body=body))
    return program.instructions[3:-1]


def test_descriptor_and_entry():
    program, descriptor = parse_amdgcn(KERNEL.format(body="\ts_nop 0"))
    assert [i.mnemonic for i in program] == ["s_load_dwordx8", "s_waitcnt", "s_branch", "s_nop", "s_endpgm"]
    assert program.entry == 3 and program[2].target == 3
    assert program[0].source == ("k.py", 5)
    assert descriptor.user_sgpr_layout == (
        ("dispatch_ptr", 0, 2), ("queue_ptr", 2, 2), ("kernarg_segment_ptr", 4, 2), ("dispatch_id", 6, 2),
        ("kernarg_preload", 8, 8),
    )  # fmt: skip
    assert descriptor.user_sgprs == 16
    assert descriptor.workgroup_ids == (True, False, False)
    assert (descriptor.lds_bytes, descriptor.scratch_bytes, descriptor.block_threads) == (128, 16, 256)
    assert (descriptor.vgprs, descriptor.agprs, descriptor.spilled_vgprs) == (16, 8, 3)
    assert [(a.offset, a.kind, a.hidden) for a in descriptor.args] == [
        (0, "global_buffer", False), (64, "hidden_block_count_x", True),
    ]  # fmt: skip
    assert parse_amdgcn(KERNEL.format(body=""), lds_bytes=4096)[1].lds_bytes == 4096


@pytest.mark.parametrize(
    ("text", "operands", "modifiers"),
    [
        ("v_add_u32_e32 v1, 0x3ff, v0", ["v1", "0x3ff", "v0"], {}),
        ("v_fma_f32 v0, -v1, |v2|, -|s3|", ["v0", "-v1", "|v2|", "-|s3|"], {}),
        ("v_mul_f32_e32 v0, 0.5, v1", ["v0", "0.5", "v1"], {}),
        ("v_lshlrev_b64 v[2:3], 3, v[4:5]", ["v[2:3]", "3", "v[4:5]"], {}),
        ("s_and_saveexec_b64 s[2:3], vcc", ["s[2:3]", "vcc"], {}),
        ("s_mov_b32 m0, -1", ["m0", "-1"], {}),
        ("v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:0", ["v1", "v2"],
         {"quad_perm": (1, 0, 3, 2), "row_mask": 15, "bank_mask": 15, "bound_ctrl": 1}),
        ("v_or_b32_sdwa v1, v2, sext(v3) dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:WORD_1",
         ["v1", "v2", "sext(v3)"],
         {"dst_sel": "BYTE_1", "dst_unused": "UNUSED_PRESERVE", "src0_sel": "DWORD", "src1_sel": "WORD_1"}),
        ("buffer_load_dwordx4 v[0:3], v4, s[8:11], 0 offen offset:16 sc0 nt lds", ["v[0:3]", "v4", "s[8:11]", "0"],
         {"offen": 1, "offset": 16, "sc0": 1, "nt": 1, "lds": 1}),
        ("global_store_short_d16_hi v[0:1], v2, off offset:-4", ["v[0:1]", "v2", "off"], {"offset": -4}),
        ("v_mfma_scale_f32_16x16x128_f8f6f4 a[0:3], v[4:7], v[8:11], a[0:3], v12, v13 op_sel:[1,1,0] "
         "op_sel_hi:[0,1,0] cbsz:4 blgp:4", ["a[0:3]", "v[4:7]", "v[8:11]", "a[0:3]", "v12", "v13"],
         {"op_sel": (1, 1, 0), "op_sel_hi": (0, 1, 0), "cbsz": 4, "blgp": 4}),
        ("s_waitcnt vmcnt(3) lgkmcnt(0)", [], {"vmcnt": 3, "lgkmcnt": 0}),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 0xf0", ["hwreg(HW_REG_MODE,4,4)", "0xf0"], {}),
        ("v_mul_f64 v[0:1], v[2:3], src_scc", ["v[0:1]", "v[2:3]", "src_scc"], {}),
    ],
)  # fmt: skip
def test_operand_forms(text, operands, modifiers):
    (instruction,) = parse_body("\t" + text)
    assert [str(operand) for operand in instruction.operands] == operands
    assert dict(instruction.modifiers) == modifiers
    assert instruction.text == text


def test_registers_are_numbered_as_the_hardware_encodes_them():
    (instruction,) = parse_body("\tv_cndmask_b32_e64 v1, v2, v3, vcc")
    assert instruction.operands[3] == Operand("sgpr", 106, 2)
    assert instruction.encoding == "e64" and instruction.mnemonic == "v_cndmask_b32"


def test_branch_back_and_source_line():
    loop = parse_body("\t.loc 1 9 3\n.L1:\n\ts_add_i32 s0, s0, 1\n\t.loc 1 0 3\n\ts_cbranch_scc1 .L1")
    assert loop[1].target == loop[0].index
    assert loop[0].source == ("k.py", 9) and loop[1].source is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("\tv_add_u32 v0, , v1", "operand is missing"),
        ("\tv_add_u32 v0 v1 v2", "unexpected 'v1'"),
        ("\tv_add_u32 v0, v256, v1", "out of range"),
        ("\tv_add_u32 v0, v[3:1], v1", "out of range"),
        ("\ts_mov_b32 s200, 0", "out of range"),
        ("\tv_mov_b32 v0, 0x1ffffffffffffffff", "cannot read operand"),
        ("\tv_mov_b32 v0, 99999999999999999999", "64 bits"),
        ("\ts_branch .LNOWHERE", "not defined"),
        ("\tglobal_load_dword v0, v[1:2], off offset:1 offset:2", "given twice"),
        ("\tv_mov_b32 v0, [1", "unbalanced"),
        ("\t.long 0xbf800000", "data between instructions"),
        ("\tHello World", "expected an instruction"),
        ("\tv_mov_b32 v0, %x", "cannot read operand"),
        (".LBB0_0:", "twice"),
    ],
)
def test_bad_line_is_named(body, message):
    with pytest.raises(IsaError, match=r"^line 13: .*" + message):
        parse_amdgcn(KERNEL.format(body=body))


@pytest.mark.parametrize("text", ["", "hello", "\x00\x01", "k:\n\ts_endpgm\n", KERNEL[:900], None, 7])
def test_text_that_is_no_kernel(text):
    with pytest.raises(IsaError):
        parse_amdgcn(text)


def test_random_damage_gives_isa_error_or_a_program():
    text = KERNEL.format(body="\tv_fma_f32 v0, -v1, |v2|, 1.0\n\tds_read_b128 v[0:3], v4 offset:16")
    generator = random.Random(5)
    for _ in range(400):
        characters = list(text)
        for _ in range(generator.randint(1, 6)):
            characters[generator.randrange(len(characters))] = generator.choice('[]()|:,;.-0x9avs\n\t \x7f"e')
        with contextlib.suppress(IsaError):
            parse_amdgcn("".join(characters))


@pytest.mark.parametrize(
    ("mnemonic", "name"),
    [("v_add_u32_e32", "valu"), ("v_mfma_f32_16x16x16_bf16", "mfma"), ("v_cvt_scalef32_pk_fp4_f32", "convert"),
     ("s_add_u32", "salu"), ("s_load_dword", "smem"), ("global_load_lds_dword", "vmem"), ("buffer_store_dword", "vmem"),
     ("ds_bpermute_b32", "lds"), ("scratch_load_dword", "scratch"), ("s_barrier", "barrier"), ("s_waitcnt", "waitcnt"),
     ("s_cbranch_execz", "branch"), ("s_nop", "nop")],
)  # fmt: skip
def test_classes(mnemonic, name):
    assert classify(mnemonic) == name


def test_unknown_class_is_refused():
    with pytest.raises(ValueError, match="xyz"):
        classify("xyz_1")


@pytest.mark.parametrize(
    ("written", "offset"),
    [
        ("swizzle(QUAD_PERM, 3, 2, 1, 0)", 0x801B),
        ("swizzle(SWAP, 16)", 0x401F),
        ("swizzle(REVERSE, 4)", 0x0C1F),
        ("swizzle(BROADCAST, 8, 3)", 0x0078),
        ('swizzle(BITMASK_PERM, "01pip")', 0x0907),
        ("0x801b", 0x801B),
    ],
)
def test_swizzle_modes(written, offset):
    (instruction,) = parse_body(f"\tds_swizzle_b32 v0, v1 offset:{written}")
    assert instruction.modifier("offset") == offset


def test_unknown_swizzle_is_refused():
    with pytest.raises(IsaError, match="swizzle"):
        parse_body("\tds_swizzle_b32 v0, v1 offset:swizzle(SPIN, 3)")
