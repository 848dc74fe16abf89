"""`DESCRIBE t`, `DESCRIBE SELECT ...` and `SHOW TABLES` on a guarded connection: names, types, units, what is private.

A description costs nothing and reads no rows. It shows the schema and what the owner declared, which are public. It
has no number of rows, no default values and no statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dp_polars._expressions import Column
from dp_polars._session.releases import Release
from dp_polars._sql.analysis import private_relation
from dp_polars._sql.catalog import Catalog
from dp_polars._sql.public_facts import Columns, columns_of, tables_of, type_text
from dp_polars._sql.relations import Context, PrivateRelation, table_relation
from dp_polars._sql.summaries import stands_alone
from dp_polars._sql.syntax_tree import Node, base_table, path_of
from dp_polars.errors import StatementNotAllowed

_TABLES = frozenset({'"tables"', "__show_tables_expanded"})  # SHOW TABLES and SHOW ALL TABLES, as DuckDB parses them


def is_description(node: Node) -> bool:
    """Return whether a statement is a DESCRIBE or a SHOW with nothing around it."""
    table = node.get("from_table") or {}
    return table.get("type") == "SHOW_REF" and table.get("show_type") in ("DESCRIBE", "SHOW", "SHOW_SPECIAL")


@dataclass(frozen=True)
class DescriptionStatement:
    """A description that is ready to be shown."""

    frame: pl.DataFrame
    plans: list[Any] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)

    def answer(self) -> Any:
        """Return the description as an Arrow table."""
        return self.frame.to_arrow()


def description_statement(node: Node, context: Context) -> DescriptionStatement:
    """Return the answer of a DESCRIBE or a SHOW, or refuse it. No row is read and nothing is spent."""
    if not stands_alone(node, context):
        raise StatementNotAllowed("DESCRIBE and SHOW must be the whole statement. Read their answers in Python.")
    shown = node["from_table"]
    if shown["show_type"] == "SHOW_SPECIAL":
        if shown["table_name"] not in _TABLES:
            raise StatementNotAllowed("SHOW takes TABLES or the name of a table. Databases and settings are not shown.")
        return DescriptionStatement(_tables(context.catalog))
    try:
        columns, private = _described(shown, context)
    finally:
        context.catalog.close()
    rows = [(name, type_text(dtype), is_unit, private) for name, (dtype, is_unit) in columns.items()]
    schema = {"column_name": pl.String, "column_type": pl.String, "unit": pl.Boolean, "private": pl.Boolean}
    return DescriptionStatement(pl.DataFrame(rows, schema=schema, orient="row"))


def _described(shown: Node, context: Context) -> tuple[Columns, bool]:
    """Return the columns of a table or of a query over private rows, and whether its rows are private."""
    query = shown.get("query")
    if query is None:
        return _table(base_table(shown["table_name"]), context)
    inner = query.get("from_table") or {}
    everything = [item["class"] for item in query.get("select_list", [])] == ["STAR"]
    if inner.get("type") == "BASE_TABLE" and everything and not query["cte_map"]["map"]:
        return _table(inner, context)
    relation = private_relation(query, context)
    if not isinstance(relation, PrivateRelation):
        raise StatementNotAllowed(
            "DESCRIBE is for tables and for a SELECT of private rows. Read public rows with SELECT, and look at a "
            "private aggregation with con.preview(...)."
        )
    found: Columns = {
        name: (meaning if isinstance(meaning, str) else meaning.dtype, relation.is_unit(meaning))
        for name, meaning in relation.tables[0].columns.items()
        if isinstance(meaning, str | Column)
    }
    return found, True


def _table(node: Node, context: Context) -> tuple[Columns, bool]:
    table_relation(node, context)  # refuses what can't be asked, such as a table without its unit column
    known = context.catalog.table(path_of(node))
    if known is None:
        raise ValueError("the table was there a moment ago")
    return columns_of(known), not known.public


def _tables(catalog: Catalog) -> pl.DataFrame:
    """Return all tables, each with its unit."""
    rows = [(".".join(path), known is None or not known.public, unit) for path, known, unit in tables_of(catalog)]
    return pl.DataFrame(rows, schema={"name": pl.String, "private": pl.Boolean, "unit": pl.String}, orient="row")
