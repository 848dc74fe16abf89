"""Calls of private aggregates and choices in SQL: their columns and their options, which must be constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dp_polars._aggregates.base import Aggregate, AggregateCall, Shape
from dp_polars._aggregates.sums import Sum
from dp_polars._choices.question import Choice
from dp_polars._frame.options import ChoiceOptions, Options
from dp_polars._sql.allowed_functions import AGGREGATES, CHOICES, CUTS, ChoiceKind
from dp_polars._sql.syntax_tree import Node, Parser, arguments, fold, place, walk
from dp_polars.errors import InvalidParameterError, StatementNotAllowed

_OF_CHOICES = frozenset({"candidates", "score", "k", "bounds"})
_OF_AGGREGATES = frozenset({"bounds", "weight"}).union(*(aggregate.options for aggregate in AGGREGATES.values()))
OWN = _OF_CHOICES | _OF_AGGREGATES
"""The options that belong to one aggregate or choice. All others belong to the whole query."""
_OPTIONS = frozenset(Options.__annotations__) - {"session", "confidence", "rollup", "cut"}
CUT_HAS_NO_COLUMN = (
    "A SELECT shows the columns that it names, so cut=True would be paid for and not shown. Select dp_cut_by_cap() or "
    "dp_cut_by_bounds() beside the other private aggregates instead."
)
"""Why cut=True is refused."""
_CHOICE_OPTIONS = frozenset(ChoiceOptions.__annotations__) - {"session"} | _OF_CHOICES
SQL_OPTIONS = _OPTIONS | _CHOICE_OPTIONS | OWN
"""Every option that a call in SQL may have."""
_CONSTANT = frozenset({"row", "list_value", "-", "+", "struct_pack"})
_SPENDS = ("epsilon", "share", "rho", "within")
_STARRED = ("columns", "expr", "relation_name", "exclude_list", "replace_list", "rename_list", "qualified_exclude_list")

Refuse = Callable[[Node, str], StatementNotAllowed]


@dataclass(frozen=True)
class Call:
    """A call of a private aggregate or choice.

    Attributes
    ----------
    name
        Its name in SQL.
    what
        The aggregate, or the kind of choice.
    values
        The expressions that it reads.
    where
        The condition of its FILTER clause.
    own
        The options that belong to this call.
    options
        The options that belong to the whole query.
    node
        The call in the syntax tree.
    """

    name: str
    what: type[Aggregate] | ChoiceKind
    values: tuple[Node, ...]
    where: Node | None
    own: dict[str, Any]
    options: dict[str, Any]
    node: Node

    @property
    def spends(self) -> bool:
        """Whether the call states a spend."""
        return any(self.options.get(name) is not None for name in _SPENDS)

    @property
    def chooses(self) -> bool:
        """Whether the call is a choice among candidates."""
        return self.name in CHOICES

    @property
    def counts_cut(self) -> bool:
        """Whether the call tells what is cut off from the aggregates beside it."""
        return self.name in CUTS

    def choice(self, columns: tuple[str, ...]) -> Choice:
        """Return the choice among the values of the first column, scored by the sum of the second if there is one."""
        score = self.own.get("score", "rows")
        if len(columns) > 1:
            if "score" in self.own:
                raise InvalidParameterError(
                    f"{self.name} scores candidates by the sum of {columns[1]} or by score, not by both. Leave one out."
                )
            score = Sum.call(columns[1], bounds=self.own.get("bounds"))
        given = self.own.get("candidates")
        candidates = list(given) if isinstance(given, tuple) else given
        return Choice(kind=CHOICES[self.name], column=columns[0], score=score, candidates=candidates, k=self._wanted())

    def _wanted(self) -> Any:
        if self.what == "top_k":
            if self.own.get("k") is None:
                raise InvalidParameterError("dp_top_k needs the number of candidates to choose. Say dp_top_k(x, 3).")
            return self.own["k"]
        if self.own.get("k") is not None:
            raise InvalidParameterError(f"{self.name} chooses one candidate. To choose several, write dp_top_k(x, 3).")
        return 1

    def takes(self, option: str) -> bool:
        """Return whether this call takes an option of its own with this name."""
        if isinstance(self.what, str):
            return option in _OF_CHOICES
        return not self.counts_cut and option in _own_options(self.what)

    @property
    def ignores_options(self) -> bool:
        """Whether options of the whole statement may have no effect on this call: a count has nothing to clip."""
        return not isinstance(self.what, str) and not self.what.bounded

    def asked(self, columns: tuple[str, ...]) -> AggregateCall:
        """Return the aggregate that this call asks for, over these columns."""
        if isinstance(self.what, str):
            raise ValueError("a choice is not an aggregate")
        options = {option: value for option, value in self.own.items() if option in _own_options(self.what)}
        bounds = options.get("bounds")
        if len(columns) > 1 and bounds is not None and not (isinstance(bounds, tuple | list) and len(bounds) == 2):
            raise InvalidParameterError(f"{self.name} takes bounds for both columns: bounds := ((0, 1), (0, 100)).")
        return self.what.call(*columns, **options)


def _own_options(aggregate: type[Aggregate]) -> frozenset[str]:
    return frozenset({"weight", *aggregate.options, *(["bounds"] if aggregate.bounded else [])})


def call_of(node: Node, parser: Parser, parameters: dict[str, Any], sql: str) -> Call:
    """Return the call that a function node of the syntax tree stands for, or refuse it."""

    def refuse(at: Node, reason: str) -> StatementNotAllowed:
        return StatementNotAllowed(reason + place(at, sql))

    name = fold(node["function_name"])
    what: type[Aggregate] | ChoiceKind = CHOICES[name] if name in CHOICES else {**AGGREGATES, **CUTS}[name]
    if node.get("distinct") or (node.get("order_bys") or {}).get("orders"):
        instead = "Count distinct units with dp_count_units(), and distinct values with dp_count_distinct(x)"
        raise refuse(node, f"{name} takes neither DISTINCT nor ORDER BY. {instead}.")
    if name in CUTS:
        if arguments(node):
            raise refuse(node, f"{name}() takes no arguments: it is about the private aggregates beside it.")
        return Call(name, CUTS[name], (), node.get("filter"), {}, {}, node)
    said: dict[str, Any] = {}
    positional: list[Node] = []
    for option, child in arguments(node):
        if not option:
            positional.append(child)
            continue
        if fold(option) in ("confidence", "interval") and name in CHOICES:
            raise refuse(child, f"{name} chooses a value, which has no interval. Leave {fold(option)} out.")
        if fold(option) == "confidence":
            ranked = not isinstance(what, str) and what.shape is Shape.RANK
            ends = "dp_rank_error(n, 0.95)" if ranked else "dp_low(n, 0.95) and dp_high(n, 0.95)"
            raise refuse(
                child,
                f"The ends of an interval are columns of their own: select {ends}, where n is the alias of {name}, or "
                "say con.sql(query, confidence=0.95).",
            )
        if fold(option) == "cut":
            raise refuse(child, CUT_HAS_NO_COLUMN)
        known = _CHOICE_OPTIONS if isinstance(what, str) else _OPTIONS | _own_options(what)
        if fold(option) not in known:
            raise refuse(child, f"{name} has no option {option}. Its options are {', '.join(sorted(known))}.")
        if fold(option) in said:
            raise refuse(child, f"{name} has the option {fold(option)} twice. Give it once.")
        said[fold(option)] = constant_of(child, parser, parameters, refuse)
    if name in CHOICES:
        positional, wanted = _how_many(what, positional)
        if wanted is not None:
            said["k"] = constant_of(wanted, parser, parameters, refuse)
    compared = [one for child in positional if (one := _compared_option(child)) is not None]
    takes_none = not isinstance(what, str) and not what.columns
    if compared and (takes_none or len(positional) > 1):
        raise refuse(node, f"{compared[-1]} = ... is a comparison here. An option is written {compared[-1]} := ...")
    values, rest = _values(name, what, positional, refuse, node)
    constants = [constant_of(child, parser, parameters, refuse) for child in rest]
    if not isinstance(what, str):
        for option in what.sql_positional[: len(constants)]:
            said.setdefault(option, constants.pop(0))
    bounded = len(values) == 2 if isinstance(what, str) else what.bounded and len(values) == 1
    if not isinstance(what, str) and what.bounded and len(values) == 2 and len(constants) == 4:
        said.setdefault("bounds", (tuple(constants[:2]), tuple(constants[2:])))
    elif len(constants) == 2 and bounded:
        said.setdefault("bounds", tuple(constants))
    elif constants:
        usage = _usage(name, what) + (f", or {name}(x, bounds := 'auto')" if bounded and len(values) == 1 else "")
        raise refuse(rest[0], f"{name} takes other arguments: {usage}. Options are given by name: epsilon := 0.1.")
    if isinstance(said.get("bounds"), list):
        said["bounds"] = tuple(said["bounds"])
    if name in CHOICES and said.get("bounds") is not None and len(values) < 2:
        raise refuse(node, f"{name} takes bounds only for a column that it sums: {_usage(name, what)}.")
    own_options = {option: value for option, value in said.items() if option in OWN}
    options = {option: value for option, value in said.items() if option not in OWN}
    return Call(name, what, values, node.get("filter"), own_options, options, node)


def _compared_option(node: Node) -> str | None:
    """Return the option that `epsilon = 0.1` names, or None if an argument is anything else."""
    left = node.get("left") or {}
    if node.get("type") != "COMPARE_EQUAL" or left.get("class") != "COLUMN_REF" or len(left["column_names"]) > 1:
        return None
    name = fold(left["column_names"][0])
    return name if name in SQL_OPTIONS else None


_CHOICE_USAGE: dict[ChoiceKind, str] = {
    "noisy_max": "dp_noisy_max(x), or by the sum of y: dp_noisy_max(x, y, 0, 100)",
    "noisy_min": "dp_noisy_min(x), or by the sum of y: dp_noisy_min(x, y, 0, 100)",
    "top_k": "dp_top_k(x, 3), or by the sum of y: dp_top_k(x, 3, y, 0, 100)",
}


def _usage(name: str, what: type[Aggregate] | ChoiceKind) -> str:
    """Return an example of a call."""
    return _CHOICE_USAGE[what] if isinstance(what, str) else what.usage(name)


def _values(
    name: str, what: type[Aggregate] | ChoiceKind, positional: list[Node], refuse: Refuse, node: Node
) -> tuple[tuple[Node, ...], list[Node]]:
    """Return the expressions that a call reads, and its other positional arguments."""
    counts = not isinstance(what, str) and (what.columns_optional or not what.columns)
    if counts and (not positional or positional[0]["class"] == "STAR"):
        if positional and any(positional[0].get(part) for part in _STARRED):
            raise refuse(node, f"{name}(*) counts rows. * with a table, COLUMNS, EXCLUDE or REPLACE is not supported.")
        return (), positional[1:]
    if not isinstance(what, str) and not what.columns:
        raise refuse(node, f"{name} counts units and takes no column. To leave out rows, write FILTER (WHERE ...).")
    chooses = isinstance(what, str)
    wanted = (2 if len(positional) > 1 else 1) if isinstance(what, str) else len(what.columns)
    unfit = ("STAR", "CONSTANT", "PARAMETER") if chooses else ("STAR",)
    if len(positional) < wanted or any(item["class"] in unfit for item in positional[:wanted]):
        columns = "two columns" if wanted == 2 else "a column"
        raise refuse(node, f"{name} needs {columns}: {_usage(name, what)}.")
    return tuple(positional[:wanted]), positional[wanted:]


def _how_many(what: type[Aggregate] | ChoiceKind, positional: list[Node]) -> tuple[list[Node], Node | None]:
    """Return the positional arguments of a choice without the number of candidates, and that number (k of top_k)."""
    if what == "top_k" and len(positional) > 1 and positional[1]["class"] in ("CONSTANT", "PARAMETER", "CAST"):
        return [positional[0], *positional[2:]], positional[1]
    return positional, None


def constant_of(node: Node, parser: Parser, parameters: dict[str, Any], refuse: Refuse) -> Any:
    """Return the value of an option, which must be a constant or a parameter."""
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
