"""Kinds of column types, and the limits of the expression language.

The language works with Boolean, Int64, Float64, String, Date, Datetime, Duration, Time, Decimal, Enum, lists and
structs. Narrower numbers are widened before anything is computed. A column of another type can only be passed through
unchanged.
"""

from __future__ import annotations

import polars as pl

MOST_TEXT = 1 << 14
"""Largest length of a text that an operation makes, or that it reads if it can make texts longer."""
MOST_LITERAL = 4_096
"""Largest length of a text constant, a pattern or a format."""
MOST_INSERTED = 100
"""Largest length of a text that is inserted for each match or element."""
MOST_DIGITS = 38
"""Largest number of digits of a decimal, before and after its point together."""
MOST_VALUES = 100_000
"""Largest number of values in a constant list."""
MOST_DEPTH = 100
"""Largest depth of nested operations."""
MOST_NODES = 20_000
"""Largest number of nodes of an expression."""
MOST_WRITTEN = 1 << 23
"""Largest length of the canonical text of an expression, which limits the size of all its constants together."""
MOST_ARGUMENTS = 100
"""Largest number of arguments of an operation other than `case`."""
FIRST_DAY, LAST_DAY = -719162, 2932896
"""0001-01-01 and 9999-12-31 as days since 1970-01-01. Calendar functions give null for dates outside."""

TICKS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks per second of each time unit."""

_KINDS: dict[type[pl.DataType], str] = {
    pl.Boolean: "boolean",
    **dict.fromkeys((pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64), "integer"),
    **dict.fromkeys((pl.Int128, pl.UInt128), "wide"),
    **dict.fromkeys((pl.Float32, pl.Float64), "float"),
    pl.String: "text",
    pl.Categorical: "categorical",
    pl.Enum: "enum",
    pl.Date: "date",
    pl.Datetime: "datetime",
    pl.Duration: "duration",
    pl.Time: "time",
    pl.Decimal: "decimal",
    pl.List: "list",
    pl.Array: "array",
    pl.Struct: "struct",
    pl.Null: "null",
}

NUMBERS = frozenset({"boolean", "integer", "float", "decimal"})
TEXTS = frozenset({"text", "categorical", "enum"})
CALENDAR = frozenset({"date", "datetime"})
STORED = frozenset({"date", "datetime", "duration", "time", "decimal"})
"""Kinds whose constants are given as the integers that are stored."""


def kind_of(dtype: pl.DataType) -> str:
    """Return the kind of a type. Types that the language does not know (Binary, Object, Float16) are `other`."""
    return _KINDS.get(dtype.base_type(), "other")


def zone_of(dtype: pl.DataType) -> str | None:
    """Return the time zone of a type, or None."""
    return getattr(dtype, "time_zone", None)


def ticks_of(dtype: pl.DataType) -> int:
    """Return the ticks per second of a type with a time unit."""
    return TICKS[dtype.time_unit]  # type: ignore[attr-defined]


def integer_range(dtype: pl.DataType) -> tuple[int, int]:
    """Return the least and the largest value of an integer type."""
    bits = int("".join(filter(str.isdigit, str(dtype))))
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed_integer() else (0, (1 << bits) - 1)
