"""An ibis backend over a guarded connection, so that expressions and SQL of ibis ask privately.

`ibis.duckdb.from_connection(con)` changes settings of its connection, which a guarded connection refuses. The backend
of this module leaves settings alone and reads names and types from `information_schema`. `import dp_polars` does not
load it, and ibis is imported when a backend is made.
"""

from __future__ import annotations

import importlib
from typing import Any

from dp_polars._policy.analyst import AnalystConnection
from dp_polars._sql.connection import GuardedConnection
from dp_polars.errors import InvalidParameterError

__all__ = ["backend"]

_SCHEMA = "main"
_READ_ONLY = (
    "create_table", "create_view", "create_database", "create_catalog", "drop_table", "drop_view", "drop_database",
    "drop_catalog", "insert", "upsert", "truncate_table", "rename_table", "attach", "detach", "load_extension",
    "read_csv", "read_parquet", "read_json", "read_delta", "read_geo", "read_xlsx", "read_in_memory", "read_postgres",
    "read_mysql", "read_sqlite", "attach_sqlite", "register_filesystem",
)  # fmt: skip


def backend(connection: GuardedConnection | AnalystConnection) -> Any:
    """Return an ibis backend that asks through a guarded connection.

    `backend.raw_sql(query)` and `backend.sql(query)` take private SQL, and an aggregation of `backend.table("orders")`
    is translated by ibis to plain SQL, which is private SQL with a policy. What would show private rows is refused as
    on the connection itself. Nothing can be created or written.

    Parameters
    ----------
    connection
        What `policy.connect(analyst="team-a")`, `dp.connect(policy)` or `dp.connect(database, session)` returned.

    Examples
    --------
    >>> import dp_polars as dp
    >>> from dp_polars.ibis import backend
    >>> con = dp.connect(None, dp.Session(epsilon=1.0, unit="user_id"))
    >>> backend(con).list_tables()  # doctest: +SKIP
    []
    """
    if not isinstance(connection, GuardedConnection | AnalystConnection):
        raise InvalidParameterError(
            'backend() takes a guarded connection: dp.connect(policy), or policy.connect(analyst="team-a").'
        )
    try:
        of_duckdb: Any = importlib.import_module("ibis.backends.duckdb")
        schemas: Any = importlib.import_module("ibis.expr.schema")
        problems: Any = importlib.import_module("ibis.common.exceptions")
    except ImportError:
        raise ImportError("ibis is not installed: pip install 'ibis-framework[duckdb]'.") from None

    class Backend(of_duckdb.Backend):  # type: ignore[misc]
        """DuckDB's backend without the statements that it runs by itself."""

        def _post_connect(self, extensions: Any = None) -> None:
            self._record_batch_readers_consumed: dict[str, Any] = {}

        @property
        def current_catalog(self) -> str:
            """The name of the only catalog."""
            return "memory"

        @property
        def current_database(self) -> str:
            """The schema of names that are written without a schema."""
            return _SCHEMA

        def list_tables(self, *, like: str | None = None, database: Any = None) -> list[str]:
            """Return the names of the tables, at no cost."""
            return list(self._filter_with_like([name for schema, name in _tables(self.con) if schema == _SCHEMA], like))

        def get_schema(self, table_name: str, *, catalog: str | None = None, database: str | None = None) -> Any:
            """Return names and types of a table's columns, at no cost."""
            found = _columns(self.con, database or _SCHEMA, table_name)
            if not found:
                raise problems.TableNotFound(table_name)
            mapper = self.compiler.type_mapper
            return schemas.Schema({name: mapper.from_string(text, nullable=True) for name, text in found})

        def _get_schema_using_query(self, query: str) -> Any:
            """Return names and types of an answer. The answer is stored, so its rows are free afterwards."""
            relation, mapper = self.con.sql(query), self.compiler.type_mapper
            pairs = zip(relation.columns, relation.types, strict=True)
            return schemas.Schema({name: mapper.from_string(str(text), nullable=True) for name, text in pairs})

        def _register_in_memory_table(self, op: Any) -> None:
            raise InvalidParameterError(
                "A guarded connection takes no tables of ibis. Combine them with an answer that was fetched: "
                "ibis.memtable(answer.execute())."
            )

        def disconnect(self) -> None:
            """Close the connection."""
            self.con.close()

    for name in _READ_ONLY:
        if hasattr(of_duckdb.Backend, name):
            setattr(Backend, name, _refusal(name))
    return Backend.from_connection(connection)


def _refusal(name: str) -> Any:
    def refuse(self: Any, *_: Any, **__: Any) -> None:
        raise InvalidParameterError(f"A guarded connection writes nothing, so {name} has no meaning here.")

    return refuse


def _tables(connection: Any) -> list[tuple[str, str]]:
    query = "SELECT table_schema, table_name FROM information_schema.tables ORDER BY table_schema, table_name"
    return [(schema, name) for schema, name in connection.execute(query).fetchall()]


def _columns(connection: Any, schema: str, table: str) -> list[tuple[str, str]]:
    query = (
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = ? AND table_name = ? "
        "ORDER BY ordinal_position"
    )
    return [(name, text) for name, text in connection.execute(query, [schema, table]).fetchall()]
