"""`cov`, `corr` and `linear_regression` through every door."""

import math

import numpy as np
import polars as pl
import pytest

from tests.aggregates.doors import HUGE, Polars, charges, refused, rows, session
from tests.aggregates.frames import FRAME
from tests.aggregates.margins import Margins

GENERATOR = np.random.default_rng(8)
N = 3000
LINE = pl.DataFrame({"who": np.arange(N), "key": GENERATOR.integers(0, 2, N), "x": GENERATOR.uniform(0, 10, N)})
LINE = LINE.with_columns(
    y=(pl.col("x") * -2 + 15 + GENERATOR.normal(0, 3, N)).round(2),
    k=(pl.col("x") * 3).round().cast(pl.Int64),
).with_columns(
    x=pl.when(pl.int_range(N) % 7 == 0).then(None).otherwise("x"),
    y=pl.when(pl.int_range(N) % 5 == 0).then(float("nan")).otherwise("y"),
)
"""Units of one row each; where either value is missing, the row does not count."""
BOUNDS = ((1, 9), (-4, 16))
CAPS = {"max_rows_per_group": 1, "max_groups": 1}
BOTH = LINE.with_columns(pl.col("y").fill_nan(None)).drop_nulls(["x", "y"])
BOTH = BOTH.with_columns(pl.col("x").clip(*BOUNDS[0]), pl.col("y").clip(*BOUNDS[1]))


def ask(kind, frame, aggregate, columns=("x", "y"), **words):
    given = {"bounds": BOUNDS, "epsilon": HUGE, **CAPS, **words}
    return rows(kind(frame, session()).ask(aggregate, columns, **given), words.get("by"))


def margins(frame, aggregate, columns=("x", "y"), **words):
    given = {"bounds": BOUNDS, "epsilon": HUGE, **CAPS, **words}
    return Margins(Polars(frame, session()).plan(aggregate, columns, **given))


def groups(frame, by):
    return {key: part for (key,), part in frame.partition_by(by, as_dict=True).items()} if by else {None: frame}


@pytest.mark.slow
@pytest.mark.parametrize(("by", "ddof"), [(None, 0), ("key", 1)])
def test_a_covariance_equals_the_plain_one_of_clipped_values(kind, by, ddof):
    found, near = ask(kind, LINE, "cov", by=by, **({"ddof": 0} if ddof == 0 else {})), margins(LINE, "cov", by=by)
    for key, part in groups(BOTH, by).items():
        expected = part.select(pl.cov("x", "y", ddof=ddof)).item()
        assert (found[key] if by else found) == pytest.approx(expected, abs=near.spread(part.height, "xy"))
        assert near.spread(part.height, "xy") < 0.1


def errors(near, part):
    """Return how far the covariance, the variances and the mean of y may be off."""
    spreads = {role: near.spread(part.height, role) for role in ("xy", "xx", "yy") if role in near.sums}
    return spreads, near.mean(part.height, "x"), near.mean(part.height, "y")


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "key"])
def test_a_correlation_equals_the_plain_one_of_clipped_values(kind, by):
    """The ratio a / sqrt(bc) is off by da / sqrt(bc) + (db / b + dc / c) / 2; twice that covers higher orders."""
    found, near = ask(kind, LINE, "corr", by=by), margins(LINE, "corr", by=by)
    for key, part in groups(BOTH, by).items():
        spreads, _, _ = errors(near, part)
        b, c = part["x"].var(), part["y"].var()
        relative = spreads["xx"] / b + spreads["yy"] / c
        allowed = 2 * (spreads["xy"] / math.sqrt(b * c) + relative / 2)
        assert allowed < 0.05
        expected = part.select(pl.corr("x", "y")).item()
        assert (found[key] if by else found) == pytest.approx(expected, abs=allowed)


