"""A statement, cut at its private aggregations: below each, questions; above, ordinary SQL on released rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dp_polars._expressions import Column, Expression
from dp_polars._sql.aggregate_calls import Call, call_of
from dp_polars._sql.expressions import Reader
from dp_polars._sql.names import (
    aliases_of,
    changed_modifier,
    is_private_call,
    modifier_expressions,
    name_of,
    qualified,
    without_aliases,
)
from dp_polars._sql.projection import conditions, projected
from dp_polars._sql.public_expressions import check_ordinary
from dp_polars._sql.questions import RELEASED, Aggregation, Cut, SqlKey, SqlQuestion
from dp_polars._sql.relations import (
    Catalog,
    OrdinaryRelation,
    PrivateRelation,
    Relation,
    Relations,
    base_table,
    select_node,
)
from dp_polars._sql.syntax_tree import (
    Node,
    Parser,
    canonical,
    column,
    cte_query,
    fold,
    place,
    replaced,
    walk,
    without_places,
)
from dp_polars._sql.tables import Scope, Table
from dp_polars.errors import StatementNotAllowed


def cut(node: Node, sql: str, parser: Parser, catalog: Catalog, parameters: dict[str, Any]) -> Cut:
    """Return a statement cut at its private aggregations, or refuse it; `sql` is its text, for places."""
    cutter = _Cutter(sql, parser, catalog, parameters)
    relation = cutter.query(node, {}, top=True)
    if isinstance(relation, PrivateRelation):
        raise StatementNotAllowed(
            "This would show private rows. Ask for private aggregates: dp_count(*), dp_count_units(), "
            "dp_sum(x, 0, 100), dp_avg(x, 0, 100), dp_median(x, 0, 100) and so on, with GROUP BY for groups."
        )
    return Cut(without_places(relation.node), cutter.aggregations)


class _Cutter:
    def __init__(self, sql: str, parser: Parser, catalog: Catalog, parameters: dict[str, Any]) -> None:
        self._sql, self._parser, self._catalog, self._parameters = sql, parser, catalog, parameters
        self._relations = Relations(catalog, parser, sql, parameters, self.query)
        self.aggregations: list[Aggregation] = []

    # ------------------------------------------------------------------ queries

    def query(self, node: Node, ctes: dict[str, Relation], *, top: bool = False) -> Relation:
        """Return what a query gives: private rows with their unit, or public and released rows."""
        known = dict(ctes)
        for entry in node.get("cte_map", {}).get("map", []):
            inner = self.query(cte_query(entry), known)
            names = entry["value"].get("aliases")
            if names:
                inner = self._relations.with_names(inner, entry["key"], names, node)
            known[fold(entry["key"])] = inner
        if node["type"] == "SET_OPERATION_NODE":
            return self._set_operation(node, known)
        if node["type"] != "SELECT_NODE":
            raise self._refuse(node, f"{node['type'].replace('_', ' ').lower()} is not understood.")
        relation = self._relations.of(node["from_table"], known)
        if isinstance(relation, OrdinaryRelation):
            return self._ordinary(node, relation, known)
        if self._private_calls(node):
            return self._aggregation(node, relation, known)
        if (
            top
            and all(item["class"] in ("COLUMN_REF", "STAR") for item in node["select_list"])
            and not node["group_sets"]
        ):
            return relation  # whatever else it says: it would show private rows
        scope = self._relations.scope(relation)
        return projected(_without_lateral_names(node, scope), relation, self._relations.reader(relation.tables), scope)

    def _output(self, node: Node, relation: Relation) -> Table:
        """Return the columns of a SELECT over released rows by their names alone."""
        columns: dict[str, str] = {}
        for item in node["select_list"]:
            if item["class"] == "STAR":
                columns |= {name: "" for table in relation.tables for name in table.columns}
            else:
                columns[name_of(item, f"column{len(columns)}")] = ""
        return Table("", columns)

    def _set_operation(self, node: Node, ctes: dict[str, Relation]) -> Relation:
        names = [name for name in ("left", "right") if isinstance(node.get(name), dict)]
        parts = {name: self.query(node[name], ctes) for name in names}
        listed = [self.query(child, ctes) for child in node.get("children", [])]
        every = [part for part in (*parts.values(), *listed) if isinstance(part, OrdinaryRelation)]
        if len(every) < len(parts) + len(listed):
            raise self._refuse(node, "UNION, INTERSECT and EXCEPT compare private rows; ask each part on its own.")
        changed = {**node, **{name: getattr(part, "node", {}) for name, part in parts.items()}, "cte_map": {"map": []}}
        if listed:
            changed["children"] = [getattr(part, "node", {}) for part in listed]
        shown = Table(
            "", dict.fromkeys((name for part in every for table in part.tables for name in table.columns), "")
        )
        changed["modifiers"] = self._ordinary_modifiers(node, Scope((shown,), self._sql), ctes)
        sources = frozenset[Any]().union(*(part.sources for part in every))
        released = any(part.released for part in every)
        return OrdinaryRelation(changed, every[0].tables if released else (), sources, released)

    # ------------------------------------------------------------------ a private aggregation

    def _private_calls(self, node: Node) -> list[Node]:
        places = [*node["select_list"], node.get("having"), node.get("qualify")]
        places += [item for modifier in node.get("modifiers", []) for item in modifier_expressions(modifier)]
        return [item for root in places if root for item in walk(root) if is_private_call(item)]

    def _aggregation(self, node: Node, relation: PrivateRelation, ctes: dict[str, Relation]) -> Relation:
        scope = self._relations.scope(relation)
        reader = self._relations.reader(relation.tables)
        node = qualified(_without_lateral_names(node, scope), scope)
        if node.get("sample"):
            raise self._refuse(node, "A sample depends on which other rows there are.")
        keys = self._keys(node, scope, reader)
        table = f"{RELEASED}{len(self.aggregations)}"
        asked: dict[str, Call] = {}
        for item in self._private_calls(node):
            text = canonical(item)
            if text not in asked:
                asked[text] = call_of(item, self._parser, self._parameters, self._sql)
        questions = tuple(
            self._question(numbers, list(asked.values()), node, relation, reader, keys)
            for numbers in _together(list(asked.values()))
        )
        self.aggregations.append(Aggregation(table, questions, tuple(key.name for key in keys)))
        answers = {text: f"dp_answer_{number}" for number, text in enumerate(asked)}
        above = self._above(node, keys, answers, table, ctes)
        output = self._output(above, relation)
        return OrdinaryRelation(above, (output,), relation.sources, released=True)

    def _keys(self, node: Node, scope: Scope, reader: Reader) -> list[SqlKey]:
        sets = node.get("group_sets") or []
        items = node["select_list"]
        if len(sets) > 1 or (sets and len(sets[0]) != len(node["group_expressions"])):
            raise self._refuse(node, "GROUPING SETS, ROLLUP and CUBE are not available; ask each grouping on its own.")
        if node.get("aggregate_handling") == "FORCE_AGGREGATES":
            expressions = [item for item in items if not any(is_private_call(one) for one in walk(item))]
        else:
            aliases = aliases_of(node)
            expressions = [
                without_aliases(self._by_position(item, items), aliases, scope)
                for item in node.get("group_expressions", [])
            ]
        keys: list[SqlKey] = []
        for item in expressions:
            tree = reader.checked(item)
            # Not the name that SELECT gives it: what an answer is called is no part of the question.
            name = name_of({**item, "alias": ""}, f"key_{len(keys)}")
            if fold(name) in {fold(key.name) for key in keys}:
                name = f"{name}_{len(keys)}"
            keys.append(SqlKey(name, item, tree))
        return keys

    def _by_position(self, item: Node, items: list[Node]) -> Node:
        """Return what a number in GROUP BY stands for."""
        if item["class"] != "CONSTANT":
            return item
        number = self._parser.value(item, {})
        if not isinstance(number, int) or not 1 <= number <= len(items):
            raise self._refuse(item, "A number in GROUP BY is the place of a column in SELECT.")
        return items[number - 1]

    def _question(
        self,
        numbers: list[int],
        asked: list[Call],
        node: Node,
        relation: PrivateRelation,
        reader: Reader,
        keys: list[SqlKey],
    ) -> SqlQuestion:
        """Return calls over the same rows as one question."""
        calls = tuple(asked[number] for number in numbers)
        units = frozenset(relation.unit)
        for key in keys:
            if key.tree.columns & units:
                raise self._refuse(
                    key.node,
                    f"Grouping by {key.name} reads the unit column: every group would be one person. Group by "
                    "something that many people share.",
                )
        nodes = {canonical(value): value for call in calls for value in call.values}
        trees = {text: reader.checked(value) for text, value in nodes.items()}
        for call in calls:
            if call.chooses and trees[canonical(call.values[0])].columns & units:
                raise self._refuse(
                    call.node,
                    f"{call.name} reads the unit column: every candidate would be one person. Choose among something "
                    "that many people share.",
                )
        rows = relation.rows
        for condition in conditions(node, reader, self._relations.scope(relation), calls[0].where):
            rows = rows.filter(condition)
        made: dict[str, Expression] = {}
        unit = tuple(
            _added(made, shown, Column(own, rows.schema[own]))
            for shown, own in zip(relation.table_unit.columns, relation.unit, strict=True)
        )
        key_names = tuple(_added(made, key.name, key.tree) for key in keys)
        value_names = tuple(
            _added(made, str(one["column_names"][-1]) if one["class"] == "COLUMN_REF" else "value", trees[text])
            for text, one in nodes.items()
        )
        return SqlQuestion(
            calls=calls,
            numbers=tuple(numbers),
            values=tuple(nodes.values()),
            value_names=value_names,
            rows=rows.make(made, keep=False),
            unit=unit,
            table_unit=relation.table_unit,
            keys=key_names,
            sources=relation.sources,
            declared=relation.declared,
        )

    def _above(
        self, node: Node, keys: list[SqlKey], answers: dict[str, str], table: str, ctes: dict[str, Relation]
    ) -> Node:
        """Return the SELECT with answers for private aggregates and keys, over the table of answers."""
        key_names = {canonical(key.node): f"dp_key_{number}" for number, key in enumerate(keys)}
        aliases = {fold(name) for name in aliases_of(node)}

        def change(item: Node) -> Node | None:
            text = canonical(item)
            if text in answers:
                return {**column(answers[text]), "alias": item.get("alias", "")}
            if text in key_names:
                return {**column(key_names[text]), "alias": item.get("alias", "")}
            return None

        released = Table(table, dict.fromkeys([*answers.values(), *key_names.values(), *aliases], ""))
        scope = Scope((released,), self._sql)

        def raised(item: Node | None) -> Node | None:
            if item is None:
                return None
            changed: Node = replaced(item, change)
            self._check_above(changed, scope, keys)
            return self._with_subqueries(changed, ctes)

        items = []
        for item in node["select_list"]:
            if item["class"] == "STAR":
                raise self._refuse(item, "* would show private rows; name the keys and the private aggregates.")
            own = raised(item)
            if own is not None:
                items.append({**own, "alias": item.get("alias") or name_of(item, "") or self._text(item)})
        modifiers = [changed_modifier(modifier, raised) for modifier in node.get("modifiers", [])]
        above = select_node(items, base_table(table), raised(node.get("having")))
        return {**above, "modifiers": modifiers, "qualify": raised(node.get("qualify"))}

    def _check_above(self, node: Node, scope: Scope, keys: list[SqlKey]) -> None:
        for item in walk(node):
            if item["class"] == "POSITIONAL_REFERENCE":
                raise self._refuse(item, "# and a number is the place of a column; name the key or the aggregate.")
            if item["class"] == "COLUMN_REF" and scope.resolve(item) is None:
                known = ", ".join(key.name for key in keys) or "none"
                raise self._refuse(
                    item,
                    f"{'.'.join(item['column_names'])} is neither a key ({known}) nor inside a private aggregate, "
                    "so it would show private rows. Add it to GROUP BY or aggregate it.",
                )
        check_ordinary(node, scope)

    # ------------------------------------------------------------------ public and released rows

    def _ordinary(self, node: Node, relation: OrdinaryRelation, ctes: dict[str, Relation]) -> Relation:
        if node.get("sample"):
            raise self._refuse(node, "A sample is drawn anew each time, so the same question would mean another.")
        calls = self._private_calls(node)
        if calls:
            raise self._refuse(
                calls[0],
                f"{calls[0]['function_name']} is for private tables; these rows are public or already released.",
            )
        scope, before = self._relations.scope(relation), len(self.aggregations)
        changed = {**node, "from_table": relation.node, "cte_map": {"map": []}}
        names = ("where_clause", "having", "qualify")
        aliases = Table("", dict.fromkeys(aliases_of(node), ""))
        inside = replace(scope, tables=(*scope.tables, aliases))
        for name in names:
            if node.get(name):
                check_ordinary(node[name], inside)
                changed[name] = self._with_subqueries(node[name], ctes)
        for item in node.get("group_expressions", []):
            check_ordinary(item, inside)
        earlier: dict[str, str] = {}
        for item in node["select_list"]:  # a name may be used in what follows it
            check_ordinary(item, replace(scope, tables=(*scope.tables, Table("", dict(earlier)))))
            earlier |= {item["alias"]: ""} if item.get("alias") else {}
        changed["group_expressions"] = [self._with_subqueries(item, ctes) for item in node.get("group_expressions", [])]
        changed["select_list"] = [self._shown(item, ctes) for item in node["select_list"]]
        changed["modifiers"] = self._ordinary_modifiers(node, inside, ctes)
        released = relation.released or len(self.aggregations) > before
        tables = (self._output(node, relation),) if released else relation.tables
        return OrdinaryRelation(changed, tables, relation.sources, released)

    def _shown(self, item: Node, ctes: dict[str, Relation]) -> Node:
        """Return an item of SELECT under the name that DuckDB would give it."""
        changed = self._with_subqueries(item, ctes)
        if item.get("alias") or item["class"] in ("COLUMN_REF", "STAR"):
            return changed
        return {**changed, "alias": self._text(item)}

    def _text(self, item: Node) -> str:
        """Return an expression as text."""
        empty = {"type": "EMPTY", "alias": "", "sample": None}
        return self._parser.text(without_places(select_node([item], empty, None))).removeprefix("SELECT ")

    def _ordinary_modifiers(self, node: Node, scope: Scope, ctes: dict[str, Relation]) -> list[Node]:
        for modifier in node.get("modifiers", []):
            for item in modifier_expressions(modifier):
                check_ordinary(item, scope)
        return [
            changed_modifier(modifier, lambda item: self._with_subqueries(item, ctes))
            for modifier in node.get("modifiers", [])
        ]

    def _with_subqueries(self, node: Node, ctes: dict[str, Relation]) -> Node:
        """Return an expression whose subqueries were cut too; none may give private rows."""

        def change(item: Node) -> Node | None:
            if item["class"] != "SUBQUERY":
                return None
            inner = self.query(item["subquery"]["node"], ctes)
            if isinstance(inner, PrivateRelation):
                raise self._refuse(item, "A subquery over a private table would show its rows.")
            rest = {name: replaced(own, change) for name, own in item.items() if name != "subquery"}
            return {**rest, "subquery": {**item["subquery"], "node": inner.node}}

        changed: Node = replaced(node, change)
        return changed

    def _refuse(self, node: Node, reason: str) -> StatementNotAllowed:
        return StatementNotAllowed(reason + place(node, self._sql))


def _added(made: dict[str, Expression], name: str, tree: Expression) -> str:
    """Add a column under a name that no other has yet, and return the name."""
    taken = {fold(one) for one in made}
    while fold(name) in taken:
        name = f"{name}_value"
    made[name] = tree
    return name


def _without_lateral_names(node: Node, scope: Scope) -> Node:
    """Return a SELECT in which a name that an item gives stands for that item in the items after it."""
    items: list[Node] = []
    for item in node["select_list"]:
        earlier = {one["alias"]: one for one in items if one.get("alias")}
        items.append(without_aliases(item, earlier, scope) if item["class"] != "STAR" else item)
    return {**node, "select_list": items}


def _together(calls: list[Call]) -> list[list[int]]:
    """Return the numbers of calls that are asked at once: over the same rows, with no spend of their own; no choice."""
    groups: dict[tuple[str, int], list[int]] = {}
    for number, call in enumerate(calls):
        rows = "" if call.where is None else canonical(call.where)
        alone = call.spends or call.chooses
        groups.setdefault((rows, number if alone else -1), []).append(number)
    return list(groups.values())
