"""The record of one config on one shape, and the counts that a prediction is made of.

A `Trial` is a plain frozen value: it knows which fields may stand together (a clock's ``latency_us`` only beside
``measured``, a ``predicted_us`` only beside ``modelled``) and what makes two trials the same trial (`Trial.identity`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any

from mxfp4lab import display
from mxfp4lab.records.show import COUNT_HEADERS, count_rows, counts_title, trial_lines
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


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, no NaN. Raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_hash(value: Any, digits: int = 16) -> str:
    """First ``digits`` hex digits of the sha256 of ``canonical_json(value)``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:digits]


@dataclass(frozen=True, slots=True)
class LaunchCounts:
    """What one launch of a Plan does, counted by executing one of its workgroups.

    ``*_per_wave`` are dynamic instructions of one wave (the mean over the workgroup's waves); ``*_bytes_per_workgroup``
    are bytes asked for by the program, before any cache. ``valu`` excludes matrix instructions; ``mfma16`` are
    16x16x128 and ``mfma32`` 32x32x64 (16 and 32 cycles on gfx950), ``mfma`` is all matrix instructions.
    ``exposed_waits`` are memory round trips beyond the first that a wave waits for with no other work in between.
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
    exposed_waits_per_wave: float = 0.0
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
        return {name: getattr(self, name) for name in _LAUNCH_FIELDS}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LaunchCounts:
        _refuse_unknown("LaunchCounts", data, _LAUNCH_FIELDS)
        for key, value in data.items():
            if key != "name" and not _is_number(value):
                raise ValueError(f"LaunchCounts.{key}: {value!r} is not a finite number")
        try:
            return cls(**data)
        except TypeError as error:
            raise ValueError(f"LaunchCounts: {error}") from None


_LAUNCH_FIELDS = tuple(f.name for f in fields(LaunchCounts))


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of every launch of a Plan on one shape. Always ``emulated``: the machine code was executed.

    ``partial_bytes`` is the size of the split-K workspace that a second launch reads back (0 without one).
    """

    shape: Shape
    launches: tuple[LaunchCounts, ...]
    split_k: int = 1
    partial_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "evidence": str(Evidence.emulated),
            "shape": _shape_dict(self.shape),
            "launches": [launch.to_dict() for launch in self.launches],
            "split_k": self.split_k,
            "partial_bytes": self.partial_bytes,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Counts:
        _refuse_unknown("Counts", data, ("evidence", "shape", "launches", "split_k", "partial_bytes"))
        launches = data.get("launches")
        if not isinstance(launches, list):
            raise ValueError(f"Counts.launches: {launches!r} is not a list")
        return cls(
            shape=_shape_from(data.get("shape")),
            launches=tuple(LaunchCounts.from_dict(_mapping("Counts.launches[]", item)) for item in launches),
            split_k=_int("Counts.split_k", data.get("split_k", 1)),
            partial_bytes=_int("Counts.partial_bytes", data.get("partial_bytes", 0)),
        )

    def __str__(self) -> str:
        return f"{counts_title(self)}\n{display.text_table(COUNT_HEADERS, count_rows(self))}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        body = display.table(COUNT_HEADERS, count_rows(self), "Executed by one wave; KiB by one workgroup.")
        mark = display.badge("emulated", "emulated")
        return display.card(counts_title(self), f'{body}<div style="margin-top:6px">{mark}</div>')


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One config on one shape, with everything needed to know what was done and whether it was done before.

    Attributes:
        kernel_hash: hash of the launches' sources, constants and options, known before anything is compiled.
        knobs: environment variables that change generated code or launches, as they were.
        arch: compile target, e.g. ``"gfx950"`` or ``"sm_90"``.
        device: name of the GPU that ran it; ``""`` where none did.
        toolchain: versions that decide the machine code.
        regime: of a time: ``"harness"``, ``"kernel"``, ...; ``""`` where there is no time.
        reason: why the status is not ``ok``, one sentence.
        verified: ``none``, ``emulated`` or ``gpu``: who compared C with the reference.
        bf16_identical: fraction of C's elements whose bf16 bits equal the reference's.
        latency_us: a clock's reading; only with evidence ``measured``.
        predicted_us: a model's; only with evidence ``modelled`` and a ``model_version``.
        resources: kernel name -> registers, spills, LDS and matrix instructions, read from the machine code.
        detail: anything else worth keeping (spread of a timing, terms of a prediction, where a config comes from);
            no part of the identity.

    A row that stopped before its number (``invalid``, ``compile_error``, ``screened``) is filed under the evidence
    that it was on its way to.
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
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", Evidence(self.evidence))
        object.__setattr__(self, "status", Status(self.status))
        if self.verified not in VERIFIED:
            raise ValueError(f"Trial.verified: {self.verified!r}; allowed: {', '.join(VERIFIED)}")
        if self.latency_us is not None and self.evidence is not Evidence.measured:
            raise ValueError(f"Trial.latency_us belongs to measured trials only, this one is {self.evidence}")
        if self.predicted_us is not None and self.evidence is not Evidence.modelled:
            raise ValueError(f"Trial.predicted_us belongs to modelled trials only, this one is {self.evidence}")
        if self.predicted_us is not None and not self.model_version:
            raise ValueError("Trial.predicted_us needs a model_version beside it")
        for name in ("bf16_identical", "latency_us", "predicted_us"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value) or value < 0):
                raise ValueError(f"Trial.{name}: {value!r} is not a finite number >= 0")

    @property
    def identity(self) -> str:
        """Hash of what makes this trial this trial; equal for a repetition, whatever its outcome."""
        return content_hash(
            [
                self.shape.m,
                self.shape.n,
                self.shape.k,
                self.variant,
                dict(self.config),
                self.kernel_hash,
                dict(self.knobs),
                self.arch,
                self.device,
                dict(self.toolchain),
                str(self.evidence),
                self.regime,
                self.seed,
                self.generator_device,
                self.model_version,
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; fields that hold nothing are left out."""
        row: dict[str, Any] = {"schema": self.schema}
        for name in _TRIAL_FIELDS:
            value = getattr(self, name)
            if name == "shape":
                row["shape"] = _shape_dict(value)
            elif name == "counts":
                if value is not None:
                    row["counts"] = value.to_dict()
            elif name in ("evidence", "status"):
                row[name] = str(value)
            elif name in _REQUIRED_FIELDS or not (value is None or value == "" or value == {}):
                row[name] = value
        return row

    def lines(self) -> list[tuple[str, str]]:
        """(name, value) for people: what was done, how it ended, and its number with the kind of evidence."""
        return trial_lines(self)

    def __str__(self) -> str:
        return display.text_facts(f"trial {self.identity}", self.lines())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        tone = {"ok": "good", "screened": "warn", "invalid": "warn", "skipped": "quiet"}.get(str(self.status), "bad")
        badges = f"{display.badge(self.evidence, str(self.evidence))} {display.badge(self.status, tone)}"
        body = f'{display.facts(self.lines())}<div style="margin-top:6px">{badges}</div>'
        return display.card(f"Trial {self.identity}", body)

    def to_line(self) -> str:
        """One line of JSON, newline included. Raises ValueError for a NaN anywhere in it."""
        return json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trial:
        """Read what `to_dict` wrote.

        Raises:
            ValueError: another schema, an unknown or missing field, or a value of the wrong type; names the field.
        """
        data = dict(_mapping("Trial", data))
        schema = data.pop("schema", None)
        if schema != SCHEMA or isinstance(schema, bool):
            raise ValueError(f"schema {schema!r}, this version reads {SCHEMA}")
        _refuse_unknown("Trial", data, _TRIAL_FIELDS)
        for name in _REQUIRED_FIELDS:
            if name not in data:
                raise ValueError(f"Trial.{name} is missing")
        for name in _TEXT_FIELDS:
            if name in data and not isinstance(data[name], str):
                raise ValueError(f"Trial.{name}: {data[name]!r} is not text")
        for name in ("config", "knobs", "toolchain", "detail", "resources"):
            if name in data:
                _mapping(f"Trial.{name}", data[name])
        for kernel, facts in data.get("resources", {}).items():
            _mapping(f"Trial.resources[{kernel!r}]", facts)
        if "seed" in data:
            _int("Trial.seed", data["seed"])
        data["shape"] = _shape_from(data["shape"])
        if "counts" in data:
            data["counts"] = Counts.from_dict(_mapping("Trial.counts", data["counts"]))
        return cls(**data)


_TRIAL_FIELDS = tuple(f.name for f in fields(Trial) if f.name != "schema")
_REQUIRED_FIELDS = ("run_id", "shape", "variant", "config", "config_id", "arch", "evidence", "status")
_TEXT_FIELDS = (
    *("run_id", "variant", "config_id", "kernel_hash", "arch", "device", "regime", "reason", "verified"),
    *("model_version", "generator_device", "started_at", "worker", "evidence", "status"),
)


def _shape_dict(shape: Shape) -> dict[str, int]:
    return {"m": shape.m, "n": shape.n, "k": shape.k}


def _shape_from(data: Any) -> Shape:
    data = _mapping("shape", data)
    if data.keys() != {"m", "n", "k"}:
        raise ValueError(f"shape: {dict(data)!r} does not have exactly m, n, k")
    return _shape(_int("shape.m", data["m"]), _int("shape.n", data["n"]), _int("shape.k", data["k"]))


_shape = lru_cache(maxsize=256)(Shape)  # a file of a million rows names few shapes


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if type(value) is not dict and not isinstance(value, Mapping):  # the first test is the quick one
        raise ValueError(f"{name}: {type(value).__name__} where an object is expected")
    return value


def _int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: {value!r} is not an integer")
    return value


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)


def _refuse_unknown(what: str, data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    if not isinstance(data, Mapping):
        raise ValueError(f"{what}: a {type(data).__name__} is not an object")
    unknown = [key for key in data if key not in known]
    if unknown:
        raise ValueError(f"{what}: unknown field {unknown[0]!r}")
