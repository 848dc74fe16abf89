"""A last look at what will run: a statement is written as text, parsed again, and read from end to end.

Everything was checked on the way here, place by place. This check knows nothing of places: whatever stands anywhere in
the text may only be a known kind of node, a known function, and a table that was handed over for it.
"""

from __future__ import annotations

import re
from typing import Any

from dp_polars._sql.allowed_functions import EXPRESSIONS, ORDINARY, TABLE_FUNCTIONS
from dp_polars._sql.syntax_tree import Node, fold, path_of
from dp_polars.errors import StatementNotAllowed

_CLASSES = EXPRESSIONS | {"STAR", "TYPE", "SUBQUERY", "WINDOW", "POSITIONAL_REFERENCE", "COLLATE"}
_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE"})
_TABLES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST", "TABLE_FUNCTION"})
_MODIFIERS = frozenset({"ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"})
_ORDERS = frozenset({"ASCENDING", "DESCENDING", "ORDER_DEFAULT", "ASC", "DESC"})
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+")


def verify(tree: Any, tables: frozenset[str]) -> None:
    """Refuse a tree with a table that is not among `tables`, or with anything that isn't known."""
    if isinstance(tree, list):
        for one in tree:
            verify(one, tables)
    elif isinstance(tree, dict):
        if "class" in tree:
            _check_expression(tree)
        elif isinstance(tree.get("type"), str):
            _check_node(tree, tables)
        for one in tree.values():
            verify(one, tables)


def _check_expression(item: Node) -> None:
    kind = item["class"]
    if kind not in _CLASSES:
        raise _refused(f"{fold(kind)} expressions are not understood")
    if kind in ("FUNCTION", "WINDOW"):
        name = fold(item["function_name"])
        if name not in ORDINARY | TABLE_FUNCTIONS:
            raise _refused(f"{name} is not a function that is known")
    elif kind == "PARAMETER":
        check_parameter(str(item["identifier"]))


def _check_node(item: Node, tables: frozenset[str]) -> None:
    kind = item["type"]
    if kind == "BASE_TABLE":
        path = path_of(item)
        if len(path) != 1 or path[0] not in tables:
            raise _refused(f"{'.'.join(path)} is not a table of this statement")
    elif kind not in _QUERIES | _TABLES | _MODIFIERS | _ORDERS and not str(kind).endswith("_TYPE_INFO"):
        raise _refused(f"{kind} is not understood")


def check_parameter(name: str) -> None:
    """Refuse a parameter whose name is more than a name: DuckDB writes it into texts as it is."""
    if not _PARAMETER.fullmatch(name):
        raise StatementNotAllowed("The name of a parameter has letters, digits and underscores.")


def _refused(reason: str) -> StatementNotAllowed:
    return StatementNotAllowed(f"This statement is not understood: {reason}.")
