"""What a FROM gives: rows of units, or public rows; and that every step keeps a unit's rows with the unit.

What one unit can change: a row of a private relation belongs to one unit and is computed from one row of that unit and
public tables. WHERE and SELECT see one row; a join with public rows may multiply a row, but all its copies stay the
unit's, and caps are enforced afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import polars as pl

from dp_polars._engines.rows import How, PrivateRows
from dp_polars._expressions import Column, Expression, apply
from dp_polars._expressions.types import integer_range, kind_of
from dp_polars._session.terms import TableUnit
from dp_polars._sql.allowed_functions import TABLE_FUNCTIONS
from dp_polars._sql.expressions import Reader
from dp_polars._sql.public_expressions import check_ordinary
from dp_polars._sql.syntax_tree import Node, Parser, arguments, column, fold, path_of, walk
from dp_polars._sql.tables import Meaning, Scope, Table, closest
from dp_polars.errors import Code, InvalidParameterError

_JOIN_PARTS = frozenset(
    {
        "type", "alias", "query_location", "query_location_length", "left", "right", "condition", "join_type",
        "ref_type", "using_columns", "is_implicit", "nearest_count", "nearest_order_type",
    }
)  # fmt: skip
_OWN = "\0"  # how the names of columns begin that are not the user's


class Catalog(Protocol):
    """What is known about tables, without reading private rows."""

    def table(self, path: tuple[str, ...]) -> Any:
        """Return a table by its name, None if there is none."""
        ...

    def known_names(self) -> list[str]:
        """Return how all tables and views may be called."""
        ...

    def rows(self, table: Any) -> PrivateRows:
        """Return the rows of a private table."""
        ...

    def columns(self, query: Node) -> list[str]:
        """Return the names of a public query's columns; it is bound, not run."""
        ...

    def public_frame(self, query: Node) -> pl.DataFrame:
        """Return the rows of a public query."""
        ...


@dataclass(frozen=True, eq=False)
class PrivateRelation:
    """Rows of units: the columns `unit` of `rows` say whose each is, whatever a query calls its columns."""

    rows: PrivateRows
    tables: tuple[Table, ...]
    unit: tuple[str, ...]
    table_unit: TableUnit
    sources: frozenset[Any]
    declared: bool = False

    @property
    def rows_are_units(self) -> bool:
        """Whether every row is a unit of its own."""
        return not self.unit

    def is_unit(self, meaning: Meaning) -> bool:
        """Whether a name stands for a unit column."""
        return isinstance(meaning, Column) and meaning.name in self.unit


@dataclass(frozen=True, eq=False)
class OrdinaryRelation:
    """Public rows, or answers, which exist only after the questions below were asked: a query that DuckDB runs."""

    node: Node
    tables: tuple[Table, ...]
    sources: frozenset[Any] = frozenset()
    released: bool = False


Relation = PrivateRelation | OrdinaryRelation


