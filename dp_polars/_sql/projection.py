"""SELECT and WHERE over private rows, one row at a time; the unit comes along."""

from __future__ import annotations

from dataclasses import replace

from dp_polars._expressions import Column, Expression
from dp_polars._sql.expressions import Reader
from dp_polars._sql.names import aliases_of, name_of, without_aliases
from dp_polars._sql.relations import PrivateRelation
from dp_polars._sql.syntax_tree import Node, fold
from dp_polars._sql.tables import Meaning, Scope, Table

_LOOKS_AROUND = (
    ("group_expressions", "GROUP BY without a private aggregate shows which groups exist"),
    ("group_sets", "GROUP BY without a private aggregate shows which groups exist"),
    ("having", "HAVING without a private aggregate looks at exact groups"),
    ("qualify", "QUALIFY looks at other rows"),
    ("sample", "A sample depends on which other rows there are"),
)


def projected(node: Node, relation: PrivateRelation, reader: Reader, scope: Scope) -> PrivateRelation:
    """Return private rows after SELECT and WHERE."""
    for item in node["select_list"]:  # a mistyped private aggregate is refused by its name, not for its GROUP BY
        if item["class"] == "FUNCTION":
            reader.value(item)
    _refuse_looking_around(node, scope)
    units = {fold(name) for name in relation.table_unit.columns}
    columns: dict[str, tuple[str, Meaning | Expression]] = {}
    for item in node["select_list"]:
        for name, meaning in _columns(item, relation, reader, scope):
            if fold(name) in units and not (isinstance(meaning, Column) and relation.is_unit(meaning)):
                raise scope.refuse(item, f"{name} says who is protected; a query can't make another of that name.")
            columns.setdefault(fold(name), (name, meaning))  # the first of a name counts, as in a join with USING
    rows = relation.rows
    for condition in conditions(node, reader, scope):
        rows = rows.filter(condition)
    made: dict[str, Expression] = {name: Column(name, rows.schema[name]) for name in relation.unit}
    seen: dict[str, Meaning] = {}
    for name, meaning in columns.values():
        if isinstance(meaning, str) or (isinstance(meaning, Column) and relation.is_unit(meaning)):
            seen[name] = meaning
            continue
        own = f"\0column {len(seen)} {name}"
        made[own] = meaning
        seen[name] = Column(own, meaning.dtype)
    return replace(relation, rows=rows.make(made, keep=False), tables=(Table("", seen),))


def _columns(
    item: Node, relation: PrivateRelation, reader: Reader, scope: Scope
) -> list[tuple[str, Meaning | Expression]]:
    """Return the columns that an item of SELECT stands for."""
    if item["class"] == "STAR":
        return _starred(item, relation, reader, scope)
    name = name_of(item, "")
    if item["class"] == "COLUMN_REF" and (found := scope.column(item)) is not None and isinstance(found[0], str):
        return [(name, found[0])]  # it may be carried along, and not used
    tree = reader.checked(item)
    if not name:
        raise scope.refuse(item, "Give this expression a name: ... AS name.")
    return [(name, tree)]


def _starred(
    item: Node, relation: PrivateRelation, reader: Reader, scope: Scope
) -> list[tuple[str, Meaning | Expression]]:
    if item.get("columns") or item.get("expr") or item.get("rename_list") or item.get("qualified_exclude_list"):
        raise scope.refuse(item, "COLUMNS and RENAME are not understood over private rows; name the columns.")
    left_out = {fold(name) for name in item.get("exclude_list", [])}
    changed = {fold(entry["key"]): reader.checked(entry["value"]) for entry in item.get("replace_list", [])}
    wanted = fold(item.get("relation_name") or "")
    return [
        (name, changed.get(fold(name), meaning))
        for table in relation.tables
        if not wanted or fold(table.alias) == wanted
        for name, meaning in table.columns.items()
        if fold(name) not in left_out
    ]


def conditions(node: Node, reader: Reader, scope: Scope, *more: Node | None) -> list[Expression]:
    """Return WHERE, and more conditions; names of SELECT may be used in them."""
    aliases = aliases_of(node)
    given = [item for item in (node.get("where_clause"), *more) if item]
    return [reader.condition(without_aliases(item, aliases, scope)) for item in given]


def _refuse_looking_around(node: Node, scope: Scope) -> None:
    """Refuse what makes rows depend on each other."""
    for name, what in _LOOKS_AROUND:
        if node.get(name):
            raise scope.refuse(node, f"{what}.")
    for modifier in node.get("modifiers", []):
        kind = modifier["type"].replace("_MODIFIER", "").replace("_", " ")
        raise scope.refuse(node, f"{kind} below a private aggregation makes rows depend on each other; put it above.")
