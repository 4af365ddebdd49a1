"""aiter's prebuilt FP4 GEMM: which code objects there are, which one aiter would take, and how it is called."""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab.aiter.install import AiterError, AiterInstall
from mxfp4lab.shapes import Shape

MI355X_CUS = 256
OUTPUT_ROW_PAD = 32
K_PER_SPLIT = 256  # a split's share of K is rounded up to this

# The parameters of gemm_a4w4_asm in the order of its C++ signature (csrc/py_itfs_cu/asm_gemm_a4w4.cu)
ASM_PARAMETERS = (
    "A", "B", "A_scale", "B_scale", "out", "kernelName", "bias", "alpha", "beta", "bpreshuffle", "log2_k_split",
)  # fmt: skip


@dataclass(frozen=True)
class PrebuiltKernel:
    """One code object of `hsa/<arch>/f4gemm`.

    Attributes:
        symbol: the (mangled) kernel name, as aiter's tables and `gemm_a4w4_asm` use it.
        path: the `.co` file.
        tile_m, tile_n: rows and columns of C per workgroup (256 threads).
        split_k: whether it takes `log2_k_split` (partial sums are added into a zeroed bf16 C).
        preshuffled: whether B is read in the (16, 16) shuffle.
    """

    symbol: str
    path: Path
    tile_m: int
    tile_n: int
    split_k: bool
    preshuffled: bool

    @property
    def short_name(self) -> str:
        """`BpreShuffle_32x128`."""
        match = re.search(r"(no)?BpreShuffle_\d+x\d+", self.symbol)
        return match.group(0) if match else self.symbol


@dataclass(frozen=True)
class GemmChoice:
    """What aiter does for a shape.

    Attributes:
        kernel_name: for `gemm_a4w4_asm`; "" lets its own heuristic choose.
        log2_k_split: log2 of the number of splits.
        tuned: False where no row of the table matches; a silent fallback otherwise.
        prebuilt: whether the named kernel is one of the prebuilt code objects (else a Composable Kernel instance).
        reason: one line for a log.
    """

    kernel_name: str
    log2_k_split: int
    tuned: bool
    prebuilt: bool
    reason: str


def prebuilt_kernels(install: AiterInstall, arch: str = "gfx950") -> tuple[PrebuiltKernel, ...]:
    """The prebuilt GEMMs of an install, smallest tile first.

    Raises:
        AiterError: if it came without code objects for `arch`, or a listed file is missing.
    """
    folder = install.code_object_folder(arch)
    if folder is None:
        raise AiterError(f"{install} came without prebuilt f4gemm code objects for {arch}")
    kernels = []
    for table in sorted(folder.glob("*.csv")):
        with table.open(newline="") as file:
            for row in csv.DictReader(file):
                symbol = row.get("knl_name") or row.get("kernelName") or ""
                path = folder / (row.get("co_name") or "")
                if not path.is_file():
                    raise AiterError(f"{table.name} lists {path.name}, which is not in {folder}")
                kernels.append(
                    PrebuiltKernel(
                        symbol, path, int(row["tile_m"]), int(row["tile_n"]),
                        bool(int(row["splitK"])), bool(int(row["bpreshuffle"])),
                    )
                )  # fmt: skip
    return tuple(sorted(kernels, key=lambda k: (not k.preshuffled, k.tile_m * k.tile_n, k.tile_m)))


