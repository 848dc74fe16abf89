"""`dp.connect`: a DuckDB connection that answers private questions and refuses everything else."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from dp_polars.accounting.session import Session
from dp_polars.accounting.terms import _Row
from dp_polars.engines.duckdb.rows import quoted
from dp_polars.errors import InvalidParameterError
from dp_polars.planning.plan import Plan
from dp_polars.releasing.source import source_identity
from dp_polars.sql.asking import Asked, ask
from dp_polars.sql.relations import KnownTable, select_all
from dp_polars.sql.statement import cut
from dp_polars.sql.tree import Node, Parser, parameters_of, without_places

Parameters = Sequence[Any] | Mapping[str, Any] | None


class GuardedConnection:
    """A DuckDB connection on which every table is private unless it was declared public.

    `sql` and `execute` take one SELECT. Below its private aggregates (`dp_count`, `dp_count_units`, `dp_sum`, `dp_avg`)
    every step must look at one row at a time; above them it is ordinary SQL on the released rows.
    """

    def __init__(self, database: Any, session: Session) -> None:
        if not isinstance(session, Session):
            raise InvalidParameterError(
                "A guarded connection needs a session that pays: dp.connect(database, session)."
            )
        self._session = session
        self._own = not hasattr(database, "cursor")
        self._raw: Any = (
            duckdb.connect(os.fspath(database) if database is not None else ":memory:") if self._own else database
        )
        self.parser = Parser()
        self._catalog = _Catalog(self)
        self._frames: dict[str, tuple[Any, Any]] = {}
        self._public: set[tuple[str, ...]] = set()
        self._units: dict[tuple[str, ...], tuple[str, ...] | None] = {}
        self._token = secrets.token_hex(16)
        self._results: Any = duckdb.connect(":memory:")
        self._result: Any = None
        self._table: Any = None

    # ------------------------------------------------------------------ tables

    def register(self, name: str, source: Any) -> GuardedConnection:
        """Give a frame (Polars, Arrow, pandas) or a Parquet, CSV or JSON file a name in SQL; its rows are private."""
        if isinstance(source, str | Path):
            path = os.path.abspath(source)
            if not os.path.isfile(path):
                raise InvalidParameterError(f"There is no file for {name}; register takes a frame or a path.")
            self._frames[name.lower()] = (Path(path), path)
        else:
            held = source.collect() if isinstance(source, pl.LazyFrame) else source
            self._frames[name.lower()] = (held.to_arrow() if isinstance(held, pl.DataFrame) else held, source)
        return self

    def public(self, *names: str) -> GuardedConnection:
        """Declare tables public: their rows belong to nobody, and may be shown and joined."""
        for name in names:
            self._public.add(_path(name))
        return self

    def private(self, name: str, unit: str | Sequence[str]) -> GuardedConnection:
        """Declare whose a row of a table or view is, where that isn't the session's unit column.

        For a view this is the owner's word: that each of its rows is made of one unit's rows.
        """
        names = (unit,) if isinstance(unit, str) else tuple(unit)
        if not names or not all(isinstance(one, str) for one in names):
            raise InvalidParameterError("unit= names the column, or the columns, that say whose a row is.")
        self._public.discard(_path(name))
        self._units[_path(name)] = names
        return self

    # ------------------------------------------------------------------ statements

    def sql(self, query: str, *, params: Parameters = None, **options: Any) -> Any:
        """Answer a statement and return a DuckDB relation over the released rows.

        Parameters
        ----------
        query
            One SELECT.
        params
            Values for `?` or `$name`.
        **options
            Options for all private aggregates of the statement; a spend is shared evenly by those without their own.

        Examples
        --------
        >>> import dp_polars as dp, polars as pl
        >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id"))
        >>> con.register("visits", pl.DataFrame({"user_id": [1, 2, 3], "region": ["a", "b", "a"]}))
        <dp.GuardedConnection ...>
        >>> con.sql("SELECT dp_count_units(epsilon := 0.5) AS people FROM visits").columns
        ['people']
        """
        return self._results.from_arrow(self._answer(query, _parameters(params), options))

    def execute(self, query: str, parameters: Parameters = None) -> GuardedConnection:
        """Answer a statement; its rows are fetched from this connection, as in Python's database API."""
        self._table = self._answer(query, _parameters(parameters), {})
        self._result = self._results.cursor()
        self._result.register("dp_result", self._table)
        self._result.execute("FROM dp_result")
        return self

    def preview(self, query: str, *, params: Parameters = None, **options: Any) -> Plan | list[Plan]:
        """Return the plan of a statement's private aggregate, or the plans of several. Spends nothing."""
        plans = self._asked(query, _parameters(params), options).plans
        return plans[0] if len(plans) == 1 else plans

    def _answer(self, query: str, parameters: dict[str, Any], options: dict[str, Any]) -> Any:
        """Return the rows of a statement as an Arrow table."""
        asked = self._asked(query, parameters, options)
        return self._above(asked, asked.release(), parameters)

    def _asked(self, query: str, parameters: dict[str, Any], options: dict[str, Any]) -> Asked:
        parts = cut(self.parser.select(query), query, self.parser, self._catalog, parameters)
        return ask(parts, self._session, self, parameters, options)

    def columns_of(self, table: Node) -> dict[str, str]:
        """Return the columns of a table and their types."""
        return self._catalog.columns(select_all(table))

    def answer_node(self, node: Node, options: dict[str, Any]) -> pl.DataFrame:
        """Return the answer to a statement that was put together from checked parts."""
        asked = ask(cut(node, "", self.parser, self._catalog, {}), self._session, self, {}, options)
        frame = pl.from_arrow(self._above(asked, asked.release(), {}))
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()

    def _above(self, asked: Asked, released: dict[str, pl.DataFrame], parameters: dict[str, Any]) -> Any:
        """Run what stands above the private aggregations."""
        cursor = self.cursor_for_rows()
        try:
            for name, frame in released.items():
                cursor.register(name, frame.to_arrow())
            node = asked.parts.above
            used = {name: parameters[name] for name in parameters_of(node)}
            relation = cursor.sql(self.parser.text(node), params=used or None)
            make = getattr(relation, "to_arrow_table", None) or relation.fetch_arrow_table
            return make()
        finally:
            cursor.close()

    # ------------------------------------------------------------------ what asking needs

    def text(self, node: Node) -> str:
        """Return the SQL text of a query."""
        return self.parser.text(node)

    def cursor_for_rows(self) -> Any:
        """Return a cursor on the database that sees the registered frames and no Python variables."""
        cursor = self._raw.cursor()
        cursor.execute("SET python_enable_replacements = false")
        for name, (held, _) in self._frames.items():
            cursor.register(name, cursor.from_query(f"FROM {_literal(held)}") if isinstance(held, Path) else held)
        return cursor

    def source(self, parts: frozenset[str]) -> bytes:
        """Return what names the tables of a question now: never their rows."""
        named = [self._source(part) for part in sorted(parts)]
        return b"\x00".join(named)

    def _source(self, name: str) -> bytes:
        kind, _, rest = name.partition(":")
        if kind == "frame":
            held, source = self._frames[rest]
            if isinstance(held, Path):
                state = os.stat(held)
                return f"file:{held}:{state.st_size}:{state.st_mtime_ns}".encode()
            return source_identity(source, None, None)
        return f"table:{self._token}:{rest}".encode()

    # ------------------------------------------------------------------ Python's database API

    @property
    def description(self) -> Any:
        """The columns of the last result."""
        return self._fetching().description

    def fetchone(self) -> Any:
        """Return the next row of the last result."""
        return self._fetching().fetchone()

    def fetchmany(self, size: int = 1) -> Any:
        """Return the next rows of the last result."""
        return self._fetching().fetchmany(size)

    def fetchall(self) -> Any:
        """Return the rows left in the last result."""
        return self._fetching().fetchall()

    def pl(self) -> pl.DataFrame:
        """Return the last result as a Polars frame."""
        self._fetching()
        frame = pl.from_arrow(self._table)
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()

    def df(self) -> Any:
        """Return the last result as a pandas frame."""
        self._fetching()
        return self._table.to_pandas()

    def arrow(self) -> Any:
        """Return the last result as an Arrow table."""
        self._fetching()
        return self._table

    def _fetching(self) -> Any:
        if self._result is None:
            raise InvalidParameterError("Nothing was asked yet: con.execute('SELECT ...').")
        return self._result

    def cursor(self) -> GuardedConnection:
        """Return another guarded connection to the same tables, session and declarations."""
        other = GuardedConnection.__new__(GuardedConnection)
        other.__dict__.update(self.__dict__)
        other._result, other._own = None, False
        return other

    def commit(self) -> None:
        """Do nothing: a guarded connection writes nothing."""

    def rollback(self) -> None:
        """Do nothing: a guarded connection writes nothing."""

    def close(self) -> None:
        """Close the connection, and the database if it was opened here."""
        self._result = None
        if self._own:
            self._raw.close()

    def __enter__(self) -> GuardedConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dp.GuardedConnection paid by {self._session!r}>"


