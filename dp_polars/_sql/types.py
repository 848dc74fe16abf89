"""SQL types and the Polars types that hold the same values.

A column of a type that has no counterpart here can't be used over private rows: bytes, bits, maps, unions, intervals,
variants and numbers of any length. Integers of 128 bits are read as decimals of 38 digits.
"""

from __future__ import annotations

from typing import Any

import polars as pl

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
    "HUGEINT": pl.Decimal(38, 0),
    "UHUGEINT": pl.Decimal(38, 0),
    "FLOAT": pl.Float32(),
    "DOUBLE": pl.Float64(),
    "VARCHAR": pl.String(),
    "UUID": pl.String(),
    "JSON": pl.String(),
    "DATE": pl.Date(),
    "TIME": pl.Time(),
    "TIME_NS": pl.Time(),
    "TIMESTAMP": pl.Datetime("us"),
    "TIMESTAMP_S": pl.Datetime("us"),
    "TIMESTAMP_MS": pl.Datetime("us"),
    "TIMESTAMP_NS": pl.Datetime("ns"),
    "TIMESTAMP WITH TIME ZONE": pl.Datetime("us", "UTC"),
}
_ALONE = frozenset(
    {"HUGEINT", "UHUGEINT", "TIME", "TIME_NS", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP WITH TIME ZONE"}
)
"""Types that are converted when they are read, and so can't be inside of lists and structs."""
_SQL: dict[type[pl.DataType], str] = {
    pl.Boolean: "BOOLEAN",
    pl.Int8: "TINYINT",
    pl.Int16: "SMALLINT",
    pl.Int32: "INTEGER",
    pl.Int64: "BIGINT",
    pl.UInt8: "UTINYINT",
    pl.UInt16: "USMALLINT",
    pl.UInt32: "UINTEGER",
    pl.UInt64: "UBIGINT",
    pl.Float32: "FLOAT",
    pl.Float64: "DOUBLE",
    pl.Date: "DATE",
    pl.Time: "TIME",
}


def polars_type(kind: Any) -> pl.DataType | None:
    """Return the Polars type for a type object of DuckDB, None if the language of private rows has no such type.

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
    """Return the Polars type of what a list or a struct holds."""
    return None if kind.id == "enum" or str(kind) in _ALONE else polars_type(kind)


def sql_type(dtype: pl.DataType) -> str | None:
    """Return the SQL type in which a text constant is read for a column of a Polars type; None if there is none."""
    if isinstance(dtype, pl.Decimal):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if isinstance(dtype, pl.Datetime):
        named = "TIMESTAMP_NS" if dtype.time_unit == "ns" else "TIMESTAMP"
        return named if dtype.time_zone is None else "TIMESTAMPTZ"
    return _SQL.get(dtype.base_type())
