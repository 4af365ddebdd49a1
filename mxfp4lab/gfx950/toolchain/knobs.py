"""What decides the machine code besides the kernel: environment knobs and the versions of the compiler.

Triton reads its knobs from the environment at the moment it compiles, so a knob is an environment variable here too,
set for the length of one compilation. Knobs and versions are part of every cache key and stand in every record.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping

# Names the submissions set, and every variable by which Triton 3.6 to 3.9 changes generated code.
KNOBS: tuple[str, ...] = (
    "AMDGCN_ANALYZE_SMALL_TENSOR_RANGE", "AMDGCN_SCALARIZE_PACKED_FOPS", "AMDGCN_USE_BUFFER_ATOMICS",
    "AMDGCN_USE_BUFFER_OPS", "DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT", "HIP_FORCE_DEV_KERNARG", "OPTIMIZE_EPILOGUE",
    "PYTORCH_ROCM_ARCH", "TRITON_DEBUG", "TRITON_DEFAULT_FP_FUSION", "TRITON_DISABLE_LINE_INFO", "TRITON_F32_DEFAULT",
    "TRITON_FORCE_DISABLE_FP_FUSION", "TRITON_HIP_USE_ASYNC_COPY", "TRITON_HIP_USE_BLOCK_PINGPONG",
    "TRITON_HIP_USE_COEXEC_SCHEDULER", "TRITON_HIP_USE_EXPERT_SCHEDULING", "TRITON_HIP_USE_IN_THREAD_TRANSPOSE",
    "TRITON_OVERRIDE_ARCH",
)  # fmt: skip
# Triton 3.10 turns fusion off unless told otherwise; a tuned kernel must not change under a newer compiler.
DEFAULTS: dict[str, str] = {"TRITON_DEFAULT_FP_FUSION": "1"}

_environment_lock = threading.RLock()


def current_knobs(overrides: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """The knobs that a compilation started now would see.

    Args:
        overrides: knob -> value for this compilation only; None unsets a knob.

    Returns:
        name -> value of every knob that is set, defaults of this package included, sorted by name.

    Raises:
        ValueError: an override names no knob.
    """
    overrides = dict(overrides or {})
    unknown = sorted(set(overrides) - set(KNOBS))
    if unknown:
        raise ValueError(f"knobs: unknown name {unknown[0]!r}; allowed: {', '.join(KNOBS)}")
    values = {**DEFAULTS, **{name: os.environ[name] for name in KNOBS if name in os.environ}, **overrides}
    return {name: str(value) for name, value in sorted(values.items()) if value is not None}


def buffer_operations(knobs: Mapping[str, str]) -> bool:
    """Whether AMDGCN_USE_BUFFER_OPS is on, as Triton reads it: loads and stores with 32-bit offsets where they fit."""
    return knobs.get("AMDGCN_USE_BUFFER_OPS", "1").lower() not in ("0", "false", "off", "no", "n", "f")


@contextlib.contextmanager
def knob_environment(values: Mapping[str, str], extra: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a block with exactly `values` as the knobs (others unset) and `extra` variables; restore them afterwards.

    The environment is one per process, so the block holds a lock: compilations of one process run one after another.
    """
    wanted: dict[str, str | None] = {**dict.fromkeys(KNOBS), **values, **(extra or {})}
    with _environment_lock:
        before = {name: os.environ.get(name) for name in wanted}
        try:
            _set_environment(wanted)
            yield
        finally:
            _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@functools.cache
def toolchain_versions() -> dict[str, str]:
    """Versions that decide the machine code: Triton's, and the build of the library that holds its compiler.

    Returns:
        {"triton": version, "libtriton": 12 hex digits over size and head of its shared library, "amd_llvm": the code
        generator's revision where the build tells it (Triton 3.9 on)}.
    """
    import triton
    from triton._C import libtriton

    path = libtriton.__file__
    with open(path, "rb") as file:
        head = file.read(1 << 16)  # ELF headers and build id: enough to tell two builds of one version apart
    build = hashlib.sha256(head + str(os.path.getsize(path)).encode()).hexdigest()[:12]
    versions = {"triton": triton.__version__, "libtriton": build}
    with contextlib.suppress(ImportError, OSError, AttributeError):  # older builds link LLVM into libtriton
        from triton.backends.amd.compiler import get_amd_codegen_revision

        versions["amd_llvm"] = get_amd_codegen_revision()
    return versions
