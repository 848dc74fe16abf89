"""Describe the rows that a part of a statement produces: private rows with their unit, or public rows.

The invariant: each row of a private relation belongs to one unit and is computed from rows of that unit and from public
tables. WHERE and SELECT look at one row at a time; what combines several rows of a unit is in `unit_steps`. A join with
public rows may multiply a row, but all copies belong to the same unit, and the contribution bounds are enforced
afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from dp_polars._engines.rows import OWN, PrivateRows
from dp_polars._engines.unit_steps import LabelRows, UnitStep, unit_rows, with_units
from dp_polars._expressions import Column, Expression, apply
from dp_polars._expressions.types import kind_of
from dp_polars._session.terms import TableUnit
from dp_polars._sql.catalog import Catalog, KnownTable, Through
from dp_polars._sql.expressions import Clock, Reader
from dp_polars._sql.scope import Meaning, Scope, ScopeTable, aliases_of, closest, name_of, unused_name, without_aliases
from dp_polars._sql.syntax_tree import Node, Parser, fold, path_of
from dp_polars.errors import Code, ExpressionNotAllowed, InvalidParameterError, StatementNotAllowed


@dataclass(frozen=True, eq=False)
class PrivateRelation:
    """Rows that belong to units. The columns `unit` of `rows` identify the unit, whatever the query calls them."""

    rows: PrivateRows
    tables: tuple[ScopeTable, ...]
    unit: tuple[str, ...]
    table_unit: TableUnit
    sources: frozenset[Any]
    declared: bool = False
    """Whether the unit rests on the owner's declaration about a view."""
    copies: frozenset[str] = frozenset()
    """Columns of `rows` that hold the unit of another table after a LEFT JOIN: the row's unit, or null."""
    labels: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    """Columns of `rows` that decide the unit, with the keys of tables that they come from."""

    @property
    def rows_are_units(self) -> bool:
        """Whether every row is a unit of its own."""
        return not self.unit

    def is_unit(self, meaning: Meaning) -> bool:
        """Return whether a name stands for a unit column, or for that of another table that was joined."""
        return isinstance(meaning, Column) and (meaning.name in self.unit or meaning.name in self.copies)


@dataclass(frozen=True, eq=False)
class PublicRelation:
    """Rows without privacy needs, as a query that runs in the sandbox.

    The rows come from public tables, or (`released`) from answers that exist only once the private queries below them
    have been released.
    """

    node: Node
    tables: tuple[ScopeTable, ...]
    sources: frozenset[Any] = frozenset()
    released: bool = False


Relation = PrivateRelation | PublicRelation


@dataclass(frozen=True)
class Context:
    """What the analysis of one statement needs everywhere: its text, its parameters, the parser and the catalog.

    Errors give the location of what is refused, as its line and column in the text.
    """

    sql: str
    parameters: dict[str, Any]
    parser: Parser
    catalog: Catalog
    clock: Clock = field(default_factory=Clock)

    def scope(self, *tables: ScopeTable) -> Scope:
        """Return the scope of expressions over tables."""
        return Scope(tables, self.sql)

    def reader(self, *tables: ScopeTable) -> Reader:
        """Return a reader of expressions over private rows."""
        return Reader(self.scope(*tables), self.parser, self.parameters, self.clock)

    def refuse(self, node: Node, reason: str, *, code: Code | None = None) -> StatementNotAllowed:
        """Return an error that ends with the location of a node."""
        return self.scope().refuse(node, reason, code=code)


def unit_step(
    node: Node, context: Context, step: UnitStep, relation: PrivateRelation, *others: PrivateRows
) -> PrivateRows:
    """Return the rows of a relation after a unit-wise step, or refuse the step with its place in the statement."""
    inputs = (relation.rows, *others)
    try:
        rows = unit_rows(step, *inputs)
        with_units(rows, relation.unit)
    except (InvalidParameterError, ExpressionNotAllowed) as error:
        raise context.refuse(node, str(error), code=error.code) from None
    return rows


# ---------------------------------------------------------------------- tables


def table_relation(node: Node, context: Context) -> Relation:
    """Return the rows of a table or view, or of a registered frame or file."""
    path = path_of(node)
    name, alias = ".".join(path), node["alias"] or path[-1]
    known = context.catalog.table(path)
    if known is None:
        there = closest(name, context.catalog.known_names())
        unseen = (
            " Temporary tables, frames registered on other connections and uncommitted rows are not visible: create a "
            "table and commit, or use con.register(name, frame or path)."
        )
        raise context.refuse(
            node,
            f"There is no table {name} here{there}.{'' if 'Did you mean' in there else unseen}",
            code="unknown-table",
        )
    if node.get("column_name_alias"):
        raise context.refuse(
            node, "Column names after a table's alias are not supported; rename the columns in a subquery."
        )
    if known.public:
        table = ScopeTable.public(alias, known.columns)
        return PublicRelation({**node, "alias": alias}, (table,), frozenset({known.key}))
    full = max(known.path, path, key=len)  # registered tables have no schema of their own, and may be written with one
    return _private_table(known, name, node, context, alias, () if node["alias"] else full)


