"""Notebook parameters by type, unknown names, the run card, progress that keeps quiet."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxfp4lab import display, notebook
from mxfp4lab.notebook import LiveView, ParameterError, Progress, RunCard, kinds, read_parameters
from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.shapes import Shape

READABLE = [
    (kinds.shape(), "64,7168,2048", Shape(64, 7168, 2048)),
    (kinds.shape(), "64x7168x2048", Shape(64, 7168, 2048)),
    (kinds.shape(), "(64, 7168, 2048)", Shape(64, 7168, 2048)),
    (kinds.shape(), "[64,7168,2048]", Shape(64, 7168, 2048)),
    (kinds.shape(), [64, 7168, 2048], Shape(64, 7168, 2048)),
    (kinds.whole(1, 500), 200.0, 200),
    (kinds.whole(1, 500), "2e2", 200),
    (kinds.whole(1, 500), " 200 ", 200),
    (kinds.whole(0, 2**63 - 1), str(2**63 - 1), 2**63 - 1),
    (kinds.whole(1, 8, auto=True), "auto", None),
    (kinds.whole(1, 8, auto=True), None, None),
    (kinds.switch(), "false", False),
    (kinds.switch(), "True", True),
    (kinds.switch(), True, True),
    (kinds.switch(), 0, False),
    (kinds.switch(), 1.0, True),
    (kinds.choice(["auto", "gpu"]), " gpu ", "gpu"),
    (kinds.names(["a", "b", "c"]), "all", ("a", "b", "c")),
    (kinds.names(["a", "b", "c"]), "c, a,c", ("c", "a")),
    (kinds.names(["a", "b", "c"]), "['a', 'b']", ("a", "b")),
    (kinds.names(["a", "b", "c"]), ["b"], ("b",)),
    (kinds.folder(), "outputs", REPO_ROOT / "outputs"),
    (kinds.folder(), "/tmp/x", Path("/tmp/x")),
]

REFUSED = [
    (kinds.shape(), 64),
    (kinds.shape(), 64.0),
    (kinds.shape(), "64,7168"),
    (kinds.shape(), "64,7168,2048,1"),
    (kinds.shape(), "64,7100,2048"),
    (kinds.shape(), "64,7168,2050"),
    (kinds.shape(), "-64,7168,2048"),
    (kinds.shape(), None),
    (kinds.whole(1, 500), 2.5),
    (kinds.whole(1, 500), "two"),
    (kinds.whole(1, 500), True),
    (kinds.whole(1, 500), 0),
    (kinds.whole(1, 500), 501),
    (kinds.whole(1, 500), math.inf),
    (kinds.whole(1, 500), math.nan),
    (kinds.whole(1, 500), "1_0"),
    (kinds.whole(1, 500), "9" * 5000),
    (kinds.whole(1, 500), None),
    (kinds.whole(1, 500), [3]),
    (kinds.switch(), "maybe"),
    (kinds.switch(), 2),
    (kinds.switch(), None),
    (kinds.switch(), ""),
    (kinds.choice(["auto", "gpu"]), "GPUs"),
    (kinds.choice(["auto", "gpu"]), 1),
    (kinds.names(["a", "b"]), "a,d"),
    (kinds.names(["a", "b"]), ""),
    (kinds.names(["a", "b"]), []),
    (kinds.names(["a", "b"]), 3),
    (kinds.names(["a", "b"]), [["a"]]),
    (kinds.folder(), ""),
    (kinds.folder(), 3),
    (kinds.folder(), "a\0b"),
    (kinds.folder(), __file__),
]


@pytest.mark.parametrize(("kind", "given_value", "expected"), READABLE)
def test_a_value_is_read_in_every_form_a_shell_may_give_it(kind, given_value, expected) -> None:
    value = kind.read("it", given_value)
    assert value == expected and type(value) is type(expected)


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_a_value_of_another_type_is_refused_by_name_and_what_is_allowed(kind, value) -> None:
    with pytest.raises(ParameterError) as caught:
        kind.read("it", value)
    message = str(caught.value)
    assert "it" in message and kind.allowed in message and "\n" not in message and len(message) < 700


@settings(max_examples=150, deadline=None)
@given(
    value=st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30), st.binary(max_size=5),
        st.lists(st.one_of(st.integers(), st.text(max_size=5)), max_size=4), st.dictionaries(st.text(), st.integers()),
    )
)  # fmt: skip
def test_no_value_gets_anything_but_a_value_or_a_parameter_error(value) -> None:
    for kind in (
        kinds.shape(), kinds.whole(1, 9, auto=True), kinds.switch(), kinds.choice(["a"]),
        kinds.names(["a"]), kinds.text("[a-z]+", "lower-case letters"),
    ):  # fmt: skip
        try:
            kind.read("it", value)
        except ParameterError as error:
            assert str(error)


DECLARED = {"shape": kinds.shape(), "smoke": kinds.switch(), "budget": kinds.whole(1, 999)}
DEFAULTS = 'shape: str = "4,2880,512"  # M,N,K\nsmoke = False\nbudget = 10'


def after(*cells: str) -> dict:
    """The namespace that these cells leave."""
    space: dict = {}
    for cell in cells:
        exec(cell, space)
    return space


def test_injected_values_win_over_defaults() -> None:
    cells = [DEFAULTS, '# Parameters\nshape = "64,7168,2048"\nsmoke = "true"\n']
    values = read_parameters(after(*cells), DECLARED, cells)
    assert values == {"shape": Shape(64, 7168, 2048), "smoke": True, "budget": 10}


def test_a_misspelt_parameter_stops_with_the_known_names() -> None:
    cells = [DEFAULTS, '# Parameters\nshpae = "64,7168,2048"\n']
    with pytest.raises(
        ParameterError, match=r"unknown parameter 'shpae' \(did you mean 'shape'\?\).*shape, smoke, bud"
    ):
        read_parameters(after(*cells), DECLARED, cells)


def test_values_injected_above_untagged_defaults_are_not_lost_in_silence() -> None:
    cells = ['# Parameters\nshape = "64,7168,2048"\n', DEFAULTS]
    with pytest.raises(ParameterError, match="tagged 'parameters'"):
        read_parameters(after(*cells), DECLARED, cells)


def test_a_person_may_run_the_defaults_again_after_an_injected_cell() -> None:
    cells = [DEFAULTS, '# Parameters\nshape = "64,7168,2048"\n', DEFAULTS]
    assert read_parameters(after(*cells), DECLARED, cells)["shape"] == Shape(4, 2880, 512)


def test_a_parameter_that_is_not_set_is_named() -> None:
    with pytest.raises(ParameterError, match="budget is not set"):
        read_parameters(after("shape = '4,2880,512'\nsmoke = 0"), DECLARED)


def test_nan_given_by_papermill_is_refused() -> None:
    cells = [DEFAULTS, "# Parameters\nbudget = float('nan')\n"]
    with pytest.raises(ParameterError, match="budget=nan"):
        read_parameters(after(*cells), DECLARED, cells)


def test_a_parameter_error_shows_one_line_in_a_notebook() -> None:
    assert ParameterError("x")._render_traceback_() == ["ParameterError: x"]


def test_run_card_says_the_same_as_html_and_as_text() -> None:
    card = RunCard(
        title="tune <b>",
        parameters={"shape": Shape(64, 7168, 2048), "variants": ("a", "b"), "out": REPO_ROOT / "outputs"},
        environment={"device": "", "packages": {"triton": "3.9.0"}, "knobs": {"OPTIMIZE_EPILOGUE": "1"}, "git": None},
        folder=REPO_ROOT / "outputs",
        help={"shape": "M,N,K of the GEMM"},
    )
    shown = card._repr_html_()
    for fact in ("64x7168x2048", "a, b", "triton 3.9.0", "OPTIMIZE_EPILOGUE=1", "outputs", "nothing is measured"):
        assert fact in str(card) and fact in shown
    assert "<b>" not in shown and "tune &lt;b&gt;" in shown
    assert str(REPO_ROOT) not in str(card)


def test_progress_prints_few_lines_and_always_the_last() -> None:
    now = [0.0]
    out = io.StringIO()
    progress = Progress(every=10, out=out, clock=lambda: now[0])
    for done in range(1, 101):
        now[0] += 0.5
        progress("compile", done, 100, "2 screened")
    lines = out.getvalue().splitlines()
    assert len(lines) == 5 and lines[-1].endswith("compile 100/100, 2 screened")


def test_live_view_redraws_at_most_twice_a_second_and_at_the_end() -> None:
    now = [0.0]
    drawn: list[int] = []
    view = LiveView(live=True, clock=lambda: now[0], publish=drawn.append)
    for step in range(100):
        now[0] = step * 0.01
        view.show(lambda step=step: step)
    view.show(lambda: -1, last=True)
    assert drawn == [0, 50, -1]
    silent = LiveView(live=False, publish=drawn.append)
    assert not silent.show(lambda: 1 / 0, last=True)


def test_is_live_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXFP4LAB_LIVE", "1")
    assert notebook.is_live()
    monkeypatch.setenv("MXFP4LAB_LIVE", "")
    assert not notebook.is_live()


def test_start_outside_a_notebook_prints_the_card(capsys: pytest.CaptureFixture) -> None:
    session = notebook.start({"shape": "4,2880,512", "extra": "3"}, "demo", "shape", extra=kinds.whole(1, 9))
    assert session.shape == Shape(4, 2880, 512) and session.extra == 3
    assert "demo" in capsys.readouterr().out
    with pytest.raises(ValueError, match="allowed: shape"):
        notebook.start({}, "demo", "shapes")


def test_a_path_is_shown_as_it_works_from_where_the_person_is(monkeypatch, tmp_path: Path) -> None:
    from mxfp4lab.paths import shown_path

    (tmp_path / "notebooks").mkdir()
    file = tmp_path / "outputs" / "submission.py"
    for here, shown in ((tmp_path, "outputs/submission.py"), (tmp_path / "notebooks", "../outputs/submission.py")):
        monkeypatch.chdir(here)
        assert shown_path(file) == shown
    monkeypatch.chdir("/")
    assert shown_path(file) == str(file)[1:]
    monkeypatch.chdir("/proc/self")
    assert shown_path(file) == str(file)


def test_what_is_shown_says_the_same_as_text_and_as_html() -> None:
    class Result(display.Shown):
        title = "a <result>"

        def lines(self):
            return [("verdict", display.badge("passes", "good")), display.Grid(["n", "us"], [["x", 1.5]], "modelled")]

    text, shown = str(Result()), Result()._repr_html_()
    assert text == "a <result>\n  verdict  passes\nn    us\nx  1.50\nmodelled"
    assert "a &lt;result&gt;" in shown and shown.count("<table") == 2 and "passes</span>" in shown
