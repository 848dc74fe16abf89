"""What a guarded connection knows about tables, looked up once for each statement.

A name is resolved to an object (a table or view by catalog, schema and name, or a registered frame or file), and all
that was declared is kept by the object: another spelling of a name is the same table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from dp_polars._engines.duckdb.rows import (
    ReadTransaction,
    TableColumn,
    memory_limit,
    quoted,
    table_identity,
    table_rows,
)
from dp_polars._engines.polars.scan import polars_rows
from dp_polars._engines.rows import PrivateRows
from dp_polars._session.terms import TableUnit
from dp_polars._sql.questions import RELEASED
from dp_polars._sql.sandbox import unbound
from dp_polars._sql.syntax_tree import Node, arrow_table, fold, path_of, replaced_tables
from dp_polars._sql.types import polars_type
from dp_polars.errors import InvalidDataError, InvalidParameterError, StatementNotAllowed

if TYPE_CHECKING:
    from dp_polars._sql.connection import GuardedConnection

TableKey = tuple[str, ...]
"""What the name of a table stands for: a registered name, or the number of an attached database, schema and table."""

_PUBLIC = "dp_public_"
_CONVERTED = {"HUGEINT": "DECIMAL(38, 0)", "UHUGEINT": "DECIMAL(38, 0)", "TIMESTAMP_S": "TIMESTAMP",
              "TIMESTAMP_MS": "TIMESTAMP"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class KnownTable:
    """A table, a view, or a registered frame or file."""

    key: TableKey
    path: tuple[str, ...]
    columns: Mapping[str, TableColumn | str]
    """How each column is read, or the SQL type that keeps it from being read."""
    public: bool
    unit: TableUnit
    is_view: bool = False
    declared: bool = False
    """Whether whose its rows are is the owner's word (a view)."""


