"""A call of a private aggregate in SQL: its question and its options, which are constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dp_polars.asking.aggregates import Asked
from dp_polars.asking.options import Options
from dp_polars.errors import StatementNotAllowed
from dp_polars.planning.query import Kind
from dp_polars.sql.allowed import AGGREGATES
from dp_polars.sql.tree import Node, Parser, arguments, fold, place, walk

OWN = {"bounds", "per", "weight", "quantile", "ddof", "bins", "edges"}
"""Options of one aggregate; all others are of the whole question."""
_OPTIONS = frozenset(Options.__annotations__) - {"session", "confidence", "rollup"} | OWN
_CONSTANT = frozenset({"row", "list_value", "-", "+", "struct_pack"})
_SPENDS = ("epsilon", "share", "rho", "within")
_PAIRS = ("corr", "cov", "linear_regression")
_MEDIANS = {"median": 0.5, "min": 0, "max": 1}

Refuse = Callable[[Node, str], StatementNotAllowed]


@dataclass(frozen=True)
class Call:
    """A private aggregate: which, of what values, under which condition; what is said of it, and of the question."""

    name: str
    kind: Kind
    values: tuple[Node, ...]
    where: Node | None
    own: dict[str, Any]
    options: dict[str, Any]
    node: Node

    @property
    def spends(self) -> bool:
        """Whether it says what it may cost."""
        return any(self.options.get(name) is not None for name in _SPENDS)

    def asked(self, columns: tuple[str, ...]) -> Asked:
        """Return the aggregate of these columns."""
        own = dict(self.own)
        pairs = own.pop("bounds", None)
        bounds = (pairs,) if columns else ()
        if self.kind in _PAIRS:
            bounds = tuple(pairs) if pairs else (None, None)
        quantiles = own.pop("quantile", _MEDIANS.get(self.kind))
        return Asked(kind=self.kind, columns=columns, bounds=bounds, quantiles=quantiles, **own)


def call_of(node: Node, parser: Parser, parameters: dict[str, Any], sql: str) -> Call:
    """Return the call that a function node means."""

    def refuse(at: Node, reason: str) -> StatementNotAllowed:
        return StatementNotAllowed(reason + place(at, sql))

    name = fold(node["function_name"])
    kind = AGGREGATES[name]
    if node.get("distinct") or (node.get("order_bys") or {}).get("orders"):
        instead = "distinct units are dp_count_units(), distinct values dp_count_distinct(x)"
        raise refuse(node, f"{name} takes neither DISTINCT nor ORDER BY; {instead}.")
    said: dict[str, Any] = {}
    positional: list[Node] = []
    for option, child in arguments(node):
        if not option:
            positional.append(child)
            continue
        if fold(option) not in _OPTIONS:
            raise refuse(child, f"{name} has no option {option}. There are {', '.join(sorted(_OPTIONS))}.")
        said[fold(option)] = constant_of(child, parser, parameters, refuse)
    values, rest = _values(name, kind, positional, refuse, node)
    constants = [constant_of(child, parser, parameters, refuse) for child in rest]
    if kind == "quantile" and constants:
        said.setdefault("quantile", constants.pop(0))
    if kind in _PAIRS and len(constants) == 4:
        said.setdefault("bounds", (tuple(constants[:2]), tuple(constants[2:])))
    elif kind not in ("count", "count_units", "n_unique", *_PAIRS) and len(constants) == 2:
        said.setdefault("bounds", tuple(constants))
    elif constants:
        usage = _usage(name, kind)
        raise refuse(rest[0], f"{name} takes other arguments: {usage}. Options have names: epsilon := 0.1.")
    if isinstance(said.get("bounds"), list):
        said["bounds"] = tuple(said["bounds"])
    own = {option: value for option, value in said.items() if option in OWN}
    options = {option: value for option, value in said.items() if option not in OWN}
    return Call(name, kind, values, node.get("filter"), own, options, node)


_USAGE = {
    "count": "dp_count(*) or dp_count(x)",
    "count_units": "dp_count_units()",
    "n_unique": "dp_count_distinct(x)",
    "quantile": "dp_quantile(x, 0.5, 0, 100)",
}


def _usage(name: str, kind: Kind) -> str:
    """Return a call as it should be."""
    return _USAGE.get(kind, f"{name}(x, y, 0, 1, 0, 100)" if kind in _PAIRS else f"{name}(x, 0, 100)")


def _values(
    name: str, kind: Kind, positional: list[Node], refuse: Refuse, node: Node
) -> tuple[tuple[Node, ...], list[Node]]:
    """Return the expressions that a call is about, and what else it was given by position."""
    if kind in ("count", "count_units") and (not positional or positional[0]["class"] == "STAR"):
        return (), positional[1:]
    if kind == "count_units":
        raise refuse(node, "dp_count_units counts units; it takes no column. Leave units out with FILTER (WHERE ...).")
    wanted = 2 if kind in _PAIRS else 1
    if len(positional) < wanted or any(item["class"] == "STAR" for item in positional[:wanted]):
        columns = "two columns" if wanted == 2 else "a column"
        raise refuse(node, f"{name} needs {columns}: {_usage(name, kind)}.")
    return tuple(positional[:wanted]), positional[wanted:]


def constant_of(node: Node, parser: Parser, parameters: dict[str, Any], refuse: Refuse) -> Any:
    """Return what an option is worth; it may not depend on rows."""
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
