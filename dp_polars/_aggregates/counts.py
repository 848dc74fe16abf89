"""Counts of rows, of units and of distinct values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from dp_polars._aggregates.base import (
    Aggregate,
    AggregateCall,
    Ends,
    ExpressionLike,
    Limits,
    Noisy,
    RowRule,
    aggregate_function,
)
from dp_polars._aggregates.needs import Distinct, Need, Rows, Units
from dp_polars._aggregates.values import Bounds, Value
from dp_polars._expressions.tree import CheckedExpression
from dp_polars._numbers import Number
from dp_polars.errors import InvalidParameterError


@dataclass(frozen=True, kw_only=True)
class _Counting(Aggregate):
    """What the three counts share: whole numbers, and no bounds."""

    bounded: ClassVar = False
    sql_type: ClassVar = "BIGINT"

    @property
    def answer_type(self) -> pl.DataType:
        """The type of the answer."""
        return pl.Int64()


@dataclass(frozen=True, kw_only=True)
class Count(_Counting):
    """The number of rows, or of the rows in which a column isn't null."""

    kind: ClassVar = "count"
    plain_sql_names: ClassVar[Mapping[str, str]] = {"count_star": "dp_count(*)", "count": "dp_count(x)"}
    summary: ClassVar = "number of rows, or of the values of a column that are not null"
    sql_usage: ClassVar = "dp_count(*) or dp_count(x)"
    columns_optional: ClassVar = True

    @classmethod
    def default_name(cls, columns: tuple[str, ...]) -> str:
        """Return the name of the answer if none is given."""
        return cls.kind

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group."""
        return (Rows(values=self.values),)

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the number of rows of each group."""
        return noisy.count()

    def ends(self, limits: Limits) -> Ends:
        """Return the ends of the interval of each group's number of rows."""
        return limits.count()


@dataclass(frozen=True, kw_only=True)
class CountUnits(_Counting):
    """The number of units."""

    kind: ClassVar = "count_units"
    summary: ClassVar = "number of units, each counted once in a group"
    columns: ClassVar = ()
    rows_beyond_the_cap: ClassVar = RowRule.ONCE

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group."""
        return (Units(),)


@dataclass(frozen=True, kw_only=True)
class NUnique(_Counting):
    """The number of distinct values of a column."""

    kind: ClassVar = "n_unique"
    summary: ClassVar = "number of distinct values, of any type"
    sql_names: ClassVar[tuple[str, ...]] = ("dp_count_distinct",)
    plain_sql_names: ClassVar[Mapping[str, str]] = {
        "count distinct": "dp_count_distinct(x)", "approx_count_distinct": "dp_count_distinct(x)"
    }  # fmt: skip
    rows_beyond_the_cap: ClassVar = RowRule.KEEP

    @classmethod
    def value(
        cls, checked: CheckedExpression, bounds: Bounds, call: AggregateCall, *, can_estimate: bool = True
    ) -> Value:
        """Return the column, whose values must be comparable."""
        if checked.dtype.is_nested() or checked.dtype in (pl.Object, pl.Unknown):
            raise InvalidParameterError(
                f"{checked.name} has the type {checked.dtype}, whose values can't be told apart. Cast the column first."
            )
        return super().value(checked, bounds, call)

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group."""
        return (Distinct(value=self.values[0]),)


@aggregate_function
def count(column: ExpressionLike | None = None, *, weight: Number = 1) -> AggregateCall:
    """Count rows, or the values of a column that are not null.

    Parameters
    ----------
    column
        If given, only rows in which this column isn't null are counted.
    weight
        The share of the spend for this aggregate, relative to the others.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> visits = pl.DataFrame({"user": [1, 1, 2], "region": ["a", "b", "a"], "spent": [3.0, 4.0, 5.0]})
    >>> session = dp.Session(epsilon=1.0, unit="user", max_rows_per_group=1)
    >>> by_region = dp.private(visits, session).group_by("region")
    >>> answer = by_region.agg(n=dp.count(), mean=dp.mean("spent", bounds=(0, 10)), keys=["a", "b"], epsilon=0.5)
    >>> answer.columns
    ['region', 'n', 'mean']
    """
    return Count.call(*(() if column is None else (column,)), weight=weight)


@aggregate_function
def count_units(*, weight: Number = 1) -> AggregateCall:
    """Count units. Each unit counts once in a group, however many rows it has there.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(people=dp.count_units(), epsilon=0.5).columns
    ['people']
    """
    return CountUnits.call(weight=weight)


@aggregate_function
def n_unique(column: ExpressionLike, *, weight: Number = 1) -> AggregateCall:
    """Count the distinct values of a column of any type. Null is not a value.

    If a unit has more than `max_rows_per_group` distinct values in a group, only that many of them count, chosen at
    random.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(kinds=dp.n_unique("km"), n=dp.count(), epsilon=0.5).columns
    ['kinds', 'n']
    """
    return NUnique.call(column, weight=weight)
