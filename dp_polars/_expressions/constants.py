"""Constants: read from Python or Polars values, and converted to the type of a column exactly or not at all."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl

from dp_polars._expressions.messages import Reason, Refused
from dp_polars._expressions.tree import Constant
from dp_polars._expressions.types import (
    MOST_DIGITS,
    MOST_LITERAL,
    MOST_VALUES,
    STORED,
    integer_range,
    kind_of,
    ticks_of,
    zone_of,
)

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_DAY = 86_400
_NUMBERS = ("boolean", "integer", "wide", "float", "decimal")


def constant(value: Any, dtype: pl.DataType | None = None) -> Constant:
    """Return a Python value as a constant of its own type, or converted exactly to `dtype`.

    Examples
    --------
    >>> constant(5)
    Constant(value=5, dtype=Int64)
    >>> constant("a").dtype
    String
    """
    found = _listed(value) if isinstance(value, list | tuple) else _single(value)
    return found if dtype is None else converted(found, dtype)


def from_series(series: pl.Series) -> Constant:
    """Return a Series of one row as a constant. Times and decimals keep every digit that is stored."""
    if len(series) != 1:
        raise Refused("a constant", _ROWS)
    dtype = series.dtype
    if isinstance(dtype, pl.List | pl.Array):
        inner: pl.DataType = dtype.inner  # type: ignore[assignment]
        values = series.explode(empty_as_null=False) if series.null_count() == 0 else None
        if values is None:
            return Constant(None, pl.Null())
        if len(values) > MOST_VALUES:
            raise too_many(len(values))
        return Constant(tuple(_stored(values.cast(inner))), pl.List(_plain(inner)))
    return Constant(_stored(series)[0], _plain(dtype))


def _stored(series: pl.Series) -> list[Any]:
    dtype, kind = series.dtype, kind_of(series.dtype)
    if kind in ("other", "list", "array", "struct"):
        raise Refused(f"a constant of the type {dtype}", _UNKNOWN)
    if isinstance(dtype, pl.Decimal):
        found = [None if number is None else _scaled(number, dtype.scale) for number in series.to_list()]
    elif kind in STORED:
        found = series.to_physical().to_list()
    elif kind in ("categorical", "enum"):
        found = series.cast(pl.String).to_list()
    else:
        found = series.to_list()
    for value in found:
        check_value(value)
    return found


def _scaled(value: Decimal, scale: int) -> int:
    """Return a decimal times 10**scale exactly. `Decimal.scaleb` would round to 28 digits."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent + scale < 0:
        raise Refused("a decimal", _UNKNOWN)
    unsigned = int("".join(map(str, digits)) or "0") * int(10 ** (exponent + scale))
    return -unsigned if sign else unsigned


def _plain(dtype: pl.DataType) -> pl.DataType:
    return pl.String() if kind_of(dtype) in ("categorical", "enum") else dtype


def _single(value: Any) -> Constant:
    check_value(value)
    match value:
        case None:
            return Constant(None, pl.Null())
        case bool():
            return Constant(value, pl.Boolean())
        case int():
            return whole(value)
        case float():
            return Constant(value, pl.Float64())
        case str():
            return Constant(value, pl.String())
        case Decimal():
            scale = max(0, -int(value.as_tuple().exponent))
            return Constant(_scaled(value, scale), pl.Decimal(MOST_DIGITS, scale))
        case datetime.datetime():
            if value.tzinfo is not None:
                return from_series(pl.Series([value]))
            since = value - datetime.datetime(1970, 1, 1)
            return Constant(_microseconds(since), pl.Datetime("us"))
        case datetime.date():
            return Constant(value.toordinal() - _EPOCH, pl.Date())
        case datetime.timedelta():
            return Constant(_microseconds(value), pl.Duration("us"))
        case datetime.time():
            micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
            return Constant(micros * 1000, pl.Time())
    raise Refused(f"a constant of the type {type(value).__name__}", _UNKNOWN)


def whole(value: int) -> Constant:
    """Return an integer as a constant of 64 bits, or of 128 bits if it needs them."""
    check_value(value)
    return Constant(value, pl.Int64() if -(1 << 63) <= value < 1 << 63 else pl.Int128())


def _microseconds(span: datetime.timedelta) -> int:
    return (span.days * _DAY + span.seconds) * 10**6 + span.microseconds


def _listed(values: Sequence[Any]) -> Constant:
    if len(values) > MOST_VALUES:
        raise too_many(len(values))
    found = [_single(value) for value in values]
    types = {item.dtype for item in found if item.dtype != pl.Null()}
    if not types:
        return Constant(tuple(item.value for item in found), pl.List(pl.Null()))
    if types == {pl.Int64(), pl.Float64()}:
        types = {pl.Float64()}
    if len(types) > 1:
        raise Refused("a list of constants", _MIXED)
    return Constant(tuple(item.value for item in found), pl.List(types.pop()))


def check_value(value: Any) -> None:
    """Refuse a value that is not finite, too long or too large."""
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused("a literal", NOT_FINITE)
    if isinstance(value, str) and len(value) > MOST_LITERAL:
        raise Refused("a literal", _LONG)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 127:
        raise Refused("a literal", _LARGE)
    if isinstance(value, Decimal):
        _check_decimal(value)


