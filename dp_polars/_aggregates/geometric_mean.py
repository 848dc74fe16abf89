"""The geometric mean of a column: the exponential of the mean of its logarithms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import polars as pl

from dp_polars._aggregates.base import AggregateCall, Ends, ExpressionLike, Limits, Noisy, aggregate_function
from dp_polars._aggregates.moments import Mean
from dp_polars._aggregates.values import Bounds, Value, stored_bounds
from dp_polars._expressions import Constant, apply
from dp_polars._expressions.tree import CheckedExpression
from dp_polars._numbers import Number
from dp_polars.errors import InvalidParameterError


@dataclass(frozen=True, kw_only=True)
class GeometricMean(Mean):
    """The geometric mean. Values below the lower bound, including zero and negative ones, count as the lower bound."""

    kind: ClassVar = "geometric_mean"
    summary: ClassVar = "geometric mean of values clipped to positive bounds"
    sql_names: ClassVar[tuple[str, ...]] = ("dp_geometric_mean",)
    sql_usage: ClassVar[str | None] = "dp_geometric_mean(x, 1, 100)"
    takes_times: ClassVar = False

    @classmethod
    def prepared(cls, checked: CheckedExpression, bounds: Bounds) -> CheckedExpression:
        """Return the logarithms of the values, clipped to the lower bound first: the logarithm of 0 is infinite."""
        lower, _ = _positive_bounds(checked, bounds)
        number = apply("cast", checked.tree, to=pl.Float64())
        least = Constant(float(lower), pl.Float64())
        clipped = apply("case", apply("lt", number, least), least, number)
        return replace(checked, tree=apply("log", clipped, base=math.e))

    @classmethod
    def value(
        cls, checked: CheckedExpression, bounds: Bounds, call: AggregateCall, *, can_estimate: bool = True
    ) -> Value:
        """Return the logarithms with their bounds."""
        lower, upper = (Fraction(math.log(bound)) for bound in _positive_bounds(checked, bounds))
        return Value(name=checked.name, expression=checked.canonical, dtype=pl.Float64(), bounds=(lower, upper))

    def estimate(self, noisy: Noisy) -> pl.Series:
        """Return the geometric mean of each group, within the bounds."""
        return super().estimate(noisy).exp()

    def ends(self, limits: Limits) -> Ends:
        """Return the ends of the interval of each group's geometric mean, within the bounds."""
        low, high = super().ends(limits)
        return low.exp(), high.exp()

    def error_in_words(self, error: str) -> str | None:
        """Describe the expected error, which is a factor, in a group of n rows."""
        return f"within a factor of exp({error})"


def _positive_bounds(checked: CheckedExpression, bounds: Bounds) -> tuple[Fraction, Fraction]:
    GeometricMean.check_type(checked.name, checked.dtype)
    if isinstance(bounds, str):
        raise InvalidParameterError("The bounds of a geometric mean can't be estimated. Give them: bounds=(1, 100).")
    lower, upper = stored_bounds(
        bounds, checked.name, pl.Float64(), GeometricMean.kind, can_estimate=False, example="(1, 100)"
    )
    if float(lower) <= 0:  # also if it rounds to 0, which has no logarithm
        raise InvalidParameterError("geometric_mean needs bounds above 0, such as bounds=(1, 100).")
    return lower, upper


@aggregate_function
def geometric_mean(column: ExpressionLike, *, bounds: Bounds = None, weight: Number = 1) -> AggregateCall:
    """Compute the geometric mean of a column whose values are clipped to `bounds`, which must be positive.

    Examples
    --------
    >>> import dp_polars as dp, polars as pl
    >>> trips = dp.private(pl.DataFrame({"km": [2, 8] * 5_000}), dp.Session(epsilon=1.0, unit=dp.ROW))
    >>> round(trips.group_by().agg(typical=dp.geometric_mean("km", bounds=(1, 10)), epsilon=0.5).item(), 1)
    4.0
    """
    return GeometricMean.call(column, bounds=bounds, weight=weight)