def _private_table(
    known: KnownTable, name: str, node: Node, context: Context, alias: str, path: tuple[str, ...] = ()
) -> PrivateRelation:
    columns: dict[str, Meaning] = {
        name: column if isinstance(column, str) else Column(name, column.dtype)
        for name, column in known.columns.items()
    }
    table = ScopeTable(alias, columns, path)
    keys = context.catalog.unit_keys(known.key)
    labels = {own: frozenset({(known.key, fold(own))}) for own in columns if fold(own) in keys}
    if known.through is not None:
        return _labelled(known, known.through, table, labels, name, node, context)
    missing = [column for column in known.unit.columns if table.has(column) is None]
    if missing:
        raise context.refuse(
            node,
            f"{name} is private, but it lacks the unit column {', '.join(missing)}; it has "
            f"{', '.join(columns)}. Name the table's own unit column with con.private('{name}', unit=...). If another "
            f"private table knows the unit of each row, say con.private('{name}', through='that table', on='its key'). "
            f"If the rows are about nobody, declare the table public with con.public('{name}').",
            code="unit-column-missing",
        )
    unit = tuple(table.has(column) or column for column in known.unit.columns)
    unusable = [name for name in unit if isinstance(columns[name], str)]
    if unusable:
        raise context.refuse(
            node,
            f"The unit column {unusable[0]} has the type {columns[unusable[0]]}, whose values can't identify units. "
            "Cast it to an integer or to text in the table.",
        )
    return PrivateRelation(
        context.catalog.rows(known), (table,), unit, known.unit, frozenset({known.key}), known.declared, labels=labels
    )


def _labelled(
    known: KnownTable, through: Through, table: ScopeTable, labels: dict[str, frozenset[Any]], name: str, node: Node,
    context: Context,
) -> PrivateRelation:  # fmt: skip
    """Return the rows of a table whose units stand in another one: see `LabelRows`."""
    catalog = context.catalog
    other = catalog.known_table(through.table)
    path = ".".join(other.path)
    if other.public:
        raise context.refuse(node, f"{name} gets its units through {path}, which was declared public.")
    theirs = _private_table(other, path, node, context, "")
    its = theirs.tables[0]
    pairs = [(table.has(mine), its.has(own)) for mine, own in through.on]
    meant = [(table.columns.get(mine or ""), its.columns.get(own or "")) for mine, own in pairs]
    if not all(isinstance(one, Column) for pair in meant for one in pair):
        shown = ", ".join(f"{mine} = {own}" for mine, own in through.on)
        raise context.refuse(node, f"{name} gets its units through {path} on {shown}, but a column is gone.")
    taken = [one for one in theirs.table_unit.columns if table.has(one) is not None]
    if taken:
        raise context.refuse(
            node,
            f"{name} gets its units through {path}, but it has a column {taken[0]} of its own. If that is its unit, "
            f"declare it: con.private('{name}', unit={{...}}).",
        )
    rows, others, on = catalog.rows(known), theirs.rows, []
    for mine, own in meant:
        if not isinstance(mine, Column) or not isinstance(own, Column):
            continue
        if mine.dtype != own.dtype:
            if {kind_of(mine.dtype), kind_of(own.dtype)} != {"integer"}:
                raise context.refuse(
                    node, f"{mine.name} has the type {mine.dtype}, but {own.dtype} in {path}. Give both the same type."
                )
            names = unused_name("unit_key", rows.schema), unused_name("unit_key", others.schema)
            rows = rows.make({names[0]: apply("cast", mine, to=pl.Int64())})
            others = others.make({names[1]: apply("cast", own, to=pl.Int64())})
            on.append(names)
        else:
            on.append((mine.name, own.name))
    unit: dict[str, str] = {}
    for own_name, shown_name in zip(theirs.unit, theirs.table_unit.columns, strict=True):
        unit[own_name] = unused_name(shown_name, [*rows.schema, *unit.values()])
    step = LabelRows(tuple(on), tuple(unit.items()))
    shown_units = zip(theirs.unit, theirs.table_unit.columns, strict=True)
    columns = {one: Column(unit[own], others.schema[own]) for own, one in shown_units}
    if len(pairs) == 1 and pairs[0][0] and pairs[0][1]:
        labels = {**labels, pairs[0][0]: labels.get(pairs[0][0], frozenset()) | {(other.key, fold(pairs[0][1]))}}
    constrained = catalog.is_unique(other, [own for _, own in through.on])
    if not constrained and not through.unique:
        raise context.refuse(
            node,
            f"{name} gets its units through {path}, which no longer has a PRIMARY KEY or UNIQUE constraint on its key. "
            "Declare it anew with unique=True, if no two rows have the same key.",
        )
    declared = theirs.declared or not constrained
    relation = PrivateRelation(
        rows, (replace(table, columns={**table.columns, **columns}),), tuple(unit.values()), theirs.table_unit,
        theirs.sources | {known.key}, declared, labels=labels,
    )  # fmt: skip
    return replace(relation, rows=unit_step(node, context, step, relation, others))


