"""Kinds of column types, and the limits of the language.

The language works on a few types: Boolean, Int64, Float64, String, Date, Datetime, Duration, Time, Decimal, Enum, lists
and structs. Narrower numbers are widened before anything is computed. A column of another type can be carried along
untouched, and nothing else.
"""

from __future__ import annotations

import polars as pl

MOST_TEXT = 1 << 14
"""Characters of a text that an operation makes, and that an operation which makes texts longer reads."""
MOST_LITERAL = 4_096
"""Characters of a text constant, a pattern or a format."""
MOST_INSERTED = 100
"""Characters of a text that is put in once for each match or element."""
MOST_DIGITS = 38
"""Digits of a decimal, before and after its point."""
MOST_VALUES = 100_000
"""Values of a constant list."""
MOST_DEPTH = 100
"""Steps that may be nested in each other."""
MOST_NODES = 20_000
"""Steps of one expression."""
MOST_WRITTEN = 1 << 23
"""Characters of the canonical text of an expression: its constants in all."""
MOST_ARGUMENTS = 100
"""Arguments of one step, but for choices."""
FIRST_DAY, LAST_DAY = -719162, 2932896
"""0001-01-01 and 9999-12-31, counted from 1970-01-01: what lies outside is null for a function of the calendar."""

TICKS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks of a second in a time unit."""

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
"""Kinds whose constants are the whole numbers that they are stored as."""


def kind_of(dtype: pl.DataType) -> str:
    """Return the kind of a type; what the language doesn't know (Binary, Object, Float16) is `other`."""
    return _KINDS.get(dtype.base_type(), "other")


def integer_range(dtype: pl.DataType) -> tuple[int, int]:
    """Return the least and the largest value of an integer type."""
    bits = int("".join(filter(str.isdigit, str(dtype))))
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed_integer() else (0, (1 << bits) - 1)
