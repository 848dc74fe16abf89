"""The types of a text file's columns: their names in SQL, and how a text is read as each of them.

A text that can't be read as its column's type is null, so that no line can make a file unreadable. What is found by
looking at all the lines (`inferred`) is read in the same way as what was declared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from dp_polars.errors import InvalidParameterError

TEXT = "VARCHAR"
"""The type of a column for which nothing was declared."""

_SIMPLE: dict[str, pl.DataType] = {
    "BOOLEAN": pl.Boolean(),
    "TINYINT": pl.Int8(), "SMALLINT": pl.Int16(), "INTEGER": pl.Int32(), "BIGINT": pl.Int64(),
    "UTINYINT": pl.UInt8(), "USMALLINT": pl.UInt16(), "UINTEGER": pl.UInt32(), "UBIGINT": pl.UInt64(),
    "FLOAT": pl.Float32(), "DOUBLE": pl.Float64(),
    TEXT: pl.String(), "DATE": pl.Date(), "TIMESTAMP": pl.Datetime("us"), "TIME": pl.Time(),
}  # fmt: skip
_SAME = {
    "BOOL": "BOOLEAN", "INT": "INTEGER", "REAL": "FLOAT", "TEXT": TEXT, "STRING": TEXT, "DATETIME": "TIMESTAMP",
}  # fmt: skip
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*(?:\(\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?\))?", re.IGNORECASE)
_ENUM = re.compile(r"ENUM\s*\(\s*('(?:[^']|'')*'(?:\s*,\s*'(?:[^']|'')*')*)\s*\)", re.IGNORECASE)
_MOST_DIGITS = 38
_KNOWN = f"{', '.join(_SIMPLE)}, DECIMAL(9, 2) and ENUM('a', 'b')"

_INFERRED = ("BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP")
"""What is tried for a column, in this order, before it is text."""


def type_of(text: str) -> tuple[str, pl.DataType]:
    """Return the one name of a type of SQL and what it is in Polars; refuse names that are not known here.

    >>> type_of("decimal(9,2)")
    ('DECIMAL(9, 2)', Decimal(precision=9, scale=2))
    """
    name = str(text).strip()
    upper = _SAME.get(name.upper(), name.upper())
    if upper in _SIMPLE:
        return upper, _SIMPLE[upper]
    decimal, enum = _DECIMAL.fullmatch(name), _ENUM.fullmatch(name)
    if decimal:
        precision = int(decimal[1] or 18)
        scale = int(decimal[2] or (0 if decimal[1] else 3))
        if 1 <= precision <= _MOST_DIGITS and scale <= precision:
            return f"DECIMAL({precision}, {scale})", pl.Decimal(precision, scale)
    if enum:
        values = [one.replace("''", "'") for one in re.findall(r"'((?:[^']|'')*)'", enum[1])]
        if len(set(values)) == len(values):
            listed = ", ".join("'" + one.replace("'", "''") + "'" for one in values)
            return f"ENUM({listed})", pl.Enum(values)
    raise InvalidParameterError(f"{name!r} is no type for a column of a text file; types are {_KNOWN}.")


def as_declared(columns: list[str], types: Mapping[str, str]) -> dict[str, str]:
    """Return the type of every column: the declared one under its one name, else text."""
    return {name: type_of(types[name])[0] if name in types else TEXT for name in columns}


def inferred(texts: pl.DataFrame) -> dict[str, str]:
    """Return for every column the first type that all its texts can be read as. Looks at all rows."""
    return {name: _inferred(texts, name) for name in texts.columns}


def typed(texts: pl.DataFrame, types: Mapping[str, str]) -> pl.DataFrame:
    """Return texts in the types of their columns; a text that can't be read as its type is null."""
    return texts.select(_reading(pl.col(name), type_of(types.get(name, TEXT))[1]).alias(name) for name in texts.columns)


def _inferred(texts: pl.DataFrame, name: str) -> str:
    held = texts[name].null_count()
    if held < texts.height:
        for kind in _INFERRED:
            if texts.select(_reading(pl.col(name), _SIMPLE[kind]).is_null().sum()).item() == held:
                return kind
    return TEXT


def _reading(text: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if kind == pl.Boolean:
        lower = text.str.to_lowercase()
        return pl.when(lower == "true").then(True).when(lower == "false").then(False)
    if kind == pl.Date:
        return text.str.to_date("%Y-%m-%d", strict=False)
    if kind == pl.Time:
        return text.str.to_time("%H:%M:%S%.f", strict=False)
    if kind == pl.Datetime:
        forms = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f")
        moments = [text.str.to_datetime(form, strict=False, time_unit="us") for form in forms]
        return pl.coalesce(*moments, text.str.to_date("%Y-%m-%d", strict=False).cast(kind))
    return text if kind == pl.String else text.cast(kind, strict=False)
