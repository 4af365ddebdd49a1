"""``gpu``: the whole set on a GPU box, and the records that the notebooks show where there is no GPU.

Every variant of the box's target is searched on the task's six shapes; the best of each variant run once more in one
interleaved run beside an empty kernel and what is not ours; every variant's default config is checked on all ten
shapes; the best configs are exported, and the files run under the task's protocol in its three modes with fresh seeds.
What a reader without a GPU needs goes to ``data/recorded/<device>/``: `trials.jsonl` (the best rows of each variant and
a few failures), `finals.json`, `checks.json`, `run.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxfp4lab.cli.common import whole_number
from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.shapes import BENCHMARK_SHAPES, TASK_SHAPES, TEST_SHAPES, Shape, task_seed

if TYPE_CHECKING:
    from mxfp4lab.tune import TuneResult
    from mxfp4lab.workers import Pool

KEPT_PER_VARIANT, KEPT_FAILURES = 5, 2
MODES = ("test", "benchmark", "leaderboard")
TEN_SHAPES = tuple(case.shape for case in (*TEST_SHAPES, *BENCHMARK_SHAPES))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", default="24", help="configs per shape over all variants (default: %(default)s)")
    own = "configs per shape of what is written for this target alone (default: %(default)s)"
    parser.add_argument("--own-budget", default="120", help=own)
    parser.add_argument("--out", default="outputs", help="folder for the full records (default: %(default)s)")
    parser.add_argument("--without-export", action="store_true", help="measure only: no file is exported and checked")
    parser.add_argument("--recorded", default="data/recorded", help="folder for what is kept (default: %(default)s)")


def main(args: argparse.Namespace) -> int:
    """Run the whole set; 0 if everything was right."""
    budgets = [whole_number("budget", args.budget, 1, 100_000), whole_number("own-budget", args.own_budget, 1, 100_000)]
    from mxfp4lab.workers import open_pool

    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{what} after {time.monotonic() - began:.0f} s", flush=True)

    pool = open_pool("local", "gpu")
    try:
        searched = search(pool, *budgets, REPO_ROOT / args.out)
        say("searched")
        finals = compare_best(pool, searched)
        say("the best compared")
        checks = {"defaults": check_defaults(pool), "exports": []}
        say("defaults checked")
    finally:
        pool.close()
    folder = REPO_ROOT / args.recorded / slug(pool.device)
    keep(folder, searched, finals, checks)  # what is measured is on disk before anything else can fail
    if not args.without_export:
        checks["exports"] = check_exports(finals, pool.arch)
        say("exports checked")
        keep(folder, searched, finals, checks)
    print(report(finals, checks))
    return 0 if all(row["right"] for rows in checks.values() for row in rows) else 1


def slug(device: str) -> str:
    """A folder's name for a device: its model number, "h200" or "mi355x"."""
    words = re.findall(r"[a-z]*[0-9]+[a-z0-9]*", device.lower())
    return words[0] if words else re.sub(r"\W+", "-", device.lower()).strip("-")


def _other(arch: str) -> str:
    return "gfx950" if arch != "gfx950" else "sm_90"


def search(pool: Pool, budget: int, own_budget: int, out: Path) -> list[TuneResult]:
    """Search the portable variants together, and those written for this target alone with a budget of their own."""
    from mxfp4lab.config import runs_on
    from mxfp4lab.notebook import Progress
    from mxfp4lab.plan import VARIANTS
    from mxfp4lab.tune import tune_shapes

    here = [name for name in VARIANTS if runs_on(name, pool.arch)]
    portable = tuple(name for name in here if runs_on(name, _other(pool.arch)))
    own = tuple(name for name in here if name not in portable)
    done: list[TuneResult] = []
    for names, size in ((portable, budget), (own, own_budget)):
        if names:
            done += tune_shapes(TASK_SHAPES, variants=names, budget=size, verify=4, out=out, pool=pool,
                                progress=Progress())  # fmt: skip
    return done


def compare_best(pool: Pool, searched: Sequence[TuneResult]) -> dict[str, dict[str, Any]]:
    """Per shape one interleaved run: the best of each variant, an empty kernel, and what is not ours."""
    from mxfp4lab.gpu import COMPARE, COMPARE_TIMEOUT_S
    from mxfp4lab.workers import Task

    entries: dict[Shape, list[dict[str, Any]]] = {}
    for result in searched:
        chosen = {}
        if result.pick is not None:  # the interleaved run of its search has chosen among its variant's
            chosen[result.pick.variant] = result.pick.config
        for entry in result.ranked():
            chosen.setdefault(entry.candidate.variant, entry.candidate.config)
        entries.setdefault(result.shape, []).extend(
            {"variant": variant, "config": config.to_dict()} for variant, config in chosen.items()
        )
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
    from mxfp4lab.gpu import MEASURE
    from mxfp4lab.plan import VARIANTS, default_config, serves
    from mxfp4lab.workers import Task

    seed = secrets.randbelow(1 << 31)
    cases = [(shape, name) for shape in TEN_SHAPES for name in VARIANTS if serves(name, shape, pool.arch)]
    tasks = [
        Task(MEASURE, {"variant": name, "config": default_config(name, shape, pool.arch).to_dict(),
                       "shape": str(shape), "arch": pool.arch, "seed": seed,
                       "rule": {"max_repeats": 10, "min_repeats": 10}})
        for shape, name in cases
    ]  # fmt: skip
    rows: list[dict[str, Any]] = [{} for _ in cases]
    for done in pool.run_all(tasks):
        shape, name = cases[done.index]
        said = done.outcome.value if done.outcome.status == "ok" else vars(done.outcome)
        kept = {field: said.get(field) for field in ("status", "reason", "bf16_identical", "latency_us")}
        right = said.get("bf16_identical") == 1.0
        rows[done.index] = {"shape": str(shape), "variant": name, "seed": seed, **kept, "right": right}
    return rows


