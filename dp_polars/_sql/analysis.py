"""Analyse a statement: find its private tables, follow their units, and cut the statement at its private aggregations.

Below each cut are queries over private rows, which are planned and released like those of the Polars front end. Above
it is ordinary SQL, which runs in the sandbox over the released rows. What isn't understood is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from dp_polars._display.text import one_line
from dp_polars._engines.rows import PrivateRows
from dp_polars._engines.unit_steps import described_rows, unit_steps_of, with_units
from dp_polars._expressions import Apply, Column, Constant, Expression, apply
from dp_polars._plan.digest import public_digest
from dp_polars._session.terms import TableUnit
from dp_polars._sql.aggregate_calls import Call, call_of
from dp_polars._sql.allowed_functions import CUTS, ENDS, PLAIN_AGGREGATES, TABLE_FUNCTIONS
from dp_polars._sql.expressions import Reader, is_whole
from dp_polars._sql.grouping_sets import answers_of_sets, has_grouping_sets, selects_of_sets
from dp_polars._sql.interval_ends import IntervalEnds, WantedIntervals, ends_elsewhere, is_end, with_ends
from dp_polars._sql.joins import joined
from dp_polars._sql.pivots import pivot_select
from dp_polars._sql.plain_sql import PLAIN, private_sql
from dp_polars._sql.private_joins import compared, conjuncts, join_on_unit, stacked
from dp_polars._sql.public_facts import columns_alone, schema_query, without_rows
from dp_polars._sql.relations import (
    Context,
    PrivateRelation,
    PublicRelation,
    Relation,
    condition,
    conditions,
    table_relation,
)
from dp_polars._sql.sandbox import check_expression
from dp_polars._sql.scope import (
    Scope,
    ScopeTable,
    aliases_of,
    check_shared_aliases,
    is_private_call,
    name_of,
    qualified,
    unused_name,
    without_aliases,
    without_lateral_aliases,
)
from dp_polars._sql.syntax_tree import (
    Node,
    arguments,
    base_table,
    canonical,
    changed_modifier,
    column,
    cte_query,
    fold,
    modifier_expressions,
    path_of,
    replaced,
    select_all,
    select_node,
    subquery,
    walk,
    without_places,
)
from dp_polars._sql.unit_steps import grouping_expressions, selected, unnested, without_unnest
from dp_polars.errors import DPError, StatementNotAllowed

PRIVATE_ANSWER = "a private answer"
UNIT_STEP = "a step within one unit"
OVER_ANSWERS = "ordinary, over answers"
OVER_PUBLIC_ROWS = "ordinary, over public rows"
_AGGREGATES = PLAIN_AGGREGATES | {name.split(" ")[0] for name in PLAIN}
_UNNAMED = "dp_subquery_"
_PLAIN_ALIAS = re.compile(r"(?!dp_|answer_|cut_by_)[A-Za-z][A-Za-z0-9_]{0,59}")
_LONGEST_NAME = 60  # characters of an expression that names a key
"""The beginning of the aliases of subqueries that have none."""


@dataclass(frozen=True, eq=False)
class SqlQuery:
    """One or several private aggregates over the same private rows, which are planned and released together."""

    calls: tuple[Call, ...]
    values: tuple[tuple[str, ...], ...]
    """For each call, the columns of `rows` that hold its values."""
    answers: tuple[str, ...]
    """For each call, the column of its answer in the table of released rows."""
    rows: PrivateRows
    """The unit, the keys and the values, under the names that a plan shows."""
    unit: tuple[str, ...]
    table_unit: TableUnit
    keys: tuple[str, ...]
    sources: frozenset[Any]
    declared: bool
    ends: tuple[tuple[str, str, str], ...] = ()
    """The ends of intervals that are shown: the column of the answer, which end ("low"), and the column of the end."""
    confidence: Any = None
    """The confidence of these intervals."""
    unit_keys: tuple[str, ...] = ()
    """The keys that are functions of the unit alone."""
    reads_clock: bool = False
    """Whether the statement asks for the time, so that it is another question later."""

    @property
    def questions(self) -> int:
        """The number of calls that ask for an aggregate or a choice, and not for what is cut off from others."""
        return sum(not call.counts_cut for call in self.calls)

    def step(self, kind: str) -> str:
        """Return a description of the steps that lead from the table to `rows`, for the query's fingerprint."""
        return json.dumps([kind, described_rows(self.rows, public_digest)], sort_keys=True)

    def notes(self) -> tuple[str, ...]:
        """Return what a plan says about the steps: those within a unit, and that the time is part of the question."""
        found = unit_steps_of(self.rows)
        if self.reads_clock:
            found.append("the time of the statement, so that a rerun is a new question")
        return tuple(json.dumps([one, None]) for one in found)


@dataclass(frozen=True)
class Aggregation:
    """The private queries of one SELECT, whose answers become one table of released rows."""

    table: str
    queries: tuple[SqlQuery, ...]
    keys: tuple[str, ...]
    """The columns of the grouping keys in the released table, in the order of the queries' keys."""


