"""Resolve the names of tables, and read their columns, units and rows.

A name is resolved to an object: a table or view by its database, schema and name, or a registered frame or file.
Declarations belong to the object, so another spelling of a name means the same table with the same declarations.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import polars as pl

from dp_polars._engines.base import object_token
from dp_polars._engines.duckdb.rows import (
    ReadTransaction,
    TableColumn,
    memory_limit,
    quoted,
    table_identity,
    table_rows,
)
from dp_polars._engines.rows import PrivateRows, Source, check_names
from dp_polars._engines.unit_steps import first_sources, has_unit_steps
from dp_polars._frame.table_rules import Rules, TableRules
from dp_polars._session.session import Session
from dp_polars._session.terms import TableUnit, UnitWords, table_unit
from dp_polars._sql.files import OpenedFile, is_part_of, refuse_public_and_private
from dp_polars._sql.sandbox import Sandbox, unbound
from dp_polars._sql.scope import WITHHELD, closest
from dp_polars._sql.syntax_tree import (
    Node,
    Parser,
    arrow_table,
    fold,
    path_of,
    replaced_tables,
    with_short_texts,
    without_places,
    without_progress,
)
from dp_polars._sql.types import polars_type
from dp_polars.errors import InvalidDataError, InvalidParameterError, StatementNotAllowed

TableKey = tuple[str, ...]
"""The identity of a table: ("frame", registered name), or ("table", number of the database, schema, table)."""

_MAIN = "main"
_PUBLIC = "dp_public_"
_CONVERTED = {"HUGEINT": "DECIMAL(38, 0)", "UHUGEINT": "DECIMAL(38, 0)", "TIMESTAMP_S": "TIMESTAMP",
              "TIMESTAMP_MS": "TIMESTAMP"}  # fmt: skip


@dataclass(frozen=True)
class Through:
    """Where the units of a table stand that has none of its own: in another table, whose rows have the same key."""

    table: TableKey
    on: tuple[tuple[str, str], ...]
    """The columns of the key: in the table without units, and in the other one."""
    unique: bool
    """Whether the owner vouches that no two rows of the other table have the same key."""


class Database:
    """A DuckDB database, the frames and files registered beside it, and what their owner declared about them."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.registered: dict[str, OpenedFile] = {}
        self.public: set[TableKey] = set()
        self.units: dict[TableKey, tuple[UnitWords, bool]] = {}
        self.throughs: dict[TableKey, Through] = {}
        self.versions: dict[TableKey, str] = {}
        """What the owner says identifies the rows of a table, instead of the state of its file."""
        self.rules: dict[TableKey, TableRules] = {}
        """What a policy says about its private tables."""
        self.aliases: dict[str, TableKey] | None = None
        """With a policy, its tables in attached databases by name. No other table of a database is then seen."""
        self.token = object_token(connection).hex()
        self.declarations = 0
        """The number of declarations so far. Answers made before another declaration may no longer be right."""

    def find(self, path: tuple[str, ...]) -> str | None:
        """Return the name under which the table of a folded path is registered, or None."""
        return path[0] if len(path) == 1 and path[0] in self.registered else None

    def names(self) -> list[str]:
        """Return names of tables that are known beside those of DuckDB's catalog, for suggestions."""
        return sorted(self.registered)

    def register(self, name: str, source: OpenedFile) -> None:
        """Register a frame or file under a name. Its rows are private, whatever the name meant before."""
        folded = fold(name)
        self._refuse_two_declarations({**self.registered, folded: source}, self.public - {("frame", folded)})
        self.registered[folded] = source
        self.public.discard(("frame", folded))
        self.units.pop(("frame", folded), None)
        self.throughs.pop(("frame", folded), None)
        self.versions.pop(("frame", folded), None)
        self.declarations += 1

    def declare_public(self, keys: set[TableKey]) -> None:
        """Declare tables public."""
        self._refuse_two_declarations(self.registered, self.public | keys)
        self.public |= keys
        self.declarations += 1

    def declare_private(
        self, key: TableKey, unit: UnitWords, version: str | None, *, weaker: bool, through: Through | None = None
    ) -> None:
        """Declare the unit of a private table or view, unless it is None, and the version of its rows."""
        self.public.discard(key)
        if unit is not None:
            self.units[key] = (unit, weaker)
            self.throughs.pop(key, None)
        if through is not None:
            self.units.pop(key, None)
            self.throughs[key] = through
        self.versions.pop(key, None)
        if version is not None:
            self.versions[key] = version
        self.declarations += 1

    def unit_of(self, key: TableKey, session: Session, columns: Iterable[str]) -> TableUnit:
        """Return the unit that the rows of a table belong to."""
        same = self._same(key)
        unit, weaker = next((self.units[one] for one in same if one in self.units), (None, False))
        agreed = session.terms.unit
        if isinstance(unit, Mapping) and isinstance(agreed, tuple):
            # The order of the session's unit, so that units of several tables are compared column by column.
            unit = {name: unit[name] for name in (*agreed, *unit) if name in unit}
        elif isinstance(unit, list | tuple) and isinstance(agreed, tuple) and set(unit) == set(agreed):
            unit = agreed
        return table_unit(session.terms.unit, unit, weaker=weaker, table_columns=columns)

    def through(self, key: TableKey) -> Through | None:
        """Return where the units of a table stand, if it has none of its own."""
        return next((self.throughs[one] for one in self._same(key) if one in self.throughs), None)

    def _same(self, key: TableKey) -> list[TableKey]:
        """Return a table and those whose declarations hold for it.

        Another name of the same file is the same table, and a file is part of a folder. But what was declared about one
        file says nothing about the other files of its folder.
        """
        if key[0] != "frame":
            return [key]
        file = self.registered[key[1]]
        return [key, *(("frame", name) for name, one in self.registered.items() if is_part_of(file, one))]

    def cursor(self) -> Any:
        """Open a cursor on the database that can't see Python variables."""
        cursor = self.connection.cursor()
        try:
            cursor.execute("SET python_enable_replacements = false")
        except duckdb.Error:  # settings are locked
            asked = "SELECT system.main.current_setting('python_enable_replacements')"
            if cursor.execute(asked).fetchall() != [(False,)]:
                raise InvalidParameterError(
                    "The settings of this database are locked, so that the names of tables may mean Python variables. "
                    "Say SET GLOBAL python_enable_replacements = false before SET lock_configuration = true."
                ) from None
        without_progress(cursor)
        with_short_texts(cursor)
        return cursor

    def _refuse_two_declarations(self, files: Mapping[str, OpenedFile], public: set[TableKey]) -> None:
        refuse_public_and_private(files, {key[1] for key in public if key[0] == "frame"})


