"""That an expression looks at one row: checked node by node, everything unknown is refused."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dp_polars.errors import StatementNotAllowed
from dp_polars.sql.allowed import AGGREGATES, EXPRESSIONS, GROWING, OPERATORS, ROWWISE
from dp_polars.sql.tree import Node, arguments, children, fold, place, walk

Macro = Callable[[str], "tuple[Sequence[str], Node] | None"]


_MOST_MACROS = 8
_LONGEST = 100
_MARGIN = 300  # of a constant as a node, with all that is beside its text


@dataclass(frozen=True)
class Table:
    """A name in FROM and its columns with their types, in the order of the table."""

    alias: str
    columns: dict[str, str]

    def has(self, name: str) -> str | None:
        """Return a column's own spelling, None if there is none."""
        return next((own for own in self.columns if fold(own) == fold(name)), None)


@dataclass(frozen=True)
class Scope:
    """What names mean: the tables of FROM, the text for places, and the user's macros."""

    tables: tuple[Table, ...]
    sql: str
    macro: Macro
    depth: int = 0

    def refuse(self, node: Node, reason: str) -> StatementNotAllowed:
        """Return the error for a node."""
        return StatementNotAllowed(reason + place(node, self.sql))

    def resolve(self, node: Node) -> tuple[Table, str] | None:
        """Return the table and the column that a reference means, None if it means neither."""
        names: list[str] = node["column_names"]
        for table in self.tables:
            if len(names) > 1 and fold(table.alias) == fold(names[0]):
                own = table.has(names[1])
                if own is not None:
                    return table, own
        for table in self.tables:
            own = table.has(names[0])
            if own is not None:
                return table, own
        return None


def check_rowwise(node: Node, scope: Scope) -> None:
    """Refuse an expression that may look at more than the row it is in."""
    kind = node.get("class", "")
    if kind == "FUNCTION":
        _check_function(node, scope)
    elif kind == "COLUMN_REF":
        if scope.resolve(node) is None:
            raise _unknown_column(node, scope)
    elif kind == "OPERATOR" and node["type"] not in OPERATORS:
        raise scope.refuse(node, f"{node['type']} is not known to look at one row only.")
    elif kind == "SUBQUERY":
        raise scope.refuse(node, "A subquery inside an expression looks at other rows; join a public table instead.")
    elif kind == "WINDOW":
        raise scope.refuse(
            node, "A window function looks at other rows; below a private aggregation each row is seen alone."
        )
    elif kind == "STAR":
        raise scope.refuse(node, "* and COLUMNS stand for several columns; name the one that is meant.")
    elif kind not in EXPRESSIONS:
        raise scope.refuse(node, f"{fold(kind) or 'This'} expressions are not known to look at one row only.")
    for child in children(node):
        check_rowwise(child, scope)


def _check_function(node: Node, scope: Scope) -> None:
    name = fold(node["function_name"])
    if name in AGGREGATES:
        raise scope.refuse(node, f"{name} can't be inside of an expression over private rows.")
    if node.get("filter") or node.get("distinct") or (node.get("order_bys") or {}).get("orders"):
        raise scope.refuse(node, f"{name} with FILTER, DISTINCT or ORDER BY aggregates rows.")
    if node.get("schema") not in ("", "main", None) or node.get("catalog"):
        raise scope.refuse(node, f"{name} is called by a qualified name; only built-in functions and macros are known.")
    if name in GROWING and scope.depth:
        raise scope.refuse(node, f"{name} makes texts longer, which is not bounded inside a macro; write it out.")
    if name in ("replace", "regexp_replace") and not _short(arguments(node)[2:3]):
        raise scope.refuse(node, f"{name} puts in a constant text of up to {_LONGEST} characters: others may grow.")
    if name == "list_value" and any(item["class"] == "COLUMN_REF" for item in walk(node)):
        raise scope.refuse(node, "A list that is made of columns can grow without bounds; list constants only.")
    if name in ROWWISE and not scope.depth:
        return  # it is called by its full name, so that no macro takes its place; inside a macro it isn't
    macro = scope.macro(name)
    if macro is not None:
        check_macro(node, macro, scope)
    elif name.startswith("dp_"):
        near = difflib.get_close_matches(name, AGGREGATES, 1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(sorted(AGGREGATES))}."
        raise scope.refuse(node, f"There is no private aggregate {name}. {hint}")
    elif name not in ROWWISE:
        name = "count(*)" if name == "count_star" else name
        raise scope.refuse(
            node,
            f"{name} is not among the functions known to look at one row only. An aggregate would show private rows: "
            "use dp_count, dp_count_units, dp_sum or dp_avg.",
        )


def _short(given: list[tuple[str, Node]]) -> bool:
    """Whether an argument is a constant that is short."""
    return all(item["class"] == "CONSTANT" and len(str(item.get("literal") or item)) < _MARGIN for _, item in given)


def check_macro(node: Node, macro: tuple[Sequence[str], Node], scope: Scope) -> None:
    """Check a user's macro by its definition, in which its parameters are columns."""
    names, body = macro
    if scope.depth > _MOST_MACROS:
        raise scope.refuse(node, "Macros that call macros are followed only so far.")
    if len(names) < len(arguments(node)):
        raise scope.refuse(node, "This macro has fewer parameters than it is given.")
    inner = Scope((Table("", dict.fromkeys(names, "")),), scope.sql, scope.macro, scope.depth + 1)
    check_rowwise(body, inner)


def _unknown_column(node: Node, scope: Scope) -> StatementNotAllowed:
    name = ".".join(node["column_names"])
    known = [column for table in scope.tables for column in table.columns]
    if fold(name) in {"current_date", "current_timestamp", "current_time", "now", "localtimestamp"}:
        return scope.refuse(node, f"{name} depends on when it is asked; pass the time as a parameter.")
    return scope.refuse(node, f"There is no column {name}{nearest(node['column_names'][-1], known)}.")


def nearest(name: str, known: Sequence[str]) -> str:
    """Return the rest of a sentence about a name that isn't known: which was perhaps meant, and which there are."""
    shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "") or "none"
    folded = {fold(one): one for one in known}
    near = difflib.get_close_matches(fold(name), list(folded), 1)
    return f". Did you mean {folded[near[0]]}? There are {shown}" if near else f"; there are {shown}"
