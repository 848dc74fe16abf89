"""Caps, bounds and keys that a question leaves out: from an adopted profile of the same source, or from its policy.

A suggestion is found by public facts alone: the identity of the source, the unit, and the expressions of keys and
columns, written over the columns of the source. Filters in between make no difference, because fewer rows need no
larger caps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import polars as pl

from dp_polars._aggregates.base import Aggregate
from dp_polars._expressions.tree import Column, Expression
from dp_polars._frame.options import (
    AnyOptions,
    ChoiceOptions,
    Options,
    candidates_of,
    cap_of,
    domain_of,
    given_domain,
    own_domain,
)
from dp_polars._frame.question import View
from dp_polars._frame.table_rules import FROM_POLICY, capping_rules, derived_from, ruled_column
from dp_polars._plan.contribution import counts_in_groups
from dp_polars._plan.query import Cap, Key
from dp_polars._session.suggestions import Suggestions
from dp_polars.errors import InvalidParameterError

CapName = Literal["max_groups", "max_rows_per_group", "max_rows"]


class AdoptedCap(NamedTuple):
    """A cap and where it came from, in words. A cap that follows from the steps (`from_steps`) cuts nothing off."""

    most: Cap | None
    rule: str
    from_steps: bool = False
    from_profile: bool = False


def adopted_cap(options: AnyOptions, name: CapName, view: View, keys: Iterable[Expression]) -> AdoptedCap:
    """Return a cap and where it came from: the steps before, the call, an adopted profile, a policy, or the session."""
    keys = list(keys)
    derived = _derived_cap(view, name, keys)
    if derived is not None:
        return derived
    suggestions = view.suggestions if options.get(name) is None else []
    wanted = _source_keys(view, keys) if suggestions else None
    for suggestion in suggestions:
        cap = suggestion.max_groups if name == "max_groups" else suggestion.max_rows_per_group
        if cap is not None and suggestion.keys is not None and wanted == sorted(suggestion.keys):
            return AdoptedCap(cap, f"{name} {suggestion.rule}", from_profile=True)
    rules = capping_rules(view.rules, view.rows)
    if options.get(name) is None and rules is not None and name in rules.caps:
        return AdoptedCap(rules.caps[name], f"{name} {FROM_POLICY}")
    return AdoptedCap(*cap_of(options, name, view.defaults))


class AdoptedCaps(NamedTuple):
    """The caps on groups and on rows, and whether the cap on rows is for all groups together."""

    groups: AdoptedCap
    rows: AdoptedCap
    across: bool


def adopted_caps(
    options: Options, view: View, keys: Iterable[Expression], aggregates: Sequence[Aggregate], *, public: bool
) -> AdoptedCaps:
    """Return the caps of a question with `public` or discovered keys.

    A cap on the rows in all groups takes the place of both other caps. The cap on groups holds as well where that is
    not enough, or if the call gives it as a number.
    """
    keys = list(keys)
    if options.get("max_rows") is not None and options.get("max_rows_per_group") is not None:
        raise InvalidParameterError(
            "max_rows caps the rows of a unit in all groups together, and max_rows_per_group those in each group. Give "
            "one of them."
        )
    groups, in_group = (adopted_cap(options, name, view, keys) for name in ("max_groups", "max_rows_per_group"))
    across = None if in_group.from_steps else _cap_across(options, view, in_group)
    if across is None:
        return AdoptedCaps(groups, in_group, across=False)
    is_needed = not public or any(counts_in_groups(aggregate) for aggregate in aggregates)
    if not is_needed and not isinstance(options.get("max_groups"), int):
        groups = AdoptedCap(None, "")
    return AdoptedCaps(groups, across, across=True)


def _cap_across(options: Options, view: View, in_group: AdoptedCap) -> AdoptedCap | None:
    """Return the cap on the rows in all groups, or None if there is none or a cap on the rows in each group wins.

    The call wins over an adopted profile, the profile over a policy, and the policy over the session.
    """
    if options.get("max_rows") is not None:
        return AdoptedCap(*cap_of(options, "max_rows", view.defaults))
    rules = capping_rules(view.rules, view.rows)
    ruled = {} if rules is None else rules.caps
    if options.get("max_rows_per_group") is not None or in_group.from_profile:
        return None
    if "max_rows" in ruled:
        return AdoptedCap(ruled["max_rows"], f"max_rows {FROM_POLICY}")
    if "max_rows_per_group" in ruled or view.defaults.max_rows is None:
        return None
    return AdoptedCap(*cap_of(options, "max_rows", view.defaults))


def _derived_cap(view: View, name: CapName, keys: Iterable[Expression]) -> AdoptedCap | None:
    """Return a cap of 1 if steps within a unit leave no more: one row per unit, or one per unit and key.

    The cap is enforced like any other, so the guarantee doesn't depend on this.
    """
    unique = view.unique
    if unique is None or not set(view.unit) <= unique:
        return None
    others = unique - set(view.unit)
    if not others:
        return AdoptedCap(1, "one row per unit after the steps before", from_steps=True)
    asked = {key.name for key in keys if isinstance(key, Column)}
    if name == "max_rows_per_group" and others <= asked:
        listed = ", ".join(sorted(others))
        return AdoptedCap(1, f"one row per unit and {listed} after the steps before", from_steps=True)
    return None


def _source_keys(view: View, keys: Iterable[Expression]) -> list[str] | None:
    """Return keys as sorted expressions over the columns of the source; None if one of them has no such form."""
    found = [view.source_expression(key) for key in keys]
    return None if None in found else sorted(text for text in found if text is not None)


def known_cuts(view: View, keys: Iterable[Expression], values: Mapping[str, Expression]) -> Suggestions | None:
    """Return what adopted profiles tell about the caps and bounds of a query; None if no profile was adopted.

    `values` are the values of the query by their expressions. The result has its bins by the same expressions.
    """
    suggestions = view.suggestions
    if not suggestions:
        return None
    wanted = _source_keys(view, keys)
    same = [
        suggestion for suggestion in suggestions if suggestion.keys is not None and sorted(suggestion.keys) == wanted
    ]
    outside = {}
    for expression, tree in values.items():
        source = view.source_expression(tree) or ""
        bins = next((suggestion.outside[source] for suggestion in suggestions if source in suggestion.outside), None)
        if bins is not None:
            outside[expression] = bins
    return replace(suggestions[0], beyond=same[0].beyond if same else {}, outside=outside)


def adopted_bounds(view: View, tree: Expression, *, can_estimate: bool = False) -> tuple[Any, str] | None:
    """Return the adopted bounds of an expression and where they came from, or None.

    They are "auto" if the policy lets them be estimated and this kind of question can do it.
    """
    expression = view.source_expression(tree) if view.suggestions else None
    for suggestion in view.suggestions:
        if expression is not None and expression in suggestion.bounds:
            return suggestion.bounds[expression], suggestion.rule
    ruled = ruled_column(view.rules, view.rows, tree)
    if ruled is not None and ruled[1] in ruled[0].bounds:
        found, rule = ruled[0].bounds[ruled[1]], FROM_POLICY
    else:
        found, rule = derived_from(view.rules, view.rows, tree), "derived from the policy"
    return None if found is None or (found == "auto" and not can_estimate) else (found, rule)


@contextmanager
def line_to_add(view: View, *trees: Expression) -> Iterator[None]:
    """Add to an error about a missing cap, bounds or keys the line that the table's owner may add to its policy.

    `trees` are the columns that the error may be about.
    """
    try:
        yield
    except InvalidParameterError as error:
        code: str = error.code
        line = _CAP_LINES.get(code)
        rules = capping_rules(view.rules, view.rows)
        for tree in trees if code in ("bounds-missing", "no-delta-for-keys") else ():
            ruled = ruled_column(view.rules, view.rows, tree)
            what = "bounds" if code == "bounds-missing" else "keys"
            if ruled is not None and ruled[1] not in getattr(ruled[0], what):
                rules = ruled[0]
                line = f"columns.{_toml_key(ruled[1])}.{what} = {_example(tree.dtype, what)}"
                break
        if line is None or rules is None:
            raise
        error.args = (f"{error.args[0]} Or its owner adds below [tables.{rules.table}]: {line}",)
        raise


_CAP_LINES = {"group-cap-missing": "max_groups = 3", "row-cap-missing": "max_rows_per_group = 10"}


def _example(dtype: pl.DataType, what: str) -> str:
    """Return two values of a type as a policy writes them."""
    if dtype in (pl.Date, pl.Datetime):
        return "[2026-01-01, 2026-12-31]" if dtype == pl.Date else "[2026-01-01T00:00:00, 2026-12-31T23:59:59]"
    if what == "bounds":
        return "[0, 100]"
    return "[1, 2]" if dtype.is_integer() else '["a", "b"]'


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def adopted_domain(
    options: Options | ChoiceOptions, keys: tuple[Key, ...], trees: Sequence[Expression], view: View
) -> tuple[pl.DataFrame | None, str]:
    """Return the public keys and where they came from: the call, a policy or their types. None if keys are discovered.

    A policy must list the values of every key that has no list by its type; otherwise all keys are discovered.
    """
    domain, rule = domain_of(options, keys)
    if domain is not None or not keys or not view.rules:
        return domain, rule
    columns: dict[str, Any] = {}
    for key, tree in zip(keys, trees, strict=True):
        ruled = ruled_column(view.rules, view.rows, tree)
        listed = own_domain(key) if ruled is None else ruled[0].keys.get(ruled[1], own_domain(key))
        if listed is None:
            return None, ""
        columns[key.name] = listed
    return given_domain(columns, keys), f"keys {FROM_POLICY}"


def adopted_candidates(given: Any, key: Key, tree: Expression, view: View) -> tuple[pl.DataFrame | None, str]:
    """Return the public candidates of a choice, in the same way."""
    ruled = ruled_column(view.rules, view.rows, tree) if given is None else None
    if ruled is not None and ruled[1] in ruled[0].keys:
        return given_domain(ruled[0].keys[ruled[1]], (key,), "candidates"), f"keys {FROM_POLICY}"
    return candidates_of(given, key)
