"""The kernel that aiter's C++ heuristic takes when nothing is tuned: its loop, and the order in which it loops.

Source: aiter csrc/py_itfs_cu/asm_gemm_a4w4.cu, get_heuristic_kernel. It walks a `std::unordered_map` of kernels and
keeps one with fewer rounds of workgroups over the CUs, or with as many rounds and either fewer idle CUs or a better
tile_m * tile_n / (tile_m + tile_n). The better ratio is never written down, so every tile beats the 1.0 it starts from,
and among kernels with the fewest rounds the last one walked wins. Which one is last, libstdc++ decides: it hashes names
with MurmurHash64A and threads its buckets on one list. Both are reproduced here (the tests ask g++).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence

from mxfp4lab.aiter.install import AiterError, AiterInstall
from mxfp4lab.aiter.prebuilt import MI355X_CUS, PrebuiltKernel
from mxfp4lab.shapes import Shape

_MASK = (1 << 64) - 1
_MULTIPLIER = 0xC6A4A7935BD1E995
_SEED = 0xC70F6907
_BUCKETS = (13, 29, 59, 127, 257, 541)  # what libstdc++ grows to, one insertion at a time


def heuristic_choice(
    install: AiterInstall, kernels: Sequence[PrebuiltKernel], shape: Shape, cu_count: int = MI355X_CUS
) -> PrebuiltKernel:
    """The preshuffled kernel without a split that the heuristic ends with.

    Raises:
        AiterError: no tile width divides N; aiter gives up there too.
    """
    by_name = {kernel.symbol: kernel for kernel in kernels}
    best, fewest = None, 0
    for name in walk_order(_listed_names(install)):
        kernel = by_name[name]
        if not kernel.preshuffled or kernel.split_k or shape.n % kernel.tile_n:
            continue
        workgroups = -(-shape.m // kernel.tile_m) * (shape.n // kernel.tile_n)
        rounds = -(-workgroups // cu_count)
        if best is None or rounds <= fewest:
            best, fewest = kernel, rounds
    if best is None:
        raise AiterError(f"aiter's heuristic finds no kernel: no tile width divides n={shape.n}")
    return best


def walk_order(names: Iterable[str]) -> list[str]:
    """The order in which libstdc++ walks an unordered set of strings that was filled in the given order.

    A string whose bucket is empty goes to the front of the list, another in front of its bucket; growing the table
    threads the list anew by the same rule.
    """
    walked: list[str] = []
    buckets = 1
    for name in names:
        if buckets == 1 or len(walked) + 1 > buckets:
            buckets = next(count for count in _BUCKETS if count > buckets)
            old, walked = walked, []
            for earlier in old:
                _insert(walked, earlier, buckets)
        _insert(walked, name, buckets)
    return walked


def _insert(walked: list[str], name: str, buckets: int) -> None:
    bucket = string_hash(name) % buckets
    place = next((i for i, other in enumerate(walked) if string_hash(other) % buckets == bucket), 0)
    walked.insert(place, name)


def string_hash(text: str) -> int:
    """`std::hash<std::string>` of libstdc++ on 64 bits: MurmurHash64A with a fixed seed."""
    data = text.encode()
    whole = len(data) & ~7
    value = _SEED ^ (len(data) * _MULTIPLIER & _MASK)
    for start in range(0, whole, 8):
        block = int.from_bytes(data[start : start + 8], "little") * _MULTIPLIER & _MASK
        value = (value ^ (block ^ block >> 47) * _MULTIPLIER & _MASK) * _MULTIPLIER & _MASK
    if len(data) & 7:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 47) * _MULTIPLIER & _MASK
    return value ^ value >> 47


def _listed_names(install: AiterInstall) -> list[str]:
    """Kernel names in the order of aiter's own list, from which its map is generated."""
    folder = install.code_object_folder()
    if folder is None:
        raise AiterError(f"{install} came without prebuilt f4gemm code objects for gfx950")
    names = []
    for table in sorted(folder.glob("*.csv")):
        with table.open(newline="") as file:
            names += [row["knl_name"] for row in csv.DictReader(file)]
    return names
