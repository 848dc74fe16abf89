"""Aggregates of two columns: covariance, correlation and linear regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import polars as pl

from dp_polars._aggregates.base import (
    Aggregate,
    AggregateCall,
    Ends,
    ExpressionLike,
    Limits,
    Noisy,
    Shape,
    aggregate_function,
)
from dp_polars._aggregates.moment_ranges import correlation_range, covariance_range, regression_range
from dp_polars._aggregates.moments import clipped_mean, covariance, ddof_of
from dp_polars._aggregates.needs import Need, Power, Product, Rows
from dp_polars._aggregates.values import Bounds, Value
from dp_polars._numbers import Number

REGRESSION = ("slope", "intercept")
"""The columns of a linear regression."""


@dataclass(frozen=True, kw_only=True)
class _Pair(Aggregate):
    """What aggregates of two columns share: sums of products about the centres, and a count."""

    columns: ClassVar = ("first", "second")
    shape: ClassVar = Shape.SMOOTH
    shares: ClassVar[dict[Product, Fraction]]
    """The share of the spend for each product; the count gets the rest."""

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group."""
        rest = 1 - sum(self.shares.values(), Fraction(0))
        products = [Power(values=self.values, of=product, share=share) for product, share in self.shares.items()]
        return (*products, Rows(values=self.values, share=rest))


