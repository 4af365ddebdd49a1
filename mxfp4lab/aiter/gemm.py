"""AMD's prebuilt FP4 GEMM: which code object aiter takes for a shape, its launch, plans that end in it, and its output.

The code objects `f4gemm_bf16_per1x32Fp4_*.co` ship in the PyPI wheel amd-aiter; nothing of it is imported or copied.
Source of the convention: aiter csrc/py_itfs_cu/asm_gemm_a4w4.cu (struct KernelArgs, gemm_a4w4_asm).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxfp4lab import hardware
from mxfp4lab.aiter.install import AiterError, AiterInstall, find_aiter
from mxfp4lab.config import GemmConfig
from mxfp4lab.kernels import quantize
from mxfp4lab.plan.data import Buffer, CodeObjectLaunch, Plan, Ref, TritonLaunch
from mxfp4lab.plan.launches import ceil_div, input_buffers, padded_scale_shape, quantize_launch
from mxfp4lab.shapes import Shape

if TYPE_CHECKING:
    import torch

    from mxfp4lab.gfx950 import Access, Compiled, RunResult

OUTPUT_ROW_PAD = 32
K_PER_SPLIT = 256  # a split's share of K is rounded up to this
BLOCK_THREADS = 256
SLOT_BYTES = 16  # every argument has a 16-byte slot of its own
SHUFFLE_TILE = 32  # rows and columns of scales that a program of our shuffle takes
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

    @property
    def may_overhang(self) -> bool:
        """Whether it leaves alone what lies past column N in its last tile."""
        return (self.tile_m, self.tile_n) not in WHOLE_COLUMNS_ONLY


@dataclass(frozen=True)
class AiterGemm:
    """The prebuilt kernel for a shape.

    Attributes:
        kernel: the code object.
        log2_k_split: log2 of the number of shares of K (0 unless `kernel.split_k`).
        reason: one line: tuned row or stand-in, and what aiter itself would do where that differs.
    """

    kernel: PrebuiltKernel
    log2_k_split: int
    reason: str


def prebuilt_kernels(install: AiterInstall, arch: str = "gfx950") -> tuple[PrebuiltKernel, ...]:
    """The prebuilt GEMMs of an install, those for preshuffled B first, smallest tile first.

    Raises:
        AiterError: it came without code objects for `arch`, or a listed file is missing.
    """
    folder = install.code_objects(arch)
    kernels = []
    for table in sorted(folder.glob("*.csv")):
        for row in _rows(table):
            path = folder / (row.get("co_name") or "")
            if not path.is_file():
                raise AiterError(f"{table.name} lists {path.name}, which is not in {folder}")
            symbol = row.get("knl_name") or row.get("kernelName") or ""
            flags = bool(int(row["splitK"])), bool(int(row["bpreshuffle"]))
            kernels.append(PrebuiltKernel(symbol, path, int(row["tile_m"]), int(row["tile_n"]), *flags))
    return tuple(sorted(kernels, key=lambda k: (not k.preshuffled, k.tile_m * k.tile_n, k.tile_m)))


def tuned_rows(install: AiterInstall) -> dict[tuple[int, int, int, int], dict[str, str]]:
    """aiter's own table of tuned GEMMs by (CUs, M, N, K).

    Raises:
        AiterError: the install has no table.
    """
    table = install.package / "configs" / "a4w4_blockscale_tuned_gemm.csv"
    if not table.is_file():
        raise AiterError(f"{install} came without {table.name}")
    return {(int(row["cu_num"]), int(row["M"]), int(row["N"]), int(row["K"])): row
            for row in _rows(table) if row.get("M")}  # fmt: skip


def tuned_row(install: AiterInstall, shape: Shape, cu_count: int = hardware.COMPUTE_UNITS) -> dict[str, str] | str:
    """The row of aiter's own table that it takes for a shape, or why there is none.

    A row must match the CU count, N and K exactly, and M exactly or rounded up: to the next 16, 32, 64 or 128, then to
    the next power of two (csrc/py_itfs_cu/gemm_common.cu, getPaddedM). Where none does, aiter falls back to its
    heuristic without a word.

    Raises:
        AiterError: the install has no table.
    """
    rows = tuned_rows(install)
    m, n, k = shape.m, shape.n, shape.k
    step = 16 if m <= 256 else 32 if m <= 1024 else 64 if m <= 4096 else 128
    for rounded in (m, ceil_div(m, step) * step, 8192 if m > 8192 and n > 4096 else 1 << (m - 1).bit_length()):
        row = rows.get((cu_count, rounded, n, k))
        if row is not None:
            return row
    other = sorted({key[0] for key in rows if key[2:] == (n, k)} - {cu_count})
    return f"no tuned row for {shape} on {cu_count} CUs" + (f"; N, K is tuned for {other} CUs only" if other else "")


def choose_gemm(
    shape: Shape,
    name: str | None = None,
    log2_k_split: int | None = None,
    install: AiterInstall | None = None,
    cu_count: int = hardware.COMPUTE_UNITS,
) -> AiterGemm:
    """The prebuilt GEMM that aiter would launch for a shape, or the nearest to it that is prebuilt.

    A row of aiter's table may name a prebuilt code object: taken. It may name a Composable Kernel instance, which aiter
    compiles on the box and no wheel holds; or there is no row, and aiter's C++ heuristic takes, of the tiles whose
    width divides N and that need the fewest rounds over the CUs, the one that its hash map holds last, or gives up.
    There a kernel stands in: fewest rounds over the CUs, then most CUs busy. For the task's shapes that is 32x128,
    which is also what aiter's later tables name where they have the shape (data/mi355x_published_times.csv: 16 to 256
    rows of 3072x1536, 64x7168x2048, 8x2112x7168).

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
    row = tuned_row(install, shape, cu_count)
    if isinstance(row, str):
        reason = f"{row}: aiter falls back to its heuristic"
    else:
        reason = f"tuned for {row['M']}x{shape.n}x{shape.k} on {cu_count} CUs: {row['kernelName']}"
        if row["kernelName"].startswith("_ZN"):
            kernel = _named(kernels, row["kernelName"])
            log = int(row["splitK"] or 0) if kernel.split_k else 0
            return AiterGemm(kernel, _checked(kernel, shape, log), f"{reason}, splitK {row['splitK']}")
        reason += " (Composable Kernel instance)"

    def waste(kernel: PrebuiltKernel) -> tuple[int, int]:
        workgroups = ceil_div(shape.m, kernel.tile_m) * ceil_div(shape.n, kernel.tile_n)
        rounds = ceil_div(workgroups, cu_count)
        return rounds, rounds * cu_count - workgroups

    able = [kernel for kernel in kernels if kernel.preshuffled and not kernel.split_k and kernel.may_overhang]
    kernel = min(able, key=waste)
    return AiterGemm(kernel, 0, f"{reason}; {kernel.short_name} stands in: the nearest that is prebuilt")


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def _named(kernels: tuple[PrebuiltKernel, ...], name: str) -> PrebuiltKernel:
    found = [k for k in kernels if name in (k.symbol, k.short_name, k.path.name, f"{k.tile_m}x{k.tile_n}")]
    found = [kernel for kernel in found if kernel.preshuffled] or found
    if len(found) != 1:
        known = ", ".join(f"{kernel.tile_m}x{kernel.tile_n}" for kernel in kernels if kernel.preshuffled)
        raise AiterError(f"kernel={name!r} is not a prebuilt GEMM; known: {known}")
    return found[0]


