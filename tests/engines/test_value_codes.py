"""Values as integers: codes of floats are those of Polars' own steps, whatever the value and however long the codes."""

import warnings

import numpy as np
import polars as pl
import pytest

from dp_polars._engines.polars.value_codes import value_codes
from dp_polars._engines.request import LIMIT, ValueColumn

INF = float("inf")
HOSTILE = [
    0.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    5e-324,
    1e308,
    -1e308,
    INF,
    -INF,
    float("nan"),
    None,
    2.0**53 + 2,
    1e18,
]
COLUMNS = [
    ValueColumn(place=0, low=-819200, high=819200, exponent=-14, offset=50.0),
    ValueColumn(place=0, low=0, high=(1 << 31) - 2, exponent=0),
    ValueColumn(place=0, low=0, high=(1 << 31) - 1, exponent=0),  # the codes and their distances need more than 32 bits
    ValueColumn(place=0, low=-(1 << 31), high=0, exponent=1),
    ValueColumn(place=0, low=-(1 << 30), high=1 << 30, exponent=-3, offset=-1024.0),
    ValueColumn(place=0, low=-LIMIT, high=LIMIT, exponent=-300),
    ValueColumn(place=0, low=5, high=9, exponent=4, offset=16.0),
]


def by_polars(column, values):
    """Return the codes as Polars computes them, step by step."""
    steps = (values.cast(pl.Float64).fill_nan(None) - float(column.offset)) * 2.0**-column.exponent
    codes = steps.round().clip(float(column.low), float(column.high)).cast(pl.Int64)
    return codes.fill_null(column.low - 1)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("dtype", [pl.Float64, pl.Float32])
def test_codes_of_floats_are_rounded_clipped_and_complete(column, dtype):
    random = np.random.default_rng(5)
    drawn = [*random.normal(0, 100, 200), *(random.integers(-400, 400, 200) / 2), *(random.normal(0, 1e9, 100))]
    values = pl.Series("value0", [*HOSTILE, *drawn]).cast(dtype)
    for given in (values, values.drop_nulls(), values.drop_nulls().drop_nans(), values.clear()):
        expected = by_polars(column, given)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning about an overflow would tell something about a row
            found = {
                short: given.to_frame().select(value_codes(column, given.dtype, 0, short=short)).to_series()
                for short in (False, True)
            }
        assert found[False].dtype == pl.Int64
        for codes in found.values():
            assert codes.to_list() == expected.to_list()
        if found[True].dtype == pl.Int32:
            numbers = found[True].to_numpy()
            distances = numbers - column.low  # of 32 bits, like the numbers
            assert distances.dtype == np.int32
            assert distances.tolist() == [number - column.low for number in expected.to_list()]


def test_codes_are_short_only_where_all_distances_are():
    frame = pl.DataFrame({"value0": [1.0]})
    kinds = [frame.select(value_codes(column, pl.Float64(), 0, short=True)).dtypes[0] for column in COLUMNS]
    assert [kind == pl.Int32 for kind in kinds] == [True, True, False, False, False, False, True]