@dataclass
class Relations:
    """Analyses FROM clauses; `query` analyses a subquery."""

    catalog: Catalog
    parser: Parser
    sql: str
    parameters: dict[str, Any]
    query: Callable[[Node, dict[str, Relation]], Relation]
    _numbers: list[int] = field(default_factory=lambda: [0])

    def scope(self, relation: Relation) -> Scope:
        """Return what names mean in expressions over a relation."""
        return Scope(relation.tables, self.sql)

    def reader(self, tables: tuple[Table, ...]) -> Reader:
        """Return a reader of expressions over the columns of tables."""
        return Reader(Scope(tables, self.sql), self.parser, self.parameters)

    def of(self, node: Node, ctes: dict[str, Relation]) -> Relation:
        """Return what a FROM clause gives."""
        kind = node["type"]
        if node.get("sample"):
            raise self._refuse(node, "A sample depends on which other rows there are; take it where the data is made.")
        if kind == "EMPTY":
            return OrdinaryRelation(node, ())
        if kind == "BASE_TABLE":
            return self._table(node, ctes)
        if kind == "SUBQUERY":
            return self._aliased(self.query(node["subquery"]["node"], ctes), node)
        if kind == "JOIN":
            return self._join(node, ctes)
        if kind == "EXPRESSION_LIST":
            self._check_constants([item for row in node["values"] for item in row])
            return OrdinaryRelation(node, (self._described(node),))
        if kind == "TABLE_FUNCTION":
            name = fold(node["function"]["function_name"])
            if name not in TABLE_FUNCTIONS:
                raise self._refuse(
                    node["function"],
                    f"{name} may read files or other tables. Open a file with con.register(name, path); use its name.",
                    code="table-function-not-allowed",
                )
            self._check_constants([child for _, child in arguments(node["function"])])
            return OrdinaryRelation(node, (self._described(node),))
        what = "DESCRIBE, SHOW and SUMMARIZE are" if kind == "SHOW_REF" else f"{kind.replace('_', ' ').lower()} is"
        raise self._refuse(node, f"{what} not understood in FROM.")

    def _check_constants(self, items: list[Node]) -> None:
        """Refuse expressions of VALUES or of a table function that read anything."""
        for item in items:
            if any(one["class"] == "SUBQUERY" for one in walk(item)):
                raise self._refuse(item, "A subquery inside an expression is not understood here.")
            check_ordinary(item, Scope((), self.sql))

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
            others = closest(name, self.catalog.known_names())
            raise self._refuse(
                node,
                f"There is no table {name} here{others}. Temporary tables, frames registered elsewhere and rows that "
                "are not committed can't be seen: make a table and commit, or use con.register(name, frame or path).",
                code="unknown-table",
            )
        alias = node["alias"] or path[-1]
        if node.get("column_name_alias"):
            raise self._refuse(
                node, "Column names after a table's alias are not understood; rename columns in a subquery."
            )
        if known.public:
            table = Table(alias, dict.fromkeys(known.columns, ""))
            return OrdinaryRelation({**node, "alias": alias}, (table,), frozenset({known.key}))
        columns: dict[str, Meaning] = {
            own: one if isinstance(one, str) else Column(own, one.dtype) for own, one in known.columns.items()
        }
        table = Table(alias, columns)
        missing = [one for one in known.unit.columns if table.has(one) is None]
        if missing:
            raise self._refuse(
                node,
                f"{name} is private, but has no column {', '.join(missing)} that says whose a row is. Name its own "
                f"with con.private('{name}', unit=...), or declare it public with con.public('{name}').",
                code="unit-column-missing",
            )
        unit = tuple(table.has(one) or one for one in known.unit.columns)
        odd = [one for one in unit if isinstance(columns[one], str)]
        if odd:
            raise self._refuse(
                node, f"{odd[0]} says whose a row is, but has the type {columns[odd[0]]}, which can't tell units apart."
            )
        rows = self.catalog.rows(known)
        return PrivateRelation(rows, (table,), unit, known.unit, frozenset({known.key}), known.declared)

    def _described(self, node: Node) -> Table:
        return Table(node.get("alias") or "", dict.fromkeys(self.catalog.columns(select_all(node)), ""))

    def with_names(self, inner: Relation, alias: str, names: list[str], node: Node) -> Relation:
        """Return the rows of an entry of WITH whose columns have names of their own."""
        aliased = self._aliased(inner, {**node, "alias": alias, "column_name_alias": names})
        return replace(aliased, node=select_all(aliased.node)) if isinstance(aliased, OrdinaryRelation) else aliased

    def _aliased(self, inner: Relation, node: Node) -> Relation:
        """Return the rows of a subquery under its alias."""
        names = [str(name) for name in node.get("column_name_alias") or []]
        self._numbers[0] += 1
        alias = node.get("alias") or f"dp_subquery_{self._numbers[0]}"
        if isinstance(inner, PrivateRelation):
            if names:
                raise self._refuse(
                    node, "Column names after an alias of private rows are not understood; name them inside."
                )
            (table,) = inner.tables
            return replace(inner, tables=(Table(alias, table.columns),))
        query = {**subquery(inner.node, alias), "column_name_alias": names}
        columns = list(inner.tables[0].columns) if inner.released else self.catalog.columns(inner.node)
        if len(names) > len(columns):
            raise self._refuse(node, f"{alias} has more names than columns.")
        table = Table(alias, dict.fromkeys([*names, *columns[len(names) :]], ""))
        return replace(inner, node=query, tables=(table,))

    # ------------------------------------------------------------------ joins

    def _join(self, node: Node, ctes: dict[str, Relation]) -> Relation:
        left, right = self.of(node["left"], ctes), self.of(node["right"], ctes)
        unknown = [name for name, own in node.items() if own and name not in _JOIN_PARTS]
        if unknown:
            raise self._refuse(node, f"A join with {', '.join(unknown).replace('_', ' ')} is not understood.")
        if node["ref_type"] not in ("REGULAR", "CROSS"):
            raise self._refuse(node, f"A {fold(node['ref_type'])} join is not understood; use JOIN ... USING or ON.")
        if isinstance(left, PrivateRelation) and isinstance(right, PrivateRelation):
            raise self._refuse(
                node,
                "A join of private with private tables can put rows of several units into one. Declare one public with "
                "con.public(...), or make a view and declare whose its rows are with con.private(...).",
                code="private-join",
            )
        if isinstance(left, PrivateRelation):
            return self._looked_up(node, left, right, private_left=True)  # type: ignore[arg-type]
        if isinstance(right, PrivateRelation):
            return self._looked_up(node, right, left, private_left=False)
        both = OrdinaryRelation(
            {**node, "left": left.node, "right": right.node},
            left.tables + right.tables,
            left.sources | right.sources,
            left.released or right.released,
        )
        if node.get("condition"):
            if any(one["class"] == "SUBQUERY" for one in walk(node["condition"])):
                raise self._refuse(node, "A subquery inside an expression of a join is not understood.")
            check_ordinary(node["condition"], self.scope(both))
        return both

    def _looked_up(
        self, node: Node, private: PrivateRelation, public: OrdinaryRelation, *, private_left: bool
    ) -> PrivateRelation:
        """Return private rows with the public rows that they meet."""
        if public.released:
            raise self._refuse(
                node, "Private rows can't be joined with answers in one statement; store the answers first."
            )
        how = self._how(node, private_left=private_left)
        equal, others = self._conditions(node, private, public)
        if others and how != "inner":
            raise self._refuse(others[0], "This join compares columns: ON a.x = b.y, or USING (x).")
        frame, places = self._public(public)
        rows, pairs = private.rows, []
        for number, (mine, theirs) in enumerate(equal):
            own = self.reader(private.tables).checked(mine)
            if kind_of(own.dtype) in ("enum", "categorical"):
                own = apply("cast", own, to=pl.String())
            found = public_column(theirs, public, self.scope(public))
            if found is None:
                raise self._refuse(theirs, "A join with private rows compares columns, not parts of them.")
            place = places[found]
            frame = self._same_type(frame, place, own, node)
            name = f"{_OWN}on {self._number()} {number}"
            rows = rows.make({name: own})
            pairs.append((name, place))
        added, tables = self._added(public, frame, places, how)
        try:
            rows = rows.lookup(frame, on=pairs, how=how, columns=added, unique=private.rows_are_units)
        except InvalidParameterError as error:
            raise self._refuse(node, str(error)) from None
        joined = replace(
            private, rows=rows, tables=(*private.tables, *tables), sources=private.sources | public.sources
        )
        for one in others:
            joined = replace(joined, rows=joined.rows.filter(self.reader(joined.tables).condition(one)))
        return joined

    def _how(self, node: Node, *, private_left: bool) -> How:
        """Return how private rows are looked up. Public rows that meet none belong to nobody, and are left out."""
        kind = node["join_type"]
        if kind in ("SEMI", "ANTI"):
            if not private_left:
                raise self._refuse(
                    node, "A semi or anti join of public with private rows shows which private rows exist."
                )
            return "semi" if kind == "SEMI" else "anti"
        if kind in ("INNER", "CROSS"):
            return "inner"
        if kind in ("LEFT", "RIGHT"):
            return "left" if (kind == "LEFT") == private_left else "inner"
        if kind in ("OUTER", "FULL"):
            return "left"
        raise self._refuse(node, f"A {fold(kind)} join is not understood; use JOIN ... USING or ON.")

    def _conditions(
        self, node: Node, private: PrivateRelation, public: OrdinaryRelation
    ) -> tuple[list[tuple[Node, Node]], list[Node]]:
        """Return pairs of a private expression and a public column that are equal, and all other conditions."""
        equal = []
        for name in node.get("using_columns", []):
            reference = column(str(name))
            for scope in (self.scope(private), self.scope(public)):
                if scope.resolve(reference) is None:
                    raise self._refuse(node, f"USING ({name}): one of the tables has no such column.")
            equal.append((reference, reference))
        condition = node.get("condition")
        parts = [] if condition is None else [condition]
        if condition is not None and condition.get("type") == "CONJUNCTION_AND":
            parts = condition["children"]
        others = []
        for part in parts:
            pair = self._equality(part, private, public)
            if pair is None:
                others.append(part)
            else:
                equal.append(pair)
        return equal, others

    def _equality(self, part: Node, private: PrivateRelation, public: OrdinaryRelation) -> tuple[Node, Node] | None:
        if part.get("class") != "COMPARISON" or part["type"] != "COMPARE_EQUAL":
            return None
        for mine, theirs in ((part["left"], part["right"]), (part["right"], part["left"])):
            sides = self._sides(mine, private, public), self._sides(theirs, private, public)
            if sides == ({"private"}, {"public"}) and theirs["class"] == "COLUMN_REF":
                return mine, theirs
        return None

    def _sides(self, node: Node, private: PrivateRelation, public: OrdinaryRelation) -> set[str]:
        """Return which tables an expression reads; a name that both have means the private one."""
        found = set()
        for item in walk(node):
            if item["class"] == "COLUMN_REF":
                table = Scope(private.tables + public.tables, self.sql).resolve(item)
                if table is not None:
                    found.add("private" if table[0] in private.tables else "public")
        return found

    def _public(self, public: OrdinaryRelation) -> tuple[pl.DataFrame, dict[tuple[str, str], str]]:
        """Return public rows, and what their columns are called there."""
        places = {
            (table.alias, name): f"column{number} {place}"
            for number, table in enumerate(public.tables)
            for place, name in enumerate(table.columns)
        }
        items = [
            {**(column(alias, name) if alias else column(name)), "alias": place}
            for (alias, name), place in places.items()
        ]
        return self.catalog.public_frame(select_node(items, public.node, None)), places

    def _same_type(self, frame: pl.DataFrame, place: str, own: Expression, node: Node) -> pl.DataFrame:
        """Return public rows whose key has the private column's type; those that it can't hold meet nobody."""
        theirs = frame.schema[place]
        if theirs == own.dtype or theirs == pl.Null:
            return frame.with_columns(pl.col(place).cast(own.dtype))
        both = {kind_of(theirs), kind_of(own.dtype)}
        if both <= {"integer"} or (both == {"integer", "decimal"} and _is_whole(theirs)):
            low, high = integer_range(own.dtype)
            kept = frame.filter(pl.col(place).cast(pl.Int128).is_between(low, high) | pl.col(place).is_null())
            return kept.with_columns(pl.col(place).cast(own.dtype))
        if both == {"text"} or both == {"date"}:
            return frame.with_columns(pl.col(place).cast(own.dtype))
        raise self._refuse(
            node, f"This join compares {own.dtype} with {theirs}; cast one in a subquery so that both are the same."
        )

    def _added(
        self, public: OrdinaryRelation, frame: pl.DataFrame, places: dict[tuple[str, str], str], how: How
    ) -> tuple[dict[str, str], list[Table]]:
        """Return the names that public columns get beside private ones, and the tables that they are seen as."""
        if how in ("semi", "anti"):
            return {}, []
        number = self._number()
        added: dict[str, str] = {}
        tables = []
        for table in public.tables:
            columns: dict[str, Meaning] = {}
            for name in table.columns:
                place = places[table.alias, name]
                dtype = frame.schema[place]
                if kind_of(dtype) in ("other", "null"):
                    columns[name] = str(dtype)
                    continue
                added[place] = f"{_OWN}public {number} {place}"
                columns[name] = Column(added[place], dtype)
            tables.append(Table(table.alias, columns))
        return added, tables

    def _number(self) -> int:
        self._numbers[0] += 1
        return self._numbers[0]

    def _refuse(self, node: Node, reason: str, *, code: Code | None = None) -> Exception:
        return Scope((), self.sql).refuse(node, reason, code=code)


def public_column(node: Node, relation: OrdinaryRelation, scope: Scope) -> tuple[str, str] | None:
    """Return the table and the column that a reference means, None if it means a part of one."""
    found = scope.resolve(node)
    if found is None:
        return None
    table, name = found
    qualified = len(node["column_names"]) > 1 and fold(node["column_names"][0]) == fold(table.alias)
    return None if len(node["column_names"]) > (2 if qualified else 1) else (table.alias, name)


def _is_whole(dtype: pl.DataType) -> bool:
    return not isinstance(dtype, pl.Decimal) or dtype.scale == 0


# ---------------------------------------------------------------------- nodes


def select_all(table: Node, where: Node | None = None) -> Node:
    """Return SELECT * FROM a table."""
    return select_node([star()], table, where)


def select_node(items: Sequence[Node], table: Node, where: Node | None) -> Node:
    """Return a plain SELECT."""
    return {
        "type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "select_list": list(items), "from_table": table,
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
