"""Rows of a DuckDB table as the source of a private frame.

DuckDB does one thing with private rows: it hands over columns of a table, by their names, as Arrow batches. It computes
no expression, calls no function and pushes down no filter, so that no macro, setting or optimizer of the database has a
say. Expressions, bounding and sums are those of the Polars engine. Measured at 10 million rows: an integer and a text
column reach Polars for 0.4 CPU s, two integers for 0.1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from dp_polars.engines.polars.rows import PrivateRows

_BATCH = 1 << 20
_DAY = 86_400_000_000_000  # nanoseconds: a time of 24:00 is one that Polars doesn't have

Cursor = Any
"""A cursor of DuckDB; the package is imported only where a connection is made."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table: how it is read, and the type that it has afterwards."""

    read: str
    dtype: pl.DataType


class Snapshot:
    """One cursor in one transaction, so that all passes over a table see the same rows."""

    def __init__(self, open_cursor: Callable[[], Cursor]) -> None:
        self._open, self._lock = open_cursor, threading.Lock()
        self._cursor: Cursor = None

    def rows(self, sql: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of a query in batches."""
        with self._lock:
            reader = self._begun().sql(sql).to_arrow_reader(_BATCH)
            try:
                for batch in reader:
                    frame = pl.from_arrow(batch)
                    if isinstance(frame, pl.DataFrame):
                        yield frame
            finally:
                reader.close()

    def count(self, table: str) -> int:
        """Return how many rows a table has, in another way than by reading them."""
        with self._lock:
            # By its full name: a macro of the database may be called count.
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


def table_rows(snapshot: Snapshot, path: tuple[str, ...], columns: Mapping[str, TableColumn]) -> PrivateRows:
    """Return the rows of a table that DuckDB resolves by its full path; only columns that are needed are read."""
    table = ".".join(map(quoted, path))
    schema = pl.Schema({name: column.dtype for name, column in columns.items()})

    def rows(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        names = list(schema) if with_columns is None else with_columns
        # Without a column there would be no rows: the first one stands for them.
        listed = ", ".join(f"{columns[name].read} AS {quoted(name)}" for name in names or list(schema)[:1])
        left = n_rows
        for frame in snapshot.rows(f"SELECT {listed} FROM {table}"):  # noqa: S608 - names are quoted
            part = frame.select(_typed(frame, name, schema[name]) for name in names) if names else frame
            part = part if predicate is None else part.filter(predicate)
            if left is not None:
                part = part.head(left)
                left -= part.height
            yield part
            if left == 0:
                return

    return PrivateRows(register_io_source(rows, schema=schema), height=lambda: snapshot.count(table))


def _typed(frame: pl.DataFrame, name: str, dtype: pl.DataType) -> pl.Expr:
    """Return a column in the type that its table was announced with; what the type can't hold is null."""
    own, column = frame.schema[name], pl.col(name)
    if dtype == pl.Time:
        return pl.when(column.to_physical() < _DAY).then(column).alias(name)
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        return column.dt.convert_time_zone(dtype.time_zone)
    return column if own == dtype else column.cast(dtype)


def memory_limit(cursor: Cursor) -> float:
    """Return how many bytes DuckDB may use: a setting, which says nothing about rows."""
    # By its full name: a macro of the user may have the short one.
    text = cursor.execute("SELECT system.main.current_setting('memory_limit')").fetchall()[0][0]
    number, _, unit = str(text).partition(" ")  # '1.5 GiB'
    powers = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
    return float(number) * powers.get(unit, 2**40)


def quoted(name: str) -> str:
    """Return a name as SQL text."""
    return '"' + name.replace('"', '""') + '"'
