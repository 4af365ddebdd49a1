"""What Triton's JIT would make of a launch's arguments, without a driver: types, folded constants, attributes.

Offline code equals on-box code only if the arguments are specialised alike. The rules of Triton 3.6 to 3.9
(`native_specialize_impl` with the backend's `get_tensor_specialization`):

- pointer: "*dtype"; divisible by 16 if the address is; on AMD also `tt.pointer_range 32` if the tensor's storage is
  at most 2^31 - 1 bytes and buffer operations are on (they need 32-bit offsets);
- int: equal to 1 -> a constexpr; else i32, i64 or u64 by value; divisible by 16 if the value is;
- bool: u1; float: fp32; None: a constexpr;
- `do_not_specialize` keeps only the type, `do_not_specialize_on_alignment` drops the divisibility; an annotated type
  wins over the value's, is never folded, and annotated floats are not specialised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
class Specialization:
    """Signature, constants and attributes in the form that `triton.compiler.ASTSource` takes.

    Attributes:
        signature: parameter -> type, "constexpr" for constants, in parameter order.
        constants: parameter -> value of every constexpr, folded arguments included.
        attributes: parameter -> subset of "DS": divisible by 16, small (32-bit offsets).
    """

    signature: dict[str, str]
    constants: dict[str, Any]
    attributes: dict[str, str]

    def runtime_signature(self) -> tuple[tuple[str, str], ...]:
        """(name, type) of the arguments that exist at launch, in order."""
        return tuple((name, kind) for name, kind in self.signature.items() if kind != "constexpr")


def specialize(
    jit_fn: Any, arguments: Mapping[str, Any], arch: str, buffer_ops: bool = True, folded: Collection[str] = ()
) -> Specialization:
    """Specialise `jit_fn` for a launch.

    Args:
        jit_fn: a `triton.JITFunction`.
        arguments: parameter -> `Pointer`, int, float, bool or None for run-time parameters, any value for constexprs.
        arch: "gfx950" or another target; only AMD targets get the 32-bit pointer range.
        buffer_ops: whether AMDGCN_USE_BUFFER_OPS is on.
        folded: run-time parameters that become constants, as the JIT makes of an argument that is a `tl.constexpr`.

    Raises:
        ValueError: an argument is missing or unknown, or its type cannot be passed to a kernel.
    """
    names = [parameter.name for parameter in jit_fn.params]
    unknown = sorted(set(arguments) - set(names))
    if unknown:
        raise ValueError(f"arguments: {jit_fn.__name__} has no parameter {unknown[0]!r}; it has {', '.join(names)}")
    signature, constants, attributes = {}, {}, {}
    for parameter in jit_fn.params:
        name = parameter.name
        if name not in arguments and not parameter.has_default:
            raise ValueError(f"arguments: {jit_fn.__name__} needs a value for {name!r}")
        value = arguments.get(name, parameter.default)
        kind, attribute = "constexpr", ""
        if not parameter.is_constexpr and name not in folded:
            kind, attribute = _specialize_value(parameter, value, buffer_ops and arch.startswith("gfx"))
        signature[name] = kind
        if kind == "constexpr":
            constants[name] = value
        elif attribute:
            attributes[name] = attribute
    return Specialization(signature, constants, attributes)


def specialize_launch(jit_fn: Any, launch: Any, buffers: Sequence[Any], arch: str, buffer_ops: bool) -> Specialization:
    """`specialize` for a plan's launch: its `constants`, and its `args`, of which some name one of `buffers`.

    Raises:
        ValueError: as `specialize`, or an argument names no buffer.
    """
    by_name = {buffer.name: buffer for buffer in buffers}
    arguments: dict[str, Any] = dict(launch.constants)
    for name, value in launch.args:
        arguments[name] = value
        if hasattr(value, "buffer"):
            if value.buffer not in by_name:
                raise ValueError(f"args: {name} names a buffer the plan lacks: {value.buffer!r}")
            buffer = by_name[value.buffer]
            dtype = DTYPE_NAMES.get(buffer.dtype, buffer.dtype)
            arguments[name] = Pointer(dtype, small=buffer.nbytes <= MAX_BUFFER_BYTES)
    return specialize(jit_fn, arguments, arch, buffer_ops, dict(launch.constants))


def specialize_types(
    jit_fn: Any, signature: Mapping[str, str], constants: Mapping[str, Any], aligned: Collection[str] | None,
    small: bool,
) -> Specialization:  # fmt: skip
    """A specialisation by types alone: pointers of 16-byte alignment unless `aligned` lists what is.

    Raises:
        CompileError: a parameter without type or value, or one that the kernel lacks ("request").
    """
    resolved, values, attributes = {}, {}, {}
    for parameter in jit_fn.params:
        name = parameter.name
        if name in constants or (parameter.is_constexpr and parameter.has_default):
            resolved[name], values[name] = "constexpr", constants.get(name, parameter.default)
        elif name in signature and not parameter.is_constexpr:
            resolved[name] = kind = signature[name]
            pointer = kind.startswith("*")
            divisible = pointer if aligned is None else name in aligned
            if divisible or (pointer and small):
                attributes[name] = "D" * divisible + "S" * (pointer and small)
        else:
            where = "constants" if parameter.is_constexpr else "signature"
            raise CompileError(f"{where}: {jit_fn.__name__} needs {name!r}", "request")
    unknown = sorted({*constants, *signature, *(aligned or ())} - set(resolved))
    if unknown:
        raise CompileError(f"signature: {jit_fn.__name__} has no parameter {unknown[0]!r}", "request")
    return Specialization(resolved, values, attributes)


def _specialize_value(parameter: Any, value: Any, buffer_ops: bool) -> tuple[str, str]:
    annotated = parameter.annotation_type or ""
    specialised = not parameter.do_not_specialize
    aligning = specialised and not parameter.do_not_specialize_on_alignment
    if isinstance(value, Pointer):
        kind = f"*{'k' if parameter.is_const else ''}{value.dtype}"
        attribute = "D" if aligning and value.aligned else ""
        if specialised and value.small and buffer_ops:
            attribute += "S"
    elif value is None:
        kind, attribute = "constexpr", ""
    elif isinstance(value, bool):
        kind, attribute = "u1", ""
    elif isinstance(value, int):
        kind = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
        if value == 1 and specialised and not annotated:
            return "constexpr", ""
        attribute = "D" if aligning and value % 16 == 0 else ""
    elif isinstance(value, float):
        kind, attribute = "fp32", ""
    else:
        raise ValueError(
            f"arguments: {parameter.name} is a {type(value).__name__}; allowed: a pointer, int, float, bool, None"
        )
    if annotated and kind != "constexpr":
        kind = annotated
        if annotated == "u1" or annotated[:2] in ("fp", "bf"):
            attribute = ""
    return kind, attribute


def source_attributes(jit_fn: Any, attributes: Mapping[str, str]) -> dict[tuple[int], list[list]]:
    """Attributes in the form that `ASTSource` takes: (parameter index,) -> [[name, value], ...]."""
    names = [parameter.name for parameter in jit_fn.params]
    meaning = {"D": ["tt.divisibility", 16], "S": ["tt.pointer_range", 32]}
    return {(names.index(name),): [list(meaning[flag]) for flag in flags] for name, flags in attributes.items()}
