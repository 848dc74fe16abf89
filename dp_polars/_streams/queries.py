"""The questions that a stream answers: conditions, counts and sums. Nothing is read here.

How far one unit moves an answer. It keeps at most `max_rows` rows, chosen once when the stream is opened, so it moves

- a count of rows by at most `max_rows`. Replacing a unit changes its count from one number between 0 and `max_rows` to
  another;
- a sum of values clipped to [low, high] by at most max_rows * max(|low|, |high|) if it is added or removed, and by at
  most max_rows * (max(high, 0) - min(low, 0)) if it is replaced: because a unit may have fewer rows, or none with a
  value, its sum lies between max_rows * min(low, 0) and max_rows * max(high, 0);
- a count of units by at most 1, over all of its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from dp_polars._aggregates.base import AggregateCall
from dp_polars._engines.request import Tally, ValueColumn
from dp_polars._expressions import Expression, apply
from dp_polars._expressions.check import check_expression
from dp_polars._plan.grid import Grid, grid_of
from dp_polars._session.terms import Adjacency
from dp_polars._streams.plan import StreamPlan
from dp_polars.errors import InvalidParameterError

_POSSIBLE = (
    "A stream answers a condition (an expression that is true or false in each row, or the name of a Boolean column), "
    "dp.count(), dp.count('x'), dp.count_units() and dp.sum('x', bounds=(0, 100))."
)


@dataclass(frozen=True, kw_only=True)
class StreamQuery:
    """A checked question to a stream.

    Attributes
    ----------
    tally
        What the engine counts or adds up.
    sensitivity
        The most that one unit moves the answer.
    step
        The value of one step of the exact answer.
    rises
        Whether the answer can't fall when a unit is added.
    whole
        Whether a released value is a whole number.
    """

    tally: Tally
    sensitivity: Fraction
    step: Fraction = Fraction(1)
    rises: bool = True
    whole: bool = True


def moved_by(grid: Grid, max_rows: int, adjacency: Adjacency) -> int:
    """Return the most steps by which one unit with at most `max_rows` rows moves a sum."""
    if adjacency == "replace":
        return max_rows * (max(grid.high, 0) - min(grid.low, 0))
    return max_rows * grid.largest


AdoptedBounds = Callable[[Expression], tuple[Any, str] | None]
"""Returns the bounds that a session adopted for a value and where they came from, or None."""


def no_bounds(tree: Expression) -> None:
    """Return None: no bounds were adopted for any value."""


def asked_text(words: Any) -> str:
    """Return a question as the audit log shows it."""
    if isinstance(words, AggregateCall):
        return f"{words.kind}({', '.join(map(str, words.columns))})"
    return str(words) if isinstance(words, pl.Expr | str | bool) else f"a {type(words).__name__}"


def query_of(words: Any, plan: StreamPlan, schema: pl.Schema, adopted: AdoptedBounds = no_bounds) -> StreamQuery:
    """Return the question that a user asks a stream, or raise an error that says what can be asked."""
    if isinstance(words, AggregateCall):
        query = _aggregate(words, plan, schema, adopted)
    else:
        query = _condition(words, plan, schema)
    if plan.monotone and not query.rises:
        raise InvalidParameterError(
            "This stream is monotone: it takes only questions whose answers can't fall when a unit is added. A sum is "
            "one if its lower bound is at least 0. Nothing was asked."
        )
    return query


def _condition(words: Any, plan: StreamPlan, schema: pl.Schema) -> StreamQuery:
    if not isinstance(words, pl.Expr | str | bool):
        raise InvalidParameterError(f"This is a {type(words).__name__}. {_POSSIBLE}")
    checked = check_expression(words, schema=schema, what="stream")
    dtype = checked.dtype
    if dtype != pl.Boolean:
        raise InvalidParameterError(f"{checked.name} has the type {dtype}, which is not a condition. {_POSSIBLE}")
    if plan.of == "rows":
        return _rows(plan, checked.tree)
    return _units(checked.tree)


def _aggregate(asked: AggregateCall, plan: StreamPlan, schema: pl.Schema, adopted: AdoptedBounds) -> StreamQuery:
    if asked.kind not in ("count", "count_units", "sum"):
        raise InvalidParameterError(f"A stream can't be asked for a {asked.kind}. {_POSSIBLE}")
    if asked.weight != 1:
        raise InvalidParameterError("weight= splits a spend; asking a stream costs nothing. Leave it out.")
    if asked.kind == "count_units":
        return _units(None)
    if asked.kind == "sum":
        return _sum(asked, plan, schema, adopted)
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


def _sum(asked: AggregateCall, plan: StreamPlan, schema: pl.Schema, adopted: AdoptedBounds) -> StreamQuery:
    if asked.options["per"] != "row":
        raise InvalidParameterError(
            "A stream clips each row of a sum, not each unit's total: leave per= out, and say how many rows a unit "
            "counts with (max_rows_per_group=) when you open it."
        )
    (column,), (bounds,) = asked.columns, asked.bounds
    if isinstance(bounds, str):
        raise InvalidParameterError(
            "A stream can't estimate bounds. Values outside the bounds are clipped: give bounds=(0, 100)."
        )
    checked = check_expression(column, schema=schema, what="sum")
    dtype = checked.dtype
    if dtype.is_temporal():
        raise InvalidParameterError(
            f"{checked.name} has the type {dtype}, but the threshold is a number. Make it a number, for example a "
            f"duration with dp.sum(pl.col('{checked.name}').dt.total_seconds(), bounds=(0, 3600))."
        )
    max_rows = _row_cap(plan, "sum")
    suggested = adopted(checked.tree) if bounds is None else None
    value = asked.aggregate.value(checked, bounds if suggested is None else suggested[0], asked)
    grid = grid_of(value, max_rows, centred=False)
    step = grid.step * value.unit
    return StreamQuery(
        tally=Tally(
            kind="sum",
            value=apply("cast", checked.tree, to=pl.Int8()) if dtype == pl.Boolean else checked.tree,
            column=ValueColumn(place=0, low=grid.low, high=grid.high, exponent=grid.exponent),
        ),
        sensitivity=moved_by(grid, max_rows, plan.terms.adjacency) * step,
        step=step,
        rises=value.lower >= 0,
        whole=value.integers and value.unit == 1,
    )


def _row_cap(plan: StreamPlan, what: str) -> int:
    if plan.max_rows is None:
        raise InvalidParameterError(
            f"A {what} needs a cap on the rows of one unit. Say max_rows_per_group=10 when you open the stream (or in "
            "the session), or ask for units: a condition, or dp.count_units().",
            code="row-cap-missing",
        )
    return plan.max_rows
