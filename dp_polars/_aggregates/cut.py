"""The number of units that lose something to caps and bounds, which `cut=True` adds to an answer.

How much a unit loses has no bound: it may have any number of rows beyond a cap, and values however far beyond the
bounds. So this counts the units that lose anything at all. What one unit can change: it adds at most 1 to each of the
groups that it counts in, as to `count_units`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import ClassVar

import polars as pl

from dp_polars._aggregates.base import Aggregate, Noisy, RowRule
from dp_polars._aggregates.counts import _Counting
from dp_polars._aggregates.needs import Need, UnitsOver, UnitTotal
from dp_polars._aggregates.values import Value
from dp_polars._expressions import Constant, Expression, apply

CUT_BY_CAP, CUT_BY_BOUNDS = "cut_by_cap", "cut_by_bounds"
"""The columns that `cut=True` adds."""

CUT_SHARE = Fraction(1, 10)
"""The share of the spend that `cut=True` takes."""


@dataclass(frozen=True, kw_only=True)
class CutByCap(_Counting):
    """The number of units that have more rows in a group than `max_rows_per_group`."""

    hidden: ClassVar = True
    kind: ClassVar = "cut_by_cap"
    columns: ClassVar = ()

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group."""
        return (UnitsOver(),)

    def title(self) -> str:
        """Return a short description of the aggregate."""
        return "units cut by the cap"


@dataclass(frozen=True, kw_only=True)
class CutByBounds(_Counting):
    """The number of units that have a value outside the bounds in a group.

    Its value is 1 in the rows where any value lies outside its bounds, and 0 in others. The total of a unit is clipped
    to the range from 0 to 1.
    """

    hidden: ClassVar = True
    kind: ClassVar = "cut_by_bounds"
    rows_beyond_the_cap: ClassVar = RowRule.CLIP_TOTAL

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group."""
        return (UnitTotal(value=self.values[0]),)

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the number of units of each group."""
        return noisy.total()

    def title(self) -> str:
        """Return a short description of the aggregate."""
        return "units cut by the bounds"


def outside_bounds(aggregates: Iterable[Aggregate], tree_of: Callable[[str], Expression]) -> Expression | None:
    """Return 1 in the rows where a value lies outside its bounds and 0 in others; None if no aggregate clips rows.

    `tree_of` returns a value by its expression. The bounds are those of the aggregates: given ones, estimated ones, or
    the range in which they are looked for.
    """
    clipped = {
        (value.expression, value.bounds): value
        for aggregate in aggregates
        for value in aggregate.values
        if not aggregate.hidden and value.bounds is not None and aggregate.row_rule is not RowRule.CLIP_TOTAL
    }
    if not clipped:
        return None
    outside = [_is_outside(tree_of(value.expression), value) for value in clipped.values()]
    return apply("cast", reduce(lambda left, right: apply("or", left, right), outside), to=pl.Int8())


def _is_outside(tree: Expression, value: Value) -> Expression:
    """Return whether a value lies outside its bounds, as an expression. It is false or null if there is no value."""
    lower, upper = value.lower, value.upper
    if tree.dtype.is_float():
        ends = [Constant(float(bound), pl.Float64()) for bound in (lower, upper)]
    else:
        dtype = pl.Int64() if tree.dtype.is_integer() else tree.dtype
        ends = [Constant(math.ceil(lower), dtype), Constant(math.floor(upper), dtype)]
    outside = apply("or", apply("lt", tree, ends[0]), apply("gt", tree, ends[1]))
    if tree.dtype.is_float():  # NaN is not a value, but Polars sorts it above all others
        outside = apply("and", apply("not", apply("is_nan", tree)), outside)
    return outside
