"""The bounded aggregation as one SQL query, for more rows than fit memory. Slower, and the same guarantee.

It orders a unit's groups by another hash than the Polars engine. So which of the two runs must not depend on private
rows: one unit more could make everyone choose anew. It is chosen by DuckDB's memory limit and the sizes of files, which
are public.
"""

from __future__ import annotations

import math
import secrets
from typing import Any

import polars as pl

from dp_polars.engines.duckdb.rows import Cursor
from dp_polars.engines.request import LIMIT, BoundedRequest, ValueRequest
from dp_polars.sql.texts import sql_text

_LITTLE = 1 << 30  # with a lower memory limit than this, rows are left to DuckDB
_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"})
_RUN_BYTES = 100  # what a row may need in DuckDB's group-by and window


def must_spill(cursor: Cursor, file_bytes: int) -> bool:
    """Whether memory is short: by the limit, and by the size of the files that rows come from."""
    limit = _limit(cursor)
    return limit < _LITTLE or file_bytes > limit


def _limit(cursor: Cursor) -> float:
    return _bytes(cursor.execute("SELECT system.main.current_setting('memory_limit')").fetchall()[0][0])


def _bytes(text: str) -> float:
    """Return what DuckDB writes as '1.5 GiB'."""
    number, _, unit = str(text).partition(" ")
    powers = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
    return float(number) * powers.get(unit, 2**40)


def run_spilling(cursor: Cursor, sql: str, parameters: dict[str, Any], request: BoundedRequest) -> pl.DataFrame:
    """Return what the Polars engine's `run_bounded` returns, computed by DuckDB."""
    keys = [f"key_{i}" for i in range(request.keys)]
    if request.domain is not None and keys:
        domain = request.domain.rename({f"key{i}": name for i, name in enumerate(keys)})
        name = f"dp_domain_{secrets.token_hex(8)}"
        cursor.register(name, domain.to_arrow())
        equal = " AND ".join(f"given.{key} IS NOT DISTINCT FROM domain.{key}" for key in keys)
        sql = f"SELECT * FROM ({sql}) AS given SEMI JOIN temp.main.{name} AS domain ON {equal}"  # noqa: S608 - own names
    cursor.begin()  # all parts see the same rows
    try:
        table = _added(_pieces(cursor, sql, parameters, request, keys), keys)
    finally:
        cursor.rollback()
    table = table.rename({"row_sum": "rows", "unit_count": "units"})
    table = table.rename({name: f"key{i}" for i, name in enumerate(keys)})
    own = [f"key{i}" for i in range(request.keys)]
    if request.domain is not None and own:
        table = table.cast(dict(request.domain.schema))  # type: ignore[arg-type]
        joined = request.domain.join(table, on=own, how="left", nulls_equal=True, maintain_order="left")
        return joined.with_columns(pl.exclude(own).fill_null(0))
    return table.filter(pl.col("units") > 0).sort(own) if own else table


def _pieces(
    cursor: Cursor, sql: str, parameters: dict[str, Any], request: BoundedRequest, keys: list[str]
) -> list[pl.DataFrame]:
    """Return the sums of each part of the units; numbers of our own are written into the text."""
    integers = False
    if request.value is not None:
        relation = cursor.sql(f"SELECT value FROM ({sql}) LIMIT 0", params=parameters or None)  # noqa: S608 - checked
        integers = str(relation.types[0]).upper() in _INTEGERS
    if not request.units:
        return [cursor.sql(_plain_text(request, keys, sql, integers), params=parameters or None).pl()]
    rows = cursor.execute(f"SELECT system.main.count_star() FROM ({sql})", parameters or None)  # noqa: S608 - checked
    parts = max(1, math.ceil(rows.fetchall()[0][0] * _RUN_BYTES / (_limit(cursor) / 4)))
    salt = secrets.randbits(63)
    return [
        cursor.sql(_text(request, keys, sql, salt, part, parts, integers), params=parameters or None).pl()
        for part in range(parts)
    ]


