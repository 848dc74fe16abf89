"""Caps and bounds that a question leaves out and that the session adopted from a profile of the same source.

A suggestion is found by public facts alone: the identity of the source, the unit, and the expressions of keys and
columns, written over the columns of the source. Filters in between make no difference, because fewer rows need no
larger caps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from dp_polars._engines.rows import Lookup, WithColumns
from dp_polars._engines.unit_steps import unique_columns
from dp_polars._expressions.tree import Apply, Column, Expression, canonical
from dp_polars._frame.options import AnyOptions, cap_of
from dp_polars._frame.question import View
from dp_polars._plan.query import Cap
from dp_polars._session.suggestions import Suggestions

CapName = Literal["max_groups", "max_rows_per_group"]

_LARGEST = 1_000  # nodes of an expression that is followed back to the source


def adopted_cap(options: AnyOptions, name: CapName, view: View, keys: Iterable[Expression]) -> tuple[Cap | None, str]:
    """Return a cap and where it came from: the steps before, the call, an adopted profile, or the session."""
    keys = list(keys)
    derived = _derived_cap(view, name, keys)
    if derived is not None:
        return derived
    suggestions = _suggestions(view) if options.get(name) is None else []
    wanted = _source_keys(view, keys) if suggestions else None
    for suggestion in suggestions:
        cap = suggestion.max_groups if name == "max_groups" else suggestion.max_rows_per_group
        if cap is not None and suggestion.keys is not None and wanted == sorted(suggestion.keys):
            return cap, f"{name} {suggestion.rule}"
    return cap_of(options, name, view.session)


def _derived_cap(view: View, name: CapName, keys: Iterable[Expression]) -> tuple[Cap, str] | None:
    """Return a cap of 1 if steps within a unit leave no more: one row per unit, or one per unit and key.

    The cap is enforced like any other, so the guarantee doesn't depend on this.
    """
    unique = unique_columns(view.rows)
    if unique is None or not set(view.unit) <= unique:
        return None
    others = unique - set(view.unit)
    if not others:
        return 1, "one row per unit after the steps before"
    asked = {key.name for key in keys if isinstance(key, Column)}
    if name == "max_rows_per_group" and others <= asked:
        return 1, f"one row per unit and {', '.join(sorted(others))} after the steps before"
    return None


def _source_keys(view: View, keys: Iterable[Expression]) -> list[str] | None:
    """Return keys as sorted expressions over the columns of the source; None if one of them has no such form."""
    found = [source_expression(view, key) for key in keys]
    return None if None in found else sorted(one for one in found if one is not None)


def known_cuts(view: View, keys: Iterable[Expression], values: Mapping[str, Expression]) -> Suggestions | None:
    """Return what adopted profiles tell about the caps and bounds of a query; None if no profile was adopted.

    `values` are the values of the query by their expressions, and so are the bins in the result.
    """
    suggestions = _suggestions(view)
    if not suggestions:
        return None
    wanted = _source_keys(view, keys)
    same = [
        suggestion for suggestion in suggestions if suggestion.keys is not None and sorted(suggestion.keys) == wanted
    ]
    outside = {}
    for expression, tree in values.items():
        source = source_expression(view, tree) or ""
        own = next((suggestion.outside[source] for suggestion in suggestions if source in suggestion.outside), None)
        if own is not None:
            outside[expression] = own
    return replace(suggestions[0], beyond=same[0].beyond if same else {}, outside=outside)


def adopted_bounds(view: View, tree: Expression) -> tuple[tuple[Any, Any], str] | None:
    """Return the adopted bounds of an expression and where they came from, or None."""
    suggestions = _suggestions(view)
    expression = source_expression(view, tree) if suggestions else None
    for suggestion in suggestions:
        if expression is not None and expression in suggestion.bounds:
            return suggestion.bounds[expression], suggestion.rule
    return None


def _suggestions(view: View) -> list[Suggestions]:
    """Return what the session adopted for the sources of a view, the latest first."""
    adopted = view.session.adopted
    if not adopted or view.sources is None:
        return []
    sources, unit = view.sources(), source_unit(view)
    return [one for one in reversed(adopted) if one.source in sources and one.unit == unit]


def source_unit(view: View) -> tuple[str | None, ...]:
    """Return the unit columns as expressions over the columns of the source."""
    schema = view.rows.schema
    return tuple(source_expression(view, Column(name, schema[name])) for name in view.unit)


def source_expression(view: View, tree: Expression) -> str | None:
    """Return an expression over the columns of the source, as canonical text; None if it cannot be written so."""
    for step in reversed(view.rows.steps):
        if isinstance(step, WithColumns):
            tree = _substituted(tree, dict(step.columns))
        elif isinstance(step, Lookup) and tree.columns & {name for _, name in step.columns}:
            return None
        if isinstance(tree, Apply) and tree.size > _LARGEST:
            return None
    return canonical(tree)


def _substituted(tree: Expression, made: dict[str, Expression]) -> Expression:
    if isinstance(tree, Column):
        return made.get(tree.name, tree)
    if isinstance(tree, Apply):
        return replace(tree, arguments=tuple(_substituted(argument, made) for argument in tree.arguments))
    return tree
