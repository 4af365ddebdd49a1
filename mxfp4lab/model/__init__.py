"""A time model for MI355X: what the machine code does in, predicted microseconds and where they go out.

`predict_counts` is all that a tuner needs. `fit` computes the parameters from the published rows under `data/`,
`crossval` says how far to trust them, `regret` what ranking by them costs, `box` whether they hold on a machine at
hand. Nothing here imports torch, triton or scipy before it is needed.
"""

from mxfp4lab.model.fit import MODEL_FILE, MODEL_VERSION, refit, write_model
from mxfp4lab.model.formula import TERM_NAMES, Parameters
from mxfp4lab.model.predict import (
    Prediction,
    TimeModel,
    load_document,
    model_from_document,
    predict,
    predict_counts,
    stored_model,
)
from mxfp4lab.model.published import PublishedRow, counts_from_row, device_rows, harness_rows, rows_from_file

__all__ = [
    "MODEL_FILE",
    "MODEL_VERSION",
    "TERM_NAMES",
    "Parameters",
    "Prediction",
    "PublishedRow",
    "TimeModel",
    "counts_from_row",
    "device_rows",
    "harness_rows",
    "load_document",
    "model_from_document",
    "predict",
    "predict_counts",
    "refit",
    "rows_from_file",
    "stored_model",
    "write_model",
]
