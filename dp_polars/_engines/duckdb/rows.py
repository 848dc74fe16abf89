"""Rows of a DuckDB table as a source that the Polars engine reads.

DuckDB does one thing with private rows: it returns columns of a table, by name, as Arrow batches. It computes no
expression and calls no function, so no macro, setting or optimizer of the database can change a result. It may drop
rows by comparing columns with constants, and the Polars engine makes the same comparisons again. Expressions, bounding
and sums are those of the Polars engine. Measured at 10 million rows, an integer and a text column reach Polars in
0.4 CPU seconds, and two integers in 0.1.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from dp_polars._engines.base import file_state
from dp_polars._engines.polars.scan import PolarsSource
from dp_polars._engines.rows import PrivateRows
from dp_polars._expressions.tree import Apply, Column, Constant, Expression

_BATCH = 1 << 17  # longer batches take new memory each time
_PATIENCE = 60.0  # seconds; passes over a table come one after another
_DAY = 86_400_000_000_000  # in nanoseconds; DuckDB has the time 24:00, Polars does not

Cursor = Any
"""A DuckDB cursor. The duckdb package is imported only where a connection is made."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table: the SQL that reads it, and the type that it then has."""

    read: str
    dtype: pl.DataType


class ReadTransaction:
    """A cursor in one transaction, so all passes over a table see the same rows."""

    def __init__(self, open_cursor: Callable[[], Cursor]) -> None:
        self._open, self._lock = open_cursor, threading.Lock()
        self._cursor: Cursor = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Use the cursor alone. Fail rather than wait for ever for a pass that stopped before its end."""
        if not self._lock.acquire(timeout=_PATIENCE):
            raise RuntimeError("another pass over the table has not ended")
        try:
            yield
        finally:
            self._lock.release()

    def rows(self, sql: str) -> Generator[Any, None, None]:
        """Yield the rows of a query in Arrow batches."""
        with self._alone():
            reader = self._begun().sql(sql).to_arrow_reader(_BATCH)
            try:
                yield from reader
            finally:
                reader.close()

    def count(self, table: str) -> int:
        """Return the number of rows of a table, counted in another way than by reading them."""
        with self._alone():
            # The full name is needed because a macro of the database may be called count.
            found = self._begun().execute(f"SELECT system.main.count(*) FROM {table}").fetchall()  # noqa: S608 - quoted
            return int(found[0][0])

    def _begun(self) -> Cursor:
        if self._cursor is None:
            self._cursor = self._open()
            self._cursor.begin()
        return self._cursor

    def close(self) -> None:
        """End the transaction."""
        with self._lock:
            if self._cursor is not None:
                self._cursor.close()
                self._cursor = None


def table_rows(
    transaction: ReadTransaction,
    path: tuple[str, ...],
    columns: Mapping[str, TableColumn],
    *,
    narrow: bool = True,
    never_null: frozenset[str] = frozenset(),
) -> PrivateRows:
    """Return the rows of a table, given by its full path. Only columns that are needed are read.

    With `narrow`, DuckDB may drop rows by comparing columns with constants of their types. The conditions are applied
    again to the rows that it returns, so no row is wrongly kept, whatever a collation of the database makes equal.
    `never_null` names the columns that a constraint keeps from being null.
    """
    source = _table_source(transaction, path, columns, "true", narrow=narrow)
    return PrivateRows(replace(source, never_null=never_null) if never_null else source)


def _table_source(
    transaction: ReadTransaction, path: tuple[str, ...], columns: Mapping[str, TableColumn], where: str, *, narrow: bool
) -> PolarsSource:
    table = f"{'.'.join(map(quoted, path))} WHERE {where}"
    schema = pl.Schema({name: column.dtype for name, column in columns.items()})

    def batches(names: Sequence[str]) -> Generator[Callable[[], pl.DataFrame], None, None]:
        # A frame without columns has no rows either, so one column is read to stand for them.
        listed = ", ".join(f"{columns[name].read} AS {quoted(name)}" for name in names or list(schema)[:1])
        with closing(transaction.rows(f"SELECT {listed} FROM {table}")) as read:  # noqa: S608 - names are quoted
            for batch in read:
                yield partial(_frame_of, batch, {name: schema[name] for name in names})

    def rows(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = n_rows
        for batch in batches(list(schema) if with_columns is None else with_columns):
            part = batch() if predicate is None else batch().filter(predicate)
            if left is not None:
                part = part.head(left)
                left -= part.height
            yield part
            if left == 0:
                return

    def narrowed(conditions: Sequence[Expression]) -> PolarsSource:
        texts = [text for condition in conditions if (text := plain_sql(condition, columns)) is not None]
        if not texts:
            return whole
        return _table_source(transaction, path, columns, " AND ".join([where, *texts]), narrow=True)

    whole = PolarsSource(
        register_io_source(rows, schema=schema),
        height=lambda: transaction.count(table),
        narrowed=narrowed if narrow else None,
        batches=batches,
    )
    return whole


def _frame_of(batch: Any, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return an Arrow batch as a frame whose columns have the types that the table was announced with."""
    frame = pl.from_arrow(batch)
    if not isinstance(frame, pl.DataFrame):
        raise TypeError("a batch of rows is a frame")
    typed = [one for name, dtype in types.items() if (one := _typed(frame, name, dtype)) is not None]
    return frame.with_columns(typed) if typed else frame


