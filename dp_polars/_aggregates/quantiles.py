"""Quantiles, medians, minima and maxima: values that the exponential mechanism chooses by their rank."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import polars as pl

from dp_polars._aggregates.base import Aggregate, AggregateCall, ExpressionLike, Noisy, RowRule, Shape
from dp_polars._aggregates.needs import Need, Quantiles
from dp_polars._aggregates.values import Bounds, Value
from dp_polars._numbers import Number, exact
from dp_polars.errors import InvalidParameterError

_MOST_QUANTILES = 100
_FINEST = 10**4  # quantiles have at most four digits after the decimal point


@dataclass(frozen=True, kw_only=True)
class Quantile(Aggregate):
    """One or several quantiles of a column."""

    kind: ClassVar = "quantile"
    summary: ClassVar = "one or several quantiles, within bounds"
    options: ClassVar[Mapping[str, Any]] = {"quantile": None}
    sql_positional: ClassVar[tuple[str, ...]] = ("quantile",)
    sql_usage: ClassVar[str | None] = "dp_quantile(x, 0.5, 0, 100)"
    takes_times: ClassVar = True
    rows_beyond_the_cap: ClassVar = RowRule.KEEP
    shape: ClassVar = Shape.RANK

    quantiles: tuple[Fraction, ...]
    several: bool = False
    """Whether the answer is a list."""

    @classmethod
    def checked_options(cls, call: AggregateCall, values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the fields that follow from the aggregate's own options."""
        quantiles, several = _quantiles_of(call.options["quantile"])
        return {"quantiles": quantiles, "several": several}

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group."""
        return (Quantiles(value=self.values[0], targets=tuple(sorted(set(self.quantiles)))),)

    @property
    def answer_type(self) -> pl.DataType:
        """The type of the answer."""
        one = self.values[0].answer_type
        return pl.List(one) if self.several else one

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the chosen values. Several are a list, in the order in which they were asked for."""
        columns = [noisy.chosen(quantile).alias(str(place)) for place, quantile in enumerate(self.quantiles)]
        if not self.several:
            return columns[0]
        return pl.DataFrame(columns).select(pl.concat_list(pl.all())).to_series()


@dataclass(frozen=True, kw_only=True)
class _FixedQuantile(Quantile):
    """A quantile that has a name of its own, such as the median."""

    options: ClassVar[Mapping[str, Any]] = {}
    sql_positional: ClassVar[tuple[str, ...]] = ()
    sql_usage: ClassVar[str | None] = None
    at: ClassVar[Fraction]

    quantiles: tuple[Fraction, ...] = ()

    @classmethod
    def checked_options(cls, call: AggregateCall, values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the quantile that the name stands for."""
        return {"quantiles": (cls.at,)}


@dataclass(frozen=True, kw_only=True)
class Median(_FixedQuantile):
    """The median of a column."""

    kind: ClassVar = "median"
    summary: ClassVar = "median, within bounds"
    at: ClassVar = Fraction(1, 2)


@dataclass(frozen=True, kw_only=True)
class Min(_FixedQuantile):
    """A value near the smallest one."""

    kind: ClassVar = "min"
    summary: ClassVar = "value near the smallest, within bounds"
    at: ClassVar = Fraction(0)


@dataclass(frozen=True, kw_only=True)
class Max(_FixedQuantile):
    """A value near the largest one."""

    kind: ClassVar = "max"
    summary: ClassVar = "value near the largest, within bounds"
    at: ClassVar = Fraction(1)


def _quantiles_of(given: Any) -> tuple[tuple[Fraction, ...], bool]:
    """Return the wanted quantiles, and whether they were given as a list."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    listed = list(given) if several else [given]
    if not listed or given is None or isinstance(given, str | datetime.date | datetime.time):
        raise InvalidParameterError("quantile= takes a number between 0 and 1, or a list of them.")
    found = tuple(exact(one, "quantile") for one in listed)
    if any(not 0 <= one <= 1 for one in found):
        raise InvalidParameterError("quantile= must lie between 0 and 1.")
    if any(one.denominator > _FINEST for one in found):
        raise InvalidParameterError(f"quantile= takes at most four digits after the point, such as {1 / _FINEST:g}.")
    if len(found) > _MOST_QUANTILES:
        raise InvalidParameterError(f"quantile= takes at most {_MOST_QUANTILES} quantiles at once.")
    return found, several


def quantile(
    column: ExpressionLike, quantile: Number | Sequence[Number], *, bounds: Bounds = None, weight: Number = 1
) -> AggregateCall:
    """Estimate one or several quantiles. Several are returned as a list; sorted quantiles never cross.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(far=dp.quantile("km", 0.9, bounds=(0, 10)), epsilon=0.5).columns
    ['far']
    """
    return Quantile.call(column, bounds=bounds, quantile=quantile, weight=weight)


def median(column: ExpressionLike, *, bounds: Bounds = None, weight: Number = 1) -> AggregateCall:
    """Estimate the median of a column.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(typical=dp.median("km", bounds=(0, 10)), epsilon=0.5).columns
    ['typical']
    """
    return Median.call(column, bounds=bounds, weight=weight)


def min(column: ExpressionLike, *, bounds: Bounds = None, weight: Number = 1) -> AggregateCall:
    """Estimate a value near the smallest one. About 38 * max_rows / epsilon rows lie below it.

    The smallest value itself belongs to one person, so it can't be released.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(least=dp.min("km", bounds=(0, 10)), epsilon=0.5).columns
    ['least']
    """
    return Min.call(column, bounds=bounds, weight=weight)


def max(column: ExpressionLike, *, bounds: Bounds = None, weight: Number = 1) -> AggregateCall:
    """Estimate a value near the largest one. About 38 * max_rows / epsilon rows lie above it.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(most=dp.max("km", bounds=(0, 10)), epsilon=0.5).columns
    ['most']
    """
    return Max.call(column, bounds=bounds, weight=weight)
