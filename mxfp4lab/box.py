"""`make gpu`: the whole set on a GPU box, and the records that the notebooks show where there is no GPU.

Every variant of the box's target is searched on the task's six shapes; the best of each variant run once more in one
interleaved run beside an empty kernel and what is not ours; every variant's default config is checked on all ten
shapes; the best configs are exported, and the files run under the task's protocol in its three modes with fresh seeds.
What a reader without a GPU needs goes to ``data/recorded/<device>/``: `trials.jsonl` (the best rows of each variant and
a sample of failures), `finals.json`, `checks.json`, `run.json`.

What the last steps need is looked for, and an export rehearsed, before the GPU is used at all.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mxfp4lab.cli.common import whole_number
from mxfp4lab.config import GemmConfig, runs_on
from mxfp4lab.gpu.executors import COMPARE, COMPARE_TIMEOUT_S, MEASURE
from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.plan import VARIANTS, default_config
from mxfp4lab.records import Evidence, Status, Trial
from mxfp4lab.shapes import BENCHMARK_SHAPES, TASK_SHAPES, TEST_SHAPES, Shape, parse_shape, task_seed
from mxfp4lab.tune import TuneResult, tune_shapes
from mxfp4lab.workers.pools import Pool, Task, open_pool

KEPT_PER_VARIANT, KEPT_FAILURES = 5, 12
MODES = ("test", "benchmark", "leaderboard")
FRESH_SEEDS = 1 << 31


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the whole set; 0 if everything was right."""
    parser = argparse.ArgumentParser(prog="python -m mxfp4lab.box", description=__doc__)
    parser.add_argument("--budget", default="24", help="configs per shape over all variants (default: %(default)s)")
    parser.add_argument(
        "--own-budget",
        default="120",
        help="configs per shape of the variant written for this target alone (default: %(default)s)",
    )
    parser.add_argument("--out", default="outputs", help="folder for the full records (default: %(default)s)")
    parser.add_argument(
        "--without-export", action="store_true", help="measure only: no submissions are exported and checked"
    )
    parser.add_argument(
        "--compare-again", action="store_true", help="only time the plans of the recorded finals anew, and keep that"
    )
    parser.add_argument("--recorded", default="data/recorded", help="folder for what is kept (default: %(default)s)")
    args = parser.parse_args(arguments)
    budgets = [whole_number(name, value, 1, 100_000) for name, value in (
        ("budget", args.budget), ("own-budget", args.own_budget))]  # fmt: skip
    try:
        pool = open_pool("local", "gpu")
    except ValueError as error:
        print(f"mxfp4lab: {error}", file=sys.stderr)
        return 2
    out, recorded = REPO_ROOT / args.out, REPO_ROOT / args.recorded / slug(pool.device)
    clock = _Clock()
    if args.compare_again:
        try:
            return compare_again(pool, recorded)
        finally:
            pool.close()
    try:
        if not args.without_export:
            problem = rehearse_export(pool.arch)
            if problem:
                print(f"mxfp4lab: {problem}; or measure only: --without-export", file=sys.stderr)
                return 2
            clock.say("an export rehearsed")
        searched = search(pool, budgets[0], budgets[1], out)
        clock.say("searched")
        finals = compare_best(pool, searched)
        clock.say("the best compared")
        defaults = check_defaults(pool)
        clock.say("defaults checked")
    finally:
        pool.close()
    keep(recorded, searched, finals, {"defaults": defaults})
    exports: list[dict[str, Any]] = []
    if not args.without_export:
        exports = check_export(finals, pool.arch)
        clock.say("exports checked")
    keep(recorded, searched, finals, {"defaults": defaults, "exports": exports})
    print(report(finals, defaults, exports))
    wrong = [row for row in (*defaults, *exports) if not row["right"]]
    return 1 if wrong else 0


def rehearse_export(arch: str) -> str:
    """Export a file with every variant of the target in it, without a GPU; what is wrong in one line, or "".

    It takes seconds; a package that export or check lacks would otherwise be missed after all measurements.
    """
    try:
        from mxfp4lab.check.check import check_submission
        from mxfp4lab.export.submission import export_submission
    except ImportError as error:
        return f"export needs the package {(error.name or 'unknown').split('.')[0]}, which is not installed: {error}"
    del check_submission  # looked for, used later
    names = [name for name in VARIANTS if runs_on(name, arch) and not VARIANTS[name].needs_aiter]
    shapes = (*TASK_SHAPES, *(case.shape for case in TEST_SHAPES))
    picks = {shape: (name, default_config(name, shape, arch)) for shape, name in zip(shapes, names, strict=False)}
    try:
        export_submission(picks, None, arch=arch)
    except (ImportError, ValueError) as error:
        return f"the defaults of {', '.join(names)} cannot be exported: {error}"
    return ""


def slug(device: str) -> str:
    """A folder's name for a device: its model number, "h200" or "mi355x"."""
    words = re.findall(r"[a-z]*[0-9]+[a-z0-9]*", device.lower())
    return words[0] if words else re.sub(r"\W+", "-", device.lower()).strip("-")


