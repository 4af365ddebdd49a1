"""One trial as a value: what was done, on what, how it ended, and the counts that a prediction is made of."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any

from mxfp4lab.display import Grid, Shown, badge
from mxfp4lab.shapes import Shape

SCHEMA = 1
"""Version of the JSON form of a Trial; a reader skips rows of any other version, with a warning."""

VERIFIED = ("none", "emulated", "gpu")


class Evidence(StrEnum):
    """Where a number comes from. Numbers of different kinds are never compared as if they were one."""

    measured = "measured"  # a clock on a real GPU
    emulated = "emulated"  # the machine code was executed on the CPU: exact counts and results, no time
    modelled = "modelled"  # a predicted MI355X time; the model's version and known error stand beside it


class Status(StrEnum):
    """How a trial ended; a failing config is a row, never the end of a run."""

    ok = "ok"
    invalid = "invalid"
    compile_error = "compile_error"
    screened = "screened"
    incorrect = "incorrect"
    out_of_bounds = "out_of_bounds"
    runtime_error = "runtime_error"
    timeout = "timeout"
    worker_died = "worker_died"
    skipped = "skipped"


def content_hash(value: Any, digits: int = 16) -> str:
    """First hex digits of the sha256 of a value's JSON with sorted keys; ValueError for a NaN in it."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


