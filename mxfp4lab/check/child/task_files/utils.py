"""Helpers that submissions may import: seeds, a cold cache, comparison within a tolerance."""

import random

import torch


def set_seed(seed: int = 42) -> None:
    """Seed Python's and torch's generators."""
    random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def get_device(use_cuda: bool = True) -> torch.device:
    """The GPU where there is one and it is wanted, else the CPU."""
    return torch.device("cuda" if use_cuda and torch.cuda.is_available() else "cpu")


def clear_l2_cache() -> None:
    """Overwrite more memory than the last-level cache holds."""
    torch.empty(512 << 20, dtype=torch.uint8, device=get_device()).fill_(1)


clear_l2_cache_large = clear_l2_cache


@torch.no_grad()
def verbose_allclose(
    received: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, max_print: int = 5
):
    """(good, lines): |received - expected| <= atol + rtol |expected|, NaN and infinities in the same places."""
    if received.shape != expected.shape:
        return False, [f"shape {tuple(received.shape)}, expected {tuple(expected.shape)}"]
    bad = (received - expected).abs() > atol + rtol * expected.abs()
    for same in (torch.isnan, torch.isposinf, torch.isneginf):
        bad |= same(received) ^ same(expected)
    if not bad.any():
        return True, []
    lines = [f"{int(bad.sum())} elements differ"]
    lines += [
        f"at {tuple(i)}: {received[tuple(i)].item()} {expected[tuple(i)].item()}"
        for i in bad.nonzero()[:max_print].tolist()
    ]
    return False, lines


def make_match_reference(reference, **tolerance):
    """`check(data, output) -> (good, message)` against `reference(data)`."""

    def check(data, output):
        good, lines = verbose_allclose(output, reference(data), **tolerance)
        return good, "; ".join(lines)

    return check
