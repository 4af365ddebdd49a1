"""Faults around the kernels: in the plan that launches them, and in machine code as a compiler could leave it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mxfp4lab.plan import Buffer, Plan, Ref
from tests.mutations.fault import Mutation

# Plans ----------------------------------------------------------------------------------------------------------------


def without_launch(position: int) -> Callable[[Plan], Plan]:
    """One launch forgotten."""
    return lambda plan: replace(plan, launches=plan.launches[:position] + plan.launches[position + 1 :])


def with_buffer(name: str, change: Callable[[Buffer], Buffer]) -> Callable[[Plan], Plan]:
    """One buffer other than it should be."""
    return lambda plan: replace(plan, buffers=tuple(change(b) if b.name == name else b for b in plan.buffers))


def with_launch(position: int, change: Callable[[Any], Any]) -> Callable[[Plan], Plan]:
    """One launch other than it should be."""

    def apply(plan: Plan) -> Plan:
        launches = list(plan.launches)
        launches[position] = change(launches[position])
        return replace(plan, launches=tuple(launches))

    return apply


def with_argument(position: int, name: str, change: Callable[[Any], Any]) -> Callable[[Plan], Plan]:
    """One argument of a launch other than it should be."""
    return with_launch(position, lambda launch: replace(
        launch, args=tuple((n, change(v)) if n == name else (n, v) for n, v in launch.args)))  # fmt: skip


def with_constant(position: int, **values: Any) -> Callable[[Plan], Plan]:
    """Constants of a launch other than they should be."""
    return with_launch(position, lambda launch: replace(
        launch, constants=tuple((n, values.get(n, v)) for n, v in launch.constants)))  # fmt: skip


def swap_sizes(plan: Plan) -> Plan:
    """M and N exchanged."""
    launch = plan.launches[0]
    sizes = dict(launch.args)
    swapped = {"M": sizes["N"], "N": sizes["M"]}
    return replace(plan, launches=(replace(launch, args=tuple((n, swapped.get(n, v)) for n, v in launch.args)),))


def short_grid(launch: Any) -> Any:
    """One program less."""
    return replace(launch, grid=(launch.grid[0] - 1, *launch.grid[1:]))


def long_grid(launch: Any) -> Any:
    """One program more."""
    return replace(launch, grid=(launch.grid[0] + 1, *launch.grid[1:]))


def more_lds(launch: Any) -> Any:
    """16 waves with tiles of 64 x 64 floats: 256 KiB."""
    wanted = {"BLOCK_M": 64, "BLOCK_N": 64, "WAVES": 16}
    constants = tuple((name, wanted.get(name, value)) for name, value in launch.constants)
    return replace(launch, constants=constants, options=(*dict(launch.options, num_warps=16).items(),))


PLANS = (
    Mutation("quantize_not_launched", "the GEMM reads A's quantized workspace, which nobody wrote", "tails_prequant",
             "check", plan=without_launch(0)),
    Mutation("reduce_not_launched", "C is handed out without the sum", "split", "check", plan=without_launch(1)),
    Mutation("workspace_one_split_short", "partial results of one split too few", "split", "out_of_bounds",
             plan=with_buffer("partial", lambda b: replace(b, shape=(b.shape[0] - 1, *b.shape[1:])))),
    Mutation("workspace_one_row_short", "quantized A of M - 1 rows", "tails_prequant", "out_of_bounds",
             plan=with_buffer("a_q", lambda b: replace(b, shape=(b.shape[0] - 1, b.shape[1])))),
    Mutation("bf16_workspace", "partial results kept in bf16", "split", "check",
             plan=with_buffer("partial", lambda b: replace(b, dtype="bf16"))),
    Mutation("counter_not_zeroed", "the counter of finished parts holds what memory held", "sliced_inside",
             "check", plan=with_buffer("arrived", lambda b: replace(b, fill=None))),
    Mutation("grid_one_short", "the last tile has no program", "tails_rowmajor", "check",
             plan=with_launch(0, short_grid)),
    Mutation("grid_one_long", "a program past the last tile", "whole", "out_of_bounds",
             plan=with_launch(0, long_grid)),
    Mutation("b_in_the_other_layout", "row-major B for a kernel that un-shuffles", "tails_preshuffled", "check",
             plan=with_argument(0, "b_ptr", lambda _: Ref("b_q"))),
    Mutation("bf16_b_for_packed_b", "the bf16 matrix where the packed one belongs", "tails_rowmajor", "compile",
             plan=with_argument(0, "b_ptr", lambda _: Ref("b"))),
    Mutation("packed_k_for_k", "K / 2 passed for K", "tails_rowmajor", "check",
             plan=with_argument(0, "K", lambda k: k // 2)),
    Mutation("sizes_swapped", "M and N exchanged", "tails_rowmajor", "out_of_bounds", plan=swap_sizes),
    Mutation("mask_forgotten_m", "MASK_M off for a shape with a rest", "tails_rowmajor", "out_of_bounds",
             plan=with_constant(0, MASK_M=False)),
    Mutation("mask_forgotten_k", "MASK_K off for a shape with a rest", "tails_rowmajor", "out_of_bounds",
             plan=with_constant(0, MASK_K=False)),
    Mutation("k_tile_too_small", "BLOCK_K 64: Triton falls back to bf16 matrix instructions, and C is right", "whole",
             "screen", plan=with_constant(0, BLOCK_K=64)),
    Mutation("too_much_lds", "16 waves whose tiles do not fit in LDS side by side", "sliced", "compile",
             plan=with_launch(0, more_lds)),
    Mutation("scale_padding_127", "B's scales padded with 127 (1.0), as a library does", "padding_127", "",
             proof="padded columns are masked in every kernel of ours: the case's control pads with 255, NaN, which "
             "would show in every C that it reached"),
)  # fmt: skip

# Machine code ---------------------------------------------------------------------------------------------------------


def edited(change: Callable[[list[str]], list[str]]) -> Callable[[Any], Any]:
    """The first kernel's assembly with other lines."""

    def apply(compiled: Any) -> Any:
        first, *others = compiled.kernels
        lines = first.asm.splitlines()
        new = change(list(lines))
        if new == lines:
            raise ValueError("the machine code holds nothing to change")
        # A new object: what was read from the old machine code is not carried over.
        return replace(compiled, kernels=(replace(first, asm="\n".join(new) + "\n"), *others))

    return apply


