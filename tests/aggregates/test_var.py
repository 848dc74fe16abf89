"""`var` and `std` through every door."""

import math

import polars as pl
import pytest

from tests.aggregates.doors import HUGE, Polars, charges, refused, rows, session
from tests.aggregates.frames import FRAME, OWNED
from tests.aggregates.margins import Margins

CAPS = {"max_groups": 5, "max_rows_per_group": 50}
PLAIN = OWNED.with_columns(pl.col("x").fill_nan(None))


def ask(kind, frame, aggregate, column, **words):
    given = {"epsilon": HUGE, **words}
    return rows(kind(frame, session()).ask(aggregate, column, **given), words.get("by"))


def tolerance(frame, column, count, bounds, **words):
    return Margins(Polars(frame, session()).plan("var", column, bounds=bounds, epsilon=HUGE, **words)).spread(count)


@pytest.mark.slow
@pytest.mark.parametrize(("by", "ddof"), [(None, 0), ("region", 1)])
@pytest.mark.parametrize(("column", "bounds"), [("n", (-5, 20)), ("x", (0, 25))])
def test_it_equals_the_plain_variance_of_clipped_values(kind, by, ddof, column, bounds):
    found = ask(kind, FRAME, "var", column, by=by, bounds=bounds, ddof=ddof, **CAPS)
    spread = pl.col(column).clip(*bounds).var(ddof)
    plain = PLAIN.drop_nulls(column).group_by(by or pl.lit(0).alias("all")).agg(spread, pl.len())
    expected = {key: value for key, value, _ in plain.iter_rows()}
    near = tolerance(FRAME, column, plain["len"].min(), bounds, by=by, **CAPS)
    assert near < 1
    assert (found if by else {0: found}) == {key: pytest.approx(value, abs=near) for key, value in expected.items()}


@pytest.mark.slow
def test_a_standard_deviation_is_the_root_of_the_variance(kind):
    """|root(v + e) - root(v)| <= e / root(v)."""
    count, variance = PLAIN["x"].count(), PLAIN["x"].clip(0, 25).var()
    near = tolerance(FRAME, "x", count, (0, 25)) / math.sqrt(variance)
    assert ask(kind, FRAME, "std", "x", bounds=(0, 25)) == pytest.approx(math.sqrt(variance), abs=near)


@pytest.mark.slow
def test_rows_beyond_the_cap_are_scaled_down(kind):
    """One unit has 990 rows of 0, and ten units have one row of 10: under a cap of 10, each value has 10 rows."""
    frame = pl.DataFrame({"who": [0] * 990 + list(range(1, 11)), "v": [0] * 990 + [10] * 10})
    near = tolerance(frame, "v", 20, (0, 10), max_rows_per_group=10)
    found = ask(kind, frame, "var", "v", bounds=(0, 10), max_rows_per_group=10, ddof=0)
    assert found == pytest.approx(25, abs=near)


@pytest.mark.slow
def test_a_constant_column_hardly_varies(kind):
    """A variance below 0 is shown as 0, so its root is a number."""
    frame = pl.DataFrame({"who": range(200), "v": [3] * 200})
    near = tolerance(frame, "v", 200, (0, 10), max_rows_per_group=1)
    found = ask(kind, frame, "var", "v", bounds=(0, 10), max_rows_per_group=1)
    assert 0 <= found <= near
    assert 0 <= ask(kind, frame, "std", "v", bounds=(0, 10), max_rows_per_group=1) <= math.sqrt(near)


@pytest.mark.slow
@pytest.mark.parametrize("values", [[], [4.0], [4.0, None], [float("nan"), None]], ids=str)
def test_one_value_or_none_varies_within_what_bounds_allow(kind, values):
    """With so few rows noise decides, but a variance is always a number from 0 to 2 * (range / 2)**2."""
    schema = {"who": pl.Int64, "v": pl.Float64}
    frame = pl.DataFrame({"who": range(len(values)), "v": values}, schema=schema)
    assert 0 <= ask(kind, frame, "var", "v", bounds=(0, 10), max_rows_per_group=1) <= 50


@pytest.mark.slow
def test_two_units_and_empty_public_groups(kind):
    frame = pl.DataFrame({"who": [1, 2], "key": ["a", "a"], "v": [2, 6]})
    words = {"by": "key", "keys": ["a", "none"], "max_rows_per_group": 1}
    found = ask(kind, frame, "var", "v", bounds=(0, 8), **words)
    assert found["a"] == pytest.approx(8, abs=2 * tolerance(frame, "v", 2, (0, 8), **words))
    assert 0 <= found["none"] <= 32


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", ["var", "std"])
def test_every_door_plans_and_charges_the_same(aggregate):
    assert len(charges(FRAME, aggregate, "x", by="region", bounds=(0, 25), ddof=0, epsilon=0.5)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bounds": None}, "needs bounds for x"),
        ({"bounds": (5, 1)}, "lower < upper"),
        ({"column": "region"}, "needs integers, floats or decimals"),
        ({"ddof": -1}, "ddof= takes an integer"),
        ({"ddof": 0.5}, "ddof= takes an integer"),
    ],
)
def test_every_door_refuses_alike(closed, words, message):
    refused(closed, message, "var", **{"column": "x", "bounds": (0, 25), "epsilon": 1, **words})


def test_a_wanted_error_is_refused_alike(closed):
    refused(closed, "depends on how many rows", "std", "x", bounds=(0, 25), within=1)
