"""The search: its space, screens, resume, interruption, and what it says when nothing is left.

The steps are exercised with stand-ins for compiler, emulator and model, so that every ending can be brought about;
`test_a_real_search_ends_in_a_verified_pick` runs the real ones.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tune_fakes import SMALL, FakeGpus, Kernel, Tools, identities, search

from mxfp4lab import records, tune
from mxfp4lab.config import DEFAULTS, RETIRED, GemmConfig, config_errors
from mxfp4lab.gfx950 import CompileError, OutOfBounds
from mxfp4lab.plan import default_config, known_configs
from mxfp4lab.records import Counts, Status
from mxfp4lab.shapes import TASK_SHAPES, Shape
from mxfp4lab.tune.pick import resources_in_words
from mxfp4lab.tune.space import CLOCK_AXES, CODE_AXES, FIXED_AXES, judge, neighbours
from mxfp4lab.workers import LocalPool


def rows(out: Path) -> list[records.Trial]:
    return list(records.read_all_trials(out)[0].values())


# -- space ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", TASK_SHAPES, ids=str)
def test_the_space_of_every_task_shape_is_a_few_hundred_valid_distinct_configs(shape: Shape) -> None:
    space = tune.enumerate_space(shape, tune.searchable_variants())
    assert 200 <= len(space.candidates) <= 1000
    for candidate in space.candidates:
        assert config_errors(candidate.config, shape, "gfx950", candidate.variant) == []
    hashes = [candidate.kernel_hash for candidate in space.candidates]
    assert len(set(hashes)) == len(hashes)
    assert space.enumerated == len(space.candidates) + len(space.refused) + space.duplicates
    assert len({candidate.variant for candidate in space.candidates[:40]}) >= 5


@pytest.mark.parametrize("shape", [*TASK_SHAPES, Shape(100, 512, 4096)], ids=str)
def test_known_submissions_configs_are_among_them_and_marked(shape: Shape) -> None:
    variants = tune.searchable_variants()
    space = tune.enumerate_space(shape, variants)
    marked = {(c.variant, c.config.config_id) for c in space.candidates if c.origins}
    by_hash = {c.kernel_hash: c for c in space.candidates}
    for known in known_configs(shape):
        if known.variant not in variants:
            continue
        if (known.variant, known.config.config_id) not in marked:
            twin = judge(shape, [(known.variant, known.config, ())], "gfx950").candidates[0]
            assert known.label in by_hash[twin.kernel_hash].origins
    own = [c for c in space.candidates if any("_space" not in origin for origin in c.origins)]
    assert own == list(space.candidates[: len(own)]), "a submission's own choice is looked at first"


def test_configs_that_are_the_same_machine_code_are_one_candidate() -> None:
    clamped = [("fused_rowmajor", GemmConfig(block_k=512, split_k=split), ()) for split in (1, 2, 4)]
    space = judge(SMALL, clamped, "gfx950")
    assert len(space.candidates) == 1 and space.duplicates == 2


def test_an_invalid_config_is_refused_with_its_reason() -> None:
    space = judge(SMALL, [("fused_rowmajor", GemmConfig(num_warps=3), ())], "gfx950")
    assert not space.candidates and "num_warps=3" in space.refused[0][2]


def test_neighbours_change_one_axis_and_only_a_clock_moves_some() -> None:
    base = GemmConfig()
    for clock in (False, True):
        changed = set()
        for _, config, _ in neighbours(SMALL, "fused_rowmajor", base, "gfx950", clock):
            (name,) = [k for k, v in config.to_dict().items() if v != base.to_dict()[k]]
            changed.add(name)
        assert (set(CLOCK_AXES) <= changed) is clock and not changed & set(FIXED_AXES)
    around = list(neighbours(SMALL, "fused_rowmajor", base, "gfx950", False))
    fresh = judge(SMALL, [("fused_rowmajor", base, ()), *around], "gfx950").candidates
    assert not any(name.startswith(("quant_", "reduce_")) for c in fresh for name in c.config.changes()), "idle here"


def test_no_axis_is_forgotten() -> None:
    axes = {**CODE_AXES, **CLOCK_AXES}
    assert set(DEFAULTS) - set(FIXED_AXES) <= set(axes)
    assert all(DEFAULTS[name] in values for name, values in axes.items())


def test_cuda_gets_no_amd_knobs() -> None:
    space = tune.enumerate_space(SMALL, ("fused_rowmajor",), "sm_90")
    assert space.candidates and not space.refused
    assert {c.config.convert for c in space.candidates} <= {"sw_bits", "sw_aiter"}
    for _, config, _ in neighbours(SMALL, "fused_rowmajor", GemmConfig(convert="sw_bits"), "sm_90", True):
        assert config_errors(config, SMALL, "sm_90", "fused_rowmajor") == [] or config.block_k or config.num_warps


# -- budget and parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [(200, (200, None)), (200.0, (200, None)), ("2e2", (200, None)), ("200 configs", (200, None)), ("1", (1, None)),
     ("90s", (None, 90.0)), ("1.5 s", (None, 1.5)), ("all", (None, None)), (tune.Budget(3), (3, None))],
)  # fmt: skip
def test_budget_forms(given: Any, expected: tuple) -> None:
    budget = tune.parse_budget(given)
    assert (budget.configs, budget.seconds) == expected


@pytest.mark.parametrize("given", [0, -1, 1.5, True, None, "many", "", "0s", "1e9s", math.nan, math.inf, [3], 10**9])
def test_budget_refuses(given: Any) -> None:
    with pytest.raises(ValueError, match=r"budget=.*allowed: a number of configs"):
        tune.parse_budget(given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"variants": ("nonsense",)}, "variants=.'nonsense'.; allowed"),
        ({"variants": "fused_rowmajor"}, "allowed: a list of names"),
        ({"variants": ()}, "variants="),
        ({"backend": "tpu"}, "backend='tpu'"),
        ({"workers": 0}, "workers=0"),
        ({"workers": True}, "workers=True"),
        ({"workers": 1_000_000}, "workers=1000000"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 1.0}, "seed=1.0"),
        ({"verify": 0}, "verify=0"),
        ({"variants": ("hopper",)}, "variants='hopper' is not written for gfx950"),
        ({"max_spills": -1}, "max_spills=-1"),
    ],
)
def test_a_bad_parameter_is_named_and_nothing_is_written(tmp_path: Path, options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        search(tmp_path, Tools(), **options)
    assert "allowed" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# -- the funnel -----------------------------------------------------------------------------------------------------


def test_a_search_ends_in_the_best_config_that_verifies(tmp_path: Path) -> None:
    tools = Tools()
    result = search(tmp_path, tools)
    best = result.ranked()[0]
    assert result.pick is not None and result.winner is None and result.pick.word == "pick"
    assert result.pick.config == best.candidate.config and result.pick.verified == "emulated"
    times = [round(entry.predicted_us, 2) for entry in result.ranked()]
    assert times == sorted(times)
    assert result.funnel.left["tried"] == 40 == len(tools.looked)
    assert result.funnel.left["verified"] == 3
    statuses = Counter((t.evidence.value, t.status.value) for t in rows(tmp_path))
    assert statuses[("modelled", "ok")] == 40 and statuses[("emulated", "ok")] == 3
    run = json.loads((result.folder / "run.json").read_text())
    assert run["parameters"]["shape"] == "4x2880x512" and run["environment"]["packages"]


def test_of_equal_times_the_config_nearest_to_the_default_is_preferred(tmp_path: Path) -> None:
    tools = Tools()
    tools.predict = lambda counts: SimpleNamespace(
        predicted_us=5.0, interval=(4.0, 6.0), terms={"floor": 5.0}, model_version="fake-1", extrapolated=False
    )
    result = search(tmp_path, tools, budget=200)
    best = result.ranked()[0].candidate
    assert best.distance == 0 and best.config == default_config(best.variant, SMALL)


def test_after_a_survey_the_budget_goes_to_variants_within_reach(tmp_path: Path) -> None:
    result = search(tmp_path, Tools(), budget=80)
    variants = [entry.candidate.variant for entry in result.entries]
    assert len(set(variants[:28])) >= 6, "35 % by turns"
    # The made-up cost charges every launch dearly: nothing that quantizes first comes within reach.
    assert not any("prequant" in variant for variant in variants[28:60])


def test_the_last_quarter_of_the_budget_looks_around_the_best(tmp_path: Path) -> None:
    result = search(tmp_path, Tools(), budget=80)
    first = min(entry.predicted_us for entry in result.entries[:60])
    assert result.pick.predicted_us < first
    assert result.pick.config.num_stages == 3, "an axis that the product of tiles does not have"


def test_every_row_says_its_evidence_and_only_emulation_verifies(tmp_path: Path) -> None:
    result = search(tmp_path, Tools())
    frame = result.trials
    assert set(frame["evidence"]) == {"modelled", "emulated"}
    assert frame.loc[frame.evidence == "modelled", "verified"].eq("none").all()
    assert frame["latency_us"].isna().all()
    assert frame.loc[frame.evidence == "emulated", "predicted_us"].isna().all()
    assert (result.ranking["evidence"] == "modelled").all()


def test_a_wrong_best_config_is_a_row_and_the_next_one_is_picked(tmp_path: Path) -> None:
    first = search(tmp_path / "a", Tools()).pick
    tools = Tools()
    tools.check = lambda config: (
        {"status": "out_of_bounds", "reason": "b_shuffle: byte 70 past the end"} if config == first.config else {}
    )  # fmt: skip
    result = search(tmp_path / "b", tools)
    assert result.pick.config != first.config and result.pick.verified == "emulated"
    bad = [t for t in rows(tmp_path / "b") if t.status is Status.out_of_bounds]
    assert len(bad) == 1 and "byte 70" in bad[0].reason
    assert result.funnel.removed["out of bounds"] == 1


SCREENED = [
    (Kernel(spilled=17), "spills"),
    (Kernel(scaled=0, other=4), "scaled mfma"),
    (Kernel(scaled=0), "scaled mfma"),
    (Kernel(scaled=4, other=1), "scaled mfma"),
    (Kernel(hazards=("h",)), "hazard"),
    (Kernel(lds=163841), "lds"),
]


@pytest.mark.parametrize(("kernel", "name"), SCREENED)
def test_each_screen_names_itself_and_its_number(kernel: Kernel, name: str) -> None:
    assert tune.screen(tune.kernel_facts([kernel]), "gfx950", max_spills=16).startswith(f"{name}: ")
    assert tune.screen(tune.kernel_facts([Kernel(spilled=16)]), "gfx950", max_spills=16) == ""


@pytest.mark.parametrize(("kernel", "name"), SCREENED)
def test_all_screened_out_says_which_screen_removed_what(tmp_path: Path, kernel: Kernel, name: str) -> None:
    tools = Tools()
    tools.kernel = lambda config: kernel
    result = search(tmp_path, tools, budget=6)
    assert result.pick is None
    assert f"{name} removed {result.funnel.left['tried']}" in result.why_no_pick()
    assert result.why_no_pick() in str(result)
    assert {t.status for t in rows(tmp_path) if t.status is not Status.invalid} == {Status.screened}
    assert all(t.reason.startswith(name) and t.resources for t in rows(tmp_path) if t.status is Status.screened)


def test_compile_errors_are_rows_of_their_kind(tmp_path: Path) -> None:
    kinds = itertools.cycle(["source", "lds", "timeout", "crash"])
    tools = Tools()
    tools.error = lambda config: CompileError("gemm: no", kind=next(kinds))
    result = search(tmp_path, tools, budget=8)
    said = Counter(t.status for t in rows(tmp_path))
    assert said[Status.compile_error] == said[Status.screened] == said[Status.timeout] == said[Status.worker_died] == 2
    assert "compile error removed 2" in result.why_no_pick() and "lds removed 2" in result.why_no_pick()


def test_an_access_out_of_bounds_while_counting_is_a_row(tmp_path: Path) -> None:
    tools = Tools()

    def count(compiled: Any) -> Counts:
        raise OutOfBounds(None, buffer="b_shuffle", byte_offset=70, buffer_bytes=64, address=70, access_bytes=16,
                          kind="load", lane=3, wave=0, workgroup=0)  # fmt: skip

    tools.count = count
    result = search(tmp_path, tools, budget=3)
    assert result.funnel.removed["out of bounds"] == 3 and result.pick is None
    assert {t.status for t in rows(tmp_path)} - {Status.invalid} == {Status.out_of_bounds}
    again = Tools()
    again.count = count
    search(tmp_path, again, budget=3)
    assert again.looked == []


# -- resume ---------------------------------------------------------------------------------------------------------


def test_a_second_run_does_nothing_again(tmp_path: Path) -> None:
    first = search(tmp_path, Tools())
    before = identities(tmp_path)
    tools = Tools(seed=1)
    second = search(tmp_path, tools)
    assert tools.looked == tools.counted == tools.emulated == []
    assert identities(tmp_path) == before
    assert second.pick.config == first.pick.config and second.pick.predicted_us == first.pick.predicted_us
    assert [e.candidate.config for e in second.ranked()] == [e.candidate.config for e in first.ranked()]
    assert second.funnel.left == first.funnel.left and second.funnel.reused == len(before)


@pytest.mark.parametrize("stop", [0, 1, 7, 29, 31, 39])
def test_interrupted_and_run_again_equals_one_run(tmp_path: Path, stop: int) -> None:
    whole = search(tmp_path / "whole", Tools())
    tools = Tools(seed=stop)
    tools.stop_after = stop
    with pytest.raises(tune.TuneInterrupted, match="run it again") as caught:
        search(tmp_path / "parts", tools)
    assert caught.value.result.interrupted and tune.latest() is caught.value.result
    assert "interrupted" in str(caught.value.result)
    rest = Tools(seed=99)
    result = search(tmp_path / "parts", rest)
    found = identities(tmp_path / "parts")
    assert len(set(found)) == len(found), "nothing was recorded twice"
    assert set(found) == set(identities(tmp_path / "whole"))
    assert result.pick.config == whole.pick.config
    assert not set(tools.counted) & set(rest.counted), "nothing was counted twice"


def test_a_torn_row_is_redone_alone(tmp_path: Path) -> None:
    search(tmp_path, Tools())
    (path,) = records.find_trial_files(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    emulated = [i for i, line in enumerate(lines) if b'"emulated","status"' in line]
    path.write_bytes(b"".join(lines[: emulated[-1]]) + lines[emulated[-1]][:50])
    tools = Tools()
    result = search(tmp_path, tools)
    assert len(tools.emulated) == 1 and tools.counted == []
    assert any("torn last line" in warning for warning in result.warnings)


def test_one_more_config_costs_one_compile(tmp_path: Path) -> None:
    search(tmp_path, Tools(), variants=("fused_rowmajor",), budget=30)
    new = GemmConfig(block_m=16, block_n=64, block_k=256, num_warps=16, num_stages=1, waves_per_eu=1)
    tools = Tools()
    search(tmp_path, tools, variants=("fused_rowmajor",), budget=31, extra=[("fused_rowmajor", new)])
    assert tools.counted[0] == f"fused_rowmajor/{new.config_id}"
    assert len(tools.counted) <= 2, "the new one, and a neighbour that the larger budget allows"


def test_other_thresholds_screen_recorded_facts_again_without_a_compiler(tmp_path: Path) -> None:
    tools = Tools()
    tools.kernel = lambda config: Kernel(spilled=10 if config.block_n == 64 else 0)
    search(tmp_path, tools, budget=30)
    strict = Tools()
    result = search(tmp_path, strict, max_spills=4, budget=30)
    assert result.funnel.removed["spills"] > 0
    reused = {f"{e.candidate.variant}/{e.candidate.config.config_id}" for e in result.entries}
    assert not set(strict.counted) & (reused & set(tools.counted))
    search(tmp_path, Tools(), max_spills=4, budget=30)
    assert max(Counter(identities(tmp_path)).values()) == 1


def test_a_new_model_predicts_from_recorded_counts(tmp_path: Path) -> None:
    search(tmp_path, Tools())
    tools = Tools()
    tools.version = "fake-2"
    result = search(tmp_path, tools)
    assert tools.counted == [] and tools.emulated == []
    assert {e.prediction.model_version for e in result.ranked()} == {"fake-2"}


def test_other_knobs_toolchains_or_seeds_are_not_taken_for_the_same(tmp_path: Path) -> None:
    search(tmp_path, Tools())
    for change in ({"knobs": {"OPTIMIZE_EPILOGUE": "1"}}, {"toolchain": {"triton": "other"}}):
        tools = Tools()
        vars(tools).update(change)
        search(tmp_path, tools)
        assert len(tools.counted) == 40
    tools = Tools()
    search(tmp_path, tools, seed=7)
    assert tools.counted == [] and len(tools.emulated) == 3


def test_foreign_and_broken_record_files_do_not_stop_a_search(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "old"
    folder.mkdir(parents=True)
    (folder / "trials-a.jsonl").write_text('{"schema": 9}\n[1]\n\n{"m":4,"n":2880,"k":512}\n{"torn')
    (folder / "trials-b.jsonl").write_bytes(bytes(range(256)))
    result = search(tmp_path, Tools(), budget=3)
    assert result.pick is not None and result.warnings


def test_the_pick_is_the_same_whatever_order_compilers_finish_in(tmp_path: Path) -> None:
    picks = [search(tmp_path / str(seed), Tools(seed=seed)).pick for seed in range(3)]
    assert len({(p.variant, p.config.config_id) for p in picks}) == 1
    assert len({frozenset(identities(tmp_path / str(seed))) for seed in range(3)}) == 1


# -- what is shown --------------------------------------------------------------------------------------------------


def test_text_and_html_say_the_same(tmp_path: Path) -> None:
    result = search(tmp_path, Tools())
    html = result._repr_html_()
    for fact in (result.pick.config.config_id, result.pick.variant, "not a measurement", "passed screens"):
        assert fact in str(result) and fact in html
    assert "modelled" in html and "emulated" in html


def test_the_pick_is_plain_json_with_its_evidence(tmp_path: Path) -> None:
    pick = search(tmp_path, Tools()).pick
    data = json.loads(json.dumps(pick.to_dict()))
    assert data["kind"] == "pick" and data["evidence"] == "modelled" and data["verified"] == "emulated"
    assert GemmConfig.from_dict(data["config"]) == pick.config and data["config_id"] == pick.config.config_id
    assert data["latency_us"] is None and data["model_version"] == "fake-1"
    assert 1 <= len(data["alternatives"]) <= 8


def test_a_prediction_outside_the_models_range_is_said_aloud(tmp_path: Path) -> None:
    tools = Tools()
    tools.extrapolated = True
    for _ in range(2):  # the second time from the records
        pick = search(tmp_path, tools, budget=5).pick
        assert pick.to_dict()["extrapolated"] is True
        assert "outside what the model was fitted on" in str(pick) and "outside what" in pick._repr_html_()


# -- a GPU ----------------------------------------------------------------------------------------------------------


def test_with_gpus_the_outcome_is_a_measured_winner(tmp_path: Path) -> None:
    gpus, tools = FakeGpus(), Tools()
    result = search(tmp_path, tools, gpus, budget=30)
    assert result.winner is not None and result.winner.word == "winner" and not result.winner.tie
    assert result.winner.latency_us == min(e.latency_us for e in result.ranked())
    assert result.winner.predicted_us is None and result.winner.device == "Test GPU"
    assert tools.races == [True], "the winner's code was executed with every check on"
    measured = [t for t in rows(tmp_path) if t.evidence == "measured"]
    assert {t.status for t in measured} >= {Status.ok, Status.incorrect, Status.timeout}
    assert all(t.latency_us is None for t in measured if t.status is not Status.ok)
    assert len([t for t in measured if t.regime == "leaderboard finals"]) == 3
    again = FakeGpus()
    second = search(tmp_path, Tools(), again, budget=30)
    timed_out = {t.config_id for t in measured if t.status is Status.timeout}
    assert set(again.measured) <= timed_out, "only what said nothing about the config is tried again"
    assert again.compared == 0 and second.winner.config == result.winner.config


def test_finalists_that_cannot_be_told_apart_are_a_tie(tmp_path: Path) -> None:
    result = search(tmp_path, Tools(), FakeGpus(separate=False), budget=10)
    assert result.winner.tie and "a tie" in str(result.winner) and "a tie" in result.winner._repr_html_()


def test_a_finalist_whose_check_failed_is_never_crowned(tmp_path: Path) -> None:
    first = search(tmp_path / "a", Tools(), FakeGpus(), budget=30).winner
    gpus = FakeGpus()
    gpus.wrong_finalists = {0}
    for again in (False, True):
        result = search(tmp_path / "b", Tools(), gpus, budget=30)
        assert result.winner.config != first.config and result.winner.bf16_identical == 1.0
        assert first.config not in [entry.candidate.config for entry in result.ranked()]
        assert (gpus.compared == 1) and (result.funnel.reused > 0) is again
    gpus = FakeGpus()
    gpus.wrong_finalists = {0, 1, 2}
    result = search(tmp_path / "c", Tools(), gpus, budget=30)
    assert result.pick is None and "incorrect removed" in result.why_no_pick()


def test_a_winner_whose_code_races_gives_way_to_the_next(tmp_path: Path) -> None:
    first = search(tmp_path / "a", Tools(), FakeGpus(), budget=30).winner
    tools = Tools()
    tools.check = lambda config: (
        {"status": "incorrect", "reason": "race: 2 waves"} if config == first.config else {})  # fmt: skip
    result = search(tmp_path / "b", tools, FakeGpus(), budget=30)
    assert result.winner.config != first.config and tools.races == [True, True]


def test_a_comparison_that_fails_leaves_the_first_times_and_a_tie(tmp_path: Path) -> None:
    gpus = FakeGpus()
    gpus.comparison_fails = "no answer within 600 s"
    result = search(tmp_path, Tools(), gpus, budget=20)
    assert result.winner.tie and result.comparison == {"failed": "timeout: no answer within 600 s"}
    assert result.winner.latency_us == min(entry.latency_us for entry in result.ranked())
    assert not [t for t in rows(tmp_path) if t.regime == "leaderboard finals"]


def test_gpu_asked_for_where_there_is_none_is_one_sentence(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match=r"backend='gpu': no GPU.*allowed here: auto, emulator"):
        tune.tune_shape(SMALL, backend="gpu", out=tmp_path)


def test_finalists_lead_as_their_comparison_placed_them(tmp_path: Path) -> None:
    gpus = FakeGpus(separate=False)
    gpus.slower_us = 3  # alternately timed calls read more than a first look: nothing else may move ahead
    for again in (False, True):
        result = search(tmp_path, Tools(), gpus, budget=30)
        ranked = result.ranked()
        assert [entry.place for entry in ranked[:4]] == [0, 1, 2, None]
        assert (result.funnel.reused > 0) is again
        assert ranked[0].candidate.config == result.winner.config
        assert ranked[0].latency_us > ranked[3].latency_us
        said = str(result)
        assert "measured, finalist" in said and "measured, first look" in said
        assert "an empty kernel 2.50" in said and "a tie" in said and "on Test GPU" in said
        assert result.winner.interval == pytest.approx(
            (result.winner.latency_us - 0.1, result.winner.latency_us + 0.1))  # fmt: skip


def test_the_words_of_a_search_are_those_of_its_target() -> None:
    kernels = {"hopper_quantize": {"vgprs": 32}, "hopper_gemm": {"vgprs": 254, "lds_bytes": 4096}}
    assert tune.main_kernel(kernels)["vgprs"] == 254
    assert tune.screen({"gemm": {"spilled_vgprs": 999}}, "sm_90", None) == ""
    assert "registers a thread" in resources_in_words(kernels["hopper_gemm"], "sm_90")
    assert "VGPRs" in resources_in_words(kernels["hopper_gemm"], "gfx950")
    words = tune.Funnel(arch="sm_90", device="Test GPU").words()
    assert not any("gfx950" in said or "emulator" in said or "MFMA" in said for said in words.values())
    assert "gfx950" in tune.Funnel().words()["compiled"]


def test_away_from_home_every_variants_default_goes_first() -> None:
    shape = Shape(256, 3072, 1536)
    names = tune.searchable_variants("sm_90")
    first = tune.enumerate_space(shape, names, "sm_90").candidates[: len(names)]
    assert {candidate.variant for candidate in first} == set(names)
    assert all(c.config == default_config(c.variant, shape, "sm_90") for c in first)


# -- several shapes -------------------------------------------------------------------------------------------------


def test_several_shapes_are_searched_in_turn_and_compared_at_once(tmp_path: Path) -> None:
    gpus = FakeGpus()
    other = Shape(32, 4096, 512)
    with Tools().in_place():
        results = tune.tune_shapes([SMALL, other, SMALL], budget=10, out=tmp_path, pool=gpus)
    assert [result.shape for result in results] == [SMALL, other] and gpus.compared == 2
    assert all(result.winner is not None and len(result.entries) == 10 for result in results)
    with pytest.raises(ValueError, match="shapes is empty"):
        tune.tune_shapes([], out=tmp_path)


def test_a_pool_of_cpus_finds_what_this_process_finds(tmp_path: Path) -> None:
    picks = []
    pool = LocalPool("cpu", 1)
    try:
        for name, given in (("here", None), ("pool", pool)):
            result = tune.tune_shape((8, 96, 512), variants=["fused_rowmajor"], budget=3, verify=1, pool=given,
                                     backend="emulator", out=tmp_path / name)  # fmt: skip
            picks.append((result.pick.config, result.pick.predicted_us))
            assert all(entry.facts and entry.counts for entry in result.ranked())
    finally:
        pool.close()
    assert picks[0] == picks[1]


def test_rows_that_hold_retired_axes_are_resumed_or_shown_and_never_rebuilt(tmp_path: Path) -> None:
    first = search(tmp_path, Tools(), budget=12)
    (path,) = records.find_trial_files(tmp_path)
    old = []
    for number, trial in enumerate(records.read_trials(path)[0]):
        retired = dict(RETIRED)
        if number == 0:  # an axis that is gone was not at its default: another config, and another code
            retired["reduce_form"] = "flat"
            trial = replace(trial, config_id=GemmConfig.from_dict({**trial.config, **retired}).config_id)
        old.append(replace(trial, config={**trial.config, **retired}))
    path.write_text("".join(trial.to_line() for trial in old))
    found, warnings = records.read_trials(path)
    assert found == old and warnings == [] and "reduce_form=flat" in str(found[0])
    tools = Tools()
    again = search(tmp_path, tools, budget=12)
    assert len(tools.looked) == 1 and again.pick.config == first.pick.config


def test_rows_without_resources_are_looked_at_again(tmp_path: Path) -> None:
    """Counts alone do not say whether a kernel passes the screens."""
    search(tmp_path, Tools(), budget=12)
    (path,) = records.find_trial_files(tmp_path)
    bare = [replace(trial, resources=None) for trial in records.read_trials(path)[0] if trial.counts is not None]
    assert len(bare) == 12
    path.write_text("".join(trial.to_line() for trial in bare))
    tools = Tools()
    result = search(tmp_path, tools, budget=12)
    assert result.pick is not None and len(tools.looked) == 12 and result.funnel.left["ranked"] == 12
