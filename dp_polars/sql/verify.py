"""A last look at what will run: a statement that was cut is written as text, parsed again, and read from end to end.

Everything was checked on the way here, place by place. This check knows nothing of places: whatever stands anywhere in
the text may only be a known kind of node, a known function, and a table that this statement may read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dp_polars.errors import StatementNotAllowed
from dp_polars.sql.allowed import EXPRESSIONS, ORDINARY, ROWWISE, TABLE_FUNCTIONS
from dp_polars.sql.tree import Node, fold

_BELOW = EXPRESSIONS | {"STAR", "TYPE"}
_ABOVE = _BELOW | {"SUBQUERY", "WINDOW", "POSITIONAL_REFERENCE", "COLLATE"}
_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE"})
_TABLES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST", "TABLE_FUNCTION"})
_MODIFIERS = frozenset({"ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"})
_ORDERS = frozenset({"ASCENDING", "DESCENDING", "ORDER_DEFAULT", "ASC", "DESC"})
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+")


def verify(
    tree: Node, readable: Callable[[tuple[str, ...]], bool], is_macro: Callable[[str], bool], *, above: bool
) -> None:
    """Refuse a tree with a table that isn't readable, or with anything that isn't known; below, subqueries too."""
    _Reader(readable, is_macro, above).read(tree)


class _Reader:
    def __init__(
        self, readable: Callable[[tuple[str, ...]], bool], is_macro: Callable[[str], bool], above: bool
    ) -> None:
        self._readable, self._is_macro = readable, is_macro
        self._classes = _ABOVE if above else _BELOW
        self._functions = ORDINARY if above else ROWWISE

    def read(self, item: Any) -> None:
        if isinstance(item, list):
            for one in item:
                self.read(one)
        elif isinstance(item, dict):
            if "class" in item:
                self._expression(item)
            elif isinstance(item.get("type"), str):
                self._node(item)
            for one in item.values():
                self.read(one)

    def _expression(self, item: Node) -> None:
        kind = item["class"]
        if kind not in self._classes:
            raise _refused(f"{fold(kind)} expressions are not understood")
        if kind in ("FUNCTION", "WINDOW"):
            name = fold(item["function_name"])
            full = (item.get("catalog") or "", item.get("schema") or "")
            built_in = name in self._functions or name in TABLE_FUNCTIONS
            window = kind == "WINDOW" and built_in  # has no full name
            if not (built_in and full == ("system", "main")) and not window and not self._is_macro(name):
                raise _refused(f"{name} is not a function that is known")
        elif kind == "PARAMETER":
            check_parameter(str(item["identifier"]))

    def _node(self, item: Node) -> None:
        kind = item["type"]
        if kind == "BASE_TABLE":
            path = tuple(fold(item[part]) for part in ("catalog_name", "schema_name", "table_name") if item[part])
            if not self._readable(path):
                raise _refused(f"{'.'.join(path)} is not a table of this statement")
        elif kind not in _QUERIES | _TABLES | _MODIFIERS | _ORDERS and not _is_value_type(item):
            raise _refused(f"{kind} is not understood")


def _is_value_type(item: Node) -> bool:
    """Whether a node describes the type of a constant or of a cast."""
    return str(item["type"]).endswith("_TYPE_INFO")


def check_parameter(name: str) -> None:
    """Refuse a parameter whose name is more than a name: DuckDB writes it into texts as it is."""
    if not _PARAMETER.fullmatch(name):
        raise StatementNotAllowed("The name of a parameter has letters, digits and underscores.")


def _refused(reason: str) -> StatementNotAllowed:
    return StatementNotAllowed(f"This statement is not understood: {reason}.")
