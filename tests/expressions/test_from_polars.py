"""Polars expressions: which are accepted and what they mean on private rows, and which are refused with which message.

`test_evidence.py` shows that each operation of the language is row-wise and never fails. These tests show that Polars
expressions become the right operations, alone and nested.
"""

import datetime as dt
import math
import random
import subprocess
import sys
import warnings
from decimal import Decimal

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest

import dp_polars as dp
from dp_polars._engines.polars.program import Program
from dp_polars._engines.polars.scan import lazy_rows, polars_rows
from dp_polars._expressions import from_polars
from dp_polars._expressions.check import check_expression, check_expressions
from dp_polars._expressions.hostile import hostile_frame
from tests.expressions.test_evidence import bits, never_isolated  # noqa: F401 - a fixture

POLARS_2 = int(pl.__version__.split(".")[0]) >= 2
UTC, PARIS = "UTC", "Europe/Paris"
DAY, NOON, HOUR = dt.date(2020, 2, 29), dt.datetime(2020, 2, 29, 12), dt.timedelta(hours=1)
ENGINES = ("in-memory", "streaming")


def words(text):
    return text.split()


def answer(expr, frame, engine="streaming"):
    """Return the values of an expression on private rows."""
    checked = check_expression(expr, schema=frame.schema, what="probe")
    rows = polars_rows(frame.lazy()).make({"out": checked.tree}, keep=False)
    return lazy_rows(rows).collect(engine=engine)["out"]


# ---------------------------------------------------------------------- accepted expressions and their values

ORDINARY = pl.DataFrame(
    {
        "i": [1, 20, -7, None],
        "j": [3, 5, 2, 4],
        "x": [1.5, 8.0, -2.25, None],
        "y": [0.5, 2.0, 4.0, 1.0],
        "b": [True, False, None, True],
        "c": [True, True, False, None],
        "s": ["a", " Bcé-7", "2020-02-29", None],
        "t": ["a", "x,y", "12:34:56", "b"],
        "day": [DAY, dt.date(1999, 12, 31), dt.date(2024, 1, 1), None],
        "ts": [NOON, dt.datetime(2021, 3, 28, 1, 2, 3, 456789), dt.datetime(1969, 12, 31, 23, 59, 59), None],
        "span": [dt.timedelta(days=2, seconds=5), dt.timedelta(0), dt.timedelta(days=9), None],
        "clock": [dt.time(1, 2, 3, 4), dt.time(23, 59, 59), dt.time(0), None],
        "kind": pl.Series(["b", "a", "b", None], dtype=pl.Enum(["b", "a", "c"])),
        "cat": pl.Series(["b", "a", "b", None], dtype=pl.Categorical),
        "price": pl.Series([Decimal("1.50"), Decimal("-2.25"), Decimal("10.00"), None], dtype=pl.Decimal(20, 2)),
        "many": [[1, 2, 3], [], [4, None], None],
        "names": [["a", "b"], [], ["c"], None],
        "pair": pl.Series([[1, 2], [3, 4], [None, 5], None], dtype=pl.Array(pl.Int64, 2)),
        "thing": [{"n": 1, "w": "x"}, {"n": None, "w": "y"}, {"n": 3, "w": None}, None],
    }
).with_columns(paris=pl.col("ts").dt.replace_time_zone(PARIS))
i, j, x, y, b, c, s, t, day, ts, span, clock, kind, cat, price, many, names, pair, thing, paris = map(
    pl.col, ORDINARY.columns
)

