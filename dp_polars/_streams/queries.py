"""What can be asked of a stream: conditions, counts and sums, in a user's words. Nothing is read."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import polars as pl

from dp_polars._aggregates.functions import Asked
from dp_polars._aggregates.values import value_of
from dp_polars._engines.polars.stream_answers import Tally
from dp_polars._engines.request import Column
from dp_polars._expressions import Expression, apply
from dp_polars._expressions.check import check_expression
from dp_polars._plan.grid import grid_of
from dp_polars._streams.plan import StreamPlan, StreamQuery, moved_by
from dp_polars.errors import InvalidParameterError

_POSSIBLE = (
    "A stream answers a condition (an expression that is true or false in each row, or the name of a Boolean column), "
    "dp.count(), dp.count('x'), dp.count_units() and dp.sum('x', bounds=(0, 100))."
)


def query_of(words: Any, plan: StreamPlan, schema: pl.Schema) -> StreamQuery:
    """Return the question to a stream that a user's words mean, or say what is possible."""
    query = _aggregate(words, plan, schema) if isinstance(words, Asked) else _condition(words, plan, schema)
    if plan.monotone and not query.rises:
        raise InvalidParameterError(
            "This stream is monotone: only answers that can't fall when a unit is added. A sum is one if its lower "
            "bound is at least 0. Nothing was asked."
        )
    return query


def _condition(words: Any, plan: StreamPlan, schema: pl.Schema) -> StreamQuery:
    if not isinstance(words, pl.Expr | str | bool):
        raise InvalidParameterError(f"This is a {type(words).__name__}. {_POSSIBLE}")
    checked = check_expression(words, schema=schema, what="stream")
    dtype = checked.dtype
    if dtype != pl.Boolean:
        raise InvalidParameterError(f"{checked.name} has the type {dtype}, which is no condition. {_POSSIBLE}")
    if plan.of == "rows":
        return _rows(plan, checked.tree)
    return _units(checked.tree)


def _aggregate(asked: Asked, plan: StreamPlan, schema: pl.Schema) -> StreamQuery:
    if asked.kind not in ("count", "count_units", "sum"):
        raise InvalidParameterError(f"A stream can't be asked for a {asked.kind}. {_POSSIBLE}")
    if asked.weight != 1:
        raise InvalidParameterError("weight= splits a spend; asking a stream costs nothing. Leave it out.")
    if asked.kind == "count_units":
        return _units(None)
    if asked.kind == "sum":
        return _sum(asked, plan, schema)
    if not asked.columns:
        return _rows(plan, None)
    checked = check_expression(asked.columns[0], schema=schema, what="count")
    there = apply("is_not_null", checked.tree)
    if checked.dtype.is_float():
        there = apply("and", there, apply("not", apply("is_nan", checked.tree)))
    return _rows(plan, there)


def _units(condition: Expression | None) -> StreamQuery:
    return StreamQuery(tally=Tally(kind="units", value=condition), sensitivity=Fraction(1))


def _rows(plan: StreamPlan, condition: Expression | None) -> StreamQuery:
    tally = Tally(kind="rows", value=condition)
    return StreamQuery(tally=tally, sensitivity=Fraction(_row_cap(plan, "count of rows")))


def _sum(asked: Asked, plan: StreamPlan, schema: pl.Schema) -> StreamQuery:
    if asked.per != "row":
        raise InvalidParameterError(
            "A stream clips each row of a sum, not each unit's total: leave per= out, and say how many rows a unit "
            "counts with (max_rows_per_group=) when you open it."
        )
    (column,), (bounds,) = asked.columns, asked.bounds
    if isinstance(bounds, str):
        raise InvalidParameterError("A stream estimates no bounds; say which values count at most: bounds=(0, 100).")
    checked = check_expression(column, schema=schema, what="sum")
    dtype = checked.dtype
    if dtype.is_temporal():
        raise InvalidParameterError(
            f"{checked.name} has the type {dtype}, but the threshold is a number. Ask for a number of it, for example "
            f"dp.sum(pl.col('{checked.name}').dt.total_seconds(), bounds=(0, 3600)) of a duration."
        )
    max_rows = _row_cap(plan, "sum")
    value = value_of(checked, dtype, asked, bounds)
    grid = grid_of(value, max_rows, centred=False)
    step = grid.step * value.unit
    return StreamQuery(
        tally=Tally(
            kind="sum",
            value=apply("cast", checked.tree, to=pl.Int8()) if dtype == pl.Boolean else checked.tree,
            column=Column(place=0, low=grid.low, high=grid.high, exponent=grid.exponent),
        ),
        sensitivity=moved_by(grid, max_rows, plan.terms.adjacency) * step,
        step=step,
        rises=value.lower >= 0,
        whole=value.integers and value.unit == 1,
    )


def _row_cap(plan: StreamPlan, what: str) -> int:
    if plan.max_rows is None:
        raise InvalidParameterError(
            f"A {what} needs to know with how many rows one unit may count. Say max_rows_per_group=10 when you open "
            "the stream (or in the session), or ask for units: a condition, or dp.count_units().",
            code="row-cap-missing",
        )
    return plan.max_rows
