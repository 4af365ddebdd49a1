"""Faults of what workgroups do together: parts that are handed over too early, not at all, or to the wrong XCD."""

from __future__ import annotations

from tests.mutations.fault import KERNELS, Mutation


def between(first: str, last: str) -> str:
    """The kernel's lines from one that starts so up to one that starts so."""
    _, found, rest = (KERNELS / "cooperative.py").read_text().partition(first)
    inside, end, _ = rest.partition(last)
    return found + inside if end else f"lines from {first!r} to {last!r}"


PUT = "            quantize_part(pairs, a_q_ptr, a_scale_ptr, rank, K, PART_K, WAVES, AMAX)\n"
RAISE = "            gl.store(flags_ptr + rank, stores_are_done(call))\n"
LOOKS = between("        looks = 0\n", "        a_tiles = ()\n")
LOADS = between("        a_tiles = ()\n", "        a_scales = ()\n")

COOPERATIVE_MUTATIONS = (
    Mutation("cooperative_stores_not_awaited", "a flag is raised while the part is on its way", "cooperative",
             "data_race", "cooperative", '"s_waitcnt vmcnt(0)", "=v,0,~{memory}"', '"s_nop 0", "=v,0,~{memory}"'),
    Mutation("cooperative_no_barrier", "one wave raises the flag before the others have stored", "cooperative_wide",
             "data_race", "cooperative", "    workgroup_barrier()\n    return value", "    return value"),
    Mutation("cooperative_flag_before_stores", "the flag is raised before the part is stored", "cooperative",
             "data_race", "cooperative", PUT + RAISE, RAISE + PUT),
    Mutation("cooperative_part_skipped", "the last part's flag is not looked at", "cooperative", "data_race",
             "cooperative", "gl.minimum(gl.arange(0, 64 * WAVES, layout) % 64, PARTS - 1)",
             "gl.minimum(gl.arange(0, 64 * WAVES, layout) % 64, PARTS - 2)"),
    Mutation("cooperative_flags_not_looked_at", "packed A is read without a look at any flag", "cooperative",
             "data_race", "cooperative",
             "        missing = flags_missing(flags_ptr, call, PARTS, WAVES)\n        while",
             "        missing = looks\n        while"),
    Mutation("cooperative_read_before_flags", "packed A is read before the flags are looked at", "cooperative",
             "data_race", "cooperative", LOOKS + LOADS, LOADS + LOOKS),
    Mutation("cooperative_own_parts_not_awaited", "a workgroup that does all parts itself reads them at once",
             "cooperative_moved", "data_race", "cooperative", "            missing = stores_are_done(missing)\n", ""),
    Mutation("cooperative_call_constant", "flags of an earlier call count, and so does the A it packed",
             "cooperative_later", "check", "cooperative", "(gl.load(begun_ptr) >> 8) + 1",
             "gl.load(begun_ptr) * 0 + 1"),
    Mutation("cooperative_wrong_copy", "copies and flags by the program's number, not by the XCD that it runs on",
             "cooperative_moved", "data_race", "cooperative", "xcc = xcc & (XCDS - 1)", "xcc = pid % XCDS"),
    Mutation("cooperative_scale_row_half", "the scales of the other 16 rows", "cooperative", "check", "cooperative",
             "row // 32 * K + row // 16 % 2", "row // 32 * K + 1 - row // 16 % 2"),
)  # fmt: skip
