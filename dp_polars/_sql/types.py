"""Match SQL types with the Polars types that hold the same values.

Columns of other types can't be used over private rows: binary data, bit strings, maps, unions, intervals, variants and
integers of unlimited length. 128-bit integers are read as decimals with 38 digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import polars as pl

from dp_polars.errors import InvalidParameterError

TEXT = "VARCHAR"

_PLAIN: dict[str, pl.DataType] = {
    "BOOLEAN": pl.Boolean(),
    "TINYINT": pl.Int8(),
    "SMALLINT": pl.Int16(),
    "INTEGER": pl.Int32(),
    "BIGINT": pl.Int64(),
    "UTINYINT": pl.UInt8(),
    "USMALLINT": pl.UInt16(),
    "UINTEGER": pl.UInt32(),
    "UBIGINT": pl.UInt64(),
    "FLOAT": pl.Float32(),
    "DOUBLE": pl.Float64(),
    TEXT: pl.String(),
    "DATE": pl.Date(),
    "TIMESTAMP": pl.Datetime("us"),
    "TIME": pl.Time(),
    "HUGEINT": pl.Decimal(38, 0),
    "UHUGEINT": pl.Decimal(38, 0),
    "UUID": pl.String(),
    "JSON": pl.String(),
    "TIME_NS": pl.Time(),
    "TIMESTAMP_S": pl.Datetime("us"),
    "TIMESTAMP_MS": pl.Datetime("us"),
    "TIMESTAMP_NS": pl.Datetime("ns"),
    "TIMESTAMP WITH TIME ZONE": pl.Datetime("us", "UTC"),
}
_DECLARABLE = tuple(_PLAIN)[: tuple(_PLAIN).index("TIME") + 1]
"""The types that the columns of a text file may have. Each is the only name here of its Polars type, except VARCHAR."""
_CONVERTED = frozenset(
    {"HUGEINT", "UHUGEINT", "TIME", "TIME_NS", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP WITH TIME ZONE"}
)
"""Types that are converted when a column is read, and so can't be inside lists and structs."""
_SQL = {type(_PLAIN[name]): name for name in _DECLARABLE if name not in (TEXT, "TIMESTAMP")}
_SYNONYMS = {
    "BOOL": "BOOLEAN", "INT": "INTEGER", "REAL": "FLOAT", "TEXT": TEXT, "STRING": TEXT, "DATETIME": "TIMESTAMP",
}  # fmt: skip
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*(?:\(\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?\))?", re.IGNORECASE)
_ENUM = re.compile(r"ENUM\s*\(\s*('(?:[^']|'')*'(?:\s*,\s*'(?:[^']|'')*')*)\s*\)", re.IGNORECASE)
_MOST_DIGITS = 38


def polars_type(kind: Any) -> pl.DataType | None:
    """Return the Polars type for a DuckDB type object, or None if values of the type can't be used over private rows.

    Examples
    --------
    >>> import duckdb
    >>> [polars_type(duckdb.sqltype(one)) for one in ("DECIMAL(9,2)", "INTEGER[]", "BLOB")]
    [Decimal(precision=9, scale=2), List(Int32), None]
    """
    match kind.id:
        case "decimal":
            parts = dict(kind.children)
            return pl.Decimal(parts["precision"], parts["scale"])
        case "enum":
            ((_, values), *_) = kind.children
            return pl.Enum([str(value) for value in values])
        case "list" | "array":
            parts = dict(kind.children)
            inner = _inside(parts["child"])
            if inner is None:
                return None
            return pl.List(inner) if kind.id == "list" else pl.Array(inner, parts["size"])
        case "struct":
            fields = {name: _inside(child) for name, child in kind.children}
            return None if None in fields.values() else pl.Struct(fields)  # type: ignore[arg-type]
    return _PLAIN.get(str(kind))


def _inside(kind: Any) -> pl.DataType | None:
    """Return the Polars type for the elements of a list or the fields of a struct."""
    return None if kind.id == "enum" or str(kind) in _CONVERTED else polars_type(kind)


def sql_type(dtype: pl.DataType) -> str | None:
    """Return the SQL type to which a text constant is cast beside a column of a Polars type, or None for no cast."""
    if isinstance(dtype, pl.Decimal):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if isinstance(dtype, pl.Datetime):
        named = "TIMESTAMP_NS" if dtype.time_unit == "ns" else "TIMESTAMP"
        return named if dtype.time_zone is None else "TIMESTAMPTZ"
    return _SQL.get(dtype.base_type())


def enum_text(values: Iterable[str]) -> str:
    """Return the SQL type of an enumeration.

    >>> enum_text(["a", "b's"])
    "ENUM('a', 'b''s')"
    """
    return f"ENUM({', '.join(chr(39) + value.replace(chr(39), chr(39) * 2) + chr(39) for value in values)})"


def declared_type(text: str) -> tuple[str, pl.DataType]:
    """Return the standard name and the Polars type for the declared type of a text file's column.

    >>> declared_type("decimal(9,2)")
    ('DECIMAL(9, 2)', Decimal(precision=9, scale=2))
    """
    name = str(text).strip()
    upper = _SYNONYMS.get(name.upper(), name.upper())
    if upper in _DECLARABLE:
        return upper, _PLAIN[upper]
    decimal, enum = _DECIMAL.fullmatch(name), _ENUM.fullmatch(name)
    if decimal:
        precision = int(decimal[1] or 18)
        scale = int(decimal[2] or (0 if decimal[1] else 3))
        if 1 <= precision <= _MOST_DIGITS and scale <= precision:
            return f"DECIMAL({precision}, {scale})", pl.Decimal(precision, scale)
    if enum:
        values = [quoted.replace("''", "'") for quoted in re.findall(r"'((?:[^']|'')*)'", enum[1])]
        if len(set(values)) == len(values):
            return enum_text(values), pl.Enum(values)
    raise InvalidParameterError(
        f"{name!r} is not a type for a column of a text file. The types are {', '.join(_DECLARABLE)}, DECIMAL(9, 2) "
        "and ENUM('a', 'b')."
    )
