"""Check and run ordinary SQL over public and released rows, in the library's own database.

Everything above a private aggregation and every public part of a statement runs here, never on the user's connection.
The sandbox sees none of the user's macros, functions, settings, variables, files or private tables.

Expressions are checked twice. `check_expression` runs during the analysis of a statement and reports the location of
what it refuses. `_verify` runs on the final text, parsed again from end to end, and allows only known kinds of nodes,
known functions and the tables that were handed over. It would catch whatever the analysis forgot to check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import duckdb
import polars as pl

from dp_polars._sql.allowed_functions import EXPRESSIONS, ORDINARY, TABLE_FUNCTIONS
from dp_polars._sql.scope import Scope
from dp_polars._sql.syntax_tree import (
    Node,
    Parser,
    arrow_table,
    fold,
    given_values,
    path_of,
    shared_sandbox,
    walk,
    without_places,
)
from dp_polars.errors import StatementNotAllowed

_CLASSES = EXPRESSIONS | {"WINDOW", "SUBQUERY", "STAR", "POSITIONAL_REFERENCE", "COLLATE"}
_NODES = frozenset(
    {
        *("SELECT_NODE", "SET_OPERATION_NODE"),
        *("BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST", "TABLE_FUNCTION"),
        *("ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"),
        *("ASCENDING", "DESCENDING", "ORDER_DEFAULT", "ASC", "DESC"),
    }
)
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+")


class Sandbox:
    """Runs queries over tables that are handed over for the duration of one query."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser

    def columns(self, query: Node, tables: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[str]:
        """Return the names of a query's columns. DuckDB binds the query but doesn't run it."""
        found: list[str] = self._run(query, tables, parameters, _described)
        return found

    def arrow(self, query: Node, tables: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
        """Run a query and return its rows as an Arrow table."""
        return self._run(query, tables, parameters, arrow_table)

    def frame(self, query: Node, tables: Mapping[str, Any], parameters: Mapping[str, Any]) -> pl.DataFrame:
        """Run a query and return its rows as a frame, with categories converted to text."""
        found = pl.from_arrow(self.arrow(query, tables, parameters))
        frame = found if isinstance(found, pl.DataFrame) else found.to_frame()
        return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))

    def checked_text(self, query: Node, tables: frozenset[str]) -> str:
        """Return the text of a query. Refuse one with an unknown node, function or table."""
        text = self._parser.text(without_places(query))
        _verify(self._parser.select(text), tables)
        return text

    def _run(
        self,
        query: Node,
        tables: Mapping[str, Any],
        parameters: Mapping[str, Any],
        read: Callable[[Any, str, dict[str, Any]], Any],
    ) -> Any:
        text = self.checked_text(query, frozenset(tables))
        cursor = shared_sandbox()
        try:
            for name, table in tables.items():
                cursor.register(name, table)
            return read(cursor, text, given_values(query, dict(parameters)))
        finally:
            cursor.close()


def _described(cursor: Any, text: str, parameters: dict[str, Any]) -> list[str]:
    return [row[0] for row in cursor.execute(f"DESCRIBE {text}", parameters or None).fetchall()]


_INTERNAL = re.compile(r'"?dp_(released|public)_[0-9]+"?\.?')
"""The names that the tables of a statement have in the sandbox."""


def unbound(error: duckdb.Error) -> StatementNotAllowed:
    """Return the error for a statement that DuckDB can't bind. DuckDB's message is about public names and types."""
    message = re.sub(r"^\w+ Error: ", "", str(error).splitlines()[0])
    message = re.sub(r' from expression ".*?" because', " because", message)  # the expression as it was rewritten
    return StatementNotAllowed(f"DuckDB can't make sense of this statement: {_INTERNAL.sub('', message)}")


# ---------------------------------------------------------------------- checks


def check_expression(node: Node, scope: Scope) -> None:
    """Refuse an expression that could read anything but the columns in scope. Subqueries are analysed separately."""
    for item in walk(node):
        kind = item["class"]
        if kind in ("FUNCTION", "WINDOW"):
            name = fold(item["function_name"])
            if item.get("schema") not in ("", "main", None) or item.get("catalog"):
                raise scope.refuse(item, f"{name} is called by a qualified name; call it by its plain name.")
            if name not in ORDINARY:
                raise scope.refuse(
                    item, f"{name} is not among the built-in functions that are known to read only their arguments."
                )
        elif kind == "COLUMN_REF":
            if scope.resolve(item) is None:
                raise scope.refuse(item, f"There is no column {'.'.join(item['column_names'])} here.")
        elif kind not in _CLASSES:
            raise scope.refuse(item, f"{fold(kind)} expressions are not supported.")


def check_parameter(name: str) -> None:
    """Refuse a parameter name with special characters, because DuckDB writes the name into texts without quotes."""
    if not _PARAMETER.fullmatch(name):
        raise StatementNotAllowed("The name of a parameter may contain only letters, digits and underscores.")


def _verify(tree: Any, tables: frozenset[str]) -> None:
    """Refuse a tree that contains an unknown node, an unknown function or a table that is not in `tables`."""
    if isinstance(tree, list):
        for part in tree:
            _verify(part, tables)
    elif isinstance(tree, dict):
        if "class" in tree:
            _verify_expression(tree)
        elif isinstance(tree.get("type"), str):
            _verify_node(tree, tables)
        for part in tree.values():
            _verify(part, tables)


def _verify_expression(item: Node) -> None:
    kind = item["class"]
    if kind not in _CLASSES and kind != "TYPE":
        raise _unsupported(f"{fold(kind)} expressions")
    if kind in ("FUNCTION", "WINDOW"):
        name = fold(item["function_name"])
        if name not in ORDINARY | TABLE_FUNCTIONS:
            raise _unsupported(f"the function {name}")
    elif kind == "PARAMETER":
        check_parameter(str(item["identifier"]))


def _verify_node(item: Node, tables: frozenset[str]) -> None:
    kind = item["type"]
    if kind == "BASE_TABLE":
        path = path_of(item)
        if len(path) != 1 or path[0] not in tables:
            raise StatementNotAllowed(f"{'.'.join(path)} is not a public or released table of this statement.")
    elif kind not in _NODES and not str(kind).endswith("_TYPE_INFO"):
        raise _unsupported(kind)


def _unsupported(what: str) -> StatementNotAllowed:
    return StatementNotAllowed(f"This statement uses {what}, which guarded connections don't support.")
