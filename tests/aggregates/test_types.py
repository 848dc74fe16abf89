"""Dates, times, durations, decimals and Booleans as values, through every door that has the type.

DuckDB's intervals are not durations (a month has no fixed length), and functions of `dp.register` return numbers.
Spark has neither times of day nor unsigned integers.
"""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache

import polars as pl
import pytest

from tests.aggregates.doors import (
    DOORS,
    HUGE,
    Functions,
    Guarded,
    InParts,
    Lazy,
    OnSpark,
    Polars,
    Scanned,
    refused,
    rows,
    session,
)
from tests.aggregates.margins import Margins, margin, off, slack, step_of

DAYS = 61
FRAME = (
    pl.DataFrame({"who": range(DAYS), "i": range(DAYS)})
    .with_columns(
        day=pl.date(2024, 1, 1) + pl.duration(days="i"),
        clock=pl.time(pl.col("i") // 6, pl.col("i") % 6 * 10),
        price=(pl.col("i") * 25).cast(pl.Decimal(12, 2)) / 100,
        took=pl.duration(minutes="i"),
        flag=pl.col("i") % 3 == 0,
        small=pl.col("i").cast(pl.Float32),
        large=pl.col("i").cast(pl.UInt64),
    )
    .with_columns(
        pl.col("price").cast(pl.Decimal(12, 2)),
        seen=pl.col("day").cast(pl.Datetime("us")) + pl.duration(hours=5),
        seen_ms=pl.col("day").cast(pl.Datetime("ms")),
        seen_ns=pl.col("day").cast(pl.Datetime("ns")),
        seen_utc=pl.col("day").cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
        wide=pl.col("price").cast(pl.Decimal(30, 2)),
    )
)
"""61 units: the 31st has the median of every column."""
DATES = (date(2024, 1, 1), date(2024, 3, 1))
MOMENTS = (datetime(2024, 1, 1), datetime(2024, 3, 2))
ZONED = tuple(one.replace(tzinfo=UTC) for one in MOMENTS)
CLOCKS = (time(0), time(12))
SPANS = (timedelta(0), timedelta(hours=1))
PRICES = (Decimal(0), Decimal("15.50"))
BOUNDS = {
    "day": DATES, "seen": MOMENTS, "seen_ms": MOMENTS, "seen_ns": MOMENTS, "seen_utc": ZONED, "clock": CLOCKS,
    "took": SPANS, "price": PRICES, "wide": PRICES, "flag": (0, 1), "small": (0, 64), "large": (0, 64),
}  # fmt: skip
SQL = [Polars, Lazy, Scanned, Guarded, InParts, OnSpark]
NOT_IN_SPARK = ("seen_ms", "seen_ns", "clock", "large")


def pairs(doors, columns):
    """Return each door with each of the columns whose type it has."""
    return [(door, one) for door in doors for one in columns if door is not OnSpark or one not in NOT_IN_SPARK]


CALENDAR = pairs(SQL, ("day", "seen", "seen_ms", "seen_ns", "seen_utc", "clock"))
SPAN = pairs((Polars, Lazy, Scanned), ["took"])
NUMBERS = pairs(DOORS, ("price", "wide", "flag", "small", "large"))
ONE = {"max_rows_per_group": 1, "epsilon": HUGE}


def named(pairs):
    return pytest.mark.parametrize(("kind", "column"), pairs, ids=lambda one: getattr(one, "__name__", one))


@cache
def only(column):
    """Return units and one column as the same object each time, so that doors can share its database."""
    return FRAME.select("who", column)


def asked(kind, aggregate, column, frame=None, **words):
    given = {"bounds": BOUNDS[column], **ONE, **words}
    return kind(only(column) if frame is None else frame.select("who", column), session()).ask(
        aggregate, column, **given
    )


def plan_of(aggregate, column, **words):
    given = {"bounds": BOUNDS[column], **ONE, **words}
    return Polars(only(column), session()).plan(aggregate, column, **given)


def stored(values):
    """Return the numbers that stand for values in storage."""
    return (values.cast(pl.Int8) if values.dtype == pl.Boolean else values).to_physical().to_list()


def like(found, column):
    """Return an answer as a value of the column: DuckDB's times are in microseconds."""
    return found["answer"].cast(FRAME[column].dtype, strict=False) if column != "flag" else found["answer"]


@pytest.mark.slow
@named(CALENDAR + SPAN + NUMBERS)
def test_a_median_is_a_value_of_the_type_in_the_middle(kind, column):
    plan = plan_of("median", column)
    assert slack(plan) < 1
    (found,) = stored(like(asked(kind, "median", column), column))
    step = max(step_of(plan), 1) if column != "flag" else 0
    assert off(stored(FRAME[column]), found, 0.5, step) <= slack(plan)


@pytest.mark.slow
@named(CALENDAR + SPAN)
def test_a_mean_of_times_is_a_time(kind, column):
    """The mean of dates has a time of day, so nothing is rounded to a day. One microsecond is allowed for rounding."""
    found = asked(kind, "mean", column)["answer"]
    expected = FRAME[column].cast(pl.Datetime("us")).mean() if column == "day" else FRAME[column].mean()
    near = timedelta(microseconds=1) + in_time(Margins(plan_of("mean", column)).mean(DAYS), column)
    (answer,) = found.to_list()
    if column == "clock":
        answer, expected = (datetime.combine(DATES[0], one) for one in (answer, expected))
    assert abs(answer - expected) <= near
    assert near < timedelta(hours=1)


def in_time(number, column):
    """Return the duration that a stored number stands for."""
    unit = {"day": 86400.0, "seen_ms": 1e-3, "seen_ns": 1e-9, "clock": 1e-9}.get(column, 1e-6)
    return timedelta(seconds=number * unit)


@pytest.mark.slow
@named(NUMBERS)
def test_a_mean_and_a_variance_of_decimals_and_booleans_are_floats(kind, column):
    unit = 0.01 if column in ("price", "wide") else 1
    numbers = FRAME[column].cast(pl.Float64)
    mean, spread = (Margins(plan_of(one, column), unit) for one in ("mean", "var"))
    door, words = kind(only(column), session()), {"bounds": BOUNDS[column], **ONE}
    assert rows(door.ask("mean", column, **words), None) == pytest.approx(numbers.mean(), abs=mean.mean(DAYS))
    assert rows(door.ask("var", column, **words), None) == pytest.approx(numbers.var(), abs=spread.spread(DAYS))


@pytest.mark.slow
@named(NUMBERS + SPAN)
def test_a_sum_of_decimals_durations_and_booleans(kind, column):
    """Decimals stay exact to their last digit, and durations stay durations; a function returns a float."""
    (measurement,) = plan_of("sum", column).measurements
    (found,) = asked(kind, "sum", column)["answer"].to_list()
    expected = FRAME[column].sum()
    if column == "took":
        assert abs(found - expected) <= in_time(margin(measurement), column)
        return
    near = margin(measurement, 0.01 if column in ("price", "wide") else 1)
    assert float(found) == pytest.approx(float(expected), abs=near + 1e-9)
    if kind is not Functions:
        assert isinstance(found, {"price": Decimal, "wide": Decimal, "small": float}.get(column, int))


@pytest.mark.slow
@named([*CALENDAR, *SPAN, *((door, column) for door, column in NUMBERS if column != "flag")])
def test_min_and_max_are_values_of_the_type(kind, column):
    """The answer lies between the extreme value and the one next to it."""
    step = max(step_of(plan_of("min", column)), 1)
    values = stored(FRAME[column])
    door, words = kind(only(column), session()), {"bounds": BOUNDS[column], **ONE}
    (least,), (largest,) = (stored(like(door.ask(one, column, **words), column)) for one in ("min", "max"))
    assert values[0] - step <= least <= values[1] + step
    assert values[-2] - step <= largest <= values[-1] + step


@pytest.mark.slow
@named(pairs(SQL, ("day", "seen", "clock", "price")) + SPAN)
def test_a_histogram_has_edges_of_the_type(kind, column):
    """Noise of scale 1e-5 leaves the counts exact."""
    low, high = BOUNDS[column]
    middle = FRAME[column][20]
    bins = rows(asked(kind, "histogram", column, bounds=None, edges=[low, middle, high]), None)
    assert [tuple(one.values()) for one in bins] == [(low, middle, 20), (middle, high, 41)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", DOORS, ids=lambda door: door.__name__)
def test_values_of_any_type_can_be_told_apart(kind):
    columns = [column for _, column in pairs([kind], ("day", "seen", "clock", "price", "flag"))]
    door = kind(FRAME.select("who", *columns), session())
    found = {column: rows(door.ask("n_unique", column, **ONE), None) for column in columns}
    assert found == {column: FRAME[column].n_unique() for column in columns}


@pytest.mark.slow
@named([*pairs(SQL, ("day", "seen")), (Polars, "took"), (Guarded, "price")])
def test_nulls_are_left_out_and_values_clipped(kind, column):
    """The last 21 of 61 rows are null. Bounds around the first few values put the mean near the upper bound."""
    frame = FRAME.with_columns(pl.when(pl.col("i") < 40).then(column).alias(column))
    values = FRAME[column]
    found = asked(kind, "median", column, frame, bounds=(values[0], values[5]))
    (found,) = stored(like(found, column))
    assert abs(found - stored(values)[5]) <= max(step_of(plan_of("median", column, bounds=(values[0], values[5]))), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aggregate", "column", "bounds", "message"),
    [
        ("median", "day", (0, 10), "must have the type of day"),
        ("median", "day", ("2024-01-01", "2024-03-01"), "must have the type of day"),
        ("median", "day", MOMENTS, "must have the type of day"),
        ("median", "seen", CLOCKS, "must have the type of seen"),
        ("mean", "price", DATES, "must be a number"),
        ("mean", "day", (DATES[1], DATES[0]), "lower < upper"),
        ("sum", "day", DATES, "Points in time have no sum"),
        ("sum", "clock", CLOCKS, "Points in time have no sum"),
        ("var", "seen", MOMENTS, "needs integers, floats or decimals"),
    ],
)
def test_bounds_of_another_kind_are_refused_alike(aggregate, column, bounds, message):
    for kind, _ in pairs(SQL, [column]):
        refused(kind(only(column), session()), message, aggregate, column, bounds=bounds, **ONE)


@pytest.mark.slow
@pytest.mark.parametrize("column", ["day", "price"])
def test_every_door_plans_and_charges_the_same(column):
    charged = set()
    for kind in SQL:
        paying = session(epsilon=1)
        door = kind(FRAME.select("who", column), paying)
        door.ask("median", column, bounds=BOUNDS[column], max_rows_per_group=1, epsilon=0.5)
        (entry,) = paying.releases
        charged.add((str(entry.cost), entry.label))
    assert len(charged) == 1
