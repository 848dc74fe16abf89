"""What a statement may read at no cost: which tables there are (`information_schema`) and what is left of the budget.

These facts are schemas, what the owner declared, and what the session charged, all of which are public. No row is read,
and there are no numbers of rows, sizes, default values or statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from dp_polars._engines.duckdb.rows import TableColumn, quoted
from dp_polars._session.session import Session
from dp_polars._sql.catalog import Catalog, KnownTable
from dp_polars._sql.syntax_tree import Node, Parser, fold, sandbox, select_node, walk, without_places
from dp_polars._sql.types import enum_text
from dp_polars.errors import DPError, StatementNotAllowed

Columns = dict[str, tuple[pl.DataType | str, bool]]
"""The type of each column, and whether it is part of the unit."""

_SCHEMA = "information_schema"
_TABLES = ("table_schema", "table_name", "private", "unit")
_COLUMNS = ("table_schema", "table_name", "column_name", "ordinal_position", "data_type", "private", "is_unit")

BUDGET_TYPE = (
    "STRUCT(used DOUBLE, remaining DOUBLE, epsilon DOUBLE, delta DOUBLE, rho DOUBLE, releases BIGINT, questions BIGINT)"
)
"""The type of `dp_budget()`."""


# ---------------------------------------------------------------------- tables and columns


def tables_of(catalog: Catalog) -> list[tuple[tuple[str, ...], KnownTable | None, str | None]]:
    """Return the name of each table, what is known of it, and its unit.

    A view that has no declared unit can't be asked, and neither can a table that lacks its unit, so they have none.
    """
    found: list[tuple[tuple[str, ...], KnownTable | None, str | None]] = []
    for path in catalog.known_paths():
        try:
            known = catalog.table(path)
        except DPError:
            known = None
        unit = None
        if known is not None and not known.public:
            has_unit = known.through is not None or {*map(fold, known.unit.columns)} <= {*map(fold, known.columns)}
            unit = ", ".join(known.unit.columns) if has_unit else None
        found.append((path, known, unit or None))
    return found


def columns_of(known: KnownTable) -> Columns:
    """Return the columns of a table."""
    units = set() if known.public else {fold(name) for name in known.unit.columns}
    return {
        name: (column.dtype if isinstance(column, TableColumn) else column, fold(name) in units)
        for name, column in known.columns.items()
    }


def type_text(dtype: pl.DataType | str) -> str:
    """Return a type as DuckDB writes it."""
    if isinstance(dtype, str):
        return dtype
    if isinstance(dtype, pl.Enum):
        return enum_text(dtype.categories)
    with sandbox() as connection:
        return str(connection.from_arrow(pl.DataFrame(schema={"x": dtype}).to_arrow()).types[0])


def schema_query(path: Sequence[str], catalog: Catalog, parser: Parser) -> Node | None:
    """Return a query of constants for `information_schema.tables` or `.columns`, or None for another table."""
    if len(path) < 2 or fold(path[-2]) != _SCHEMA or fold(path[-1]) not in ("tables", "columns"):
        return None
    rows: list[tuple[Any, ...]] = []
    for name, known, unit in tables_of(catalog):
        place = (name[-2] if len(name) > 1 else "main", name[-1])
        private = known is None or not known.public
        if fold(path[-1]) == "tables":
            rows.append((*place, private, unit))
        elif known is not None:
            rows += [
                (*place, column, number, type_text(dtype), private, is_unit)
                for number, (column, (dtype, is_unit)) in enumerate(columns_of(known).items(), start=1)
            ]
    names = _TABLES if fold(path[-1]) == "tables" else _COLUMNS
    return parser.select(_constants(names, rows))


def _constants(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Write rows of constants as a query. Without rows, a row that no condition keeps gives the columns."""
    listed = ", ".join(f"({', '.join(map(_written, row))})" for row in rows or [[None] * len(names)])
    text = f"SELECT {', '.join(names)} FROM (VALUES {listed}) AS known({', '.join(names)})"  # noqa: S608 - constants, with quotes doubled
    return text if rows else f"{text} WHERE false"


def _written(value: Any) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


# ---------------------------------------------------------------------- answers without rows


