"""Answers that are made of several noisy sums: means, variances, covariances, correlations and regressions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import polars as pl

from dp_polars._plan.needs import Made
from dp_polars._plan.plan import Part, Plan

REGRESSION = ("slope", "intercept")
DAY = 86_400_000_000  # microseconds


def ratios(noisy: pl.DataFrame, made: Made, plan: Plan) -> list[pl.Series]:
    """Return an aggregate's answer (of a regression slope and intercept), and its interval where asked for."""
    moments, kind = Moments(noisy, made, plan), made.aggregate.kind
    if kind in ("sum", "mean"):
        return _with_interval(moments, made, plan.query.interval)
    if kind in ("var", "std"):
        spread = moments.spread("xx")
        return [spread.sqrt() if kind == "std" else spread]
    covariance = moments.spread("xy")
    if kind == "cov":
        return [covariance]
    first, second = moments.spread("xx"), moments.spread("yy")
    if kind == "corr":
        scale = (first * second).sqrt()
        return [pl.select(pl.when(scale > 0).then((covariance / scale).clip(-1, 1))).to_series()]
    slope = pl.select(pl.when(first > 0).then(covariance / first)).to_series()
    return [slope, moments.average("y") - slope * moments.average("x")]


class Moments:
    """Noisy sums of values and of their products, about the middles of their bounds, as floats."""

    def __init__(self, noisy: pl.DataFrame, made: Made, plan: Plan) -> None:
        self._noisy, self._made, self._plan = noisy, made, plan
        self.values = dict(zip("xy", made.aggregate.values, strict=False))
        self.ddof = made.aggregate.ddof

    def part(self, role: str) -> Part:
        """Return the part that has a role."""
        return self._plan.part(self._made.pieces[role])

    def unit(self, role: str) -> float:
        """Return what the number 1 stands for in a product of values."""
        product_of_units = Fraction(1)
        for letter in role:
            product_of_units *= self.values[letter].unit
        return float(product_of_units)

    def total(self, role: str) -> pl.Series:
        """Return a noisy sum about the middle."""
        part = self.part(role)
        return self._noisy[part.name].cast(pl.Float64) * (float(part.grid.step) * self.unit(role))

    def middle(self, role: str) -> float:
        """Return the middle that a sum is about."""
        return float(self.part(role).grid.offset) * self.unit(role)

    @property
    def rows(self) -> pl.Series:
        """The noisy number of rows."""
        return self._noisy[self.part("rows").name].cast(pl.Float64)

    def _rows(self) -> pl.Series:
        return self.rows.clip(lower_bound=1)

    def average(self, letter: str) -> pl.Series:
        """Return the mean of a value, within its bounds."""
        value, unit = self.values[letter], self.unit(letter)
        found = self.total(letter) / self._rows() + self.middle(letter)
        return found.clip(float(value.lower) * unit, float(value.upper) * unit)

    def spread(self, role: str) -> pl.Series:
        """Return the mean product of two values less the product of their means; of squares at least 0."""
        rows = self._rows()
        first, second = (self.total(letter) / rows for letter in role)
        found = self.total(role) / rows + self.middle(role) - first * second
        most = 1.0
        for letter in role:
            value = self.values[letter]
            most *= float(value.upper - value.lower) / 2 * self.unit(letter)
        found = found.clip(0 if role[0] == role[1] else -most, most)
        return found * (rows / (rows - self.ddof).clip(lower_bound=1))


def _with_interval(moments: Moments, made: Made, interval: float | None) -> list[pl.Series]:
    """Return a mean or a sum from the sum about the middle and the count, and what both noises allow together."""
    value, is_mean, unit = made.aggregate.values[0], made.aggregate.kind == "mean", moments.unit("x")
    middle, lower, upper = moments.middle("x"), float(value.lower) * unit, float(value.upper) * unit

    def answer(total: pl.Series, rows: pl.Series) -> pl.Series:
        if not is_mean:
            return total + middle * rows
        return (total / rows.clip(lower_bound=1) + middle).clip(lower, upper)

    total, rows = moments.total("x"), moments.rows
    found = [answer(total, rows)]
    if interval is not None:
        # Both noises stay within their errors at once with the confidence asked for (independent: its root each).
        each = interval**0.5
        part = moments.part("x")
        wide, few = part.error(each) * float(part.grid.step) * unit, moments.part("rows").error(each)
        corners = pl.DataFrame(
            {f"{s} {r}": answer(total + s * wide, rows + r * few) for s, r in product((-1, 1), repeat=2)}
        )
        found.append(corners.select(pl.min_horizontal(pl.all())).to_series())
        found.append(corners.select(pl.max_horizontal(pl.all())).to_series())
    if is_mean:  # of dates it has a time of day
        return [series * DAY for series in found] if value.dtype == pl.Date else found
    return [series / unit for series in found]  # decimals are counted in their last digit
