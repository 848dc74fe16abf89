"""SELECT over private rows that stay private: row by row, or within a unit.

GROUP BY with the unit among its keys, windows with PARTITION BY the unit, QUALIFY and SELECT DISTINCT with the unit
combine rows of one unit only. `_engines.unit_steps` says what one unit can change, and checks every question once more.
A SELECT is split into stages, in the order in which SQL computes them: WHERE, groups, HAVING, windows,
QUALIFY, the list of SELECT, DISTINCT. Each stage gives columns their meaning for the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from dp_polars._engines.rows import OWN, PrivateRows
from dp_polars._engines.unit_steps import AddWindows, GroupRows, KeepFirst, UnnestRows
from dp_polars._expressions import Column, Expression
from dp_polars._expressions.unit_functions import SortColumn
from dp_polars._sql.allowed_functions import PRIVATE
from dp_polars._sql.expressions import ROWWISE, Reader
from dp_polars._sql.relations import Context, PrivateRelation, conditions, projected, unit_step
from dp_polars._sql.scope import (
    ScopeTable,
    aliases_of,
    name_of,
    qualified,
    unused_name,
    without_aliases,
    without_lateral_aliases,
)
from dp_polars._sql.syntax_tree import Node, arguments, canonical, column, fold, modifier_expressions, replaced, walk
from dp_polars._sql.unit_functions import AGGREGATES, UnitCalls

_GROUPS, _WINDOWS, _ELEMENTS = (f"{OWN}{name}" for name in ("groups", "windows", "elements"))
"""The names of tables in scope that hold what a stage computed. No user can write them."""

_PRIVATE = {
    "count": "dp_count(x), dp_count_distinct(x)", "count_star": "dp_count(*)", "sum": "dp_sum(x, 0, 100)",
    "avg": "dp_avg(x, 0, 100)", "mean": "dp_avg(x, 0, 100)", "median": "dp_median(x, 0, 100)",
    "min": "dp_min(x, 0, 100)", "max": "dp_max(x, 0, 100)",
}  # fmt: skip
"""The private aggregate to use in place of an ordinary one."""


def selected(node: Node, relation: PrivateRelation, context: Context) -> PrivateRelation:
    """Apply a SELECT without private aggregates to private rows."""
    return _UnitSelect(relation, context).apply(node)


def unnested(
    node: Node, given: Node, relation: PrivateRelation, context: Context, alias: str, shown: str
) -> PrivateRelation:
    """Return private rows with a row for each element of a list, and the elements as a column of a further table.

    What one unit can change is said in `UnnestRows`: a row becomes up to a hundred rows of the same unit.
    """
    tree = context.reader(*relation.tables).checked(given)
    if not isinstance(tree.dtype, pl.List):
        raise context.refuse(
            node,
            f"unnest makes rows of the elements of a list, but this has the type {tree.dtype}. For a field of a struct "
            "write x.field, for a text unnest(string_split(x, ',')).",
        )
    rows = relation.rows
    if isinstance(tree, Column):
        listed = tree.name
    else:
        listed = unused_name("elements", rows.schema)
        rows = rows.make({listed: tree})
    name = unused_name(shown, rows.schema)
    rows = unit_step(node, context, UnnestRows(listed, name), replace(relation, rows=rows))
    table = ScopeTable(alias, {shown: Column(name, rows.schema[name])})
    return replace(relation, rows=rows, tables=(*relation.tables, table))


def without_unnest(node: Node, relation: PrivateRelation, context: Context) -> tuple[Node, PrivateRelation]:
    """Carry out unnest(x) in the list of a SELECT, which may then filter and compute row by row."""
    calls = [item for root in _UnitSelect._places(node) for item in walk(root) if _is_unnest(item)]
    if not calls:
        return node, relation
    roots = [item for item in node["select_list"] if _is_unnest(item)]
    given = [child for _, child in arguments(calls[0])]
    grouped = node["group_expressions"] or node["group_sets"] or node.get("modifiers") or node.get("qualify")
    if len(calls) > 1 or len(roots) != 1 or len(given) != 1 or grouped:
        raise context.refuse(
            calls[0],
            "unnest(x) stands by itself, once, in a SELECT over private rows: SELECT user_id, unnest(tags) AS tag FROM "
            "visits. Put this into a subquery, and group or compute around it.",
        )
    shown = roots[0].get("alias") or "unnest"
    if shown in aliases_of({**node, "select_list": [item for item in node["select_list"] if item is not roots[0]]}):
        raise context.refuse(roots[0], f"{shown} is the alias of two columns of this SELECT.")
    relation = unnested(roots[0], given[0], relation, context, _ELEMENTS, shown)
    taken = {**column(_ELEMENTS, shown), "alias": shown}
    return {**node, "select_list": [taken if item is roots[0] else item for item in node["select_list"]]}, relation


def _is_unnest(item: Node) -> bool:
    return item.get("class") == "FUNCTION" and fold(item["function_name"]) == "unnest"


def grouping_expressions(node: Node, context: Context, items: Sequence[Node], *, is_aggregate: Any) -> list[Node]:
    """Return the expressions of GROUP BY, where numbers, aliases and ALL are replaced by what they stand for."""
    if node.get("aggregate_handling") == "FORCE_AGGREGATES":  # GROUP BY ALL
        return [item for item in items if not any(is_aggregate(one) for one in walk(item))]
    return [_by_position(item, items, context) for item in node.get("group_expressions", [])]


def _by_position(item: Node, items: Sequence[Node], context: Context) -> Node:
    """Return the item of SELECT that a number in GROUP BY stands for."""
    if item["class"] != "CONSTANT":
        return item
    number = context.parser.value(item, {})
    if not isinstance(number, int) or not 1 <= number <= len(items):
        raise context.refuse(item, "A number in GROUP BY must be the position of a column in SELECT.")
    return items[number - 1]


def _is_aggregate(item: Node) -> bool:
    return item.get("class") == "FUNCTION" and fold(item["function_name"]) in AGGREGATES


def _is_window(item: Node) -> bool:
    return item.get("class") == "WINDOW"


class _UnitSelect:
    """One SELECT over private rows, and how far its stages have come."""

    def __init__(self, relation: PrivateRelation, context: Context) -> None:
        self._relation, self._context, self._refuse = relation, context, context.refuse

    def apply(self, node: Node) -> PrivateRelation:
        scope = self._context.scope(*self._relation.tables)
        node = without_lateral_aliases(node, scope)
        grouped = bool(node["group_expressions"] or node["group_sets"] or node.get("having"))
        every = [item for root in self._places(node) for item in walk(root)]
        grouped = grouped or node.get("aggregate_handling") == "FORCE_AGGREGATES" or any(map(_is_aggregate, every))
        distinct = self._distinct(node)
        plain = {**node, "modifiers": []}
        if not (grouped or distinct or node.get("qualify") or any(map(_is_window, every))):
            return projected(plain, self._relation, self._reader(), scope)
        if node.get("sample"):
            raise self._refuse(node, "A sample depends on which other rows exist.")
        if self._relation.rows_are_units:
            self._refuse_rows(node)
        node = self._with_aliases(qualified(node, scope))
        rows = self._relation.rows
        for one in conditions(node, self._reader(), scope):
            rows = rows.filter(one)
        self._relation = replace(self._relation, rows=rows)
        node = {**node, "where_clause": None}
        if grouped:
            node = self._grouped(node)
        if node.get("qualify") and not any(map(_is_window, walk(node["qualify"]))):
            raise self._refuse(node["qualify"], "QUALIFY is a condition on a window function; write WHERE or HAVING.")
        if any(_is_window(item) for root in self._places(node) for item in walk(root)):
            node = self._windowed(node)
        if node.get("qualify"):
            self._filter(node["qualify"])
        targets = [] if distinct is None else self._modifier(node, "DISTINCT_MODIFIER").get("distinct_on_targets", [])
        if targets:
            self._first_rows(node, targets)
        done = {**node, "modifiers": [], "qualify": None, "having": None, "group_expressions": [], "group_sets": []}
        self._relation = projected(done, self._relation, self._reader(), self._context.scope(*self._relation.tables))
        if distinct is not None and not targets:
            self._unique(node)
        return self._relation

    def _refuse_rows(self, node: Node) -> None:
        raise self._refuse(
            node,
            "In this session every row is a person of its own (unit=dp.ROW), so there are no rows of one unit to "
            "combine, and GROUP BY, DISTINCT and windows below a private aggregate show which groups exist. Open a "
            "session whose unit is a column.",
            code="unit-step-of-rows",
        )

    def _reader(self) -> Reader:
        return self._context.reader(*self._relation.tables)

    def _filter(self, item: Node) -> None:
        self._relation = replace(self._relation, rows=self._relation.rows.filter(self._reader().condition(item)))

    @staticmethod
    def _places(node: Node) -> list[Node]:
        """Return the roots of the expressions in which aggregates and windows may stand."""
        places = [*node["select_list"], node.get("having"), node.get("qualify")]
        places += [item for modifier in node.get("modifiers", []) for item in modifier_expressions(modifier)]
        return [one for one in places if one]

    # ------------------------------------------------------------------ clauses and names

    def _distinct(self, node: Node) -> Node | None:
        """Return the DISTINCT of a SELECT, and refuse other clauses that look at the order or number of rows."""
        found = [one for one in node.get("modifiers", []) if one["type"] == "DISTINCT_MODIFIER"]
        chooses = found and found[0].get("distinct_on_targets")
        for modifier in node.get("modifiers", []):
            if modifier["type"] == "DISTINCT_MODIFIER" or (chooses and modifier["type"] == "ORDER_MODIFIER"):
                continue
            kind = modifier["type"].replace("_MODIFIER", "").replace("_", " ")
            raise self._refuse(
                node,
                f"{kind} below a private aggregation makes rows depend on each other; move it above the aggregation. "
                "The first rows of each unit are QUALIFY row_number() OVER (PARTITION BY ... ORDER BY ...) <= 3.",
            )
        return found[0] if found else None

    @staticmethod
    def _modifier(node: Node, kind: str) -> Node:
        return next((one for one in node.get("modifiers", []) if one["type"] == kind), {})

    def _with_aliases(self, node: Node) -> Node:
        """Give every item of SELECT its name, and replace aliases in the other clauses by their items."""
        scope = self._context.scope(*self._relation.tables)
        aliases = {fold(name): item for name, item in aliases_of(node).items()}

        def change(item: Node) -> Node | None:  # columns have been written with their tables before
            if item["class"] != "COLUMN_REF" or len(item["column_names"]) > 1:
                return None
            found = aliases.get(fold(item["column_names"][0]))
            return None if found is None else {**found, "alias": ""}

        items = node["select_list"]
        keys = grouping_expressions(node, self._context, items, is_aggregate=_is_aggregate)
        changed = {name: replaced(node[name], change) for name in ("having", "qualify", "modifiers") if node.get(name)}
        changed["group_expressions"] = [
            {**without_aliases(item, aliases_of(node), scope), "alias": ""} for item in keys
        ]
        changed["select_list"] = [
            item if item["class"] == "STAR" else {**item, "alias": name_of(item, "") or self._shown(item)}
            for item in items
        ]
        return {**node, **changed}

    def _shown(self, item: Node) -> str:
        """Return a name for an item without one, as DuckDB makes it from a call."""
        name = fold(item.get("function_name") or "")
        return "count_star()" if name == "count_star" else name

    # ------------------------------------------------------------------ groups

    def _grouped(self, node: Node) -> Node:
        """Replace the rows of each unit and key by one row."""
        relation, sets = self._relation, node.get("group_sets") or []
        if len(sets) > 1 or (sets and len(sets[0]) != len(node["group_expressions"])):
            raise self._refuse(node, "GROUPING SETS, ROLLUP and CUBE are not supported within a unit.")
        calls = UnitCalls(self._reader(), relation.rows.schema)
        keys: dict[str, str] = {}
        for item in node["group_expressions"]:
            if any(_is_aggregate(one) for one in walk(item)):
                raise self._refuse(item, "GROUP BY can't contain an aggregate.")
            shown = next((one["alias"] for one in node["select_list"] if canonical(one) == canonical(item)), "key")
            keys[canonical(item)] = calls.column(calls.reader.checked(item), shown)
        if not keys:
            self._refuse_all_rows(node)
        self._check_unit(node, keys.values(), "GROUP BY")
        results: dict[str, Expression] = {}

        def change(item: Node) -> Node | None:
            text = canonical(item)
            if text in keys:
                return {**column(_GROUPS, keys[text]), "alias": item.get("alias", ""), **_place(item)}
            if not _is_aggregate(item):
                return None
            made = calls.aggregate(item)
            name = next((name for name, other in results.items() if other == made), "")
            if not name:
                taken = [*calls.given, *calls.arguments, *calls.values, *results]
                name = unused_name(fold(item["function_name"]), taken)
                results[name] = made
            return {**column(_GROUPS, name), "alias": item.get("alias", ""), **_place(item)}

        changed = self._changed(node, change)
        for root in self._places(changed):
            self._check_aggregated(root)
        names = tuple(dict.fromkeys(keys.values()))
        before = replace(relation, rows=relation.rows.make(calls.arguments) if calls.arguments else relation.rows)
        rows = unit_step(node, self._context, GroupRows(names, tuple(calls.values.items())), before)
        rows = rows.make(results) if results else rows
        schema = rows.schema
        table = ScopeTable(_GROUPS, {name: Column(name, schema[name]) for name in (*names, *results)})
        labels = {name: own for name, own in relation.labels.items() if name in names}
        self._relation = replace(relation, rows=rows, tables=(table,), labels=labels)
        if changed.get("having"):
            self._filter(changed["having"])
        return {**changed, "group_expressions": [], "group_sets": [], "having": None}

    def _refuse_all_rows(self, node: Node) -> None:
        """Refuse an aggregate without GROUP BY, by its name."""
        calls = [item for root in self._places(node) for item in walk(root) if _is_aggregate(item)]
        name = fold(calls[0]["function_name"]) if calls else "HAVING"
        units = ", ".join(self._relation.table_unit.columns)
        raise self._refuse(
            calls[0] if calls else node,
            f"{'count(*)' if name == 'count_star' else name} combines the rows of all people, which only private "
            f"aggregates may do: {_PRIVATE.get(name, 'dp_count(*), dp_sum(x, 0, 100)')}. For a value of each person, "
            f"add GROUP BY {units}.",
            code="unit-step-without-unit",
        )

    def _check_aggregated(self, root: Node) -> None:
        for item in walk(root):
            if item["class"] == "STAR" and item is root:
                raise self._refuse(item, "* in a SELECT with GROUP BY stands for columns that are not keys; list them.")
            if item["class"] == "FUNCTION" and fold(item["function_name"]) not in ROWWISE:
                self._reader().read_function(item)  # says that there is no such function
            if item["class"] == "COLUMN_REF" and item["column_names"][0] != _GROUPS:
                name = item["column_names"][-1]
                raise self._refuse(
                    item,
                    f"{name} is neither a key of GROUP BY nor inside an aggregate. Add it to GROUP BY, or say which "
                    f"value: max({name}), any_value({name}).",
                )

    def _check_unit(self, node: Node, names: Iterable[str], what: str) -> None:
        missing = [shown for shown, own in self._units() if own not in set(names)]
        if missing:
            raise self._refuse(
                node,
                f"{what} without {', '.join(missing)} combines rows of several people below a private aggregate, and "
                f"shows which groups exist. Name {', '.join(missing)} in {what} too, so that the rows of each person "
                "stay apart, or ask private aggregates: dp_count(*), dp_sum(x, 0, 100).",
                code="unit-step-without-unit",
            )

    def _units(self) -> list[tuple[str, str]]:
        """Return the unit columns: what the table calls them, and their names in the rows."""
        return list(zip(self._relation.table_unit.columns, self._relation.unit, strict=True))

    def _changed(self, node: Node, change: Any) -> Node:
        """Replace expressions in SELECT, HAVING, QUALIFY and DISTINCT ON."""
        names = ("select_list", "having", "qualify", "modifiers")
        return {**node, **{name: replaced(node[name], change) for name in names if node.get(name)}}

    # ------------------------------------------------------------------ windows

    def _windowed(self, node: Node) -> Node:
        """Add the columns of windows to the rows."""
        relation = self._needed(node)
        windows = {
            canonical(item): item for root in self._places(node) for item in walk(root) if _is_window(item)
        }  # fmt: skip
        rows, results = relation.rows, dict[str, Expression]()
        places: dict[str, str] = {}
        groups: dict[tuple[str, ...], list[Node]] = {}
        partitions = UnitCalls(self._reader(), rows.schema)
        for text, item in windows.items():
            if fold(item["function_name"]) in PRIVATE:
                raise self._refuse(item, f"{fold(item['function_name'])} is not a window function; use GROUP BY.")
            names = [partitions.column(partitions.reader.checked(one)) for one in item["partitions"]]
            self._check_unit(item, names, "PARTITION BY")
            groups.setdefault(tuple(sorted(set(names))), []).append(item)
            places[text] = unused_name(fold(item["function_name"]), [*rows.schema, *places.values()])
        rows = rows.make(partitions.arguments) if partitions.arguments else rows
        for partition, items in groups.items():
            calls = UnitCalls(self._reader(), rows.schema)
            found = [(item, *calls.window(item)) for item in items]
            rows = rows.make(calls.arguments) if calls.arguments else rows
            rows = unit_step(
                node, self._context, AddWindows(partition, tuple(calls.values.items())), replace(relation, rows=rows)
            )
            for item, made, of_ties in found:
                name = places[canonical(item)]
                if of_ties is None:
                    results[name] = made
                else:
                    rows, results[name] = self._with_ties(node, item, calls, rows, made, partition)
        rows = rows.make(results)
        schema = rows.schema
        table = ScopeTable(_WINDOWS, {name: Column(name, schema[name]) for name in results})
        self._relation = replace(relation, rows=rows, tables=(*relation.tables, table))

        def change(item: Node) -> Node | None:
            if not _is_window(item):
                return None
            return {**column(_WINDOWS, places[canonical(item)]), "alias": item.get("alias", ""), **_place(item)}

        return self._changed(node, change)

    def _with_ties(
        self, node: Node, item: Node, calls: UnitCalls, rows: PrivateRows, made: Expression, partition: tuple[str, ...]
    ) -> tuple[PrivateRows, Expression]:
        """Return rows in which all that tie in a window's order have the running value of the last of them."""
        order = calls.order(item["orders"])
        count = unused_name("running_place", rows.schema)
        own = unused_name("running", [*rows.schema, count])
        number = UnitCalls(self._reader(), rows.schema)
        place = number.value("row_number", None, order)
        rows = unit_step(
            node, self._context, AddWindows(partition, tuple(number.values.items())), replace(self._relation, rows=rows)
        )
        rows = rows.make({own: made, count: place})
        last = UnitCalls(self._reader(), rows.schema)
        value = last.value("last", Column(own, made.dtype), (SortColumn(count),))
        ties = tuple(dict.fromkeys([*partition, *(one.name for one in order)]))
        rows = unit_step(
            node, self._context, AddWindows(ties, tuple(last.values.items())), replace(self._relation, rows=rows)
        )
        return rows, value

    def _needed(self, node: Node) -> PrivateRelation:
        """Return the relation with the columns that the SELECT reads. Rows that tie are sorted by these."""
        relation, scope = self._relation, self._context.scope(*self._relation.tables)
        roots = self._places(node)
        wanted = set(relation.unit)
        for item in [one for root in roots for one in walk(root)]:
            if item["class"] == "STAR":
                tables = relation.tables
                wanted |= {one.name for table in tables for one in table.columns.values() if isinstance(one, Column)}
            elif item["class"] == "COLUMN_REF" and (found := scope.column(item)) and isinstance(found[0], Column):
                wanted.add(found[0].name)
        kept = [name for name in relation.rows.schema if name in wanted]
        labels = {name: own for name, own in relation.labels.items() if name in wanted}
        return replace(relation, rows=relation.rows.keep(kept), labels=labels)

    # ------------------------------------------------------------------ distinct rows

    def _first_rows(self, node: Node, targets: Sequence[Node]) -> None:
        """Apply DISTINCT ON: keep the first row of each unit and key."""
        relation = self._needed(node)
        calls = UnitCalls(self._reader(), relation.rows.schema)
        names = [calls.column(calls.reader.checked(one)) for one in targets]
        self._check_unit(node, names, "DISTINCT ON")
        order = calls.order(self._modifier(node, "ORDER_MODIFIER").get("orders", []))
        before = replace(relation, rows=relation.rows.make(calls.arguments) if calls.arguments else relation.rows)
        step = KeepFirst(tuple(dict.fromkeys(names)), order, 1)
        self._relation = replace(relation, rows=unit_step(node, self._context, step, before))

    def _unique(self, node: Node) -> None:
        """Apply DISTINCT: keep one of equal rows."""
        relation = self._relation
        (table,) = relation.tables
        unusable = [name for name, meaning in table.columns.items() if isinstance(meaning, str)]
        if unusable:
            raise self._refuse(node, f"DISTINCT can't compare {', '.join(unusable)}, because of its type.")
        shown = {meaning.name for meaning in table.columns.values() if isinstance(meaning, Column)}
        self._check_unit(node, shown, "SELECT DISTINCT")
        step = KeepFirst(tuple(relation.rows.schema), (), 1)
        self._relation = replace(relation, rows=unit_step(node, self._context, step, relation))


def _place(item: Node) -> Node:
    return {name: item[name] for name in ("query_location",) if name in item}
