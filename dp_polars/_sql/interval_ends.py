"""The ends of intervals in a SELECT: `dp_low(n)` and `dp_high(n)` beside `dp_count(*) AS n`.

An interval is computed from the noisy numbers that the aggregate releases anyway. So its ends cost nothing, and they
are found in stored releases too, except for the values of quantiles, whose ends are choices of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dp_polars._aggregates.base import Shape
from dp_polars._sql.aggregate_calls import call_of, constant_of
from dp_polars._sql.allowed_functions import AGGREGATES, CUTS, ENDS
from dp_polars._sql.relations import Context
from dp_polars._sql.scope import aliases_of, name_of
from dp_polars._sql.syntax_tree import Node, arguments, canonical, changed_modifier, fold, replaced
from dp_polars.errors import InvalidParameterError, StatementNotAllowed

DEFAULT_CONFIDENCE = 0.95
"""The confidence of an interval if neither its ends nor the statement name one."""


_WITH_ENDS = {**AGGREGATES, **CUTS}


@dataclass(frozen=True)
class WantedIntervals:
    """What the options of a statement say about intervals: their confidence, and whether quantiles have value ends."""

    confidence: Any
    of_values: bool = False
    expand: bool = True
    """Whether a SELECT that names no ends gets them all. This is for the outermost SELECT."""
    ranks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The ends that are ranks, by the canonical text of the quantile. What is counted beside it decides them."""


@dataclass(frozen=True)
class IntervalEnds:
    """The ends of intervals that one SELECT shows.

    Attributes
    ----------
    columns
        For the canonical text of each end: the canonical text of its aggregate, and which end it is ("low").
    confidence
        The confidence of all intervals of the SELECT.
    """

    columns: dict[str, tuple[str, str]]
    confidence: Any


def is_end(node: Node) -> bool:
    """Return whether an expression is an end of an interval, such as dp_low(n)."""
    return node.get("class") == "FUNCTION" and fold(node["function_name"]) in ENDS


def with_ends(node: Node, context: Context, wanted: WantedIntervals | None) -> tuple[Node, IntervalEnds]:
    """Return a SELECT whose ends of intervals all have the form dp_low(aggregate), and these ends.

    If `wanted` asks for it and the SELECT names no ends itself, both ends are added after every item that is a private
    aggregate.
    """
    aliases = {fold(name): item for name, item in aliases_of(node).items()}
    found: dict[str, tuple[str, str]] = {}
    said: list[Any] = []

    def change(item: Node) -> Node | None:
        if not is_end(item):
            return None
        call = _aggregate_of(item, aliases, context, said)
        plain = _end(item, call)
        found[canonical(plain)] = canonical(call), ENDS[fold(item["function_name"])]
        return plain

    items = [_named(item, replaced(item, change), aliases) for item in node["select_list"]]
    places = {name: replaced(node[name], change) for name in ("having", "qualify", "modifiers") if node.get(name)}
    changed = {**node, **places, "select_list": items}
    if any(confidence != said[0] for confidence in said):
        raise InvalidParameterError("The confidence differs between intervals of one SELECT; give it once.")
    if wanted is not None and wanted.expand and not found:
        changed = _expanded(changed, context, found, wanted)
    usual = DEFAULT_CONFIDENCE if wanted is None else wanted.confidence
    return changed, IntervalEnds(found, said[0] if said else usual)


def _aggregate_of(item: Node, aliases: dict[str, Node], context: Context, said: list[Any]) -> Node:
    """Return the private aggregate that an end is about. Add the confidence to `said` if the end names one."""
    name = fold(item["function_name"])
    positional = [child for option, child in arguments(item) if not option]
    named = {fold(option): child for option, child in arguments(item) if option}
    unusual = item.get("filter") or item.get("distinct") or (item.get("order_bys") or {}).get("orders")
    if unusual or not 1 <= len(positional) <= 2 or named.keys() - {"confidence"} or len(arguments(item)) > 2:
        raise context.refuse(
            item, f"{name} takes a private aggregate or its alias, and the confidence: {name}(n), {name}(n, 0.9)."
        )
    call = positional[0]
    if call["class"] == "COLUMN_REF" and len(call["column_names"]) == 1:
        call = aliases.get(fold(call["column_names"][0]), call)
    if call.get("class") != "FUNCTION" or fold(call["function_name"]) not in _WITH_ENDS:
        raise context.refuse(
            item,
            f"{name} is about one private aggregate of the same SELECT: {name}(dp_count(*)), or {name}(n) beside "
            "dp_count(*) AS n.",
        )
    for given in (*positional[1:], *named.values()):
        said.append(constant_of(given, context.parser, context.parameters, context.refuse))
    return {**call, "alias": ""}


