"""Memory and matrix instructions, and those without effect here: one row an opcode (`row` says how to read it).

Source: AMD CDNA4 ISA, "Vector memory", "Flat memory", "Data share", "Scalar memory", "Matrix arithmetic instructions".
"""

from __future__ import annotations

import numpy as np

from mxfp4lab.gfx950.isa import numbers
from mxfp4lab.gfx950.isa.row import Matrix, Move, Row, make_row

U32 = np.uint32


def _as(kind, function):
    return lambda old, new: function(old.view(kind), new.view(kind)).view(old.dtype)


# Atomics: name in global memory -> (name in LDS, registers, function(old, new); None: compare and swap)
_ATOMICS = {
    "add": ("add_u32", 1, np.add), "sub": ("sub_u32", 1, np.subtract), "swap": ("", 1, lambda old, new: new),
    "and": ("and_b32", 1, np.bitwise_and), "or": ("or_b32", 1, np.bitwise_or), "xor": ("xor_b32", 1, np.bitwise_xor),
    "umin": ("min_u32", 1, np.minimum), "umax": ("max_u32", 1, np.maximum),
    "smin": ("min_i32", 1, _as(np.int32, np.minimum)), "smax": ("max_i32", 1, _as(np.int32, np.maximum)),
    "add_f32": ("add_f32", 1, _as(np.float32, np.add)), "cmpswap": ("", 1, None),
    "pk_add_bf16": ("", 1, numbers.bf16_pair_add), "pk_add_f16": ("", 1, numbers.f16_pair_add),
    "add_x2": ("", 2, np.add), "swap_x2": ("", 2, lambda old, new: new), "cmpswap_x2": ("", 2, None),
    "and_x2": ("", 2, np.bitwise_and), "or_x2": ("", 2, np.bitwise_or), "umin_x2": ("", 2, np.minimum),
    "umax_x2": ("", 2, np.maximum), "add_f64": ("", 2, _as(np.float64, np.add)),
}  # fmt: skip
# Suffix of a load or store -> (bytes, signed); a store has no sign
_SIZES = {"ubyte": (1, False), "sbyte": (1, True), "ushort": (2, False), "sshort": (2, True), "dword": (4, False),
          "dwordx2": (8, False), "dwordx3": (12, False), "dwordx4": (16, False)}  # fmt: skip
# Operands behind the data: of loads, and of stores (where the data is not the first operand) before and behind it
_PLACES = {"global": ("at base", "at {} base"), "flat": ("at", "at {}"), "scratch": ("at base", "at {} base"),
           "buffer": ("at rsrc soff", "{} at rsrc soff")}  # fmt: skip


def _vector_memory() -> dict[str, Row]:
    rows = {}
    for name, (load, store) in _PLACES.items():
        space = "global" if name == "flat" else name
        for size, (nbytes, signed) in _SIZES.items():
            data = f"x{max(nbytes // 4, 1)}"
            rows[f"{name}_load_{size}"] = make_row(f"{data} <- {load}", Move(space, "load", nbytes, signed))
            if name in ("global", "buffer"):
                key = f"global_load_lds_{size}" if name == "global" else f"buffer_load_{size} lds"
                move = Move(space, "load", nbytes, signed, to_lds=True)
                rows[key] = make_row(f"<- {load} m0", move)
            if not signed:
                move = Move(space, "store", nbytes)
                rows[f"{name}_store_{size.removeprefix('u')}"] = make_row(f"<- {store.format(data)}", move)
        for half, suffix in (("low", ""), ("high", "_hi")):
            for size, (nbytes, signed) in (("ubyte", (1, False)), ("sbyte", (1, True)), ("short", (2, False))):
                move = Move(space, "load", nbytes, signed, half)
                rows[f"{name}_load_{size}_d16{suffix}"] = make_row(f"+x1 <- {load}", move)
        for size, nbytes in (("byte", 1), ("short", 2)):
            move = Move(space, "store", nbytes, half="high")
            rows[f"{name}_store_{size}_d16_hi"] = make_row(f"<- {store.format('x1')}", move)
        for operation, (_, registers, function) in _ATOMICS.items() if name != "scratch" else ():
            old, new = f"x{registers}", f"x{registers * (1 if function else 2)}"
            signature = f"?+{new} <- {load}" if name == "buffer" else f"?{old} <- {store.format(new)}"
            move = Move(space, "atomic", 4 * registers, operation=function)
            rows[f"{name}_atomic_{operation}"] = make_row(signature, move)
    for name in ("buffer_wbl2", "buffer_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol"):
        rows[name] = make_row("", Move("buffer", "none"))
    return rows


