"""``tune``: the search of 04_tune.ipynb from a shell, or the notebook itself; ``sweep`` is its plural.

Run it again and it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mxfp4lab.cli.common import add_json_argument, answer, quiet_stdout, whole_number
from mxfp4lab.paths import REPO_ROOT, shown_path, writing
from mxfp4lab.shapes import Shape, parse_shape

NOTEBOOK = REPO_ROOT / "notebooks" / "04_tune.ipynb"
SHOWN_CELLS = ("ranking", "submission", "results")
"""Tags of the notebook's cells whose text is printed when it is through; the pick last."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a search; several --shape are searched one after another."""
    parser.add_argument("--shape", action="append", default=[], metavar="M,N,K", help="e.g. 64,7168,2048; repeatable")
    parser.add_argument("--variants", default="all", help="comma-separated names, or all (default: %(default)s)")
    parser.add_argument("--budget", default="160", help="configs per shape, seconds (90s), or all (default: 160)")
    parser.add_argument("--backend", default="auto", help="auto, emulator or gpu (default: %(default)s)")
    parser.add_argument("--executor", default="local", help="local, or ray (pip install 'mxfp4lab[ray]')")
    parser.add_argument("--address", default=None, help="of a Ray cluster: auto for the one this machine belongs to")
    parser.add_argument("--workers", default=None, help="processes that compile, or Ray workers; all cores without it")
    parser.add_argument("--out", default="outputs", help="folder for records, from the repository or absolute")
    parser.add_argument(
        "--max-spills", default=None, help="spilled registers a kernel may have; without it 16 on gfx950, any elsewhere"
    )
    parser.add_argument("--verify", default="3", help="how many of the best are executed whole (default: %(default)s)")
    parser.add_argument("--seed", default=None, help="of the inputs; without it the task's own for the shape, else 0")
    parser.add_argument("--notebook", action="store_true", help="execute 04_tune.ipynb: figures, submission and check")
    add_json_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Run a search; 0 where every shape has a pick."""
    shapes = [parse_shape(text) for text in args.shape]
    if not shapes:
        raise ValueError("the following arguments are required: --shape")
    from mxfp4lab.config import check_variant
    from mxfp4lab.notebook import Progress, kinds
    from mxfp4lab.plan import VARIANTS
    from mxfp4lab.tune import BACKENDS, max_workers, parse_budget, tune_shapes

    out = kinds.folder().read("out", args.out)
    if "hybrid" in args.variants.split(","):
        check_variant("hybrid")  # says what does its work now
    options = {
        "variants": kinds.names(VARIANTS).read("variants", args.variants),
        "budget": parse_budget(args.budget),
        "backend": kinds.choice(BACKENDS).read("backend", args.backend),
        "verify": whole_number("verify", args.verify, 1, 1000),
        "workers": None if args.workers is None else whole_number("workers", args.workers, 1, max_workers()),
        "max_spills": None if args.max_spills is None else whole_number("max-spills", args.max_spills, 0, 10_000),
        "seed": None if args.seed is None else whole_number("seed", args.seed, 0, 2**63 - 1),
    }
    if args.notebook:
        given = {name: str(getattr(args, name)) for name in ("variants", "budget", "backend", "workers", "seed")
                 if getattr(args, name) is not None}  # fmt: skip
        return max([run_notebook(shape, {**given, "out": str(out)}, out) for shape in shapes])
    with quiet_stdout(args.json), _pool(args) as pool:
        results = tune_shapes(shapes, **options, out=out, pool=pool, progress=Progress(out=sys.stderr))
    for warning in dict.fromkeys(warning for result in results for warning in result.warnings):
        print(f"mxfp4lab: {warning}", file=sys.stderr)
    data = {str(result.shape): _data(result) for result in results}
    one = len(results) == 1
    answer(args, next(iter(data.values())) if one else {"shapes": data}, str(results[0]) if one else _table(results))
    return 0 if all(result.pick is not None for result in results) else 1


@contextlib.contextmanager
def _pool(args: argparse.Namespace) -> Iterator[Any]:
    """Workers of a Ray cluster; None for this machine's own."""
    if args.executor == "local":
        yield None
        return
    from mxfp4lab.workers import open_pool

    count = None if args.workers is None else int(args.workers)
    pool = open_pool(args.executor, "cpu" if args.backend == "emulator" else "gpu", count, args.address)
    try:
        yield pool
    finally:
        pool.close()


