"""What every test shares: one torch thread per worker and a compile cache that outlives the run."""

import os

import pytest
import torch

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_harness_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests say themselves what they see of the machine: a seed set by a harness must not leak into them."""
    monkeypatch.delenv("POPCORN_SEED", raising=False)
    monkeypatch.delenv("POPCORN_FD", raising=False)
