"""`DESCRIBE t`, `DESCRIBE SELECT ...` and `SHOW TABLES` on a guarded connection: names, types, units and who may see.

A description costs nothing and reads no rows. What it tells is the schema and what the owner declared, which are
public. It has no number of rows, no default values and no statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dp_polars._engines.duckdb.rows import TableColumn
from dp_polars._expressions import Column
from dp_polars._session.releases import Release
from dp_polars._sql.analysis import private_relation
from dp_polars._sql.catalog import Catalog, KnownTable
from dp_polars._sql.relations import Context, PrivateRelation, table_relation
from dp_polars._sql.summaries import stands_alone
from dp_polars._sql.syntax_tree import Node, base_table, fold, path_of, sandbox
from dp_polars._sql.types import enum_text
from dp_polars.errors import DPError, StatementNotAllowed

_TABLES = frozenset({'"tables"', "__show_tables_expanded"})  # SHOW TABLES and SHOW ALL TABLES, as DuckDB parses them

Columns = dict[str, tuple[pl.DataType | str, bool]]
"""The type of each column, and whether it is part of the unit."""


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
    rows = [(name, _type_text(dtype), is_unit, private) for name, (dtype, is_unit) in columns.items()]
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
    return _columns(known), not known.public


def _columns(known: KnownTable) -> Columns:
    units = set() if known.public else {fold(name) for name in known.unit.columns}
    return {
        name: (one.dtype if isinstance(one, TableColumn) else one, fold(name) in units)
        for name, one in known.columns.items()
    }


def _tables(catalog: Catalog) -> pl.DataFrame:
    """Return all tables, each with its unit.

    A view that has no declared unit can't be asked, and neither can a table that lacks its unit, so they show none.
    """
    rows = []
    for path in catalog.known_paths():
        try:
            known = catalog.table(path)
        except DPError:
            known = None
        private = known is None or not known.public
        unit = None
        if known is not None and private:
            there = known.through is not None or {*map(fold, known.unit.columns)} <= {*map(fold, known.columns)}
            unit = ", ".join(known.unit.columns) if there else None
        rows.append((".".join(path), private, unit or None))
    return pl.DataFrame(rows, schema={"name": pl.String, "private": pl.Boolean, "unit": pl.String}, orient="row")


def _type_text(dtype: pl.DataType | str) -> str:
    """Return a type as DuckDB writes it."""
    if isinstance(dtype, str):
        return dtype
    if isinstance(dtype, pl.Enum):
        return enum_text(dtype.categories)
    with sandbox() as connection:
        return str(connection.from_arrow(pl.DataFrame(schema={"x": dtype}).to_arrow()).types[0])