LIKE_POLARS = {
    "arithmetic": [i + j, i - j, i * j, i / j, i // j, i % j, x + y, x - i, x * 2, 2 - x, x / y, x // y, x % y, -x, -i],
    "powers": [i**2, i**0, x**2, x**0.5, y**i, i**1],
    "numbers": [
        *(getattr(x, n)() for n in words("abs sign cbrt exp floor ceil truncate arctan sinh cosh tanh degrees")),
        *(getattr(y, n)() for n in words("sqrt log log10 log1p sin cos tan arcsinh radians")),
        *(x.round(1), x.round(1, mode="half_away_from_zero"), y.log(2), pl.arctan2(x, y), i.abs(), price.round(1)),
    ],
    "kinds of floats": [x.is_nan(), x.is_not_nan(), x.is_finite(), x.is_infinite(), x.is_close(1.5), x.is_close(y)],
    "comparisons": [
        *(i == j, i != j, i < j, i <= j, i > j, i >= 1, x > 1, i > 1.5, i.eq_missing(None), i.ne_missing(j), s == t),
        *(s < t, day < DAY, day < ts, ts >= NOON, ts > DAY, span > HOUR, clock < dt.time(12), price > 1, price <= 1.5),
        *(kind == "a", kind != "b", cat == "a", cat < "b", price == Decimal("1.50"), pl.lit(1) < i, b == c),
        *(i.is_between(1, 20), i.is_between(1, 20, closed="none"), x.is_between(y, 8, closed="left"), i.is_in([1, 2])),
        *(s.is_in(["a"]), day.is_in([DAY]), i.is_in([1, None], nulls_equal=True), cat.is_in(["a"]), i.is_in([])),
    ],
    "conditions": [b & c, b | c, b ^ c, ~b, pl.any_horizontal(b, c), pl.all_horizontal(b, c), i & j, i | j, i ^ j],
    "missing values": [
        *(i.is_null(), s.is_not_null(), i.fill_null(0), x.fill_null(i), x.fill_nan(0.0), pl.coalesce(i, j)),
        *(s.fill_null("?"), day.fill_null(DAY), kind.fill_null("c"), many.is_null(), thing.is_null()),
    ],
    "choices": [
        pl.when(i > 1).then(pl.lit("big")).when(i < 0).then(pl.lit("low")).otherwise(s),
        *(pl.when(b).then(1), pl.when(b).then(x).otherwise(j), pl.when(i > 1).then(day).otherwise(DAY)),
        *(i.clip(0, 10), x.clip(y, 5), i.clip(upper_bound=3), pl.min_horizontal(i, j), pl.max_horizontal(x, y)),
        *(pl.sum_horizontal(i, j), pl.sum_horizontal(b, c), pl.mean_horizontal(x, y)),
        *(i.replace({1: 2}), i.replace([1, 20], [3, 4]), s.replace("a", "b"), s.replace_strict({"a": 1}, default=0)),
        *(i.replace_strict([1, 20], ["p", "q"], default=None), kind.replace_strict({"a": 1}, default=0)),
    ],
    "texts": [
        *(getattr(s.str, n)() for n in words("to_lowercase to_uppercase to_titlecase len_chars len_bytes reverse")),
        *(s.str.contains("B|7$"), s.str.contains("(", literal=True), s.str.contains_any(["é", "a"]), s.str.find("-")),
        *(s.str.count_matches("[0-9]"), s.str.extract(r"(\d+)-(\d+)", 2), s.str.json_path_match("$.a[0]")),
        *(s.str.head(3), s.str.tail(2)),
        *(s.str.slice(1, 3), s.str.slice(-3), s.str.pad_start(9, "é"), s.str.pad_end(9), s.str.zfill(12)),
        *(s.str.replace("([a-z])", "<$1>"), s.str.replace_all("[0-9]", "#"), s.str.strip_chars()),
        *(s.str.strip_chars_start(), s.str.strip_chars_end("7"), s.str.strip_prefix("2"), s.str.strip_suffix("9")),
        *(s.str.starts_with("a"), s.str.ends_with(t), s.str.strip_chars("a"), s.str.starts_with(t)),
        *(t.str.split(","), s + t, s + "!"),
        *(pl.concat_str(s, t, i, separator="-", ignore_nulls=True), pl.concat_str(s, day), pl.format("{}é{}", t, j)),
        *(cat.cat.len_chars(), cat.cat.starts_with("a"), kind.cat.ends_with("b"), kind.cast(pl.String).str.head(1)),
    ],
    "calendars": [
        *(getattr(day.dt, n)() for n in words("millennium century year iso_year is_leap_year quarter month")),
        *(getattr(ts.dt, n)() for n in words("days_in_month week weekday day ordinal_day date hour minute second")),
        *(getattr(ts.dt, n)() for n in words("millisecond microsecond nanosecond month_start month_end time")),
        *(getattr(clock.dt, n)() for n in words("hour minute second microsecond")),
        *(ts.dt.second(fractional=True), ts.dt.timestamp("ms"), ts.dt.epoch("s"), day.dt.epoch("d")),
        *(ts.dt.truncate("1mo"), ts.dt.truncate("1h"), day.dt.truncate("1q"), ts.dt.round("1d"), ts.dt.offset_by("3d")),
        *(day.dt.offset_by("1mo"), ts.dt.to_string("%Y-%m %H"), day.dt.combine(dt.time(1)), day.dt.strftime("%d/%m")),
        *(paris.dt.convert_time_zone(UTC).dt.hour(), paris.dt.replace_time_zone(None), paris.dt.hour()),
        *(ts.dt.replace_time_zone(UTC), paris.dt.date(), ts.dt.cast_time_unit("ms"), ts - NOON, ts + HOUR),
        *(day + dt.timedelta(1), ts.dt.replace_time_zone(UTC).dt.combine(dt.time(1))),
        *(day.dt.month_end(), day - DAY, ts - span, ts + span, span + span, span * 2, -span, span.abs()),
        *(pl.from_epoch(j, "s"), ts - day),
        *(getattr(span.dt, f"total_{n}")() for n in words("days hours minutes seconds milliseconds microseconds")),
        *(span.dt.total_days(fractional=True), ts + pl.duration(days=i, hours=1), span / dt.timedelta(days=1)),
    ],
    "conversions": [
        *(i.cast(pl.String), i.cast(pl.Float64), j.cast(pl.Int8), y.cast(pl.Int64), b.cast(pl.Int64)),
        *(i.cast(pl.Boolean), ts.cast(pl.Date), day.cast(pl.Datetime("us")), day.cast(pl.String)),
        price.cast(pl.Float64),
        *(kind.cast(pl.String), cat.cast(pl.String), t.cast(pl.String), ts.cast(pl.Int64), x.cast(pl.Float32)),
    ],
    "lists and structs": [
        *(many.list.len(), many.list.sum(), many.list.min(), many.list.max(), many.list.contains(1)),
        *(many.list.get(1, null_on_oob=True), many.list.first(), many.list.last(), names.list.join("-")),
        *(names.list.contains("c"), pair.arr.get(1), pair.arr.contains(3), pair.arr.len()),
        *(thing.struct.field("n"), thing.struct.field("w").str.to_uppercase()),
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("group", LIKE_POLARS)
@pytest.mark.parametrize("engine", ENGINES)
def test_on_ordinary_values_the_answer_is_that_of_polars(group, engine):
    for expr in LIKE_POLARS[group]:
        found, wanted = answer(expr, ORDINARY, engine), ORDINARY.select(out=expr)["out"]
        for own, other in zip(plain(found), plain(wanted), strict=True):
            assert own == (pytest.approx(other, rel=1e-12, nan_ok=True) if isinstance(other, float) else other), expr


def plain(series):
    """Return values in a form in which numbers of different types can be compared."""
    if series.dtype == pl.Decimal:
        series = series.cast(pl.Float64)
    if series.dtype.is_float():
        return [None if one is None else float(one) for one in series.to_list()]
    return series.to_list()


NUMBERS_64 = pl.DataFrame(
    {"n": [2**63 - 1, -(2**63), 7, 0, None], "m": [1, -1, 0, 3, 2], "f": [math.nan, math.inf, -0.0, 1.5, None]},
    schema={"n": pl.Int64, "m": pl.Int64, "f": pl.Float64},
)
n, m, f = map(pl.col, NUMBERS_64.columns)
ON_PURPOSE = {
    "a sum beyond 64 bits is null": (n + m, pl.Int64, [None, None, 7, 3, None]),
    "a product beyond 64 bits is null": (n * m, pl.Int64, [2**63 - 1, None, 0, 0, None]),
    "a negative beyond 64 bits is null": (-n, pl.Int64, [-(2**63) + 1, None, -7, 0, None]),
    "division by zero is null": (n // m, pl.Int64, [2**63 - 1, None, None, 0, None]),
    "a remainder of zero is null": (n % m, pl.Int64, [0, 0, None, 0, None]),
    "a quotient is a float": (pl.lit(6) / m, pl.Float64, [6.0, -6.0, None, 2.0, 3.0]),
    "narrow numbers are widened": (m.cast(pl.Int8) * 100 + 100, pl.Int64, [200, 0, 100, 400, 300]),
    "what a type can't hold is null": (n.cast(pl.Int8), pl.Int8, [None, None, 7, 0, None]),
    "a float that is no integer is null": (f.cast(pl.Int64), pl.Int64, [None, None, 0, 1, None]),
    "a zero has no sign": (f.cast(pl.String), pl.String, ["NaN", "inf", "0.0", "1.5", None]),
    "NaN is not clipped": (f.clip(0, 10).is_nan(), pl.Boolean, [True, False, False, False, None]),
    "only infinity is close to infinity": (f.is_close(5.0, rel_tol=0.5), pl.Boolean, [False] * 4 + [None]),
    "a constant that no value equals": (n == 7.5, pl.Boolean, [False] * 4 + [None]),
    "a constant beyond the type": (n < 2**70, pl.Boolean, [True] * 4 + [None]),
    "a null constant": (pl.when(m > 0).then(pl.lit(None).str.to_uppercase()).otherwise(pl.lit("a")), pl.String,
                        [None, "a", "a", None, None]),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_PURPOSE)
def test_what_differs_from_polars_does_so_on_purpose(name):
    expr, dtype, values = ON_PURPOSE[name]
    found = answer(expr, NUMBERS_64)
    assert found.dtype == dtype
    assert found.to_list() == values


def test_strict_forms_become_null_returning():
    frame = pl.DataFrame({"region": ["7", "x", "2020-01-01", None]})
    region = pl.col("region")
    for expr, values in [
        (region.cast(pl.Int64), [7, None, None, None]),
        (region.str.to_integer(), [7, None, None, None]),
        (region.str.to_integer(base=36), [7, 33, None, None]),
        (region.str.to_date("%Y-%m-%d").dt.year(), [None, None, 2020, None]),
        (region.str.to_datetime("%Y-%m-%d", time_zone=UTC).dt.day(), [None, None, 1, None]),
        (region.str.to_time("%H").is_null(), [True] * 4),
        (region.str.split("-").list.get(2), [None, None, "01", None]),
        (region.cast(pl.Enum(["x"])).cast(pl.String), [None, "x", None, None]),
    ]:
        assert answer(expr, frame).to_list() == values


def test_bins_have_public_labels():
    frame = pl.DataFrame({"x": [-1.0, 0.0, 3.0, 5.0, 9.0, math.nan, None]})
    labels = ["low", "middle", "high"]
    right = ["low", "low", "middle", "middle", "high", None, None]
    left = ["low", "middle", "middle", "high", "high", None, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        cases = [
            (pl.col("x").cut([0, 5], labels=labels), right),
            (pl.col("x").cut([0, 5], labels=labels, left_closed=True), left),
            (pl.col("x").cut([0, 5]).cast(pl.String).str.len_chars() > 0, [True] * 5 + [None] * 2),
        ]
    for expr, values in cases:
        assert answer(expr, frame).to_list() == values
    assert answer(cases[0][0], frame).dtype == pl.Enum(labels)


@pytest.mark.skipif(not POLARS_2, reason="Polars 2 has it")
@pytest.mark.filterwarnings("ignore")
def test_intervals_of_polars_2_are_bins():
    frame = pl.DataFrame({"x": [-1.0, 0.0, 3.0, 5.0, 9.0, None], "n": [-1, 0, 3, 5, 9, None]})
    for name in ("x", "n"):
        for right in (False, True):
            expr = pl.col(name).bin_intervals([0, 5], labels=["low", "middle", "high"], right_closed=right)
            assert answer(expr, frame).to_list() == frame.select(expr).to_series().to_list()
    for refused, reason in (
        (pl.col("x").bin_intervals(3, labels=["a", "b", "c"]), "other rows"),
        (pl.col("x").bin_quantiles([0.5], labels=["a", "b"]), "other rows"),
        (pl.col("x").bin_intervals([0, 5], labels=False), "labels"),
    ):
        with pytest.raises(dp.ExpressionNotAllowed, match=reason):
            check_expression(refused, schema=frame.schema, what="by")


def test_an_hour_that_exists_twice_is_null_or_the_one_that_was_chosen():
    frame = pl.DataFrame({"ts": [dt.datetime(2020, 10, 25, 2, 30), dt.datetime(2020, 3, 29, 2, 30), NOON]})
    hour = {way: answer(pl.col("ts").dt.replace_time_zone(PARIS, ambiguous=way).dt.convert_time_zone(UTC).dt.hour(),
                        frame).to_list() for way in ("raise", "null", "earliest", "latest")}  # fmt: skip
    assert hour == {
        "raise": [None, None, 11],
        "null": [None, None, 11],
        "earliest": [0, None, 11],
        "latest": [1, None, 11],
    }
    with pytest.raises(dp.ExpressionNotAllowed, match="constant"):
        answer(pl.col("ts").dt.replace_time_zone(PARIS, ambiguous=pl.col("ts").dt.to_string("%Y")), frame)


ZONES = ("Europe/Paris", "America/Sao_Paulo", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo")


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_no_hour_of_fifty_years_makes_a_time_zone_fail(zone, never_isolated):  # noqa: F811
    """Try every half hour within two days of a clock change, and one on every other day, which are all alike."""
    hours = pl.datetime_range(dt.datetime(1975, 1, 1), dt.datetime(2025, 1, 1), "30m", time_zone=UTC, eager=True)
    frame = hours.dt.convert_time_zone(zone).alias("x").to_frame()
    offset = pl.col("x").dt.base_utc_offset() + pl.col("x").dt.dst_offset()
    changes = frame.filter(offset.diff() != dt.timedelta(0)).select(change="x")
    assert changes.height > 20
    frame = frame.join_asof(changes, left_on="x", right_on="change", strategy="nearest").filter(
        ((pl.col("x") - pl.col("change")).abs() < dt.timedelta(2)) | (pl.int_range(pl.len()) % 48 == 0)
    )
    frame = frame.select("x")
    x = pl.col("x")
    local = x.dt.replace_time_zone(None)
    for expr in (
        *(x.dt.date(), x.dt.hour(), x.dt.to_string("%Z"), x.dt.convert_time_zone(PARIS).dt.month(), x.cast(pl.Date)),
        *(local.dt.truncate("1d"), local.dt.offset_by("1d"), local.dt.replace_time_zone(zone), x + dt.timedelta(1)),
    ):
        assert answer(expr, frame).len() == frame.height
    for expr in (x.dt.truncate("1d"), x.dt.offset_by("1d"), x.dt.month_start(), x.dt.round("1h"), x.dt.month_end()):
        with pytest.raises(dp.ExpressionNotAllowed, match=r"replace_time_zone\(None\)"):
            check_expression(expr, schema=frame.schema, what="probe")


# ---------------------------------------------------------------------- compositions

TYPES = {
    "i8": pl.Int8(), "i64": pl.Int64(), "u64": pl.UInt64(), "f32": pl.Float32(), "f64": pl.Float64(),
    "bool": pl.Boolean(), "str": pl.String(), "date": pl.Date(), "ts": pl.Datetime("us"),
    "paris": pl.Datetime("us", PARIS), "span": pl.Duration("us"), "enum": pl.Enum(["b", "a", ""]),
    "dec": pl.Decimal(10, 4), "cat": pl.Categorical(), "time": pl.Time(),
}  # fmt: skip
CASTS = [
    *(pl.Boolean, pl.Int8, pl.Int64, pl.UInt64, pl.Float32, pl.Float64, pl.String, pl.Date, pl.Time),
    *(pl.Datetime("ms"), pl.Datetime("ns"), pl.Duration("us"), pl.Decimal(12, 2), pl.Enum(["a", "1"]), pl.Binary),
]


def grown(rng, depth):
    """Return a random expression over columns of `TYPES`. Many do not fit the types of the columns."""
    if depth == 0 or rng.random() < 0.15:
        constants = [0, 1, -3, 2.5, "a", True, None, DAY, NOON, HOUR]
        return rng.choice([pl.col(rng.choice(list(TYPES))), pl.lit(rng.choice(constants))])
    a, b = grown(rng, depth - 1), grown(rng, depth - 1)
    grow = rng.choice(
        [
            *(lambda: a + b, lambda: a - b, lambda: a * b, lambda: a / b, lambda: a // b, lambda: a % b, lambda: a**2),
            *(lambda: a == b, lambda: a < b, lambda: a & b, lambda: ~a, lambda: -a, lambda: a.is_null()),
            *(lambda: a.fill_null(b), lambda: pl.coalesce(a, b), lambda: pl.max_horizontal(a, b), lambda: a.clip(0, 9)),
            *(lambda: pl.when(a.is_null()).then(a).otherwise(b), lambda: a.is_between(b, 5), lambda: a.round(1)),
            *(lambda: a.cast(rng.choice(CASTS)), lambda: a.dt.year(), lambda: a.dt.truncate("1d"), lambda: a.sqrt()),
            *(lambda: a.str.to_date("%Y-%m-%d"), lambda: a.str.slice(1, 3), lambda: a.cast(pl.String) + b),
            *(lambda: a.dt.offset_by("1mo"), lambda: a.dt.replace_time_zone(PARIS), lambda: a.dt.total_days()),
        ]
    )
    return grow()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_accepted_is_row_wise_and_total(seed, never_isolated):  # noqa: F811
    rng = random.Random(seed)
    frame = hostile_frame(TYPES)
    trees = []
    for _ in range(250):
        try:
            one = check_expression(grown(rng, 3), schema=frame.schema, what="probe")
        except dp.DPError:
            continue
        if one.columns:
            trees.append(one.tree)
    assert len(trees) > 10
    program = Program(trees)
    whole = [bits(one) for one in program.columns(frame)]
    assert all(len(one) == frame.height for one in whole)
    everyone = range(frame.height)
    for rows in ([7], [0, 50], rng.sample(everyone, 30), rng.sample(everyone, frame.height), [*everyone, *everyone]):
        for found, wanted in zip(program.columns(frame[rows]), whole, strict=True):
            assert bits(found) == [wanted[row] for row in rows]
    chunks = pl.concat([frame[:1], frame[1:2], frame[2:]], rechunk=False)
    made = lazy_rows(polars_rows(chunks.lazy()).make({str(i): tree for i, tree in enumerate(trees)}, keep=False))
    for engine in ENGINES:
        found = made.collect(engine=engine)
        assert [bits(found[str(place)]) for place in range(len(trees))] == whole


# ---------------------------------------------------------------------- refused expressions and their messages

ROWS = pl.Schema(
    {
        "value": pl.Float64,
        "age": pl.Int64,
        "region": pl.String,
        "day": pl.Date,
        "ts": pl.Datetime("us"),
        "cat": pl.Categorical(),
        "many": pl.List(pl.Int64),
        "price": pl.Decimal(38, 2),
        "raw": pl.Binary,
        "thing": pl.Object,
        "big": pl.UInt64,
        "kind": pl.Enum(["a", "b"]),
        "span": pl.Duration("ms"),
    }
)
v, age, region, when, group = (pl.col(name) for name in ("value", "age", "region", "ts", "cat"))
OTHER = "other rows"
REFUSED = [
    *((v > getattr(v, n)(), n, OTHER) for n in words("mean sum min max median std var first last n_unique product")),
    *((getattr(v, n)(), n, OTHER) for n in words("unique mode arg_max null_count is_unique is_duplicated rank")),
    *((getattr(v, n)(), n, OTHER) for n in words("is_first_distinct has_nulls interpolate skew any entropy implode")),
    (v - v.mean(), "mean", OTHER),
    (v.quantile(0.5), "quantile", OTHER),
    (v.over("region"), "over", OTHER),
    (v.rolling("ts", period="1d"), "rolling", OTHER),
    (v.rolling_mean(3), "rolling_mean", OTHER),
    (v.fill_null(strategy="forward"), "fill_null", OTHER),
    (v.forward_fill(), "fill_null", OTHER),
    (pl.corr("value", "age"), "correlation", OTHER),
    *((getattr(v, n)(), n, "order") for n in words("shift diff cum_sum cum_max pct_change reverse sort")),
    (v.sort_by("age"), "sort_by", "order"),
    (v.get(0), "get", "order"),
    (v.gather([0]), "gather", "order"),
    (v.head(2), "head", "number of rows"),
    (v.filter(age > 1), "filter", "number of rows"),
    (pl.col("many").explode(empty_as_null=True), "explode", "number of rows"),
    (v.drop_nulls(), "drop_nulls", "number of rows"),
    (pl.len() > 3, "len", "number of rows"),
    (pl.int_range(pl.len()), "int_range", "number of rows"),
    (v.shuffle(), "shuffle", "random"),
    (v.sample(1), "sample", "random"),
    (v.map_elements(lambda a: a, return_dtype=pl.Float64), "map_elements", "Python"),
    (v.map_batches(lambda a: a), "map_batches", "Python"),
    (v.name.map(str.upper), "name.map", "Python"),
    (pl.fold(pl.lit(0), lambda a, b: a + b, [v, age]), "object", "Python"),
    (pl.lit(object(), allow_object=True), "object", "Python"),
    (v.hash(), "hash", "stored"),
    (region.str.json_path_match("$.*"), "json_path_match", "single value"),
    (region.str.json_path_match(region), "json_path_match", "constant"),
    (group.to_physical(), "to_physical", "stored"),
    (group.cast(pl.UInt32), "cast from Categorical", "codes"),
    (group.cast(pl.Float64), "cast from Categorical", "codes"),
    (region.cast(pl.Categorical), "cast to Categorical", "pl.Enum"),
    (pl.col("kind") < pl.col("kind"), "<", "they never fail"),
    (v + pl.lit(pl.Series([1.0, 2.0])), "a literal", "to_list"),
    (v.is_in(pl.Series([1.0])), "a literal", "to_list"),
    (age.is_in(v), "is_in", "constant"),
    (age.is_in(pl.col("many")), "is_in", "constant"),
    (region.str.contains(region), "str.contains", "constant"),
    (region.str.slice(age), "str.slice", "constant"),
    (when.dt.offset_by(region), "dt.offset", "constant"),
    (region.str.contains(r"\C"), "str.contains", "splits characters"),
    (region.str.contains("(?-u)a"), "str.contains", "Unicode"),
    (region.str.to_date(), "str.to_date", "first rows"),
    (region.str.to_datetime("%Y", time_zone=PARIS), "time zone", "replace_time_zone"),
    (region.str.json_decode(pl.Int64), "str.json_decode", "extract"),
    (region.replace_strict({"a": 1}), "replace_strict", "default"),
    (region.str.pad_start(10**12), "str.pad_start", "1,000"),
    (region.str.to_integer(base=99), "str.to_integer", "base"),
    (region.str.replace_many({"a": "b"}), "str.replace_many", "replace_all"),
    (region.str.head(-3), "str.head", "not negative"),
    (pl.date(age, 1, 1), "pl.date", "str.to_date"),
    (when.dt.replace(day=31), "dt.replace", "offset_by"),
    (pl.col("many").list.eval(pl.element() + 1), "list.eval", "row-wise"),
    (pl.col("raw").cast(pl.String), "Binary", "they never fail"),
    (pl.col("raw").is_null(), "is_null", "Binary"),
    (when.fill_null(age), "Int64", "one type"),
    (age.clip(0, 2**70), "Int128", "one type"),
    (when + pl.col("span"), "+", "dt.cast_time_unit"),
    (when > "2020-01-01", ">", "one type"),
    (v.str.to_uppercase(), "upper", "pl.String"),
    (region + 1, "+", "they never fail"),
    (v > math.inf, "literal", "is_infinite"),
    (v.is_in([math.nan]), "literal", "None"),
    (age.cast(pl.Int8, wrap_numerical=True), "wrap_numerical", "not on the list"),
    (pl.col("thing").is_null(), "is_null", "Object"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expr", "name", "reason"), REFUSED, ids=[f"{place}-{name}" for place, (_, name, _) in enumerate(REFUSED)]
)
def test_the_refusal_names_the_function_and_the_reason(expr, name, reason):
    with pytest.raises(dp.ExpressionNotAllowed) as refused:
        check_expression(expr, schema=ROWS, what="filter")
    message = str(refused.value)
    assert name in message
    assert reason in message
    assert "filter" in message


def test_polars_own_answer_is_not_enough():
    for expr in (v - v.mean(), age.is_in(pl.col("many")), group.to_physical()):
        with pytest.raises(dp.ExpressionNotAllowed):
            check_expression(expr, schema=ROWS, what="filter")


def test_a_refusal_deep_inside_is_found():
    expr = pl.when((age + 1).is_between(0, pl.coalesce(v.shift(), 1.0))).then(1)
    with pytest.raises(dp.ExpressionNotAllowed, match="`shift` in the by expression"):
        check_expression(expr, schema=ROWS, what="by")


@pytest.mark.parametrize(
    "tree",
    [
        {"Function": {"input": [{"Column": "age"}], "function": "Abs", "more": 1}},
        {"Function": {"input": [{"Column": "age"}], "function": {"Round": {"by": "age"}}}},
        {"Function": {"input": [{"Column": "age"}], "function": {"Boolean": "IsNew"}}},
        {"Function": {"input": [{"Column": "age"}], "function": "BrandNew"}},
        {"Function": {"input": [{"Column": "age"}, {"Column": "age"}], "function": "Abs"}},
        {"BinaryExpr": {"left": {"Column": "age"}, "op": "New", "right": {"Column": "age"}}},
        {"BinaryExpr": {"left": {"Column": "age"}, "op": "Plus", "right": {"Column": "age"}, "how": "wrapping"}},
        {"Cast": {"expr": {"Column": "age"}, "dtype": {"OfExpr": {"Column": "age"}}, "options": "Strict"}},
        {"Literal": {"New": 1}},
        {"Brand": "New"},
        {"Column": "age", "More": 1},
        "Element",
        [],
        None,
    ],
)
def test_what_a_later_polars_might_write_is_refused(tree, monkeypatch):
    monkeypatch.setattr(from_polars, "_serialized", lambda expr, what: tree)
    with pytest.raises(dp.ExpressionNotAllowed):
        check_expression(age, schema=ROWS, what="filter")


@pytest.mark.parametrize(
    "function",
    [
        {"Round": {"decimals": 1, "mode": "HalfToEven", "by": "age"}},
        {"Boolean": {"IsIn": {"nulls_equal": False, "new": True}}},
        {"StringExpr": {"Contains": {"literal": True, "strict": True, "new": True}}},
        {"TemporalExpr": {"ReplaceTimeZone": [{"inner": UTC}, "Raise", "New"]}},
    ],
)
def test_an_option_that_a_later_polars_might_add_is_refused(function, monkeypatch):
    inputs = {
        "Round": [{"Column": "value"}],
        "Boolean": [{"Column": "age"}, {"Literal": {"Dyn": {"Int": 1}}}],
        "StringExpr": [{"Column": "region"}, {"Literal": {"Scalar": {"String": "a"}}}],
        "TemporalExpr": [{"Column": "ts"}, {"Literal": {"Scalar": {"String": "raise"}}}],
    }[next(iter(function))]
    tree = {"Function": {"input": inputs, "function": function}}
    monkeypatch.setattr(from_polars, "_serialized", lambda expr, what: tree)
    with pytest.raises(dp.ExpressionNotAllowed):
        check_expression(age, schema=ROWS, what="filter")


@pytest.mark.parametrize("expr", [region.str.contains("("), region.str.extract("(a", 1), when.dt.to_string("%")])
def test_a_constant_that_can_only_fail_is_refused_at_the_call(expr):
    with pytest.raises(dp.ExpressionNotAllowed, match="made-up rows"):
        check_expression(expr, schema=ROWS, what="filter")


def test_a_column_that_is_not_there_is_named_with_its_neighbours():
    for wrong in ("regoin", pl.col("regoin") == "a"):
        with pytest.raises(dp.InvalidParameterError, match=r"no column regoin.*Did you mean region"):
            check_expression(wrong, schema=ROWS, what="by")
    with pytest.raises(dp.InvalidParameterError, match="It has value, age"):
        check_expression("zzzzzz", schema=ROWS, what="by")


def test_what_is_no_expression_is_a_clear_error():
    with pytest.raises(dp.InvalidParameterError, match="got When"):
        check_expression(pl.when(age > 1), schema=ROWS, what="filter")
    with pytest.raises(dp.ExpressionNotAllowed, match="to_list"):
        check_expression(pl.Series([1]), schema=ROWS, what="filter")
    with pytest.raises(dp.InvalidParameterError, match="got function"):
        check_expression(lambda row: row, schema=ROWS, what="filter")


def test_too_deep_is_an_error_with_a_way_out():
    for depth in (110, 3000):
        expr = age
        for step in range(depth):
            expr = expr + step
        with pytest.raises(dp.ExpressionNotAllowed, match="with_columns"):
            check_expression(expr, schema=ROWS, what="select")


# ---------------------------------------------------------------------- names, constants, selectors and texts


def test_name_columns_and_literals():
    one = check_expression((age + v).alias("z"), schema=ROWS, what="by")
    assert (one.name, one.columns) == ("z", frozenset({"age", "value"}))
    assert check_expression("age", schema=ROWS, what="by").columns == {"age"}
    assert check_expression(v.name.suffix("_x"), schema=ROWS, what="by").name == "value_x"
    assert check_expression((age + 1).name.keep(), schema=ROWS, what="by").name == "age"
    for literal in (1, 1.5, True, None, DAY, NOON, HOUR, dt.time(1), [1, 2], Decimal("1.5"), pl.lit("a")):
        constant = check_expression(literal, schema=ROWS, what="by")
        assert (constant.name, constant.columns) == ("literal", frozenset())
    odd = pl.Schema({"^a$": pl.Int64, "*": pl.Int64})
    assert [check_expression(name, schema=odd, what="by").name for name in odd] == ["^a$", "*"]


def test_constants_are_what_was_written():
    frame = pl.DataFrame({"x": [1, 2]})
    for value in (1, -(2**63), 0.1, True, "é", DAY, NOON, HOUR, dt.time(1, 2, 3, 4), Decimal("0.10"), None):
        assert answer(pl.lit(value), frame).to_list() == [value, value]
    zoned = NOON.replace(tzinfo=dt.UTC)
    assert answer(pl.lit(zoned), frame).to_list() == [zoned, zoned]


def test_selectors_are_spelled_out():
    def names(expr):
        return [one.name for one in check_expressions(expr, schema=ROWS, what="select")]

    assert names(pl.col("value", "age").fill_null(0)) == ["value", "age"]
    assert names(cs.float() / 2) == ["value"]
    assert names(pl.col("^(value|age)$").name.suffix("_z")) == ["value_z", "age_z"]
    assert names(cs.by_name("value", "age") > cs.by_name("age", "big")) == ["value", "age"]
    total = check_expression(pl.sum_horizontal(pl.col("value", "age").fill_null(0)), schema=ROWS, what="by")
    assert total.columns == {"value", "age"}
    with pytest.raises(dp.ExpressionNotAllowed, match="stands for 2 columns"):
        check_expression(pl.col("value", "age"), schema=ROWS, what="by")
    with pytest.raises(dp.ExpressionNotAllowed, match="`shift`"):
        check_expressions(pl.col("value", "age").shift(), schema=ROWS, what="by")
    with pytest.raises(dp.ExpressionNotAllowed, match="Name the columns"):
        check_expressions(cs.starts_with("nothing"), schema=ROWS, what="by")


def test_one_text_for_one_meaning_and_another_for_another():
    def text(expr):
        return check_expression(expr, schema=ROWS, what="by").canonical

    assert text(age > 1) == text(pl.col("age") > pl.lit(1)) == text(pl.lit(1) < pl.col("age"))
    assert text(region.cast(pl.Int64)) == text(region.cast(pl.Int64, strict=False))
    assert text(age > 1) == text(age > 1.0)
    assert text(v.fill_null(0)) == text(pl.coalesce(v, 0.0))
    assert text((age > 1).alias("z")) == text(age > 1), "the name stands beside the text"
    different = [
        *(age > 1, age > 2, age >= 1, v > 1, age.is_in([1, 2]), age.is_in([1]), age.is_in([1, 3]), age + 1, age - 1),
        *(region == "1", region == "a", region.str.contains("a"), region.str.contains("a", literal=True)),
        *(
            when.dt.truncate("1d"),
            when.dt.truncate("1h"),
            age.cast(pl.Int8),
            age.cast(pl.Int16),
            v.round(1),
            v.round(2),
        ),
    ]
    assert len({text(expr) for expr in different}) == len(different)


@pytest.mark.slow
def test_the_text_is_the_same_in_another_process():
    program = (
        "import polars as pl; from dp_polars._expressions.check import check_expression as c;"
        "s = pl.Schema({'a': pl.Int64, 'b': pl.String});"
        "e = pl.col('a').is_in([1, 2]) & pl.col('b').cast(pl.Enum(['x', 'y'])).eq('x') & (pl.col('a') / 3 > 1);"
        "print(c(e, schema=s, what='by').canonical)"
    )
    texts = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout for _ in "ab"
    }
    assert len(texts) == 1
    assert texts != {""}


# ---------------------------------------------------------------------- failures behind a condition

SECRET = pl.when(pl.col("name") == "alice-secret")
HIDDEN = {
    "a pattern": lambda: SECRET.then(pl.col("name")).str.contains("("),
    "to_integer": lambda: SECRET.then(pl.col("name")).str.to_integer(base=99) == 1,
    "to_integer of base 1": lambda: SECRET.then(pl.col("name")).str.to_integer(base=1) == 1,
    "to_string": lambda: SECRET.then(pl.col("day")).dt.to_string("%z"),
    "to_string with seconds": lambda: SECRET.then(pl.col("day")).dt.to_string("%s"),
    "truncate": lambda: SECRET.then(pl.col("day")).dt.truncate("0d"),
    "round": lambda: SECRET.then(pl.col("day")).dt.round("0d"),
    "offset": lambda: SECRET.then(pl.col("day")).dt.offset_by("300000y"),
    "offset of days": lambda: SECRET.then(pl.col("day")).dt.offset_by("9999999999999d").dt.month_end(),
    "offset of weeks": lambda: SECRET.then(pl.col("day")).dt.offset_by("99999999999999w"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_failure_behind_a_condition_is_found(name):
    """No made-up row satisfies the condition, but a person's row may, and a failure would reveal that person."""
    without = pl.DataFrame({"name": ["a", "b"], "day": [dt.date(2020, 1, 1)] * 2})
    there = pl.concat([without, pl.DataFrame({"name": ["alice-secret"], "day": [dt.date(2020, 1, 1)]})])
    with pytest.raises(dp.ExpressionNotAllowed):
        answer(HIDDEN[name](), without)
    with pytest.raises(dp.ExpressionNotAllowed):
        answer(HIDDEN[name](), there)


@pytest.mark.slow
def test_a_long_chain_of_offsets_never_fails(never_isolated):  # noqa: F811
    frame = pl.DataFrame({"day": [dt.date(9999, 12, 31), dt.date(1, 1, 1)]})
    for sign in ("", "-"):
        chain = pl.col("day")
        for _ in range(25):
            chain = chain.dt.offset_by(f"{sign}1000y")
        for engine in ENGINES:
            assert answer(chain.dt.month_end().dt.year(), frame, engine).to_list() == [None, None]


# ---------------------------------------------------------------------- ways in which Polars looks at other rows


def same_bits(left, right):
    """Return whether two columns are equal to the last bit. 0.0 and -0.0 are not equal."""
    if left.dtype.is_float():
        return bool((left.to_numpy().view(np.uint64) == right.to_numpy().view(np.uint64)).all())
    return bool(left.equals(right, null_equal=True))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pl.Float64, pl.Float32])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_duration_is_divided_row_by_row(dtype, unit):
    """A divisor that is the same in all rows must give the same quotients as one that differs in some row."""
    rng = np.random.default_rng(3)
    count = 5_000
    spans = pl.Series(rng.integers(-(10**15), 10**15, count)).cast(pl.Duration(unit))
    frame = pl.DataFrame({"d": spans, "f": [True] * count})
    divisor = pl.when("f").then(pl.lit(3.3, dtype=dtype)).otherwise(pl.lit(2.0, dtype=dtype))
    more = pl.concat([frame, frame.head(1).with_columns(f=pl.lit(False))])
    for engine in ENGINES:
        alone, beside = (answer(pl.col("d") / divisor, rows, engine) for rows in (frame, more))
        assert (alone == beside.head(count)).all()


def test_a_divisor_that_is_one_value_for_all_rows_divides_like_one_of_its_own():
    frame = pl.DataFrame({"x": [956.0, -104.6, 28.799999999999997], "y": [1.0, 1.0, 1.0]}).with_columns(s=pl.lit(3.0))
    x, y = pl.col("x"), pl.col("y")
    for expr in (x / 3, x // 0.1, x % 0.1, x / pl.col("s"), x / pl.when(y > 0).then(3.0).otherwise(y)):
        for engine in ENGINES:
            single = pl.concat([answer(expr, frame[row : row + 1], engine) for row in range(3)])
            assert same_bits(answer(expr, frame, engine), single)


ZERO = pl.when("f").then(0.0).otherwise(2.0)
X = pl.col("x")
SIGNS = {
    "divisor": 1.0 / (ZERO - X),
    "sum as divisor": 1.0 / (X + ZERO),
    "less minus zero": 1.0 / (X - pl.when("f").then(-0.0).otherwise(1.0)),
    "power": (ZERO - X) ** -1,
    "angle": pl.arctan2(ZERO - X, pl.lit(-1.0)),
    "text": (ZERO - X).cast(pl.String),
    "texts": pl.concat_str(ZERO - X, pl.lit("!")),
    "format": pl.format("{}", X + ZERO),
    "horizontal": 1.0 / pl.sum_horizontal(X, ZERO),
    "literal": 1.0 / (X + 0.0),
    "literal first": 1.0 / (0.0 - X),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNS)
def test_the_sign_of_a_zero_depends_on_no_other_row(name):
    """Polars adds a zero that is the same in all rows differently from one that differs in another person's row."""
    count = 300
    frame = pl.DataFrame({"f": [True] * count, "x": [0.0, -0.0, 1.5] * (count // 3)})
    more = pl.concat([frame, frame.head(1).with_columns(f=pl.lit(False))])
    for engine in ENGINES:
        alone, beside = answer(SIGNS[name], frame, engine), answer(SIGNS[name], more, engine).head(count)
        single = pl.concat([answer(SIGNS[name], frame.slice(row, 1), engine) for row in range(3)])
        assert same_bits(alone, beside)
        assert same_bits(single, alone.head(3))


def test_constants_without_a_type_get_one():
    """Otherwise Polars' streaming engine panics if both branches occur, which reveals whether a person is there."""
    frame = pl.DataFrame({"name": ["a", "b", "bob"], "u": pl.Series([1, 2, 2**63], dtype=pl.UInt64)})
    is_bob = pl.col("name") == "bob"
    for expr in (
        pl.when(is_bob).then(2**40).otherwise(-1).replace_strict([1, 2], [3, 4], default=None),
        pl.when(is_bob).then(pl.col("u")).otherwise(pl.when(is_bob).then(-1).otherwise(-2)).is_in([1, 2]),
    ):
        for rows in (frame, frame.head(2), frame.head(1), frame.clear()):
            for engine in ENGINES:
                assert answer(expr, rows, engine).len() == rows.height
    assert answer(pl.when(is_bob).then(2**40).otherwise(-1), frame).to_list() == [-1, -1, 2**40]


@pytest.mark.slow
def test_texts_do_not_grow_without_bounds():
    frame = pl.DataFrame({"s": ["a", ""]})
    grown = pl.col("s")
    for _ in range(6):
        grown = grown.str.replace_all("a", "a" * 100, literal=True)
    assert answer(grown.str.len_chars(), frame).to_list() == [1 << 14, 0]
    long = pl.DataFrame({"s": ["x" * 40_000, '{"a": "' + "y" * 40_000 + '"}', "b"]})
    taken = answer(pl.col("s").str.extract("(x+|b)").str.len_chars(), long)
    assert taken.to_list() == [1 << 14, None, 1]
    assert answer(pl.col("s").str.json_path_match("$.a").str.len_chars(), long).to_list() == [None, 1 << 14, None]
    private = dp.private(frame.with_columns(u=1), dp.Session(epsilon=1.0, unit="u", max_rows_per_group=1))
    for _ in range(60):
        private = private.with_columns(s=pl.col("s") + pl.col("s"))
    assert private.filter(pl.col("s").str.len_chars() > 5).count(epsilon=0.5).height == 1
    with pytest.raises(dp.ExpressionNotAllowed, match="up to 100"):
        check_expression(pl.col("s").str.replace_all("a", "a" * 200), schema=frame.schema, what="by")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_comparison_has_a_value_in_every_row(engine):
    """Polars treats a choice that is the same in all rows as a scalar; compared with a constant, it became one row."""
    frame = pl.DataFrame({"s": ["a", "b"] * 50})
    same = pl.when(pl.col("s") == "bob").then(pl.lit("a")).otherwise(pl.lit("b"))
    more = pl.concat([frame, pl.DataFrame({"s": ["bob"]})])
    for expr in (
        pl.lit("b") == same,
        pl.lit("b").eq_missing(same),
        ~(pl.lit("a") >= same),
        pl.lit("b").is_between(pl.lit("a"), same),
        pl.when(pl.lit("b") == same).then(1).otherwise(2),
        pl.any_horizontal(pl.lit("b") == same),
    ):
        alone, beside = answer(expr, frame, engine), answer(expr, more, engine)
        assert len(alone) == frame.height
        assert alone.equals(beside.head(frame.height))
