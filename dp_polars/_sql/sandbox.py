"""Ordinary SQL over public and released rows, in a database of the library's own.

What stands above a private aggregation, and every public part of a statement, runs here and never on the user's
connection: no macro, function, setting, variable or file of the user's can be seen, and private tables aren't there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import duckdb
import polars as pl

from dp_polars._sql.syntax_tree import Node, Parser, arrow_table, given_values, shared_sandbox, without_places
from dp_polars._sql.verify import verify
from dp_polars.errors import StatementNotAllowed


class Sandbox:
    """Runs queries on tables that are handed over for the time of one query."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser

    def columns(self, query: Node, tables: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[str]:
        """Return the names of a query's columns; the query is bound, not run."""
        found: list[str] = self._run(query, tables, parameters, _described)
        return found

    def arrow(self, query: Node, tables: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
        """Return the rows of a query as an Arrow table."""
        return self._run(query, tables, parameters, arrow_table)

    def frame(self, query: Node, tables: Mapping[str, Any], parameters: Mapping[str, Any]) -> pl.DataFrame:
        """Return the rows of a query as a frame, its categories as texts."""
        found = pl.from_arrow(self.arrow(query, tables, parameters))
        frame = found if isinstance(found, pl.DataFrame) else found.to_frame()
        return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))

    def _run(
        self,
        query: Node,
        tables: Mapping[str, Any],
        parameters: Mapping[str, Any],
        read: Callable[[Any, str, dict[str, Any]], Any],
    ) -> Any:
        text = self._parser.text(without_places(query))
        verify(self._parser.select(text), frozenset(tables))
        cursor = shared_sandbox()
        try:
            for name, table in tables.items():
                cursor.register(name, table)
            return read(cursor, text, given_values(query, dict(parameters)))
        finally:
            cursor.close()


def _described(cursor: Any, text: str, parameters: dict[str, Any]) -> list[str]:
    return [row[0] for row in cursor.execute(f"DESCRIBE {text}", parameters or None).fetchall()]


def unbound(error: duckdb.Error) -> StatementNotAllowed:
    """Return the refusal of a statement that DuckDB can't bind: its message is about public names and types."""
    return StatementNotAllowed(f"DuckDB can't make sense of this statement: {str(error).splitlines()[0]}")
