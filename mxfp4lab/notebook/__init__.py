"""What a notebook needs around its cells: parameters, run card, progress, and its results. Knows Jupyter.

A notebook's first code cell (tag ``parameters``) holds plain defaults; its second calls `start`, which reads the
parameters by type, stops on an unknown or misspelt one, and shows the run card.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mxfp4lab.notebook import parameters as kinds
from mxfp4lab.notebook.card import RunCard
from mxfp4lab.notebook.findings import Findings
from mxfp4lab.notebook.frames import FrameTable
from mxfp4lab.notebook.parameters import Parameter, ParameterError, read_parameters
from mxfp4lab.notebook.progress import LiveView, Progress
from mxfp4lab.notebook.results import PickBundle, publish_picks, show_figure, write_summary
from mxfp4lab.notebook.session import cell_history, ipython, is_live
from mxfp4lab.paths import REPO_ROOT, NotWritten, shown_path, writing

__all__ = [
    "REPO_ROOT",
    "STANDARD",
    "Findings",
    "FrameTable",
    "LiveView",
    "Parameter",
    "ParameterError",
    "PickBundle",
    "Progress",
    "RunCard",
    "Session",
    "is_live",
    "kinds",
    "publish_picks",
    "read_parameters",
    "show_figure",
    "shown_path",
    "start",
    "write_summary",
]


def _variants() -> tuple[str, ...]:
    from mxfp4lab.plan import VARIANTS

    return tuple(VARIANTS)


def _workers() -> Parameter:
    from mxfp4lab.tune import max_workers

    return kinds.whole(1, max_workers(), "processes that compile; auto: one per core", auto=True)


def _budget() -> Parameter:
    from mxfp4lab.tune import BUDGET_FORMS, parse_budget

    return Parameter(parse_budget, BUDGET_FORMS, "configs to look at (160), or seconds (90s), or all")


STANDARD: dict[str, Any] = {
    "shape": kinds.shape("M,N,K of the GEMM"),
    "variant": lambda: kinds.choice(_variants(), "which implementation"),
    "variants": lambda: kinds.names(_variants(), "which implementations are searched: all, or names"),
    "budget": _budget,
    "backend": kinds.choice(("auto", "emulator", "gpu"), "auto: the GPU if there is one, else the emulator"),
    "workers": _workers,
    "seed": kinds.whole(0, 2**63 - 1, "seed of the task's inputs; auto: the task's own for the shape", auto=True),
    "out": kinds.folder("where records, figures and the submission go"),
    "smoke": kinds.switch("true: the smallest run that touches everything"),
}
"""The parameters that several notebooks share, each declared here once; a callable is made when it is asked for."""


class Session(SimpleNamespace):
    """The parameters of a run as attributes, and its card."""

    card: RunCard


def start(
    namespace: Mapping[str, Any], title: str, standard: str = "", *, device: str | None = None, **own: Parameter
) -> Session:
    """Read the notebook's parameters, show the run card, set the figures' style, and return the parameters.

    Args:
        namespace: the notebook's ``globals()``.
        title: what the run card is headed with.
        standard: names out of `STANDARD`, separated by spaces.
        device: name of the GPU that the run will measure on; without it the one that is there, where the notebook has a
            ``backend`` and it is not the emulator.
        **own: parameters that only this notebook has.

    Returns:
        the parsed values as attributes.

    Raises:
        ParameterError: see `read_parameters`; or nothing can be written in ``out``.
    """
    declared: dict[str, Parameter] = {}
    for name in standard.split():
        if name not in STANDARD:
            raise ValueError(f"standard: {name!r}; allowed: {', '.join(STANDARD)}")
        found = STANDARD[name]
        declared[name] = found if isinstance(found, Parameter) else found()
    declared.update(own)
    values = read_parameters(namespace, declared, cell_history())
    folder = values.get("out")
    if isinstance(folder, Path):
        _require_writable(folder)
    if device is None:
        device = _device() if values.get("backend", "emulator") != "emulator" else ""
    helps = {name: parameter.help for name, parameter in declared.items()}
    card = RunCard(title, values, _environment(device), folder, helps)
    if ipython() is not None:
        from IPython.display import display

        from mxfp4lab.plots import use_style

        use_style()
        display(card)
        load_ipython_extension(ipython())
    else:
        print(card)
    return Session(card=card, **values)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext mxfp4lab.notebook`: the `%%submission` magic; `start` does the same."""
    from mxfp4lab.notebook import submission

    submission.load_ipython_extension(shell)


def _require_writable(folder: Path) -> None:
    """Minutes of work must not end at a folder that refuses the result: try it first."""
    try:
        with writing(folder, "choose another folder"):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
    except NotWritten as error:
        raise ParameterError(f"parameter out: {error}") from None


def _device() -> str:
    from mxfp4lab.gpu.device import present_device

    return present_device()


def _environment(device: str) -> dict[str, Any]:
    from mxfp4lab.gfx950 import current_knobs
    from mxfp4lab.records import environment

    return environment(device, current_knobs())
