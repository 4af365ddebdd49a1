"""What a GPU refuses that the CPU does: tensors of two devices, and dtypes that it has no kernel for.

The rule for devices is torch's own. Which operations a GPU has for a dtype was measured: 112 operations on 14 dtypes,
run on a CPU and on the GPU named here; only what differs stands below.
"""

from __future__ import annotations

from functools import cache, reduce
from typing import NamedTuple

import torch

MEASURED_ON = "NVIDIA H200, torch 2.11"
_INTEGERS = "uint8 int8 int16 int32 int64"
_UNSIGNED = "uint16 uint32"
_NARROW = f"float8_e4m3fn float8_e8m0fnu {_UNSIGNED}"


def _rows(*rows: tuple[str, str]) -> dict[str, str]:
    return {name: dtypes for names, dtypes in rows for name in names.split()}


# operation -> dtypes: the CPU has them, the GPU has not
REFUSED = _rows(
    ("mm addmm addmm_", f"{_INTEGERS} float8_e4m3fn"),
    ("bmm baddbmm baddbmm_ mv addmv addmv_ dot vdot convolution convolution_overrideable", _INTEGERS),
    ("_slow_conv2d_forward slow_conv3d_forward _conv_depthwise2d", _INTEGERS),
    ("abs abs_", "float8_e4m3fn"),
    ("any mul mul_ roll", _NARROW),
    ("bitwise_and bitwise_and_ bitwise_xor bitwise_xor_ index masked_select sort where signbit", _UNSIGNED),
    ("histc", "bfloat16 float16"),
)
# operation -> dtypes: the GPU has them, the CPU has not
GRANTED = _rows(
    ("abs", "bool"),
    ("count_nonzero gather isin", _NARROW),
    ("equal", "float8_e4m3fn float8_e8m0fnu"),
    ("histc", _INTEGERS),
    ("index_put_ _index_put_impl_", "float8_e8m0fnu"),
)
ALL_ON_ONE = "Expected all tensors to be on the same device, but "
_MAY_MIX = {"copy_", "_to_copy", "copy", "fill_", "set_"}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
_HOST_SCALAR = {"masked_fill", "masked_fill_", "where", "index_fill", "index_fill_"}  # take a CPU scalar tensor too


class Facts(NamedTuple):
    """What an operation's schema says."""

    name: str
    arguments: tuple
    outs: frozenset[str]
    written: frozenset[str]
    pointwise: bool
    generator: bool


@cache
def facts_of(op) -> Facts:
    arguments = op._schema.arguments
    return Facts(
        op.name().split("::")[1].split(".")[0],
        tuple((a.name, str(a.type), a.kwarg_only) for a in arguments),
        frozenset(a.name for a in arguments if a.is_out),
        frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write),
        torch.Tag.pointwise in op.tags,
        any(a.name == "generator" for a in arguments),
    )


def check_devices(facts: Facts, bound: dict, tensors: list[torch.Tensor]) -> None:
    """torch's rule: one device, but for copies, CPU indices, and CPU scalars in pointwise operations."""
    hosts = [t for t in tensors if not t.is_cuda]
    if not hosts or facts.name in _MAY_MIX:
        return
    if facts.name in _INDEXING:
        own, values = bound["self"], bound.get("values")
        if own.is_cuda and (values is None or values.is_cuda or values.dim() == 0):
            return
        if own.is_cuda:
            raise RuntimeError(f"{ALL_ON_ONE}found at least two devices, cuda:0 and cpu!")
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    outs = tensors_in([bound.get(name) for name in facts.written], [])
    free = (facts.pointwise and "clamp" not in facts.name) or facts.name in _HOST_SCALAR
    if free and all(t.dim() == 0 for t in hosts) and not any(t is out for t in hosts for out in outs):
        return
    named = next((name for name, value in bound.items() if any(value is t for t in hosts)), "tensors")
    if facts.pointwise:
        raise RuntimeError(f"{ALL_ON_ONE}found at least two devices, cuda:0 and cpu!")
    raise RuntimeError(
        f"{ALL_ON_ONE}got {named} is on cpu, different from other tensors on cuda:0 "
        f"(when checking argument in method wrapper_CUDA_{facts.name})"
    )


def check_dtypes(facts: Facts, bound: dict, tensors: list[torch.Tensor]) -> None:
    """The operations that the GPU has not for a dtype, though the CPU has them."""
    refused = REFUSED.get(facts.name, "").split()
    if refused and tensors:
        dtypes = {t.dtype for t in tensors if t.dtype != torch.bool}
        dtypes = {reduce(torch.promote_types, dtypes)} if facts.pointwise and len(dtypes) > 1 else dtypes
        for name in (str(dtype).removeprefix("torch.") for dtype in dtypes):
            if name in refused:
                raise NotImplementedError(f'"{facts.name}_cuda" not implemented for {name!r} (as on {MEASURED_ON})')
    if facts.name == "_int_mm" and bound["self"].shape[0] <= 16:
        raise RuntimeError(f"self.size(0) needs to be greater than 16, but got {bound['self'].shape[0]}")


def tensors_in(values: object, found: list[torch.Tensor]) -> list[torch.Tensor]:
    """Every tensor in nested arguments."""
    if isinstance(values, torch.Tensor):
        found.append(values)
    elif isinstance(values, (list, tuple)):
        for value in values:
            tensors_in(value, found)
    elif isinstance(values, dict):
        tensors_in(list(values.values()), found)
    return found


def mapped(values: object, function):
    """Nested arguments with every tensor replaced."""
    if isinstance(values, torch.Tensor):
        return function(values)
    if type(values) in (list, tuple):
        return type(values)(mapped(value, function) for value in values)
    if isinstance(values, dict):
        return {name: mapped(value, function) for name, value in values.items()}
    return values