class Catalog:
    """The tables that one statement meets. Reads names and types of private tables, never rows."""

    def __init__(self, guard: GuardedConnection, parameters: Mapping[str, Any] | None = None) -> None:
        self._guard, self._parameters = guard, dict(parameters or {})
        self._tables: dict[TableKey, KnownTable] = {}
        self._public: dict[TableKey, Any] = {}
        self._snapshots: list[ReadTransaction] = []
        self._stored: set[TableKey] = set()
        """Tables of which every column is stored: reading one computes nothing."""

    # ------------------------------------------------------------------ names

    def key(self, path: tuple[str, ...]) -> TableKey | None:
        """Return the object that a name stands for, None if there is none."""
        lower = tuple(fold(part) for part in path)
        if len(lower) == 1 and lower[0] in self._guard._frames:
            return ("frame", lower[0])
        here = tuple(fold(part) for part in self._here)
        full: list[tuple[str, ...]] = [lower] if len(lower) == 3 else []
        if len(lower) == 1:
            full = [(*here, *lower)]
        elif len(lower) == 2:  # a schema and its table, or a catalog and a table of its main schema
            full = [(here[0], *lower), (lower[0], "main", lower[1])]
        found = [key for one in dict.fromkeys(full) if (key := self._names.get(one)) is not None]
        if len(found) > 1:
            raise StatementNotAllowed(
                f"{'.'.join(path)} could be two tables; name it with its catalog and schema: catalog.schema.table."
            )
        return found[0][0] if found else None

    def table(self, path: tuple[str, ...]) -> KnownTable | None:
        """Return a table by its name, None if there is none."""
        key = self.key(path)
        if key is None:
            return None
        if key not in self._tables:
            self._tables[key] = self._known(key, path)
        return self._tables[key]

    def _known(self, key: TableKey, path: tuple[str, ...]) -> KnownTable:
        guard = self._guard
        public, declared = key in guard._public, key in guard._units
        unit = guard._table_unit(key)
        if key[0] == "frame":
            schema = guard._frames[key[1]].frame.collect_schema()
            columns: dict[str, TableColumn | str] = {name: TableColumn(name, dtype) for name, dtype in schema.items()}
            return KnownTable(key, (key[1],), columns, public, unit)
        full, is_view = self._paths[key]
        if is_view and not public and not declared:
            raise InvalidParameterError(
                f"{'.'.join(path)} is a view, so whose its rows are is not known. Say it with con.private(view, "
                "unit=...), or declare it public with con.public(view).",
                code="view-unit-missing",
            )
        return KnownTable(key, full, self._columns(full), public, unit, is_view, is_view and not public)

    def known_names(self) -> list[str]:
        """Return how all tables and views may be called, the nearest first."""
        found = sorted(self._guard._frames)
        for full, _ in sorted(self._paths.values(), key=lambda one: (one[0][:2] != self._here, one[0])):
            short = 2 if full[:2] == self._here and fold(full[2]) not in self._guard._frames else 0
            short = 1 if short == 0 and full[0] == self._here[0] else short
            found.append(".".join(full[short:]))
        return found

    @cached_property
    def _here(self) -> tuple[str, ...]:
        # System functions are called by their full names, because a user's macro may have the short one.
        row = self._run("SELECT system.main.current_database(), system.main.current_schema()")[0]
        return tuple(str(part) for part in row)

    @cached_property
    def _names(self) -> dict[tuple[str, ...], tuple[TableKey, tuple[str, ...], bool]]:
        """The tables and views of the database by their full names, as DuckDB compares them."""
        found = {}
        for kind in ("table", "view"):
            rows = self._run(
                f"SELECT database_oid::VARCHAR, database_name, schema_name, {kind}_name, "  # noqa: S608 - own words
                f"coalesce(sql, 'generated') FROM system.main.duckdb_{kind}s() WHERE NOT internal AND NOT temporary"
            )
            for number, *path, text in rows:
                lower = tuple(fold(part) for part in path)
                key = ("table", number, *lower[1:])
                found[lower] = (key, tuple(path), kind == "view")
                if kind == "table" and "generated" not in fold(text):
                    self._stored.add(key)
        return found

    @cached_property
    def _paths(self) -> dict[TableKey, tuple[tuple[str, ...], bool]]:
        return {key: (path, is_view) for key, path, is_view in self._names.values()}

    def _columns(self, path: tuple[str, ...]) -> dict[str, TableColumn | str]:
        cursor = self._guard._cursor_for_rows()
        try:
            # Without parameters nothing is run before the rows are asked for; and none are.
            relation = cursor.sql(f"SELECT * FROM {'.'.join(map(quoted, path))} LIMIT 0")  # noqa: S608 - quoted
            pairs = list(zip(relation.columns, relation.types, strict=True))
        except duckdb.Error:
            raise InvalidParameterError(
                f"{'.'.join(path)} can't be read: its definition doesn't fit the tables that it is made of."
            ) from None
        finally:
            cursor.close()
        return {name: _column(name, kind) for name, kind in pairs}

    # ------------------------------------------------------------------ rows

    def rows(self, table: KnownTable) -> PrivateRows:
        """Return the rows of a private table; columns that can't be used over private rows are left out."""
        if table.key[0] == "frame":
            return polars_rows(self._guard._frames[table.key[1]].frame)
        snapshot = ReadTransaction(self._guard._cursor_for_rows)
        self._snapshots.append(snapshot)
        known = {name: one for name, one in table.columns.items() if isinstance(one, TableColumn)}
        # What a view or a generated column computes may fail. Whether it does must not depend on a condition of the
        # analyst's, so all rows are read.
        return table_rows(snapshot, table.path, known, narrow=table.key in self._stored)

    def close(self) -> None:
        """End the transactions in which rows were read."""
        for snapshot in self._snapshots:
            snapshot.close()

    def source(self, keys: frozenset[TableKey]) -> bytes:
        """Return what names tables now: never their rows."""
        return b"\x00".join(sorted(self._source(key) for key in keys))

    def _source(self, key: TableKey) -> bytes:
        if key[0] == "frame":
            return b"frame:" + self._guard._frames[key[1]].source_name()
        token = "" if all(self._databases) else self._guard._token  # in memory, the object that was opened
        return table_identity([fold(part) for part in self._paths[key][0]], self._database_files, token)

    def file_bytes(self, keys: frozenset[TableKey]) -> int:
        """Return the size of the files that tables are in: public, as in the names of sources."""
        frames = [self._guard._frames[key[1]] for key in keys if key[0] == "frame"]
        tables = any(key[0] == "table" for key in keys)
        return sum(one.bytes for one in frames) + sum(map(os.path.getsize, self._database_files if tables else []))

    def memory_limit(self) -> float:
        """Return how many bytes the database may use."""
        cursor = self._guard._cursor_for_rows()
        try:
            return memory_limit(cursor)
        finally:
            cursor.close()

    @cached_property
    def _databases(self) -> list[str]:
        rows = self._run(
            "SELECT path FROM system.main.duckdb_databases() "
            "WHERE NOT internal AND NOT (database_name = 'dp' AND path IS NULL) ORDER BY path"
        )
        return ["" if row[0] is None else str(row[0]) for row in rows]

    @property
    def _database_files(self) -> list[str]:
        return [file for path in self._databases if path for file in (path, f"{path}.wal") if os.path.exists(file)]

    # ------------------------------------------------------------------ public and released rows

    def columns(self, query: Node) -> list[str]:
        """Return the names of the columns of a public query; it is bound, not run."""
        named, tables = self._handed_over(query)
        try:
            return self._guard._sandbox.columns(named, tables, self._parameters)
        except duckdb.Error as error:
            raise unbound(error) from None

    def public_frame(self, query: Node) -> pl.DataFrame:
        """Return the rows of a public query."""
        named, tables = self._handed_over(query)
        try:
            return self._guard._sandbox.frame(named, tables, self._parameters)
        except duckdb.Error as error:
            raise unbound(error) from None

    def answer(self, query: Node, released: Mapping[str, pl.DataFrame]) -> Any:
        """Return the rows of a query over public and released rows, as an Arrow table."""
        named, tables = self._handed_over(query, released)
        return self._guard._sandbox.arrow(named, tables, self._parameters)

    def bind(self, query: Node, released: Mapping[str, pl.DataFrame]) -> None:
        """See that a query over public and released rows can be run."""
        named, tables = self._handed_over(query, released)
        try:
            self._guard._sandbox.columns(named, tables, self._parameters)
        except duckdb.Error as error:
            raise unbound(error) from None

    def _handed_over(
        self, query: Node, released: Mapping[str, pl.DataFrame] | None = None
    ) -> tuple[Node, dict[str, Any]]:
        """Return a query that names the tables which the sandbox gets, and these tables."""
        answers = {name: frame.to_arrow() for name, frame in (released or {}).items()}
        tables: dict[str, Any] = {}

        def named(table: Node) -> str:
            path = path_of(table)
            if len(path) == 1 and path[0].startswith(RELEASED) and path[0] in answers:
                tables[path[0]] = answers[path[0]]
                return path[0]
            known = self.table(path)
            if known is None or not known.public:
                raise StatementNotAllowed(f"{'.'.join(path)} is not a public table of this statement.")
            if known.key not in self._public:
                self._public[known.key] = self._read(known)
            name = f"{_PUBLIC}{list(self._public).index(known.key)}"
            tables[name] = self._public[known.key]
            return name

        return replaced_tables(query, named), tables

    def _read(self, table: KnownTable) -> Any:
        """Return the rows of a public table as an Arrow table."""
        if table.key[0] == "frame":
            try:
                return self._guard._frames[table.key[1]].frame.collect().to_arrow()
            except (Exception, pl.exceptions.PanicException):  # noqa: BLE001 - its message may quote values
                raise InvalidDataError(f"The rows of {table.path[0]} can't be read. Nothing was asked.") from None
        cursor = self._guard._cursor_for_rows()
        try:
            return arrow_table(cursor, f"SELECT * FROM {'.'.join(map(quoted, table.path))}")  # noqa: S608 - quoted
        except duckdb.Error:
            raise InvalidParameterError(f"The public table {'.'.join(table.path)} can't be read.") from None
        finally:
            cursor.close()

    def _run(self, sql: str) -> list[Any]:
        cursor = self._guard._cursor_for_rows()
        try:
            rows: list[Any] = cursor.execute(sql).fetchall()
            return rows
        finally:
            cursor.close()


def _column(name: str, kind: Any) -> TableColumn | str:
    """Return how a column of a table is read, or its type if that can't be used over private rows."""
    dtype, written = polars_type(kind), str(kind)
    if dtype is None:
        return written
    to = _CONVERTED.get(written)
    return TableColumn(quoted(name) if to is None else f"TRY_CAST({quoted(name)} AS {to})", dtype)
