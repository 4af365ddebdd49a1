"""Search the configs of a shape: from a few hundred candidates to one that is verified, with every step on record.

``space`` says what is looked at, ``instruments`` what a look is and what machine code must be like, ``search`` runs the
funnel on the rows of ``book``. Without a GPU the outcome is a pick (modelled time, results verified by executing the
machine code); a winner needs a clock.
"""

from mxfp4lab.records import PICK_MIME, PICK_SCHEMA
from mxfp4lab.tune.budget import BUDGET_FORMS, Budget, parse_budget
from mxfp4lab.tune.instruments import (
    DEFAULT_MAX_SPILLS,
    SCREENS,
    Look,
    kernel_facts,
    main_kernel,
    screen,
)
from mxfp4lab.tune.pick import NoPickError, Pick
from mxfp4lab.tune.result import STAGES, Entry, Funnel, TuneResult
from mxfp4lab.tune.space import Candidate, Space, enumerate_space, searchable_variants
from mxfp4lab.tune.start import (
    BACKENDS,
    DEFAULT_BUDGET,
    TuneInterrupted,
    TuneRequestError,
    latest,
    max_workers,
    tune_shape,
    tune_shapes,
)

__all__ = [
    "BACKENDS", "BUDGET_FORMS", "DEFAULT_BUDGET", "DEFAULT_MAX_SPILLS", "PICK_MIME", "PICK_SCHEMA", "SCREENS", "STAGES",
    "Budget", "Candidate", "Entry", "Funnel", "Look", "NoPickError", "Pick", "Space",
    "TuneInterrupted", "TuneRequestError", "TuneResult", "enumerate_space", "kernel_facts", "latest", "main_kernel",
    "max_workers", "parse_budget", "screen", "searchable_variants", "tune_shape", "tune_shapes",
]  # fmt: skip
