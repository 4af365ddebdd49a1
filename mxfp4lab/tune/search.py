"""`tune`: the way into a search. Parameters are checked here; `run` does the work and can be stopped at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from os import PathLike
from pathlib import Path

from mxfp4lab.config import GemmConfig, runs_on
from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.plan import VARIANTS
from mxfp4lab.shapes import Shape, parse_shape, task_seed
from mxfp4lab.tune.budget import Budget, max_workers, parse_budget
from mxfp4lab.tune.executors import Executor, open_executor
from mxfp4lab.tune.instruments import Instruments, real_instruments
from mxfp4lab.tune.result import TuneResult
from mxfp4lab.tune.run import Search
from mxfp4lab.tune.screens import DEFAULT_MAX_SPILLS
from mxfp4lab.tune.space import searchable_variants

DEFAULT_BUDGET = 160

_latest: TuneResult | None = None


class TuneRequestError(ValueError):
    """A parameter of a search is not allowed; the sentence says which and what is."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence alone."""
        return [f"TuneRequestError: {self}"]


class TuneInterrupted(KeyboardInterrupt):
    """The search was stopped by the user; ``result`` is what it had."""

    def __init__(self, result: TuneResult) -> None:
        super().__init__(str(self))
        self.result = result

    def __str__(self) -> str:
        result = getattr(self, "result", None)
        if result is None:
            return "interrupted"
        return (
            f"interrupted after {len(result.entries)} configs: all rows so far are in {result.folder}; "
            "run it again to go on (mxfp4lab.tune.latest() is what is known now)"
        )

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: one line."""
        return [str(self)]


def latest() -> TuneResult | None:
    """The last search of this process, complete or not."""
    return _latest


def tune(
    shape: Shape | Sequence[int] | str,
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
    recorded: Iterable[Path] = (),
    progress: Callable[[str, int, int, str], None] | None = None,
    watch: Callable[[TuneResult], None] | None = None,
    instruments: Instruments | None = None,
    executor: Executor | None = None,
) -> TuneResult:
    """Search the configs of one shape.

    Args:
        shape: anything `parse_shape` reads.
        variants: names of ``VARIANTS``; without it, or with all of them, what `searchable_variants` says.
        budget: configs to look at (``200``), or ``"90s"`` after which no new config is begun, or ``"all"``.
        backend: "auto", "emulator" or "gpu"; see `open_executor`.
        workers: processes that compile; one per core without it.
        seed: of the inputs on which C is checked; the task's own for the shape, else 0.
        out: folder that holds ``runs/``; ``outputs`` of the repository without it.
        max_spills: spilled registers that a kernel may have; without it `DEFAULT_MAX_SPILLS` on gfx950, where published
            times say what spills cost, and no limit elsewhere.
        verify: how many of the best are executed whole on the shape.
        extra: (variant, config) pairs to look at besides.
        recorded: files of trials that count as done, besides those under ``out``.
        progress: called with (stage, done, total, note).
        watch: called with the result as it grows.
        instruments, executor: replace the real ones.

    Raises:
        TuneRequestError: a parameter is not allowed, by name (a ValueError).
        RecordsError: the output folder cannot be written.
        TuneInterrupted: Ctrl-C; everything done so far is on disk.
    """
    global _latest
    shape = parse_shape(shape)
    budget = parse_budget(budget)
    if isinstance(variants, str) or not isinstance(variants, (Sequence, Set, type(None))):
        raise TuneRequestError(f"variants={variants!r}; allowed: a list of names out of {', '.join(VARIANTS)}, or None")
    names = None if variants is None or set(variants) == set(VARIANTS) else tuple(variants)
    unknown = [name for name in names or () if name not in VARIANTS]
    if unknown or names == ():
        raise TuneRequestError(f"variants={unknown or list(names)!r}; allowed: one or several of {', '.join(VARIANTS)}")
    for name, value, low in (("max_spills", max_spills, 0), ("verify", verify, 1)):
        if value is None and name == "max_spills":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise TuneRequestError(f"{name}={value!r}; allowed: a whole number from {low}")
    most = max_workers()
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= most):
        raise TuneRequestError(
            f"workers={workers!r}; allowed here: a whole number from 1 to {most}, or None for one per core"
        )
    if not isinstance(out, (str, PathLike, type(None))):
        raise TuneRequestError(f"out={out!r}; allowed: a folder")
    if seed is None:
        seed = task_seed(shape) or 0
    elif isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise TuneRequestError(f"seed={seed!r}; allowed: a whole number, 0 <= seed < 2^63")
    if executor is None:
        try:
            executor = open_executor(backend, seed, workers)
        except ValueError as error:
            raise TuneRequestError(str(error)) from None
    arch = executor.arch if executor else "gfx950"
    for name in names or ():
        if not runs_on(name, arch):
            if executor:
                executor.close()
            known = ", ".join(variant for variant in VARIANTS if runs_on(variant, arch))
            raise TuneRequestError(f"variants={name!r} is not written for {arch}; allowed there: {known}")
    if max_spills is None and arch == "gfx950":
        max_spills = DEFAULT_MAX_SPILLS
    search = Search(
        shape, names or searchable_variants(arch), budget, executor, workers, seed,
        REPO_ROOT / "outputs" if out is None else Path(out), max_spills, verify,
        progress or (lambda *_: None), watch or (lambda _: None), instruments or real_instruments(),
    )  # fmt: skip
    _latest = search.result
    try:
        return search.run(list(extra), list(recorded))
    except KeyboardInterrupt:
        raise TuneInterrupted(search.result) from None
    finally:
        search.close()
