"""What one change did in the public logs against what the model says that it does, and what would help next.

An ablation is a pair of published rows of one shape whose configs differ in one field. A lever is a change of counts
that a better kernel could make; its worth is the predicted time that it saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mxfp4lab.model.predict import TimeModel, stored_model
from mxfp4lab.model.published import PublishedRow, harness_rows
from mxfp4lab.records import Counts, LaunchCounts
from mxfp4lab.shapes import Shape


@dataclass(frozen=True)
class Ablation:
    """One field changed on one shape: `field: before -> after`, with published and predicted times of both sides."""

    shape: Shape
    field: str
    before: object
    after: object
    label: str
    published_us: tuple[float, float]
    predicted_us: tuple[float, float]

    @property
    def published_ratio(self) -> float:
        return self.published_us[1] / self.published_us[0]

    @property
    def predicted_ratio(self) -> float:
        return self.predicted_us[1] / self.predicted_us[0]

    @property
    def change(self) -> str:
        return f"{self.field} {self.before or 'none'} → {self.after or 'none'}"


def ablations(rows: Sequence[PublishedRow] | None = None, model: TimeModel | None = None) -> list[Ablation]:
    """Every pair of rows that differ in exactly one field, from the published faster side to the slower one.

    Repeats of one config are averaged first, so that noise between repeats is no ablation.
    """
    rows = harness_rows() if rows is None else rows
    model = model or stored_model()
    groups: dict[tuple, list[PublishedRow]] = {}
    for row in rows:
        groups.setdefault((row.shape, tuple(sorted(row.config.items()))), []).append(row)
    cells = []
    for (shape, config), same in groups.items():
        us = sum(row.us for row in same) / len(same)
        cells.append((shape, dict(config), us, model.predict_counts(same[0].counts).predicted_us, same[0].label))
    found = []
    for i, one in enumerate(cells):
        for other in cells[i + 1 :]:
            if one[0] != other[0]:
                continue
            changed = [name for name in one[1] if one[1][name] != other[1].get(name)]
            if len(changed) != 1:
                continue
            fast, slow = sorted((one, other), key=lambda cell: cell[2])
            name = changed[0]
            found.append(
                Ablation(
                    shape=one[0],
                    field=name,
                    before=fast[1][name],
                    after=slow[1][name],
                    label=slow[4],
                    published_us=(fast[2], slow[2]),
                    predicted_us=(fast[3], slow[3]),
                )
            )
    return sorted(found, key=lambda a: (a.field, a.shape, a.published_ratio))


def _map_main(counts: Counts, change) -> Counts:
    main = max(range(len(counts.launches)), key=lambda i: (counts.launches[i].mfma_per_wave, -i))
    launches = tuple(change(launch) if i == main else launch for i, launch in enumerate(counts.launches))
    return replace(counts, launches=launches)


def _fewer_valu(launch: LaunchCounts) -> LaunchCounts:
    return replace(launch, valu_per_wave=launch.valu_per_wave * 0.75)


def _fewer_bytes(launch: LaunchCounts) -> LaunchCounts:
    return replace(launch, load_bytes_per_workgroup=launch.load_bytes_per_workgroup * 0.75)


def _no_spills(launch: LaunchCounts) -> LaunchCounts:
    return replace(launch, scratch_per_wave=0.0, spilled_vgprs=0, scratch_bytes=0)


def _no_waits(launch: LaunchCounts) -> LaunchCounts:
    return replace(launch, exposed_waits_per_wave=0.0)


def _main_alone(counts: Counts) -> Counts:
    main = max(counts.launches, key=lambda launch: launch.mfma_per_wave)
    return replace(counts, launches=(main,), split_k=1, partial_bytes=0)


LEVERS = {
    "a quarter fewer VALU": lambda counts: _map_main(counts, _fewer_valu),
    "a quarter fewer bytes": lambda counts: _map_main(counts, _fewer_bytes),
    "no other launch": _main_alone,
    "loads always covered": lambda counts: _map_main(counts, _no_waits),
    "no spills": lambda counts: _map_main(counts, _no_spills),
}


def levers(counts: Counts, regime: str = "harness", model: TimeModel | None = None) -> dict[str, float]:
    """Predicted microseconds that each lever would save on these counts; what cannot be saved is the launch floor.

    "no other launch" drops the launches around the GEMM and their traffic, as if their work were free: an upper bound.
    """
    model = model or stored_model()
    now = model.predict_counts(counts, regime=regime).predicted_us
    return {
        name: max(0.0, now - model.predict_counts(change(counts), regime=regime).predicted_us)
        for name, change in LEVERS.items()
    }
