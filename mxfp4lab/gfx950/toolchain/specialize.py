"""What Triton's JIT would make of a launch's arguments, without a driver: types, folded constants, attributes.

Offline code equals on-box code only if the arguments are specialised alike. The rules of Triton 3.6 to 3.9
(`native_specialize_impl` with the backend's `get_tensor_specialization`):

- pointer: "*dtype"; divisible by 16 if the address is; on AMD also `tt.pointer_range 32` if the tensor's storage is
  at most 2^31 - 1 bytes and buffer operations are on (they need 32-bit offsets);
- int: equal to 1 -> a constexpr; else i32, i64 or u64 by value; divisible by 16 if the value is;
- bool: u1; float: fp32; None: a constexpr; tuple: each of its entries, named "p[0]", "p[1]", ...;
- `do_not_specialize` keeps only the type, `do_not_specialize_on_alignment` drops the divisibility; an annotated type
  wins over the value's, is never folded, and annotated floats are not specialised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mxfp4lab.gfx950.toolchain.errors import CompileError

DTYPE_NAMES: dict[str, str] = {"bf16": "bf16", "u8": "u8", "f32": "fp32", "i32": "i32", "f16": "fp16", "i64": "i64"}
MAX_BUFFER_BYTES = 2**31 - 1


@dataclass(frozen=True)
class Pointer:
    """A pointer argument: element type as Triton names it ("bf16", "u8", "fp32"), and what is known of the tensor."""

    dtype: str
    aligned: bool = True
    small: bool = True  # storage of at most MAX_BUFFER_BYTES


@dataclass(frozen=True)
class Typed:
    """An argument of which the type is known, and no value: `attributes` as in `Specialization`."""

    kind: str
    attributes: str


@dataclass(frozen=True)
class Specialization:
    """Signature, constants and attributes, from which `triton.compiler.ASTSource` is made.

    Attributes:
        signature: parameter -> type, "constexpr" for constants, a tuple of them for a tuple; in parameter order.
        constants: name -> value of every constexpr, folded arguments included; "p[0]" within a tuple.
        attributes: name -> subset of "DS": divisible by 16, small (32-bit offsets).
    """

    signature: dict[str, Any]
    constants: dict[str, Any]
    attributes: dict[str, str]

    def runtime_signature(self) -> tuple[tuple[str, str], ...]:
        """(name, type) of the arguments that exist at launch, in order."""
        flat = (pair for name, kind in self.signature.items() for pair in flatten(kind, name))
        return tuple((name, kind) for name, kind in flat if kind != "constexpr")


def flatten(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """(name, value) of what a kernel is given for an argument: a tuple's entries one after another, as Triton does."""
    if isinstance(value, (tuple, list)):
        for position, entry in enumerate(value):
            yield from flatten(entry, f"{name}[{position}]")
    else:
        yield name, value


def specialize(
    jit_fn: Any, arguments: Mapping[str, Any], arch: str, buffer_ops: bool = True, folded: Collection[str] = ()
) -> Specialization:
    """Specialise `jit_fn` for a launch.

    Args:
        jit_fn: a `triton.JITFunction`.
        arguments: parameter -> `Pointer`, `Typed`, int, float, bool, None or a tuple of them for run-time parameters,
            any value for constexprs.
        arch: "gfx950" or another target; only AMD targets get the 32-bit pointer range.
        buffer_ops: whether AMDGCN_USE_BUFFER_OPS is on.
        folded: run-time parameters that become constants, as the JIT makes of an argument that is a `tl.constexpr`.

    Raises:
        CompileError: an argument is missing or unknown, or its type cannot be passed to a kernel ("request").
    """
    names = [parameter.name for parameter in jit_fn.params]
    unknown = sorted(set(arguments) - set(names))
    if unknown:
        has = f"has no parameter {unknown[0]!r}; it has {', '.join(names)}"
        raise CompileError(f"arguments: {jit_fn.__name__} {has}", "request")
    signature, constants, attributes = {}, {}, {}

    def settle(parameter: Any, value: Any, name: str) -> Any:
        """The type of an argument; what else is known of it is noted under its name."""
        constant = parameter.is_constexpr or parameter.name in folded
        if isinstance(value, (tuple, list)) and not constant:
            return tuple(settle(parameter, entry, f"{name}[{place}]") for place, entry in enumerate(value))
        kind, attribute = "constexpr", ""
        if not constant:
            kind, attribute = _specialize_value(parameter, value, buffer_ops and arch.startswith("gfx"))
        if kind == "constexpr":
            constants[name] = value
        elif attribute:
            attributes[name] = attribute
        return kind

    for parameter in jit_fn.params:
        name = parameter.name
        value = arguments.get(name, parameter.default)
        if (name not in arguments and not parameter.has_default) or (parameter.is_constexpr and _is_typed(value)):
            raise CompileError(f"arguments: {jit_fn.__name__} needs a value for {name!r}", "request")
        signature[name] = settle(parameter, value, name)
    return Specialization(signature, constants, attributes)


