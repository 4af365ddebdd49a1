"""Picks read back from where a search left them: an executed notebook, a run's summary, or a pick as JSON.

Only JSON is read, with limits on its size and a check of every field; nothing in the file is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxfp4lab.config import GemmConfig
from mxfp4lab.shapes import Shape, parse_shape

PICK_MIME = "application/vnd.mxfp4lab.pick+json"
PICK_SCHEMA = 1
MAX_FILE_BYTES = 512 << 20
MAX_PICKS = 1000


@dataclass(frozen=True)
class StoredPick:
    """A pick as an export needs it.

    Attributes:
        choices: (variant, config), the picked one first, then its alternatives.
        evidence: one sentence: what the config rests on.
        knobs: environment variables that it was chosen under.
    """

    shape: Shape
    choices: tuple[tuple[str, GemmConfig], ...]
    evidence: str = ""
    arch: str = "gfx950"
    knobs: dict[str, str] = field(default_factory=dict)


def read_picks(path: str | Path) -> list[StoredPick]:
    """The picks in a file; of several for one shape the last counts.

    Args:
        path: an executed notebook (`.ipynb`) whose outputs hold picks, a `summary.json` of a run, or JSON of a pick or
            of several (`{"picks": [...]}`).

    Raises:
        ValueError: no such file, no JSON, no pick in it, or a pick that is not valid; the message says which.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{str(path)!r}: no such file")
    if file.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{str(path)!r} has {file.stat().st_size} bytes; at most {MAX_FILE_BYTES} are read")
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{str(path)!r} is no JSON: {' '.join(str(problem).split())}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{str(path)!r} holds no JSON object")
    found = list(_notebook_picks(data)) if "cells" in data else list(_plain_picks(data))
    if not found:
        what = (
            f"no output of type {PICK_MIME}: has the notebook been executed to its end?"
            if "cells" in data
            else "no pick"
        )
        raise ValueError(f"{str(path)!r} holds {what}")
    if len(found) > MAX_PICKS:
        raise ValueError(f"{str(path)!r} holds {len(found)} picks; at most {MAX_PICKS} are read")
    by_shape: dict[Shape, StoredPick] = {}
    for number, values in enumerate(found):
        pick = _pick(values, f"{str(path)!r}: pick {number}")
        by_shape[pick.shape] = pick
    return list(by_shape.values())


def _notebook_picks(notebook: dict) -> Iterator[Any]:
    cells = notebook["cells"]
    for cell in cells if isinstance(cells, list) else []:
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else []:
            data = output.get("data") if isinstance(output, dict) else None
            bundle = data.get(PICK_MIME) if isinstance(data, dict) else None
            if isinstance(bundle, str):  # nbformat allows a JSON type as text
                try:
                    bundle = json.loads(bundle)
                except ValueError:
                    raise ValueError(f"an output of type {PICK_MIME} is no JSON") from None
            if isinstance(bundle, dict):
                yield from _plain_picks(bundle)


def _plain_picks(data: dict) -> Iterator[Any]:
    if isinstance(data.get("picks"), list):
        yield from data["picks"]
    elif isinstance(data.get("pick"), dict):  # summary.json
        yield data["pick"]
    elif "variant" in data and "shape" in data:
        yield data


def _pick(values: Any, where: str) -> StoredPick:
    """One pick, every field checked.

    Raises:
        ValueError: naming the field.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where} is no object")
    if values.get("schema", PICK_SCHEMA) != PICK_SCHEMA:
        raise ValueError(f"{where} has schema {values['schema']!r}; this version reads {PICK_SCHEMA}")
    shape = values.get("shape")
    if isinstance(shape, dict):
        shape = [shape.get("m"), shape.get("n"), shape.get("k")]
    try:
        parsed = parse_shape(shape)
        choices = [_choice(values)]
        alternatives = values.get("alternatives") or []
        if not isinstance(alternatives, list):
            raise ValueError("alternatives is no list")
        choices += [_choice(other) for other in alternatives]
    except ValueError as problem:
        raise ValueError(f"{where}: {problem}") from None
    knobs = values.get("knobs") or {}
    if not isinstance(knobs, dict) or not all(isinstance(v, str) for v in knobs.values()):
        raise ValueError(f"{where}: knobs is no object of strings")
    return StoredPick(parsed, tuple(choices), _sentence(parsed, values), str(values.get("arch", "gfx950")), dict(knobs))


def _choice(values: Any) -> tuple[str, GemmConfig]:
    if not isinstance(values, dict) or not isinstance(values.get("variant"), str):
        raise ValueError("a choice needs a variant and a config")
    config = values.get("config") or {}
    if not isinstance(config, dict):
        raise ValueError("config is no object")
    return values["variant"], GemmConfig.from_dict(config)


def _sentence(shape: Shape, values: dict) -> str:
    """What the pick rests on, from its own fields."""
    measured, predicted = values.get("latency_us"), values.get("predicted_us")
    if isinstance(measured, (int, float)):
        return f"{shape}: {measured:.2f} us measured ({values.get('regime', '')}, {values.get('device', '')})."
    parts = []
    if isinstance(predicted, (int, float)):
        parts.append(f"picked by a model ({values.get('model_version', '')}: {predicted:.2f} us, not measured)")
    identical = values.get("bf16_identical")
    if isinstance(identical, (int, float)):
        parts.append(f"its gfx950 code was executed: {identical:.2%} of C's bf16 equal the reference")
    return f"{shape}: {'; '.join(parts)}." if parts else ""