def _plain_text(request: BoundedRequest, keys: list[str], sql: str, integers: bool) -> str:
    """Return the query where every row is a unit of its own: no cap can bind."""
    total, present = "", "true"
    if request.value is not None:
        step = _steps(request.value, integers)
        if request.value.total:
            step = f"system.main.least(system.main.greatest({step}, {request.value.low}), {request.value.high})"
        whole = f"coalesce(system.main.sum({step}), 0)"
        total = f", system.main.least(system.main.greatest({whole}, {-LIMIT}), {LIMIT})::VARCHAR AS total"
        present = "value IS NOT NULL AND NOT system.main.isnan(value::DOUBLE)"
    listed = "".join(f"{key}, " for key in keys)
    grouped = "GROUP BY ALL" if keys else ""
    counts = "system.main.count_star() AS row_sum, system.main.count_star() AS unit_count"
    return f"SELECT {listed}{counts}{total} FROM ({sql}) WHERE {present} {grouped}"  # noqa: S608 - own names


def _added(pieces: list[pl.DataFrame], keys: list[str]) -> pl.DataFrame:
    """Return the sums of all parts; each unit is in one."""
    table = pl.concat(pieces)
    if "total" in table.columns:
        table = table.with_columns(pl.col("total").cast(pl.String).cast(pl.Int128))
    sums = [pl.exclude(keys).cast(pl.Int128).sum().clip(-LIMIT, LIMIT).cast(pl.Int64)]
    return table.group_by(keys).agg(sums) if keys else table.select(sums)


def _text(request: BoundedRequest, keys: list[str], sql: str, salt: int, part: int, parts: int, integers: bool) -> str:
    units = [f"unit_{i}" for i in range(request.units)]
    value = request.value
    kept = "true" if request.max_groups is None else f"position <= {int(request.max_groups)}"
    rows = "row_count" if request.max_rows is None else f"system.main.least(row_count, {int(request.max_rows)})"
    present = [f"{name} IS NOT NULL" for name in units]
    present.append(f"system.main.hash({', '.join(units)}) % {parts}::UBIGINT = {part}::UBIGINT")
    if value is not None:
        present.append("value IS NOT NULL AND NOT system.main.isnan(value::DOUBLE)")
    listed = "".join(f"{name}, " for name in keys)
    return sql_text("bounded").format(
        units=", ".join(units),
        keys=listed,
        total="" if value is None else f"system.main.sum({_steps(value, integers)}) AS total, ",
        hashed="".join(f"{name}, " for name in (*units, *keys)),
        rows=sql,
        salt=salt,
        present=" AND ".join(present),
        ties="".join(f", {name} NULLS FIRST" for name in keys),
        capped_rows=rows,
        kept=kept,
        capped_total="" if value is None else f",\n       {_total(value, request, kept)} AS total",
        grouped="GROUP BY ALL" if keys else "",
    )


def _steps(value: ValueRequest, integers: bool) -> str:
    """Return a value as whole steps of its grid, clipped; a value that is there is never null here."""
    low, high = (-LIMIT, LIMIT) if value.total else (value.low, value.high)
    if integers:
        number = f"(value::HUGEINT - {int(value.offset)})"
        if value.exponent > 0:
            step = 1 << value.exponent
            number = f"(({number} - (({number} % {step}) + {step}) % {step}) // {step})"
        return f"system.main.least(system.main.greatest({number}, {low}), {high})"
    scaled = f"system.main.round((value::DOUBLE - {value.offset!r}::DOUBLE) * {2.0**-value.exponent!r}::DOUBLE)"
    clipped = f"system.main.least(system.main.greatest({scaled}, {low}::DOUBLE), {high}::DOUBLE)"
    return f"system.main.least(system.main.greatest(CAST({clipped} AS HUGEINT), {low}), {high})"


def _total(value: ValueRequest, request: BoundedRequest, kept: str) -> str:
    """Return the sum of capped totals: scaled down beyond max_rows, or clipped, and within 64 bits."""
    if value.total:
        one = f"system.main.least(system.main.greatest(total, {value.low}), {value.high})"
    elif request.max_rows is None:
        one = "total"
    else:
        cap = int(request.max_rows)
        floored = f"((total * {cap} - ((total * {cap}) % row_count + row_count) % row_count) // row_count)"
        one = f"CASE WHEN row_count > {cap} THEN {floored} ELSE total END"
    whole = f"coalesce(system.main.sum({one}) FILTER (WHERE {kept}), 0)"
    return f"system.main.least(system.main.greatest({whole}, {-LIMIT}), {LIMIT})::VARCHAR"
