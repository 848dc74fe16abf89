"""Names in a SELECT: what its columns are called, and what a name stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dp_polars._sql.allowed_functions import PRIVATE
from dp_polars._sql.syntax_tree import Node, fold, replaced
from dp_polars._sql.tables import Scope

_ABOVE = ("having", "qualify", "modifiers")
_BELOW = ("select_list", "where_clause", "group_expressions")


def is_private_call(node: Node) -> bool:
    """Whether an expression is a private aggregate."""
    return node.get("class") == "FUNCTION" and fold(node["function_name"]) in PRIVATE


def name_of(item: Node, other: str) -> str:
    """Return the name of a column of SELECT, `other` if it has none."""
    if item.get("alias"):
        return str(item["alias"])
    if item["class"] == "COLUMN_REF":
        return str(item["column_names"][-1])
    return fold(item["function_name"]) if is_private_call(item) else other


def aliases_of(node: Node) -> dict[str, Node]:
    """Return the names that a SELECT gives to expressions."""
    return {item["alias"]: item for item in node.get("select_list", []) if item.get("alias")}


def without_aliases(node: Node, aliases: dict[str, Node], scope: Scope) -> Node:
    """Return an expression in which names of SELECT stand for what they name; columns come first."""
    named = {fold(name): item for name, item in aliases.items()}

    def change(item: Node) -> Node | None:
        if item["class"] != "COLUMN_REF" or len(item["column_names"]) > 1 or scope.resolve(item) is not None:
            return None
        found = named.get(fold(item["column_names"][0]))
        return None if found is None else {**found, "alias": ""}

    changed: Node = replaced(node, change)
    return changed


def qualified(node: Node, scope: Scope) -> Node:
    """Return a SELECT whose columns are named with their table, so that equal ones look equal.

    Names of SELECT come first in HAVING, QUALIFY and ORDER BY, columns elsewhere.
    """
    aliases = {fold(name) for name in aliases_of(node)}

    def full(item: Node, *, aliases_first: bool) -> Node | None:
        if item["class"] != "COLUMN_REF":
            return None
        names = item["column_names"]
        if aliases_first and len(names) == 1 and fold(names[0]) in aliases:
            return item
        found = scope.resolve(item)
        if found is None:
            return None
        table, name = found
        by_table = len(names) > 1 and fold(names[0]) == fold(table.alias) and table.has(names[1]) == name
        return {**item, "column_names": [table.alias, name, *names[2 if by_table else 1 :]]}

    above = {
        name: replaced(node[name], lambda item: full(item, aliases_first=True)) for name in _ABOVE if node.get(name)
    }
    below = {
        name: replaced(node[name], lambda item: full(item, aliases_first=False)) for name in _BELOW if node.get(name)
    }
    return {**node, **above, **below}


def modifier_expressions(modifier: Node) -> Iterator[Node]:
    """Yield the expressions of ORDER BY, LIMIT and DISTINCT ON."""
    yield from (order["expression"] for order in modifier.get("orders", []))
    yield from modifier.get("distinct_on_targets", [])
    yield from (modifier[name] for name in ("limit", "offset") if isinstance(modifier.get(name), dict))


def changed_modifier(modifier: Node, change: Callable[[Node], Any]) -> Node:
    """Return ORDER BY, LIMIT or DISTINCT ON with other expressions."""
    changed = dict(modifier)
    if "orders" in modifier:
        changed["orders"] = [{**order, "expression": change(order["expression"])} for order in modifier["orders"]]
    if "distinct_on_targets" in modifier:
        changed["distinct_on_targets"] = [change(item) for item in modifier["distinct_on_targets"]]
    for name in ("limit", "offset"):
        if isinstance(modifier.get(name), dict):
            changed[name] = change(modifier[name])
    return changed
