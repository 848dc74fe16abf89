"""Spark's types, the Polars types that stand for them, and how values of each are stored in our SQL texts.

Every value is stored in one of six SQL types. Integers, dates and times are BIGINT: a date is its number of days and a
timestamp its number of microseconds since 1970. So no text depends on the time zone of a Spark session. Floats are
DOUBLE. A decimal is the integer of its last digit, a BIGINT with up to 18 digits and otherwise a DECIMAL(38, 0).
"""

from __future__ import annotations

import math
import re
from typing import Any

import polars as pl

from dp_polars._expressions.types import MOST_TEXT, kind_of

BIGINT, DOUBLE, BOOLEAN, STRING, BINARY, WIDE = "BIGINT", "DOUBLE", "BOOLEAN", "STRING", "BINARY", "DECIMAL(38, 0)"

LEAST, MOST = -(1 << 63), (1 << 63) - 1

CALL = "@"
"""Stands before the name of each function in a text. See `source.SparkSource`, which replaces it."""


def literal(value: Any, stored: str) -> str:
    """Return a constant as SQL. Texts are written in hexadecimal, so that no setting changes what they mean."""
    if value is None:
        return f"CAST(NULL AS {stored})"
    if stored == BOOLEAN:
        return "TRUE" if value else "FALSE"
    if stored == BIGINT:
        number = int(value)
        if not LEAST <= number <= MOST:
            raise ValueError("an integer of more than 64 bits")
        return f"{number}L" if number >= 0 else f"CAST('{number}' AS BIGINT)"
    if stored == WIDE:
        return f"CAST('{int(value)}' AS DECIMAL(38, 0))"
    if stored == DOUBLE:
        real = float(value)
        if math.isfinite(real):
            return f"CAST('{real!r}' AS DOUBLE)"
        return f"CAST('{'NaN' if math.isnan(real) else 'Infinity' if real > 0 else '-Infinity'}' AS DOUBLE)"
    if stored == STRING:
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return f"X'{value.hex()}'"


def one_nan(number: str) -> str:
    """Return a float in which every NaN has the same bytes, and so is larger than all numbers, as in Polars.

    A processor gives 0 / 0 a sign. Apache Spark ignores it, and for Sail that NaN is the least of all numbers.
    """
    return f"{CALL}nanvl({number}, {literal(math.nan, DOUBLE)})"


_MOST_SHORT = 18  # digits of a decimal that a BIGINT holds

# A timestamp without a time zone. Its parts are the same in every session, and its conversion to a number is not. Sail
# fails on years that its calendar does not have, so years that Spark does not have either are null.
_LOCAL = (
    "CASE WHEN {} BETWEEN TIMESTAMP_NTZ'0001-01-01 00:00:00' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999' THEN {} END"
)

_PLAIN: dict[str, tuple[pl.DataType, str]] = {
    "boolean": (pl.Boolean(), "{}"),
    "tinyint": (pl.Int8(), "CAST({} AS BIGINT)"),
    "smallint": (pl.Int16(), "CAST({} AS BIGINT)"),
    "int": (pl.Int32(), "CAST({} AS BIGINT)"),
    "bigint": (pl.Int64(), "{}"),
    "float": (pl.Float32(), one_nan("CAST({} AS DOUBLE)")),
    "double": (pl.Float64(), one_nan("{}")),
    # Spark lets any bytes be a text, and Polars does not.
    # A key comes to the driver as it is, so one person's long text could fill its memory.
    "string": (
        pl.String(),
        # The number of bytes is known, and characters have to be counted.
        f"CASE WHEN {CALL}octet_length({{}}) <= {MOST_TEXT}L OR {CALL}char_length({{}}) <= {MOST_TEXT}L"
        f" THEN {CALL}make_valid_utf8({{}}) END",
    ),
    "binary": (pl.Binary(), "{}"),
    "date": (pl.Date(), "CAST(" + CALL + "unix_date({}) AS BIGINT)"),
    "timestamp": (pl.Datetime("us", "UTC"), CALL + "unix_micros({})"),
    "timestamp_ntz": (
        pl.Datetime("us"),
        f"(CAST({CALL}unix_date(CAST({_LOCAL} AS DATE)) AS BIGINT) * 86400000000L"
        f" + CAST({CALL}hour({_LOCAL}) AS BIGINT) * 3600000000L + CAST({CALL}minute({_LOCAL}) AS BIGINT) * 60000000L"
        f" + CAST({CALL}date_part('SECOND', {_LOCAL}) * 1000000 AS BIGINT))",
    ),
}


