"""The tables of notebooks 01 and 02 hold what their sources hold."""

import torch

from mxfp4lab.aiter.verdict import ISSUE_974
from mxfp4lab.notebook import tables
from mxfp4lab.shapes import Shape
from mxfp4lab.task import check_output
from mxfp4lab.tours.answerers import torch_answerer
from mxfp4lab.tours.padding import pad_model
from mxfp4lab.tours.proof import bf16_sweep, compare
from mxfp4lab.tours.shuffle_tour import scale_agreement, stride_trap
from mxfp4lab.tours.steps import element_steps, scale_step


def well_formed(table):
    headers, rows, caption = table
    assert rows
    assert isinstance(caption, str)
    assert all(len(row) == len(headers) for row in rows)
    return rows


def test_shuffle_tables():
    assert well_formed(tables.agreements([scale_agreement(256, 8)]))[0][1:] == [1, 2048, 0, 0, 0]
    assert well_formed(tables.mfma_forms()) == [["16x16x128", 4, 1, 256, 256], ["32x32x64", 4, 2, 64, 256]]
    assert well_formed(tables.traps(stride_trap(Shape(4, 64, 1664))))[0][1] == 0
    assert well_formed(tables.paddings([pad_model(Shape(4, 128, 512), "127")]))[0][-3:] == [100.0, 0, 512]
    assert well_formed(tables.small_m([(4, 512), (32, 512)])) == [["4x512", 64, 462, 56], ["32x512", 512, 511, 0]]


def test_quantization_tables():
    block = torch.tensor(ISSUE_974)
    assert well_formed(tables.scale_step(scale_step(block)))[0][-2:] == [-1, 126]
    assert well_formed(tables.element_steps(element_steps(block)))[6][3:7] == ["1 .. 1.5", "tie", 10, 11]
    modes = {row[0]: row[1:] for row in well_formed(tables.scale_modes())}
    assert modes["1.74219"] == [125, 125, 126, 126]
    ends = {row[0]: row[3:5] for row in well_formed(tables.range_ends())}
    assert ends["zero"] == [0, 0]
    assert ends["last below the carry"] == [252, 7]
    assert ends["first of byte 254"] == [254, 4]


def test_answers_and_differences():
    found = compare(bf16_sweep([0]), {"a": torch_answerer(), "b": torch_answerer(), "old": torch_answerer("half_away")})
    rows = well_formed(tables.answers([found]))
    assert [row[2:] for row in rows] == [[1, "a, b"], [2, "old"]]
    assert "on ties" in well_formed(tables.differences([found]))[0][4]
    same = compare(bf16_sweep([0]), {"a": torch_answerer(), "b": torch_answerer()})
    assert tables.differences([same])[1:] == ([], "Nothing differs anywhere.")


def test_checks():
    ref = torch.ones(2, 2, dtype=torch.bfloat16)
    rows = well_formed(tables.checks({"right": check_output(ref, ref), "wrong": check_output(2 * ref, ref)}))
    assert rows == [["right", 0, 0.0, "yes"], ["wrong", 4, 1.0, "no"]]


def test_a_data_frame_shows_its_text_in_full_and_a_repeated_label_once() -> None:
    import pandas as pd

    from mxfp4lab.notebook import FrameTable

    said = "a sentence that pandas would cut off in the middle, since it shows fifty characters of a cell"
    frame = pd.DataFrame(
        [["s", "one", 1 / 3, said], ["s", "two", float("nan"), ""]], columns=["shape", "config", "us", "why"]
    )
    table = FrameTable(frame.set_index(["shape", "config"]), "modelled")
    assert table.headers == ["shape", "config", "us", "why"]
    assert table.rows == [["s", "one", "0.333", said], ["", "two", "", ""]]
    assert said in table._repr_html_() and said in str(table) and str(table).endswith("modelled")
    assert FrameTable(frame).headers == ["shape", "config", "us", "why"]