@dataclass(frozen=True)
class Analysis:
    """A statement after its analysis: private aggregations, and the query `above` that runs on their answers."""

    above: Node
    aggregations: tuple[Aggregation, ...]
    labelled: tuple[tuple[Callable[[], str], str], ...] = ()
    """How to write each aggregate and window of the statement, and what it is: see `PRIVATE_ANSWER` and what follows.

    Only previews write them.
    """

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Each aggregate and window of the statement as text, and what it is."""
        return tuple(dict.fromkeys((one_line(text(), _LONGEST_NAME), what) for text, what in self.labelled))


@dataclass(frozen=True)
class _GroupingKey:
    """A grouping key: its column in the released table, its syntax tree, and the same as a typed expression."""

    name: str
    node: Node
    tree: Expression
    of_unit: bool
    """Whether it is a function of the unit alone, so that all rows of a unit are in one group."""


def analyse(node: Node, context: Context, intervals: WantedIntervals | None = None) -> Analysis:
    """Analyse a parsed statement, or refuse it.

    `intervals` are those that the statement's options want beside the private aggregates of the outermost SELECT.
    """
    analyser = _Analyser(context, intervals)
    rest = without_rows(node)
    relation = _Analyser(context).query(rest, {}, top=True) if rest is not None else None
    if isinstance(relation, PrivateRelation) and len(relation.tables) == 1:  # its columns are public
        return Analysis(columns_alone(relation.tables[0].columns, context.parser), (), ())
    relation = analyser.query(node, {}, top=True)
    if isinstance(relation, PrivateRelation):
        aggregates = "private aggregates: dp_count(*), dp_count_units(), dp_sum(x, 0, 100), dp_avg(x, 0, 100)"
        if context.catalog.has_policy:
            aggregates = "aggregates, which are private here: COUNT(*), SUM(x), AVG(x), MEDIAN(x)"
        raise StatementNotAllowed(
            f"This would show private rows. Use {aggregates} and so on, with GROUP BY for groups."
        )
    found = analyser.aggregations
    if context.clock.used:
        found = [replace(one, queries=tuple(replace(own, reads_clock=True) for own in one.queries)) for one in found]
    return Analysis(without_places(relation.node), tuple(found), tuple(analyser.labelled))


def private_relation(node: Node, context: Context) -> Relation:
    """Return the rows of a query below a SUMMARIZE: private rows with their unit, or public and released rows."""
    return _Analyser(context).query(node, {})


class _Analyser:
    """Walks through the queries of a statement from the inside out, and collects private aggregations on the way."""

    def __init__(self, context: Context, intervals: WantedIntervals | None = None) -> None:
        self._context, self._refuse, self._intervals = context, context.refuse, intervals
        self._unnamed = 0  # subqueries without an alias so far
        self._views: list[str] = []  # the views whose definitions are being read
        self.aggregations: list[Aggregation] = []
        self.labelled: list[tuple[Callable[[], str], str]] = []

    # ------------------------------------------------------------------ queries

    def query(self, node: Node, ctes: dict[str, Relation], *, top: bool = False) -> Relation:
        """Return the rows of a query: private rows with their unit, or public and released rows."""
        known = dict(ctes)
        for entry in node.get("cte_map", {}).get("map", []):
            inner = self.query(cte_query(entry), known)
            names = entry["value"].get("aliases")
            if names:
                inner = self._aliased(inner, {**node, "alias": entry["key"], "column_name_alias": names})
                if isinstance(inner, PublicRelation):
                    inner = replace(inner, node=select_all(inner.node))
            known[fold(entry["key"])] = inner
        if node["type"] == "SET_OPERATION_NODE":
            return self._set_operation(node, known)
        if node["type"] != "SELECT_NODE":
            raise self._refuse(node, f"{node['type'].replace('_', ' ').lower()} is not supported.")
        relation = self._from(node["from_table"], known)
        if isinstance(relation, PublicRelation):
            self._label(node, OVER_ANSWERS if relation.released else OVER_PUBLIC_ROWS)
            return self._public_select(node, relation, known)
        node, relation = self._with_memberships(node, relation, known)
        node, relation = without_unnest(node, relation, self._context)
        written = node
        if self._context.catalog.has_policy:
            node = private_sql(node, relation, self._context)
        if any(is_private_call(item) or is_end(item) for item in _expressions(node)):
            self._label(written, PRIVATE_ANSWER, windows=OVER_ANSWERS)
            return self._aggregation(node, relation, known, top=top)
        plain = all(item["class"] in ("COLUMN_REF", "STAR") for item in node["select_list"])
        if top and plain and not node["group_sets"]:
            return relation  # it would show private rows, whatever else it says
        check_shared_aliases(node, self._context.scope(*relation.tables))
        self._label(node, UNIT_STEP)
        # The order of rows that are refused anyway would only give a less useful reason.
        return selected({**node, "modifiers": []} if top else node, relation, self._context)

    def _label(self, node: Node, what: str, *, windows: str | None = None) -> None:
        """Note what the aggregates and windows of a SELECT are, by the rows that they are computed from."""
        for item in _expressions(node):
            window = item["class"] == "WINDOW"
            if window or is_private_call(item) or fold(item.get("function_name", "")) in _AGGREGATES:
                every = item.get("function_name") == "count_star"
                text = (lambda: "count(*)") if every else partial(self._text, {**item, "alias": ""})
                self.labelled.append((text, windows if window and windows else what))

    def _set_operation(self, node: Node, ctes: dict[str, Relation]) -> Relation:
        names = [name for name in ("left", "right") if isinstance(node.get(name), dict)]
        parts = {name: self.query(node[name], ctes) for name in names}
        children = node.get("children", [])
        listed = [self.query(_with_names(child) if place else child, ctes) for place, child in enumerate(children)]
        private = [part for part in (*parts.values(), *listed) if isinstance(part, PrivateRelation)]
        kind = node["setop_type"]
        if private and len(private) == len(parts) + len(listed) and kind in ("UNION", "INTERSECT", "EXCEPT"):
            if node.get("modifiers"):
                raise self._refuse(
                    node,
                    f"ORDER BY and LIMIT behind {kind} of private rows make rows depend on others; leave them out.",
                )
            if kind != "UNION":
                if node.get("setop_all"):
                    raise self._refuse(node, f"{kind} ALL of private rows is not supported; write {kind}.")
                return compared(node, self._context, private, kind)
            return stacked(node, self._context, private, distinct=not node.get("setop_all"))
        every = [part for part in (*parts.values(), *listed) if isinstance(part, PublicRelation)]
        if len(every) < len(parts) + len(listed):
            raise self._refuse(
                node,
                "UNION, INTERSECT and EXCEPT take private rows on both sides, or public rows and answers on both. To "
                "compare private rows with public ones, write x IN (SELECT ...) or NOT IN.",
            )
        changed = {**node, **{name: getattr(part, "node", {}) for name, part in parts.items()}, "cte_map": {"map": []}}
        if listed:
            changed["children"] = [getattr(part, "node", {}) for part in listed]
        shown = ScopeTable.public("", [name for part in every for table in part.tables for name in table.columns])
        changed["modifiers"] = self._public_modifiers(node, self._context.scope(shown), ctes)
        sources = frozenset[Any]().union(*(part.sources for part in every))
        released = any(part.released for part in every)
        return PublicRelation(changed, every[0].tables if released else (), sources, released)

    # ------------------------------------------------------------------ IN and EXISTS

    def _with_memberships(
        self, node: Node, relation: PrivateRelation, ctes: dict[str, Relation]
    ) -> tuple[Node, PrivateRelation]:
        """Carry out the conditions of WHERE that compare rows with those of a query: IN, NOT IN, EXISTS, NOT EXISTS."""
        rest = []
        for item in conjuncts(node.get("where_clause")):
            wanted, own = item, item
            if item.get("type") == "OPERATOR_NOT" and item["children"][0].get("class") == "SUBQUERY":
                own = item["children"][0]
            if own.get("class") != "SUBQUERY" or own["subquery_type"] not in ("ANY", "EXISTS"):
                rest.append(item)
                continue
            inside = own is wanted
            if own["subquery_type"] == "EXISTS":
                relation = self._existing(own, relation, ctes, inside=inside)
            elif own["comparison_type"] == "COMPARE_EQUAL":
                relation = self._listed(node, own, relation, ctes, inside=inside)
            else:
                raise self._refuse(own, "ANY and ALL compare a row with other rows; use IN, or ask for dp_max first.")
        where = rest[0] if len(rest) == 1 else None
        if len(rest) > 1:
            where = {**node["where_clause"], "children": rest}
        return ({**node, "where_clause": where} if node.get("where_clause") else node), relation

    def _listed(
        self, node: Node, item: Node, relation: PrivateRelation, ctes: dict[str, Relation], *, inside: bool
    ) -> PrivateRelation:
        """Keep the rows whose values are in the answer of a query, or those whose values are not."""
        inner = self.query(item["subquery"]["node"], ctes)
        scope, reader = self._context.scope(*relation.tables), self._context.reader(*relation.tables)
        child = without_aliases(item["child"], aliases_of(node), scope)
        is_row = child["class"] == "FUNCTION" and fold(child["function_name"]) == "row"
        given = [one for _, one in arguments(child)] if is_row else [child]
        trees = [reader.checked(one) for one in given]
        if isinstance(inner, PublicRelation):
            return self._in_public(item, child, inner, relation, inside=inside)
        columns = list(inner.tables[0].columns.values())
        if len(columns) != len(trees) or any(isinstance(one, str) for one in columns):
            raise self._refuse(item, "The query behind IN must have as many columns as stand before IN.")
        pairs = [(one, two) for one, two in zip(trees, columns, strict=True) if isinstance(two, Column)]
        relation = relation if inside else _without_nulls(relation, trees)
        return join_on_unit(item, self._context, relation, inner, pairs, "semi" if inside else "anti")

    def _in_public(
        self, item: Node, child: Node, inner: PublicRelation, relation: PrivateRelation, *, inside: bool
    ) -> PrivateRelation:
        """Keep the rows with a value in a public list, or those with other values. As in SQL, a null empties NOT IN."""
        if inner.released:
            raise self._refuse(
                item, "Private rows can't be compared with released answers. Store them in a table first."
            )
        aliased = self._aliased(inner, {})
        (table,) = aliased.tables
        names = list(table.columns)
        if len(names) != 1:
            raise self._refuse(item, "The query behind IN must have one column, if it is about public rows.")
        if not inside:
            listed = self._context.catalog.public_frame(inner.node).to_series()
            if listed.has_nulls():
                return replace(relation, rows=relation.rows.filter(Constant(False, pl.Boolean())))
            trees = [self._context.reader(*relation.tables).checked(child)]
            relation = _without_nulls(relation, trees) if len(listed) else relation
        join: Node = {
            "type": "JOIN", "join_type": "SEMI" if inside else "ANTI", "ref_type": "REGULAR", "using_columns": [],
            "condition": {
                "class": "COMPARISON", "type": "COMPARE_EQUAL", "alias": "", "left": child,
                "right": column(table.alias, names[0]),
            },
            "query_location": item.get("query_location"),
        }  # fmt: skip
        found = joined(join, relation, aliased, self._context)
        return found if isinstance(found, PrivateRelation) else relation

    def _existing(
        self, item: Node, relation: PrivateRelation, ctes: dict[str, Relation], *, inside: bool
    ) -> PrivateRelation:
        """Keep the rows for which a query has rows of the same unit, or those for which it has none."""
        query = item["subquery"]["node"]
        allowed = {"type", "select_list", "from_table", "where_clause", "cte_map", "aggregate_handling"}
        more = [name for name, own in query.items() if own and name not in allowed]
        if query["type"] != "SELECT_NODE" or more or query["cte_map"].get("map") or any(
            one["class"] not in ("CONSTANT", "STAR", "COLUMN_REF") for one in query["select_list"]
        ):  # fmt: skip
            raise self._refuse(item, "EXISTS takes a plain query here: EXISTS (SELECT 1 FROM b WHERE b.id = a.id).")
        inner = self._from(query["from_table"], ctes)
        if not isinstance(inner, PrivateRelation):
            raise self._refuse(item, "EXISTS is about private rows here; for public rows write x IN (SELECT ...).")
        scope = self._context.scope(*inner.tables)
        outer, reader = self._context.reader(*relation.tables), self._context.reader(*inner.tables)

        def is_inner(node: Node) -> set[bool]:
            return {scope.resolve(one) is not None for one in walk(node) if one["class"] == "COLUMN_REF"}

        pairs: list[tuple[Expression, Expression]] = []
        for part in conjuncts(query.get("where_clause")):
            if is_inner(part) <= {True}:
                inner = replace(inner, rows=inner.rows.filter(reader.condition(part)))
                continue
            sides = [part.get("left"), part.get("right")] if part.get("type") == "COMPARE_EQUAL" else []
            ordered = sorted((one for one in sides if one), key=lambda one: is_inner(one) != {False})
            if [is_inner(one) for one in ordered] != [{False}, {True}]:
                raise self._refuse(
                    part, "A condition of EXISTS that reads both queries must compare two columns for equality."
                )
            pairs.append((outer.checked(ordered[0]), reader.checked(ordered[1])))
        return join_on_unit(item, self._context, relation, inner, pairs, "semi" if inside else "anti")

    # ------------------------------------------------------------------ FROM

    def _from(self, node: Node, ctes: dict[str, Relation]) -> Relation:
        """Return the rows of a FROM clause."""
        kind = node["type"]
        if node.get("sample"):
            raise self._refuse(node, "A sample depends on which other rows exist; sample before the data is loaded.")
        if kind == "EMPTY":
            return PublicRelation(node, ())
        if kind == "BASE_TABLE":
            return self._table(node, ctes)
        if kind == "SUBQUERY":
            return self._aliased(self.query(node["subquery"]["node"], ctes), node)
        if kind == "JOIN":
            if (found := self._elements(node, ctes)) is not None:
                return found
            return joined(node, self._from(node["left"], ctes), self._from(node["right"], ctes), self._context)
        if kind == "EXPRESSION_LIST":
            return self._constant_table(node, [item for row in node["values"] for item in row])
        if kind == "TABLE_FUNCTION":
            name = fold(node["function"]["function_name"])
            if name not in TABLE_FUNCTIONS:
                raise self._refuse(
                    node["function"],
                    f"{name} could read files or other tables. Register a file with con.register(name, path) and use "
                    "its name.",
                    code="table-function-not-allowed",
                )
            return self._constant_table(node, [child for _, child in arguments(node["function"])])
        if kind == "PIVOT":
            return self._pivot(node, ctes)
        what = "DESCRIBE, SHOW and SUMMARIZE are" if kind == "SHOW_REF" else f"{kind.replace('_', ' ').lower()} is"
        raise self._refuse(node, f"{what} not supported in FROM.")

    def _pivot(self, node: Node, ctes: dict[str, Relation]) -> Relation:
        """Return the rows of a PIVOT, which is about answers or public rows."""
        source = self._from(node["source"], ctes)
        if isinstance(source, PrivateRelation):
            raise self._refuse(
                node,
                "PIVOT of private rows would aggregate them without noise. Ask first, and turn the answers: FROM "
                "(SELECT region, month, dp_count(*) AS n FROM t GROUP BY ALL) PIVOT (sum(n) FOR month IN (1, 2)).",
            )
        return self._aliased(self._public_select(pivot_select(node, source, self._context), source, ctes), node)

    def _elements(self, node: Node, ctes: dict[str, Relation]) -> PrivateRelation | None:
        """Return the rows of `FROM t, unnest(t.tags) AS u(tag)`, or None if a join is something else."""
        right = node["right"]
        if right["type"] != "TABLE_FUNCTION" or fold(right["function"]["function_name"]) != "unnest":
            return None
        given = [child for _, child in arguments(right["function"])]
        if len(given) != 1 or not any(item["class"] == "COLUMN_REF" for item in walk(given[0])):
            return None
        left = self._from(node["left"], ctes)
        if not isinstance(left, PrivateRelation):
            return None
        if node["ref_type"] != "CROSS" or right.get("with_ordinality") not in (None, "WITHOUT_ORDINALITY"):
            raise self._refuse(node, "Write FROM t, unnest(t.tags) AS u(tag), and conditions on its rows in WHERE.")
        alias = right.get("alias") or "unnest"
        shown = str((right.get("column_name_alias") or ["unnest"])[0])
        return unnested(right, given[0], left, self._context, alias, shown)

    def _table(self, node: Node, ctes: dict[str, Relation]) -> Relation:
        path = path_of(node)
        if node.get("at_clause"):
            raise self._refuse(node, "AT (time travel) is not supported.")
        if len(path) == 1 and fold(path[0]) in ctes:
            return self._aliased(ctes[fold(path[0])], {**node, "alias": node["alias"] or path[0]})
        facts = schema_query(path, self._context.catalog, self._context.parser)
        if facts is not None:
            return self._aliased(PublicRelation(facts, ()), {**node, "alias": node["alias"] or path[-1]})
        definition = self._context.catalog.view_query(path)
        if definition is not None:
            return self._aliased(self._view(".".join(path), definition), {**node, "alias": node["alias"] or path[-1]})
        return table_relation(node, self._context)

    def _view(self, name: str, definition: Node) -> Relation:
        """Return the rows of a view, which is read like a subquery. Nobody has to vouch for its unit then."""
        if fold(name) in self._views:
            raise StatementNotAllowed(f"The view {name} selects from itself.")
        self._views.append(fold(name))
        try:
            found = self.query(definition, {})
        except DPError as refusal:
            raise StatementNotAllowed(
                f"{name} is a view, and what it does to private rows can't be checked: {refusal} If each of its rows "
                "is computed from the rows of one unit, declare that unit with con.private(view, unit=...). If it has "
                "no personal data, declare the view public with con.public(view).",
                code="view-unit-missing",
            ) from None
        finally:
            self._views.pop()
        if isinstance(found, PublicRelation) and found.released:
            raise StatementNotAllowed(f"The view {name} has private aggregates, which only a statement may have.")
        return found

    def _constant_table(self, node: Node, items: list[Node]) -> PublicRelation:
        """Return the rows of VALUES or of a table function, whose expressions may not read anything."""
        for item in items:
            if any(inner["class"] == "SUBQUERY" for inner in walk(item)):
                raise self._refuse(item, "A subquery inside an expression is not supported here.")
            check_expression(item, self._context.scope())
        columns = self._context.catalog.columns(select_all(node))
        return PublicRelation(node, (ScopeTable.public(node.get("alias") or "", columns),))

    def _aliased(self, inner: Relation, node: Node) -> Relation:
        """Return the rows of a subquery under the alias that `node` gives it."""
        names = [str(name) for name in node.get("column_name_alias") or []]
        self._unnamed += 1
        alias = node.get("alias") or f"{_UNNAMED}{self._unnamed}"
        if isinstance(inner, PrivateRelation):
            if names:
                raise self._refuse(
                    node, "Column names after an alias of private rows are not supported; name the columns inside."
                )
            (table,) = inner.tables
            return replace(inner, tables=(ScopeTable(alias, table.columns),))
        columns = list(inner.tables[0].columns) if inner.released else self._context.catalog.columns(inner.node)
        if len(names) > len(columns):
            raise self._refuse(node, f"{alias} lists more names than the subquery has columns.")
        table = ScopeTable.public(alias, [*names, *columns[len(names) :]])
        return replace(inner, node=subquery(inner.node, alias, names), tables=(table,))

    # ------------------------------------------------------------------ a private aggregation

    def _aggregation(
        self, node: Node, relation: PrivateRelation, ctes: dict[str, Relation], *, top: bool
    ) -> PublicRelation:
        """Cut a SELECT with private aggregates: add its queries to `aggregations`, and return the SELECT above them."""
        scope, reader = self._context.scope(*relation.tables), self._context.reader(*relation.tables)
        check_shared_aliases(node, scope)
        node = qualified(without_lateral_aliases(node, scope), scope)
        if node.get("sample"):
            raise self._refuse(node, "A sample depends on which other rows exist.")
        node = self._with_public_lists(self._counting_units(node, relation, scope), ctes)
        if has_grouping_sets(node):
            return self._in_sets(node, relation, ctes, top=top)
        node, ends = with_ends(node, self._context, self._intervals if top else _of_inner(self._intervals))
        keys = self._keys(node, relation, scope, reader)
        columns = _key_columns(keys, aliases_of(node))
        nodes = {canonical(item): item for item in _private_calls(node)}
        context = self._context
        calls = [call_of(item, context.parser, context.parameters, context.sql) for item in nodes.values()]
        answers = _answer_names(node, list(nodes), columns, scope, ends)
        named = {canonical(item): item["alias"] for item in node["select_list"]}
        taken = [alias for alias, item in aliases_of(node).items() if not _is_named(item, ends, named)]
        shown = _end_columns(ends, dict(zip(nodes, answers, strict=True)), [*columns, *answers, *taken])
        trees = self._values(calls, relation, reader)
        rows = relation.rows
        for predicate in conditions(node, reader, scope):
            rows = rows.filter(predicate)
        queries = []
        for numbers in _together(calls):
            where = calls[numbers[0]].where
            query_rows = rows if where is None else rows.filter(condition(where, node, reader, scope))
            together = [(calls[number], answers[number]) for number in numbers]
            query = _query(together, replace(relation, rows=query_rows), keys, trees)
            of_query = tuple(end for end in shown.values() if end[0] in query.answers)
            queries.append(replace(query, ends=of_query, confidence=ends.confidence if of_query else None))
        table = f"dp_released_{len(self.aggregations)}"
        self.aggregations.append(Aggregation(table, tuple(queries), columns))
        released = {text: column(table, answer) for text, answer in zip(nodes, answers, strict=True)}
        released |= {text: column(table, end) for text, (_, _, end) in shown.items()}
        for key, name in zip(keys, columns, strict=True):
            released[canonical(key.node)] = self._shown_key(key, table, name)
        above = self._above(node, table, released, keys, ctes)
        return PublicRelation(above, (_output(above, relation),), relation.sources, released=True)

    def _with_public_lists(self, node: Node, ctes: dict[str, Relation]) -> Node:
        """Replace queries of public rows behind `keys :=` and `candidates :=` by the values that they list."""
        listed: dict[str, str] = {}

        def value_of(item: Node) -> Node | None:
            if item.get("subquery_type") != "SCALAR":
                return None
            text = canonical(item)
            if text not in listed:
                listed[text] = unused_name("listed", self._context.parameters)
                parameters = {**self._context.parameters, listed[text]: self._public_values(item, ctes)}
                self._context = replace(self._context, parameters=parameters)
            taken = {"class": "PARAMETER", "type": "VALUE_PARAMETER", "identifier": listed[text]}
            return {**taken, "alias": item.get("alias", ""), "query_location": item.get("query_location")}

        def change(item: Node) -> Node | None:
            if not is_private_call(item):
                return None
            given = [
                {**argument, "expression": replaced(argument["expression"], value_of)}
                if fold(argument["name"]) in ("keys", "candidates")
                else argument
                for argument in item["arguments"]
            ]
            return {**item, "arguments": given}

        if not any(item["class"] == "SUBQUERY" for call in _private_calls(node) for item in walk(call)):
            return node
        places = {name: node[name] for name in ("select_list", "having", "qualify", "modifiers") if node.get(name)}
        return {**node, **replaced(places, change)}

    def _public_values(self, item: Node, ctes: dict[str, Relation]) -> list[Any]:
        """Return the rows of a query of public rows: values, or tuples if there are several columns."""
        inner = self.query(item["subquery"]["node"], ctes)
        if isinstance(inner, PrivateRelation) or inner.released:
            raise self._refuse(
                item,
                "A list of keys or candidates is public. It can be read from public tables, but not from private rows "
                "or from answers: con.public(name) is the owner's word that a table is public.",
            )
        frame = self._context.catalog.public_frame(inner.node).unique(maintain_order=True)
        return frame.to_series().to_list() if frame.width == 1 else frame.rows()

    def _counting_units(self, node: Node, relation: PrivateRelation, scope: Scope) -> Node:
        """Replace dp_count_distinct(unit) and dp_count(DISTINCT unit) by dp_count_units(), which means the same."""

        def change(item: Node) -> Node | None:
            if not is_private_call(item) or fold(item["function_name"]) not in ("dp_count_distinct", "dp_count"):
                return None
            distinct = fold(item["function_name"]) == "dp_count_distinct" or item.get("distinct")
            given = [one for one in item["arguments"] if not one["name"]]
            if not distinct or len(given) != 1 or given[0]["expression"]["class"] != "COLUMN_REF":
                return None
            found = scope.column(given[0]["expression"])
            if found is None or not isinstance(found[0], Column) or (found[0].name,) != relation.unit:
                return None
            options = [one for one in item["arguments"] if one["name"]]
            name = "dp_count_units"
            return {
                **item, "function_name": name, "qualified_name": {"path": [name]}, "distinct": False,
                "arguments": options,
            }  # fmt: skip

        names = ("select_list", "having", "qualify", "modifiers")
        return {**node, **{name: replaced(node[name], change) for name in names if node.get(name)}}

    def _in_sets(
        self, node: Node, relation: PrivateRelation, ctes: dict[str, Relation], *, top: bool
    ) -> PublicRelation:
        """Answer a SELECT that groups its rows in several ways."""
        scope = self._context.scope(*relation.tables)
        given = grouping_expressions(node, self._context, node["select_list"], is_aggregate=is_private_call)
        keys = [{**without_aliases(item, aliases_of(node), scope), "alias": ""} for item in given]
        selects = selects_of_sets(node, keys, self._context)
        answers = [self._aggregation(one, relation, ctes, top=top) for one in selects]
        shown = answers[0].tables[0]
        whole = answers_of_sets(node, [one.node for one in answers], list(shown.columns), self._context)
        return PublicRelation(whole, (shown,), relation.sources, released=True)

    def _keys(self, node: Node, relation: PrivateRelation, scope: Scope, reader: Reader) -> list[_GroupingKey]:
        """Return the grouping keys, with names that differ from each other and from those of the unit."""
        items = node["select_list"]
        given = grouping_expressions(node, self._context, items, is_aggregate=is_private_call)
        expressions = [without_aliases(item, aliases_of(node), scope) for item in given]
        keys: list[_GroupingKey] = []
        for item in expressions:
            tree = self._binned(item, reader.checked(item))
            # The alias is left out: what SELECT calls a column is not part of the query, so it must not change it.
            plain = replaced({**item, "alias": ""}, _without_table)
            name = name_of(plain, one_line(self._text(plain), _LONGEST_NAME))
            of_unit = _is_of_unit(tree, relation)
            if tree.columns & {*relation.unit, *relation.copies} and not of_unit:
                raise self._refuse(
                    item,
                    f"Grouping by {name} reads the unit column: every group would be one person. Group by "
                    "something that many people share. A function of the unit alone, such as an experiment arm, may be "
                    "a key: md5_number_lower(id) % 2, with keys := [0, 1].",
                )
            taken = [key.name for key in keys]
            if fold(name) in map(fold, taken):
                name = f"{name}_{len(keys)}"
            own = unused_name(name, [*relation.table_unit.columns, *taken])
            keys.append(_GroupingKey(own, item, tree, of_unit))
        return keys

    def _binned(self, item: Node, tree: Expression) -> Expression:
        """Return a key. Floats that are whole numbers, such as floor(x / 100) * 100, are counted as integers."""
        if not tree.dtype.is_float():
            return tree
        if is_whole(tree):
            return apply("cast", tree, to=pl.Int64())
        raise self._refuse(
            item,
            f"{self._text({**item, 'alias': ''})} is a float, and floats can't be grouping keys: almost every value "
            "would be a group of its own. Make bins: floor(x / 100) * 100, or round(x).",
        )

    def _shown_key(self, key: _GroupingKey, table: str, name: str) -> Node:
        """Return the column of a key in the released table, with the type that SQL gives it."""
        own = column(table, name)
        tree = key.tree
        if not isinstance(tree, Apply) or tree.operation != "cast" or not tree.arguments[0].dtype.is_float():
            return own
        whole = key.node["class"] == "CAST"  # the user's own cast to an integer
        return own if whole else {**self._context.parser.expression("CAST(x AS DOUBLE)"), "child": own}

    def _values(self, calls: list[Call], relation: PrivateRelation, reader: Reader) -> dict[str, Expression]:
        """Read the expressions that private aggregates are computed from, by their canonical texts."""
        nodes = {canonical(value): value for call in calls for value in call.values}
        trees = {text: reader.checked(value) for text, value in nodes.items()}
        for call in calls:
            if call.chooses and trees[canonical(call.values[0])].columns & {*relation.unit, *relation.copies}:
                raise self._refuse(
                    call.node,
                    f"{call.name} reads the unit column: every candidate would be one person. Choose among values that "
                    "many people share.",
                )
        return trees

    def _above(
        self, node: Node, table: str, released: dict[str, Node], keys: list[_GroupingKey], ctes: dict[str, Relation]
    ) -> Node:
        """Return a SELECT with its keys and private aggregates replaced by columns of the released table."""

        def change(item: Node) -> Node | None:
            found = released.get(canonical(item))
            return None if found is None else {**found, "alias": item.get("alias", "")}

        columns = [reference.get("child", reference)["column_names"][-1] for reference in released.values()]
        scope = self._context.scope(ScopeTable.public(table, [*columns, *map(fold, aliases_of(node))]))

        def raised(item: Node | None) -> Node | None:
            if item is None:
                return None
            changed: Node = replaced(item, change)
            self._check_above(changed, scope, keys)
            return self._with_subqueries(changed, ctes)

        items = []
        for item in node["select_list"]:
            if item["class"] == "STAR":
                raise self._refuse(item, "* would show private rows; list the keys and the private aggregates.")
            shown = raised(item)
            if shown is not None:
                items.append({**shown, "alias": item.get("alias") or name_of(item, "") or self._text(item)})
        modifiers = [changed_modifier(modifier, raised) for modifier in node.get("modifiers", [])]
        self._refuse_aggregates(node.get("having"))
        above = select_node(items, base_table(table), raised(node.get("having")))
        return {**above, "modifiers": modifiers, "qualify": raised(node.get("qualify"))}

    def _refuse_aggregates(self, having: Node | None) -> None:
        """Refuse aggregates of DuckDB in HAVING, which compares released columns."""
        for item in [] if having is None else walk(having):
            if item["class"] == "FUNCTION" and fold(item["function_name"]) in PLAIN_AGGREGATES:
                name = fold(item["function_name"]).replace("count_star", "count(*)")
                raise self._refuse(
                    item,
                    f"HAVING compares released columns, but {name} would read private rows. Write HAVING n > 5 with "
                    "the alias of a private aggregate, or HAVING dp_count(*) > 5.",
                )

    def _check_above(self, node: Node, scope: Scope, keys: list[_GroupingKey]) -> None:
        for item in walk(node):
            if item["class"] == "FUNCTION" and fold(item["function_name"]) == "count_star":
                raise self._refuse(item, "count(*) would count released rows here. Write dp_count(*), or its alias.")
            if item["class"] == "POSITIONAL_REFERENCE":
                raise self._refuse(item, "# with a number is the position of a column; write its name instead.")
            if item["class"] == "COLUMN_REF" and scope.resolve(item) is None:
                asked = f"dp_{fold(item['column_names'][-1])}"
                for function, end in ENDS.items():
                    name = item["column_names"][-1].removesuffix(f"_{end}")
                    if scope.resolve(column(name)) is not None:
                        raise self._refuse(item, f"{name}_{end} is not a column here; select {function}({name}).")
                if asked in CUTS:
                    raise self._refuse(item, f"{asked.removeprefix('dp_')} is not a column here; select {asked}().")
                known = ", ".join(key.name for key in keys) or "none"
                names = item["column_names"]
                shown = names[1:] if names[0].startswith(_UNNAMED) else names
                raise self._refuse(
                    item,
                    f"{'.'.join(shown)} is neither a key ({known}) nor inside a "
                    "private aggregate, so it would show private rows. Add it to GROUP BY or aggregate it.",
                )
        check_expression(node, scope)

    # ------------------------------------------------------------------ public and released rows

    def _public_select(self, node: Node, relation: PublicRelation, ctes: dict[str, Relation]) -> Relation:
        """Check a SELECT over public and released rows, and analyse its subqueries."""
        if node.get("sample"):
            raise self._refuse(node, "A sample differs each time, so the same statement would mean different queries.")
        calls = _private_calls(node)
        if calls:
            raise self._refuse(
                calls[0],
                f"{calls[0]['function_name']} is for private tables; these rows are public or already released.",
            )
        elsewhere = [item for item in _expressions(node) if is_end(item)]
        if elsewhere:
            raise ends_elsewhere(elsewhere[0], self._context)
        scope, before = self._context.scope(*relation.tables), len(self.aggregations)
        changed = {**node, "from_table": relation.node, "cte_map": {"map": []}}
        inside = self._context.scope(*relation.tables, ScopeTable.public("", aliases_of(node)))
        for name in ("where_clause", "having", "qualify"):
            if node.get(name):
                check_expression(node[name], inside)
                changed[name] = self._with_subqueries(node[name], ctes)
        for item in node.get("group_expressions", []):
            check_expression(item, inside)
        earlier: list[str] = []
        for item in node["select_list"]:  # an alias may be used in the items after it
            check_expression(item, replace(scope, tables=(*scope.tables, ScopeTable.public("", earlier))))
            earlier += [item["alias"]] if item.get("alias") else []
        changed["group_expressions"] = [self._with_subqueries(item, ctes) for item in node.get("group_expressions", [])]
        changed["select_list"] = [self._named(item, ctes) for item in node["select_list"]]
        changed["modifiers"] = self._public_modifiers(node, inside, ctes)
        released = relation.released or len(self.aggregations) > before
        tables = (_output(node, relation),) if released else relation.tables
        return PublicRelation(changed, tables, relation.sources, released)

    def _named(self, item: Node, ctes: dict[str, Relation]) -> Node:
        """Give an item of SELECT the name that DuckDB would derive from its original text."""
        changed = self._with_subqueries(item, ctes)
        if item.get("alias") or item["class"] in ("COLUMN_REF", "STAR"):
            return changed
        return {**changed, "alias": self._text(item)}

    def _text(self, item: Node) -> str:
        """Write an expression as text."""
        empty = {"type": "EMPTY", "alias": "", "sample": None}
        return self._context.parser.text(without_places(select_node([item], empty))).removeprefix("SELECT ")

    def _public_modifiers(self, node: Node, scope: Scope, ctes: dict[str, Relation]) -> list[Node]:
        for modifier in node.get("modifiers", []):
            for item in modifier_expressions(modifier):
                check_expression(item, scope)
        return [
            changed_modifier(modifier, lambda item: self._with_subqueries(item, ctes))
            for modifier in node.get("modifiers", [])
        ]

    def _with_subqueries(self, node: Node, ctes: dict[str, Relation]) -> Node:
        """Analyse the subqueries of an expression, and put the results in their place. None may give private rows."""

        def change(item: Node) -> Node | None:
            if item["class"] != "SUBQUERY":
                return None
            inner = self.query(item["subquery"]["node"], ctes)
            if isinstance(inner, PrivateRelation):
                raise self._refuse(item, "A subquery over a private table would show its rows.")
            rest = {name: replaced(part, change) for name, part in item.items() if name != "subquery"}
            return {**rest, "subquery": {**item["subquery"], "node": inner.node}}

        changed: Node = replaced(node, change)
        return changed


def _without_table(item: Node) -> Node | None:
    """Return a column without the name of its table, as most people write it."""
    return {**item, "column_names": item["column_names"][-1:]} if item.get("class") == "COLUMN_REF" else None


def _is_of_unit(tree: Expression, relation: PrivateRelation) -> bool:
    """Return whether a key is a function of the unit alone, and not the whole unit.

    What one unit can change: the one group that its key names, whichever other units there are. That it has one group
    only is enforced like every cap, and the keys must be public, so that no group tells who is there.
    """
    whole = isinstance(tree, Column) and len(relation.unit) == 1
    return bool(tree.columns) and tree.columns <= set(relation.unit) and not whole


def _without_nulls(relation: PrivateRelation, trees: list[Expression]) -> PrivateRelation:
    """Return the rows in which no expression is null: whether a null is in a list is unknown."""
    rows = relation.rows
    for tree in trees:
        rows = rows.filter(apply("is_not_null", tree))
    return replace(relation, rows=rows)


def _with_names(node: Node) -> Node:
    """Give the items of a SELECT in a UNION names, which only those of the first SELECT need."""
    if node["type"] != "SELECT_NODE":
        return node
    items = [
        item if item["class"] == "STAR" or name_of(item, "") else {**item, "alias": f"column{number}"}
        for number, item in enumerate(node["select_list"])
    ]
    return {**node, "select_list": items}


def _private_calls(node: Node) -> list[Node]:
    """Return the private aggregates in SELECT, HAVING, QUALIFY, ORDER BY and LIMIT."""
    return [item for item in _expressions(node) if is_private_call(item)]


def _expressions(node: Node) -> list[Node]:
    """Return all expressions in SELECT, HAVING, QUALIFY, ORDER BY and LIMIT, including those inside others."""
    places = [*node["select_list"], node.get("having"), node.get("qualify")]
    places += [item for modifier in node.get("modifiers", []) for item in modifier_expressions(modifier)]
    return [item for root in places if root for item in walk(root)]


def _of_inner(intervals: WantedIntervals | None) -> WantedIntervals | None:
    """Return what a statement says about intervals, for a SELECT that gets no columns beyond those that it names."""
    return None if intervals is None else replace(intervals, expand=False)


def _answer_names(node: Node, calls: list[str], keys: Sequence[str], scope: Scope, ends: IntervalEnds) -> list[str]:
    """Return the column of each private call in the released frame, which plans, notes and reports show.

    A call that is an item of SELECT by itself has its alias there, unless the alias could mean anything else: a column
    of the tables, another item, or what only looks like an end of its interval.
    """
    aliases = {canonical(item): item["alias"] for item in reversed(node["select_list"]) if item.get("alias")}
    taken = [
        fold(item["alias"]) for item in node["select_list"] if item.get("alias") and not _is_named(item, ends, aliases)
    ]
    others = {fold(name) for name in [*keys, *(column for table in scope.tables for column in table.columns)]}
    names: list[str] = []
    for number, text in enumerate(calls):
        alias = aliases.get(text, "")
        folded = fold(alias)
        clear = _PLAIN_ALIAS.fullmatch(alias) and folded not in others and taken.count(folded) == 1
        if clear and not any(name.startswith(f"{folded}_") for name in (*taken, *others)):
            names.append(alias)
        else:
            names.append(unused_name(f"answer_{number}", [*keys, *aliases_of(node)]))
    return names


def _is_named(item: Node, ends: IntervalEnds, aliases: dict[str, str]) -> bool:
    """Tell whether an item is an end of an interval with the name that the released frame gives it, such as n_low."""
    call, end = ends.columns.get(canonical(item), ("", ""))
    return call in aliases and item["alias"] == f"{aliases[call]}_{end}"


def _end_columns(ends: IntervalEnds, answers: dict[str, str], taken: list[str]) -> dict[str, tuple[str, str, str]]:
    """Return, for each end of an interval, the column of its answer, which end it is, and its own column."""
    found: dict[str, tuple[str, str, str]] = {}
    for text, (call, end) in ends.columns.items():
        names = [*taken, *(name for _, _, name in found.values())]
        found[text] = answers[call], end, unused_name(f"{answers[call]}_{end}", names)
    return found


def _together(calls: list[Call]) -> list[list[int]]:
    """Group the numbers of calls that share a query: those with the same FILTER and no spend of their own.

    A call with its own spend is a query by itself, and so is a choice. A count of what is cut off joins the query that
    it is about: the one with the same FILTER and no spend of its own, or the only one with the same FILTER.
    """
    groups: dict[tuple[str, int], list[int]] = {}
    for number, call in enumerate(calls):
        alone = call.spends or call.chooses
        if not call.counts_cut:
            groups.setdefault((_rows(call), number if alone else -1), []).append(number)
    for number, call in enumerate(calls):
        if call.counts_cut:
            others = [key for key, numbers in groups.items() if key[0] == _rows(call) and not calls[numbers[0]].chooses]
            group = others[0] if len(others) == 1 else (_rows(call), -1)
            groups.setdefault(group, []).append(number)
    return list(groups.values())


def _rows(call: Call) -> str:
    """Return a text that tells which rows a call is about."""
    return "" if call.where is None else canonical(call.where)


def _key_columns(keys: list[_GroupingKey], aliases: dict[str, Node]) -> tuple[str, ...]:
    """Return the columns of the keys in the released table.

    A key keeps its name unless SELECT gives that name to something else. HAVING and QUALIFY could then mean either one.
    """
    columns: list[str] = []
    for key in keys:
        others = [name for name, item in aliases.items() if canonical(item) != canonical(key.node)]
        columns.append(unused_name(key.name, [*others, *columns]))
    return tuple(columns)


def _query(
    calls: list[tuple[Call, str]], relation: PrivateRelation, keys: list[_GroupingKey], trees: dict[str, Expression]
) -> SqlQuery:
    """Return one query for calls over the same rows, each given with the column of its answer."""
    schema = relation.rows.schema
    units = zip(relation.table_unit.columns, relation.unit, strict=True)
    made: dict[str, Expression] = {shown: Column(name, schema[name]) for shown, name in units}
    made |= {key.name: key.tree for key in keys}
    names: dict[str, str] = {}
    for value in [value for call, _ in calls for value in call.values]:
        text = canonical(value)
        if text not in names:
            shown = str(value["column_names"][-1]) if value["class"] == "COLUMN_REF" else "value"
            names[text] = unused_name(shown, made)
            made[names[text]] = trees[text]
    return SqlQuery(
        calls=tuple(call for call, _ in calls),
        values=tuple(tuple(names[canonical(value)] for value in call.values) for call, _ in calls),
        answers=tuple(answer for _, answer in calls),
        rows=with_units(relation.rows, relation.unit).make(made, keep=False),
        unit=relation.table_unit.columns,
        table_unit=relation.table_unit,
        keys=tuple(key.name for key in keys),
        unit_keys=tuple(key.name for key in keys if key.of_unit),
        sources=relation.sources,
        declared=relation.declared,
    )


def _output(node: Node, relation: Relation) -> ScopeTable:
    """Return the output columns of a SELECT over released rows."""
    columns: list[str] = []
    for item in node["select_list"]:
        if item["class"] == "STAR":
            columns += [name for table in relation.tables for name in table.columns]
        else:
            columns.append(name_of(item, f"column{len(set(columns))}"))
    return ScopeTable.public("", columns)
