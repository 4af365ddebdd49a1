"""Encoded gfx950 instructions in the common form: the adapter to the decoder's package.

Field extraction and opcode names come from tinygrad 0.14 (`tinygrad.renderer.amd.decode_inst`, generated from AMD's
machine-readable ISA); this module gives operands and modifiers the names and the order of LLVM's assembler. The package
is the optional extra [codeobject]; only this module knows it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mxfp4lab.gfx950.isa.instruction import Instruction, IsaError, Operand

VERSION = "0.14.0"
INSTALL = f"decoding code objects needs tinygrad=={VERSION}: pip install 'mxfp4lab[codeobject]'"
SCALE_PREFIX = 0xD3AC  # upper half of the dword that starts a scaled MFMA's 16 bytes
VCC = Operand("sgpr", 106, 2)
_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
_INV_2PI = {16: 0.1592, 32: 0.15915494, 64: 0.15915494309189532}
_NAMED = {235: "src_shared_base", 236: "src_shared_limit", 237: "src_private_base", 238: "src_private_limit",
          239: "src_pops_exiting_wave_id", 251: "src_vccz", 252: "src_execz", 253: "src_scc",
          254: "src_lds_direct"}  # fmt: skip
_SELECT = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
_HWREG = {1: "HW_REG_MODE", 2: "HW_REG_STATUS", 3: "HW_REG_TRAPSTS", 4: "HW_REG_HW_ID", 5: "HW_REG_GPR_ALLOC",
          6: "HW_REG_LDS_ALLOC", 7: "HW_REG_IB_STS", 15: "HW_REG_SH_MEM_BASES", 20: "HW_REG_XCC_ID"}  # fmt: skip
# DPP controls: (first, last) -> modifier; its value is the distance from first, or as given.
_DPP = {(0x101, 0x10F): ("row_shl", 1), (0x111, 0x11F): ("row_shr", 1), (0x121, 0x12F): ("row_ror", 1),
        (0x150, 0x15F): ("row_newbcast", 0), (0x130, 0x130): ("wave_shl", 1), (0x134, 0x134): ("wave_rol", 1),
        (0x138, 0x138): ("wave_shr", 1), (0x13C, 0x13C): ("wave_ror", 1), (0x142, 0x142): ("row_bcast", 15),
        (0x143, 0x143): ("row_bcast", 31), (0x140, 0x140): ("row_mirror", 1),
        (0x141, 0x141): ("row_half_mirror", 1)}  # fmt: skip
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
_IMMEDIATE = ("s_nop", "s_sleep", "s_setprio", "s_sethalt", "s_trap", "s_set_gpr_idx_mode", "s_incperflevel",
              "s_decperflevel", "s_sendmsg")  # fmt: skip

Form = tuple[list[Operand], dict[str, Any]]


def load_decoder() -> Callable[[bytes], tuple[Instruction, int, int | None]]:
    """A function from 16 bytes of code to (instruction, its size in bytes, branch distance in dwords or None).

    The instruction's index, target and text are not filled in. What cannot be decoded raises one of many exceptions.

    Raises:
        IsaError: the package is not installed.
    """
    try:
        from tinygrad.renderer.amd import decode_inst
    except ImportError:
        raise IsaError(INSTALL) from None

    def decode(data: bytes) -> tuple[Instruction, int, int | None]:
        raw = decode_inst(data, "cdna")
        # The package takes any matrix instruction before an unscaled f8f6f4 one for a scaled pair of 16 bytes.
        if len(data) > 8 and type(raw).__name__ == "VOP3PX2" and int.from_bytes(data[2:4], "little") != SCALE_PREFIX:
            raw = decode_inst(data[:8], "cdna")
        fields = _Fields(raw)
        operands, modifiers = fields.read()
        found = Instruction(0, fields.name, fields.encoding, tuple(operands), tuple(sorted(modifiers.items())))
        step = None
        if found.mnemonic.startswith(("s_branch", "s_cbranch_")):
            step = fields.bits("simm16", signed=16)
        return found, raw.size(), step

    return decode


@functools.cache
def _names_with_short_form() -> frozenset[str]:
    """Mnemonics that exist in 32 bits: the assembler appends the encoding to their names."""
    from tinygrad.runtime.autogen.amd.cdna import enum

    names = {name for group in (enum.VOP1Op, enum.VOP2Op, enum.VOPCOp) for name in group.__members__}
    return frozenset(name[:-4].lower() for name in names if name.endswith("_E32")) - _NO_SUFFIX


class _Fields:
    """A decoded instruction of the package: its fields as the assembler would write them."""

    def __init__(self, raw: Any) -> None:
        self.raw, self.form = raw, type(raw).__name__
        name = raw.op_name.lower()
        self.name, self.encoding = (name[:-4], name[-3:]) if name.endswith(("_e32", "_e64")) else (name, "")
        if "_SDWA" in self.form or "_DPP" in self.form:
            self.encoding = "sdwa" if "_SDWA" in self.form else "dpp"
        elif self.name not in _names_with_short_form():
            self.encoding = ""  # the assembler names the encoding only where there is a choice
        elif self.form.startswith("VOP3"):
            self.encoding = "e64"
        self.name = _RENAMED.get(self.name, self.name)

    def read(self) -> Form:
        """Operands in assembly order, and modifiers."""
        for prefix, family in _FAMILIES:
            if self.form.startswith(prefix):
                return family(self)
        raise ValueError(f"encoding {self.form} ({self.name}) is not read")

    def bits(self, name: str, signed: int = 0) -> int:
        """A field's bits, undecoded; sign-extended from `signed` bits."""
        field = getattr(type(self.raw), name)
        value = self.raw._raw >> field.lo & field.mask
        return value - (1 << signed) if signed and value >> (signed - 1) & 1 else value

    def flag(self, name: str) -> int:
        """A field's number, 0 where the form has none."""
        return int(getattr(self.raw, name, 0))

    def flags(self, *names: str) -> dict[str, int]:
        """The named fields that are not 0."""
        return {name: self.flag(name) for name in names if self.flag(name)}

    def has(self, *names: str) -> bool:
        """Do the tables give the instruction an operand of one of these names?"""
        return any(name in self.raw.operands for name in names)

    def width(self, *names: str) -> int:
        """Dwords of the operand that the tables know under one of the names."""
        return max(1, self._size(*names) // 32)

    def _size(self, *names: str) -> int:
        return next((self.raw.op_bits[name] for name in names if name in self.raw.op_bits), 32)

    def register(self, name: str, bank: str = "vgpr") -> Operand:
        """The register that a destination or data field numbers."""
        return Operand(bank, self.bits(name), self.width(name))

    def operand(self, name: str, **flags: bool) -> Operand:
        """What a source field stands for."""
        other = name[1:] if name.startswith("v") else "v" + name
        offset = 256 if type(getattr(type(self.raw), name)).__name__ == "VGPRField" else 0
        return self.source(self.bits(name) + offset, self._size(name, other), **flags)

    def source(self, code: int, bits: int = 32, **flags: bool) -> Operand:
        """The operand behind a 9-bit (or shorter) source code."""
        width = max(1, bits // 32)
        if code >= 256:
            return Operand("vgpr", code - 256, width, **flags)
        if code == 255:
            return Operand("const", value=int(self.raw.literal), **flags)
        if code < 128:
            return Operand("sgpr", code, 1 if code == 124 else width, **flags)
        if code <= 208:
            return Operand("const", value=code - 128 if code <= 192 else 192 - code, **flags)
        if code in _FLOATS:
            return Operand("const", value=_FLOATS[code], **flags)
        if code == 248:
            return Operand("const", value=_INV_2PI.get(bits, _INV_2PI[32]), **flags)
        if code in _NAMED:
            return Operand("const", name=_NAMED[code], **flags)
        raise ValueError(f"source code {code} is reserved")

    def sources(self, flags: Callable[[int], dict[str, bool]] = lambda place: {}) -> list[Operand]:
        """src0, src1, src2 as far as there are."""
        names = [name for name in ("src0", "src1", "src2") if self.has(name)]
        return [self.operand(name, **flags(place)) for place, name in enumerate(names)]

    def output(self) -> dict[str, int]:
        """Clamp and output multiplier."""
        scale = {1: {"mul": 2}, 2: {"mul": 4}, 3: {"div": 2}}.get(self.flag("omod"), {})
        return ({"clamp": 1} if self.raw.clmp else {}) | scale


def _scalar(f: _Fields) -> Form:
    names = [name for name in ("sdst", "ssrc0", "ssrc1") if hasattr(type(f.raw), name) and f.has(name)]
    operands = [f.operand(name) for name in names]
    if f.name == "s_set_gpr_idx_on":
        operands[1] = Operand("const", value=f.bits("ssrc1"))
    return operands, {}


def _scalar_k(f: _Fields) -> Form:
    immediate, signed, register = f.bits("simm16"), f.bits("simm16", signed=16), f.operand("sdst")
    if f.name.startswith(("s_setreg", "s_getreg")):
        number, offset, size = immediate & 63, immediate >> 6 & 31, (immediate >> 11) + 1
        inside = _HWREG.get(number, str(number)) + ("" if (offset, size) == (0, 32) else f",{offset},{size}")
        place = Operand("const", name=f"hwreg({inside})")
        if f.name == "s_setreg_imm32_b32":
            return [place, Operand("const", value=int(f.raw.literal))], {}
        return [place, register] if f.name.startswith("s_setreg") else [register, place], {}
    unsigned = f.name.startswith("s_cmpk_") and f.name.endswith("_u32")
    # The assembler prints small values in decimal and others as 16-bit hexadecimal.
    return [register, Operand("const", value=signed if -16 <= signed <= 64 and not unsigned else immediate)], {}


def _program(f: _Fields) -> Form:
    immediate = f.bits("simm16")
    if f.name == "s_waitcnt":
        counters = {"vmcnt": (immediate & 15 | immediate >> 10 & 48, 63), "expcnt": (immediate >> 4 & 7, 7),
                    "lgkmcnt": (immediate >> 8 & 15, 15)}  # fmt: skip
        return [], {name: value for name, (value, most) in counters.items() if value != most}
    return [Operand("const", value=immediate)] if f.name in _IMMEDIATE else [], {}  # branches get their label later


def _scalar_memory(f: _Fields) -> Form:
    modifiers = f.flags("glc")
    if not f.has("sbase"):
        return [f.operand("sdata")] if f.has("sdata") else [], modifiers
    operands = [f.operand("sdata"), Operand("sgpr", 2 * f.bits("sbase"), f.width("sbase"))]
    offset = f.bits("offset", signed=21)
    if f.raw.soffset_en:
        operands.append(f.operand("soffset"))
        if f.raw.imm:
            modifiers["offset"] = offset
    else:
        operands.append(Operand("const", value=offset) if f.raw.imm else Operand("sgpr", offset & 127, 1))
    return operands, modifiers


def _lds(f: _Fields) -> Form:
    operands = [f.operand(name) for name in ("vdst", "addr", "data0", "data1") if f.has(name)]
    if f.raw.acc:
        names = [name for name in ("vdst", "addr", "data0", "data1") if f.has(name)]
        operands = [operand if name == "addr" else Operand("agpr", operand.index, operand.width)
                    for name, operand in zip(names, operands, strict=True)]  # fmt: skip
    low, high = f.bits("offset0"), f.bits("offset1")
    if f.name.startswith(("ds_read2", "ds_write2", "ds_wrxchg2")):
        modifiers = {name: value for name, value in (("offset0", low), ("offset1", high)) if value}
    else:
        modifiers = {"offset": low | high << 8} if low or high or f.name == "ds_swizzle_b32" else {}
    return operands, modifiers | f.flags("gds")


def _buffer(f: _Fields) -> Form:
    modifiers = f.flags("sc0", "sc1", "nt")
    if f.name in ("buffer_wbl2", "buffer_inv"):
        return [], modifiers
    modifiers |= f.flags("offen", "idxen", "lds", "offset")
    addresses = f.raw.offen + f.raw.idxen
    operands = [] if f.raw.lds else [f.register("vdata", "agpr" if f.raw.acc else "vgpr")]
    operands.append(Operand("vgpr", f.bits("vaddr"), addresses) if addresses else Operand("off"))
    return [*operands, Operand("sgpr", 4 * f.bits("srsrc"), 4), f.source(f.bits("soffset"))], modifiers


def _flat(f: _Fields) -> Form:
    offset = f.bits("offset", signed=0 if f.form == "FLAT" else 13)
    modifiers = f.flags("sc0", "sc1", "nt") | ({"offset": offset} if offset else {})
    bank, scalar = "agpr" if f.raw.acc else "vgpr", f.bits("saddr")
    no_scalar = f.form == "FLAT" or scalar in (124, 127)
    scratch = f.form == "SCRATCH"
    address = Operand("vgpr", f.bits("addr"), 2 if no_scalar and not scratch else 1)
    if scratch and not f.raw.sve:
        address = Operand("off")
    base = Operand("off") if no_scalar else Operand("sgpr", scalar, 1 if scratch else 2)
    data = [f.register("data", bank)] if f.has("data") else []
    if scratch and "_store_" in f.name:
        return [address, *data, base], modifiers
    operands = [address, *data] + ([] if f.form == "FLAT" else [base])
    returns = f.has("vdst") and "_load_lds_" not in f.name and ("_atomic_" not in f.name or f.raw.sc0)
    return ([f.register("vdst", bank)] if returns else []) + operands, modifiers


def _vector(f: _Fields) -> Form:
    """VOP1, VOP2 and VOPC in 32 bits, with a literal, with DPP or SDWA."""
    sdwa, special = f.encoding == "sdwa", f.encoding in ("sdwa", "dpp")
    operands: list[Operand] = []
    if f.form.startswith("VOPC"):
        operands.append(Operand("sgpr", f.bits("sdst"), 2) if sdwa and f.raw.sd else VCC)
    elif f.name == "v_readfirstlane_b32":
        operands.append(Operand("sgpr", f.bits("vdst"), 1))
    elif f.has("vdst"):
        operands.append(f.register("vdst", "agpr" if f.name == "v_accvgpr_mov_b32" else "vgpr"))
    if f.name in _WRITES_VCC:
        operands.append(VCC)
    places = [("src0",)] * f.has("src0") + [("vsrc1", "src1")] * f.has("vsrc1", "src1")
    sources = []
    for place, names in enumerate(places):
        flags = {}
        if special:
            flags = {name: bool(f.flag(f"src{place}_{name}")) for name in ("neg", "abs", "sext")[: 2 + sdwa]}
        if place == 0 and not special:
            code = f.bits("src0")
        else:
            code = f.bits(f"vsrc{place}") + (0 if sdwa and f.flag(f"s{place}") else 256)
        sources.append(f.source(code, f._size(*names), **flags))
    if f.name == "v_accvgpr_mov_b32":
        sources = [Operand("agpr", sources[0].index)]
    if f.name.startswith(("v_fmamk", "v_madmk", "v_fmaak", "v_madak")):
        sources.insert(1 if f.name[5:7] == "mk" else 2, Operand("const", value=int(f.raw.literal)))
    if f.name in _READS_VCC:
        sources.append(VCC)
    modifiers = _dpp(f) if f.encoding == "dpp" else _sdwa(f, len(places)) if sdwa else {}
    return operands + sources, modifiers


def _dpp(f: _Fields) -> dict[str, Any]:
    control = f.bits("dpp")
    modifiers: dict[str, Any] = {"row_mask": int(f.raw.row_mask), "bank_mask": int(f.raw.bank_mask)}
    if f.raw.bc:
        modifiers["bound_ctrl"] = 1
    if control < 0x100:
        return modifiers | {"quad_perm": tuple(control >> 2 * lane & 3 for lane in range(4))}
    for (first, last), (name, value) in _DPP.items():
        if first <= control <= last:
            return modifiers | {name: value + control - first}
    raise ValueError(f"DPP control {control:#x} is reserved")


def _sdwa(f: _Fields, sources: int) -> dict[str, Any]:
    modifiers: dict[str, Any] = {f"src{place}_sel": _SELECT[f.bits(f"src{place}_sel")] for place in range(sources)}
    if f.form.startswith("VOPC"):
        return modifiers
    if not f.name.startswith("v_cvt_pk_f32_"):  # two registers: there is nothing to select
        modifiers |= {"dst_sel": _SELECT[f.bits("dst_sel")], "dst_unused": _UNUSED[f.bits("dst_unused")]}
    return modifiers | f.output()


def _vop3(f: _Fields) -> Form:
    operands: list[Operand] = []
    if f.form == "VOP3_SDST" or f.name in ("v_readlane_b32", "v_readfirstlane_b32"):
        operands.append(Operand("sgpr", f.bits("vdst"), 1 if f.name.startswith("v_read") else 2))
    elif f.has("vdst"):
        operands.append(f.register("vdst"))
    if f.form == "VOP3SD":
        operands.append(Operand("sgpr", f.bits("sdst"), 2))
    negated, absolute = f.flag("neg"), f.flag("abs")
    modifiers: dict[str, Any] = {}
    if f.name.startswith("v_bitop3"):
        # Its truth table lies where other instructions keep omod, abs and neg.
        table = f.flag("omod") << 6 | absolute << 3 | negated
        modifiers = {"bitop3": table} if table else {}
        negated = absolute = 0
    else:
        modifiers = f.output()
    sources = f.sources(lambda place: {"neg": bool(negated >> place & 1), "abs": bool(absolute >> place & 1)})
    select = f.flag("opsel")
    if select and "_pk_fp4_" in f.name:  # the last two choose the byte written, however many sources there are
        modifiers["op_sel"] = _list(select, 4)
    elif select:
        modifiers["op_sel"] = (*_list(select, len(sources)), select >> 3 & 1)
    return operands + sources, modifiers


def _packed(f: _Fields) -> Form:
    """VOP3P: packed arithmetic, and moves to and from accumulation registers."""
    if f.name == "v_accvgpr_read_b32":
        return [f.register("vdst"), Operand("agpr", f.operand("src0").index)], {}
    if f.name == "v_accvgpr_write_b32":
        return [Operand("agpr", f.bits("vdst")), f.operand("src0")], {}
    sources = f.sources()
    modifiers: dict[str, Any] = {"clamp": 1} if f.raw.clmp else {}
    every = (1 << len(sources)) - 1
    for name, value, default in (
        ("op_sel", f.flag("opsel"), 0), ("op_sel_hi", f.flag("opsel_hi") | f.flag("opsel_hi2") << 2, every),
        ("neg_lo", f.flag("neg"), 0), ("neg_hi", f.flag("neg_hi"), 0),
    ):  # fmt: skip
        if value & every != default:
            modifiers[name] = _list(value, len(sources))
    return [f.register("vdst"), *sources], modifiers


def _matrix(f: _Fields) -> Form:
    """MFMA, and MFMA with block scales (16 bytes: the first eight name the scales)."""
    result = "agpr" if f.raw.acc_cd else "vgpr"
    operands = [f.register("vdst", result)]
    for place, name in enumerate(("src0", "src1", "src2")):
        operand = f.operand(name)
        is_accumulator = f.raw.acc_cd if place == 2 else f.flag("acc") >> place & 1
        if operand.kind == "vgpr" and is_accumulator:
            operand = Operand("agpr", operand.index, operand.width)
        operands.append(operand)
    if f.form != "VOP3PX2":
        return operands, f.flags("cbsz", "abid", "blgp")
    modifiers: dict[str, Any] = f.flags("cbsz", "blgp")
    operands += [f.source(f.bits(name)) for name in ("scale_src0", "scale_src1")]
    # Two bits per scale choose its byte; the assembler prints three entries, the last for the unused C.
    if f.flag("opsel") & 3:
        modifiers["op_sel"] = (*_list(f.flag("opsel"), 2), 0)
    modifiers["op_sel_hi"] = (*_list(f.flag("opsel_hi"), 2), 0)
    return operands, modifiers


def _list(bits: int, count: int) -> tuple[int, ...]:
    return tuple(bits >> place & 1 for place in range(count))


_FAMILIES: tuple[tuple[str, Callable[[_Fields], Form]], ...] = (
    ("SOP1", _scalar), ("SOP2", _scalar), ("SOPC", _scalar), ("SOPK", _scalar_k), ("SOPP", _program),
    ("SMEM", _scalar_memory), ("DS", _lds), ("MUBUF", _buffer), ("FLAT", _flat), ("GLOBAL", _flat), ("SCRATCH", _flat),
    ("VOP3PX2", _matrix), ("VOP3P_MFMA", _matrix), ("VOP3P", _packed), ("VOP3", _vop3),
    ("VOP1", _vector), ("VOP2", _vector), ("VOPC", _vector),
)  # fmt: skip
