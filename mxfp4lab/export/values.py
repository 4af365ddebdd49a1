"""What the lint knows of a value, and which names of Python and torch make, describe, keep or share one."""

from __future__ import annotations

import ast
from dataclasses import dataclass

DESCRIBES = {"shape", "dtype", "device", "ndim", "layout", "is_cuda", "itemsize", "requires_grad", "is_cpu", "names"}
DESCRIBING_CALLS = {
    "size", "dim", "numel", "stride", "element_size", "is_contiguous", "nelement", "get_device", "storage_offset",
    "data_ptr", "untyped_storage", "type", "is_floating_point",
}  # fmt: skip
FRESH = {
    "empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like", "new_empty", "new_zeros",
    "new_ones", "new_full", "empty_strided", "isinstance", "len", "id", "hasattr", "type", "callable", "range", "print",
    "format", "repr", "str",
}  # fmt: skip
SAME_MEMORY = {
    "view", "reshape", "t", "transpose", "permute", "squeeze", "unsqueeze", "narrow", "detach", "contiguous", "select",
    "as_strided", "view_as", "flatten", "expand", "copy_", "zero_", "fill_", "add_", "mul_", "resize_", "data",
}  # fmt: skip
LOOKUPS = {"get", "setdefault", "pop", "popitem"}
STORES = {"append", "add", "setdefault", "update", "extend", "insert", "appendleft", "__setitem__"}
BACKGROUND_CALLS = {"Thread", "Process", "Timer", "submit", "apply_async", "run_in_executor", "create_task"}
CACHING = {"cache", "lru_cache", "functools.cache", "functools.lru_cache", "cached", "memoize", "cachetools.cached"}


@dataclass(frozen=True)
class Value:
    """What is known of an expression.

    Attributes:
        computed: depends on tensor contents; kept: lives on after the call; address: is or holds an address or id.
        parameters: positions of the function's parameters whose memory it may be.
    """

    computed: bool = False
    kept: bool = False
    address: bool = False
    parameters: frozenset[int] = frozenset()

    def __or__(self, other: Value) -> Value:
        return Value(self.computed or other.computed, self.kept or other.kept, self.address or other.address,
                     self.parameters | other.parameters)  # fmt: skip


NOTHING = Value()


def dotted(node: ast.AST) -> str:
    """`torch.cuda.Event` for the expression of that name, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""