def idle(mnemonic: str) -> Callable[[list[str]], list[str]]:
    """Every such instruction is an s_nop: the distances between the others stay."""
    return lambda lines: ["\ts_nop 0" if line.strip().startswith(mnemonic) else line for line in lines]


def without(mnemonic: str) -> Callable[[list[str]], list[str]]:
    """Every such instruction left out."""
    return lambda lines: [line for line in lines if not line.strip().startswith(mnemonic)]


def not_awaited(lines: list[str]) -> list[str]:
    """No wait for vector memory."""
    return [re.sub(r"vmcnt\(\d+\)", "vmcnt(63)", line) for line in lines]


def awaited_too_early(lines: list[str]) -> list[str]:
    """The last wait before the waves meet lets one more load be in flight."""
    last = max(i for i, line in enumerate(lines) if line.rstrip().endswith("offen lds"))
    later = 1
    for i in range(last + 1, len(lines)):
        if "vmcnt(0)" in lines[i]:
            lines[i] = lines[i].replace("vmcnt(0)", f"vmcnt({later})")
            break
        later += "_load_" in lines[i] and not lines[i].strip().startswith("s_")
    return lines


def copied_over_the_buffer_in_use(lines: list[str]) -> list[str]:
    """The copy of a later step goes where the step before lies."""
    at = [i for i, line in enumerate(lines) if line.strip().startswith("s_add_i32 m0,")]
    for i in at:
        lines[i] = re.sub(r"0x[0-9a-f]+$", "0x0", lines[i].rstrip())
    return lines


def slot_of_the_next_wave(lines: list[str]) -> list[str]:
    """A piece of a tile goes to LDS one slot further."""
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("ds_write_b"))
    found = re.search(r"offset:(\d+)", lines[at])
    if found:
        lines[at] = lines[at].replace(found[0], f"offset:{int(found[1]) + 16}")
    else:
        lines[at] = lines[at].rstrip() + " offset:16"
    return lines


def waves_leave(lines: list[str]) -> list[str]:
    """All waves but the first end at once."""
    first = next(i for i, line in enumerate(lines) if line.strip().startswith("s_load"))
    end = max(i for i, line in enumerate(lines) if line.strip() == "s_endpgm")
    early = ["\tv_cmp_gt_u32_e32 vcc, 64, v0", "\ts_cbranch_vccz .Lmutant_end"]
    return [*lines[:first], *early, *lines[first:end], ".Lmutant_end:", *lines[end:]]


