"""What a FROM gives: rows of units, or public rows; and that every step keeps a unit's rows with the unit.

What one unit can change: a row of a private relation belongs to one unit and is computed from one row of that unit and
public tables. WHERE and SELECT see one row; a join with public rows may multiply a row, but all its copies stay the
unit's, and caps are enforced afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dp_polars.sql.allowed import TABLE_FUNCTIONS
from dp_polars.sql.rowwise import Scope, Table, check_rowwise, nearest
from dp_polars.sql.tree import Node, arguments, column, fold, path_of, tried

_JOIN_PARTS = frozenset(
    {
        "type", "alias", "query_location", "query_location_length", "left", "right", "condition", "join_type",
        "ref_type", "using_columns", "is_implicit", "nearest_count", "nearest_order_type",
    }
)  # fmt: skip


class Catalog(Protocol):
    """What is known about tables, without reading rows."""

    def table(self, path: tuple[str, ...]) -> KnownTable | None:
        """Return a table by its name, None if there is none."""
        ...

    def known_names(self) -> list[str]:
        """Return how all tables and views may be called."""
        ...

    def columns(self, query: Node) -> dict[str, str]:
        """Return the names and types of a query's columns; the query is bound, not run."""
        ...

    def macro(self, name: str) -> Any:
        """Return a user's macro: its parameters and its body."""
        ...


@dataclass(frozen=True)
class KnownTable:
    """A table: its columns, whether it is public, else its unit, and what names it as a source."""

    columns: dict[str, str]
    public: bool
    unit: tuple[str, ...] | None
    """None: every row is a unit of its own."""
    source: str
    declared: bool = False
    """Whether the unit is the owner's word (a view)."""


@dataclass(frozen=True)
class Relation:
    """Rows of a FROM or of a query. Private rows carry their unit in the columns `unit`."""

    node: Node
    tables: tuple[Table, ...]
    private: bool
    unit: tuple[Node, ...] = ()
    unit_names: tuple[str, ...] = ()
    rows_are_units: bool = False
    sources: frozenset[str] = frozenset()
    declared: bool = False
    released: bool = False
    """Whether the rows are answers, which exist only after the questions below were asked."""


