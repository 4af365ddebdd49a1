"""Search the configs of a shape: from a few hundred candidates to one that is verified, with every step on record.

``space`` says what is looked at, ``screens`` what machine code must be like, ``search`` runs the funnel, ``executors``
is where a GPU is attached. Without a GPU the outcome is a pick (modelled time, results verified by executing the
machine code); a winner needs a clock.
"""

from mxfp4lab.tune.budget import Budget, max_workers, parse_budget
from mxfp4lab.tune.executors import BACKENDS, Comparison, Executor, open_executor
from mxfp4lab.tune.funnel import STAGES, Funnel
from mxfp4lab.tune.instruments import Check, Instruments, Verifier, real_instruments
from mxfp4lab.tune.pick import PICK_MIME, PICK_SCHEMA, Pick
from mxfp4lab.tune.recorded import RecordedTimes, recorded_times
from mxfp4lab.tune.result import Entry, NoPickError, TuneResult
from mxfp4lab.tune.screens import DEFAULT_MAX_SPILLS, SCREENS
from mxfp4lab.tune.search import DEFAULT_BUDGET, TuneInterrupted, TuneRequestError, latest, tune
from mxfp4lab.tune.space import Candidate, Space, enumerate_space, searchable_variants

__all__ = [
    "BACKENDS",
    "DEFAULT_BUDGET",
    "DEFAULT_MAX_SPILLS",
    "PICK_MIME",
    "PICK_SCHEMA",
    "SCREENS",
    "STAGES",
    "Budget",
    "Candidate",
    "Check",
    "Comparison",
    "Entry",
    "Executor",
    "Funnel",
    "Instruments",
    "NoPickError",
    "Pick",
    "RecordedTimes",
    "Space",
    "TuneInterrupted",
    "TuneRequestError",
    "TuneResult",
    "Verifier",
    "enumerate_space",
    "latest",
    "max_workers",
    "open_executor",
    "parse_budget",
    "real_instruments",
    "recorded_times",
    "searchable_variants",
    "tune",
]