def without_rows(node: Node) -> Node | None:
    """Return a `SELECT * FROM ...` without its LIMIT 0 or its `WHERE 1 = 0`, or None for any other statement.

    Tools ask such statements to learn the columns of a table.
    """
    if node.get("type") != "SELECT_NODE" or not _is_plain_star(node):
        return None
    where, modifiers = node.get("where_clause"), node["modifiers"]
    if where is None and len(modifiers) == 1 and _is_limit_0(modifiers[0]):
        return {**node, "modifiers": []}
    return {**node, "where_clause": None} if where and not modifiers and _is_never(where) else None


def _is_plain_star(node: Node) -> bool:
    (first, *others) = node["select_list"]
    options = (
        "relation_name",
        "exclude_list",
        "replace_list",
        "rename_list",
        "qualified_exclude_list",
        "expr",
        "columns",
    )
    clauses = ("group_expressions", "having", "qualify", "sample")
    plain = first["class"] == "STAR" and not any(first.get(name) for name in options)
    return plain and not others and not any(node.get(name) for name in clauses)


def _is_limit_0(modifier: Node) -> bool:
    limit = modifier.get("limit") if modifier["type"] == "LIMIT_MODIFIER" else None
    return modifier.get("limit_type") == "ROW_COUNT" and _number(limit) == "0"


def _is_never(condition: Node) -> bool:
    """Return whether a condition compares two different integers, as 1 = 0 does."""
    left, right = _number(condition.get("left")), _number(condition.get("right"))
    return condition.get("type") == "COMPARE_EQUAL" and None not in (left, right) and left != right


def _number(item: Node | None) -> str | None:
    literal = (item or {}).get("literal") or {}
    return str(int(literal["text"])) if literal.get("kind") == "INTEGER" else None


def columns_alone(columns: Mapping[str, Any], parser: Parser) -> Node:
    """Return a query of these columns without a row. Columns that can't be asked are left out."""
    shown = [(name, meaning.dtype) for name, meaning in columns.items() if not isinstance(meaning, str)]
    listed = ", ".join(f"CAST(NULL AS {type_text(dtype)}) AS {quoted(name)}" for name, dtype in shown)
    return parser.select(f"SELECT {listed} WHERE false")


# ---------------------------------------------------------------------- the budget


def budget_of(session: Session) -> dict[str, Any]:
    """Return what the session has spent, what remains, and how many questions at its default spend still fit."""
    remaining, queries = session.remaining, session.defaults.queries
    return {
        "used": session.spent.share,
        "remaining": remaining.share,
        "epsilon": remaining.epsilon,
        "delta": remaining.delta,
        "rho": remaining.rho,
        "releases": len(session.releases),
        "questions": None if queries is None else int(remaining.share * queries + 1e-6),
    }


def with_budget(tree: Any, session: Session, parser: Parser) -> Any:
    """Replace `dp_budget()` by what is left before the statement, wherever it stands. Columns keep their names."""
    if isinstance(tree, list):
        return [with_budget(part, session, parser) for part in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("type") == "TABLE_FUNCTION":
        if _is_budget(tree.get("function") or {}):
            raise StatementNotAllowed("The budget is a value, not a table. Write SELECT dp_budget().remaining.")
        return tree
    if _is_budget(tree):
        fields = ", ".join(
            f"'{name}': {'NULL' if number is None else number}" for name, number in budget_of(session).items()
        )
        return {**parser.expression(f"CAST({{{fields}}} AS {BUDGET_TYPE})"), "alias": tree.get("alias", "")}
    tree = {**tree}
    if isinstance(tree.get("select_list"), list):
        tree["select_list"] = [_named(item, parser) for item in tree["select_list"]]
    return {name: with_budget(part, session, parser) for name, part in tree.items()}


def _is_budget(node: Node) -> bool:
    named = node.get("class") == "FUNCTION" and fold(node["function_name"]) == "dp_budget"
    return named and not node.get("arguments") and not node.get("schema")


def _named(item: Node, parser: Parser) -> Node:
    if item.get("alias") or item["class"] == "STAR" or not any(map(_is_budget, walk(item))):
        return item
    empty: Node = {"type": "EMPTY", "alias": "", "sample": None}
    return {**item, "alias": parser.text(without_places(select_node([item], empty))).removeprefix("SELECT ")}
