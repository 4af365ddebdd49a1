"""AMD's prebuilt FP4 GEMM as a launch: which code object aiter takes for a shape, and its argument segment.

The code objects `f4gemm_bf16_per1x32Fp4_*.co` ship in the PyPI wheel amd-aiter; nothing of it is imported or copied.
Source of the convention: aiter csrc/py_itfs_cu/asm_gemm_a4w4.cu (struct KernelArgs, gemm_a4w4_asm).
"""

from __future__ import annotations

from dataclasses import dataclass

from mxfp4lab.aiter.install import AiterError, AiterInstall, find_aiter
from mxfp4lab.aiter.prebuilt import (
    K_PER_SPLIT,
    MI355X_CUS,
    OUTPUT_ROW_PAD,
    PrebuiltKernel,
    aiter_choice,
    heuristic_kernel,
    prebuilt_kernels,
)
from mxfp4lab.plan.aiter_heuristic import heuristic_choice
from mxfp4lab.plan.data import CodeObjectLaunch, Ref
from mxfp4lab.shapes import Shape

BLOCK_THREADS = 256
SLOT_BYTES = 16  # every argument has a 16-byte slot of its own
# These four store whole rows of their tile: what lies past column N lands at the start of the next row of C (their
# stores are bounded by the size of C alone). aiter never gives them an N that their width does not divide.
WHOLE_COLUMNS_ONLY: frozenset[tuple[int, int]] = frozenset([(192, 256), (224, 256), (128, 512), (256, 256)])
# In slot order; sizes in bytes.
ARGUMENTS: tuple[tuple[str, int], ...] = (
    ("d", 8), ("c", 8), ("a", 8), ("b", 8), ("alpha", 4), ("beta", 4),
    ("stride_d0", 4), ("stride_d1", 4), ("stride_c0", 4), ("stride_c1", 4), ("stride_a0", 4), ("stride_a1", 4),
    ("stride_b0", 4), ("stride_b1", 4), ("m", 4), ("n", 4), ("k", 4), ("a_scale", 8), ("b_scale", 8),
    ("stride_a_scale0", 4), ("stride_a_scale1", 4), ("stride_b_scale0", 4), ("stride_b_scale1", 4),
    ("log2_k_split", 4),
)  # fmt: skip


@dataclass(frozen=True)
class AiterGemm:
    """The prebuilt kernel for a shape.

    Attributes:
        kernel: the code object.
        log2_k_split: log2 of the number of shares of K (0 unless `kernel.split_k`).
        reason: one line: tuned row, heuristic, or stand-in, and what aiter itself would do where that differs.
    """

    kernel: PrebuiltKernel
    log2_k_split: int
    reason: str


def choose_gemm(
    shape: Shape,
    name: str | None = None,
    log2_k_split: int | None = None,
    install: AiterInstall | None = None,
    cu_count: int = MI355X_CUS,
) -> AiterGemm:
    """The prebuilt GEMM that aiter would launch for a shape, or the nearest to it that is prebuilt.

    aiter looks the shape up in its tuned table (`get_GEMM_config`). A row may name a prebuilt code object: taken. It
    may name a Composable Kernel instance, which aiter compiles on the box and no wheel holds; or there is no row, and
    aiter's C++ heuristic chooses among tiles whose width divides N (`heuristic_choice`), or gives up. For an instance,
    and where aiter gives up, a kernel stands in: fewest rounds over the CUs, then most CUs busy. For the
    task's shapes that is 32x128, which is also what aiter's later tables name where they have the shape
    (data/mi355x_published_times.csv: 16 to 256 rows of 3072x1536, 64x7168x2048, 8x2112x7168).

    Args:
        shape: the GEMM.
        name: take this kernel instead: its symbol, or a part of it such as "32x128" or "BpreShuffle_32x128".
        log2_k_split: with `name`: log2 of the shares of K.
        install: an aiter; without it the installed one.
        cu_count: compute units.

    Raises:
        AiterError: no aiter, no such kernel, or a split that the kernel cannot do.
    """
    install = install or find_aiter()
    kernels = prebuilt_kernels(install)
    if name is not None:
        kernel, log = _named(kernels, name), log2_k_split or 0
        return AiterGemm(kernel, _checked(kernel, shape, log), f"{kernel.short_name} as asked")
    choice = aiter_choice(install, shape, cu_count)
    if choice.tuned and choice.prebuilt:
        kernel = _named(kernels, choice.kernel_name)
        log = choice.log2_k_split if kernel.split_k else 0
        return AiterGemm(kernel, _checked(kernel, shape, log), choice.reason)
    try:
        if choice.tuned:
            raise AiterError(choice.reason)
        kernel = heuristic_choice(install, kernels, shape, cu_count)
        return AiterGemm(kernel, 0, f"{choice.reason}: {kernel.short_name}")
    except AiterError as error:
        bounded = tuple(kernel for kernel in kernels if overhang_allowed(kernel))
        kernel, log = heuristic_kernel(bounded, shape, 0, cu_count, any_width=True)
        return AiterGemm(kernel, log, f"{error}; {kernel.short_name} stands in: the nearest that is prebuilt")