@dataclass
class Relations:
    """Analyses FROM clauses; `query` analyses a subquery."""

    catalog: Catalog
    sql: str
    query: Callable[[Node, dict[str, Relation]], Relation]
    _numbers: list[int] = field(default_factory=lambda: [0])

    def scope(self, relation: Relation) -> Scope:
        """Return what names mean in expressions over a relation."""
        return Scope(relation.tables, self.sql, self.catalog.macro)

    def of(self, node: Node, ctes: dict[str, Relation]) -> Relation:
        """Return what a FROM clause gives."""
        kind = node["type"]
        if node.get("sample"):
            raise self._refuse(
                node, "A sample depends on which other rows there are; it can't be below a private aggregation."
            )
        if kind == "EMPTY":
            return Relation(node, (), private=False)
        if kind == "BASE_TABLE":
            return self._table(node, ctes)
        if kind == "SUBQUERY":
            return self._aliased(self.query(node["subquery"]["node"], ctes), node)
        if kind == "JOIN":
            return self._join(node, ctes)
        if kind == "EXPRESSION_LIST":
            for row in node["values"]:
                for item in row:
                    check_rowwise(item, Scope((), self.sql, self.catalog.macro))
            return Relation(node, (self._described(node),), private=False)
        if kind == "TABLE_FUNCTION":
            name = fold(node["function"]["function_name"])
            if name not in TABLE_FUNCTIONS:
                raise self._refuse(
                    node["function"],
                    f"{name} may read files or other tables. Open a file with con.register(name, path); use its name.",
                )
            for _, child in arguments(node["function"]):
                check_rowwise(child, Scope((), self.sql, self.catalog.macro))
            return Relation(node, (self._described(node),), private=False)
        what = "DESCRIBE, SHOW and SUMMARIZE are" if kind == "SHOW_REF" else f"{kind.replace('_', ' ').lower()} is"
        raise self._refuse(node, f"{what} not understood in FROM.")

    # ------------------------------------------------------------------ tables

    def _table(self, node: Node, ctes: dict[str, Relation]) -> Relation:
        path = path_of(node)
        if node.get("at_clause"):
            raise self._refuse(node, "AT (time travel) is not understood.")
        if len(path) == 1 and fold(path[0]) in ctes:
            return self._aliased(ctes[fold(path[0])], {**node, "alias": node["alias"] or path[0]})
        known = self.catalog.table(path)
        name = ".".join(path)
        if known is None:
            others = nearest(name, self.catalog.known_names())
            raise self._refuse(
                node,
                f"There is no table {name} here{others}. Temporary tables, frames registered elsewhere and rows that "
                "are not committed can't be seen: make a table and commit, or use con.register(name, frame or path).",
            )
        alias = node["alias"] or path[-1]
        if node.get("column_name_alias"):
            raise self._refuse(
                node, "Column names after a table's alias are not understood; rename columns in a subquery."
            )
        table = Table(alias, known.columns)
        if known.public:
            return Relation(node, (table,), private=False, sources=frozenset({known.source}))
        unit = known.unit or ()
        missing = [one for one in unit if table.has(one) is None]
        if missing:
            raise self._refuse(
                node,
                f"{name} is private, but has no column {', '.join(missing)} that says whose a row is. Name its own "
                f"with con.private('{name}', unit=...), or declare it public with con.public('{name}').",
            )
        return Relation(
            node,
            (table,),
            private=True,
            unit=tuple(column(alias, table.has(one) or one) for one in unit),
            unit_names=unit,
            rows_are_units=known.unit is None,
            sources=frozenset({known.source}),
            declared=known.declared,
        )

    def _described(self, node: Node) -> Table:
        return Table(node.get("alias") or "", self.catalog.columns(select_all(node)))

    def with_names(self, inner: Relation, alias: str, names: list[str], node: Node) -> Relation:
        """Return the rows of an entry of WITH whose columns have names of their own."""
        aliased = self._aliased(inner, {**node, "alias": alias, "column_name_alias": names})
        return replace(aliased, node=select_all(aliased.node))

    def _aliased(self, inner: Relation, node: Node) -> Relation:
        """Return the rows of a subquery under its alias."""
        names = [str(name) for name in node.get("column_name_alias") or []]
        if names and inner.private:
            raise self._refuse(
                node, "Column names after an alias of private rows are not understood; name them inside."
            )
        self._numbers[0] += 1
        alias = node.get("alias") or f"dp_subquery_{self._numbers[0]}"
        table = {**subquery(inner.node, alias), "column_name_alias": names}
        columns = inner.tables[0].columns if inner.released else self.catalog.columns(inner.node)
        if len(names) > len(columns):
            raise self._refuse(node, f"{alias} has more names than columns.")
        columns = dict(zip([*names, *list(columns)[len(names) :]], columns.values(), strict=True))
        return replace(
            inner,
            node=table,
            tables=(Table(alias, columns),),
            unit=tuple(column(alias, name) for name in inner.unit_names),
        )

    # ------------------------------------------------------------------ joins

    def _join(self, node: Node, ctes: dict[str, Relation]) -> Relation:
        left, right = self.of(node["left"], ctes), self.of(node["right"], ctes)
        joined = {**node, "left": left.node, "right": right.node}
        # A name without a table means the private side first: of a column of USING, that is the row's own value.
        tables = right.tables + left.tables if right.private and not left.private else left.tables + right.tables
        both = Relation(
            joined,
            tables,
            private=left.private or right.private,
            sources=left.sources | right.sources,
            declared=left.declared or right.declared,
            released=left.released or right.released,
        )
        unknown = [name for name, own in node.items() if own and name not in _JOIN_PARTS]
        if unknown:
            raise self._refuse(node, f"A join with {', '.join(unknown).replace('_', ' ')} is not understood.")
        if node["ref_type"] not in ("REGULAR", "CROSS"):
            raise self._refuse(node, f"A {fold(node['ref_type'])} join is not understood; use JOIN ... USING or ON.")
        if not both.private:
            if node.get("condition"):
                check_rowwise(node["condition"], self.scope(both))
            return both
        if left.private and right.private:
            raise self._refuse(
                node,
                "A join of private with private tables can put rows of several units into one. Declare one public with "
                "con.public(...), or make a view and declare whose its rows are with con.private(...).",
            )
        if both.released:
            raise self._refuse(
                node, "Private rows can't be joined with answers in one statement; store the answers first."
            )
        self._check_condition(node, both)
        own = left if left.private else right
        if own.rows_are_units and node["join_type"] not in ("SEMI", "ANTI"):
            raise self._refuse(node, "Where every row is a unit, a join could multiply rows; use SEMI or ANTI JOIN.")
        if node["join_type"] in ("SEMI", "ANTI") and not left.private:
            raise self._refuse(node, "A semi or anti join of public with private rows shows which private rows exist.")
        if node["join_type"] in ("SEMI", "ANTI"):
            both = replace(both, tables=left.tables)
        return replace(both, unit=own.unit, unit_names=own.unit_names, rows_are_units=own.rows_are_units)

    def _check_condition(self, node: Node, both: Relation) -> None:
        """Accept equalities of columns with equal types: nothing that could fail on a value."""
        for name in node.get("using_columns", []):
            kinds = {table.columns[own] for table in both.tables if (own := table.has(str(name))) is not None}
            if len(kinds) != 1:
                raise self._refuse(node, f"USING ({name}) compares columns of different types; cast one in a subquery.")
        condition = node.get("condition")
        if condition is None:
            return
        parts = condition["children"] if condition.get("type") == "CONJUNCTION_AND" else [condition]
        scope = self.scope(both)
        for part in parts:
            sides = [part.get("left"), part.get("right")]
            if part.get("class") != "COMPARISON" or any(not side or side["class"] != "COLUMN_REF" for side in sides):
                raise self._refuse(part, "A join with private rows compares columns: ON a.x = b.y, or USING (x).")
            types = []
            for side in sides:
                found = scope.resolve(side)
                if found is None:
                    check_rowwise(side, scope)
                    return
                if len(side["column_names"]) > (2 if fold(side["column_names"][0]) == fold(found[0].alias) else 1):
                    raise self._refuse(side, "A join with private rows compares columns, not parts of them.")
                types.append(found[0].columns[found[1]])
            if types[0] != types[1]:
                raise self._refuse(
                    part, f"This compares {types[0]} with {types[1]}; cast one in a subquery so that both are the same."
                )

    def _refuse(self, node: Node, reason: str) -> Exception:
        return Scope((), self.sql, self.catalog.macro).refuse(node, reason)


