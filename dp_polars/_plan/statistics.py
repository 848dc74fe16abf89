"""From aggregates to what an engine computes and what gets noise; shared pieces are there once.

Aggregates of the same value share a lane: one sort gives its rows, sums, squares and values. A piece that several need
(a mean and a count of the same values) gets the parts of the spend of all of them.
"""

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

Source = Literal["sum", "distinct", "bins", "basis", "choice", "scores"]
Form = Literal["basis", "split"]
"""How means and variances get their noise: on a basis of polynomials, or on centred sums and a count apart.

A row adds C(d, i) u**i v**(d - i) to the i-th sum of a basis, with u its steps from the lower bound and v those to the
upper one: in all (u + v)**d, wherever its value lies. So all sums together have the sensitivity of one, and Laplace
noise for the whole spend on each of them tells rows, sums and squares at once. Gaussian noise gains nothing by that.
"""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One thing that gets noise: a sum, a count of distinct values, counts by bin, a choice of values or by scores.

    Attributes
    ----------
    name
        Its column, or its cells, in the exact aggregates.
    source
        What is made of that.
    what
        In words: rows, units, sum, squares, ...
    weight
        Its part of the spend.
    grid
        What a step stands for.
    max_rows
        The most rows of one unit in a group.
    sensitivity
        How far one unit moves it; None for a choice.
    prices
        Of a choice: what all choices cost by the price of one.
    bins
        How many bins there are.
    columns, whole, slack
        Of a basis: its sums, what those of one row add up to, and how much more rounding lets a unit add to a group.
    targets
        Of a choice: the quantiles, rising; 0 and 1 stand for the least and the largest.
    level
        Of totals: over all but so many keys.
    """

    name: str
    source: Source
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
    level: int | None = None

    @property
    def most(self) -> int:
        """The most steps that one unit adds to the counts of a group."""
        return self.max_rows * self.whole + self.slack


@dataclass(frozen=True, kw_only=True)
class Made:
    """An aggregate and the pieces that its answer is made of, by their role."""

    aggregate: Aggregate
    cap: RowCap
    pieces: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """All lanes and pieces of a query. `columns` are the values that lanes name by place."""

    lanes: tuple[Lane, ...]
    pieces: tuple[Piece, ...]
    made: tuple[Made, ...]
    columns: tuple[Value, ...]
    counted: str | None
    """A piece that counts rows or units: its noise can decide which groups are shown."""
    units: str
    """The exact number of units of each group, where groups are discovered."""
