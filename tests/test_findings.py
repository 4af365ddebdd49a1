"""What a reading notebook keeps, and the explorer without a person."""

import json

import matplotlib
import pytest

from mxfp4lab.notebook.explorer import shuffle_explorer
from mxfp4lab.notebook.findings import Findings
from mxfp4lab.notebook.frames import FrameTable

matplotlib.use("Agg")


def test_facts_verdicts_and_figures_end_in_one_file(tmp_path, capsys):
    import matplotlib.pyplot as plt

    find = Findings(tmp_path, "01_shuffle")
    assert find.fact("positions", 7) == 7
    find.table(["a", "b"], [["x", 1]], "a caption")
    find.verdict("padding is harmless", False, "3 of 4 outputs refused", "emulated")
    fig, ax = plt.subplots()
    ax.plot([0, 1])
    find.figure(fig, "line", "A line.")
    path = find.write()
    content = json.loads(path.read_text())
    assert content["facts"] == {"positions": 7}
    assert content["verdicts"][0] == {
        "claim": "padding is harmless", "holds": False, "because": "3 of 4 outputs refused", "evidence": "emulated",
    }  # fmt: skip
    assert content["figures"] == [{"file": "line.png", "caption": "A line."}]
    assert (path.parent / "line.svg").exists()
    said = capsys.readouterr().out
    assert "a caption" in said
    assert "not so" in said
    assert "1 facts, 1 verdicts, 1 figures" in said


def test_a_fact_that_json_cannot_hold_is_refused_at_once(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        Findings(tmp_path, "x").fact("bad", float("nan"))


def test_explorer_without_a_person_is_a_table():
    shown = shuffle_explorer(256, 56, 832, [(37, 5), (0, 0)], live=False)
    assert "1878" in repr(shown)
    assert "<table" in shown._repr_html_()
    assert len(shown.rows) == 4
    assert 'aria-label="scale (37, 5) in its tile: byte 86 of 256"' in shown._repr_html_()
    assert "lane 21, byte 2" in repr(shown)


def test_explorer_with_a_person_follows_both_inputs():
    box = shuffle_explorer(256, 56, 832, [(0, 0)], live=True)
    (row, col, offset), html = box.children[0].children, box.children[1]
    row.value, col.value = 37, 5
    assert "1878" in html.value
    offset.value = 4321
    assert "who sits" in html.value
    assert "<td" in html.value


def test_a_data_frame_shows_its_text_in_full_and_a_repeated_label_once() -> None:
    import pandas as pd

    said = "a sentence that pandas would cut off in the middle, since it shows fifty characters of a cell"
    frame = pd.DataFrame(
        [["s", "one", 1 / 3, said], ["s", "two", float("nan"), ""]], columns=["shape", "config", "us", "why"]
    )
    table = FrameTable(frame.set_index(["shape", "config"]), "modelled")
    assert table.headers == ["shape", "config", "us", "why"]
    assert table.rows == [["s", "one", "0.333", said], ["", "two", "", ""]]
    assert said in table._repr_html_() and said in str(table) and str(table).endswith("modelled")
    assert FrameTable(frame).headers == ["shape", "config", "us", "why"]
