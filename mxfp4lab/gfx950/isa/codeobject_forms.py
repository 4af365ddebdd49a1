"""Each encoding of gfx950 as the assembler writes it: the adapter to the decoder's package.

Field extraction and opcode names come from tinygrad 0.14 (`tinygrad.renderer.amd.decode_inst`, generated from AMD's
machine-readable ISA); this module gives operands and modifiers the names and the order of LLVM's assembler. The package
is the optional extra [codeobject]; only this module, `codeobject_fields` and `codeobject_decode` know it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from mxfp4lab.gfx950.isa.codeobject_fields import field_value, has_operand, named_operand, operand_bits, source_operand
from mxfp4lab.gfx950.isa.instruction import Instruction, Operand

_SELECT = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
_HWREG = {1: "HW_REG_MODE", 2: "HW_REG_STATUS", 3: "HW_REG_TRAPSTS", 4: "HW_REG_HW_ID", 5: "HW_REG_GPR_ALLOC",
          6: "HW_REG_LDS_ALLOC", 7: "HW_REG_IB_STS", 15: "HW_REG_SH_MEM_BASES", 20: "HW_REG_XCC_ID"}  # fmt: skip
# LLVM's names where AMD's machine-readable ISA has others.
_RENAMED = {"v_accvgpr_read": "v_accvgpr_read_b32", "v_accvgpr_write": "v_accvgpr_write_b32",
            "v_mad_mix_f32": "v_fma_mix_f32", "v_mad_mixlo_f16": "v_fma_mixlo_f16",
            "v_mad_mixhi_f16": "v_fma_mixhi_f16"}  # fmt: skip
# Short forms that the assembler writes without a suffix: there is no long form, or it is never chosen.
_NO_SUFFIX = frozenset(["v_readfirstlane_b32", "v_accvgpr_mov_b32", "v_swap_b32", "v_nop", "v_fmaak_f32", "v_fmamk_f32",
                        "v_madak_f32", "v_madmk_f32", "v_madak_f16", "v_madmk_f16"])  # fmt: skip
# VOP2 and VOPC forms in 32 bits name vcc in assembly though no field holds it.
_READS_VCC = ("v_cndmask_b32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32")
_WRITES_VCC = ("v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32")
VCC = Operand("sgpr", 106, 2)


def convert(raw: Any) -> Instruction:
    """One decoded instruction in the common form; index and branch target are filled in later."""
    form = type(raw).__name__
    name = raw.op_name.lower()
    mnemonic, encoding = (name[:-4], name[-3:]) if name.endswith(("_e32", "_e64")) else (name, "")
    if "_SDWA" in form or "_DPP" in form:
        encoding = "sdwa" if "_SDWA" in form else "dpp"
    elif mnemonic not in _names_with_short_form():
        encoding = ""  # the assembler names the encoding only where there is a choice
    elif form.startswith("VOP3"):
        encoding = "e64"
    mnemonic = _RENAMED.get(mnemonic, mnemonic)
    family = next((family for prefix, family in _FAMILIES if form.startswith(prefix)), None)
    if family is None:
        raise ValueError(f"encoding {form} ({mnemonic}) is not read")
    operands, modifiers = family(raw, mnemonic, encoding)
    return Instruction(0, mnemonic, encoding, tuple(operands), tuple(sorted(modifiers.items())))


@functools.cache
def _names_with_short_form() -> frozenset[str]:
    """Mnemonics that exist in 32 bits: the assembler appends the encoding to their names."""
    from tinygrad.runtime.autogen.amd.cdna import enum

    names = {name for group in (enum.VOP1Op, enum.VOP2Op, enum.VOPCOp) for name in group.__members__}
    return frozenset(name[:-4].lower() for name in names if name.endswith("_E32")) - _NO_SUFFIX


def _scalar(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    operands = [
        named_operand(raw, name)
        for name in ("sdst", "ssrc0", "ssrc1")
        if hasattr(type(raw), name) and has_operand(raw, name)
    ]
    if mnemonic == "s_set_gpr_idx_on":
        operands[1] = Operand("const", value=field_value(raw, "ssrc1"))
    return operands, {}


def _scalar_k(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    immediate = field_value(raw, "simm16")
    register = named_operand(raw, "sdst")
    if mnemonic.startswith(("s_setreg", "s_getreg")):
        number, offset, size = immediate & 63, immediate >> 6 & 31, (immediate >> 11) + 1
        inside = _HWREG.get(number, str(number)) + ("" if (offset, size) == (0, 32) else f",{offset},{size}")
        place = Operand("const", name=f"hwreg({inside})")
        if mnemonic == "s_setreg_imm32_b32":
            return [place, Operand("const", value=int(raw.literal))], {}
        return [place, register] if mnemonic.startswith("s_setreg") else [register, place], {}
    signed = immediate - (1 << 16) if immediate & 0x8000 else immediate
    unsigned = mnemonic.startswith("s_cmpk_") and mnemonic.endswith("_u32")
    # The assembler prints small values in decimal and others as 16-bit hexadecimal.
    return [register, Operand("const", value=signed if -16 <= signed <= 64 and not unsigned else immediate)], {}


def _program(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    immediate = field_value(raw, "simm16")
    if mnemonic == "s_waitcnt":
        counters = {"vmcnt": (immediate & 15 | immediate >> 10 & 48, 63), "expcnt": (immediate >> 4 & 7, 7),
                    "lgkmcnt": (immediate >> 8 & 15, 15)}  # fmt: skip
        return [], {name: value for name, (value, most) in counters.items() if value != most}
    if mnemonic in ("s_nop", "s_sleep", "s_setprio", "s_sethalt", "s_trap", "s_set_gpr_idx_mode", "s_incperflevel",
                    "s_decperflevel", "s_sendmsg"):  # fmt: skip
        return [Operand("const", value=immediate)], {}
    return [], {}  # branches get their label later


def _scalar_memory(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    modifiers = {"glc": 1} if raw.glc else {}
    if not has_operand(raw, "sbase"):
        return [named_operand(raw, "sdata")] if has_operand(raw, "sdata") else [], modifiers
    width = operand_bits(raw, "sbase") // 32
    operands = [named_operand(raw, "sdata"), Operand("sgpr", 2 * field_value(raw, "sbase"), width)]
    offset = field_value(raw, "offset")
    offset -= 1 << 21 if offset & 1 << 20 else 0
    if raw.soffset_en:
        operands.append(named_operand(raw, "soffset"))
        if raw.imm:
            modifiers["offset"] = offset
    elif raw.imm:
        operands.append(Operand("const", value=offset))
    else:
        operands.append(Operand("sgpr", offset & 127, 1))
    return operands, modifiers


def _lds(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    operands = []
    for name in ("vdst", "addr", "data0", "data1"):
        if has_operand(raw, name):
            operand = named_operand(raw, name)
            is_data = name != "addr" and raw.acc
            operands.append(Operand("agpr", operand.index, operand.width) if is_data else operand)
    low, high = field_value(raw, "offset0"), field_value(raw, "offset1")
    if re.match(r"ds_(read2|write2|wrxchg2)", mnemonic):
        modifiers = {name: value for name, value in (("offset0", low), ("offset1", high)) if value}
    elif mnemonic == "ds_swizzle_b32":
        modifiers = {"offset": low | high << 8}
    else:
        modifiers = {"offset": low | high << 8} if low or high else {}
    if raw.gds:
        modifiers["gds"] = 1
    return operands, modifiers


def _cache_bits(raw: Any) -> dict[str, int]:
    return {name: 1 for name in ("sc0", "sc1", "nt") if getattr(raw, name)}


def _buffer(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    modifiers: dict[str, Any] = _cache_bits(raw)
    if mnemonic in ("buffer_wbl2", "buffer_inv"):
        return [], modifiers
    modifiers.update({name: 1 for name in ("offen", "idxen", "lds") if getattr(raw, name)})
    if raw.offset:
        modifiers["offset"] = int(raw.offset)
    operands = []
    if not raw.lds:
        width = max(1, operand_bits(raw, "vdata") // 32)
        operands.append(Operand("agpr" if raw.acc else "vgpr", field_value(raw, "vdata"), width))
    addresses = raw.offen + raw.idxen
    operands.append(Operand("vgpr", field_value(raw, "vaddr"), addresses) if addresses else Operand("off"))
    operands.append(Operand("sgpr", 4 * field_value(raw, "srsrc"), 4))
    operands.append(source_operand(raw, field_value(raw, "soffset"), 1))
    return operands, modifiers


def _flat(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    modifiers: dict[str, Any] = _cache_bits(raw)
    form = type(raw).__name__
    offset = field_value(raw, "offset")
    if form != "FLAT" and offset & 0x1000:
        offset -= 0x2000
    if offset:
        modifiers["offset"] = offset
    bank = "agpr" if raw.acc else "vgpr"
    scalar = field_value(raw, "saddr")
    no_scalar = form == "FLAT" or scalar in (124, 127)
    if form == "SCRATCH":
        address = Operand("vgpr", field_value(raw, "addr"), 1) if raw.sve else Operand("off")
        base = Operand("off") if no_scalar else Operand("sgpr", scalar, 1)
    else:
        address = Operand("vgpr", field_value(raw, "addr"), 2 if no_scalar else 1)
        base = Operand("off") if no_scalar else Operand("sgpr", scalar, 2)
    data = (
        Operand(bank, field_value(raw, "data"), max(1, operand_bits(raw, "data") // 32))
        if has_operand(raw, "data")
        else None
    )
    operands = []
    returns = has_operand(raw, "vdst") and "_load_lds_" not in mnemonic and ("_atomic_" not in mnemonic or raw.sc0)
    if returns:
        operands.append(Operand(bank, field_value(raw, "vdst"), max(1, operand_bits(raw, "vdst") // 32)))
    if form == "SCRATCH" and "_store_" in mnemonic:
        operands += [address, data, base]
    else:
        operands += [address, *([data] if data else [])]
        if form != "FLAT":
            operands.append(base)
    return operands, modifiers


def _vector(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    """VOP1, VOP2 and VOPC in 32 bits, with a literal, with DPP or SDWA."""
    modifiers: dict[str, Any] = {}
    special = encoding in ("sdwa", "dpp")
    first: list[Operand] = []
    form = type(raw).__name__
    if form.startswith("VOPC"):
        has_place = encoding == "sdwa" and raw.sd
        first.append(Operand("sgpr", field_value(raw, "sdst"), 2) if has_place else VCC)
    elif mnemonic == "v_readfirstlane_b32":
        first.append(Operand("sgpr", field_value(raw, "vdst"), 1))
    elif has_operand(raw, "vdst"):
        bank = "agpr" if mnemonic == "v_accvgpr_mov_b32" else "vgpr"
        first.append(Operand(bank, field_value(raw, "vdst"), max(1, operand_bits(raw, "vdst") // 32)))
    if mnemonic in _WRITES_VCC:
        first.append(VCC)
    flags = [{}, {}]
    if special:
        for place in (0, 1):
            flags[place] = {"neg": bool(getattr(raw, f"src{place}_neg")), "abs": bool(getattr(raw, f"src{place}_abs"))}
            if encoding == "sdwa":
                flags[place]["sext"] = bool(getattr(raw, f"src{place}_sext"))
    sources = []
    if has_operand(raw, "src0"):
        bits = operand_bits(raw, "src0")
        scalar = encoding == "sdwa" and raw.s0
        code = (field_value(raw, "vsrc0") + (0 if scalar else 256)) if special else field_value(raw, "src0")
        sources.append(source_operand(raw, code, max(1, bits // 32), bits, **flags[0]))
        if mnemonic == "v_accvgpr_mov_b32":
            sources[0] = Operand("agpr", sources[0].index)
    if has_operand(raw, "vsrc1", "src1"):
        scalar = encoding == "sdwa" and raw.s1
        bits = operand_bits(raw, "vsrc1", "src1")
        code = field_value(raw, "vsrc1") + (0 if scalar else 256)
        sources.append(source_operand(raw, code, max(1, bits // 32), bits, **flags[1]))
    if mnemonic.startswith("v_fmamk") or mnemonic.startswith("v_madmk"):
        sources.insert(1, Operand("const", value=int(raw.literal)))
    elif mnemonic.startswith(("v_fmaak", "v_madak")):
        sources.append(Operand("const", value=int(raw.literal)))
    if mnemonic in _READS_VCC:
        sources.append(VCC)
    if encoding == "dpp":
        modifiers.update(_dpp(raw))
    elif encoding == "sdwa":
        modifiers.update(_sdwa(raw, form, len([name for name in ("src0", "vsrc1", "src1") if has_operand(raw, name)])))
    return first + sources, modifiers


def _dpp(raw: Any) -> dict[str, Any]:
    control = field_value(raw, "dpp")
    modifiers: dict[str, Any] = {"row_mask": int(raw.row_mask), "bank_mask": int(raw.bank_mask)}
    if raw.bc:
        modifiers["bound_ctrl"] = 1
    if control < 0x100:
        modifiers["quad_perm"] = tuple(control >> 2 * lane & 3 for lane in range(4))
        return modifiers
    for first, name in ((0x101, "row_shl"), (0x111, "row_shr"), (0x121, "row_ror"), (0x150, "row_newbcast")):
        base = first if name == "row_newbcast" else first - 1
        if base <= control < base + 16 and control >= first:
            modifiers[name] = control - base
            return modifiers
    words = {0x130: ("wave_shl", 1), 0x134: ("wave_rol", 1), 0x138: ("wave_shr", 1), 0x13C: ("wave_ror", 1),
             0x142: ("row_bcast", 15), 0x143: ("row_bcast", 31), 0x140: ("row_mirror", 1),
             0x141: ("row_half_mirror", 1)}  # fmt: skip
    name, value = words[control]
    modifiers[name] = value
    return modifiers


def _sdwa(raw: Any, form: str, sources: int) -> dict[str, Any]:
    modifiers: dict[str, Any] = {
        f"src{place}_sel": _SELECT[field_value(raw, f"src{place}_sel")] for place in range(sources)
    }
    if not form.startswith("VOPC"):
        if raw.op_name.startswith("V_CVT_PK_F32_"):  # two registers: there is nothing to select
            return modifiers | _output(raw)
        modifiers["dst_sel"] = _SELECT[field_value(raw, "dst_sel")]
        modifiers["dst_unused"] = _UNUSED[field_value(raw, "dst_unused")]
        modifiers.update(_output(raw))
    return modifiers


def _output(raw: Any) -> dict[str, int]:
    modifiers = {"clamp": 1} if raw.clmp else {}
    scale = {1: ("mul", 2), 2: ("mul", 4), 3: ("div", 2)}.get(int(getattr(raw, "omod", 0)))
    if scale:
        modifiers[scale[0]] = scale[1]
    return modifiers


def _vop3(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    form = type(raw).__name__
    operands: list[Operand] = []
    if has_operand(raw, "vdst") or form == "VOP3_SDST":
        if form == "VOP3_SDST" or mnemonic in ("v_readlane_b32", "v_readfirstlane_b32"):
            width = 1 if mnemonic.startswith("v_read") else 2
            operands.append(Operand("sgpr", field_value(raw, "vdst"), width))
        else:
            operands.append(Operand("vgpr", field_value(raw, "vdst"), max(1, operand_bits(raw, "vdst") // 32)))
    if form == "VOP3SD":
        operands.append(Operand("sgpr", field_value(raw, "sdst"), 2))
    negated = int(raw.neg)
    absolute = int(getattr(raw, "abs", 0))
    modifiers: dict[str, Any] = {} if mnemonic.startswith("v_bitop3") else _output(raw)
    if mnemonic.startswith("v_bitop3"):
        # Its truth table lies where other instructions keep omod, abs and neg.
        table = int(raw.omod) << 6 | absolute << 3 | negated
        if table:
            modifiers["bitop3"] = table
        negated = absolute = 0
    sources = [name for name in ("src0", "src1", "src2") if has_operand(raw, name)]
    for place, name in enumerate(sources):
        operands.append(named_operand(raw, name, neg=bool(negated >> place & 1), abs=bool(absolute >> place & 1)))
    select = int(getattr(raw, "opsel", 0))
    if select:
        if "_pk_fp4_" in mnemonic:  # the last two choose the byte written, however many sources there are
            modifiers["op_sel"] = tuple(select >> place & 1 for place in range(4))
        else:
            modifiers["op_sel"] = (*(select >> place & 1 for place in range(len(sources))), select >> 3 & 1)
    return operands, modifiers


def _packed(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    """VOP3P: packed arithmetic, and moves to and from accumulation registers."""
    sources = [name for name in ("src0", "src1", "src2") if has_operand(raw, name)]
    width = max(1, operand_bits(raw, "vdst") // 32)
    if mnemonic.startswith("v_accvgpr_"):
        read = mnemonic == "v_accvgpr_read_b32"
        source = named_operand(raw, "src0")
        source = Operand("agpr", source.index) if read else source
        return [Operand("vgpr" if read else "agpr", field_value(raw, "vdst")), source], {}
    operands = [Operand("vgpr", field_value(raw, "vdst"), width)]
    operands += [named_operand(raw, name) for name in sources]
    count = len(sources)
    modifiers: dict[str, Any] = {"clamp": 1} if raw.clmp else {}
    for name, value, default in (
        ("op_sel", int(raw.opsel), 0), ("op_sel_hi", int(raw.opsel_hi) | int(raw.opsel_hi2) << 2, (1 << count) - 1),
        ("neg_lo", int(raw.neg), 0), ("neg_hi", int(raw.neg_hi), 0),
    ):  # fmt: skip
        value &= (1 << count) - 1
        if value != default:
            modifiers[name] = tuple(value >> place & 1 for place in range(count))
    return operands, modifiers


def _matrix(raw: Any, mnemonic: str, encoding: str) -> tuple[list[Operand], dict[str, Any]]:
    """MFMA, and MFMA with block scales (16 bytes: the first eight name the scales)."""
    scaled = type(raw).__name__ == "VOP3PX2"
    from_accumulators = int(raw.acc)
    operands = [
        Operand("agpr" if raw.acc_cd else "vgpr", field_value(raw, "vdst"), max(1, operand_bits(raw, "vdst") // 32))
    ]
    for place, name in enumerate(("src0", "src1", "src2")):
        operand = named_operand(raw, name)
        is_accumulator = raw.acc_cd if place == 2 else from_accumulators >> place & 1
        if operand.kind == "vgpr" and is_accumulator:
            operand = Operand("agpr", operand.index, operand.width)
        operands.append(operand)
    names = ("cbsz", "blgp") if scaled else ("cbsz", "abid", "blgp")  # a scaled MFMA has no abid: the bits are fixed
    modifiers = {name: int(getattr(raw, name)) for name in names if int(getattr(raw, name))}
    if scaled:
        operands += [source_operand(raw, field_value(raw, name), 1) for name in ("scale_src0", "scale_src1")]
        low, high = int(raw.opsel) & 3, int(raw.opsel_hi) & 3
        # Two bits per scale choose its byte; the assembler prints three entries, the last for the unused C.
        if low:
            modifiers["op_sel"] = (low & 1, low >> 1, 0)
        modifiers["op_sel_hi"] = (high & 1, high >> 1, 0)
    return operands, modifiers


_FAMILIES: tuple[tuple[str, Callable[[Any, str, str], tuple[list[Operand], dict[str, Any]]]], ...] = (
    ("SOP1", _scalar), ("SOP2", _scalar), ("SOPC", _scalar), ("SOPK", _scalar_k), ("SOPP", _program),
    ("SMEM", _scalar_memory), ("DS", _lds), ("MUBUF", _buffer), ("FLAT", _flat), ("GLOBAL", _flat), ("SCRATCH", _flat),
    ("VOP3PX2", _matrix), ("VOP3P_MFMA", _matrix), ("VOP3P", _packed), ("VOP3", _vop3),
    ("VOP1", _vector), ("VOP2", _vector), ("VOPC", _vector),
)  # fmt: skip