# ---------------------------------------------------------------------- nodes


def select_all(table: Node, where: Node | None = None) -> Node:
    """Return SELECT * FROM a table."""
    return select_node([star()], table, where)


def select_node(items: list[Node], table: Node, where: Node | None) -> Node:
    """Return a plain SELECT."""
    return {
        "type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "select_list": items, "from_table": table,
        "where_clause": where, "group_expressions": [], "group_sets": [], "aggregate_handling": "STANDARD_HANDLING",
        "having": None, "sample": None, "qualify": None,
    }  # fmt: skip


def star() -> Node:
    """Return *."""
    return {
        "class": "STAR", "type": "STAR", "alias": "", "relation_name": "", "exclude_list": [], "replace_list": [],
        "columns": False, "expr": None, "qualified_exclude_list": [], "rename_list": [],
    }  # fmt: skip


def subquery(query: Node, alias: str) -> Node:
    """Return a query as a table."""
    return {
        "type": "SUBQUERY", "alias": alias, "sample": None, "subquery": {"node": query, "named_param_map": []},
        "column_name_alias": [],
    }  # fmt: skip


def base_table(name: str) -> Node:
    """Return a table by its name."""
    return {
        "type": "BASE_TABLE", "alias": "", "sample": None, "schema_name": "", "table_name": name,
        "column_name_alias": [], "catalog_name": "", "at_clause": None, "qualified_name": {"path": [name]},
    }  # fmt: skip


def named(node: Node, name: str) -> Node:
    """Return an expression under a name; one that may fail is null where it does."""
    inner = node if node["class"] == "COLUMN_REF" else tried(node)
    return {**inner, "alias": name}