class _Catalog:
    """What a guarded connection knows about tables."""

    def __init__(self, guard: GuardedConnection) -> None:
        self._guard = guard

    def table(self, path: tuple[str, ...]) -> KnownTable | None:
        guard, lower = self._guard, tuple(part.lower() for part in path)
        public = lower in guard._public
        terms = guard._session.terms.unit
        unit = guard._units.get(lower, None if isinstance(terms, _Row) else terms)
        cursor = guard.cursor_for_rows()
        try:
            if len(lower) == 1 and lower[0] in guard._frames:
                return KnownTable(_described(cursor, path), public, unit, f"frame:{lower[0]}", lower in guard._units)
            kind = _kind(cursor, lower)
            if kind is None or (kind == "view" and not public and lower not in guard._units):
                if kind == "view":
                    raise InvalidParameterError(
                        f"{'.'.join(path)} is a view, so whose its rows are is not known. Say it with "
                        "con.private(view, unit=...), or declare it public with con.public(view)."
                    )
                return None
            source = "table:" + ".".join(lower)
            return KnownTable(_described(cursor, path), public, unit, source, kind == "view" and not public)
        finally:
            cursor.close()

    def columns(self, query: Node) -> dict[str, str]:
        cursor = self._guard.cursor_for_rows()
        try:
            used = dict.fromkeys(parameters_of(query))
            rows = cursor.execute(f"DESCRIBE {self._guard.text(without_places(query))}", used or None).fetchall()
        finally:
            cursor.close()
        return {row[0]: row[1] for row in rows}

    def macro(self, name: str) -> tuple[list[str], Node] | None:
        cursor = self._guard.cursor_for_rows()
        try:
            rows = cursor.execute(
                "SELECT function_name, parameters, macro_definition FROM system.main.duckdb_functions() "
                "WHERE NOT internal AND function_type IN ('macro', 'table_macro')"
            ).fetchall()
        finally:
            cursor.close()
        for known, parameters, body in rows:
            if known.lower() == name:
                return list(parameters), self._guard.parser.expression(f"({body})")
        return None


