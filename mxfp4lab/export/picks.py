"""Picks read back from where a search left them: an executed notebook, a run's summary, or a pick as JSON.

Only JSON is read, with limits on its size and a check of every field; nothing in the file is executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxfp4lab.config import VARIANTS, GemmConfig, check_variant
from mxfp4lab.records import PICK_MIME, PICK_SCHEMA
from mxfp4lab.shapes import Shape, parse_shape

MAX_FILE_BYTES = 512 << 20
MAX_PICKS = 1000
MODELLED_CANDIDATES = 3


@dataclass(frozen=True)
class StoredPick:
    """A pick as an export needs it.

    Attributes:
        choices: (variant, config), the picked one first, then its alternatives.
        evidence: one sentence: what the config rests on, with its interval and caveat.
        modelled: whether its time was predicted, not measured.
        interval: of its time, and of each of `choices` where it is known.
        knobs: environment variables that it was chosen under.
    """

    shape: Shape
    choices: tuple[tuple[str, GemmConfig], ...]
    evidence: str = ""
    modelled: bool = False
    intervals: tuple[tuple[float, float] | None, ...] = ()
    arch: str = "gfx950"
    knobs: dict[str, str] = field(default_factory=dict)
    run_id: str = ""

    def candidates(self, count: int | None) -> list[tuple[str, GemmConfig]]:
        """What a file carries: `count` choices, or what a modelled pick asks to be timed on the box.

        The pick, the best of another kind that the model cannot tell from it, and the best known submission's config;
        one of them always without workgroups that wait for each other.
        """
        count = count or (MODELLED_CANDIDATES if self.modelled else 1)
        if count == 1 or not self.modelled:
            return list(self.choices[:count])
        from mxfp4lab.plan import build_plan, known_configs

        def waits(choice: tuple[str, GemmConfig]) -> bool:
            launches = build_plan(*choice, self.shape, self.arch).launches
            return any(getattr(launch, "peer_stride", 0) for launch in launches)

        first, *others = self.choices
        own, *intervals = self.intervals or (None,) * len(self.choices)
        near = [i is None or own is None or (i[0] <= own[1] and own[0] <= i[1]) for i in intervals]
        other_kinds = [c for c, is_near in zip(others, near, strict=True) if is_near and c[0] != first[0]]
        if waits(first):
            other_kinds.sort(key=waits)  # stable: the best without comes first
        known = [(k.variant, k.config) for k in known_configs(self.shape) if not VARIANTS[k.variant].needs_aiter]
        known = [choice for choice in others if choice in known] + known[:1] if self.arch == "gfx950" else []
        return list(dict.fromkeys([first, *other_kinds[:1], *known[:1], *others]))[:count]


def read_picks(path: str | Path) -> list[StoredPick]:
    """The picks in a file; of several for one shape the last counts.

    Args:
        path: an executed notebook (`.ipynb`) whose outputs hold picks, a `summary.json` of a run, or JSON of a pick or
            of several (`{"picks": [...]}`).

    Raises:
        ValueError: no such file, no JSON, no pick in it, or a pick that is not valid; the message says which.
    """
    data = read_json(path)
    found = [pick for held in (_bundles(data) if "cells" in data else [data]) for pick in _plain_picks(held)]
    if not found:
        what = "no pick"
        if "cells" in data:
            what = f"no output of type {PICK_MIME}: has the notebook been executed to its end?"
        raise ValueError(f"{str(path)!r} holds {what}")
    if len(found) > MAX_PICKS:
        raise ValueError(f"{str(path)!r} holds {len(found)} picks; at most {MAX_PICKS} are read")
    picks = [as_pick(values, f"{str(path)!r}: pick {number}") for number, values in enumerate(found)]
    return list({pick.shape: pick for pick in picks}.values())


def read_json(path: str | Path) -> dict[str, Any]:
    """A JSON object out of a file.

    Raises:
        ValueError: no such file, too long, no JSON object.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{str(path)!r}: no such file")
    if file.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{str(path)!r} has {file.stat().st_size} bytes; at most {MAX_FILE_BYTES} are read")
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{str(path)!r} is no notebook and no other JSON: {' '.join(str(problem).split())}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{str(path)!r} holds no JSON object")
    return data


