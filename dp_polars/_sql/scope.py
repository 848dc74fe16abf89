"""Resolve the names in a SELECT: the tables of FROM, their columns, and the aliases that SELECT gives."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dp_polars._expressions import Column
from dp_polars._sql.allowed_functions import PRIVATE
from dp_polars._sql.syntax_tree import Node, fold, place, replaced
from dp_polars.errors import Code, StatementNotAllowed

Meaning = Column | str
"""What the name of a private column stands for: a column, or the SQL type that makes the column unusable."""

WITHHELD = "withheld by the policy (ask = false)"
"""What stands in place of the type of a column that a policy withholds. The rows that are handed out lack it."""

_ALIASES_FIRST = ("having", "qualify", "modifiers")
_COLUMNS_FIRST = ("select_list", "where_clause", "group_expressions")


@dataclass(frozen=True)
class ScopeTable:
    """A table in FROM under its alias, with its columns in order.

    For private rows `columns` holds the meaning of each name. For public and released rows the values are empty texts,
    because DuckDB knows those types.
    """

    alias: str
    columns: Mapping[str, Meaning]
    path: tuple[str, ...] = ()
    """The full name of a table that has no other alias: its catalog and its schema may be written before it."""

    @classmethod
    def public(cls, alias: str, names: Collection[str]) -> ScopeTable:
        """Return a table of public or released rows."""
        return cls(alias, dict.fromkeys(names, ""))

    def has(self, name: str) -> str | None:
        """Return the exact spelling of a column's name, or None if the table has no such column."""
        return next((column for column in self.columns if fold(column) == fold(name)), None)


@dataclass(frozen=True)
class Scope:
    """The tables that the names in an expression refer to, and the text of the statement, for error locations."""

    tables: tuple[ScopeTable, ...]
    sql: str

    def refuse(self, node: Node, reason: str, *, code: Code | None = None) -> StatementNotAllowed:
        """Return an error that ends with the location of a node."""
        return StatementNotAllowed(reason + place(node, self.sql), code=code)

    def resolve(self, node: Node) -> tuple[ScopeTable, str] | None:
        """Return the table and the column that a reference means, or None if there is no such column."""
        found = self._found(node)
        return None if found is None else found[:2]

    def column(self, node: Node) -> tuple[Meaning, list[str]] | None:
        """Return the meaning of a reference and the path of struct fields behind it, or None if it has no meaning."""
        found = self._found(node)
        if found is None:
            return None
        table, name, fields = found
        return table.columns[name], fields

    def _found(self, node: Node) -> tuple[ScopeTable, str, list[str]] | None:
        names: list[str] = node["column_names"]
        for table in self.tables:  # schema.table.column and catalog.schema.table.column
            for parts in (3, 2):
                written = tuple(map(fold, names[:parts]))
                column = table.has(names[parts]) if len(names) > parts else None
                if column is not None and table.path and written in _spellings(table.path):
                    return table, column, names[parts + 1 :]
        for table in self.tables:
            if len(names) > 1 and fold(table.alias) == fold(names[0]) and (column := table.has(names[1])) is not None:
                return table, column, names[2:]
        for table in self.tables:
            if (column := table.has(names[0])) is not None:
                return table, column, names[1:]
        return None