# ---------------------------------------------------------------------- SELECT and WHERE over private rows


def projected(node: Node, relation: PrivateRelation, reader: Reader, scope: Scope) -> PrivateRelation:
    """Apply SELECT and WHERE to private rows, one row at a time. The unit columns are always kept."""
    for item in node["select_list"]:  # report a mistyped private aggregate by its name, not for its GROUP BY
        if item["class"] == "FUNCTION":
            reader.value(item)
    if node.get("sample"):
        raise scope.refuse(node, "A sample depends on which other rows exist.")
    units = {fold(name) for name in relation.table_unit.columns}
    columns: dict[str, tuple[str, Meaning | Expression]] = {}
    for item in node["select_list"]:
        for name, meaning in _columns(item, relation, reader, scope):
            if fold(name) in units and not (isinstance(meaning, Column) and relation.is_unit(meaning)):
                raise scope.refuse(
                    item, f"{name} is the name of the unit column; a query can't give it to another column."
                )
            columns.setdefault(fold(name), (name, meaning))  # the first of equal names counts, as in a join with USING
    rows = relation.rows
    for condition in conditions(node, reader, scope):
        rows = rows.filter(condition)
    made: dict[str, Expression] = {name: Column(name, rows.schema[name]) for name in relation.unit}
    seen: dict[str, Meaning] = {}
    for name, meaning in columns.values():
        if isinstance(meaning, str):
            seen[name] = meaning
        elif isinstance(meaning, Column):  # a column keeps the name that it has in `rows`
            made[meaning.name] = seen[name] = meaning
        else:
            own = unused_name(name, [*rows.schema, *made])
            made[own], seen[name] = meaning, Column(own, meaning.dtype)
    labels = {name: own for name, own in relation.labels.items() if made.get(name) == Column(name, rows.schema[name])}
    return replace(relation, rows=rows.make(made, keep=False), tables=(ScopeTable("", seen),), labels=labels)


def _columns(
    item: Node, relation: PrivateRelation, reader: Reader, scope: Scope
) -> list[tuple[str, Meaning | Expression]]:
    """Return the columns that an item of SELECT produces."""
    if item["class"] == "STAR":
        return _star_columns(item, relation, reader, scope)
    name = name_of(item, "")
    if item["class"] == "COLUMN_REF" and (found := scope.column(item)) is not None and isinstance(found[0], str):
        return [(name, found[0])]  # a column of an unusable type may be selected, but not used in an expression
    tree = reader.checked(item)
    if not name:
        raise scope.refuse(item, "Give this expression a name: ... AS name.")
    return [(name, tree)]


def _star_columns(
    item: Node, relation: PrivateRelation, reader: Reader, scope: Scope
) -> list[tuple[str, Meaning | Expression]]:
    if item.get("columns") or item.get("expr") or item.get("rename_list") or item.get("qualified_exclude_list"):
        raise scope.refuse(item, "COLUMNS and RENAME are not supported over private rows; list the columns.")
    left_out = {fold(name) for name in item.get("exclude_list", [])}
    changed = {fold(entry["key"]): reader.checked(entry["value"]) for entry in item.get("replace_list", [])}
    wanted = fold(item.get("relation_name") or "")
    return [
        (name, changed.get(fold(name), meaning))
        for table in relation.tables
        if (not wanted and not table.alias.startswith(OWN)) or fold(table.alias) == wanted
        for name, meaning in table.columns.items()
        if fold(name) not in left_out
    ]


def conditions(node: Node, reader: Reader, scope: Scope) -> list[Expression]:
    """Return a list with the condition of WHERE, or an empty list. The condition may use aliases of SELECT."""
    return [condition(node["where_clause"], node, reader, scope)] if node.get("where_clause") else []


def condition(item: Node, node: Node, reader: Reader, scope: Scope) -> Expression:
    """Read a condition on the rows of a SELECT. It may use aliases of that SELECT."""
    return reader.condition(without_aliases(item, aliases_of(node), scope))
