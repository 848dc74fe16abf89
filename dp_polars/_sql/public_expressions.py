"""That an expression over public or released rows reads nothing but those rows."""

from __future__ import annotations

from dp_polars._sql.allowed_functions import EXPRESSIONS, ORDINARY
from dp_polars._sql.syntax_tree import Node, fold, walk
from dp_polars._sql.tables import Scope

_KNOWN = EXPRESSIONS | {"WINDOW", "SUBQUERY", "STAR", "POSITIONAL_REFERENCE", "COLLATE"}


def check_ordinary(node: Node, scope: Scope) -> None:
    """Refuse an expression that might read anything else; what its subqueries read is checked where they are cut."""
    for item in walk(node):
        kind = item["class"]
        if kind in ("FUNCTION", "WINDOW"):
            name = fold(item["function_name"])
            if item.get("schema") not in ("", "main", None) or item.get("catalog"):
                raise scope.refuse(item, f"{name} is called by a qualified name; call it by its own.")
            if name not in ORDINARY:
                raise scope.refuse(
                    item, f"{name} is not among the built-in functions that are known to read nothing else."
                )
        elif kind == "COLUMN_REF":
            if scope.resolve(item) is None:
                raise scope.refuse(item, f"There is no column {'.'.join(item['column_names'])} here.")
        elif kind not in _KNOWN:
            raise scope.refuse(item, f"{fold(kind)} expressions are not understood.")
