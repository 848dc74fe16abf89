"""GROUP BY with ROLLUP, CUBE or GROUPING SETS: one SELECT for each set of keys, whose answers are stacked.

Each set is a query of its own, with its own noise and its own part of the spend. A key that is not in a set is null.
"""

from __future__ import annotations

from collections.abc import Sequence

from dp_polars._sql.relations import Context
from dp_polars._sql.sandbox import check_expression
from dp_polars._sql.scope import ScopeTable, is_private_call, name_of
from dp_polars._sql.syntax_tree import (
    Node,
    canonical,
    changed_modifier,
    column,
    fold,
    replaced,
    select_all,
    subquery,
    walk,
)


def has_grouping_sets(node: Node) -> bool:
    """Return whether a SELECT groups its rows in several ways."""
    sets = node.get("group_sets") or []
    return len(sets) > 1 or bool(sets and len(sets[0]) != len(node["group_expressions"]))


def selects_of_sets(node: Node, keys: Sequence[Node], context: Context) -> list[Node]:
    """Return a SELECT for each set of keys. They have no ORDER BY and LIMIT, which apply to all of them together."""
    null = context.parser.expression("NULL")
    items, names = node["select_list"], _names(node)
    found = []
    for chosen in node["group_sets"]:
        left_out = {canonical(key) for place, key in enumerate(keys) if place not in chosen}
        kept = [name_of(keys[place], names.get(canonical(keys[place]), "")) for place in chosen]

        def change(item: Node, left_out: set[str] = left_out, kept: list[str] = kept) -> Node | None:
            if item.get("type") == "GROUPING_FUNCTION":  # one bit for each argument that is not in the set
                bits = ["1" if canonical(one) in left_out else "0" for one in item["children"]]
                return {**context.parser.expression(str(int("".join(bits), 2))), "alias": item.get("alias", "")}
            if canonical(item) in left_out:
                return {**null, "alias": item.get("alias", "")}
            return _with_keys(item, kept, len(keys), context) if is_private_call(item) else None

        own = {**node, "modifiers": [], "group_expressions": [keys[place] for place in chosen]}
        own["group_sets"] = [list(range(len(chosen)))] if chosen else []
        own["select_list"] = [
            {**replaced(item, change), "alias": item.get("alias") or name_of(item, "")} for item in items
        ]
        for clause in ("having", "qualify"):
            own[clause] = replaced(node[clause], change) if node.get(clause) else None
        found.append(own)
    return found


def answers_of_sets(node: Node, answers: Sequence[Node], columns: Sequence[str], context: Context) -> Node:
    """Return the query that puts the answers of all sets together, in the order of the original SELECT."""
    union = {**context.parser.select("SELECT 1 UNION ALL SELECT 2"), "children": list(answers)}
    names, scope = _names(node), context.scope(ScopeTable.public("", list(columns)))

    def ordered(item: Node) -> Node:
        name = names.get(canonical(item))
        if name:
            return column(name)
        if any(one["class"] in ("SUBQUERY", "WINDOW") for one in walk(item)):
            raise context.refuse(item, "ORDER BY of several groupings names columns of SELECT.")
        changed: Node = replaced(item, lambda one: column(one["column_names"][-1]) if _is_column(one) else None)
        check_expression(changed, scope)
        return changed

    modifiers = [changed_modifier(one, ordered) for one in node.get("modifiers", [])]
    return {**select_all(subquery(union, "dp_sets")), "modifiers": modifiers}


def _is_column(item: Node) -> bool:
    return bool(item["class"] == "COLUMN_REF")


def _names(node: Node) -> dict[str, str]:
    """Return the names of the items of a SELECT, by what they are."""
    return {canonical(item): item.get("alias") or name_of(item, "") for item in node["select_list"]}


def _with_keys(call: Node, kept: list[str], every: int, context: Context) -> Node | None:
    """Return a private aggregate that lists public keys for some of the keys only."""
    listed = [one for one in call["arguments"] if fold(one["name"]) == "keys"]
    if not listed or len(kept) == every:
        return None
    others = [one for one in call["arguments"] if fold(one["name"]) != "keys"]
    if not kept:
        return {**call, "arguments": others}
    value = listed[0]["expression"]
    if value.get("class") != "FUNCTION" or fold(value["function_name"]) != "struct_pack":
        raise context.refuse(
            call, "With groupings by several keys, list the values of each key by its name: keys := {'a': [1, 2]}."
        )
    wanted = set(map(fold, kept))
    values = [one for one in value["arguments"] if fold(one["name"]) in wanted]
    own = {**values[0]["expression"], "alias": "keys"} if len(values) == 1 else {**value, "arguments": values}
    return {**call, "arguments": [*others, {**listed[0], "expression": own}]}