def table_identity(place: Sequence[Any], database_files: Sequence[str], token: str) -> bytes:
    """Return what identifies a table now: its place and the state of the database files, never its rows.

    `place` is the file of its database, its schema and its name. `token` names the connection if a part of the database
    is in memory.
    """
    return b"table:" + json.dumps([[file_state(file) for file in database_files], token, *place]).encode()


_SIGNS = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TYPES: dict[type[pl.DataType], str] = {
    pl.Int8: "TINYINT", pl.Int16: "SMALLINT", pl.Int32: "INTEGER", pl.Int64: "BIGINT", pl.UInt8: "UTINYINT",
    pl.UInt16: "USMALLINT", pl.UInt32: "UINTEGER", pl.UInt64: "UBIGINT",
}  # fmt: skip


def plain_sql(condition: Expression, columns: Mapping[str, TableColumn]) -> str | None:
    """Return a plain condition as SQL, or a weaker condition; None if neither is possible.

    All comparisons of integers and floats are translated, since NaN is the largest number in Polars and in DuckDB's own
    tables. For texts, only equality is: a collation makes more texts equal, and may sort them differently. No function
    is called, so no macro of the database is either.
    """
    if not isinstance(condition, Apply):
        return None
    if condition.operation == "and":
        parts = [text for argument in condition.arguments if (text := plain_sql(argument, columns)) is not None]
        return f"({' AND '.join(parts)})" if parts else None
    if condition.operation == "or":
        every = [plain_sql(argument, columns) for argument in condition.arguments]
        return None if None in every else f"({' OR '.join(map(str, every))})"
    column = condition.arguments[0] if condition.arguments else None
    if not isinstance(column, Column) or columns[column.name].read != quoted(column.name):
        return None
    if condition.operation == "is_not_null":
        return f"{quoted(column.name)} IS NOT NULL"
    if condition.operation == "is_in":
        texts = [_literal(value, column.dtype) for value in condition.parameter("values").value]
        listed = ", ".join(text for text in texts if text is not None)
        return f"{quoted(column.name)} IN ({listed})" if texts and None not in texts else None
    sign = _SIGNS.get(condition.operation)
    constant = condition.arguments[-1]
    if sign is None or not isinstance(constant, Constant) or (column.dtype == pl.String and sign != "="):
        return None
    text = _literal(constant.value, column.dtype)
    return None if text is None else f"{quoted(column.name)} {sign} {text}"


def _literal(value: Any, dtype: pl.DataType) -> str | None:
    """Return a constant as SQL of exactly a type, or None for types that are not translated."""
    if dtype.base_type() in _TYPES and isinstance(value, int):
        return f"CAST('{int(value)}' AS {_TYPES[dtype.base_type()]})"
    if dtype == pl.Float64 and isinstance(value, float) and math.isfinite(value):
        return f"CAST('{value!r}' AS DOUBLE)"
    if dtype == pl.String and isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    return None


def _typed(frame: pl.DataFrame, name: str, dtype: pl.DataType) -> pl.Expr | None:
    """Return a column in the type that the table was announced with, or None if it is in this type already.

    Values that do not fit become null.
    """
    given, column = frame.schema[name], pl.col(name)
    if dtype == pl.Time:
        return pl.when(column.to_physical() < _DAY).then(column).alias(name)
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        return column.dt.convert_time_zone(dtype.time_zone)
    return None if given == dtype else column.cast(dtype)


def memory_limit(cursor: Cursor) -> float:
    """Return how many bytes DuckDB may use. This is a setting and says nothing about rows."""
    # The full name is needed because a macro of the user may have the short one.
    text = cursor.execute("SELECT system.main.current_setting('memory_limit')").fetchall()[0][0]
    number, _, unit = str(text).partition(" ")  # for example '1.5 GiB'
    powers = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
    return float(number) * powers.get(unit, 2**40)


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
