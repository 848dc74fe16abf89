"""SELECT and WHERE over private rows, one row at a time; the unit comes along."""

from __future__ import annotations

from dataclasses import replace

from dp_polars.sql.names import aliases_of, name_of, without_aliases
from dp_polars.sql.relations import Relation, named, select_node
from dp_polars.sql.rowwise import Scope, check_rowwise
from dp_polars.sql.tree import Node, both, column, fold, tried

_LOOKS_AROUND = (
    ("group_expressions", "GROUP BY without a private aggregate shows which groups exist"),
    ("group_sets", "GROUP BY without a private aggregate shows which groups exist"),
    ("having", "HAVING without a private aggregate looks at exact groups"),
    ("qualify", "QUALIFY looks at other rows"),
    ("sample", "A sample depends on which other rows there are"),
)


def projected(node: Node, relation: Relation, scope: Scope) -> Relation:
    """Return private rows after SELECT and WHERE."""
    for item in node["select_list"]:  # a mistyped private aggregate is refused by its name, not for its GROUP BY
        if item["class"] == "FUNCTION":
            check_rowwise(item, scope)
    _refuse_looking_around(node, scope)
    items: dict[str, Node] = {}
    units = {fold(name) for name in relation.unit_names}
    for item in node["select_list"]:
        for name, own in _columns(item, relation, scope):
            if fold(name) in units:
                if not is_unit(own, relation, scope):
                    raise scope.refuse(item, f"{name} says who is protected; a query can't make another of that name.")
            elif fold(name) not in items:  # the first of a name counts, as in a join with USING
                items[fold(name)] = named(own, name)
    carried = [{**unit, "alias": name} for unit, name in zip(relation.unit, relation.unit_names, strict=True)]
    query = select_node([*carried, *items.values()], relation.node, condition(node, scope))
    return replace(relation, node=query, tables=())


def _columns(item: Node, relation: Relation, scope: Scope) -> list[tuple[str, Node]]:
    """Return the columns that an item of SELECT stands for."""
    if item["class"] == "STAR":
        return _starred(item, relation, scope)
    check_rowwise(item, scope)
    name = name_of(item, "")
    if not name:
        raise scope.refuse(item, "Give this expression a name: ... AS name.")
    return [(name, item)]


def _starred(item: Node, relation: Relation, scope: Scope) -> list[tuple[str, Node]]:
    if item.get("columns") or item.get("expr") or item.get("rename_list") or item.get("qualified_exclude_list"):
        raise scope.refuse(item, "COLUMNS and RENAME are not understood over private rows; name the columns.")
    left_out = {fold(name) for name in item.get("exclude_list", [])}
    changed = {}
    for entry in item.get("replace_list", []):
        check_rowwise(entry["value"], scope)
        changed[fold(entry["key"])] = entry["value"]
    wanted = fold(item.get("relation_name") or "")
    return [
        (name, changed.get(fold(name), column(table.alias, name)))
        for table in relation.tables
        if not wanted or fold(table.alias) == wanted
        for name in table.columns
        if fold(name) not in left_out
    ]


def is_unit(node: Node, relation: Relation, scope: Scope) -> bool:
    """Whether an expression is a unit column itself."""
    found = scope.resolve(node) if node["class"] == "COLUMN_REF" else None
    if found is None:
        return False
    table, name = found
    return any([table.alias, name] == unit["column_names"] for unit in relation.unit)


def condition(node: Node, scope: Scope, *more: Node | None) -> Node | None:
    """Return WHERE, with more conditions; a row in which one fails is left out."""
    aliases = aliases_of(node)
    given = [item for item in (node.get("where_clause"), *more) if item]
    conditions = [without_aliases(item, aliases, scope) for item in given]
    for item in conditions:
        check_rowwise(item, scope)
    return both([tried(item) for item in conditions])


def _refuse_looking_around(node: Node, scope: Scope) -> None:
    """Refuse what makes rows depend on each other."""
    for name, what in _LOOKS_AROUND:
        if node.get(name):
            raise scope.refuse(node, f"{what}.")
    for modifier in node.get("modifiers", []):
        kind = modifier["type"].replace("_MODIFIER", "").replace("_", " ")
        raise scope.refuse(node, f"{kind} below a private aggregation makes rows depend on each other; put it above.")