def launch_arguments(launch: Any, buffers: Sequence[Any]) -> dict[str, Any]:
    """A plan's launch as `specialize` takes it: its `constants`, and its `args`, of which some name one of `buffers`.

    Raises:
        CompileError: an argument names no buffer ("request").
    """
    by_name = {buffer.name: buffer for buffer in buffers}
    arguments: dict[str, Any] = {**dict(launch.constants), **dict(launch.args)}
    for name, value in launch.args:
        if hasattr(value, "buffer"):
            if value.buffer not in by_name:
                raise CompileError(f"args: {name} names a buffer the plan lacks: {value.buffer!r}", "request")
            buffer = by_name[value.buffer]
            dtype = DTYPE_NAMES.get(buffer.dtype, buffer.dtype)
            arguments[name] = Pointer(dtype, small=buffer.nbytes <= MAX_BUFFER_BYTES)
    return arguments


def typed_arguments(signature: Mapping[str, Any], aligned: Collection[str] | None, small: bool) -> dict[str, Any]:
    """Types as `specialize` takes them: pointers of 16-byte alignment unless `aligned` lists what is.

    Raises:
        CompileError: `aligned` names no argument ("request").
    """
    flat = dict(pair for name, kind in signature.items() for pair in flatten(kind, name))
    unknown = sorted(set(aligned or ()) - set(flat))
    if unknown:
        raise CompileError(f"aligned: no argument {unknown[0]!r}; there are {', '.join(flat)}", "request")

    def typed(kind: Any, name: str) -> Any:
        if isinstance(kind, (tuple, list)):
            return tuple(typed(entry, f"{name}[{place}]") for place, entry in enumerate(kind))
        pointer = kind.startswith("*")
        divisible = pointer if aligned is None else name in aligned
        return Typed(kind, "D" * divisible + "S" * (pointer and small))

    return {name: typed(kind, name) for name, kind in signature.items()}


def _is_typed(value: Any) -> bool:
    return any(isinstance(entry, Typed) for _, entry in flatten(value, ""))


def _specialize_value(parameter: Any, value: Any, buffer_ops: bool) -> tuple[str, str]:
    annotated = parameter.annotation_type or ""
    specialised = not parameter.do_not_specialize
    aligning = specialised and not parameter.do_not_specialize_on_alignment
    attribute = ""
    if isinstance(value, Typed):
        return value.kind, value.attributes
    if value is None:
        return "constexpr", ""
    if isinstance(value, Pointer):
        kind = f"*{'k' if parameter.is_const else ''}{value.dtype}"
        attribute = "D" * (aligning and value.aligned) + "S" * (specialised and value.small and buffer_ops)
    elif isinstance(value, bool):
        kind = "u1"
    elif isinstance(value, int):
        if value == 1 and specialised and not annotated:
            return "constexpr", ""
        kind = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
        attribute = "D" * (aligning and value % 16 == 0)
    elif isinstance(value, float):
        kind = "fp32"
    else:
        what = f"{parameter.name} is a {type(value).__name__}"
        raise CompileError(f"arguments: {what}; allowed: a pointer, int, float, bool, None", "request")
    if annotated == "u1" or annotated[:2] in ("fp", "bf"):
        attribute = ""
    return annotated or kind, attribute
