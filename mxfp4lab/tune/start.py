"""`tune_shape` and `tune_shapes`: the way into a search. Parameters are checked here, before anything is begun."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence, Set
from os import PathLike
from pathlib import Path
from typing import Any

from mxfp4lab.config import GemmConfig, check_variant, runs_on
from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.plan import VARIANTS
from mxfp4lab.shapes import Shape, parse_shape, task_seed
from mxfp4lab.tune.budget import Budget, parse_budget
from mxfp4lab.tune.finals import conclude
from mxfp4lab.tune.instruments import DEFAULT_MAX_SPILLS
from mxfp4lab.tune.result import TuneResult
from mxfp4lab.tune.search import Search

DEFAULT_BUDGET = 160
BACKENDS = ("auto", "emulator", "gpu")

_latest: TuneResult | None = None


class TuneRequestError(ValueError):
    """A parameter of a search is not allowed; the sentence says which and what is."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence alone."""
        return [f"TuneRequestError: {self}"]


class TuneInterrupted(KeyboardInterrupt):
    """The search was stopped by the user; ``result`` is what it had of the shape it was at."""

    def __init__(self, result: TuneResult) -> None:
        self.result = result
        super().__init__(
            f"interrupted after {len(result.entries)} configs: all rows so far are in {result.folder}; "
            "run it again to go on (mxfp4lab.tune.latest() is what is known now)"
        )

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: one line."""
        return [str(self)]


def latest() -> TuneResult | None:
    """The last search of this process, complete or not."""
    return _latest


def max_workers() -> int:
    """Most compile processes that a request may ask for: twice the cores, at least 8. Each takes about 300 MB."""
    return max(8, 2 * (os.cpu_count() or 1))


def tune_shape(shape: Shape | Sequence[int] | str, **options: Any) -> TuneResult:
    """Search the configs of one shape: `tune_shapes` of it alone, whose options these are."""
    return tune_shapes([shape], **options)[0]


def tune_shapes(
    shapes: Iterable[Shape | Sequence[int] | str],
    *,
    variants: Sequence[str] | None = None,
    budget: Budget | int | float | str = DEFAULT_BUDGET,
    backend: str = "auto",
    workers: int | None = None,
    seed: int | None = None,
    out: Path | str | None = None,
    max_spills: int | None = None,
    verify: int = 3,
    extra: Iterable[tuple[str, GemmConfig]] = (),
    pool: Any = None,
    progress: Callable[[str, int, int, str], None] | None = None,
    watch: Callable[[TuneResult], None] | None = None,
) -> list[TuneResult]:
    """Search the configs of several shapes, one after another; finalists are compared at the end, all shapes at once.

    Args:
        shapes: anything `parse_shape` reads.
        variants: names of ``VARIANTS``; without it, or with all of them, what `searchable_variants` says.
        budget: configs to look at per shape (``200``), or ``"90s"`` after which none is begun, or ``"all"``.
        backend: "auto" measures where there is a GPU, "gpu" insists on one, "emulator" never looks for one.
        workers: processes that compile; one per core without it.
        seed: of the inputs on which C is checked; the task's own for the shape, else 0.
        out: folder that holds ``runs/``; ``outputs`` of the repository without it.
        max_spills: spilled registers that a kernel may have; without it `DEFAULT_MAX_SPILLS` on gfx950, where published
            times say what spills cost, and no limit elsewhere.
        verify: how many of the best are executed whole on the shape, or compared on a GPU.
        extra: (variant, config) pairs to look at besides, and first.
        pool: of `workers.open_pool`, the caller's to close: of GPUs, which measure, or of CPUs anywhere, which compile
            and count. Without it this machine's, as `backend` says.
        progress: called with (stage, done, total, note).
        watch: called with a result as it grows.

    Raises:
        TuneRequestError: a parameter is not allowed, by name (a ValueError).
        RecordsError: the output folder cannot be written.
        TuneInterrupted: Ctrl-C; everything done so far is on disk.
    """
    global _latest
    wanted = list(dict.fromkeys(parse_shape(shape) for shape in shapes))
    if not wanted:
        raise TuneRequestError("shapes is empty; give at least one")
    budget = parse_budget(budget)
    names = _names(variants)
    _whole("max_spills", max_spills, 0, none=True)
    _whole("verify", verify, 1)
    _whole("workers", workers, 1, max_workers(), none=True)
    _whole("seed", seed, 0, 2**63 - 1, none=True)
    if not isinstance(out, (str, PathLike, type(None))):
        raise TuneRequestError(f"out={out!r}; allowed: a folder")
    if backend not in BACKENDS:
        raise TuneRequestError(f"backend={backend!r} is unknown; allowed: {', '.join(BACKENDS)}")
    own = _open_gpus(backend) if pool is None else None
    try:
        pool = own if pool is None else pool
        arch = pool.arch if pool is not None and pool.device else "gfx950"
        for name in names or ():
            if not runs_on(name, arch):
                known = ", ".join(variant for variant in VARIANTS if runs_on(variant, arch))
                raise TuneRequestError(f"variants={name!r} is not written for {arch}; allowed there: {known}")
        if max_spills is None and arch == "gfx950":
            max_spills = DEFAULT_MAX_SPILLS
        folder = REPO_ROOT / "outputs" if out is None else Path(out)
        searches = [
            Search(
                shape, names, budget, (task_seed(shape) or 0) if seed is None else seed, folder, max_spills, verify,
                list(extra), workers, pool, progress or (lambda *_: None), watch or (lambda _: None),
            )
            for shape in wanted
        ]  # fmt: skip
        for search in searches:
            _latest = search.result
            try:
                search.run()
            except KeyboardInterrupt:
                search.finish(interrupted=True)
                raise TuneInterrupted(search.result) from None
        try:
            conclude(searches)
        except KeyboardInterrupt:
            for search in searches:
                search.finish(interrupted=search.result.pick is None)
            raise TuneInterrupted(searches[-1].result) from None
        for search in searches:
            search.finish()
        return [search.result for search in searches]
    finally:
        if own is not None:
            own.close()


def _names(variants: Any) -> tuple[str, ...] | None:
    """Names that were asked for; None for all."""
    if isinstance(variants, str) or not isinstance(variants, (Sequence, Set, type(None))):
        raise TuneRequestError(f"variants={variants!r}; allowed: a list of names out of {', '.join(VARIANTS)}, or None")
    if variants is None or set(variants) == set(VARIANTS):
        return None
    unknown = [name for name in variants if name not in VARIANTS]
    if "hybrid" in unknown:
        check_variant("hybrid")  # says what does its work now
    if unknown or not variants:
        raise TuneRequestError(f"variants={unknown!r}; allowed: one or several of {', '.join(VARIANTS)}")
    return tuple(variants)


def _whole(name: str, value: Any, low: int, high: int | None = None, none: bool = False) -> None:
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        most = f" to {high}" if high is not None else ""
        raise TuneRequestError(f"{name}={value!r}; allowed here: a whole number from {low}{most}{', or None' * none}")


def _open_gpus(backend: str) -> Any:
    """This machine's GPUs, a worker each; None where nothing is to be measured."""
    if backend == "emulator":
        return None
    from mxfp4lab.workers import open_pool

    try:
        return open_pool("local", "gpu")
    except ValueError as error:  # no device, or one that is not supported: the message says which
        if backend == "gpu":
            raise TuneRequestError(f"backend='gpu': {error}; allowed here: auto, emulator") from None
        return None
