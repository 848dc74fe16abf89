"""What the compiler returns: the statistics that get noise, and the lanes in which an engine computes them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dp_polars._aggregates.base import Aggregate
from dp_polars._aggregates.values import Value
from dp_polars._engines.request import Lane
from dp_polars._plan.contribution import RowCap
from dp_polars._plan.grid import Grid
from dp_polars._plan.sensitivity import Sensitivity

StatisticSource = Literal["sum", "distinct", "bins", "basis", "choice", "scores"]
Form = Literal["basis", "split"]
"""How means and variances are measured: by a basis of polynomials, or by centred sums and a separate count.

A row adds C(d, i) u**i v**(d - i) to the i-th sum of a basis of degree d, where u is the number of steps from the lower
bound to its value and v the number of steps from there to the upper bound. This adds up to (u + v)**d, whatever the
value is. So all sums together have the L1 sensitivity of a single sum, and each of them gets Laplace noise for the
whole spend. Together they give the rows, the sums and the squares. Gaussian noise gains nothing from a basis.
"""


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """A statistic that gets noise: a sum, a count of distinct values, counts by bin, or a choice.

    Attributes
    ----------
    name
        The name of its column or its cells in the exact aggregates.
    source
        How it is computed from them.
    what
        What it is, in words: rows, units, sum, squares, ...
    weight
        Its share of the spend.
    grid
        The grid that it is counted on.
    max_rows
        The largest number of rows that one unit adds to a group.
    sensitivity
        How far one unit can move it, or None for a choice.
    prices
        For a choice, the multipliers that give the price of all choices (see `choice_prices`).
    bins
        The number of bins.
    columns, whole, slack
        For a basis, the names of its sums, what one row adds to all of them together, and how much more a unit can add
        to a group because of rounding.
    targets
        For a choice of values, the quantiles in rising order. 0 and 1 stand for the smallest and the largest value.
    confidence
        For the ends of intervals of these quantiles, the confidence with which both ends of one hold. There are two
        choices for each target, first those of all lower ends.
    level
        For totals, the number of keys that they are not summed over.
    """

    name: str
    source: StatisticSource
    what: str
    weight: Fraction
    grid: Grid
    max_rows: int
    sensitivity: Sensitivity | None = None
    prices: tuple[Fraction, Fraction] = (Fraction(1), Fraction(1))
    bins: int = 0
    columns: tuple[str, ...] = ()
    whole: int = 1
    slack: int = 0
    targets: tuple[Fraction, ...] = ()
    confidence: float | None = None
    level: int | None = None

    @property
    def most(self) -> int:
        """The largest number of steps that one unit adds to a group."""
        return self.max_rows * self.whole + self.slack

    @property
    def chosen(self) -> int:
        """The number of values that are chosen for each group."""
        return len(self.targets) * (1 if self.confidence is None else 2)


@dataclass(frozen=True, kw_only=True)
class CompiledAggregate:
    """An aggregate, its cap on rows, and the names of the statistics that its answer is computed from, by role."""

    aggregate: Aggregate
    cap: RowCap
    statistics: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to decide which discovered groups are shown.

    Attributes
    ----------
    by
        What decides: a noisy count that is released anyway, a noisy count of units that is asked for to decide (and is
        not released), or a rule on the number of units.
    share
        The share of the spend that is set aside to decide. A count that is released anyway needs none.
    counted
        The name of the statistic that is released and decides.
    """

    by: Literal["released", "hidden", "rule"]
    share: Fraction = Fraction(0)
    counted: str | None = None


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """All lanes and statistics of a query. Lanes refer to the values in `columns` by their place."""

    lanes: tuple[Lane, ...]
    statistics: tuple[Statistic, ...]
    compiled: tuple[CompiledAggregate, ...]
    columns: tuple[Value, ...]
    counts: tuple[str, ...]
    """The names of the statistics that count rows or units. Each of them can decide which groups are shown."""
    counted: str | None
    """The name of the statistic that decides which discovered groups are shown, or None if a rule does."""
    units: str
    """The name of the column with the exact number of units in each group, or "" if no keys are discovered."""
