"""Means, variances and standard deviations of a column."""

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
from dp_polars._aggregates.moment_ranges import covariance_range, largest_covariance
from dp_polars._aggregates.needs import Need, Power, Rows
from dp_polars._aggregates.values import Bounds, Value
from dp_polars._numbers import Number
from dp_polars.errors import InvalidParameterError

_MICROSECONDS_PER_DAY = 86_400_000_000


@dataclass(frozen=True, kw_only=True)
class Mean(Aggregate):
    """The mean of a column: a noisy sum about the centre of the bounds, divided by a noisy count."""

    kind: ClassVar = "mean"
    summary: ClassVar = "mean of values clipped to bounds"
    sql_names: ClassVar[tuple[str, ...]] = ("dp_avg", "dp_mean")
    plain_sql_names: ClassVar[Mapping[str, str]] = {"avg": "dp_avg(x)", "mean": "dp_avg(x)"}
    takes_times: ClassVar = True
    shape: ClassVar = Shape.RATIO

    @property
    def answer_type(self) -> pl.DataType:
        """The type of the answer: the mean of times is a time, and the mean of dates has a time of day."""
        dtype = self.values[0].dtype
        if not dtype.is_temporal():
            return pl.Float64()
        return pl.Datetime("us") if dtype == pl.Date else dtype

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group.

        If the true mean may lie anywhere within the bounds, the error of a noisy sum about the centre divided by a
        noisy count is smallest when the sum gets 1 / (1 + (1/3)**(1/3)) of the spend, about three fifths.
        """
        return (
            Power(values=self.values, of="x", share=Fraction(3, 5)),
            Rows(values=self.values, share=Fraction(2, 5)),
        )

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the mean of each group, within the bounds."""
        return self._in_own_unit(clipped_mean(noisy, self.values[0], "x"))

    def ends(self, limits: Limits) -> Ends:
        """Return the ends of the interval of each group's mean, within the bounds."""
        low, high = limits.mean()
        return self._in_own_unit(low), self._in_own_unit(high)

    def _in_own_unit(self, mean: pl.Series) -> pl.Series:
        mean = mean * float(self.values[0].unit)
        return mean * _MICROSECONDS_PER_DAY if self.values[0].dtype == pl.Date else mean

    def error_in_words(self, error: str) -> str | None:
        """Describe the expected error in a group of n rows."""
        return f"within {error}"


@dataclass(frozen=True, kw_only=True)
class Var(Aggregate):
    """The variance of a column: the mean of the squares minus the square of the mean, both about the centre."""

    kind: ClassVar = "var"
    summary: ClassVar = "variance of values clipped to bounds"
    sql_names: ClassVar[tuple[str, ...]] = ("dp_var", "dp_variance")
    plain_sql_names: ClassVar[Mapping[str, str]] = {
        "var_samp": "dp_var(x)", "variance": "dp_var(x)", "var_pop": "dp_var(x, ddof := 0)"
    }  # fmt: skip
    options: ClassVar[Mapping[str, Any]] = {"ddof": 1}
    shape: ClassVar = Shape.SMOOTH

    ddof: int = 1

    @classmethod
    def checked_options(cls, call: AggregateCall, values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the fields that follow from the aggregate's own options."""
        return {"ddof": ddof_of(call.options["ddof"])}

    def needs(self) -> tuple[Need, ...]:
        """Return what this aggregate needs to know about each group.

        For values that are spread over the bounds, the derivatives of the variance give the errors of the squares, of
        the sum and of the count weights of about 1/2, 1/2 and 1/4. The total error is smallest when the shares are
        proportional to the cube roots of the squared weights.
        """
        return (
            Power(values=self.values, of="xx", share=Fraction(8, 20)),
            Power(values=self.values, of="x", share=Fraction(7, 20)),
            Rows(values=self.values, share=Fraction(5, 20)),
        )

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the variance of each group."""
        return covariance(noisy, self.values, "xx", self.ddof)

    def ends(self, limits: Limits) -> Ends:
        """Return the ends of the interval of each group's variance: its range over limits of the sums."""
        return covariance_range(limits.sums("xx", "x"), self.values, "xx", self.ddof)


@dataclass(frozen=True, kw_only=True)
class Std(Var):
    """The standard deviation of a column."""

    kind: ClassVar = "std"
    summary: ClassVar = "standard deviation of values clipped to bounds"
    sql_names: ClassVar[tuple[str, ...]] = ("dp_stddev",)
    plain_sql_names: ClassVar[Mapping[str, str]] = {
        "stddev": "dp_stddev(x)", "stddev_samp": "dp_stddev(x)", "stddev_pop": "dp_stddev(x, ddof := 0)"
    }  # fmt: skip

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the standard deviation of each group."""
        return super().estimate(noisy).sqrt()

    def ends(self, limits: Limits) -> Ends:
        """Return the ends of the interval of each group's standard deviation."""
        low, high = super().ends(limits)
        return low.sqrt(), high.sqrt()


def ddof_of(given: Any) -> int:
    """Check `ddof` and return it."""
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= 1000:
        raise InvalidParameterError("ddof= takes an integer: 1 for a sample, 0 for a population.")
    return given


def clipped_mean(noisy: Noisy, value: Value, letter: str) -> pl.Series:
    """Return the mean of a value, clipped to its bounds, in stored units."""
    return (noisy.average(letter) + noisy.centre(letter)).clip(float(value.lower), float(value.upper))


def covariance(noisy: Noisy, values: tuple[Value, ...], product: str, ddof: int) -> pl.Series:
    """Return the mean of a product minus the product of the means, clipped to what the bounds allow."""
    first, second = (noisy.average(letter) for letter in product)
    largest, unit = largest_covariance(values, product)
    smallest = 0.0 if product[0] == product[1] else -largest
    found = (noisy.average(product) - first * second).clip(smallest, largest)
    rows = noisy.rows()
    return found * unit * (rows / (rows - ddof).clip(lower_bound=1))


@aggregate_function
def mean(column: ExpressionLike, *, bounds: Bounds = None, weight: Number = 1) -> AggregateCall:
    """Average a column whose values are clipped to `bounds`.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(mean=dp.mean("km", bounds=(0, 10), weight=2), n=dp.count(), epsilon=0.5).columns
    ['mean', 'n']
    """
    return Mean.call(column, bounds=bounds, weight=weight)


@aggregate_function
def var(column: ExpressionLike, *, bounds: Bounds = None, ddof: int = 1, weight: Number = 1) -> AggregateCall:
    """Compute the variance of a column whose values are clipped to `bounds`. The divisor is the rows minus `ddof`.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(spread=dp.var("km", bounds=(0, 10)), epsilon=0.5).columns
    ['spread']
    """
    return Var.call(column, bounds=bounds, ddof=ddof, weight=weight)


@aggregate_function
def std(column: ExpressionLike, *, bounds: Bounds = None, ddof: int = 1, weight: Number = 1) -> AggregateCall:
    """Compute the standard deviation of a column whose values are clipped to `bounds`.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 4] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> trips.group_by().agg(spread=dp.std("km", bounds=(0, 10)), epsilon=0.5).columns
    ['spread']
    """
    return Std.call(column, bounds=bounds, ddof=ddof, weight=weight)
