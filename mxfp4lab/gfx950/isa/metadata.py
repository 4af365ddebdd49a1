"""The metadata map of a kernel in assembly text: integer entries, and the slots of its argument segment."""

from __future__ import annotations

from mxfp4lab.gfx950.isa.descriptor import KernelArg
from mxfp4lab.gfx950.isa.instruction import IsaError


def parse_metadata(lines: list[tuple[int, str]], kernel: str) -> tuple[dict[str, int], tuple[KernelArg, ...]]:
    """Read the metadata map of `kernel`: its integer entries, and its arguments.

    Only the block style that LLVM prints is read: `amdhsa.kernels`, a list of maps with one nested list `.args`.

    Args:
        lines: (line number, text).
        kernel: the kernel's symbol.

    Raises:
        IsaError: an argument without offset or size, or one that is out of order.
    """
    kernels: list[tuple[dict[str, str], list[dict[str, str]]]] = []
    in_kernels = False
    for number, line in lines:
        body = line.strip()
        if not body or body in ("---", "..."):
            continue
        indent = len(line) - len(line.lstrip(" "))
        if indent == 0:
            in_kernels = body == "amdhsa.kernels:"
            continue
        if not in_kernels:
            continue
        item = body.startswith("- ")
        key, colon, value = body[2:].strip().partition(":") if item else body.partition(":")
        if not colon:
            raise IsaError(f"line {number}: metadata: expected `key: value`, got {body[:60]!r}")
        key, value = key.strip().lstrip("."), value.strip().strip("'\"")
        if item and indent == 2:
            kernels.append(({}, []))
        if not kernels:
            raise IsaError(f"line {number}: metadata: entry outside a kernel")
        values, args = kernels[-1]
        if indent <= 4:
            values[key] = value
        elif indent <= 8:
            if item:
                args.append({})
            if not args:
                raise IsaError(f"line {number}: metadata: entry outside an argument")
            args[-1][key] = value
    for values, args in kernels:
        if values.get("name", kernel) == kernel:
            numbers = {key: int(value) for key, value in values.items() if value.isdecimal() and len(value) < 19}
            return numbers, tuple(_argument(entry, position) for position, entry in enumerate(args))
    return {}, ()


def _argument(entry: dict[str, str], position: int) -> KernelArg:
    for key in ("offset", "size"):
        if not entry.get(key, "").isdecimal() or len(entry[key]) > 9:
            raise IsaError(f"metadata: argument {position}: {key} is {entry.get(key)!r}; expected an integer")
    kind = entry.get("value_kind", "by_value")
    return KernelArg(entry.get("name", ""), int(entry["offset"]), int(entry["size"]), kind)