@dataclass(frozen=True, kw_only=True)
class Cov(_Pair):
    """The covariance of two columns."""

    kind: ClassVar = "cov"
    summary: ClassVar = "covariance of two columns, over the rows that have both"
    sql_names: ClassVar[tuple[str, ...]] = ("dp_covar",)
    plain_sql_names: ClassVar[Mapping[str, str]] = {
        "covar_samp": "dp_covar(x, y)", "covar_pop": "dp_covar(x, y, ddof := 0)"
    }  # fmt: skip
    options: ClassVar[Mapping[str, Any]] = {"ddof": 1}
    shares: ClassVar = {"xy": Fraction(8, 20), "x": Fraction(4, 20), "y": Fraction(4, 20)}

    ddof: int = 1

    @classmethod
    def checked_options(cls, call: AggregateCall, values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the fields that follow from the aggregate's own options."""
        return {"ddof": ddof_of(call.options["ddof"])}

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the covariance of each group."""
        return covariance(noisy, self.values, "xy", self.ddof)

    def ends(self, limits: Limits) -> Ends:
        """Return the ends of the interval of each group's covariance: its range over limits of the sums."""
        return covariance_range(limits.sums("xy", "x", "y"), self.values, "xy", self.ddof)


@dataclass(frozen=True, kw_only=True)
class Corr(_Pair):
    """The correlation (Pearson's) of two columns, which also needs the variance of each column."""

    kind: ClassVar = "corr"
    plain_sql_names: ClassVar[Mapping[str, str]] = {"corr": "dp_corr(x, y)"}
    summary: ClassVar = "correlation of two columns, over the rows that have both"
    shares: ClassVar = {
        "xy": Fraction(5, 20), "xx": Fraction(4, 20), "yy": Fraction(4, 20), "x": Fraction(2, 20), "y": Fraction(2, 20),
    }  # fmt: skip

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the correlation of each group, or null where a column doesn't vary."""
        together, first, second = (covariance(noisy, self.values, product, 1) for product in ("xy", "xx", "yy"))
        scale = (first * second).sqrt()
        return pl.select(pl.when(scale > 0).then((together / scale).clip(-1, 1))).to_series()

    def ends(self, limits: Limits) -> Ends:
        """Return the ends of the interval of each group's correlation: its range over limits of the sums."""
        return correlation_range(limits.sums(*self.shares))


@dataclass(frozen=True, kw_only=True)
class LinearRegression(_Pair):
    """The least-squares line of the second column on the first. It needs no variance of the second column."""

    kind: ClassVar = "linear_regression"
    plain_sql_names: ClassVar[Mapping[str, str]] = {
        "regr_slope": "struct_extract(dp_linear_regression(y, x), 'slope')",
        "regr_intercept": "struct_extract(dp_linear_regression(y, x), 'intercept')",
    }
    summary: ClassVar = "slope and intercept of the least-squares line"
    shares: ClassVar = {
        "xy": Fraction(6, 20), "xx": Fraction(5, 20), "x": Fraction(3, 20), "y": Fraction(3, 20),
    }  # fmt: skip
    sql_type: ClassVar = "STRUCT(slope DOUBLE, intercept DOUBLE)"
    unfolds: ClassVar = "columns"

    @property
    def answer_type(self) -> pl.DataType:
        """The type of the answer."""
        return pl.Struct(dict.fromkeys(REGRESSION, pl.Float64()))

    def unfolded_schema(self, *, interval: bool) -> dict[str, pl.DataType]:
        """Return the columns of the answer when it is asked for alone."""
        ends = ("", "_low", "_high") if interval else ("",)
        return {f"{name}{end}": pl.Float64() for name in REGRESSION for end in ends}

    def schema(self, *, interval: bool) -> dict[str, pl.DataType]:
        """Return the columns of the answer when it stands beside other answers: one struct per group."""
        return {self.name: pl.Struct(self.unfolded_schema(interval=interval))}

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the slope and the intercept of each group, or null where x doesn't vary."""
        together, spread = covariance(noisy, self.values, "xy", 1), covariance(noisy, self.values, "xx", 1)
        slope = pl.select(pl.when(spread > 0).then(together / spread)).to_series()
        means = [
            clipped_mean(noisy, value, letter) * float(value.unit)
            for value, letter in zip(self.values, "xy", strict=True)
        ]
        columns = dict(zip(REGRESSION, (slope, means[1] - slope * means[0]), strict=True))
        return pl.DataFrame(columns).to_struct(self.name)

    def ends(self, limits: Limits) -> Ends:
        """Return the ends of the intervals of slope and intercept, as structs."""
        centres = (limits.centre("x"), limits.centre("y"))
        slope, intercept = regression_range(limits.sums(*self.shares), self.values, centres)
        low, high = (
            pl.DataFrame(dict(zip(REGRESSION, (slope[end], intercept[end]), strict=True))).to_struct(self.name)
            for end in (0, 1)
        )
        return low, high


@aggregate_function
def cov(
    first: ExpressionLike, second: ExpressionLike, *, bounds: tuple[Bounds, Bounds] | None = None, ddof: int = 1,
    weight: Number = 1,
) -> AggregateCall:  # fmt: skip
    """Compute the covariance of two columns over the rows that have both. `bounds` takes a pair for each column.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> pairs = dp.private(pl.DataFrame({"x": [0, 1] * 500, "y": [1, 3] * 500}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> pairs.group_by().agg(together=dp.cov("x", "y", bounds=((0, 1), (0, 4))), epsilon=0.5).columns
    ['together']
    """
    return Cov.call(first, second, bounds=bounds, ddof=ddof, weight=weight)


@aggregate_function
def corr(
    first: ExpressionLike, second: ExpressionLike, *, bounds: tuple[Bounds, Bounds] | None = None, weight: Number = 1
) -> AggregateCall:
    """Compute the correlation (Pearson's) of two columns over the rows that have both.

    `bounds` takes a pair for each column.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> pairs = dp.private(pl.DataFrame({"x": [0, 1] * 500, "y": [1, 3] * 500}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> pairs.group_by().agg(together=dp.corr("x", "y", bounds=((0, 1), (0, 4))), epsilon=0.5).columns
    ['together']
    """
    return Corr.call(first, second, bounds=bounds, weight=weight)


@aggregate_function
def linear_regression(
    x: ExpressionLike, y: ExpressionLike, *, bounds: tuple[Bounds, Bounds] | None = None, weight: Number = 1
) -> AggregateCall:
    """Fit y by x with least squares. `bounds` takes a pair for x and one for y.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> pairs = dp.private(pl.DataFrame({"x": [0, 1] * 500, "y": [1, 3] * 500}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> pairs.group_by().agg(line=dp.linear_regression("x", "y", bounds=((0, 1), (0, 4))), epsilon=0.5).columns
    ['line']
    """
    return LinearRegression.call(x, y, bounds=bounds, weight=weight)