def column_type(spark_type: str) -> tuple[pl.DataType, str] | None:
    """Return the Polars type of a Spark type, and how SQL reads a column of it; None if the type is not supported."""
    if spark_type in _PLAIN:
        return _PLAIN[spark_type]
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", spark_type)
    if found is None:
        return None
    digits, scale = int(found[1]), int(found[2])
    if scale and digits + scale > 36:  # Spark would round the product below
        return None
    stored = BIGINT if digits <= _MOST_SHORT else WIDE
    whole = f"{{}} * CAST('{10**scale}' AS DECIMAL({scale + 1}, 0))" if scale else "{}"
    return pl.Decimal(digits, scale), f"CAST({whole} AS {stored})"


def stored_type(dtype: pl.DataType) -> str | None:
    """Return the SQL type in which values of a Polars type are stored; None if there is none."""
    kind = kind_of(dtype)
    if dtype == pl.UInt64 or kind in ("wide", "list", "array", "struct"):
        return None
    if isinstance(dtype, pl.Decimal):
        return BIGINT if dtype.precision is not None and dtype.precision <= _MOST_SHORT else WIDE
    if kind in ("text", "categorical", "enum"):
        return STRING
    known = {"boolean": BOOLEAN, "float": DOUBLE, "integer": BIGINT, "null": BIGINT}
    if kind in ("date", "datetime", "duration", "time"):
        return BIGINT
    return BINARY if dtype == pl.Binary else known.get(kind)


_LEAST = {BIGINT: LEAST, DOUBLE: -math.inf, BOOLEAN: False, STRING: "", BINARY: b"", WIDE: 1 - 10**38}


def false_in_each_row(column: str, stored: str) -> str:
    """Return a condition that is false in each row, and that no server can compute without the column.

    Sail's hash panics if all of its arguments are constants and there is more than one row. A CASE is a constant for
    Sail whenever all rows at hand take the same branch, which would let rows decide whether a question fails. With
    this condition among the arguments, one of them is never constant.
    """
    return f"({column} < {literal(_LEAST[stored], stored)}) IS TRUE"


def stored_values(column: pl.Series) -> pl.Series:
    """Return public values as they are stored in SQL, so that Arrow hands them over exactly."""
    dtype, stored = column.dtype, stored_type(column.dtype)
    if stored == BIGINT:
        return column.to_physical().cast(pl.Int64)
    if stored == WIDE:
        return column.to_physical().cast(pl.Int128).cast(pl.Decimal(38, 0))
    if stored == STRING:
        return column.cast(pl.String)
    return column.cast(pl.Float64).fill_nan(math.nan) if dtype.is_float() else column


def read_values(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return values that come from SQL in the Polars type that they stand for."""
    kind = kind_of(dtype)
    if isinstance(dtype, pl.Decimal):
        return _as_decimal(column, dtype)
    if kind == "date":
        return column.cast(pl.Int32).cast(dtype)
    if kind in ("datetime", "duration", "time"):
        return column.cast(pl.Int64).cast(dtype)
    return column if column.dtype == dtype else column.cast(dtype)


def _as_decimal(whole: pl.Series, dtype: pl.Decimal) -> pl.Series:
    texts = [None if one is None else _written(int(one), dtype.scale) for one in whole]
    return pl.Series(whole.name, texts, dtype=pl.String).cast(dtype)


def _written(whole: int, scale: int) -> str:
    digits = str(abs(whole)).rjust(scale + 1, "0")
    sign = "-" if whole < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"