def search(pool: Pool, budget: int, own_budget: int, out: Path) -> list[TuneResult]:
    """Search the portable variants together, and those written for this target alone with a budget of their own."""
    from mxfp4lab.notebook import Progress

    other = "gfx950" if pool.arch != "gfx950" else "sm_90"
    here = [name for name in VARIANTS if runs_on(name, pool.arch)]
    portable = tuple(name for name in here if runs_on(name, other))
    own = tuple(name for name in here if not runs_on(name, other))
    done: list[TuneResult] = []
    for names, size in ((portable, budget), (own, own_budget)):
        if names:
            done += tune_shapes(TASK_SHAPES, variants=names, budget=size, verify=4, out=out, pool=pool,
                                progress=Progress())  # fmt: skip
    return done


def compare_best(pool: Pool, searched: Sequence[TuneResult]) -> dict[str, dict[str, Any]]:
    """Per shape one interleaved run: the best of each variant, an empty kernel, and what is not ours."""
    entries: dict[Shape, list[dict[str, Any]]] = {}
    for result in searched:
        chosen: dict[str, GemmConfig] = {}
        if result.pick is not None:  # the interleaved run of its search has chosen among its variant's
            chosen[result.pick.variant] = result.pick.config
        for entry in result.ranked():
            chosen.setdefault(entry.candidate.variant, entry.candidate.config)
        entries.setdefault(result.shape, []).extend(
            {"variant": variant, "config": config.to_dict()} for variant, config in chosen.items()
        )
    return _compare(pool, entries)


