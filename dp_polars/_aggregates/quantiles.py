"""Quantiles, medians, minima and maxima: values that the exponential mechanism chooses by their rank."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import polars as pl

from dp_polars._aggregates.base import (
    Aggregate,
    AggregateCall,
    ExpressionLike,
    Limits,
    Noisy,
    RowRule,
    Shape,
    aggregate_function,
)
from dp_polars._aggregates.needs import Need, QuantileEnds, Quantiles, Rows
from dp_polars._aggregates.values import Bounds, Value
from dp_polars._numbers import Number, exact
from dp_polars.errors import InvalidParameterError

_MOST_QUANTILES = 100
_FINEST = 10**4  # quantiles have at most four digits after the decimal point

IntervalOf = Literal["rank", "value"]
"""Whether a quantile's interval is for its rank, which is free, or for its value, which needs two more choices."""


@dataclass(frozen=True, kw_only=True)
class Quantile(Aggregate):
    """One or several quantiles of a column."""

    kind: ClassVar = "quantile"
    plain_sql_names: ClassVar[Mapping[str, str]] = {"quantile_cont": "dp_quantile(x, y)"}
    summary: ClassVar = "one or several quantiles, within bounds"
    options: ClassVar[Mapping[str, Any]] = {"quantile": None, "interval": "rank"}
    sql_positional: ClassVar[tuple[str, ...]] = ("quantile",)
    sql_usage: ClassVar[str | None] = "dp_quantile(x, 0.5, 0, 100)"
    takes_times: ClassVar = True
    rows_beyond_the_cap: ClassVar = RowRule.KEEP
    shape: ClassVar = Shape.RANK

    quantiles: tuple[Fraction, ...]
    several: bool = False
    """Whether the answer is a list."""
    of_value: bool = False
    """Whether the interval is about the value."""
    confidence: float | None = None
    """The confidence of the interval of the value, which decides where its ends are chosen."""
    counted: bool = False
    """Whether another answer of the same question counts the rows of this one."""

    @classmethod
    def checked_options(cls, call: AggregateCall, values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the fields that follow from the aggregate's own options."""
        quantiles, several = _quantiles_of(call.options["quantile"])
        return {"quantiles": quantiles, "several": several, "of_value": _of_value(call, quantiles)}

    def beside(self, others: Sequence[Aggregate], confidence: float | None) -> Self:
        """Return the aggregate, adjusted to the other aggregates of the question and its confidence."""
        if self.of_value and confidence is None:
            raise InvalidParameterError(
                "interval='value' chooses the ends of an interval. Say how sure it should be: confidence=0.95."
            )
        counted = any(counts_rows_of(other, self.values[0]) for other in others)
        return replace(self, confidence=confidence if self.of_value else None, counted=counted)

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group. All choices get the same epsilon."""
        targets = tuple(sorted(set(self.quantiles)))
        if self.confidence is None:
            return (Quantiles(value=self.values[0], targets=targets),)
        levels, ends = len(targets).bit_length(), 2 * len(targets)
        share = Fraction(levels, levels + ends)
        return (
            Quantiles(value=self.values[0], targets=targets, share=share),
            QuantileEnds(value=self.values[0], targets=targets, confidence=self.confidence, share=1 - share),
        )

    def interval_schema(self) -> dict[str, pl.DataType]:
        """Return the columns of the interval.

        The ranks of a quantile are fractions if its rows are counted, and a number of rows if they are not. Those of
        several quantiles are only known as fractions.
        """
        if self.of_value:
            return super().interval_schema()
        if self.counted:
            dtype = pl.List(pl.Float64()) if self.several else pl.Float64()
            return dict.fromkeys((f"{self.name}_rank_low", f"{self.name}_rank_high"), dtype)
        return {} if self.several else {f"{self.name}_rank_error": pl.Int64()}

    def interval(self, limits: Limits) -> dict[str, pl.Series]:
        """Return the columns of the interval. A value interval is widened, if necessary, to contain the answer."""
        names = list(self.interval_schema())
        if len(names) < 2:
            return {name: limits.rank_error() for name in names}
        ends = [limits.chosen(quantile) if self.of_value else limits.ranks(quantile) for quantile in self.quantiles]
        return {name: self._together([pair[side] for pair in ends]) for side, name in enumerate(names)}

    @property
    def answer_type(self) -> pl.DataType:
        """The type of the answer."""
        dtype = self.values[0].answer_type
        return pl.List(dtype) if self.several else dtype

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the chosen values. Several are a list, in the order in which they were asked for."""
        return self._together([noisy.chosen(quantile) for quantile in self.quantiles])

    def _together(self, columns: Sequence[pl.Series]) -> pl.Series:
        """Return one column for all quantiles: the only column, or a column of lists."""
        if not self.several:
            return columns[0]
        named = [column.alias(str(place)) for place, column in enumerate(columns)]
        return pl.DataFrame(named).select(pl.concat_list(pl.all())).to_series()


@dataclass(frozen=True, kw_only=True)
class _FixedQuantile(Quantile):
    """A quantile that has a name of its own, such as the median."""

    options: ClassVar[Mapping[str, Any]] = {"interval": "rank"}
    sql_positional: ClassVar[tuple[str, ...]] = ()
    sql_usage: ClassVar[str | None] = None
    at: ClassVar[Fraction]

    quantiles: tuple[Fraction, ...] = ()

    @classmethod
    def checked_options(cls, call: AggregateCall, values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the quantile that the name stands for."""
        return {"quantiles": (cls.at,), "of_value": _of_value(call, (cls.at,))}


@dataclass(frozen=True, kw_only=True)
class Median(_FixedQuantile):
    """The median of a column."""

    kind: ClassVar = "median"
    plain_sql_names: ClassVar[Mapping[str, str]] = {"median": "dp_median(x)"}
    summary: ClassVar = "median, within bounds"
    at: ClassVar = Fraction(1, 2)


@dataclass(frozen=True, kw_only=True)
class Min(_FixedQuantile):
    """A value near the smallest one."""

    kind: ClassVar = "min"
    plain_sql_names: ClassVar[Mapping[str, str]] = {"min": "dp_min(x)"}
    summary: ClassVar = "value near the smallest, within bounds"
    at: ClassVar = Fraction(0)


@dataclass(frozen=True, kw_only=True)
class Max(_FixedQuantile):
    """A value near the largest one."""

    kind: ClassVar = "max"
    plain_sql_names: ClassVar[Mapping[str, str]] = {"max": "dp_max(x)"}
    summary: ClassVar = "value near the largest, within bounds"
    at: ClassVar = Fraction(1)


def _of_value(call: AggregateCall, quantiles: tuple[Fraction, ...]) -> bool:
    """Return whether a call asks for an interval of values, which the smallest and the largest value don't have."""
    given = call.options["interval"]
    if given not in ("rank", "value"):
        raise InvalidParameterError(
            "interval= says what the interval of a quantile is about: 'rank' (the default, for free) or 'value' (two "
            f"more choices, paid from the same spend). It is {given!r}."
        )
    if given == "value" and {0, 1} & set(quantiles):
        raise InvalidParameterError(
            "The smallest and the largest value (min, max, quantile=0 and quantile=1) have no interval of values: it "
            "would have to end at one person's value. Leave out interval=; confidence= then tells how many rows may "
            "lie beyond the answer."
        )
    return bool(given == "value")


def counts_rows_of(aggregate: Aggregate, value: Value) -> bool:
    """Tell whether an aggregate counts the rows that have this value, with the same cap on a unit's rows."""
    return any(
        isinstance(need, Rows) and [counted.expression for counted in need.values] == [value.expression]
        for need in aggregate.needs()
    )


def _quantiles_of(given: Any) -> tuple[tuple[Fraction, ...], bool]:
    """Return the wanted quantiles, and whether they were given as a list."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    listed = list(given) if several else [given]
    if not listed or given is None or isinstance(given, str | datetime.date | datetime.time):
        raise InvalidParameterError("quantile= takes a number between 0 and 1, or a list of them.")
    found = tuple(exact(number, "quantile") for number in listed)
    if any(not 0 <= quantile <= 1 for quantile in found):
        raise InvalidParameterError("quantile= must lie between 0 and 1.")
    if any(quantile.denominator > _FINEST for quantile in found):
        raise InvalidParameterError(f"quantile= takes at most four digits after the point, such as {1 / _FINEST:g}.")
    if len(found) > _MOST_QUANTILES:
        raise InvalidParameterError(f"quantile= takes at most {_MOST_QUANTILES} quantiles at once.")
    return found, several


@aggregate_function
def quantile(
    column: ExpressionLike,
    quantile: Number | Sequence[Number],
    *,
    bounds: Bounds = None,
    interval: IntervalOf = "rank",
    weight: Number = 1,
) -> AggregateCall:
    """Estimate one or several quantiles. Several are returned as a list; sorted quantiles never cross.

    With `confidence=` in the question, `interval` says what the interval is about: the rank of the answer, for free, or
    its value, for two more choices that share the spend.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(far=dp.quantile("km", 0.9, bounds=(0, 10)), epsilon=0.5).columns
    ['far']
    """
    return Quantile.call(column, bounds=bounds, quantile=quantile, interval=interval, weight=weight)


@aggregate_function
def median(
    column: ExpressionLike, *, bounds: Bounds = None, interval: IntervalOf = "rank", weight: Number = 1
) -> AggregateCall:
    """Estimate the median of a column. `interval` means the same as for `dp.quantile`.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(typical=dp.median("km", bounds=(0, 10)), epsilon=0.5).columns
    ['typical']
    """
    return Median.call(column, bounds=bounds, interval=interval, weight=weight)


@aggregate_function
def min(
    column: ExpressionLike, *, bounds: Bounds = None, interval: Literal["rank"] = "rank", weight: Number = 1
) -> AggregateCall:
    """Estimate a value near the smallest one. About 38 * max_rows / epsilon rows lie below it.

    The smallest value itself belongs to one person, so it can't be released.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(least=dp.min("km", bounds=(0, 10)), epsilon=0.5).columns
    ['least']
    """
    return Min.call(column, bounds=bounds, interval=interval, weight=weight)


@aggregate_function
def max(
    column: ExpressionLike, *, bounds: Bounds = None, interval: Literal["rank"] = "rank", weight: Number = 1
) -> AggregateCall:
    """Estimate a value near the largest one. About 38 * max_rows / epsilon rows lie above it.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(most=dp.max("km", bounds=(0, 10)), epsilon=0.5).columns
    ['most']
    """
    return Max.call(column, bounds=bounds, interval=interval, weight=weight)
