"""All mutations in one list."""

from __future__ import annotations

from tests.mutations.cooperative import COOPERATIVE_MUTATIONS
from tests.mutations.fault import Mutation
from tests.mutations.kernels import KERNEL_MUTATIONS
from tests.mutations.submissions import SUBMISSION_MUTATIONS
from tests.mutations.surroundings import SURROUNDING_MUTATIONS

ALL: tuple[Mutation, ...] = (*KERNEL_MUTATIONS, *COOPERATIVE_MUTATIONS, *SURROUNDING_MUTATIONS, *SUBMISSION_MUTATIONS)

# One of each detector, and a fault that nobody can see.
QUICK = (
    "scale_stride_unpadded", "a_k_tail_unmasked", "split_gap", "ties_away_from_zero", "convert_back_to_back",
    "quantize_not_launched", "k_tile_too_small", "lds_one_element_short", "no_barrier_at_the_last_sum",
    "waves_end_before_the_barrier", "arrivals_not_reset", "stores_not_awaited", "scale_padding_127",
)  # fmt: skip


def place_of(mutation: Mutation) -> str:
    """Where the fault lies, in words."""
    if mutation.module:
        return f"kernels/{mutation.module}.py"
    if mutation.machine_code:
        return "machine code"
    if mutation in SUBMISSION_MUTATIONS:
        return "submission file"
    return "plan"