@pytest.mark.slow
@pytest.mark.parametrize("by", [None, "key"])
def test_a_regression_equals_the_plain_line_through_clipped_values(kind, by):
    """The slope a / b is off by (da + |a / b| db) / (b - db), and the intercept by dy + |slope| dx + |x| dslope."""
    found, near = ask(kind, LINE, "linear_regression", by=by), margins(LINE, "linear_regression", by=by)
    for key, part in groups(BOTH, by).items():
        spreads, dx, dy = errors(near, part)
        slope, intercept = np.polyfit(part["x"], part["y"], 1)
        of_slope = (spreads["xy"] + abs(slope) * spreads["xx"]) / (part["x"].var() - spreads["xx"])
        of_intercept = dy + (abs(slope) + of_slope) * dx + part["x"].mean() * of_slope
        assert of_slope < 0.1
        line = found[key] if by else found
        assert line["slope"] == pytest.approx(slope, abs=of_slope)
        assert line["intercept"] == pytest.approx(intercept, abs=of_intercept)


@pytest.mark.slow
def test_a_correlation_of_a_column_with_itself_is_one_and_never_more(kind):
    found = ask(kind, LINE, "corr", ("k", "k"), bounds=((0, 30), (0, 30)))
    assert 0.99 < found <= 1


@pytest.mark.slow
@pytest.mark.parametrize("values", [[], [3.0], [None], [float("nan")]], ids=str)
def test_too_few_rows_give_no_error_and_stay_in_range(kind, values):
    """Whatever the noise, a covariance stays within twice the half ranges; a correlation is in [-1, 1] or null."""
    frame = pl.DataFrame({"who": range(len(values)), "v": values}, schema={"who": pl.Int64, "v": pl.Float64})
    words = {"bounds": ((0, 8), (0, 8)), "epsilon": HUGE, **CAPS}
    door = kind(frame, session())
    covariance, correlation, line = (
        rows(door.ask(one, ("v", "v"), **words), None) for one in ("cov", "corr", "linear_regression")
    )
    assert abs(covariance) <= 2 * 16
    assert correlation is None or abs(correlation) <= 1
    assert set(line) == {"slope", "intercept"}


@pytest.mark.slow
def test_a_constant_first_column_has_no_line_of_its_own(kind):
    """The variance of x is only noise: it is tiny, or 0, and then there is no slope. A constant y gives a flat line."""
    frame = LINE.with_columns(x=pl.lit(5.0), y=pl.lit(6.0))
    assert abs(ask(kind, frame, "cov")) <= margins(frame, "cov").spread(N, "xy")
    flat = LINE.select("who", "k", y=pl.lit(6))
    words = {"columns": ("k", "y"), "bounds": ((0, 30), (0, 12))}
    near = margins(flat, "linear_regression", **words)
    slope = ask(kind, flat, "linear_regression", **words)["slope"]
    assert abs(slope) <= near.spread(N, "xy") / (flat["k"].var() - near.spread(N, "xx"))


@pytest.mark.slow
def test_two_units_and_empty_public_groups(kind):
    frame = pl.DataFrame({"who": [1, 2], "key": ["a", "a"], "v": [2, 6], "w": [1, 3]})
    words = {"columns": ("v", "w"), "bounds": ((0, 8), (0, 4)), "by": "key", "keys": ["a", "none"]}
    found = ask(kind, frame, "cov", **words)
    assert found["a"] == pytest.approx(4, abs=margins(frame, "cov", **words).spread(2, "xy"))
    assert abs(found["none"]) <= 2 * 4 * 2


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", ["cov", "corr", "linear_regression"])
def test_every_door_plans_and_charges_the_same(aggregate):
    words = {"by": "region", "bounds": ((0, 25), (0, 25)), "epsilon": 0.5}
    assert len(charges(FRAME, aggregate, ("x", "n"), **words)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bounds": None}, "needs bounds for x"),
        ({"bounds": (None, (0, 1))}, "needs bounds for x|takes a pair"),
        ({"bounds": ((0, 1), (5, 1))}, "lower < upper"),
        ({"column": ("x", "region")}, "region has the type String"),
        ({"within": 1, "epsilon": None}, "depends on how many rows"),
    ],
)
def test_every_door_refuses_alike(closed, words, message):
    given = {"column": ("x", "n"), "bounds": ((0, 25), (0, 25)), "epsilon": 1, **words}
    refused(closed, message, "corr", **{name: value for name, value in given.items() if value is not None})
