"""Values of a running session written as source: numbers, texts, containers, and records of fields.

A record (dataclass or named tuple) or an enumeration's member whose class a cell defines is written by that class, so
that its methods come along. Records of the lab become plain namespaces: fields are all that a submission asks of them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection
from typing import Any

LAB = __name__.split(".")[0]
MAX_LITERAL = 20_000  # characters
MAX_DEPTH = 6
_SCALARS = (bool, int, float, str, bytes, type(None))
_CONTAINERS = (list, tuple, set, frozenset)


def is_plain(value: Any, own: Callable[[type], bool], depth: int = MAX_DEPTH) -> bool:
    """Can a value be written as source?

    Args:
        own: is a class defined in a cell, so that the file can hold it?
    """
    if type(value) in _SCALARS or _is_numpy_scalar(value):
        return True
    if depth == 0:
        return False
    if type(value) in _CONTAINERS:
        return all(is_plain(v, own, depth - 1) for v in value)
    if type(value) is dict:
        return all(is_plain(k, own, depth - 1) and is_plain(v, own, depth - 1) for k, v in value.items())
    if isinstance(value, enum.Enum):
        return own(type(value)) and value.name is not None
    if _fields(value) is None or not (own(type(value)) or is_lab_record(value)):
        return False
    return all(is_plain(v, own, depth - 1) for v in _fields(value).values())  # type: ignore[union-attr]


def literal(value: Any, asked: Collection[str] | None = None) -> str:
    """The source of a plain value.

    Args:
        asked: of a record, the fields to write; None writes all.
    """
    if _is_numpy_scalar(value):
        return literal(value.item())
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    fields = _fields(value)
    if fields is not None:
        name = "SimpleNamespace" if is_lab_record(value) else type(value).__name__
        written = {field: v for field, v in fields.items() if asked is None or field in asked}
        return f"{name}({', '.join(f'{field}={literal(v)}' for field, v in written.items())})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(literal, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}([{', '.join(sorted(map(literal, value)))}])"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)


def classes_of(value: Any) -> set[str]:
    """Names of the cells' classes that the source of a plain value mentions."""
    if isinstance(value, enum.Enum):
        return {type(value).__name__}
    fields = _fields(value)
    if fields is not None:
        own = set() if is_lab_record(value) else {type(value).__name__}
        return own.union(*map(classes_of, fields.values()))
    if isinstance(value, dict):
        return set().union(*map(classes_of, value), *map(classes_of, value.values()))
    return set().union(*map(classes_of, value)) if isinstance(value, _CONTAINERS) else set()


def _fields(value: Any) -> dict[str, Any] | None:
    """Fields of a record as its class takes them; None for what is no record."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        taken = [f.name for f in dataclasses.fields(value) if f.init or is_lab_record(value)]
        return {name: getattr(value, name) for name in taken if hasattr(value, name)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    return None


def is_lab_record(value: Any) -> bool:
    """Is it a record of the lab (a config, a shape, a plan)?"""
    return dataclasses.is_dataclass(value) and type(value).__module__.split(".")[0] == LAB


def _is_numpy_scalar(value: Any) -> bool:
    plain = type(value).__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "shape", (0,))
    return plain and type(value.item()) in _SCALARS
