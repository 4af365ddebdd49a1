"""Shapes: the accepted forms, every refusal, and the task's own cases."""

import numpy as np
import pytest

from mxfp4lab.shapes import (
    BENCHMARK_SHAPES,
    MAX_DIM,
    TASK_SHAPES,
    TEST_SHAPES,
    Shape,
    TaskCase,
    parse_shape,
    shape_errors,
    task_seed,
)


@pytest.mark.parametrize(
    "value",
    [
        "64,7168,2048",
        "64x7168x2048",
        "64X7168X2048",
        "(64, 7168, 2048)",
        "[64,7168,2048]",
        "  64 , 7168 , 2048 ",
        [64, 7168, 2048],
        (64, 7168, 2048),
        (np.int64(64), np.int32(7168), 2048),
        Shape(64, 7168, 2048),
    ],
)
def test_accepted_forms_mean_the_same_shape(value):
    shape = parse_shape(value)
    assert shape == Shape(64, 7168, 2048)
    assert all(type(v) is int for v in shape.as_tuple)
    assert str(shape) == shape.label == "64x7168x2048"


@pytest.mark.parametrize(
    "value",
    [
        64,
        64.0,
        None,
        True,
        "",
        "64",
        "64,7168",
        "64,7168,2048,1",
        "64,7168x2048",
        "64.0,7168,2048",
        "-64,7168,2048",
        "64;7168;2048",
        "64 7168 2048",
        "(64,7168,2048]",
        "m,n,k",
        "６４ 7168 2048",
        "0x40,7168,2048",
        "64,7168,2048\n; rm",
        [64, 7168],
        [64, 7168, 2048, 1],
        [64, 7168, 2048.0],
        ["64", "7168", "2048"],
        [True, 7168, 2048],
        {"m": 64, "n": 7168, "k": 2048},
        {64, 7168, 2048},
    ],
)
def test_other_forms_are_refused_with_the_accepted_ones_named(value):
    with pytest.raises(ValueError, match="shape=") as error:
        parse_shape(value)
    assert '"64,7168,2048"' in str(error.value)
    assert "list or tuple" in str(error.value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("0,7168,2048", "m=0 must be at least 1"),
        ([64, -32, 2048], "n=-32 must be at least 1"),
        ("64,7169,2048", "n=7169 must be a multiple of 32"),
        ("64,7168,2080", "k=2080 must be a multiple of 64"),
        ("64,16,64", "n=16 must be a multiple of 32"),
        (f"{MAX_DIM + 1},32,64", f"m={MAX_DIM + 1} is larger than {MAX_DIM}"),
        ("1,32,99999999999999999999", "k=99999999999999999999 is larger"),
        ("1048576,32,2048", "A (m*k) has 2147483648 elements"),
        ("1,1048576,2048", "B (n*k) has 2147483648 elements"),
        ("1048576,2048,64", "C (m*n) has 2147483648 elements"),
    ],
)
def test_dimensions_out_of_range_are_named(value, says):
    with pytest.raises(ValueError) as error:
        parse_shape(value)
    assert says in str(error.value)
    assert "accepted forms" in str(error.value)


def test_every_bad_dimension_is_named_at_once():
    assert len(shape_errors(0, 0, 0)) == 3
    assert len(shape_errors(1, 33, 65)) == 2


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, 1.5, 1), (1, 1, True), ("1", 1, 1)])
def test_the_type_itself_demands_positive_integers(bad):
    with pytest.raises(ValueError, match="positive integer"):
        Shape(*bad)


def test_task_cases_are_valid_shapes_with_the_published_seeds():
    for case in TEST_SHAPES + BENCHMARK_SHAPES:
        assert parse_shape(case.shape.as_tuple) == case.shape
    assert [str(s) for s in TASK_SHAPES] == [
        "4x2880x512",
        "16x2112x7168",
        "32x4096x512",
        "32x2880x512",
        "64x7168x2048",
        "256x3072x1536",
    ]
    assert task_seed(Shape(64, 7168, 2048)) == 687
    assert task_seed(Shape(256, 2880, 512)) == 78
    assert task_seed(Shape(1, 32, 64)) == 42
    assert str(TaskCase(Shape(64, 7168, 2048), 687)) == "m: 64; n: 7168; k: 2048; seed: 687"
