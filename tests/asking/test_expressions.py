"""What may run on private rows: every allowed function is probed for being row-wise and total, the rest is refused."""

import datetime as dt
import json
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
from dp_polars.asking.allowed import FUNCTIONS, OPERATORS

import dp_polars as dp
from dp_polars.asking.expressions import check_expression, check_expressions


def words(text):
    return text.split()


POLARS_2 = int(pl.__version__.split(".")[0]) >= 2
LOW, HIGH = -(2**63), 2**63 - 1
DAY, UTC, PARIS = dt.date(2020, 2, 29), "UTC", "Europe/Paris"
NOON = dt.datetime(2020, 2, 29, 12)

# ---------------------------------------------------------------- values that break functions

DAYS = [0, 59, 18321, -719162, -719163, 2932896, 2932897, 95026236, 95026237, -96465292, -96465293, 2**31 - 1, -(2**31)]
SWITCHES = [1585443599, 1585443600, 1585449000, 1603587600, 1603591200, 1603593000]  # summer time in Paris, 2020
TEXTS = [
    *(
        "",
        "a",
        "A",
        "  a b ",
        "é",
        "ß",
        "İ",
        "😀",
        "👨‍👩‍👧",
        "a\x00b",
        "007",
        "-1.5e10",
        "1e400",
        "NaN",
        "inf",
        "x" * 120,
        "zz",
    ),
    *(
        "9223372036854775808",
        "-9223372036854775809",
        "9" * 45,
        "true",
        "2020-02-29",
        "2019-02-29",
        "20200101",
        "1,2,,3",
    ),
    *("2020-03-29 02:30:00", "2020-10-25 02:30:00", "2020-01-01T12:34:56Z", "99999-01-01", "+262143-12-31", "24:00:00"),
    *("12:34:56", "01/02/2020", "(", "[a", "\\", "$1", "${x}", "%Y", "{", "\u202e", "1_000", "ff"),
]
FLOATS = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 0.1, 1 / 3, 28.799999999999997, -104.6, 12.600000000000001, 145.34, 20.4, 5.2),
    *(5e-324, 1e308, math.inf, -math.inf, math.nan, 9.3e18, -9.3e18, 4294967296.5, 255.5, 1e18, 956.0),
]
INTEGERS = [0, 1, -1, 2, 3, 7, 100, 127, -128, 128, 255, 256, 32768, 2**31, 2**32, 2**53 + 1, 10**18, 956, 1700000000]


def integers(dtype, low, high):
    return pl.Series([low, low + 1, *(x for x in INTEGERS if low < x < high), high - 1, high, None], dtype=dtype)


def instants(unit):
    ticks = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    values = [LOW, LOW + 1, HIGH, *(second * ticks for second in SWITCHES)]
    values += [day * 86400 * ticks + off for day in DAYS for off in (0, -1)]
    return pl.Series([*(x for x in values if LOW <= x <= HIGH), None], dtype=pl.Int64)


def decimals(precision, scale):
    most = int("9" * precision)
    values = [Decimal((x < 0, tuple(map(int, str(abs(x)))), -scale)) for x in (0, 1, -1, 25, most, -most)]
    return pl.Series([*values, None], dtype=pl.Decimal(precision, scale))