def _check_decimal(value: Decimal) -> None:
    if not value.is_finite():
        raise Refused("a literal", NOT_FINITE)
    digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
    if len(digits) + max(exponent, 0) > MOST_DIGITS or -exponent > MOST_DIGITS:
        raise Refused("a literal", _LARGE)


# ---------------------------------------------------------------------- conversion


def exact_number(value: Constant) -> Fraction | None:
    """Return the exact number that a constant stands for, or None if it is not a number (a text, a null)."""
    if value.value is None or isinstance(value.value, str | tuple):
        return None
    if isinstance(value.dtype, pl.Decimal):
        return Fraction(value.value, 10**value.dtype.scale)
    return Fraction(value.value)


def in_units_of(value: Constant, dtype: pl.DataType) -> Fraction | None:
    """Return a constant as an exact number of the units that `dtype` stores, or None if it cannot be compared with it.

    A date is stored as days since 1970, a datetime as ticks of its time unit, a decimal as units of its last digit. The
    number may be a fraction.
    """
    source, target = kind_of(value.dtype), kind_of(dtype)
    if value.value is None:
        return None
    if target in ("boolean", "integer", "wide", "float") and source in _NUMBERS:
        return exact_number(value)
    if isinstance(dtype, pl.Decimal) and source in _NUMBERS:
        number = exact_number(value)
        return None if number is None else number * 10**dtype.scale
    if target in ("date", "datetime") and source in ("date", "datetime"):
        if target == source == "datetime" and zone_of(value.dtype) != zone_of(dtype):
            return None
        seconds = Fraction(value.value) * _DAY if source == "date" else Fraction(value.value, ticks_of(value.dtype))
        return seconds / _DAY if target == "date" else seconds * ticks_of(dtype)
    if target == source == "duration":
        return Fraction(value.value, ticks_of(value.dtype)) * ticks_of(dtype)
    return Fraction(value.value) if target == source == "time" else None


def fits(value: Constant, dtype: pl.DataType) -> Constant | None:
    """Return a constant in another type if that type holds exactly the same value, or None."""
    if value.value is None:
        return Constant(None, dtype)
    if value.dtype == dtype:
        return value
    target = kind_of(dtype)
    if isinstance(dtype, pl.Enum):
        return Constant(value.value, dtype) if value.value in set(dtype.categories) else None
    if target in ("text", "categorical"):
        return Constant(value.value, dtype) if isinstance(value.value, str) else None
    number = in_units_of(value, dtype)
    if number is None:
        return None
    if target == "float":
        return Constant(float(number), dtype) if _exact_float(number, dtype) else None
    if number.denominator != 1:
        return None
    return None if target == "boolean" else held(int(number), dtype)


def held(number: int, dtype: pl.DataType) -> Constant | None:
    """Return the constant that a type stores as this integer, or None if it does not fit."""
    low, high = -(1 << 63), (1 << 63) - 1
    if kind_of(dtype) in ("integer", "wide"):
        low, high = integer_range(dtype)
    elif dtype == pl.Date:
        low, high = -(1 << 31), (1 << 31) - 1
    elif isinstance(dtype, pl.Decimal):
        high = 10 ** (dtype.precision or MOST_DIGITS) - 1
        low = -high
    return Constant(number, dtype) if low <= number <= high else None


def _exact_float(number: Fraction, dtype: pl.DataType) -> bool:
    try:
        near = float(number)
    except OverflowError:
        return False
    if dtype == pl.Float32:
        near = pl.Series([near], dtype=pl.Float64).cast(pl.Float32).cast(pl.Float64).item()
    return math.isfinite(near) and Fraction(near) == number


def converted(value: Constant, dtype: pl.DataType) -> Constant:
    """Return a constant in another type, or refuse it if that type cannot hold exactly the same value."""
    found = fits(value, dtype)
    if found is None:
        raise Refused(f"a constant for the type {dtype}", _INEXACT)
    return found


# ---------------------------------------------------------------------- messages

NOT_FINITE = Reason(
    "is NaN or infinite",
    "Such a constant cannot be written down exactly, so two different queries would look the same.",
    "Use `None` for a missing value, leave out the bound, or ask with `is_nan()`, `is_infinite()` or `is_finite()`.",
)
_ROWS = Reason(
    "has several rows, or none",
    "The number of rows must not depend on a constant.",
    "Write a single value.",
)
_UNKNOWN = Reason(
    "is not a value that expressions over private rows can use",
    "Constants are numbers, texts, dates, times, durations, and lists of them.",
    "Write such a value.",
)
_MIXED = Reason(
    "holds values of different types", "All of them are compared with a column of one type.", "Use one type."
)
_LONG = Reason(
    f"is a text of more than {MOST_LITERAL:,} characters",
    "A constant takes memory once for each row.",
    "Join a public frame instead, whose values may have up to 16,384 characters.",
)
_LARGE = Reason("does not fit into 128 bits or 38 digits", "No column holds such a number.", "Write a smaller number.")
_INEXACT = Reason(
    "can't be converted to that type exactly",
    "A constant that is rounded silently would change the query.",
    "Write a value that the column's type can hold, or cast the column.",
)


def too_many(count: int) -> Refused:
    """Return the refusal of a list that is too long."""
    return Refused(
        f"a list of {count:,} constants",
        Reason(
            f"has more than {MOST_VALUES:,} values",
            "Every row is compared with every value of the list.",
            "Join a public frame by its key instead: `.join(public, on=..., how='semi')`.",
        ),
    )