def _spellings(path: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return the longer names of a table: with its schema, with its catalog too, or with the catalog alone."""
    full = tuple(map(fold, path))
    return {full[-3:], full[-2:], *([(full[0], full[2])] if full[1:2] == ("main",) and len(full) == 3 else [])}


# ---------------------------------------------------------------------- names that SELECT gives


def is_private_call(node: Node) -> bool:
    """Return whether an expression is a call of a private aggregate."""
    return node.get("class") == "FUNCTION" and fold(node["function_name"]) in PRIVATE


def name_of(item: Node, other: str) -> str:
    """Return the name of an output column of SELECT, or `other` if the item has no name of its own."""
    if item.get("alias"):
        return str(item["alias"])
    if item["class"] == "COLUMN_REF":
        return str(item["column_names"][-1])
    return fold(item["function_name"]) if is_private_call(item) else other


def aliases_of(node: Node) -> dict[str, Node]:
    """Return the items of a SELECT that have an alias, by alias."""
    return {item["alias"]: item for item in node.get("select_list", []) if item.get("alias")}


def check_shared_aliases(node: Node, scope: Scope) -> None:
    """Refuse a SELECT that uses an alias which several of its items have, because SQL ignores case and picks any."""
    names = [fold(item["alias"]) for item in node["select_list"] if item.get("alias")]
    shared = {name for name in names if names.count(name) > 1}
    for clause in (*_ALIASES_FIRST, *_COLUMNS_FIRST) if shared else ():
        for item in _references(node.get(clause)):
            used = item["column_names"][0]
            if fold(used) in shared and (clause in _ALIASES_FIRST or scope.resolve(item) is None):
                raise scope.refuse(
                    item,
                    f"{used} is the alias of {names.count(fold(used))} columns of this SELECT, because names in SQL "
                    "ignore case, so it is not clear which one is meant. Give each column an alias of its own.",
                )


def _references(tree: Any) -> Iterator[Node]:
    """Yield the column references of one name in a clause, except those inside subqueries."""
    if isinstance(tree, dict) and tree.get("class") == "COLUMN_REF" and len(tree["column_names"]) == 1:
        yield tree
    elif isinstance(tree, list):
        for child in tree:
            yield from _references(child)
    elif isinstance(tree, dict) and tree.get("class") != "SUBQUERY":
        yield from _references([*tree.values()])


def without_aliases(node: Node, aliases: dict[str, Node], scope: Scope) -> Node:
    """Replace aliases in an expression by the items that they name. A column of the same name takes precedence."""
    named = {fold(name): item for name, item in aliases.items()}

    def change(item: Node) -> Node | None:
        if item["class"] != "COLUMN_REF" or len(item["column_names"]) > 1 or scope.resolve(item) is not None:
            return None
        found = named.get(fold(item["column_names"][0]))
        return None if found is None else {**found, "alias": ""}

    changed: Node = replaced(node, change)
    return changed


def without_lateral_aliases(node: Node, scope: Scope) -> Node:
    """Copy a SELECT and replace aliases that are used in later items of the same SELECT list."""
    items: list[Node] = []
    for item in node["select_list"]:
        earlier = {item["alias"]: item for item in items if item.get("alias")}
        items.append(without_aliases(item, earlier, scope) if item["class"] != "STAR" else item)
    return {**node, "select_list": items}


def qualified(node: Node, scope: Scope) -> Node:
    """Copy a SELECT and write each column with its table so that equal expressions have equal trees.

    In HAVING, QUALIFY and ORDER BY an alias takes precedence over a column of the same name; elsewhere the column does.
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
        _, _, fields = scope._found(item) or (table, name, [])
        return {**item, "column_names": [table.alias, name, *fields]}

    above = {
        name: replaced(node[name], lambda item: full(item, aliases_first=True))
        for name in _ALIASES_FIRST
        if node.get(name)
    }
    below = {
        name: replaced(node[name], lambda item: full(item, aliases_first=False))
        for name in _COLUMNS_FIRST
        if node.get(name)
    }
    return {**node, **above, **below}


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return a name that differs from all names in `taken`, however these are capitalised."""
    folded = {fold(name) for name in taken}
    while fold(name) in folded:
        name = f"{name}_value"
    return name


# ---------------------------------------------------------------------- unknown names


def unknown_column(node: Node, scope: Scope) -> StatementNotAllowed:
    """Return the error for a column that no table in the scope has."""
    name = ".".join(node["column_names"])
    known = [column for table in scope.tables for column in table.columns]
    others = closest(node["column_names"][-1], known)
    return scope.refuse(node, f"There is no column {name}{others}.", code="unknown-column")


def closest(name: str, known: Sequence[str]) -> str:
    """Return the end of a sentence about an unknown name: a similar name, if there is one, and the known names."""
    shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "") or "none"
    folded = {fold(name): name for name in known}
    near = difflib.get_close_matches(fold(name), list(folded), 1)
    return f". Did you mean {folded[near[0]]}? There are {shown}" if near else f"; there are {shown}"
