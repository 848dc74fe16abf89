"""The connection of an analyst: it can ask and preview, but it can't declare anything."""

from __future__ import annotations

from typing import Any

import polars as pl

from dp_polars._display.text import escaped
from dp_polars._session.cost import Budget
from dp_polars._sql.connection import GuardedConnection, Parameters


class AnalystConnection:
    """A guarded connection that can ask and preview. It has no `public`, `private`, `register` or `reopen`.

    Inside one process this serves analysts who cooperate: whoever runs code in the process can also open the files. A
    real boundary needs a process that owns the data and answers statements.

    Examples
    --------
    >>> import dp_polars as dp
    >>> hasattr(dp.AnalystConnection, "sql"), hasattr(dp.AnalystConnection, "public")
    (True, False)
    """

    def __init__(self, connection: GuardedConnection, analyst: str) -> None:
        self._connection, self._analyst = connection, analyst

    def sql(self, query: str, *, params: Parameters = None, **options: Any) -> Any:
        """Run a statement and return a DuckDB relation over the released rows: see `dp.GuardedConnection.sql`."""
        return self._connection.sql(query, params=params, **options)

    def execute(self, query: str, parameters: Parameters = None, **options: Any) -> AnalystConnection:
        """Run a statement. Fetch its rows from this connection, as in Python's database API."""
        self._connection.execute(query, parameters, **options)
        return self

    def preview(self, query: str, *, params: Parameters = None, **options: Any) -> Any:
        """Return the plans of a statement. Nothing is spent."""
        return self._connection.preview(query, params=params, **options)

    @property
    def notes(self) -> list[str]:
        """What a reader of the last answer should know besides its noise, in one line each."""
        return self._connection.notes

    @property
    def spent(self) -> Budget:
        """The budget that this analyst has spent; without a section [analysts], that everybody has spent."""
        return self._connection._session.spent

    @property
    def remaining(self) -> Budget:
        """The budget that is left for this analyst, in the share and in the whole budget."""
        return self._connection._session.remaining

    @property
    def description(self) -> Any:
        """The columns of the last result."""
        return self._connection.description

    @property
    def rowcount(self) -> int:
        """The number of rows of the last answer; -1 before the first statement."""
        return self._connection.rowcount

    def fetchone(self) -> Any:
        """Return the next row of the last result."""
        return self._connection.fetchone()

    def fetchmany(self, size: int = 1) -> Any:
        """Return the next rows of the last result."""
        return self._connection.fetchmany(size)

    def fetchall(self) -> Any:
        """Return the remaining rows of the last result."""
        return self._connection.fetchall()

    def pl(self) -> pl.DataFrame:
        """Return the last result as a Polars frame."""
        return self._connection.pl()

    def df(self) -> Any:
        """Return the last result as a pandas frame."""
        return self._connection.df()

    def arrow(self) -> Any:
        """Return the last result as an Arrow table."""
        return self._connection.arrow()

    def cursor(self) -> AnalystConnection:
        """Return another connection of the same analyst."""
        return AnalystConnection(self._connection.cursor(), self._analyst)

    def commit(self) -> None:
        """Do nothing, because nothing is written."""

    def rollback(self) -> None:
        """Do nothing, because nothing is written."""

    def close(self) -> None:
        """Close the connection. The policy's tables stay open for others."""
        self._connection.close()

    def __enter__(self) -> AnalystConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dp.AnalystConnection of {escaped(self._analyst)}>"
