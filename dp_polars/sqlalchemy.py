"""A dialect of SQLAlchemy for guarded connections, so that tools which speak SQLAlchemy can ask.

`create_engine("dp_polars:///policy.toml?analyst=team-a")` opens a policy, and
`create_engine("dp_polars://", creator=lambda: con)` takes a guarded connection that is open already. SQLAlchemy finds
this module by itself; `import dp_polars` does not load it.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

try:
    from sqlalchemy import types
    from sqlalchemy.engine.default import DefaultDialect
    from sqlalchemy.exc import NoSuchTableError
except ImportError:
    raise ImportError("SQLAlchemy is not installed: pip install sqlalchemy.") from None

from dp_polars._policy.policy import Policy
from dp_polars.errors import InvalidParameterError

__all__ = ["Dialect"]

_SCHEMA = "main"
_SPENDS = ("share", "epsilon", "rho")
_TYPES: dict[str, type[types.TypeEngine[Any]]] = {
    "BIGINT": types.BigInteger,
    "BLOB": types.LargeBinary,
    "BOOLEAN": types.Boolean,
    "DATE": types.Date,
    "DECIMAL": types.Numeric,
    "DOUBLE": types.Double,
    "ENUM": types.String,
    "FLOAT": types.Float,
    "HUGEINT": types.Numeric,
    "INTEGER": types.Integer,
    "INTERVAL": types.Interval,
    "SMALLINT": types.SmallInteger,
    "TIME": types.Time,
    "TIMESTAMP": types.DateTime,
    "TINYINT": types.SmallInteger,
    "UBIGINT": types.Numeric,
    "UINTEGER": types.BigInteger,
    "USMALLINT": types.Integer,
    "UTINYINT": types.SmallInteger,
    "VARCHAR": types.String,
}


class _Unused(Exception):  # noqa: N818 - SQLAlchemy asks for a name only
    """The errors that SQLAlchemy would wrap. Errors of this package reach the user as they are."""


class Dialect(DefaultDialect):
    """How SQLAlchemy talks to a guarded connection.

    An engine loads its policy once, so all connections of its pool charge the same session.
    """

    name = "dp_polars"
    driver = "dp_polars"
    default_paramstyle = "qmark"
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_multivalues_insert = False
    insert_returning = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._policy: Policy | None = None
        self._loading = threading.Lock()

    @classmethod
    def import_dbapi(cls) -> Any:
        """Return what SQLAlchemy needs to know of a module with Python's database API."""
        return SimpleNamespace(paramstyle="qmark", Error=_Unused)

    def create_connect_args(self, url: Any) -> Any:
        """Return the arguments of `connect` that an address holds: the policy's path, the analyst and the spend."""
        given = dict(url.query)
        unknown = sorted(set(given) - {"analyst", *_SPENDS})
        if unknown or url.host or url.username or url.password or url.port:
            raise InvalidParameterError(
                f"The address names {unknown[0] if unknown else 'a host or a user'}, which has no meaning here. It is "
                "dp_polars:///policy.toml?analyst=team-a, perhaps with a spend such as &share=0.05."
            )
        try:
            spend: dict[str, Any] = {name: float(given[name]) for name in _SPENDS if name in given}
        except (TypeError, ValueError):
            raise InvalidParameterError("A spend in the address must be a number: ?share=0.05.") from None
        return [], {"path": url.database, "analyst": given.get("analyst"), **spend}

    def connect(self, *_: Any, path: str | None = None, analyst: str | None = None, **spend: Any) -> Any:
        """Open a connection with the policy's tables."""
        if not path:
            raise InvalidParameterError(
                "The address names no policy: create_engine('dp_polars:///policy.toml'). A guarded connection that is "
                "open already goes in as create_engine('dp_polars://', creator=lambda: con)."
            )
        with self._loading:
            if self._policy is None:
                policy = Policy.load(path)
                if not policy.has_ledger:
                    raise InvalidParameterError(
                        "This policy has no ledger, so every engine would start with a new budget. Add ledger = "
                        '"budget.db" to its [budget].'
                    )
                self._policy = policy
        return self._policy.connect(analyst=analyst, **spend)

    def initialize(self, connection: Any) -> None:
        """Note what other dialects ask their servers for."""
        self.default_schema_name = _SCHEMA

    def do_ping(self, dbapi_connection: Any) -> bool:
        """Return whether the connection works. There is no server that could be away."""
        return True

    # ------------------------------------------------------------------ what tables there are

    def get_schema_names(self, connection: Any, **_: Any) -> list[str]:
        """Return the schemas in which there are tables."""
        return sorted({schema for schema, _ in _tables(connection)} | {_SCHEMA})

    def get_table_names(self, connection: Any, schema: str | None = None, **_: Any) -> list[str]:
        """Return the names of the tables of a schema."""
        return [name for own, name in _tables(connection) if own == (schema or _SCHEMA)]

    def get_view_names(self, connection: Any, schema: str | None = None, **_: Any) -> list[str]:
        """Return no name: views are listed as tables."""
        return []

    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> bool:
        """Return whether there is a table of this name."""
        return table_name in self.get_table_names(connection, schema)

    def get_columns(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> Any:
        """Return the columns of a table with their types."""
        if not self.has_table(connection, table_name, schema):
            raise NoSuchTableError(table_name)
        rows = connection.exec_driver_sql(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = ? AND table_name = ? "
            "ORDER BY ordinal_position",
            (schema or _SCHEMA, table_name),
        )
        return [{"name": name, "type": _type(text), "nullable": True, "default": None} for name, text in rows]

    def get_pk_constraint(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> Any:
        """Return no key: a guarded connection does not tell constraints."""
        return {"constrained_columns": [], "name": None}

    def get_foreign_keys(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> Any:
        """Return no key: a guarded connection does not tell constraints."""
        return []

    def get_indexes(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> Any:
        """Return no index: a guarded connection does not tell them."""
        return []

    def get_unique_constraints(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> Any:
        """Return no constraint: a guarded connection does not tell them."""
        return []

    def get_check_constraints(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> Any:
        """Return no constraint: a guarded connection does not tell them."""
        return []

    def get_table_comment(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> Any:
        """Return no comment: a guarded connection does not tell it."""
        return {"text": None}


def _tables(connection: Any) -> list[tuple[str, str]]:
    """Return the schema and the name of each table."""
    query = "SELECT table_schema, table_name FROM information_schema.tables ORDER BY table_schema, table_name"
    return [(schema, name) for schema, name in connection.exec_driver_sql(query)]


def _type(text: str) -> types.TypeEngine[Any]:
    """Return SQLAlchemy's type for one of DuckDB, or the type without operations if it has none."""
    return _TYPES.get(text.split("(")[0].split(" ")[0], types.NullType)()
