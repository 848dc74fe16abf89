"""Dates, datetimes, durations and times of day."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any
from zoneinfo import available_timezones

import polars as pl

from dp_polars._expressions.constants import fits
from dp_polars._expressions.operations.base import (
    FLOAT,
    INT,
    TEXT,
    TRUTH,
    apply,
    as_number,
    as_text,
    as_type,
    bad,
    check_text,
    common_type,
    make,
    operation,
    stored_integer,
    wrong_type,
)
from dp_polars._expressions.tree import Constant, Expression
from dp_polars._expressions.types import CALENDAR, TICKS, kind_of, ticks_of, zone_of

_INSIDE = "Times outside the years 1 to 9999 give null."
_PARTS_OF_DATES = (
    *("year", "iso_year", "quarter", "month", "week", "weekday", "day", "ordinal_day", "century", "millennium"),
    *("is_leap_year", "days_in_month"),
)
_PARTS_OF_TIMES = ("hour", "minute", "second", "millisecond", "microsecond", "nanosecond")


def _date(x: Expression, spoken: str, kinds: frozenset[str] = CALENDAR) -> Expression:
    if kind_of(x.dtype) == "null":
        return Constant(None, pl.Date() if "date" in kinds else pl.Datetime("us"))
    if kind_of(x.dtype) not in kinds:
        raise wrong_type(spoken, x, fix="It accepts dates and datetimes; parse texts with `str.to_date(format)` first.")
    return x


@operation(
    "date_part",
    f"The calendar and the clock define every part. {_INSIDE}",
    spoken="dt",
    samples=tuple({"part": part} for part in (*_PARTS_OF_DATES, *_PARTS_OF_TIMES)),
)
def _date_part(x: Expression, *, part: str) -> Expression:
    if part not in (*_PARTS_OF_DATES, *_PARTS_OF_TIMES):
        raise bad(f"dt.{part}", "is not a part of a date or time", "Use year, month, day, hour and so on.")
    kinds = frozenset({"datetime", "time"}) if part in _PARTS_OF_TIMES else CALENDAR
    return make("date_part", (_date(x, f"dt.{part}", kinds),), TRUTH if part == "is_leap_year" else INT, part=part)


@operation("to_date", f"Every time has a day. {_INSIDE}", spoken="dt.date")
def _to_date(x: Expression) -> Expression:
    moment = _date(x, "dt.date")
    return moment if moment.dtype == pl.Date() else make("to_date", (moment,), pl.Date())


@operation("to_time", f"Every datetime has a time of day. {_INSIDE}", spoken="dt.time")
def _to_time(x: Expression) -> Expression:
    return make("to_time", (_date(x, "dt.time", frozenset({"datetime"})),), pl.Time())


@operation(
    "epoch",
    f"The time since 1970 is rounded down, and is null if it does not fit into 64 bits. {_INSIDE}",
    spoken="dt.epoch",
    samples=tuple({"unit": unit} for unit in ("d", "s", "ms", "us", "ns")),
)
def _epoch(x: Expression, *, unit: str) -> Expression:
    if unit not in ("d", "s", *TICKS):
        raise bad("dt.epoch", f"has no unit {unit!r}", "Use d, s, ms, us or ns.")
    moment = _date(x, "dt.epoch")
    return make("epoch", (moment,), INT, unit=unit)


_UNITS_OF_TIME = "ns|us|ms|mo|[smhdwqy]"
_SECONDS_OF: dict[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_DAYS_OF = {"w": 7, "mo": 31, "q": 92, "y": 366}
MOST_YEARS = 1000
"""Largest offset in years. A time in the years 1 to 9999 that moves by less stays within every engine's calendar."""


def _span(value: Any, spoken: str, *, negative: bool) -> str:
    """Return a time span such as '3mo', or refuse it. It may have up to `MOST_YEARS` years."""
    sign = "-?" if negative else ""
    found = value if isinstance(value, str) and len(value) <= 60 else ""
    steps = re.findall(rf"(\d+)({_UNITS_OF_TIME})", found)
    if not re.fullmatch(rf"{sign}(\d+({_UNITS_OF_TIME}))+", found) or any(len(n) > 18 for n, _ in steps):
        raise bad(spoken, "needs a time span such as '3mo'", "Write it as a constant text: '1d', '3mo', '1y'.")
    days = Fraction(0)
    for number, unit in steps:
        days += int(number) * (_SECONDS_OF[unit] / 86_400 if unit in _SECONDS_OF else _DAYS_OF.get(unit, 1))
    if days > 366 * MOST_YEARS or (not negative and days == 0):
        raise bad(spoken, f"needs a time span between 0 and {MOST_YEARS:,} years", "Write another time span.")
    return found


