"""Public domains: which cell a row lies in, and which arguments are refused."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._many.domain import CELL, parse_domain
from dp_polars._many.histogram import histogram_of

FRAME = pl.DataFrame(
    {
        "sex": pl.Series(["f", "m", None, "f"], dtype=pl.Enum(["f", "m"])),
        "member": [True, None, False, True],
        "region": ["n", None, "s", "x"],
        "kind": pl.Series(["a", "b", None, "a"], dtype=pl.Categorical),
        "age": pl.Series([0, 10, 20, 21], dtype=pl.Int8),
        "spent": [0.0, math.nan, 20.0, None],
        "day": [dt.date(2020, 1, 1), dt.date(2020, 1, 2), None, dt.date(2021, 1, 1)],
        "tags": [["a"], [], None, ["b"]],
    }
)


def cells(words, frame=FRAME):
    domain = parse_domain(words, frame.schema, ())
    return frame.lazy().select(domain.cell()).collect()[CELL].to_list()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sex"], [0, 1, None, 0]),
        ("member", [1, None, 0, 1]),
        ({"sex": ["m", None]}, [None, 1, 0, None]),
        ({"member": [None, True]}, [1, 0, None, 1]),
        ({"region": ["n", "s", None]}, [1, 0, 2, None]),
        ({"region": [None]}, [None, 0, None, None]),
        ({"kind": ["b", "a"]}, [0, 1, None, 0]),
        ({"age": [20, 0]}, [0, None, 1, None]),
        ({"age": dp.bins([0, 10, 20])}, [0, 1, 1, None]),
        ({"age": dp.bins([0, 20])}, [0, 0, 0, None]),
        ({"age": dp.bins([0.5, 10.5, 300])}, [None, 0, 1, 1]),
        ({"spent": dp.bins([0, 0.5, 20])}, [0, None, 1, None]),
        ({"day": [dt.date(2020, 1, 2)]}, [None, 0, None, None]),
        ({"day": dp.bins([dt.date(2020, 1, 1), dt.date(2020, 1, 2), dt.date(2021, 1, 1)])}, [0, 1, None, 1]),
        ({"member": None, "sex": None}, [2, None, None, 2]),
    ],
)
def test_a_row_lies_in_its_cell(words, expected):
    assert cells(words) == expected


def test_bins_agree_with_numpy_on_a_long_frame():
    rng = np.random.default_rng(1)
    values = rng.integers(-50, 1100, 300_000)
    edges = sorted(rng.choice(1000, 200, replace=False).tolist())
    found = np.array(cells({"x": dp.bins(edges)}, pl.DataFrame({"x": values})), dtype=float)
    expected = np.where((values >= edges[0]) & (values <= edges[-1]), np.digitize(values, edges[:-1]) - 1.0, np.nan)
    np.testing.assert_array_equal(found, expected)


def test_the_domain_as_a_frame_has_its_cells_in_order_and_the_columns_types():
    words = {"sex": None, "age": dp.bins([0, 10, 20]), "spent": dp.bins([0, 1.5])}
    domain = parse_domain(words, FRAME.schema, ())
    frame = domain.frame()
    assert domain.dims == (2, 2, 1)
    assert frame.schema == domain.schema == {"sex": pl.Enum(["f", "m"]), "age": pl.Int8, "spent": pl.Float64}
    assert frame.select(domain.cell())[CELL].to_list() == list(range(4))
    assert histogram_of(pl.Series([3, 3, 0]), domain).tolist() == [[[1], [0]], [[0], [2]]]
    assert parse_domain({"age": dp.bins([0.5, 10])}, FRAME.schema, ()).schema == {"age": pl.Float64}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "A domain is"),
        ({}, "A domain is"),
        (3, "A domain is"),
        (["sex", "sex"], "each once"),
        (["nope"], "no column nope"),
        (["region"], "doesn't say its values"),
        (["spent"], "dp.bins"),
        ({"spent": [1.0, 2.0]}, "floats"),
        ({"tags": ["a"]}, "single values"),
        ({"region": []}, "The values of region"),
        ({"region": ["a", "a"]}, "without repeats"),
        ({"region": "abc"}, "The values of region"),
        ({"sex": ["f", "unknown"]}, "The values of sex"),
        ({"age": ["a"]}, "The values of age"),
        ({"region": dp.bins([0, 1])}, "bins are for"),
        ({"age": dp.bins([0, 0])}, "must rise"),
        ({"age": dp.bins([0.1, 0.2, 5])}, "must rise"),
        ({"age": dp.bins([10, 0])}, "must rise"),
        ({"age": dp.bins([0, math.inf])}, "finite"),
        ({"day": dp.bins([0, 1])}, "datetime.date"),
        ({"age": dp.bins(range(102)), "spent": dp.bins(range(10_001))}, "1,010,000 cells"),
    ],
)
def test_words_that_make_no_domain_are_refused(words, message):
    with pytest.raises(dp.InvalidParameterError, match=message):
        parse_domain(words, FRAME.schema, ())


@pytest.mark.parametrize("edges", [[], [1], "ab", 3, {"a": 1}])
def test_bins_need_edges(edges):
    with pytest.raises(dp.InvalidParameterError, match="edges"):
        dp.bins(edges)


def test_the_unit_is_no_column_of_a_domain():
    with pytest.raises(dp.InvalidParameterError, match="who is protected"):
        parse_domain(["sex"], FRAME.schema, ("sex",))
