; One line per instruction form that the decoder must read back as the assembler wrote it.
s_mov_b32 s5, 0x1234
s_mov_b64 s[4:5], exec
s_mov_b64 vcc, -1
s_mov_b32 m0, s7
s_not_b64 s[0:1], vcc
s_getpc_b64 s[4:5]
s_and_saveexec_b64 s[6:7], vcc
s_or_saveexec_b64 s[6:7], s[8:9]
s_bcnt1_i32_b64 s4, s[6:7]
s_ff1_i32_b32 s4, s5
s_flbit_i32_b32 s4, s5
s_abs_i32 s4, s5
s_sext_i32_i16 s4, s5
s_bitset1_b32 s4, 3
s_add_u32 s4, s5, 0x12345678
s_addc_u32 s4, s5, 0
s_lshl_b64 s[4:5], s[6:7], 3
s_ashr_i64 s[4:5], s[6:7], s9
s_bfe_u32 s4, s5, 0x80008
s_bfe_i64 s[4:5], s[6:7], 0x200000
s_bfm_b32 s4, s5, 3
s_mul_hi_i32 s4, s5, s6
s_lshl2_add_u32 s4, s5, s6
s_andn2_b64 exec, exec, s[4:5]
s_pack_ll_b32_b16 s4, s5, s6
s_cselect_b64 s[4:5], -1, 0
s_cmp_eq_u64 s[4:5], 0
s_cmp_lg_u32 s4, 0x100
s_bitcmp1_b32 s4, 5
s_movk_i32 s4, 0x80
s_movk_i32 s4, 0xff80
s_addk_i32 s4, 0xffc0
s_mulk_i32 s4, 0x54
s_cmpk_lt_i32 s4, 0x101
s_cmpk_gt_u32 s4, 0xfff0
s_cmpk_eq_u32 s4, 0x41
s_setreg_imm32_b32 hwreg(HW_REG_MODE,4,4), 3
s_setreg_b32 hwreg(HW_REG_MODE,0,2), s4
s_getreg_b32 s4, hwreg(HW_REG_HW_ID)
s_getreg_b32 s4, hwreg(HW_REG_XCC_ID)
s_nop 3
s_waitcnt vmcnt(0)
s_waitcnt lgkmcnt(0)
s_waitcnt vmcnt(17) lgkmcnt(3)
s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)
s_barrier
s_sleep 2
s_setprio 1
s_memtime s[4:5]
s_memrealtime s[4:5]
s_dcache_wb
s_load_dword s4, s[0:1], 0x10
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_load_dwordx16 s[8:23], s[0:1], s6
s_load_dwordx4 s[8:11], s[0:1], 0xffff0
s_buffer_load_dwordx4 s[8:11], s[12:15], 0x10
s_load_dwordx8 s[8:15], s[2:3], s6 offset:0x10
v_mov_b32_e32 v1, v2
v_mov_b32_e32 v1, 0x3f800001
v_mov_b32_e32 v1, 1.0
v_mov_b32_e32 v1, 0.15915494
v_mov_b64_e32 v[2:3], v[4:5]
v_mov_b64_e32 v[2:3], s[4:5]
v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_shr:8 row_mask:0xf bank_mask:0xf bound_ctrl:1
v_mov_b32_dpp v1, v2 row_ror:4 row_mask:0x3 bank_mask:0xf
v_mov_b32_dpp v1, v2 row_bcast:15 row_mask:0xa bank_mask:0xf
v_mov_b32_dpp v1, v2 row_bcast:31 row_mask:0xc bank_mask:0xf
v_mov_b32_dpp v1, v2 row_newbcast:3 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_half_mirror row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_mirror row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 wave_shl:1 row_mask:0xf bank_mask:0xf
v_max_f32_dpp v1, v2, v3 row_shr:1 row_mask:0xf bank_mask:0xf
v_max_f32_dpp v1, |v2|, -v3 row_shl:1 row_mask:0xf bank_mask:0xf bound_ctrl:1
v_add_u32_dpp v1, v2, v3 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf
v_add_co_u32_dpp v1, vcc, v2, v3 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf
v_cndmask_b32_dpp v1, v2, v3, vcc quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf
v_readfirstlane_b32 s4, v1
v_readlane_b32 s4, v1, s5
v_writelane_b32 v1, s4, 7
v_cvt_f32_i32_e32 v1, s4
v_cvt_f32_u32_e64 v1, s4 clamp
v_cvt_u32_f32_e32 v1, v2
v_cvt_f64_i32_e32 v[2:3], v1
v_cvt_f32_f16_e32 v1, v2
v_cvt_f16_f32_e32 v1, v2
v_cvt_f32_f16_sdwa v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1
v_cvt_f32_ubyte1_e32 v1, v2
v_rcp_f32_e32 v1, v2
v_rcp_iflag_f32_e32 v1, v2
v_exp_f32_e64 v1, -v2
v_log_f32_e32 v1, v2
v_floor_f32_e32 v1, v2
v_trunc_f32_e32 v1, v2
v_frexp_exp_i32_f32_e32 v1, v2
v_ldexp_f32 v1, v2, v3
v_not_b32_e32 v1, v2
v_ffbh_u32_e32 v1, v2
v_permlane16_swap_b32_e32 v1, v2
v_permlane32_swap_b32_e32 v1, v2
v_accvgpr_mov_b32 a1, a2
v_accvgpr_read_b32 v1, a2
v_accvgpr_write_b32 a1, v2
v_accvgpr_write_b32 a1, 0
v_prng_b32_e32 v1, v2
v_add_f32_e32 v1, s4, v2
v_add_f32_e64 v1, |v2|, -v3
v_mul_f32_e64 v1, v2, v3 clamp
v_mul_f32_e64 v1, v2, v3 mul:4
v_mul_f32_e64 v1, v2, v3 div:2
v_max_f32_e32 v1, v2, v3
v_fmac_f32_e32 v1, v2, v3
v_fmac_f32_e64 v1, v2, s4
v_fmaak_f32 v1, v2, v3, 0x3f8ccccd
v_fmamk_f32 v1, v2, 0x3f8ccccd, v3
v_fma_f32 v1, v2, v3, -v4
v_add_u32_e32 v1, v2, v3
v_add_u32_sdwa v1, v2, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD
v_add_u32_sdwa v1, s4, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_0
v_or_b32_sdwa v1, v2, v3 dst_sel:BYTE_3 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD
v_mul_i32_i24_sdwa v1, sext(v2), v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD
v_lshlrev_b32_sdwa v1, v2, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_2
v_mul_f32_sdwa v1, |v2|, -v3 dst_sel:WORD_1 dst_unused:UNUSED_SEXT src0_sel:DWORD src1_sel:DWORD
v_lshlrev_b16_e32 v1, 8, v2
v_lshlrev_b16_sdwa v1, v2, v3 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD
v_sub_u16_e32 v1, v2, v3
v_min_u16_e32 v1, v2, v3
v_mul_lo_u16_e32 v1, v2, v3
v_add_co_u32_e32 v1, vcc, v2, v3
v_addc_co_u32_e32 v1, vcc, v2, v3, vcc
v_addc_co_u32_e64 v1, s[4:5], v2, v3, s[6:7]
v_add_co_u32_e64 v1, s[4:5], v2, v3
v_sub_co_u32_e32 v1, vcc, v2, v3
v_subrev_u32_e32 v1, s4, v2
v_cndmask_b32_e32 v1, v2, v3, vcc
v_cndmask_b32_e64 v1, v2, v3, s[4:5]
v_cndmask_b32_e64 v1, 0, 1, vcc
v_lshlrev_b32_e32 v1, 4, v2
v_ashrrev_i32_e32 v1, 31, v2
v_and_b32_e32 v1, 0x1ff, v2
v_cmp_gt_i32_e32 vcc, s4, v1
v_cmp_gt_i32_e64 s[4:5], s4, v1
v_cmp_lt_f32_e64 s[4:5], |v1|, v2
v_cmp_class_f32_e32 vcc, v1, v2
v_cmp_class_f32_e64 s[4:5], v1, v2
v_cmp_eq_u64_e32 vcc, v[2:3], v[4:5]
v_cmp_gt_u64_e64 s[4:5], s[6:7], v[2:3]
v_cmp_eq_u16_sdwa s[4:5], v1, v2 src0_sel:BYTE_0 src1_sel:DWORD
v_cmp_eq_u16_sdwa vcc, v1, v2 src0_sel:BYTE_0 src1_sel:DWORD
v_cmpx_gt_i32_e32 vcc, s4, v1
v_cmp_lt_u16_e32 vcc, v1, v2
v_cmp_neq_f16_e32 vcc, v1, v2
v_mad_u64_u32 v[2:3], s[4:5], v4, s6, v[6:7]
v_mad_i64_i32 v[2:3], vcc, v4, v5, 0
v_div_scale_f32 v1, vcc, v2, v3, v4
v_div_scale_f32 v1, s[4:5], v2, v3, v4
v_div_fmas_f32 v1, v2, v3, v4
v_div_fixup_f32 v1, v2, v3, v4
v_lshl_add_u64 v[2:3], v[4:5], 2, s[4:5]
v_lshlrev_b64 v[2:3], 3, v[4:5]
v_ashrrev_i64 v[2:3], 3, v[4:5]
v_lshl_or_b32 v1, v2, 4, v3
v_and_or_b32 v1, v2, s4, v3
v_or3_b32 v1, v2, v3, v4
v_max3_f32 v1, |v2|, v3, |v4|
v_maximum3_f32 v1, v2, v3, v4
v_minimum3_f32 v1, v2, v3, v4
v_med3_f32 v1, v2, 0, v3
v_med3_i32 v1, v2, v3, v4
v_bfi_b32 v1, v2, v3, v4
v_bitop3_b32 v1, v2, v3, v4 bitop3:0x6c
v_bitop3_b16 v1, v2, v3, v4 bitop3:0xec
v_bitop3_b16 v1, v2, v3, v4 bitop3:0xec op_sel:[0,1,0,1]
v_alignbit_b32 v1, v2, v3, 8
v_perm_b32 v1, v2, v3, s4
v_mbcnt_lo_u32_b32 v1, -1, 0
v_mbcnt_hi_u32_b32 v1, -1, v1
v_mul_lo_u32 v1, v2, s4
v_mul_hi_u32 v1, v2, s4
v_mad_u16 v1, v2, v3, v4 op_sel:[0,0,1,1]
v_add_u16_e32 v1, v2, v3
v_cvt_pk_bf16_f32 v1, v2, v3
v_cvt_pk_f16_f32 v1, v2, v3
v_cvt_pkrtz_f16_f32 v1, v2, v3
v_cvt_pk_fp8_f32 v1, v2, v3
v_cvt_pk_fp8_f32 v1, v2, v3 op_sel:[0,0,1]
v_cvt_sr_fp8_f32 v1, v2, v3
v_cvt_pk_f32_fp8_e32 v[2:3], v1
v_cvt_pk_f32_fp8_sdwa v[2:3], v1 src0_sel:WORD_1
v_cvt_scalef32_pk_fp4_f32 v1, v2, v3, v4
v_cvt_scalef32_pk_fp4_f32 v1, v2, v3, v4 op_sel:[0,0,1,1]
v_cvt_scalef32_pk_fp4_f32 v1, -v2, |v3|, 1.0 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_bf16 v1, v2, v3 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_f16 v1, v2, v3
v_cvt_scalef32_pk_f32_fp4 v[2:3], v1, v4
v_cvt_scalef32_pk_f32_fp4 v[2:3], v1, v4 op_sel:[1,0,0]
v_cvt_scalef32_pk_bf16_fp4 v2, v1, v4 op_sel:[1,1,0]
v_cvt_scalef32_pk_fp8_f32 v1, v2, v3, v4 op_sel:[0,0,0,1]
v_cvt_scalef32_pk_fp8_bf16 v1, v2, v3 op_sel:[0,0,1]
v_cvt_scalef32_sr_pk_fp4_f32 v1, v[2:3], v4, v5
v_cvt_scalef32_f32_fp8 v1, v2, v3
v_pk_mul_f32 v[2:3], v[4:5], v[6:7]
v_pk_mul_f32 v[2:3], v[4:5], s[6:7] op_sel_hi:[1,0]
v_pk_fma_f32 v[2:3], v[4:5], v[6:7], v[8:9] op_sel_hi:[1,0,1]
v_pk_add_f32 v[2:3], v[4:5], v[6:7] op_sel:[0,1] op_sel_hi:[1,0] neg_lo:[0,1] neg_hi:[0,1]
v_pk_mov_b32 v[2:3], v[4:5], v[6:7] op_sel:[1,0] op_sel_hi:[0,1]
v_pk_add_u16 v1, v2, v3
v_pk_add_u16 v1, v2, v3 op_sel_hi:[1,0]
v_pk_lshlrev_b16 v1, 8, v2 op_sel_hi:[0,1]
v_pk_max_f16 v1, v2, v3
v_pk_minimum3_f16 v1, v2, v3, v4
v_dot2_f32_bf16 v1, v2, v3, v4
v_dot2c_f32_bf16_e32 v1, v2, v3
v_fma_mix_f32 v1, v2, v3, v4 op_sel_hi:[0,1,0]
v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]
v_mfma_f32_16x16x32_bf16 a[0:3], v[4:7], v[8:11], a[0:3]
v_mfma_f32_32x32x16_bf16 a[0:15], v[4:7], a[8:11], 0
v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[8:9], v[0:3]
v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3]
v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:15], v[0:3] cbsz:4 blgp:4
v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], v[0:3], v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4
v_mfma_scale_f32_16x16x128_f8f6f4 a[0:3], v[4:7], v[8:11], a[0:3], v12, v13 op_sel:[1,0,0] op_sel_hi:[0,1,0] cbsz:4 blgp:4
v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:17], v[0:3], v22, v23 op_sel:[1,1,0] op_sel_hi:[1,1,0] blgp:2
v_mfma_scale_f32_32x32x64_f8f6f4 v[0:15], v[16:19], v[20:23], v[0:15], v24, v25 op_sel_hi:[0,0,0] cbsz:4 blgp:4
v_mfma_scale_f32_32x32x64_f8f6f4 a[0:15], v[16:19], a[20:23], a[0:15], v24, v25 op_sel_hi:[0,0,0] cbsz:4 blgp:4
v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]
v_mfma_i32_16x16x64_i8 v[0:3], v[4:7], v[8:11], v[0:3]
ds_read_b128 v[0:3], v4 offset:16
ds_read_b128 a[0:3], v4
ds_read_b64 v[0:1], v4
ds_read_b96 v[0:2], v4
ds_read_u8 v0, v4 offset:3
ds_read_u16_d16_hi v0, v4
ds_read_i8 v0, v4
ds_read2_b32 v[0:1], v4 offset1:1
ds_read2_b64 v[0:3], v4 offset0:2 offset1:3
ds_read2st64_b32 v[0:1], v4 offset0:1 offset1:255
ds_write_b128 v4, v[0:3] offset:65520
ds_write_b8 v4, v0
ds_write_b8_d16_hi v4, v0
ds_write_b16 v4, v0 offset:2
ds_write_b32 v4, a0
ds_write2_b32 v4, v0, v1 offset1:8
ds_write2st64_b64 v4, v[0:1], v[2:3] offset1:1
ds_bpermute_b32 v0, v1, v2 offset:4
ds_permute_b32 v0, v1, v2
ds_swizzle_b32 v0, v1 offset:32799
ds_read_b64_tr_b16 v[0:1], v2
ds_read_b64_tr_b8 v[0:1], v2 offset:64
ds_read_b64_tr_b4 v[0:1], v2
ds_add_u32 v0, v1
ds_add_rtn_u32 v2, v0, v1
ds_add_f32 v0, v1
ds_max_rtn_f32 v2, v0, v1
buffer_load_dwordx4 v[0:3], v4, s[8:11], 0 offen
buffer_load_dwordx4 v[0:3], v4, s[8:11], s12 offen offset:4095
buffer_load_dword v0, off, s[8:11], 0 offset:16
buffer_load_dword v0, v1, s[8:11], 0 idxen
buffer_load_dword v0, v[2:3], s[8:11], 0 idxen offen
buffer_load_ubyte v0, v1, s[8:11], 0 offen
buffer_load_ushort v0, v1, s[8:11], 0 offen nt
buffer_load_dwordx2 a[0:1], v4, s[8:11], 0 offen sc0 sc1
buffer_load_dword v1, s[8:11], 0 offen lds
buffer_load_dwordx4 v1, s[8:11], 0 offen lds
buffer_load_dwordx4 v1, s[8:11], m0 offen offset:16 lds
buffer_store_dwordx4 v[0:3], v4, s[8:11], 0 offen
buffer_store_short v0, v4, s[8:11], 0 offen
buffer_store_short_d16_hi v0, v4, s[8:11], 0 offen
buffer_store_byte v0, v4, s[8:11], 0 offen sc1
buffer_atomic_add_f32 v0, v1, s[8:11], 0 offen
buffer_atomic_add_f32 v0, v1, s[8:11], 0 offen sc0
buffer_atomic_pk_add_bf16 v0, v1, s[8:11], 0 offen
buffer_atomic_cmpswap v[0:1], v2, s[8:11], 0 offen
buffer_wbl2 sc1
buffer_inv sc1
buffer_wbl2 sc0 sc1
global_load_dwordx4 v[0:3], v[4:5], off
global_load_dwordx4 v[0:3], v4, s[8:9] offset:16
global_load_dword v0, v[4:5], off offset:-4096
global_load_ubyte v0, v[4:5], off
global_load_short_d16_hi v0, v[4:5], off
global_load_dwordx2 a[0:1], v[4:5], off nt
global_store_dwordx2 v[4:5], v[0:1], off
global_store_short v4, v0, s[8:9]
global_store_short_d16_hi v[4:5], v0, off
global_store_byte v[4:5], v0, off sc0 sc1
global_store_dword v4, a0, s[8:9]
global_atomic_add_f32 v[4:5], v0, off
global_atomic_add_f32 v1, v[4:5], v0, off sc0
global_atomic_add v4, v0, s[8:9]
global_atomic_add v1, v4, v0, s[8:9] sc0 sc1
global_atomic_cmpswap v1, v[4:5], v[2:3], off sc0
global_atomic_add_x2 v[4:5], v[2:3], off
global_atomic_pk_add_bf16 v[4:5], v0, off
global_load_lds_dwordx4 v[4:5], off
global_load_lds_dword v4, s[8:9] offset:16
flat_load_dword v0, v[4:5]
flat_load_dwordx4 v[0:3], v[4:5] offset:16
flat_store_dwordx2 v[4:5], v[0:1]
flat_atomic_add v[4:5], v0
flat_atomic_add v1, v[4:5], v0 sc0
scratch_load_dword v0, off, off
scratch_load_dword v0, off, off offset:16
scratch_load_dwordx4 v[0:3], off, s4
scratch_load_dwordx2 v[0:1], v4, off offset:4
scratch_store_dword off, v0, off offset:8
scratch_store_dwordx4 off, v[0:3], s4
scratch_store_dword v4, v0, off
scratch_store_dword off, a0, s4 offset:8
v_add_f64 v[2:3], v[4:5], -v[6:7]
v_fma_f64 v[2:3], v[4:5], v[6:7], 1.0
v_mul_f64 v[2:3], v[4:5], 0.5
v_mul_u32_u24_e32 v1, v2, v3
v_mad_u32_u24 v1, v2, v3, v4
v_sad_u8 v1, v2, v3, v4
v_lerp_u8 v1, v2, v3, v4
v_bcnt_u32_b32 v1, v2, v3
v_bfrev_b32_e32 v1, v2
v_swap_b32 v1, v2
v_nop
v_add_u32_e64 v1, v2, v3 clamp
v_cvt_f32_bf16_e32 v1, v2
v_cvt_f32_bf16_sdwa v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1
v_ashr_pk_u8_i32 v1, v2, v3, v4
v_cmp_o_f32_e32 vcc, v1, v1
v_mov_b32_sdwa v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD
v_max_i16_e32 v1, v2, v3
v_mul_legacy_f32 v1, v2, v3
v_xad_u32 v1, v2, 64, s4
v_add3_u32 v1, v2, v3, v4
v_add_lshl_u32 v1, v2, v3, 5
v_lshrrev_b16_e32 v1, 8, v2
v_mul_f16_e32 v1, v2, v3
v_fma_f16 v1, v2, v3, v4
v_mad_legacy_u16 v1, v2, v3, v4
