"""Values that can't be null, as far as the steps before them tell. Nothing here reads a row.

A Boolean or Enum key without null values needs no group for null, which would show only noise. What one unit can
change: nothing, because the answer follows from public expressions. If it were wrong, a row with a null key would be
outside the public keys and be dropped.
"""

from __future__ import annotations

import polars as pl

from dp_polars._engines.rows import Filter, Lookup, PrivateRows, WithColumns
from dp_polars._engines.unit_steps import AddWindows, GroupRows, JoinRows, KeepFirst, UnitRows
from dp_polars._expressions.tree import Apply, Column, Constant, Expression

_NEVER = frozenset({"is_null", "is_not_null", "eq_missing", "ne_missing"})
_IF_ARGUMENTS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "is_in"})
_TRUE_ONLY_IF_THERE = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_not_null", "is_in"})
_COUNTS = frozenset({"len", "count", "n_unique", "n_values", "row_number", "rank", "dense_rank", "cum_count"})


def is_never_null(tree: Expression, rows: PrivateRows) -> bool:
    """Return whether an expression over rows has a value in every row."""
    return _never_null(tree, rows, len(rows.steps))


def _never_null(tree: Expression, rows: PrivateRows, place: int) -> bool:
    """Return whether an expression has a value in every row after the first steps."""
    match tree:
        case Constant():
            return tree.value is not None
        case Column():
            return _column(tree.name, rows, place)
        case Apply(operation="case"):
            *parts, otherwise = tree.arguments
            return all(_never_null(part, rows, place) for part in (*parts[1::2], otherwise))
        case Apply(operation="coalesce"):
            return any(_never_null(part, rows, place) for part in tree.arguments)
        case Apply(operation="cast", dtype=pl.Enum() as kind):
            found = _constants(tree.arguments[0])
            return found is not None and all(value in kind.categories for value in found)
        case Apply() if tree.operation in _IF_ARGUMENTS:
            return all(_never_null(part, rows, place) for part in tree.arguments)
    return tree.operation in _NEVER


def _constants(tree: Expression) -> list[object] | None:
    """Return the values that an expression can have if it chooses between constants; otherwise None."""
    if isinstance(tree, Constant):
        return [tree.value]
    if not isinstance(tree, Apply) or tree.operation != "case":
        return None
    *parts, otherwise = tree.arguments
    found = [_constants(part) for part in (*parts[1::2], otherwise)]
    return None if None in found else [value for values in found for value in values or ()]


def _column(name: str, rows: PrivateRows, place: int) -> bool:
    for number in range(place - 1, -1, -1):
        step = rows.steps[number]
        match step:
            case Filter():
                if any(_needs(condition, name) for condition in step.conditions):
                    return True
            case WithColumns():
                made = dict(step.columns).get(name)
                if made is not None:
                    return _never_null(made, rows, number)
            case Lookup():
                if any(name == new for _, new in step.columns):
                    return False
                if step.how in ("inner", "semi") and any(name == mine for mine, _ in step.on) and not step.nulls_equal:
                    return True
    source = rows.source
    if not isinstance(source, UnitRows):
        return name in getattr(source, "never_null", frozenset())
    before = source.inputs[0]
    match source.step:
        case GroupRows(keys=keys, columns=columns) if name not in keys:
            value = dict(columns).get(name)
            return value is not None and value.function in _COUNTS
        case AddWindows(columns=columns) if name in dict(columns):
            return dict(columns)[name].function in _COUNTS
        case GroupRows() | AddWindows() | KeepFirst():
            return _column(name, before, len(before.steps))
        case JoinRows() if name in before.schema:
            return _column(name, before, len(before.steps))
    return False


def _needs(condition: Expression, name: str) -> bool:
    """Return whether a condition is true only where a column has a value."""
    if not isinstance(condition, Apply):
        return isinstance(condition, Column) and condition.name == name
    if condition.operation == "and":
        return any(_needs(part, name) for part in condition.arguments)
    if condition.operation not in _TRUE_ONLY_IF_THERE:
        return False
    return any(isinstance(part, Column) and part.name == name for part in condition.arguments)