def _local(x: Expression, spoken: str) -> Expression:
    moment = _date(x, spoken)
    if zone_of(moment.dtype) not in (None, "UTC"):
        raise bad(
            f"{spoken} in the time zone {zone_of(moment.dtype)}",
            "fails where a local time does not exist",
            "Go through local time: `.dt.replace_time_zone(None)` before it, or use `dt.date()`.",
        )
    return moment


def _stepwise(name: str, spoken: str, reason: str, *, negative: bool, samples: Sequence[str]) -> None:
    def build(x: Expression, **parameters: Any) -> Expression:
        (key, value), *more = parameters.items() or [("", None)]
        if more or key != ("by" if name == "offset_time" else "every"):
            raise bad(spoken, "takes a single time span", "Write it as a text such as '1mo'.")
        moment = _local(x, spoken)
        span = _span(value, spoken, negative=negative)
        clocks = re.findall(rf"\d+({_UNITS_OF_TIME})", span)
        if moment.dtype == pl.Date() and any(unit in ("ns", "us", "ms", "s", "m", "h") for unit in clocks):
            raise bad(spoken, "moves a date by less than a day", "Cast it to a datetime first.")
        if not negative and len(clocks) != 1:
            raise bad(spoken, "takes a single unit of time", "Write it as a text such as '1mo'.")
        return make(name, (moment,), moment.dtype, **{key: span})

    key = "by" if name == "offset_time" else "every"
    operation(name, reason, spoken=spoken, samples=tuple({key: sample} for sample in samples))(build)


_stepwise(
    "truncate_time",
    "dt.truncate",
    f"Every time lies in one of the public periods. {_INSIDE}",
    negative=False,
    samples=("1d", "1w", "1mo", "1q", "7y"),
)
_stepwise(
    "round_time",
    "dt.round",
    f"Every time has a nearest start of a public period. {_INSIDE}",
    negative=False,
    samples=("1d", "1w", "1mo"),
)
_stepwise(
    "offset_time",
    "dt.offset_by",
    f"The offset is public and at most {MOST_YEARS:,} years. {_INSIDE}",
    negative=True,
    samples=("3d", "-1mo", "1000y", "-999y5mo"),
)


def _month(name: str) -> None:
    def build(x: Expression) -> Expression:
        moment = _local(x, f"dt.{name}")
        return make(name, (moment,), moment.dtype)

    operation(name, f"Every month has a first and a last day. {_INSIDE}", spoken=f"dt.{name}")(build)


_month("month_start")
_month("month_end")

_TOTALS: dict[str, Fraction] = {
    "days": Fraction(86_400),
    "hours": Fraction(3_600),
    "minutes": Fraction(60),
    "seconds": Fraction(1),
    "milliseconds": Fraction(1, 10**3),
    "microseconds": Fraction(1, 10**6),
    "nanoseconds": Fraction(1, 10**9),
}


@operation(
    "duration_total",
    "A duration is divided by a public unit. Whole numbers are rounded towards 0, and are null beyond 64 bits.",
    spoken="dt.total_days",
    samples=tuple({"unit": unit, "fractional": way} for unit in _TOTALS for way in (False, True)),
)
def _duration_total(x: Expression, *, unit: str, fractional: bool = False) -> Expression:
    if kind_of(x.dtype) != "duration":
        raise wrong_type(f"dt.total_{unit}", x, fix="It accepts durations.")
    if unit not in _TOTALS:
        raise bad(f"dt.total_{unit}", "does not exist", "Use days, hours, minutes, seconds and so on.")
    ratio = Fraction(_TOTALS[unit]) * ticks_of(x.dtype)
    whole = stored_integer(x)
    if fractional:
        return make("div", (as_type(whole, FLOAT), Constant(float(ratio), FLOAT)), FLOAT)
    if ratio >= 1:
        return make("truncdiv", (whole, Constant(int(ratio), INT)), INT)
    return make("mul", (whole, Constant(int(1 / ratio), INT)), INT)


