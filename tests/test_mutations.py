"""Deliberate faults are caught by the detector that the table names; without a fault nobody objects."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from mxfp4lab.plan import VARIANTS, build_plan
from mxfp4lab.task import input_dict, reference_gemm
from tests.mutations.cases import CASES
from tests.mutations.detect import DETECTORS, examine, examine_case, examine_plan
from tests.mutations.submissions import SUBMISSION_MUTATIONS
from tests.mutations.table import ALL, QUICK, place_of

BY_NAME = {mutation.name: mutation for mutation in ALL}
QUICK_CASES = sorted({BY_NAME[name].case for name in QUICK} - {""})
TABLE = Path(__file__).parents[1] / "data" / "mutations.csv"


def expect(name: str) -> None:
    mutation = BY_NAME[name]
    verdict = examine(mutation)
    assert verdict.first == mutation.caught_by, verdict.said


def test_the_table_is_whole() -> None:
    assert len(BY_NAME) == len(ALL) >= 60, "names are unique"
    assert {mutation.caught_by for mutation in ALL} - {""} <= set(DETECTORS)
    for mutation in ALL:
        assert mutation.about, mutation.name
        assert bool(mutation.proof) == (not mutation.caught_by), f"{mutation.name}: a survivor needs a reason"
        assert (mutation.case in CASES) != (mutation.judge is not None), mutation.name
    with open(TABLE, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    said = [(mutation.name, place_of(mutation), mutation.about, mutation.caught_by or "nobody", mutation.proof)
            for mutation in ALL]  # fmt: skip
    keys = ("mutation", "where", "fault", "caught_by", "note")
    assert [tuple(row[key] for key in keys) for row in rows] == said, "python -m tests.mutations --write"


def test_nearly_every_detector_has_a_fault_that_it_alone_sees_first() -> None:
    # Where the order of workgroups shows in C, the race that lets it show is seen first.
    assert set(DETECTORS) - {mutation.caught_by for mutation in ALL} <= {"stopped", "lint", "order"}


@pytest.mark.parametrize("name", QUICK_CASES)
def test_nobody_objects_to_a_plan_without_a_fault(name: str) -> None:
    assert not examine_case(name).said


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_caught(name: str) -> None:
    expect(name)


def test_a_mutation_whose_text_is_gone_is_an_error() -> None:
    from dataclasses import replace

    gone = replace(BY_NAME["split_gap"], old="text that no kernel holds")
    with pytest.raises(ValueError, match="holds the text to change 0 times"):
        gone.apply(CASES["split"].plan())


@pytest.mark.torture
@pytest.mark.parametrize("name", sorted(set(CASES) - set(QUICK_CASES)))
def test_nobody_objects_to_any_other_plan_without_a_fault(name: str) -> None:
    assert not examine_case(name).said


@pytest.mark.torture
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in QUICK])
def test_every_other_fault_is_caught(name: str) -> None:
    expect(name)


@pytest.mark.torture
def test_controls_of_faults_without_a_case() -> None:
    for control in (BY_NAME["offsets_of_32_bits"].control, SUBMISSION_MUTATIONS[0].control):
        assert not control().said


def objections(variant: str, shape: str) -> dict[str, str]:
    """What all checks say of a variant as it is shipped, called twice."""
    data = input_dict(shape, 3)
    reference = reference_gemm(data["a"], data["b_q"], data["b_scale_sh"])
    return examine_plan(build_plan(variant, None, shape), data, reference, calls=2).said


@pytest.mark.parametrize("variant", ["sliced_preshuffled", "prequant_preshuffled"])
def test_shipped_configs_give_no_false_alarm(variant: str) -> None:
    assert objections(variant, "4,2880,512") == {}


@pytest.mark.torture
@pytest.mark.parametrize("shape", ["4,2880,512", "16,2112,7168", "64,7168,2048"])
@pytest.mark.parametrize("variant", [name for name, spec in VARIANTS.items() if not spec.hopper])
def test_no_variant_gives_a_false_alarm_on_the_tasks_shapes(variant: str, shape: str) -> None:
    """AMD's own kernels among them, where an amd-aiter wheel is installed."""
    if VARIANTS[variant].needs_aiter:
        from mxfp4lab.aiter.install import AiterError, find_aiter

        pytest.importorskip("tinygrad", reason="reading code objects needs tinygrad")
        try:
            find_aiter()
        except AiterError as error:
            pytest.skip(str(error))
    assert objections(variant, shape) == {}