def _end(item: Node, call: Node) -> Node:
    """Return an end of the interval of an aggregate without its other arguments."""
    first = next(argument for argument in item["arguments"] if not argument["name"])
    return {**item, "arguments": [{**first, "expression": call}]}


def _named(before: Node, after: Node, aliases: dict[str, Node]) -> Node:
    """Give an item of SELECT that is an end the name of its aggregate, as frames do: n_low for dp_low(n)."""
    if not is_end(after) or before.get("alias"):
        return after
    ((_, call),) = arguments(after)
    name = next((item["alias"] for item in aliases.values() if canonical(item) == canonical(call)), name_of(call, ""))
    return {**after, "alias": f"{name}_{ENDS[fold(after['function_name'])]}"}


def _expanded(node: Node, context: Context, found: dict[str, tuple[str, str]], wanted: WantedIntervals) -> Node:
    """Return a SELECT with the ends of the interval after each private aggregate that has them."""
    items: list[Node] = []
    for item in node["select_list"]:
        items.append(item)
        if item.get("class") != "FUNCTION" or fold(item["function_name"]) not in _WITH_ENDS:
            continue
        call = {**item, "alias": ""}
        for function in _ends_of(call, context, wanted):
            end = context.parser.expression(f"{function}(x)")
            end = {**end, "arguments": [{**end["arguments"][0], "expression": call}]}
            found[canonical(end)] = canonical(call), ENDS[function]
            items.append({**end, "alias": f"{name_of(item, '')}_{ENDS[function]}"})
    names = [fold(name_of(item, "")) for item in items]
    twice = sorted({name_of(item, "") for item in items if is_end(item) and names.count(fold(item["alias"])) > 1})
    if twice:
        raise InvalidParameterError(
            f"confidence= adds columns named {', '.join(twice)}, but SELECT has a column of that name, or two "
            "aggregates without an alias. Give each aggregate an alias of its own: dp_count(*) AS n."
        )
    before = node["select_list"]

    def item_of(item: Node) -> Node:
        """Return the item that a position in GROUP BY, ORDER BY or DISTINCT ON means, because added items move it."""
        number = context.parser.value(item, {}) if item["class"] == "CONSTANT" else None
        return {**before[number - 1], "alias": ""} if type(number) is int and 0 < number <= len(before) else item

    groups = [item_of(item) for item in node.get("group_expressions", [])]
    modifiers = [
        changed_modifier(modifier, item_of) if modifier.keys() & {"orders", "distinct_on_targets"} else modifier
        for modifier in node["modifiers"]
    ]
    return {**node, "select_list": items, "group_expressions": groups, "modifiers": modifiers}


def _ends_of(call: Node, context: Context, wanted: WantedIntervals) -> tuple[str, ...]:
    """Return the functions that give the ends of an aggregate's interval as columns."""
    aggregate = _WITH_ENDS[fold(call["function_name"])]
    if aggregate.unfolds is not None:  # the ends are inside the answer: of bins, or of slope and intercept
        return ()
    if aggregate.shape is Shape.RANK:
        own = call_of(call, context.parser, context.parameters, context.sql).own.get("interval")
        if not (own == "value" if own is not None else wanted.of_values):
            return tuple(f"dp_{end}" for end in wanted.ranks.get(canonical(call), ()))
    return ("dp_low", "dp_high")


def ends_elsewhere(node: Node, context: Context) -> StatementNotAllowed:
    """Return the error for an end that is not in the SELECT of its aggregate."""
    name = fold(node["function_name"])
    return context.refuse(
        node,
        f"{name} belongs in the SELECT of its private aggregate, but these rows are public or already released. Name "
        f"it there ({name}(n) AS n_{ENDS[name]}) and use that column here.",
    )
