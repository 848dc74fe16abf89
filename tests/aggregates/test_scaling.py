"""If the cap on rows binds, answers are those of the scaled rows, for every type, at every cap, on every engine.

The reference uses exact fractions: each row of a unit with n rows in a group counts min(1, cap / n).
"""

import datetime
import functools
import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars import run_bounded
from dp_polars._release.answers import present
from dp_polars._release.noise import _vector
from dp_polars._release.run import request_of
from tests.aggregates.doors import HUGE, InParts, OnSpark, Polars, rows, session

GENERATOR = np.random.default_rng(12)
UNITS, MOST = 400, 30
N = UNITS * MOST
# Units have 1 to 30 rows, three of them 1,000 more; a tenth of all values is 1, and y goes with x.
_WHO = np.concatenate([GENERATOR.integers(0, UNITS, N) ** 2 // UNITS, np.repeat([1, 2, 3], 1000)])
_X = (GENERATOR.random(len(_WHO)) < 0.1).astype(int)
_Y = np.where(GENERATOR.random(len(_WHO)) < 0.7, _X, GENERATOR.integers(0, 2, len(_WHO)))
ROWS = pl.DataFrame({"who": _WHO, "x": _X, "y": _Y, "g": pl.Series(["a", "b"]).gather(_WHO % 2)})

TYPES = {
    "Boolean": (pl.Boolean, 1),
    "Int8": (pl.Int8, 1),
    "Int16": (pl.Int16, 3),
    "Int32": (pl.Int32, 700),
    "Int64": (pl.Int64, 10**6),
    "UInt8": (pl.UInt8, 1),
    "UInt64": (pl.UInt64, 1),
    "Float32": (pl.Float32, 1),
    "Float64": (pl.Float64, 100),
    "Decimal": (pl.Decimal(10, 2), 1),
}
CAPS = [1, 2, 5, 7, 20]
MOMENTS = ("std", "cov", "corr", "linear_regression")


def typed(name):
    """Return rows of a type whose values are 0 and the largest value, and that largest value."""
    kind, most = TYPES[name]
    return ROWS.with_columns((pl.col("x", "y") * most).cast(kind)), most


RUNS = ROWS.group_by("who").agg(n=pl.len(), x=pl.sum("x"), y=pl.sum("y"), xy=(pl.col("x") * pl.col("y")).sum())


BY_SIZE = RUNS.group_by("n").agg(rows=pl.sum("n"), x=pl.sum("x"), y=pl.sum("y"), xy=pl.sum("xy")).sort("n").rows()


@functools.cache
def scaled(cap):
    """Return the exact sums of 1, x, y and xy over scaled rows, if values are 0 and 1."""
    weights = [Fraction(min(n, cap), n) for n, *_ in BY_SIZE]
    columns = list(zip(*BY_SIZE, strict=True))[1:]
    return [sum(weight * number for weight, number in zip(weights, one, strict=True)) for one in columns]


def moments(cap, most):
    """Return the exact sums of 1, x, y, xx, xy and yy over scaled rows; values are 0 and `most`."""
    rows, x, y, xy = scaled(cap)
    sums = {"": rows, "x": x * most, "y": y * most, "xy": xy * most**2}
    return {**sums, "xx": sums["x"] * most, "yy": sums["y"] * most}


def exact(kind, cap, most):
    """Return the exact answer of an aggregate."""
    s = moments(cap, most)
    n = s[""]

    def spread(two):
        return (s[two] / n - s[two[0]] / n * s[two[1]] / n) * n / (n - 1)

    return {
        "sum": lambda: float(s["x"]),
        "mean": lambda: float(s["x"] / n),
        "var": lambda: float(spread("xx")),
        "std": lambda: math.sqrt(spread("xx")),
        "cov": lambda: float(spread("xy")),
        "corr": lambda: float(spread("xy")) / math.sqrt(spread("xx") * spread("yy")),
        "linear_regression": lambda: float(spread("xy") / spread("xx")),
    }[kind]()


def asked(door, kind, cap, most, **words):
    """Return the answer of a door, or the slope of a regression."""
    pair = kind in ("cov", "corr", "linear_regression")
    bounds = ((0, most), (0, most)) if pair else (0, most)
    column = ("x", "y") if pair else "x"
    found = rows(door.ask(kind, column, bounds=bounds, epsilon=HUGE, max_rows_per_group=cap, **words), None)
    return float(found["slope"] if kind == "linear_regression" else found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "name", "kind"),
    [
        (engine, name, kind)
        for engine in (Polars, InParts, OnSpark)
        for name in (TYPES if engine is not OnSpark else ("Boolean", "Float64", "Decimal"))
        for kind in ("sum", "mean", "var", *(MOMENTS if name in ("Boolean", "Int64") else ()))
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_answers_are_those_of_the_scaled_rows(engine, name, kind):
    """The answer is off by less than a relative 1e-4, or by 1/2 more for whole numbers.

    Each type meets each cap, and so does each aggregate.
    The scale of the noise is at most 20 / (1e5 / 6) of a row's range, on sums of 30 ranges or more. It exceeds 25 times
    its scale with probability below 1e-10. That is below 1e-3 at the largest cap, where sums are 500 or more, and
    proportional to the cap and the sum at all others.
    """
    frame, most = typed(name)
    door = engine(frame, session())
    turn = list(TYPES).index(name) + ("sum", "mean", "var", *MOMENTS).index(kind)
    here = (CAPS[turn % 5], CAPS[(turn + 2) % 5])
    for cap in here if engine is Polars else (7,) if kind in ("sum", "mean") else (1,):
        found, wanted = asked(door, kind, cap, most), exact(kind, cap, most)
        slack = 0.5 if kind == "sum" and not frame.schema["x"].is_float() else 0
        noise = 2e-3 if kind in ("var", *MOMENTS) else 3e-4
        assert found == pytest.approx(wanted, rel=1e-4 + noise, abs=slack), cap


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", TYPES)
def test_without_noise_no_cap_costs_more_than_a_ten_thousandth(name, mechanism):
    """This is what would be shown without noise, on a basis (Laplace) and on separate sums (Gaussian).

    The largest value and the cap determine the grid, so one type of each size is tried with all caps.
    """
    frame, most = typed(name)
    door = Polars(frame, session())
    caps = range(1, 21) if mechanism == "laplace" and name in ("Boolean", "Int32", "Float64") else (*CAPS, 13)
    for kind, cap in itertools.product(("sum", "mean", "var"), caps):
        words = {"bounds": (0, most), "share": 0.01, "max_rows_per_group": cap, "mechanism": mechanism}
        if mechanism == "laplace":
            words = {**words, "share": None, "epsilon": 1}
        plan = door.plan(kind, "x", **words)
        exactly = run_bounded(frame.lazy().select(unit0="who", value0="x"), request_of(plan))
        noiseless = pl.DataFrame(
            [pl.Series(measurement.name, _vector(exactly, measurement.statistic)) for measurement in plan.measurements]
        )
        found = float(present(noiseless, plan).item())
        slack = 0.5 if kind == "sum" and not frame.schema["x"].is_float() else 0
        assert found == pytest.approx(exact(kind, cap, most), rel=1e-4, abs=slack), (kind, cap)


@pytest.mark.parametrize("kind", [pl.Duration("us"), pl.Duration("ms")])
def test_durations_are_scaled_too(kind):
    frame = ROWS.with_columns(pl.col("x").cast(kind))
    most = datetime.timedelta(microseconds=1) if kind == pl.Duration("us") else datetime.timedelta(milliseconds=1)
    words = {"bounds": (datetime.timedelta(0), most), "epsilon": HUGE, "session": session()}
    for cap in CAPS:
        found = frame.dp.sum("x", max_rows_per_group=cap, **words).item()
        assert found / most == pytest.approx(exact("sum", cap, 1), rel=4e-4, abs=0.5)


def test_means_of_dates_are_scaled_too():
    first = datetime.date(2020, 1, 1)
    frame = ROWS.with_columns(x=pl.lit(first) + pl.col("x").cast(pl.Int64) * pl.duration(days=1))
    bounds = (first, datetime.date(2020, 1, 2))
    for cap in CAPS:
        words = {"bounds": bounds, "epsilon": HUGE, "max_rows_per_group": cap, "session": session()}
        found = frame.dp.mean("x", **words).item()
        days = (found - datetime.datetime(2020, 1, 1)) / datetime.timedelta(days=1)
        assert days == pytest.approx(exact("mean", cap, 1), rel=4e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Boolean", "Int64", "Decimal", "Float64"])
def test_totals_are_scaled_in_their_groups_and_whole_numbers_add_up(name):
    frame, most = typed(name)
    words = {"keys": ["a", "b"], "bounds": (0, most), "epsilon": HUGE, "session": session(), "rollup": True}
    for cap in (1, 5):
        own = dict.fromkeys("ab", Fraction(0))
        for g, n, x in ROWS.group_by("who", "g").agg(n=pl.len(), x=pl.sum("x")).select("g", "n", "x").iter_rows():
            own[g] += Fraction(min(n, cap), n) * x * most
        found = dict(frame.dp.sum("x", by="g", max_rows_per_group=cap, **words).select("g", "x").iter_rows())
        for key, wanted in ("a", own["a"]), ("b", own["b"]), (None, own["a"] + own["b"]):
            assert float(found[key]) == pytest.approx(float(wanted), rel=4e-4, abs=1)
        assert float(found[None]) == pytest.approx(float(found["a"] + found["b"]), rel=1e-12)


def test_a_small_cap_on_booleans_loses_nothing():
    """5,000 units have 20 rows each, a tenth of them True, and 5 count. Rounding down would give 0.033, not 0.1.

    At epsilon 50, Laplace noise has scale 0.1 on sums of thousands, and exceeds 40 scales with probability below 1e-16.
    """
    values = np.random.default_rng(0).random(100_000) < 0.1
    frame = pl.DataFrame({"who": np.repeat(np.arange(5000), 20), "b": values})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.DPWarning)
        paying = dp.Session(epsilon=1000, unit="who", max_rows_per_group=5)
    words = {"bounds": (0, 1), "epsilon": 50, "session": paying}
    mean = frame.dp.mean("b", confidence=0.99, **words)
    assert mean["b"].item() == pytest.approx(values.mean(), abs=0.002)
    assert mean["b_low"].item() < mean["b"].item() < mean["b_high"].item()
    total = frame.dp.sum("b", confidence=0.99, **words)
    assert total.schema["b"] == pl.Int64
    assert total["b"].item() == pytest.approx(values.sum() / 4, abs=5)
    assert total["b_low"].item() < total["b"].item() < total["b_high"].item()