NASTY = {
    **{f"i{b}": integers(getattr(pl, f"Int{b}"), -(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64, 128)},
    **{f"u{b}": integers(getattr(pl, f"UInt{b}"), 0, 2**b - 1) for b in (8, 32, 64, 128)},
    "f64": pl.Series([*FLOATS, None], dtype=pl.Float64),
    "f32": pl.Series([*FLOATS, None], dtype=pl.Float64).cast(pl.Float32),
    "bool": pl.Series([True, False, None]),
    "str": pl.Series([*TEXTS, None]),
    "bin": pl.Series([*(text.encode() for text in TEXTS[:20]), b"\xff\xfe", b"\x80", None]),
    "date": pl.Series([*DAYS, None], dtype=pl.Int32).cast(pl.Date),
    **{f"dt_{u}": instants(u).cast(pl.Datetime(u)) for u in ("ms", "us", "ns")},
    "dt_utc": instants("us").cast(pl.Datetime("us", UTC)),
    "dt_paris": instants("us").cast(pl.Datetime("us", PARIS)),
    **{f"dur_{u}": instants(u).cast(pl.Duration(u)) for u in ("ms", "us", "ns")},
    "time": pl.Series([dt.time(0), dt.time(12, 34, 56, 7), dt.time.max, None]),
    "dec": decimals(38, 2),
    "dec10": decimals(10, 4),
    "enum": pl.Series(["a", "b", "é", "", None], dtype=pl.Enum(["b", "a", "é", ""])),
    "cat": pl.Series(["b", "a", "é", "", "a", None], dtype=pl.Categorical),
    "list_i": pl.Series([[], [1], [1, None], None, [HIGH, LOW, 3], [None]], dtype=pl.List(pl.Int64)),
    "list_s": pl.Series([[], ["a"], ["a", None], None, ["é", "", "b"]], dtype=pl.List(pl.String)),
    "arr": pl.Series([[1, 2], [None, 3], None, [HIGH, LOW]], dtype=pl.Array(pl.Int64, 2)),
    "struct": pl.Series(
        [{"a": 1, "b": "x"}, {"a": None, "b": None}, None], dtype=pl.Struct({"a": pl.Int64, "b": pl.String})
    ),
    "null": pl.Series([None, None], dtype=pl.Null),
}


def frame_of(x, y=None, most=36):
    """Return a frame of the nasty values of one type, or of a mix of two types' values."""
    left = NASTY[x].alias("x")
    if y is None:
        return left.to_frame()
    right = NASTY[y].alias("y")
    rows = [(i, (3 * i + shift) % len(right)) for i in range(len(left)) for shift in (0, 1, 2)]
    rows = random.Random(len(left)).sample(rows, min(most, len(rows)))
    return pl.DataFrame([left.gather([i for i, _ in rows]), right.gather([j for _, j in rows])])


def bits(value):
    match value:
        case float():
            return "nan" if math.isnan(value) else value.hex()
        case list() | tuple():
            return tuple(map(bits, value))
        case dict():
            return tuple((key, bits(inner)) for key, inner in value.items())
    return value


def exact(series):
    """Return values that are equal exactly where the bits are: the sign of zero counts, one NaN is like another."""
    dtype = series.dtype
    if isinstance(dtype, pl.Enum | pl.Categorical):
        series = series.cast(pl.String)
    elif isinstance(dtype, pl.Struct):
        fields = zip(*(exact(field) for field in series.struct.unnest()), strict=True)
        return [None if gone else field for gone, field in zip(series.is_null(), fields, strict=True)]
    elif dtype.is_temporal():
        series = series.to_physical()
    return [bits(value) for value in series.to_list()]


def run(frame, expr, engine="in-memory"):
    return frame.lazy().with_columns(out=expr).select("out").collect(engine=engine)["out"]


def assert_row_wise_and_total(expr, frame, step=3):
    whole = run(frame, expr)
    values = exact(whole)
    assert len(values) == frame.height
    streamed = run(frame, expr, "streaming")
    assert (streamed.dtype, exact(streamed)) == (whole.dtype, values), "the engines differ"
    chunks = pl.concat([frame[:1], frame[1:2], frame[2:]], rechunk=False)
    assert exact(run(chunks, expr, "streaming")) == values, "chunks matter"
    order = [*range(frame.height - 1, -1, -1), *range(frame.height)]
    assert exact(run(frame[order], expr)) == [values[i] for i in order], "order or number of rows matters"
    present = [i for i, row in enumerate(zip(*(s.is_not_null() for s in frame), strict=True)) if all(row)]
    assert exact(run(frame[present], expr)) == [values[i] for i in present], "nulls in other rows matter"
    for i in range(0, frame.height, step):
        assert exact(run(frame[i : i + 1], expr)) == [values[i]], f"row {i} alone differs"


def checked(expr, frame, what="probe"):
    return check_expression(expr, schema=frame.schema, what=what)


# ---------------------------------------------------------------- every allowed function

x, y = pl.col("x"), pl.col("y")
INTS, NUMS = ("i8", "i64", "u8", "u64"), ("i8", "i64", "i128", "u8", "u64", "f32", "f64")
DATES = ("date", "dt_ms", "dt_us", "dt_ns", "dt_utc")
ZONED, DURS = (*DATES, "dt_paris"), ("dur_ms", "dur_us", "dur_ns")
CLOCKS = ("dt_ms", "dt_us", "dt_ns", "dt_paris", "time")


def table():
    """Yield (expression, type of x, type of y or None)."""
    yield from one(NUMS, *(getattr(x, n)() for n in words("abs sign sqrt cbrt exp log10 log1p floor ceil truncate")))
    yield from one(("i8", "i64", "f64", *DURS, "dec"), -x, x.abs())
    yield from one(NUMS, x.log(2), x.round(1), x.round(1, mode="half_away_from_zero"), x.round_sig_figs(2), x**2, x**5)
    yield from one(("f64", "f32"), x**0.5, x**-1, x**-1.5, 7 // x, 7 % x)
    yield from one(("f64", "i64"), 1 / x)
    trigonometry = "sin cos tan cot arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh degrees radians"
    yield from one(("f64", "f32", "i64"), *(getattr(x, name)() for name in trigonometry.split()))
    counts = "count_ones count_zeros leading_ones leading_zeros trailing_ones trailing_zeros"
    yield from one(("i8", "i64", "u64", "bool"), *(getattr(x, f"bitwise_{name}")() for name in counts.split()))
    yield from one(NUMS, x.is_nan(), x.is_not_nan(), x.is_finite(), x.is_infinite(), x.is_close(1, abs_tol=0.1))
    yield from one(NASTY, x.is_null(), x.is_not_null(), pl.struct(x, x.is_null().alias("gone")))
    yield from one(NUMS, x / 3, x // 3, x % 3, x / 0.1, x // 0.1, x % 0.1, x / 0, x // 0, x % 0, (x / 10).floor() * 10)
    yield from one(NUMS, x.clip(0, 100), x.clip(upper_bound=3), x.is_between(0, 10), x.fill_null(0), x.replace({1: 2}))
    yield from one(("i64", "u8"), x.is_in([1, 2, None]), x.is_in([1], nulls_equal=True), x.replace([1, 2], [3, 4]))
    yield from one(("f32", "f64"), x.is_in([1.0, math.nan]), x.fill_nan(None), x.fill_nan(0), x.fill_null(0.5))
    yield from one(NUMS, x.replace_strict({1: "one"}, default="many"), x.replace_strict([1], [5], default=None))
    yield from one(("i64", "f64"), x.cut([0, 1.5, 10]), x.cut([0, 5], labels=["low", "mid", "high"]))
    if POLARS_2:
        yield from one(("f64", "i64"), x.erf(), x.erfc(), x.truncdiv(3), x.truncdiv(0.1))
        yield from one(("f64",), x.bin_intervals([0.0, 5.0], labels=["low", "mid", "high"]))
    for a, b in [*zip(NUMS, NUMS, strict=True), ("i64", "u64"), ("i8", "f64"), ("f32", "u64"), ("bool", "i64")]:
        yield from two(a, b, x + y, x - y, x * y, x / y, x // y, x % y, x == y, x != y, x < y, x <= y, x > y, x >= y)
        yield from two(a, b, x.eq_missing(y), x.ne_missing(y), x.fill_null(y), pl.coalesce(y, x), x.is_between(y, y))
        yield from two(a, b, pl.min_horizontal(x, y), pl.max_horizontal(x, y), pl.sum_horizontal(x, y))
        yield from two(a, b, pl.mean_horizontal(x, y), pl.when(x > y).then(x).otherwise(y))
    yield from two("f64", "f32", pl.arctan2(x, y), x.is_close(y), x / pl.when(y > 0).then(3.0).otherwise(7.0))
    yield from two("f64", "f64", x.clip(y, y), x / y / 7, pl.mean_horizontal(x, y, x * 2))
    for kind in ("bool", "i64"):
        yield from two(kind, kind, x & y, x | y, x ^ y, ~x)
    yield from two("bool", "bool", pl.any_horizontal(x, y), pl.all_horizontal(x, y), x + y, pl.when(x).then(y))
    yield from strings()
    yield from calendars()
    for kind in ("str", "date", "dt_us", "dur_us", "time", "bin", "enum", "dec"):
        yield from two(kind, kind, x == y, x < y, x.is_between(y, y), pl.min_horizontal(x, y), pl.coalesce(x, y))
    for kind in ("cat", "list_i", "arr", "struct"):
        yield from two(kind, kind, x == y, x.eq_missing(y), x.fill_null(y), pl.when(x == y).then(x).otherwise(y))
    yield from one(("enum", "cat"), x == "a", x != "zz", x.is_in(["a"]), x.cast(pl.String), x.cat.starts_with("a"))
    yield from one(("enum", "cat"), x.cat.len_chars(), x.cat.len_bytes(), x.cat.ends_with("a"), x.cat.slice(0, 1))
    yield from one(
        ("enum",), x.replace_strict({"a": 1}, default=0), x > "a", x.fill_null(pl.lit("a", NASTY["enum"].dtype))
    )
    yield from one(("dec", "dec10"), x == 1, x > 1.5, x <= Decimal("1.50"), x.fill_null(0), x.cast(pl.Float64))
    yield from one(("bin",), x.bin.size(), x.bin.contains(b"a"), x.bin.starts_with(b"a"), x.bin.ends_with(b"a"))
    yield from one(("bin",), x.bin.encode("hex"), x.bin.encode("base64"), x.is_in([b"a"]))
    yield from one(("list_i",), x.list.len(), x.list.sum(), x.list.min(), x.list.max(), x.list.contains(1))
    yield from one(("list_i", "list_s"), x.list.get(2), x.list.get(-9), x.list.first(), x.list.last(), x.list.head(1))
    yield from one(("list_s",), x.list.join("-"), x.list.tail(1), x.list.slice(-2, 1), x.list.contains("a"))
    yield from one(("arr",), x.arr.len(), x.arr.get(1), x.arr.get(9), x.arr.contains(1))
    yield from one(("struct",), x.struct.field("a"), x.struct.field("b").str.len_chars())


def strings():
    text = x.str
    names = "to_lowercase to_uppercase to_titlecase len_chars len_bytes reverse escape_regex strip_chars"
    yield from one(("str",), *(getattr(text, name)() for name in names.split()))
    yield from one(("str",), text.contains("a.*b|é"), text.contains("(", literal=True), text.contains_any(["a", "é"]))
    yield from one(
        ("str",), text.count_matches("a|"), text.find("a"), text.extract(r"(\d+)-(\d+)", 2), text.extract_all("a")
    )
    yield from one(("str",), text.head(3), text.head(-3), text.tail(2), text.slice(-3, 2), text.slice(HIGH, 2**63))
    yield from one(("str",), text.pad_start(9, "é"), text.pad_end(9), text.zfill(9), text.normalize("NFKC"))
    yield from one(("str",), text.replace("(a)", "$1$9"), text.replace_all("[aé]?", "-"), text.replace_many({"a": "b"}))
    yield from one(("str",), text.strip_chars("aé"), text.strip_chars_start(), text.strip_chars_end("b"))
    yield from one(("str",), text.strip_prefix("a"), text.strip_suffix("b"), text.split(","), text.split_exact(",", 1))
    yield from one(("str",), text.splitn(",", 2), text.encode("hex"), text.encode("base64"))
    yield from one(("str",), text.decode("hex"), text.decode("base64"), text.to_decimal(scale=2))
    yield from one(("str",), text.to_integer(), text.to_integer(base=16), text.to_integer(dtype=pl.Int8))
    yield from one(("str",), text.to_date("%Y-%m-%d"), text.to_date("%d/%m/%Y"), text.to_date("%Y-%m-%d", exact=False))
    yield from one(("str",), text.to_datetime("%Y-%m-%d %H:%M:%S"), text.to_datetime("%+"), text.to_time("%H:%M:%S"))
    yield from one(("str",), text.to_datetime("%Y-%m-%d %H:%M:%S", time_zone=UTC), text.to_date("%Y-%m-%d").dt.year())
    yield from one(("str",), text.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ns").dt.replace_time_zone(PARIS))
    yield from one(("str",), x.is_in(["a", "é"]), x.replace_strict({"a": 1}, default=0), x.replace("a", "b"), x + "é")
    yield from two("str", "str", text.starts_with(y), text.ends_with(y), text.starts_with("a"), x + y)
    for kind in ("str", "i64", "f64", "bool", "date", "dt_paris", "time", "enum", "cat", "dec"):
        joined = pl.concat_str(x, y, separator="-", ignore_nulls=True)
        yield from two("str", kind, pl.concat_str(x, y), joined, pl.format("{}é{}", x, y))


def calendars():
    parts = (
        "millennium century year iso_year is_leap_year quarter month days_in_month week weekday day ordinal_day date"
    )
    yield from one(ZONED, *(getattr(x.dt, name)() for name in parts.split()), x.dt.timestamp("ns"), x.dt.epoch("s"))
    yield from one(CLOCKS, *(getattr(x.dt, f"{n}second")() for n in ("", "milli", "micro", "nano")))
    yield from one(
        CLOCKS, x.dt.hour(), x.dt.minute(), x.dt.second(fractional=True), x.dt.time(), x.dt.to_string("%H:%M")
    )
    yield from one(DATES, x.dt.month_start(), x.dt.month_end(), x.dt.truncate("1mo"), x.dt.truncate("7d"))
    yield from one(DATES, x.dt.round("1w"), x.dt.offset_by("1mo"), x.dt.offset_by("-900y"), x.dt.combine(dt.time(1)))
    yield from one(ZONED, x.dt.to_string("%G-W%V %d"), x.cast(pl.String), x.dt.epoch("d"), x.fill_null(DAY))
    yield from one(DATES, x.dt.truncate("1d").dt.offset_by("1d").dt.year())
    yield from one(CLOCKS[:-1], x.dt.convert_time_zone("America/New_York").dt.hour(), x.dt.replace_time_zone(PARIS))
    yield from one(CLOCKS[:-1], x.dt.replace_time_zone(None), x.dt.replace_time_zone(PARIS, ambiguous="earliest"))
    yield from one((*CLOCKS[:-1], *DURS), *(x.dt.cast_time_unit(unit) for unit in ("ms", "us", "ns")))
    if not POLARS_2:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from one(CLOCKS[:-1], x.dt.datetime())
    yield from one(("dt_ms", "dt_us", "dt_ns"), x < DAY, x >= NOON, x.is_between(DAY, NOON), x.is_in([NOON]), x - NOON)
    yield from one(("date",), x < DAY, x.is_in([DAY]), x < NOON, x.clip(DAY, DAY), x + dt.timedelta(1), x - DAY)
    yield from one(("dt_us", "dt_paris"), x + dt.timedelta(10**6), x - dt.timedelta(days=10**6))
    totals = "days hours minutes seconds milliseconds microseconds nanoseconds"
    yield from one(DURS, *(getattr(x.dt, f"total_{name}")() for name in totals.split()), x * 2, x * 2.5, x / 2)
    yield from one(DURS, x.dt.total_days(fractional=True), x.dt.total_seconds(fractional=True), x / dt.timedelta(7))
    yield from one(DURS, x > dt.timedelta(1), x.is_in([dt.timedelta(1)]), x.fill_null(dt.timedelta(0)), x + DAY)
    yield from one(("i8", "i64", "u32"), pl.duration(days=x), pl.duration(weeks=x, nanoseconds=x, time_unit="ns"))
    yield from one(
        ("i64", "f64", "u64"), pl.from_epoch(x, "s").dt.year(), pl.from_epoch(x, "d"), pl.from_epoch(x, "ns")
    )
    for a, b in (("dt_us", "dt_ns"), ("date", "date"), ("dt_ms", "date"), ("time", "time"), ("dur_ms", "dur_ns")):
        yield from two(a, b, x - y, x == y, x < y)
    for a in ("date", "dt_us", "dt_paris", "dur_us"):
        yield from two(a, "dur_ms", x + y, x - y)
    yield from two("dur_us", "dur_us", x / y, x + y, pl.sum_horizontal(x, y))
    yield from two("dur_us", "i64", x * y, y * x, x / y)
    yield from two("date", "time", x.dt.combine(y))
    yield from two("dt_us", "dt_ns", pl.max_horizontal(x, y), x.fill_null(y), x.is_between(y, y))


def one(kinds, *expressions):
    return ((expr, kind, None) for expr in expressions for kind in kinds)


def two(a, b, *expressions):
    return ((expr, a, b) for expr in expressions)


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    PROBES = list(table())
CASTS = [
    *(getattr(pl, name) for name in words("Boolean Int8 Int64 Int128 UInt8 UInt64 Float32 Float64 String Date Time")),
    *(pl.Datetime(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, UTC, PARIS)),
    *(pl.Duration("ms"), pl.Duration("ns"), pl.Decimal(38, 2), pl.Decimal(5, 0), pl.Enum(["a", "1"]), pl.Binary),
]


def unfit(error):
    """Return whether Polars has no such function on the types at all: nothing to probe then."""
    return isinstance(error, dp.InvalidParameterError) or "made-up rows" in str(error)


_OUTCOMES = {}


def outcome(expr, a, b):
    """Return what checking a probe gives, its error included; each is checked once."""
    if id(expr) not in _OUTCOMES.setdefault((a, b), {}):
        try:
            _OUTCOMES[a, b][id(expr)] = checked(expr, frame_of(a, b))
        except dp.DPError as error:
            _OUTCOMES[a, b][id(expr)] = error
    return _OUTCOMES[a, b][id(expr)]


@pytest.mark.parametrize("group", range(20))
def test_every_allowed_function_is_row_wise_and_total(group):
    for expr, a, b in PROBES[group::20]:
        safe, frame = outcome(expr, a, b), frame_of(a, b)
        if isinstance(safe, dp.DPError):
            if not unfit(safe):
                pytest.fail(f"{expr} on {a}, {b}: {safe}")
            continue
        try:
            assert_row_wise_and_total(safe.expr, frame)
        except (AssertionError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            pytest.fail(f"{expr} on {a}, {b}: {error}")


def used(tree):
    """Yield the paths of the functions and operators in a canonical tree."""
    if isinstance(tree, list):
        for part in tree:
            yield from used(part)
    elif isinstance(tree, dict):
        if tree.keys() == {"left", "op", "right"}:
            yield tree["op"]
        if tree.keys() == {"input", "function"}:
            function = tree["function"]
            first, inner = (function, None) if isinstance(function, str) else next(iter(function.items()))
            second = inner if isinstance(inner, str) else next(iter(inner), "") if isinstance(inner, dict) else ""
            yield first if first in FUNCTIONS else f"{first}.{second}"
        for part in tree.values():
            yield from used(part)


def test_every_function_on_the_list_is_probed():
    seen = set()
    for expr, a, b in PROBES:
        safe = outcome(expr, a, b)
        if isinstance(safe, dp.DPError):
            continue
        seen |= set(used(json.loads(safe.canonical)))
        seen |= set(used(json.loads(expr.meta.serialize(format="json"))))  # a rewritten name counts as probed
    only_1, only_2 = {"TemporalExpr.Datetime"}, {"Erf", "Erfc", "Bin", "TruncDivide"}
    assert {*FUNCTIONS, *OPERATORS} - seen == (only_1 if POLARS_2 else only_2)


def test_most_probes_run_and_were_not_skipped_as_unfit():
    skipped = sum(isinstance(outcome(*probe), dp.DPError) for probe in PROBES)
    assert skipped < 0.06 * len(PROBES), f"{skipped} of {len(PROBES)}"


@pytest.mark.parametrize("kind", sorted(set(NASTY) - {"list_i", "list_s", "arr", "struct"}))
def test_casts_give_null_and_never_fail(kind):
    frame = frame_of(kind)
    for target in CASTS:
        try:
            safe = checked(x.cast(target), frame)
        except dp.DPError:
            continue
        assert_row_wise_and_total(safe.expr, frame)


ZONES = ("Europe/Paris", "America/Sao_Paulo", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo")


@pytest.mark.parametrize("zone", ZONES)
def test_no_hour_of_fifty_years_makes_a_time_zone_fail(zone):
    hours = pl.datetime_range(dt.datetime(1975, 1, 1), dt.datetime(2025, 1, 1), "30m", time_zone=UTC, eager=True)
    frame = hours.dt.convert_time_zone(zone).alias("x").to_frame()
    local = x.dt.replace_time_zone(None)
    for expr in (
        *(x.dt.date(), x.dt.hour(), x.dt.to_string("%Z"), x.dt.convert_time_zone(PARIS).dt.month(), x.cast(pl.Date)),
        *(local.dt.truncate("1d"), local.dt.offset_by("1d"), local.dt.replace_time_zone(zone), x + dt.timedelta(1)),
    ):
        assert run(frame, checked(expr, frame).expr).len() == frame.height
    for expr in (x.dt.truncate("1d"), x.dt.offset_by("1d"), x.dt.month_start(), x.dt.round("1h"), x.dt.month_end()):
        with pytest.raises(dp.ExpressionNotAllowed, match=r"replace_time_zone\(None\)"):
            checked(expr, frame)


# ---------------------------------------------------------------- compositions

SCHEMA = ["i8", "i64", "u64", "f32", "f64", "bool", "str", "date", "dt_us", "dt_paris", "dur_us", "enum", "dec10"]


def grown(rng, depth):
    """Return a random expression over the columns of `SCHEMA`; many do not fit their types."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([pl.col(rng.choice(SCHEMA)), pl.lit(rng.choice([0, 1, -3, 2.5, "a", True, None, DAY, NOON]))])
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


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_accepted_is_row_wise_and_total(seed):
    rng = random.Random(seed)
    frame = pl.DataFrame(
        [NASTY[k].gather([(3 * i + j) % len(NASTY[k]) for i in range(24)]).alias(k) for j, k in enumerate(SCHEMA)]
    )
    accepted = 0
    for _ in range(140):
        try:
            safe = checked(grown(rng, 3).alias("z"), frame)
        except dp.DPError:
            continue
        if safe.columns:
            accepted += 1
            assert_row_wise_and_total(safe.expr, frame.select(sorted(safe.columns)))
    assert accepted > 5


def test_a_divisor_that_is_one_value_for_all_rows_divides_like_one_of_its_own():
    frame = pl.DataFrame({"x": [956.0, -104.6, 28.799999999999997], "y": [1.0, 1.0, 1.0]}).with_columns(s=pl.lit(3.0))
    assert run(frame, x / 3)[1] != run(frame[1:2], x / 3)[0], "Polars divides alike now: the rewrite can go"
    for expr in (x / 3, x // 0.1, x % 0.1, x / pl.col("s"), x / pl.when(y > 0).then(3.0).otherwise(y)):
        assert_row_wise_and_total(checked(expr, frame).expr, frame, step=1)


# ---------------------------------------------------------------- what is refused, and in which words

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
    }
)
v, age, region, ts, cat = (pl.col(name) for name in ("value", "age", "region", "ts", "cat"))
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
    (cat.to_physical(), "to_physical", "stored"),
    (cat.cast(pl.UInt32), "cast from Categorical", "codes"),
    (region.cast(pl.Categorical), "cast to Categorical", "pl.Enum"),
    (cat < "b", "<", "pl.String"),
    (v + pl.lit(pl.Series([1.0, 2.0])), "a literal", "to_list"),
    (v.is_in(pl.Series([1.0])), "a literal", "to_list"),
    (age.is_in(v), "is_in", "constant"),
    (age.is_in(pl.col("many")), "is_in", "constant"),
    (region.str.contains(region), "str.contains", "constant"),
    (v**age, "pow", "constant"),
    (pl.col("kind").fill_null("a"), "fill_null", "one type"),
    (region.str.to_date(), "str.to_date", "first rows"),
    (region.str.to_datetime("%Y", time_zone=PARIS), "time_zone", "replace_time_zone"),
    (region.str.json_decode(pl.Int64), "str.json_decode", "extract"),
    (region.replace_strict({"a": 1}), "replace_strict", "default"),
    (region.str.pad_start(10**12), "str.pad_start", "1000"),
    (pl.date(age, 1, 1), "pl.date", "str.to_date"),
    (ts.dt.replace(day=31), "dt.replace", "offset_by"),
    (pl.col("many").list.eval(pl.element() + 1), "list.eval", "row-wise"),
    (pl.col("price") + pl.col("price"), "+", "pl.Float64"),
    (v.cast(pl.Decimal(10, 2)), "Decimal", "pl.String"),
    (pl.col("raw").cast(pl.String), "Binary", "null instead"),
    (ts.fill_null(age), "fill_null", "Duration|not known|cast"),
    (age.clip(pl.col("big"), 9), "clip", "one type"),
    (v > math.inf, "literal", "is_infinite"),
    (age.cast(pl.Int8, wrap_numerical=True), "wrap_numerical", "not on the list"),
    (pl.col("thing").is_null(), "thing", "Object"),
]


@pytest.mark.parametrize(
    ("expr", "name", "reason"), REFUSED, ids=[f"{i}-{name}" for i, (_, name, _) in enumerate(REFUSED)]
)
def test_the_refusal_names_the_function_and_the_reason(expr, name, reason):
    with pytest.raises(dp.DPError) as refused:
        check_expression(expr, schema=ROWS, what="filter")
    message = str(refused.value)
    assert name in message
    assert any(word in message for word in reason.split("|")) or "Polars cannot run" in message, message
    assert "filter" in message


def test_polars_own_answer_is_not_enough():
    for expr in (v - v.mean(), age.is_in(pl.col("many")), cat.to_physical()):
        with pytest.raises(dp.ExpressionNotAllowed):
            check_expression(expr, schema=ROWS, what="filter")


def test_a_refusal_deep_inside_is_found():
    expr = pl.when((age + 1).is_between(0, pl.struct(v.shift().alias("s")).struct.field("s"))).then(1)
    with pytest.raises(dp.ExpressionNotAllowed, match="`shift` in the by expression"):
        check_expression(expr, schema=ROWS, what="by")


@pytest.mark.parametrize(
    "tree",
    [
        {"Function": {"input": [{"Column": "age"}], "function": "Abs", "more": 1}},
        {"Function": {"input": [{"Column": "age"}], "function": {"Round": {"decimals": 1, "by": "age"}}}},
        {"Function": {"input": [{"Column": "age"}], "function": {"Boolean": "IsNew"}}},
        {"Function": {"input": [{"Column": "age"}], "function": "BrandNew"}},
        {"BinaryExpr": {"left": {"Column": "age"}, "op": "New", "right": {"Column": "age"}}},
        {"Cast": {"expr": {"Column": "age"}, "dtype": {"OfExpr": {"Column": "age"}}, "options": "Strict"}},
        {"Brand": "New"},
        {"Column": "age", "More": 1},
        "Element",
        [],
        None,
    ],
)
def test_what_a_later_polars_might_write_is_refused(tree):
    from dp_polars.asking.outline import Question, outline

    with pytest.raises(dp.ExpressionNotAllowed):
        outline(tree, Question("filter", ROWS))


@pytest.mark.parametrize(
    "expr", [region.str.contains("("), region.str.to_integer(base=99), age.clip(0, 2**70), age**-1]
)
def test_a_constant_that_can_only_fail_is_refused_at_the_call(expr):
    with pytest.raises(dp.ExpressionNotAllowed, match="made-up rows"):
        check_expression(expr, schema=ROWS, what="filter")


def test_a_column_that_is_not_there_is_named_with_its_neighbours():
    for wrong in ("regoin", pl.col("regoin") == "a"):
        with pytest.raises(dp.InvalidParameterError, match=r"no column regoin.*Did you mean region"):
            check_expression(wrong, schema=ROWS, what="by")
    with pytest.raises(dp.InvalidParameterError, match="It has value, age"):
        check_expression("zzzzzz", schema=ROWS, what="by")


def test_types_that_polars_cannot_combine_are_a_clear_error():
    with pytest.raises(dp.InvalidParameterError, match="Polars cannot run the filter expression"):
        check_expression(ts > "2020-01-01", schema=ROWS, what="filter")
    with pytest.raises(dp.InvalidParameterError, match="got When"):
        check_expression(pl.when(age > 1), schema=ROWS, what="filter")


def test_too_deep_is_an_error_with_a_way_out():
    for depth in (90, 3000):
        expr = age
        for i in range(depth):
            expr = expr + i
        with pytest.raises(dp.ExpressionNotAllowed, match="with_columns"):
            check_expression(expr, schema=ROWS, what="select")


# ---------------------------------------------------------------- what comes back


def test_strict_forms_become_null_returning():
    frame = pl.DataFrame({"region": ["7", "x", "2020-01-01", None]})
    for expr, values in [
        (region.cast(pl.Int64), [7, None, None, None]),
        (region.str.to_integer(), [7, None, None, None]),
        (region.str.to_date("%Y-%m-%d").dt.year(), [None, None, 2020, None]),
        (region.str.split("-").list.get(2), [None, None, "01", None]),
        (region.str.decode("hex"), [None, None, None, None]),
    ]:
        assert run(frame, checked(expr, frame).expr).to_list() == values


def test_name_columns_and_literals():
    one = check_expression((age + v).alias("z"), schema=ROWS, what="by")
    assert (one.name, one.columns) == ("z", frozenset({"age", "value"}))
    assert check_expression("age", schema=ROWS, what="by").columns == {"age"}
    assert check_expression(v.name.suffix("_x"), schema=ROWS, what="by").name == "value_x"
    assert check_expression((age + 1).name.keep(), schema=ROWS, what="by").name == "age"
    for literal in (1, 1.5, True, None, DAY, NOON, dt.timedelta(1), b"a", [1, 2], Decimal("1.5")):
        constant = check_expression(literal, schema=ROWS, what="by")
        assert (constant.name, constant.columns) == ("literal", frozenset())
    odd = pl.Schema({"^a$": pl.Int64, "*": pl.Int64})
    assert [check_expression(name, schema=odd, what="by").name for name in odd] == ["^a$", "*"]


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

    assert text(age > 1) == text(pl.col("age") > pl.lit(1))
    assert text(region.cast(pl.Int64)) == text(region.cast(pl.Int64, strict=False))
    different = [
        age > 1,
        age > 2,
        age >= 1,
        age > 1.0,
        v > 1,
        age.is_in([1, 2]),
        age.is_in([2, 1]),
        (age > 1).alias("z"),
    ]
    assert len({text(expr) for expr in different}) == len(different)


def test_the_text_is_the_same_in_another_process():
    program = (
        "import polars as pl; from dp_polars.asking.expressions import check_expression as c;"
        "s = pl.Schema({'a': pl.Int64, 'b': pl.String});"
        "e = pl.col('a').is_in([1, 2]) & pl.col('b').cast(pl.Enum(['x', 'y'])).eq('x') & (pl.col('a') / 3 > 1);"
        "print(c(e, schema=s, what='by').canonical)"
    )
    texts = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout for _ in "ab"
    }
    assert len(texts) == 1
    assert texts != {""}


@pytest.mark.parametrize("group", range(4))
def test_reading_back_gives_the_expression_that_was_checked(group):
    for expr, a, b in PROBES[group::28]:
        safe = outcome(expr, a, b)
        if isinstance(safe, dp.DPError):
            continue
        again = json.loads(safe.expr.meta.serialize(format="json"))
        assert json.dumps(again, sort_keys=True, separators=(",", ":")) == safe.canonical


def test_on_ordinary_values_nothing_changes():
    frame = pl.DataFrame(
        {"age": [1, 20, 70, None], "value": [1.5, 8.0, -2.0, None], "region": ["a", "b ", "2020-01-01", None]},
    ).with_columns(ts=pl.lit(NOON) + pl.duration(days=pl.col("age")))
    for expr in (
        *((age > 18) & (v < 5), (v / 2).floor() * 2, ts.dt.truncate("1mo"), ts.dt.year(), ts.dt.offset_by("3d"), v % 4),
        *(region.str.strip_chars().str.to_uppercase(), pl.when(age < 18).then(pl.lit("child")).otherwise(region)),
        *(age.is_in([1, 70]), age.replace_strict({1: "x"}, default=None), pl.format("{}-{}", age, ts), ts - NOON),
    ):
        assert run(frame, checked(expr, frame).expr).equals(run(frame, expr), null_equal=True), expr


# ---------------------------------------------------------------- failures behind a condition


SECRET = pl.when(pl.col("name") == "alice-secret")
HIDDEN = {
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
    """No made-up row meets the condition, a person's row may: whether it fails would tell that she is there."""
    frame = pl.DataFrame({"name": ["a", "b"], "day": [dt.date(2020, 1, 1)] * 2})
    with pytest.raises(dp.ExpressionNotAllowed):
        check_expression(HIDDEN[name](), schema=frame.schema, what="filter")


def test_a_long_chain_of_offsets_never_fails():
    frame = pl.DataFrame({"day": [dt.date(9999, 12, 31), dt.date(1, 1, 1)]})
    for sign in ("", "-"):
        chain = pl.col("day")
        for _ in range(25):
            chain = chain.dt.offset_by(f"{sign}1000y")
        checked = check_expression(chain.dt.month_end().dt.year(), schema=frame.schema, what="by")
        for engine in ("in-memory", "streaming"):
            frame.lazy().select(checked.expr).collect(engine=engine)


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Float32])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_duration_is_divided_row_by_row(dtype, unit):
    """A divisor that happens to be one value in all rows must not divide otherwise than one that differs in a row."""
    rng = np.random.default_rng(3)
    n = 5_000
    frame = pl.DataFrame({"d": pl.Series(rng.integers(-(10**15), 10**15, n)).cast(pl.Duration(unit)), "f": [True] * n})
    divisor = pl.when("f").then(pl.lit(3.3, dtype=dtype)).otherwise(pl.lit(2.0, dtype=dtype))
    checked = check_expression(pl.col("d") / divisor, schema=frame.schema, what="by").expr
    more = pl.concat([frame, frame.head(1).with_columns(f=pl.lit(False))])
    for engine in ("in-memory", "streaming"):
        alone, beside = (one.lazy().select(checked).collect(engine=engine).to_series() for one in (frame, more))
        assert (alone == beside.head(n)).all()


# ---------------------------------------------------------------- ways in which Polars looks at other rows


def same_bits(left, right):
    """Whether two columns are equal to the last bit: 0.0 and -0.0 are not."""
    if left.dtype.is_float():
        left, right = left.to_numpy().view(np.uint64), right.to_numpy().view(np.uint64)
        return bool((left == right).all())
    return bool(left.equals(right, null_equal=True))


ZERO = pl.when("f").then(0.0).otherwise(2.0)
X = pl.col("x")
SIGNS = {
    "divisor": 1.0 / (ZERO - X),
    "sum as divisor": 1.0 / (X + ZERO),
    "less minus zero": 1.0 / (X - pl.when("f").then(-0.0).otherwise(1.0)),
    "power": (ZERO - X) ** -1,
    "angle": pl.arctan2(ZERO - X, pl.lit(-1.0)),
    "cotangent": (ZERO - X).cot(),
    "text": (ZERO - X).cast(pl.String),
    "texts": pl.concat_str(ZERO - X, pl.lit("!")),
    "format": pl.format("{}", X + ZERO),
    "horizontal": 1.0 / pl.sum_horizontal(X, ZERO),
    "literal": 1.0 / (X + 0.0),
    "literal first": 1.0 / (0.0 - X),
}


@pytest.mark.parametrize("name", SIGNS)
@pytest.mark.parametrize("steps", [1, 2])
def test_the_sign_of_a_zero_depends_on_no_other_row(name, steps):
    """A zero that is the same in all rows is added otherwise by Polars than one that differs in another's row."""
    n = 300
    frame = pl.DataFrame({"f": [True] * n, "x": [0.0, -0.0, 1.5] * (n // 3)})
    more = pl.concat([frame, frame.head(1).with_columns(f=pl.lit(False))])

    def found(rows, engine):
        checked = check_expression(SIGNS[name], schema=frame.schema, what="by").expr
        if steps == 2:  # the zero is made in a step of its own
            first = check_expression(ZERO - X, schema=frame.schema, what="by").expr
            schema = pl.Schema({**frame.schema, "z": pl.Float64()})
            second = check_expression(1.0 / pl.col("z"), schema=schema, what="by").expr
            return rows.lazy().with_columns(z=first).select(second).collect(engine=engine).to_series().head(n)
        return rows.lazy().select(checked).collect(engine=engine).to_series().head(n)

    for engine in ("in-memory", "streaming"):
        alone, beside = found(frame, engine), found(more, engine)
        single = pl.concat([found(frame.slice(i, 1), engine) for i in range(3)])
        assert same_bits(alone, beside)
        assert same_bits(single, alone.head(3))


def test_constants_without_a_type_get_one():
    """Else Polars' streaming engine panics when both branches occur, which tells whether one person is there."""
    frame = pl.DataFrame({"name": ["a", "b", "bob"], "u": pl.Series([1, 2, 2**63], dtype=pl.UInt64)})
    is_bob = pl.col("name") == "bob"
    exprs = {
        "mixed": pl.when(is_bob).then(2**40).otherwise(-1).replace_strict([1, 2], [3, 4], default=None),
        "unsigned": pl.when(is_bob).then(pl.col("u")).otherwise(pl.when(is_bob).then(-1).otherwise(-2)).is_in([1, 2]),
    }
    for expr in exprs.values():
        checked = check_expression(expr, schema=frame.schema, what="by").expr
        for rows in (frame, frame.head(2), frame.head(1), frame.clear()):
            for engine in ("in-memory", "streaming"):
                rows.lazy().select(checked).collect(engine=engine)
    large = check_expression(pl.when(is_bob).then(2**40).otherwise(-1), schema=frame.schema, what="by").expr
    assert frame.select(large).to_series().to_list() == [-1, -1, 2**40]


def test_a_function_of_nothing_is_refused():
    """On a single row Polars fails on it: a filter that leaves one person would tell."""
    with pytest.raises(dp.ExpressionNotAllowed, match="without a value"):
        check_expression(
            pl.when(pl.col("s") == "").then(pl.lit(None).str.to_uppercase()).otherwise(pl.col("s")),
            schema=pl.Schema({"s": pl.String}),
            what="by",
        )


def test_texts_do_not_grow_without_bounds():
    frame = pl.DataFrame({"s": ["a", ""]})
    grown = pl.col("s")
    for _ in range(6):
        grown = grown.str.replace_all("a", "a" * 100, literal=True)
    checked = check_expression(grown.str.len_chars(), schema=frame.schema, what="by").expr
    assert frame.select(checked).to_series().max() <= 100 * (1 << 14)
    private = dp.private(frame.with_columns(u=1), dp.Session(epsilon=1.0, unit="u", max_rows_per_group=1))
    for _ in range(60):
        private = private.with_columns(s=pl.col("s") + pl.col("s"))
    assert private.filter(pl.col("s").str.len_chars() > 5).count(epsilon=0.5).height == 1
    with pytest.raises(dp.ExpressionNotAllowed, match="up to 100"):
        check_expression(pl.col("s").str.replace_all("a", "a" * 200), schema=frame.schema, what="by")


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_comparison_has_a_value_in_every_row(engine):
    """A choice that is the same in all rows is one value for Polars; compared with a constant it was one row."""
    frame = pl.DataFrame({"s": ["a", "b"] * 50})
    same = pl.when(pl.col("s") == "bob").then(pl.lit("a")).otherwise(pl.lit("b"))
    exprs = [
        pl.lit("b") == same,
        pl.lit("b").eq_missing(same),
        ~(pl.lit("a") >= same),
        pl.lit("b").is_between(pl.lit("a"), same),
        pl.when(pl.lit("b") == same).then(1).otherwise(2),
        pl.any_horizontal(pl.lit("b") == same),
    ]
    more = pl.concat([frame, pl.DataFrame({"s": ["bob"]})])
    for expr in exprs:
        checked = check_expression(expr, schema=frame.schema, what="by").expr
        alone, beside = (rows.lazy().select(checked).collect(engine=engine).to_series() for rows in (frame, more))
        assert len(alone) == frame.height
        assert alone.equals(beside.head(frame.height))
