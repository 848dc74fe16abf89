"""A call of a private aggregate in SQL: its question and its options, which are constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dp_polars.asking.options import Options
from dp_polars.errors import StatementNotAllowed
from dp_polars.sql.allowed import AGGREGATES
from dp_polars.sql.tree import Node, Parser, arguments, fold, place, walk

_OWN = {"bounds", "per"}
_OPTIONS = frozenset(Options.__annotations__) - {"session", "confidence"} | _OWN  # an answer is one value: no interval
_CONSTANT = frozenset({"row", "list_value", "-", "+", "struct_pack"})


@dataclass(frozen=True)
class Call:
    """A private aggregate: which, of what, under which condition, with which options."""

    aggregate: Any
    value: Node | None
    where: Node | None
    options: dict[str, Any]
    node: Node


def call_of(node: Node, parser: Parser, parameters: dict[str, Any], sql: str) -> Call:
    """Return the call that a function node means."""

    def refuse(at: Node, reason: str) -> StatementNotAllowed:
        return StatementNotAllowed(reason + place(at, sql))

    name = fold(node["function_name"])
    aggregate = AGGREGATES[name]
    if node.get("distinct") or (node.get("order_bys") or {}).get("orders"):
        raise refuse(node, f"{name} takes neither DISTINCT nor ORDER BY; distinct units are dp_count_units().")
    options: dict[str, Any] = {}
    positional: list[Node] = []
    for option, child in arguments(node):
        if not option:
            positional.append(child)
            continue
        if fold(option) not in _OPTIONS:
            raise refuse(child, f"{name} has no option {option}. There are {', '.join(sorted(_OPTIONS))}.")
        options[fold(option)] = _constant(child, parser, parameters, refuse)
    value = None
    if positional and positional[0]["class"] != "STAR":
        value = positional[0]
    rest = positional[1:]
    if aggregate in ("sum", "mean"):
        if value is None:
            raise refuse(node, f"{name} needs a column: {name}(x, 0, 100).")
        if len(rest) == 2:
            options.setdefault("bounds", tuple(_constant(child, parser, parameters, refuse) for child in rest))
            rest = []
    if aggregate == "count_units" and value is not None:
        raise refuse(node, "dp_count_units counts units; it takes no column. Leave units out with FILTER (WHERE ...).")
    if rest:
        raise refuse(rest[0], f"{name} is given more than it takes; options have names: epsilon := 0.1.")
    if isinstance(options.get("bounds"), list):
        options["bounds"] = tuple(options["bounds"])
    return Call(aggregate, value, node.get("filter"), options, node)


def _constant(node: Node, parser: Parser, parameters: dict[str, Any], refuse: Any) -> Any:
    for item in walk(node):
        kind = item["class"]
        if kind == "FUNCTION" and fold(item["function_name"]) in _CONSTANT:
            continue
        if kind not in ("CONSTANT", "PARAMETER", "CAST"):
            raise refuse(item, "An option is a constant or a parameter: it must be known before a row is read.")
        if kind == "PARAMETER" and item["identifier"] not in parameters:
            raise refuse(item, f"No value was given for parameter {item['identifier']}.")
    worth = parser.value({**node, "alias": ""}, parameters)
    return tuple(worth.values()) if isinstance(worth, dict) and _unnamed(worth) else worth


def _unnamed(row: dict[str, Any]) -> bool:
    return all(name == "" or name.startswith("element") or name.isdigit() for name in row)