def gemm_launch(
    choice: AiterGemm, shape: Shape, *, d: str = "c", a: str = "a_q", b: str = "b_shuffle",
    a_scale: str = "a_scale_sh", b_scale: str = "b_scale_sh",
) -> CodeObjectLaunch:  # fmt: skip
    """The launch: grid (columns of tiles, rows of tiles, shares of K), 256 threads, arguments in 16-byte slots.

    Args:
        choice: from `choose_gemm`.
        shape: the GEMM.
        d: buffer of C, `[ceil32(M), N]` bf16; a split adds into it, so it must hold zeros.
        a, b: packed e2m1 `[M, K // 2]`, `[N, K // 2]`; b in the (16, 16) shuffle.
        a_scale, b_scale: shuffled e8m0, `[ceil256(rows), ceil8(K // 32)]`.
    """
    kernel = choice.kernel
    shares = split_count(shape, choice.log2_k_split)
    columns = -(-(shape.k // 32) // 8) * 8
    values: dict[str, Ref | int | float] = dict.fromkeys((name for name, _ in ARGUMENTS), 0)
    values.update(
        d=Ref(d), a=Ref(a), b=Ref(b), a_scale=Ref(a_scale), b_scale=Ref(b_scale), alpha=1.0, beta=0.0,
        stride_c0=shape.n, stride_a0=shape.k, stride_b0=shape.k, m=shape.m, n=shape.n, k=shape.k,
        stride_a_scale0=columns, stride_b_scale0=columns, log2_k_split=choice.log2_k_split,
    )  # fmt: skip
    args = tuple((place * SLOT_BYTES, size, values[name]) for place, (name, size) in enumerate(ARGUMENTS))
    grid = (-(-shape.n // kernel.tile_n), -(-shape.m // kernel.tile_m), shares)
    return CodeObjectLaunch(kernel.symbol, str(kernel.path), grid, BLOCK_THREADS, args)


def split_count(shape: Shape, log2_k_split: int) -> int:
    """Shares of K that a launch with this split has: each is rounded up to 256, so there may be fewer than 2^log2."""
    share = -(-(shape.k >> log2_k_split) // K_PER_SPLIT) * K_PER_SPLIT
    return -(-shape.k // share)


def output_rows(m: int) -> int:
    """Rows that the output buffer must have."""
    return -(-m // OUTPUT_ROW_PAD) * OUTPUT_ROW_PAD


def overhang_allowed(kernel: PrebuiltKernel) -> bool:
    """Whether the kernel leaves alone what lies past column N in its last tile."""
    return (kernel.tile_m, kernel.tile_n) not in WHOLE_COLUMNS_ONLY


def _named(kernels: tuple[PrebuiltKernel, ...], name: str) -> PrebuiltKernel:
    found = [kernel for kernel in kernels if name in _names(kernel)]
    found = [kernel for kernel in found if kernel.preshuffled] or found
    if len(found) != 1:
        known = ", ".join(f"{kernel.tile_m}x{kernel.tile_n}" for kernel in kernels if kernel.preshuffled)
        raise AiterError(f"kernel={name!r} is not a prebuilt GEMM; known: {known}")
    return found[0]


def _names(kernel: PrebuiltKernel) -> tuple[str, ...]:
    return kernel.symbol, kernel.short_name, kernel.path.name, f"{kernel.tile_m}x{kernel.tile_n}"


def _checked(kernel: PrebuiltKernel, shape: Shape, log2_k_split: int) -> int:
    if shape.n % kernel.tile_n and not overhang_allowed(kernel):
        reason = "past column N it writes into the next row of C"
        raise AiterError(f"kernel={kernel.short_name}: N = {shape.n} must be a multiple of {kernel.tile_n}: {reason}")
    if not 0 <= log2_k_split <= 4:
        raise AiterError(f"log2_k_split={log2_k_split!r} must be 0 to 4")
    if log2_k_split and not kernel.split_k:
        raise AiterError(f"log2_k_split={log2_k_split}: {kernel.short_name} cannot split K")
    if shape.k % (1 << log2_k_split):
        raise AiterError(f"log2_k_split={log2_k_split}: K = {shape.k} does not divide by {1 << log2_k_split}")
    return log2_k_split
