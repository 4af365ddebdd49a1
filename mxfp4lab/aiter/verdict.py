"""Which rounding does this quantizer have, and may it serve as a reference? Asked of its answers, never of its name.

Two quantizers inside one library disagreed for months, and one of them returns scale byte 127 for every block with a
negative exponent on NVIDIA GPUs. So every candidate answers a few known blocks first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from mxfp4lab.aiter.install import AiterError
from mxfp4lab.formats import quantize_mxfp4

Quantizer = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

# The block of ROCm/aiter issue 974: byte 3 is 170 with ties to even, 171 as the op was before PR 975.
ISSUE_974 = (
    0.3463, -0.0499, 0.3794, -2.3764, 0.3960, 0.5989, -0.6250, -0.4239, -0.6192, 0.2761, -0.3746, 0.1462, 0.5216,
    -0.5194, -0.8497, -0.8237, 0.5145, 0.3508, 0.0298, -0.3462, 0.3917, 0.1096, 1.4494, 1.7009, -0.5473, -2.0851,
    1.8099, 0.3587, 1.4622, -2.3143, 0.3412, -0.8931,
)  # fmt: skip
MIDPOINTS = (6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -0.0)


@dataclass(frozen=True)
class Verdict:
    """What a quantizer answered to the known blocks.

    Attributes:
        name: of the quantizer, with its version and how it was run.
        rounding: "even", "half_away" or "unknown".
        rounding_name: in words: "ties to even (since PR 975)", "ties away from zero (before PR 975)", or what differs.
        scales_ok: whether scale bytes are right for negative exponents.
        usable: whether it may stand for the task's reference: scales right and ties to even.
        reason: one line.
    """

    name: str
    rounding: str
    rounding_name: str
    scales_ok: bool
    usable: bool
    reason: str


def probe_blocks() -> torch.Tensor:
    """[8, 32] float32: the published block, midpoints at three exponents, and blocks with negative exponents."""

    def block(*values: float) -> torch.Tensor:
        return torch.tensor([*values, *[0.0] * (32 - len(values))], dtype=torch.float32)

    midpoints = block(*MIDPOINTS)
    return torch.stack(
        (
            block(*ISSUE_974),
            midpoints,
            midpoints * 2.0**-40,
            midpoints * 2.0**40,
            block(6 * 2.0**-100, 2.0**-100),
            block(1.0),
            block(0.03, -0.01, 0.007),
            block(1.75, 1.7421875),
        )
    )


def judge(name: str, quantize: Quantizer) -> Verdict:
    """Ask a quantizer the known blocks.

    Args:
        name: shown to people.
        quantize: [M, 32] float32 -> packed [M, 16] uint8, scale [M, 1] uint8.

    Returns:
        The verdict; an answer that fits no known rounding is "unknown", with the first byte that differs.
    """
    x = probe_blocks()
    packed, scale = (t.cpu().view(torch.uint8) for t in quantize(x))
    scale = scale.reshape(x.shape[0], -1)
    expected_scale = quantize_mxfp4(x)[1]
    scales_ok = scale.shape == expected_scale.shape and bool((scale == expected_scale).all())
    answers = {rounding: quantize_mxfp4(x, rounding=rounding)[0] for rounding in ("even", "half_away")}
    rounding = next((r for r, answer in answers.items() if torch.equal(packed, answer)), "unknown")
    words = {"even": "ties to even (since PR 975)", "half_away": "ties away from zero (before PR 975)"}
    if rounding == "unknown":
        row, byte = (int(i) for i in (packed != answers["even"]).nonzero()[0])
        words["unknown"] = f"unknown: block {row}, byte {byte} is {int(packed[row, byte])}"
    if not scales_ok:
        row = int((scale != expected_scale).nonzero()[0, 0])
        got, want = int(scale[row, 0]), int(expected_scale[row, 0])
        reason = f"refused: scale byte {got} where {want} is right"
        if got == 127 and want < 127:
            reason += " (a negative exponent went through float -> uint8, which saturates on this device)"
    elif rounding == "even":
        reason = "may stand for the task's reference"
    elif rounding == "half_away":
        reason = "its packing and scales are right, its ties are not the task's"
    else:
        reason = "refused: its nibbles fit no known rounding"
    return Verdict(name, rounding, words[rounding], scales_ok, scales_ok and rounding == "even", reason)


def require_usable(verdict: Verdict) -> None:
    """Stop where a reference is needed and this is none.

    Raises:
        AiterError: with the verdict's reason.
    """
    if not verdict.usable:
        raise AiterError(f"{verdict.name} cannot serve as the reference: {verdict.rounding_name}; {verdict.reason}")