@operation(
    "make_duration",
    "Integers are multiplied by public units, and a result that does not fit into 64 bits is null.",
    spoken="pl.duration",
    arity=1,
    samples=({"units": ("days",)}, {"units": ("microseconds",)}),
)
def _make_duration(*given: Expression, units: tuple[str, ...], time_unit: str = "us") -> Expression:
    if len(units) != len(given) or not all(unit in _TOTALS or unit == "weeks" for unit in units):
        raise bad("pl.duration", "needs a unit for each number", "Use days=, hours= and so on.")
    total: Expression | None = None
    for number, unit in zip(given, units, strict=True):
        if kind_of(number.dtype) not in ("integer", "null"):
            raise wrong_type("pl.duration", number, fix="It accepts integers; cast to pl.Int64 first.")
        ticks = (Fraction(604_800) if unit == "weeks" else Fraction(_TOTALS[unit])) * TICKS[time_unit]
        if ticks < 1:
            raise bad("pl.duration", f"cannot represent {unit} in this time unit", "Use time_unit='ns'.")
        part = make("mul", (as_number(number, "pl.duration"), Constant(int(ticks), INT)), INT)
        total = part if total is None else make("add", (total, part), INT)
    if total is None:
        raise bad("pl.duration", "needs a number", "Use days=, hours= and so on.")
    dtype = pl.Duration(time_unit)  # type: ignore[arg-type]
    return make("cast", (total,), dtype, to=dtype)


_STRPTIME = (
    {"to": pl.Date(), "format": "%Y-%m-%d"},
    {"to": pl.Datetime("us"), "format": "%Y-%m-%d %H:%M:%S"},
    {"to": pl.Time(), "format": "%H:%M:%S"},
)


@operation(
    "parse_time", "A text that does not match the public format gives null.", spoken="str.strptime", samples=_STRPTIME
)
def _parse_time(x: Expression, *, to: pl.DataType, format: str) -> Expression:  # noqa: A002 - as in strptime
    check_text(format, "str.strptime", "a format", 200)
    if kind_of(to) not in ("date", "datetime", "time") or zone_of(to) not in (None, "UTC"):
        raise bad("str.strptime", f"can't read {to}", "Parse without a time zone, then `.dt.replace_time_zone(...)`.")
    return make("parse_time", (as_text(x, "str.strptime"),), to, to=to, format=format)


@operation(
    "format_time",
    f"Every time can be written in the public format. {_INSIDE}",
    spoken="dt.to_string",
    samples=({"format": "%Y-%m-%d"}, {"format": "%d %B %Y"}),
)
def _format_time(x: Expression, *, format: str) -> Expression:  # noqa: A002 - as in strftime
    check_text(format, "dt.to_string", "a format", 200)
    return make("format_time", (_date(x, "dt.to_string"),), TEXT, format=format)


@operation(
    "cast_time_unit",
    "A time that does not fit the finer unit gives null.",
    spoken="dt.cast_time_unit",
    samples=({"unit": "ms"}, {"unit": "ns"}),
)
def _cast_time_unit(x: Expression, *, unit: str) -> Expression:
    if kind_of(x.dtype) not in ("datetime", "duration") or unit not in TICKS:
        raise wrong_type("dt.cast_time_unit", x)
    datetime = isinstance(x.dtype, pl.Datetime)
    to = pl.Datetime(unit, zone_of(x.dtype)) if datetime else pl.Duration(unit)  # type: ignore[arg-type]
    return x if x.dtype == to else make("cast", (x,), to, to=to)


@operation(
    "convert_zone",
    "It is the same instant, and only the name of the time zone changes.",
    spoken="dt.convert_time_zone",
    samples=({"zone": "Europe/Paris"},),
)
def _convert_zone(x: Expression, *, zone: str) -> Expression:
    moment = _date(x, "dt.convert_time_zone", frozenset({"datetime"}))
    to = pl.Datetime(moment.dtype.time_unit, _known_zone(zone))  # type: ignore[attr-defined]
    return make("convert_zone", (moment,), to, zone=zone)


@operation(
    "replace_zone",
    "A local time that does not exist in the public time zone gives null. One that exists twice gives null, or the "
    f"publicly chosen one of the two. {_INSIDE}",
    spoken="dt.replace_time_zone",
    samples=({"zone": "Europe/Paris"}, {"zone": None}, {"zone": "Europe/Paris", "ambiguous": "earliest"}),
)
def _replace_zone(x: Expression, *, zone: str | None, ambiguous: str = "null") -> Expression:
    if ambiguous not in ("null", "earliest", "latest"):
        raise bad("dt.replace_time_zone", f"has no choice {ambiguous!r}", "Use null, earliest or latest.")
    moment = _date(x, "dt.replace_time_zone", frozenset({"datetime"}))
    known = None if zone is None else _known_zone(zone)
    to = pl.Datetime(moment.dtype.time_unit, known)  # type: ignore[attr-defined]
    return make("replace_zone", (moment,), to, zone=zone, ambiguous=ambiguous)


