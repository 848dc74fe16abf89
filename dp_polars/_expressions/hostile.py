"""Hostile values: made-up rows with the values of each type on which functions usually fail.

The operations of the expression language are total. Problems with the user's constants (a pattern, a format, a bound
that does not fit the column's type) show when an expression runs on these rows. So they are reported at the call, and
never as an error that depends on private rows.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import polars as pl

from dp_polars._expressions.types import TICKS, integer_range

HEIGHT = 192
"""Number of made-up rows. Every list of hostile values below is shorter."""

_TEXTS = (
    *("", "a", "A b", " é\t", "ß😀", "a\x00b", "-1", "1.5", "1e400", "NaN", "99999999999999999999", "true", "x" * 99),
    *(
        "2024-02-29",
        "2023-02-29",
        "2020-10-25 02:30:00",
        "2020-03-29T02:30:00Z",
        "+262143-12-31",
        "24:00:00",
        "12:34:56",
    ),
    *("(", "[a", "$1", "{", "%Y", "1,2", "01/02/2020", "ff"),
)
_FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 28.799999999999997, -104.6, 1 / 3, 5e-324, -2.5, 1e18, -1e308, 1.7976931348623157e308),
    *(float("inf"), float("-inf"), float("nan"), 9.3e18, 4294967296.5, 255.5),
)
_SECONDS = (0, 1, -1, 951782400, 1585443600, 1603587600, 1603591200, 1700000000, -62135596800, 253402300799)

_DAYS = (
    0,
    1,
    -1,
    59,
    18321,
    19782,
    -719162,
    -719163,
    2932896,
    2932897,
    -(2**31),
    2**31 - 1,
    95026237,
    -96465293,
    106752,
)


def hostile_frame(columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return a frame with these columns. Each holds the edge cases of its type, in its own order."""
    return pl.DataFrame([_rotated(dtype, i).alias(name) for i, (name, dtype) in enumerate(columns.items())])


@lru_cache(maxsize=512)
def _rotated(dtype: pl.DataType, column: int) -> pl.Series:
    values = hostile(dtype)
    first = [(5 * column + row) % len(values) for row in range(len(values))]  # each value at least once
    # The rest is mixed by the middle bits of multiples of odd numbers so that many pairs of values occur together.
    more = [(row * 2654435761 * (2 * column + 3) >> 16) % len(values) for row in range(HEIGHT - len(values))]
    return values.gather(first + more)


@lru_cache(maxsize=512)
def hostile(dtype: pl.DataType) -> pl.Series:
    """Return the edge cases of a type: extremes, zero, null, and values on which functions usually fail."""
    match dtype:
        case pl.Boolean():
            return pl.Series([True, False, None], dtype=dtype)
        case pl.Float16() | pl.Float32() | pl.Float64():
            return _cast([*_FLOATS, None], pl.Float64(), dtype)
        case pl.String():
            return pl.Series([*_TEXTS, None], dtype=dtype)
        case pl.Binary():
            return pl.Series([*(text.encode() for text in _TEXTS), b"\xff\xfe", b"\x80", None], dtype=dtype)
        case pl.Enum():
            return pl.Series([*dtype.categories.head(63), None], dtype=dtype)
        case pl.Categorical():
            # Only two values, because the cast adds them to the categories that the user's columns share.
            return pl.Series(["", "a", None], dtype=pl.String()).cast(dtype)
        case pl.Date():
            return _cast([*_DAYS, None], pl.Int32(), dtype)
        case pl.Datetime() | pl.Duration():
            return _cast(_instants(dtype.time_unit), pl.Int64(), dtype)
        case pl.Time():
            return pl.Series([datetime.time(0), datetime.time(12, 34, 56, 7), datetime.time.max, None], dtype=dtype)
        case pl.Decimal():
            return _decimals(dtype)
        case pl.List():
            some = hostile(dtype.inner)
            return pl.concat([some.head(9).implode(), some.tail(1).implode(), pl.Series([[], None], dtype=dtype)])
        case pl.Array():
            some = pl.concat([hostile(dtype.inner)] * (dtype.size + 1))
            rows = pl.concat([some.head(dtype.size).implode(), some.tail(dtype.size).implode()])
            return pl.concat([rows.cast(dtype), pl.Series([None], dtype=dtype)])
        case pl.Struct():
            fields = [
                hostile(inner.dtype).head(6).extend_constant(None, 6).head(6).alias(inner.name)
                for inner in dtype.fields
            ]
            return pl.DataFrame(fields).to_struct() if fields else pl.Series([{}, None], dtype=dtype)
        case pl.Null():
            return pl.Series([None, None], dtype=dtype)
    return _integers(dtype)


def _integers(dtype: pl.DataType) -> pl.Series:
    low, high = integer_range(dtype)
    usual = [0, 1, -1, 2, 3, 7, 10, 100, 127, 128, 256, 2**31, 2**53 + 1, 1700000000, -(2**31)]
    return pl.Series([low, low + 1, high - 1, high, *(x for x in usual if low <= x <= high), None], dtype=dtype)


def _instants(unit: str) -> list[int | None]:
    scale = TICKS[unit]
    days = [day * 86400 * scale + off for day in _DAYS for off in (0, -1)]
    spread = [*(second * scale for second in _SECONDS), *days]
    return [2**63 - 1, -(2**63), -(2**63) + 1, *(x for x in spread if abs(x) < 2**63), None]


def _decimals(dtype: pl.Decimal) -> pl.Series:
    largest = 10 ** (dtype.precision or 38) - 1
    units = (0, 1, -1, largest, -largest, largest - 1)
    # Built from digits, because arithmetic on Decimal would round to 28 digits.
    values = [Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -dtype.scale)) for n in units]
    return pl.Series([*values, None], dtype=dtype)


def _cast(values: Sequence[Any], physical: pl.DataType, dtype: pl.DataType) -> pl.Series:
    return pl.Series(values, dtype=physical).cast(dtype)