@dataclass(frozen=True)
class LaunchCounts:
    """What one launch of a Plan does, counted by executing one of its workgroups.

    ``*_per_wave`` are dynamic instructions of one wave (the mean over the workgroup's waves); ``*_bytes_per_workgroup``
    are bytes asked for by the program, before any cache. ``valu`` excludes matrix instructions; ``mfma16`` are
    16x16x128 and ``mfma32`` 32x32x64 (16 and 32 cycles on gfx950), ``mfma`` is all matrix instructions.
    """

    name: str
    workgroups: int
    waves_per_workgroup: int
    valu_per_wave: float = 0.0
    mfma_per_wave: float = 0.0
    mfma16_per_wave: float = 0.0
    mfma32_per_wave: float = 0.0
    convert_per_wave: float = 0.0
    vmem_per_wave: float = 0.0
    lds_per_wave: float = 0.0
    scratch_per_wave: float = 0.0
    scalar_per_wave: float = 0.0
    barriers_per_wave: float = 0.0
    load_bytes_per_workgroup: float = 0.0
    store_bytes_per_workgroup: float = 0.0
    vgprs: int = 0
    agprs: int = 0
    sgprs: int = 0
    spilled_vgprs: int = 0
    scratch_bytes: int = 0
    lds_bytes: int = 0
    occupancy_waves_per_simd: int = 0
    waits_for_peers: int = 0  # 1: workgroups wait for each other's results, which no published time knows

    def to_dict(self) -> dict[str, Any]:
        """Every field."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LaunchCounts:
        """Read what `to_dict` wrote; ValueError names the field that is wrong. A retired field is dropped."""
        return _build(cls, {name: value for name, value in _object(cls.__name__, data).items() if name not in RETIRED})


RETIRED = ("exposed_waits_per_wave",)  # of `LaunchCounts`: stands in older records

COUNT_COLUMNS = {
    "kernel": "name", "workgroups": "workgroups", "waves each": "waves_per_workgroup", "VALU": "valu_per_wave",
    "MFMA": "mfma_per_wave", "convert": "convert_per_wave", "memory": "vmem_per_wave", "LDS": "lds_per_wave",
    "scalar": "scalar_per_wave", "barriers": "barriers_per_wave", "KiB read": "load_bytes_per_workgroup",
    "KiB written": "store_bytes_per_workgroup", "VGPRs": "vgprs", "spilled": "spilled_vgprs",
    "waves per SIMD": "occupancy_waves_per_simd",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Counts(Shown):
    """Counts of every launch of a Plan on one shape. Always ``emulated``: the machine code was executed.

    ``partial_bytes`` is the size of the split-K workspace that a second launch reads back (0 without one).
    """

    shape: Shape
    launches: tuple[LaunchCounts, ...]
    split_k: int = 1
    partial_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        launches = [launch.to_dict() for launch in self.launches]
        return {"evidence": "emulated", **vars(self), "shape": _shape_dict(self.shape), "launches": launches}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Counts:
        """Read what `to_dict` wrote; ValueError names the field that is wrong."""
        data = {key: value for key, value in _object("Counts", data).items() if key != "evidence"}
        launches = data.get("launches")
        if not isinstance(launches, list):
            raise ValueError(f"Counts.launches: {launches!r} is not a list")
        data["launches"] = tuple(LaunchCounts.from_dict(item) for item in launches)
        return _build(cls, data)

    @property
    def title(self) -> str:
        return f"Counts of {self.shape}{f', split-K {self.split_k}' if self.split_k > 1 else ''}"

    def lines(self) -> list[Any]:
        """A row per launch."""
        rows = [[_count(header, getattr(launch, name)) for header, name in COUNT_COLUMNS.items()]
                for launch in self.launches]  # fmt: skip
        return [Grid(tuple(COUNT_COLUMNS), rows, "Executed by one wave; KiB by one workgroup; emulated.")]


def _count(header: str, value: Any) -> Any:
    """KiB where they are meant; whole where every wave executes as much."""
    value = value / 1024 if header.startswith("KiB") else value
    return value if isinstance(value, str) or value != int(value) else int(value)


@dataclass(frozen=True, kw_only=True, repr=False)
class Trial(Shown):
    """One config on one shape, with everything needed to know what was done and whether it was done before.

    It knows which fields may stand together: a clock's ``latency_us`` only beside ``measured``, a ``predicted_us`` only
    beside ``modelled`` and a ``model_version``. A row that stopped before its number (``invalid``, ``screened``) is
    filed under the evidence that it was on its way to.

    Attributes:
        config: as it was then: fields that have since been retired stay in it, and are shown and never rebuilt.
        kernel_hash: hash of the launches' sources, constants and options, known before anything is compiled.
        knobs: environment variables that change generated code or launches, as they were.
        arch: compile target, e.g. ``"gfx950"`` or ``"sm_90"``.
        device: name of the GPU that ran it; ``""`` where none did.
        toolchain: versions that decide the machine code.
        regime: of a time: ``"harness"``, ``"leaderboard"``, ...; ``""`` where there is no time.
        reason: why the status is not ``ok``, one sentence.
        verified: ``none``, ``emulated`` or ``gpu``: who compared C with the reference.
        bf16_identical: fraction of C's elements whose bf16 bits equal the reference's.
        resources: kernel name -> registers, spills, LDS and matrix instructions, read from the machine code.
        detail: anything else worth keeping (spread of a timing, terms of a prediction, where a config comes from);
            no part of the identity.
    """

    run_id: str
    shape: Shape
    variant: str
    config: Mapping[str, Any]
    config_id: str
    arch: str
    evidence: Evidence
    status: Status
    kernel_hash: str = ""
    knobs: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    toolchain: Mapping[str, str] = field(default_factory=dict)
    regime: str = ""
    reason: str = ""
    verified: str = "none"
    bf16_identical: float | None = None
    latency_us: float | None = None
    predicted_us: float | None = None
    model_version: str = ""
    resources: Mapping[str, Mapping[str, Any]] | None = None
    counts: Counts | None = None
    seed: int | None = None
    generator_device: str = ""
    started_at: str = ""
    worker: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", Evidence(self.evidence))
        object.__setattr__(self, "status", Status(self.status))
        if self.verified not in VERIFIED:
            raise ValueError(f"Trial.verified: {self.verified!r}; allowed: {', '.join(VERIFIED)}")
        for name, kind in (("latency_us", Evidence.measured), ("predicted_us", Evidence.modelled)):
            if getattr(self, name) is not None and self.evidence is not kind:
                raise ValueError(f"Trial.{name} belongs to {kind} trials only, this one is {self.evidence}")
        if self.predicted_us is not None and not self.model_version:
            raise ValueError("Trial.predicted_us needs a model_version beside it")
        for name in ("bf16_identical", "latency_us", "predicted_us"):
            value = getattr(self, name)
            if value is not None and not (_is(value, (int, float)) and math.isfinite(value) and value >= 0):
                raise ValueError(f"Trial.{name}: {value!r} is not a finite number >= 0")

    @property
    def identity(self) -> str:
        """Hash of what makes this trial this trial; equal for a repetition, whatever its outcome."""
        return content_hash([
            *self.shape.as_tuple, self.variant, dict(self.config), self.kernel_hash, dict(self.knobs), self.arch,
            self.device, dict(self.toolchain), str(self.evidence), self.regime, self.seed, self.generator_device,
            self.model_version,
        ])  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; fields that hold nothing are left out."""
        empty = {name: value for name, value in vars(self).items() if value is None or value == "" or value == {}}
        row = {"schema": SCHEMA, **vars(self), "shape": _shape_dict(self.shape)}
        if self.counts is not None:
            row["counts"] = self.counts.to_dict()
        return {name: value for name, value in row.items() if name not in empty or name in _REQUIRED[Trial]}

    def to_line(self) -> str:
        """One line of JSON, newline included. Raises ValueError for a NaN anywhere in it."""
        return json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trial:
        """Read what `to_dict` wrote.

        Raises:
            ValueError: another schema, an unknown or missing field, or a value of the wrong type; names the field.
        """
        data = dict(_object("Trial", data))
        schema = data.pop("schema", None)
        if not _is(schema, (int,)) or schema != SCHEMA:
            raise ValueError(f"schema {schema!r}, this version reads {SCHEMA}")
        for kernel, facts in data["resources"].items() if isinstance(data.get("resources"), dict) else ():
            _object(f"Trial.resources[{kernel!r}]", facts)
        if "counts" in data:
            data["counts"] = Counts.from_dict(data["counts"])
        return _build(cls, data)

    @property
    def title(self) -> str:
        return f"trial {self.identity}"

    def lines(self) -> list[tuple[str, Any]]:
        """(name, value) for people: every field that holds something, evidence and status first."""
        tone = {"ok": "good", "screened": "warn", "invalid": "warn", "skipped": "quiet"}.get(str(self.status), "bad")
        first = [("evidence", badge(self.evidence, str(self.evidence))), ("status", badge(self.status, tone))]
        row = {**self.to_dict(), "shape": str(self.shape)}
        rest = [(name, _words(value)) for name, value in row.items() if name not in ("evidence", "status", "counts")]
        return [*first, *rest]