def one_scale_byte_off(lines: list[str]) -> list[str]:
    """The second scaled MFMA takes another byte of its scale register."""
    at = next(i for i, line in enumerate(lines) if "v_mfma_scale" in line and "op_sel:[" in line)
    lines[at] = lines[at].replace("op_sel:[1,1,0]", "op_sel:[0,1,0]").replace("op_sel:[1,0,0]", "op_sel:[0,0,0]")
    return lines


def one_register_off(lines: list[str]) -> list[str]:
    """A store writes the register beside the one that holds its value."""
    at = max(i for i, line in enumerate(lines) if line.strip().startswith("ds_write_b"))
    mnemonic, operands = lines[at].strip().split(None, 1)
    address, rest = operands.split(",", 1)
    value = rest.strip().split(None, 1)[0]
    inner = value[1:].strip("[]")
    if ":" in inner:
        low, high = (int(n) - 1 for n in inner.split(":"))
        other = f"v[{low}:{high}]"
    else:
        other = f"v{int(inner) - 1}"
    lines[at] = "\t" + f"{mnemonic} {address}, " + rest.strip().replace(value, other, 1)
    return lines


def less_lds(compiled: Any) -> Any:
    """A launcher asks for four bytes less than the kernel uses."""
    first, *others = compiled.kernels
    return replace(compiled, kernels=(replace(first, lds_bytes=first.lds_bytes - 4), *others))


MACHINE_CODE = (
    Mutation("lds_one_element_short", "LDS of one float less than the kernel uses", "sliced", "lds",
             machine_code=less_lds),
    Mutation("no_barrier_at_the_last_sum", "the waves' tiles are summed without waiting for all of them", "sliced",
             "race", machine_code=edited(idle("s_barrier"))),
    Mutation("no_barrier_in_the_k_loop", "tiles in LDS are read before every wave has written them", "tails_rowmajor",
             "race", machine_code=edited(idle("s_barrier"))),
    Mutation("lds_slot_beside", "a piece of a wave's tile is written one slot beside its own", "sliced",
             "check", machine_code=edited(slot_of_the_next_wave)),
    Mutation("loads_not_awaited", "registers are used before their loads have arrived", "tails_rowmajor",
             "unwaited", machine_code=edited(idle("s_waitcnt"))),
    Mutation("async_copy_not_awaited", "loads straight to LDS are read without a wait", "async", "race",
             machine_code=edited(not_awaited)),
    Mutation("async_copy_not_awaited_deep", "the same with two steps in flight", "async_deep", "race",
             machine_code=edited(not_awaited)),
    Mutation("async_copy_awaited_too_early", "the last of them is still in flight when it is read", "async", "race",
             machine_code=edited(awaited_too_early)),
    Mutation("async_copy_without_barrier", "awaited by its own wave, read by the others at once", "async", "race",
             machine_code=edited(idle("s_barrier"))),
    Mutation("async_copy_over_the_buffer_in_use", "the next step's copy lands on the step being read", "async_deep",
             "race", machine_code=edited(copied_over_the_buffer_in_use)),
    Mutation("waves_end_before_the_barrier", "all waves but one leave early", "sliced", "barrier",
             machine_code=edited(waves_leave)),
    Mutation("no_wait_states", "every s_nop left out", "tails_rowmajor", "hazard",
             machine_code=edited(without("s_nop"))),
    Mutation("mfma_takes_the_wrong_scale_byte", "op_sel of one scaled MFMA", "tails_rowmajor", "check",
             machine_code=edited(one_scale_byte_off)),
    Mutation("lds_store_of_the_wrong_register", "one register beside the value", "sliced", "check",
             machine_code=edited(one_register_off)),
    Mutation("no_waits_for_memory", "every s_waitcnt is an s_nop", "tails_rowmajor", "",
             machine_code=edited(idle("s_waitcnt")),
             proof="out of reach: the emulator's loads arrive at once. The compiler places these waits; inline "
             "assembly of ours loads nothing, and loads straight to LDS are watched until waited for"),
)  # fmt: skip

SURROUNDING_MUTATIONS: tuple[Mutation, ...] = (*PLANS, *MACHINE_CODE)