def _data(result: Any) -> dict[str, Any]:
    return {
        "shape": {"m": result.shape.m, "n": result.shape.n, "k": result.shape.k},
        "arch": result.arch,
        "device": result.funnel.device,
        "run_id": result.run_id,
        "records": str(result.folder),
        "funnel": result.funnel.to_dict(),
        "pick": result.pick and result.pick.to_dict(),
        "why_no_pick": "" if result.pick is not None else result.why_no_pick(),
        "comparison": dict(result.comparison),
        "ranking": json.loads(result.ranking.head(20).to_json(orient="records")),
        "warnings": result.warnings,
        "seconds": round(result.seconds, 3),
    }


def _table(results: list[Any]) -> str:
    """A row per shape."""
    from mxfp4lab.display import text_table

    rows = []
    for result in results:
        pick = result.pick
        if pick is None:
            rows.append((result.shape, len(result.entries), result.why_no_pick(), "", "", ""))
            continue
        us = pick.predicted_us if pick.latency_us is None else pick.latency_us
        kind = f"{pick.evidence}, {pick.word}{', a tie' * pick.tie}"
        rows.append((result.shape, len(result.entries), pick.variant, pick.config.config_id, f"{us:.2f}", kind))
    reused = sum(result.funnel.reused for result in results)
    where = f"{results[0].funnel.device or 'no GPU: modelled times'}; {reused} trials came from earlier runs"
    table = text_table(("shape", "configs", "best variant", "config", "us", "evidence"), rows)
    return f"{table}\n{where}\nrecords: {shown_path(results[0].folder.parent)}"


# -- the notebook -----------------------------------------------------------------------------------------------------


def run_notebook(shape: Shape, parameters: dict[str, str], out: Path) -> int:
    """Execute 04_tune.ipynb for a shape: a line of progress, then its ranking, its file and its pick.

    The executed notebook is ``<out>/04_tune_<shape>.ipynb``; it is written aside and takes that name when it is whole.

    Returns:
        0, or 1 where the notebook stopped with an error.

    Raises:
        KeyboardInterrupt: Ctrl-C, with a sentence; what is recorded stays.
    """
    target = out / f"04_tune_{shape}.ipynb"
    aside = out / f".{target.stem}.{os.getpid()}.ipynb"
    command = [sys.executable, "-m", "papermill", str(NOTEBOOK), str(aside), "--no-progress-bar", "--log-output"]
    for name, value in {"shape": str(shape), **parameters}.items():
        command += ["-r", name, value]
    with writing(target):
        out.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(REPO_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    try:
        error = _follow(process, f"{shape}: ")
        if process.wait() == 0:
            aside.replace(target)
            print(_shown(target))
            print(f"notebook: {shown_path(target)}")
            return 0
        kept = target.with_suffix(".failed.ipynb")
        if aside.exists():
            aside.replace(kept)
        print(f"mxfp4lab: the notebook stopped: {error} ({shown_path(kept)} shows where)", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        _end(process)
        raise KeyboardInterrupt(
            f"interrupted: what was recorded stays in {shown_path(out / 'runs')}; run it again to go on"
        ) from None
    finally:
        aside.unlink(missing_ok=True)


def _follow(process: subprocess.Popen[str], head: str) -> str:
    """Show the search's progress as one line that is rewritten; returns the last line that names an error."""
    error, live = "", sys.stderr.isatty()
    assert process.stdout is not None
    for line in map(str.strip, process.stdout):
        if re.match(r"\[ *[\d.]+ s\] ", line):
            print(f"\r\x1b[K{head}{line}" if live else f"{head}{line}", end="" if live else "\n", file=sys.stderr,
                  flush=True)  # fmt: skip
        elif re.match(r"[A-Z]\w*(Error|Interrupted|NotWritten|Exception): ", line):
            error = line
    if live:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return error


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for papermill to end its kernel, which has heard the same Ctrl-C; not for ever."""
    with contextlib.suppress(KeyboardInterrupt):
        try:
            process.wait(20)
            return
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
    process.kill()


def _shown(path: Path) -> str:
    """Text of an executed notebook's tagged cells."""
    said = dict.fromkeys(SHOWN_CELLS, "")
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for tag in said.keys() & set(cell["metadata"].get("tags", ())):
            for output in cell.get("outputs", ()):
                text = output.get("text") or output.get("data", {}).get("text/plain", "")
                said[tag] += "".join(text).rstrip() + "\n"
    return "\n".join(said.values())