def _bundles(data: Any) -> Iterator[dict]:
    """What a notebook shows as picks, wherever its outputs hold it."""
    for name, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if name == PICK_MIME and isinstance(value, dict):
            yield value
        else:
            yield from _bundles(value)


def _plain_picks(data: dict) -> Iterator[Any]:
    if isinstance(data.get("picks"), list):
        yield from data["picks"]
    elif isinstance(data.get("pick"), dict):  # summary.json
        yield data["pick"]
    elif "variant" in data and "shape" in data:
        yield data


def as_pick(values: Any, where: str = "picks: a pick") -> StoredPick:
    """A pick of a search, its dict, or one that was read before; every field checked.

    Raises:
        ValueError: naming the field.
    """
    if isinstance(values, StoredPick):
        return values
    if hasattr(values, "to_dict"):
        values = values.to_dict()
    if not isinstance(values, dict):
        raise ValueError(f"{where} is no object")
    if values.get("schema", PICK_SCHEMA) != PICK_SCHEMA:
        raise ValueError(f"{where} has schema {values['schema']!r}; this version reads {PICK_SCHEMA}")
    shape = values.get("shape")
    if isinstance(shape, dict):
        shape = [shape.get("m"), shape.get("n"), shape.get("k")]
    alternatives = values.get("alternatives") or []
    try:
        parsed = parse_shape(shape)
        if not isinstance(alternatives, list):
            raise ValueError("alternatives is no list")
        choices = tuple(_choice(other) for other in (values, *alternatives))
    except ValueError as problem:
        raise ValueError(f"{where}: {problem}") from None
    knobs, run_id = values.get("knobs") or {}, str(values.get("run_id", ""))
    if not isinstance(knobs, dict) or not all(isinstance(v, str) for v in knobs.values()):
        raise ValueError(f"{where}: knobs is no object of strings")
    modelled = (
        not isinstance(values.get("latency_us"), (int, float)) and values.get("evidence", "modelled") == "modelled"
    )
    intervals = tuple(_interval(other) for other in (values, *alternatives))
    arch, run_id = str(values.get("arch", "gfx950")), run_id if re.fullmatch(r"[\w.-]*", run_id) else ""
    return StoredPick(parsed, choices, _sentence(parsed, values), modelled, intervals, arch, dict(knobs), run_id)


def _choice(values: Any) -> tuple[str, GemmConfig]:
    if not isinstance(values, dict) or not isinstance(values.get("variant"), str):
        raise ValueError("a choice needs a variant and a config")
    config = values.get("config") or {}
    if not isinstance(config, dict):
        raise ValueError("config is no object")
    return check_variant(values["variant"]), GemmConfig.from_dict(config)


def _interval(values: dict) -> tuple[float, float] | None:
    found = values.get("interval")
    if isinstance(found, (list, tuple)) and len(found) == 2 and all(isinstance(x, (int, float)) for x in found):
        return float(found[0]), float(found[1])
    return None


def _sentence(shape: Shape, values: dict) -> str:
    """How a pick was chosen, from its own fields: number, interval, kind of evidence, caveat."""
    measured, predicted, interval = values.get("latency_us"), values.get("predicted_us"), _interval(values)
    head = f"{shape}: {values['variant']}"
    span = f", {interval[0]:.2f} to {interval[1]:.2f}" if interval else ""
    if isinstance(measured, (int, float)):
        tie = "; a tie with another finalist" if values.get("tie") else ""
        where = f"{values.get('regime', '')}, {values.get('device', '')}"
        return f"{head}, {measured:.2f} us{span} measured ({where}){tie}."
    parts = []
    if isinstance(predicted, (int, float)):
        parts.append(f"picked by a model ({values.get('model_version', '')}: {predicted:.2f} us{span}, not measured)")
    if values.get("extrapolated"):
        parts.append("outside what the model was fitted on")
    identical = values.get("bf16_identical")
    if isinstance(identical, (int, float)):
        parts.append(f"its gfx950 code was executed: {identical:.2%} of C's bf16 equal the reference")
    caveat = VARIANTS[check_variant(values["variant"])].caveat
    return f"{head}, {'; '.join(parts)}." + (f" Mind: {caveat}." if caveat else "") if parts else ""