@dataclass(frozen=True, eq=False)
class KnownTable:
    """A table, a view, or a registered frame or file, as a statement sees it."""

    key: TableKey
    path: tuple[str, ...]
    columns: Mapping[str, TableColumn | str]
    """How each column is read, or the SQL type that makes the column unusable over private rows."""
    public: bool
    unit: TableUnit
    is_view: bool = False
    declared: bool = False
    """Whether the unit rests on the owner's declaration about a view."""
    through: Through | None = None
    """Where its units stand, if it has none of its own."""


class Catalog:
    """The tables of one statement, each looked up once. The catalog reads names and types, never private rows."""

    def __init__(self, database: Database, session: Session, parameters: Mapping[str, Any] | None = None) -> None:
        self._database, self._session, self._parameters = database, session, dict(parameters or {})
        self._sandbox = Sandbox(Parser())
        self._tables: dict[TableKey, KnownTable] = {}
        self._public: dict[TableKey, Any] = {}
        self._snapshot = ReadTransaction(database.cursor)
        """One transaction for all tables of the database, so that rows which belong together are of one state."""
        self._handed_out: list[tuple[Source, TableKey]] = []
        """The private tables whose rows were asked for, with the sources of these rows."""
        self._stored: set[TableKey] = set()
        """Tables without generated columns: reading one computes nothing that could fail."""

    # ------------------------------------------------------------------ names

    def key(self, path: tuple[str, ...]) -> TableKey | None:
        """Return the identity of the table that a name means, or None if there is no such table."""
        lower = tuple(fold(part) for part in path)
        registered = self._database.find(lower)
        if registered is not None:
            return ("frame", registered)
        if self._database.aliases is not None:  # a policy names all tables that there are
            # Tools write the schema that information_schema tells, which is `main` for these tables.
            *schema, name = lower
            if schema not in ([], [_MAIN]):
                return None
            registered = self._database.find((name,))
            return self._database.aliases.get(name) if registered is None else ("frame", registered)
        here = tuple(fold(part) for part in self._here)
        full: list[tuple[str, ...]] = [lower] if len(lower) == 3 else []
        if len(lower) == 1:
            full = [(*here, *lower)]
        elif len(lower) == 2:  # a schema and its table, or a catalog and a table of its main schema
            full = [(here[0], *lower), (lower[0], "main", lower[1])]
        found = [key for names in dict.fromkeys(full) if (key := self._names.get(names)) is not None]
        if len(found) > 1:
            raise StatementNotAllowed(
                f"{'.'.join(path)} could mean two tables; write its full name: catalog.schema.table."
            )
        return found[0][0] if found else None

    def declared_key(self, name: str) -> TableKey:
        """Return the identity of the table that the owner names in a declaration. It must exist."""
        key = self.key(path_of(Parser().table(name)))
        if key is None:
            raise InvalidParameterError(
                f"There is no table {name} here{closest(name, self.known_names())}. Create or register it first: a "
                "declaration belongs to the table, not to its name."
            )
        return key

    def table(self, path: tuple[str, ...]) -> KnownTable | None:
        """Return a table by its name, or None if there is no such table."""
        key = self.key(path)
        if key is None:
            return None
        if key not in self._tables:
            self._tables[key] = self._known(key, path)
        return self._tables[key]

    def _known(self, key: TableKey, path: tuple[str, ...]) -> KnownTable:
        public, through = key in self._database.public, self._database.through(key)
        declared = key in self._database.units or through is not None
        if key[0] == "frame":
            file = self._database.registered[key[1]]
            if file.is_view and not public and not declared:
                raise _without_unit(path)
            schema = file.schema()
            columns: dict[str, TableColumn | str] = {name: TableColumn(name, dtype) for name, dtype in schema.items()}
            _check_names((key[1],), columns, public=public)
            unit = self._database.unit_of(key, self._session, columns)
            word = file.is_view and not public
            columns = self._withheld(key, columns)
            return KnownTable(key, (key[1],), columns, public, unit, file.is_view, word, through)
        full, is_view = self._paths[key]
        if is_view and not public and not declared:
            raise _without_unit(path)
        columns = self._columns(full)
        _check_names(full, columns, public=public)
        unit = self._database.unit_of(key, self._session, columns)
        columns = self._withheld(key, columns)
        return KnownTable(key, full, columns, public, unit, is_view, is_view and not public, through)

    def _withheld(self, key: TableKey, columns: dict[str, TableColumn | str]) -> dict[str, TableColumn | str]:
        """Return the columns, where those that a policy withholds can't be used in any expression."""
        rules = self._database.rules.get(key)
        return {
            name: WITHHELD if rules is not None and name in rules.withheld else one for name, one in columns.items()
        }

    @property
    def has_policy(self) -> bool:
        """Whether the tables come from a policy, so that plain aggregates over private rows are private ones."""
        return bool(self._database.rules)

    def rules(self) -> Rules:
        """Return what a policy says about the private tables whose rows were asked for."""
        known = self._database.rules
        return tuple((source, known[key]) for source, key in self._handed_out if key in known)

    def view_query(self, path: tuple[str, ...]) -> Node | None:
        """Return the SELECT behind a view of the current schema about which its owner declared nothing.

        Names inside such a view mean what they mean in the statement, so the view can be read like a subquery. None if
        the name means anything else, or if DuckDB wrote the view in a form that is not known.
        """
        key = self.key(path)
        if key is None or key[0] == "frame" or key in self._database.public or self._database.aliases is not None:
            return None
        full, is_view = self._paths[key]
        declared = key in self._database.units or self._database.through(key) is not None
        if not is_view or declared or tuple(map(fold, full[:2])) != tuple(map(fold, self._here)):
            return None
        (views,) = self._run(
            "SELECT database_oid, schema_name, view_name, sql FROM system.main.duckdb_views() "
            "WHERE NOT internal AND NOT temporary"
        )
        for number, schema, view, text in views:
            if ("table", str(number), fold(schema), fold(view)) != key:
                continue
            for written in (view, quoted(view)):
                begin = f"CREATE VIEW {written} AS "
                if text.startswith(begin) and text.endswith(";"):
                    found: Node = without_places(Parser().select(text[len(begin) : -1]))
                    return found
        return None

    def known_table(self, key: TableKey) -> KnownTable:
        """Return a table that a declaration names."""
        if key not in self._tables:
            if (key[0] == "frame" and key[1] not in self._database.registered) or (
                key[0] != "frame" and key not in self._paths
            ):
                raise InvalidParameterError(
                    f"{key[-1]} is gone, through which another table gets its units. Declare that table anew."
                )
            self._tables[key] = self._known(key, (key[1],) if key[0] == "frame" else self._paths[key][0])
        return self._tables[key]

    def is_view(self, key: TableKey) -> bool:
        """Return whether a table of the database is a view."""
        return key[0] != "frame" and self._paths[key][1]

    def known_columns(self, key: TableKey) -> list[str]:
        """Return the columns of a table, whether its unit is known or not."""
        if key[0] == "frame":
            return list(self._database.registered[key[1]].schema())
        return list(self._columns(self._paths[key][0]))

    def check_path(self, key: TableKey, other: TableKey, name: str) -> None:
        """Refuse a table whose units would stand in the table itself, by way of others."""
        seen: TableKey | None = other
        while seen is not None:
            if seen == key:
                raise InvalidParameterError(f"The units of {name} would stand in {name} itself, by way of through=.")
            label = self._database.through(seen)
            seen = None if label is None else label.table

    def unit_keys(self, key: TableKey) -> set[str]:
        """Return the columns of a table that decide the unit, because other tables get their units by them."""
        found = self._database.throughs.values()
        return {fold(one.on[0][1]) for one in found if one.table == key and len(one.on) == 1}

    def is_unique(self, table: KnownTable, columns: Iterable[str]) -> bool:
        """Return whether a constraint of the database says that no two rows have the same values in these columns."""
        if table.key[0] == "frame":
            return False
        wanted = {fold(name) for name in columns}
        (rows,) = self._run(
            "SELECT database_oid::VARCHAR, schema_name, table_name, constraint_column_names "
            "FROM system.main.duckdb_constraints() WHERE constraint_type IN ('PRIMARY KEY', 'UNIQUE')"
        )
        return any(
            ("table", number, fold(schema), fold(name)) == table.key and {fold(one) for one in names} <= wanted
            for number, schema, name, names in rows
        )

    def known_names(self) -> list[str]:
        """Return a name for each table and view, those of the current schema first."""
        return [".".join(path) for path in self.known_paths()]

    def known_paths(self) -> list[tuple[str, ...]]:
        """Return the parts of a name for each table and view, those of the current schema first."""
        found: list[tuple[str, ...]] = [(name,) for name in self._database.names()]
        if self._database.aliases is not None:
            return sorted([*found, *((name,) for name in self._database.aliases)])
        for full, _ in sorted(self._paths.values(), key=lambda entry: (entry[0][:2] != self._here, entry[0])):
            short = 2 if full[:2] == self._here and fold(full[2]) not in self._database.registered else 0
            short = 1 if short == 0 and full[0] == self._here[0] else short
            found.append(full[short:])
        return found

    @cached_property
    def _listed(self) -> list[list[Any]]:
        """The current schema, the databases, the tables and the views, as DuckDB lists them.

        Each statement asks for them, so this asks for no more than names: filters and casts are cheaper in Python, and
        the texts of views, of which DuckDB has many of its own, take longer than everything else.
        """
        # System functions are called by their full names, because a macro of the user may have the short name.
        return self._run(
            "SELECT system.main.current_database(), system.main.current_schema()",
            "SELECT database_oid, database_name, path, type, internal FROM system.main.duckdb_databases()",
            "SELECT database_oid, database_name, schema_name, table_name, sql, internal OR temporary "
            "FROM system.main.duckdb_tables()",
            "SELECT database_oid, database_name, schema_name, view_name, NULL, internal OR temporary "
            "FROM system.main.duckdb_views()",
        )

    @cached_property
    def _here(self) -> tuple[str, ...]:
        return tuple(str(part) for part in self._listed[0][0])

    @cached_property
    def _names(self) -> dict[tuple[str, ...], tuple[TableKey, tuple[str, ...], bool]]:
        """The tables and views of the database by their full names, folded as DuckDB compares them."""
        found = {}
        # Only DuckDB's own storage: statistics of other formats, such as Parquet's, leave NaN out.
        _, databases, tables, views = self._listed
        native = {number for number, _, _, kind, _ in databases if kind == "duckdb"}
        for kind, rows in (("table", tables), ("view", views)):
            for number, *path, text, hidden in rows:
                if hidden:
                    continue
                lower = tuple(fold(part) for part in path)
                key = ("table", str(number), *lower[1:])
                found[lower] = (key, tuple(path), kind == "view")
                if kind == "table" and number in native and text is not None and "generated" not in fold(text):
                    self._stored.add(key)
        return found

    @cached_property
    def _paths(self) -> dict[TableKey, tuple[tuple[str, ...], bool]]:
        return {key: (path, is_view) for key, path, is_view in self._names.values()}

    def _columns(self, path: tuple[str, ...]) -> dict[str, TableColumn | str]:
        cursor = self._database.cursor()
        try:
            # DuckDB binds a relation without parameters, but runs it only when rows are fetched, and none are.
            relation = cursor.sql(f"SELECT * FROM {'.'.join(map(quoted, path))} LIMIT 0")  # noqa: S608 - quoted
            names, kinds = relation.columns, relation.types
        except duckdb.Error:
            raise InvalidParameterError(
                f"{'.'.join(path)} can't be read: its definition no longer fits the tables it selects from."
            ) from None
        finally:
            cursor.close()
        reads = [quoted(name) for name in names]
        return {name: _column(read, kind) for name, read, kind in zip(names, reads, kinds, strict=True)}

    # ------------------------------------------------------------------ rows

    def rows(self, table: KnownTable) -> PrivateRows:
        """Return the rows of a private table, without columns of unusable types."""
        rows = self._rows(table)
        kept = [name for name in rows.schema if table.columns.get(name) != WITHHELD]
        rows = rows if len(kept) == len(rows.schema) else rows.keep(kept)
        self._handed_out.append((rows.source, table.key))
        return rows

    def _rows(self, table: KnownTable) -> PrivateRows:
        if table.key[0] == "frame":
            return self._database.registered[table.key[1]].private_rows()
        known = {name: column for name, column in table.columns.items() if isinstance(column, TableColumn)}
        # A view or a generated column may fail on some row. Whether it does must not depend on the analyst's WHERE, so
        # all rows are read.
        stored = table.key in self._stored
        types = {name: column.dtype for name, column in known.items()}
        listed = [name for name, dtype in types.items() if dtype == pl.Boolean or isinstance(dtype, pl.Enum)]
        never = self._never_null(table, listed) if listed and stored else frozenset()
        return table_rows(self._snapshot, table.path, known, narrow=stored, never_null=never)

    def _never_null(self, table: KnownTable, columns: Iterable[str]) -> frozenset[str]:
        """Return the columns that a constraint of the database keeps from being null."""
        (rows,) = self._run(
            "SELECT database_oid::VARCHAR, schema_name, table_name, constraint_column_names "
            "FROM system.main.duckdb_constraints() WHERE constraint_type = 'NOT NULL'"
        )
        found = [
            names for number, schema, name, names in rows if ("table", number, fold(schema), fold(name)) == table.key
        ]
        kept = {fold(name) for names in found for name in names}
        return frozenset(name for name in columns if fold(name) in kept)

    def close(self) -> None:
        """End the transaction in which private rows were read."""
        self._snapshot.close()

    def source(self, keys: frozenset[TableKey]) -> bytes:
        """Return an identifier of the present state of tables, made without reading their rows."""
        return b"\x00".join(sorted(self._source(key) for key in keys))

    def private_source(self, keys: frozenset[TableKey], rows: PrivateRows) -> bytes:
        """Return an identifier of the private tables among these. Public rows are part of a query by their content.

        If steps within a unit read several tables, the identifier tells which table is read where: a join of two tables
        differs from the join of the second with the first, however alike their columns are.
        """
        whole = self.source(keys - self._database.public)
        if not has_unit_steps(rows):
            return whole
        tables = [[key for own, key in self._handed_out if own is source] for source in first_sources(rows)]
        if not all(tables):
            raise RuntimeError("a source of private rows is not among the tables of this statement")
        places = [self._source(found[0]).hex() for found in tables]
        return b"several:" + json.dumps([whole.hex(), places]).encode()

    def state(self, keys: frozenset[TableKey]) -> bytes:
        """Return the present state of tables. Unlike `source`, it tells whether a file with a version was replaced.

        A plan that was made for the columns of one file must not be used on another. Tables of a database are read in
        one transaction, so they need no such check.
        """
        frames = self._database.registered
        return b"\x00".join(
            sorted(frames[key[1]].source_name() if key[0] == "frame" else self._source(key) for key in keys)
        )

    def check_versions(self, keys: frozenset[TableKey], state: bytes) -> None:
        """Fail if a file whose owner gave it a version was replaced while it was read.

        Files without a version are compared by their key when the release is made.
        """
        if any(key in self._database.versions for key in keys) and self.state(keys) != state:
            raise InvalidDataError("A file was replaced while it was read.")

    def _source(self, key: TableKey) -> bytes:
        version = self._database.versions.get(key)
        if key[0] == "frame":
            opened = self._database.registered[key[1]]
            return opened.source_name() if version is None else opened.owned_name(key[1], version)
        # A database is identified by its file, not by the name that it was attached with. A database in memory has no
        # file, but it has a number that it keeps as long as the connection object exists.
        path = self._database_places[key[1]]
        place = [path or [self._database.token, key[1]], *key[2:]]
        if version is not None:
            return b"version:" + json.dumps([*place, version]).encode()
        token = "" if all(self._database_paths) else self._database.token
        return table_identity(place, self._database_files, token)

    def file_bytes(self, keys: frozenset[TableKey]) -> int:
        """Return the total size of the files that hold tables. File sizes count as public."""
        frames = [self._database.registered[key[1]] for key in keys if key[0] == "frame"]
        tables = any(key[0] == "table" for key in keys)
        return sum(frame.bytes for frame in frames) + sum(map(os.path.getsize, self._database_files if tables else []))

    def memory_limit(self) -> float:
        """Return the memory limit of the database in bytes."""
        cursor = self._database.cursor()
        try:
            return memory_limit(cursor)
        finally:
            cursor.close()

    @cached_property
    def _database_paths(self) -> list[str]:
        return sorted(
            "" if path is None else str(path)
            for _, name, path, _, internal in self._listed[1]
            if not internal and not (name == "dp" and path is None)
        )

    @cached_property
    def _database_places(self) -> dict[str, str]:
        """The real path of each attached database by its number, or "" if it is in memory."""
        places = {str(number): path for number, _, path, _, _ in self._listed[1]}
        return {number: "" if path is None else os.path.realpath(path) for number, path in places.items()}

    @property
    def _database_files(self) -> list[str]:
        return [file for path in self._database_paths if path for file in (path, f"{path}.wal") if os.path.exists(file)]

    # ------------------------------------------------------------------ public and released rows

    def columns(self, query: Node, released: Mapping[str, pl.DataFrame] | None = None) -> list[str]:
        """Return the names of a query's columns. DuckDB binds the query but doesn't run it."""
        named, tables = self._handed_over(query, released)
        try:
            return self._sandbox.columns(named, tables, self._parameters)
        except duckdb.Error as error:
            raise unbound(error) from None

    def check_text(self, query: Node, released: Mapping[str, pl.DataFrame]) -> None:
        """Check the text of a query that is known to bind."""
        self._sandbox.checked_text(query, frozenset(released))

    def public_frame(self, query: Node) -> pl.DataFrame:
        """Run a query over public tables and return its rows."""
        named, tables = self._handed_over(query)
        try:
            return self._sandbox.frame(named, tables, self._parameters)
        except duckdb.Error as error:
            raise unbound(error) from None

    def answer(self, query: Node, released: Mapping[str, pl.DataFrame]) -> Any:
        """Run a query over public and released tables and return its rows as an Arrow table."""
        named, tables = self._handed_over(query, released)
        return self._sandbox.arrow(named, tables, self._parameters)

    def _handed_over(
        self, query: Node, released: Mapping[str, pl.DataFrame] | None = None
    ) -> tuple[Node, dict[str, Any]]:
        """Replace the tables of a query by the names they get in the sandbox, and return the tables by these names."""
        answers = {name: frame.to_arrow() for name, frame in (released or {}).items()}
        tables: dict[str, Any] = {}

        def named(table: Node) -> str:
            path = path_of(table)
            if len(path) == 1 and path[0] in answers:
                tables[path[0]] = answers[path[0]]
                return path[0]
            known = self.table(path)
            if known is None or not known.public:
                raise StatementNotAllowed(f"{'.'.join(path)} is not a public or released table of this statement.")
            if known.key not in self._public:
                self._public[known.key] = self._read(known)
            name = f"{_PUBLIC}{list(self._public).index(known.key)}"
            tables[name] = self._public[known.key]
            return name

        return replaced_tables(query, named), tables

    def _read(self, table: KnownTable) -> Any:
        """Read a public table as an Arrow table."""
        if table.key[0] == "frame":
            try:
                return self._database.registered[table.key[1]].public_rows().to_arrow()
            except (Exception, pl.exceptions.PanicException):  # noqa: BLE001 - the message may quote values
                raise InvalidDataError(f"The rows of {table.path[0]} can't be read. Nothing was spent.") from None
        cursor = self._database.cursor()
        try:
            return arrow_table(cursor, f"SELECT * FROM {'.'.join(map(quoted, table.path))}")  # noqa: S608 - quoted
        except duckdb.Error:
            raise InvalidParameterError(f"The public table {'.'.join(table.path)} can't be read.") from None
        finally:
            cursor.close()

    def _run(self, *texts: str) -> list[list[Any]]:
        """Return the rows of several queries about system tables. No setting of a cursor changes their answers.

        They share a cursor because opening one costs as much as a query.
        """
        cursor = self._database.connection.cursor()
        try:
            return [cursor.execute(sql).fetchall() for sql in texts]
        finally:
            cursor.close()


def _without_unit(path: tuple[str, ...]) -> InvalidParameterError:
    return InvalidParameterError(
        f"{'.'.join(path)} is a view, and its unit is not known. Declare the unit with con.private(view, unit=...), or "
        "declare the view public with con.public(view).",
        code="view-unit-missing",
    )


def _check_names(path: tuple[str, ...], columns: Iterable[str], *, public: bool) -> None:
    """Refuse names with which reading the rows would fail, since rows are read after the charge."""
    if any("\0" in name for name in (*path, *columns)):
        raise InvalidParameterError(
            f"{'.'.join(path)} or one of its columns has a null character in its name, where other programs end a "
            "name. Rename it."
        )
    if not public:
        check_names(columns)


def _column(read: str, kind: Any) -> TableColumn | str:
    """Return how a column is read, or the name of its type if that type is unusable over private rows."""
    dtype, written = polars_type(kind), str(kind)
    if dtype is None:
        return written
    to = _CONVERTED.get(written)
    return TableColumn(read if to is None else f"TRY_CAST({read} AS {to})", dtype)
