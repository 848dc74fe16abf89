"""What a guarded connection knows about tables and functions, looked up once for each statement."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from dp_polars.accounting.terms import TableUnit
from dp_polars.engines.duckdb.rows import quoted
from dp_polars.errors import InvalidParameterError, StatementNotAllowed
from dp_polars.releasing.source import file_state
from dp_polars.sql.allowed import ORDINARY, TABLE_FUNCTIONS
from dp_polars.sql.questions import RELEASED
from dp_polars.sql.relations import KnownTable
from dp_polars.sql.tree import Node, fold, parameters_of, path_of, pinned, with_path, without_places
from dp_polars.sql.verify import verify

if TYPE_CHECKING:
    from dp_polars.sql.connection import GuardedConnection


_FRAMES = ("temp", "main")  # where DuckDB puts registered frames


class Catalog:
    """The tables and functions that one statement meets. Reads names and types, never rows."""

    def __init__(self, guard: GuardedConnection) -> None:
        self._guard = guard
        self._tables: dict[tuple[str, ...], KnownTable | None] = {}
        self._described: dict[str, dict[str, str]] = {}

    # ------------------------------------------------------------------ tables

    def table(self, path: tuple[str, ...]) -> KnownTable | None:
        """Return a table by its name, None if there is none."""
        lower = tuple(fold(part) for part in path)
        if lower not in self._tables:
            self._tables[lower] = self._known(path, lower)
        return self._tables[lower]

    def _known(self, path: tuple[str, ...], lower: tuple[str, ...]) -> KnownTable | None:
        guard = self._guard
        public = lower in guard._public
        unit = guard._table_unit(lower).columns or None
        if len(lower) == 1 and lower[0] in guard._frames:
            return KnownTable(self._columns_of(path), public, unit, f"frame:{lower[0]}", lower in guard._units)
        kind = self._kind(lower)
        if kind is None:
            return None
        if kind == "view" and not public and lower not in guard._units:
            raise InvalidParameterError(
                f"{'.'.join(path)} is a view, so whose its rows are is not known. Say it with con.private(view, "
                "unit=...), or declare it public with con.public(view)."
            )
        return KnownTable(
            self._columns_of(path), public, unit, "table:" + ".".join(lower), kind == "view" and not public
        )

    def known_names(self) -> list[str]:
        """Return how all tables and views may be called, the nearest first."""
        found = sorted(self._guard._frames)
        for path in sorted(set().union(*self._names.values()), key=lambda path: (path[:2] != self._here, path)):
            short = next(place for place in range(3) if self._full(path[2 - place :]) == path)
            found.append(".".join(path[2 - short :]))
        return found

    def _kind(self, path: tuple[str, ...]) -> str | None:
        """Return whether a name is a table or a view of the database."""
        return next((kind for kind, names in self._names.items() if self._full(path) in names), None)

    def is_view(self, path: tuple[str, ...]) -> bool:
        """Whether a name is that of a view of the database."""
        return not (len(path) == 1 and path[0] in self._guard._frames) and self._kind(path) == "view"

    @cached_property
    def _here(self) -> tuple[str, ...]:
        # System functions are called by their full names, because a user's macro may have the short one.
        row = self._run("SELECT system.main.current_database(), system.main.current_schema()")[0]
        return tuple(fold(part) for part in row)

    @cached_property
    def _names(self) -> dict[str, set[tuple[str, ...]]]:
        found = {}
        for kind in ("table", "view"):
            rows = self._run(
                f"SELECT database_name, schema_name, {kind}_name FROM system.main.duckdb_{kind}s() "  # noqa: S608
                "WHERE NOT internal AND NOT temporary"
            )
            found[kind] = {tuple(fold(part) for part in row) for row in rows}
        return found

    def _columns_of(self, path: tuple[str, ...]) -> dict[str, str]:
        full = self._full(tuple(fold(part) for part in path))
        rows = self._run(f"DESCRIBE SELECT * FROM {'.'.join(map(quoted, full))}")  # noqa: S608 - quoted
        return {row[0]: row[1] for row in rows}

    def columns_of_table(self, table: Node) -> dict[str, str]:
        """Return the columns of a table in FROM and their types."""
        known = self.table(path_of(table))
        return {} if known is None else known.columns

    def columns(self, query: Node) -> dict[str, str]:
        """Return the names and types of a query's columns; the query is bound, not run."""
        text = self.text(query, above=True, private=True)
        if text not in self._described:
            try:
                rows = self._run(f"DESCRIBE {text}", dict.fromkeys(parameters_of(query)) or None)
            except duckdb.Error as error:
                raise unbound(error) from None
            self._described[text] = {row[0]: row[1] for row in rows}
        return self._described[text]

    # ------------------------------------------------------------------ functions

    def macro(self, name: str) -> tuple[list[str], Node] | None:
        """Return a user's macro: its parameters and its body; refuse any other function of the user's."""
        own = [one for one in self._functions if fold(one[0]) == name]
        if not own:
            return None
        (_, kind, schema, parameters, body), *more = own
        if more or kind != "macro" or fold(schema) != "main":
            raise StatementNotAllowed(f"{name} is a function of this database that can't be read for what it does.")
        return list(parameters), self._guard._parser.expression(f"({body})")

    @cached_property
    def _functions(self) -> list[Any]:
        rows = self._run(
            "SELECT function_name, function_type, schema_name, parameters, macro_definition "
            "FROM system.main.duckdb_functions() WHERE NOT internal"
        )
        return [row for row in rows if not str(row[0]).startswith("dp_")]

    # ------------------------------------------------------------------ texts

    def text(self, node: Node, *, above: bool, private: bool) -> str:
        """Return the SQL text of a query, after a last look at it; private tables only where they may be read."""
        parser = self._guard._parser
        full = self._with_full_paths(pinned(without_places(node), ORDINARY | TABLE_FUNCTIONS))
        text = parser.text(full)
        paths = {self._full(path) for path, known in self._tables.items() if known and (private or known.public)}

        def readable(path: tuple[str, ...]) -> bool:
            released = above and path[:2] == _FRAMES and path[-1].startswith(RELEASED)
            return len(path) == 3 and (released or path in paths)

        verify(parser.select(text), readable, lambda name: self.macro(name) is not None, above=above)
        return text

    def _full(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the one full name of a table, so that no search path finds another."""
        if len(path) == 1 and (path[0] in self._guard._frames or path[0].startswith(RELEASED)):
            return (*_FRAMES, path[0])
        return (*self._here[: max(3 - len(path), 0)], *path)

    def _with_full_paths(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self._with_full_paths(item) for item in node]
        if not isinstance(node, dict):
            return node
        copy = {name: self._with_full_paths(item) for name, item in node.items()}
        if copy.get("type") == "BASE_TABLE" and "class" not in copy:
            return with_path(copy, self._full(tuple(fold(part) for part in path_of(copy))))
        return copy

    def _run(self, sql: str, parameters: Any = None) -> list[Any]:
        cursor = self._guard._cursor_for_rows()
        try:
            rows: list[Any] = cursor.execute(sql, parameters).fetchall()
            return rows
        finally:
            cursor.close()


class Rows:
    """Where the rows of a statement's questions are: texts, cursors and the names of sources."""

    def __init__(self, guard: GuardedConnection, catalog: Catalog) -> None:
        self._guard, self._catalog = guard, catalog

    def text(self, node: Node) -> str:
        """Return the SQL text of the rows of a question."""
        return self._catalog.text(node, above=False, private=True)

    def cursor_for_rows(self) -> Any:
        """Return a cursor of its own."""
        return self._guard._cursor_for_rows()

    def source(self, parts: frozenset[str]) -> bytes:
        """Return what names tables now: never their rows."""
        return b"\x00".join(self._source(part) for part in sorted(parts))

    def _source(self, name: str) -> bytes:
        kind, _, rest = name.partition(":")
        if kind == "frame":
            return self._guard._frames[rest][1].source_name()
        files = repr([file_state(file) for file, _ in self._files(name)])
        token = "" if all(self._paths) else self._guard._token  # in memory, the object that was opened
        return f"table:{files}:{token}:{rest}".encode()

    def unit(self, columns: tuple[str, ...]) -> TableUnit | None:
        """Return how unit columns were declared."""
        return self._guard._declared_unit(columns)

    def file_bytes(self, parts: frozenset[str]) -> int:
        """Return the size of the files that tables are in: public, as in the names of sources."""
        return sum(state.st_size for part in parts for _, state in self._files(part))

    def _files(self, name: str) -> list[tuple[str, os.stat_result]]:
        """Return the files that a table is in, as they are now."""
        kind, _, rest = name.partition(":")
        if kind == "frame":
            held, _ = self._guard._frames[rest]
            paths = [str(held)] if isinstance(held, Path) else []
        else:
            paths = [file for path in self._paths if path for file in (path, f"{path}.wal") if os.path.exists(file)]
        return [(path, os.stat(path)) for path in paths]

    @cached_property
    def _paths(self) -> list[str]:
        cursor = self._guard._cursor_for_rows()
        try:
            rows = cursor.execute(
                "SELECT path FROM system.main.duckdb_databases() "
                "WHERE NOT internal AND NOT (database_name = 'dp' AND path IS NULL) ORDER BY path"
            )
            return ["" if row[0] is None else str(row[0]) for row in rows.fetchall()]
        finally:
            cursor.close()


def unbound(error: Exception) -> StatementNotAllowed:
    """Return the refusal of a statement that DuckDB can't bind: its message is about names and types."""
    return StatementNotAllowed(f"DuckDB can't make sense of this statement: {str(error).splitlines()[0]}")
