"""The task's types: `data = (A, B, B_q, B_shuffle, B_scale_sh)` in, `C` [m, n] bf16 out."""

from typing import TypeVar

import torch

input_t = TypeVar("input_t", bound=tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor])
output_t = TypeVar("output_t", bound=torch.Tensor)


class TestSpec(dict):
    """One case: m, n, k and seed."""
