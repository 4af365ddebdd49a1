"""What a search shows while it runs and afterwards: live card, figures, the pick inside the notebook's file."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import matplotlib.pyplot as plt
import pytest
from tune_fakes import SMALL, FakeGpus, Kernel, Tools, search

from mxfp4lab import notebook, plots, records, tune
from mxfp4lab.notebook.live import LiveCard, SearchView, best_words, scatter
from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.plots import tune as pictures
from mxfp4lab.records import LaunchCounts

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _the_style_of_the_workbook() -> None:
    plots.use_style()


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tune.TuneResult:
    return search(tmp_path_factory.mktemp("search"), Tools(), budget=80)


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> tune.TuneResult:
    tools = Tools()
    tools.kernel = lambda config: Kernel(spilled=99)
    return search(tmp_path_factory.mktemp("nothing"), tools, budget=3)


def test_the_live_view_is_redrawn_as_the_search_goes_on_and_at_its_end(tmp_path: Path) -> None:
    drawn: list[LiveCard] = []
    view = SearchView(live=True, publish=drawn.append)
    search(tmp_path, Tools(), **view.hooks)
    assert len(drawn) >= 2
    assert ": done" in drawn[-1].html and "40 tried" in drawn[-1].text
    assert "modelled" in drawn[-1].text, "a time never stands without its kind"


def test_without_a_watcher_the_log_is_short(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    view = SearchView(live=False)
    search(tmp_path, Tools(), **view.hooks)
    lines = capsys.readouterr().out.splitlines()
    assert 2 <= len(lines) <= 12 and any("compile 30/30" in line for line in lines)


def test_the_live_scatter_is_one_mark_per_config_in_the_themes_ink(result: tune.TuneResult) -> None:
    drawing = scatter(result.ranked())
    svg = ElementTree.fromstring(drawing[: drawing.index("</svg>") + 6])
    circles = [node for node in svg.iter() if node.tag.endswith("circle")]
    assert len(circles) == len(result.ranked()) + 1
    assert "var(--jp-ui-font-color1" in drawing and scatter([]) == ""


def test_before_anything_is_ranked_the_live_card_says_so(nothing: tune.TuneResult) -> None:
    assert best_words(nothing) == "nothing ranked yet"
    assert "spills" in LiveCard(nothing, "compile 3/3").html


@pytest.mark.parametrize("draw", ["ranking", "landscape", "axis_effects"])
def test_figures_draw_results_and_say_when_there_is_nothing(draw: str, result, nothing) -> None:
    _, axes = plt.subplots(1, 2)
    assert getattr(pictures, draw)(axes[0], result) is axes[0]
    assert getattr(pictures, draw)(axes[1], nothing) is axes[1]
    assert axes[1].texts, "an empty figure names its reason"
    if draw != "axis_effects":
        labels = axes[0].get_xlabel() + axes[0].get_ylabel()
        assert "modelled" in labels and "us" in labels
    plt.close("all")


def test_the_ranking_has_a_row_per_plan_and_says_above_it_what_is_not_told_apart(result: tune.TuneResult) -> None:
    ranked, distinct = result.ranked(), result.distinct()
    assert sum(count for _, count in distinct) == len(ranked)
    assert len({(entry.code) for entry, _ in distinct}) == len(distinct)
    table = result.table(len(ranked))
    for rank, entry, _ in table.top:
        equal = [other for other, _ in distinct if other.time_us == entry.time_us]
        place = [other for other, _ in distinct].index(equal[0])
        assert rank == f"{1 + place}{'=' * (len(equal) > 1)}"
    low, high = ranked[0].interval
    inside = sum(low <= entry.time_us <= high for entry in ranked)
    assert f"{inside} of {len(ranked)} are not told apart" in table.ties
    for form in (str(table), html.unescape(table._repr_html_())):
        assert form.index(table.ties) < form.index("VALU/wave")
    assert ("=:" in table.ties) == any(rank.endswith("=") for rank, _, _ in table.top)


def test_configs_with_the_same_code_share_a_row(tmp_path: Path) -> None:
    tools = Tools()
    count = tools.count
    tools.count = lambda compiled: replace(count(compiled), launches=(LaunchCounts("gemm", 9, 4, valu_per_wave=200.0),))
    found = search(tmp_path, tools, budget=40).distinct()
    assert len(found) < 20 and max(count for _, count in found) > 2
    assert "more configs with the same code" in str(search(tmp_path, Tools(), budget=40).table()) or len(found) > 1


def test_a_first_look_shares_no_rank_with_a_finalist(tmp_path: Path) -> None:
    table = search(tmp_path, Tools(), FakeGpus(), budget=12).table(12)
    finals = [rank for rank, entry, _ in table.top if entry.place is not None]
    looks = [rank for rank, entry, _ in table.top if entry.place is None]
    assert finals and looks and not set(finals) & set(looks)


def test_the_ranking_shows_every_variant_once_at_least(result: tune.TuneResult) -> None:
    shown = pictures.notable(result, rows=3)
    assert {e.candidate.variant for e, _ in shown} == {e.candidate.variant for e in result.ranked()}
    assert [place for _, place in shown] == sorted(place for _, place in shown)
    assert any(entry.candidate.origins for entry, _ in shown)


def test_the_funnel_names_what_was_not_there(result: tune.TuneResult, tmp_path: Path) -> None:
    for form in (str(result.funnel), html.unescape(result.funnel._repr_html_())):
        assert "not available here" in form and "hopper (runs on sm_90 only)" in form
        assert "reference, quant_shuffle_asm (aiter's prebuilt GEMM" in form
    asked = search(tmp_path, Tools(), budget=3, variants=("fused_rowmajor",))
    assert "not available" not in str(asked.funnel), "nothing else was asked for"


def test_effects_find_the_axes_that_the_made_up_cost_depends_on(result: tune.TuneResult) -> None:
    found = pictures.effects(result)
    shares = {name: share for name, share, _ in found}
    # Of num_warps, block_n, block_k and num_stages the cost knows; of these it knows nothing.
    assert shares and {"block_n", "block_k", "num_warps", "num_stages"} & set(shares)
    assert not {"cache_modifier", "xcd_remap"} & set(shares)
    assert all(0 < share <= 1 for share in shares.values())
    assert all(value == getattr(result.pick.config, name) for name, _, value in found), "the pick's own values"


def test_a_saved_figure_is_the_same_file_every_time(tmp_path: Path, result: tune.TuneResult) -> None:
    plots.use_style()
    for folder in ("a", "b"):
        figure, ax = plt.subplots()
        pictures.axis_effects(ax, result)
        plots.save(figure, tmp_path / folder, "best")
        plt.close(figure)
    for name in ("best.svg", "best.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with pytest.raises(ValueError, match="plain file name"):
        plots.save(figure, tmp_path, "../best")


def test_the_pick_bundle_holds_data_text_and_html(result: tune.TuneResult) -> None:
    shown = notebook.PickBundle([result.pick])._repr_mimebundle_()
    data = json.loads(json.dumps(shown[tune.PICK_MIME]))
    assert data["picks"][0]["config"] == result.pick.config.to_dict()
    for form in ("text/plain", "text/html"):
        assert result.pick.config.config_id in shown[form] and "not a measurement" in shown[form]


def test_a_pick_that_is_missing_stops_a_notebook_with_its_reason(nothing: tune.TuneResult) -> None:
    with pytest.raises(tune.NoPickError, match="spills removed 3") as caught:
        nothing.require_pick()
    assert caught.value._render_traceback_() == [f"NoPickError: {caught.value}"]


def test_a_winner_figure_says_measured(tmp_path: Path) -> None:
    measured = search(tmp_path, Tools(), FakeGpus(), budget=20)
    _, ax = plt.subplots()
    pictures.ranking(ax, measured)
    assert ax.get_xlabel() == "time, us (measured)" and "winner" in ax.get_title(loc="left")
    assert "measured" in scatter(measured.ranked()) and "modelled" not in scatter(measured.ranked())
    plt.close("all")


def test_recorded_times_are_shown_with_their_device_and_never_break(tmp_path: Path) -> None:
    device = tmp_path / "gpu"
    device.mkdir()
    assert "none are recorded" in str(records.recorded_times(SMALL, folder=tmp_path))
    measured = search(tmp_path / "out", Tools(), FakeGpus(), budget=20)
    (log,) = measured.folder.glob("trials-*.jsonl")
    (device / "trials.jsonl").write_bytes(log.read_bytes())
    times = records.recorded_times(SMALL, folder=tmp_path).times
    assert {time.device for time in times} == {"Test GPU"}
    assert len({(time.what, time.regime) for time in times}) == len(times) >= 3, "the best of each; regimes apart"
    assert records.recorded_times(SMALL, tmp_path / "out", tmp_path / "none").times == times
    timing = {"p50_us": 7.62, "p20_us": 7.5, "p80_us": 7.7, "floor_us": 2.8}
    finals = {str(SMALL): {"plans": [], "timings": {"mm_bf16": timing}, "checks": {"mm_bf16": None}}}
    for text in ("[", "[]", "{}", json.dumps({str(SMALL): {"timings": {"0": timing}}}), "null"):
        (device / "finals.json").write_text(text)
        assert records.recorded_times(SMALL, folder=tmp_path).times == times, (
            "a file that is not as expected is passed over"
        )
    (device / "finals.json").write_text(json.dumps(finals))
    shown = records.recorded_times(SMALL, folder=tmp_path)
    for form in (str(shown), shown._repr_html_()):
        assert "7.62" in form and "Test GPU" in form and "measured" in form and "another product" in form
    finals[str(SMALL)] |= {"abouts": {"mm_bf16": "no quantization"}, "missing": {"other": "OutOfResources: <shared>"}}
    (device / "finals.json").write_text(json.dumps(finals))
    shown = records.recorded_times(SMALL, folder=tmp_path)
    assert "mm_bf16: no quantization" in str(shown) and "other does not run on Test GPU: OutOfResources" in str(shown)
    page = shown._repr_html_()
    assert "no quantization" in page and "other does not run" in page and "&lt;shared&gt;" in page


def test_the_repositorys_own_records_can_be_read() -> None:
    for folder in (REPO_ROOT / "data" / "recorded").glob("*/"):
        trials, warnings = records.read_trials(folder / "trials.jsonl")
        assert trials and warnings == []


def test_where_code_is_not_counted_the_landscape_shows_registers(tmp_path: Path) -> None:
    found = search(tmp_path, Tools(), FakeGpus(arch="sm_90"), budget=12)
    _, ax = plt.subplots()
    pictures.landscape(ax, found)
    assert "registers" in ax.get_xlabel()
    assert sum(len(points.get_offsets()) for points in ax.collections) > len(found.ranked()), "and the star"
    plt.close(ax.figure)
