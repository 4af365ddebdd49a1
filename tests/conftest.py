"""What every test shares: one torch thread per worker and a compile cache that outlives the run."""

import os

import pytest
import torch
from hypothesis import settings

# The same examples on every run: a property that fails, fails for everybody.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_harness_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests say themselves what they see of the machine: a seed set by a harness must not leak into them."""
    monkeypatch.delenv("POPCORN_SEED", raising=False)
    monkeypatch.delenv("POPCORN_FD", raising=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test marked `aiter` is skipped where AMD's wheel is not installed, as after a plain `make setup`."""
    from mxfp4lab.aiter.install import AiterError, find_aiter

    wanting = [item for item in items if item.get_closest_marker("aiter")]
    try:
        if wanting:
            find_aiter()
    except AiterError:
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason="needs amd-aiter: make setup AITER=1"))
