"""Plans of ours with their counts and predictions: the submissions' configs and the variants' defaults on a shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mxfp4lab.config import GemmConfig
from mxfp4lab.model.predict import Prediction, predict_counts
from mxfp4lab.records import Counts
from mxfp4lab.shapes import Shape


@dataclass(frozen=True)
class Candidate:
    """A config of a variant on a shape, and what it is called."""

    shape: Shape
    variant: str
    config: GemmConfig
    label: str


@dataclass(frozen=True)
class CountedPlan:
    """A candidate, what its machine code does, and the predicted time."""

    candidate: Candidate
    counts: Counts
    prediction: Prediction


def candidates(shapes: Iterable[Shape], variants: Sequence[str], known: bool = True) -> list[Candidate]:
    """The default config of each variant on each shape, and the configs of the known submissions.

    A submission that searches a space on the box is left out: it has no config of its own.
    """
    from mxfp4lab.plan import VARIANTS, default_config, known_configs

    found = []
    for shape in shapes:
        for variant in (name for name in variants if VARIANTS[name].serves(shape)):
            found.append(Candidate(shape, variant, default_config(variant, shape), f"{variant}, default"))
        if known:
            found += [
                Candidate(shape, item.variant, item.config, f"{item.variant}, as {item.label.split('_')[0]}")
                for item in known_configs(shape)
                if item.variant in _EMULATED and "space" not in item.label
            ]
    return found


# variants whose whole work is Triton: the others end in a prebuilt code object that needs aiter installed
_EMULATED = ("fused_preshuffled", "prequant_preshuffled", "constexpr_preshuffled")


def count_and_predict(
    wanted: Sequence[Candidate], on_done: Callable[[int, int], None] | None = None
) -> tuple[list[CountedPlan], list[tuple[Candidate, str]]]:
    """Compiles, counts one workgroup of each launch, and predicts; failures are returned with their reason.

    Args:
        wanted: what to do, in order.
        on_done: called with (done, all) after each.
    """
    from mxfp4lab.emulate import count_plan
    from mxfp4lab.gfx950 import CompileError
    from mxfp4lab.plan import build_plan
    from mxfp4lab.workers import compile_many

    plans = [build_plan(c.variant, c.config, c.shape) for c in wanted]
    counted: dict[int, CountedPlan] = {}
    failed: dict[int, tuple[Candidate, str]] = {}
    for done, result in enumerate(compile_many(plans), 1):
        candidate = wanted[result.index]
        try:
            if result.error is not None:
                raise result.error
            counts = count_plan(result.compiled)
            counted[result.index] = CountedPlan(candidate, counts, predict_counts(counts))
        except (CompileError, ValueError) as error:
            failed[result.index] = (candidate, str(error))
        if on_done is not None:
            on_done(done, len(plans))
    return [counted[i] for i in sorted(counted)], [failed[i] for i in sorted(failed)]
