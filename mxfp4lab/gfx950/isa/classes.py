"""Which unit executes an instruction: the classes in which static and dynamic counts are kept."""

from __future__ import annotations

from functools import lru_cache

from mxfp4lab.gfx950.isa.instruction import IsaError

CLASSES: tuple[str, ...] = (
    "valu", "mfma", "convert", "salu", "smem", "vmem", "lds", "scratch", "barrier", "waitcnt", "branch", "nop",
)  # fmt: skip
_PREFIXES: tuple[tuple[tuple[str, ...], str], ...] = (  # the first match decides
    (("v_mfma_", "v_smfmac_"), "mfma"),
    (("v_cvt_scalef32_",), "convert"),
    (("v_nop",), "nop"),
    (("v_",), "valu"),
    (("ds_",), "lds"),
    (("scratch_",), "scratch"),
    (("global_", "buffer_", "flat_", "tbuffer_"), "vmem"),
    (("s_load_", "s_buffer_", "s_scratch_", "s_store_", "s_dcache_", "s_icache_", "s_memtime", "s_memrealtime",
      "s_atomic_", "s_atc_", "s_scratch_load"), "smem"),
    (("s_barrier",), "barrier"),
    (("s_waitcnt",), "waitcnt"),
    (("s_branch", "s_cbranch_", "s_endpgm", "s_setpc_", "s_swappc_", "s_call_", "s_rfe_", "s_trap"), "branch"),
    (("s_nop", "s_sleep", "s_setprio", "s_sethalt", "s_sched_", "s_clause", "s_inst_prefetch", "s_ttracedata",
      "s_incperflevel", "s_decperflevel", "s_code_end", "s_wakeup"), "nop"),
    (("s_",), "salu"),
)  # fmt: skip


@lru_cache(maxsize=4096)
def classify(mnemonic: str) -> str:
    """Class of a mnemonic (an encoding suffix does not matter), one of `CLASSES`.

    "valu" holds vector ALU instructions other than MFMA and scaled conversions; "convert" holds `v_cvt_scalef32_*`;
    "vmem" global and buffer accesses, cache maintenance among them; "scratch" accesses to private memory.

    Raises:
        IsaError: the mnemonic belongs to no class.
    """
    for prefixes, name in _PREFIXES:
        if mnemonic.startswith(prefixes):
            return name
    raise IsaError(f"mnemonic {mnemonic!r} belongs to no instruction class; known prefixes: v_ s_ ds_ global_ ...")
