"""Plain SQL over private rows: with a policy, COUNT(*) and AVG(x) mean the private aggregates.

The class of each aggregate declares its names in plain SQL and the private SQL that they mean (`plain_sql_names`). A
SELECT whose GROUP BY names the unit combines rows of one person, so its aggregates stay as they are, and so do
aggregates over public rows and answers. The translated SELECT is analysed like any other, so nothing here decides what
is safe.
"""

from __future__ import annotations

from dp_polars._aggregates import REGISTRY
from dp_polars._sql.relations import Context, PrivateRelation
from dp_polars._sql.scope import aliases_of, is_private_call, without_aliases
from dp_polars._sql.syntax_tree import Node, arguments, fold, modifier_expressions, replaced, walk
from dp_polars._sql.unit_steps import grouping_expressions

PLAIN: dict[str, str] = {
    name: meant for aggregate in REGISTRY.values() for name, meant in aggregate.plain_sql_names.items()
}
"""The private SQL that each plain aggregate means."""

_CLAUSES = ("select_list", "having", "qualify", "modifiers")


def private_sql(node: Node, relation: PrivateRelation, context: Context) -> Node:
    """Return a SELECT over private rows in which plain aggregates are private ones, unless it groups by the unit."""
    places = [*node["select_list"], node.get("having"), node.get("qualify")]
    places += [item for modifier in node.get("modifiers", []) for item in modifier_expressions(modifier)]
    if not any(_is_plain(item) for root in places if root for item in walk(root)):
        return node
    if _groups_by_unit(node, relation, context):
        return node

    def change(item: Node) -> Node | None:
        return _translated(item, context) if _is_plain(item) else None

    changed = {name: replaced(node[name], change) for name in _CLAUSES if node.get(name)}
    changed["select_list"] = [
        {**new, "alias": old.get("alias") or _name(old, context)} if any(map(_is_plain, walk(old))) else new
        for old, new in zip(node["select_list"], changed["select_list"], strict=True)
    ]
    return {**node, **changed}


def _is_plain(item: Node) -> bool:
    return item.get("class") == "FUNCTION" and fold(item["function_name"]) in PLAIN


def _groups_by_unit(node: Node, relation: PrivateRelation, context: Context) -> bool:
    """Return whether the keys of a SELECT name the whole unit, so that it combines rows of one person."""
    scope = context.scope(*relation.tables)

    def is_aggregate(item: Node) -> bool:
        return _is_plain(item) or is_private_call(item)

    keys = grouping_expressions(node, context, node["select_list"], is_aggregate=is_aggregate)
    found = set()
    for item in keys:
        key = without_aliases(item, aliases_of(node), scope)
        meaning = scope.column(key) if key["class"] == "COLUMN_REF" else None
        if meaning is not None and relation.is_unit(meaning[0]):
            found.add(getattr(meaning[0], "name", ""))
    return bool(relation.unit) and set(relation.unit) <= found


def _translated(item: Node, context: Context) -> Node:
    """Return the private SQL that a plain aggregate means, with its arguments and its FILTER."""
    name = fold(item["function_name"])
    given = [child for _, child in arguments(item)]
    if item.get("distinct"):
        if f"{name} distinct" not in PLAIN or len(given) != 1:
            raise context.refuse(item, f"{name}(DISTINCT ...) has no private form; COUNT(DISTINCT x) has one.")
        name = f"{name} distinct"
    if (item.get("order_bys") or {}).get("orders"):
        raise context.refuse(item, f"{name} takes no ORDER BY over private rows.")
    meant = context.parser.expression(PLAIN[name])
    wanted = {part["column_names"][0] for part in walk(meant) if part["class"] == "COLUMN_REF"}
    if len(wanted) != len(given) and not (name == "count_star" and not given):
        raise context.refuse(item, f"{name} takes {len(wanted) or 'no'} arguments over private rows.")
    values = dict(zip(("x", "y"), given, strict=False))
    place = {key: item[key] for key in ("query_location",) if key in item}

    def with_arguments(part: Node) -> Node | None:
        return values[part["column_names"][0]] if part["class"] == "COLUMN_REF" else None

    made: Node = replaced(meant, with_arguments)

    def with_filter(part: Node) -> Node | None:
        return {**part, **place, "filter": item.get("filter")} if is_private_call(part) else None

    whole: Node = replaced(made, with_filter)
    return {**whole, **place, "alias": item.get("alias", "")}


def _name(item: Node, context: Context) -> str:
    """Return the name that DuckDB gives an aggregate, or a calculation with some, without an alias."""
    if item["class"] == "FUNCTION" and fold(item["function_name"]) == "count_star":
        return "count_star()"
    text = context.parser.text(
        {**context.parser.select("SELECT 1"), "select_list": [{**item, "alias": "", "filter": None}]}
    )
    return text.removeprefix("SELECT ")
