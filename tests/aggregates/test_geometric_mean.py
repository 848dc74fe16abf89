"""The geometric mean: right through every door, whatever the type, and never beyond its bounds."""

import math
from decimal import Decimal

import polars as pl
import pytest

import dp_polars as dp
from tests.aggregates.doors import DOORS, HUGE, OnSpark, refused, rows, session
from tests.aggregates.frames import FRAME, OWNED

BOUNDS = (0.5, 20)
CAPS = {"max_groups": 5, "max_rows_per_group": 50}


WITH_LOGARITHMS = [door for door in DOORS if door is not OnSpark]
"""Spark has logarithms of its own, which differ from those of Polars in the last digit."""


@pytest.fixture(params=WITH_LOGARITHMS, ids=lambda door: door.__name__)
def door(request):
    return request.param(FRAME, session())


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "region"])
@pytest.mark.parametrize("column", ["n", "x"])
def test_it_equals_the_plain_geometric_mean_of_clipped_values(door, by, column):
    """The noise on the sum of logarithms is below 0.02 and that on the count below 0.01, over 700 rows or more."""
    found = rows(door.ask("geometric_mean", column=column, by=by, bounds=BOUNDS, epsilon=HUGE, **CAPS), by)
    plain = OWNED.with_columns(pl.col("x").fill_nan(None))
    average = pl.col(column).cast(pl.Float64).clip(*BOUNDS).log().mean().exp()
    if by is None:
        assert found == pytest.approx(plain.select(average).item(), rel=1e-3)
    else:
        expected = dict(plain.group_by(by).agg(average).iter_rows())
        assert found == {key: pytest.approx(mean, rel=1e-3) for key, mean in expected.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bounds": None}, "needs bounds for x"),
        ({"bounds": (0, 5)}, "bounds above 0"),
        ({"bounds": (-1, 5)}, "bounds above 0"),
        ({"bounds": (Decimal("1e-400"), 5)}, "bounds above 0"),
        ({"column": "region"}, "needs integers, floats or decimals"),
    ],
)
def test_every_door_refuses_alike(door, words, message):
    refused(door, message, "geometric_mean", **{"column": "x", "bounds": (1, 25), "epsilon": 1, **words})


@pytest.mark.slow
def test_spark_refuses_it_by_name_and_charges_nothing():
    refused(OnSpark(FRAME, session()), "`log` has no exact equivalent", "geometric_mean", "x", bounds=(1, 9), epsilon=1)


def test_zero_and_negative_values_count_as_the_lower_bound():
    frame = pl.DataFrame({"user": range(400), "x": [0.0, -3.0, 4.0, 4.0] * 100})
    paying = session(unit="user", max_rows_per_group=1)
    found = dp.private(frame, paying).geometric_mean("x", bounds=(1, 10), epsilon=HUGE).item()
    assert found == pytest.approx(2.0, rel=1e-3)


def test_null_and_nan_are_left_out():
    frame = pl.DataFrame({"user": range(400), "x": [None, math.nan, 2.0, 8.0] * 100})
    paying = session(unit="user", max_rows_per_group=1)
    found = dp.private(frame, paying).geometric_mean("x", bounds=(1, 10), epsilon=HUGE).item()
    assert found == pytest.approx(4.0, rel=1e-3)


def test_an_interval_contains_the_answer_and_stays_within_the_bounds():
    frame = pl.DataFrame({"user": range(10), "x": [5.0] * 10})
    paying = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    found = dp.private(frame, paying).geometric_mean("x", bounds=(1, 10), epsilon=0.5, confidence=0.95)
    value, low, high = found.row(0)
    assert 1 - 1e-9 <= low <= value <= high <= 10 + 1e-9


@pytest.mark.slow
def test_every_door_plans_and_charges_what_a_mean_costs():
    charged = set()
    for kind in WITH_LOGARITHMS:
        for aggregate in ("mean", "geometric_mean"):
            paying = session(epsilon=1)
            kind(FRAME, paying).ask(aggregate, column="x", by="region", bounds=(1, 25), epsilon=0.5)
            (entry,) = paying.releases
            charged.add(str(entry.cost))
    assert len(charged) == 1