def _known_zone(zone: Any) -> str:
    if not isinstance(zone, str) or zone not in available_timezones():
        raise bad("dt", "names an unknown time zone", "Use a name such as 'Europe/Paris' or 'UTC'.")
    return zone


@operation("combine", f"Every day can be combined with every time of day. {_INSIDE}", spoken="dt.combine", arity=2)
def _combine(x: Expression, time: Expression) -> Expression:
    moment = _local(x, "dt.combine")
    if kind_of(time.dtype) not in ("time", "null"):
        raise wrong_type("dt.combine", x, time)
    day = apply("to_date", moment)
    start = make("cast", (make("cast", (day,), pl.Datetime("us"), to=pl.Datetime("us")),), INT, to=INT)
    clock = Constant(None, INT) if kind_of(time.dtype) == "null" else stored_integer(time)
    micro = make("floordiv", (clock, Constant(1000, INT)), INT)
    whole = make("add", (start, micro), INT)
    to = pl.Datetime("us", zone_of(moment.dtype))
    return make("cast", (whole,), to, to=to)


# ---------------------------------------------------------------------- arithmetic


def time_arithmetic(name: str, spoken: str, a: Expression, b: Expression) -> Expression:
    """Return arithmetic with times and durations, computed on the integers that they are stored as."""
    first, second = kind_of(a.dtype), kind_of(b.dtype)
    if first == "null" or second == "null":
        other = a if second == "null" else b
        return Constant(None, other.dtype)
    if name == "add" and first == "duration" and second in CALENDAR:
        return time_arithmetic(name, spoken, b, a)
    if name == "mul":
        return _stretched(a, b, spoken) if first == "duration" else _stretched(b, a, spoken)
    if first == second == "duration":
        sides = common_unit((a, b), spoken)
        return _on_stored_integers(name, sides, sides[0].dtype)
    if name == "sub" and first in CALENDAR and second in CALENDAR:
        sides = [_instant(side, spoken) for side in common_type((a, b), spoken)]
        unit = sides[0].dtype.time_unit  # type: ignore[attr-defined]
        return _on_stored_integers("sub", sides, pl.Duration(unit))
    if first in CALENDAR and second == "duration":
        moved = _instant(a, spoken, like=b)
        unit = moved.dtype.time_unit  # type: ignore[attr-defined]
        span = _as_unit(b, unit, spoken)
        made = _on_stored_integers(name, [moved, span], moved.dtype)
        whole_days = isinstance(b, Constant) and b.value is not None and b.value % (86_400 * ticks_of(b.dtype)) == 0
        return make("cast", (made,), pl.Date(), to=pl.Date()) if first == "date" and whole_days else made
    raise wrong_type(spoken, a, b)


def _instant(moment: Expression, spoken: str, like: Expression | None = None) -> Expression:
    """Return a date or datetime as a datetime."""
    if kind_of(moment.dtype) == "datetime":
        return moment
    unit: Any = like.dtype.time_unit if like is not None else "us"  # type: ignore[attr-defined]
    return as_type(moment, pl.Datetime(unit))


def _as_unit(span: Expression, unit: str, spoken: str) -> Expression:
    if isinstance(span, Constant):
        found = fits(span, pl.Duration(unit))  # type: ignore[arg-type]
        if found is None:
            raise bad(spoken, "mixes time units", "Use `dt.cast_time_unit` on the column first.")
        return found
    if span.dtype != pl.Duration(unit):  # type: ignore[arg-type]
        raise bad(spoken, "mixes time units", "Convert both to one time unit with `dt.cast_time_unit` first.")
    return span


def common_unit(given: Sequence[Expression], spoken: str) -> list[Expression]:
    """Return durations in a common time unit: that of the columns among them."""
    held: list[Expression] = [span for span in given if not isinstance(span, Constant)]
    held = held or list(given)
    return [_as_unit(span, held[0].dtype.time_unit, spoken) for span in given]  # type: ignore[attr-defined]


def _on_stored_integers(name: str, sides: Sequence[Expression], dtype: pl.DataType) -> Expression:
    whole = [stored_integer(side) for side in sides]
    return make("cast", (make(name, whole, INT),), dtype, to=dtype)


def _stretched(span: Expression, factor: Expression, spoken: str) -> Expression:
    if kind_of(span.dtype) != "duration" or kind_of(factor.dtype) not in ("integer", "float"):
        raise wrong_type(spoken, span, factor)
    number = apply("mul", stored_integer(span), factor)
    return make("cast", (as_type(number, INT),), span.dtype, to=span.dtype)