def _words(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"{value:.2f}" if isinstance(value, float) else str(value)
    return ", ".join(f"{name}={f'({_words(of)})' if isinstance(of, Mapping) else of}" for name, of in value.items())


# -- JSON to values: the names and types of a dataclass's fields are its schema ---------------------------------------

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "Mapping": (dict,), "Evidence": (str,), "Status": (str,),
    "Shape": (Shape,), "Counts": (Counts,), "tuple": (tuple,),
}  # fmt: skip
_FIELDS: dict[type, dict[str, tuple[type, ...]]] = {
    cls: {f.name: _TYPES[str(f.type).split("[")[0].split(" ")[0]] for f in fields(cls)}
    for cls in (LaunchCounts, Counts, Trial)
}
# A published row may know a count as a mean only.
_FIELDS[LaunchCounts] = {name: (str,) if name == "name" else (int, float) for name in _FIELDS[LaunchCounts]}
_REQUIRED: dict[type, list[str]] = {
    cls: [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    for cls in (LaunchCounts, Counts, Trial)
}


def _build(cls: type, data: Mapping[str, Any]) -> Any:
    """An instance from JSON values, or a ValueError that names the field."""
    what = cls.__name__
    data = dict(_object(what, data))
    if "shape" in data:
        data["shape"] = _shape_from(data["shape"])
    for name, value in data.items():
        allowed = _FIELDS[cls].get(name)
        if allowed is None:
            raise ValueError(f"{what}: unknown field {name!r}")
        if not _is(value, allowed) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"{what}.{name}: {value!r} is not {' or '.join(kind.__name__ for kind in allowed)}")
    for name in _REQUIRED[cls]:
        if name not in data:
            raise ValueError(f"{what}.{name} is missing")
    return cls(**data)


def _is(value: Any, allowed: tuple[type, ...]) -> bool:
    return isinstance(value, allowed) and not isinstance(value, bool)


def _object(what: str, data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{what}: {type(data).__name__} where an object is expected")
    return data


def _shape_dict(shape: Shape) -> dict[str, int]:
    return {"m": shape.m, "n": shape.n, "k": shape.k}


def _shape_from(data: Any) -> Shape:
    sizes = [_object("shape", data).get(name) for name in ("m", "n", "k")]
    if len(data) != 3 or not all(_is(size, (int,)) for size in sizes):
        raise ValueError(f"shape: {dict(data)!r} is not m, n, k as integers")
    return _shape(*sizes)


_shape = lru_cache(maxsize=256)(Shape)  # a file of a million rows names few shapes