def _kind(cursor: Any, path: tuple[str, ...]) -> str | None:
    """Return whether a name is a table or a view of the database; None for anything else.

    System functions are called by their full names, because a user's macro may have the short one.
    """
    here = cursor.execute("SELECT system.main.current_database(), system.main.current_schema()").fetchone()
    full = (*here[: 3 - len(path)], *path)
    for kind in ("table", "view"):
        known = cursor.execute(
            f"SELECT database_name, schema_name, {kind}_name FROM system.main.duckdb_{kind}s() "  # noqa: S608
            "WHERE NOT internal AND NOT temporary"
        ).fetchall()
        if any(tuple(part.lower() for part in one) == tuple(part.lower() for part in full) for one in known):
            return kind
    return None


def _described(cursor: Any, path: tuple[str, ...]) -> dict[str, str]:
    rows = cursor.execute(f"DESCRIBE SELECT * FROM {'.'.join(map(quoted, path))}").fetchall()  # noqa: S608 - quoted
    return {row[0]: row[1] for row in rows}


def _path(name: str) -> tuple[str, ...]:
    return tuple(part.strip('"').lower() for part in name.split("."))


def _literal(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _parameters(given: Parameters) -> dict[str, Any]:
    """Return parameters by name; those given by position are named by it."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    return {str(place + 1): value for place, value in enumerate(given)}


def connect(database: Any = None, session: Session | None = None) -> GuardedConnection:
    """Return a guarded connection: DuckDB SQL with private aggregates, paid by a session.

    Parameters
    ----------
    database
        A path, an open DuckDB connection, or None for an empty database in memory.
    session
        The session that pays and says whose rows are.

    Examples
    --------
    >>> import dp_polars as dp
    >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id"))
    """
    if session is None:
        raise InvalidParameterError("A guarded connection needs a session that pays: dp.connect(database, session).")
    return GuardedConnection(database, session)