def check_exports(finals: Mapping[str, Mapping[str, Any]], arch: str) -> list[dict[str, Any]]:
    """Export the best of all variants, and of the portable ones; run both files under the task's protocol.

    Ten shapes in each of the three modes, every case with a fresh seed.
    """
    from mxfp4lab.check import check_submission
    from mxfp4lab.config import GemmConfig, runs_on
    from mxfp4lab.export import export_submission
    from mxfp4lab.plan import VARIANTS

    files: dict[str, dict[str, tuple[str, GemmConfig]]] = {"best": {}, "portable": {}}
    for shape, said in finals.items():
        for number in (said.get("verdict") or {}).get("order", ()):
            name, config = said["plans"][number]["variant"], GemmConfig.from_dict(said["plans"][number]["config"])
            if not VARIANTS[name].needs_aiter:
                files["best"].setdefault(shape, (name, config))
                if runs_on(name, _other(arch)):
                    files["portable"].setdefault(shape, (name, config))
    rows = []
    with tempfile.TemporaryDirectory(prefix="mxfp4lab-") as folder:
        for title, picks in files.items():
            path, cases = Path(folder) / f"{title}.py", Path(folder) / "cases.txt"
            export_submission(picks, path, arch=arch)
            for mode in MODES:
                lines = [f"m: {s.m}; n: {s.n}; k: {s.k}; seed: {secrets.randbelow(1 << 31)}" for s in TEN_SHAPES]
                cases.write_text("\n".join(lines) + "\n")
                report = check_submission(path, mode, "gpu", cases_file=cases)
                shares = [case.bf16_identical_fraction for case in report.cases]
                means = {case.spec: case.stats["mean"] / 1e3 for case in report.cases if "mean" in (case.stats or {})}
                rows.append({
                    "file": title, "variants": sorted({name for name, _ in picks.values()}), "mode": mode,
                    "right": report.passed, "cases": lines, "mean_us": means, "seconds": round(report.seconds, 1),
                    "error": report.error or next((case.error for case in report.cases if case.error), ""),
                    "bf16_identical": min((s for s in shares if s is not None), default=None),
                })  # fmt: skip
                print(f"{title} {mode}: {'pass' if report.passed else 'FAIL'} {rows[-1]['error']}", flush=True)
    return rows


def keep(folder: Path, searched: Sequence[TuneResult], finals: Mapping[str, Any], checks: Mapping[str, Any]) -> None:
    """Write what the repository keeps: small, and enough for a reader without a GPU."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for result in searched:
        looks = [row for entry in result.entries for row in entry.trials if row.regime == "leaderboard"]
        kept: dict[str, int] = {}
        for trial in sorted(looks, key=lambda row: row.latency_us or math.inf):
            kept[trial.variant] = kept.get(trial.variant, 0) + 1
            if trial.status == "ok" and kept[trial.variant] <= KEPT_PER_VARIANT:
                rows.append(trial)
        failed = [entry.trials[-1] for entry in result.entries if entry.status != "ok" and entry.trials]
        rows += [trial for trial in failed if trial.evidence == "measured"][:KEPT_FAILURES]
    (folder / "trials.jsonl").write_text("".join(trial.to_line() for trial in rows), encoding="utf-8")
    for name, content in (("finals.json", finals), ("checks.json", checks)):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if searched:
        shutil.copy(searched[-1].folder / "run.json", folder / "run.json")


def report(finals: Mapping[str, Any], checks: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The table for a terminal: the best of ours beside torch.mm, per shape, and the geometric mean of the ratios."""
    from mxfp4lab.display import text_table

    rows, ratios = [], []
    for shape, said in finals.items():
        if not said.get("verdict"):
            rows.append((shape, "failed", said.get("failed") or "; ".join(said["wrong"].values()), "", "", "", ""))
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
    for name, what in (("defaults", "default configs give the reference's bits on a fresh seed"),
                       ("exports", "exported files and modes pass")):  # fmt: skip
        lines.append(f"{sum(row['right'] for row in checks[name])} of {len(checks[name])} {what}")
    return "\n".join(lines)