def _checked(kernel: PrebuiltKernel, shape: Shape, log2_k_split: int) -> int:
    if shape.n % kernel.tile_n and not kernel.may_overhang:
        reason = "past column N it writes into the next row of C"
        raise AiterError(f"kernel={kernel.short_name}: N = {shape.n} must be a multiple of {kernel.tile_n}: {reason}")
    if not 0 <= log2_k_split <= 4:
        raise AiterError(f"log2_k_split={log2_k_split!r} must be 0 to 4")
    if log2_k_split and not kernel.split_k:
        raise AiterError(f"log2_k_split={log2_k_split}: {kernel.short_name} cannot split K")
    if shape.k % (1 << log2_k_split):
        raise AiterError(f"log2_k_split={log2_k_split}: K = {shape.k} does not divide by {1 << log2_k_split}")
    return log2_k_split


def gemm_launch(choice: AiterGemm, shape: Shape) -> CodeObjectLaunch:
    """The launch of a prebuilt GEMM on the buffers c, a_q, b_shuffle, a_scale_sh and b_scale_sh.

    c is `[ceil32(M), N]` bf16; a split adds into it, so it must hold zeros. Scales are shuffled,
    `[ceil256(rows), ceil8(K // 32)]`.
    """
    kernel = choice.kernel
    columns = ceil_div(shape.k // 32, 8) * 8
    values: dict[str, Ref | int | float] = dict.fromkeys((name for name, _ in ARGUMENTS), 0)
    values.update(
        d=Ref("c"), a=Ref("a_q"), b=Ref("b_shuffle"), a_scale=Ref("a_scale_sh"), b_scale=Ref("b_scale_sh"),
        alpha=1.0, beta=0.0, stride_c0=shape.n, stride_a0=shape.k, stride_b0=shape.k, m=shape.m, n=shape.n, k=shape.k,
        stride_a_scale0=columns, stride_b_scale0=columns, log2_k_split=choice.log2_k_split,
    )  # fmt: skip
    args = tuple((place * SLOT_BYTES, size, values[name]) for place, (name, size) in enumerate(ARGUMENTS))
    shares = split_count(shape, choice.log2_k_split)
    grid = (ceil_div(shape.n, kernel.tile_n), ceil_div(shape.m, kernel.tile_m), shares)
    return CodeObjectLaunch(kernel.symbol, str(kernel.path), grid, BLOCK_THREADS, args)


def split_count(shape: Shape, log2_k_split: int) -> int:
    """Shares of K that a launch with this split has: each is rounded up to 256, so there may be fewer than 2^log2."""
    share = ceil_div(shape.k >> log2_k_split, K_PER_SPLIT) * K_PER_SPLIT
    return ceil_div(shape.k, share)


def output_rows(m: int) -> int:
    """Rows that the output buffer must have."""
    return ceil_div(m, OUTPUT_ROW_PAD) * OUTPUT_ROW_PAD


def build_reference(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """The task's reference: quantize A, shuffle its scales, GEMM.

    The first two steps stand for aiter's `dynamic_mxfp4_quant` and `e8m0_shuffle`; they give the bits of the op that
    the task uses (ties to even), which no installable aiter has.
    """
    rows, columns = padded_scale_shape(shape.m, shape.k)
    constants = (("ROWS", shape.m), ("COLUMNS", shape.k // 32), ("PADDED_ROWS", rows), ("PADDED_COLUMNS", columns),
                 ("BLOCK_M", SHUFFLE_TILE), ("BLOCK_C", SHUFFLE_TILE))  # fmt: skip
    args = (("scale_ptr", Ref("a_scale")), ("shuffled_ptr", Ref("a_scale_sh")))
    grid = (ceil_div(rows, SHUFFLE_TILE), ceil_div(columns, SHUFFLE_TILE), 1)
    shuffle = TritonLaunch("shuffle_scales", quantize.shuffle_scales, grid, args, constants, (("num_warps", 4),))
    row_major = Buffer("a_scale", (shape.m, shape.k // 32), "u8", "workspace")
    return _with_gemm(config, shape, arch, variant, (row_major,), (quantize_launch(config, shape), shuffle))


def build_quant_shuffle(config: GemmConfig, shape: Shape, arch: str, variant: str) -> Plan:
    """One kernel quantizes A and writes its scales at their shuffled offsets; then the GEMM."""
    return _with_gemm(config, shape, arch, variant, (), (quantize_launch(config, shape, shuffled=True),))


def _with_gemm(
    config: GemmConfig, shape: Shape, arch: str, variant: str, buffers: tuple[Buffer, ...],
    launches: tuple[TritonLaunch, ...],
) -> Plan:  # fmt: skip
    if arch != "gfx950":
        raise ValueError(f"arch={arch!r}: {variant} ends in a code object for gfx950")
    choice = choose_gemm(shape)
    everything = (*input_buffers(shape), *_quantized_a(shape, "workspace"), *buffers, _output(shape, choice))
    return Plan(variant, config, shape, arch, everything, (*launches, gemm_launch(choice, shape)))


def build_gemm_stage(shape: Shape, kernel: str | None = None, log2_k_split: int | None = None) -> Plan:
    """aiter's prebuilt GEMM alone, on A that is quantized already: what a profiler times as one kernel.

    Args:
        shape: the GEMM.
        kernel: a code object by name ("32x128"); without it the one for the shape (`choose_gemm`).
        log2_k_split: with `kernel`: log2 of the shares of K.

    Raises:
        AiterError: no aiter, no such kernel, or a shape that the kernel cannot do.
    """
    choice = choose_gemm(shape, kernel, log2_k_split)
    b = (Buffer("b_shuffle", (shape.n, shape.k // 2), "u8", "input"),
         Buffer("b_scale_sh", padded_scale_shape(shape.n, shape.k), "u8", "input"))  # fmt: skip
    buffers = (*_quantized_a(shape, "input"), *b, _output(shape, choice))
    return Plan("reference", GemmConfig(), shape, "gfx950", buffers, (gemm_launch(choice, shape),))


def _quantized_a(shape: Shape, role: str) -> tuple[Buffer, Buffer]:
    scales = Buffer("a_scale_sh", padded_scale_shape(shape.m, shape.k), "u8", role)
    return Buffer("a_q", (shape.m, shape.k // 2), "u8", role), scales


def _output(shape: Shape, choice: AiterGemm) -> Buffer:
    fill = 0 if split_count(shape, choice.log2_k_split) > 1 else None  # a split adds its shares into C
    return Buffer("c", (output_rows(shape.m), shape.n), "bf16", "output", fill)


@dataclass(frozen=True)
class GemmRun:
    """One execution of a prebuilt GEMM.

    Attributes:
        c: [M, N] bf16.
        output: [ceil32(M), N] bf16: rows past M hold what was there before.
        launch: what was launched.
        kernel: the decoded code object.
        result: counts of the run.
    """

    c: torch.Tensor
    output: torch.Tensor
    launch: CodeObjectLaunch
    kernel: Compiled
    result: RunResult


def run_prebuilt_gemm(
    a_q: torch.Tensor, a_scale_sh: torch.Tensor, b_shuffle: torch.Tensor, b_scale_sh: torch.Tensor, *,
    kernel: str | None = None, log2_k_split: int | None = None, before: float = 0.0,
    hooks: Sequence[Callable[[Access], None]] = (), on_out_of_bounds: str = "raise",
) -> GemmRun:  # fmt: skip
    """Emulate aiter's GEMM on quantized operands.

    Args:
        a_q: [M, K // 2] uint8; b_shuffle: [N, K // 2] uint8 in the (16, 16) shuffle.
        a_scale_sh, b_scale_sh: shuffled e8m0, rows padded to 256, columns to 8.
        kernel: a code object by name ("32x128"); without it the one for the shape.
        log2_k_split: with `kernel`: log2 of the shares of K.
        before: what the output buffer holds before the launch (a split adds to it).
        hooks: called with every memory access.
        on_out_of_bounds: "raise", or "record" in `result.findings` and go on.

    Raises:
        AiterError: no aiter, no such kernel, or a shape that it cannot do.
        EmulationError: the machine code did something wrong.
    """
    import torch

    from mxfp4lab.gfx950 import load_launch, run

    shape = Shape(a_q.shape[0], b_shuffle.shape[0], 2 * a_q.shape[1])
    plan = build_gemm_stage(shape, kernel, log2_k_split)
    (launch,) = plan.launches
    output = torch.full(plan.buffer("c").shape, before, dtype=torch.bfloat16)
    tensors = {"a_q": a_q.contiguous(), "a_scale_sh": a_scale_sh.contiguous(), "b_shuffle": b_shuffle.contiguous(),
               "b_scale_sh": b_scale_sh.contiguous(), "c": output}  # fmt: skip
    for name, tensor in tensors.items():
        expected = plan.buffer(name).nbytes
        if tensor.numel() * tensor.element_size() != expected:
            raise ValueError(f"{name}: {tuple(tensor.shape)} {tensor.dtype}; allowed: {expected} bytes for {shape}")
    compiled = load_launch(launch)
    values = [value for _, _, value in launch.args]
    result = run(
        compiled, launch.grid, *(tensors[v.buffer] if hasattr(v, "buffer") else v for v in values),
        layout=[(offset, size) for offset, size, _ in launch.args], block=launch.block,
        names=[v.buffer if hasattr(v, "buffer") else "" for v in values], hooks=hooks,
        on_out_of_bounds=on_out_of_bounds,
    )  # fmt: skip
    return GemmRun(output[: shape.m], output, launch, compiled, result)


def aiter_output(data: Sequence[torch.Tensor], *, rounding: str = "even", kernel: str | None = None) -> torch.Tensor:
    """The task's reference for its inputs, with aiter's own machine code as the GEMM.

    A is quantized by `formats.quantize_mxfp4` (proven equal to aiter's op for either rounding), shuffled with padding
    0, and multiplied by the emulated code object that `choose_gemm` takes.

    Args:
        data: (a, b, b_q, b_shuffle, b_scale_sh) as the task gives them.
        rounding: "even" (the task's aiter) or "half_away" (aiter before pull request 975).
        kernel: another code object by name.

    Returns:
        C [M, N] bf16.
    """
    import torch

    from mxfp4lab.formats import quantize_mxfp4
    from mxfp4lab.layouts import e8m0_shuffle

    a, _, _, b_shuffle, b_scale_sh = data
    a_q, a_scale = quantize_mxfp4(a.cpu(), rounding=rounding)
    b_bytes, scale_bytes = (tensor.cpu().contiguous().view(torch.uint8) for tensor in (b_shuffle, b_scale_sh))
    return run_prebuilt_gemm(a_q, e8m0_shuffle(a_scale), b_bytes, scale_bytes, kernel=kernel).c.to(a.device)


def require_prebuilt_gemm() -> str:
    """Make sure that `aiter_output` can work here; returns how to call it, in a line.

    Raises:
        AiterError: no aiter is installed, or it came without code objects.
        CompileError: they cannot be read (the decoder's package is missing).
    """
    from mxfp4lab.gfx950 import load_code_object

    install: Any = find_aiter()
    load_code_object(prebuilt_kernels(install)[0].path)
    return f"aiter {install.version}'s prebuilt GEMM, emulated; A quantized with ties to even"