def compare_again(pool: Pool, recorded: Path) -> int:
    """Time the plans of recorded finals once more (another driver, a new comparator); 0 if every shape was timed."""
    path = recorded / "finals.json"
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        finals = _compare(pool, {parse_shape(shape): said["plans"] for shape, said in before.items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"mxfp4lab: {path} holds no finals to time again: {error}", file=sys.stderr)
        return 2
    path.write_text(json.dumps(finals, indent=1) + "\n", encoding="utf-8")
    print(report(finals, [], []))
    return 0 if all("timings" in said for said in finals.values()) else 1


def _compare(pool: Pool, entries: Mapping[Shape, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Per shape: its plans, and what `measure.compare_plans` says of them beside all comparators."""
    shapes = list(entries)
    tasks = [
        Task(COMPARE, {"plans": entries[shape], "shape": str(shape), "arch": pool.arch,
                       "seed": task_seed(shape) or 0, "comparators": True}, COMPARE_TIMEOUT_S)
        for shape in shapes
    ]  # fmt: skip
    finals = {}
    for done in pool.run_all(tasks):
        said = done.outcome.value if done.outcome.status == "ok" else {"failed": done.outcome.reason}
        finals[str(shapes[done.index])] = {"plans": entries[shapes[done.index]], **said}
    return {str(shape): finals[str(shape)] for shape in shapes}


def check_defaults(pool: Pool) -> list[dict[str, Any]]:
    """Every variant's default config on all ten shapes with a fresh seed: right or not."""
    seed = secrets.randbelow(FRESH_SEEDS)
    cases = [(case.shape, name) for case in (*TEST_SHAPES, *BENCHMARK_SHAPES) for name in VARIANTS
             if runs_on(name, pool.arch)]  # fmt: skip
    tasks = []
    for shape, name in cases:
        config = default_config(name, shape, pool.arch).to_dict()
        tasks.append(Task(MEASURE, {"variant": name, "config": config, "shape": str(shape), "arch": pool.arch,
                                    "seed": seed, "rule": {"max_repeats": 10, "min_repeats": 10}}))  # fmt: skip
    rows: list[dict[str, Any]] = [{} for _ in cases]
    for done in pool.run_all(tasks):
        shape, name = cases[done.index]
        said = done.outcome.value if done.outcome.status == "ok" else {
            "status": done.outcome.status, "reason": done.outcome.reason}  # fmt: skip
        rows[done.index] = {
            "shape": str(shape), "variant": name, "seed": seed, "status": said["status"],
            "reason": said.get("reason", ""), "bf16_identical": said.get("bf16_identical"),
            "latency_us": said.get("latency_us"), "right": said.get("bf16_identical") == 1.0,
        }  # fmt: skip
    return rows


def check_export(finals: dict[str, dict[str, Any]], arch: str) -> list[dict[str, Any]]:
    """Export the best of all variants, and of the portable ones; run both files under the task's protocol.

    Ten shapes in each of the three modes, every case with a fresh seed.
    """
    from mxfp4lab.check.check import check_submission
    from mxfp4lab.export.submission import export_submission

    other = "gfx950" if arch != "gfx950" else "sm_90"
    files: dict[str, dict[str, tuple[str, GemmConfig]]] = {"best": {}, "portable": {}}
    for shape, said in finals.items():
        for number in said["verdict"]["order"] if "verdict" in said else ():
            name, config = said["plans"][number]["variant"], GemmConfig.from_dict(said["plans"][number]["config"])
            if not VARIANTS[name].needs_aiter:
                files["best"].setdefault(shape, (name, config))
                if runs_on(name, other):
                    files["portable"].setdefault(shape, (name, config))
    rows = []
    with tempfile.TemporaryDirectory(prefix="mxfp4lab-") as folder:
        for title, picks in files.items():
            path = Path(folder) / f"{title}.py"
            export_submission(picks, path, arch=arch)
            for mode in MODES:
                cases = Path(folder) / "cases.txt"
                lines = [f"m: {s.m}; n: {s.n}; k: {s.k}; seed: {secrets.randbelow(FRESH_SEEDS)}"
                         for s in (case.shape for case in (*TEST_SHAPES, *BENCHMARK_SHAPES))]  # fmt: skip
                cases.write_text("\n".join(lines) + "\n")
                report = check_submission(path, mode, "gpu", cases_file=cases)
                stats = {case.spec: case.stats for case in report.cases if case.stats}
                shares = [case.bf16_identical_fraction for case in report.cases]
                variants = sorted({name for name, _ in picks.values()})
                rows.append({"file": title, "variants": variants, "mode": mode, "right": report.passed, "cases": lines,
                             "error": report.error or next((case.error for case in report.cases if case.error), ""),
                             "bf16_identical": min((s for s in shares if s is not None), default=None),
                             "mean_us": {spec: found["mean"] / 1e3 for spec, found in stats.items() if "mean" in found},
                             "seconds": round(report.seconds, 1)})  # fmt: skip
                print(f"{title} {mode}: {'pass' if report.passed else 'FAIL'} {rows[-1]['error']}", flush=True)
    return rows


def keep(folder: Path, searched: Sequence[TuneResult], finals: dict[str, Any], checks: dict[str, Any]) -> None:
    """Write what the repository keeps: small, and enough for a reader without a GPU."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Trial] = []
    for result in searched:
        looks = [row for entry in result.entries for row in entry.trials if row.regime == "leaderboard"]
        kept: dict[str, int] = {}
        for trial in sorted(looks, key=lambda row: row.latency_us or math.inf):
            kept[trial.variant] = kept.get(trial.variant, 0) + 1
            if trial.status is Status.ok and kept[trial.variant] <= KEPT_PER_VARIANT:
                rows.append(trial)
        failed = [entry.trials[-1] for entry in result.entries if entry.status is not Status.ok]
        rows += [trial for trial in failed if trial.evidence is Evidence.measured][: KEPT_FAILURES // 6]
    text = "".join(trial.to_line() for trial in rows)
    for name, content in (
        ("trials.jsonl", text), ("finals.json", json.dumps(finals, indent=1) + "\n"),
        ("checks.json", json.dumps(checks, indent=1) + "\n"),
    ):  # fmt: skip
        (folder / name).write_text(content, encoding="utf-8")
    if searched:
        shutil.copy(searched[-1].folder / "run.json", folder / "run.json")


def report(finals: dict[str, Any], defaults: list[dict[str, Any]], exports: list[dict[str, Any]]) -> str:
    """The table for a terminal: the best of ours beside torch.mm, per shape, and the geometric mean of the ratios."""
    from mxfp4lab.display import text_table

    rows, ratios = [], []
    for shape, said in finals.items():
        if "timings" not in said:
            rows.append((shape, "failed", said.get("failed", ""), "", "", "", ""))
            continue
        best = said["verdict"]["order"][0]
        ours, mm = said["timings"][str(best)], said["timings"].get("mm_bf16")
        ratio = ours["p50_us"] / mm["p50_us"] if mm else math.nan
        ratios.append(ratio)
        rows.append((shape, said["plans"][best]["variant"], f"{ours['p50_us']:.2f}",
                     f"{ours['p20_us']:.2f}..{ours['p80_us']:.2f}", f"{mm['p50_us']:.2f}" if mm else "-",
                     f"{ratio:.3f}", f"{said['floor_us']:.2f}"))  # fmt: skip
    lines = [text_table(("shape", "variant", "p50 us", "p20..p80", "torch.mm bf16 us", "ratio", "null us"), rows)]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(f"ratios: geometric mean {mean:.3f}, worst {max(ratios):.3f} (measured, leaderboard regime)")
    if defaults:
        right = sum(row["right"] for row in defaults)
        lines.append(f"{right} of {len(defaults)} default configs give the reference's bits on a fresh seed")
    if exports:
        lines.append(f"{sum(row['right'] for row in exports)} of {len(exports)} exported files and modes pass")
    else:
        lines.append("no submission was exported and checked")
    return "\n".join(lines)


class _Clock:
    """Says how long each step took."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def say(self, what: str) -> None:
        now = time.monotonic()
        print(f"{what}: {now - self._last:.0f} s ({now - self._began:.0f} s in all)", flush=True)
        self._last = now


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Everything is written and every child has ended; Triton's bindings would print a page of leak reports on the way.
    os._exit(code)
