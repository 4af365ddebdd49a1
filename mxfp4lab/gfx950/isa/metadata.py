"""The metadata map of a kernel in assembly text."""

from __future__ import annotations

import yaml

from mxfp4lab.gfx950.isa.descriptor import KernelArg, kernel_entries, read_entry
from mxfp4lab.gfx950.isa.instruction import IsaError


def parse_metadata(lines: list[tuple[int, str]], kernel: str) -> tuple[dict[str, int], tuple[KernelArg, ...]]:
    """Read the metadata map of `kernel`: its integer entries, and its arguments; nothing where it has no map.

    Args:
        lines: (line number, text) of the YAML document that LLVM writes.
        kernel: the kernel's symbol.

    Raises:
        IsaError: no YAML, or another form than LLVM's.
    """
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        found = yaml.load("\n".join(text for _, text in lines), Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        place = getattr(getattr(error, "problem_mark", None), "line", 0)
        problem = getattr(error, "problem", None) or str(error)
        raise IsaError(f"line {lines[min(place, len(lines) - 1)][0]}: metadata: {problem}") from None
    entries = kernel_entries(found or {})
    entry = entries.get(kernel) or entries.get("")
    return ({}, ()) if entry is None else read_entry(entry)
