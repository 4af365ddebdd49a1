"""What 04_tune leaves under its shape's name: the submission of the shape, and one of all shapes tuned so far."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxfp4lab.notebook.results import write_summary
from mxfp4lab.paths import shown_path, writing
from mxfp4lab.shapes import Shape

if TYPE_CHECKING:
    from mxfp4lab.tune import TuneResult


def draft_path(out: Path, shape: Shape) -> Path:
    """Where a submission is written before its check has passed; a file of an earlier run stays as it is."""
    return Path(out) / f".submission_{shape}.{os.getpid()}.py"


def publish(result: TuneResult, draft: Path, out: Path, smoke: bool) -> dict[str, str]:
    """Give a checked draft its name, write the run's summary, and build ``submission.py`` of every shape tuned so far.

    A smoke run gets a name of its own, and no part in the common file: it has hardly searched.

    Args:
        draft: the submission of this shape, whose check has passed.

    Returns:
        what was written -> where, for people.
    """
    pick = result.require_pick()
    own = out / f"submission_{pick.shape}{'_smoke' * smoke}.py"
    with writing(own):
        draft.replace(own)
    summary = write_summary(result.folder, {
        "pick": pick.to_dict(), "funnel": result.funnel.to_dict(), "seconds": round(result.seconds, 1),
        "submission": str(own), "check_passed": True, "smoke": smoke,
    })  # fmt: skip
    said = {"records": f"{len(result.trials)} rows in {shown_path(result.folder)}", "summary": shown_path(summary),
            "submission": f"{shown_path(own)}, tuned for {pick.shape}, its check passed"}  # fmt: skip
    if not smoke:
        shapes, left_out = write_common(out, pick.arch, pick.knobs)
        common = shown_path(out / "submission.py")
        said["all shapes"] = f"{common}, tuned for {', '.join(map(str, shapes))}; others run its untuned default row"
        if left_out:
            said["not in it"] = "; ".join(left_out)
    return said


def write_common(out: Path, arch: str, knobs: Mapping[str, str]) -> tuple[list[Shape], list[str]]:
    """``submission.py`` from each shape's newest checked pick, made anew under a lock from the runs' summaries.

    Returns:
        the shapes in it, and why picks of other shapes are not.
    """
    from mxfp4lab.export import export_submission

    target = out / "submission.py"
    with writing(target), (out / ".submission.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        picks, left_out = _newest_picks(out)
        fitting = {shape: p for shape, p in picks.items() if (p.arch, p.knobs) == (arch, dict(knobs))}
        left_out += [f"{shape}: made for another target or under other knobs" for shape in picks.keys() - fitting]
        aside = out / f".submission.{os.getpid()}.py"
        export_submission(fitting.values(), aside)
        aside.replace(target)
    return list(fitting), sorted(left_out)


def _newest_picks(out: Path) -> tuple[dict[Shape, Any], list[str]]:
    """Shape -> the pick of its newest run that passed its check; and what cannot be read any more."""
    from mxfp4lab.export import read_picks

    picks: dict[Shape, Any] = {}
    problems = []
    for path in sorted(out.glob("runs/*/summary.json")):  # a run's name begins with its time
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
            if summary.get("check_passed") and not summary.get("smoke"):
                picks.update((pick.shape, pick) for pick in read_picks(path))
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            problems.append(f"{shown_path(path)}: {error}")
    return dict(sorted(picks.items(), key=lambda item: item[0].as_tuple)), problems