def _lds() -> dict[str, Row]:
    rows = {}
    for bits in (8, 16, 32, 64, 96, 128):
        data, nbytes = f"x{max(bits // 32, 1)}", bits // 8
        for letter in "ui" if bits < 32 else "b":
            move = Move("lds", "load", nbytes, letter == "i")
            rows[f"ds_read_{letter}{bits}"] = make_row(f"{data} <- at", move)
            for half, suffix in (("low", ""), ("high", "_hi")) if bits < 32 else ():
                move = Move("lds", "load", nbytes, letter == "i", half)
                rows[f"ds_read_{letter}{bits}_d16{suffix}"] = make_row("+x1 <- at", move)
        rows[f"ds_write_b{bits}"] = make_row(f"<- at {data}", Move("lds", "store", nbytes))
        if bits < 32:
            rows[f"ds_write_b{bits}_d16_hi"] = make_row("<- at x1", Move("lds", "store", nbytes, half="high"))
    for bits, data in ((32, 1), (64, 2)):
        for suffix, stride in (("", 1), ("st64", 64)):
            both = tuple((name, bits // 8 * stride) for name in ("offset0", "offset1"))
            move = Move("lds", "load", bits // 8, accesses=both)
            rows[f"ds_read2{suffix}_b{bits}"] = make_row(f"x{2 * data} <- at", move)
            move = Move("lds", "store", bits // 8, accesses=both)
            rows[f"ds_write2{suffix}_b{bits}"] = make_row(f"<- at x{data} x{data}", move)
    for bits in (4, 8, 16):
        rows[f"ds_read_b64_tr_b{bits}"] = make_row("x2 <- at", Move("lds", "load", 8, transpose=bits))
    for name, _, function in _ATOMICS.values():
        if name:
            operation, kind = name.split("_")
            rows[f"ds_{name}"] = make_row("<- at x1", Move("lds", "atomic", operation=function))
            rows[f"ds_{operation}_rtn_{kind}"] = make_row("x1 <- at x1", Move("lds", "atomic", operation=function))
    return rows


def _scalar_memory() -> dict[str, Row]:
    rows = {}
    for count in (1, 2, 4, 8, 16):
        suffix = f"x{count}" if count > 1 else ""
        for name, base in (("s_load", "base"), ("s_buffer_load", "rsrc")):
            rows[f"{name}_dword{suffix}"] = make_row(f"x{count} <- {base} soff", Move("scalar", "load", 4 * count))
    return rows


def _matrix() -> dict[str, Row]:
    rows = {}
    for kind, shapes in (
        *((kind, ((16, 32), (32, 16), (16, 16), (32, 8))) for kind in ("bf16", "f16")),
        ("bf16_1k", ((16, 16), (32, 8))),
        ("f32", ((16, 4), (32, 2))), ("i8", ((16, 32), (32, 16), (16, 64), (32, 32))),
        *((f"{a}_{b}", ((16, 32), (32, 16))) for a in ("fp8", "bf8") for b in ("fp8", "bf8")),
    ):  # fmt: skip
        kinds = tuple(kind.split("_")) if "8_" in kind else (kind.removesuffix("_1k"),) * 2
        for size, k in shapes:
            row = make_row("mat <- mat mat mat", Matrix(size, k, kinds))
            result = "i32" if kind == "i8" else "f32"
            for joint in ("_", ""):  # two spellings
                rows[f"v_mfma_{result}_{size}x{size}x{k}{joint}{kind}"] = row
    for size, k in ((16, 128), (32, 64)):
        name = f"f32_{size}x{size}x{k}_f8f6f4"
        rows[f"v_mfma_{name}"] = make_row("mat <- mat mat mat", Matrix(size, k))
        rows[f"v_mfma_scale_{name}"] = make_row("mat <- mat mat mat u32 u32", Matrix(size, k, scaled=True))
    return rows


ROWS: dict[str, Row] = _vector_memory() | _lds() | _scalar_memory() | _matrix()
# No effect on the result of a program that is executed instruction by instruction.
NOTHING = frozenset(
    ("s_nop", "s_sleep", "s_setprio", "s_waitcnt", "s_sched_barrier", "s_icache_inv", "s_dcache_wb", "s_dcache_inv",
     "v_nop", "s_barrier", "s_endpgm")
)  # fmt: skip