def padded_rows(m: int, n: int, granularity: int | None) -> int:
    """The M under which aiter looks a shape up (csrc/py_itfs_cu/gemm_common.cu, getPaddedM).

    Args:
        m, n: the shape.
        granularity: None = exact, 0 = to the next 16, 32, 64 or 128, 1 = to the next power of two (8192 at most for
            wide N).
    """
    if granularity is None:
        return m
    if granularity == 0:
        step = 16 if m <= 256 else 32 if m <= 1024 else 64 if m <= 4096 else 128
        return -(-m // step) * step
    return 8192 if m > 8192 and n > 4096 else 1 << (m - 1).bit_length()


def aiter_choice(install: AiterInstall, shape: Shape, cu_count: int = MI355X_CUS) -> GemmChoice:
    """What `gemm_a4w4` of this aiter would launch for `shape`, read from its tuned table.

    A row must match the CU count, N and K exactly and M after `padded_rows`. Where none does, aiter falls back to its
    heuristic without a word; the result says so.

    Raises:
        AiterError: if the install has no table.
    """
    table = install.tuned_table()
    if table is None:
        raise AiterError(f"{install} came without a4w4_blockscale_tuned_gemm.csv")
    with table.open(newline="") as file:
        rows = {
            (int(r["cu_num"]), int(r["M"]), int(r["N"]), int(r["K"])): r for r in csv.DictReader(file) if r.get("M")
        }
    for granularity in (None, 0, 1):
        m = padded_rows(shape.m, shape.n, granularity)
        row = rows.get((cu_count, m, shape.n, shape.k))
        if row is not None:
            name = row["kernelName"]
            prebuilt = name.startswith("_ZN")
            kind = "prebuilt" if prebuilt else "Composable Kernel instance"
            reason = f"tuned for {m}x{shape.n}x{shape.k} on {cu_count} CUs: {name} ({kind}), splitK {row['splitK']}"
            return GemmChoice(name, int(row["splitK"] or 0), True, prebuilt, reason)
    other = sorted({key[0] for key in rows if key[2:] == (shape.n, shape.k)} - {cu_count})
    hint = f"; N, K is tuned for {other} CUs only" if other else ""
    reason = f"no tuned row for {shape} on {cu_count} CUs{hint}: aiter falls back to its heuristic (name '', split 0)"
    return GemmChoice("", 0, False, True, reason)


def heuristic_kernel(
    kernels: tuple[PrebuiltKernel, ...],
    shape: Shape,
    log2_k_split: int | None = 0,
    cu_count: int = MI355X_CUS,
    *,
    any_width: bool = False,
) -> tuple[PrebuiltKernel, int]:
    """A prebuilt kernel and log2 split that aiter's C++ heuristic may take when it is given no name.

    It wants the fewest rounds of workgroups over the CUs. Its tie-breaks (busier last round, squarer tile) are written
    so that the last of the equals always wins, and it walks a hash map: which one that is cannot be told from here.
    Of the equals this returns the one that keeps most CUs busy. (csrc/py_itfs_cu/asm_gemm_a4w4.cu,
    get_heuristic_kernel)

    Args:
        kernels: from `prebuilt_kernels`.
        shape: the GEMM.
        log2_k_split: as passed to `gemm_a4w4_asm`; None lets the heuristic split.
        cu_count: compute units of the device.
        any_width: also consider tiles that overhang N. aiter does not: it refuses a shape such as N = 2880, which no
            tile width divides, unless its table has a row for it.

    Raises:
        AiterError: if no tile width divides N.
    """
    wanted_split = log2_k_split not in (None, 0)
    ranked = []
    for order, kernel in enumerate(kernels):
        if not kernel.preshuffled or (shape.n % kernel.tile_n and not any_width):
            continue
        if log2_k_split is not None and kernel.split_k != wanted_split:
            continue
        if log2_k_split is None and kernel.split_k:
            logs = (1, 2, 3, 4)
        else:
            logs = (log2_k_split or 0,)
        for log in logs:
            workgroups = -(-shape.m // kernel.tile_m) * -(-shape.n // kernel.tile_n) << log
            rounds = -(-workgroups // cu_count)
            ranked.append((rounds, rounds * cu_count - workgroups, order, log))
    if not ranked:
        raise AiterError(f"aiter's heuristic finds no kernel: no tile width divides n={shape.n}")
    _, _, order, log = min(ranked)
    return kernels[order], log


def call_gemm_a4w4_asm(
    function: Callable[..., Any],
    a_q: Any,
    b_shuffle: Any,
    a_scale_sh: Any,
    b_scale_sh: Any,
    out: Any,
    choice: GemmChoice,
) -> Any:
    """Call `gemm_a4w4_asm` with its arguments in the order of its C++ signature.

    Args:
        function: from `import_part(install, "gemm_a4w4_asm")`.
        a_q: [M, K // 2] fp4x2; b_shuffle: [N, K // 2] fp4x2 in the (16, 16) shuffle.
        a_scale_sh, b_scale_sh: shuffled e8m0, padded to (256, 8).
        out: [ceil32(M), N] bf16; rows past M are scratch.
        choice: from `aiter_choice`.

    Returns:
        What it returns: `out`.

    Raises:
        AiterError: if the function's own signature names other parameters, before anything is launched.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a C++ binding shows no signature
        parameters = {}
    opaque = not parameters or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())
    if not opaque and tuple(parameters)[: len(ASM_PARAMETERS)] != ASM_PARAMETERS:
        raise AiterError(f"gemm_a4w4_asm has parameters {', '.join(parameters)}; known: {', '.join(ASM_PARAMETERS)}")
    return function(
        a_q, b_shuffle, a_scale_sh, b_scale_sh, out, choice.kernel_name, None, 1.0, 0.0, True, choice.log2_k_split
    )
