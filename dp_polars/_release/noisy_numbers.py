"""The noisy numbers that the `estimate` method of an aggregate uses, in whichever form they were measured.

Means and variances are measured in one of two forms: by the sums of a basis of polynomials, all with the same Laplace
noise, or by a centred sum, a sum of squares and a count, each with its own noise. An aggregate sees no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._engines.request import LIMIT
from dp_polars._plan.grid import Grid
from dp_polars._plan.plan import Measurement, Plan
from dp_polars._plan.statistics import CompiledAggregate

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False, eq=False)
class NoisyNumbers:
    """The noisy statistics of one aggregate.

    This implements `dp_polars._aggregates.base.Noisy`. It holds nothing but what is released.
    """

    frame: pl.DataFrame
    compiled: CompiledAggregate
    plan: Plan

    @property
    def confidence(self) -> float | None:
        """The confidence of the interval, or None if none is wanted."""
        return self.plan.query.interval

    @property
    def nonnegative(self) -> bool:
        """Whether negative answers are shown as 0."""
        return self.plan.query.nonnegative

    def _measurement(self, role: str) -> Measurement:
        return self.plan.measurement(self.compiled.statistics[role])

    # ------------------------------------------------------------------ linear aggregates

    def number(self) -> pl.Series:
        """Return the only statistic of the aggregate, in the type of the answer."""
        (role,) = self.compiled.statistics
        measurement = self._measurement(role)
        return in_units(self.frame[measurement.name], measurement.grid, self.compiled.aggregate.answer_type)

    def count(self) -> pl.Series:
        """Return the number of rows."""
        return self.number() if self._is_single() else pl.Series(self._rows(), dtype=pl.Float64)

    def total(self) -> pl.Series:
        """Return the sum of the value, in stored units."""
        if self._is_single():
            return self.number()
        return pl.Series(self._sum("x") + self.centre("x") * self._rows(), dtype=pl.Float64)

    def _is_single(self) -> bool:
        """Tell whether the answer is one noisy number instead of a function of several."""
        return len(self.compiled.statistics) == 1 and "basis" not in self.compiled.statistics

    # ------------------------------------------------------------------ means and products

    def rows(self) -> pl.Series:
        """Return the noisy number of rows, at least 1."""
        return pl.Series(np.maximum(self._rows(), 1), dtype=pl.Float64)

    def _rows(self) -> Floats:
        if "basis" in self.compiled.statistics:
            total: Floats = np.sum(self._basis(), axis=0)
            return total
        return self._floats("rows") * float(self._measurement("rows").grid.step)

    def average(self, product: str) -> pl.Series:
        """Return the noisy mean of a product of values, each measured from its centre, in stored units."""
        rows = np.maximum(self._rows(), 1)
        if "basis" not in self.compiled.statistics:
            found = self._sum(product) / rows
            return pl.Series(found + self.centre(product) if len(product) > 1 else found, dtype=pl.Float64)
        sums, grid = self._basis(), self._measurement("basis").grid
        step, width = float(grid.step), grid.high - grid.low
        place = np.clip(self._first(sums) / rows, 0, 1)  # the place of the mean between the bounds, from 0 to 1
        if product == "x":
            return pl.Series((width * place + grid.low) * step, dtype=pl.Float64)
        squares = width**2 * (sums[2] / rows) + 2 * grid.low * width * place + grid.low**2
        return pl.Series(squares * step**2, dtype=pl.Float64)

    def centre(self, product: str) -> float:
        """Return the centre that a value, or a product of two values, is measured from, in stored units."""
        role = "basis" if "basis" in self.compiled.statistics else product
        return float(self._measurement(role).grid.offset)

    def _sum(self, product: str) -> Floats:
        """Return the noisy sum of a product of values, measured from its centre."""
        if "basis" not in self.compiled.statistics:
            return self._floats(product) * float(self._measurement(product).grid.step)
        sums, grid = self._basis(), self._measurement("basis").grid
        width = grid.high - grid.low
        total: Floats = (width * self._first(sums) + grid.low * np.sum(sums, axis=0)) * float(grid.step)
        return total

    def _floats(self, role: str) -> Floats:
        measurement = self._measurement(role)
        return self.frame[measurement.name].to_numpy().astype(np.float64)

    def _basis(self) -> list[Floats]:
        """Return the sums of C(d, i) t**i (1 - t)**(d - i), where t in [0, 1] is the place of a value in its bounds."""
        measurement = self._measurement("basis")
        shape = (self.frame.height, len(measurement.statistic.columns))
        table = self.frame[measurement.name].to_numpy().reshape(shape).astype(np.float64) / float(
            measurement.statistic.whole
        )
        return list(table.T)

    @staticmethod
    def _first(sums: list[Floats]) -> Floats:
        """Return the sum of all t, the places of the values in their bounds, from the sums of a basis."""
        degree = len(sums) - 1
        total: Floats = np.sum([place / degree * numbers for place, numbers in enumerate(sums)], axis=0)
        return total

    # ------------------------------------------------------------------ choices and bins

    def chosen(self, quantile: Fraction) -> pl.Series:
        """Return the value that was chosen for a quantile."""
        measurement = self._measurement("values")
        steps = self.frame[measurement.name].list.get(measurement.statistic.targets.index(quantile))
        return in_units(steps, measurement.grid, self.compiled.aggregate.values[0].answer_type)

    def bins(self) -> tuple[pl.Series, int]:
        """Return the noisy counts of all bins, group after group, and the error that each stays within."""
        measurement = self._measurement("bins")
        counts = self.frame[measurement.name]
        error = 0 if self.confidence is None else measurement.error(self.confidence)
        return counts.explode(empty_as_null=False) if len(counts) else pl.Series([], dtype=pl.Int64), error


def in_units(steps: pl.Series, grid: Grid, dtype: pl.DataType, off: int = 0, rounding: int = 0) -> pl.Series:
    """Convert numbers of grid steps, each moved by `off`, to values of a type.

    If steps are finer than integers, the answer is rounded: down (-1), to the nearest integer (0) or up (1).
    """
    if dtype.is_float():
        return (steps.cast(pl.Float64) + off) * float(grid.step) + float(grid.offset)
    parts = 1 << max(-grid.exponent, 0)
    up = off + (0, parts // 2, parts - 1)[rounding + 1]
    numbers = (up, parts, 1 << max(grid.exponent, 0), int(grid.offset))
    if numbers == (0, 1, 1, 0) and steps.dtype == dtype == pl.Int64 and _within_limit(steps):  # most counts
        return steps.alias("steps")
    added, divisor, step, offset = (pl.lit(number, dtype=pl.Int128) for number in numbers)
    whole = (pl.col("steps").cast(pl.Int128) + added) // divisor * step + offset
    return as_answer(steps.to_frame("steps").select(whole).to_series(), dtype)


def _within_limit(steps: pl.Series) -> bool:
    low, high = steps.min(), steps.max()
    return isinstance(low, int) and isinstance(high, int) and low >= -LIMIT and high <= LIMIT


def as_answer(numbers: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Convert stored numbers to values of a type, such as a time or a decimal."""
    if numbers.dtype == dtype or dtype.is_float() or dtype.is_nested():
        return numbers
    if numbers.dtype.is_float():
        numbers = numbers.round().clip(-float(LIMIT), float(LIMIT)).cast(pl.Int128)
    if isinstance(dtype, pl.Decimal):
        last_digit = pl.Series([Decimal(1).scaleb(-dtype.scale)], dtype=pl.Decimal(38, dtype.scale))
        return numbers.cast(pl.Decimal(38, 0)) * last_digit
    storage: Any = pl.Int32 if dtype == pl.Date else pl.Int64
    return numbers.clip(-LIMIT, LIMIT).cast(pl.Int64).cast(storage).cast(dtype)
